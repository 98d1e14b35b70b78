package shell_test

import (
	"net/netip"
	"testing"

	"towtank/agent/shell"
	"towtank/sim/packet"
)

var routerMAC = [6]byte{0x0e, 1, 0, 0, 0, 1}

func TestRefuse(t *testing.T) {
	v4 := [2]netip.Addr{netip.MustParseAddr("10.10.1.2"), netip.MustParseAddr("10.96.0.10")}
	v6 := [2]netip.Addr{netip.MustParseAddr("fd00:10:1::2"), netip.MustParseAddr("fd00:96::a")}
	for _, c := range []struct {
		name  string
		in    packet.Packet
		ips   [2]netip.Addr
		proto uint8 // of the answer; 0: none
		icmp  [2]uint8
	}{
		{"a SYN", packet.Packet{Proto: packet.ProtoTCP, SrcPort: 1000, DstPort: 80, TCPFlags: packet.SYN, Seq: 7}, v4, packet.ProtoTCP, [2]uint8{}},
		{"a SYN over v6", packet.Packet{Proto: packet.ProtoTCP, SrcPort: 1000, DstPort: 80, TCPFlags: packet.SYN, Seq: 7}, v6, packet.ProtoTCP, [2]uint8{}},
		{"a RST", packet.Packet{Proto: packet.ProtoTCP, SrcPort: 1000, DstPort: 80, TCPFlags: packet.RST}, v4, 0, [2]uint8{}},
		{"UDP", packet.Packet{Proto: packet.ProtoUDP, SrcPort: 1000, DstPort: 53}, v4, packet.ProtoICMP, [2]uint8{3, 3}},
		{"UDP over v6", packet.Packet{Proto: packet.ProtoUDP, SrcPort: 1000, DstPort: 53}, v6, packet.ProtoICMPv6, [2]uint8{1, 4}},
		{"a ping", packet.Packet{Proto: packet.ProtoICMP, ICMPType: 8}, v4, packet.ProtoICMP, [2]uint8{3, 3}},
		{"an answer to a ping", packet.Packet{Proto: packet.ProtoICMP, ICMPType: 0}, v4, 0, [2]uint8{}},
	} {
		in := c.in
		in.TTL = 64
		in.SetIPs(c.ips[0], c.ips[1])
		in.EthSrc, in.EthDst = packet.MAC{0x0a, 2}, packet.MAC(routerMAC)
		frame, err := packet.Marshal(&in)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		answer := shell.Refuse(frame, routerMAC)
		if (answer == nil) != (c.proto == 0) {
			t.Errorf("%s: answered with %x", c.name, answer)
		}
		if answer == nil {
			continue
		}
		out, _, err := packet.Unmarshal(answer)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if out.Src != c.ips[1] || out.Dst != c.ips[0] || out.EthSrc != packet.MAC(routerMAC) || out.EthDst != in.EthSrc || out.Proto != c.proto {
			t.Errorf("%s: answered with %s", c.name, out)
		}
		if c.proto == packet.ProtoTCP && (out.TCPFlags != packet.RST|packet.ACK || out.Ack != 8 || out.SrcPort != 80 || out.DstPort != 1000) {
			t.Errorf("%s: answered with %s", c.name, out)
		}
		if c.proto != packet.ProtoTCP && (out.ICMPType != c.icmp[0] || out.ICMPCode != c.icmp[1]) {
			t.Errorf("%s: answered with %s", c.name, out)
		}
		for n := range frame { // cut frames are not read beyond their end
			shell.Refuse(frame[:n], routerMAC)
		}
	}
}

func FuzzRefuse(f *testing.F) {
	in := packet.Packet{Proto: packet.ProtoTCP, TTL: 64, TCPFlags: packet.SYN}
	in.SetIPs(netip.MustParseAddr("10.10.1.2"), netip.MustParseAddr("10.96.0.10"))
	frame, err := packet.Marshal(&in)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame)
	f.Fuzz(func(_ *testing.T, frame []byte) { shell.Refuse(frame, routerMAC) })
}
