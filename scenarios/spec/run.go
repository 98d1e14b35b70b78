package spec

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/scenarios/report"
	"towtank/sim"
)

// maxReported is how many failures of a run are shown in full.
const maxReported = 5

// Text returns the scenario as a file.
func (s *Scenario) Text() []byte { return s.file.Format() }

// Run runs the scenario with every seed, each twice: the second run must do the same. The test fails
// with a report if an expectation or an invariant does not hold.
func (s *Scenario) Run() {
	s.t.Helper()
	s.ran = true
	if len(s.bad) > 0 {
		s.t.Fatalf("the scenario is not right:\n%s", strings.Join(s.bad, "\n"))
		return
	}
	text := s.Text()
	f, err := lang.Parse(s.file.Name, text)
	if err != nil {
		s.t.Fatalf("the scenario is not right:\n%v\n%s", err, numbered(text))
		return
	}
	if elsewhere != nil {
		s.runElsewhere(f, text)
		return
	}
	for _, seed := range s.seeds {
		if failed := Check(f, seed); failed != "" {
			s.t.Fatalf("%s\nThe scenario, to keep as %s:\n\n%s", failed, f.Name, text)
			return
		}
	}
}

// File reads a scenario file; the test ends if it is not right.
func File(t T, name string) *lang.File {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	f, err := lang.Parse(filepath.ToSlash(name), data)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	return f
}

// Check runs a file twice with a seed and returns a report of what failed, "" if all held and both
// runs logged the same events.
func Check(f *lang.File, seed uint64) string {
	first, failed := once(f, seed)
	if failed != "" {
		return failed
	}
	second, failed := once(f, seed)
	if failed != "" {
		return "the second run with the same seed:\n" + failed
	}
	if first.LogHash != second.LogHash {
		return fmt.Sprintf("%s seed %d: two runs differ: log hash %s and %s\nreplay: %s", f.Name, seed, first.LogHash, second.LogHash, first.Replay)
	}
	return ""
}

func once(f *lang.File, seed uint64) (scenarios.End, string) {
	var b bytes.Buffer
	end, err := scenarios.Run(f, scenarios.Options{Seed: seed}, &report.Text{W: &b, Max: maxReported})
	switch {
	case err != nil:
		return end, fmt.Sprintf("%s%v", b.String(), err)
	case end.Outcome == scenarios.Fail:
		return end, b.String()
	}
	return end, ""
}

// numbered returns a text with line numbers.
func numbered(text []byte) string {
	var b strings.Builder
	n := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
		n++
		fmt.Fprintf(&b, "%4d  %s\n", n, line)
	}
	return b.String()
}

// Inspect runs the scenario once, without the checks at the end of a file, and hands over the world
// that it leaves.
func (s *Scenario) Inspect(seed uint64, look func(w *sim.World)) {
	s.t.Helper()
	s.ran = true
	if elsewhere != nil {
		s.skip("it looks into a simulated world")
		return
	}
	if len(s.bad) > 0 {
		s.t.Fatalf("the scenario is not right:\n%s", strings.Join(s.bad, "\n"))
		return
	}
	f, err := lang.Parse(s.file.Name, s.Text())
	if err != nil {
		s.t.Fatalf("the scenario is not right:\n%v\n%s", err, numbered(s.Text()))
		return
	}
	var b bytes.Buffer
	var world *sim.World
	opts := scenarios.Options{Seed: seed, NoEnd: true, Hook: func(w *sim.World) { world = w }}
	end, err := scenarios.Run(f, opts, &report.Text{W: &b, Max: maxReported})
	if err != nil || end.Outcome == scenarios.Fail {
		s.t.Fatalf("%s%v\nThe scenario:\n\n%s", b.String(), err, s.Text())
		return
	}
	look(world)
}
