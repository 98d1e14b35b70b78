package lang

import (
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in a scenario file.
type Error struct {
	File string
	Line int // from 1; 0 if no line is at fault
	Text string
}

// Error returns file:line: text.
func (e Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Text)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
}

// Errors are the mistakes in a scenario file in the order of their lines, at most MaxErrors and one
// entry that counts the rest.
type Errors []Error

// Error returns one line for each mistake.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives access to the single mistakes.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i := range e {
		out[i] = e[i]
	}
	return out
}

// errorList collects mistakes. Within a loop only the first of each line is kept: the others say
// the same of other values.
type errorList struct {
	list []Error
	seen map[Error]bool
}

func (l *errorList) add(file string, line int, format string, a ...any) {
	e := Error{File: file, Line: line, Text: fmt.Sprintf(format, a...)}
	if l.seen == nil {
		l.seen = make(map[Error]bool)
	}
	if !l.seen[e] {
		l.seen[e] = true
		l.list = append(l.list, e)
	}
}

// has reports whether the line already has an error.
func (l *errorList) has(line int) bool {
	return slices.ContainsFunc(l.list, func(e Error) bool { return e.Line == line })
}

func (l *errorList) err() error {
	if len(l.list) == 0 {
		return nil
	}
	out := slices.Clone(l.list)
	slices.SortStableFunc(out, func(a, b Error) int { return a.Line - b.Line })
	if n := len(out) - MaxErrors; n > 0 {
		out = append(out[:MaxErrors], Error{File: out[0].File, Text: fmt.Sprintf("and %d more errors", n)})
	}
	return Errors(out)
}
