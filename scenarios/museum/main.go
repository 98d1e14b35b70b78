// Command museum brings bugs that others have had into our code, one at a time, and shows which scenario
// or seed notices: a bug that nothing notices is a hole in the tests.
//
//	go run ./scenarios/museum              all of them
//	go run ./scenarios/museum -only 45,61  some
//
// Each mutant is built with go build -overlay: no file of the tree is changed, and no binary that people
// get has it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options are those of the command line.
type options struct {
	root    string
	only    string
	seeds   int
	period  time.Duration
	within  time.Duration
	jobs    int
	noSeeds bool
	noFiles bool
	out     string
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the module's `directory`")
	flag.StringVar(&o.only, "only", "", "only these `bugs`, by number, with commas")
	flag.IntVar(&o.seeds, "seeds", 300, "how many seeds are tried at the most")
	flag.DurationVar(&o.period, "for", 2*time.Minute, "how long seeds are tried at the most")
	flag.DurationVar(&o.within, "within", time.Minute, "how long the seed is shrunk at the most")
	flag.IntVar(&o.jobs, "jobs", 2, "how many scenarios and seeds run at once")
	flag.BoolVar(&o.noSeeds, "no-seeds", false, "try the scenarios only")
	flag.BoolVar(&o.noFiles, "no-scenarios", false, "try the seeds only")
	flag.StringVar(&o.out, "out", "", "keep shrunk scenarios in this `directory`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// row is what became of a mutant.
type row struct {
	m *mutant
	// scenario is the first that failed, seed the first that found something; from and steps are the
	// length of its scenario before and after shrinking.
	scenario    string
	seed        string
	from, steps int
	took        time.Duration // of shrinking
	found       string
}

func (r *row) caught() bool { return r.scenario != "" || r.seed != "" }

func (o *options) run(ctx context.Context) (bool, error) {
	all, err := load(filepath.Join(o.root, "scenarios", "museum", "mutants"))
	if err != nil {
		return false, err
	}
	if o.only != "" {
		want := strings.Split(o.only, ",")
		all = slices.DeleteFunc(all, func(m *mutant) bool { return !slices.Contains(want, strconv.Itoa(m.bug)) })
	}
	// Every one must apply, before any is tried.
	for _, m := range all {
		if _, err := m.mutate(o.root); err != nil {
			return false, err
		}
	}
	dir, err := os.MkdirTemp("", "towtank-museum-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	fmt.Println("| bug | area | cause | scenario | seed | steps | found |\n|---|---|---|---|---|---|---|")
	var rows []*row
	for _, m := range all {
		if ctx.Err() != nil {
			break
		}
		r, err := o.try(ctx, m, dir)
		if err != nil {
			return false, err
		}
		rows = append(rows, r)
		r.print()
	}
	return summary(rows), ctx.Err()
}

func (r *row) print() {
	steps := ""
	if r.steps > 0 {
		steps = fmt.Sprintf("%d → %d (%s)", r.from, r.steps, r.took.Round(time.Second))
	}
	scenario, seed := r.scenario, r.seed
	if !r.caught() {
		scenario = "**survives** " + r.m.survives
	}
	fmt.Printf("| %d | %s | %s | %s | %s | %s | %s |\n", r.m.bug, r.m.area, r.m.cause, scenario, seed, steps, r.found)
}

// summary prints what was caught, and reports whether everything was that has to be.
func summary(rows []*row) bool {
	caught, byScenario, bySeed, ok := 0, 0, 0, true
	var steps []int
	for _, r := range rows {
		if r.caught() {
			caught++
		} else if r.m.survives == "" {
			ok = false
		}
		if r.scenario != "" {
			byScenario++
		}
		if r.seed != "" {
			bySeed++
		}
		if r.steps > 0 {
			steps = append(steps, r.steps)
		}
	}
	fmt.Printf("\n%d mutants, %d caught: %d by scenarios, %d by seeds", len(rows), caught, byScenario, bySeed)
	if len(steps) > 0 {
		slices.Sort(steps)
		fmt.Printf("; shrunk to %d steps in the median, %d at the most", steps[len(steps)/2], steps[len(steps)-1])
	}
	fmt.Println()
	return ok
}

// try builds a mutant and runs scenarios and seeds against it.
func (o *options) try(ctx context.Context, m *mutant, dir string) (*row, error) {
	r := &row{m: m}
	bin, err := o.build(ctx, m, dir)
	if err != nil {
		return nil, err
	}
	defer os.Remove(bin)
	if !o.noFiles {
		if r.scenario, err = o.scenarios(ctx, m, bin); err != nil {
			return nil, err
		}
	}
	if o.noSeeds {
		return r, nil
	}
	return r, o.fuzz(ctx, r, bin, dir)
}

// build builds towtank with the bug in it.
func (o *options) build(ctx context.Context, m *mutant, dir string) (string, error) {
	data, err := m.mutate(o.root)
	if err != nil {
		return "", err
	}
	file, bin := filepath.Join(dir, "mutant.go"), filepath.Join(dir, fmt.Sprintf("towtank-bug-%d", m.bug))
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return "", err
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): file}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, "go", "build", "-overlay", list, "-o", bin, "./cmd/towtank")
	c.Dir = o.root
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: the mutant does not build: %w\n%s", m.path, err, text)
	}
	return bin, nil
}
