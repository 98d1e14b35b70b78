package host

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"towtank/datapath/host"
	"towtank/sim/packet"
)

var protoNames = map[string]uint8{"kernel": protoKernel, "boot": protoBoot, "static": protoStatic}

func parseRouteProto(s string) (uint8, error) {
	if p, ok := protoNames[s]; ok {
		return p, nil
	}
	v, err := parseUint(s, 8)
	return uint8(v), err
}

func parseTable(s string) (uint32, error) {
	switch s {
	case "main":
		return host.TableMain, nil
	case "local":
		return host.TableLocal, nil
	case "default":
		return tableDefault, nil
	}
	v, err := parseUint(s, 32)
	return uint32(v), err
}

// routeSpec is what a command says about a route.
type routeSpec struct {
	host.Route
	metricSet, protoSet, scopeSet bool
}

func parseRouteWords(fam host.Family, a *args) (routeSpec, error) {
	var r routeSpec
	for _, t := range []host.RouteType{"unicast", host.RouteBlackhole, typeUnreachable, typeProhibit, typeThrow, typeLocal} {
		if len(a.w) > 0 && a.w[0] == string(t) {
			a.next()
			if t != "unicast" {
				r.Type = t
			}
			break
		}
	}
	dst := a.next()
	isDefault := dst == "default"
	if !isDefault {
		p, err := parsePrefix(dst)
		if err != nil {
			return r, err
		}
		r.Dst = p
		if p != p.Masked() {
			return r, fmt.Errorf("%s: Invalid argument (host bits are set)", dst)
		}
	}
	for !a.done() {
		opt := a.next()
		if opt == "onlink" {
			r.Onlink = true
			continue
		}
		v, err := a.value(opt)
		if err != nil {
			return r, err
		}
		var u uint64
		switch opt {
		case "via":
			r.Via, err = netip.ParseAddr(v)
		case "dev":
			r.Dev = v
		case "table":
			r.Table, err = parseTable(v)
		case "metric", "preference", "priority":
			u, err = parseUint(v, 32)
			r.Metric, r.metricSet = uint32(u), true
		case "proto", "protocol":
			r.Proto, err = parseRouteProto(v)
			r.protoSet = true
		case "scope":
			if v != "link" && v != "global" && v != "host" {
				err = fmt.Errorf("scope %q: want link, global or host", v)
			}
			r.scopeSet = true
			if v != "global" {
				r.Scope = v
			}
		case "src":
			r.Src, err = netip.ParseAddr(v)
		default:
			err = fmt.Errorf("%q: not modelled", opt)
		}
		if err != nil {
			return r, err
		}
	}
	if isDefault {
		r.Dst = anyV4
		if fam == host.V6 || r.Via.Is6() {
			r.Dst = anyV6
		}
	}
	if r.Table == 0 {
		r.Table = host.TableMain
	}
	return r, nil
}

func (n *Netns) execRoute(cmd string, fam host.Family, a *args) error {
	r, err := parseRouteWords(fam, a)
	if err != nil {
		return err
	}
	if cmd == "delete" {
		return n.execRouteDel(r)
	}
	if cmd == "append" || cmd == "change" {
		return fmt.Errorf("ip route %s: not modelled (add, replace and delete are)", cmd)
	}
	if !r.protoSet {
		r.Proto = protoBoot
	}
	v6 := r.Dst.Addr().Is6()
	switch r.Type {
	case host.RouteUnicast:
		if r.Via.IsValid() && r.Dev == "" {
			r.Dev = "?" // found by the next hop
		}
		o, err := host.NewRoute(r.Route)
		if err != nil {
			return err
		}
		if o.Dev == "?" {
			o.Dev = ""
		}
		return n.addRoute(o, cmd == "replace")
	case typeLocal:
		if _, err := n.link(r.Dev); err != nil {
			return err
		}
		return fmt.Errorf("ip route %s local: not modelled", cmd)
	}
	if r.Via.IsValid() || r.Dev != "" || r.Src.IsValid() {
		return fmt.Errorf("%s takes neither via, dev nor src", r.Type)
	}
	if v6 && !r.metricSet {
		r.Metric = 1024
	}
	return n.addRoute(r.Route, cmd == "replace")
}

func (n *Netns) execRouteDel(want routeSpec) error {
	t := n.ip[famIndex(want.Dst.Addr())].table(want.Table)
	for _, r := range t.bucket(want.Dst) {
		if want.Via.IsValid() && want.Via != r.Via || want.Dev != "" && want.Dev != r.Dev || want.metricSet && want.Metric != r.Metric ||
			want.protoSet && want.Proto != r.Proto || want.Src.IsValid() && want.Src != r.Src || want.Type != r.Type {
			continue
		}
		t.remove(func(x *route) bool { return x == r }, want.Dst)
		return nil
	}
	return fmt.Errorf("RTNETLINK answers: No such process")
}

// execRouteFlush deletes the routes of a table that the words select: dev, proto, table.
func (n *Netns) execRouteFlush(fam host.Family, a *args) error {
	if fam == 0 {
		fam = host.V4
	}
	table, dev, all := uint32(host.TableMain), "", false
	proto := -1
	if a.done() {
		return fmt.Errorf("ip route flush needs to know what")
	}
	for !a.done() {
		opt := a.next()
		v, err := a.value(opt)
		if err != nil {
			return err
		}
		switch opt {
		case "table":
			if v == "all" {
				all = true
				break
			}
			table, err = parseTable(v)
		case "dev":
			_, err = n.link(v)
			dev = v
		case "proto", "protocol":
			var p uint8
			p, err = parseRouteProto(v)
			proto = int(p)
		default:
			err = fmt.Errorf("%q: not modelled", opt)
		}
		if err != nil {
			return err
		}
	}
	n.state(fam).deleteRoutes(func(r *route) bool {
		return (all && r.Table != host.TableLocal || r.Table == table) && (dev == "" || r.Dev == dev) && (proto < 0 || int(r.Proto) == proto)
	})
	return nil
}

// execRouteGet prints the route that a packet to an address takes.
func (n *Netns) execRouteGet(a *args) (string, error) {
	dst, err := netip.ParseAddr(a.next())
	if err != nil {
		return "", err
	}
	f := flow{dst: dst, iif: "lo"}
	for !a.done() {
		opt := a.next()
		v, err := a.value(opt)
		if err != nil {
			return "", err
		}
		switch opt {
		case "from":
			f.src, err = netip.ParseAddr(v)
		case "mark":
			var m uint64
			m, err = parseUint(v, 32)
			f.mark = uint32(m)
		case "iif":
			_, err = n.link(v)
			f.iif = v
		default:
			err = fmt.Errorf("%q: not modelled", opt)
		}
		if err != nil {
			return "", err
		}
	}
	r, err := n.lookup(f)
	if err != nil {
		return "", fmt.Errorf("RTNETLINK answers: %w", err)
	}
	s := dst.String()
	if r.Type == typeLocal {
		return "local " + s + " dev lo src " + s + "\n", nil
	}
	if r.Via.IsValid() {
		s += " via " + r.Via.String()
	}
	s += " dev " + r.Dev
	if r.Table != host.TableMain {
		s += " table " + formatTable(r.Table)
	}
	src := f.src
	if !src.IsValid() {
		src = n.source(r, dst)
	}
	return s + " src " + src.String() + "\n", nil
}

func (n *Netns) execRule(cmd string, fam host.Family, a *args) error {
	r := policyRule{Rule: host.Rule{Family: fam, Proto: protoBoot}}
	prioSet, tableSet := false, false
	for !a.done() {
		opt := a.next()
		v, err := a.value(opt)
		if err != nil {
			return err
		}
		var u uint64
		switch opt {
		case "from":
			if v != "all" {
				r.From, err = parsePrefix(v)
			}
		case "to":
			if v != "all" {
				r.to, err = parsePrefix(v)
			}
		case "iif":
			r.IIF = v
		case "fwmark":
			val, mask, slash := strings.Cut(v, "/")
			if !slash {
				mask = "0xffffffff"
			}
			if u, err = parseUint(val, 32); err == nil {
				r.FwMark = uint32(u)
				u, err = parseUint(mask, 32)
				r.FwMask = uint32(u)
			}
		case "lookup", "table":
			r.Table, err = parseTable(v)
			tableSet = true
		case "pref", "priority", "preference", "order":
			u, err = parseUint(v, 32)
			r.Priority, prioSet = uint32(u), true
		case "proto", "protocol":
			r.Proto, err = parseRouteProto(v)
		default:
			err = fmt.Errorf("%q: not modelled", opt)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range []netip.Prefix{r.From, r.to} {
		if p.IsValid() && host.FamilyOf(p.Addr()) != fam {
			return fmt.Errorf("%s: not of the rule's family (ip -6 rule?)", p)
		}
	}
	if cmd == "delete" {
		st := n.state(fam)
		i := slices.IndexFunc(st.rules, func(o policyRule) bool {
			return (!prioSet || o.Priority == r.Priority) && (!tableSet || o.Table == r.Table) && (r.FwMask == 0 || o.FwMark == r.FwMark && o.FwMask == r.FwMask) &&
				(!r.From.IsValid() || o.From == r.From) && (!r.to.IsValid() || o.to == r.to) && (r.IIF == "" || o.IIF == r.IIF) && (prioSet || o.Priority != 0)
		})
		switch {
		case i < 0:
			return fmt.Errorf("RTNETLINK answers: No such file or directory")
		case st.rules[i].Priority == 0:
			return fmt.Errorf("deleting rule 0: not modelled")
		}
		st.rules = slices.Delete(st.rules, i, i+1)
		return nil
	}
	if !tableSet {
		r.Table = host.TableMain
	}
	if !prioSet {
		r.Priority = 32766
		for _, o := range n.state(fam).rules { // one before the first that is not 0
			if o.Priority != 0 {
				r.Priority = o.Priority - 1
				break
			}
		}
	}
	n.addRule(r)
	return nil
}

func (n *Netns) execNeigh(cmd string, a *args) error {
	proxy := a.flag("proxy")
	var ip netip.Addr
	var l *Link
	var mac packet.MAC
	state := "permanent"
	proto := uint8(0)
	var err error
	for !a.done() {
		opt := a.next()
		v := ""
		switch opt {
		case "lladdr", "dev", "nud", "to", "proto", "protocol":
			if v, err = a.value(opt); err != nil {
				return err
			}
		default:
			v, opt = opt, "to"
		}
		switch opt {
		case "lladdr":
			mac, err = packet.ParseMAC(v)
		case "dev":
			l, err = n.link(v)
		case "nud":
			state = v
		case "proto", "protocol":
			proto, err = parseRouteProto(v)
		default:
			ip, err = netip.ParseAddr(v)
		}
		if err != nil {
			return err
		}
	}
	if l == nil || !ip.IsValid() {
		return said("Device and destination are required arguments.")
	}
	k := neighKey{l, ip}
	if proxy {
		if cmd == "delete" {
			if _, ok := n.neigh.proxies[k]; !ok {
				return fmt.Errorf("RTNETLINK answers: No such file or directory")
			}
			delete(n.neigh.proxies, k)
			return nil
		}
		n.neigh.proxies[k] = proto
		return nil
	}
	e := n.neigh.entries[k]
	if cmd == "delete" {
		if e == nil {
			return fmt.Errorf("RTNETLINK answers: No such file or directory")
		}
		n.neigh.remove(k)
		return nil
	}
	if mac == (packet.MAC{}) {
		return fmt.Errorf("want lladdr MAC")
	}
	if cmd == "add" && e != nil {
		return errExists
	}
	switch state {
	case "permanent":
		n.setNeighbour(l, ip, mac, proto)
	case "reachable", "stale":
		st := nudStale
		if state == "reachable" {
			st = nudReachable
		}
		n.neigh.remove(k)
		n.learn(k, mac, st, true, true)
	default:
		return fmt.Errorf("nud %s: not modelled", state)
	}
	return nil
}

// execNeighFlush deletes what is not permanent.
func (n *Netns) execNeighFlush(fam host.Family, a *args) error {
	dev := ""
	all := a.flag("all")
	if a.flag("dev") {
		dev = a.next()
		if _, err := n.link(dev); err != nil {
			return err
		}
	}
	if err := a.end(); err != nil {
		return err
	}
	if !all && dev == "" {
		return said("Flush requires arguments.")
	}
	for _, e := range n.neigh.sorted() {
		if e.state != nudPermanent && (dev == "" || e.key.link.name == dev) && (fam == 0 || host.FamilyOf(e.key.ip) == fam) {
			n.neigh.remove(e.key)
		}
	}
	return nil
}
