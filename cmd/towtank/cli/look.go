package cli

import (
	"errors"
	"fmt"
	"io"

	"towtank/scenarios"
	"towtank/scenarios/report"
)

// lookOptions are the options of the commands that run a file and then look at what it led to.
type lookOptions struct {
	seed uint64
	line int
	json bool
}

// look runs a file up to a line, then one more command, and returns what that showed. Steps of the
// file that fail are told on the standard error; they are no reason not to look.
func (t *terminal) look(o *lookOptions, path, command string) (scenarios.Step, error) {
	f, err := t.parse(path)
	if err != nil {
		return scenarios.Step{}, err
	}
	f, err = withLast(f, o.line, command)
	if err != nil {
		return scenarios.Step{}, err
	}
	last := &lastStep{text: &report.Text{W: t.err, Max: 3}, index: -1}
	var out io.Writer
	if o.json {
		out = t.out
	}
	last.json = out
	_, err = scenarios.Run(f, scenarios.Options{Seed: o.seed, NoEnd: true}, last)
	switch {
	case errors.Is(err, scenarios.ErrCall):
		return last.step, wrongCall(err)
	case err != nil:
		return last.step, &status{exitFailed, err}
	case last.index < 0:
		return last.step, &status{exitCannot, fmt.Errorf("%s is not for the backend sim: nothing ran", f.Name)}
	}
	return last.step, nil
}

// lastStep is an observer that keeps the last step, and tells what failed before.
type lastStep struct {
	text  *report.Text
	json  io.Writer
	index int
	step  scenarios.Step
}

// Step implements scenarios.Observer.
func (l *lastStep) Step(s scenarios.Step) {
	if l.index >= 0 && l.step.Outcome == scenarios.Fail {
		l.text.Step(l.step)
	}
	l.index, l.step = s.Index, s
}

// Invariant implements scenarios.Observer.
func (l *lastStep) Invariant(i scenarios.Invariant) { l.text.Invariant(i) }

// End implements scenarios.Observer.
func (l *lastStep) End(scenarios.End) {
	if l.json != nil {
		(&report.JSON{W: l.json}).Step(l.step)
	}
}
