package egress

import (
	"towtank/agent/pipeline"
	"towtank/datapath"
)

// settleMarks makes marks that were given back usable again when nothing on the node has them any more. What has one, and
// could not be changed or removed yet, would send packets out with the address that has the mark next: the flow of a Pod,
// and what an agent before this one left.
func (e *Egress) settleMarks() {
	now := e.env.Store.Answers()
	if now == e.marksSeen || !e.env.Marks.Cooling() {
		return
	}
	e.marksSeen = now
	used := map[uint8]bool{}
	look := func(objs []datapath.Object) {
		for _, o := range objs {
			if mark, ok := pipeline.MarkOf(o); ok {
				used[mark] = true
			}
		}
	}
	look(e.env.Store.Unowned())
	//determinism:ignore a set is made
	for key := range e.source {
		look(e.env.Store.OnNode("podegress/" + key))
	}
	//determinism:ignore a set is made
	for key := range e.restored {
		look(e.env.Store.OnNode("podegress/" + key))
	}
	e.env.Marks.Settled(used)
}
