package agent

import (
	"maps"
	"slices"
	"time"
)

// Status says what the loop is busy with: for probes, for operators, and for whoever waits until it has done
// what it was told.
type Status struct {
	// Ready: what is on the node was read, and every source was heard.
	Ready bool `json:"ready"`
	// Idle: ready, and nothing is dirty, pending or in flight.
	Idle bool `json:"idle"`
	// Connected to the switch.
	Connected bool `json:"connected"`
	// Unheard are the kinds of units whose sources were not heard yet.
	Unheard []string `json:"unheard,omitempty"`
	// Dirty units are to be rendered; Pending ones have objects that are not on the node as they are wanted;
	// both sorted.
	Dirty   []string `json:"dirty,omitempty"`
	Pending []string `json:"pending,omitempty"`
	// Quarantined units were refused, and wait.
	Quarantined []Quarantined `json:"quarantined,omitempty"`
	// InFlight is what was sent off and not answered.
	InFlight InFlight `json:"inFlight"`
	// Units and Objects count what is wanted.
	Units   int `json:"units"`
	Objects int `json:"objects"`
	// Alive are the members, this node included.
	Alive []string `json:"alive"`
}

// Quarantined is a unit that was refused.
type Quarantined struct {
	Unit  string    `json:"unit"`
	Error string    `json:"error"`
	Until time.Time `json:"until"`
	// Released: it may be tried again now.
	Released bool `json:"released,omitempty"`
}

// InFlight is what was sent off and not answered.
type InFlight struct {
	Change  bool `json:"change"`  // on the datapath lane
	Links   int  `json:"links"`   // of sandboxes, on the wiring lane
	Reading bool `json:"reading"` // the node is being read
}

// Kinds returns the kinds of units that there can be, sorted.
func (l *Loop) Kinds() []string { return slices.Sorted(maps.Keys(l.byKind)) }

// Status answers the query of that name: callers keep nothing of the loop.
func (l *Loop) Status() Status {
	s := Status{
		Ready: l.Ready(), Idle: l.Idle(), Connected: l.connected,
		InFlight: InFlight{Change: l.change != nil, Links: len(l.wiring), Reading: l.dumping},
		Objects:  l.env.Store.Len(), Alive: slices.Clone(l.env.Alive),
	}
	for _, c := range l.concerns {
		for _, k := range c.Kinds() {
			if !c.Ready(k) {
				s.Unheard = append(s.Unheard, k)
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(l.queues)) {
		s.Dirty = append(s.Dirty, l.queues[kind]...)
	}
	slices.Sort(s.Dirty)
	units := l.env.Store.Units()
	s.Units = len(units)
	for _, u := range units {
		if !l.env.Store.Realised(u) {
			s.Pending = append(s.Pending, u)
		}
	}
	for _, u := range slices.Sorted(maps.Keys(l.quarant)) {
		q := l.quarant[u]
		s.Quarantined = append(s.Quarantined, Quarantined{Unit: u, Error: q.err.Error(), Until: q.until, Released: q.released})
	}
	return s
}
