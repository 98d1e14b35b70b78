//go:build linux

package netns

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"

	"towtank/e2e/peer"
	"towtank/scenarios"
	"towtank/scenarios/check"
	"towtank/sim/packet"
)

// Invariant 4 on a real node: every frame that a node sends to the fabric is looked at. What is known of the one that
// carries a question of a probe is who asks, and so with which addresses it may leave; of the others what is in them.
//
//	any frame          no address that exists between a bridge and its host only
//	in a tunnel        from an address of the node; inside as above
//	outside a tunnel   no Pod's address (with traffic=encap), but in an answer to who dialled it
//	a first TCP packet from an address that the node has, or a client's that it passes on
//	a Pod's question   to an external host, on a new connection: from an address that the Pod may leave with
//
// Other packets of connections go on with the address that the connection has, or die of it: as in the simulator.
type wire struct {
	c    *cluster
	opts *wireOptions
	stop chan struct{}

	mu      sync.Mutex
	held    map[string]map[netip.Addr]*span // by node
	dialled map[netip.Addr]bool
	clients map[netip.Addr]bool // addresses of external hosts
	asked   map[string]asked    // by token
	unsure  []suspect
	told    map[string]bool
	found   []check.Result
}

type wireOptions struct {
	pods      []netip.Prefix // the Pod networks
	tunnelled bool
}

// span is the time for which a node had an address: to is zero while it has.
type span struct{ from, to time.Time }

// asked is a new connection of a Pod to an external host.
type asked struct {
	from podFamily
	node string
	to   netip.Addr
}

// suspect is a first packet from an address that its node did not have, as far as was known.
type suspect struct {
	at   time.Time
	node string
	p    *packet.Packet
}

// Times around that at which a node had an address: a frame may come before the news that it has it, and after it
// went what the kernel had under way.
const (
	heldBefore = time.Second
	heldAfter  = 1500 * time.Millisecond
)

func newWire(c *cluster) *wire {
	w := &wire{c: c, stop: make(chan struct{}), held: map[string]map[netip.Addr]*span{}, dialled: map[netip.Addr]bool{}, clients: map[netip.Addr]bool{}, asked: map[string]asked{}, told: map[string]bool{}}
	w.opts = &wireOptions{pods: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/16"), netip.MustParsePrefix("fd00:10::/32")}, tunnelled: c.opts.Traffic == "encap"}
	c.fabric.listen(w.hear)
	return w
}

// watch follows which addresses a node has, from its boot until its namespace goes.
func (w *wire) watch(node string, s *space) error {
	h, err := vnetns.GetFromName(s.name)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }()
	updates := make(chan netlink.AddrUpdate, 64)
	done := make(chan struct{})
	if err := netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{Namespace: &h, ListExisting: true}); err != nil {
		return fmt.Errorf("addresses of %s: %w", node, err)
	}
	w.mu.Lock()
	w.held[node] = map[netip.Addr]*span{}
	w.mu.Unlock()
	go func() {
		defer close(done)
		for {
			select {
			case u, ok := <-updates:
				if !ok {
					return
				}
				if a, is := netip.AddrFromSlice(u.LinkAddress.IP); is {
					w.address(node, a.Unmap(), u.NewAddr)
				}
			case <-w.stop:
				return
			case <-s.done:
				return
			}
		}
	}()
	return nil
}

func (w *wire) address(node string, a netip.Addr, has bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.held[node][a]
	switch {
	case has && (s == nil || !s.to.IsZero()):
		w.held[node][a] = &span{from: time.Now()}
	case !has && s != nil:
		s.to = time.Now()
	}
}

// had reports whether a node had an address about then.
func (w *wire) had(node string, a netip.Addr, at time.Time) bool {
	s := w.held[node][a]
	return s != nil && s.from.Before(at.Add(heldBefore)) && (s.to.IsZero() || s.to.Add(heldAfter).After(at))
}

// holds reports whether any node has an address now.
func (w *wire) holds(a netip.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, held := range w.held {
		if s := held[a]; s != nil && s.to.IsZero() {
			return true
		}
	}
	return false
}

// ask notes a new connection before its first packet.
func (w *wire) ask(from *source, f scenarios.Flow, token string, kept bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialled[f.To] = true
	// One whose client's port was used before may be known to conntrack from then.
	if from.pod == "" || from.m == nil || f.SPort != 0 || kept || !w.clients[f.To] {
		return
	}
	w.asked[token] = asked{podFamily{from.pod, f.To.Is6()}, from.m.name, f.To}
}

// client notes the addresses of a host outside the cluster.
func (w *wire) client(addrs []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range addrs {
		w.clients[a] = true
	}
}

// unroutable are the networks of addresses that exist only between a bridge and its host.
var unroutable = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fc01::/16")}

func in(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// hear looks at a frame that a machine sends.
func (w *wire) hear(from string, frame []byte) {
	p, _, err := packet.Unmarshal(frame)
	if err != nil || p.EthType != packet.EthARP && !p.IsIP() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[from] == nil {
		return // an external host
	}
	if p.EthType == packet.EthARP {
		if in(unroutable, p.ARPSPA) {
			w.bad(from, "it asks by ARP in the name of an address that exists between bridge and host only", p.ARPSPA, p)
		}
		return
	}
	if p.Src.Is6() && p.Src.IsLinkLocalUnicast() || p.Src.IsUnspecified() {
		return
	}
	if in(unroutable, p.Src) {
		w.bad(from, "the source exists between bridge and host only", p.Src, p)
		return
	}
	if inner, is := tunnelled(p, frame); is {
		// One with a lower TTL was sent by another node: this one passes it on, as whoever takes it for the holder of an
		// address that it had has it do.
		if !w.had(from, p.Src, time.Now()) && !(w.isTransport(p.Src) && p.TTL < sentTTL) {
			w.bad(from, "a tunnel packet has a source that the node does not have", p.Src, p)
		}
		if inner != nil && inner.IsIP() && in(unroutable, inner.Src) {
			w.bad(from, "the source inside the tunnel exists between bridge and host only", inner.Src, inner)
		}
		return
	}
	w.outside(from, p, frame)
}

// outside looks at a packet that is in no tunnel.
func (w *wire) outside(from string, p *packet.Packet, frame []byte) {
	pod := in(w.opts.pods, p.Src)
	first := p.Proto == packet.ProtoTCP && p.Frag < 2 && p.TCPFlags&(packet.SYN|packet.ACK) == packet.SYN
	switch {
	case w.dialled[p.Src]: // an answer in the name of the address that was dialled
	case pod && w.opts.tunnelled:
		w.bad(from, "an address of a Pod network leaves the node outside the tunnel", p.Src, p)
		return
	case pod && first && !in(w.opts.pods, p.Dst) && !w.isTransport(p.Dst):
		w.bad(from, "an address of a Pod network leaves the cluster", p.Src, p)
		return
	case !pod && first && !w.isClient(p.Src) && !w.had(from, p.Src, time.Now()):
		w.unsure = append(w.unsure, suspect{time.Now(), from, p})
	}
	at := bytes.Index(frame, []byte(peer.QuestionMark))
	if at < 0 || echoed(frame, at) {
		return
	}
	a, ok := w.asked[token(frame[at+len(peer.QuestionMark):])]
	if !ok || a.to != p.Dst || a.node == "" {
		return
	}
	if ok, want := w.c.leavers.allows(a.from, p.Src); !ok {
		w.bad(from, fmt.Sprintf("a new connection of Pod %s to %s has source %s; it may have %s", a.from.pod, a.to, p.Src, want), p.Src, p)
	}
}

// isTransport reports whether an address is a node's.
func (w *wire) isTransport(a netip.Addr) bool {
	for _, held := range w.held {
		if held[a] != nil {
			return true
		}
	}
	return false
}

// isClient reports whether an address is that of a host outside the cluster: a node passes such packets on.
func (w *wire) isClient(a netip.Addr) bool {
	return a == endpointVia4 || a == endpointVia6 || endpointNet4.Contains(a) || endpointNet6.Contains(a) || w.clients[a]
}

// sentTTL is with which TTL nodes send tunnel packets.
const sentTTL = 64

// Ports of tunnels, and what stands before the frame inside (RFC 7348, RFC 8926), in bytes.
const (
	vxlanPort, genevePort = 4789, 6081
	tunnelHeader          = 8
)

// tunnelled reports whether a packet is a tunnel's, and returns what is inside if it can be read.
func tunnelled(p *packet.Packet, frame []byte) (inner *packet.Packet, is bool) {
	if p.Proto != packet.ProtoUDP || p.Frag != 0 || p.DstPort != vxlanPort && p.DstPort != genevePort {
		return nil, false
	}
	head := 14 + 40 + 8
	if p.Src.Is4() {
		head = 14 + int(frame[14]&15)*4 + 8
	}
	if len(frame) < head+tunnelHeader {
		return nil, true
	}
	if p.DstPort == genevePort {
		head += int(frame[head]&0x3f) * 4
	}
	if len(frame) < head+tunnelHeader {
		return nil, true
	}
	inner, _, err := packet.Unmarshal(frame[head+tunnelHeader:])
	if err != nil {
		return nil, true
	}
	return inner, true
}

// bad notes a frame that must not be; one of a sort is told once.
func (w *wire) bad(node, why string, src netip.Addr, p *packet.Packet) {
	if k := node + " " + why + " " + src.String(); !w.told[k] {
		w.told[k] = true
		w.found = append(w.found, check.Result{ID: 4, Node: node, Detail: why + ": " + p.String()})
	}
}

// noticed returns what was found since it was asked last.
func (w *wire) noticed() []check.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.unsure) > 0 {
		s := w.unsure[0]
		if d := heldBefore - time.Since(s.at); d > 0 { // the news that the node has it may still come
			w.mu.Unlock()
			time.Sleep(d)
			w.mu.Lock()
		}
		w.unsure = w.unsure[1:]
		if !w.had(s.node, s.p.Src, s.at) && !w.dialled[s.p.Src] {
			w.bad(s.node, "the node does not have the source address, and nobody dialled it", s.p.Src, s.p)
		}
	}
	out := w.found
	w.found = nil
	return out
}
