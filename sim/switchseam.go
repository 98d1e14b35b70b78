package sim

import (
	"fmt"
	"net/netip"
	"time"

	"towtank/datapath"
)

// switchSeam is datapath.Switch on a simulated switch.
type switchSeam struct{ p *proc }

// Features implements datapath.Switch. The model behaves as the userspace datapath does.
func (s switchSeam) Features() datapath.Features {
	return datapath.Features{Datapath: s.p.node.world.opts.Datapath}
}

// Apply implements datapath.Switch.
func (s switchSeam) Apply(stage datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	n := s.p.node
	class := classOf(ops[0].Kind())
	var results []datapath.OpResult
	s.p.effect(effect{
		class: class, units: unitsOf(ops), text: opsText(ops), lane: "switch",
		cost: latencies[class] + time.Duration(len(ops))*perMessage,
		do: func() {
			if !n.ovsUp {
				results = datapath.AllResults(len(ops), datapath.Unknown, errOVSDown)
				return
			}
			switch stage {
			case datapath.StagePortAdd, datapath.StagePortDelete:
				results = n.applyPorts(ops)
			case datapath.StageMeterAdd, datapath.StageMeterDelete:
				results = n.sw.ApplyMeters(ops)
			case datapath.StageBundle:
				results = n.sw.ApplyBundle(ops)
			default:
				results = datapath.AllResults(len(ops), datapath.Refused, fmt.Errorf("stage %s is not one of the switch", stage))
			}
		},
		refuse: func(err error, unknown bool) { done(datapath.AllResults(len(ops), outcome(unknown), err)) },
		answer: func() { done(results) },
	})
}

var errOVSDown = fmt.Errorf("ovs-vswitchd does not run")

func outcome(unknown bool) datapath.Outcome {
	if unknown {
		return datapath.Unknown
	}
	return datapath.Refused
}

// Dump implements datapath.Switch.
func (s switchSeam) Dump(done func([]datapath.Object, error)) {
	n := s.p.node
	s.p.read("switch", "dump switch", func() func() {
		if !n.ovsUp {
			return func() { done(nil, errOVSDown) }
		}
		objs := n.sw.Dump()
		return func() { done(objs, nil) }
	})
}

// FlushConntrack implements datapath.Switch.
func (s switchSeam) FlushConntrack(tuples []datapath.Tuple, done func(error)) {
	n := s.p.node
	var err error
	s.p.effect(effect{
		class: EffectFlush, text: tuplesText(tuples), lane: "switch",
		do: func() {
			if !n.ovsUp {
				err = errOVSDown
				return
			}
			n.sw.FlushConntrack(tuples)
		},
		refuse: func(e error, _ bool) { done(e) },
		answer: func() { done(err) },
	})
}

func tuplesText(tuples []datapath.Tuple) string { return fmt.Sprint(tuples) }

// DumpConntrack implements datapath.Switch.
func (s switchSeam) DumpConntrack(zones []uint16, done func([]datapath.ConntrackEntry, error)) {
	n := s.p.node
	s.p.readConntrack("switch", func() func() {
		if !n.ovsUp {
			return func() { done(nil, errOVSDown) }
		}
		entries := n.sw.DumpConntrack(zones)
		return func() { done(entries, nil) }
	}, func(err error) { done(nil, err) })
}

// ResolveTunnel implements datapath.Switch.
func (s switchSeam) ResolveTunnel(peers []netip.Addr, done func(error)) {
	n := s.p.node
	var err error
	s.p.effect(effect{
		class: EffectResolve, text: fmt.Sprint(peers), lane: "switch",
		do: func() {
			for _, a := range peers {
				if !n.tunnels.resolve(a) {
					err = fmt.Errorf("tunnel neighbour %s does not answer", a)
				}
			}
		},
		refuse: func(e error, _ bool) { done(e) },
		answer: func() { done(err) },
	})
}
