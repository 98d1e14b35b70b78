package lang

import (
	"maps"
	"slices"
	"strings"

	"towtank/internal/spelling"
)

// checker finds what can be known to be wrong before a run: it walks the instances in order and
// knows which nodes, external hosts, networks, files and connections exist at each.
type checker struct {
	file   *File
	errors errorList

	commands  int // instances seen so far
	nodes     map[string]bool
	externals map[string]bool
	networks  map[string]bool
	nets      []Network
	options   map[string]bool
	// names are the named probes, connections and streams: the command, and "" after it was closed.
	names map[string]string
}

func (c *checker) check() {
	c.manifests()
	instances, err := c.file.Expand()
	if err != nil {
		c.errors.list = append(c.errors.list, err.(Errors)...)
		return
	}
	c.wellFormed(c.file.Lines, 0)
	// A line's prefixes may make the names differ between backends: each sees its own lines.
	backends := []string{""}
	for i := range instances {
		if instances[i].backends != nil {
			backends = Backends
			break
		}
	}
	for _, b := range backends {
		c.walk(instances, b)
	}
}

// manifests checks that the archive reads back as it was written.
func (c *checker) manifests() {
	seen := map[string]bool{}
	for _, m := range c.file.Files {
		if seen[m.Name] || m.Name == "" || strings.TrimSpace(m.Name) != m.Name || strings.Contains(m.Name, "\n") {
			c.errors.add(c.file.Name, 0, "-- %s --: the archive has two files of this name, or it is not a name", m.Name)
		}
		seen[m.Name] = true
		for line := range strings.Lines(string(m.Data)) {
			line = strings.TrimRight(line, "\r\n")
			if strings.HasPrefix(line, "-- ") && strings.HasSuffix(line, " --") && len(line) > 6 {
				c.errors.add(c.file.Name, 0, "-- %s --: the file has a line %q, which would begin another file", m.Name, line)
			}
		}
	}
}

// wellFormed checks the lines that concern the whole file.
func (c *checker) wellFormed(lines []Line, depth int) {
	for i := range lines {
		l := &lines[i]
		switch l.Step.(type) {
		case BackendList, Option, Nodes:
			if depth > 0 || len(l.Only)+len(l.Except) > 0 {
				c.errors.add(c.file.Name, l.Number, "%s: concerns the whole file, so it cannot be in a loop or behind a prefix", l.Step.Command())
			}
		}
		if l.Loop != nil {
			c.wellFormed(l.Loop.Body, depth+1)
		}
	}
}

func (c *checker) walk(instances []Instance, backend string) {
	c.commands, c.nodes = 0, nil
	c.externals, c.networks, c.options = map[string]bool{}, map[string]bool{}, map[string]bool{}
	c.names, c.nets = map[string]string{}, nil
	for i := range instances {
		in := &instances[i]
		if !in.RunsOn(backend) && backend != "" {
			continue
		}
		v := &nameVisitor{c: c, in: in}
		in.Step.names(v)
		v.declare()
		c.commands++
	}
}

// nameVisitor checks the names that one step uses and declares.
type nameVisitor struct {
	c  *checker
	in *Instance
}

func (v *nameVisitor) failf(format string, a ...any) {
	number := v.in.Line.Number
	if len(v.in.Iter) > 0 && v.c.errors.has(number) {
		return // the first of a loop's line says it
	}
	a = append([]any{v.in.Step.Command()}, a...)
	v.c.errors.add(v.c.file.Name, number, "%s: "+format+strings.ReplaceAll(v.in.place(), "%", "%%"), a...)
}

// declare handles the steps that declare something for the rest of the file.
func (v *nameVisitor) declare() {
	c := v.c
	switch s := v.in.Step.(type) {
	case BackendList:
		if c.commands > 0 {
			v.failf("must be the first command")
		}
	case Option:
		if c.nodes != nil {
			v.failf("must come before nodes")
		}
		for _, setting := range s.Settings {
			if c.options[setting.Key] {
				v.failf("%s is set twice", setting.Key)
			}
			c.options[setting.Key] = true
			var o Options
			if err := o.set(setting.Key, setting.Value); err != nil {
				v.failf("%s: %v", setting.Key, err)
			}
		}
	case Nodes:
		if c.nodes != nil {
			v.failf("there is a nodes command before")
		}
		c.nodes = map[string]bool{}
		for _, n := range s.Names {
			if c.externals[n] {
				v.failf("%s is the name of an external host", n)
			}
			c.nodes[n] = true
		}
	case External:
		if c.externals[s.Name] || c.nodes[s.Name] {
			v.failf("there is already a node or an external host %s", s.Name)
		}
		c.externals[s.Name] = true
		if len(c.externals) > MaxExternals {
			v.failf("found %d external hosts, allowed: at most %d, the addresses that the plan has for them", len(c.externals), MaxExternals)
		}
	case Network:
		if c.networks[s.Name] {
			v.failf("there is already a network %s", s.Name)
		}
		c.networks[s.Name] = true
		for _, o := range c.nets {
			switch {
			case o.CIDR.Overlaps(s.CIDR):
				v.failf("cidr: found %s, which overlaps %s of network %s", s.CIDR, o.CIDR, o.Name)
			case o.VLAN == s.VLAN:
				v.failf("vlan: found %d, which is that of network %s", s.VLAN, o.Name)
			}
		}
		c.nets = append(c.nets, s)
	}
}

// unknown reports a name that is not declared, with what is.
func (v *nameVisitor) unknown(what, name string, known map[string]bool) {
	names := slices.Sorted(maps.Keys(known))
	if len(names) == 0 {
		v.failf("unknown %s %q; none is declared before this line%s", what, name, variableHint(name))
		return
	}
	allowed := strings.Join(names[:min(len(names), 20)], ", ")
	v.failf("unknown %s %q%s allowed: %s%s", what, name, hint(name, names), allowed, variableHint(name))
}

// node checks a node; words that stand for something else pass, as only those that the command takes
// are parsed.
func (v *nameVisitor) node(n NodeRef) {
	if n.Name == "" || n.Name == AllNodes || slices.Contains(reservedNames, n.Name) {
		return
	}
	if !v.c.nodes[n.Name] {
		v.unknown("node", n.Name, v.c.nodes)
	}
}

// peer checks a node or external host.
func (v *nameVisitor) peer(n NodeRef) {
	if !v.c.externals[n.Name] {
		v.node(n)
	}
}

func (v *nameVisitor) network(name string) {
	if name != "" && !v.c.networks[name] {
		v.unknown("network", name, v.c.networks)
	}
}

func (v *nameVisitor) file(name string) {
	if name == "" {
		return
	}
	if _, ok := v.c.file.Manifest(name); ok {
		return
	}
	known := map[string]bool{}
	for _, m := range v.c.file.Files {
		known[m.Name] = true
	}
	v.unknown("file", name, known)
}

func (v *nameVisitor) pod(p PodRef) {
	if p.Backend != "" {
		v.connection(p.Backend)
	}
}

// connection checks the name of a probe, connection or stream, still open or not.
func (v *nameVisitor) connection(name string) {
	if _, ok := v.c.names[name]; ok {
		return
	}
	known := map[string]bool{}
	for n := range v.c.names {
		known[n] = true
	}
	v.unknown("probe or connection", name, known)
}

func (v *nameVisitor) address(a Address) {
	switch a.Kind {
	case AddrExternal:
		if v.c.externals[a.Name] {
			return
		}
		if v.c.nodes[a.Name] {
			v.failf("unknown external host %q; did you mean the node, node/%s?", a.Name, a.Name)
			return
		}
		v.unknown("external host", a.Name, v.c.externals)
	case AddrNode, AddrGateway, AddrNodePort:
		v.node(a.Node)
	case AddrBackend:
		v.connection(a.Name)
	}
}

func (v *nameVisitor) flow(from Address, to Target, f FlowOptions) {
	v.address(from)
	v.address(to.Address)
	v.node(f.Next)
	if !f.Next.IsZero() && from.Kind != AddrExternal && from.Kind != AddrIP {
		v.failf("next=%s is for external hosts, found FROM %s", f.Next, from)
	}
}

func (v *nameVisitor) addresses(m *Match[Address]) {
	if m != nil {
		for _, a := range m.Of {
			v.address(a)
		}
	}
}

func (v *nameVisitor) endpoints(m *Match[Endpoint]) {
	if m != nil {
		for _, e := range m.Of {
			v.address(e.Address)
		}
	}
}

func (v *nameVisitor) expect(e *Expect) {
	if e == nil {
		return
	}
	v.endpoints(e.Backend)
	for _, b := range e.Backends {
		v.address(b.Address)
	}
	v.addresses(e.Source)
	v.addresses(e.To)
	for _, m := range []*Match[NodeRef]{e.Via, e.ReplyVia} {
		if m != nil {
			for _, n := range m.Of {
				v.peer(n)
			}
		}
	}
	if e.SameAs != nil {
		v.connection(e.SameAs.Name)
	}
}

// probe declares as=NAME.
func (v *nameVisitor) probe(name string) {
	if name == "" {
		return
	}
	if _, ok := v.c.names[name]; ok {
		v.failf("as=%s: the name is taken by an earlier line", name)
	}
	v.c.names[name] = "probe"
}

// open declares a connection or stream; a name can be used again after close or stream-stop.
func (v *nameVisitor) open(command, name string) {
	if was := v.c.names[name]; was != "" {
		v.failf("the name %s is taken by an earlier %s", name, was)
	}
	v.c.names[name] = command
}

// useOpen checks that a connection or stream is open.
func (v *nameVisitor) useOpen(command, name string) {
	if v.c.names[name] == command {
		return
	}
	known := map[string]bool{}
	for n, c := range v.c.names {
		if c == command {
			known[n] = true
		}
	}
	if c := spelling.Closest(name, slices.Sorted(maps.Keys(known))); c == "" && v.c.names[name] != "" {
		v.failf("%s is not an %s but a %s", name, command, v.c.names[name])
		return
	}
	v.unknown(command, name, known)
}

func (v *nameVisitor) closeOpen(command, name string) {
	v.useOpen(command, name)
	if v.c.names[name] == command {
		v.c.names[name] = ""
	}
}
