package fuzz

import (
	"fmt"
	"slices"
	"time"

	"towtank/scenarios/lang"
)

// ShrinkOptions says what to shrink to.
type ShrinkOptions struct {
	Seed uint64
	// Target is the sort of finding to keep; nil: the first that the scenario has.
	Target *Finding
	// Within bounds the time; 0: DefaultShrink.
	Within time.Duration
	// Progress, if set, is told of every candidate.
	Progress func(runs, steps int)
}

// DefaultShrink bounds the time of shrinking.
const DefaultShrink = 60 * time.Second

// Shrunk is the smallest scenario that was found to fail in the same way.
type Shrunk struct {
	File     *lang.File
	Seed     uint64 // with which it fails
	Finding  Finding
	Steps    int // of the file
	From     int // steps of the file that was shrunk, up to the failure
	Runs     int
	Complete bool // nothing more can be left out, of single steps and words
}

// Shrink makes a failing scenario as small as it finds: it leaves steps out, then words of steps and
// parts of manifests, as long as a finding of the same sort remains. The error says that nothing failed.
func Shrink(f *lang.File, o ShrinkOptions) (*Shrunk, error) {
	if o.Within <= 0 {
		o.Within = DefaultShrink
	}
	s := &shrinker{opts: o, deadline: time.Now().Add(o.Within)}
	flat, err := flatten(f)
	if err != nil {
		return nil, err
	}
	s.best = flat
	run := Do(flat, RunOptions{Seed: o.Seed, Until: func(x *Finding) bool { return o.Target == nil || x.Same(o.Target) }})
	if len(run.Findings) == 0 {
		if run.Wrong != nil {
			return nil, run.Wrong
		}
		return nil, fmt.Errorf("%s: nothing fails with seed %d", f.Name, o.Seed)
	}
	s.finding = run.Findings[len(run.Findings)-1]
	if o.Target != nil && !s.finding.Same(o.Target) {
		return nil, fmt.Errorf("%s: with seed %d there is no finding %q", f.Name, o.Seed, o.Target.Key())
	}
	out := &Shrunk{Seed: o.Seed}
	s.truncate()
	out.From = len(s.best.Lines)
	s.tail()
	s.dropSteps()
	s.simplify()
	s.dropSteps()
	s.expectation()
	s.commonSeed()
	out.File, out.Finding, out.Steps, out.Runs, out.Seed = s.best, s.finding, len(s.best.Lines), s.runs, s.opts.Seed
	out.Complete = !s.late()
	out.File.Name = f.Name
	return out, nil
}

// shrinker is a search for a smaller scenario.
type shrinker struct {
	opts     ShrinkOptions
	deadline time.Time
	best     *lang.File
	finding  Finding // of best
	runs     int
}

func (s *shrinker) late() bool { return time.Now().After(s.deadline) }

// flatten unrolls the loops: every line has one step.
func flatten(f *lang.File) (*lang.File, error) {
	list, err := f.Expand()
	if err != nil {
		return nil, err
	}
	out := &lang.File{Name: f.Name}
	for i := range list {
		in := &list[i]
		if !in.RunsOn("sim") {
			continue
		}
		if _, ok := in.Step.(lang.BackendList); ok {
			continue
		}
		out.Lines = append(out.Lines, lang.Line{Step: unrolled(out, in, i)})
	}
	if len(out.Files) == 0 {
		out.Files = slices.Clone(f.Files)
	} else {
		out.Files = append(out.Files, f.Files...)
	}
	return numbered(out), nil
}

// unrolled gives a step of a loop that uses a manifest a copy of its own.
func unrolled(out *lang.File, in *lang.Instance, i int) lang.Step {
	own := func(name string) string {
		data, ok := in.Data(name)
		if !ok || len(in.Iter) == 0 {
			return name
		}
		unique := fmt.Sprintf("%d-%s", i+1, name)
		out.Files = append(out.Files, lang.Manifest{Name: unique, Data: data})
		return unique
	}
	switch st := in.Step.(type) {
	case lang.Apply:
		st.File = own(st.File)
		return st
	case lang.Delete:
		if st.File != "" {
			st.File = own(st.File)
		}
		return st
	}
	return in.Step
}

// numbered gives the lines their numbers, and leaves out the manifests that no step uses.
func numbered(f *lang.File) *lang.File {
	used := map[string]bool{}
	for i := range f.Lines {
		f.Lines[i].Number = i + 1
		switch st := f.Lines[i].Step.(type) {
		case lang.Apply:
			used[st.File] = true
		case lang.Delete:
			used[st.File] = true
		}
	}
	f.Files = slices.DeleteFunc(slices.Clone(f.Files), func(m lang.Manifest) bool { return !used[m.Name] })
	return f
}

// with returns the best scenario with other lines.
func (s *shrinker) with(lines []lang.Line) *lang.File {
	return numbered(&lang.File{Name: s.best.Name, Lines: slices.Clone(lines), Files: s.best.Files})
}

// maxRepairs is how often lines that make no sense any more are taken out of one candidate.
const maxRepairs = 30

// try runs a candidate; if it fails in the same way, it is the best. Steps that make no sense without
// those that were left out go too.
func (s *shrinker) try(f *lang.File) bool {
	for range maxRepairs {
		if s.late() {
			return false
		}
		s.runs++
		run := Do(f, RunOptions{Seed: s.opts.Seed, Until: func(x *Finding) bool { return x.Same(&s.finding) }})
		if s.opts.Progress != nil {
			s.opts.Progress(s.runs, len(s.best.Lines))
		}
		if run.Wrong == nil {
			return s.accept(f, run)
		}
		lines := slices.Clone(f.Lines)
		for i := range lines {
			if slices.Contains(run.WrongLines, i+1) {
				lines[i].Step = nil
			}
		}
		lines = slices.DeleteFunc(lines, func(l lang.Line) bool { return l.Step == nil })
		if len(lines) == len(f.Lines) || len(lines) == 0 {
			return false
		}
		f = numbered(&lang.File{Name: f.Name, Lines: lines, Files: f.Files})
	}
	return false
}

func (s *shrinker) accept(f *lang.File, run *Run) bool {
	if len(run.Findings) == 0 {
		return false
	}
	last := run.Findings[len(run.Findings)-1]
	if !last.Same(&s.finding) {
		return false
	}
	s.best, s.finding = f, last
	s.truncate()
	return true
}

// truncate leaves out what comes after the failing step.
func (s *shrinker) truncate() {
	if n := s.finding.Line; n > 0 && n < len(s.best.Lines) {
		s.best = s.with(s.best.Lines[:n])
	}
}

// tail tries the setup, up to the first settle, with the last steps alone: most of what fails needs no more,
// and short candidates run fast.
func (s *shrinker) tail() {
	lines := s.best.Lines
	setup := slices.IndexFunc(lines, func(l lang.Line) bool { _, ok := l.Step.(lang.Settle); return ok }) + 1
	for k := 4; setup+k < len(lines) && !s.late(); k *= 2 {
		if s.try(s.with(slices.Concat(lines[:setup], lines[len(lines)-k:]))) {
			return
		}
	}
}

// dropSteps leaves steps out, many at once first, until no single one can go.
func (s *shrinker) dropSteps() {
	for size := max(len(s.best.Lines)/2, 1); ; {
		changed := false
		for end := len(s.best.Lines); end > 0 && !s.late(); {
			begin := max(end-size, 0)
			lines := slices.Concat(s.best.Lines[:begin], s.best.Lines[end:])
			if len(lines) > 0 && s.try(s.with(lines)) {
				changed = true
				end = min(begin, len(s.best.Lines))
				continue
			}
			end = begin
		}
		switch {
		case s.late(), size == 1 && !changed:
			return
		case size > 1:
			size = max(min(size, len(s.best.Lines))/2, 1)
		}
	}
}

// expectation writes what the reference model expects into the probe that failed, if that fails without
// the model, too.
func (s *shrinker) expectation() {
	last := len(s.best.Lines) - 1
	if s.finding.Want == "" || last < 0 {
		return
	}
	step, err := lang.ParseStep(s.best.Lines[last].Step.String() + " " + s.finding.Want)
	if err != nil {
		return
	}
	f := s.with(s.best.Lines)
	f.Lines[last].Step = step
	run := Do(f, RunOptions{Seed: s.opts.Seed})
	for _, x := range run.Findings {
		if x.Line == last+1 && x.What == "expectation of probe" {
			s.best, s.finding = f, x
			return
		}
	}
}

// commonSeeds is up to which seed one is looked for with which the scenario fails, too: the smaller it
// is, the more likely is it tried.
const commonSeeds = 8

func (s *shrinker) commonSeed() {
	for seed := uint64(1); seed <= commonSeeds && seed < s.opts.Seed; seed++ {
		run := Do(s.best, RunOptions{Seed: seed, Until: func(x *Finding) bool { return x.Same(&s.finding) }})
		if n := len(run.Findings); n > 0 && run.Findings[n-1].Same(&s.finding) {
			s.opts.Seed = seed
			return
		}
	}
}
