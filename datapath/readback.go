package datapath

import (
	"maps"
	"slices"
)

// Forget makes everything of the kinds not known: it is read back before it is touched.
func (s *Store) Forget(group func(Kind) bool) {
	for _, e := range s.of(group) {
		e.state = notKnown
		s.settle(e)
	}
}

// of returns the entries of the kinds, sorted by key.
func (s *Store) of(group func(Kind) bool) []*entry {
	var list []*entry
	for e := range s.entries.all() {
		if group(e.key.Kind) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, compareEntries)
	return list
}

// Load takes a dump of all objects of the kinds in group: what it names is known, and what it does
// not name is known to be absent. Keys in flight are left alone: their result comes. Objects that no
// unit wants become orphans. It returns the number of keys whose known version changed.
func (s *Store) Load(dump []Object, group func(Kind) bool) int {
	s.answers++
	seen := make(map[Key]Object, len(dump))
	for _, o := range dump {
		seen[o.Key()] = o
	}
	changed := 0
	for _, e := range s.of(group) {
		if e.flight {
			continue
		}
		o := seen[e.key]
		if e.state != isKnown || !sameText(e.known, o) {
			changed++
		}
		e.known, e.state = o, isKnown
		s.settle(e)
	}
	for _, o := range dump {
		k := o.Key()
		if s.entries.get(k) != nil {
			continue
		}
		e := s.entries.getOrMake(k)
		e.known, e.orphan, e.unowned = o, true, true
		s.orphans[e], s.unowned[e] = struct{}{}, struct{}{}
		changed++
	}
	return changed
}

// Withhold has an object that no unit wants, and whose deletion was refused, stay until Reclaim. A key that a unit
// wants, or is giving up, is left alone.
func (s *Store) Withhold(k Key) {
	e := s.entries.get(k)
	if e == nil || e.known == nil || len(e.cands) > 0 || len(e.leaving) > 0 {
		return
	}
	e.orphan = true
	s.settle(e)
}

// Reclaim makes a withheld object an orphan again. It reports whether it is still there and nobody wants it.
func (s *Store) Reclaim(k Key) bool {
	e := s.entries.get(k)
	if e == nil || !e.orphan || e.known == nil {
		return false
	}
	s.orphans[e] = struct{}{}
	return true
}

func (s *Store) isOrphan(e *entry) bool {
	_, is := s.orphans[e]
	return is
}

// Orphans returns the objects that a dump showed and nobody wants, sorted by key.
func (s *Store) Orphans() []Object {
	var objs []Object
	for e := range s.orphans {
		objs = append(objs, e.known)
	}
	SortObjects(objs)
	return objs
}

// Unowned returns what is on the node and of no unit: orphans, what waits to be deleted, and what could not be. The order is
// any.
func (s *Store) Unowned() []Object {
	var objs []Object
	//determinism:ignore the caller is told that the order is any
	for e := range s.unowned {
		objs = append(objs, e.known)
	}
	return objs
}

// Leaving reports whether an object of the kinds is on the node and of no unit, and may go: an orphan, or one that waits to
// be deleted.
func (s *Store) Leaving(group func(Kind) bool) bool {
	//determinism:ignore any will do
	for e := range s.unowned {
		if group(e.key.Kind) && (e.pending || s.isOrphan(e)) {
			return true
		}
	}
	return false
}

// Withheld reports whether an object of the kinds is on the node and of no unit because its deletion was refused.
func (s *Store) Withheld(group func(Kind) bool) bool {
	//determinism:ignore any will do
	for e := range s.unowned {
		if group(e.key.Kind) && !e.pending && !s.isOrphan(e) {
			return true
		}
	}
	return false
}

// Answers counts the results and dumps that were taken in: as long as it is the same, so is what is known of the node.
func (s *Store) Answers() uint64 { return s.answers }

// GiveOrphan makes an orphan something that a unit gave up: it goes with the unit's other changes, or waits with them. It reports
// whether there is such an orphan and such a unit.
func (s *Store) GiveOrphan(k Key, unit string) bool {
	e, u := s.entries.get(k), s.units[unit]
	if e == nil || u == nil || !s.isOrphan(e) {
		return false
	}
	delete(s.orphans, e)
	e.orphan = false
	e.leaving = append(e.leaving, u)
	u.left = append(u.left, e)
	s.settle(e)
	return true
}

// ReleaseOrphans lets the orphans that take accepts be deleted; it returns how many.
func (s *Store) ReleaseOrphans(take func(Object) bool) int {
	if len(s.orphans) == 0 {
		return 0
	}
	n := 0
	for _, e := range slices.SortedFunc(maps.Keys(s.orphans), compareEntries) {
		if take != nil && !take(e.known) {
			continue
		}
		e.orphan = false
		delete(s.orphans, e)
		s.settle(e)
		n++
	}
	return n
}
