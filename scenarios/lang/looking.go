package lang

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

var lookingCommands = []command{
	{"expect-owner", "expect-owner IP node=N[|N…]|none|any", "exactly that node, or one of those (none: no node, any: exactly one), holds the address and answers for it", parseExpectOwner},
	{"expect-status", "expect-status KIND NS/NAME|NAME|* PATH=VALUE… [count=N]", "fields of the object; condition.T=STATUS, condition.T.reason=R; empty VALUE: empty or absent", parseExpectStatus},
	{"expect-event", "expect-event KIND NS/NAME|NAME reason=R [count=N]", "an Event was recorded", parseExpectEvent},
	{"mark", "mark", "expect-writes counts from here", func(*args) Step { return Mark{} }},
	{"expect-writes", "expect-writes N|* [unit=KIND/NAME] [switch=K] [host=K] [api=K] [packet-in=K]", "effects since mark; K exactly, or switch<=K", parseExpectWrites},
	{"expect-clean", "expect-clean N|*", "nothing of ours is left", parseExpectClean},
	{"expect-objects", "expect-objects N unit=KIND/NAME count=K", "objects of a unit in the dump", parseExpectObjects},
	{"expect-dump", `expect-dump N host|switch has|lacks "TEXT"`, "only for what host put there", parseExpectDump},
	{"trace", "trace FROM -> TO[:PORT[/PROTO]] " + flowUsage, "prints the path of a packet", parseTrace},
	{"dump", "dump N [switch|host|store]", "prints in ovs-ofctl, iptables-save and ip syntax", parseDump},
	{"keep", "keep", "leaves everything at the end of the file, without the final invariants", func(*args) Step { return Keep{} }},
}

// ExpectOwner is `expect-owner IP node=N[|N…]|none|any`.
type ExpectOwner struct {
	IP netip.Addr
	// Of are the nodes of which one holds the address alone; each may also be NoNode or AnyNode.
	Of []NodeRef
}

// Command implements Step.
func (ExpectOwner) Command() string { return "expect-owner" }

// String implements Step.
func (s ExpectOwner) String() string {
	return "expect-owner " + s.IP.String() + " node=" + s.Nodes()
}

// Nodes returns the nodes as they are written.
func (s ExpectOwner) Nodes() string {
	var of []string
	for _, n := range s.Of {
		of = append(of, n.String())
	}
	return strings.Join(of, "|")
}

func (s ExpectOwner) names(v *nameVisitor) {
	for _, n := range s.Of {
		v.node(n)
	}
}

func parseExpectOwner(a *args) Step {
	s := ExpectOwner{IP: take(a, "IP", parseIP)}
	a.options([]option{opt("node", func(v string) error {
		for one := range strings.SplitSeq(v, "|") {
			n, err := parseNode(one, NoNode, AnyNode)
			if err != nil {
				return err
			}
			s.Of = append(s.Of, n)
		}
		return nil
	})})
	a.require(len(s.Of) > 0, "node=")
	return s
}

// FieldMatch is PATH=A|B or PATH!=A|B.
type FieldMatch struct {
	Path string
	Not  bool
	// Of are the values; one empty value stands for empty or absent.
	Of []string
}

// ExpectStatus is `expect-status KIND NAME|* PATH=VALUE… [count=N]`.
type ExpectStatus struct {
	// Object has the name * for all objects of the kind.
	Object ObjectRef
	Fields []FieldMatch
	// Count is how many objects must match; nil: the one named, of * all.
	Count *int
}

// Command implements Step.
func (ExpectStatus) Command() string { return "expect-status" }

// String implements Step.
func (s ExpectStatus) String() string {
	var p printer
	p.word("expect-status", s.Object.Kind, s.Object.String())
	for _, f := range s.Fields {
		op := "="
		if f.Not {
			op = "!="
		}
		p.raw(quoteOption(f.Path, op, strings.Join(f.Of, "|")))
	}
	p.optCount(s.Count)
	return p.String()
}

func (ExpectStatus) names(*nameVisitor) {}

func parseExpectStatus(a *args) Step {
	var s ExpectStatus
	kind := take(a, "KIND", func(w string) (string, error) { return parseKind(w, Kinds) })
	s.Object = take(a, "NAME", func(w string) (ObjectRef, error) {
		if w == "*" || kind == "" {
			return ObjectRef{Kind: kind, Name: "*"}, nil
		}
		return parseObject(kind, w)
	})
	for a.left() {
		key, op, value := keyOpValue(a.words[a.pos])
		a.pos++
		switch {
		case key == "" || op != "=" && op != "!=":
			a.failf("found %q, allowed: PATH=VALUE, PATH!=VALUE, count=N", a.words[a.pos-1])
		case key == "count" && op == "=" && s.Count == nil:
			n, err := parseInt(value, 0, maxCount)
			if err != nil {
				a.failf("count: %v", err)
			}
			s.Count = &n
		case key == "count":
			a.failf("found %q, allowed: count=N once", a.words[a.pos-1])
		default:
			s.Fields = append(s.Fields, FieldMatch{key, op == "!=", strings.Split(value, "|")})
		}
	}
	a.require(len(s.Fields) > 0 || s.Count != nil, "PATH=VALUE or count=N")
	return s
}

// ExpectEvent is `expect-event KIND NAME reason=R [count=N]`.
type ExpectEvent struct {
	Object ObjectRef
	Reason string
	// Count is how often it was recorded; nil: at least once.
	Count *int
}

// Command implements Step.
func (ExpectEvent) Command() string { return "expect-event" }

// String implements Step.
func (s ExpectEvent) String() string {
	var p printer
	p.word("expect-event", s.Object.Kind, s.Object.String())
	p.opt("reason", s.Reason)
	p.optCount(s.Count)
	return p.String()
}

func (ExpectEvent) names(*nameVisitor) {}

func parseExpectEvent(a *args) Step {
	s := ExpectEvent{Object: a.object(Kinds)}
	a.options([]option{
		opt("reason", func(v string) error { s.Reason = v; return nil }),
		opt("count", func(v string) error { n, err := parseInt(v, 0, maxCount); s.Count = &n; return err }),
	})
	a.require(s.Reason != "", "reason=R")
	return s
}

// Mark is `mark`.
type Mark struct{}

// Command implements Step.
func (Mark) Command() string { return "mark" }

// String implements Step.
func (Mark) String() string { return "mark" }

func (Mark) names(*nameVisitor) {}

// unitKinds are the kinds of units that can be asked for.
var unitKinds = []string{"pod", "service", "egress", "node"}

// parseUnit reads pod/NS/NAME, service/NS/NAME, egress/NAME or node/NAME.
func parseUnit(s string) (ObjectRef, error) {
	kind, name, ok := strings.Cut(s, "/")
	if !ok {
		return ObjectRef{}, fmt.Errorf("found %q, allowed: pod/NS/NAME, service/NS/NAME, egress/NAME, node/NAME", s)
	}
	if kind = strings.ToLower(kind); !slices.Contains(unitKinds, kind) {
		return ObjectRef{}, fmt.Errorf("unknown kind %q%s allowed: %s", kind, hint(kind, unitKinds), strings.Join(unitKinds, ", "))
	}
	// A unit is named in full.
	if !slices.Contains(clusterScoped, kind) && !strings.Contains(name, "/") {
		return ObjectRef{}, fmt.Errorf("%s: found %q, allowed: NAMESPACE/NAME", kind, name)
	}
	return parseObject(kind, name)
}

// unitText is the unit as it is written, empty if there is none.
func unitText(u ObjectRef) string {
	if u.Kind == "" {
		return ""
	}
	return u.Kind + "/" + u.String()
}

// ExpectWrites is `expect-writes N [unit=…] [switch=K] [host=K] [api=K] [packet-in=K]`.
type ExpectWrites struct {
	// Node may also be AllNodes.
	Node NodeRef
	// Unit limits the effects to those of one unit; a zero one does not.
	Unit ObjectRef
	// Switch, Host, API and PacketIn count effects; nil: any number.
	Switch, Host, API, PacketIn *Bound
}

// Command implements Step.
func (ExpectWrites) Command() string { return "expect-writes" }

// String implements Step.
func (s ExpectWrites) String() string {
	var p printer
	p.word("expect-writes", s.Node.String())
	p.opt("unit", unitText(s.Unit))
	p.optBound("switch", s.Switch)
	p.optBound("host", s.Host)
	p.optBound("api", s.API)
	p.optBound("packet-in", s.PacketIn)
	return p.String()
}

func (s ExpectWrites) names(v *nameVisitor) { v.node(s.Node) }

func parseExpectWrites(a *args) Step {
	s := ExpectWrites{Node: take(a, "N", func(w string) (NodeRef, error) { return parseNode(w, AllNodes, Controller) })}
	bound := func(name string, b **Bound) option {
		return option{name: name, ops: "= <=", set: func(op, v string) (err error) { *b, err = parseBound(op, v); return err }}
	}
	a.options([]option{
		opt("unit", func(v string) (err error) { s.Unit, err = parseUnit(v); return err }),
		bound("switch", &s.Switch), bound("host", &s.Host), bound("api", &s.API), bound("packet-in", &s.PacketIn),
	})
	a.require(s.Switch != nil || s.Host != nil || s.API != nil || s.PacketIn != nil, "switch=, host=, api= or packet-in=")
	return s
}

// ExpectClean is `expect-clean N`.
type ExpectClean struct {
	// Node may also be AllNodes.
	Node NodeRef
}

// Command implements Step.
func (ExpectClean) Command() string { return "expect-clean" }

// String implements Step.
func (s ExpectClean) String() string { return "expect-clean " + s.Node.String() }

func (s ExpectClean) names(v *nameVisitor) { v.node(s.Node) }

func parseExpectClean(a *args) Step {
	return ExpectClean{take(a, "N", func(w string) (NodeRef, error) { return parseNode(w, AllNodes) })}
}

// ExpectObjects is `expect-objects N unit=KIND/NAME count=K`.
type ExpectObjects struct {
	Node  NodeRef
	Unit  ObjectRef
	Count int
}

// Command implements Step.
func (ExpectObjects) Command() string { return "expect-objects" }

// String implements Step.
func (s ExpectObjects) String() string {
	return fmt.Sprintf("expect-objects %s unit=%s count=%d", s.Node, unitText(s.Unit), s.Count)
}

func (s ExpectObjects) names(v *nameVisitor) { v.node(s.Node) }

func parseExpectObjects(a *args) Step {
	s := ExpectObjects{Node: take(a, "N", plainNode), Count: -1}
	a.options([]option{
		opt("unit", func(v string) (err error) { s.Unit, err = parseUnit(v); return err }),
		opt("count", func(v string) (err error) { s.Count, err = parseInt(v, 0, maxCount); return err }),
	})
	a.require(s.Unit.Kind != "", "unit=KIND/NAME")
	a.require(s.Count >= 0, "count=K")
	return s
}

// ExpectDump is `expect-dump N host|switch has|lacks "TEXT"`.
type ExpectDump struct {
	Node NodeRef
	// Where is host or switch.
	Where string
	// Lacks is set for lacks, else the dump has the text.
	Lacks bool
	Text  string
}

// Command implements Step.
func (ExpectDump) Command() string { return "expect-dump" }

// String implements Step.
func (s ExpectDump) String() string {
	verb := "has"
	if s.Lacks {
		verb = "lacks"
	}
	var p printer
	p.word("expect-dump", s.Node.String(), s.Where, verb, s.Text)
	return p.String()
}

func (s ExpectDump) names(v *nameVisitor) { v.node(s.Node) }

func parseExpectDump(a *args) Step {
	s := ExpectDump{Node: take(a, "N", plainNode)}
	s.Where = take(a, "host or switch", func(w string) (string, error) { return oneOf(w, "host", "switch") })
	s.Lacks = take(a, "has or lacks", func(w string) (string, error) { return oneOf(w, "has", "lacks") }) == "lacks"
	s.Text = take(a, `"TEXT"`, anyWord)
	return s
}

// Trace is `trace FROM -> TO…`.
type Trace struct {
	From Address
	To   Target
	Flow FlowOptions
}

// Command implements Step.
func (Trace) Command() string { return "trace" }

// String implements Step.
func (s Trace) String() string {
	var p printer
	p.word("trace", s.From.String(), "->", s.To.String())
	s.Flow.print(&p)
	return p.String()
}

func (s Trace) names(v *nameVisitor) { v.flow(s.From, s.To, s.Flow) }

func parseTrace(a *args) Step {
	var s Trace
	s.From, s.To = a.between()
	a.sender(s.From)
	a.options(s.Flow.options())
	return s
}

// Dump is `dump N [switch|host|store]`.
type Dump struct {
	Node NodeRef
	// What is switch, host or store; empty: all.
	What string
}

// Command implements Step.
func (Dump) Command() string { return "dump" }

// String implements Step.
func (s Dump) String() string {
	var p printer
	p.word("dump", s.Node.String())
	p.flag(s.What, s.What != "")
	return p.String()
}

func (s Dump) names(v *nameVisitor) { v.node(s.Node) }

func parseDump(a *args) Step {
	s := Dump{Node: take(a, "N", plainNode)}
	if a.left() {
		s.What = take(a, "switch, host or store", func(w string) (string, error) { return oneOf(w, "switch", "host", "store") })
	}
	return s
}

// Keep is `keep`.
type Keep struct{}

// Command implements Step.
func (Keep) Command() string { return "keep" }

// String implements Step.
func (Keep) String() string { return "keep" }

func (Keep) names(*nameVisitor) {}
