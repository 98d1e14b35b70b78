package sim

import "towtank/sim/packet"

// refuse returns the answer that refuses a packet in the name of the address it was sent to: a RST for
// TCP, port unreachable for the rest. nil for what is never answered (RFC 1122, 3.2.2.1; RFC 9293,
// 3.10.7.1).
func refuse(in *packet.Packet) *packet.Packet {
	if !in.IsIP() || in.IsICMPError() || (in.Proto == packet.ProtoTCP && in.TCPFlags&packet.RST != 0) {
		return nil
	}
	out := &packet.Packet{TTL: 128, Trace: in.Trace}
	out.SetIPs(in.Dst, in.Src)
	switch in.Proto {
	case packet.ProtoTCP:
		out.Proto, out.SrcPort, out.DstPort = packet.ProtoTCP, in.DstPort, in.SrcPort
		out.TCPFlags, out.Ack = packet.RST|packet.ACK, in.Seq+1
	default:
		out.Inner = in.Clone()
		out.Proto, out.ICMPType, out.ICMPCode = packet.ProtoICMP, packet.ICMPUnreachable, 3
		if in.EthType == packet.EthIPv6 {
			out.Proto, out.ICMPType, out.ICMPCode = packet.ProtoICMPv6, packet.ICMPv6Unreachable, 4
		}
	}
	return out
}
