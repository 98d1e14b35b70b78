package services

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"

	"towtank/scenarios/spec"
	"towtank/sim"
)

// variants are specs of one Service. Every one is reached from every other.
var variants = []struct{ name, spec, status string }{
	{name: "plain", spec: selector + ", " + port80},
	{name: "another port", spec: selector + ", ports: [{port: 81, targetPort: 8080}]"},
	{name: "another target", spec: selector + ", ports: [{port: 80, targetPort: 9090}]"},
	{name: "two ports", spec: selector + ", ports: [{name: a, port: 80, targetPort: 8080}, {name: b, protocol: UDP, port: 80, targetPort: 8080}]"},
	{name: "UDP", spec: selector + ", ports: [{port: 80, protocol: UDP, targetPort: 8080}]"},
	{name: "no endpoint", spec: "selector: {app: none}, " + port80},
	{name: "affinity", spec: "sessionAffinity: ClientIP, " + selector + ", " + port80},
	{name: "short affinity", spec: "sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 7}}, " + selector + ", " + port80},
	{name: "internal Local", spec: "internalTrafficPolicy: Local, " + selector + ", " + port80},
	{name: "external address", spec: "externalIPs: [192.0.2.20], " + selector + ", " + port80},
	{name: "external address of a node", spec: "externalIPs: [172.18.0.11, 192.0.2.20], " + selector + ", " + port80},
	{name: "node port", spec: "type: NodePort, " + selector + ", ports: [{port: 80, targetPort: 8080, nodePort: 30080}]"},
	{name: "node port, affinity, Local", spec: "type: NodePort, externalTrafficPolicy: Local, sessionAffinity: ClientIP, " + selector + ", ports: [{port: 80, targetPort: 8080, nodePort: 30080}]"},
	{
		name: "load balancer", spec: "type: LoadBalancer, " + selector + ", ports: [{port: 80, targetPort: 8080, nodePort: 30080}]",
		status: "status: {loadBalancer: {ingress: [{ip: 192.0.2.10}]}}",
	},
	{
		name: "load balancer, Local", spec: "type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 32000, " + selector + ", ports: [{port: 80, targetPort: 8080, nodePort: 30080}]",
		status: "status: {loadBalancer: {ingress: [{ip: 192.0.2.10}, {ip: 192.0.2.11}]}}",
	},
	{
		name: "load balancer, ranges", spec: "type: LoadBalancer, allocateLoadBalancerNodePorts: true, loadBalancerSourceRanges: [172.18.0.0/24], " + selector + ", ports: [{port: 80, targetPort: 8080, nodePort: 30080}]",
		status: "status: {loadBalancer: {ingress: [{ip: 192.0.2.11}]}}",
	},
	{name: "dual stack", spec: "ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4, IPv6], clusterIPs: [10.96.0.100, 'fd00:96::100'], " + selector + ", " + port80},
}

func manifest(i int) string {
	s := variants[i].spec
	if !strings.Contains(s, "ipFamilyPolicy") {
		s = "ipFamilyPolicy: SingleStack, ipFamilies: [IPv4], clusterIPs: [10.96.0.100], " + s
	}
	return service(s) + variants[i].status + "\n"
}

// state is what the nodes have for a world: every object of ours, sorted.
func state(s *spec.Scenario) []string {
	var out []string
	s.Inspect(1, func(w *sim.World) {
		for _, n := range w.Nodes() {
			for _, o := range n.Dump() {
				out = append(out, fmt.Sprintf("%s %s %s", n.Name(), o.Kind(), o))
			}
		}
	})
	slices.Sort(out)
	return out
}

func small() *spec.Scenario {
	s := spec.New(GinkgoT()).Options("ip=dual", "loadBalancerMode=dsr").Nodes("n1", "n2").External("ext")
	return s.Pod("default/a", "n1", "app=web", "serve=8080/tcp,8080/udp,9090/tcp").Settle().Pod("default/b", "n2", "app=web", "serve=8080/tcp,8080/udp,9090/tcp").Settle()
}

var _ = Describe("Updating a Service gives what creating it gives", func() {
	created := map[int][]string{}
	fresh := func(i int) []string {
		if created[i] == nil {
			created[i] = state(small().Apply(manifest(i)).Settle())
		}
		return created[i]
	}
	for to := range variants {
		It("to "+variants[to].name, func() {
			// One world goes from every other variant to this one, with traffic in between.
			for at := range variants {
				if at == to {
					continue
				}
				s := small().Apply(manifest(at)).Settle()
				s.Probe("default/a", vip+":80", spec.Count(3)).Probe("ext", "node/n1:30080", spec.Count(3)).Probe("ext", "192.0.2.10:80", spec.Count(3))
				s.Probe("default/a", vip+":80/udp", spec.Count(3))
				s.Apply(manifest(to)).Settle()
				s.Comment("The same again writes nothing.")
				s.Mark().Apply(manifest(to)).Settle().ExpectWrites("*", "switch=0", "host=0", "api=0")
				if diff := cmp.Diff(fresh(to), state(s)); diff != "" {
					Fail(fmt.Sprintf("from %s to %s: -created +updated\n%s", variants[at].name, variants[to].name, diff))
				}
			}
		})
	}
})
