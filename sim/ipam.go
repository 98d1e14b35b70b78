package sim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"towtank/agent/edge"
)

// ipam is what host-local keeps on a node's disk: the addresses that are given, and the last one. It
// survives the agent and the node.
type ipam struct {
	cidrs []netip.Prefix
	given map[netip.Addr]edge.Attachment
	last  map[bool]netip.Addr // by IPv6
}

func newIPAM(cidrs []netip.Prefix) *ipam {
	return &ipam{cidrs: cidrs, given: map[netip.Addr]edge.Attachment{}, last: map[bool]netip.Addr{}}
}

// add gives an attachment one address per family: those it has already, those asked for, or the next
// free ones after the last given.
func (m *ipam) add(a edge.Attachment, want []netip.Addr) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, c := range m.cidrs {
		ip, err := m.pick(a, c, want)
		if err != nil {
			return nil, err
		}
		out = append(out, netip.PrefixFrom(ip, c.Bits()))
	}
	for _, p := range out {
		m.given[p.Addr()] = a
	}
	return out, nil
}

func (m *ipam) pick(a edge.Attachment, cidr netip.Prefix, want []netip.Addr) (netip.Addr, error) {
	for _, ip := range m.of(a) {
		if cidr.Contains(ip) {
			return ip, nil
		}
	}
	for _, ip := range want {
		if ip.Is6() != cidr.Addr().Is6() {
			continue
		}
		switch first := cidr.Masked().Addr(); {
		case !cidr.Contains(ip), ip == first, isBroadcast(ip, cidr):
			return netip.Addr{}, fmt.Errorf("requested IP %s is no address for a Pod in %s", ip, cidr)
		case ip == first.Next():
			return netip.Addr{}, fmt.Errorf("requested IP %s is the gateway of %s", ip, cidr)
		}
		if o, used := m.given[ip]; used {
			return netip.Addr{}, fmt.Errorf("requested IP %s is reserved by container %s", ip, o.ContainerID)
		}
		return ip, nil
	}
	first := cidr.Masked().Addr().Next().Next() // .1 is the gateway
	last := m.last[cidr.Addr().Is6()]
	start := first
	if last.IsValid() {
		start = last.Next()
	}
	// Twice: a second round covers what is before the last one given.
	for _, from := range []netip.Addr{start, first} {
		for ip := from; cidr.Contains(ip) && !isBroadcast(ip, cidr); ip = ip.Next() {
			if _, used := m.given[ip]; !used {
				m.last[cidr.Addr().Is6()] = ip
				return ip, nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("no IP addresses available in range set: %s", cidr)
}

func isBroadcast(ip netip.Addr, cidr netip.Prefix) bool {
	return ip.Is4() && !cidr.Contains(ip.Next())
}

// of returns the addresses of an attachment, sorted.
func (m *ipam) of(a edge.Attachment) []netip.Addr {
	var out []netip.Addr
	for ip, o := range m.given {
		if o == a {
			out = append(out, ip)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func (m *ipam) del(a edge.Attachment) int {
	ips := m.of(a)
	for _, ip := range ips {
		delete(m.given, ip)
	}
	return len(ips)
}

// unused returns the attachments whose addresses gc would free.
func (m *ipam) unused(keep []edge.Attachment, keepIPs []netip.Addr) []edge.Attachment {
	var out []edge.Attachment
	//determinism:ignore adds each attachment once, and the list is sorted
	for ip, a := range m.given {
		if !slices.Contains(keep, a) && !slices.Contains(keepIPs, ip) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b edge.Attachment) int {
		return cmp.Or(strings.Compare(a.ContainerID, b.ContainerID), strings.Compare(a.Ifname, b.Ifname))
	})
	return out
}

// Addresses returns how many addresses are given.
func (m *ipam) count() int { return len(m.given) }

// ipamSeam is edge.IPAM of one agent.
type ipamSeam struct{ p *proc }

// Add implements edge.IPAM.
func (s ipamSeam) Add(a edge.Attachment, done func([]netip.Prefix, error)) {
	n := s.p.node
	var ips []netip.Prefix
	var err error
	s.p.effect(effect{
		class: EffectIPAM, units: []string{"sandbox/" + a.ContainerID + "/" + a.Ifname}, text: "add " + a.ContainerID, lane: "ipam " + a.ContainerID,
		do:     func() { ips, err = n.ipam.add(a, n.world.runtime.requested(a.ContainerID)) },
		refuse: func(e error, _ bool) { done(nil, e) },
		answer: func() { done(ips, err) },
	})
}

// Del implements edge.IPAM.
func (s ipamSeam) Del(a edge.Attachment, done func(error)) {
	n := s.p.node
	s.p.effect(effect{
		class: EffectIPAM, units: []string{"sandbox/" + a.ContainerID + "/" + a.Ifname}, text: "del " + a.ContainerID, lane: "ipam " + a.ContainerID,
		do:     func() { n.ipam.del(a) },
		refuse: func(e error, _ bool) { done(e) },
		answer: func() { done(nil) },
	})
}

// GC implements edge.IPAM. Without anything to free it reads only.
func (s ipamSeam) GC(keep []edge.Attachment, keepIPs []netip.Addr, done func(error)) {
	n := s.p.node
	if len(n.ipam.unused(keep, keepIPs)) == 0 {
		s.p.read("ipam gc", "ipam gc", func() func() { return func() { done(nil) } })
		return
	}
	s.p.effect(effect{
		class: EffectIPAM, text: "gc", lane: "ipam gc",
		do: func() {
			for _, a := range n.ipam.unused(keep, keepIPs) {
				n.ipam.del(a)
			}
		},
		refuse: func(e error, _ bool) { done(e) },
		answer: func() { done(nil) },
	})
}
