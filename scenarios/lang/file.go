package lang

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// File is a parsed scenario.
type File struct {
	// Name is the path it was read from, as errors show it.
	Name string
	// Lines are the commands, comments, blank lines and loops in order.
	Lines []Line
	// Files are the manifests in the order they stand in the archive.
	Files []Manifest
}

// Line is one line of a scenario, or a loop of several. At most one of Step and Loop is set;
// without either it is a comment or a blank line.
type Line struct {
	// Number counts lines of the file from 1; 0 if the line was built, not read.
	Number int
	// Only and Except are the backends of the prefixes [NAME] and [!NAME]: the line runs on a
	// backend in Only (any if empty) and not in Except.
	Only, Except []string
	Step         Step
	Loop         *Loop
	// Comment is the comment that the line ends with, with its #.
	Comment string
}

// Loop repeats its body for every value of a variable.
type Loop struct {
	// Var is the variable's name; $Var and ${Var} are replaced in the body and in the files it applies.
	Var string
	// Values are the words of the list form; if empty, the values are the numbers From to To.
	Values   []string
	From, To int
	Body     []Line
	// EndComment is the comment after the closing brace.
	EndComment string
}

// Manifest is a file in the archive.
type Manifest struct {
	Name string
	Data []byte
}

// Template is a line of a loop that uses the loop's variable: its step is only known for a value.
type Template struct{ tokens tokens }

// Command implements Step.
func (t Template) Command() string { return firstOf(t.tokens.words) }

// String implements Step.
func (t Template) String() string { return t.tokens.String() }

func (t Template) names(*nameVisitor) {}

// Equal reports whether the text is the same; go-cmp uses it.
func (t Template) Equal(o Template) bool { return t.String() == o.String() }

// Backends returns the backends that the file is limited to, nil if it runs everywhere.
func (f *File) Backends() []string {
	for i := range f.Lines {
		if b, ok := f.Lines[i].Step.(BackendList); ok {
			return b.Names
		}
	}
	return nil
}

// Options returns the options with the defaults of those that the file does not set.
func (f *File) Options() Options {
	o := DefaultOptions()
	for i := range f.Lines {
		if s, ok := f.Lines[i].Step.(Option); ok {
			for _, setting := range s.Settings {
				// A setting that cannot be applied was refused by Parse or Check.
				_ = o.set(setting.Key, setting.Value)
			}
		}
	}
	return o
}

// Manifest returns a file of the archive by its name.
func (f *File) Manifest(name string) ([]byte, bool) {
	for i := range f.Files {
		if f.Files[i].Name == name {
			return f.Files[i].Data, true
		}
	}
	return nil, false
}

// Format returns the file in canonical text: one blank between words, options in the order of the
// documentation, two blanks of indentation in loops, no more than one blank line together.
// Comments stay where they are.
func (f *File) Format() []byte {
	var b bytes.Buffer
	formatLines(&b, f.Lines, "")
	a := &txtar.Archive{Comment: b.Bytes()}
	for _, m := range f.Files {
		a.Files = append(a.Files, txtar.File{Name: m.Name, Data: m.Data})
	}
	return txtar.Format(a)
}

func formatLines(b *bytes.Buffer, lines []Line, indent string) {
	for i := range lines {
		l := &lines[i]
		text := l.head()
		if text != "" {
			b.WriteString(indent)
		}
		b.WriteString(text)
		b.WriteByte('\n')
		if l.Loop != nil {
			formatLines(b, l.Loop.Body, indent+"  ")
			b.WriteString(indent)
			b.WriteString(joinBlank("}", l.Loop.EndComment))
			b.WriteByte('\n')
		}
	}
}

// head returns the line without indentation; of a loop its first line.
func (l *Line) head() string {
	text := prefixes(l.Only, l.Except)
	switch {
	case l.Step != nil:
		text = joinBlank(text, l.Step.String())
	case l.Loop != nil:
		text = joinBlank(text, l.Loop.head())
	}
	return joinBlank(text, l.Comment)
}

func (l *Loop) head() string {
	over := fmt.Sprintf("%d..%d", l.From, l.To)
	if len(l.Values) > 0 {
		over = quote(strings.Join(l.Values, ","))
	}
	return fmt.Sprintf("for %s in %s {", l.Var, over)
}

// size is the number of values of the loop.
func (l *Loop) size() int {
	if len(l.Values) > 0 {
		return len(l.Values)
	}
	return l.To - l.From + 1
}

// value is the i-th value of the loop, from 0.
func (l *Loop) value(i int) string {
	if len(l.Values) > 0 {
		return l.Values[i]
	}
	return fmt.Sprint(l.From + i)
}

func prefixes(only, except []string) string {
	var p []string
	for _, o := range only {
		p = append(p, "["+o+"]")
	}
	for _, e := range except {
		p = append(p, "[!"+e+"]")
	}
	return strings.Join(p, " ")
}

func joinBlank(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}
