package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"towtank/agent/pipeline"
	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/scenarios/report"
)

// towtank diff --backend ovsdummy scenarios/tour/first.scenario
func newCompare(t *terminal) *cobra.Command {
	backend, seed := "ovsdummy", uint64(1)
	c := &cobra.Command{
		Use:   "diff FILE",
		Short: "Run a scenario on the simulator and on a real backend, and show where they first differ",
		Long: `Run a scenario on the simulator and on another backend, and compare them step by step: what each probe
experienced, and after every settle what is on the switches and hosts. The first difference is shown
side by side: for a probe with its way through both, for a node with the lines that only one has.

Which endpoint of several a Service picks is Open vSwitch's own choice: it is no difference, nor is what
follows from it.

Exit status: 0 no difference; 1 there is one; 2 the file or the call is wrong; 3 the backend cannot run
here, or the file is not for both.`,
		Example: `  towtank diff scenarios/tour/first.scenario
  sudo towtank diff --backend netns scenarios/tour/first.scenario`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return wrongf("%s: found %d arguments, allowed: one FILE; see %s --help", cmd.CommandPath(), len(args), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return t.compare(args[0], backend, seed) },
	}
	c.Flags().StringVar(&backend, "backend", backend, "what to compare the simulator with: `ovsdummy|netns`")
	c.Flags().Uint64Var(&seed, "seed", seed, "decides every order and every chance of the run")
	return c
}

// side is a run of the scenario on one backend.
type side struct {
	name  string
	steps []scenarios.Step
	end   scenarios.End
}

// Step implements scenarios.Observer.
func (s *side) Step(x scenarios.Step) { s.steps = append(s.steps, x) }

// Invariant implements scenarios.Observer.
func (s *side) Invariant(scenarios.Invariant) {}

// End implements scenarios.Observer.
func (s *side) End(e scenarios.End) { s.end = e }

func (t *terminal) compare(path, name string, seed uint64) error {
	if name == "sim" {
		return wrongf("--backend sim: it is what the other one is compared with; allowed: %s", strings.Join(others(), ", "))
	}
	f, err := t.parse(path)
	if err != nil {
		return err
	}
	other, err := backendNamed(name)
	if err != nil {
		return err
	}
	watched := *f
	watched.Lines = (&dumper{}).lines(f.Lines)
	model, real := &side{name: "sim"}, &side{name: name}
	// A run that could not end is compared as far as it came: why it could not may be the difference.
	stopped := cmp.Or(model.run(backends["sim"], &watched, seed, false), real.run(other, &watched, seed, false))
	for i := range min(len(model.steps), len(real.steps)) {
		a, b := &model.steps[i], &real.steps[i]
		if a.Outcome == scenarios.Skip || b.Outcome == scenarios.Skip {
			continue
		}
		if d := difference(a, b); len(d) > 0 {
			t.tell(f, seed, other, a, b, model, real, d)
			return &status{code: exitFailed}
		}
	}
	if stopped != nil {
		return stopped
	}
	if a, b := len(model.steps), len(real.steps); a != b {
		fmt.Fprintf(t.out, "%s: %d steps on sim, %d on %s\n", f.Name, a, b, name)
		return &status{code: exitFailed}
	}
	fmt.Fprintf(t.out, "%s: no difference between sim and %s in %d steps\n", f.Name, name, len(model.steps))
	return nil
}

// others are the backends that the simulator can be compared with in this build.
func others() []string {
	var out []string
	for _, n := range lang.Backends {
		if n != "sim" && backends[n].run != nil {
			out = append(out, n)
		}
	}
	return out
}

// run runs a file. A step that fails is no reason to stop: both sides should fail alike.
func (s *side) run(b backend, f *lang.File, seed uint64, noEnd bool) error {
	_, err := b.run(f, scenarios.Options{Seed: seed, NoEnd: noEnd}, s)
	switch {
	case errors.Is(err, scenarios.ErrCall):
		return wrongCall(err)
	case err != nil:
		return &status{exitFailed, fmt.Errorf("%s: %w", s.name, err)}
	case s.end.Outcome == scenarios.Skip:
		return &status{exitCannot, fmt.Errorf("%s is not for the backend %s", f.Name, s.name)}
	}
	return nil
}

// dumper adds to a file dumps of all nodes after every settle.
type dumper struct{ nodes []string }

func (d *dumper) lines(list []lang.Line) (out []lang.Line) {
	for _, l := range list {
		if l.Loop != nil {
			loop := *l.Loop
			loop.Body = d.lines(loop.Body)
			l.Loop = &loop
		}
		out = append(out, l)
		switch s := l.Step.(type) {
		case lang.Nodes:
			d.nodes = append(d.nodes, s.Names...)
		case lang.NodeDown:
			d.without(s.Node)
		case lang.OVS:
			if s.Op == "kill" {
				d.without(s.Node)
			}
		case lang.Settle:
			for _, n := range d.nodes {
				for _, what := range []string{"switch", "host"} {
					out = append(out, lang.Line{Number: l.Number, Only: l.Only, Except: l.Except, Step: lang.Dump{Node: lang.NodeRef{Name: n}, What: what}})
				}
			}
		}
	}
	return out
}

// without leaves a node out from here on: one that is off has nothing to show.
func (d *dumper) without(ref lang.NodeRef) {
	d.nodes = slices.DeleteFunc(slices.Clone(d.nodes), func(n string) bool { return ref.Name == "" || ref.Name == n })
}

// differing is one thing that differs.
type differing struct{ what, model, real string }

// difference compares a step on both sides.
func difference(a, b *scenarios.Step) (out []differing) {
	add := func(what, x, y string) {
		if x != y {
			out = append(out, differing{what, x, y})
		}
	}
	if strings.HasPrefix(a.Text, "dump ") {
		x, y := onlyIn(a.Text2, b.Text2), onlyIn(b.Text2, a.Text2)
		add("lines", strings.Join(x, "\n"), strings.Join(y, "\n"))
		return out
	}
	add("result", string(a.Outcome), string(b.Outcome))
	add("verdict", a.Got.Verdict, b.Got.Verdict)
	add("http", fmt.Sprint(a.Got.HTTP), fmt.Sprint(b.Got.HTTP))
	add("sent", fmt.Sprint(a.Got.Sent > 0), fmt.Sprint(b.Got.Sent > 0))
	if len(a.Got.Backends) <= 1 && maps.EqualFunc(a.Got.Backends, b.Got.Backends, func(int, int) bool { return true }) { // else groups picked others
		add("source", a.Got.Source, b.Got.Source)
		add("to", a.Got.To, b.Got.To)
		add("via", a.Got.Via, b.Got.Via)
		add("reply-via", a.Got.ReplyVia, b.Got.ReplyVia)
	}
	return out
}

// learned are lines that follow from what packets came by, and so from what groups picked: flows for affinity, and
// neighbours that nobody wrote.
var learned = regexp.MustCompile(fmt.Sprintf(` table=%d, | dev \S+ (lladdr \S+ )?(router )?(REACHABLE|STALE|DELAY|PROBE|INCOMPLETE|FAILED)$`, pipeline.TableAffinity))

// onlyIn returns the lines that only the first of two dumps has.
func onlyIn(a, b string) (out []string) {
	has := map[string]bool{}
	for l := range strings.Lines(b) {
		has[strings.TrimSpace(l)] = true
	}
	for l := range strings.Lines(a) {
		if l = strings.TrimSpace(l); !has[l] && !learned.MatchString(l) {
			out = append(out, l)
		}
	}
	return out
}

// tell shows a difference.
func (t *terminal) tell(f *lang.File, seed uint64, other backend, a, b *scenarios.Step, model, real *side, d []differing) {
	fmt.Fprintf(t.out, "%s:%d differs: %s\n", a.File, a.Line, a.Text)
	if strings.HasPrefix(a.Text, "dump ") {
		for _, s := range []struct{ name, lines string }{{model.name, d[0].model}, {real.name, d[0].real}} {
			fmt.Fprintf(t.out, "  only on %s:\n", s.name)
			for l := range strings.Lines(s.lines) {
				fmt.Fprintf(t.out, "    %s\n", strings.TrimSpace(l))
			}
		}
		return
	}
	fmt.Fprintf(t.out, "  %-10s %-30s %s\n", "", model.name, real.name)
	for _, x := range d {
		fmt.Fprintf(t.out, "  %-10s %-30s %s\n", x.what, orNone(x.model), orNone(x.real))
	}
	for _, s := range []*scenarios.Step{a, b} {
		if s.Text2 != "" {
			fmt.Fprintf(t.out, "  %s: %s\n", map[bool]string{true: model.name, false: real.name}[s == a], strings.ReplaceAll(s.Text2, "\n", "\n    "))
		}
	}
	for _, s := range []struct {
		b    backend
		name string
	}{{backends["sim"], model.name}, {other, real.name}} {
		t.way(f, seed, s.b, s.name, a)
	}
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// notInTraces are the words of a probe that a trace does not take.
var notInTraces = regexp.MustCompile(` (count|as)=\S+| expect .*`)

// way shows where the packet of a probe goes on one side, by a trace after its line.
func (t *terminal) way(f *lang.File, seed uint64, b backend, name string, s *scenarios.Step) {
	rest, ok := strings.CutPrefix(s.Text, "probe ")
	if !ok {
		return
	}
	traced, err := withLast(f, s.Line, "trace "+notInTraces.ReplaceAllString(rest, ""))
	if err != nil {
		return // an option that only probes have; the verdicts are told
	}
	x := &side{name: name}
	if err := x.run(b, traced, seed, true); err != nil || len(x.steps) == 0 {
		return
	}
	last := x.steps[len(x.steps)-1]
	fmt.Fprintf(t.out, "on %s:\n", name)
	report.Path{Drop: last.Got.Verdict == "drop", Mark: report.Mark(t.color)}.Write(t.out, last.Trace)
	fmt.Fprintln(t.out, report.Verdict(last))
}
