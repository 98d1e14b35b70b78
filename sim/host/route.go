package host

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"towtank/datapath/host"
)

// Route types that only the kernel and people make.
const (
	typeLocal       host.RouteType = "local"
	typeBroadcast   host.RouteType = "broadcast"
	typeUnreachable host.RouteType = "unreachable"
	typeProhibit    host.RouteType = "prohibit"
	typeThrow       host.RouteType = "throw"
)

const tableDefault = 253

// route is a route of a table.
type route struct {
	host.Route
	link *Link // nil for routes without a device
}

// fib is one routing table of one family: a hash table for each prefix length in use, so that a
// lookup costs as many steps as there are lengths, whatever the number of routes.
type fib struct {
	st    *ipState
	byLen [129]map[netip.Addr][]*route // by masked address; each bucket by metric, then age
	lens  []int                        // lengths in use, longest first
	count int
}

func (st *ipState) table(id uint32) *fib {
	t := st.tables[id]
	if t == nil {
		t = &fib{st: st}
		st.tables[id] = t
	}
	return t
}

func (t *fib) bucket(dst netip.Prefix) []*route { return t.byLen[dst.Bits()][dst.Addr()] }

func (t *fib) add(r *route) {
	b := r.Dst.Bits()
	if t.byLen[b] == nil {
		t.byLen[b] = map[netip.Addr][]*route{}
		i, _ := slices.BinarySearchFunc(t.lens, b, func(x, y int) int { return y - x })
		t.lens = slices.Insert(t.lens, i, b)
	}
	list := t.byLen[b][r.Dst.Addr()]
	i := len(list)
	for i > 0 && list[i-1].Metric > r.Metric {
		i--
	}
	t.byLen[b][r.Dst.Addr()] = slices.Insert(list, i, r)
	t.count++
	if r.link != nil {
		r.link.routes++
	}
	if r.Src.IsValid() {
		t.st.bySrc[r.Src]++
	}
}

// remove deletes the routes to dst that match.
func (t *fib) remove(match func(*route) bool, dst netip.Prefix) int {
	m := t.byLen[dst.Bits()]
	list, ok := m[dst.Addr()]
	if !ok {
		return 0
	}
	kept := slices.DeleteFunc(list, func(r *route) bool {
		if !match(r) {
			return false
		}
		if r.link != nil {
			r.link.routes--
		}
		if r.Src.IsValid() {
			if t.st.bySrc[r.Src]--; t.st.bySrc[r.Src] == 0 {
				delete(t.st.bySrc, r.Src)
			}
		}
		return true
	})
	gone := len(list) - len(kept)
	t.count -= gone
	if len(kept) > 0 {
		m[dst.Addr()] = kept
		return gone
	}
	delete(m, dst.Addr())
	if len(m) == 0 {
		t.byLen[dst.Bits()] = nil
		t.lens = slices.DeleteFunc(t.lens, func(l int) bool { return l == dst.Bits() })
	}
	return gone
}

// all returns the routes, longest prefix last, in the order of their addresses.
func (t *fib) all() []*route {
	var out []*route
	for _, l := range t.lens {
		for _, b := range t.byLen[l] {
			out = append(out, b...)
		}
	}
	slices.SortStableFunc(out, func(a, b *route) int {
		if c := a.Dst.Addr().Compare(b.Dst.Addr()); c != 0 {
			return c
		}
		if c := a.Dst.Bits() - b.Dst.Bits(); c != 0 {
			return c
		}
		return int(a.Metric) - int(b.Metric)
	})
	return out
}

// deleteRoutesOf deletes the routes by a link that match; it costs nothing for a link without routes.
func (st *ipState) deleteRoutesOf(l *Link, match func(*route) bool) {
	if l.routes > 0 {
		st.deleteRoutes(func(r *route) bool { return r.link == l && match(r) })
	}
}

// deleteRoutes deletes the routes of all tables that match.
func (st *ipState) deleteRoutes(match func(*route) bool) int {
	n := 0
	//determinism:ignore match only looks, and each table is changed by itself
	for _, t := range st.tables {
		for _, l := range slices.Clone(t.lens) {
			//determinism:ignore match only looks, and each prefix is changed by itself
			for a, b := range t.byLen[l] {
				if slices.ContainsFunc(b, match) {
					n += t.remove(match, netip.PrefixFrom(a, l))
				}
			}
		}
	}
	return n
}

func (t *fib) lookup(dst netip.Addr, accept func(*route) bool) *route {
	for _, l := range t.lens {
		p, err := dst.Prefix(l)
		if err != nil {
			continue
		}
		for _, r := range t.byLen[l][p.Addr()] {
			if accept == nil || accept(r) {
				return r
			}
		}
	}
	return nil
}

// policyRule is a policy routing rule.
type policyRule struct {
	host.Rule
	to netip.Prefix
}

func defaultRules(f host.Family) []policyRule {
	rules := []policyRule{
		{Rule: host.Rule{Family: f, Priority: 0, Table: host.TableLocal, Proto: protoKernel}},
		{Rule: host.Rule{Family: f, Priority: 32766, Table: host.TableMain, Proto: protoKernel}},
	}
	if f == host.V4 {
		rules = append(rules, policyRule{Rule: host.Rule{Family: f, Priority: 32767, Table: tableDefault, Proto: protoKernel}})
	}
	return rules
}

func (r policyRule) matches(f flow) bool {
	if r.From.IsValid() && !(f.src.IsValid() && r.From.Contains(f.src)) {
		return false
	}
	if r.to.IsValid() && !r.to.Contains(f.dst) {
		return false
	}
	if f.mark&r.FwMask != r.FwMark {
		return false
	}
	return r.IIF == "" || r.IIF == f.iif
}

func (r policyRule) String() string {
	s := r.Rule.String()
	if r.to.IsValid() {
		s = strings.Replace(s, " lookup", " to "+formatPrefix(r.to)+" lookup", 1)
	}
	if r.Proto == protoKernel || r.Proto == protoBoot {
		s = s[:strings.LastIndex(s, " proto ")]
	}
	if r.Table == tableDefault {
		s = strings.Replace(s, "lookup 253", "lookup default", 1)
	}
	return s
}

func formatPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// flow is what a routing decision looks at.
type flow struct {
	dst, src netip.Addr
	mark     uint32
	iif      string // lo for packets that the namespace makes
	oif      *Link  // only routes by this link
}

var (
	errUnreachable = said("Network is unreachable")
	errBlackhole   = said("Invalid argument")
	errNoHost      = said("No route to host")
	errProhibited  = said("Permission denied")
	errTooLong     = said("Message too long")
	errNotAllowed  = said("Operation not permitted")
)

// lookup decides where a packet goes, asking the tables in the order of the policy rules.
func (n *Netns) lookup(f flow) (*route, error) {
	st := n.ip[famIndex(f.dst)]
	var accept func(*route) bool
	if f.oif != nil {
		accept = func(r *route) bool { return r.link == f.oif || r.link == nil || r.Type == typeLocal }
	}
	for i := range st.rules {
		rule := &st.rules[i]
		if !rule.matches(f) {
			continue
		}
		t := st.tables[rule.Table]
		if t == nil {
			continue
		}
		r := t.lookup(f.dst, accept)
		if r == nil {
			continue
		}
		switch r.Type {
		case typeThrow:
			continue
		case host.RouteBlackhole:
			return r, errBlackhole
		case typeUnreachable:
			return r, errNoHost
		case typeProhibit:
			return r, errProhibited
		}
		return r, nil
	}
	return nil, errUnreachable
}

// routeText prints a route as `ip route` does.
func routeText(r *route) string {
	if r == nil {
		return "no route"
	}
	o := r.Route
	if o.Dst.Addr().Is6() && o.Dev == "" {
		o.Dev = "lo" // where IPv6 keeps routes that need no device
	}
	s := strings.Replace(o.String(), " table 255", " table local", 1)
	switch r.Proto {
	case protoKernel:
		return strings.Replace(s, " proto 2", " proto kernel", 1)
	case protoBoot:
		return strings.Replace(s, " proto 3", "", 1)
	case protoStatic:
		return strings.Replace(s, " proto 4", " proto static", 1)
	}
	return s
}

// nextHop returns the address whose MAC the packet needs.
func (r *route) nextHop(dst netip.Addr) netip.Addr {
	if r.Via.IsValid() {
		return r.Via
	}
	return dst
}

// addRoute checks a route as the kernel does and adds it. With replace it takes the place of the
// first route with its destination and metric; else such a route is an error.
func (n *Netns) addRoute(o host.Route, replace bool) error {
	st := n.ip[famIndex(o.Dst.Addr())]
	r := &route{Route: o}
	bad := func(err error) error { return fmt.Errorf("route %s: %w", routeText(r), err) }
	if o.Via.IsValid() && o.Dev == "" {
		gw, err := n.lookup(flow{dst: o.Via, iif: "lo"})
		if err != nil || gw.Via.IsValid() || gw.Type != host.RouteUnicast {
			return bad(errGateway(o.Via))
		}
		r.link, r.Dev = gw.link, gw.link.name
	}
	if r.Dev != "" {
		l := n.links[r.Dev]
		switch {
		case l == nil:
			return bad(errNoDevice(r.Dev))
		case !l.up:
			return bad(said("Error: Device for nexthop is not up."))
		}
		r.link = l
	}
	if o.Via.Is6() && !o.Onlink && n.isLocal(o.Via) {
		return bad(said("Error: Gateway can not be a local address."))
	}
	if o.Via.IsValid() && !o.Onlink && !st.onLink(o, r.link) {
		linkLocal := o.Via.Is6() && o.Via.IsLinkLocalUnicast()
		gw, err := n.lookup(flow{dst: o.Via, iif: "lo", oif: r.link})
		if !linkLocal && (err != nil || gw.Via.IsValid() || gw.Type != host.RouteUnicast || gw.link != r.link) {
			return bad(errGateway(o.Via))
		}
	}
	if o.Via.IsValid() && o.Onlink && n.isLocal(o.Via) {
		return bad(errGateway(o.Via))
	}
	if o.Src.IsValid() && !n.isLocal(o.Src) {
		return bad(said("Error: Invalid prefsrc address."))
	}
	t := st.table(o.Table)
	for _, old := range t.bucket(o.Dst) {
		if old.Metric == o.Metric {
			if !replace {
				return bad(errExists)
			}
			t.remove(func(x *route) bool { return x == old }, o.Dst)
			break
		}
	}
	t.add(r)
	return nil
}

// onLink reports whether a route of a route's own table has its gateway on the link: the kernel looks there first.
func (st *ipState) onLink(o host.Route, l *Link) bool {
	t := st.tables[o.Table]
	if t == nil {
		return false
	}
	r := t.lookup(o.Via, func(r *route) bool { return r.link == l && !r.Via.IsValid() })
	return r != nil && r.Type == host.RouteUnicast
}

func errGateway(via netip.Addr) error {
	if via.Is4() {
		return said("Error: Nexthop has invalid gateway.")
	}
	return errNoHost
}

// AddRoute adds a route as people or the system do; Proto 0 is boot.
func (n *Netns) AddRoute(o host.Route) error {
	if o.Proto == 0 {
		o.Proto = protoBoot
	}
	r, err := host.NewRoute(o)
	if err != nil {
		return err
	}
	return n.addRoute(r, false)
}

func (n *Netns) addRule(r policyRule) {
	st := n.state(r.Family)
	i := len(st.rules)
	for i > 0 && st.rules[i-1].Priority > r.Priority {
		i--
	}
	st.rules = slices.Insert(st.rules, i, r)
}
