package kube

import (
	"fmt"
	"net/netip"
)

// addressPool gives the addresses of a network, the lowest free one first.
type addressPool struct {
	network netip.Prefix
	used    map[netip.Addr]bool
	first   netip.Addr
	// low: every address below it, from first, is used.
	low netip.Addr
}

// newAddressPool begins at the second address after the network's own: the first is kept for the
// API server's Service.
func newAddressPool(p netip.Prefix) (*addressPool, error) {
	first := p.Masked().Addr().Next().Next()
	if !p.Contains(first) {
		return nil, fmt.Errorf("cluster: the Service network %s has no room", p)
	}
	return &addressPool{network: p.Masked(), used: make(map[netip.Addr]bool), first: first, low: first}, nil
}

// next returns the lowest free address; it is not taken.
func (p *addressPool) next() (netip.Addr, bool) {
	for p.used[p.low] {
		p.low = p.low.Next()
	}
	return p.low, p.contains(p.low)
}

// contains reports whether an address can be given: it is in the network, and not its first or, for
// IPv4, its last.
func (p *addressPool) contains(a netip.Addr) bool {
	return p.network.Contains(a) && a != p.network.Addr() && (a.Is6() || p.network.Contains(a.Next()))
}

func (p *addressPool) take(a netip.Addr) { p.used[a] = true }

func (p *addressPool) free(a netip.Addr) {
	if delete(p.used, a); a.Less(p.low) && !a.Less(p.first) {
		p.low = a
	}
}

// portPool gives ports of a range, the lowest free one first.
type portPool struct {
	from, to, low int32
	used          map[int32]bool
}

func newPortPool(from, to int32) *portPool {
	return &portPool{from: from, to: to, low: from, used: make(map[int32]bool)}
}

// next returns the lowest free port that skip does not have; it is not taken.
func (p *portPool) next(skip map[int32]bool) (int32, bool) {
	for p.used[p.low] {
		p.low++
	}
	for n := p.low; n <= p.to; n++ {
		if !p.used[n] && !skip[n] {
			return n, true
		}
	}
	return 0, false
}

func (p *portPool) contains(n int32) bool { return n >= p.from && n <= p.to }

func (p *portPool) take(n int32) { p.used[n] = true }

func (p *portPool) free(n int32) {
	if delete(p.used, n); p.contains(n) && n < p.low {
		p.low = n
	}
}
