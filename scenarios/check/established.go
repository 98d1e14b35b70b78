package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"towtank/sim"
	"towtank/sim/packet"
)

// podFamily is one family of one Pod.
type podFamily struct {
	pod string
	v6  bool
}

func compareFamilies(a, b podFamily) int {
	if c := strings.Compare(a.pod, b.pod); c != 0 || a.v6 == b.v6 {
		return c
	}
	if b.v6 {
		return -1
	}
	return 1
}

// departed are the TCP connections of a Pod that left the cluster while one Egress applied to the Pod, or
// none. Once another one does, nothing is said about them any more: whoever is at their other end may
// not know them.
type departed struct {
	node   *sim.Node
	life   int
	leaves string                    // the Egress, as text
	first  map[connection]netip.Addr // with which address each left first
	moved  map[connection]bool       // connections of before
}

// connection names a TCP connection as its Pod knows it.
type connection struct {
	src netip.AddrPort
	dst netip.AddrPort
}

// standing says what is known of a connection.
type standing int

const (
	unknown standing = iota
	known            // it left with an address, and must keep it
	moved            // it may go on with any address
)

// left notes with which address a TCP connection of a Pod leaves the cluster, and returns with which it
// left first. Connections without an end of their own don't count: the agent flushes them on purpose.
func (c *Checker) left(p *packet.Packet) (netip.Addr, standing) {
	if p.Proto != packet.ProtoTCP {
		return netip.Addr{}, unknown
	}
	e, ok := c.w.Exchange(p)
	if !ok || e.Peek || e.From.Pod == "" || e.From.Node == nil || p.Dst != e.Dialled || c.podNetwork(e.Src) == nil || c.isTransport(p.Dst) {
		return netip.Addr{}, unknown
	}
	f := podFamily{e.From.Pod, e.Src.Is6()}
	k := connection{netip.AddrPortFrom(e.Src, e.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort)}
	d := c.departed[f]
	if d == nil || d.node != e.From.Node {
		d = &departed{node: e.From.Node, life: e.From.Node.Life(), leaves: c.leaves(e.From.Node, f), first: map[connection]netip.Addr{}, moved: map[connection]bool{}}
		c.departed[f] = d
	}
	c.recheck(f, d)
	if p.TCPFlags&packet.SYN != 0 {
		delete(d.moved, k)
		if !d.node.Heard() || !d.node.Idle() {
			// It may leave as the Pod's did before what the agent just heard.
			delete(d.first, k)
			return netip.Addr{}, unknown
		}
		d.first[k] = p.Src
		return p.Src, known
	}
	if d.moved[k] {
		return netip.Addr{}, moved
	}
	first, ok := d.first[k]
	switch {
	case !ok:
		return netip.Addr{}, unknown
	case first != p.Src && !c.opts.Tunnelled:
		// Without tunnels answers come to the Pod's node by another way than its packets leave, and its
		// kernel takes the connection for one of the other end's.
		return first, moved
	}
	return first, known
}

// leaves is how a Pod's connections may leave now, as text.
func (c *Checker) leaves(n *sim.Node, f podFamily) string {
	return fmt.Sprint(c.view(n).Leaves(f.pod, f.v6))
}

// recheck lets go of what left before, if another Egress applies now.
func (c *Checker) recheck(f podFamily, d *departed) {
	if len(d.first) == 0 {
		d.leaves, d.life = c.leaves(d.node, f), d.node.Life()
		return
	}
	now := c.leaves(d.node, f)
	if now == d.leaves && d.life == d.node.Life() {
		return
	}
	d.leaves, d.life = now, d.node.Life()
	for k := range d.first {
		d.moved[k] = true
	}
	clear(d.first)
}

// recheckAll does so for the Pods of a node, of which the agent is about to hear something.
func (c *Checker) recheckAll(n *sim.Node) {
	for _, f := range slices.SortedFunc(maps.Keys(c.departed), compareFamilies) {
		if d := c.departed[f]; d.node == n {
			c.recheck(f, d)
		}
	}
}

// way names an exchange without an end of its own, as its Pod knows it.
type way struct {
	proto uint8
	connection
}

// wayOf returns the exchange of a Pod that a packet is the question of.
func (c *Checker) wayOf(p *packet.Packet) (way, bool) {
	e, ok := c.w.Exchange(p)
	if !ok || e.Peek || e.Answered || e.From.Pod == "" || p.Proto == packet.ProtoTCP || c.podNetwork(e.Src) == nil {
		return way{}, false
	}
	return way{p.Proto, connection{netip.AddrPortFrom(e.Src, e.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort)}}, true
}

// leftBy notes by which node an exchange leaves, for the others, and reports whether it left by another one since nodes
// were quiet last. Without tunnels its answers came to the Pod's node by another way than its packets left, and that
// node's kernel took them for connections to the Pod; it forgets those right after the Egress went.
func (c *Checker) leftBy(n *sim.Node, p *packet.Packet) (byAnother bool) {
	if c.opts.Tunnelled {
		return false
	}
	w, ok := c.wayOf(p)
	if !ok {
		return false
	}
	if c.podNetwork(p.Src) == nil {
		c.ways[w] = n
		return false
	}
	by := c.ways[w]
	return by != nil && by != n
}
