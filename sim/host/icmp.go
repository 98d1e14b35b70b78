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
	switch {
	case c.in != nil && n.isLocal(p.Dst):
		e.Src = p.Dst
	case c.in != nil && c.fi == 1:
		e.Src = n.source6(c.in, p.Src) // the link where it came in, not that of the way back (net/ipv6/icmp.c)
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
	if c.delivered {
		n.respond(e) // the packet has left conntrack (nf_reset_ct)
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

// answer sends e, an error or a reset about c, as related to c's connection (nf_conntrack_attach): it could not always be
// matched, if c is translated already, or its entry is not in the table yet.
func (n *Netns) answer(c *pkt, e *packet.Packet) {
	a := n.newPkt(e)
	if c.ct != nil {
		a.ct, a.reply, a.state = c.ct, !c.reply, ctRelated
	}
	n.later(a)
}

// respond sends what a socket, or the lack of one, has to say: a packet like any other.
func (n *Netns) respond(e *packet.Packet) { n.later(n.newPkt(e)) }

// later sends a packet when what goes on is done.
func (n *Netns) later(a *pkt) {
	a.anySource = true
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
