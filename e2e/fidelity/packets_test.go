package fidelity

import (
	"net/netip"

	"towtank/sim/packet"
)

var (
	addrs4 = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.9")}
	addrs6 = []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::3"), netip.MustParseAddr("fd00::9")}
)

// The ends of the tunnel that packets come by.
var tunnelPeer, tunnelLocal = netip.MustParseAddr("172.18.0.12"), netip.MustParseAddr("172.18.0.11")

// sequence is the sequence number of every TCP packet.
const sequence = 1000

// packet returns a random packet, and the port that it comes from. Often it answers one that came out before.
func (g generator) packet(out []received) (uint32, *packet.Packet) {
	if len(out) > 0 && g.chance(40) {
		o := out[len(out)-1-g.IntN(min(len(out), 4))]
		if p := answer(o.p); p != nil {
			return o.port, p
		}
	}
	p := &packet.Packet{EthSrc: packet.MAC{2, 0, 0, 0, 0, byte(1 + g.IntN(2))}, EthDst: packet.MAC{2, 0, 0, 0, 0, byte(1 + g.IntN(3))}, TTL: 64}
	if g.chance(5) {
		p.TTL = uint8(g.IntN(3))
	}
	if g.chance(10) {
		p.VLAN = 0x1005
	}
	if g.chance(10) {
		p.TOS = 32
	}
	port := uint32(1 + g.IntN(ports))
	if g.chance(10) {
		port = tunnelPort
	}
	if g.chance(6) {
		p.EthType, p.ARPOp, p.ARPSHA, p.ARPSPA, p.ARPTPA, p.TTL, p.TOS = packet.EthARP, uint16(1+g.IntN(2)), p.EthSrc, addrs4[g.IntN(2)], addrs4[g.IntN(3)], 0, 0
		return port, p
	}
	pool := addrs4
	icmp, echo := packet.ProtoICMP, packet.ICMPEchoRequest
	if g.chance(30) {
		pool, icmp, echo = addrs6, packet.ProtoICMPv6, packet.ICMPv6EchoRequest
	}
	src := g.IntN(len(pool))
	p.SetIPs(pool[src], pool[(src+1+g.IntN(len(pool)-1))%len(pool)])
	switch g.IntN(5) {
	case 0, 1:
		p.Proto, p.TCPFlags, p.Seq = packet.ProtoTCP, packet.SYN, sequence
		if g.closes && g.chance(15) {
			p.TCPFlags = []uint8{packet.ACK, packet.RST, packet.FIN | packet.ACK}[g.IntN(3)]
		}
	case 2, 3:
		p.Proto = packet.ProtoUDP
	case 4:
		p.Proto, p.ICMPType, p.ICMPID = icmp, echo, uint16(1+g.IntN(2))
		return port, p
	}
	p.SrcPort, p.DstPort = uint16(1000+g.IntN(2)), uint16(80+g.IntN(2))
	return port, p
}

// answer returns what the receiver of a packet may send back, nil if there is no such thing.
func answer(p *packet.Packet) *packet.Packet {
	a := &packet.Packet{EthSrc: p.EthDst, EthDst: p.EthSrc, TTL: 64, Proto: p.Proto, VLAN: p.VLAN}
	if !p.IsIP() || p.IsICMPError() {
		return nil
	}
	a.SetIPs(p.Dst, p.Src)
	switch p.Proto {
	case packet.ProtoUDP:
		a.SrcPort, a.DstPort = p.DstPort, p.SrcPort
	case packet.ProtoTCP:
		// The model does not look at sequence numbers: all are in everybody's window.
		a.SrcPort, a.DstPort, a.Seq, a.Ack, a.TCPFlags = p.DstPort, p.SrcPort, sequence, sequence+1, packet.ACK
		if p.TCPFlags&(packet.SYN|packet.ACK) == packet.SYN {
			a.TCPFlags |= packet.SYN
		}
	default:
		switch p.ICMPType {
		case packet.ICMPEchoRequest:
			a.ICMPType = packet.ICMPEchoReply
		case packet.ICMPv6EchoRequest:
			a.ICMPType = packet.ICMPv6EchoReply
		default:
			return nil
		}
		a.ICMPID = p.ICMPID
	}
	return a
}
