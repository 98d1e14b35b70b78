package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"towtank/scenarios"
	"towtank/scenarios/report"
)

// runOptions are the options of towtank run.
type runOptions struct {
	backend string
	seed    uint64
	json    bool
	verbose bool
	jobs    int
	events  string
}

// towtank run --seed 7 -v scenarios/tour/first.scenario
func newRun(t *terminal) *cobra.Command {
	o := runOptions{}
	c := &cobra.Command{
		Use:   "run FILE|DIR|-...",
		Short: "Run scenarios and tell what did not hold",
		Long: `Run scenarios: files, all *.scenario below a directory (but not below one named testdata), or the
standard input (-).

Without -v only failures (ten of each file) and what a file asks to be shown are printed. Under a failure stand what was
wanted, what was seen, and the way of the packet. The last line of each file is its result, and for a
failure the command that repeats it.

Exit status: 0 all expectations and invariants held; 1 one did not; 2 a file or the call is wrong;
3 the backend cannot run here, or every file was skipped.`,
		Example: `  towtank run scenarios/
  towtank run -v --seed 7 scenarios/tour/first.scenario
  towtank run --json scenarios/ | grep '"kind":"end"'
  towtank run --events events.log scenarios/tour/first.scenario
  generate-a-scenario | towtank run -`,
		Args: someFiles,
		RunE: func(_ *cobra.Command, args []string) error { return t.run(&o, args) },
	}
	f := c.Flags()
	f.StringVar(&o.backend, "backend", "sim", "where to run: sim, ovsdummy, netns or cluster")
	f.Uint64Var(&o.seed, "seed", 1, "decides every order and every chance of the run")
	f.BoolVar(&o.json, "json", false, "write one JSON object a line: steps, invariants, ends, broken files")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show every step, not only what failed")
	f.IntVar(&o.jobs, "jobs", runtime.GOMAXPROCS(0), "how many files to run at once; results stay in order")
	f.StringVar(&o.events, "events", "", "write the event log of the run to this `file` (one scenario only)")
	return c
}

func someFiles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return wrongf("%s: give files, directories or -; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

// outcome is what became of one file.
type outcome struct {
	end   scenarios.End
	wrong error        // the file cannot be read or run as it is written
	fault error        // the tank failed
	text  bytes.Buffer // what is to be printed, if it was not printed at once
	done  chan struct{}
}

func (t *terminal) run(o *runOptions, args []string) error {
	b, err := backendNamed(o.backend)
	if err != nil {
		return err
	}
	if o.jobs < 1 {
		return wrongf("--jobs: found %d, allowed: 1 and more", o.jobs)
	}
	paths, err := findFiles(args)
	if err != nil {
		return err
	}
	if o.events != "" && len(paths) != 1 {
		return wrongf("--events: want one scenario file, found %d", len(paths))
	}
	if o.events != "" && sameFile(o.events, paths[0]) {
		return wrongf("--events: %s is the scenario itself, and would be overwritten", o.events)
	}
	outcomes := make([]*outcome, len(paths))
	for i := range outcomes {
		outcomes[i] = &outcome{done: make(chan struct{})}
	}
	started := time.Now()
	p := newProgress(t, len(paths))
	work := make(chan int)
	var wg sync.WaitGroup
	for range min(max(o.jobs, 1), len(paths)) {
		wg.Go(func() {
			for i := range work {
				t.runFile(b, o, paths[i], outcomes[i], p, len(paths) == 1)
				close(outcomes[i].done)
			}
		})
	}
	go func() {
		for i := range paths {
			work <- i
		}
		close(work)
	}()
	for _, x := range outcomes {
		<-x.done
		p.clear()
		if _, err := x.text.WriteTo(t.out); err != nil {
			return &status{exitWrong, fmt.Errorf("writing results: %w", err)}
		}
		for _, err := range []error{x.wrong, x.fault} {
			if err != nil {
				fmt.Fprintln(t.err, err)
			}
		}
	}
	wg.Wait()
	return t.summary(o, outcomes, time.Since(started))
}

// sameFile reports whether two names are those of one file.
func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// maxFailures is how many failures of a file are shown in full without -v.
const maxFailures = 10

// runFile runs one file. If it is the only one, its results are printed as they come.
func (t *terminal) runFile(b backend, o *runOptions, path string, x *outcome, p *progress, only bool) {
	var w io.Writer = &x.text
	if only {
		w = p.over(t.out)
	}
	obs := &watched{p: p}
	defer func() {
		// A panic is a bug of the tank or the agent. The other files still run, and this one can be repeated.
		if r := recover(); r != nil {
			x.fault = fmt.Errorf("%s: panic with seed %d: %v\n%s", path, o.seed, r, debug.Stack())
		}
		if err := cmp.Or(x.wrong, x.fault); o.json && err != nil && !obs.ended {
			(&report.JSON{W: w}).Broken(nameOf(path), err)
		}
	}()
	f, err := t.parse(path)
	if err != nil {
		x.wrong = err
		return
	}
	text := &report.Text{W: w, Verbose: o.verbose, Color: t.color}
	if !o.verbose {
		text.Max = maxFailures
	}
	obs.Observer = text
	if o.json {
		obs.Observer = &report.JSON{W: w}
	}
	opts := scenarios.Options{Seed: o.seed}
	if o.events != "" {
		log, err := os.Create(o.events)
		if err != nil {
			x.wrong = err
			return
		}
		buffered := bufio.NewWriter(log)
		opts.LogTo = buffered
		defer func() {
			if err := errors.Join(buffered.Flush(), log.Close()); err != nil {
				x.wrong = fmt.Errorf("writing the event log: %w", err)
			}
		}()
	}
	if path == stdin {
		obs.replay = fmt.Sprintf("towtank run --seed %d - (with the same standard input)", o.seed)
	}
	x.end, err = b.run(f, opts, obs)
	switch {
	case errors.Is(err, scenarios.ErrCall):
		x.wrong = wrongCall(err)
	case err != nil:
		x.fault = err
	}
}

// summary prints how many files passed, if there are several, and returns the exit status.
func (t *terminal) summary(o *runOptions, outcomes []*outcome, wall time.Duration) error {
	var passed, failed, wrong, skipped int
	for _, x := range outcomes {
		switch {
		case x.wrong != nil:
			wrong++
		case x.fault != nil || x.end.Outcome == scenarios.Fail:
			failed++
		case x.end.Outcome == scenarios.Skip:
			skipped++
		default:
			passed++
		}
	}
	if len(outcomes) > 1 && !o.json {
		fmt.Fprintf(t.out, "%d files: %d passed, %d failed, %d skipped", len(outcomes), passed, failed, skipped)
		if wrong > 0 {
			fmt.Fprintf(t.out, ", %d not right", wrong)
		}
		fmt.Fprintf(t.out, " (%s, seed %d, %s)\n", o.backend, o.seed, report.Short(wall))
	}
	switch {
	case wrong > 0:
		return &status{code: exitWrong}
	case failed > 0:
		return &status{code: exitFailed}
	case passed == 0:
		return &status{code: exitCannot}
	}
	return nil
}
