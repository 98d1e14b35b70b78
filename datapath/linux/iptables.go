//go:build linux

package linux

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"towtank/datapath"
	"towtank/datapath/host"
)

// tool is the name of iptables of a family; it has a -save and a -restore.
func tool(f host.Family) string {
	if f == host.V6 {
		return "ip6tables"
	}
	return "iptables"
}

// liveRule is a rule as iptables-save prints it, without "-A CHAIN". spec is nil if it has what we have
// no words for: then it is somebody else's.
type liveRule struct {
	text string
	spec *host.RuleSpec
}

// liveTable holds the chains of a table and their rules.
type liveTable map[string][]liveRule

// save reads all tables of a family.
func save(f host.Family) (map[string]liveTable, error) {
	text, err := command("", tool(f)+"-save")
	if err != nil {
		return nil, err
	}
	out := map[string]liveTable{}
	var t liveTable
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			t = liveTable{}
			out[line[1:]] = t
		case strings.HasPrefix(line, ":"):
			if name, _, ok := strings.Cut(line[1:], " "); ok && t != nil {
				t[name] = nil
			}
		case strings.HasPrefix(line, "-A ") && t != nil:
			chain, rule, _ := strings.Cut(line[3:], " ")
			r := liveRule{text: rule}
			if spec, err := host.ParseRuleSpec(f, rule); err == nil {
				r.spec = spec
			}
			t[chain] = append(t[chain], r)
		}
	}
	return out, nil
}

func dumpTables(map[int]string) ([]datapath.Object, error) {
	var out []datapath.Object
	for _, f := range families() {
		tables, err := save(f)
		if err != nil {
			return nil, err
		}
		for _, name := range host.Tables {
			t := tables[name]
			for _, chain := range slices.Sorted(maps.Keys(t)) {
				if strings.HasPrefix(chain, host.SetPrefix) {
					out = append(out, host.IPTables{Family: f, Table: name, Chain: chain})
				}
				specs := make([]*host.RuleSpec, len(t[chain]))
				for i, r := range t[chain] {
					specs[i] = r.spec
				}
				for _, o := range host.DumpChain(name, chain, specs) {
					out = append(out, o)
				}
			}
		}
	}
	return out, nil
}

// tableBatch is the ops on one table.
type tableBatch struct {
	family host.Family
	table  string
	ops    []int
}

func batch(list []*tableBatch, o host.IPTables, op int) []*tableBatch {
	for _, b := range list {
		if b.family == o.Family && b.table == o.Table {
			b.ops = append(b.ops, op)
			return list
		}
	}
	return append(list, &tableBatch{o.Family, o.Table, []int{op}})
}

// apply applies the ops in one transaction; if the kernel refuses it, each for itself, chains before
// rules and removals last, to find those that it refuses.
func (b *tableBatch) apply(ops []datapath.Op, errs []error) {
	err := b.restore(ops, errs, b.ops)
	if err == nil {
		return
	}
	if len(b.ops) == 1 {
		errs[b.ops[0]] = err
		return
	}
	order := slices.Clone(b.ops)
	slices.SortStableFunc(order, func(i, j int) int { return turn(ops[i]) - turn(ops[j]) })
	for _, i := range order {
		if errs[i] == nil {
			errs[i] = b.restore(ops, errs, []int{i})
		}
	}
}

// turn orders ops that depend on each other.
func turn(op datapath.Op) int {
	chain := object(op).(host.IPTables).Rule == ""
	switch {
	case chain && !op.Delete():
		return 0
	case !chain && op.Delete():
		return 2
	case chain:
		return 3
	}
	return 1
}

// restore makes one transaction of the given ops. What can be told to be wrong without the kernel is
// written to errs and left out.
func (b *tableBatch) restore(ops []datapath.Op, errs []error, list []int) error {
	tables, err := save(b.family)
	if err != nil {
		return err
	}
	live := tables[b.table]
	if live == nil {
		live = liveTable{}
	}
	exists := map[string]bool{}
	for _, c := range host.BuiltinChains(b.table) {
		exists[c] = true
	}
	for c := range live {
		exists[c] = true
	}
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	var chains, gone []string
	for _, i := range list {
		if o := object(ops[i]).(host.IPTables); o.Rule == "" {
			switch {
			case !ops[i].Delete() && !exists[o.Chain]:
				exists[o.Chain] = true
				chains = append(chains, o.Chain)
			case ops[i].Delete() && exists[o.Chain]:
				gone = append(gone, o.Chain)
			}
		}
	}
	type change struct {
		del map[string]bool
		add []host.IPTables
	}
	changes := map[string]*change{}
	for _, i := range list {
		for _, x := range []datapath.Object{ops[i].Old, ops[i].New} {
			o, ok := x.(host.IPTables)
			if !ok || o.Rule == "" {
				continue
			}
			if !exists[o.Chain] {
				if !ops[i].Delete() && x == ops[i].New {
					errs[i] = fmt.Errorf("chain %s is not declared", o.Chain)
				}
				continue
			}
			c := changes[o.Chain]
			if c == nil {
				c = &change{del: map[string]bool{}}
				changes[o.Chain] = c
			}
			c.del[o.Key().Name] = true
			if x != ops[i].New {
				continue
			}
			if o.Spec() == nil || o.Priority == host.Unmarked || o.Behind != "" {
				errs[i] = errors.New("not a rule that can be desired")
				continue
			}
			c.add = append(c.add, o)
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(changes)) {
		c := changes[chain]
		want := host.Arrange(b.table, chain, live[chain], func(r liveRule) *host.RuleSpec { return r.spec }, c.del, c.add,
			func(o host.IPTables) liveRule { return liveRule{o.Spec().String(), o.Spec()} })
		lines = append(lines, rewrite(b.table, chain, live[chain], want)...)
	}
	for _, c := range gone {
		add("-X %s", c)
	}
	if len(lines) == 0 && len(chains) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString("*" + b.table + "\n")
	for _, c := range chains {
		text.WriteString(":" + c + " - [0:0]\n")
	}
	for _, l := range lines {
		text.WriteString(l + "\n")
	}
	text.WriteString("COMMIT\n")
	_, err = command(text.String(), tool(b.family)+"-restore", "--noflush", "--wait")
	return err
}

// rewrite returns the lines that take a chain from one list of rules to another, of which ours come first and the
// rest is old's. Others write to the chain, too, between our reading and our writing: what goes is named by its text,
// so that it is never somebody else's, and indexes only say where ours are put.
func rewrite(table, chain string, old, want []liveRule) []string {
	// What stays must keep its order: rules that would have to pass others go and come again. Of two with one text
	// the text cannot say which: both go.
	gone := map[string]bool{}
	next, behind := 0, false
	for _, r := range old {
		if !ours(table, chain, r) {
			behind = true
			continue
		}
		at := -1
		if !behind {
			at = slices.IndexFunc(want[next:], func(w liveRule) bool { return w.text == r.text })
		}
		if at < 0 {
			gone[r.text] = true
			continue
		}
		next += at + 1
	}
	var lines []string
	var stay []liveRule
	for _, r := range old {
		if gone[r.text] {
			lines = append(lines, fmt.Sprintf("-D %s %s", chain, r.text))
		} else {
			stay = append(stay, r)
		}
	}
	for i, r := range want {
		if len(stay) > 0 && stay[0].text == r.text {
			stay = stay[1:]
			continue
		}
		lines = append(lines, fmt.Sprintf("-I %s %d %s", chain, i+1, r.text))
	}
	return lines
}

func ours(table, chain string, r liveRule) bool {
	if r.spec == nil {
		return false
	}
	_, ok := host.FromSpec(table, chain, r.spec)
	return ok
}
