package sim

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/datapath"
	"towtank/sim/packet"
)

// Told is what the agent of a node was told so far: the objects by namespace/name or name, the members,
// and the addresses of the node. The maps are the agent's own and go on changing: callers only read.
type Told struct {
	Services   map[string]*corev1.Service
	Slices     map[string]map[string]*discoveryv1.EndpointSlice // by Service, then by slice
	Nodes      map[string]*corev1.Node
	Pods       map[string]*corev1.Pod // of this node
	Namespaces map[string]*corev1.Namespace
	Egresses   map[string]*v1beta1.Egress
	Pools      map[string]*v1beta1.ExternalIPPool
	Groups     map[string]*v1beta1.EgressGroup // by Egress
	Alive      []string
	Addresses  map[netip.Addr][]string
}

// Told returns what the node's agent was told; a dead one keeps what it was told last. The zero Told if
// no agent ever ran.
func (n *Node) Told() Told { return n.Hearing()() }

// Hearing returns a function that is Told of the present agent, also when that is dead and another one runs.
func (n *Node) Hearing() func() Told {
	if n.agent == nil || n.agent.loop == nil {
		return func() Told { return Told{} }
	}
	t := n.agent.loop.Env().Tables
	return func() Told {
		return Told{
			Services: t.Services, Slices: t.Slices, Nodes: t.Nodes, Pods: t.Pods, Namespaces: t.Namespaces, Egresses: t.Egresses,
			Pools: t.Pools, Groups: t.EgressGroups, Alive: t.Alive, Addresses: t.Addresses,
		}
	}
}

// Store returns the Store of the node's agent, nil if no agent ever ran.
func (n *Node) Store() *datapath.Store {
	if n.agent == nil || n.agent.loop == nil {
		return nil
	}
	return n.agent.loop.Env().Store
}

// PodOfSandbox returns the namespace/name of the Pod of a sandbox unit, "" if the agent has no such
// sandbox.
func (n *Node) PodOfSandbox(unit string) string {
	if n.agent == nil || n.agent.loop == nil {
		return ""
	}
	if s := n.agent.loop.Env().Sandboxes[unit]; s != nil {
		return s.PodKey()
	}
	return ""
}

// Identifiers returns how many group ids the node's agent has given out, and the Egress IPs that have a
// mark, sorted.
func (n *Node) Identifiers() (groups int, marks []netip.Addr) {
	if n.agent == nil || n.agent.loop == nil {
		return 0, nil
	}
	t := n.agent.loop.Env().Tables
	return t.Groups.Len(), t.Marks.All()
}

// Idle reports whether the node's agent has nothing left to do for what it was told: it heard every
// source, and nothing is dirty, pending, or on its way.
func (n *Node) Idle() bool {
	return n.agent != nil && !n.agent.dead && n.agent.loop != nil && n.agent.loop.Idle()
}

// Heard reports whether the node's agent has heard every source: before that, what is on the node is
// what an earlier life of it was told.
func (n *Node) Heard() bool {
	return n.agent != nil && !n.agent.dead && n.agent.loop != nil && n.agent.loop.Ready()
}

// AgentRuns reports whether the node's agent runs and is not paused.
func (n *Node) AgentRuns() bool { return n.up && n.agent != nil && !n.agent.dead && !n.agent.paused }

// Life tells the lives of the node's agents apart: it grows with every start.
func (n *Node) Life() int { return n.lives }

// Unquiet returns why a node is not quiet, as far as it is not about membership: "" if it is.
func (n *Node) Unquiet() string {
	if why := n.UnquietHost(); why != "" || n.ovsUp {
		return why
	}
	return "its vswitchd does not run"
}

// UnquietHost is Unquiet for what is on the host and needs no switch, such as addresses.
func (n *Node) UnquietHost() string {
	w := n.world
	switch {
	case !n.up:
		return "it is off"
	case !n.AgentRuns():
		return "its agent does not run"
	case !w.apiReachable(n.name):
		return "it does not reach the API"
	case w.Kube.Faulted(n.name):
		return "a watch is held or closed"
	case n.faulted():
		return "a fault is not spent"
	}
	for _, o := range w.nodeOrder {
		if o.up && !w.reachable(n.name, o.name) {
			return "it does not reach node " + o.name
		}
	}
	return ""
}

// GossipSettled reports whether everything that gossip can see has had time to be seen.
func (w *World) GossipSettled() bool { return w.gossipSettled() }

// neighboursSettle is how long neighbour tables take to find out that somebody is there again, or not any
// more: the kernel's delay_first_probe_time of 5 s, three questions of 1 s each, and one more.
const neighboursSettle = 9 * time.Second

// NetworkSettled reports whether who reaches whom has been the same for so long that neighbour tables
// have found it out.
func (w *World) NetworkSettled() bool { return w.queue.Now().Sub(w.lastNetwork) >= neighboursSettle }

// Reachable reports whether two machines, or a machine and the API server ("api"), are not cut off from
// each other.
func (w *World) Reachable(a, b string) bool { return w.reachable(a, b) }

// ByHand notes that somebody other than an agent changed the node: what is foreign there may be another
// than before.
func (n *Node) ByHand() { n.hand++ }

// HandVersion grows whenever what is foreign on the node may have changed: by hand, by a boot, or by a
// restart of vswitchd.
func (n *Node) HandVersion() int { return n.hand }

// Foreign returns what is on the node and is neither the agent's nor the kernel's, one object a line.
func (n *Node) Foreign() []string { return append(n.ns.Foreign(), n.sw.Foreign()...) }

// StopStreams ends every stream.
func (w *World) StopStreams() {
	for _, s := range append([]*Stream(nil), w.streams...) {
		s.Stop()
	}
}

// Lossy reports whether frames are lost anywhere.
func (w *World) Lossy() bool { return w.fabric.Lossy() }

// LastEffect returns the last effect of the node's agents; false if there was none.
func (n *Node) LastEffect() (Entry, bool) {
	if len(n.journal) == 0 {
		return Entry{}, false
	}
	return n.journal[len(n.journal)-1], true
}

// JournalSince returns the effects of the node's agents but for the first k.
func (n *Node) JournalSince(k int) []Entry { return n.journal[min(k, len(n.journal)):] }

// ClearLoss ends every loss of frames.
func (w *World) ClearLoss() { w.fabric.ClearLoss() }

// Exchange is the connection whose packet is under way.
type Exchange struct {
	Src, Dialled netip.Addr // the client's own address, and the one that it sends to
	SrcPort      uint16
	From         *Source
	// Peek is set for a probe that is to leave no trace.
	Peek bool
	// Answered is set once the receiver got the packet: what is under way is the answer.
	Answered bool
}

// Exchange returns to which exchange of a client a packet belongs that is under way now; false if to
// none.
func (w *World) Exchange(p *packet.Packet) (Exchange, bool) {
	f := w.traffic.cur
	if f == nil || p.Trace == 0 || p.Trace != f.id {
		return Exchange{}, false
	}
	return Exchange{Src: f.src, Dialled: f.dialled, SrcPort: f.sport, From: f.from, Peek: w.peek != nil, Answered: f.reached}, true
}

// RunningPods returns the Pods that have a network of their own and whose ADD was answered, sorted by
// name.
func (w *World) RunningPods() []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(w.runtime.pods)) {
		if s := w.runtime.sandboxOf(key); s != nil && s.result != nil && !s.deleting && s.ns != nil {
			out = append(out, key)
		}
	}
	return out
}

// Answers reports whether a process listens on an address and port, and the machine whose network that
// is: a node (of a Pod, the one that it runs on), or an external host.
func (w *World) Answers(at netip.AddrPort, proto uint8) (machine string, ok bool) {
	for _, n := range w.nodeOrder {
		if n.ns.HasAddress(at.Addr()) {
			return n.name, n.up && n.ns.Listens(at, proto)
		}
	}
	for _, s := range w.runtime.running() {
		if s.ns.HasAddress(at.Addr()) {
			return s.node, s.result != nil && !s.deleting && s.ns.Listens(at, proto)
		}
	}
	for _, x := range w.extOrder {
		if x.ns.HasAddress(at.Addr()) {
			return x.name, x.ns.Listens(at, proto)
		}
	}
	if ns := w.traffic.endpointNS; ns != nil && ns.HasAddress(at.Addr()) {
		return "", ns.Listens(at, proto)
	}
	return "", false
}
