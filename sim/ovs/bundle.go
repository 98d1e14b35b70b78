package ovs

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"towtank/datapath"
	"towtank/datapath/openflow"
)

// learnKey names the flows that go when the last flow that learns them goes: those with the cookie in
// the table.
type learnKey struct {
	table  uint8
	cookie uint64
}

// errTooLong ends the OpenFlow connection.
var errTooLong = fmt.Errorf("message over %d bytes: the OpenFlow connection is lost", openflow.MaxMessage)

// ApplyBundle applies groups and flows as one bundle: all or nothing. Messages go in the order groups
// put, flows put, flows deleted, groups deleted. If one is refused, its op is Refused and the others
// are Skipped; if one is too long for OpenFlow, the connection dies and all are Unknown (none was
// applied).
//
// A put of a flow that learns, or replaces one that did (op.Old), is a delete and an add: learned flows
// of the old body go, as delete_learned says.
func (s *Switch) ApplyBundle(ops []datapath.Op) []datapath.OpResult {
	if s.stopped {
		return datapath.AllResults(len(ops), datapath.Unknown, errNotConnected)
	}
	s.Tick()
	order := datapath.Arrange(len(ops), func(i int) int { return ops[i].BundlePhase() })
	s.bundling = true
	for i := range ops {
		if order != nil {
			i = order[i]
		}
		err := s.applyOp(ops[i])
		if err == nil {
			continue
		}
		s.bundling = false
		for k := len(s.undo) - 1; k >= 0; k-- {
			s.undo[k]()
		}
		s.undo = nil
		if errors.Is(err, errTooLong) {
			err = fmt.Errorf("%s: %w", ops[i].Key(), err)
			if s.cfg.Disconnected != nil {
				s.cfg.Disconnected(err.Error())
			}
			return datapath.AllResults(len(ops), datapath.Unknown, err)
		}
		res := datapath.AllResults(len(ops), datapath.Skipped, nil)
		res[i] = datapath.OpResult{Outcome: datapath.Refused, Err: fmt.Errorf("%s: %w", ops[i].Key(), err)}
		return res
	}
	s.undo, s.bundling = nil, false
	return make([]datapath.OpResult, len(ops))
}

func (s *Switch) applyOp(op datapath.Op) error {
	switch {
	case op.Kind() == datapath.KindGroup && op.Delete():
		if g, ok := op.Old.(*openflow.Group); ok {
			s.deleteGroup(g.ID())
			return nil
		}
	case op.Kind() == datapath.KindGroup:
		if g, ok := op.New.(*openflow.Group); ok {
			return s.putGroup(g)
		}
	case op.Kind() == datapath.KindFlow && op.Delete():
		f, ok := op.Old.(*openflow.Flow)
		if !ok {
			break
		}
		if r := s.rule(f); r != nil {
			s.removeRule(r)
		}
		return nil
	case op.Kind() == datapath.KindFlow:
		f, ok := op.New.(*openflow.Flow)
		if !ok {
			break
		}
		if err := s.checkFlow(f); err != nil {
			return err
		}
		if old, _ := op.Old.(*openflow.Flow); old != nil && (old.Learns() || f.Learns()) {
			if r := s.rule(f); r != nil && r.flow.String() != f.String() {
				s.removeRule(r)
			}
		}
		return s.putFlow(f, false)
	}
	return fmt.Errorf("not a flow or group but %T %T", op.Old, op.New)
}

// onUndo remembers how to take back a change of the bundle in progress.
func (s *Switch) onUndo(f func()) {
	if s.bundling {
		s.undo = append(s.undo, f)
	}
}

func (s *Switch) putGroup(g *openflow.Group) error {
	if n := g.WireLen(); n > openflow.MaxMessage {
		return errTooLong
	}
	for i := range g.Buckets() {
		if err := s.checkActions(g.Buckets()[i].Actions, true); err != nil {
			return fmt.Errorf("bucket %d: %w", g.Buckets()[i].ID, err)
		}
	}
	for _, f := range g.HashFields() {
		if places[f].word == unmodelled {
			return fmt.Errorf("field %s is not modelled", f)
		}
	}
	old := s.groups[g.ID()]
	s.groups[g.ID()] = newGroup(g)
	s.onUndo(func() {
		if old == nil {
			delete(s.groups, g.ID())
		} else {
			s.groups[g.ID()] = old
		}
	})
	return nil
}

func (s *Switch) deleteGroup(id uint32) {
	old := s.groups[id]
	if old == nil {
		return
	}
	for _, r := range sortedRules(slices.Clone(s.groupUsers[id])) {
		s.removeRule(r)
	}
	delete(s.groups, id)
	s.onUndo(func() { s.groups[id] = old })
}

// checkFlow refuses what OVS refuses for what else is on the switch, and what the model does not have.
func (s *Switch) checkFlow(f *openflow.Flow) error {
	if f.WireLen() > openflow.MaxMessage {
		return errTooLong
	}
	var ids [4]uint32
	for _, id := range f.Groups(ids[:0]) {
		if s.groups[id] == nil {
			return fmt.Errorf("group %d does not exist (OFPBAC_BAD_OUT_GROUP)", id)
		}
	}
	for _, a := range f.Actions() {
		if m, ok := a.(openflow.MeterAction); ok && s.meters[m.ID] == nil {
			return fmt.Errorf("meter %d does not exist (OFPMMFC_INVALID_METER)", m.ID)
		}
	}
	for _, m := range f.Match().Fields() {
		if places[m.Field].word == unmodelled {
			return fmt.Errorf("match %s is not modelled", m)
		}
	}
	return s.checkActions(f.Actions(), false)
}

// checkActions refuses actions that the model does not have.
func (s *Switch) checkActions(actions []openflow.Action, bucket bool) error {
	var few [4]openflow.Field
	for _, a := range actions {
		fields := few[:0]
		switch a := a.(type) {
		case openflow.OutputAction:
			if a.Port == openflow.PortTable {
				return fmt.Errorf("action %s is not modelled", openflow.ActionText(a))
			}
		case openflow.GroupAction, openflow.ResubmitAction, openflow.MeterAction, openflow.DecTTLAction,
			openflow.PushVLANAction, openflow.PopVLANAction, openflow.CTClearAction:
		case openflow.GotoAction:
			if bucket {
				return fmt.Errorf("action %s is not allowed in a bucket", openflow.ActionText(a))
			}
		case openflow.OutputRegAction:
			fields = append(fields, a.Src.Field)
		case openflow.Controller:
			if a.ID != 0 {
				return fmt.Errorf("action %s: a controller id is not modelled", openflow.ActionText(a))
			}
		case openflow.SetFieldAction:
			fields = append(fields, a.Field)
		case openflow.MoveAction:
			fields = append(fields, a.Src.Field, a.Dst.Field)
		case openflow.CT:
			if a.ZoneFrom.Field != openflow.FieldNone {
				fields = append(fields, a.ZoneFrom.Field)
			}
			if err := s.checkActions(a.Exec, bucket); err != nil {
				return err
			}
		case openflow.Learn:
			if a.FinIdleTimeout != 0 || a.FinHardTimeout != 0 {
				return fmt.Errorf("action %s: fin timeouts are not modelled", openflow.ActionText(a))
			}
			for _, spec := range a.Specs {
				for _, r := range []openflow.Range{spec.Src, spec.Dst} {
					if r.Field != openflow.FieldNone {
						fields = append(fields, r.Field)
					}
				}
			}
		default:
			return fmt.Errorf("action %s is not modelled", openflow.ActionText(a))
		}
		for _, f := range fields {
			if places[f].word == unmodelled {
				return fmt.Errorf("action %s: field %s is not modelled", openflow.ActionText(a), f)
			}
		}
	}
	return nil
}

// rule returns the rule with the table, priority and match of a flow, nil if there is none.
func (s *Switch) rule(f *openflow.Flow) *rule {
	var maskBuf [16]maskWord
	var valBuf [16]uint64
	mask, values, bad := compile(f.Match(), maskBuf[:0], valBuf[:0])
	if bad != openflow.FieldNone {
		return nil
	}
	return s.tables[f.Table()].find(mask, values, f.Priority())
}

// rules returns all rules, in any order.
func (s *Switch) rules() iter.Seq[*rule] {
	return func(yield func(*rule) bool) {
		for i := range s.tables {
			for _, sub := range s.tables[i].subs {
				//determinism:ignore the caller is told that the order is any
				for _, r := range sub.rules {
					for ; r != nil; r = r.next {
						if !yield(r) {
							return
						}
					}
				}
			}
		}
	}
}

// putFlow adds a flow, or replaces the body of the one with its key.
func (s *Switch) putFlow(f *openflow.Flow, learned bool) error {
	var maskBuf [16]maskWord
	var valBuf [16]uint64
	mask, values, bad := compile(f.Match(), maskBuf[:0], valBuf[:0])
	if bad != openflow.FieldNone {
		return fmt.Errorf("match on %s is not modelled", bad)
	}
	now := s.now()
	r := &rule{flow: f, learned: learned, created: now, used: now}
	r.values = append(r.few[:0], values...)
	old := s.tables[f.Table()].find(mask, values, f.Priority())
	s.count(r, 1)
	if old != nil {
		s.unlink(old)
	}
	s.link(r, mask)
	s.onUndo(func() {
		s.unlink(r)
		s.count(r, -1)
		if old != nil {
			s.relink(old)
		}
	})
	if old != nil {
		s.uncount(old)
	}
	s.watch(r)
	return nil
}

// removeRule deletes a flow, and what it learned if it was the last to learn it.
func (s *Switch) removeRule(r *rule) {
	if r.gone {
		return
	}
	s.unlink(r)
	s.onUndo(func() { s.relink(r) })
	s.uncount(r)
}

// link puts a rule into its table and indices.
func (s *Switch) link(r *rule, mask []maskWord) {
	r.gone = false
	s.tables[r.flow.Table()].insert(r, mask)
	s.index(r, true)
}

func (s *Switch) unlink(r *rule) {
	r.gone = true
	s.tables[r.flow.Table()].remove(r)
	s.index(r, false)
}

func (s *Switch) relink(r *rule) {
	var maskBuf [16]maskWord
	var valBuf [16]uint64
	mask, _, _ := compile(r.flow.Match(), maskBuf[:0], valBuf[:0])
	s.link(r, mask)
	s.watch(r)
}

func (s *Switch) index(r *rule, add bool) {
	var ids [4]uint32
	for _, id := range r.flow.Groups(ids[:0]) {
		s.useGroup(id, r, add)
	}
	for _, a := range r.flow.Actions() {
		if m, ok := a.(openflow.MeterAction); ok {
			setUser(s.meterUsers, m.ID, r, add)
		}
	}
	if r.learned {
		setUser(s.learned, learnKey{r.flow.Table(), r.flow.Cookie()}, r, add)
	}
}

// useGroup notes that a rule uses a group, or no longer does.
func (s *Switch) useGroup(id uint32, r *rule, add bool) {
	users := s.groupUsers[id]
	i := slices.Index(users, r)
	switch {
	case add && i < 0:
		s.groupUsers[id] = append(users, r)
	case !add && i >= 0 && len(users) == 1:
		delete(s.groupUsers, id)
	case !add && i >= 0:
		s.groupUsers[id] = slices.Delete(users, i, i+1)
	}
}

func setUser[K comparable](users map[K]map[*rule]struct{}, k K, r *rule, add bool) {
	set := users[k]
	switch {
	case add && set == nil:
		users[k] = map[*rule]struct{}{r: {}}
	case add:
		set[r] = struct{}{}
	default:
		delete(set, r)
		if len(set) == 0 {
			delete(users, k)
		}
	}
}

// count changes the number of flows that learn with delete_learned.
func (s *Switch) count(r *rule, by int) {
	for _, a := range r.flow.Actions() {
		if l, ok := a.(openflow.Learn); ok && l.DeleteLearned {
			k := learnKey{l.Table, l.Cookie}
			if s.learning[k] += by; s.learning[k] == 0 {
				delete(s.learning, k)
			}
		}
	}
}

// uncount takes a rule that is gone out of the count, and deletes the learned flows that no flow
// learns any more.
func (s *Switch) uncount(r *rule) {
	s.count(r, -1)
	s.onUndo(func() { s.count(r, 1) })
	for _, a := range r.flow.Actions() {
		if l, ok := a.(openflow.Learn); ok && l.DeleteLearned {
			if k := (learnKey{l.Table, l.Cookie}); s.learning[k] == 0 {
				for _, lr := range sortedRules(members(s.learned[k])) {
					s.removeRule(lr)
				}
			}
		}
	}
}

func members(set map[*rule]struct{}) []*rule {
	list := make([]*rule, 0, len(set))
	//determinism:ignore the caller sorts
	for r := range set {
		list = append(list, r)
	}
	return list
}

// sortedRules sorts the rules by key, so that the order of what follows never varies.
func sortedRules(list []*rule) []*rule {
	slices.SortFunc(list, func(a, b *rule) int { return strings.Compare(a.flow.Key().Name, b.flow.Key().Name) })
	return list
}

// watch sets the timer of a rule with a timeout.
func (s *Switch) watch(r *rule) {
	if at := r.deadline(); at != 0 {
		s.timers.add(at, func(now int64) int64 {
			if r.gone {
				return 0
			}
			if at := r.deadline(); at > now {
				return at
			}
			s.removeRule(r)
			return 0
		})
	}
}

// deadline is when the rule ends if no packet meets it, 0: never. OVS counts in milliseconds, and a rule ends in the one
// after its time (ofproto-dpif.c, rule_expire).
func (r *rule) deadline() int64 {
	var at int64
	if h := r.flow.HardTimeout(); h != 0 {
		at = r.created + int64(h)*second + millisecond
	}
	if i := r.flow.IdleTimeout(); i != 0 {
		if t := r.used + int64(i)*second + millisecond; at == 0 || t < at {
			at = t
		}
	}
	return at
}
