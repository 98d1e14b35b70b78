package host

import (
	"net/netip"

	"towtank/sim/packet"
)

// icmpError answers a packet with an ICMP or ICMPv6 error, unless RFC 1122, section 3.2.2, forbids
// it: none about errors, group addresses and later fragments. The packet that caused it goes inside.
func (n *Netns) icmpError(c *pkt, typ, code uint8) {
	p := c.p
	if p.IsICMPError() || p.Frag == 3 || p.EthDst.IsMulticast() || !p.Src.IsValid() || p.Src.IsUnspecified() || p.Src.IsMulticast() {
		return
	}
	inner := p.Clone()
	inner.Mark, inner.VLAN = 0, 0
	inner.EthSrc, inner.EthDst = packet.MAC{}, packet.MAC{}
	e := &packet.Packet{Dst: p.Src, Proto: packet.ProtoICMP, ICMPType: typ, ICMPCode: code, Inner: inner, Trace: p.Trace}
	if c.fi == 1 {
		e.Proto = packet.ProtoICMPv6
	}
	if c.in != nil && n.isLocal(p.Dst) {
		e.Src = p.Dst
	}
	if c.local {
		// The sender is this namespace: the socket gets the error, no packet is sent.
		e.SetIPs(p.Src, p.Src)
		e.Src = n.errorSource(p)
		back := &pkt{p: e, fi: c.fi, in: n.lo}
		if c.ct != nil {
			n.untranslate(e, c.ct, c.reply)
		}
		n.q.Add(func() { n.socket(back) })
		return
	}
	n.answer(c, e)
}

// errorSource is the address in whose name a namespace tells itself of an error.
func (n *Netns) errorSource(p *packet.Packet) netip.Addr {
	if n.isLocal(p.Src) {
		return p.Src
	}
	return p.Dst
}

// answer sends e, which answers c, with c's conntrack entry if that is not in the table yet: then the
// answer could not be matched to it.
func (n *Netns) answer(c *pkt, e *packet.Packet) {
	a := n.newPkt(e)
	a.anySource = true
	if c.ct != nil && !c.ct.confirmed {
		a.ct, a.reply, a.state = c.ct, !c.reply, ctRelated
		if e.Proto == packet.ProtoTCP {
			a.state = ctEstablished
		}
	}
	n.q.Add(func() {
		// Nobody waits for the result: an answer without a way back is lost.
		_ = n.send(a)
	})
}

// reset builds the RST that answers a TCP packet.
func reset(p *packet.Packet) *packet.Packet {
	r := &packet.Packet{
		Proto: packet.ProtoTCP, SrcPort: p.DstPort, DstPort: p.SrcPort, TCPFlags: packet.RST | packet.ACK,
		Ack: p.Seq + 1, Trace: p.Trace,
	}
	if p.TCPFlags&packet.ACK != 0 {
		r.TCPFlags, r.Seq, r.Ack = packet.RST, p.Ack, 0
	}
	r.SetIPs(p.Dst, p.Src)
	return r
}
