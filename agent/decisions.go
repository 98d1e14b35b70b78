package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/edge"
)

// decided tells of an event and the kinds of units that it has marked. Which events lead to what is what
// a test has covered of the agent, apart from the state that it was in.
func (l *Loop) decided(ev any, old runtime.Object) {
	if l.seams.Decision == nil {
		return
	}
	kinds := strings.Join(slices.Sorted(maps.Keys(l.marked)), "+")
	if kinds == "" {
		kinds = "nothing"
	}
	l.seams.Decision("event/" + eventName(ev, old) + "/" + l.moment() + "/" + kinds)
}

// eventName names the sort of an event; of an object, whether it came, changed or went.
func eventName(ev any, old runtime.Object) string {
	o, ok := ev.(edge.ObjectEvent)
	if !ok {
		return strings.TrimPrefix(fmt.Sprintf("%T", ev), "datapath.")
	}
	switch {
	case o.Object == nil:
		return o.Kind + " gone"
	case old == nil:
		return o.Kind + " new"
	}
	return o.Kind + " changed"
}

// moment names the state of the loop, as far as it matters to what an event leads to.
func (l *Loop) moment() string {
	switch {
	case !l.dumped:
		return "starting"
	case !l.connected:
		return "disconnected"
	case !l.Ready():
		return "syncing"
	case l.change != nil:
		return "busy"
	case len(l.quarant) > 0:
		return "quarantine"
	}
	return "idle"
}

// outcome tells what rendering a unit came to: nothing, something, or that it waits for another unit that
// wants one of its keys otherwise.
func (l *Loop) outcome(unit string, objects int) {
	if l.seams.Decision == nil {
		return
	}
	what := "wants"
	switch {
	case objects == 0:
		what = "wants nothing"
	case l.quarant[unit] != nil:
		what = "wants, in quarantine"
	case len(l.env.Store.Waiting(unit)) > 0:
		what = "waits"
	}
	l.seams.Decision("render/" + unitKind(unit) + "/" + what)
}
