package ovs

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"towtank/datapath"
	"towtank/datapath/openflow"
)

// Dump returns what carries the agent's mark, sorted by key: flows with a cookie that were not learned,
// all groups and meters, and ports with an external id of ours.
func (s *Switch) Dump() []datapath.Object {
	return s.dump(func(r *rule) bool { return !r.learned && openflow.OurCookie(r.flow.Cookie()) }, isOurs)
}

// DumpAll returns everything that is on the switch but learned flows, foreign objects too.
func (s *Switch) DumpAll() []datapath.Object {
	return s.dump(func(r *rule) bool { return !r.learned }, func(*PortState) bool { return true })
}

func (s *Switch) dump(flow func(*rule) bool, port func(*PortState) bool) []datapath.Object {
	s.Tick()
	var list []datapath.Object
	for r := range s.rules() {
		if flow(r) {
			list = append(list, r.flow)
		}
	}
	for _, g := range s.groups {
		list = append(list, g.g)
	}
	for _, m := range s.meters {
		list = append(list, m.m)
	}
	//determinism:ignore port only looks, and the list is sorted
	for _, st := range s.ports {
		if st.Port != nil && port(st) {
			list = append(list, st.Port)
		}
	}
	datapath.SortObjects(list)
	return list
}

// Learned returns the flows that learn actions made, sorted by key.
func (s *Switch) Learned() []*openflow.Flow {
	s.Tick()
	var list []*openflow.Flow
	for _, set := range s.learned {
		for r := range set {
			list = append(list, r.flow)
		}
	}
	slices.SortFunc(list, func(a, b *openflow.Flow) int { return a.Key().Compare(b.Key()) })
	return list
}

// BucketPackets returns how many packets each bucket of a group got, nil if there is no such group.
func (s *Switch) BucketPackets(groupID uint32) []uint64 {
	if g := s.groups[groupID]; g != nil {
		return slices.Clone(g.picks)
	}
	return nil
}

// Flows returns all flows, learned ones too, in the order of SortFlows.
func (s *Switch) Flows() []*openflow.Flow {
	s.Tick()
	var list []*openflow.Flow
	for r := range s.rules() {
		list = append(list, r.flow)
	}
	SortFlows(list)
	return list
}

// SortFlows sorts flows by table, falling priority and key.
func SortFlows(list []*openflow.Flow) {
	slices.SortFunc(list, func(a, b *openflow.Flow) int {
		return cmp.Or(cmp.Compare(a.Table(), b.Table()), cmp.Compare(b.Priority(), a.Priority()), strings.Compare(a.Key().Name, b.Key().Name))
	})
}

// DumpText returns flows (learned ones too) by table and falling priority, groups and meters, as
// ovs-ofctl dump-flows --no-stats, dump-groups and dump-meters print them.
func (s *Switch) DumpText() string {
	var b strings.Builder
	for _, f := range s.Flows() {
		b.WriteString(f.String())
		b.WriteByte('\n')
	}
	for _, id := range slices.Sorted(maps.Keys(s.groups)) {
		b.WriteString(s.groups[id].g.String())
		b.WriteByte('\n')
	}
	for _, id := range slices.Sorted(maps.Keys(s.meters)) {
		b.WriteString(s.meters[id].m.String())
		b.WriteByte('\n')
	}
	return b.String()
}
