package host

import (
	"fmt"
	"maps"
	"slices"

	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/sim/packet"
)

// Kinds of links that only the model has, besides those of package host.
const (
	kindLoopback host.LinkType = "loopback"
	kindHardware host.LinkType = "device" // made by AddLink; survives a reboot
)

// Link is a network device of a namespace.
type Link struct {
	ns     *Netns
	name   string
	index  int
	kind   host.LinkType
	mac    packet.MAC
	macSet bool // given, not drawn (addr_assign_type)
	macOur bool // of a device that somebody else made: set by Apply
	mtu    int
	up     bool
	alias  string
	guard  bool
	vlan   uint16
	parent *Link
	peer   *Link // other side of a veth
	noTx   bool  // transmit checksum offload off
	// noCarrier is set while whoever is at the other end of an AddLink link is gone.
	noCarrier bool

	transmit func(*packet.Packet)
	upper    func(*packet.Packet)

	addrs [2][]*address // by family; primaries before secondaries
	conf  [2]map[string]int
	// routes counts the routes by this link, in all tables.
	routes int

	// KeepMark lets the skb mark cross the link: the internal port of a kernel OVS, where it is
	// pkt_mark. Everywhere else a packet that leaves the namespace loses it.
	KeepMark bool
}

// Name returns the link's name.
func (l *Link) Name() string { return l.name }

// MAC returns the link's address.
func (l *Link) MAC() packet.MAC { return l.mac }

// MTU returns the link's MTU in bytes.
func (l *Link) MTU() int { return l.mtu }

// Up reports whether the link is administratively up.
func (l *Link) Up() bool { return l.up }

// TxOffload reports whether transmit checksum offload is on (the default): a userspace OVS sees TCP
// from such a link as invalid.
func (l *Link) TxOffload() bool { return !l.noTx }

// Peer returns the other side of a veth pair, nil for other links.
func (l *Link) Peer() *Link { return l.peer }

// Netns returns the namespace that the link is in.
func (l *Link) Netns() *Netns { return l.ns }

// running reports whether frames can pass: up, and for a veth the other side too.
func (l *Link) running() bool {
	switch {
	case !l.up || l.noCarrier:
		return false
	case l.peer != nil:
		return l.peer.up
	case l.parent != nil:
		return l.parent.running()
	}
	return true
}

// Link returns the link with that name, nil if there is none.
func (n *Netns) Link(name string) *Link { return n.links[name] }

// Links returns all links, sorted by name.
func (n *Netns) Links() []*Link {
	out := make([]*Link, 0, len(n.links))
	for _, name := range slices.Sorted(maps.Keys(n.links)) {
		out = append(out, n.links[name])
	}
	return out
}

// AddLink adds a device that the machine or somebody outside the model of the host made (a network
// card, the internal port of a switch). It is up. Frames that leave the namespace by it go to transmit.
// If the link exists its transmit function, MAC and MTU are replaced. A zero MAC is drawn.
func (n *Netns) AddLink(name string, mac packet.MAC, mtu int, transmit func(*packet.Packet)) *Link {
	set := mac != (packet.MAC{})
	if !set {
		mac = n.randomMAC()
	}
	if l := n.links[name]; l != nil {
		l.mac, l.macSet, l.mtu, l.transmit = mac, set, mtu, transmit
		return l
	}
	l := &Link{ns: n, name: name, kind: kindHardware, mac: mac, macSet: set, mtu: mtu, up: true, transmit: transmit}
	n.addLink(l)
	return l
}

// SetTransmit replaces where the frames go that leave the namespace by a link.
func (n *Netns) SetTransmit(link string, transmit func(*packet.Packet)) error {
	l := n.links[link]
	if l == nil {
		return fmt.Errorf("%s: %w", n.Name(), errNoDevice(link))
	}
	l.transmit = transmit
	return nil
}

// DelLink removes a link, as the kernel does when a device goes.
func (n *Netns) DelLink(name string) error {
	l := n.links[name]
	if l == nil {
		return errNoDevice(name)
	}
	n.q.Run(func() { n.deleteLink(l) })
	return nil
}

func errNoDevice(name string) error { return said(fmt.Sprintf("Cannot find device %q", name)) }

func (n *Netns) addLink(l *Link) {
	n.nextIf++
	l.index = n.nextIf
	l.conf = [2]map[string]int{maps.Clone(n.confOf["4/default"]), maps.Clone(n.confOf["6/default"])}
	n.links[l.name] = l
	n.byIndex = append(n.byIndex, l)
	if l != n.lo {
		n.event(datapath.LinkEvent{Name: l.name, Up: l.running(), Present: true})
	}
}

// VethSide is one side of a veth pair; a zero MAC is drawn, MTU 0 is 1500.
type VethSide struct {
	Netns *Netns
	Name  string
	MAC   packet.MAC
	MTU   int
}

// Veth makes a pair of links; both are down, as the kernel makes them.
func Veth(a, b VethSide) (*Link, *Link, error) {
	var l [2]*Link
	for i, s := range []VethSide{a, b} {
		if s.Netns.links[s.Name] != nil {
			return nil, nil, fmt.Errorf("veth %s in %s: %w", s.Name, s.Netns.Name(), errExists)
		}
		mtu := s.MTU
		if mtu == 0 {
			mtu = 1500
		}
		l[i] = &Link{ns: s.Netns, name: s.Name, kind: host.LinkVeth, mac: s.MAC, macSet: s.MAC != packet.MAC{}, mtu: mtu}
		if !l[i].macSet {
			l[i].mac = s.Netns.randomMAC()
		}
	}
	if a.Netns == b.Netns && a.Name == b.Name {
		return nil, nil, fmt.Errorf("veth %s: both sides have one name", a.Name)
	}
	l[0].peer, l[1].peer = l[1], l[0]
	a.Netns.addLink(l[0])
	b.Netns.addLink(l[1])
	return l[0], l[1], nil
}

var errExists = said("File exists")

// randomMAC draws a locally administered unicast address.
func (n *Netns) randomMAC() packet.MAC {
	v := n.rand.Uint64()
	m := packet.MAC{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24), byte(v >> 32), byte(v >> 40)}
	m[0] = m[0]&^1 | 2
	return m
}

// deleteLink removes a link with all that hangs on it, and the other side of a veth.
func (n *Netns) deleteLink(l *Link) {
	if n.links[l.name] != l {
		return
	}
	for _, c := range slices.Clone(n.byIndex) {
		if c.parent == l {
			n.deleteLink(c)
		}
	}
	n.flushLink(l, true)
	l.up = false
	delete(n.links, l.name)
	n.byIndex = slices.DeleteFunc(n.byIndex, func(o *Link) bool { return o == l })
	n.event(datapath.LinkEvent{Name: l.name})
	if p := l.peer; p != nil {
		l.peer, p.peer = nil, nil
		p.ns.deleteLink(p)
	}
}

// flushLink takes away what a link loses when it goes down (its routes, neighbours and IPv6 addresses)
// and, if it is going, its IPv4 addresses too.
func (n *Netns) flushLink(l *Link, going bool) {
	for i := range l.addrs {
		if i == 1 || going {
			for len(l.addrs[i]) > 0 {
				n.removeAddress(l.addrs[i][0], false)
			}
		}
	}
	for i := range n.ip {
		n.ip[i].deleteRoutesOf(l, func(r *route) bool { return going || r.Type != typeLocal })
	}
	n.neigh.flush(l)
}

// setUp changes the administrative state.
func (n *Netns) setUp(l *Link, up bool) {
	if l.up == up {
		return
	}
	l.up = up
	if up {
		for i := range l.addrs {
			for _, a := range l.addrs[i] {
				n.addConnectedRoute(a)
			}
		}
	} else {
		n.flushLink(l, false)
	}
	n.event(datapath.LinkEvent{Name: l.name, Up: l.running(), Present: true})
	if l.peer != nil {
		// The other side loses or gets its carrier.
		l.peer.ns.event(datapath.LinkEvent{Name: l.peer.name, Up: l.peer.running(), Present: true})
	}
	for _, c := range slices.Clone(n.byIndex) {
		if c.parent == l && !up {
			n.setUp(c, false)
		}
	}
}

// SetLinkUp changes the administrative state of a link.
func (n *Netns) SetLinkUp(name string, up bool) error {
	l := n.links[name]
	if l == nil {
		return errNoDevice(name)
	}
	n.q.Run(func() { n.setUp(l, up) })
	return nil
}

// SetCarrier says whether somebody is at the other end of a link, as the switch process of a tap.
// Addresses, routes and neighbours stay; frames are lost without it.
func (n *Netns) SetCarrier(link string, carrier bool) error {
	l := n.links[link]
	if l == nil {
		return fmt.Errorf("%s: %w", n.Name(), errNoDevice(link))
	}
	if l.noCarrier == carrier {
		l.noCarrier = !carrier
		n.event(datapath.LinkEvent{Name: l.name, Up: l.running(), Present: true})
	}
	return nil
}

// SetUpper hands the frames that a link receives to fn, as to a switch that reads the device; nil ends
// it. Unless the link is guarded, the namespace's own stack gets them too, as with AF_PACKET.
func (n *Netns) SetUpper(link string, fn func(*packet.Packet)) error {
	l := n.links[link]
	if l == nil {
		return fmt.Errorf("%s: %w", n.Name(), errNoDevice(link))
	}
	l.upper = fn
	return nil
}

// Transmit sends a frame out of a link as the switch that reads the device does.
func (n *Netns) Transmit(link string, p *packet.Packet) error {
	l := n.links[link]
	if l == nil {
		return fmt.Errorf("%s: %w", n.Name(), errNoDevice(link))
	}
	p = p.Clone()
	p.Mark = 0
	n.q.Run(func() { n.emit(l, p) })
	return nil
}

// emit puts a frame on a link's wire; it owns p.
func (n *Netns) emit(l *Link, p *packet.Packet) {
	if !l.running() {
		n.drop("link "+l.name, "link is down")
		return
	}
	if !l.KeepMark {
		p.Mark = 0
	}
	switch {
	case l.kind == host.LinkVLAN:
		p.VLAN = l.vlan | 0x1000
		n.emit(l.parent, p)
	case l.peer != nil:
		peer := l.peer
		n.q.Add(func() {
			if peer.peer == l {
				peer.ns.Receive(peer.name, p)
			}
		})
	case l.transmit != nil:
		out := l.transmit
		n.q.Add(func() { out(p) })
	default:
		n.drop("link "+l.name, "a "+string(l.kind)+" without a wire")
	}
}
