package scenarios_test

import (
	"strings"
	"testing"

	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/scenarios/report"
)

// said runs the text of a scenario and returns everything that people are told about it.
func said(text string) string {
	f, err := lang.Parse("x.scenario", []byte(text))
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	_, err = scenarios.Run(f, scenarios.Options{Seed: 1}, &report.Text{W: &b, Max: 5})
	if err != nil {
		b.WriteString(err.Error())
	}
	return b.String()
}

const egressOfPool = "nodes n1 n2\npod default/w node=n1 app=web\napply all.yaml\nsettle\n"

func egressFiles(cidr string) string {
	return `-- all.yaml --
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: pool}
spec: {ipRanges: [{cidr: ` + cidr + `}], nodeSelector: {}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: e}
spec: {appliedTo: {podSelector: {matchLabels: {app: web}}}, externalIPPool: pool}
`
}

// Small scenarios, each with what must be said about it. want begins with PASS for one in which everything holds.
func TestSaid(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"who asks for an echo, and by which way", `
nodes n1 n2
external ext
pod default/a node=n1
pod default/b node=n2 serve=9999/tcp
settle
probe default/a -> default/b/icmp expect ok source=default/a to=default/b via=n1 reply-via=n2 backend=default/b
probe default/a -> ext/icmp expect ok source=node/n1 via=n1 reply-via=ext backend=ext
probe default/a -> default/b expect reject via=n1 reply-via=n2
probe default/a -> node/n1:99 expect reject via=n1
probe ext -> node/n2/icmp expect ok source=ext via=ext
`, "PASS"},
		{"a wrong source of an echo", `
nodes n1 n2
pod default/a node=n1
pod default/b node=n2
settle
probe default/a -> default/b/icmp expect ok source=node/n1
`, "want source=node/n1, got 10.10.1.2"},
		{"clients by their address", `
nodes n1 n2
external ext
pod default/a node=n1
pod default/w node=n2
settle
probe gateway/n1 -> default/w expect ok source=gateway/n1 via=n1
probe 172.18.0.101 -> node/n1 expect ok source=ext via=ext
probe 10.10.1.2 -> default/w expect ok source=default/a via=n1
probe 172.18.0.11 -> ext expect ok source=node/n1 via=n1
probe 10.10.1.1 -> default/w expect ok source=gateway/n1
`, "PASS"},
		{"a Pod that is misspelt", "nodes n1\npod default/client node=n1\nprobe default/clint -> node/n1\n", `pod default/clint is not known; did you mean "default/client"?`},
		{"a command that no node has", "nodes n1\nhost n1 : ls\n", "x.scenario:2: host n1 : ls: on n1: ls: command not modelled (known: ip, "},
		{"a command that the switch does not know", "nodes n1\nhost n1 : ip frob\n", "x.scenario:2: host n1 : ip frob: n1: ip frob: "},
		{"a client that nobody is", "nodes n1\nexternal ext\nprobe 10.10.1.77 -> ext expect ok\n", "10.10.1.77: no Pod, external host or node has this address now"},
		{"loss between the owners of addresses", `
nodes n1 n2
pod default/a node=n1
pod default/w node=n2
settle
loss owner/172.18.0.11 owner/172.18.0.12 100
probe default/a -> default/w expect drop
`, "PASS"},
		{"a pool of one address", egressOfPool + "expect-status egress e status.egressIP=172.18.0.50\nexpect-status externalippool pool status.usage.total=1 status.usage.used=1\n" + egressFiles("172.18.0.50/32"), "PASS"},
		{"a pool of two addresses", egressOfPool + "expect-status egress e status.egressIP=172.18.0.50\nexpect-status externalippool pool status.usage.total=2\n" + egressFiles("172.18.0.50/31"), "PASS"},
		{"an allocation that the API refuses", egressOfPool + "expect-event egress e reason=AllocationError\n" + egressFiles("127.0.0.48/30"), "PASS"},
		{"a Namespace goes with all that is in it", `
nodes n1 n2
namespace q
pod default/c node=n1
pod q/a node=n2 app=web
apply web.yaml
settle
probe default/c -> svc/q/web expect ok
delete namespace q
settle
probe default/c -> 10.96.0.2:80 expect drop
probe default/c -> 10.10.2.2 expect drop
expect-status service * metadata.name=web count=0
expect-status pod * metadata.name=a count=0
expect-status endpointslice * metadata.namespace=q count=0
-- web.yaml --
apiVersion: v1
kind: Service
metadata: {name: web, namespace: q}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`, "PASS"},
		{"the Namespaces that stay", "nodes n1\ndelete namespace default\n", `namespaces "default" is forbidden: this namespace may not be deleted`},
		{"a Pod on its node's network ends", `
nodes n1 n2
pod default/b node=n2
pod default/h node=n1 hostNetwork=true serve=7777/tcp,8080/tcp
settle
probe default/b -> node/n1 expect ok backend=default/h
pod-delete default/h
settle
probe default/b -> node/n1:7777 expect reject
probe default/b -> node/n1 expect ok backend=node/n1
`, "PASS"},
		{"a Pod that serves no more", `
nodes n1 n2
pod default/b node=n2
pod default/a node=n1
settle
pod-terminate default/b serving=false
settle
probe default/a -> default/b expect reject
probe default/a -> default/b/icmp expect ok
`, "PASS"},
		{"a Node goes and comes while its Pods run", `
nodes n1 n2
external ext
pod default/c node=n1
pod default/a node=n2 app=web
apply web.yaml
settle
delete node n2
settle
probe default/c -> svc/default/web expect reject
apply n2.yaml
settle
probe default/c -> svc/default/web expect ok
-- web.yaml --
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
-- n2.yaml --
apiVersion: v1
kind: Node
metadata: {name: n2}
spec: {podCIDR: 10.10.2.0/24, podCIDRs: [10.10.2.0/24]}
status:
  addresses: [{type: InternalIP, address: 172.18.0.12}]
  conditions: [{type: Ready, status: "True"}]
`, "PASS"},
		{"the Pod network of a Node", `
nodes n1 n2
patch node n2 {"spec":{"podCIDR":"10.10.9.0/24","podCIDRs":["10.10.9.0/24"]}}
`, `spec.podCIDR: Forbidden: node updates may not change podCIDR except from "" to valid`},
		{"the trace is that of a connection that fared like the one that failed", `
nodes n1 n2
pod default/c node=n1
pod default/a node=n1 app=web
pod default/b node=n1 app=web serve=9999/tcp
apply web.yaml
settle
probe default/c -> svc/default/web count=40 expect ok
-- web.yaml --
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {ports: [{port: 80, targetPort: 8080}], selector: {app: web}}
`, "refused with RST"},
		{"faults of the controller that were not reached", "nodes n1 n2\nfail controller api-status count=50\nsettle\n", "controller api-status skip=0 count=50"},
		{"an external's name is a way", `
nodes n1
external ext
probe ext -> node/n1 expect ok via=ext
`, "PASS"},
		{"an external with a node's address", "nodes n1\nexternal e ip=172.18.0.11\n", "x.scenario:2: external e ip=172.18.0.11: ip: found 172.18.0.11, which is that of node n1"},
		{"an external with another's address", "nodes n1\nexternal e\nexternal f ip=172.18.0.101\n", "which is that of an external host"},
		{"a node with another's address", "nodes n1 n2\nnode-down n2\nnode-up n2 ip=172.18.0.11\n", "found 172.18.0.11, which is that of node n1"},
		{"a Pod on its node's network with an address", "nodes n1\npod default/a node=n1 hostNetwork=true ip=10.10.1.7\n", "has the addresses of its node"},
		{"networks that overlap", "nodes n1\nnetwork a cidr=192.168.0.0/16 vlan=5\nnetwork b cidr=192.168.7.0/24 vlan=6\n", "x.scenario:3: network: cidr: found 192.168.7.0/24, which overlaps 192.168.0.0/16 of network a"},
		{"networks on one VLAN", "nodes n1\nnetwork a cidr=192.168.1.0/24 vlan=5\nnetwork b cidr=192.168.7.0/24 vlan=5\n", "vlan: found 5, which is that of network a"},
		{"a packet of two protocols", "nodes n1\npod default/a node=n1\ninject default/a nw_dst=10.10.1.9 udp_dst=8080 tcp_dst=8080\n", "found udp_dst=8080 and tcp_dst=8080"},
		{"a packet of two sorts", "nodes n1\npod default/a node=n1\ninject default/a dl_type=0x88cc nw_dst=10.10.1.9\n", "found dl_type=0x88cc and nw_dst=10.10.1.9"},
		{"a packet that is no IP", "nodes n1\npod default/a node=n1\ninject default/a dl_type=0x88cc tcp_dst=9\n", "dl_type 0x88cc is not IP"},
		{"a sandbox on another node than its Pod", "nodes n1 n2\npod default/a node=n1 add=no\ncni add k default/a node=n2\n", "node: found n2, but Pod default/a is bound to n1"},
		{"a named port of another protocol", `
nodes n1
pod default/a node=n1
apply web.yaml
probe default/a -> svc/default/web:u/tcp
-- web.yaml --
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {ports: [{name: u, port: 53, protocol: UDP}], selector: {app: web}}
`, `found u/tcp, but port "u" is udp/53`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := said(c.text)
			if c.want == "PASS" && !strings.HasPrefix(got, "PASS") || !strings.Contains(got, c.want) {
				t.Errorf("%s\nwant %q; said:\n%s", c.text, c.want, got)
			}
		})
	}
}
