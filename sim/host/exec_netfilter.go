package host

import (
	"fmt"
	"slices"
	"strings"

	"towtank/datapath/host"
)

// execIptables runs one iptables command.
func (n *Netns) execIptables(f host.Family, a *args) (string, error) {
	table := "filter"
	for !a.done() {
		if a.w[0] == "-t" || a.w[0] == "--table" {
			a.next()
			v, err := a.value("-t")
			if err != nil {
				return "", err
			}
			table = v
		} else if a.w[0] == "-w" || a.w[0] == "--wait" || a.w[0] == "-n" || a.w[0] == "-v" {
			a.next()
		} else {
			break
		}
	}
	t, err := n.nf(f, table)
	if err != nil {
		return "", err
	}
	switch op := a.next(); op {
	case "-S", "--list-rules":
		return t.list(a)
	case "-C", "--check":
		chain := a.next()
		spec, err := host.ParseRuleWords(f, a.w)
		if err != nil {
			return "", err
		}
		c := t.chains[chain]
		if c == nil {
			return "", fmt.Errorf("chain %s: %w", chain, errNoChain)
		}
		if !slices.ContainsFunc(c.rules, func(r *rule) bool { return r.text == spec.String() }) {
			return "", errBadRule
		}
		return "", nil
	default:
		e := n.edit(t)
		if err := n.editCommand(e, f, op, a); err != nil {
			return "", err
		}
		return "", e.commit()
	}
}

// editCommand adds one command to a transaction: -A, -I, -D, -R, -N, -X, -F, -P.
func (n *Netns) editCommand(e *chainEdit, f host.Family, op string, a *args) error {
	switch op {
	case "-N", "--new-chain":
		name, err := a.value(op)
		if err != nil {
			return err
		}
		if len(name) > 28 {
			return fmt.Errorf("chain name %q: too long (must be under 29 chars)", name)
		}
		if err := a.end(); err != nil {
			return err
		}
		return e.create(name)
	case "-X", "--delete-chain":
		names := []string{a.next()}
		if names[0] == "" {
			names = e.names()
		}
		for _, name := range names {
			if c := e.t.chains[name]; len(names) > 1 && c != nil && c.builtin {
				continue
			}
			if err := e.remove(name); err != nil {
				return err
			}
		}
		return a.end()
	case "-F", "--flush":
		names := []string{a.next()}
		if names[0] == "" {
			names = e.names()
		}
		for _, name := range names {
			if err := e.set(name, nil); err != nil {
				return err
			}
		}
		return a.end()
	case "-P", "--policy":
		name, policy := a.next(), a.next()
		if policy != "ACCEPT" && policy != "DROP" {
			return fmt.Errorf("policy %q: Bad policy name (ACCEPT and DROP exist)", policy)
		}
		if c := e.t.chains[name]; c == nil || !c.builtin {
			return fmt.Errorf("chain %s: %w", name, errNoPolicy)
		}
		e.policy[name] = policy
		return a.end()
	case "-A", "--append", "-I", "--insert", "-D", "--delete", "-R", "--replace":
		return n.editRule(e, f, op, a)
	}
	return fmt.Errorf("%q: not modelled (known: -A -I -D -R -C -N -X -F -P -S)", op)
}

func (n *Netns) editRule(e *chainEdit, f host.Family, op string, a *args) error {
	chain, err := a.value(op)
	if err != nil {
		return err
	}
	if !e.exists(chain) {
		return fmt.Errorf("chain %s: %w", chain, errNoChain)
	}
	rules := slices.Clone(e.rulesOf(chain))
	num := 0
	if op != "-A" && op != "--append" && !a.done() {
		if v, err := parseUint(a.w[0], 31); err == nil {
			num = int(v)
			a.next()
			if num == 0 {
				return said(fmt.Sprintf("Invalid rule number %q", "0"))
			}
		}
	}
	if op == "-D" || op == "--delete" {
		if num > 0 {
			if err := a.end(); err != nil {
				return err
			}
		} else {
			spec, err := host.ParseRuleWords(f, a.w)
			if err != nil {
				return err
			}
			num = slices.IndexFunc(rules, func(r *rule) bool { return r.text == spec.String() }) + 1
			if num == 0 {
				return errBadRule
			}
		}
		if num > len(rules) {
			return said("Index of deletion too big.")
		}
		return e.set(chain, slices.Delete(rules, num-1, num))
	}
	spec, err := host.ParseRuleWords(f, a.w)
	if err != nil {
		return err
	}
	if spec.String() == "" && strings.HasPrefix(chain, host.SetPrefix) {
		return fmt.Errorf("a rule without condition and target in %s: not modelled", chain)
	}
	r, err := n.bind(e.t, spec)
	if err != nil {
		return err
	}
	switch op {
	case "-A", "--append":
		rules = append(rules, r)
	case "-R", "--replace":
		if num == 0 || num > len(rules) {
			return said("Index of replacement too big.")
		}
		rules[num-1] = r
	default:
		num = max(num, 1)
		if num > len(rules)+1 {
			return said("Index of insertion too big.")
		}
		rules = slices.Insert(rules, num-1, r)
	}
	return e.set(chain, rules)
}

// list prints a table or a chain as iptables -S.
func (t *nfTable) list(a *args) (string, error) {
	chains := t.ordered()
	if name := a.next(); name != "" {
		if t.chains[name] == nil {
			return "", fmt.Errorf("chain %s: %w", name, errNoChain)
		}
		chains = []*chain{t.chains[name]}
	}
	if err := a.end(); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, c := range chains {
		if c.builtin {
			b.WriteString("-P " + c.name + " " + c.policy + "\n")
		} else {
			b.WriteString("-N " + c.name + "\n")
		}
	}
	for _, c := range chains {
		for _, r := range c.rules {
			b.WriteString(strings.TrimSpace("-A "+c.name+" "+r.text) + "\n")
		}
	}
	return b.String(), nil
}

// execRestore reads the text of iptables-save, each table as one transaction. A chain that the text
// declares is emptied first; without --noflush the whole table is.
func (n *Netns) execRestore(f host.Family, a *args, text string) error {
	noflush := a.flag("-n", "--noflush")
	a.flag("-w", "--wait")
	a.flag("-c", "--counters")
	if err := a.end(); err != nil {
		return err
	}
	var e *chainEdit
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		bad := func(err error) error { return fmt.Errorf("line %d: %q: %w", i+1, line, err) }
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "*"):
			if e != nil {
				return bad(fmt.Errorf("no COMMIT before it"))
			}
			t, err := n.nf(f, line[1:])
			if err != nil {
				return bad(err)
			}
			e = n.edit(t)
			if !noflush {
				e.clear()
			}
		case e == nil:
			return bad(fmt.Errorf("no table before it"))
		case line == "COMMIT":
			if err := e.commit(); err != nil {
				return bad(err)
			}
			e = nil
		case strings.HasPrefix(line, ":"):
			w := strings.Fields(line[1:])
			if len(w) < 2 {
				return bad(fmt.Errorf("want :CHAIN POLICY"))
			}
			if err := e.declare(w[0], w[1]); err != nil {
				return bad(err)
			}
		default:
			w, err := host.SplitWords(line)
			if err != nil {
				return bad(err)
			}
			if err := n.editCommand(e, f, w[0], &args{w[1:]}); err != nil {
				return bad(err)
			}
		}
	}
	if e != nil {
		return fmt.Errorf("iptables-restore: COMMIT expected at the end")
	}
	return nil
}

// clear empties a table: built-in chains lose their rules, the others go.
func (e *chainEdit) clear() {
	for _, name := range e.names() {
		if e.t.chains[name].builtin {
			e.rules[name] = nil
		} else {
			e.gone[name] = true
		}
	}
}

func (e *chainEdit) declare(name, policy string) error {
	if c := e.t.chains[name]; c != nil && c.builtin {
		if policy != "-" {
			if policy != "ACCEPT" && policy != "DROP" {
				return fmt.Errorf("policy %q: want ACCEPT or DROP", policy)
			}
			e.policy[name] = policy
		}
		e.rules[name] = nil
		return nil
	}
	delete(e.gone, name)
	e.rules[name] = nil
	return nil
}

func (n *Netns) execIpset(a *args) (string, error) {
	exist := a.flag("-exist", "-!", "--exist")
	op, name := a.next(), a.next()
	switch verb(op, "create", "add", "del", "destroy", "flush", "list", "save", "test") {
	case "create":
		return "", n.execIpsetCreate(name, exist, a)
	case "add", "del", "test":
		s := n.sets[name]
		if s == nil {
			return "", fmt.Errorf("ipset %s: %w", name, errNoSet)
		}
		e, err := s.element(a.next())
		if err != nil {
			return "", err
		}
		if err := a.end(); err != nil {
			return "", err
		}
		_, there := s.elems[e]
		switch {
		case verb(op, "test") != "":
			if !there {
				return "", fmt.Errorf("%s is NOT in set %s", e, name)
			}
			return fmt.Sprintf("%s is in set %s.\n", e, name), nil
		case op == "add" && !(exist && there):
			return "", s.add(e)
		case op == "del" && !(exist && !there):
			return "", s.del(e)
		}
		return "", nil
	case "destroy", "flush":
		names := []string{name}
		if name == "" {
			names = nil
			for _, s := range n.sortedSets() {
				names = append(names, s.Name)
			}
		}
		for _, name := range names {
			s := n.sets[name]
			switch {
			case s == nil:
				return "", fmt.Errorf("ipset %s: %w", name, errNoSet)
			case op == "flush":
				s.elems, s.lens = map[host.Element]struct{}{}, [129]int{}
			default:
				if err := n.destroySet(name); err != nil {
					return "", err
				}
			}
		}
		return "", a.end()
	case "list", "save":
		if err := a.end(); err != nil {
			return "", err
		}
		if name == "" {
			return n.ipsetSave(), nil
		}
		s := n.sets[name]
		if s == nil {
			return "", fmt.Errorf("ipset %s: %w", name, errNoSet)
		}
		var b strings.Builder
		b.WriteString(s.IPSet.String() + "\n")
		for _, e := range s.sorted() {
			b.WriteString("add " + s.Name + " " + e.String() + "\n")
		}
		return b.String(), nil
	}
	return "", fmt.Errorf("ipset %s: not modelled", op)
}

func (n *Netns) execIpsetCreate(name string, exist bool, a *args) error {
	s := host.IPSet{Name: name, Type: host.SetType(a.next()), Family: host.V4, MaxElem: 65536}
	if name == "" || len(name) > 31 {
		return fmt.Errorf("set name %q: want 1 to 31 bytes", name)
	}
	switch s.Type {
	case host.SetIP, host.SetNet, host.SetIPPort:
	default:
		return fmt.Errorf("set type %q: not modelled (hash:ip, hash:net, hash:ip,port are)", s.Type)
	}
	for !a.done() {
		opt := a.next()
		v, err := a.value(opt)
		if err != nil {
			return err
		}
		switch opt {
		case "family":
			switch v {
			case "inet":
			case "inet6":
				s.Family = host.V6
			default:
				return fmt.Errorf("family %q: want inet or inet6", v)
			}
		case "maxelem":
			u, err := parseUint(v, 32)
			if err != nil {
				return err
			}
			s.MaxElem = uint32(u)
		case "hashsize", "bucketsize", "initval":
		default:
			return fmt.Errorf("%q: not modelled", opt)
		}
	}
	if old := n.sets[name]; old != nil && exist && old.IPSet == s {
		return nil
	}
	return n.createSet(s)
}
