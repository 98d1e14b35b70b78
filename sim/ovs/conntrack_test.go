package ovs

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"towtank/sim/packet"
)

// tracker is a bench on which every packet is committed to zone 5 and sent out of port 3.
func tracker(t *testing.T) *bench {
	b := newBench(t, "p1", "p2", "p3")
	b.must(`
		table=0,priority=1,cookie=1,ip,actions=ct(commit,zone=5,table=1)
		table=0,priority=1,cookie=1,ipv6,actions=ct(commit,zone=5,table=1)
		table=1,priority=1,cookie=1,actions=controller(userdata=01)`)
	return b
}

// state sends a packet and returns its ct_state.
func (b *bench) state(p *packet.Packet) string {
	b.t.Helper()
	b.send(1, p)
	if len(b.ins) != 1 {
		b.t.Fatalf("%s: %d packet-ins\n%s", p, len(b.ins), b.path())
	}
	return strings.ReplaceAll(stateText(b.ins[0].CTState), "+trk", "")
}

// What OVS 3.1's userspace datapath said of each packet: c is from the client, s from the server.
func TestTCPStates(t *testing.T) {
	for _, c := range []struct{ packets, states string }{
		{"cS cS sSA cA sA cFA sA sFA cA cA", "+new +new +est+rpl +est +est+rpl +est +est+rpl +est+rpl +est +est"},
		{"cS sSA cA cFA sFA cA cS sSA", "+new +est+rpl +est +est +est+rpl +est +new +est+rpl"}, // the ports are used again
		{"cA cA sA", "+new +est +est+rpl"}, // its beginning was not seen
		{"cSA", "+inv"},
		{"cR", "+new"},
		{"cF", "+inv"},
		{"c", "+inv"},
		{"cSF", "+inv"},
		{"cPA", "+new"},
		{"cS sRA cS cS sSA", "+new +est+rpl +new +new +est+rpl"},
		{"cS sS cSA", "+new +new +est"},
	} {
		b := tracker(t)
		var states []string
		for _, x := range strings.Fields(c.packets) {
			var flags uint8
			for _, f := range x[1:] {
				flags |= map[rune]uint8{'S': packet.SYN, 'A': packet.ACK, 'F': packet.FIN, 'R': packet.RST, 'P': packet.PSH}[f]
			}
			if x[0] == 'c' {
				states = append(states, b.state(tcp("10.0.0.1:1000", "10.0.0.2:80", flags)))
			} else {
				states = append(states, b.state(tcp("10.0.0.2:80", "10.0.0.1:1000", flags)))
			}
		}
		if got := strings.Join(states, " "); got != c.states {
			t.Errorf("%s\n got %s\nwant %s", c.packets, got, c.states)
		}
	}
}

func icmp(src, dst string, typ, code uint8, inner *packet.Packet) *packet.Packet {
	p := &packet.Packet{TTL: 64, Proto: packet.ProtoICMP, ICMPType: typ, ICMPCode: code, ICMPID: 7, Inner: inner}
	p.SetIPs(netip.MustParseAddr(src), netip.MustParseAddr(dst))
	if p.EthType == packet.EthIPv6 {
		p.Proto = packet.ProtoICMPv6
	}
	return p
}

func TestOtherStates(t *testing.T) {
	b := tracker(t)
	c, s := "10.0.0.1:1000", "10.0.0.2:80"
	for _, x := range []struct {
		p    *packet.Packet
		want string
	}{
		{udp(c, s), "+new"},
		{udp(c, s), "+new"},
		{udp(c, s), "+new"},
		{udp(s, c), "+est+rpl"},
		{udp(c, s), "+est"},
		{icmp("10.0.0.1", "10.0.0.2", 8, 0, nil), "+new"},
		{icmp("10.0.0.1", "10.0.0.2", 8, 0, nil), "+new"},
		{icmp("10.0.0.2", "10.0.0.1", 0, 0, nil), "+est+rpl"},
		{icmp("10.0.0.1", "10.0.0.2", 8, 0, nil), "+est"},
		{icmp("10.0.0.3", "10.0.0.2", 0, 0, nil), "+inv"},
		{icmp("10.0.0.3", "10.0.0.2", 13, 0, nil), "+new"},
		{icmp("10.0.0.2", "10.0.0.1", 3, 3, udp(c, s)), "+rel+rpl"},
		{icmp("10.0.0.9", "10.0.0.1", 11, 0, udp(c, s)), "+rel+rpl"},
		{icmp("10.0.0.1", "10.0.0.2", 3, 3, udp(s, c)), "+rel"},
		{icmp("10.0.0.2", "10.0.0.1", 3, 3, udp(c, "10.0.0.77:80")), "+inv"},
		{icmp("fd00::1", "fd00::2", 128, 0, nil), "+new"},
		{icmp("fd00::2", "fd00::1", 129, 0, nil), "+est+rpl"},
		{icmp("fd00::1", "fd00::2", 135, 0, nil), "+inv"},
		{pkt(132, c, s), "+new"},
		{pkt(132, s, c), "+est+rpl"},
	} {
		if got := b.state(x.p); got != x.want {
			t.Errorf("%s is %s, want %s", x.p, got, x.want)
		}
	}
}

func TestConntrackTimeouts(t *testing.T) {
	b := tracker(t)
	c, s := "10.0.0.1:1000", "10.0.0.2:80"
	for _, x := range []struct {
		after time.Duration
		p     *packet.Packet
		want  string
	}{
		{0, udp(c, s), "+new"},
		{59 * time.Second, udp(s, c), "+est+rpl"},
		{29 * time.Second, udp(c, s), "+est"},
		{31 * time.Second, udp(s, c), "+new"}, // forgotten: the answer is a beginning
		{0, tcp(c, s, packet.SYN), "+new"},
		{29 * time.Second, tcp(s, c, packet.SYN|packet.ACK), "+est+rpl"},
		{29 * time.Second, tcp(c, s, packet.ACK), "+est"},
		{23 * time.Hour, tcp(s, c, packet.ACK), "+est+rpl"},
		{0, tcp(s, c, packet.RST), "+est+rpl"},
		{31 * time.Second, tcp(s, c, packet.SYN|packet.ACK), "+inv"},
	} {
		b.advance(x.after)
		if got := b.state(x.p); got != x.want {
			t.Errorf("%s later, %s is %s, want %s", x.after, x.p, got, x.want)
		}
	}
	b.advance(48 * time.Hour)
	if l := b.s.DumpConntrack(nil); len(l) != 0 {
		t.Errorf("left: %v", l)
	}
}

// Nothing is stored without commit.
func TestOnlyCommitStores(t *testing.T) {
	b := newBench(t, "p1")
	b.must("table=0,priority=1,cookie=1,ip,actions=ct(zone=5,table=1)\ntable=1,priority=1,cookie=1,actions=controller(userdata=01)")
	for range 3 {
		if got := b.state(udp("10.0.0.1:1", "10.0.0.2:2")); got != "+new" {
			t.Errorf("state %s", got)
		}
	}
	if l := b.s.DumpConntrack(nil); len(l) != 0 {
		t.Errorf("stored: %v", l)
	}
}

const natFlows = `
	table=0,priority=9,cookie=1,ip,in_port=1,actions=ct(zone=5,nat,table=1)
	table=0,priority=9,cookie=1,ip,in_port=2,actions=ct(zone=5,nat,table=3)
	table=1,priority=9,cookie=1,ct_state=+new+trk,ip,nw_dst=10.96.0.1,actions=ct(commit,zone=5,nat(dst=10.0.0.2:8080),exec(set_field:0x10/0x10->ct_mark),table=2)
	table=1,priority=8,cookie=1,ct_state=+new+trk,ip,nw_dst=10.96.0.2,actions=ct(commit,zone=5,nat(src=10.0.0.99),exec(set_field:0x10/0x10->ct_mark),table=2)
	table=1,priority=1,cookie=1,actions=output:2
	table=2,priority=1,cookie=1,ip,actions=ct(commit,zone=5,exec(set_field:0x2/0xf->ct_mark),table=9)
	table=9,priority=1,cookie=1,actions=output:2
	table=3,priority=1,cookie=1,actions=output:1`

// Ports are kept if the translated tuple is free, else the next free one is taken; a second commit in
// the zone finds the connection although the packet was translated, and changes only the bits it names.
func TestNATPortsAndMarks(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must(natFlows)
	for _, x := range []struct {
		port uint32
		p    *packet.Packet
		want string
	}{
		{1, udp("10.0.0.1:1000", "10.96.0.1:53"), "2 udp 10.0.0.1:1000 -> 10.0.0.2:8080"},
		{1, udp("10.0.0.1:1000", "10.96.0.1:54"), "2 udp 10.0.0.1:1001 -> 10.0.0.2:8080"},
		{2, udp("10.0.0.2:8080", "10.0.0.1:1001"), "1 udp 10.96.0.1:54 -> 10.0.0.1:1000"},
		{1, udp("10.0.0.1:1000", "10.96.0.1:54"), "2 udp 10.0.0.1:1001 -> 10.0.0.2:8080"},
		{1, udp("10.0.0.7:1000", "10.96.0.2:53"), "2 udp 10.0.0.99:1000 -> 10.96.0.2:53"},
		{1, udp("10.0.0.8:1000", "10.96.0.2:53"), "2 udp 10.0.0.99:1001 -> 10.96.0.2:53"},
		{2, udp("10.96.0.2:53", "10.0.0.99:1001"), "1 udp 10.96.0.2:53 -> 10.0.0.8:1000"},
		{1, pkt(132, "10.0.0.1:1000", "10.96.0.1:53"), "2 sctp 10.0.0.1:1000 -> 10.0.0.2:8080"},
		{2, pkt(132, "10.0.0.2:8080", "10.0.0.1:1000"), "1 sctp 10.96.0.1:53 -> 10.0.0.1:1000"},
	} {
		b.expect(x.port, x.p, x.want)
	}
	for _, e := range b.s.DumpConntrack(nil) {
		if e.Mark != 0x12 {
			t.Errorf("mark %#x of %+v, want 0x12", e.Mark, e)
		}
	}
}

// With SCTPByAddress the address is translated, the port is not.
func TestSCTPByAddress(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.s.cfg.SCTPByAddress = true
	b.must(natFlows)
	b.expect(1, pkt(132, "10.0.0.1:1000", "10.96.0.1:53"), "2 sctp 10.0.0.1:1000 -> 10.0.0.2:53")
	b.expect(2, pkt(132, "10.0.0.2:53", "10.0.0.1:1000"), "1 sctp 10.96.0.1:53 -> 10.0.0.1:1000")
}

// An ICMP error is translated with the packet in it, in both directions.
func TestICMPErrorsAreTranslated(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must(natFlows)
	b.send(1, udp("10.0.0.1:1000", "10.96.0.1:53"))
	b.send(1, udp("10.0.0.7:1000", "10.96.0.2:53"))
	b.expect(2, icmp("10.0.0.2", "10.0.0.1", 3, 3, udp("10.0.0.1:1000", "10.0.0.2:8080")),
		"1 icmp 10.96.0.1 -> 10.0.0.1 type=3 code=3 {udp 10.0.0.1:1000 -> 10.96.0.1:53}")
	b.expect(2, icmp("10.96.0.2", "10.0.0.99", 3, 3, udp("10.0.0.99:1000", "10.96.0.2:53")),
		"1 icmp 10.96.0.2 -> 10.0.0.7 type=3 code=3 {udp 10.0.0.7:1000 -> 10.96.0.2:53}")
	b.expect(1, icmp("10.0.0.1", "10.96.0.1", 3, 3, udp("10.96.0.1:53", "10.0.0.1:1000")),
		"2 icmp 10.0.0.1 -> 10.0.0.2 type=3 code=3 {udp 10.0.0.2:8080 -> 10.0.0.1:1000}")
}

// The snat and dnat bits, the original tuple, the mark and the zone can be matched; ct_clear ends that.
func TestMatchOnConntrackFields(t *testing.T) {
	b := newBench(t, "p1", "p2", "p3")
	b.must(natFlows + `
		table=3,priority=5,cookie=1,ct_state=+snat-dnat+rpl+trk,ct_nw_dst=10.96.0.1,ct_nw_proto=17,ct_tp_dst=53,ct_zone=5,ct_mark=0x12,udp,actions=ct_clear,resubmit(,4)
		table=4,priority=2,cookie=1,ct_state=+trk,actions=output:1
		table=4,priority=1,cookie=1,ct_state=-trk,ct_mark=0,ct_zone=0,actions=output:3`)
	b.send(1, udp("10.0.0.1:1000", "10.96.0.1:53"))
	b.expect(2, udp("10.0.0.2:8080", "10.0.0.1:1000"), "3 udp 10.96.0.1:53 -> 10.0.0.1:1000")
}

// force makes the direction of the packet the original one.
func TestForceTurnsAConnection(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must(`
		table=0,priority=1,cookie=1,ip,in_port=1,actions=ct(commit,zone=5),output:2
		table=0,priority=1,cookie=1,ip,in_port=2,actions=ct(commit,force,zone=5),output:1`)
	b.send(1, udp("10.0.0.1:1", "10.0.0.2:2"))
	b.send(2, udp("10.0.0.2:2", "10.0.0.1:1"))
	if l := b.s.DumpConntrack(nil); len(l) != 1 || l[0].OrigSrc.String() != "10.0.0.2:2" {
		t.Errorf("entries %v", l)
	}
}

// A ct that goes round in circles ends at the datapath's limit.
func TestRecirculationLimit(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must("table=0,priority=1,cookie=1,ip,actions=ct(zone=5,table=0)")
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"))
	if n := b.s.Counters().Recirculations; n != 1 {
		t.Errorf("%d packets counted", n)
	}
}

// When no tuple is free, the packet is new, goes on as it came, and is not tracked.
func TestNATExhausted(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must(`
		table=0,priority=1,cookie=1,udp,actions=ct(commit,zone=5,nat(src=10.0.0.99:1000-1001),table=1)
		table=1,priority=2,cookie=1,ct_state=+new+trk,ip,nw_src=10.0.0.99,actions=drop
		table=1,priority=1,cookie=1,ct_state=+new+trk,ip,actions=output:2`)
	left := 0
	for i := range 4 {
		left += len(b.send(1, udp(fmt.Sprintf("10.0.0.%d:1", i+1), "10.0.1.1:53")))
	}
	if n := len(b.s.DumpConntrack(nil)); n != 2 || left != 2 || b.s.Counters().NATExhausted != 2 {
		t.Errorf("%d packets left, %d counted", left, b.s.Counters().NATExhausted)
	}
}
