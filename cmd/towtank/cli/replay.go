package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"towtank/scenarios"
	"towtank/scenarios/fuzz"
	"towtank/scenarios/lang"
	"towtank/scenarios/report"
)

// replayOptions say which scenario is meant: a file, or the one of a seed.
type replayOptions struct {
	cfg     fuzz.Config
	seed    uint64
	seedSet bool
	step    int
	trace   string
	dump    string
	print   bool
	verbose bool
}

// towtank replay --seed 4711 --step 120 --dump n1
func newReplay(t *terminal) *cobra.Command {
	o := replayOptions{cfg: fuzz.DefaultConfig()}
	c := &cobra.Command{
		Use:   "replay FILE|--seed N",
		Short: "Run a scenario again, exactly, and look at it",
		Long: `Run the scenario that a seed draws, or a file, exactly as before, and print the hash of everything that
happened: it is the same each time. A file runs with the seed that stands in it ("# seed=N"), or with
--seed. Probes that expect nothing are compared with the reference model, as towtank fuzz does.

With --step it stops after that many steps; --dump and --trace then look at a node or the way of a
packet there (without --step: at the end, before everything is healed).

Exit status: 0 all held; 1 something did not; 2 the file or the call is wrong.`,
		Example: `  towtank replay --seed 4711
  towtank replay --seed 4711 --print > seed.scenario
  towtank replay --seed 4711 --step 120 --dump 'n1 switch'
  towtank replay failing/seed-4711-shrunk.scenario --trace 'default/p1 -> svc/default/s1:80'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.seedSet = cmd.Flags().Changed("seed")
			if err := onlyDrawn(cmd, args); err != nil {
				return err
			}
			return t.replay(&o, args)
		},
	}
	f := c.Flags()
	f.Uint64Var(&o.seed, "seed", 1, "the seed that draws the scenario, or that a file is run with")
	configFlags(c, &o.cfg)
	f.IntVar(&o.step, "step", 0, "stop after this many steps")
	f.StringVar(&o.trace, "trace", "", "then show the way of a packet, `'FROM -> TO'`")
	f.StringVar(&o.dump, "dump", "", "then show what is on a node: `'NODE [switch|host|store]'`")
	f.BoolVar(&o.print, "print", false, "print the scenario, don't run it")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show every step, not only what failed")
	return c
}

// onlyDrawn refuses the options of what a seed draws, if a file is given.
func onlyDrawn(cmd *cobra.Command, args []string) error {
	for _, name := range []string{"steps", "nodes", "profile"} {
		if len(args) > 0 && cmd.Flags().Changed(name) {
			return wrongf("--%s: is for the scenario that --seed draws, found the file %s", name, args[0])
		}
	}
	return nil
}

// scenario returns the scenario that is meant, the seed to run it with, and the seed that drew it (0: it is
// a file).
func (t *terminal) scenario(o *replayOptions, args []string) (f *lang.File, seed, drawn uint64, err error) {
	if len(args) == 0 {
		if !o.seedSet {
			return nil, 0, 0, wrongf("give a FILE, or --seed N")
		}
		if err := o.cfg.Check(); err != nil {
			return nil, 0, 0, wrongf("--%w", err)
		}
		if f, err = fuzz.Generate(o.seed, o.cfg); err != nil {
			return nil, 0, 0, &status{exitFailed, err}
		}
		return f, o.seed, o.seed, nil
	}
	if f, err = t.parse(args[0]); err != nil {
		return nil, 0, 0, err
	}
	seed = o.seed
	own, ok, err := fuzz.SeedOf(f)
	switch {
	case err != nil && !o.seedSet:
		return nil, 0, 0, wrongf("%w", err)
	case ok && !o.seedSet:
		seed = own
	}
	return f, seed, 0, nil
}

func (t *terminal) replay(o *replayOptions, args []string) error {
	f, seed, drawn, err := t.scenario(o, args)
	if err != nil {
		return err
	}
	if o.step < 0 {
		return wrongf("--step: found %d, allowed: 1 and more", o.step)
	}
	if o.print {
		_, err := t.out.Write(fuzz.Text(f, seed, nil, drawn, o.cfg.Args()))
		return err
	}
	if o.trace != "" || o.dump != "" {
		return t.replayLook(o, f, seed)
	}
	text := &report.Text{W: t.out, Verbose: o.verbose, Color: t.color}
	if !o.verbose {
		text.Max = maxFailures
	}
	run := fuzz.Do(f, fuzz.RunOptions{Seed: seed, Stop: o.step, Observer: &withoutEnd{text}})
	result := "PASS"
	if len(run.Findings) > 0 {
		result = "FAIL"
	}
	for i := range run.Findings {
		if run.Findings[i].What == "panic" {
			fmt.Fprintln(t.out, run.Findings[i].Detail)
		}
	}
	fmt.Fprintf(t.out, "%s seed=%d steps=%d findings=%d virtual=%s hash=%s  %s\n", result, seed, run.Steps, len(run.Findings), report.Short(run.Virtual), run.Hash, f.Name)
	switch {
	case run.Wrong != nil:
		return wrongCall(run.Wrong)
	case len(run.Findings) > 0:
		return &status{code: exitFailed}
	}
	return nil
}

// replayLook runs a scenario up to a step and looks.
func (t *terminal) replayLook(o *replayOptions, f *lang.File, seed uint64) error {
	list, err := f.Expand()
	if err != nil {
		return wrongf("%w", err)
	}
	if o.step > 0 && o.step < len(list) {
		if f.Lines, err = upTo(f.Lines, o.step); err != nil {
			return err
		}
	}
	looks := 0
	for _, command := range []string{prefixed("trace", o.trace), prefixed("dump", o.dump)} {
		if command == "" {
			continue
		}
		step, err := lang.ParseStep(command)
		if err != nil {
			return wrongf("--%s", strings.TrimPrefix(err.Error(), "step:1: "))
		}
		looks++
		f.Lines = append(f.Lines, lang.Line{Number: len(f.Lines) + 1, Step: step})
	}
	list, _ = f.Expand()
	obs := &onlyLast{text: &report.Text{W: t.out, Verbose: true, Color: t.color}, from: len(list) - looks}
	_, err = scenarios.Run(f, scenarios.Options{Seed: seed, NoEnd: true}, obs)
	if errors.Is(err, scenarios.ErrCall) {
		return wrongCall(err)
	}
	return err
}

func prefixed(command, rest string) string {
	if rest == "" {
		return ""
	}
	return command + " " + rest
}

// upTo returns the lines up to the n-th step. Steps of a loop cannot be told apart.
func upTo(lines []lang.Line, n int) ([]lang.Line, error) {
	for i := range lines {
		if lines[i].Loop != nil {
			return nil, wrongf("--step: line %d is a loop; towtank shrink -o unrolls it", lines[i].Number)
		}
		if lines[i].Step != nil {
			if n--; n == 0 {
				return lines[:i+1], nil
			}
		}
	}
	return lines, nil
}

// onlyLast is an observer that shows the steps from one on.
type onlyLast struct {
	text *report.Text
	from int
}

// Step implements scenarios.Observer.
func (l *onlyLast) Step(s scenarios.Step) {
	if s.Index >= l.from {
		l.text.Step(s)
	}
}

// Invariant implements scenarios.Observer.
func (l *onlyLast) Invariant(scenarios.Invariant) {}

// End implements scenarios.Observer.
func (l *onlyLast) End(scenarios.End) {}

// withoutEnd is an observer that leaves the last line to its caller.
type withoutEnd struct{ *report.Text }

// End implements scenarios.Observer.
func (withoutEnd) End(scenarios.End) {}

// newShrink: towtank shrink --seed 4711 -o small.scenario
func newShrink(t *terminal) *cobra.Command {
	o, out, within := replayOptions{cfg: fuzz.DefaultConfig()}, "", fuzz.DefaultShrink
	c := &cobra.Command{
		Use:   "shrink FILE|--seed N",
		Short: "Make a failing scenario as small as it can be",
		Long: `Leave steps out of a failing scenario, then words of steps, nodes, and parts of manifests, as long as
the same still fails: the same invariant or expectation, about the same kind of object. Loops are
unrolled. The result is a scenario file with a comment that says what fails.

Exit status: 0 it was shrunk; 1 nothing fails; 2 the file or the call is wrong.`,
		Example: `  towtank shrink --seed SEED -o small.scenario        a seed that towtank fuzz told of
  towtank shrink failing/seed-4711.scenario > small.scenario`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.seedSet = cmd.Flags().Changed("seed")
			if err := onlyDrawn(cmd, args); err != nil {
				return err
			}
			if within <= 0 {
				return wrongf("--within: found %s, allowed: more than 0", within)
			}
			f, seed, drawn, err := t.scenario(&o, args)
			if err != nil {
				return err
			}
			var w io.Writer = t.out
			small, err := fuzz.Shrink(f, fuzz.ShrinkOptions{Seed: seed, Within: within, Progress: t.shrinking()})
			if t.live {
				fmt.Fprint(t.err, "\r\x1b[K")
			}
			if errors.Is(err, scenarios.ErrCall) {
				return wrongCall(err)
			} else if err != nil {
				return &status{exitFailed, err}
			}
			text := fuzz.Text(small.File, small.Seed, &small.Finding, drawn, o.cfg.Args())
			how := ""
			if !small.Complete {
				how = " (the time was up: --within)"
			}
			fmt.Fprintf(t.err, "%d steps, of %d up to the failure, after %d runs%s\n%s\n", small.Steps, small.From, small.Runs, how, strings.TrimSpace(small.Finding.String()))
			if out != "" {
				return writeFile(out, text)
			}
			_, err = w.Write(text)
			return err
		},
	}
	f := c.Flags()
	f.Uint64Var(&o.seed, "seed", 1, "the seed that draws the scenario, or that a file is run with")
	configFlags(c, &o.cfg)
	f.StringVarP(&out, "output", "o", "", "write the scenario to this `file`")
	f.DurationVar(&within, "within", fuzz.DefaultShrink, "how long to try")
	return c
}

// shrinking returns a function that shows how far shrinking is, nil where a line cannot be overwritten.
func (t *terminal) shrinking() func(runs, steps int) {
	if !t.live {
		return nil
	}
	return func(runs, steps int) { fmt.Fprintf(t.err, "\r\x1b[K%d steps, %d runs", steps, runs) }
}
