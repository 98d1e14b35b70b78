package host

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/sim/packet"
)

const (
	ctInvalid     = host.CTInvalid
	ctNew         = host.CTNew
	ctRelated     = host.CTRelated
	ctEstablished = host.CTEstablished
	ctUntracked   = host.CTUntracked
)

// tuple identifies one direction of a connection. For ICMP the source port is the identifier and the
// destination port type and code.
type tuple struct {
	src, dst     netip.Addr
	sport, dport uint16
	proto        uint8
}

func (t tuple) invert() tuple {
	r := tuple{src: t.dst, dst: t.src, sport: t.dport, dport: t.sport, proto: t.proto}
	if t.proto == packet.ProtoICMP || t.proto == packet.ProtoICMPv6 {
		r.sport, r.dport = t.sport, invertICMP(t.dport)
	}
	return r
}

func icmpPort(typ, code uint8) uint16 { return uint16(typ)<<8 | uint16(code) }

func invertICMP(p uint16) uint16 {
	switch uint8(p >> 8) {
	case packet.ICMPEchoRequest:
		return icmpPort(packet.ICMPEchoReply, 0)
	case packet.ICMPEchoReply:
		return icmpPort(packet.ICMPEchoRequest, 0)
	case packet.ICMPv6EchoRequest:
		return icmpPort(packet.ICMPv6EchoReply, 0)
	case packet.ICMPv6EchoReply:
		return icmpPort(packet.ICMPv6EchoRequest, 0)
	}
	return p
}

func tupleOf(p *packet.Packet) tuple {
	t := tuple{src: p.Src, dst: p.Dst, proto: p.Proto}
	switch p.Proto {
	case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP:
		t.sport, t.dport = p.SrcPort, p.DstPort
	case packet.ProtoICMP, packet.ProtoICMPv6:
		t.sport, t.dport = p.ICMPID, icmpPort(p.ICMPType, p.ICMPCode)
	}
	return t
}

type tcpState int

const (
	tcpNone tcpState = iota
	tcpSynSent
	tcpSynRecv
	tcpEstablished
	tcpTimeWait
	tcpClose
)

var tcpNames = [...]string{"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "TIME_WAIT", "CLOSE"}

// tcpTimeouts are the settings of the timers, by state.
var tcpTimeouts = [...]string{
	tcpNone:        "net.netfilter.nf_conntrack_tcp_timeout_syn_sent",
	tcpSynSent:     "net.netfilter.nf_conntrack_tcp_timeout_syn_sent",
	tcpSynRecv:     "net.netfilter.nf_conntrack_tcp_timeout_syn_recv",
	tcpEstablished: "net.netfilter.nf_conntrack_tcp_timeout_established",
	tcpTimeWait:    "net.netfilter.nf_conntrack_tcp_timeout_time_wait",
	tcpClose:       "net.netfilter.nf_conntrack_tcp_timeout_close",
}

// conn is a conntrack entry.
type conn struct {
	orig, reply      tuple
	mark             uint32
	confirmed        bool
	seenReply        bool
	srcDone, dstDone bool // the nat tables have decided
	srcNAT, dstNAT   bool // … to translate
	masquerade       bool
	tcp              tcpState
	created, expires time.Time
	serial           uint64 // order of creation
	fi               int
}

// conntrack is the connection table, zone 0.
type conntrack struct {
	byTuple map[tuple]*conn // both directions
	serial  uint64
	// sweepAt is the size at which expired entries are looked for.
	sweepAt int
}

func newConntrack() conntrack { return conntrack{byTuple: map[tuple]*conn{}, sweepAt: 1024} }

// find returns the live entry that has a tuple, and whether it is that of the reply direction.
func (t *conntrack) find(k tuple, now time.Time) (c *conn, reply bool) {
	c = t.byTuple[k]
	if c == nil {
		return nil, false
	}
	if !c.expires.After(now) {
		t.remove(c)
		return nil, false
	}
	return c, k == c.reply && k != c.orig
}

func (t *conntrack) remove(c *conn) {
	if t.byTuple[c.orig] == c {
		delete(t.byTuple, c.orig)
	}
	if t.byTuple[c.reply] == c {
		delete(t.byTuple, c.reply)
	}
}

// flushMasquerade ends the connections that were masqueraded with an address that is gone.
func (t *conntrack) flushMasquerade(a netip.Addr) {
	for _, c := range t.all() {
		if c.masquerade && c.reply.dst == a {
			t.remove(c)
		}
	}
}

// all returns the entries in the order in which they were made.
func (t *conntrack) all() []*conn {
	out := make([]*conn, 0, len(t.byTuple)/2)
	for k, c := range t.byTuple {
		if k == c.orig {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *conn) int {
		if a.serial < b.serial {
			return -1
		}
		return 1
	})
	return out
}

func (t *conntrack) live(now time.Time) []*conn {
	return slices.DeleteFunc(t.all(), func(c *conn) bool { return !c.expires.After(now) })
}

// track finds or makes the entry of a packet (nf_conntrack_in); it reports whether the packet goes on,
// which it does even if it is invalid.
func (n *Netns) track(c *pkt) bool {
	if c.state != 0 {
		return true // untracked, or an entry came with it
	}
	p := c.p
	if p.IsICMPError() {
		n.trackError(c)
		return true
	}
	now := n.now()
	k := tupleOf(p)
	e, reply := n.ct.find(k, now)
	if e != nil && !reply && p.Proto == packet.ProtoTCP && p.TCPFlags&(packet.SYN|packet.ACK) == packet.SYN && e.tcp >= tcpTimeWait {
		n.ct.remove(e) // the port is used again
		e = nil
	}
	if e == nil {
		if !n.mayOpen(p) {
			c.state = ctInvalid
			return true
		}
		n.ct.serial++
		e = &conn{orig: k, reply: k.invert(), created: now, serial: n.ct.serial, fi: c.fi}
	}
	c.ct, c.reply = e, reply
	if reply && !e.seenReply && p.Proto == packet.ProtoTCP && p.TCPFlags&packet.RST != 0 {
		// Refused: the entry goes at once, so that the next try is a new connection (nf_conntrack_proto_tcp.c).
		n.ct.remove(e)
		c.state = ctEstablished
		return true
	}
	switch {
	case reply:
		c.state = ctEstablished
		e.seenReply = true
	case e.seenReply:
		c.state = ctEstablished
	default:
		c.state = ctNew
	}
	n.refresh(e, p, reply)
	return true
}

// mayOpen reports whether a packet without entry may make one.
func (n *Netns) mayOpen(p *packet.Packet) bool {
	switch p.Proto {
	case packet.ProtoTCP:
		switch {
		case p.TCPFlags&packet.RST != 0, p.TCPFlags&(packet.SYN|packet.ACK) == packet.SYN|packet.ACK:
			return false
		case p.TCPFlags&packet.SYN != 0:
			return true
		}
		return n.conf["net.netfilter.nf_conntrack_tcp_loose"] != 0
	case packet.ProtoICMP:
		return p.ICMPType == packet.ICMPEchoRequest
	case packet.ProtoICMPv6:
		return p.ICMPType == packet.ICMPv6EchoRequest
	}
	return true
}

// refresh moves an entry's state and timer.
func (n *Netns) refresh(e *conn, p *packet.Packet, reply bool) {
	now := n.now()
	var key string
	switch p.Proto {
	case packet.ProtoTCP:
		e.tcp = nextTCP(e.tcp, p.TCPFlags, reply)
		key = tcpTimeouts[e.tcp]
	case packet.ProtoUDP:
		key = "net.netfilter.nf_conntrack_udp_timeout"
		if e.seenReply && now.Sub(e.created) > 2*time.Second { // it became a stream (nf_conntrack_proto_udp.c)
			key = "net.netfilter.nf_conntrack_udp_timeout_stream"
		}
	case packet.ProtoSCTP:
		key = "net.netfilter.nf_conntrack_sctp_timeout_cookie_wait"
		if e.seenReply {
			key = "net.netfilter.nf_conntrack_sctp_timeout_established"
		}
	case packet.ProtoICMP:
		key = "net.netfilter.nf_conntrack_icmp_timeout"
	case packet.ProtoICMPv6:
		key = "net.netfilter.nf_conntrack_icmpv6_timeout"
	default:
		key = "net.netfilter.nf_conntrack_generic_timeout"
	}
	e.expires = now.Add(time.Duration(n.conf[key]) * time.Second)
}

func nextTCP(s tcpState, flags uint8, reply bool) tcpState {
	switch {
	case flags&packet.RST != 0:
		return tcpClose
	case flags&packet.FIN != 0:
		return tcpTimeWait
	case flags&(packet.SYN|packet.ACK) == packet.SYN:
		if s == tcpNone {
			return tcpSynSent
		}
		return s
	case flags&(packet.SYN|packet.ACK) == packet.SYN|packet.ACK:
		if reply && s == tcpSynSent {
			return tcpSynRecv
		}
		return s
	case s == tcpNone, s == tcpSynRecv && !reply:
		return tcpEstablished
	}
	return s
}

// trackError finds the connection that an ICMP error is about. The error travels against the packet
// that it carries.
func (n *Netns) trackError(c *pkt) {
	in := c.p.Inner
	if in == nil {
		c.state = ctInvalid
		return
	}
	e, reply := n.ct.find(tupleOf(in).invert(), n.now())
	if e == nil {
		c.state = ctInvalid
		return
	}
	c.ct, c.reply, c.state = e, reply, ctRelated
}

// confirm puts a new entry in the table, at the end of POSTROUTING and INPUT.
func (n *Netns) confirm(c *pkt) bool {
	e := c.ct
	if e == nil || e.confirmed || c.state == ctRelated || c.reply {
		return true
	}
	now := n.now()
	for _, k := range []tuple{e.orig, e.reply} {
		if o, _ := n.ct.find(k, now); o != nil && o != e {
			n.drop("conntrack", "another entry has the same addresses and ports")
			return false
		}
	}
	e.confirmed = true
	if n.peek != nil {
		n.peek.conns = append(n.peek.conns, e)
	}
	n.ct.byTuple[e.orig], n.ct.byTuple[e.reply] = e, e
	if len(n.ct.byTuple) > n.ct.sweepAt {
		maps.DeleteFunc(n.ct.byTuple, func(_ tuple, c *conn) bool { return !c.expires.After(now) })
		n.ct.sweepAt = max(1024, 2*len(n.ct.byTuple))
	}
	return true
}

func (t tuple) addrPorts() (src, dst netip.AddrPort) {
	if t.proto == packet.ProtoICMP || t.proto == packet.ProtoICMPv6 {
		return netip.AddrPortFrom(t.src, t.sport), netip.AddrPortFrom(t.dst, t.sport)
	}
	return netip.AddrPortFrom(t.src, t.sport), netip.AddrPortFrom(t.dst, t.dport)
}

// DumpConntrack returns the live entries in the order in which they were made. For ICMP all ports are
// the identifier.
func (n *Netns) DumpConntrack() []datapath.ConntrackEntry {
	var out []datapath.ConntrackEntry
	for _, c := range n.ct.live(n.now()) {
		e := datapath.ConntrackEntry{Proto: c.orig.proto, Mark: c.mark}
		e.OrigSrc, e.OrigDst = c.orig.addrPorts()
		e.ReplySrc, e.ReplyDst = c.reply.addrPorts()
		out = append(out, e)
	}
	return out
}

// FlushConntrack deletes the entries that the tuples select; a frontend or backend port of 0 is any
// port. It returns how many.
func (n *Netns) FlushConntrack(tuples []datapath.Tuple) int {
	count := 0
	for _, c := range n.ct.live(n.now()) {
		if slices.ContainsFunc(tuples, func(t datapath.Tuple) bool { return c.selected(t) }) {
			n.ct.remove(c)
			count++
		}
	}
	return count
}

func (c *conn) selected(t datapath.Tuple) bool {
	if t.Zone != 0 || t.Proto != 0 && t.Proto != c.orig.proto {
		return false
	}
	_, dst := c.orig.addrPorts()
	src, _ := c.reply.addrPorts()
	is := func(have, want netip.AddrPort) bool {
		return !want.Addr().IsValid() || have.Addr() == want.Addr() && (want.Port() == 0 || have.Port() == want.Port())
	}
	return is(dst, t.Frontend) && is(src, t.Backend) && (!t.Source.IsValid() || c.orig.src == t.Source)
}

// ConntrackText returns the entries as `conntrack -L` prints them.
func (n *Netns) ConntrackText() string {
	var b strings.Builder
	now := n.now()
	for _, c := range n.ct.live(now) {
		b.WriteString(c.text(now) + "\n")
	}
	return b.String()
}

func (c *conn) text(now time.Time) string {
	var b strings.Builder
	name := packet.ProtoName(c.orig.proto)
	if c.orig.proto == packet.ProtoICMPv6 {
		name = "icmpv6"
	}
	fmt.Fprintf(&b, "%-8s %d %d", name, c.orig.proto, int(c.expires.Sub(now)/time.Second))
	if c.orig.proto == packet.ProtoTCP {
		b.WriteString(" " + tcpNames[c.tcp])
	}
	side := func(t tuple) {
		fmt.Fprintf(&b, " src=%s dst=%s", t.src, t.dst)
		switch t.proto {
		case packet.ProtoICMP, packet.ProtoICMPv6:
			fmt.Fprintf(&b, " type=%d code=%d id=%d", t.dport>>8, t.dport&0xff, t.sport)
		case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP:
			fmt.Fprintf(&b, " sport=%d dport=%d", t.sport, t.dport)
		}
	}
	side(c.orig)
	if !c.seenReply {
		b.WriteString(" [UNREPLIED]")
	}
	side(c.reply)
	if c.seenReply {
		b.WriteString(" [ASSURED]")
	}
	fmt.Fprintf(&b, " mark=%d use=1", c.mark)
	return b.String()
}
