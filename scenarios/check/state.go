package check

import (
	"fmt"
	"slices"
	"strings"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/sim"
)

// dump returns the objects of ours on a node, sorted by key.
func dump(n *sim.Node) []datapath.Object {
	objs := append(n.Switch().Dump(), n.Netns().Dump()...)
	slices.SortFunc(objs, func(a, b datapath.Object) int { return a.Key().Compare(b.Key()) })
	return objs
}

// state checks invariants 1 and 2 of a quiet node.
func (c *Checker) state(n *sim.Node) []Result {
	have := dump(n)
	var out []Result
	fail := func(id int, format string, args ...any) {
		out = append(out, Result{ID: id, Node: n.Name(), Detail: fmt.Sprintf(format, args...)})
	}
	c.count += 4
	differences, unowned := compare(n.Store(), have)
	if len(differences) > 0 {
		fail(1, "the dump is not what is wanted:\n  %s", listed(differences))
	}
	if len(unowned) > 0 {
		fail(2, "objects of ours without an owner:\n  %s", listed(unowned))
	}
	if broken := dangling(n, have); len(broken) > 0 {
		fail(2, "flows and groups that name what is not there:\n  %s", listed(broken))
	}
	if changed := c.foreign(n); len(changed) > 0 {
		fail(2, "foreign objects changed:\n  %s", listed(changed))
	}
	if len(differences) == 0 && len(unowned) == 0 {
		if why := c.restart(n); why != "" {
			fail(1, "%s", why)
		}
	}
	return out
}

// compare compares what a Store wants with a sorted dump. A dump that equals what is wanted and known
// is one after which an audit has nothing to write.
func compare(s *datapath.Store, have []datapath.Object) (differences, unowned []string) {
	want := s.Desired()
	i, j := 0, 0
	for i < len(want) || j < len(have) {
		order := 0
		switch {
		case i == len(want):
			order = 1
		case j == len(have):
			order = -1
		default:
			order = want[i].Key().Compare(have[j].Key())
		}
		switch {
		case order < 0:
			differences = append(differences, "missing: "+text(want[i]))
			i++
		case order > 0:
			unowned = append(unowned, text(have[j]))
			j++
		default:
			if want[i].String() != have[j].String() {
				differences = append(differences, "wanted:  "+text(want[i])+"\n  is:      "+text(have[j]))
			} else if known := s.Known(want[i].Key()); known == nil || known.String() != have[j].String() {
				differences = append(differences, "an audit would find: "+text(have[j]))
			}
			i, j = i+1, j+1
		}
	}
	if n := s.PendingCount(); n > 0 && len(differences) == 0 {
		differences = append(differences, fmt.Sprintf("%d objects are pending", n))
	}
	return differences, unowned
}

func text(o datapath.Object) string { return string(o.Key().Kind) + " " + o.String() }

// dangling returns the flows and groups that name a group, meter or port which does not exist.
func dangling(n *sim.Node, have []datapath.Object) []string {
	there := map[datapath.Key]bool{}
	metersThere, ports := map[uint32]bool{}, map[uint32]bool{}
	for _, o := range have {
		if k := o.Key(); k.Kind == datapath.KindGroup {
			there[k] = true
		}
		if m, ok := o.(*openflow.Meter); ok {
			metersThere[m.ID] = true
		}
	}
	for _, p := range n.Switch().Ports() {
		if p.OFPort != 0 {
			ports[p.OFPort] = true
		}
	}
	var out []string
	var ids []uint32
	for _, o := range have {
		var groups, meters []uint32
		var actions []openflow.Action
		switch t := o.(type) {
		case *openflow.Flow:
			groups, meters, actions = t.Groups(ids[:0]), t.Meters(nil), t.Actions()
			if in := t.Match().Get(openflow.InPort); in.Exact() && !portThere(ports, uint32(in.Value.Lo)) {
				out = append(out, fmt.Sprintf("port %d: %s", in.Value.Lo, text(o)))
			}
		case *openflow.Group:
			groups, meters = t.Groups(ids[:0]), t.Meters(nil)
			for _, b := range t.Buckets() {
				actions = append(actions, b.Actions...)
			}
		default:
			continue
		}
		for _, id := range groups {
			if !there[datapath.Key{Kind: datapath.KindGroup, Name: fmt.Sprintf("group_id=%d", id)}] {
				out = append(out, fmt.Sprintf("group %d: %s", id, text(o)))
			}
		}
		for _, id := range meters {
			if !metersThere[id] {
				out = append(out, fmt.Sprintf("meter %d: %s", id, text(o)))
			}
		}
		for _, a := range actions {
			if port, ok := portOf(a); ok && !portThere(ports, port) {
				out = append(out, fmt.Sprintf("port %d: %s", port, text(o)))
			}
		}
	}
	return out
}

// portThere reports whether a port has a number; reserved ports always have one.
func portThere(ports map[uint32]bool, n uint32) bool { return n >= openflow.PortMax || ports[n] }

// portOf returns the port that an action names: of output, or of a load of the register that says where
// a packet goes.
func portOf(a openflow.Action) (uint32, bool) {
	switch t := a.(type) {
	case openflow.OutputAction:
		return t.Port, true
	case openflow.SetFieldAction:
		if t.Field == openflow.Reg(1) && t.Mask == openflow.Ones(32) {
			return uint32(t.Value.Lo), true
		}
	}
	return 0, false
}

// foreign compares what is foreign on a node with what was there when somebody last changed it by hand.
func (c *Checker) foreign(n *sim.Node) []string {
	s := c.of(n)
	now := n.Foreign()
	defer func() { s.foreign, s.hand, s.known = now, n.HandVersion(), true }()
	if !s.known || s.hand != n.HandVersion() || slices.Equal(s.foreign, now) {
		return nil
	}
	var out []string
	for _, l := range s.foreign {
		if !slices.Contains(now, l) {
			out = append(out, "gone: "+l)
		}
	}
	for _, l := range now {
		if !slices.Contains(s.foreign, l) {
			out = append(out, "new:  "+l)
		}
	}
	if len(out) == 0 {
		out = append(out, "they are in another order")
	}
	return out
}

// restart says what a restart of the agent would write, if anything happened since that was asked last.
func (c *Checker) restart(n *sim.Node) string {
	s := c.of(n)
	now := imprint{
		life: n.Life(), effects: n.Effects(), hand: n.HandVersion(), version: c.w.Kube.Version(),
		alive: strings.Join(n.Told().Alive, ","),
	}
	if now == s.dry {
		return ""
	}
	s.dry = now
	ops, err := n.DryRestart()
	if err != nil {
		return "a restart would fail: " + err.Error()
	}
	if len(ops) == 0 {
		return ""
	}
	lines := make([]string, len(ops))
	for i, op := range ops {
		lines[i] = op.String()
	}
	return "a restart would write:\n  " + listed(lines)
}
