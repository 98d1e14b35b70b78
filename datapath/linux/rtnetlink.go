//go:build linux

package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"towtank/datapath"
	"towtank/datapath/host"
)

// Attributes that the library does not have: who made an address (linux/if_addr.h, since 5.18) or a
// neighbour (linux/neighbour.h).
const (
	attrAddressProto   = 11 // IFA_PROTO
	attrNeighbourProto = 12 // NDA_PROTOCOL
)

func index(link string) (int, error) {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return 0, fmt.Errorf("link %s: %w", link, err)
	}
	return l.Attrs().Index, nil
}

// indexIfAny returns 0 if there is no such link.
func indexIfAny(link string) (int, error) {
	i, err := index(link)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return 0, nil
	}
	return i, err
}

func family(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones)
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func u32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// attributes splits what comes after the header of a message.
func attributes(b []byte) (map[uint16][]byte, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	m := make(map[uint16][]byte, len(list))
	for _, a := range list {
		m[a.Attr.Type&nl.NLA_TYPE_MASK] = a.Value
	}
	return m, nil
}

// lifetimes is struct ifa_cacheinfo: preferred and valid in seconds, then two time stamps.
func lifetimes(deprecated bool) []byte {
	preferred := uint32(0xffffffff)
	if deprecated {
		preferred = 0
	}
	return append(append(u32(preferred), u32(0xffffffff)...), make([]byte, 8)...)
}

// addresses returns all addresses, whoever made them.
func addresses(names map[int]string) ([]host.Address, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	var out []host.Address
	for _, m := range msgs {
		hdr := nl.DeserializeIfAddrmsg(m)
		at, err := attributes(m[hdr.Len():])
		if err != nil {
			return nil, fmt.Errorf("addresses: %w", err)
		}
		ip, ok := at[unix.IFA_LOCAL]
		if !ok {
			ip = at[unix.IFA_ADDRESS]
		}
		a, ok := netip.AddrFromSlice(ip)
		if !ok {
			continue
		}
		o := host.Address{Prefix: netip.PrefixFrom(a, int(hdr.Prefixlen)), Link: names[int(hdr.Index)]}
		if p := at[attrAddressProto]; len(p) > 0 {
			o.Proto = p[0]
		}
		if f := at[unix.IFA_FLAGS]; len(f) == 4 {
			o.NoPrefixRoute = binary.NativeEndian.Uint32(f)&unix.IFA_F_NOPREFIXROUTE != 0
		}
		if c := at[unix.IFA_CACHEINFO]; len(c) >= 4 {
			o.Deprecated = a.Is6() && binary.NativeEndian.Uint32(c) == 0
		}
		out = append(out, o)
	}
	return out, nil
}

func findAddress(o host.Address, i int) (have host.Address, found bool, err error) {
	all, err := addresses(map[int]string{i: o.Link})
	if err != nil {
		return have, false, err
	}
	for _, a := range all {
		if a.Link == o.Link && a.Prefix == o.Prefix {
			return a, true, nil
		}
	}
	return have, false, nil
}

func putAddress(o host.Address) error {
	i, err := index(o.Link)
	if err != nil {
		return err
	}
	have, found, err := findAddress(o, i)
	switch {
	case err != nil:
		return err
	case have == o:
		return nil
	case found && have.Proto != o.Proto:
		return fmt.Errorf("the address is there and is not ours (protocol %d)", have.Proto)
	case found && have.NoPrefixRoute != o.NoPrefixRoute:
		if err := changeAddress(unix.RTM_DELADDR, 0, i, have); err != nil {
			return err
		}
	}
	return changeAddress(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, i, o)
}

func deleteAddress(o host.Address) error {
	i, err := indexIfAny(o.Link)
	if err != nil || i == 0 {
		return err
	}
	have, found, err := findAddress(o, i)
	if err != nil || !found || have.Proto != o.Proto {
		return err
	}
	return changeAddress(unix.RTM_DELADDR, 0, i, have)
}

func changeAddress(msg, flags, i int, o host.Address) error {
	ip := o.Prefix.Addr()
	req := nl.NewNetlinkRequest(msg, flags|unix.NLM_F_ACK)
	hdr := nl.NewIfAddrmsg(family(ip))
	hdr.Index, hdr.Prefixlen = uint32(i), uint8(o.Prefix.Bits())
	req.AddData(hdr)
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, ip.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, ip.AsSlice()))
	if msg == unix.RTM_NEWADDR {
		flags := uint32(unix.IFA_F_PERMANENT)
		if ip.Is6() {
			flags |= unix.IFA_F_NODAD
		}
		if o.NoPrefixRoute {
			flags |= unix.IFA_F_NOPREFIXROUTE
		}
		req.AddData(nl.NewRtAttr(unix.IFA_FLAGS, u32(flags)))
		req.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, lifetimes(o.Deprecated)))
		req.AddData(nl.NewRtAttr(attrAddressProto, []byte{o.Proto}))
		if ip.Is4() && o.Prefix.Bits() < 31 {
			b := ipNet(o.Prefix)
			for j := range b.IP {
				b.IP[j] |= ^b.Mask[j]
			}
			req.AddData(nl.NewRtAttr(unix.IFA_BROADCAST, b.IP))
		}
	}
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func dumpAddresses(names map[int]string) ([]datapath.Object, error) {
	all, err := addresses(names)
	if err != nil {
		return nil, err
	}
	var out []datapath.Object
	for _, a := range all {
		if a.Proto == host.ProtoTowtank {
			out = append(out, a)
		}
	}
	return out, nil
}

func kernelRoute(o host.Route) (*netlink.Route, error) {
	r := &netlink.Route{
		Dst: ipNet(o.Dst), Table: int(o.Table), Protocol: netlink.RouteProtocol(o.Proto), Priority: int(o.Metric),
		Scope: netlink.SCOPE_UNIVERSE, Type: unix.RTN_UNICAST, Family: family(o.Dst.Addr()),
	}
	if o.Scope == "link" {
		r.Scope = netlink.SCOPE_LINK
	}
	if o.Type == host.RouteBlackhole {
		r.Type = unix.RTN_BLACKHOLE
		return r, nil
	}
	i, err := index(o.Dev)
	if err != nil {
		return nil, err
	}
	r.LinkIndex = i
	if o.Via.IsValid() {
		r.Gw = o.Via.AsSlice()
	}
	if o.Src.IsValid() {
		r.Src = o.Src.AsSlice()
	}
	if o.Onlink {
		r.Flags |= int(netlink.FLAG_ONLINK)
	}
	return r, nil
}

// listRoutes lists routes; a test counts how often.
var listRoutes = netlink.RouteListFiltered

// routes returns all routes of a family, whoever made them.
func routes(fam int, names map[int]string) ([]host.Route, error) {
	list, err := listRoutes(fam, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	var out []host.Route
	for _, r := range list {
		o := host.Route{
			Dev: names[r.LinkIndex], Table: uint32(r.Table), Metric: uint32(r.Priority), Proto: uint8(r.Protocol),
			Onlink: r.Flags&int(netlink.FLAG_ONLINK) != 0,
		}
		switch {
		case r.Dst != nil:
			o.Dst = prefixOf(r.Dst)
		case fam == netlink.FAMILY_V4:
			o.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		default:
			o.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if r.Gw != nil {
			o.Via = addrOf(r.Gw)
		}
		if r.Src != nil {
			o.Src = addrOf(r.Src)
		}
		if r.Scope == netlink.SCOPE_LINK {
			o.Scope = "link"
		}
		if r.Type == unix.RTN_BLACKHOLE {
			o.Type, o.Dev = host.RouteBlackhole, ""
		}
		out = append(out, o)
	}
	return out, nil
}

// routeOwners are the protocols of the routes that there were when the first op of several met one: each list costs
// as much as there are routes, and a node has one for each other node.
type routeOwners map[int]map[datapath.Key][]uint8

func (w routeOwners) of(fam int, k datapath.Key) ([]uint8, error) {
	if w[fam] == nil {
		all, err := routes(fam, nil)
		if err != nil {
			return nil, err
		}
		w[fam] = make(map[datapath.Key][]uint8, len(all))
		for _, r := range all {
			w[fam][r.Key()] = append(w[fam][r.Key()], r.Proto)
		}
	}
	return w[fam][k], nil
}

// putRoute adds a route. If one is there already the kernel says so, and only then it is asked whose that is.
func putRoute(o host.Route, owners routeOwners) error {
	r, err := kernelRoute(o)
	if err != nil {
		return err
	}
	if err := netlink.RouteAdd(r); !errors.Is(err, unix.EEXIST) {
		return err
	}
	protos, err := owners.of(r.Family, o.Key())
	if err != nil {
		return err
	}
	for _, p := range protos {
		if p != o.Proto {
			return fmt.Errorf("a route to %s is there and is not ours (protocol %d)", o.Dst, p)
		}
	}
	return netlink.RouteReplace(r)
}

func deleteRoute(o host.Route) error {
	r, err := kernelRoute(o)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return nil // gone with its link
	}
	if err != nil {
		return err
	}
	r.Src, r.Flags = nil, 0
	if err := netlink.RouteDel(r); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

func dumpRoutes(names map[int]string) ([]datapath.Object, error) {
	var out []datapath.Object
	for _, f := range families() {
		fam := netlink.FAMILY_V4
		if f == host.V6 {
			fam = netlink.FAMILY_V6
		}
		all, err := routes(fam, names)
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			if o.Proto == host.ProtoTowtank {
				out = append(out, o)
			}
		}
	}
	return out, nil
}

func kernelRule(o host.Rule) *netlink.Rule {
	r := netlink.NewRule()
	r.Priority, r.Table, r.Protocol = int(o.Priority), int(o.Table), o.Proto
	r.Family = netlink.FAMILY_V4
	if o.Family == host.V6 {
		r.Family = netlink.FAMILY_V6
	}
	if o.FwMask != 0 {
		mask := o.FwMask
		r.Mark, r.Mask = o.FwMark, &mask
	}
	if o.From.IsValid() {
		r.Src = ipNet(o.From)
	}
	r.IifName = o.IIF
	return r
}

// probeIPv6 makes an IPv6 socket; a test has it fail.
var probeIPv6 = func() error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

// families returns the families that the kernel has. One that was booted with ipv6.disable=1 answers a dump of IPv6
// with EAFNOSUPPORT, or with IPv4.
func families() []host.Family {
	if errors.Is(probeIPv6(), unix.EAFNOSUPPORT) {
		return []host.Family{host.V4}
	}
	return []host.Family{host.V4, host.V6}
}

// rules returns all rules that a host.Rule can express.
func rules() ([]host.Rule, error) {
	var out []host.Rule
	for _, fam := range families() {
		list, err := netlink.RuleList(map[host.Family]int{host.V4: netlink.FAMILY_V4, host.V6: netlink.FAMILY_V6}[fam])
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		for _, r := range list {
			o := host.Rule{Family: fam, Priority: uint32(r.Priority), IIF: r.IifName, FwMark: r.Mark, Table: uint32(r.Table), Proto: r.Protocol}
			if r.Mask != nil {
				o.FwMask = *r.Mask
			}
			if r.Src != nil {
				o.From = prefixOf(r.Src)
			}
			out = append(out, o)
		}
	}
	return out, nil
}

func ourRules(key datapath.Key) ([]host.Rule, error) {
	all, err := rules()
	var out []host.Rule
	for _, r := range all {
		if r.Proto == host.ProtoTowtank && r.Key() == key {
			out = append(out, r)
		}
	}
	return out, err
}

func putRule(o host.Rule) error {
	have, err := ourRules(o.Key())
	if err != nil {
		return err
	}
	there := false
	for _, r := range have {
		if r == o {
			there = true
			continue
		}
		if err := netlink.RuleDel(kernelRule(r)); err != nil {
			return err
		}
	}
	if there {
		return nil
	}
	return netlink.RuleAdd(kernelRule(o))
}

func deleteRule(o host.Rule) error {
	have, err := ourRules(o.Key())
	if err != nil {
		return err
	}
	for _, r := range have {
		if err := netlink.RuleDel(kernelRule(r)); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

func dumpRules(map[int]string) ([]datapath.Object, error) {
	all, err := rules()
	if err != nil {
		return nil, err
	}
	var out []datapath.Object
	for _, r := range all {
		if r.Proto == host.ProtoTowtank {
			out = append(out, r)
		}
	}
	return out, nil
}

func ourAlias(alias string) bool {
	return len(alias) > len(host.AliasPrefix) && strings.HasPrefix(alias, host.AliasPrefix)
}
