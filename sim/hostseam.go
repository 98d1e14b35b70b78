package sim

import (
	"fmt"

	"towtank/datapath"
)

// hostSeam is datapath.Host on a simulated network namespace.
type hostSeam struct{ p *proc }

// Apply implements datapath.Host. One stage is several effects, one per class: a fault hits one of
// them, and what comes after a failed one of the same stage is not tried.
func (h hostSeam) Apply(_ datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	results := make([]datapath.OpResult, 0, len(ops))
	lane := "host"
	if classOf(ops[0].Kind()) == EffectLink && len(ops[0].Units) > 0 {
		lane = "link " + ops[0].Units[0]
	}
	h.part(lane, ops, results, done)
}

func (h hostSeam) part(lane string, ops []datapath.Op, results []datapath.OpResult, done func([]datapath.OpResult)) {
	if len(ops) == 0 {
		done(results)
		return
	}
	part, rest := datapath.Part(ops)
	class := classOf(part[0].Kind())
	n := h.p.node
	var got []datapath.OpResult
	next := func() {
		results = append(results, got...)
		for _, r := range got {
			if r.Outcome == datapath.Unknown {
				done(append(results, datapath.AllResults(len(rest), datapath.Skipped, nil)...))
				return
			}
		}
		h.part(lane, rest, results, done)
	}
	h.p.effect(effect{
		class: class, units: unitsOf(part), text: opsText(part), lane: lane,
		do: func() { got = n.applyHost(part) },
		refuse: func(err error, unknown bool) {
			got = datapath.AllResults(len(part), outcome(unknown), err)
			next()
		},
		answer: next,
	})
}

// Dump implements datapath.Host.
func (h hostSeam) Dump(done func([]datapath.Object, error)) {
	n := h.p.node
	h.p.read("host", "dump host", func() func() {
		objs := n.ns.Dump()
		return func() { done(objs, nil) }
	})
}

// Announce implements datapath.Host.
func (h hostSeam) Announce(list []datapath.Announcement, done func(error)) {
	n := h.p.node
	var err error
	h.p.effect(effect{
		class: EffectAnnounce, text: fmt.Sprint(list), lane: "announce",
		do: func() {
			for _, a := range list {
				ns := n.ns
				if a.Netns != "" {
					if ns = n.world.netns(a.Netns); ns == nil {
						err = fmt.Errorf("network namespace %s is gone", a.Netns)
						continue
					}
				}
				if e := ns.Announce(a.IP, a.Link); e != nil {
					err = e
				}
			}
		},
		refuse: func(e error, _ bool) { done(e) },
		answer: func() { done(err) },
	})
}

// FlushConntrack implements datapath.Host.
func (h hostSeam) FlushConntrack(tuples []datapath.Tuple, done func(error)) {
	n := h.p.node
	h.p.effect(effect{
		class: EffectFlush, text: tuplesText(tuples), lane: "host",
		do:     func() { n.ns.FlushConntrack(tuples) },
		refuse: func(e error, _ bool) { done(e) },
		answer: func() { done(nil) },
	})
}

// DumpConntrack implements datapath.Host.
func (h hostSeam) DumpConntrack(done func([]datapath.ConntrackEntry, error)) {
	n := h.p.node
	h.p.readConntrack("host", func() func() {
		entries := n.ns.DumpConntrack()
		return func() { done(entries, nil) }
	}, func(err error) { done(nil, err) })
}

// Check implements datapath.Host.
func (h hostSeam) Check(o datapath.Object, done func(error)) {
	n := h.p.node
	h.p.read("host", "check", func() func() {
		err := n.ns.Check(o)
		return func() { done(err) }
	})
}
