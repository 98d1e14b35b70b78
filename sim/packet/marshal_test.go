package packet

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func frames() []*Packet {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	a6, b6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	src, dst := MAC{2, 0, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 2}
	var out []*Packet
	add := func(p Packet) {
		p.EthSrc, p.EthDst = src, dst
		out = append(out, &p)
	}
	add(Packet{EthType: EthARP, ARPOp: 1, ARPSHA: src, ARPSPA: a, ARPTPA: b})
	for _, v6 := range []bool{false, true} {
		s, d, eth, icmp, echo, unreachable := a, b, EthIPv4, ProtoICMP, ICMPEchoRequest, ICMPUnreachable
		if v6 {
			s, d, eth, icmp, echo, unreachable = a6, b6, EthIPv6, ProtoICMPv6, ICMPv6EchoRequest, ICMPv6Unreachable
		}
		ip := Packet{EthType: eth, Src: s, Dst: d, TTL: 64, TOS: 0x28}
		tcp := ip
		tcp.Proto, tcp.SrcPort, tcp.DstPort, tcp.TCPFlags, tcp.Seq, tcp.Ack, tcp.VLAN, tcp.VLANPriority = ProtoTCP, 40000, 80, SYN|ACK, 7, 9, 0x1005, 3
		add(tcp)
		udp := ip
		udp.Proto, udp.SrcPort, udp.DstPort, udp.Size = ProtoUDP, 40000, 53, 1400
		add(udp)
		for _, frag := range []uint8{1, 3} {
			f := ip
			f.Proto, f.Frag = ProtoUDP, frag
			if frag == 1 {
				f.SrcPort, f.DstPort = 1, 2
			}
			add(f)
		}
		ping := ip
		ping.Proto, ping.ICMPType, ping.ICMPID, ping.ICMPSeq = icmp, echo, 5, 6
		add(ping)
		sctp := ip
		sctp.Proto, sctp.SrcPort, sctp.DstPort = ProtoSCTP, 3, 4
		add(sctp)
		inner := tcp
		inner.VLAN, inner.VLANPriority = 0, 0
		e := ip
		e.Proto, e.ICMPType, e.ICMPCode, e.Inner = icmp, unreachable, 3, &inner
		add(e)
		if v6 {
			nd := ip
			nd.Proto, nd.ICMPType, nd.NDTarget, nd.NDTLL = ProtoICMPv6, ICMPv6NeighAdvert, a6, src
			add(nd)
		}
	}
	return out
}

func TestFramesComeBack(t *testing.T) {
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	for _, p := range frames() {
		b, err := Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		q, rest, err := Unmarshal(append(b, 1, 2, 3))
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		if len(rest) != 3 {
			t.Errorf("%s: %d bytes after the end, want 3", p, len(rest))
		}
		want := p.Clone()
		for x, y := want, q; x != nil && y != nil; x, y = x.Inner, y.Inner {
			if x.Size == 0 {
				x.Size = y.Size // as small as possible
			}
		}
		if d := cmp.Diff(want, q, same); d != "" {
			t.Errorf("%s: %s", p, d)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, p := range frames() {
		b, err := Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, _, err := Unmarshal(b); err == nil {
			_ = p.String()
			_, _ = Marshal(p)
		}
	})
}
