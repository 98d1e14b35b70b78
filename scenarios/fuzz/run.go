package fuzz

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/sim"
)

// Run is what became of one run of a scenario.
type Run struct {
	Seed     uint64
	Hash     string
	Steps    int
	Virtual  time.Duration
	Findings []Finding // in the order in which they were found
	Reached  []string  // what was reached, if it was asked for; sorted
	// Wrong is set if the scenario cannot be run as it is written, and WrongLines are the lines to blame.
	Wrong      error
	WrongLines []int
}

// RunOptions says how a scenario is run.
type RunOptions struct {
	Seed uint64
	// Until, if set, ends the run at the first finding for which it is true.
	Until func(*Finding) bool
	// Stop, if positive, ends the run after that many steps.
	Stop int
	// Coverage has what the run reaches noted.
	Coverage bool
	// Observer, if set, hears of everything too; Hook gets the world.
	Observer scenarios.Observer
	Hook     func(*sim.World)
}

// Do runs a scenario in the tank and returns what it found. A panic is a finding.
func Do(f *lang.File, o RunOptions) (run *Run) {
	run = &Run{Seed: o.Seed}
	w := &watcher{run: run, next: o.Observer, until: o.Until}
	if o.Coverage {
		w.cover = newCoverage()
	}
	defer func() {
		if r := recover(); r != nil {
			if r != errEnough {
				run.Findings = append(run.Findings, panicked(r, debug.Stack(), w))
			}
		}
		if w.cover != nil {
			run.Reached = w.cover.list()
		}
	}()
	end, err := scenarios.Run(f, scenarios.Options{
		Seed: o.Seed, CheckProbes: true, StopAfter: o.Stop, NoEnd: o.Stop > 0,
		Hook: func(world *sim.World) {
			w.world = world
			if w.cover != nil {
				w.cover.hook(world)
			}
			if o.Hook != nil {
				o.Hook(world)
			}
		},
	}, w)
	run.Hash, run.Steps, run.Virtual = end.LogHash, end.Steps, end.Time
	switch {
	case errors.Is(err, scenarios.ErrCall):
		run.Wrong, run.WrongLines = err, linesOf(err)
	case err != nil:
		run.Findings = append(run.Findings, Finding{What: "tank", About: class(err.Error()), Line: w.line, Detail: err.Error()})
	}
	return run
}

// linesOf returns the lines that an error names.
func linesOf(err error) []int {
	var out []int
	if at, ok := err.(*scenarios.LineError); ok {
		return append(out, at.Line)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return linesOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, x := range e.Unwrap() {
			if x != nil {
				out = append(out, linesOf(x)...)
			}
		}
	}
	return out
}

// errEnough ends a run from within: what was looked for was found.
var errEnough = errors.New("enough")

// watcher is the observer that collects findings.
type watcher struct {
	run   *Run
	next  scenarios.Observer
	world *sim.World
	cover *coverage
	until func(*Finding) bool
	line  int    // of the last step
	step  string // its text
}

// Step implements scenarios.Observer.
func (w *watcher) Step(s scenarios.Step) {
	w.line, w.step = s.Line, s.Text
	w.run.Steps++
	if w.next != nil {
		w.next.Step(s)
	}
	if w.cover != nil {
		w.cover.step(w.world, s)
	}
	if s.Outcome == scenarios.Fail {
		w.found(stepFinding(s))
	}
}

// Invariant implements scenarios.Observer.
func (w *watcher) Invariant(i scenarios.Invariant) {
	if w.next != nil {
		w.next.Invariant(i)
	}
	if !i.OK {
		w.found(Finding{
			What: fmt.Sprintf("invariant %d", i.ID), About: class(i.Detail), Node: i.Node, Line: i.After, Detail: i.Detail, Want: i.Want,
		})
	}
}

// End implements scenarios.Observer.
func (w *watcher) End(e scenarios.End) {
	if w.next != nil {
		w.next.End(e)
	}
}

func (w *watcher) found(f Finding) {
	w.run.Findings = append(w.run.Findings, f)
	if w.until != nil && w.until(&f) {
		if w.world != nil {
			w.run.Hash, w.run.Virtual = w.world.LogHash(), w.world.Now()
		}
		panic(errEnough)
	}
}

// panicked is the finding of a panic: where it came from tells it from others.
func panicked(r any, stack []byte, w *watcher) Finding {
	return Finding{What: "panic", About: class(fmt.Sprint(r)) + " in " + origin(stack), Line: w.line + 1, Detail: fmt.Sprintf("%v\n%s", r, stack)}
}

// origin returns the innermost function of ours in a stack.
func origin(stack []byte) string {
	below := false
	for line := range strings.Lines(string(stack)) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "panic("):
			below = true
		case below && strings.HasPrefix(line, "towtank/") && !strings.Contains(line, ".go:"):
			name, _, _ := strings.Cut(line, "(0x")
			return strings.TrimSuffix(name, "(...)")
		}
	}
	return "?"
}
