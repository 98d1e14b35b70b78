package pools

import (
	"fmt"
	"math/big"
	"net/netip"

	"towtank/agent/apis/crd/v1beta1"
)

// span is a range of addresses, both ends included.
type span struct{ first, last netip.Addr }

func (s span) contains(ip netip.Addr) bool {
	return ip.Is4() == s.first.Is4() && s.first.Compare(ip) <= 0 && ip.Compare(s.last) <= 0
}

// size returns the number of addresses, at most 1<<62.
func (s span) size() int64 {
	a, b := s.first.As16(), s.last.As16()
	d := new(big.Int).Sub(new(big.Int).SetBytes(b[:]), new(big.Int).SetBytes(a[:]))
	d.Add(d, big.NewInt(1))
	if d.BitLen() > 62 {
		return 1 << 62
	}
	return d.Int64()
}

// pool is what can be allocated of an ExternalIPPool.
type pool struct {
	spans   []span
	gateway netip.Addr // of the subnet: never given
}

// readPool reads the ranges. A CIDR gives neither its first address nor, for IPv4, its last: they are
// the network's and the broadcast address. One of one or two addresses has none of these (RFC 3021, RFC 6164) and
// gives all.
func readPool(p *v1beta1.ExternalIPPool) (*pool, error) {
	out := &pool{}
	for i, r := range p.Spec.IPRanges {
		switch {
		case r.CIDR != "":
			c, err := netip.ParsePrefix(r.CIDR)
			if err != nil {
				return nil, fmt.Errorf("spec.ipRanges[%d].cidr %q: %w", i, r.CIDR, err)
			}
			s := span{c.Masked().Addr(), lastOf(c)}
			if c.Bits() < c.Addr().BitLen()-1 {
				s.first = s.first.Next()
				if c.Addr().Is4() {
					s.last = s.last.Prev()
				}
			}
			out.spans = append(out.spans, s)
		default:
			a, err := netip.ParseAddr(r.Start)
			if err != nil {
				return nil, fmt.Errorf("spec.ipRanges[%d].start %q: %w", i, r.Start, err)
			}
			b, err := netip.ParseAddr(r.End)
			if err != nil {
				return nil, fmt.Errorf("spec.ipRanges[%d].end %q: %w", i, r.End, err)
			}
			if a.Is4() != b.Is4() || b.Less(a) {
				return nil, fmt.Errorf("spec.ipRanges[%d]: %s to %s is not a range", i, a, b)
			}
			out.spans = append(out.spans, span{a, b})
		}
	}
	if s := p.Spec.SubnetInfo; s != nil && s.Gateway != "" {
		gw, err := netip.ParseAddr(s.Gateway)
		if err != nil {
			return nil, fmt.Errorf("spec.subnetInfo.gateway %q: %w", s.Gateway, err)
		}
		out.gateway = gw
	}
	return out, nil
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (p *pool) contains(ip netip.Addr) bool {
	if ip == p.gateway {
		return false
	}
	for _, s := range p.spans {
		if s.contains(ip) {
			return true
		}
	}
	return false
}

// total returns the number of addresses that can be given.
func (p *pool) total() int64 {
	var n int64
	for _, s := range p.spans {
		n = min(n+s.size(), 1<<62)
		if p.gateway.IsValid() && s.contains(p.gateway) {
			n--
		}
	}
	return n
}

// firstFree returns the first address in range order that is not used.
func (p *pool) firstFree(used map[netip.Addr]string) (netip.Addr, bool) {
	for _, s := range p.spans {
		for ip := s.first; s.contains(ip); ip = ip.Next() {
			if _, taken := used[ip]; !taken && ip != p.gateway {
				return ip, true
			}
			if ip == s.last {
				break
			}
		}
	}
	return netip.Addr{}, false
}
