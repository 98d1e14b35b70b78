package check

import (
	"fmt"
	"net/netip"

	"towtank/sim"
	"towtank/sim/packet"
)

// unroutable are the networks of addresses that exist only between a bridge and its host.
var unroutable = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fc01::/16")}

// frame checks a frame that a machine sends on the fabric (invariant 4): whose addresses a node sends
// with.
func (c *Checker) frame(from string, p *packet.Packet) {
	n := c.w.Node(from)
	if n == nil {
		if p.IsIP() {
			c.forwarded(nil, p) // what a node then passes on is not of its making
		}
		return
	}
	if p.EthType == packet.EthARP {
		if isUnroutable(p.ARPSPA) {
			c.badFrame(n, "it asks by ARP in the name of an address that exists between bridge and host only", p)
		}
		return
	}
	if !p.IsIP() || p.Src.IsLinkLocalUnicast() && p.Src.Is6() {
		return
	}
	if c.forwarded(n, p) {
		return
	}
	if p.Inner == nil {
		switch first, is := c.left(p); {
		case is == moved && !isUnroutable(p.Src):
			return
		case is == known && first != p.Src:
			c.badFrame(n, fmt.Sprintf("an established connection changed its address from %s", first), p)
			return
		}
	}
	if p.Inner == nil || p.IsICMPError() {
		if p.Inner == nil && c.leftBy(n, p) {
			return
		}
		if why := c.outside(n, p); why != "" {
			c.badFrame(n, why, p)
		}
		return
	}
	if p.Src != n.Transport(p.Src.Is6()) && !(c.isTransport(p.Src) && p.TTL < sentTTL) {
		c.badFrame(n, "a tunnel packet has another source than the node's transport address", p)
		return
	}
	if p.Inner.IsIP() {
		if why := c.inside(n, p.Inner); why != "" {
			c.badFrame(n, why, p)
		}
	}
}

// forwarded reports whether another machine has sent the packet before with the same source: this node only
// passes it on, as it does for somebody who takes it for the holder of an address that it had.
func (c *Checker) forwarded(n *sim.Node, p *packet.Packet) bool {
	if p.Trace == 0 {
		return false
	}
	if p.Trace != c.trace {
		c.trace, c.sent = p.Trace, c.sent[:0]
	}
	for _, s := range c.sent {
		if s.src == p.Src {
			return s.node != n
		}
	}
	c.sent = append(c.sent, sent{n, p.Src})
	return false
}

// sent is with which source a node sent a packet of the exchange that is under way.
type sent struct {
	node *sim.Node
	src  netip.Addr
}

// sentTTL is with which TTL nodes send tunnel packets; those with less were sent by another node.
const sentTTL = 64

func isUnroutable(a netip.Addr) bool {
	for _, p := range unroutable {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// outside says what is wrong with the source of a packet that is not in a tunnel.
func (c *Checker) outside(n *sim.Node, p *packet.Packet) string {
	if isUnroutable(p.Src) {
		return "the source exists between bridge and host only"
	}
	home := c.podNetwork(p.Src)
	if home == nil && n.Netns().HasAddress(p.Src) {
		return ""
	}
	e, known := c.w.Exchange(p)
	switch {
	case known && p.Src == e.Dialled:
		return "" // an answer, in the name of the address that was dialled
	case home != nil && c.opts.Tunnelled:
		return "an address of a Pod network leaves the node outside the tunnel"
	case home != nil && !known, home != nil && e.Answered:
		return ""
	case home != nil && p.IsICMPError() && p.Inner.Dst == p.Src:
		return "" // the Pod itself refuses what was sent to it
	case home != nil && p.Proto == packet.ProtoTCP && p.TCPFlags&packet.SYN == 0:
		return "" // see left: without tunnels a kernel may take an established connection for another
	case home != nil && c.podNetwork(p.Dst) == nil && !c.isTransport(p.Dst):
		return "an address of a Pod network leaves the cluster"
	case home != nil && p.Src != e.Src && p.Src != n.Gateway(p.Src.Is6()):
		return "it is another Pod's address than the client's"
	case home != nil, known && p.Src == e.Src:
		return ""
	case !known, c.mayHave(n, p.Src):
		return "" // nobody's exchange: what the kernel makes by itself
	case p.Proto == packet.ProtoTCP && p.TCPFlags&packet.SYN == 0:
		return "" // an established connection keeps its address, or dies of it
	}
	return "the node does not have the source address, and nobody dialled it"
}

// inside says what is wrong with the source of a packet in a tunnel.
func (c *Checker) inside(n *sim.Node, p *packet.Packet) string {
	if isUnroutable(p.Src) {
		return "the source inside the tunnel exists between bridge and host only"
	}
	e, known := c.w.Exchange(p)
	if !known || e.Answered || refuses(p) || p.Src == e.Src || p.Src == e.Dialled || p.Src == n.Gateway(p.Src.Is6()) || p.IsICMPError() {
		return ""
	}
	if c.podNetwork(p.Src) != nil {
		return "the source inside the tunnel is another Pod's address than the client's"
	}
	if n.Netns().HasAddress(p.Src) {
		return ""
	}
	return "the source inside the tunnel is neither the client's nor the node's"
}

// refuses reports whether a packet is a refusal: an answer, by the kernel of whom it came to.
func refuses(p *packet.Packet) bool {
	return p.IsICMPError() || p.Proto == packet.ProtoTCP && p.TCPFlags&packet.RST != 0
}

// podNetwork returns the node whose Pod network an address is in, nil if none.
func (c *Checker) podNetwork(a netip.Addr) *sim.Node {
	for _, n := range c.w.Nodes() {
		for _, p := range n.PodCIDRs() {
			if p.Contains(a) {
				return n
			}
		}
	}
	return nil
}

func (c *Checker) isTransport(a netip.Addr) bool {
	for _, n := range c.w.Nodes() {
		if n.Transport(a.Is6()) == a {
			return true
		}
	}
	return false
}

// badFrame notes a frame that must not be; one of a sort is told once.
func (c *Checker) badFrame(n *sim.Node, why string, p *packet.Packet) {
	src := p.Src
	if p.EthType == packet.EthARP {
		src = p.ARPSPA
	}
	k := badFrame{n.Name(), why, src}
	if c.badFrames[k] {
		return
	}
	c.badFrames[k] = true
	c.pending = append(c.pending, Result{ID: 4, Node: n.Name(), Detail: fmt.Sprintf("%s: %s", why, p)})
}

// badFrame is a sort of frames that must not be.
type badFrame struct {
	node, why string
	src       netip.Addr
}
