package ovs

import (
	"slices"
	"strings"

	"towtank/datapath/openflow"
)

// rule is a flow in a table.
//
//	table ── subtables, one for each mask, the highest priority first
//	          └─ hash of the masked words ── chain of rules, the highest priority first
//
// A lookup tries subtables until the next one cannot hold a rule of a higher priority than the best
// found: as many hash lookups as there are masks, whatever the number of rules.
type rule struct {
	flow    *openflow.Flow
	values  []uint64  // under the words of the subtable's mask
	few     [6]uint64 // what values has, if they are no more
	hash    uint64
	next    *rule // of the same hash
	sub     *subtable
	learned bool
	gone    bool
	packets uint64
	created int64 // ns; a learn action that meets the rule again renews it
	used    int64 // ns of the last packet
}

type subtable struct {
	mask  []maskWord
	id    string
	rules map[uint64]*rule
	prios map[uint16]int // number of rules of each priority
	max   uint16
}

type table struct {
	subs   []*subtable // sorted by max priority (falling), then id
	byMask map[string]*subtable
	n      int
}

// lookup returns the rule of the highest priority that matches, nil if none does. Of several rules of
// one priority, which OpenFlow leaves open, it is always the same one.
func (t *table) lookup(k *key) *rule {
	var best *rule
	for _, s := range t.subs {
		if best != nil && best.flow.Priority() >= s.max {
			break
		}
		if r := s.lookup(k); r != nil && (best == nil || r.flow.Priority() > best.flow.Priority()) {
			best = r
		}
	}
	return best
}

func (s *subtable) lookup(k *key) *rule {
	h := hashInit
	for _, m := range s.mask {
		h = mix(h, k[m.word]&m.bits)
	}
chain:
	for r := s.rules[h]; r != nil; r = r.next {
		for i, m := range s.mask {
			if k[m.word]&m.bits != r.values[i] {
				continue chain
			}
		}
		return r
	}
	return nil
}

const hashInit uint64 = 0x9e3779b97f4a7c15

func mix(h, v uint64) uint64 {
	h ^= v
	h *= 0xff51afd7ed558ccd
	return h ^ h>>32
}

func hashOf(values []uint64) uint64 {
	h := hashInit
	for _, v := range values {
		h = mix(h, v)
	}
	return h
}

// find returns the rule with exactly this mask, these values and this priority, nil if there is none.
func (t *table) find(mask []maskWord, values []uint64, priority uint16) *rule {
	var buf [keyWords * 9]byte
	s := t.byMask[string(maskID(buf[:0], mask))]
	if s == nil {
		return nil
	}
	for r := s.rules[hashOf(values)]; r != nil; r = r.next {
		if r.flow.Priority() == priority && slices.Equal(r.values, values) {
			return r
		}
	}
	return nil
}

// insert adds a rule whose mask and values were compiled. The mask is copied if it is new.
func (t *table) insert(r *rule, mask []maskWord) {
	var buf [keyWords * 9]byte
	id := maskID(buf[:0], mask)
	s := t.byMask[string(id)]
	if s == nil {
		s = &subtable{mask: slices.Clone(mask), id: string(id), rules: map[uint64]*rule{}, prios: map[uint16]int{}}
		if t.byMask == nil {
			t.byMask = map[string]*subtable{}
		}
		t.byMask[s.id] = s
		t.subs = append(t.subs, s)
	}
	r.sub = s
	r.hash = hashOf(r.values)
	at := s.rules[r.hash]
	if at == nil || at.flow.Priority() < r.flow.Priority() {
		r.next = at
		s.rules[r.hash] = r
	} else {
		for at.next != nil && at.next.flow.Priority() >= r.flow.Priority() {
			at = at.next
		}
		r.next, at.next = at.next, r
	}
	t.n++
	s.prios[r.flow.Priority()]++
	if s.max < r.flow.Priority() || len(s.prios) == 1 {
		s.max = r.flow.Priority()
		t.sort()
	}
}

// remove takes a rule out.
func (t *table) remove(r *rule) {
	s := r.sub
	if at := s.rules[r.hash]; at == r {
		if r.next == nil {
			delete(s.rules, r.hash)
		} else {
			s.rules[r.hash] = r.next
		}
	} else {
		for at.next != r {
			at = at.next
		}
		at.next = r.next
	}
	r.next, r.sub = nil, nil
	t.n--
	p := r.flow.Priority()
	if s.prios[p]--; s.prios[p] > 0 {
		return
	}
	delete(s.prios, p)
	if len(s.prios) == 0 {
		delete(t.byMask, s.id)
		t.subs = slices.DeleteFunc(t.subs, func(x *subtable) bool { return x == s })
		return
	}
	if p == s.max {
		s.max = 0
		for q := range s.prios {
			s.max = max(s.max, q)
		}
		t.sort()
	}
}

func (t *table) sort() {
	slices.SortFunc(t.subs, func(a, b *subtable) int {
		if a.max != b.max {
			return int(b.max) - int(a.max)
		}
		return strings.Compare(a.id, b.id)
	})
}

func maskID(b []byte, mask []maskWord) []byte {
	for _, m := range mask {
		b = append(b, m.word)
		for s := 56; s >= 0; s -= 8 {
			b = append(b, byte(m.bits>>uint(s)))
		}
	}
	return b
}
