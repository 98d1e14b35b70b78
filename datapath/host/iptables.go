package host

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"towtank/datapath"
)

// Unmarked is the Priority of a rule that a dump found in a chain of ours without our comment:
// somebody typed it there. It is never desired.
const Unmarked = -1

// IPTables is one rule of ours, or with an empty Rule the declaration of a chain of ours.
//
// A chain of ours (TOWTANK-…) exists if and only if it is declared; a rule in an undeclared chain is
// refused, and so is the deletion of a chain that still has rules or is jumped to. Its rules are
// sorted by (Priority, Rule). In a built-in chain our rules are in front of all others, sorted the
// same way. The comment towtank-PRIORITY marks each rule and carries its priority.
type IPTables struct {
	Family   Family
	Table    string // raw, mangle, nat, filter
	Chain    string // TOWTANK-…, or a built-in chain of the table
	Priority int    // 0 to 65535
	// Rule is the rule as iptables-save prints it, without "-A CHAIN" and without our comment.
	Rule string
	// Behind is set in dumps for a rule of ours that is not in its place (behind a foreign rule in a
	// built-in chain, out of order, or there twice): the target of the rule before it. It is never
	// desired; putting the rule moves it.
	Behind string
}

// builtinChains are the chains that each table has.
var builtinChains = map[string][]string{
	"raw":    {"PREROUTING", "OUTPUT"},
	"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
	"nat":    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	"filter": {"INPUT", "FORWARD", "OUTPUT"},
}

// Tables are the iptables tables, in the order in which a packet meets them.
var Tables = []string{"raw", "mangle", "nat", "filter"}

// BuiltinChains returns the built-in chains of a table, nil if there is no such table.
func BuiltinChains(table string) []string { return slices.Clone(builtinChains[table]) }

// NewIPTables normalises the rule as iptables-save prints it and checks it. The rule must not have
// our comment: the constructor owns it.
func NewIPTables(t IPTables) (IPTables, error) {
	bad := func(format string, args ...any) (IPTables, error) {
		return IPTables{}, fmt.Errorf("iptables %s %s %s: %w", t.Family, t.Table, t.Chain, fmt.Errorf(format, args...))
	}
	if t.Family != V4 && t.Family != V6 {
		return bad("family %d: want 4 or 6", t.Family)
	}
	builtin, ok := builtinChains[t.Table]
	if !ok {
		return bad("table %q: want raw, mangle, nat or filter", t.Table)
	}
	ours := strings.HasPrefix(t.Chain, SetPrefix)
	if !ours && !slices.Contains(builtin, t.Chain) {
		return bad("chain: want %s… or a built-in chain (%s)", SetPrefix, strings.Join(builtin, ", "))
	}
	if err := checkWord("chain", t.Chain, maxChainName); err != nil {
		return bad("%w", err)
	}
	if t.Rule == "" {
		if !ours {
			return bad("a built-in chain is not declared")
		}
		if t.Priority != 0 || t.Behind != "" {
			return bad("a chain has no priority")
		}
		return t, nil
	}
	if (t.Priority < 0 || t.Priority > 65535) && (t.Priority != Unmarked || !ours) {
		return bad("priority %d: want 0 to 65535", t.Priority)
	}
	spec, err := ParseRuleSpec(t.Family, t.Rule)
	if err != nil {
		return bad("%w", err)
	}
	for _, m := range spec.Matches {
		if c, ok := m.(MatchComment); ok {
			if _, mine := PriorityOf(c.Text); mine {
				return bad("comment %s: the constructor adds it", c.Text)
			}
		}
	}
	if err := CheckPlace(spec, t.Table, t.Chain); err != nil {
		return bad("%w", err)
	}
	t.Rule = spec.String()
	return t, nil
}

// NewChain returns the declaration of a chain of ours.
func NewChain(f Family, table, chain string) (IPTables, error) {
	return NewIPTables(IPTables{Family: f, Table: table, Chain: chain})
}

// NewJump returns the rule that sends a built-in chain to a chain of ours, before all others.
func NewJump(f Family, table, builtin, chain string, priority int) (IPTables, error) {
	return NewIPTables(IPTables{Family: f, Table: table, Chain: builtin, Priority: priority, Rule: "-j " + chain})
}

// CheckPlace reports a target or match that the table or chain does not allow, as the kernel does.
// User chains are checked for the table only.
func CheckPlace(r *RuleSpec, table, chain string) error {
	in := func(chains ...string) error {
		if slices.Contains(builtinChains[table], chain) && !slices.Contains(chains, chain) {
			return fmt.Errorf("target %s is not allowed in %s", r.Target.targetArgs()[1], chain)
		}
		return nil
	}
	want := func(tables ...string) error {
		if !slices.Contains(tables, table) {
			return fmt.Errorf("target %s: only in table %s", r.Target.targetArgs()[1], strings.Join(tables, ", "))
		}
		return nil
	}
	if r.In.Name != "" && (chain == "OUTPUT" || chain == "POSTROUTING") {
		return fmt.Errorf("-i cannot be used in %s", chain)
	}
	if r.Out.Name != "" && (chain == "PREROUTING" || chain == "INPUT") {
		return fmt.Errorf("-o cannot be used in %s", chain)
	}
	for _, m := range r.Matches {
		if _, ok := m.(MatchMAC); ok && (chain == "OUTPUT" || chain == "POSTROUTING") {
			return fmt.Errorf("-m mac cannot be used in %s", chain)
		}
	}
	switch t := r.Target.(type) {
	case TargetReject:
		return want("filter")
	case TargetNotrack:
		return want("raw")
	case TargetVerdict:
		if t.Name == "DROP" && table == "nat" {
			return fmt.Errorf("table nat is not for filtering: DROP is not allowed there")
		}
	case TargetNAT:
		if err := want("nat"); err != nil {
			return err
		}
		switch t.Kind {
		case "DNAT":
			return in("PREROUTING", "OUTPUT")
		case "SNAT":
			return in("POSTROUTING", "INPUT")
		default:
			return in("POSTROUTING")
		}
	}
	return nil
}

// commentPrefix begins the comment of each rule of ours.
const commentPrefix = "towtank-"

var commentPattern = regexp.MustCompile(`^` + commentPrefix + `(0|[1-9][0-9]{0,4})$`)

// PriorityOf returns the priority that a comment of ours carries; ok is false for other comments.
func PriorityOf(comment string) (priority int, ok bool) {
	m := commentPattern.FindStringSubmatch(comment)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil && n <= 65535
}

// Spec returns the rule as it is on the node: with our comment before the target. It is nil for a
// chain.
func (t IPTables) Spec() *RuleSpec {
	if t.Rule == "" {
		return nil
	}
	spec, err := ParseRuleSpec(t.Family, t.Rule)
	if err != nil {
		return nil // not made by NewIPTables
	}
	if t.Priority != Unmarked {
		spec.Matches = append(spec.Matches, MatchComment{commentPrefix + strconv.Itoa(t.Priority)})
	}
	return spec
}

// FromSpec returns the object that a rule on the node is; ok is false if it is not ours.
func FromSpec(table, chain string, spec *RuleSpec) (t IPTables, ok bool) {
	t = IPTables{Family: spec.Family, Table: table, Chain: chain, Priority: Unmarked}
	bare := *spec
	bare.Matches = nil
	for _, m := range spec.Matches {
		if c, isComment := m.(MatchComment); isComment {
			if p, mine := PriorityOf(c.Text); mine && t.Priority == Unmarked {
				t.Priority = p
				continue
			}
		}
		bare.Matches = append(bare.Matches, m)
	}
	t.Rule = bare.String()
	return t, t.Priority != Unmarked || strings.HasPrefix(chain, SetPrefix)
}

// Compare orders the rules of a chain.
func (t IPTables) Compare(o IPTables) int {
	if c := t.Priority - o.Priority; c != 0 {
		return c
	}
	return strings.Compare(t.Rule, o.Rule)
}

// ParseIPTables reads the text of an IPTables.
func ParseIPTables(text string) (IPTables, error) {
	bad := func() (IPTables, error) {
		return IPTables{}, fmt.Errorf("iptables %q: want iptables|ip6tables -t TABLE -A|-N CHAIN RULE", text)
	}
	w, err := SplitWords(text)
	if err != nil {
		return IPTables{}, err
	}
	if len(w) < 5 || w[1] != "-t" || w[3] != "-A" && w[3] != "-N" {
		return bad()
	}
	t := IPTables{Family: V4, Table: w[2], Chain: w[4]}
	switch w[0] {
	case "iptables":
	case "ip6tables":
		t.Family = V6
	default:
		return bad()
	}
	rest := w[5:]
	if w[3] == "-N" {
		if len(rest) != 0 {
			return bad()
		}
		return NewIPTables(t)
	}
	if n := len(rest); n > 3 && rest[n-3] == "#" && rest[n-2] == "behind" {
		t.Behind = rest[n-1]
		rest = rest[:n-3]
	}
	spec, err := ParseRuleWords(t.Family, rest)
	if err != nil {
		return IPTables{}, err
	}
	o, ok := FromSpec(t.Table, t.Chain, spec)
	if !ok {
		return IPTables{}, fmt.Errorf("iptables %q: no comment %sPRIORITY", text, commentPrefix)
	}
	o.Behind = t.Behind
	return NewIPTables(o)
}

// Kind returns datapath.KindIPTables.
func (IPTables) Kind() datapath.Kind { return datapath.KindIPTables }

// Key is family, table and chain, and for a rule its priority and text: a changed rule is another
// rule.
func (t IPTables) Key() datapath.Key {
	name := t.Family.String() + " " + t.Table + " " + t.Chain
	if t.Rule != "" {
		name += " " + strconv.Itoa(t.Priority) + " " + t.Rule
	}
	return datapath.Key{Kind: datapath.KindIPTables, Name: name}
}

// String returns the command that makes the chain or appends the rule.
func (t IPTables) String() string {
	cmd := "iptables"
	if t.Family == V6 {
		cmd = "ip6tables"
	}
	if t.Rule == "" {
		return cmd + " -t " + t.Table + " -N " + t.Chain
	}
	rule := t.Rule
	if spec := t.Spec(); spec != nil {
		rule = spec.String()
	}
	s := cmd + " -t " + t.Table + " -A " + t.Chain + " " + rule
	if t.Behind != "" {
		s += " # behind " + t.Behind
	}
	return s
}
