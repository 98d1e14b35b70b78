package host

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"towtank/datapath/host"
	"towtank/sim/packet"
)

// Timers of the neighbour table: the kernel's defaults (net.ipv4.neigh.default.…). The reachable time
// is drawn between 15 and 45 s there; here it is its mean.
const (
	reachableTime = 30 * time.Second
	delayTime     = 5 * time.Second // delay_first_probe_time
	retransTime   = time.Second     // retrans_time_ms
	maxProbes     = 3               // mcast_solicit, ucast_solicit
	lockTime      = time.Second     // locktime: an answer does not replace a fresher one
	maxQueued     = 3               // unres_qlen in packets of the older kernels
)

type nudState int

const (
	nudIncomplete nudState = iota // asked, not answered yet
	nudReachable
	nudStale // usable; the next use starts a check
	nudDelay // used while stale: checked at the deadline
	nudProbe // being checked
	nudPermanent
)

var nudNames = [...]string{"INCOMPLETE", "REACHABLE", "STALE", "DELAY", "PROBE", "PERMANENT"}

type neighKey struct {
	link *Link
	ip   netip.Addr
}

type neighbour struct {
	key       neighKey
	mac       packet.MAC
	state     nudState
	proto     uint8
	updated   time.Time // when the MAC was last learnt
	confirmed time.Time
	deadline  time.Time // of INCOMPLETE, DELAY, PROBE
	probes    int
	waiting   []*pkt
}

// neighbours is the neighbour table (ARP and neighbour discovery).
type neighbours struct {
	entries map[neighKey]*neighbour
	proxies map[neighKey]uint8 // protocol number of the entry
	pending map[neighKey]*neighbour
}

func newNeighbours() neighbours {
	return neighbours{map[neighKey]*neighbour{}, map[neighKey]uint8{}, map[neighKey]*neighbour{}}
}

// setState changes an entry's state and whether it waits for a deadline.
func (t *neighbours) setState(e *neighbour, s nudState, deadline time.Time) {
	e.state, e.deadline = s, deadline
	if deadline.IsZero() {
		delete(t.pending, e.key)
	} else {
		t.pending[e.key] = e
	}
}

func (t *neighbours) remove(k neighKey) {
	delete(t.entries, k)
	delete(t.pending, k)
}

func (t *neighbours) flush(l *Link) {
	maps.DeleteFunc(t.entries, func(k neighKey, _ *neighbour) bool { return k.link == l })
	maps.DeleteFunc(t.pending, func(k neighKey, _ *neighbour) bool { return k.link == l })
	maps.DeleteFunc(t.proxies, func(k neighKey, _ uint8) bool { return k.link == l })
}

func compareNeigh(a, b neighKey) int {
	if c := a.ip.Compare(b.ip); c != 0 {
		return c
	}
	return cmp.Compare(a.link.index, b.link.index)
}

func (t *neighbours) sorted() []*neighbour {
	return slices.SortedFunc(maps.Values(t.entries), func(a, b *neighbour) int { return compareNeigh(a.key, b.key) })
}

func (t *neighbours) sortedProxies() []neighKey {
	return slices.SortedFunc(maps.Keys(t.proxies), compareNeigh)
}

func (t *neighbours) nextDeadline() (time.Time, bool) {
	var first time.Time
	//determinism:ignore the earliest deadline, whatever the order
	for _, e := range t.pending {
		if first.IsZero() || e.deadline.Before(first) {
			first = e.deadline
		}
	}
	return first, !first.IsZero()
}

// tickNeighbours repeats questions that are due, and gives up after maxProbes.
func (n *Netns) tickNeighbours() {
	now := n.now()
	var due []*neighbour
	for _, e := range n.neigh.pending {
		if !e.deadline.After(now) {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *neighbour) int {
		if c := a.deadline.Compare(b.deadline); c != 0 {
			return c
		}
		return compareNeigh(a.key, b.key)
	})
	for _, e := range due {
		if n.neigh.entries[e.key] != e || e.deadline.After(now) {
			continue
		}
		if e.state == nudDelay {
			e.probes = 0
		}
		if e.state == nudIncomplete {
			// Time moves in jumps: the questions in between were asked, and nobody answered.
			e.probes += int(now.Sub(e.deadline) / retransTime)
		}
		if e.probes >= maxProbes {
			waiting := e.waiting
			n.neigh.remove(e.key)
			for _, c := range waiting {
				n.drop("neigh", fmt.Sprintf("%s dev %s FAILED", e.key.ip, e.key.link.name))
				n.hostUnreachable(c)
			}
			continue
		}
		e.probes++
		next := nudIncomplete
		to := packet.MAC{}
		if e.state == nudDelay || e.state == nudProbe {
			next, to = nudProbe, e.mac
		}
		n.neigh.setState(e, next, now.Add(retransTime))
		src := netip.Addr{}
		if len(e.waiting) > 0 {
			src = e.waiting[0].p.Src
		}
		n.solicit(e.key, to, src)
	}
}

// hostUnreachable tells the sender of a packet that nobody answers for its next hop.
func (n *Netns) hostUnreachable(c *pkt) {
	if c.p.EthType == packet.EthIPv6 {
		n.icmpError(c, packet.ICMPv6Unreachable, 3)
		return
	}
	n.icmpError(c, packet.ICMPUnreachable, 1)
}

// resolve sends a packet to its next hop, or keeps it until the next hop has answered.
func (n *Netns) resolve(c *pkt, hop netip.Addr) {
	l := c.out
	k := neighKey{l, hop}
	n.touch(k)
	e := n.neigh.entries[k]
	now := n.now()
	if e != nil && e.state != nudIncomplete {
		switch {
		case e.state == nudReachable && now.Sub(e.confirmed) >= reachableTime, e.state == nudStale:
			n.neigh.setState(e, nudDelay, now.Add(delayTime))
		}
		n.sendTo(c, e.mac)
		return
	}
	if e == nil {
		e = &neighbour{key: k, probes: 1}
		n.neigh.entries[k] = e
		n.neigh.setState(e, nudIncomplete, now.Add(retransTime))
		e.waiting = append(e.waiting, c)
		n.step("neigh", fmt.Sprintf("%s dev %s: asking", hop, l.name))
		n.solicit(k, packet.MAC{}, c.p.Src)
		return
	}
	if len(e.waiting) >= maxQueued {
		n.drop("neigh", fmt.Sprintf("%s dev %s INCOMPLETE: %d packets wait already, the oldest is dropped", hop, l.name, len(e.waiting)))
		e.waiting = e.waiting[1:]
	}
	e.waiting = append(e.waiting, c)
	// The kernel asks once a second, and a sender waits that long; a packet of the model takes no time, so
	// it asks at once.
	n.step("neigh", fmt.Sprintf("%s dev %s INCOMPLETE: asking again", hop, l.name))
	n.solicit(k, packet.MAC{}, c.p.Src)
}

// sendTo puts an IP packet on the wire.
func (n *Netns) sendTo(c *pkt, mac packet.MAC) {
	p := c.p
	p.EthSrc, p.EthDst, p.VLAN = c.out.mac, mac, 0
	n.emit(c.out, p)
}

// solicit asks who has an address: all of the link, or to check it the one that had it.
func (n *Netns) solicit(k neighKey, to packet.MAC, packetSrc netip.Addr) {
	l := k.link
	if k.ip.Is4() {
		p := &packet.Packet{EthSrc: l.mac, EthDst: packet.Broadcast, EthType: packet.EthARP, ARPOp: 1, ARPSHA: l.mac, ARPTPA: k.ip}
		if to != (packet.MAC{}) {
			p.EthDst = to
		}
		p.ARPSPA = n.arpSource(l, k.ip, packetSrc)
		if !p.ARPSPA.IsValid() {
			p.ARPSPA = netip.IPv4Unspecified()
		}
		n.emit(l, p)
		return
	}
	p := &packet.Packet{
		EthSrc: l.mac, EthType: packet.EthIPv6, Proto: packet.ProtoICMPv6, TTL: 255,
		ICMPType: packet.ICMPv6NeighSolicit, NDTarget: k.ip, NDSLL: l.mac,
	}
	p.Dst, p.EthDst = solicitedNode(k.ip)
	if to != (packet.MAC{}) {
		p.Dst, p.EthDst = k.ip, to
	}
	p.Src = linkLocal(l.mac)
	for _, a := range n.local[packetSrc] {
		if a.link == l {
			p.Src = packetSrc
		}
	}
	n.emit(l, p)
}

// arpSource chooses the sender address of an ARP request by arp_announce.
func (n *Netns) arpSource(l *Link, target, packetSrc netip.Addr) netip.Addr {
	switch n.confMax(l, 0, "arp_announce") {
	case 0:
		if packetSrc.IsValid() && n.isLocal(packetSrc) {
			return packetSrc
		}
	case 1:
		for _, a := range n.local[packetSrc] {
			if a.link == l && a.Prefix.Contains(target) {
				return packetSrc
			}
		}
	}
	return n.source4(l, target)
}

// solicitedNode returns the group address of RFC 4291, section 2.7.1, and its MAC.
func solicitedNode(a netip.Addr) (netip.Addr, packet.MAC) {
	x := a.As16()
	g := [16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: x[13], 14: x[14], 15: x[15]}
	return netip.AddrFrom16(g), packet.MAC{0x33, 0x33, 0xff, x[13], x[14], x[15]}
}

var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = packet.MAC{0x33, 0x33, 0, 0, 0, 1}
)

// linkLocal is the address that a link has by EUI-64 (RFC 4291, appendix A).
func linkLocal(m packet.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

// receiveARP answers and learns as arp_process does.
func (n *Netns) receiveARP(l *Link, p *packet.Packet) {
	if p.ARPTPA.IsMulticast() || p.ARPTPA.IsLoopback() && n.confMax(l, 0, "route_localnet") == 0 {
		return
	}
	garp := p.ARPSPA == p.ARPTPA
	answers, ours := false, false
	if p.ARPOp == 1 {
		answers, ours = n.answersARP(l, p)
	}
	if answers {
		if !p.ARPSPA.IsUnspecified() {
			n.learn(neighKey{l, p.ARPSPA}, p.ARPSHA, nudStale, true, true)
		}
		n.emit(l, &packet.Packet{
			EthSrc: l.mac, EthDst: p.ARPSHA, EthType: packet.EthARP, ARPOp: 2, ARPSHA: l.mac, ARPTHA: p.ARPSHA,
			ARPSPA: p.ARPTPA, ARPTPA: p.ARPSPA, Trace: p.Trace,
		})
		return
	}
	if ours || !p.ARPSPA.IsValid() || p.ARPSPA.IsUnspecified() {
		return
	}
	if _, known := n.neigh.entries[neighKey{l, p.ARPSPA}]; !known && n.isLocal(p.ARPSPA) {
		return // an address of our own: no entry is made, but one from before is updated (arp_process)
	}
	state := nudStale
	if p.ARPOp == 2 && !garp && !p.EthDst.IsMulticast() {
		state = nudReachable
	}
	accept := garp && n.confMax(l, 0, "arp_accept") > 0
	n.learn(neighKey{l, p.ARPSPA}, p.ARPSHA, state, garp, accept)
}

// answersARP reports whether a request is answered: it asks for an address of ours, under arp_ignore, or for one that
// we are a proxy of. ours says that it asks for ours, answered or not: nothing more is learnt of it. The sender has to be
// one from which a packet would be taken (martian, badSource), unless it looks whether an address is free (RFC 5227).
func (n *Netns) answersARP(l *Link, p *packet.Packet) (answers, ours bool) {
	if !p.ARPTPA.IsValid() || !p.ARPTPA.Is4() || !p.ARPSPA.IsValid() {
		return false, false
	}
	if p.ARPSPA.IsUnspecified() {
		return n.isLocal(p.ARPTPA) && n.heedsARP(l, p), true
	}
	as := n.newPkt(&packet.Packet{Src: p.ARPSPA, Dst: p.ARPTPA})
	as.in = l
	r, err := n.lookup(flow{dst: p.ARPTPA, src: p.ARPSPA, iif: l.name})
	if err != nil || n.martian(as) != "" || n.badSource(as, r) != "" {
		return false, false
	}
	switch {
	case r.Type == typeLocal:
		return n.heedsARP(l, p), true
	case l.conf[0]["forwarding"] == 0 || r.Type != host.RouteUnicast || r.link == l:
		return false, false
	}
	_, proxy := n.neigh.proxies[neighKey{l, p.ARPTPA}]
	return proxy || n.confMax(l, 0, "proxy_arp") > 0, false
}

// heedsARP reports whether arp_ignore lets a request for an address of ours be answered.
func (n *Netns) heedsARP(l *Link, p *packet.Packet) bool {
	switch n.confMax(l, 0, "arp_ignore") {
	case 0:
		return true
	case 1:
		return slices.ContainsFunc(n.local[p.ARPTPA], func(a *address) bool { return a.link == l })
	case 2:
		return slices.ContainsFunc(n.local[p.ARPTPA], func(a *address) bool { return a.link == l && (p.ARPSPA.IsUnspecified() || a.Prefix.Contains(p.ARPSPA)) })
	default: // 8: never; 3 (scopes) is as strict for what exists here
		return false
	}
}

// receiveND answers neighbour solicitations and learns from advertisements (net/ipv6/ndisc.c).
func (n *Netns) receiveND(l *Link, p *packet.Packet) {
	as := n.newPkt(p)
	as.in = l
	if why := n.martian(as); why != "" {
		n.drop("neigh", why)
		return
	}
	if p.TTL != 255 {
		n.drop("neigh", fmt.Sprintf("hop limit %d: it came through a router", p.TTL))
		return
	}
	if p.ICMPType == packet.ICMPv6NeighSolicit {
		n.answerND(l, p)
		return
	}
	k := neighKey{l, p.NDTarget}
	if p.NDTLL == (packet.MAC{}) {
		// The answer to a question that was sent to one MAC: that one is right.
		if e := n.neigh.entries[k]; e != nil && e.state != nudIncomplete && !p.Dst.IsMulticast() {
			n.learn(k, e.mac, nudReachable, false, false)
		}
		return
	}
	// Of an address of our own the kernel learns nothing, but OVS, whose tunnel neighbours are kept here as
	// well, updates one from before.
	if _, known := n.neigh.entries[neighKey{l, p.NDTarget}]; !known && n.isLocal(p.NDTarget) {
		return
	}
	state := nudReachable
	if p.Dst.IsMulticast() {
		state = nudStale
	}
	n.learn(neighKey{l, p.NDTarget}, p.NDTLL, state, true, false)
}

// answerND answers a neighbour solicitation for an address of the link, or for one that it is a proxy of. Whoever asked one
// MAC knows it, and is not told again; who asks all and does not say where he is gets no answer.
func (n *Netns) answerND(l *Link, p *packet.Packet) {
	_, proxy := n.neigh.proxies[neighKey{l, p.NDTarget}]
	proxy = proxy && n.confMax(l, 1, "proxy_ndp") > 0 && l.conf[1]["forwarding"] > 0
	mine := p.NDTarget == linkLocal(l.mac) || slices.ContainsFunc(n.local[p.NDTarget], func(a *address) bool { return a.link == l })
	free := p.Src.IsUnspecified() // is the address free?
	group, _ := solicitedNode(p.NDTarget)
	if !mine && !proxy || free && (p.NDSLL != (packet.MAC{}) || p.Dst != group) {
		return
	}
	answer := &packet.Packet{
		EthSrc: l.mac, EthDst: allNodesMAC, EthType: packet.EthIPv6, Src: p.NDTarget, Dst: allNodes, Proto: packet.ProtoICMPv6, TTL: 255,
		ICMPType: packet.ICMPv6NeighAdvert, NDTarget: p.NDTarget, NDTLL: l.mac, Trace: p.Trace,
	}
	if free {
		n.emit(l, answer)
		return
	}
	k := neighKey{l, p.Src}
	if p.NDSLL != (packet.MAC{}) {
		n.learn(k, p.NDSLL, nudStale, true, true)
	} else if p.Dst.IsMulticast() && n.neigh.entries[k] == nil {
		return
	}
	answer.Dst = p.Src
	if !p.Dst.IsMulticast() {
		answer.NDTLL = packet.MAC{}
	}
	c := n.newPkt(answer)
	c.local, c.out = true, l
	n.resolve(c, p.Src)
}

// learn updates a neighbour, or with create makes one. Without override a MAC that was learnt less than
// lockTime ago stays. What waited for the neighbour is sent.
func (n *Netns) learn(k neighKey, mac packet.MAC, state nudState, override, create bool) {
	n.touch(k)
	now := n.now()
	e := n.neigh.entries[k]
	if e == nil {
		if !create {
			return
		}
		e = &neighbour{key: k, state: nudIncomplete}
		n.neigh.entries[k] = e
	}
	if e.state == nudPermanent {
		return
	}
	fresh := e.state == nudIncomplete
	if !fresh && e.mac != mac && !override && now.Sub(e.updated) < lockTime {
		return
	}
	if !fresh && e.mac == mac && state == nudStale {
		return // nothing new; a confirmed entry stays confirmed
	}
	e.mac, e.updated, e.probes = mac, now, 0
	if state == nudReachable {
		e.confirmed = now
	}
	n.neigh.setState(e, state, time.Time{})
	waiting := e.waiting
	e.waiting = nil
	for _, c := range waiting {
		n.sendTo(c, mac)
	}
}

// setNeighbour makes a permanent entry.
func (n *Netns) setNeighbour(l *Link, ip netip.Addr, mac packet.MAC, proto uint8) {
	k := neighKey{l, ip}
	e := n.neigh.entries[k]
	if e == nil {
		e = &neighbour{key: k}
		n.neigh.entries[k] = e
	}
	e.mac, e.proto, e.updated, e.confirmed = mac, proto, n.now(), n.now()
	n.neigh.setState(e, nudPermanent, time.Time{})
	waiting := e.waiting
	e.waiting = nil
	for _, c := range waiting {
		n.sendTo(c, mac)
	}
}

// shownState is the state as `ip neigh` shows it now.
func (n *Netns) shownState(e *neighbour) string {
	if e.state == nudReachable && n.now().Sub(e.confirmed) >= reachableTime {
		return nudNames[nudStale]
	}
	return nudNames[e.state]
}

// Neighbour returns the MAC that the namespace would send to for an address on a link.
func (n *Netns) Neighbour(link string, ip netip.Addr) (packet.MAC, bool) {
	l := n.links[link]
	if l == nil {
		return packet.MAC{}, false
	}
	e := n.neigh.entries[neighKey{l, ip}]
	if e == nil || e.state == nudIncomplete {
		return packet.MAC{}, false
	}
	return e.mac, true
}

// Announce tells the neighbours of a link that an address of the namespace is here now: a gratuitous
// ARP request, or an unsolicited neighbour advertisement.
func (n *Netns) Announce(ip netip.Addr, link string) error {
	l := n.links[link]
	switch {
	case l == nil:
		return fmt.Errorf("announce %s: %w", ip, errNoDevice(link))
	case !l.running():
		return fmt.Errorf("announce %s on %s: Network is down", ip, link)
	case !n.isLocal(ip) && !n.isProxied(ip):
		return fmt.Errorf("announce %s on %s: not an address of %s", ip, link, n.Name())
	}
	p := &packet.Packet{EthSrc: l.mac, EthDst: packet.Broadcast, EthType: packet.EthARP, ARPOp: 1, ARPSHA: l.mac, ARPSPA: ip, ARPTPA: ip}
	if ip.Is6() {
		p = &packet.Packet{
			EthSrc: l.mac, EthDst: allNodesMAC, EthType: packet.EthIPv6, Src: ip, Dst: allNodes, Proto: packet.ProtoICMPv6, TTL: 255,
			ICMPType: packet.ICMPv6NeighAdvert, NDTarget: ip, NDTLL: l.mac,
		}
	}
	n.q.Run(func() { n.emit(l, p) })
	return nil
}

func (n *Netns) isProxied(ip netip.Addr) bool {
	for _, l := range n.byIndex {
		if _, ok := n.neigh.proxies[neighKey{l, ip}]; ok {
			return true
		}
	}
	return false
}
