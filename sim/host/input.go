package host

import (
	"fmt"
	"net/netip"

	"towtank/datapath/host"
	"towtank/sim/packet"
)

// pkt is a packet on its way through the namespace, with what the kernel keeps beside it.
type pkt struct {
	p       *packet.Packet
	fi      int // index of the family
	in, out *Link
	// ct is the conntrack entry, nil before conntrack, for invalid and for untracked packets.
	ct    *conn
	reply bool // the packet goes in the reply direction of ct
	state host.CTState
	route *route // to the next hop
	// local is set for packets that the namespace made.
	local bool
	// anySource is set for answers made in the name of somebody else (RST of REJECT).
	anySource bool
	// delivered is set when the packet has come to a socket, or to where one would be.
	delivered bool
}

func (n *Netns) newPkt(p *packet.Packet) *pkt {
	c := &pkt{p: p}
	if p.EthType == packet.EthIPv6 {
		c.fi = 1
	}
	return c
}

// defaultTTL is net.ipv4.ip_default_ttl and net.ipv6.conf.all.hop_limit.
const defaultTTL = 64

// Receive takes a frame that arrives on a link; the namespace does not keep p.
func (n *Netns) Receive(link string, p *packet.Packet) {
	n.q.Run(func() {
		n.catchUp()
		n.receive(link, p)
	})
}

// catchUp does what became due since the namespace was last looked at: virtual time moves in jumps.
func (n *Netns) catchUp() {
	if at, ok := n.neigh.nextDeadline(); ok && !at.After(n.now()) {
		n.tickNeighbours()
	}
}

func (n *Netns) receive(link string, p *packet.Packet) {
	l := n.links[link]
	if l == nil {
		n.drop("link "+link, "no such link")
		return
	}
	if !l.running() {
		n.drop("link "+link, "link is down")
		return
	}
	if l.peer != nil && p.IsIP() && size(p) > l.mtu {
		n.drop("link "+link, fmt.Sprintf("packet of %d bytes, MTU %d", size(p), l.mtu))
		return
	}
	p = p.Clone()
	if !l.KeepMark {
		p.Mark = 0
	}
	if l.upper != nil {
		up := l.upper
		up(p.Clone())
		if n.links[link] != l {
			return
		}
	}
	if l.guard {
		return
	}
	if p.VLAN&0x1000 != 0 && p.VLAN&0xfff != 0 {
		for _, c := range n.byIndex {
			if c.parent == l && c.vlan == p.VLAN&0xfff {
				p.VLAN = 0
				if !c.running() {
					n.drop("link "+c.name, "link is down")
					return
				}
				n.frame(c, p)
				return
			}
		}
		if l.upper == nil {
			n.drop("link "+l.name, fmt.Sprintf("no link for VLAN %d", p.VLAN&0xfff))
		}
		return
	}
	n.frame(l, p)
}

// frame gives an untagged frame to the protocol that it carries.
func (n *Netns) frame(l *Link, p *packet.Packet) {
	if p.EthDst != l.mac && !p.EthDst.IsMulticast() && l != n.lo {
		if l.upper == nil {
			n.drop("link "+l.name, fmt.Sprintf("frame for %s, not for %s", p.EthDst, l.mac))
		}
		return
	}
	switch {
	case p.EthType == packet.EthARP:
		n.receiveARP(l, p)
	case p.EthType == packet.EthIPv6 && p.Proto == packet.ProtoICMPv6 && (p.ICMPType == packet.ICMPv6NeighSolicit || p.ICMPType == packet.ICMPv6NeighAdvert):
		n.receiveND(l, p)
	case p.IsIP():
		if p.Dst.IsMulticast() {
			return // nobody here listens to groups
		}
		c := n.newPkt(p)
		c.in = l
		n.input(c)
	}
}

// input is the way of a packet from a link: PREROUTING, the routing decision, and on.
func (n *Netns) input(c *pkt) {
	if c.p.TTL == 0 {
		c.p.TTL = defaultTTL
	}
	if why := n.martian(c); why != "" {
		n.drop("route", why)
		return
	}
	if !n.hook(c, "PREROUTING") {
		return
	}
	n.routeInput(c)
}

// martian names the reason to drop a packet by its addresses alone.
func (n *Netns) martian(c *pkt) string {
	p := c.p
	if !p.Src.IsValid() || !p.Dst.IsValid() || p.Src.Is4() != p.Dst.Is4() || p.Src.Is4() != (c.fi == 0) {
		return "malformed: source and destination are not of one family"
	}
	if p.Src.IsMulticast() || p.Src == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return "martian source " + p.Src.String()
	}
	if c.fi == 0 && (p.Src.IsUnspecified() || p.Dst.IsUnspecified()) {
		return "martian: 0.0.0.0"
	}
	if c.in == n.lo {
		return ""
	}
	if p.Src.IsLoopback() || p.Dst.IsLoopback() && (c.fi == 1 || n.confMax(c.in, 0, "route_localnet") == 0) {
		return "martian: a loopback address from outside"
	}
	return ""
}

func (n *Netns) routeInput(c *pkt) {
	p := c.p
	f := flow{dst: p.Dst, src: p.Src, mark: p.Mark, iif: c.in.name}
	r, err := n.lookup(f)
	if c.fi == 0 && c.in != n.lo && err == nil {
		if why := n.badSource(c, r); why != "" {
			n.drop("route", why)
			return
		}
	}
	if err == nil && (r.Type == typeLocal || r.Type == typeBroadcast) {
		n.deliver(c)
		return
	}
	forwarding := c.in.conf[0]["forwarding"]
	if c.fi == 1 {
		forwarding = n.confOf["6/all"]["forwarding"]
	}
	if forwarding == 0 {
		n.drop("route", fmt.Sprintf("%s is not an address of %s, which does not forward", p.Dst, n.Name()))
		return
	}
	if err != nil {
		n.drop("route", fmt.Sprintf("%s: %v (%s)", p.Dst, err, routeText(r)))
		n.unreachable(c, err)
		return
	}
	if n.tracer != nil {
		n.step("route", routeText(r))
	}
	c.route = r
	n.forward(c)
}

// unreachable answers a packet that no route takes.
func (n *Netns) unreachable(c *pkt, err error) {
	switch err {
	case errUnreachable:
		if c.fi == 0 {
			n.icmpError(c, packet.ICMPUnreachable, 0)
		} else {
			n.icmpError(c, packet.ICMPv6Unreachable, 0)
		}
	case errNoHost:
		if c.fi == 0 {
			n.icmpError(c, packet.ICMPUnreachable, 1)
		} else {
			n.icmpError(c, packet.ICMPv6Unreachable, 0)
		}
	case errProhibited:
		if c.fi == 0 {
			n.icmpError(c, packet.ICMPUnreachable, 13)
		} else {
			n.icmpError(c, packet.ICMPv6Unreachable, 1)
		}
	}
}

// badSource is fib_validate_source: our own address from outside is never accepted without
// accept_local; rp_filter 1 wants the way back to be the way in, 2 wants any way back. The way back is that of a packet
// which comes in where this one goes out: rules that ask for the link see that one, lo if this one stays here.
func (n *Netns) badSource(c *pkt, to *route) string {
	src := c.p.Src
	if n.isLocal(src) {
		if n.confMax(c.in, 0, "accept_local") > 0 {
			return ""
		}
		return fmt.Sprintf("martian source %s: an address of %s itself", src, n.Name())
	}
	mode := n.confMax(c.in, 0, "rp_filter")
	if mode == 0 {
		return ""
	}
	f := flow{dst: src, src: c.p.Dst, iif: "lo"}
	if to.Type == host.RouteUnicast {
		f.iif = to.link.name
	}
	if n.confMax(c.in, 0, "src_valid_mark") > 0 {
		f.mark = c.p.Mark
	}
	r, err := n.lookup(f)
	if err != nil || r.Type != host.RouteUnicast {
		return fmt.Sprintf("rp_filter %d on %s: no route back to %s", mode, c.in.name, src)
	}
	if mode == 1 && r.link != c.in {
		return fmt.Sprintf("rp_filter 1 on %s: the route back to %s is %s", c.in.name, src, routeText(r))
	}
	return ""
}

func (n *Netns) forward(c *pkt) {
	p := c.p
	if c.fi == 1 && p.Src.IsLinkLocalUnicast() {
		n.drop("route", "link-local source is not forwarded")
		return
	}
	if p.TTL <= 1 {
		n.drop("route", "TTL exceeded")
		if c.fi == 0 {
			n.icmpError(c, packet.ICMPTimeExceeded, 0)
		} else {
			n.icmpError(c, packet.ICMPv6TimeExceeded, 0)
		}
		return
	}
	c.out = c.route.link
	if n.tooBig(c) {
		return
	}
	p.TTL--
	if !n.hook(c, "FORWARD") {
		return
	}
	n.postrouting(c)
}

// tooBig answers a packet that does not fit the outgoing link and must not be fragmented. Other IPv4
// packets go on as fragments.
func (n *Netns) tooBig(c *pkt) bool {
	s := size(c.p)
	if s <= c.out.mtu {
		return false
	}
	if c.fi == 0 && !c.p.DF {
		c.p.MaxFragment = c.out.mtu
		return false
	}
	n.drop("route", fmt.Sprintf("packet of %d bytes, MTU of %s is %d", s, c.out.name, c.out.mtu))
	if c.fi == 0 {
		n.icmpError(c, packet.ICMPUnreachable, 4)
	} else {
		n.icmpError(c, packet.ICMPv6PacketTooBig, 0)
	}
	return true
}

// size is the length of an IP packet, or of the longest of its fragments, in bytes.
func size(p *packet.Packet) int {
	if p.Size > 0 {
		if p.MaxFragment > 0 {
			return min(p.Size, p.MaxFragment)
		}
		return p.Size
	}
	s := 20
	if p.EthType == packet.EthIPv6 {
		s = 40
	}
	switch p.Proto {
	case packet.ProtoTCP:
		s += 20
	default:
		s += 8
	}
	if p.Inner != nil {
		s += size(p.Inner)
	}
	return s
}

// postrouting is the last hook and the way to the wire.
func (n *Netns) postrouting(c *pkt) {
	if !n.hook(c, "POSTROUTING") {
		return
	}
	if c.out == n.lo {
		n.loopback(c)
		return
	}
	if c.out.kind == host.LinkDummy || c.out.kind == host.LinkBridge {
		n.drop("link "+c.out.name, "a "+string(c.out.kind)+" without a wire")
		return
	}
	if !c.out.up {
		n.drop("link "+c.out.name, "link is down")
		return
	}
	if c.route.Type == typeBroadcast {
		n.sendTo(c, packet.Broadcast)
		return
	}
	n.resolve(c, c.route.nextHop(c.p.Dst))
}

// loopback gives a packet of the namespace to itself. The conntrack entry stays with it.
func (n *Netns) loopback(c *pkt) {
	d := &pkt{p: c.p, fi: c.fi, in: n.lo, ct: c.ct, reply: c.reply, state: c.state}
	n.q.Add(func() {
		if !n.hook(d, "PREROUTING") {
			return
		}
		n.routeInput(d)
	})
}

// deliver is the way to the namespace's own sockets.
func (n *Netns) deliver(c *pkt) {
	if !n.hook(c, "INPUT") {
		return
	}
	if n.tracer != nil {
		n.step("local", "delivered: "+c.p.String())
	}
	n.socket(c)
}

// Send sends a packet that the namespace makes: OUTPUT, routing, POSTROUTING. Without Src the source is
// chosen by the route. The error is what the system call returns at once.
func (n *Netns) Send(p *packet.Packet) error {
	var err error
	n.q.Run(func() {
		n.catchUp()
		err = n.send(n.newPkt(p.Clone()))
	})
	return err
}

func (n *Netns) send(c *pkt) error {
	p := c.p
	if !p.Dst.IsValid() {
		return fmt.Errorf("send: no destination")
	}
	if p.Src.IsValid() && p.Src.Is4() != p.Dst.Is4() {
		return fmt.Errorf("send %s -> %s: two families", p.Src, p.Dst)
	}
	c.fi = famIndex(p.Dst)
	c.local = true
	if p.TTL == 0 {
		p.TTL = defaultTTL
	}
	p.VLAN = 0
	// A bound source steers the policy rules; the choice of a source comes after the first lookup.
	r, err := n.lookup(flow{dst: p.Dst, src: p.Src, mark: p.Mark, iif: "lo"})
	if err != nil {
		n.drop("route", fmt.Sprintf("%s: %v", p.Dst, err))
		return fmt.Errorf("send to %s: %w", p.Dst, err)
	}
	if !p.Src.IsValid() {
		p.Src = n.source(r, p.Dst)
		if !p.Src.IsValid() {
			n.drop("route", fmt.Sprintf("%s: no source address", p.Dst))
			return fmt.Errorf("send to %s: %w", p.Dst, errUnreachable)
		}
	} else if !c.anySource && !n.isLocal(p.Src) && n.conf["net.ipv"+[]string{"4", "6"}[c.fi]+".ip_nonlocal_bind"] == 0 {
		return fmt.Errorf("send from %s: Cannot assign requested address", p.Src)
	}
	p.SetIPs(p.Src, p.Dst)
	n.setRoute(c, r)
	if n.tracer != nil {
		n.step("route", routeText(r)+" src "+p.Src.String())
	}
	dst := p.Dst
	if !n.hook(c, "OUTPUT") {
		return fmt.Errorf("send to %s: %w", dst, errNotAllowed)
	}
	if c.out != n.lo && size(p) > c.out.mtu {
		if p.DF {
			n.drop("route", fmt.Sprintf("packet of %d bytes, MTU of %s is %d", size(p), c.out.name, c.out.mtu))
			return fmt.Errorf("send to %s: %w", p.Dst, errTooLong)
		}
		p.MaxFragment = c.out.mtu // who sends a packet fragments it, in IPv6 as well
	}
	n.postrouting(c)
	return nil
}

func (n *Netns) setRoute(c *pkt, r *route) {
	c.route, c.out = r, r.link
	if r.Type == typeLocal {
		c.out = n.lo
	}
}

// reroute decides again where a packet of the namespace goes, after OUTPUT changed it.
func (n *Netns) reroute(c *pkt) bool {
	r, err := n.lookup(flow{dst: c.p.Dst, src: c.p.Src, mark: c.p.Mark, iif: "lo"})
	if err != nil {
		n.drop("route", fmt.Sprintf("%s after OUTPUT: %v", c.p.Dst, err))
		return false
	}
	n.setRoute(c, r)
	if n.tracer != nil {
		n.step("route", "after OUTPUT: "+routeText(r))
	}
	return true
}

// hook runs the tables of a hook in the kernel's order, with conntrack where it belongs; it reports
// whether the packet goes on.
func (n *Netns) hook(c *pkt, hook string) bool {
	st := n.ip[c.fi]
	first := hook == "PREROUTING" || hook == "OUTPUT"
	if first && !(n.table(st.nf["raw"], c, hook) && n.track(c)) {
		return false
	}
	mark, dst := c.p.Mark, c.p.Dst
	if !n.table(st.nf["mangle"], c, hook) {
		return false
	}
	if hook == "OUTPUT" && c.p.Mark != mark && !n.reroute(c) {
		return false
	}
	if first && !n.nat(c, hook, manipDst) {
		return false
	}
	if hook == "OUTPUT" && c.p.Dst != dst && !n.reroute(c) {
		return false
	}
	switch hook {
	case "INPUT", "FORWARD", "OUTPUT":
		if !n.table(st.nf["filter"], c, hook) {
			return false
		}
	}
	switch hook {
	case "POSTROUTING", "INPUT":
		return n.nat(c, hook, manipSrc) && n.confirm(c)
	}
	return true
}
