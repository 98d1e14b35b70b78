package check

import (
	"fmt"
	"slices"
	"strings"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/sim"
)

// item is an object with its key, which some kinds have to build.
type item struct {
	key datapath.Key
	obj datapath.Object
}

// dump returns the objects of ours on a node: those of the switch, then those of the host, each sorted.
func dump(n *sim.Node) []item {
	sw, host := n.Switch().Dump(), n.Netns().Dump()
	out := make([]item, 0, len(sw)+len(host))
	for _, list := range [][]datapath.Object{sw, host} {
		for _, o := range list {
			out = append(out, item{o.Key(), o})
		}
	}
	return out
}

// state checks invariants 1 and 2 of a quiet node, as far as anything happened to it since the last time.
func (c *Checker) state(n *sim.Node) []Result {
	var out []Result
	fail := func(id int, format string, args ...any) {
		out = append(out, Result{ID: id, Node: n.Name(), Detail: fmt.Sprintf(format, args...)})
	}
	s := c.of(n)
	now := imprint{life: n.Life(), effects: n.Effects(), hand: n.HandVersion(), facts: s.facts, pending: n.Store().PendingCount()}
	if !s.known || now != s.state {
		s.state = now
		c.count += 3
		have := dump(n)
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
		if len(differences)+len(unowned) > 0 {
			return out // a restart would repair that
		}
	}
	if why := c.restart(n, now); why != "" {
		fail(1, "%s", why)
	}
	return out
}

// compare compares what a Store wants with a dump. A dump that equals what is wanted and known is one
// after which an audit has nothing to write.
func compare(s *datapath.Store, have []item) (differences, unowned []string) {
	for _, h := range have {
		want := s.Wanted(h.key)
		if want == nil {
			unowned = append(unowned, text(h.obj))
			continue
		}
		is := h.obj.String()
		if want.String() != is {
			differences = append(differences, "wanted:  "+text(want)+"\n  is:      "+text(h.obj))
		} else if known := s.Known(h.key); known == nil || known.String() != is {
			differences = append(differences, "an audit would find: "+text(h.obj))
		}
	}
	if s.Len() != len(have) || len(unowned) > 0 {
		there := make(map[datapath.Key]bool, len(have))
		for _, h := range have {
			there[h.key] = true
		}
		for _, o := range s.Desired() {
			if !there[o.Key()] {
				differences = append(differences, "missing: "+text(o))
			}
		}
	}
	if n := s.PendingCount(); n > 0 && len(differences) == 0 {
		differences = append(differences, fmt.Sprintf("%d objects are pending", n))
	}
	return differences, unowned
}

func text(o datapath.Object) string { return string(o.Kind()) + " " + o.String() }

// dangling returns the flows and groups that name a group, meter or port which does not exist.
func dangling(n *sim.Node, have []item) []string {
	groupsThere, metersThere, ports := map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}
	for _, h := range have {
		switch t := h.obj.(type) {
		case *openflow.Group:
			groupsThere[t.ID()] = true
		case *openflow.Meter:
			metersThere[t.ID] = true
		}
	}
	for _, p := range n.Switch().Ports() {
		if p.OFPort != 0 {
			ports[p.OFPort] = true
		}
	}
	var out []string
	var ids []uint32
	for _, h := range have {
		o := h.obj
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
			if !groupsThere[id] {
				out = append(out, fmt.Sprintf("group %d: %s", id, text(o)))
			}
		}
		for _, id := range meters {
			if !metersThere[id] {
				out = append(out, fmt.Sprintf("meter %d: %s", id, text(o)))
			}
		}
		for _, a := range actions {
			if port, ok := PortOf(a); ok && !portThere(ports, port) {
				out = append(out, fmt.Sprintf("port %d: %s", port, text(o)))
			}
		}
	}
	return out
}

// portThere reports whether a port has a number; reserved ports always have one.
func portThere(ports map[uint32]bool, n uint32) bool { return n >= openflow.PortMax || ports[n] }

// PortOf returns the port that an action names: of output, or of a load of the register that says where
// a packet goes.
func PortOf(a openflow.Action) (uint32, bool) {
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
func (c *Checker) restart(n *sim.Node, state imprint) string {
	s := c.of(n)
	now := cause{imprint: state, version: c.w.Kube.Version(), alive: strings.Join(n.Told().Alive, ",")}
	if now == s.dry || c.restarts == 0 {
		return ""
	}
	c.restarts--
	c.count++
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
