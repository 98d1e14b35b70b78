package egress

import (
	"time"

	. "github.com/onsi/ginkgo/v2"

	"towtank/scenarios/spec"
)

const ip = "172.18.0.50"

const pool = `
	apiVersion: crd.antrea.io/v1beta1
	kind: ExternalIPPool
	metadata: {name: pool}
	spec:
	  ipRanges: [{start: 172.18.0.50, end: 172.18.0.59}]
	  nodeSelector: {matchLabels: {egress: "yes"}}
`

const web = `
	apiVersion: crd.antrea.io/v1beta1
	kind: Egress
	metadata: {name: web}
	spec: {appliedTo: {podSelector: {matchLabels: {app: web}}}, externalIPPool: pool}
`

const static = `
	apiVersion: crd.antrea.io/v1beta1
	kind: Egress
	metadata: {name: web}
	spec: {appliedTo: {podSelector: {matchLabels: {app: web}}}, egressIP: 172.18.0.60}
`

// cluster is three nodes, of which n2 and n3 may hold Egress IPs, an external host, a selected Pod on
// each node and one that is not.
//
//	            ext
//	┌────────────┼────────────┐
//	n1          n2 (egress)  n3 (egress)
//	web1,other  web2         web3
func cluster(t spec.T, options ...string) *spec.Scenario {
	s := spec.New(t)
	if len(options) > 0 {
		s.Options(options...)
	}
	s.Nodes("n1", "n2", "n3").Label("n2", "egress=yes").Label("n3", "egress=yes").External("ext")
	s.Pod("default/web1", "n1", "app=web").Pod("default/web2", "n2", "app=web").Pod("default/web3", "n3", "app=web")
	return s.Pod("default/other", "n1")
}

// leaves expects the selected Pods to leave with an address, and the other one with its node's.
func leaves(s *spec.Scenario, source string) *spec.Scenario {
	for _, p := range []string{"default/web1", "default/web2", "default/web3"} {
		s.Probe(p, "ext", spec.OK, spec.Source(source))
	}
	return s.Probe("default/other", "ext", spec.OK, spec.Source("node/n1"))
}

var _ = Describe("Egress migration", func() {
	It("gives Pods of every node the address of the pool", func() {
		s := cluster(GinkgoT()).Apply(pool).Apply(web).Settle()
		leaves(s, ip).ExpectOwner(ip, "any").Run()
	})

	It("moves when its node is powered off", func() {
		s := cluster(GinkgoT()).Apply(pool).Apply(web).Settle()
		s.Stream("s", "default/other", "ext", spec.Every(100*time.Millisecond))
		s.Do("node-down owner/" + ip).Advance(20 * time.Second).Settle()
		s.ExpectOwner(ip, "any").Probe("default/web1", "ext", spec.OK, spec.Source(ip))
		s.StreamStop("s", spec.Lost(0), spec.Source("node/n1")).Run()
	})

	It("moves when its agent dies and the kernel still answers", func() {
		s := cluster(GinkgoT()).Apply(pool).Apply(web).Settle()
		s.Do("node-down owner/" + ip + " silent").Advance(20 * time.Second).Settle()
		s.Probe("default/web1", "ext", spec.OK, spec.Source(ip)).Run()
	})

	It("moves at once when its agent stops gracefully", func() {
		s := cluster(GinkgoT()).Apply(pool).Apply(web).Settle()
		s.Do("agent owner/" + ip + " stop").Settle()
		s.Probe("default/web1", "ext", spec.OK, spec.Source(ip)).Run()
	})

	It("stays where it is over the restart of its agent", func() {
		s := cluster(GinkgoT()).Apply(pool).Apply(web).Settle()
		s.Stream("s", "default/web1", "ext", spec.Every(10*time.Millisecond))
		s.Do("agent owner/" + ip + " restart").Settle()
		s.StreamStop("s", spec.Lost(0), spec.Source(ip)).Run()
	})

	It("follows the label of the nodes", func() {
		s := cluster(GinkgoT()).Apply(pool).Apply(web).Settle()
		s.Label("n1", "egress=yes").Label("n2", "egress-").Label("n3", "egress-").Settle()
		leaves(s.ExpectOwner(ip, "n1"), ip).ExpectStatus("egress", "web", "status.egressNode=n1").Run()
	})

	It("falls back to the node's address without a node that may hold it", func() {
		s := cluster(GinkgoT()).Apply(pool).Apply(web).Settle()
		s.Label("n2", "egress-").Label("n3", "egress-").Settle().ExpectOwner(ip, "none")
		s.Probe("default/web1", "ext", spec.OK, spec.Source("node/n1")).Probe("default/web2", "ext", spec.OK, spec.Source("node/n2"))
		s.ExpectStatus("egress", "web", "condition.IPAssigned=False").Run()
	})

	It("changes a local address into a remote one and back, when people move it", func() {
		s := cluster(GinkgoT()).Apply(static)
		for _, n := range []string{"n1", "n3", "n1"} {
			s.Do("address " + n + " add 172.18.0.60").Settle()
			leaves(s, "172.18.0.60").ExpectStatus("egress", "web", "status.egressNode="+n)
			s.Do("address " + n + " del 172.18.0.60").Settle()
			s.Probe("default/web1", "ext", spec.Drop)
		}
		s.Run()
	})

	It("drops rather than leave with the node's address while nobody has a static one", func() {
		s := cluster(GinkgoT()).Apply(static).Settle()
		s.Probe("default/web1", "ext", spec.Drop).Probe("default/other", "ext", spec.OK)
		s.ExpectEvent("egress", "web", "AssignmentError").Run()
	})

	It("changes the address when the Egress is edited", func() {
		s := cluster(GinkgoT()).Do("address n1 add 172.18.0.60", "address n2 add 172.18.0.61").Apply(static).Settle()
		leaves(s, "172.18.0.60")
		s.Patch("egress", "web", `{"spec":{"egressIP":"172.18.0.61"}}`).Settle()
		leaves(s, "172.18.0.61").Run()
	})

	It("lets the next Egress take over when the oldest goes", func() {
		s := cluster(GinkgoT()).Do("address n2 add 172.18.0.60").Apply(pool).Apply(web).Settle().Advance(2 * time.Second)
		s.Apply(`
			apiVersion: crd.antrea.io/v1beta1
			kind: Egress
			metadata: {name: all}
			spec: {appliedTo: {namespaceSelector: {}}, egressIP: 172.18.0.60}
		`).Settle()
		s.Probe("default/web1", "ext", spec.OK, spec.Source(ip)).Probe("default/other", "ext", spec.OK, spec.Source("172.18.0.60"))
		s.Delete("egress", "web").Settle()
		s.Probe("default/web1", "ext", spec.OK, spec.Source("172.18.0.60")).Run()
	})

	It("follows Pods that get and lose its label", func() {
		s := cluster(GinkgoT()).Apply(pool).Apply(web).Settle()
		s.Patch("pod", "default/other", `{"metadata":{"labels":{"app":"web"}}}`).Settle()
		s.Probe("default/other", "ext", spec.OK, spec.Source(ip))
		s.Patch("pod", "default/other", `{"metadata":{"labels":{"app":null}}}`).Settle()
		leaves(s, ip).Run()
	})

	It("has one owner again after a partition", func() {
		s := cluster(GinkgoT()).Apply(pool).Apply(web).Settle()
		s.Do("partition owner/" + ip + " | *").Advance(40 * time.Second).Settle()
		s.Do("heal").Advance(90 * time.Second).Settle()
		leaves(s.ExpectOwner(ip, "any"), ip).Run()
	})

	It("works for IPv6", func() {
		s := cluster(GinkgoT(), "ip=v6").Apply(`
			apiVersion: crd.antrea.io/v1beta1
			kind: ExternalIPPool
			metadata: {name: pool}
			spec:
			  ipRanges: [{start: "fd00:18::50", end: "fd00:18::59"}]
			  nodeSelector: {matchLabels: {egress: "yes"}}
		`).Apply(web).Settle()
		leaves(s, "fd00:18::50")
		s.Do("node-down owner/fd00:18::50").Advance(20 * time.Second).Settle()
		s.Probe("default/web1", "ext", spec.OK, spec.Source("fd00:18::50")).Run()
	})
})
