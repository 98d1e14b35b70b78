package services

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"towtank/scenarios/spec"
)

// cluster is three nodes, an external host, a server on each of two nodes, and a client on each node.
//
//	      ext
//	┌──────┼──────┐
//	n1     n2     n3
//	a,c1   b,c2   c3
func cluster(options ...string) *spec.Scenario {
	s := spec.New(GinkgoT()).Seeds(1, 2)
	if len(options) > 0 {
		s.Options(options...)
	}
	s.Nodes("n1", "n2", "n3").External("ext")
	for _, p := range [][2]string{{"a", "n1"}, {"b", "n2"}} {
		s.Pod("default/"+p[0], p[1], "app=web", "serve=8080/tcp,8080/udp,9090/tcp")
	}
	return s.Pod("default/c1", "n1").Pod("default/c2", "n2").Pod("default/c3", "n3")
}

// service is a Service web with a fixed address and the given rest of its spec.
func service(rest string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: default}\nspec: {clusterIP: 10.96.0.100, " + rest + "}\n"
}

const (
	selector = "selector: {app: web}"
	port80   = "ports: [{port: 80, targetPort: 8080}]"
	vip      = "10.96.0.100"
)

// both are the two servers.
var both = spec.Backends("default/a", "default/b")

// from are the clients in the cluster.
var from = []string{"default/a", "default/c1", "default/c2", "default/c3", "node/n1", "node/n3"}

func probes(s *spec.Scenario, to string, options ...spec.Option) {
	s.For("FROM", from, func() { s.Probe("$FROM", to, options...) })
}

var _ = Describe("Service updates", func() {
	It("serves a changed port and not the old one", func() {
		s := cluster().Apply(service(selector + ", " + port80)).Settle()
		probes(s, vip+":80", spec.Count(20), spec.OK, both)
		s.Apply(service(selector + ", ports: [{port: 81, targetPort: 8080}]")).Settle()
		probes(s, vip+":81", spec.Count(20), spec.OK, both)
		probes(s, vip+":80", spec.Reject)
		s.Run()
	})

	It("translates to a changed target port", func() {
		s := cluster().Apply(service(selector + ", " + port80)).Settle()
		s.Stream("s", "default/c3", vip+":80", spec.Every(100*time.Millisecond))
		s.Apply(service(selector + ", ports: [{port: 80, targetPort: 9090}]")).Settle()
		s.StreamStop("s", spec.Lost(0))
		probes(s, vip+":80", spec.Count(20), spec.OK, spec.Backends("default/a:9090", "default/b:9090"))
		s.Run()
	})

	It("moves a node port, and closes the old one", func() {
		np := func(n int) string {
			return service(fmt.Sprintf("type: NodePort, %s, ports: [{port: 80, targetPort: 8080, nodePort: %d}]", selector, n))
		}
		s := cluster().Apply(np(30001)).Settle().Probe("ext", "node/n3:30001", spec.Count(20), spec.OK, both)
		s.Stream("s", "default/c3", vip+":80", spec.Every(100*time.Millisecond))
		s.Apply(np(30002)).Settle().StreamStop("s", spec.Lost(0))
		s.Probe("ext", "node/n3:30002", spec.Count(20), spec.OK, both)
		s.Probe("ext", "node/n3:30001", spec.Reject).Probe("default/c1", "node/n2:30001", spec.Reject)
		s.Run()
	})

	It("changes the protocol, and refuses the old one", func() {
		s := cluster().Apply(service(selector + ", " + port80)).Settle()
		s.Apply(service(selector + ", ports: [{port: 80, protocol: UDP, targetPort: 8080}]")).Settle()
		probes(s, vip+":80/udp", spec.Count(20), spec.OK, both)
		probes(s, vip+":80/tcp", spec.Reject)
		s.Run()
	})

	It("follows its selector while other Services keep their endpoints", func() {
		s := cluster().Apply(service(selector + ", " + port80))
		s.Apply("apiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: default}\nspec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}\n")
		s.Pod("default/x", "n3", "app=new").Settle()
		s.Stream("s", "default/c3", "svc/default/other", spec.Every(100*time.Millisecond))
		s.Patch("service", "default/web", `{"spec":{"selector":{"app":"new"}}}`).Settle()
		probes(s, vip+":80", spec.Count(5), spec.OK, spec.Backends("default/x"))
		s.StreamStop("s", spec.Lost(0), spec.Backend("default/a", "default/b"))
		s.Run()
	})

	It("turns affinity on and off, and forgets what it learned", func() {
		s := cluster().Apply(service("sessionAffinity: ClientIP, " + selector + ", " + port80)).Settle()
		probes(s, vip+":80", spec.Count(15), spec.OK, spec.Sticky)
		s.Patch("service", "default/web", `{"spec":{"sessionAffinity":"None"}}`).Settle()
		probes(s, vip+":80", spec.Count(30), spec.OK, both)
		s.Patch("service", "default/web", `{"spec":{"sessionAffinity":"ClientIP"}}`).Settle()
		probes(s, vip+":80", spec.Count(15), spec.OK, spec.Sticky)
		s.Run()
	})

	It("changes the external policy, with affinity too", func() {
		for _, affinity := range []string{"None", "ClientIP"} {
			s := cluster().Apply(service("type: NodePort, sessionAffinity: " + affinity + ", " + selector + ", " + port80)).Settle()
			s.For("N", []string{"n1", "n2"}, func() { s.Probe("ext", "nodeport/$N/default/web", spec.Count(6), spec.OK) })
			s.Patch("service", "default/web", `{"spec":{"externalTrafficPolicy":"Local"}}`).Settle()
			s.Probe("ext", "nodeport/n1/default/web", spec.Count(6), spec.OK, spec.Backends("default/a"), spec.Source("ext"))
			s.Probe("ext", "nodeport/n2/default/web", spec.Count(6), spec.OK, spec.Backends("default/b"), spec.Source("ext"))
			s.Probe("ext", "nodeport/n3/default/web", spec.Drop)
			s.Patch("service", "default/web", `{"spec":{"externalTrafficPolicy":"Cluster"}}`).Settle()
			s.Probe("ext", "nodeport/n3/default/web", spec.OK)
			s.Run()
		}
	})

	It("changes the internal policy there and back", func() {
		s := cluster().Apply(service(selector + ", " + port80)).Settle()
		s.Patch("service", "default/web", `{"spec":{"internalTrafficPolicy":"Local"}}`).Settle()
		s.Probe("default/c1", vip+":80", spec.Count(5), spec.OK, spec.Backends("default/a"))
		s.Probe("default/c2", vip+":80", spec.Count(5), spec.OK, spec.Backends("default/b"))
		s.Probe("default/c3", vip+":80", spec.Drop)
		s.Patch("service", "default/web", `{"spec":{"internalTrafficPolicy":"Cluster"}}`).Settle()
		probes(s, vip+":80", spec.Count(20), spec.OK, both)
		s.Run()
	})

	It("replaces one load-balancer address and leaves the other alone", func() {
		s := cluster().Apply(service("type: LoadBalancer, "+selector+", "+port80) + "status: {loadBalancer: {ingress: [{ip: 192.0.2.10}, {ip: 192.0.2.11}]}}\n").Settle()
		s.Stream("s", "ext", "192.0.2.10:80", spec.Every(100*time.Millisecond))
		s.Patch("service", "default/web", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.10"},{"ip":"192.0.2.12"}]}}}`).Settle()
		s.StreamStop("s", spec.Lost(0))
		s.Probe("ext", "192.0.2.12:80", spec.OK).Probe("ext", "192.0.2.11:80", spec.Drop)
		s.Run()
	})

	It("narrows and widens the clients that may come", func() {
		s := cluster().External("far", "ip=172.18.5.5")
		s.Apply(service("type: LoadBalancer, "+selector+", "+port80) + "status: {loadBalancer: {ingress: [{ip: 192.0.2.10}]}}\n").Settle()
		s.Probe("far", "lb/default/web", spec.OK).Probe("ext", "lb/default/web", spec.OK)
		s.Patch("service", "default/web", `{"spec":{"loadBalancerSourceRanges":["172.18.0.0/24"]}}`).Settle()
		s.Probe("far", "lb/default/web", spec.Drop).Probe("ext", "lb/default/web", spec.OK)
		s.Patch("service", "default/web", `{"spec":{"loadBalancerSourceRanges":["172.18.0.0/16"]}}`).Settle()
		s.Probe("far", "lb/default/web", spec.OK).Probe("ext", "lb/default/web", spec.OK)
		s.Run()
	})

	It("goes through all types without losing a connection to the ClusterIP", func() {
		s := cluster().Apply(service(selector + ", " + port80)).Settle()
		s.Stream("s", "default/c3", vip+":80", spec.Every(100*time.Millisecond))
		s.Open("o", "default/c3", vip+":80")
		for _, t := range []string{"NodePort", "LoadBalancer", "NodePort", "ClusterIP", "LoadBalancer", "ClusterIP"} {
			s.Patch("service", "default/web", `{"spec":{"type":"`+t+`"}}`).Settle()
			s.Send("o", spec.OK)
		}
		s.StreamStop("s", spec.Lost(0))
		s.Run()
	})

	It("gains and loses an address family, and the other does not notice", func() {
		s := cluster("ip=dual").Apply(service("ipFamilyPolicy: SingleStack, ipFamilies: [IPv4], " + selector + ", " + port80)).Settle()
		s.Stream("s", "default/c3", vip+":80", spec.Every(100*time.Millisecond))
		s.Patch("service", "default/web", `{"spec":{"ipFamilyPolicy":"RequireDualStack","ipFamilies":["IPv4","IPv6"]}}`).Settle()
		s.Probe("default/c3", "svc/default/web", spec.V6, spec.Count(20), spec.OK, both)
		s.Patch("service", "default/web", `{"spec":{"ipFamilyPolicy":"SingleStack","ipFamilies":["IPv4"],"clusterIPs":["10.96.0.100"]}}`).Settle()
		s.Probe("default/c3", "[fd00:96::2]:80", spec.Drop)
		s.StreamStop("s", spec.Lost(0))
		s.Run()
	})

	It("writes nothing for a change and its undoing that arrive together", func() {
		s := cluster().Apply(service(selector + ", " + port80)).Settle().Mark()
		s.Watch("n1", "close", "service")
		s.Apply(service(selector + ", ports: [{port: 81, targetPort: 8080}]"))
		s.Apply(service(selector + ", " + port80))
		s.Watch("n1", "release").Settle()
		s.ExpectWrites("n1", "switch=0", "host=0", "api=0")
		s.Run()
	})

	It("comes up right when it changed while the agent was away", func() {
		for _, how := range []string{"stop", "kill"} {
			s := cluster().Apply(service("type: NodePort, " + selector + ", " + port80)).Settle()
			s.Agent("n1", how).Apply(service("type: NodePort, externalTrafficPolicy: Local, " + selector + ", ports: [{port: 81, targetPort: 8080}]"))
			s.Advance(2*time.Second).Agent("n1", "start").Settle()
			s.Probe("ext", "nodeport/n1/default/web", spec.Count(5), spec.OK, spec.Backends("default/a"), spec.Source("ext"))
			s.Probe("default/c1", vip+":81", spec.Count(20), spec.OK, both).Probe("default/c1", vip+":80", spec.Reject)
			s.Run()
		}
	})

	It("is deleted and made again with the same address", func() {
		s := cluster().Apply(service(selector + ", ports: [{port: 80, protocol: UDP, targetPort: 8080}]")).Settle()
		s.Open("o", "default/c3", vip+":80/udp").Send("o", spec.OK)
		s.Delete("service", "default/web").Settle().Send("o", spec.Drop)
		s.Apply(service("selector: {app: web}, ports: [{port: 80, protocol: UDP, targetPort: 8080}]")).Settle()
		s.Send("o", spec.Count(3), spec.OK)
		s.Run()
	})
})
