package sim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"towtank/sim/host"
)

// Source ports of packets that leave no trace: below those that scenarios' clients are given, and below
// node ports.
const (
	peekPortFirst = 20000
	peekPorts     = 9000
)

// peeking is what Peek has to put back besides what machines note themselves.
type peeking struct {
	via map[externalDst]netip.Addr // routes of externals as they were; invalid: none
	log *Log
}

type externalDst struct {
	x   *External
	dst netip.Addr
}

// Peek runs f, whose probes leave no trace: connections, learned flows, neighbours, tokens of meters, and
// counters are afterwards as they were, and no client's next source port is another. Within f a probe
// finds what an earlier one left. Nothing but probes may happen in f.
func (w *World) Peek(f func(probe func(Flow) (Result, error))) error {
	if w.peek != nil {
		return fmt.Errorf("a peek inside a peek")
	}
	if !w.CanPeek() {
		return fmt.Errorf("the switches of this world cannot undo what packets do to them")
	}
	w.peek = &peeking{via: map[externalDst]netip.Addr{}, log: w.log}
	w.log = NewLog(epoch, nil)
	ins := make([][2]int, len(w.nodeOrder))
	spaces := w.spaces()
	for _, ns := range spaces {
		ns.Tick() // what was due before is no trace of ours
	}
	for i, n := range w.nodeOrder {
		ins[i] = [2]int{n.packetIns, n.refusals}
		n.sw.(peeker).BeginPeek()
		n.tunnels.peek = map[netip.Addr]tunnelUse{}
	}
	for _, ns := range spaces {
		ns.BeginPeek()
	}
	f(func(fl Flow) (Result, error) {
		if fl.SPort == 0 {
			w.peekPort = (w.peekPort + 1) % peekPorts
			fl.SPort = peekPortFirst + uint16(w.peekPort)
		}
		return w.Probe(fl)
	})
	for _, ns := range spaces {
		ns.EndPeek()
	}
	for i, n := range w.nodeOrder {
		n.packetIns, n.refusals = ins[i][0], ins[i][1]
		n.sw.(peeker).EndPeek()
		n.tunnels.endPeek()
	}
	p := w.peek
	w.peek, w.log = nil, p.log
	//determinism:ignore each route is restored by itself, and an error is a fault of the model
	for k, via := range p.via {
		if err := k.x.route(k.dst, via); err != nil {
			return err
		}
	}
	return nil
}

// spaces returns every network namespace of the world, in a fixed order.
func (w *World) spaces() []*host.Netns {
	out := make([]*host.Netns, 0, len(w.nodeOrder)+len(w.extOrder)+len(w.runtime.byID)+len(w.nets)+1)
	for _, n := range w.nodeOrder {
		out = append(out, n.ns)
	}
	for _, x := range w.extOrder {
		out = append(out, x.ns)
	}
	for _, s := range w.runtime.running() {
		out = append(out, s.ns)
	}
	for _, name := range slices.Sorted(maps.Keys(w.nets)) {
		out = append(out, w.nets[name].ns)
	}
	if w.traffic.endpointNS != nil {
		out = append(out, w.traffic.endpointNS)
	}
	return out
}
