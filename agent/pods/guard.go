package pods

import (
	"slices"

	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/datapath/openflow"
)

// The guard of a sandbox drops what leaves the cluster while nobody has yet heard of the Egresses, and the
// switch knows nothing of the sandbox: it was started anew while no agent ran. Without it the Pod would
// leave with its node's address until its Egress is heard of, which may take long. What an earlier process
// wrote is whole, its source included: nothing guards it, so that a restart writes nothing.

// sourceKnown reports whether what decides Pods' source addresses was heard, so that their units are
// rendered.
func (p *Pods) sourceKnown() bool {
	return p.egressReady() && p.env.AllSynced(edge.KindPod, tables.FactPorts)
}

// guard adds a sandbox's guard to its flows, if it needs one.
func (p *Pods) guard(l *pipeline.List, s *tables.Sandbox, ofport uint32) {
	unit := s.Unit()
	delete(p.guarded, unit)
	if p.sourceKnown() {
		return
	}
	there := p.known(l.Objects())
	g := &pipeline.List{}
	for _, v6 := range []bool{false, true} {
		if _, ok := p.env.Cfg.Gateway(v6); ok {
			pipeline.Of(p.env.Tables).PodEgressUnknown(g, unit, ofport, v6)
		}
	}
	if there && !p.known(g.Objects()) {
		return
	}
	p.guarded[unit] = true
	for _, o := range g.Objects() {
		pipeline.Add(l, o, nil)
	}
}

// known reports whether a flow of a list is on the switch: all of a sandbox's come in one bundle.
func (p *Pods) known(list []datapath.Object) bool {
	return slices.ContainsFunc(list, func(o datapath.Object) bool {
		f, ok := o.(*openflow.Flow)
		return ok && p.env.Store.Known(f.Key()) != nil
	})
}

// unguard renders guarded sandboxes again once sources are known, in the Change that brings those.
func (p *Pods) unguard() {
	if len(p.guarded) == 0 || !p.sourceKnown() {
		return
	}
	//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
	for u := range p.guarded {
		p.env.Dirty(u)
	}
}
