package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"towtank/datapath/host"
)

// nfTable is one iptables table of one family.
type nfTable struct {
	fam    host.Family
	name   string
	chains map[string]*chain
}

// chain is a chain; rules are never changed in place, so that a rebuilt chain replaces the old one at
// once.
type chain struct {
	name    string
	builtin bool
	policy  string // of a built-in chain
	rules   []*rule
}

// rule is a rule with what its names refer to.
type rule struct {
	spec *host.RuleSpec
	text string
	sets []*ipset // one for each match; nil for other matches
	jump *chain
}

// The texts of iptables.
var (
	errNoChain     = said("No chain/target/match by that name.")
	errChainExists = said("Chain already exists.")
	errBadRule     = said("Bad rule (does a matching rule exist in that chain?).")
	errChainFull   = said("Directory not empty")
	errChainUsed   = said("Too many links")
	errLoop        = said("Too many levels of symbolic links: the chains jump in a circle")
	errBuiltin     = errors.New("a built-in chain can be neither made nor deleted") // iptables has several texts for it
	errNoPolicy    = said("Bad built-in chain name. A policy belongs to a built-in chain only")
)

func newTables() map[string]*nfTable { return map[string]*nfTable{} }

// nf returns a table, with its built-in chains.
func (n *Netns) nf(f host.Family, table string) (*nfTable, error) {
	m := n.state(f).nf
	if t := m[table]; t != nil {
		return t, nil
	}
	builtin := host.BuiltinChains(table)
	if builtin == nil {
		return nil, fmt.Errorf("can't initialize iptables table %q: Table does not exist (raw, mangle, nat, filter do)", table)
	}
	t := &nfTable{fam: f, name: table, chains: map[string]*chain{}}
	for _, c := range builtin {
		t.chains[c] = &chain{name: c, builtin: true, policy: "ACCEPT"}
	}
	m[table] = t
	return t, nil
}

// bind resolves the names in a rule.
func (n *Netns) bind(t *nfTable, spec *host.RuleSpec) (*rule, error) {
	r := &rule{spec: spec, text: spec.String(), sets: make([]*ipset, len(spec.Matches))}
	for i, m := range spec.Matches {
		ms, ok := m.(host.MatchSet)
		if !ok {
			continue
		}
		s := n.sets[ms.Name]
		if s == nil {
			return nil, said(fmt.Sprintf("Set %s doesn't exist", ms.Name))
		}
		if s.Family != t.fam {
			return nil, fmt.Errorf("set %s is of family %s", ms.Name, s.Family)
		}
		if want := strings.Count(string(s.Type), ",") + 1; len(ms.Dirs) != want {
			return nil, fmt.Errorf("set %s has type %s: want %d of src and dst, found %s", ms.Name, s.Type, want, strings.Join(ms.Dirs, ","))
		}
		r.sets[i] = s
	}
	return r, nil
}

// chainEdit is a transaction on one table: chains are replaced all at once, or not at all.
type chainEdit struct {
	n      *Netns
	t      *nfTable
	rules  map[string][]*rule // new rules of changed chains
	gone   map[string]bool    // deleted chains
	policy map[string]string  // changed policies
}

func (n *Netns) edit(t *nfTable) *chainEdit {
	return &chainEdit{n, t, map[string][]*rule{}, map[string]bool{}, map[string]string{}}
}

func (e *chainEdit) exists(name string) bool {
	_, changed := e.rules[name]
	return changed || e.t.chains[name] != nil && !e.gone[name]
}

func (e *chainEdit) rulesOf(name string) []*rule {
	if r, ok := e.rules[name]; ok {
		return r
	}
	if c := e.t.chains[name]; c != nil && !e.gone[name] {
		return c.rules
	}
	return nil
}

func (e *chainEdit) create(name string) error {
	if e.exists(name) {
		return fmt.Errorf("chain %s: %w", name, errChainExists)
	}
	e.rules[name] = nil
	delete(e.gone, name) // those who jump there keep the chain
	return nil
}

func (e *chainEdit) remove(name string) error {
	switch c := e.t.chains[name]; {
	case !e.exists(name):
		return fmt.Errorf("chain %s: %w", name, errNoChain)
	case c != nil && c.builtin:
		return fmt.Errorf("chain %s: %w", name, errBuiltin)
	case len(e.rulesOf(name)) > 0:
		return fmt.Errorf("chain %s: %w", name, errChainFull)
	}
	if e.t.chains[name] == nil {
		delete(e.rules, name)
		return nil
	}
	delete(e.rules, name)
	e.gone[name] = true
	return nil
}

func (e *chainEdit) set(name string, rules []*rule) error {
	if !e.exists(name) {
		return fmt.Errorf("chain %s: %w", name, errNoChain)
	}
	e.rules[name] = rules
	return nil
}

// names returns every chain after the edit, sorted.
func (e *chainEdit) names() []string {
	var out []string
	for name := range e.t.chains {
		if !e.gone[name] {
			out = append(out, name)
		}
	}
	for name := range e.rules {
		if e.t.chains[name] == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// commit checks what the kernel checks (targets exist, no circles, no reference to a deleted chain,
// targets allowed at the hooks from which they are reached) and replaces the chains.
func (e *chainEdit) commit() error {
	for _, name := range slices.Sorted(maps.Keys(e.rules)) {
		for _, r := range e.rules[name] {
			if to := r.spec.JumpsTo(); to != "" && !e.exists(to) {
				return fmt.Errorf("chain %s: rule %q: chain %s: %w", name, r.text, to, errNoChain)
			}
		}
	}
	if len(e.gone) > 0 {
		for _, name := range e.names() {
			for _, r := range e.rulesOf(name) {
				if to := r.spec.JumpsTo(); e.gone[to] {
					return fmt.Errorf("chain %s: %w (chain %s jumps there)", to, errChainUsed, name)
				}
			}
		}
	}
	for _, name := range e.names() {
		if c := e.t.chains[name]; c != nil && c.builtin {
			if err := e.walk(name, name, map[string]int{}); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.rules)) { // circles among chains that nothing reaches
		if err := e.walk(name, "", map[string]int{}); err != nil {
			return err
		}
	}
	e.replace()
	return nil
}

// walk visits what a hook reaches. In seen, 1 is on the way, 2 is done.
func (e *chainEdit) walk(name, hook string, seen map[string]int) error {
	switch seen[name] {
	case 1:
		return fmt.Errorf("chain %s: %w", name, errLoop)
	case 2:
		return nil
	}
	seen[name] = 1
	for _, r := range e.rulesOf(name) {
		if err := host.CheckPlace(r.spec, e.t.name, hook); err != nil {
			return fmt.Errorf("chain %s: rule %q: %w", name, r.text, err)
		}
		if to := r.spec.JumpsTo(); to != "" {
			if err := e.walk(to, hook, seen); err != nil {
				return err
			}
		}
	}
	seen[name] = 2
	return nil
}

func (e *chainEdit) replace() {
	for _, name := range slices.Sorted(maps.Keys(e.gone)) {
		countSets(e.t.chains[name].rules, -1)
		delete(e.t.chains, name)
	}
	for _, name := range slices.Sorted(maps.Keys(e.policy)) {
		e.t.chains[name].policy = e.policy[name]
	}
	changed := slices.Sorted(maps.Keys(e.rules))
	for _, name := range changed {
		c := e.t.chains[name]
		if c == nil {
			c = &chain{name: name}
			e.t.chains[name] = c
		}
		countSets(c.rules, -1)
		c.rules = e.rules[name]
		countSets(c.rules, 1)
	}
	for _, name := range changed { // a chain of the same name may have been made anew
		for _, r := range e.t.chains[name].rules {
			if to := r.spec.JumpsTo(); to != "" {
				r.jump = e.t.chains[to]
			}
		}
	}
}

func countSets(rules []*rule, d int) {
	for _, r := range rules {
		for _, s := range r.sets {
			if s != nil {
				s.refs += d
			}
		}
	}
}

// pristine reports whether a table is as it is made: nothing in it, every policy ACCEPT.
func (t *nfTable) pristine() bool {
	for _, c := range t.ordered() {
		if !c.builtin || len(c.rules) > 0 || c.policy != "ACCEPT" {
			return false
		}
	}
	return true
}

// iptablesSave prints the tables of a family as iptables-save does, without counters and without tables
// that nobody has put anything in.
func (n *Netns) iptablesSave(f host.Family) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(n.state(f).nf)) {
		t := n.state(f).nf[name]
		if t.pristine() {
			continue
		}
		b.WriteString("*" + name + "\n")
		chains := t.ordered()
		for _, c := range chains {
			policy := "-"
			if c.builtin {
				policy = c.policy
			}
			b.WriteString(":" + c.name + " " + policy + " [0:0]\n")
		}
		for _, c := range chains {
			for _, r := range c.rules {
				b.WriteString(strings.TrimSpace("-A "+c.name+" "+r.text) + "\n")
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// ordered returns the built-in chains, then the others sorted.
func (t *nfTable) ordered() []*chain {
	var out []*chain
	for _, name := range host.BuiltinChains(t.name) {
		out = append(out, t.chains[name])
	}
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		if c := t.chains[name]; !c.builtin {
			out = append(out, c)
		}
	}
	return out
}
