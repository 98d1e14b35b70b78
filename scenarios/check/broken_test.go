package check

import (
	"strings"
	"testing"
	"time"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/sim"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

// Every invariant is seen to fail here: something is broken on purpose, and the checker must say so.

func exec(t *testing.T, w *sim.World, node, command string) {
	t.Helper()
	if _, err := w.Exec(w.Node(node), command); err != nil {
		t.Fatalf("%s: %s: %v", node, command, err)
	}
}

func advance(t *testing.T, w *sim.World, d time.Duration) {
	t.Helper()
	if err := w.Advance(d); err != nil {
		t.Fatal(err)
	}
	settle(t, w)
}

// quiet returns the world after gossip has settled, with nothing wrong.
func quiet(t *testing.T) (*sim.World, *Checker) {
	t.Helper()
	w, c := world(t, 1)
	advance(t, w, 80*time.Second)
	none(t, "settled", c.AfterSettle())
	return w, c
}

// rogue has an agent want, and its node have, a flow that nothing in Kubernetes asks for.
func rogue(t *testing.T, n *sim.Node, unit string) {
	t.Helper()
	f := openflow.NewFlow(70, 7, 0x0100000000000007).Match(openflow.IPFamily(false)).Must()
	st := n.Store()
	st.Set(unit, datapath.Precedence{}, []datapath.Object{f})
	ops := st.Pending(nil)
	st.Depart(ops)
	r := n.Switch().ApplyBundle(ops)
	st.Arrive(ops, r)
	if len(ops) != 1 || r[0].Outcome != datapath.Done {
		t.Fatalf("%v %v", ops, r)
	}
}

func TestFlowDeletedBehindTheAgentsBack(t *testing.T) {
	w, c := quiet(t)
	n := w.Node("n1")
	n.Switch().ApplyBundle([]datapath.Op{anyOp(t, n, datapath.KindFlow, "table=41")})
	n.ByHand()
	fails(t, c.AfterSettle(), 1, "n1", "missing: flow")
	// The audit repairs it.
	advance(t, w, 61*time.Second)
	none(t, "after the audit", c.AfterSettle())
}

func TestRestartWouldWrite(t *testing.T) {
	w, c := quiet(t)
	rogue(t, w.Node("n1"), "host/rogue")
	var got []Result
	for range w.Nodes() { // one agent is restarted dry each time
		w.Node("n1").ByHand()
		got = append(got, c.AfterSettle()...)
	}
	fails(t, got, 1, "n1", "a restart would write:\n  - flow")
}

func TestFlowNamesAPortThatIsGone(t *testing.T) {
	w, c := quiet(t)
	n := w.Node("n1")
	n.Switch().ApplyPorts([]datapath.Op{anyOp(t, n, datapath.KindPort, "default")})
	n.ByHand()
	fails(t, c.AfterSettle(), 2, "n1", "port ")
}

func TestObjectWithoutOwner(t *testing.T) {
	w, c := quiet(t)
	n := w.Node("n1")
	f := openflow.NewFlow(70, 7, 0x0100000000000007).Match(openflow.IPFamily(false)).Must()
	n.Switch().ApplyBundle([]datapath.Op{{New: f}})
	n.ByHand()
	fails(t, c.AfterSettle(), 2, "n1", "objects of ours without an owner")
}

func TestForeignObjectChanged(t *testing.T) {
	w, c := quiet(t)
	exec(t, w, "n1", "ip route add 203.0.113.0/24 via 172.18.0.12")
	exec(t, w, "n1", "iptables -t nat -A POSTROUTING -s 203.0.113.0/24 -j MASQUERADE")
	none(t, "by hand", c.AfterSettle())
	// Not by hand: it could only have been the agent.
	if _, err := w.Node("n1").Netns().Exec("ip route del 203.0.113.0/24"); err != nil {
		t.Fatal(err)
	}
	pod(t, w, "p", "n1", nil) // something for the agent to do
	settle(t, w)
	fails(t, c.AfterSettle(), 2, "n1", "gone: route 203.0.113.0/24")
}

func TestEgressIPOnTwoNodes(t *testing.T) {
	w, c := quiet(t)
	holder := w.Holders(addr("172.18.0.50"))
	if len(holder) != 1 {
		t.Fatalf("holders %v", holder)
	}
	exec(t, w, "n1", "ip addr add 172.18.0.50/32 dev eth0")
	settle(t, w)
	fails(t, c.AfterSettle(), 3, "", "is on n1 and "+holder[0])
}

func TestEgressIPOnNoNode(t *testing.T) {
	w, c := quiet(t)
	holder := w.Holders(addr("172.18.0.50"))[0]
	if err := w.Node(holder).Netns().DelAddress(sim.Uplink, prefix("172.18.0.50/32")); err != nil {
		t.Fatal(err)
	}
	w.Node(holder).ByHand()
	fails(t, c.AfterSettle(), 3, "", "is on no node")
}

func TestStatusNamesAnotherNode(t *testing.T) {
	w, c := quiet(t)
	if _, err := w.Kube.Patch(kube.KindEgress, "", "web", []byte(`{"status":{"egressNode":"n1"}}`)); err != nil {
		t.Fatal(err)
	}
	w.Step(1)
	fails(t, c.AfterSettle(), 3, "", "names node \"n1\"")
}

func TestSourceOfAnotherEgress(t *testing.T) {
	w, c := quiet(t)
	w.AfterEffect = func() {}
	holder := w.Holders(addr("172.18.0.50"))[0]
	exec(t, w, holder, "ip addr add 172.18.0.77/32 dev eth0")
	exec(t, w, holder, "iptables -t nat -I POSTROUTING -o eth0 -j SNAT --to-source 172.18.0.77")
	settle(t, w)
	fails(t, c.AfterSettle(), 4, "n1", "has source 172.18.0.77; Egress web applies: want [172.18.0.50]")
}

// The same is seen at once, after the next effect that could matter.
func TestSourceIsWatchedAtEveryStep(t *testing.T) {
	w, c := quiet(t)
	exec(t, w, "n1", "ip addr add 172.18.0.77/32 dev eth0")
	exec(t, w, "n1", "iptables -t nat -I POSTROUTING -s 10.10.1.0/24 -o eth0 -j SNAT --to-source 172.18.0.77")
	settle(t, w)
	var got []Result
	w.AfterEffect = func() { got = append(got, c.AtStep()...) }
	for _, name := range []string{"p", "q", "r"} {
		pod(t, w, name, "n1", nil)
	}
	settle(t, w)
	fails(t, got, 4, "n1", "has source 172.18.0.77; no Egress applies: want 172.18.0.11")
}

func TestPodAddressLeavesTheNode(t *testing.T) {
	w, c := quiet(t)
	n := w.Node("n3")
	n.Netns().Apply([]datapath.Op{anyOp(t, n, datapath.KindIPTables, "-s 10.10.3.0/24 ! -o gw0")})
	n.ByHand()
	fails(t, c.AfterSettle(), 4, "n3", "an address of a Pod network leaves the node outside the tunnel")
}

func TestServiceAnswersWrongly(t *testing.T) {
	for _, tc := range []struct{ what, flow, has string }{
		{"refused instead", "nw_dst=10.96.0.2,tp_dst=80 actions=set_field", "10.96.0.2:80/tcp: refused; Service default/plain port 80/TCP: want [ok]"},
		{"silence instead", "table=35, priority=210", ": silence"},
	} {
		w, c := quiet(t)
		for _, n := range w.Nodes() {
			n.Switch().ApplyBundle([]datapath.Op{anyOp(t, n, datapath.KindFlow, tc.flow)})
		}
		var got []Result
		for range 20 { // a settle tries some of all connections
			w.Node("n1").ByHand()
			got = append(got, c.AfterSettle()...)
		}
		t.Run(tc.what, func(t *testing.T) {
			for _, r := range got {
				if r.ID == 5 && strings.Contains(r.Detail, tc.has) {
					return
				}
			}
			t.Errorf("invariant 5 did not fail with %q: %v", tc.has, got)
		})
	}
}

func TestSomethingIsLeftOver(t *testing.T) {
	w, c := quiet(t)
	rogue(t, w.Node("n2"), "host/rogue")
	fails(t, c.End(false), 6, "n2", "left over: flow")
}

func TestNotClean(t *testing.T) {
	w, c := quiet(t)
	n := w.Node("n1")
	rogue(t, n, "svcport/default/gone:tcp/v4")
	got := strings.Join(c.Clean(n), "\n")
	if !strings.Contains(got, "Service default/gone does not exist: flow") {
		t.Errorf("%q", got)
	}
	// The same object with an owner that exists is no fault.
	n.Store().Set("node/n1", datapath.Precedence{}, n.Store().Objects("svcport/default/gone:tcp/v4"))
	for _, why := range c.Clean(n) {
		if strings.Contains(why, "does not exist: flow") {
			t.Error(why)
		}
	}
}

// What a node was told late is what counts: nobody is blamed for what the watch held back.
func TestToldLate(t *testing.T) {
	w, c := quiet(t)
	var got []Result
	w.AfterEffect = func() { got = append(got, c.AtStep()...) }
	if err := w.Watch(w.Node("n1"), "hold", []kube.Kind{kube.KindEgress}, 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Kube.Delete(kube.KindEgress, "", "web"); err != nil {
		t.Fatal(err)
	}
	settle(t, w)
	got = append(got, c.AfterSettle()...)
	if err := w.Watch(w.Node("n1"), "release", nil, 0); err != nil {
		t.Fatal(err)
	}
	settle(t, w)
	got = append(got, c.AfterSettle()...)
	none(t, "told late", got)
}

// A connection that was translated with an address which its Pod may not have goes on so: the kernel asks no rule again.
func TestKeptConnectionOfAnotherAddress(t *testing.T) {
	w, c := quiet(t)
	exec(t, w, "n1", "ip addr add 172.18.0.77/32 dev eth0")
	exec(t, w, "n1", "iptables -t nat -I POSTROUTING -p udp -o eth0 -j SNAT --to-source 172.18.0.77")
	src, err := w.PodSource("default/x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Probe(sim.Flow{From: src, To: addr("172.18.0.101"), Port: 8080, Proto: packet.ProtoUDP}); err != nil {
		t.Fatal(err)
	}
	exec(t, w, "n1", "iptables -t nat -D POSTROUTING -p udp -o eth0 -j SNAT --to-source 172.18.0.77")
	exec(t, w, "n1", "ip addr del 172.18.0.77/32 dev eth0")
	settle(t, w)
	fails(t, c.AfterSettle(), 4, "n1", "a kept connection of Pod default/x to 172.18.0.101:8080 (protocol 17) leaves with 172.18.0.77")
}

// A switch that was started has nothing of what it had: nobody is blamed for what a probe meets before a settle.
func TestSwitchThatWasStartedIsNotQuiet(t *testing.T) {
	w, c := quiet(t)
	if err := w.OVSOp(w.Node("n2"), "kill"); err != nil {
		t.Fatal(err)
	}
	settle(t, w)
	c.AfterSettle()
	if err := w.OVSOp(w.Node("n2"), "start"); err != nil {
		t.Fatal(err)
	}
	src, err := w.PodSource("default/z")
	if err != nil {
		t.Fatal(err)
	}
	dst, err := w.PodSource("default/y")
	if err != nil {
		t.Fatal(err)
	}
	f := sim.Flow{From: src, To: dst.Addr(false), Port: 8080, Proto: packet.ProtoTCP}
	r, err := w.Probe(f)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict == sim.OK {
		t.Error("the switch forwards: the test shows nothing")
	}
	none(t, "right after the start", c.Probed(f, r))
}
