package host

import (
	"fmt"
	"net/netip"

	"towtank/datapath/host"
	"towtank/sim/packet"
)

// manip says which half of a packet a hook translates: PREROUTING and OUTPUT the destination,
// POSTROUTING and INPUT the source.
type manip int

const (
	manipDst manip = iota
	manipSrc
)

// nat runs the nat table for the first packet of a connection and translates every one
// (nf_nat_inet_fn, nf_nat_packet).
func (n *Netns) nat(c *pkt, hook string, m manip) bool {
	e := c.ct
	if e == nil {
		return true
	}
	if c.state == ctNew && !c.reply {
		done := e.dstDone
		if m == manipSrc {
			done = e.srcDone
		}
		if !done {
			if !n.table(n.ip[c.fi].nf["nat"], c, hook) {
				return false
			}
			if m == manipSrc && !e.srcDone {
				// No rule: still, no two connections may have the same reply.
				n.setup(c, manipSrc, natRange{})
			}
			e.dstDone = e.dstDone || m == manipDst
			e.srcDone = e.srcDone || m == manipSrc
		}
	}
	// In the reply direction what was done to the source is undone on the destination.
	translated := e.dstNAT
	if (m == manipSrc) != c.reply {
		translated = e.srcNAT
	}
	if !translated {
		return true
	}
	before := ""
	if n.tracer != nil {
		before = c.p.String()
	}
	n.translate(c, m)
	if n.tracer != nil {
		if after := c.p.String(); after != before {
			n.step("nat "+hook, before+" => "+after)
		}
	}
	return true
}

// natRange is what a NAT target asks for.
type natRange struct {
	addr       netip.Addr // invalid: keep
	ports      host.PortRange
	random     bool
	masquerade bool
}

// setup decides the translation of a new connection (nf_nat_setup_info).
func (n *Netns) setup(c *pkt, m manip, r natRange) {
	e := c.ct
	cur := e.reply.invert()
	want := cur
	if r.addr.IsValid() {
		if m == manipSrc {
			want.src = r.addr
		} else {
			want.dst = r.addr
		}
	}
	want = n.uniquePort(e, want, m, r)
	if m == manipSrc {
		e.srcDone = true
		e.masquerade = r.masquerade
	} else {
		e.dstDone = true
	}
	if want == cur {
		return
	}
	e.reply = want.invert()
	if m == manipSrc {
		e.srcNAT = true
	} else {
		e.dstNAT = true
	}
}

// uniquePort keeps the port if the rule and the other connections allow it, else takes the next free
// one of the range.
func (n *Netns) uniquePort(e *conn, want tuple, m manip, r natRange) tuple {
	now := n.now()
	free := func(t tuple) bool {
		o, _ := n.ct.find(t.invert(), now)
		return o == nil || o == e
	}
	icmp := want.proto == packet.ProtoICMP || want.proto == packet.ProtoICMPv6
	ported := icmp || want.proto == packet.ProtoTCP || want.proto == packet.ProtoUDP || want.proto == packet.ProtoSCTP
	if !ported {
		return want
	}
	port := &want.sport
	if m == manipDst && !icmp {
		port = &want.dport
	}
	first, last := portRange(*port, icmp)
	if r.ports.Set && !icmp {
		first, last = r.ports.First, r.ports.Last
		if *port < first || *port > last {
			*port = first
		}
	} else if m == manipDst {
		return want
	}
	count := int(last) - int(first) + 1
	if r.random {
		*port = first + uint16(n.rand.IntN(count))
	}
	for range count {
		if free(want) {
			return want
		}
		if *port >= last || *port < first {
			*port = first
		} else {
			*port++
		}
	}
	return want // all taken: confirm drops the packet
}

// portRange is the range that the kernel takes another source port from (nf_nat_core.c).
func portRange(port uint16, icmp bool) (first, last uint16) {
	switch {
	case icmp:
		return 0, 65535
	case port < 512:
		return 1, 511
	case port < 1024:
		return 600, 1023
	}
	return 1024, 65535
}

// translate rewrites one half of a packet, and of an ICMP error also the packet inside.
func (n *Netns) translate(c *pkt, m manip) {
	e := c.ct
	target := e.reply.invert() // of the original direction
	if c.reply {
		target = e.orig.invert()
	}
	p := c.p
	if p.Inner != nil && p.IsICMPError() {
		// The packet inside goes the other way: its other half is rewritten.
		in := target.invert()
		if m == manipSrc {
			rewrite(p.Inner, in, manipDst)
			p.Src = target.src
		} else {
			rewrite(p.Inner, in, manipSrc)
			p.Dst = target.dst
		}
		return
	}
	rewrite(p, target, m)
}

func rewrite(p *packet.Packet, t tuple, m manip) {
	icmp := p.Proto == packet.ProtoICMP || p.Proto == packet.ProtoICMPv6
	if m == manipSrc {
		p.Src = t.src
		if icmp {
			p.ICMPID = t.sport
		} else {
			p.SrcPort = t.sport
		}
		return
	}
	p.Dst = t.dst
	if icmp {
		p.ICMPID = t.sport
	} else {
		p.DstPort = t.dport
	}
}

// untranslate gives an error about a packet that never left back to its sender: the packet inside
// looks as the sender made it.
func (n *Netns) untranslate(e *packet.Packet, c *conn, reply bool) {
	t := c.orig
	if reply {
		t = c.reply
	}
	rewrite(e.Inner, t, manipSrc)
	rewrite(e.Inner, t, manipDst)
	e.Dst = t.src
}

// natTarget runs SNAT, DNAT and MASQUERADE; it reports whether the packet goes on.
func (n *Netns) natTarget(c *pkt, t host.TargetNAT) bool {
	if c.ct == nil {
		return true
	}
	r := natRange{addr: t.Addr, ports: t.Ports, random: t.Random || t.RandomFully}
	m := manipSrc
	switch t.Kind {
	case "DNAT":
		m = manipDst
	case "MASQUERADE":
		r.masquerade = true
		hop := c.p.Dst
		if c.route != nil {
			hop = c.route.nextHop(c.p.Dst)
		}
		r.addr = n.addressFor(c.out, hop, c.p.Dst)
		if !r.addr.IsValid() {
			n.drop("nat POSTROUTING", fmt.Sprintf("MASQUERADE: %s has no address", c.out.name))
			return false
		}
	}
	n.setup(c, m, r)
	return true
}
