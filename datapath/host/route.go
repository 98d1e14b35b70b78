package host

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"towtank/datapath"
)

// Route tables that the kernel has (rtnetlink's RT_TABLE_*).
const (
	TableMain  = 254
	TableLocal = 255
)

// RouteType says what a route does with a packet.
type RouteType string

// The route types; "" is unicast.
const (
	RouteUnicast   RouteType = ""
	RouteBlackhole RouteType = "blackhole" // dropped silently
)

// Route is a route of the node.
type Route struct {
	Type RouteType
	Dst  netip.Prefix // 0.0.0.0/0 or ::/0: default
	Via  netip.Addr   // next hop; invalid: Dst is on the link
	Dev  string
	// Scope is "" (global) or "link". IPv4 only; without Via it defaults to link, as ip does.
	Scope  string
	Onlink bool       // Via is reachable on Dev whatever the other routes say
	Src    netip.Addr // preferred source address of packets that the node makes
	Table  uint32     // 0 means TableMain
	// Metric: the lower wins. IPv6 has no 0: it means 1024, as in the kernel.
	Metric uint32
	Proto  uint8 // 0 means ProtoTowtank
}

// NewRoute normalises r (host bits of Dst, default scope, table and metric) and checks it.
func NewRoute(r Route) (Route, error) {
	if err := checkPrefix("route", r.Dst); err != nil {
		return Route{}, err
	}
	r.Dst = r.Dst.Masked()
	bad := func(format string, args ...any) (Route, error) {
		return Route{}, fmt.Errorf("route %s: %w", r.Dst, fmt.Errorf(format, args...))
	}
	v4 := r.Dst.Addr().Is4()
	for _, a := range []struct {
		what string
		a    netip.Addr
	}{{"via", r.Via}, {"src", r.Src}} {
		if !a.a.IsValid() {
			continue
		}
		if err := checkAddr(a.what, a.a); err != nil {
			return bad("%w", err)
		}
		if a.a.Is4() != v4 {
			return bad("%s %s: not of the route's family", a.what, a.a)
		}
	}
	switch r.Type {
	case RouteUnicast:
		if err := checkLinkName("dev", r.Dev); err != nil {
			return bad("%w", err)
		}
		if !r.Via.IsValid() && r.Onlink {
			return bad("onlink needs via")
		}
		switch {
		case !v4 && r.Scope != "":
			return bad("scope %q: IPv6 routes have none", r.Scope)
		case v4 && r.Scope == "" && !r.Via.IsValid():
			r.Scope = "link"
		case r.Scope == "link" && r.Via.IsValid():
			return bad("scope link with via %s: the next hop makes it global", r.Via)
		case r.Scope != "" && r.Scope != "link":
			return bad("scope %q: want link or nothing", r.Scope)
		}
	case RouteBlackhole:
		if r.Via.IsValid() || r.Dev != "" || r.Scope != "" || r.Onlink || r.Src.IsValid() {
			return bad("blackhole takes neither via, dev, scope, onlink nor src")
		}
	default:
		return bad("type %q: want unicast (empty) or blackhole", r.Type)
	}
	if r.Table == 0 {
		r.Table = TableMain
	}
	if r.Metric == 0 && !v4 {
		r.Metric = 1024
	}
	if r.Proto == 0 {
		r.Proto = ProtoTowtank
	}
	return r, nil
}

// ParseRoute reads the text of a Route.
func ParseRoute(text string) (Route, error) {
	var r Route
	w := newWords(text)
	if w.accept("blackhole") {
		r.Type = RouteBlackhole
	}
	dst := w.next()
	if dst != "default" {
		p, err := parsePrefix(dst)
		if err != nil {
			return r, fmt.Errorf("route: %w", err)
		}
		r.Dst = p
	}
	for !w.done() {
		var err error
		var n uint64
		switch s := w.next(); s {
		case "via":
			r.Via, err = w.addr(s)
		case "dev":
			r.Dev, err = w.value(s)
		case "table":
			n, err = w.number(s, 32)
			r.Table = uint32(n)
		case "proto":
			n, err = w.number(s, 8)
			r.Proto = uint8(n)
		case "scope":
			r.Scope, err = w.value(s)
		case "src":
			r.Src, err = w.addr(s)
		case "metric":
			n, err = w.number(s, 32)
			r.Metric = uint32(n)
		case "onlink":
			r.Onlink = true
		default:
			err = w.unknown(s)
		}
		if err != nil {
			return Route{}, fmt.Errorf("route: %w", err)
		}
	}
	if dst == "default" {
		r.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if r.Via.Is6() {
			r.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
	}
	return NewRoute(r)
}

// Kind returns datapath.KindRoute.
func (Route) Kind() datapath.Kind { return datapath.KindRoute }

// Key is table, destination and metric: what the kernel allows once.
func (r Route) Key() datapath.Key {
	return datapath.Key{
		Kind: datapath.KindRoute,
		Name: fmt.Sprintf("%s table %d metric %d", r.Dst, r.Table, r.Metric),
	}
}

// String returns the route as `ip route show` prints it; a default route without next hop shows its
// family, as 0.0.0.0/0 or ::/0.
func (r Route) String() string {
	var b strings.Builder
	if r.Type != RouteUnicast {
		b.WriteString(string(r.Type) + " ")
	}
	if r.Dst.Bits() == 0 && r.Via.IsValid() {
		b.WriteString("default")
	} else {
		b.WriteString(formatPrefix(r.Dst))
	}
	if r.Via.IsValid() {
		b.WriteString(" via " + r.Via.String())
	}
	if r.Dev != "" {
		b.WriteString(" dev " + r.Dev)
	}
	if r.Table != TableMain {
		b.WriteString(" table " + strconv.FormatUint(uint64(r.Table), 10))
	}
	b.WriteString(" proto " + strconv.Itoa(int(r.Proto)))
	if r.Scope != "" {
		b.WriteString(" scope " + r.Scope)
	}
	if r.Src.IsValid() {
		b.WriteString(" src " + r.Src.String())
	}
	if r.Metric != 0 {
		b.WriteString(" metric " + strconv.FormatUint(uint64(r.Metric), 10))
	}
	if r.Onlink {
		b.WriteString(" onlink")
	}
	return b.String()
}
