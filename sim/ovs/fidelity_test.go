package ovs

import (
	"fmt"
	"testing"
	"time"

	"towtank/sim/packet"
)

// What e2e/fidelity found: each case is what Open vSwitch 3.1 did where the model had done something else.

// A packet that was translated in a zone and comes to ct there again keeps its connection: no second one is made,
// whatever NAT is asked for. If its address was set meanwhile, or after a ct in another zone, one is.
func TestSecondCTInOneZone(t *testing.T) {
	for _, c := range []struct {
		name, between, out string
		connections        int
	}{
		{"at once", "", "10.0.0.2:81", 1},
		{"with another address", "set_field:10.0.0.7->ip_dst,", "10.0.0.9:81", 2},
		{"after another zone", "ct(commit,zone=2,table=7)", "10.0.0.9:81", 3},
	} {
		b := newBench(t, "p1", "p2")
		second := c.between + "ct(commit,zone=1,table=9,nat(dst=10.0.0.9))"
		if c.name == "after another zone" {
			second = c.between
		}
		b.must(`
			table=0,priority=1,cookie=1,udp,actions=ct(commit,zone=1,table=6,nat(dst=10.0.0.2))
			table=6,priority=1,cookie=1,udp,actions=` + second + `
			table=7,priority=1,cookie=1,udp,actions=ct(commit,zone=1,table=9,nat(dst=10.0.0.9))
			table=9,priority=1,cookie=1,udp,ct_state=+new,actions=output:2`)
		b.expect(1, udp("10.0.0.3:1001", "10.0.0.1:81"), "2 udp 10.0.0.3:1001 -> "+c.out)
		if n := len(b.s.DumpConntrack([]uint16{1, 2})); n != c.connections {
			t.Errorf("%s: %d connections, want %d", c.name, n, c.connections)
		}
	}
}

// A bucket of 2 packets that fills with 3 a second is not full again after it was empty: 666 ms of filling, rounded
// down, give 1.998.
func TestMeterFillsInWholeMilliseconds(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must("meter=1,pktps,burst,bands=type=drop,rate=3,burst_size=2\ntable=0,priority=0,cookie=1,actions=meter:1,output:2")
	for i, want := range []int{2, 1, 2} {
		passed := 0
		for range 4 {
			passed += len(b.send(1, udp("10.0.0.1:1", "10.0.0.2:2")))
		}
		if passed != want {
			t.Errorf("round %d: %d packets passed, want %d", i, passed, want)
		}
		b.advance(time.Minute)
	}
}

// A packet that a meter takes away is learned from all the same: OVS learns while it translates, the meter is met
// afterwards.
func TestMeteredPacketIsLearnedFrom(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must(`
		meter=1,pktps,burst,bands=type=drop,rate=1,burst_size=1
		table=0,priority=0,cookie=1,tcp,actions=meter:1,learn(table=5,priority=1,cookie=0x2,eth_type=0x800,nw_proto=6,NXM_OF_IP_DST[],load:1->NXM_NX_REG1[]),output:2,ct(commit,zone=3)`)
	b.expect(1, tcp("10.0.0.1:1", "10.0.0.2:80", packet.SYN), "2 tcp 10.0.0.1:1 -> 10.0.0.2:80 [SYN]")
	b.expect(1, tcp("10.0.0.1:1", "10.0.0.3:80", packet.SYN))
	if n := len(b.s.Learned()); n != 2 {
		t.Errorf("%d flows learned, want 2", n)
	}
	if n := len(b.s.DumpConntrack([]uint16{3})); n != 1 {
		t.Errorf("%d connections, want 1: the one that was not taken away", n)
	}
}

// A flow with a timeout ends in the millisecond after it.
func TestTimeoutIsStrict(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must("table=0,priority=0,cookie=1,tcp,actions=learn(table=5,hard_timeout=3,priority=1,cookie=0x2,eth_type=0x800,nw_proto=6,NXM_OF_IP_DST[],load:1->NXM_NX_REG1[])")
	b.send(1, tcp("10.0.0.1:1", "10.0.0.2:80", packet.SYN))
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{3 * time.Second, 1}, {time.Millisecond, 0}} {
		b.advance(c.after)
		if n := len(b.s.Learned()); n != c.want {
			t.Errorf("after %s more: %d learned flows, want %d", c.after, n, c.want)
		}
	}
}

// The pass that learns a flow does not match it; the one behind a ct does.
func TestLearnedFlowIsForTheNextPass(t *testing.T) {
	for _, c := range []struct{ name, between, want string }{
		{"in the same pass", "goto_table:1", "7"},
		{"behind a ct", "ct(table=1)", "2"},
	} {
		b := newBench(t, "p1", "p2", "p3", "p4", "p5", "p6", "p7")
		b.must(`
			table=0,priority=0,cookie=1,tcp,actions=set_field:7->reg1,learn(table=5,priority=1,cookie=0x2,eth_type=0x800,nw_proto=6,NXM_OF_IP_DST[],load:2->NXM_NX_REG1[]),` + c.between + `
			table=1,priority=0,cookie=1,tcp,actions=resubmit(,5),output:NXM_NX_REG1[]`)
		syn := tcp("10.0.0.1:1", "10.0.0.2:80", packet.SYN)
		t.Run(c.name, func(t *testing.T) {
			b.expect(1, syn, c.want+" tcp 10.0.0.1:1 -> 10.0.0.2:80 [SYN]")
			b.expect(1, syn, "2 tcp 10.0.0.1:1 -> 10.0.0.2:80 [SYN]")
		})
	}
}

// Two learn actions of one pass that make the same flow but for its cookie: the last one's stays, with every packet.
func TestTwoLearnTheSameFlow(t *testing.T) {
	b := newBench(t, "p1", "p2")
	const learn = "learn(table=5,hard_timeout=3,priority=2,cookie=%s,eth_type=0x800,nw_proto=6,NXM_OF_IP_DST[],load:1->NXM_NX_REG1[])"
	b.must("table=0,priority=0,cookie=1,tcp,actions=" + fmt.Sprintf(learn, "0x1") + "," + fmt.Sprintf(learn, "0x3"))
	for i := range 3 {
		b.send(1, tcp("10.0.0.1:1", "10.0.0.2:80", packet.SYN))
		if l := b.s.Learned(); len(l) != 1 || l[0].Cookie() != 3 {
			t.Errorf("after packet %d: %v, want one flow with cookie 0x3", i+1, l)
		}
	}
}
