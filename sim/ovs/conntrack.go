package ovs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/sim/packet"
)

// Connection tracking follows OVS's userspace implementation (lib/conntrack.c), which the netdev
// datapath uses:
//
//   - A connection is stored by ct(commit) only. Until then each of its packets is +new.
//   - A connection is found by its original tuple or by its reply tuple; NAT makes them differ.
//   - TCP without an entry: a SYN is +new, and so is any packet of a connection whose beginning was not
//     seen (ACK, FIN+ACK, RST); SYN+ACK and nonsense (no flags, SYN+FIN, FIN without ACK) are +inv.
//     Sequence numbers are not checked.
//   - ICMP without an entry: a query is +new, an answer +inv, and so is neighbour discovery. An ICMP error is
//     +rel if the packet in it belongs to a connection, else +inv.
//   - UDP and others are +new until there was an answer, and so is a SYN that is sent again.
//   - The snat and dnat bits say which end of this packet was changed: they change places in an answer.
//   - ct_mark and ct_label of a packet without an entry are 0.

// tuple is one direction of a connection in a zone.
type tuple struct {
	src, dst netip.AddrPort // the port of ICMP: the identifier in src, 0 in dst
	icmp     uint16         // type<<8 | code
	zone     uint16
	proto    uint8
}

// reversed returns the tuple of the answer.
func (t tuple) reversed() tuple {
	r := t
	if t.proto == packet.ProtoICMP || t.proto == packet.ProtoICMPv6 {
		r.src = netip.AddrPortFrom(t.dst.Addr(), t.src.Port())
		r.dst = netip.AddrPortFrom(t.src.Addr(), t.dst.Port())
		r.icmp = uint16(answerType(uint8(t.icmp>>8))) << 8
		return r
	}
	r.src, r.dst = t.dst, t.src
	return r
}

// answerType returns the ICMP type of the answer to a query and of the query to an answer.
func answerType(n uint8) uint8 {
	switch n {
	case packet.ICMPEchoRequest:
		return packet.ICMPEchoReply
	case packet.ICMPEchoReply:
		return packet.ICMPEchoRequest
	case packet.ICMPv6EchoRequest, icmpTimestamp, icmpInformation, icmpAddressMask:
		return n + 1
	}
	return n - 1
}

func (t tuple) String() string {
	return fmt.Sprintf("%s %s -> %s", packet.ProtoName(t.proto), t.src, t.dst)
}

// conn is a stored connection. reply is what its answers look like before they are translated back.
type conn struct {
	orig, reply tuple
	snat, dnat  bool
	mark        uint32
	label       openflow.Value
	state       connState
	expires     int64
	gone        bool
	seq         uint64
	hides       connRef // what the reply tuple led to before
}

type connRef struct {
	c     *conn
	reply bool
}

type conntrack struct {
	byTuple map[tuple]connRef
	seq     uint64
}

func newConntrack() conntrack { return conntrack{byTuple: map[tuple]connRef{}} }

func (c *conntrack) add(x *conn) {
	c.seq++
	x.seq = c.seq
	c.byTuple[x.orig] = connRef{x, false}
	if x.reply != x.orig { // answers that belong to two connections are taken for those of the newer, as in OVS
		x.hides = c.byTuple[x.reply]
		c.byTuple[x.reply] = connRef{x, true}
	}
}

func (c *conntrack) remove(x *conn) {
	if x.gone {
		return
	}
	x.gone = true
	if ref := c.byTuple[x.orig]; ref.c == x && !ref.reply {
		delete(c.byTuple, x.orig)
	}
	if c.byTuple[x.reply] != (connRef{x, true}) {
		return
	}
	older := x.hides
	for older.c != nil && older.c.gone {
		older = older.c.hides
	}
	if older.c != nil {
		c.byTuple[x.reply] = older
	} else {
		delete(c.byTuple, x.reply)
	}
}

// all returns the connections in the order in which they were made.
func (c *conntrack) all() []*conn {
	var list []*conn
	seen := map[*conn]bool{}
	//determinism:ignore each connection comes once, and they are sorted below
	for _, ref := range c.byTuple {
		// Answers may lead to another connection than before: the older one is still there.
		for x := ref.c; x != nil; x = x.hides.c {
			if !x.gone && !seen[x] {
				seen[x] = true
				list = append(list, x)
			}
		}
	}
	slices.SortFunc(list, func(a, b *conn) int { return int(a.seq) - int(b.seq) })
	return list
}

// ctMeta is what a packet carries of its last pass through ct.
type ctMeta struct {
	conn  *conn
	reply bool
	zone  uint16
	// state is what ct_state will be after a recirculation; NAT bits are cleared by another zone.
	state uint32
	orig  tuple
	// after is the tuple that the packet had when it left the ct.
	after tuple
}

func (r *run) clearCT() {
	r.ct = ctMeta{}
	r.k[wCT], r.k[wCTLabel], r.k[wCTLabel+1] = 0, 0, 0
	r.k.setNum(openflow.CTZone, 0)
	for w := wCTIPv4; w < keyWords; w++ {
		r.k[w] = 0
	}
}

// track is the action ct.
func (r *run) track(a openflow.CT, rl *rule, t uint8) {
	zone := a.Zone
	if a.ZoneFrom.Field != openflow.FieldNone {
		zone = uint16(r.k.get(a.ZoneFrom).Lo)
	}
	table, recirc := a.Table.Table()
	if r.shared.metered {
		return
	}
	if !recirc { // the packet is tracked and translated, but goes on without the ct fields
		fields := r.k
		r.process(a, zone, rl, t)
		r.k[wCT], r.k[wCTLabel], r.k[wCTLabel+1] = fields[wCT], fields[wCTLabel], fields[wCTLabel+1]
		r.k.setNum(openflow.CTZone, fields.num(openflow.CTZone))
		copy(r.k[wCTIPv4:], fields[wCTIPv4:])
		return
	}
	r.passed()
	sub := *r
	sub.recircs++
	sub.depth, sub.resubmits, sub.groupDepth = 0, 0, 0
	sub.process(a, zone, rl, t) // it is tracked also if it goes no further
	if r.again(t, rl) {
		sub.lookup(table)
		sub.passed()
	}
	r.shared.metered, r.s.silent = false, false // the packet goes on here with what follows the ct
}

// process looks the packet up in a zone, commits and translates it, and sets the ct fields.
func (r *run) process(a openflow.CT, zone uint16, rl *rule, t uint8) {
	s := r.s
	before := ""
	if s.tracer != nil {
		before = r.packet().String()
	}
	meta := ctMeta{zone: zone}
	if r.ct.zone == zone {
		meta.state = r.ct.state & (openflow.CTSNAT | openflow.CTDNAT)
	}
	r.find(&meta, a, zone)
	if meta.conn != nil {
		meta.after, _, _ = r.tuple(zone)
	}
	setMark, setLabel := r.execCT(a.Exec)
	if c := meta.conn; c != nil && !c.gone {
		c.mark = c.mark&^uint32(setMark.Mask.Lo) | uint32(setMark.Value.Lo&setMark.Mask.Lo)
		c.label = c.label.AndNot(setLabel.Mask).Or(setLabel.Value.And(setLabel.Mask))
	}
	meta.state |= openflow.CTTrk
	r.ct = meta
	r.exposeCT(setMark, setLabel)
	if s.tracer != nil {
		verb := "ct"
		if a.Commit {
			verb = "ct commit"
		}
		text := fmt.Sprintf("%s zone %d: ct_state=%s", verb, zone, stateText(meta.state))
		if mark := r.k.num(openflow.CTMark); mark != 0 {
			text += fmt.Sprintf(" ct_mark=%#x", mark)
		}
		if after := r.packet().String(); after != before {
			text += fmt.Sprintf(", nat %s => %s", before, after)
		}
		s.step(s.tableName(t), text, cookieOf(rl), false)
	}
}

// stateText writes ct_state as a match does.
func stateText(state uint32) string {
	return strings.TrimPrefix(openflow.FieldMatch{Field: openflow.CTState, Value: openflow.Num(uint64(state)), Mask: openflow.Num(uint64(state))}.String(), "ct_state=")
}

// find finds the packet's connection or makes it, translates the packet, and sets the state.
func (r *run) find(meta *ctMeta, a openflow.CT, zone uint16) {
	s := r.s
	now := s.now()
	tp, related, ok := r.tuple(zone)
	if c := r.ct.conn; c != nil && !c.gone && r.ct.zone == zone && r.ct.after == tp && !a.Force {
		// The packet remembers its connection from the last look in this zone, as long as its addresses and ports stay.
		// A second one finds no other, makes none, and does not move the connection on (OVS, process_one_fast).
		*meta = r.ct
		if a.NAT != nil {
			r.translate(meta, related)
		}
		return
	}
	meta.orig = tp
	if !ok {
		meta.state = openflow.CTInv
		return
	}
	ref, found := s.ct.byTuple[tp]
	if found && a.Force && ref.reply {
		s.ct.remove(ref.c)
		found = false
	}
	create := false
	switch {
	case found:
		meta.conn, meta.reply = ref.c, ref.reply
		create = r.update(meta, related, now)
		if a.NAT != nil && !create && meta.state&openflow.CTInv == 0 {
			r.translate(meta, related)
		}
	case related:
		meta.state = openflow.CTInv
	case r.ct.conn != nil && !r.ct.conn.gone && a.NAT == nil && r.ct.zone == zone && r.ct.state&(openflow.CTSNAT|openflow.CTDNAT) != 0:
		// Translated by an earlier ct in this zone: found by the tuple it had then.
		meta.conn, meta.reply = r.ct.conn, r.ct.reply
		create = r.update(meta, false, now)
	default:
		create = true
	}
	if create {
		meta.conn, meta.reply = nil, false
		r.unfound(meta, a, tp, now)
	}
	if meta.conn != nil {
		meta.orig = meta.conn.orig
	}
}

// update moves the connection on and sets the state. It reports whether the packet begins a new
// connection in the place of the old.
func (r *run) update(meta *ctMeta, related bool, now int64) (create bool) {
	c := meta.conn
	if related {
		meta.state |= openflow.CTRel
		if meta.reply {
			meta.state |= openflow.CTRpl
		}
		return false
	}
	switch c.state.update(r.pkt, c.orig.proto, meta.reply) {
	case updateInvalid:
		meta.state = openflow.CTInv
		meta.conn = nil
		return false
	case updateNew:
		r.s.ct.remove(c)
		return true
	case updateStillNew:
		meta.state |= openflow.CTNew
	default:
		meta.state |= openflow.CTEst
		if meta.reply {
			meta.state |= openflow.CTRpl
		}
	}
	was := c.expires
	if c.expires = now + c.state.timeout(c.orig.proto); c.expires < was {
		r.s.watchConn(c) // the timer that is set is too late
	}
	return false
}

// watchConn sets a timer for the end of a connection.
func (s *Switch) watchConn(c *conn) {
	s.timers.add(c.expires, func(now int64) int64 {
		if c.gone {
			return 0
		}
		if c.expires > now {
			return c.expires
		}
		s.ct.remove(c)
		return 0
	})
}

// unfound handles a packet without a connection.
func (r *run) unfound(meta *ctMeta, a openflow.CT, tp tuple, now int64) {
	s := r.s
	if !validNew(r.pkt, tp) {
		meta.state = openflow.CTInv
		return
	}
	meta.state = openflow.CTNew
	if !a.Commit {
		return
	}
	c := &conn{orig: tp, reply: tp.reversed(), state: newConnState(tp.proto)}
	if a.NAT != nil && a.NAT.Kind != openflow.NATStored && a.NAT.Addr.IsValid() {
		if !s.allocate(c, a.NAT) {
			// It goes on as it came, and stays new: OVS says so in its log and tracks nothing.
			s.counters.NATExhausted++
			return
		}
	}
	c.expires = now + c.state.timeout(tp.proto)
	s.ct.add(c)
	if s.peek != nil {
		s.peek.conns = append(s.peek.conns, c)
	}
	s.watchConn(c)
	meta.conn = c
	if c.snat || c.dnat {
		r.translate(meta, false)
	}
}

// execCT runs the actions in exec(…): which bits of ct_mark and ct_label are set to what.
func (r *run) execCT(list []openflow.Action) (mark, label openflow.FieldMatch) {
	mark.Field, label.Field = openflow.CTMark, openflow.CTLabel
	put := func(f openflow.Field, v, mask openflow.Value) {
		m := &mark
		if f == openflow.CTLabel {
			m = &label
		}
		m.Value = m.Value.AndNot(mask).Or(v.And(mask))
		m.Mask = m.Mask.Or(mask)
	}
	for _, a := range list {
		switch a := a.(type) {
		case openflow.SetFieldAction:
			put(a.Field, a.Value, a.Mask)
		case openflow.MoveAction:
			put(a.Dst.Field, r.k.get(a.Src).Shl(uint(a.Dst.Lo)), a.Dst.Mask())
		}
	}
	return mark, label
}

// exposeCT writes what ct found into the key.
func (r *run) exposeCT(setMark, setLabel openflow.FieldMatch) {
	k, m := &r.k, &r.ct
	mark, label := uint32(0), openflow.Value{}
	if m.conn != nil {
		mark, label = m.conn.mark, m.conn.label
	}
	k[wCT] = uint64(m.state)<<32 | uint64(mark)
	k.setVal(openflow.CTLabel, label)
	k.setNum(openflow.CTZone, uint64(m.zone))
	for w := wCTIPv4; w < keyWords; w++ {
		k[w] = 0
	}
	if m.state&openflow.CTInv != 0 || !m.orig.src.IsValid() {
		return
	}
	if m.orig.src.Addr().Is4() {
		k[wCTIPv4] = v4(m.orig.src.Addr())<<32 | v4(m.orig.dst.Addr())
	} else {
		k.setVal(openflow.CTIPv6Src, openflow.AddrValue(m.orig.src.Addr()))
		k.setVal(openflow.CTIPv6Dst, openflow.AddrValue(m.orig.dst.Addr()))
	}
	src, dst := m.orig.src.Port(), m.orig.dst.Port()
	if m.orig.icmp != 0 || m.orig.proto == packet.ProtoICMP || m.orig.proto == packet.ProtoICMPv6 {
		src, dst = m.orig.icmp>>8, m.orig.icmp&0xff
	}
	k[wCTL4] = uint64(src)<<48 | uint64(dst)<<32 | uint64(m.orig.proto)
}

// tuple returns the packet's tuple in a zone; of an ICMP error, that of a packet which the one inside
// would be the answer to (the error travels like that), and related is true.
func (r *run) tuple(zone uint16) (t tuple, related, ok bool) {
	k := &r.k
	if !k.isIP() {
		return t, false, false
	}
	p := r.packetForCT()
	if p.IsICMPError() {
		in := p.Inner
		if in == nil || !in.Src.IsValid() || !in.Dst.IsValid() {
			return t, true, false
		}
		t, ok = r.s.tupleOf(in, zone)
		return t.reversed(), true, ok
	}
	t, ok = r.s.tupleOf(p, zone)
	return t, false, ok
}

// packetForCT is the packet as it is now; of a later fragment too the transport header is known, as ct
// puts fragments together.
func (r *run) packetForCT() *packet.Packet {
	p := *r.pkt
	r.k.deposit(&p)
	if r.inner != nil {
		p.Inner = r.inner
	}
	return &p
}

func (s *Switch) tupleOf(p *packet.Packet, zone uint16) (t tuple, ok bool) {
	t = tuple{zone: zone, proto: p.Proto}
	var src, dst uint16
	switch p.Proto {
	case packet.ProtoTCP, packet.ProtoUDP:
		src, dst = p.SrcPort, p.DstPort
	case packet.ProtoSCTP:
		if !s.cfg.SCTPByAddress {
			src, dst = p.SrcPort, p.DstPort
		}
	case packet.ProtoICMP:
		switch p.ICMPType {
		case packet.ICMPEchoRequest, packet.ICMPEchoReply, icmpTimestamp, icmpTimestamp + 1, icmpInformation, icmpInformation + 1, icmpAddressMask, icmpAddressMask + 1:
		default:
			return t, false
		}
		src, t.icmp = p.ICMPID, uint16(p.ICMPType)<<8
	case packet.ProtoICMPv6:
		switch p.ICMPType {
		case packet.ICMPv6EchoRequest, packet.ICMPv6EchoReply:
		default:
			return t, false
		}
		src, t.icmp = p.ICMPID, uint16(p.ICMPType)<<8
	}
	t.src, t.dst = netip.AddrPortFrom(p.Src.Unmap(), src), netip.AddrPortFrom(p.Dst.Unmap(), dst)
	return t, true
}

// DumpConntrack returns the entries of the zones in the order in which they were made; no zones: all.
func (s *Switch) DumpConntrack(zones []uint16) []datapath.ConntrackEntry {
	s.Tick()
	var list []datapath.ConntrackEntry
	for _, c := range s.ct.all() {
		if len(zones) > 0 && !slices.Contains(zones, c.orig.zone) {
			continue
		}
		list = append(list, datapath.ConntrackEntry{
			Zone: c.orig.zone, Proto: c.orig.proto, OrigSrc: c.orig.src, OrigDst: c.orig.dst, ReplySrc: c.reply.src, ReplyDst: c.reply.dst, Mark: c.mark,
		})
	}
	return list
}

// FlushConntrack deletes the entries that a tuple selects, and returns how many.
func (s *Switch) FlushConntrack(tuples []datapath.Tuple) int {
	s.Tick()
	n := 0
	for _, c := range s.ct.all() {
		for _, t := range tuples {
			if c.selected(t) {
				s.ct.remove(c)
				n++
				break
			}
		}
	}
	return n
}

func (c *conn) selected(t datapath.Tuple) bool {
	return c.orig.zone == t.Zone && c.orig.proto == t.Proto && sameEnd(t.Frontend, c.orig.dst) &&
		sameEnd(t.Backend, c.reply.src) && (!t.Source.IsValid() || t.Source.Unmap() == c.orig.src.Addr())
}

// sameEnd compares an end with a selection, of which the address or the port may be left out.
func sameEnd(want, have netip.AddrPort) bool {
	return (!want.Addr().IsValid() || want.Addr().Unmap() == have.Addr()) && (want.Port() == 0 || want.Port() == have.Port())
}

// ConntrackText returns the entries as "ovs-appctl dpctl/dump-conntrack" prints them, one a line, in the
// order in which they were made.
func (s *Switch) ConntrackText() string {
	s.Tick()
	var b strings.Builder
	for _, c := range s.ct.all() {
		fmt.Fprintf(&b, "%s,orig=(%s),reply=(%s)", packet.ProtoName(c.orig.proto), c.orig.text(), c.reply.text())
		if c.orig.zone != 0 {
			fmt.Fprintf(&b, ",zone=%d", c.orig.zone)
		}
		if c.mark != 0 {
			fmt.Fprintf(&b, ",mark=%d", c.mark)
		}
		if !c.label.IsZero() {
			fmt.Fprintf(&b, ",labels=%s", strings.TrimPrefix(openflow.FieldMatch{Field: openflow.CTLabel, Value: c.label, Mask: openflow.Ones(128)}.String(), "ct_label="))
		}
		if c.orig.proto == packet.ProtoTCP {
			fmt.Fprintf(&b, ",protoinfo=(state=%s)", c.state.text())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (t tuple) text() string {
	s := fmt.Sprintf("src=%s,dst=%s", t.src.Addr(), t.dst.Addr())
	switch t.proto {
	case packet.ProtoICMP, packet.ProtoICMPv6:
		return s + fmt.Sprintf(",id=%d,type=%d,code=%d", t.src.Port(), t.icmp>>8, t.icmp&0xff)
	case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP:
		return s + fmt.Sprintf(",sport=%d,dport=%d", t.src.Port(), t.dst.Port())
	}
	return s
}
