package datapath

import (
	"cmp"
	"slices"
	"strings"
)

// The Store knows, per key, what is wanted and what is there:
//
//	unit A ──candidate──┐                     ┌── known: the acknowledged text, absent, or not known
//	unit B ──candidate──┼──▶ entry (one key) ─┤
//	unit C ──candidate──┘      first wins     └── pending: wanted differs from known
//
// Sharing an object is having several candidates for its key: nobody counts references. A candidate
// whose text differs from the winner's waits, and takes over when the winner goes. An entry that
// nobody wants and that is known to be absent is forgotten.
type Store struct {
	entries index
	units   map[string]*unit
	// first and last are the ends of the list of pending entries, in the order in which they became so.
	first, last *entry
	pending     int
	// orphans are entries that a dump showed and no unit ever wanted: they are deleted only when
	// ReleaseOrphans says that every source was heard.
	orphans map[*entry]struct{}
	// unowned are all entries that are on the node and of no unit, orphans among them.
	unowned map[*entry]struct{}
	// answers counts what was told of the node: results and dumps.
	answers uint64
	// realised collects the units that came to have nothing pending.
	realised map[string]bool
}

// Precedence orders the candidates for one key: the lowest Age wins, then the lowest unit name.
// Age is a creation time in seconds; sandboxes use negative ages so that the newest wins.
type Precedence struct {
	Age int64
}

type candidate struct {
	unit *unit
	obj  Object
}

type entry struct {
	key   Key
	cands []candidate  // sorted by rank; the first is what is wanted
	one   [1]candidate // what cands has in the most usual case
	// leaving are the units that gave the key up and wait for that to be known.
	leaving []*unit
	known   Object // nil: absent, if state is knownState
	state   knownState
	flight  bool // an op for the key is in a Change that has no result yet
	orphan  bool // held back: no unit wants it, and not all sources were heard or its deletion was refused
	pending bool
	unowned bool // it is in the Store's unowned
	named   bool // by the call of Set in progress
	// prev and next are the neighbours in the list of pending entries.
	prev, next *entry
}

type knownState uint8

const (
	isKnown  knownState = iota
	notKnown            // it may or may not be there: read back before the next op
)

type unit struct {
	name    string
	alone   []string // its name, for the ops that are of no other unit; nobody changes it
	rank    Precedence
	keys    []*entry // wanted
	left    []*entry // given up, and not yet settled without the unit
	pending int
	gone    bool
}

// NewStore returns an empty Store: nothing wanted, nothing known to be there.
func NewStore() *Store {
	return &Store{
		entries: newIndex(), units: map[string]*unit{},
		orphans: map[*entry]struct{}{}, unowned: map[*entry]struct{}{}, realised: map[string]bool{},
	}
}

// Set replaces what the unit wants. Objects with one key must not occur twice. It reports whether
// anything changed for the unit.
func (s *Store) Set(name string, rank Precedence, objs []Object) bool {
	u := s.units[name]
	if u == nil {
		if len(objs) == 0 {
			s.realised[name] = true
			return false
		}
		u = &unit{name: name, alone: []string{name}}
		s.units[name] = u
	}
	reranked := u.rank != rank
	u.rank = rank
	u.gone = false
	next := make([]*entry, len(objs))
	for i, o := range objs {
		next[i] = s.entries.getOrMake(o.Key())
		next[i].named = true
	}
	var dropped []*entry
	for _, e := range u.keys {
		if !e.named {
			dropped = append(dropped, e)
		}
	}
	for _, e := range next {
		e.named = false
	}
	slices.SortFunc(dropped, compareEntries)
	for _, e := range dropped {
		s.drop(e, u)
	}
	changed := len(dropped) > 0
	u.keys = next
	for i, o := range objs {
		if s.want(u, next[i], o, reranked) {
			changed = true
		}
	}
	if len(u.keys) == 0 {
		u.gone = true
	}
	s.check(u)
	return changed
}

// Remove makes the unit want nothing.
func (s *Store) Remove(name string) bool { return s.Set(name, Precedence{}, nil) }

// want records one candidate.
func (s *Store) want(u *unit, e *entry, o Object, reranked bool) bool {
	if e.orphan {
		e.orphan = false
		delete(s.orphans, e)
	}
	changed := true
	if i := e.find(u); i >= 0 {
		changed = !sameText(e.cands[i].obj, o)
		// Also if the text is the same: an object can carry more than its text (the far side of a link).
		e.cands[i].obj = o
		if !changed {
			if reranked {
				e.sort()
				s.settle(e)
			}
			return false
		}
		e.sort()
	} else {
		if l := slices.Index(e.leaving, u); l >= 0 {
			e.leaving = slices.Delete(e.leaving, l, l+1)
			u.settled(e)
			if e.pending {
				u.pending--
			}
		}
		e.cands = append(e.cands, candidate{u, o})
		if e.pending {
			u.pending++
		}
		e.sort()
	}
	s.settle(e)
	return changed
}

// drop makes the unit give a key up; it stays attached until the key is settled without it.
func (s *Store) drop(e *entry, u *unit) {
	i := e.find(u)
	if i < 0 {
		return
	}
	wasWinner := i == 0
	e.cands = slices.Delete(e.cands, i, i+1)
	if !wasWinner {
		if e.pending {
			u.pending--
		}
		return
	}
	e.leaving = append(e.leaving, u)
	u.left = append(u.left, e)
	s.settle(e)
}

func (u *unit) settled(e *entry) {
	if i := slices.Index(u.left, e); i >= 0 {
		u.left = slices.Delete(u.left, i, i+1)
	}
}

func (e *entry) find(u *unit) int {
	for i := range e.cands {
		if e.cands[i].unit == u {
			return i
		}
	}
	return -1
}

func (e *entry) sort() {
	if len(e.cands) < 2 {
		return
	}
	slices.SortFunc(e.cands, func(a, b candidate) int {
		if c := cmp.Compare(a.unit.rank.Age, b.unit.rank.Age); c != 0 {
			return c
		}
		return strings.Compare(a.unit.name, b.unit.name)
	})
}

func compareEntries(a, b *entry) int { return a.key.Compare(b.key) }

func sortedEntries(list []*entry) []*entry {
	return slices.SortedFunc(slices.Values(list), compareEntries)
}

func (e *entry) want() Object {
	if len(e.cands) == 0 {
		return nil
	}
	return e.cands[0].obj
}

func sameText(a, b Object) bool {
	return a == b || (a != nil && b != nil && a.String() == b.String())
}

// settle brings pending in line with wanted and known, and tells the units.
func (s *Store) settle(e *entry) {
	w := e.want()
	p := e.flight || e.state != isKnown || (w == nil) != (e.known == nil) || (w != nil && !sameText(w, e.known))
	if e.orphan {
		p = false
	}
	if p && !e.pending {
		s.link(e)
		for _, c := range e.cands {
			c.unit.pending++
		}
		for _, u := range e.leaving {
			u.pending++
		}
	}
	if !p {
		was := e.pending
		if was {
			s.unlink(e)
		}
		for _, c := range e.cands {
			if was {
				c.unit.pending--
				s.check(c.unit)
			}
		}
		leaving := e.leaving
		e.leaving = nil
		for _, u := range leaving {
			if was {
				u.pending--
			}
			u.settled(e)
			s.check(u)
		}
		if w == nil && e.known == nil && e.state == isKnown {
			s.entries.remove(e)
			delete(s.orphans, e)
		}
	}
	if nobody := e.known != nil && len(e.cands) == 0 && len(e.leaving) == 0; nobody != e.unowned {
		e.unowned = nobody
		if nobody {
			s.unowned[e] = struct{}{}
		} else {
			delete(s.unowned, e)
		}
	}
}

// link appends an entry to the list of pending ones.
func (s *Store) link(e *entry) {
	e.pending = true
	s.pending++
	e.prev, e.next = s.last, nil
	if s.last == nil {
		s.first = e
	} else {
		s.last.next = e
	}
	s.last = e
}

// unlink takes an entry out of the list of pending ones.
func (s *Store) unlink(e *entry) {
	e.pending = false
	s.pending--
	if e.prev == nil {
		s.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		s.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}

// check notes a unit that has nothing pending, and forgets one that wants nothing either.
func (s *Store) check(u *unit) {
	if u.pending > 0 {
		return
	}
	s.realised[u.name] = true
	if u.gone && s.units[u.name] == u {
		delete(s.units, u.name)
	}
}

// largeMap is from how many entries on an emptied map is replaced: a map keeps the size that it once had,
// and clearing it costs that size.
const largeMap = 4096

// TakeRealised returns the units that came to have nothing pending since the last call, sorted.
// A unit that was removed is named once its objects are gone.
func (s *Store) TakeRealised() []string {
	if len(s.realised) == 0 {
		return nil
	}
	var names []string
	for n := range s.realised {
		if u := s.units[n]; u == nil || u.pending == 0 {
			names = append(names, n)
		}
	}
	if len(s.realised) >= largeMap {
		s.realised = map[string]bool{}
	} else {
		clear(s.realised)
	}
	slices.Sort(names)
	return names
}

// Realised reports whether everything that the unit wants is there, and what it gave up is gone.
// A unit that the Store does not have is realised.
func (s *Store) Realised(name string) bool {
	u := s.units[name]
	return u == nil || u.pending == 0
}

// Has reports whether the unit wants or still holds anything.
func (s *Store) Has(name string) bool { return s.units[name] != nil }

// Units returns the names of all units, sorted.
func (s *Store) Units() []string {
	names := make([]string, 0, len(s.units))
	for n := range s.units {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Objects returns what the unit wants, sorted by key.
func (s *Store) Objects(name string) []Object {
	u := s.units[name]
	if u == nil {
		return nil
	}
	var objs []Object
	for _, e := range sortedEntries(u.keys) {
		if i := e.find(u); i >= 0 {
			objs = append(objs, e.cands[i].obj)
		}
	}
	return objs
}

// OnNode returns what is, as far as is known, on the node for a unit, in any order: what it wants there, the versions of
// before, and what it gave up. Of what is not known it is what was known last.
func (s *Store) OnNode(name string) []Object {
	u := s.units[name]
	if u == nil {
		return nil
	}
	var objs []Object
	for _, keys := range [2][]*entry{u.keys, u.left} {
		for _, e := range keys {
			if e.known != nil {
				objs = append(objs, e.known)
			}
		}
	}
	return objs
}

// Waiting returns the keys for which the unit is a candidate with another text than the winner's.
func (s *Store) Waiting(name string) []Key {
	u := s.units[name]
	if u == nil {
		return nil
	}
	var keys []Key
	for _, e := range u.keys {
		if i := e.find(u); i > 0 && !sameText(e.cands[i].obj, e.cands[0].obj) {
			keys = append(keys, e.key)
		}
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}

// Known returns the acknowledged object of a key, nil if it is absent or not known.
func (s *Store) Known(k Key) Object {
	if e := s.entries.get(k); e != nil && e.state == isKnown {
		return e.known
	}
	return nil
}

// Wanted returns the object that is wanted for a key, nil if none.
func (s *Store) Wanted(k Key) Object {
	if e := s.entries.get(k); e != nil {
		return e.want()
	}
	return nil
}

// Len returns the number of keys that are wanted, known to be there, or not settled. With nothing
// pending and no orphans, that is the number of objects wanted.
func (s *Store) Len() int { return s.entries.len() }

// Count returns how many objects of each kind are wanted.
func (s *Store) Count() map[Kind]int {
	n := map[Kind]int{}
	for e := range s.entries.all() {
		if e.want() != nil {
			n[e.key.Kind]++
		}
	}
	return n
}

// Desired returns everything wanted, sorted by key.
func (s *Store) Desired() []Object {
	var objs []Object
	for e := range s.entries.all() {
		if w := e.want(); w != nil {
			objs = append(objs, w)
		}
	}
	SortObjects(objs)
	return objs
}

// Pending returns the ops that lead from known to wanted, in the order in which they became pending: those
// not in flight, not unknown, and accepted by take (nil takes all).
func (s *Store) Pending(take func(Op) bool) []Op {
	var ops []Op
	for e := s.first; e != nil; e = e.next {
		if e.flight || e.state == notKnown || (e.known == nil && len(e.cands) == 0) {
			continue
		}
		if op := e.op(); take == nil || take(op) {
			if ops == nil {
				ops = make([]Op, 0, min(s.pending, maxPrepared))
			}
			ops = append(ops, op)
		}
	}
	return ops
}

// maxPrepared is for how many ops Pending makes room at once.
const maxPrepared = 1 << 20

func (e *entry) op() Op {
	op := Op{Old: e.known, New: e.want(), entry: e}
	if len(e.cands) == 1 && len(e.leaving) == 0 {
		op.Units = e.cands[0].unit.alone
		return op
	}
	for _, c := range e.cands {
		op.Units = append(op.Units, c.unit.name)
	}
	for _, u := range e.leaving {
		op.Units = append(op.Units, u.name)
	}
	return op
}

// PendingCount returns the number of keys that are pending, in flight and unknown ones included.
func (s *Store) PendingCount() int { return s.pending }

// UnitPending reports whether the unit has a pending key of one of the kinds.
func (s *Store) UnitPending(name string, kinds ...Kind) bool {
	u := s.units[name]
	if u == nil || u.pending == 0 {
		return false
	}
	for _, keys := range [2][]*entry{u.keys, u.left} {
		for _, e := range keys {
			if e.pending && slices.Contains(kinds, e.key.Kind) {
				return true
			}
		}
	}
	return false
}

// Unknown reports whether any pending key of the kinds in group must be read back.
func (s *Store) Unknown(group func(Kind) bool) bool {
	for e := s.first; e != nil; e = e.next {
		if e.state == notKnown && group(e.key.Kind) {
			return true
		}
	}
	return false
}

// Depart marks the keys of ops, which Pending returned, as in flight.
func (s *Store) Depart(ops []Op) {
	for _, op := range ops {
		op.entry.flight = true
	}
}

// Arrive takes the results of ops that departed.
func (s *Store) Arrive(ops []Op, results []OpResult) {
	s.answers++
	for i, op := range ops {
		e := op.entry
		e.flight = false
		switch results[i].Outcome {
		case Done:
			e.known, e.state = op.New, isKnown
		case Unknown:
			e.state = notKnown
		}
		s.settle(e)
	}
}
