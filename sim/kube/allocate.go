package kube

import (
	"fmt"
	"net/netip"
)

// addressPool gives the addresses of a network in ascending order: the next free one after the last that
// it gave, so that one that was freed comes again only after all others.
type addressPool struct {
	network     netip.Prefix
	used        map[netip.Addr]bool
	first, last netip.Addr // last is invalid before the first one is given
}

// newAddressPool begins at the second address after the network's own: the first is kept for the
// API server's Service.
func newAddressPool(p netip.Prefix) (*addressPool, error) {
	first := p.Masked().Addr().Next().Next()
	if !p.Contains(first) {
		return nil, fmt.Errorf("cluster: the Service network %s has no room", p)
	}
	return &addressPool{network: p.Masked(), used: make(map[netip.Addr]bool), first: first}, nil
}

// next returns the next free address; it is not taken.
func (p *addressPool) next() (netip.Addr, bool) {
	start := p.first
	if p.last.IsValid() {
		start = p.last.Next()
	}
	for a := start; p.contains(a); a = a.Next() {
		if !p.used[a] {
			return a, true
		}
	}
	for a := p.first; a != start && p.contains(a); a = a.Next() {
		if !p.used[a] {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// contains reports whether an address can be given: it is in the network, and not its first or, for
// IPv4, its last.
func (p *addressPool) contains(a netip.Addr) bool {
	return p.network.Contains(a) && a != p.network.Addr() && (a.Is6() || p.network.Contains(a.Next()))
}

func (p *addressPool) take(a netip.Addr) { p.used[a] = true }

func (p *addressPool) free(a netip.Addr) { delete(p.used, a) }

// portPool gives ports of a range in ascending order, as addressPool does.
type portPool struct {
	from, to, last int32
	used           map[int32]bool
}

func newPortPool(from, to int32) *portPool {
	return &portPool{from: from, to: to, last: from - 1, used: make(map[int32]bool)}
}

// next returns the next free port that skip does not have; it is not taken.
func (p *portPool) next(skip map[int32]bool) (int32, bool) {
	size := p.to - p.from + 1
	for i := range size {
		if n := p.from + (p.last+1-p.from+i)%size; !p.used[n] && !skip[n] {
			return n, true
		}
	}
	return 0, false
}

func (p *portPool) contains(n int32) bool { return n >= p.from && n <= p.to }

func (p *portPool) take(n int32) { p.used[n] = true }

func (p *portPool) free(n int32) { delete(p.used, n) }
