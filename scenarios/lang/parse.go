package lang

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
)

// Parse reads a scenario file and checks everything that can be known before it runs. name is for
// errors. The error, if any, is of type Errors: all mistakes of the file, up to MaxErrors.
func Parse(name string, data []byte) (*File, error) {
	a := txtar.Parse(bytes.ReplaceAll(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\r\n"), []byte("\n")))
	if i := bytes.IndexByte(a.Comment, 0); i >= 0 {
		// One error, not one for each line.
		return nil, Errors{{File: name, Line: bytes.Count(a.Comment[:i], []byte("\n")) + 1, Text: "found a byte 0: this is no text in UTF-8"}}
	}
	p := &parser{name: name, lines: strings.Split(strings.TrimSuffix(string(a.Comment), "\n"), "\n")}
	f := &File{Name: name, Lines: p.block(nil, 0)}
	number := len(p.lines)
	for _, m := range a.Files {
		number++
		if _, twice := f.Manifest(m.Name); twice {
			p.errors.add(name, 0, "-- %s --: the archive has two files of this name", m.Name)
			continue
		}
		f.Files = append(f.Files, Manifest{m.Name, m.Data})
	}
	if err := p.errors.err(); err != nil {
		return nil, err
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	return f, nil
}

type parser struct {
	name   string
	lines  []string
	next   int // index of the next line
	errors errorList
	told   bool // the commands that there are have been named
	ended  bool // what follows is no scenario
	nodes  []string
}

func (p *parser) failf(number int, format string, v ...any) {
	p.errors.add(p.name, number, format, v...)
}

// block reads lines up to the end, or to the brace that closes the loop opened on line opened.
func (p *parser) block(loop *Loop, opened int, vars ...string) []Line {
	var out []Line
	for p.next < len(p.lines) {
		text, number := strings.Trim(p.lines[p.next], " \t"), p.next+1
		p.next++
		if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r == utf8.RuneError }); i >= 0 {
			p.failf(number, "found a control character or a byte that is not UTF-8 at column %d", i+1)
			continue
		}
		if text == "}" || strings.HasPrefix(text, "} ") || strings.HasPrefix(text, "}\t") || strings.HasPrefix(text, "}#") {
			if loop == nil {
				p.failf(number, "} without a for")
				continue
			}
			loop.EndComment = strings.Trim(text[1:], " \t")
			if loop.EndComment != "" && loop.EndComment[0] != '#' {
				p.failf(number, "unexpected %q after }", loop.EndComment)
			}
			return trimBlank(out)
		}
		if strings.HasPrefix(text, "--") {
			// What follows was meant as a file: an error for each line of it would hide this one.
			p.failf(number, "found %q, allowed before a file: -- NAME --, at the start of the line", shortened(text))
			p.next, p.ended = len(p.lines), true
			break
		}
		line := p.parseLine(number, text, vars)
		if line.Loop != nil {
			line.Loop.Body = p.block(line.Loop, number, append(slices.Clip(vars), line.Loop.Var)...)
		}
		if line.blank() && len(out) > 0 && out[len(out)-1].blank() {
			continue
		}
		out = append(out, line)
	}
	if loop != nil && !p.ended {
		p.failf(opened, "for %s: the closing } is missing", loop.Var)
	}
	return trimBlank(out)
}

func (l *Line) blank() bool { return l.Step == nil && l.Loop == nil && l.Comment == "" }

// trimBlank removes blank lines at both ends.
func trimBlank(lines []Line) []Line {
	for len(lines) > 0 && lines[0].blank() {
		lines = lines[1:]
	}
	for len(lines) > 0 && lines[len(lines)-1].blank() {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// parseLine reads one line; vars are the variables of the enclosing loops.
func (p *parser) parseLine(number int, text string, vars []string) Line {
	line := Line{Number: number}
	lx := &lexer{text: text}
	p.prefixes(&line, lx)
	t, err := lex(lx)
	if err != nil {
		p.failf(number, "%v", err)
		return line
	}
	line.Comment = lx.comment()
	switch {
	case len(t.words) == 0:
		if len(line.Only)+len(line.Except) > 0 {
			p.failf(number, "a command is missing after %s", prefixes(line.Only, line.Except))
		}
	case t.words[0] == "for":
		line.Loop = p.loop(number, t.words[1:], vars)
	case t.uses(vars) && commandNamed(t.words[0]) != nil:
		line.Step = Template{t}
	default:
		a := newArgs(t)
		a.nodes = p.nodes
		line.Step = a.parse()
		if n, ok := line.Step.(Nodes); ok {
			p.nodes = append(p.nodes, n.Names...)
		}
		if a.command == nil && !p.told {
			p.told = true // once in a file is enough
			a.errs[0] += " allowed: " + strings.Join(commandNames(), ", ")
		}
		for _, e := range a.errs {
			p.failf(number, "%s", strings.TrimSuffix(e, ";"))
		}
	}
	return line
}

// prefixes reads the [NAME] and [!NAME] that a line begins with.
func (p *parser) prefixes(line *Line, lx *lexer) {
	for {
		lx.skipBlanks()
		rest := lx.text[lx.pos:]
		end := strings.IndexByte(rest, ']')
		if !strings.HasPrefix(rest, "[") || end < 0 {
			return
		}
		lx.pos += end + 1
		name, not := strings.CutPrefix(rest[1:end], "!")
		if _, err := oneOf(name, Backends...); err != nil {
			p.failf(line.Number, "prefix [%s]: %v, each also with !", rest[1:end], err)
			continue
		}
		list := &line.Only
		if not {
			list = &line.Except
		}
		if slices.Contains(*list, name) {
			p.failf(line.Number, "prefix [%s] is given twice", rest[1:end])
			continue
		}
		*list = append(*list, name)
	}
}

const forUsage = "for VAR in A..B | W,W,… {"

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	numberRange  = regexp.MustCompile(`^(-?[0-9]+)\.\.(-?[0-9]+)$`)
)

// loop reads the words after for. It returns a loop even if there is a mistake, so that the lines up
// to its brace are read as its body.
func (p *parser) loop(number int, words []string, vars []string) *Loop {
	l := &Loop{Var: firstOf(words)}
	if len(words) != 4 || words[1] != "in" || words[3] != "{" {
		p.failf(number, "for: usage: %s", forUsage)
		return l
	}
	if !variableName.MatchString(l.Var) {
		p.failf(number, "for: found %q as the variable, allowed: letters, digits and _", l.Var)
	}
	if slices.Contains(vars, l.Var) {
		p.failf(number, "for: the enclosing loop already has a variable %s", l.Var)
	}
	if m := numberRange.FindStringSubmatch(words[2]); m != nil {
		var err1, err2 error
		l.From, err1 = strconv.Atoi(m[1])
		l.To, err2 = strconv.Atoi(m[2])
		if err1 != nil || err2 != nil || l.From > l.To || l.From < -maxCount || l.To > maxCount {
			p.failf(number, "for %s: found %q, allowed: A..B with A not above B, both at most %d", l.Var, words[2], maxCount)
			l.From, l.To = 0, 0
		}
		return l
	}
	l.Values = strings.Split(words[2], ",")
	if slices.Contains(l.Values, "") || strings.Contains(words[2], "..") {
		p.failf(number, "for %s: found %q, allowed: A..B with numbers, or W,W,…", l.Var, words[2])
	}
	return l
}

// Check reports everything that can be known to be wrong before the scenario runs: of a file that
// was read, and of one that was built. The error, if any, is of type Errors.
func (f *File) Check() error {
	c := &checker{file: f}
	c.check()
	return c.errors.err()
}

// place describes an instance in errors.
func (in *Instance) place() string {
	if len(in.Iter) == 0 {
		return ""
	}
	return fmt.Sprintf(" (with %s)", describe(in.Iter))
}
