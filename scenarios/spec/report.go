package spec

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"towtank/scenarios"
)

// maxReported is how many failures of a run are shown in full.
const maxReported = 5

// report writes what failed as people read it.
type report struct {
	w     io.Writer
	shown int
}

// Step implements scenarios.Observer.
func (r *report) Step(s scenarios.Step) {
	if s.Outcome != scenarios.Fail {
		return
	}
	if r.shown++; r.shown > maxReported {
		return
	}
	fmt.Fprintf(r.w, "%s:%d FAIL %s\n", s.File, s.Line, s.Text)
	for _, k := range slices.Sorted(maps.Keys(s.Iter)) {
		fmt.Fprintf(r.w, "  with  $%s = %s\n", k, s.Iter[k])
	}
	for _, k := range slices.Sorted(maps.Keys(s.Want)) {
		fmt.Fprintf(r.w, "  want  %s\n", s.Want[k])
	}
	if got := s.Got.String(); got != "" {
		fmt.Fprintf(r.w, "  got   %s\n", got)
	}
	for line := range strings.SplitSeq(s.Text2, "\n") {
		fmt.Fprintf(r.w, "  %s\n", line)
	}
	for _, t := range s.Trace {
		fmt.Fprintf(r.w, "    %s\n", t)
	}
}

// Invariant implements scenarios.Observer.
func (r *report) Invariant(i scenarios.Invariant) {
	if i.OK {
		return
	}
	if r.shown++; r.shown > maxReported {
		return
	}
	fmt.Fprintf(r.w, "line %d: invariant %d does not hold on %s: %s\n", i.After, i.ID, i.Node, i.Detail)
}

// End implements scenarios.Observer.
func (r *report) End(scenarios.End) {}
