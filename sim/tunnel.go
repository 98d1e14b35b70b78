package sim

import (
	"net/netip"
	"time"

	"towtank/sim/ovs"
	"towtank/sim/packet"
)

// UDP ports of tunnels.
const (
	portGeneve = 6081
	portVXLAN  = 4789
)

// tunnelIdle is how long OVS keeps a tunnel neighbour that is not used (tnl-neigh-cache.c: 15 minutes).
const tunnelIdle = 15 * time.Minute

// tunnels is the tunnel side of a node's switch: it has a neighbour cache of its own, and a packet
// to a neighbour that is not in it is lost.
type tunnels struct {
	n    *Node
	used map[netip.Addr]time.Time // known neighbours, and when they were used last
	peek map[netip.Addr]tunnelUse // while set: what was used before
}

// tunnelUse is when a neighbour was used, if it was known.
type tunnelUse struct {
	at    time.Time
	known bool
}

func newTunnels(n *Node) *tunnels { return &tunnels{n: n, used: map[netip.Addr]time.Time{}} }

func (t *tunnels) port() uint16 {
	if t.n.world.opts.Tunnel == "vxlan" {
		return portVXLAN
	}
	return portGeneve
}

// hop returns the neighbour by which a peer is reached: itself, or the router of its network.
func (t *tunnels) hop(peer netip.Addr) netip.Addr {
	for _, nw := range t.n.world.nets { //determinism:ignore networks do not overlap
		if nw.cidr.Contains(peer) {
			return nw.router
		}
	}
	return peer
}

// resolve asks the network for a neighbour.
func (t *tunnels) resolve(peer netip.Addr) bool {
	n := t.n
	hop := t.hop(peer)
	if _, ok := n.ns.Neighbour(Uplink, hop); !ok {
		n.world.ask(n.ns, hop)
	}
	if _, ok := n.ns.Neighbour(Uplink, hop); !ok {
		return false
	}
	t.use(peer)
	return true
}

// send takes a frame that leaves by the tunnel port.
func (t *tunnels) send(_ *ovs.PortState, p *packet.Packet, dst, src netip.Addr, id uint64) {
	n := t.n
	if !dst.IsValid() || dst.IsUnspecified() {
		return // flooded to a port without a fixed end: it goes nowhere
	}
	n.world.traffic.leftSwitch(p)
	now := n.world.queue.Now()
	last, known := t.used[dst]
	// The kernel's table does not matter: it gives an entry up that the switch goes on with.
	if !known || now.Sub(last) > tunnelIdle {
		t.resolve(dst)
		n.world.trace(packet.TraceStep{Node: n.name, Where: "tunnel", Text: "no tunnel neighbour for " + dst.String() + ": the packet is lost, the neighbour is asked for", Drop: true})
		return
	}
	t.use(dst)
	if !src.IsValid() {
		src = n.transport(dst.Is6())
	}
	outer := &packet.Packet{Proto: packet.ProtoUDP, SrcPort: 49152 + uint16(id&0x3fff), DstPort: t.port(), TTL: 64, Inner: p, TunnelID: id, Trace: p.Trace}
	outer.SetIPs(src, dst)
	n.world.trace(packet.TraceStep{Node: n.name, Where: "tunnel", Text: "to " + dst.String()})
	if err := n.ns.Send(outer); err != nil {
		n.world.trace(packet.TraceStep{Node: n.name, Where: "tunnel", Text: "to " + dst.String() + ": " + err.Error(), Drop: true})
	}
}

// receive takes a tunnel packet that arrived on the node.
func (t *tunnels) receive(in *packet.Packet) *packet.Packet {
	n := t.n
	if in.Inner == nil || !n.ovsUp {
		return nil
	}
	st := n.sw.PortByName("tun0")
	if st == nil || st.OFPort == 0 {
		n.world.trace(packet.TraceStep{Node: n.name, Where: "tunnel", Text: "no tunnel port", Drop: true})
		return nil
	}
	n.world.trace(packet.TraceStep{Node: n.name, Where: "tunnel", Text: "from " + in.Src.String() + " to " + in.Dst.String()})
	inner := in.Inner
	n.world.packets.Add(func() { n.sw.ReceiveTunnel(st.OFPort, inner, in.Src, in.Dst, in.TunnelID) })
	return nil
}

// use notes that a neighbour was used.
func (t *tunnels) use(peer netip.Addr) {
	if t.peek != nil {
		if _, noted := t.peek[peer]; !noted {
			at, known := t.used[peer]
			t.peek[peer] = tunnelUse{at, known}
		}
	}
	t.used[peer] = t.n.world.queue.Now()
}

// endPeek puts back what was noted.
func (t *tunnels) endPeek() {
	for peer, u := range t.peek {
		if u.known {
			t.used[peer] = u.at
		} else {
			delete(t.used, peer)
		}
	}
	t.peek = nil
}

// forget loses the cache, as a restart of vswitchd does.
func (t *tunnels) forget() { clear(t.used) }
