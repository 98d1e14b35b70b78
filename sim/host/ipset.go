package host

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"towtank/datapath/host"
	"towtank/sim/packet"
)

// ipset is an ipset; a lookup costs at most one step for each prefix length in it.
type ipset struct {
	host.IPSet
	elems map[host.Element]struct{}
	lens  [129]int // of a hash:net: how many elements have that length
	refs  int      // rules that use it
}

var (
	errNoSet      = said("The set with the given name does not exist")
	errSetExists  = said("Set cannot be created: set with the same name already exists")
	errSetInUse   = said("Set cannot be destroyed: it is in use by a kernel component")
	errSetFull    = said("Hash is full, cannot add more elements")
	errElemThere  = said("Element cannot be added to the set: it's already added")
	errElemAbsent = said("Element cannot be deleted from the set: it's not added")
	errSetName    = errors.New("a set with that name exists, with another type, family or size") // ours: replacing it would lose its elements
)

func (n *Netns) createSet(s host.IPSet) error {
	if n.sets[s.Name] != nil {
		return fmt.Errorf("ipset %s: %w", s.Name, errSetExists)
	}
	n.sets[s.Name] = &ipset{IPSet: s, elems: map[host.Element]struct{}{}}
	return nil
}

func (n *Netns) destroySet(name string) error {
	s := n.sets[name]
	switch {
	case s == nil:
		return fmt.Errorf("ipset %s: %w", name, errNoSet)
	case s.refs > 0:
		return fmt.Errorf("ipset %s: %w", name, errSetInUse)
	}
	delete(n.sets, name)
	return nil
}

// element reads an element for a set and checks that it fits its type.
func (s *ipset) element(text string) (host.Element, error) {
	e, err := host.ParseElement(text)
	if err != nil {
		return e, fmt.Errorf("ipset %s: %w", s.Name, err)
	}
	if host.FamilyOf(e.Net.Addr()) != s.Family {
		return e, fmt.Errorf("ipset %s: element %s: not of family %s", s.Name, text, s.Family)
	}
	switch {
	case s.Type == host.SetIPPort && e.Proto == 0, s.Type != host.SetIPPort && e.Proto != 0, s.Type == host.SetIP && !e.Net.IsSingleIP():
		return e, fmt.Errorf("ipset %s: element %s does not fit type %s", s.Name, text, s.Type)
	}
	return e, nil
}

func (s *ipset) add(e host.Element) error {
	if _, ok := s.elems[e]; ok {
		return fmt.Errorf("ipset %s: %s: %w", s.Name, e, errElemThere)
	}
	if uint32(len(s.elems)) >= s.MaxElem {
		return fmt.Errorf("ipset %s: %s: %w (maxelem %d)", s.Name, e, errSetFull, s.MaxElem)
	}
	s.elems[e] = struct{}{}
	s.lens[e.Net.Bits()]++
	return nil
}

func (s *ipset) del(e host.Element) error {
	if _, ok := s.elems[e]; !ok {
		return fmt.Errorf("ipset %s: %s: %w", s.Name, e, errElemAbsent)
	}
	delete(s.elems, e)
	s.lens[e.Net.Bits()]--
	return nil
}

// contains reports whether a packet is in the set, under the directions of a rule.
func (s *ipset) contains(p *packet.Packet, dirs []string) bool {
	a, port := p.Dst, p.DstPort
	if dirs[0] == "src" {
		a = p.Src
	}
	switch s.Type {
	case host.SetIP:
		_, ok := s.elems[host.Element{Net: netip.PrefixFrom(a, a.BitLen())}]
		return ok
	case host.SetNet:
		for b := a.BitLen(); b > 0; b-- {
			if s.lens[b] == 0 {
				continue
			}
			net, err := a.Prefix(b)
			if err != nil {
				return false
			}
			if _, ok := s.elems[host.Element{Net: net}]; ok {
				return true
			}
		}
		return false
	default:
		if dirs[1] == "src" {
			port = p.SrcPort
		}
		_, ok := s.elems[host.Element{Net: netip.PrefixFrom(a, a.BitLen()), Proto: p.Proto, Port: port}]
		return ok
	}
}

// sorted returns the elements in the order of addresses, protocols and ports.
func (s *ipset) sorted() []host.Element {
	return slices.SortedFunc(maps.Keys(s.elems), func(a, b host.Element) int {
		if c := a.Net.Addr().Compare(b.Net.Addr()); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(a.Net.Bits(), b.Net.Bits()), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})
}

func (n *Netns) sortedSets() []*ipset {
	out := make([]*ipset, 0, len(n.sets))
	for _, name := range slices.Sorted(maps.Keys(n.sets)) {
		out = append(out, n.sets[name])
	}
	return out
}

// ipsetSave prints the sets as `ipset save`, less what the kernel adjusts by itself.
func (n *Netns) ipsetSave() string {
	var b strings.Builder
	for _, s := range n.sortedSets() {
		b.WriteString(s.IPSet.String() + "\n")
		for _, e := range s.sorted() {
			b.WriteString("add " + s.Name + " " + e.String() + "\n")
		}
	}
	return b.String()
}
