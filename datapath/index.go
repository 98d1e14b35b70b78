package datapath

import (
	"iter"

	"github.com/cespare/xxhash/v2"
)

// index finds entries by key. Its maps grow without a look at the keys: a map of keys hashes every name again whenever it
// grows, and with a hundred thousand objects no name is in a cache.
type index struct {
	byHash map[uint64]*entry // by the hash of the key
	others map[Key]*entry    // those whose hash was taken
	hash   func(Key) uint64
}

func newIndex() index {
	return index{byHash: map[uint64]*entry{}, others: map[Key]*entry{}, hash: hashOf}
}

func hashOf(k Key) uint64 { return xxhash.Sum64String(k.Name) + 31*xxhash.Sum64String(string(k.Kind)) }

// get returns the entry of a key, nil if there is none.
func (x *index) get(k Key) *entry {
	if e := x.byHash[x.hash(k)]; e != nil && e.key == k {
		return e
	}
	return x.others[k]
}

// getOrMake returns the entry of a key, an empty one if there was none.
func (x *index) getOrMake(k Key) *entry {
	h := x.hash(k)
	at := x.byHash[h]
	if at != nil && at.key == k {
		return at
	}
	if e := x.others[k]; e != nil {
		return e
	}
	e := &entry{key: k}
	e.cands = e.one[:0]
	if at == nil {
		x.byHash[h] = e
	} else {
		x.others[k] = e
	}
	return e
}

// remove takes an entry out; it does nothing if the entry is not in.
func (x *index) remove(e *entry) {
	if h := x.hash(e.key); x.byHash[h] == e {
		delete(x.byHash, h)
	} else if x.others[e.key] == e {
		delete(x.others, e.key)
	}
}

func (x *index) len() int { return len(x.byHash) + len(x.others) }

// all returns the entries in any order; the one that is given may be removed.
func (x *index) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		//determinism:ignore the caller is told that the order is any
		for _, e := range x.byHash {
			if !yield(e) {
				return
			}
		}
		//determinism:ignore the caller is told that the order is any
		for _, e := range x.others {
			if !yield(e) {
				return
			}
		}
	}
}
