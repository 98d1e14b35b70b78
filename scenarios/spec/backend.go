package spec

import (
	"bytes"

	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/scenarios/report"
)

// Runner runs a file somewhere else than in the simulator.
type Runner func(*lang.File, scenarios.Options, scenarios.Observer) (scenarios.End, error)

var elsewhere Runner

// On has the scenarios of this process run on a backend, once each: where it is real, no two runs are the same.
// What a test inspects a simulated world for is left out then.
func On(r Runner) { elsewhere = r }

// skipper is a T that can say that a test did not run.
type skipper interface {
	Skipf(format string, args ...any)
}

// skip says that a scenario does not run on the backend.
func (s *Scenario) skip(why string) {
	if t, ok := s.t.(skipper); ok {
		t.Skipf("%s", why)
	}
}

// runElsewhere runs a file on the backend once.
func (s *Scenario) runElsewhere(f *lang.File, text []byte) {
	s.t.Helper()
	var b bytes.Buffer
	end, err := elsewhere(f, scenarios.Options{Seed: s.seeds[0]}, &report.Text{W: &b, Max: maxReported})
	switch {
	case err != nil:
		s.t.Fatalf("%s%v\n%s", b.String(), err, numbered(text))
	case end.Outcome == scenarios.Skip:
		s.skip(end.Why)
	case end.Outcome == scenarios.Fail:
		s.t.Fatalf("%s\nThe scenario, to keep as %s:\n\n%s", b.String(), f.Name, text)
	}
}
