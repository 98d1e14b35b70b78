package egress

import (
	"towtank/agent/pipeline"
	"towtank/datapath/openflow"
)

// Advance is called at the end of every turn of the loop: marks that were given back are usable again when no flow of a Pod
// sets them any more. One that could not be changed yet still does, and would leave with the address that has the mark next.
func (e *Egress) Advance() {
	if !e.marksDue {
		return
	}
	e.marksDue = false
	if !e.env.Marks.Cooling() {
		return
	}
	used := map[uint8]bool{}
	look := func(key string) {
		for _, o := range e.env.Store.OnNode("podegress/" + key) {
			if f, ok := o.(*openflow.Flow); ok {
				if mark, ok := pipeline.PodEgressMark(f); ok {
					used[mark] = true
				}
			}
		}
	}
	//determinism:ignore a set is made
	for key := range e.source {
		look(key)
	}
	//determinism:ignore a set is made
	for key := range e.restored {
		look(key)
	}
	e.env.Marks.Settled(used)
}
