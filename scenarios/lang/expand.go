package lang

import (
	"fmt"
	"slices"
)

// Binding is a loop's variable with one of its values.
type Binding struct{ Var, Value string }

// Instance is one step to execute: a line, or a line of a loop for one value of its variables.
type Instance struct {
	// Line is the line it came from.
	Line *Line
	// Iter has the variables of the enclosing loops, the outer one first.
	Iter []Binding
	Step Step

	file     *File
	backends []string // nil: all
}

// RunsOn reports whether the step runs on a backend.
func (in *Instance) RunsOn(backend string) bool {
	return in.backends == nil || slices.Contains(in.backends, backend)
}

// Data returns a file of the archive with the variables of the loops replaced.
func (in *Instance) Data(name string) ([]byte, bool) {
	data, ok := in.file.Manifest(name)
	if !ok || len(in.Iter) == 0 {
		return data, ok
	}
	return []byte(substitute(string(data), in.Iter)), true
}

// Expand unrolls the loops. The error, if any, is of type Errors.
func (f *File) Expand() ([]Instance, error) {
	e := &expander{file: f}
	e.count(f.Lines, 1)
	if len(e.errors.list) == 0 {
		e.lines(f.Lines, nil, nil)
	}
	return e.out, e.errors.err()
}

type expander struct {
	file   *File
	out    []Instance
	errors errorList
}

// count refuses a file of more than MaxSteps before any is made.
func (e *expander) count(lines []Line, depth int) int {
	n := 0
	for i := range lines {
		switch l := &lines[i]; {
		case l.Step != nil:
			n++
		case l.Loop != nil && depth > MaxLoopDepth:
			e.errors.add(e.file.Name, l.Number, "for: loops nest at most %d deep", MaxLoopDepth)
		case l.Loop != nil && (l.Loop.size() < 1 || l.Loop.size() > MaxSteps):
			e.errors.add(e.file.Name, l.Number, "for %s: found %d values, allowed 1 to %d", l.Loop.Var, l.Loop.size(), MaxSteps)
		case l.Loop != nil:
			n += l.Loop.size() * e.count(l.Loop.Body, depth+1)
			if n > MaxSteps {
				e.errors.add(e.file.Name, l.Number, "for %s: with this loop the file has %d steps, allowed are %d", l.Loop.Var, n, MaxSteps)
				return 0
			}
		}
	}
	if n > MaxSteps {
		e.errors.add(e.file.Name, 0, "the file has %d steps, allowed are %d", n, MaxSteps)
	}
	return n
}

func (e *expander) lines(lines []Line, vars []Binding, backends []string) {
	for i := range lines {
		l := &lines[i]
		on := limit(backends, l.Only, l.Except)
		switch {
		case l.Loop != nil:
			for k := range l.Loop.size() {
				e.lines(l.Loop.Body, append(slices.Clip(slices.Clone(vars)), Binding{l.Loop.Var, l.Loop.value(k)}), on)
			}
		case l.Step != nil:
			step := l.Step
			if t, ok := step.(Template); ok {
				if step = e.instantiate(l, t, vars); step == nil {
					continue
				}
			}
			e.out = append(e.out, Instance{Line: l, Iter: vars, Step: step, file: e.file, backends: on})
		}
	}
}

// instantiate parses a template for values of its variables. An error is reported for the first
// values only.
func (e *expander) instantiate(l *Line, t Template, vars []Binding) Step {
	if e.errors.has(l.Number) {
		return nil
	}
	a := newArgs(t.tokens.substitute(vars))
	step := a.parse()
	for _, text := range a.errs {
		e.errors.add(e.file.Name, l.Number, "%s (with %s)", text, describe(vars))
	}
	if len(a.errs) > 0 {
		return nil
	}
	return step
}

func describe(vars []Binding) string {
	s := ""
	for i, v := range vars {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%s=%s", v.Var, v.Value)
	}
	return s
}

// limit returns the backends of on (nil: all) that are in only (empty: all) and not in except.
func limit(on, only, except []string) []string {
	if len(only)+len(except) == 0 {
		return on
	}
	if on == nil {
		on = Backends
	}
	out := []string{}
	for _, b := range on {
		if (len(only) == 0 || slices.Contains(only, b)) && !slices.Contains(except, b) {
			out = append(out, b)
		}
	}
	return out
}
