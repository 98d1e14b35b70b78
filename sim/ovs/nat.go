package ovs

import (
	"net/netip"

	"towtank/datapath/openflow"
	"towtank/sim/packet"
)

// allocate gives the connection its reply tuple under a NAT: the addresses and ports that it asks for,
// with the ports that are there kept if they are free, else the next free one. It fails if none is.
func (s *Switch) allocate(c *conn, n *openflow.NAT) bool {
	hasPorts := c.orig.proto == packet.ProtoTCP || c.orig.proto == packet.ProtoUDP || c.orig.proto == packet.ProtoSCTP && !s.cfg.SCTPByAddress
	c.snat, c.dnat = n.Kind == openflow.NATSrc, n.Kind == openflow.NATDst
	last := n.Addr
	if n.Max.IsValid() {
		last = n.Max
	}
	base := c.orig.reversed()
	for addr := n.Addr; addr.IsValid() && addr.Compare(last) <= 0; addr = addr.Next() {
		t := base
		// The answer goes to what the source became, or comes from what the destination became.
		end := &t.dst
		if c.dnat {
			end = &t.src
		}
		switch {
		case !hasPorts:
			*end = netip.AddrPortFrom(addr, end.Port())
			if s.free(t) {
				c.reply = t
				return true
			}
			continue
		case n.Port != 0:
			hi := max(n.Port, n.MaxPort)
			for p := int(n.Port); p <= int(hi); p++ {
				if *end = netip.AddrPortFrom(addr, uint16(p)); s.free(t) {
					c.reply = t
					return true
				}
			}
		default:
			*end = netip.AddrPortFrom(addr, end.Port())
			if s.free(t) {
				c.reply = t
				return true
			}
		}
		// Another source port makes the tuple unique, with SNAT as with DNAT.
		if c.snat && n.Port != 0 {
			continue
		}
		if c.dnat {
			*end = netip.AddrPortFrom(addr, max(n.Port, 1))
			if n.Port == 0 {
				*end = netip.AddrPortFrom(addr, base.src.Port())
			}
		}
		if s.anotherPort(&t, &t.dst) {
			c.reply = t
			return true
		}
	}
	return false
}

func (s *Switch) free(t tuple) bool {
	_, taken := s.ct.byTuple[t]
	return !taken
}

// anotherPort looks for a free port of an end, from the one it has upwards, in the range that the port
// is in: 1 to 511, 512 to 1023 or 1024 to 65535.
func (s *Switch) anotherPort(t *tuple, end *netip.AddrPort) bool {
	lo, hi := 1024, 65535
	switch p := end.Port(); {
	case p < 512:
		lo, hi = 1, 511
	case p < 1024:
		lo, hi = 512, 1023
	}
	start := int(end.Port())
	for i := 1; i <= hi-lo; i++ {
		p := start + i
		if p > hi {
			p -= hi - lo + 1
		}
		if *end = netip.AddrPortFrom(end.Addr(), uint16(p)); s.free(*t) {
			return true
		}
	}
	return false
}

// translate applies the connection's NAT to the packet: what it would look like at the other side. An
// ICMP error is translated with the packet inside it.
func (r *run) translate(meta *ctMeta, related bool) {
	c := meta.conn
	if c == nil || !c.snat && !c.dnat {
		return
	}
	if r.ct.zone == meta.zone && meta.state&(openflow.CTSNAT|openflow.CTDNAT) != 0 {
		return // already translated in this zone
	}
	to, changeSrc, changeDst := c.reply.reversed(), c.snat, c.dnat
	if meta.reply {
		to, changeSrc, changeDst = c.orig.reversed(), c.dnat, c.snat
	}
	if changeSrc {
		meta.state |= openflow.CTSNAT
	}
	if changeDst {
		meta.state |= openflow.CTDNAT
	}
	if c.dnat && c.orig.src.Port() != c.reply.dst.Port() { // DNAT took another source port
		changeSrc, changeDst = true, true
	}
	src, dst := r.k.addrs()
	if changeSrc {
		src = to.src.Addr()
	}
	if changeDst {
		dst = to.dst.Addr()
	}
	r.k.setAddrs(src, dst)
	if !related {
		if c.orig.proto == packet.ProtoTCP || c.orig.proto == packet.ProtoUDP || c.orig.proto == packet.ProtoSCTP && !r.s.cfg.SCTPByAddress {
			r.setPorts(to.src.Port(), to.dst.Port())
		}
		return
	}
	inner := r.inner
	if inner == nil {
		inner = r.pkt.Inner
	}
	in := *inner
	// The packet inside goes the other way.
	back := to.reversed()
	if changeDst {
		in.Src = back.src.Addr()
	}
	if changeSrc {
		in.Dst = back.dst.Addr()
	}
	switch c.orig.proto {
	case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP:
		if c.orig.proto != packet.ProtoSCTP || !r.s.cfg.SCTPByAddress {
			in.SrcPort, in.DstPort = back.src.Port(), back.dst.Port()
		}
	}
	r.inner = &in
}

// setPorts sets the transport ports; of a later fragment they are not in the key.
func (r *run) setPorts(src, dst uint16) {
	if r.k.laterFragment() {
		p := *r.pkt
		p.SrcPort, p.DstPort = src, dst
		r.pkt = &p
		return
	}
	r.k[wL4] = r.k[wL4]&0xffffffff | uint64(src)<<48 | uint64(dst)<<32
}
