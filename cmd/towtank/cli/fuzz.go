package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"towtank/scenarios/fuzz"
	"towtank/scenarios/report"
)

// fuzzOptions are the options of towtank fuzz.
type fuzzOptions struct {
	cfg    fuzz.Config
	seeds  string
	period time.Duration
	jobs   int
	out    string
	json   string
	shrink bool
	corpus string
	stop   bool
	steer  bool
}

// defaultSeeds is how many seeds run if neither a range nor a time is given.
const defaultSeeds = 200

// towtank fuzz --seeds 1..1000 --out failing/
func newFuzz(t *terminal) *cobra.Command {
	o := fuzzOptions{cfg: fuzz.DefaultConfig()}
	c := &cobra.Command{
		Use:   "fuzz",
		Short: "Draw scenarios from seeds, run them, and tell what does not hold",
		Long: `Draw a scenario from each seed (a cluster, objects, workload, schedule and faults), run it, and tell
what does not hold: an invariant, an expectation, a settle that does not end, a panic. Each seed repeats
its rounds: everything happens at once, with faults; then all is healed, and must work.

With --out each failing seed is written there as a scenario file, and with --shrink as one of as few
steps as still fail. docs/fuzzing.md says how to go on from there.

Exit status: 0 nothing was found; 1 something was, or a signal ended it early; 2 the call is wrong.`,
		Example: `  towtank fuzz --seeds 1..1000
  towtank fuzz --for 10m --profile egress --out failing/ --shrink
  towtank fuzz --seeds 5001..6000 --json results.jsonl && towtank fuzz merge results*.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("for") && o.period <= 0 {
				return wrongf("--for: found %s, allowed: more than 0", o.period)
			}
			return t.fuzz(&o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.seeds, "seeds", "", "the seeds `A..B` (default 1..200, or from 1 on with --for)")
	f.DurationVar(&o.period, "for", 0, "how long to go on")
	configFlags(c, &o.cfg)
	f.IntVar(&o.jobs, "jobs", runtime.GOMAXPROCS(0), "how many seeds to run at once")
	f.StringVar(&o.out, "out", "", "write failing seeds to this `directory`")
	f.StringVar(&o.json, "json", "", "write the results of all seeds to this `file`, one JSON object a line")
	f.BoolVar(&o.shrink, "shrink", false, "shrink the first seed of each sort of finding (with --out)")
	f.BoolVar(&o.stop, "stop", false, "stop at the first seed that finds something")
	f.BoolVar(&o.steer, "steer", false, "follow seeds that reach something new: run variations of them first")
	f.StringVar(&o.corpus, "corpus", "", "write the seeds that reached something new to this `file`")
	c.AddCommand(newMerge(t))
	return c
}

func configFlags(c *cobra.Command, cfg *fuzz.Config) {
	f := c.Flags()
	f.IntVar(&cfg.Steps, "steps", cfg.Steps, fmt.Sprintf("about how many steps a scenario has (%d to %d)", fuzz.MinSteps, fuzz.MaxSteps))
	f.IntVar(&cfg.Nodes, "nodes", cfg.Nodes, fmt.Sprintf("how many nodes it has (1 to %d)", fuzz.MaxNodes))
	f.StringVar(&cfg.Profile, "profile", cfg.Profile, "what comes often: "+strings.Join(fuzz.Profiles(), ", "))
}

// seedRange reads A..B, or one seed.
func seedRange(text string) (from, to uint64, err error) {
	a, b, two := strings.Cut(text, "..")
	if !two {
		b = a
	}
	from, err1 := strconv.ParseUint(a, 10, 64)
	to, err2 := strconv.ParseUint(b, 10, 64)
	if err1 != nil || err2 != nil || from > to || to == 0 {
		return 0, 0, wrongf("--seeds: found %q, allowed: A..B with numbers, A not above B", text)
	}
	return from, to, nil
}

// campaign makes the campaign that the options ask for.
func (o *fuzzOptions) campaign() (*fuzz.Campaign, error) {
	if err := o.cfg.Check(); err != nil {
		return nil, wrongf("towtank fuzz: --%w", err)
	}
	if o.jobs < 1 {
		return nil, wrongf("--jobs: found %d, allowed: 1 and more", o.jobs)
	}
	if o.shrink && o.out == "" {
		return nil, wrongf("--shrink: say with --out where the scenarios are to be written")
	}
	if info, err := os.Stat(o.out); o.out != "" && err == nil && !info.IsDir() {
		return nil, wrongf("--out: found the file %s, allowed: a directory, or a name that is free", o.out)
	}
	c := &fuzz.Campaign{Config: o.cfg, From: 1, For: o.period, Jobs: o.jobs, Coverage: true, Steer: o.steer}
	var err error
	switch {
	case o.seeds != "":
		c.From, c.To, err = seedRange(o.seeds)
	case o.period == 0:
		c.To = defaultSeeds
	}
	return c, err
}

func (t *terminal) fuzz(o *fuzzOptions) error {
	c, err := o.campaign()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	results, err := newResults(o)
	if err != nil {
		return &status{exitWrong, err}
	}
	began := time.Now()
	p := &fuzzProgress{t: t, began: began, painted: began}
	if o.seeds != "" {
		p.total = c.To - c.From + 1
	}
	shrunk := map[string]bool{}
	c.Each = func(s *fuzz.Seed) {
		p.seed(s)
		results.write(s)
		if s.Failed() {
			p.clear()
			t.failing(o, s, shrunk)
			if o.stop {
				stop()
			}
		}
	}
	sum, err := c.Run(ctx)
	p.clear()
	if err = errors.Join(err, results.close()); err != nil {
		return &status{exitWrong, err}
	}
	sum.Write(t.out, time.Since(began))
	switch {
	case sum.Failed > 0:
		return &status{code: exitFailed}
	case ctx.Err() != nil:
		return &status{exitFailed, errors.New("ended early by a signal: not all seeds ran")}
	}
	return nil
}

// failing tells of a failing seed, and writes it as a scenario; the first of a sort also shrunk.
func (t *terminal) failing(o *fuzzOptions, s *fuzz.Seed, shrunk map[string]bool) {
	fmt.Fprintf(t.out, "seed %d: FAIL\n", s.Seed)
	if s.Wrong != "" {
		fmt.Fprintf(t.out, "  the scenario is wrong: %s\n", s.Wrong)
	}
	for i := range s.Findings {
		if i == maxFailures {
			fmt.Fprintf(t.out, "  and %d more\n", len(s.Findings)-i)
			break
		}
		fmt.Fprintf(t.out, "  step %d: %s\n", s.Findings[i].Line, s.Findings[i].String())
	}
	fmt.Fprintf(t.out, "  replay: towtank replay --seed %d%s\n", s.Seed, o.cfg.Args())
	if o.out == "" || len(s.Findings) == 0 {
		return
	}
	if err := t.keep(o, s, shrunk); err != nil {
		fmt.Fprintln(t.err, err)
	}
}

func (t *terminal) keep(o *fuzzOptions, s *fuzz.Seed, shrunk map[string]bool) error {
	f, err := fuzz.Generate(s.Seed, o.cfg)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	first := s.Findings[0]
	path := filepath.Join(o.out, fmt.Sprintf("seed-%d.scenario", s.Seed))
	if err := os.WriteFile(path, fuzz.Text(f, s.Seed, &first, s.Seed, o.cfg.Args()), 0o644); err != nil {
		return err
	}
	if !o.shrink || shrunk[first.Key()] {
		return nil
	}
	shrunk[first.Key()] = true
	small, err := fuzz.Shrink(f, fuzz.ShrinkOptions{Seed: s.Seed, Target: &first})
	if err != nil {
		return err
	}
	path = filepath.Join(o.out, fmt.Sprintf("seed-%d-shrunk.scenario", s.Seed))
	fmt.Fprintf(t.out, "  shrunk from %d to %d steps: %s\n", small.From, small.Steps, path)
	return os.WriteFile(path, fuzz.Text(small.File, small.Seed, &small.Finding, s.Seed, o.cfg.Args()), 0o644)
}

// results writes the results of seeds as lines of JSON.
type results struct {
	file   *os.File
	w      *bufio.Writer
	err    error
	corpus string
	seeds  []string
	args   string
}

func newResults(o *fuzzOptions) (*results, error) {
	r := &results{corpus: o.corpus, args: o.cfg.Args()}
	if o.json == "" {
		return r, nil
	}
	f, err := os.Create(o.json)
	if err != nil {
		return nil, err
	}
	r.file, r.w = f, bufio.NewWriter(f)
	return r, nil
}

func (r *results) write(s *fuzz.Seed) {
	if len(s.Reached) > 0 {
		r.seeds = append(r.seeds, fmt.Sprintf("%d%s  # %d new, such as %s", s.Seed, r.args, len(s.Reached), s.Reached[0]))
	}
	if r.w == nil || r.err != nil {
		return
	}
	data, err := json.Marshal(s)
	if err == nil {
		_, err = r.w.Write(append(data, '\n'))
	}
	r.err = err
}

func (r *results) close() error {
	if r.corpus != "" {
		if err := os.WriteFile(r.corpus, []byte(strings.Join(r.seeds, "\n")+"\n"), 0o644); err != nil {
			return err
		}
	}
	if r.w == nil {
		return nil
	}
	return errors.Join(r.err, r.w.Flush(), r.file.Close())
}

// fuzzProgress is a line that says how far a campaign is: overwritten on a terminal, now and then
// elsewhere.
type fuzzProgress struct {
	t       *terminal
	began   time.Time
	painted time.Time
	total   uint64 // 0: not known
	seeds   uint64
	failed  int
	reached int
	virtual time.Duration
	shown   bool
}

// plainEvery is how often progress is told where a line cannot be overwritten.
const plainEvery = 30 * time.Second

func (p *fuzzProgress) seed(s *fuzz.Seed) {
	p.seeds++
	p.virtual += time.Duration(s.Virtual)
	p.reached += len(s.Reached)
	if s.Failed() {
		p.failed++
	}
	every, end := plainEvery, "\n"
	if p.t.live {
		every, end = progressEvery, ""
	}
	now := time.Now()
	if now.Sub(p.began) < progressAfter || now.Sub(p.painted) < every {
		return
	}
	p.painted = now
	of := ""
	if p.total > 0 {
		of = fmt.Sprintf(" of %d", p.total)
	}
	p.clear()
	fmt.Fprintf(p.t.err, "%d%s seeds, %d failed, %.1f seeds/s, %.1f simulated hours, reached %d, %s%s", p.seeds, of, p.failed,
		float64(p.seeds)/now.Sub(p.began).Seconds(), p.virtual.Hours(), p.reached, report.Short(now.Sub(p.began)), end)
	p.shown = p.t.live
}

func (p *fuzzProgress) clear() {
	if p.shown {
		fmt.Fprint(p.t.err, "\r\x1b[K")
		p.shown = false
	}
}

// towtank fuzz merge a.jsonl b.jsonl
func newMerge(t *terminal) *cobra.Command {
	return &cobra.Command{
		Use:   "merge FILE...",
		Short: "Join the results of several campaigns",
		Long: `Join files that towtank fuzz --json wrote: how many seeds ran, what they found, each sort once, and how
much they reached together. A seed that is in several files counts once.

Exit status: 0 nothing was found; 1 something was; 2 a file is wrong.`,
		Example: "  towtank fuzz merge results/*.jsonl",
		Args:    someFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			sum := fuzz.NewSummary()
			for _, name := range args {
				if err := mergeFile(sum, name); err != nil {
					return &status{exitWrong, err}
				}
			}
			sum.Write(t.out, 0)
			if sum.Failed > 0 {
				return &status{code: exitFailed}
			}
			return nil
		},
	}
}

func mergeFile(sum *fuzz.Summary, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return sum.Merge(name, f)
}
