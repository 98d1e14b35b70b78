package host

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"towtank/datapath"
	"towtank/datapath/host"
)

// Protocol numbers of the kernel and of people (rtnetlink's RTPROT_*).
const (
	protoKernel = 2
	protoBoot   = 3
	protoStatic = 4
)

// address is an address on a link.
type address struct {
	host.Address
	link      *Link
	secondary bool // IPv4: another address of the same subnet came first
}

var errAssigned = said("Error: ipv4: Address already assigned.")

func (n *Netns) findAddress(l *Link, p netip.Prefix) *address {
	for _, a := range n.local[p.Addr()] {
		if a.link == l && a.Prefix == p {
			return a
		}
	}
	return nil
}

// addAddress puts an address on its link with the routes that come with it.
func (n *Netns) addAddress(a *address) error {
	ip := a.Prefix.Addr()
	fi := famIndex(ip)
	l := a.link
	for _, o := range n.local[ip] {
		if o.link == l && (fi == 1 || o.Prefix == a.Prefix) {
			return fmt.Errorf("address %s on %s: %w", a.Prefix, l.name, errAssigned)
		}
	}
	if fi == 0 {
		for _, o := range l.addrs[0] {
			if !o.secondary && o.Prefix.Masked() == a.Prefix.Masked() {
				a.secondary = true
			}
		}
	}
	i := len(l.addrs[fi])
	if !a.secondary {
		for i > 0 && l.addrs[fi][i-1].secondary {
			i--
		}
	}
	l.addrs[fi] = slices.Insert(l.addrs[fi], i, a)
	n.local[ip] = append(n.local[ip], a)
	n.addLocalRoute(a)
	if l.up {
		n.addConnectedRoute(a)
	}
	n.event(datapath.AddressEvent{Addr: ip, Link: l.name, Present: true})
	return nil
}

func (n *Netns) addLocalRoute(a *address) {
	st := n.ip[famIndex(a.Prefix.Addr())]
	add := func(dst netip.Prefix, typ host.RouteType, scope string) {
		st.table(host.TableLocal).add(&route{Route: host.Route{
			Type: typ, Dst: dst, Dev: a.link.name, Scope: scope, Src: a.Prefix.Addr(), Table: host.TableLocal, Proto: protoKernel,
		}, link: a.link})
	}
	ip := a.Prefix.Addr()
	if ip.Is6() {
		st.table(host.TableLocal).add(&route{Route: host.Route{Type: typeLocal, Dst: netip.PrefixFrom(ip, 128), Dev: a.link.name, Table: host.TableLocal, Proto: protoKernel}, link: a.link})
		return
	}
	add(netip.PrefixFrom(ip, 32), typeLocal, "host")
	if a.link == n.lo {
		add(a.Prefix.Masked(), typeLocal, "host")
	}
	if !a.secondary && a.Prefix.Bits() < 31 && a.link != n.lo {
		add(netip.PrefixFrom(broadcastOf(a.Prefix), 32), typeBroadcast, "link")
	}
}

func broadcastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// addConnectedRoute makes the route to an address's subnet, if it is due and missing.
func (n *Netns) addConnectedRoute(a *address) {
	ip := a.Prefix.Addr()
	if a.NoPrefixRoute || a.secondary || a.link == n.lo || ip.Is4() && a.Prefix.IsSingleIP() {
		return
	}
	r := &route{Route: host.Route{Dst: a.Prefix.Masked(), Dev: a.link.name, Table: host.TableMain, Proto: protoKernel}, link: a.link}
	if ip.Is4() {
		r.Scope, r.Src = "link", ip
	} else {
		r.Metric = 256
	}
	t := n.ip[famIndex(ip)].table(host.TableMain)
	for _, o := range t.bucket(r.Dst) {
		if o.link == r.link && o.Metric == r.Metric && o.Proto == protoKernel {
			return
		}
	}
	t.add(r)
}

// removeAddress takes an address off its link, with its routes and, if it is an IPv4 primary, its
// secondaries; with promote (promote_secondaries) the first of those becomes the primary instead.
func (n *Netns) removeAddress(a *address, promote bool) {
	ip, l := a.Prefix.Addr(), a.link
	fi := famIndex(ip)
	subnet := a.Prefix.Masked()
	var heirs []*address
	if fi == 0 && !a.secondary {
		for _, o := range l.addrs[0] {
			if o != a && o.secondary && o.Prefix.Masked() == subnet {
				heirs = append(heirs, o)
			}
		}
	}
	if !promote {
		for _, o := range heirs {
			n.removeAddress(o, false)
		}
		heirs = nil
	}
	l.addrs[fi] = slices.DeleteFunc(l.addrs[fi], func(o *address) bool { return o == a })
	n.local[ip] = slices.DeleteFunc(n.local[ip], func(o *address) bool { return o == a })
	gone := len(n.local[ip]) == 0
	if gone {
		delete(n.local, ip)
	}
	st := n.ip[fi]
	st.table(host.TableLocal).remove(func(r *route) bool {
		return r.link == l && r.Type == typeLocal && r.Dst.Addr() == ip && r.Dst.IsSingleIP()
	}, netip.PrefixFrom(ip, ip.BitLen()))
	if !a.secondary {
		stillThere := slices.ContainsFunc(l.addrs[fi], func(o *address) bool {
			return !o.secondary && !o.NoPrefixRoute && o.Prefix.Masked() == subnet
		})
		if !stillThere {
			st.table(host.TableMain).remove(func(r *route) bool { return r.link == l && r.Proto == protoKernel }, subnet)
		}
		if fi == 0 && subnet.Bits() < 31 {
			bc := netip.PrefixFrom(broadcastOf(a.Prefix), 32)
			st.table(host.TableLocal).remove(func(r *route) bool { return r.link == l && r.Type == typeBroadcast && r.Src == ip }, bc)
		}
	}
	if len(heirs) > 0 {
		h := heirs[0]
		h.secondary = false
		rest := slices.DeleteFunc(slices.Clone(l.addrs[0]), func(o *address) bool { return o == h })
		i := len(rest)
		for i > 0 && rest[i-1].secondary {
			i--
		}
		l.addrs[0] = slices.Insert(rest, i, h)
		n.addLocalRoute(h)
		if l.up {
			n.addConnectedRoute(h)
		}
	}
	if gone {
		if st.bySrc[ip] > 0 {
			st.deleteRoutes(func(r *route) bool { return r.Src == ip && r.Proto != protoKernel })
		}
		n.ct.flushMasquerade(ip)
	}
	if fi == 0 && len(l.addrs[0]) == 0 {
		// Without an address IPv4 is off on the link.
		st.deleteRoutesOf(l, func(*route) bool { return true })
	}
	n.event(datapath.AddressEvent{Addr: ip, Link: l.name})
}

// AddAddress puts an address on a link as people or the system do (ours come by Apply).
func (n *Netns) AddAddress(link string, p netip.Prefix) error {
	l := n.links[link]
	if l == nil {
		return errNoDevice(link)
	}
	o, err := host.NewAddress(host.Address{Prefix: p, Link: link, Proto: protoStatic})
	if err != nil {
		return err
	}
	o.Proto = 0
	return n.addAddress(&address{Address: o, link: l})
}

// DelAddress takes an address off a link.
func (n *Netns) DelAddress(link string, p netip.Prefix) error {
	l := n.links[link]
	if l == nil {
		return errNoDevice(link)
	}
	a := n.findAddress(l, p)
	if a == nil {
		return fmt.Errorf("address %s on %s: Cannot assign requested address", p, link)
	}
	n.removeAddress(a, n.promotes(l))
	return nil
}

func (n *Netns) promotes(l *Link) bool { return n.confMax(l, 0, "promote_secondaries") > 0 }

// Addresses returns the addresses of all links but lo, sorted.
func (n *Netns) Addresses() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range n.sortedAddresses() {
		if a.link != n.lo {
			out = append(out, a.Prefix)
		}
	}
	return out
}

// HasAddress reports whether an address is on any link.
func (n *Netns) HasAddress(a netip.Addr) bool { return len(n.local[a]) > 0 }

func (n *Netns) sortedAddresses() []*address {
	var out []*address
	for _, ip := range slices.SortedFunc(maps.Keys(n.local), netip.Addr.Compare) {
		out = append(out, n.local[ip]...)
	}
	return out
}

// isLocal reports whether packets to a are delivered to the namespace.
func (n *Netns) isLocal(a netip.Addr) bool {
	return len(n.local[a]) > 0 || a.Is4() && a.As4()[0] == 127
}

// Addresses returns the addresses on the link, sorted.
func (l *Link) Addresses() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range l.ns.sortedAddresses() {
		if a.link == l {
			out = append(out, a.Prefix)
		}
	}
	return out
}
