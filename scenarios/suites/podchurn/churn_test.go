package podchurn

import (
	"time"

	. "github.com/onsi/ginkgo/v2"

	"towtank/scenarios/spec"
)

// cluster is two nodes, an external host, and a Pod that stays on each node.
func cluster(t spec.T, options ...string) *spec.Scenario {
	s := spec.New(t)
	if len(options) > 0 {
		s.Options(options...)
	}
	return s.Nodes("n1", "n2").External("ext").Pod("default/s1", "n1").Pod("default/s2", "n2").Settle()
}

// works expects a Pod to reach everybody and to be reached.
func works(s *spec.Scenario, pods ...string) *spec.Scenario {
	for _, p := range pods {
		s.Probe(p, "default/s1", spec.OK, spec.Source(p)).Probe(p, "default/s2", spec.OK, spec.Source(p))
		s.Probe("default/s2", p, spec.OK, spec.Source("default/s2")).Probe(p, "ext", spec.OK)
	}
	return s
}

var _ = Describe("Pod churn", func() {
	It("wires Pods on both nodes, for both families", func() {
		s := cluster(GinkgoT(), "ip=dual").Pod("default/a", "n1").Pod("default/b", "n2").Settle()
		works(s, "default/a", "default/b").Run()
	})

	It("gives a freed port and address to the next Pod", func() {
		s := cluster(GinkgoT())
		for _, n := range []string{"1", "2", "3", "4", "5"} {
			s.Pod("default/p"+n, "n1", "ip=10.10.1.200").Settle()
			works(s, "default/p"+n)
			s.PodDelete("default/p" + n).Settle()
		}
		s.Do("expect-clean n1").Run()
	})

	It("takes fifty Pods at once", func() {
		s := cluster(GinkgoT())
		s.For("I", []string{"1..50"}, func() { s.Pod("default/p$I", "n1") })
		s.Settle()
		s.For("I", []string{"1..50"}, func() { s.Probe("default/p$I", "default/s2", spec.OK, spec.Source("default/p$I")) })
		s.For("I", []string{"1..50"}, func() { s.PodDelete("default/p$I") })
		s.Settle().Do("expect-clean n1").Run()
	})

	It("rolls a failed ADD back, whatever step fails", func() {
		s := cluster(GinkgoT())
		for _, e := range []string{"ipam", "link", "ports", "switch"} {
			s.Fail("n1", e).Pod("default/"+e, "n1").Settle()
			works(s, "default/"+e)
		}
		s.Run()
	})

	It("survives the loss of every answer", func() {
		s := cluster(GinkgoT())
		for _, e := range []string{"ipam", "link", "ports", "switch"} {
			s.Fail("n1", e, "mode=lost-reply").Pod("default/"+e, "n1").Do("settle within=2m")
			works(s, "default/"+e)
		}
		s.Run()
	})

	It("finishes what a killed agent began", func() {
		s := cluster(GinkgoT())
		s.Do("fail n1 any skip=2 mode=die-after").Pod("default/a", "n1").Do("settle within=5s")
		s.Agent("n1", "start").Do("settle within=2m")
		works(s, "default/a").Run()
	})

	It("removes while the agent is away what went meanwhile", func() {
		s := cluster(GinkgoT()).Pod("default/a", "n1").Pod("default/b", "n1").Settle()
		s.Agent("n1", "stop").PodDelete("default/a").Do("settle within=5s").Agent("n1", "start").Do("settle within=2m")
		works(s, "default/b").Do("expect-objects n1 unit=pod/default/a count=0", "expect-clean n1").Run()
	})

	It("wires a StatefulSet's Pod anew under its name", func() {
		s := cluster(GinkgoT())
		s.Do("cni add c1 default/db-0 node=n1 expect ok", "cni add c2 default/db-0 node=n1 expect ok", "cni del c1 default/db-0 node=n1 expect ok").Settle()
		works(s, "default/db-0").Run()
	})

	It("brings all Pods back after vswitchd was restarted", func() {
		s := cluster(GinkgoT()).Pod("default/a", "n1").Settle().OVS("n1", "restart").Settle()
		works(s, "default/a").Run()
	})

	It("brings all Pods back after the node was booted", func() {
		s := cluster(GinkgoT()).Pod("default/a", "n1").Settle()
		s.Do("node-down n1").Advance(60 * time.Second).Do("node-up n1").Settle().Advance(10 * time.Second).Settle()
		works(s, "default/a").Run()
	})

	It("does not let a Pod send in another's name", func() {
		s := cluster(GinkgoT()).Pod("default/a", "n1").Settle()
		s.Do("inject default/a nw_src=10.10.1.2 nw_dst=10.10.2.2 expect drop", "inject default/a arp_spa=10.10.1.1 arp_op=2 expect drop")
		works(s, "default/a").Run()
	})

	It("keeps what runs undisturbed while others come and go", func() {
		s := cluster(GinkgoT()).Stream("s", "default/s1", "default/s2", spec.Every(10*time.Millisecond))
		for _, n := range []string{"a", "b", "c"} {
			s.Pod("default/"+n, "n1").Pod("default/"+n+"2", "n2").Settle().PodDelete("default/" + n).Settle()
		}
		s.StreamStop("s", spec.Lost(0)).Run()
	})

	It("works without tunnels", func() {
		s := cluster(GinkgoT(), "traffic=noEncap").Pod("default/a", "n1").Pod("default/b", "n2").Settle()
		works(s, "default/a", "default/b").Run()
	})
})
