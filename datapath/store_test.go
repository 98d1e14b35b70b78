package datapath

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// thing is an object of a test.
type thing struct{ kind, name, text string }

func (o thing) Kind() Kind     { return Kind(o.kind) }
func (o thing) Key() Key       { return Key{Kind(o.kind), o.name} }
func (o thing) String() string { return o.text }

// told is what a test knows that a Store should know: what each unit wants, and what is on the node.
type told struct {
	rank map[string]int64
	want map[string]map[Key]thing
	node map[Key]Object
}

// winner returns what is wanted for a key.
func (m *told) winner(k Key) (Object, string) {
	best := ""
	for _, unit := range slices.Sorted(maps.Keys(m.want)) {
		if _, ok := m.want[unit][k]; ok && (best == "" || m.rank[unit] < m.rank[best]) {
			best = unit
		}
	}
	if best == "" {
		return nil, ""
	}
	return m.want[best][k], best
}

func all(Kind) bool { return true }

// draw has a unit want something else.
func (m *told) draw(rng *rand.Rand, s *Store) {
	unit := fmt.Sprint("u", rng.IntN(4))
	objs := map[Key]thing{}
	for range rng.IntN(4) {
		o := thing{[]string{"flow", "route"}[rng.IntN(2)], fmt.Sprint("k", rng.IntN(5)), fmt.Sprint("v", rng.IntN(3))}
		objs[o.Key()] = o
	}
	m.want[unit], m.rank[unit] = objs, int64(rng.IntN(3))
	var list []Object
	for _, k := range slices.SortedFunc(maps.Keys(objs), Key.Compare) {
		list = append(list, objs[k])
	}
	s.Set(unit, Precedence{Age: m.rank[unit]}, list)
}

// answer has the ops of a Change end in some way each.
func (m *told) answer(rng *rand.Rand, s *Store, ops []Op) {
	results := make([]OpResult, len(ops))
	for i, op := range ops {
		o := Outcome(rng.IntN(4))
		results[i].Outcome = o
		if o == Refused || o == Unknown {
			results[i].Err = errors.New("drawn")
		}
		if o == Done || o == Unknown && rng.IntN(2) == 0 {
			m.apply(op)
		}
	}
	s.Arrive(ops, results)
}

func (m *told) apply(op Op) {
	if op.Delete() {
		delete(m.node, op.Key())
	} else {
		m.node[op.Key()] = op.New
	}
}

// dump returns what is on the node.
func (m *told) dump() []Object {
	objs := slices.Collect(maps.Values(m.node))
	SortObjects(objs)
	return objs
}

// check compares the Store with what was told to it.
func (m *told) check(t *testing.T, s *Store) {
	t.Helper()
	for unit, objs := range m.want {
		if got := s.Objects(unit); len(got) != len(objs) {
			t.Fatalf("unit %s wants %v, want %v", unit, got, objs)
		}
		for k := range objs {
			if o, _ := m.winner(k); !Equal(s.Wanted(k), o) {
				t.Fatalf("%s: wanted %v, want %v", k, s.Wanted(k), o)
			}
		}
	}
	for _, op := range s.Pending(nil) {
		o, _ := m.winner(op.Key())
		if !Equal(op.New, o) || Equal(op.New, op.Old) {
			t.Fatalf("op %s, wanted is %v", op, o)
		}
		if have := m.node[op.Key()]; !Equal(op.Old, have) {
			t.Fatalf("op %s of %v, on the node is %v", op, op.Old, have)
		}
	}
}

// A Store that is told of Changes with all outcomes, of dumps, and of connections that were lost ends with the node as the
// units want it: nothing that is in flight is sent again, nothing that is not ours goes before it is released.
func TestStoreConverges(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, m := NewStore(), &told{rank: map[string]int64{}, want: map[string]map[Key]thing{}, node: map[Key]Object{}}
		if seed%2 == 1 {
			s.entries.hash = func(k Key) uint64 { return uint64(len(k.Name)) } // many names with one hash
		}
		foreign := thing{"flow", "foreign", "v0"}
		m.node[foreign.Key()] = foreign
		var flight []Op
		for range 60 {
			switch rng.IntN(6) {
			case 0, 1:
				m.draw(rng, s)
			case 2:
				ops := s.Pending(func(Op) bool { return rng.IntN(3) > 0 })
				for _, op := range ops {
					if slices.ContainsFunc(flight, func(f Op) bool { return f.Key() == op.Key() }) {
						t.Fatalf("seed %d: %s is in flight and pending", seed, op.Key())
					}
				}
				s.Depart(ops)
				flight = append(flight, ops...)
			case 3:
				n := rng.IntN(len(flight) + 1)
				m.answer(rng, s, flight[:n])
				flight = slices.Clone(flight[n:])
			case 4:
				s.Forget(all)
			case 5:
				s.Load(m.dump(), all)
			}
			m.check(t, s)
		}
		m.answer(rng, s, flight)
		s.Load(m.dump(), all)
		m.check(t, s)
		if got := s.Orphans(); len(got) == 0 || !slices.ContainsFunc(got, func(o Object) bool { return Equal(o, foreign) }) {
			t.Fatalf("seed %d: orphans %v, want %v among them", seed, got, foreign)
		}
		s.ReleaseOrphans(func(o Object) bool { return !Equal(o, foreign) })
		ops := s.Pending(nil)
		s.Depart(ops)
		for _, op := range ops {
			m.apply(op)
		}
		s.Arrive(ops, AllResults(len(ops), Done, nil))
		m.check(t, s)
		if n := s.PendingCount(); n != 0 {
			t.Fatalf("seed %d: %d keys pending after everything was done", seed, n)
		}
		if got := s.Unowned(); len(got) != 1 || !Equal(got[0], foreign) {
			t.Fatalf("seed %d: of no unit are %v, want %v", seed, got, foreign)
		}
		delete(m.node, foreign.Key())
		if want := s.Desired(); !slices.EqualFunc(want, m.dump(), Equal) {
			t.Fatalf("seed %d: on the node is %v, want %v", seed, m.dump(), want)
		}
		for unit, objs := range m.want {
			if !s.Realised(unit) || s.Has(unit) != (len(objs) > 0) {
				t.Fatalf("seed %d: unit %s: realised %t, has %t; it wants %v", seed, unit, s.Realised(unit), s.Has(unit), objs)
			}
		}
	}
}

// What no unit wants may go until its deletion is refused, and again when that is reclaimed.
func TestStoreLeaving(t *testing.T) {
	a := thing{"route", "a", "v0"}
	s := NewStore()
	state := func(when string, leaving, withheld bool) {
		t.Helper()
		is, other := func(k Kind) bool { return k == "route" }, func(k Kind) bool { return k != "route" }
		if s.Leaving(is) != leaving || s.Withheld(is) != withheld || s.Leaving(other) || s.Withheld(other) {
			t.Errorf("%s: leaving %t, withheld %t, want %t, %t; of other kinds %t, %t", when, s.Leaving(is), s.Withheld(is), leaving, withheld, s.Leaving(other), s.Withheld(other))
		}
	}
	state("empty", false, false)
	s.Load([]Object{a}, all)
	state("orphan", true, false)
	s.ReleaseOrphans(nil)
	state("released", true, false)
	s.Withhold(a.Key())
	state("refused", false, true)
	s.Reclaim(a.Key())
	state("reclaimed", true, false)
	s.ReleaseOrphans(nil)
	ops := s.Pending(nil)
	s.Depart(ops)
	state("in flight", true, false)
	s.Arrive(ops, AllResults(1, Done, nil))
	state("gone", false, false)
}

// A deletion that was refused waits until it is reclaimed and released, and is forgotten if somebody wants the key.
func TestStoreWithholds(t *testing.T) {
	a := thing{"route", "a", "v0"}
	fresh := func() *Store {
		s := NewStore()
		s.Load([]Object{a}, all)
		s.ReleaseOrphans(nil)
		s.Withhold(a.Key())
		return s
	}
	s := fresh()
	if n := s.PendingCount(); n != 0 || len(s.Orphans()) != 0 {
		t.Fatalf("withheld: %d pending, orphans %v", n, s.Orphans())
	}
	if !s.Reclaim(a.Key()) || s.ReleaseOrphans(nil) != 1 || len(s.Pending(nil)) != 1 {
		t.Fatalf("reclaimed and released: pending %v", s.Pending(nil))
	}
	s = fresh()
	s.Set("u", Precedence{}, []Object{a})
	if !s.Realised("u") || s.Reclaim(a.Key()) {
		t.Fatal("a key that somebody wants is withheld")
	}
	s = fresh()
	s.Load(nil, all)
	if s.Reclaim(a.Key()) || s.Len() != 0 {
		t.Fatal("what is gone is withheld")
	}
}

// An orphan that is given to a unit is an op of that unit, as if it had given it up.
func TestStoreGivesOrphans(t *testing.T) {
	old, now := thing{"flow", "old", "v0"}, thing{"flow", "now", "v0"}
	s := NewStore()
	s.Load([]Object{old}, all)
	if s.GiveOrphan(old.Key(), "u") || s.GiveOrphan(now.Key(), "u") {
		t.Fatal("given to a unit that there is not")
	}
	s.Set("u", Precedence{}, []Object{now})
	if !s.GiveOrphan(old.Key(), "u") || s.GiveOrphan(old.Key(), "u") || len(s.Orphans()) != 0 {
		t.Fatalf("not given once: orphans %v", s.Orphans())
	}
	ops := s.Pending(nil)
	if len(ops) != 2 || !slices.Equal(ops[0].Units, []string{"u"}) || !slices.Equal(ops[1].Units, []string{"u"}) || s.Realised("u") {
		t.Fatalf("ops %v, of %v", ops, ops[1].Units)
	}
	s.Depart(ops)
	s.Arrive(ops, AllResults(2, Refused, errors.New("drawn")))
	if s.Realised("u") || len(s.Pending(nil)) != 2 {
		t.Fatalf("after a refusal: %v", s.Pending(nil))
	}
	s.Depart(ops)
	s.Arrive(ops, AllResults(2, Done, nil))
	if !s.Realised("u") || s.Known(old.Key()) != nil || s.PendingCount() != 0 {
		t.Fatalf("after it is done: %v", s.Pending(nil))
	}
}

// What a unit gives up goes in the order of the keys, in whatever order it was wanted.
func TestStoreGivesUpInOrder(t *testing.T) {
	s := NewStore()
	var objs []Object
	for _, name := range []string{"c", "a", "d", "b"} {
		objs = append(objs, thing{"flow", name, "v0"})
	}
	s.Set("u", Precedence{}, objs)
	ops := s.Pending(nil)
	s.Depart(ops)
	s.Arrive(ops, AllResults(len(ops), Done, nil))
	s.Set("u", Precedence{}, objs[2:3])
	got := ""
	for _, op := range s.Pending(nil) {
		got += op.Key().Name
	}
	if got != "abc" {
		t.Errorf("given up: %s, want abc", got)
	}
}
