package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/scenarios/report"
)

// lookOptions are the options of the commands that run a file and then look at what it led to.
type lookOptions struct {
	seed uint64
	line int
	json bool
}

func (o *lookOptions) flags(c *cobra.Command) {
	c.Flags().Uint64Var(&o.seed, "seed", 1, "decides every order and every chance of the run")
	c.Flags().IntVar(&o.line, "line", 0, "look after this `line` of the file, not at its end")
	c.Flags().BoolVar(&o.json, "json", false, "write the step as a JSON object, as towtank run --json does")
}

// checkLine refuses a line that no file has: 0 is the end only if nothing is given.
func (o *lookOptions) checkLine(c *cobra.Command) error {
	if c.Flags().Changed("line") && o.line < 1 {
		return wrongf("--line: found %d, allowed: 1 and more", o.line)
	}
	return nil
}

// look runs a file up to a line, then one more command, and has show print what that showed. Steps of the file that
// fail are told on the standard error, in a line each; they are no reason not to look. Nor is a change that was refused,
// as the run goes on after it, but then the exit status is that of towtank run.
func (t *terminal) look(o *lookOptions, path, command string, show func(scenarios.Step) error) error {
	f, err := t.parse(path)
	if err != nil {
		return err
	}
	f, err = withLast(f, o.line, command)
	if err != nil {
		return err
	}
	list, err := f.Expand()
	if err != nil {
		return &status{exitWrong, err}
	}
	last := &lastStep{index: -1}
	_, err = scenarios.Run(f, scenarios.Options{Seed: o.seed, NoEnd: true}, last)
	last.tell(t.err, path, o.seed)
	answered := last.index == len(list)-1
	switch {
	case errors.Is(err, scenarios.ErrCall) && !answered:
		return notOfTheFile(err, f)
	case err != nil && !errors.Is(err, scenarios.ErrCall):
		return &status{exitFailed, err}
	case last.index < 0:
		return &status{exitCannot, fmt.Errorf("%s is not for the backend sim: nothing ran", f.Name)}
	}
	if o.json {
		(&report.JSON{W: t.out}).Step(last.step)
	} else if shown := show(last.step); shown != nil {
		return shown
	}
	if err != nil {
		return &status{code: exitWrong}
	}
	return nil
}

// notOfTheFile returns an error of a run or a check without the place in the file where it is about the command behind
// the last line: that stands on the command line, and nowhere in the file.
func notOfTheFile(err error, f *lang.File) error {
	last := f.Lines[len(f.Lines)-1]
	place, command := fmt.Sprintf("%s:%d: ", f.Name, last.Number), last.Step.String()
	var out []string
	for line := range strings.SplitSeq(wrongCall(err).Error(), "\n") {
		text, ours := strings.CutPrefix(line, place)
		if rest, brief := strings.CutPrefix(text, last.Step.Command()+": "); ours && brief {
			text = command + ": " + rest
		}
		out = append(out, text)
	}
	return wrongf("%s", strings.Join(out, "\n"))
}

// lastStep is an observer that keeps the last step, and in a line what failed before.
type lastStep struct {
	index  int
	step   scenarios.Step
	failed []string
}

// Step implements scenarios.Observer.
func (l *lastStep) Step(s scenarios.Step) {
	if l.index >= 0 && l.step.Outcome == scenarios.Fail {
		l.fail(fmt.Sprintf("%s:%d FAIL %s", l.step.File, l.step.Line, l.step.Text))
	}
	l.index, l.step = s.Index, s
}

// Invariant implements scenarios.Observer.
func (l *lastStep) Invariant(i scenarios.Invariant) {
	if i.OK {
		return
	}
	on := ""
	if i.Node != "" {
		on = " on " + i.Node
	}
	l.fail(fmt.Sprintf("%s:%d FAIL invariant %d%s: %s", l.step.File, i.After, i.ID, on, report.InvariantTitles[i.ID]))
}

// fail keeps a line, once.
func (l *lastStep) fail(line string) {
	if !slices.Contains(l.failed, line) {
		l.failed = append(l.failed, line)
	}
}

// End implements scenarios.Observer.
func (l *lastStep) End(scenarios.End) {}

// tell prints what failed, and how to see more of it.
func (l *lastStep) tell(w io.Writer, path string, seed uint64) {
	for _, line := range l.failed[:min(len(l.failed), maxFailures)] {
		fmt.Fprintln(w, line)
	}
	if n := len(l.failed) - maxFailures; n > 0 {
		fmt.Fprintf(w, "and %d more\n", n)
	}
	if len(l.failed) == 0 {
		return
	}
	with := ""
	if seed != 1 {
		with = fmt.Sprintf("--seed %d ", seed)
	}
	fmt.Fprintf(w, "towtank run %s%s shows them in full\n", with, path)
}
