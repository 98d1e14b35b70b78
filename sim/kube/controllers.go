package kube

import (
	"maps"
	"slices"
	"strings"
)

// maxRounds bounds how often the controllers react to each other's writes within one call. They
// need three: workloads make Pods, Pods get nodes, Services get endpoints.
const maxRounds = 100

// runControllers lets the controllers look at what is dirty until nothing is.
func (c *Cluster) runControllers() {
	for range maxRounds {
		if !c.round() {
			return
		}
	}
	panic("sim/kube: the controllers do not come to rest: a bug of theirs")
}

// round runs every controller once, in a fixed order, on the keys in theirs.
func (c *Cluster) round() (worked bool) {
	d := &c.dirty
	for _, k := range takeOwned(&d.orphans) {
		worked = true
		if o, ok := c.tables[k.kind].objects[k.key]; ok {
			c.remove(c.tables[k.kind], o)
		}
	}
	for _, k := range takeOwned(&d.workloads) {
		worked = true
		c.syncWorkload(k)
	}
	if d.schedule {
		worked, d.schedule = true, false
		c.schedulePods()
	}
	for _, key := range takeSet(&d.services) {
		worked = true
		c.syncEndpointSlices(key)
	}
	for _, key := range takeSet(&d.endpoints) {
		worked = true
		c.syncMirror(key)
	}
	return worked
}

func takeSet(s *set) []string {
	if len(*s) == 0 {
		return nil
	}
	keys := s.sorted()
	clear(*s)
	return keys
}

func takeOwned(m *map[ownedKey]struct{}) []ownedKey {
	if len(*m) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(*m), compareOwned)
	clear(*m)
	return keys
}

func compareOwned(a, b ownedKey) int {
	if c := strings.Compare(string(a.kind), string(b.kind)); c != 0 {
		return c
	}
	return compareKeys(a.key, b.key)
}
