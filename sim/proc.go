package sim

import (
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"towtank/agent"
	"towtank/agent/edge"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/sim/kube"
)

// proc is one life of an agent on a node: what is in its memory, its sockets and its watches.
type proc struct {
	node   *Node
	loop   *agent.Loop // nil for the pool allocation
	handle func(ev any)
	stop   func()
	kinds  []kube.Kind
	stream *kube.Stream
	lane   string
	dead   bool
	paused bool
	pumped map[kube.Kind]bool // a delivery of the kind is posted
	calls  map[*edge.CNIRequest]bool
	ports  map[string]datapath.PortEvent // what it was told of the ports that have a number
}

// agentKinds returns the kinds that an agent watches. Pods are those of its node.
func (w *World) agentKinds() []kube.Kind { return watchedBy(w.byGroup()) }

func watchedBy(byGroup bool) []kube.Kind {
	kinds := []kube.Kind{
		kube.KindService, kube.KindEndpointSlice, kube.KindNode, kube.KindPod, kube.KindNamespace, kube.KindEgress, kube.KindExternalIPPool,
	}
	if byGroup {
		kinds = append(kinds, kube.KindEgressGroup)
	}
	return kinds
}

// byGroup reports whether agents read from EgressGroups which Pods an Egress applies to.
func (w *World) byGroup() bool { return w.opts.Membership == "egressgroup" }

// startAgent starts the agent of a node, if it does not run.
func (w *World) startAgent(n *Node) {
	if (n.agent != nil && !n.agent.dead) || !n.up {
		return
	}
	p := newProc(n, w.agentKinds())
	loop, err := agent.New(n.config(), agent.Seams{
		Switch: switchSeam{p}, Host: hostSeam{p}, Cluster: clusterSeam{p}, IPAM: ipamSeam{p}, Members: membersSeam{p}, Clock: clockSeam{p},
		Post: func(f func()) { p.post("turn", f) }, Log: klog.New(nopSink{}), Decision: w.decision(),
	})
	if err != nil {
		w.problem(fmt.Sprintf("agent of %s: %v", n.name, err))
		return
	}
	p.loop, p.handle, p.stop = loop, loop.Handle, loop.Stop
	n.agent = p
	n.lives++
	p.unhold()
	w.disturbed()
	p.post("start", func() {
		loop.Start()
		n.factsTo(func(ev any) {
			if e, ok := ev.(datapath.PortEvent); ok {
				p.news(e)
			}
			loop.Handle(ev)
		})
		p.watch()
	})
	w.gossip.start(n)
}

// unhold lets the lanes of a process run: an earlier life may have ended while it was paused.
func (p *proc) unhold() {
	q := p.node.world.queue
	q.Hold(p.lane, false)
	for _, k := range p.kinds {
		q.Hold(p.watchLane(k), false)
	}
}

// newProc returns a process that does nothing yet.
func newProc(n *Node, kinds []kube.Kind) *proc {
	return &proc{
		node: n, kinds: kinds, lane: n.name + "/agent", pumped: map[kube.Kind]bool{}, calls: map[*edge.CNIRequest]bool{},
		ports: map[string]datapath.PortEvent{},
	}
}

// watch opens the watches of a process.
func (p *proc) watch() {
	w := p.node.world
	stream, err := w.Kube.Watch(p.node.name, p.kinds)
	if err != nil {
		w.problem(fmt.Sprintf("agent of %s: %v", p.node.name, err))
		return
	}
	p.stream = stream
	if !w.apiReachable(p.node.name) {
		stream.Suspend()
	}
	p.pump()
}

// news reports whether an event of a port is not what the agent was told last, and notes it. As on a real node, a new
// connection to the switch brings only what changed.
func (p *proc) news(e datapath.PortEvent) bool {
	before, known := p.ports[e.Name]
	if e == before || (e.OFPort == 0 && !known) {
		return false
	}
	if e.OFPort == 0 {
		delete(p.ports, e.Name)
	} else {
		p.ports[e.Name] = e
	}
	return true
}

// factsTo tells a starting agent what is on its node.
func (n *Node) factsTo(handle func(any)) {
	for _, st := range n.sw.Ports() {
		if st.OFPort != 0 && st.Port != nil && n.ovsUp {
			handle(datapath.PortEvent{Name: st.Name, OFPort: st.OFPort, Up: st.Up})
		}
	}
	handle(edge.SyncedEvent{Kind: tables.FactPorts})
	for _, l := range n.ns.Links() {
		handle(datapath.LinkEvent{Name: l.Name(), Up: l.Up(), Present: true})
		for _, a := range l.Addresses() {
			handle(datapath.AddressEvent{Addr: a.Addr(), Link: l.Name(), Present: true})
		}
	}
	handle(edge.SyncedEvent{Kind: tables.FactLinks})
	handle(edge.SyncedEvent{Kind: tables.FactAddresses})
	if !n.ovsUp {
		handle(datapath.DisconnectEvent{})
	}
}

// post appends an event to the agent's lane; it runs if the process still lives then.
func (p *proc) post(label string, fn func()) {
	p.node.world.queue.Post(p.lane, label, func() {
		if !p.dead {
			fn()
		}
	})
}

// read has something read after a short time; what read returns is run as an event of the agent.
func (p *proc) read(lane, label string, read func() func()) {
	w := p.node.world
	cost := time.Millisecond + time.Duration(w.scheduleRand.Int64N(int64(time.Millisecond)))
	w.queue.After(cost, edge.Work, p.node.name+"/"+lane, label, func() {
		if !p.dead {
			p.post(label, read())
		}
	})
}

// readConntrack is read of what faults can hit.
func (p *proc) readConntrack(lane string, read func() func(), fail func(error)) {
	p.read(lane, "dump conntrack", func() func() {
		n := p.node
		switch mode := n.faults.Hit(EffectDumpConntrack); mode {
		case "", Late:
			return read()
		case Die, DieAfter:
			n.world.killAgent(n, "fault at "+EffectDumpConntrack)
			n.world.revive(n)
			return func() {}
		default:
			return func() { fail(errFault) }
		}
	})
}

// pump has one event per kind delivered; the delivery posts the next.
func (p *proc) pump() {
	if p.stream == nil || p.dead {
		return
	}
	w := p.node.world
	for _, k := range p.stream.Pending() {
		if p.pumped[k] {
			continue
		}
		p.pumped[k] = true
		w.queue.Post(p.watchLane(k), "watch", func() {
			p.pumped[k] = false
			if p.dead {
				return
			}
			p.deliver(k)
			p.pump()
		})
	}
}

func (p *proc) watchLane(k kube.Kind) string { return p.node.name + "/watch/" + string(k) }

// deliver hands the next event of a kind to the agent.
func (p *proc) deliver(k kube.Kind) {
	e, ok := p.stream.Next(k)
	if !ok {
		return
	}
	if e.Type == kube.Synced {
		p.handle(edge.SyncedEvent{Kind: string(k)})
		return
	}
	ev := edge.ObjectEvent{Kind: string(k), Key: e.Key, Object: e.Object}
	if e.Type == kube.Deleted {
		ev.Object = nil
	}
	if k == kube.KindPod && p.loop != nil && !p.mine(e) {
		// The agent's watch selects by node: a Pod that is bound elsewhere is not in it.
		if p.loop.Env().Pods[e.Key] == nil {
			return
		}
		ev.Object = nil
	}
	p.hear(ev)
}

// hear hands an event to the process.
func (p *proc) hear(ev any) {
	if w := p.node.world; w.BeforeTold != nil {
		w.BeforeTold(p.node, ev)
	}
	p.handle(ev)
}

// killAgent ends an agent at once: what it has in flight and did not do is not done.
func (w *World) killAgent(n *Node, why string) {
	p := n.agent
	if p == nil || p.dead {
		return
	}
	w.log.Add(w.queue.now, "agent", n.name, "killed: "+why)
	w.endAgent(p)
	w.gossip.stop(n, false)
}

// stopAgent ends an agent on purpose; with leave it leaves the membership first.
func (w *World) stopAgent(n *Node, leave bool) {
	p := n.agent
	if p == nil || p.dead {
		return
	}
	w.log.Add(w.queue.now, "agent", n.name, "stopped")
	p.stop()
	w.gossip.stop(n, leave)
	w.endAgent(p)
}

func (w *World) endAgent(p *proc) {
	p.dead = true
	w.disturbed()
	w.queue.Drop(p.lane)
	for _, k := range p.kinds {
		w.queue.Drop(p.watchLane(k))
	}
	if p.stream != nil {
		p.stream.Stop()
	}
	if p.node.ns != nil {
		p.node.ns.CloseHealth()
	}
	w.runtime.connectionLost(p)
}

// pauseAgent stops an agent's process without ending it: memory and sockets stay.
func (w *World) pauseAgent(n *Node, paused bool) {
	p := n.agent
	if p == nil || p.dead || p.paused == paused {
		return
	}
	p.paused = paused
	if n.ns != nil { // the controller has no namespace
		n.ns.PauseHealth(paused)
	}
	w.queue.Hold(p.lane, paused)
	for _, k := range p.kinds {
		w.queue.Hold(p.watchLane(k), paused)
	}
	w.disturbed()
	w.gossip.changed()
}

// clockSeam is edge.Clock of one agent: the world's clock, with the node's skew.
type clockSeam struct{ p *proc }

// Now implements edge.Clock.
func (c clockSeam) Now() time.Time {
	return c.p.node.world.queue.Now().Add(time.Duration(c.p.node.skew))
}

// AfterFunc implements edge.Clock.
func (c clockSeam) AfterFunc(d time.Duration, class edge.TimerClass, f func()) edge.Timer {
	p := c.p
	return p.node.world.queue.After(d, class, p.lane, "timer", func() {
		if !p.dead {
			f()
		}
	})
}
