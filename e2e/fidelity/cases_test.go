package fidelity

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/e2e/ovsdummy"
	"towtank/sim"
	"towtank/sim/ovs"
	"towtank/sim/packet"
)

// cases are pipelines and packets on which the two once differed.
var cases = []struct {
	name    string
	flows   []string
	packets []packet.Packet
}{
	{
		// A packet for which no tuple is left is new, is tracked by nobody, and goes on as it came.
		"no tuple is left for a translation",
		[]string{
			"table=0, priority=2,udp actions=ct(commit,table=1,zone=1,nat(src=10.0.0.99:1000))", // of several ports each takes its own
			"table=0, priority=1,icmp actions=ct(commit,table=1,zone=1,nat(dst=10.0.0.3:81))",
			"table=1, priority=2,ct_state=+new+trk,ip actions=output:2",
			"table=1, priority=2,ct_state=+inv+trk,ip actions=output:3",
			"table=1, priority=1,ip actions=output:4",
		},
		[]packet.Packet{
			udp("10.0.0.1:1", "10.0.1.1:53"), udp("10.0.0.2:1", "10.0.1.1:53"), udp("10.0.0.3:1", "10.0.1.1:53"), udp("10.0.0.4:1", "10.0.1.1:53"),
			ping("10.0.0.9", "10.0.0.2"), ping("10.0.0.9", "10.0.0.1"), ping("10.0.0.9", "10.0.0.2"),
		},
	},
}

func udp(src, dst string) packet.Packet {
	p := packet.Packet{EthSrc: packet.MAC{2, 0, 0, 0, 0, 1}, EthDst: packet.MAC{2, 0, 0, 0, 0, 2}, Proto: packet.ProtoUDP, TTL: 64}
	from, to := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	p.SetIPs(from.Addr(), to.Addr())
	p.SrcPort, p.DstPort = from.Port(), to.Port()
	return p
}

func ping(src, dst string) packet.Packet {
	p := packet.Packet{EthSrc: packet.MAC{2, 0, 0, 0, 0, 1}, EthDst: packet.MAC{2, 0, 0, 0, 0, 2}, Proto: packet.ProtoICMP, TTL: 64, ICMPType: 8}
	p.SetIPs(netip.MustParseAddr(src), netip.MustParseAddr(dst))
	return p
}

func TestCasesAreAsOpenVSwitch(t *testing.T) {
	needOpenVSwitch(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			real, model := &side{t: t}, &side{t: t}
			sw, err := ovsdummy.New("fidelity", real.config(clock))
			if err != nil {
				t.Fatal(err)
			}
			defer sw.Close()
			real.sw, model.sw = sw, ovs.New(model.config(clock))
			for _, s := range []*side{real, model} {
				s.sw.ApplyPorts(portsOf(t))
				put(t, s, c.flows)
			}
			for i, p := range c.packets {
				for _, s := range []*side{real, model} {
					s.out = nil
					s.sw.Receive(1, p.Clone())
				}
				if a, b := model.texts(), real.texts(); !slices.Equal(a, b) {
					t.Errorf("packet %d, %s: the model %q, Open vSwitch %q", i, &p, a, b)
				}
				if why := difference(connections(model.sw), connections(real.sw)); why != "" {
					t.Errorf("packet %d, %s: %s", i, &p, why)
				}
			}
		})
	}
}

// How often a packet may go through the datapath again is a matter of its own way there, and not of what else became of it: chains of
// ct actions, with and without something after each, for packets of a port and of a tunnel.
func TestRecirculationsAreAsOpenVSwitch(t *testing.T) {
	needOpenVSwitch(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	real, model := &side{t: t}, &side{t: t}
	sw, err := ovsdummy.New("fidelity", real.config(clock))
	if err != nil {
		t.Fatal(err)
	}
	defer sw.Close()
	real.sw = sw
	real.sw.ApplyPorts(portsOf(t))
	for _, after := range []string{"", ",output:2", ",ct(table=50,zone=1)", ",ct(table=50,zone=1),output:2"} {
		for length := range 10 {
			sw.Reset()
			model.sw = ovs.New(model.config(clock))
			model.sw.ApplyPorts(portsOf(t))
			flows := []string{fmt.Sprintf("table=%d, priority=1,ip actions=IN_PORT,output:3", length), "table=50, priority=1,ip actions=output:1"}
			for i := range length {
				flows = append(flows, fmt.Sprintf("table=%d, priority=1,ip actions=ct(commit,table=%d,zone=%d)%s", i, i+1, i%3, after))
			}
			for _, s := range []*side{real, model} {
				put(t, s, flows)
			}
			for _, port := range []uint32{4, tunnelPort} {
				p := udp("10.0.0.9:1001", "10.0.0.1:81")
				for _, s := range []*side{real, model} {
					s.out = nil
					if port == tunnelPort {
						s.sw.ReceiveTunnel(port, p.Clone(), tunnelPeer, tunnelLocal, 7)
					} else {
						s.sw.Receive(port, p.Clone())
					}
				}
				if a, b := model.texts(), real.texts(); !slices.Equal(a, b) {
					t.Errorf("%d ct actions, each followed by %q, port %d: the model %q, Open vSwitch %q", length, after, port, a, b)
				}
				if why := difference(connections(model.sw), connections(real.sw)); why != "" {
					t.Errorf("%d ct actions, each followed by %q, port %d: %s", length, after, port, why)
				}
			}
		}
	}
}

// put adds flows, which must be taken.
func put(t *testing.T, s *side, flows []string) {
	t.Helper()
	for _, text := range flows {
		f, err := openflow.ParseFlow(text)
		if err != nil {
			t.Fatal(err)
		}
		if r := sim.Switch.ApplyBundle(s.sw, []datapath.Op{{New: f}})[0]; r.Outcome != datapath.Done {
			t.Fatalf("%s: %v", text, r.Err)
		}
	}
}
