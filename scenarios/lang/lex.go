package lang

import (
	"fmt"
	"regexp"
	"strings"
)

// lexer takes the words of one line. A word ends at a blank outside double quotes; quotes may be
// anywhere in a word and are not part of it; in quotes \" and \\ are a quote and a backslash.
type lexer struct {
	text string
	pos  int
}

func (l *lexer) skipBlanks() {
	for l.pos < len(l.text) && (l.text[l.pos] == ' ' || l.text[l.pos] == '\t') {
		l.pos++
	}
}

// next returns the next word; ok is false at the end of the line and at a comment.
func (l *lexer) next() (word string, ok bool, err error) {
	l.skipBlanks()
	if l.pos == len(l.text) || l.text[l.pos] == '#' {
		return "", false, nil
	}
	var b strings.Builder
	quoted := false
	start := l.pos
	for ; l.pos < len(l.text); l.pos++ {
		c := l.text[l.pos]
		switch {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			if l.pos++; l.pos == len(l.text) || (l.text[l.pos] != '"' && l.text[l.pos] != '\\') {
				return "", false, fmt.Errorf(`in %s: after \ in quotes only " or \ may follow`, l.text[start:])
			}
			b.WriteByte(l.text[l.pos])
		case !quoted && (c == ' ' || c == '\t'):
			return b.String(), true, nil
		default:
			b.WriteByte(c)
		}
	}
	if quoted {
		return "", false, fmt.Errorf("%s: the quote is not closed", l.text[start:])
	}
	return b.String(), true, nil
}

// rest returns everything that is left, as it is written.
func (l *lexer) rest() string {
	l.skipBlanks()
	s := strings.TrimRight(l.text[l.pos:], " \t")
	l.pos = len(l.text)
	return s
}

// comment returns the comment that the line ends with, or "".
func (l *lexer) comment() string {
	l.skipBlanks()
	return strings.TrimRight(l.text[l.pos:], " \t")
}

// quote returns a word as it must be written to be read back.
func quote(word string) string {
	if word != "" && word[0] != '#' && !strings.ContainsAny(word, " \t\"") {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// quoteOption returns KEY=VALUE with VALUE quoted if it needs it.
func quoteOption(key, op, value string) string {
	if value == "" {
		return quote(key + op)
	}
	if strings.ContainsAny(key, " \t\"#") {
		return quote(key + op + value)
	}
	return key + op + quote(value)
}

// tokens are the words of a command, and the rest of the line for commands that take it literally.
type tokens struct {
	words   []string
	rest    string
	hasRest bool
}

// restAfter is the number of words after which a command takes the rest of the line literally.
var restAfter = map[string]int{"patch": 3, "host": 3}

// lex splits a command into tokens; the lexer stands at its first word.
func lex(l *lexer) (tokens, error) {
	var t tokens
	for {
		if n, ok := restAfter[firstOf(t.words)]; ok && len(t.words) == n {
			t.rest, t.hasRest = l.rest(), true
			return t, nil
		}
		w, ok, err := l.next()
		if err != nil || !ok {
			return t, err
		}
		t.words = append(t.words, w)
	}
}

func firstOf(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

// String returns the tokens in canonical text.
func (t tokens) String() string {
	var p printer
	for _, w := range t.words {
		if key, value, ok := strings.Cut(w, "="); ok {
			p.raw(quoteOption(key, "=", value))
		} else {
			p.word(w)
		}
	}
	if t.hasRest && t.rest != "" {
		p.raw(t.rest)
	}
	return p.String()
}

var variable = regexp.MustCompile(`\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)

// substitute replaces $VAR and ${VAR} by the values of the variables of the enclosing loops; what
// is no such variable stays.
func substitute(s string, vars []Binding) string {
	if len(vars) == 0 || !strings.Contains(s, "$") {
		return s
	}
	return variable.ReplaceAllStringFunc(s, func(m string) string {
		name := strings.Trim(m, "${}")
		for _, v := range vars {
			if v.Var == name {
				return v.Value
			}
		}
		return m
	})
}

// uses reports whether the tokens contain one of the variables.
func (t tokens) uses(vars []string) bool {
	uses := func(s string) bool {
		for _, m := range variable.FindAllStringSubmatch(s, -1) {
			for _, v := range vars {
				if m[1]+m[2] == v {
					return true
				}
			}
		}
		return false
	}
	for _, w := range t.words {
		if uses(w) {
			return true
		}
	}
	return uses(t.rest)
}

func (t tokens) substitute(vars []Binding) tokens {
	out := tokens{words: make([]string, len(t.words)), rest: substitute(t.rest, vars), hasRest: t.hasRest}
	for i, w := range t.words {
		out.words[i] = substitute(w, vars)
	}
	return out
}

// printer writes the words of a command.
type printer struct{ b strings.Builder }

// raw adds text that is already quoted.
func (p *printer) raw(s string) {
	if p.b.Len() > 0 {
		p.b.WriteByte(' ')
	}
	p.b.WriteString(s)
}

// word adds words, quoted where they need it.
func (p *printer) word(words ...string) {
	for _, w := range words {
		p.raw(quote(w))
	}
}

// opt adds KEY=VALUE unless the value is empty.
func (p *printer) opt(key, value string) {
	if value != "" {
		p.raw(quoteOption(key, "=", value))
	}
}

// num adds KEY=N unless N is 0.
func (p *printer) num(key string, n int) {
	if n != 0 {
		p.opt(key, fmt.Sprint(n))
	}
}

// flag adds a bare word if it is set.
func (p *printer) flag(name string, set bool) {
	if set {
		p.raw(name)
	}
}

func (p *printer) String() string { return p.b.String() }
