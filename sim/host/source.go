package host

import (
	"net/netip"

	"towtank/datapath/host"
)

// source returns the address with which the namespace sends to dst by a route.
func (n *Netns) source(r *route, dst netip.Addr) netip.Addr {
	if r.Src.IsValid() {
		return r.Src
	}
	if r.Type == typeLocal {
		return dst
	}
	return n.addressFor(r.link, r.nextHop(dst), dst)
}

// addressFor chooses among the addresses as inet_select_addr (IPv4) and RFC 6724 (IPv6) do; it is what
// MASQUERADE takes too. It is invalid if there is no address of the family.
func (n *Netns) addressFor(l *Link, hop, dst netip.Addr) netip.Addr {
	if dst.Is4() {
		return n.source4(l, hop)
	}
	return n.source6(l, dst)
}

// source4: the first primary whose subnet has the next hop, else the first primary of the link, else
// the first of any other.
func (n *Netns) source4(l *Link, hop netip.Addr) netip.Addr {
	var first netip.Addr
	try := func(l *Link) bool {
		for _, a := range l.addrs[0] {
			if a.secondary {
				continue
			}
			if !first.IsValid() {
				first = a.Prefix.Addr()
			}
			if a.Prefix.Contains(hop) {
				first = a.Prefix.Addr()
				return true
			}
		}
		return false
	}
	if l != nil && l != n.lo && (try(l) || first.IsValid()) {
		return first
	}
	for _, o := range n.byIndex {
		if o == n.lo || o == l {
			continue
		}
		for _, a := range o.addrs[0] {
			if !a.secondary {
				return a.Prefix.Addr()
			}
		}
	}
	return netip.Addr{}
}

// source6 follows rules 1 (same address), 3 (not deprecated), 5 (outgoing link) and 8 (longest common
// prefix, at most the length of the address's own) of RFC 6724, section 5; then the newest address.
func (n *Netns) source6(l *Link, dst netip.Addr) netip.Addr {
	var best *address
	var bestScore [4]int
	for _, o := range n.byIndex {
		for _, a := range o.addrs[1] {
			ip := a.Prefix.Addr()
			if ip.IsLoopback() || ip.IsLinkLocalUnicast() && (o != l || !dst.IsLinkLocalUnicast()) {
				continue
			}
			score := [4]int{btoi(ip == dst), btoi(!a.Deprecated), btoi(o == l), min(commonBits(ip, dst), a.Prefix.Bits())}
			if best == nil || !less(score, bestScore) {
				best, bestScore = a, score
			}
		}
	}
	if best == nil {
		return netip.Addr{}
	}
	return best.Prefix.Addr()
}

func less(a, b [4]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func commonBits(a, b netip.Addr) int {
	x, y := a.As16(), b.As16()
	n := 0
	for i := range x {
		d := x[i] ^ y[i]
		if d == 0 {
			n += 8
			continue
		}
		for d&0x80 == 0 {
			d <<= 1
			n++
		}
		break
	}
	return n
}

// addrType returns what -m addrtype calls an address; with on, LOCAL only if it is on that link.
func (n *Netns) addrType(a netip.Addr, on *Link) string {
	switch {
	case a.IsMulticast():
		return "MULTICAST"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}), a.Is4() && a.IsUnspecified():
		return "BROADCAST"
	}
	if on != nil {
		for _, x := range n.local[a] {
			if x.link == on {
				return "LOCAL"
			}
		}
		return "UNICAST"
	}
	if n.isLocal(a) {
		return "LOCAL"
	}
	if t := n.ip[famIndex(a)].tables[host.TableLocal]; t != nil {
		if r := t.lookup(a, nil); r != nil && r.Type == typeBroadcast {
			return "BROADCAST"
		}
	}
	return "UNICAST"
}
