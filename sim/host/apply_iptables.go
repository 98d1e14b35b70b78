package host

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"towtank/datapath"
	"towtank/datapath/host"
)

type prefix = netip.Prefix

var (
	anyV4 = netip.MustParsePrefix("0.0.0.0/0")
	anyV6 = netip.MustParsePrefix("::/0")
)

// applyTable applies the ops on the table of first, from op i on, in one transaction.
func (n *Netns) applyTable(ops []datapath.Op, i int, first host.IPTables, results []datapath.OpResult, done []bool) {
	var mine []int
	for j := i; j < len(ops); j++ {
		if o, ok := opObject(ops[j]).(host.IPTables); ok && o.Family == first.Family && o.Table == first.Table {
			mine = append(mine, j)
			done[j] = true
		}
	}
	t, err := n.nf(first.Family, first.Table)
	if err == nil {
		err = n.tableTransaction(t, ops, mine, results)
	}
	if err != nil {
		for _, j := range mine {
			if results[j].Err == nil {
				results[j] = n.refused(ops[j], err)
			}
		}
	}
}

func (n *Netns) refused(op datapath.Op, err error) datapath.OpResult {
	return datapath.OpResult{Outcome: datapath.Refused, Err: fmt.Errorf("host %s: %s: %w", n.Name(), op, err)}
}

// tableTransaction sorts out the ops that cannot be applied, whatever the others do, then rebuilds the
// changed chains. The order of ops does not matter.
func (n *Netns) tableTransaction(t *nfTable, ops []datapath.Op, mine []int, results []datapath.OpResult) error {
	e := n.edit(t)
	fail := func(j int, err error) { results[j] = n.refused(ops[j], err) }
	// Chains first: rules need them.
	for _, j := range mine {
		if o, ok := ops[j].New.(host.IPTables); ok && o.Rule == "" && !e.exists(o.Chain) {
			if err := e.create(o.Chain); err != nil {
				fail(j, err)
			}
		}
	}
	type change struct {
		del map[string]bool // keys of rules to take away
		add []host.IPTables
	}
	changes := map[string]*change{}
	of := func(chain string) *change {
		if changes[chain] == nil {
			changes[chain] = &change{del: map[string]bool{}}
		}
		return changes[chain]
	}
	bound := map[string]*rule{} // by key
	for _, j := range mine {
		for _, o := range []datapath.Object{ops[j].Old, ops[j].New} {
			if o, ok := o.(host.IPTables); ok && o.Rule != "" && e.exists(o.Chain) {
				of(o.Chain).del[o.Key().Name] = true
			}
		}
		o, ok := ops[j].New.(host.IPTables)
		if !ok || o.Rule == "" {
			continue
		}
		r, err := n.bindOp(e, t, o)
		if err != nil {
			fail(j, err)
			continue
		}
		bound[o.Key().Name] = r
		of(o.Chain).add = append(of(o.Chain).add, o)
	}
	for _, chain := range slices.Sorted(maps.Keys(changes)) {
		c := changes[chain]
		rules, err := rebuild(t, chain, e.rulesOf(chain), c.del, c.add, bound)
		if err == nil {
			err = e.set(chain, rules)
		}
		if err != nil {
			return err
		}
	}
	// Chains last: they must be empty by now.
	for _, j := range mine {
		if o := opObject(ops[j]).(host.IPTables); ops[j].Delete() && o.Rule == "" && e.exists(o.Chain) {
			if err := n.removable(e, o.Chain); err != nil {
				fail(j, err)
			} else if err := e.remove(o.Chain); err != nil {
				fail(j, err)
			}
		}
	}
	return e.commit()
}

// bindOp checks one new rule by itself.
func (n *Netns) bindOp(e *chainEdit, t *nfTable, o host.IPTables) (*rule, error) {
	if !e.exists(o.Chain) {
		return nil, fmt.Errorf("chain %s is not declared: %w", o.Chain, errNoChain)
	}
	spec := o.Spec()
	if spec == nil || o.Priority == host.Unmarked || o.Behind != "" {
		return nil, fmt.Errorf("not a rule that can be desired")
	}
	if to := spec.JumpsTo(); to != "" && !e.exists(to) {
		return nil, fmt.Errorf("chain %s: %w", to, errNoChain)
	}
	return n.bind(t, spec)
}

// removable reports why a chain cannot go: somebody jumps there.
func (n *Netns) removable(e *chainEdit, chain string) error {
	for _, name := range e.names() {
		for _, r := range e.rulesOf(name) {
			if r.spec.JumpsTo() == chain {
				return fmt.Errorf("chain %s: %w (chain %s jumps there)", chain, errChainUsed, name)
			}
		}
	}
	return nil
}

// rebuild arranges the rules of a chain.
func rebuild(t *nfTable, chain string, old []*rule, del map[string]bool, add []host.IPTables, bound map[string]*rule) ([]*rule, error) {
	out := host.Arrange(t.name, chain, old, func(r *rule) *host.RuleSpec { return r.spec }, del, add,
		func(o host.IPTables) *rule { return bound[o.Key().Name] })
	if slices.Contains(out, nil) {
		return nil, fmt.Errorf("chain %s: a rule was not bound", chain)
	}
	return out, nil
}

// dump returns our objects of a table: every chain of ours, and our rules. A rule that is not in
// its place says behind what it is.
func (t *nfTable) dump() []host.IPTables {
	var out []host.IPTables
	for _, c := range t.ordered() {
		if strings.HasPrefix(c.name, host.SetPrefix) {
			out = append(out, host.IPTables{Family: t.fam, Table: t.name, Chain: c.name})
		}
		specs := make([]*host.RuleSpec, len(c.rules))
		for i, r := range c.rules {
			specs[i] = r.spec
		}
		out = append(out, host.DumpChain(t.name, c.name, specs)...)
	}
	return out
}
