package lang

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"towtank/internal/spelling"
)

// args are the words of one command while it is parsed. Mistakes are collected, so that all of a
// line are reported.
type args struct {
	command *command
	words   []string
	rest    string
	hasRest bool
	pos     int
	errs    []string
	nodes   []string // that there are, for hints
}

func newArgs(t tokens) *args {
	a := &args{words: t.words, rest: t.rest, hasRest: t.hasRest}
	if a.command = commandNamed(firstOf(t.words)); a.command != nil {
		a.pos = 1
	}
	return a
}

// parse returns the step, or nil if there are mistakes.
func (a *args) parse() Step {
	if a.command == nil {
		word := firstOf(a.words)
		a.failf("unknown command %q%s", word, hint(word, commandNames()))
		return nil
	}
	step := a.command.parse(a)
	if len(a.errs) == 0 && a.pos < len(a.words) {
		a.failf("unexpected %q; usage: %s", a.words[a.pos], a.command.usage)
	}
	if len(a.errs) > 0 {
		return nil
	}
	return step
}

// failf adds a mistake; the command's name is put before it.
func (a *args) failf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if a.command != nil {
		text = a.command.name + ": " + text
	}
	a.errs = append(a.errs, text)
}

// left reports whether there are more words.
func (a *args) left() bool { return a.pos < len(a.words) }

// next takes a word; it is a mistake if there is none.
func (a *args) next(what string) (string, bool) {
	if !a.left() {
		if len(a.errs) == 0 { // else it is a consequence
			a.failf("%s is missing; usage: %s", what, a.command.usage)
		}
		return "", false
	}
	a.pos++
	return a.words[a.pos-1], true
}

// take parses the next word; what names it in errors.
func take[T any](a *args, what string, parse func(string) (T, error)) (v T) {
	w, ok := a.next(what)
	if !ok {
		return v
	}
	v, err := parse(w)
	if err != nil {
		a.failf("%s: %v", what, err)
	}
	return v
}

// literal takes a word that must be there.
func (a *args) literal(word string) {
	if w, ok := a.next(word); ok && w != word {
		a.failf("found %q instead of %q; usage: %s", w, word, a.command.usage)
	}
}

// optional takes the next word if it is this.
func (a *args) optional(word string) bool {
	if a.left() && a.words[a.pos] == word {
		a.pos++
		return true
	}
	return false
}

// option is KEY=VALUE, or a bare word.
type option struct {
	name string
	ops  string // the operators allowed, separated by blanks; empty for a bare word
	set  func(op, value string) error
}

// opt is an option KEY=VALUE.
func opt(name string, set func(value string) error) option {
	return option{name: name, ops: "=", set: func(_, v string) error { return set(v) }}
}

// bare is an option without a value.
func bare(name string, set func() error) option {
	return option{name: name, set: func(_, _ string) error { return set() }}
}

// keyOpValue splits at the first of =, != and <=.
func keyOpValue(word string) (key, op, value string) {
	i := strings.IndexByte(word, '=')
	switch {
	case i < 0:
		return word, "", ""
	case i > 0 && (word[i-1] == '!' || word[i-1] == '<'):
		return word[:i-1], word[i-1 : i+1], word[i+1:]
	}
	return word[:i], "=", word[i+1:]
}

// options takes the words up to "expect" or the end as options.
func (a *args) options(opts []option) { a.optionsOr(opts, nil) }

// optionsOr is options; a KEY=VALUE of another key goes to other (labels), if that is not nil.
func (a *args) optionsOr(opts []option, other func(key, value string) error) {
	var given []string
	for a.left() && a.words[a.pos] != "expect" {
		word := a.words[a.pos]
		a.pos++
		key, op, value := keyOpValue(word)
		i := slices.IndexFunc(opts, func(o option) bool { return o.name == key })
		var err error
		switch {
		case i < 0 && other != nil && op == "=":
			if err = a.mistaken(key, opts); err == nil {
				err = other(strings.TrimPrefix(key, "label:"), value)
			}
		case i < 0 && op == "" && spelling.Closest(word, []string{"expect"}) != "":
			err = fmt.Errorf("unknown word %q; did you mean \"expect\"?", word)
			a.pos = len(a.words) // what follows are its expectations
		case i < 0:
			err = unknownOption(word, key, opts)
		case slices.Contains(given, key):
			err = fmt.Errorf("%s is given twice", key)
		case opts[i].ops == "" && op != "":
			err = fmt.Errorf("found %q, allowed: %s without a value", word, key)
		case opts[i].ops != "" && !slices.Contains(strings.Fields(opts[i].ops), op):
			err = fmt.Errorf("found %q, allowed: %s", word, optionNames(opts[i:i+1]))
		default:
			given = append(given, key)
			if err = opts[i].set(op, value); err != nil && opts[i].ops != "" {
				err = fmt.Errorf("%s: %w", key, err)
			}
		}
		if err != nil {
			a.failf("%v", err)
		}
	}
}

func unknownOption(word, key string, opts []option) error {
	var names []string
	for _, o := range opts {
		names = append(names, o.name)
	}
	if len(opts) == 0 {
		return fmt.Errorf("unexpected %q", word)
	}
	return fmt.Errorf("unknown option %q%s allowed: %s", word, hint(key, names), optionNames(opts))
}

// mistaken refuses a label whose key is nearly an option's name: more likely a slip than a label.
func (a *args) mistaken(key string, opts []option) error {
	for _, o := range opts {
		if len(o.name) >= 4 && !strings.HasPrefix(key, "label:") && spelling.Distance(strings.ToLower(key), strings.ToLower(o.name)) <= 1 {
			return fmt.Errorf("unknown option %q; did you mean %q? A label of this name is written label:%s=…", key, o.name, key)
		}
	}
	return nil
}

// optionNames lists options for errors.
func optionNames(opts []option) string {
	var names []string
	for _, o := range opts {
		if o.ops == "" {
			names = append(names, o.name)
		}
		for _, op := range strings.Fields(o.ops) {
			names = append(names, o.name+op+"…")
		}
	}
	return strings.Join(names, ", ")
}

// checkLabel validates a label or, as Kubernetes does, its key only for an annotation.
func checkLabel(key, value string, annotation bool) error {
	if e := validation.IsQualifiedName(key); len(e) > 0 {
		return fmt.Errorf("label key %q: %s%s", key, e[0], variableHint(key))
	}
	if annotation {
		return nil
	}
	if e := validation.IsValidLabelValue(value); len(e) > 0 {
		return fmt.Errorf("value %q of label %s: %s%s", value, key, e[0], variableHint(value))
	}
	return nil
}

// labels collects labels that have distinct keys.
func labels(list *[]KeyValue) func(key, value string) error {
	return func(key, value string) error {
		if slices.ContainsFunc(*list, func(kv KeyValue) bool { return kv.Key == key }) {
			return fmt.Errorf("label %s is given twice", key)
		}
		*list = append(*list, KeyValue{key, value})
		return checkLabel(key, value, false)
	}
}

// labels prints labels; one whose key is, or nearly is, an option of the command gets label: before it.
func (p *printer) labels(list []KeyValue, options ...string) {
	for _, kv := range list {
		key := kv.Key
		for _, o := range options {
			if key == o || len(o) >= 4 && spelling.Distance(strings.ToLower(key), strings.ToLower(o)) <= 1 {
				key = "label:" + kv.Key
				break
			}
		}
		p.raw(quoteOption(key, "=", kv.Value))
	}
}
