package tables

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"towtank/agent/edge"
	"towtank/datapath"
)

// Kinds of facts in SyncedEvents: everything that existed at the start was reported.
const (
	FactPorts     = "ports"
	FactLinks     = "links"
	FactAddresses = "addresses"
)

// Env is what the loop lends to the concerns: the tables, the Store, the seams, and the way to mark
// a unit dirty.
type Env struct {
	*Tables
	Store   *datapath.Store
	Clock   edge.Clock
	Cluster edge.Cluster
	IPAM    edge.IPAM
	Members edge.Members
	Switch  datapath.Switch
	Host    datapath.Host
	Log     klog.Logger

	// Dirty marks a unit to be rendered again.
	Dirty func(unit string)
	// Wake has the loop take a turn: a concern changed something that the loop looks at.
	Wake func()
	// IsClean reports whether a unit is not waiting to be rendered.
	IsClean func(unit string) bool
	// AllClean reports whether no unit of a kind waits to be rendered.
	AllClean func(kind string) bool
	// Retry has a refused unit tried again now.
	Retry func(unit string)
	// Restored reports whether what was on the node at the start has been read.
	Restored func() bool
	// Decision, if set, is told of each decision by a short stable name, for coverage.
	Decision func(name string)
}

// Decide reports a decision.
func (e *Env) Decide(name string) {
	if e.Decision != nil {
		e.Decision(name)
	}
}

// Concern is one part of the agent's logic: it turns events into dirty units, and units into
// objects. It is called by the loop only, never concurrently.
type Concern interface {
	// Kinds returns the unit kinds that the concern renders: the part of the name before the first /.
	Kinds() []string
	// Restore reads what is on the node at the start, before the first event.
	Restore(dump []datapath.Object)
	// Handle takes an event that is in the tables already; old is the previous version of an object.
	Handle(ev any, old runtime.Object)
	// Ready reports whether the sources of a kind were heard: before that its units are not rendered
	// and nothing of the kind is deleted.
	Ready(kind string) bool
	// Render returns what a unit wants: a pure function of the tables. No objects: the unit is to go.
	Render(unit string) ([]datapath.Object, datapath.Precedence)
	// Realised is called when everything that the unit wants is there, or all of it is gone.
	Realised(unit string)
	// Refused is called when an object of the unit was refused; the unit is retried with back-off
	// unless the concern takes it out.
	Refused(unit string, err error)
}
