package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/sim/packet"
)

// Dump returns the objects that carry our mark, sorted by key.
func (n *Netns) Dump() []datapath.Object {
	var out []datapath.Object
	for _, l := range n.byIndex {
		if ourAlias(l.alias) {
			out = append(out, l.object())
		}
	}
	for _, a := range n.sortedAddresses() {
		if a.Proto == host.ProtoTowtank {
			out = append(out, a.Address)
		}
	}
	for _, e := range n.neigh.sorted() {
		if e.state == nudPermanent && e.proto == host.ProtoTowtank {
			out = append(out, host.Neighbour{IP: e.key.ip, Link: e.key.link.name, MAC: host.MAC(e.mac), Proto: e.proto})
		}
	}
	for _, k := range n.neigh.sortedProxies() {
		if p := n.neigh.proxies[k]; p == host.ProtoTowtank {
			out = append(out, host.Neighbour{IP: k.ip, Link: k.link.name, Proxy: true, Proto: p})
		}
	}
	for _, st := range n.ip {
		for _, id := range slices.Sorted(maps.Keys(st.tables)) {
			for _, r := range st.tables[id].all() {
				if r.Proto == host.ProtoTowtank {
					out = append(out, r.Route)
				}
			}
		}
		for _, r := range st.rules {
			if r.Proto == host.ProtoTowtank {
				out = append(out, r.Rule)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(st.nf)) {
			for _, o := range st.nf[name].dump() {
				out = append(out, o)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.ours)) {
		if v, err := n.Sysctl(name); err == nil {
			out = append(out, host.Sysctl{Name: name, Value: v})
		}
	}
	for _, s := range n.sortedSets() {
		if !strings.HasPrefix(s.Name, host.SetPrefix) {
			continue
		}
		out = append(out, s.IPSet)
		for _, e := range s.sorted() {
			out = append(out, host.IPSetEntry{Set: s.Name, Element: e.String()})
		}
	}
	for _, port := range slices.Sorted(maps.Keys(n.health)) {
		out = append(out, n.health[port].Health)
	}
	datapath.SortObjects(out)
	return out
}

// object returns the link as it can be observed.
func (l *Link) object() host.Link {
	o := host.Link{Name: l.name, Type: l.kind, MTU: l.mtu, VLANID: l.vlan, Down: !l.up, Alias: l.alias, Guard: l.guard}
	if l.macOur || l.macSet && l.kind != kindHardware {
		o.MAC = host.MAC(l.mac)
	}
	if l.parent != nil {
		o.Parent = l.parent.name
	}
	return o
}

// DumpText prints everything that the namespace has, ours or not: ip link, addr, rule, route and
// neigh, iptables-save, ip6tables-save, ipset save, and the sysctls that differ from their defaults.
func (n *Netns) DumpText() string {
	var b strings.Builder
	part := func(title, text string) {
		if text != "" {
			b.WriteString("# " + title + "\n" + text)
		}
	}
	part("ip addr", n.addrShow(0, ""))
	for i, title := range []string{"ip", "ip -6"} {
		part(title+" rule", n.ruleShow(i))
		part(title+" route", n.routeShow(i, "all"))
	}
	part("ip neigh", n.neighShow(0))
	for i, title := range []string{"iptables-save", "ip6tables-save"} {
		part(title, n.iptablesSave(n.ip[i].fam))
	}
	part("ipset save", n.ipsetSave())
	part("sysctl", n.sysctlShow())
	return b.String()
}

func (n *Netns) sysctlShow() string {
	var b strings.Builder
	for _, name := range n.sysctlNames() {
		m, key, err := n.place(name)
		if err != nil {
			continue
		}
		def, ok := globalSettings[name]
		if !ok {
			i := 0
			if strings.HasPrefix(name, "net.ipv6.") {
				i = 1
			}
			def = linkSettings[i][key]
		}
		if m[key] != def {
			fmt.Fprintf(&b, "%s = %d\n", name, m[key])
		}
	}
	return b.String()
}

// addrShow prints links and addresses as `ip addr show`; family 0 is both, link "" all.
func (n *Netns) addrShow(f host.Family, link string) string {
	var b strings.Builder
	for _, l := range n.byIndex {
		if link != "" && l.name != link {
			continue
		}
		b.WriteString(l.show() + "\n")
		for i := range l.addrs {
			if f != 0 && n.ip[i].fam != f {
				continue
			}
			for _, a := range l.addrs[i] {
				b.WriteString("    " + a.show() + "\n")
			}
		}
	}
	return b.String()
}

func (l *Link) show() string {
	name := l.name
	switch {
	case l.peer != nil && l.peer.ns == l.ns:
		name += "@" + l.peer.name
	case l.peer != nil:
		name += "@if" + fmt.Sprint(l.peer.index)
	case l.parent != nil:
		name += "@" + l.parent.name
	}
	flags := "BROADCAST,MULTICAST"
	if l.kind == kindLoopback {
		flags = "LOOPBACK"
	}
	state := "DOWN"
	if l.up {
		flags += ",UP"
	}
	if l.running() {
		flags += ",LOWER_UP"
		state = "UP"
	} else if l.up {
		flags = "NO-CARRIER," + flags
	}
	s := fmt.Sprintf("%d: %s: <%s> mtu %d state %s link/%s %s", l.index, name, flags, l.mtu, state, l.linkType(), l.mac)
	if l.alias != "" {
		s += " alias " + l.alias
	}
	return s
}

func (l *Link) linkType() string {
	if l.kind == kindLoopback {
		return "loopback"
	}
	return "ether"
}

func (a *address) show() string {
	fam := "inet"
	if a.Prefix.Addr().Is6() {
		fam = "inet6"
	}
	s := fam + " " + a.Prefix.String() + " scope " + a.scope()
	if a.secondary {
		s += " secondary"
	}
	if a.Deprecated {
		s += " deprecated"
	}
	if a.NoPrefixRoute {
		s += " noprefixroute"
	}
	if a.Proto > protoStatic {
		s += fmt.Sprintf(" proto %d", a.Proto)
	}
	if fam == "inet" {
		s += " " + a.link.name
	}
	return s
}

func (a *address) scope() string {
	switch ip := a.Prefix.Addr(); {
	case ip.IsLoopback():
		return "host"
	case ip.IsLinkLocalUnicast():
		return "link"
	}
	return "global"
}

// routeShow prints a table of the family with index i: main, local, a number, or all.
func (n *Netns) routeShow(i int, table string) string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(n.ip[i].tables)) {
		if table != "all" && formatTable(id) != table {
			continue
		}
		for _, r := range n.ip[i].tables[id].all() {
			s := routeText(r)
			if table != "all" {
				s = strings.Replace(s, " table "+formatTable(id), "", 1)
			}
			b.WriteString(s + "\n")
		}
	}
	return b.String()
}

func formatTable(id uint32) string {
	switch id {
	case host.TableMain:
		return "main"
	case host.TableLocal:
		return "local"
	case tableDefault:
		return "default"
	}
	return fmt.Sprint(id)
}

func (n *Netns) ruleShow(i int) string {
	var b strings.Builder
	for _, r := range n.ip[i].rules {
		b.WriteString(strings.TrimPrefix(r.String(), "-6 ") + "\n")
	}
	return b.String()
}

// neighShow prints the neighbours of a family, 0 for both.
func (n *Netns) neighShow(f host.Family) string {
	var b strings.Builder
	for _, e := range n.neigh.sorted() {
		if f != 0 && host.FamilyOf(e.key.ip) != f {
			continue
		}
		s := e.key.ip.String() + " dev " + e.key.link.name
		if e.mac != (packet.MAC{}) {
			s += " lladdr " + e.mac.String()
		}
		s += " " + n.shownState(e)
		if e.proto != 0 {
			s += fmt.Sprintf(" proto %d", e.proto)
		}
		b.WriteString(s + "\n")
	}
	for _, k := range n.neigh.sortedProxies() {
		if f == 0 || host.FamilyOf(k.ip) == f {
			b.WriteString(k.ip.String() + " dev " + k.link.name + " proxy\n")
		}
	}
	return b.String()
}
