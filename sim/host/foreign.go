package host

import (
	"maps"
	"slices"
	"strings"

	"towtank/datapath/host"
)

// Foreign returns the text of everything that somebody else than the agent or the kernel put into the
// namespace, one object a line, in a fixed order: what an agent must never change.
func (n *Netns) Foreign() []string {
	var out []string
	for _, l := range n.byIndex {
		if !ourAlias(l.alias) && l.kind != kindHardware && l.kind != kindLoopback {
			out = append(out, "link "+l.object().String())
		}
	}
	for _, a := range n.sortedAddresses() {
		if a.Proto != host.ProtoTowtank && a.Proto != protoKernel {
			out = append(out, "address "+a.Address.String())
		}
	}
	for _, e := range n.neigh.sorted() {
		if e.state == nudPermanent && e.proto != host.ProtoTowtank {
			out = append(out, "neigh "+host.Neighbour{IP: e.key.ip, Link: e.key.link.name, MAC: host.MAC(e.mac), Proto: e.proto}.String())
		}
	}
	for _, k := range n.neigh.sortedProxies() {
		if p := n.neigh.proxies[k]; p != host.ProtoTowtank {
			out = append(out, "neigh "+host.Neighbour{IP: k.ip, Link: k.link.name, Proxy: true, Proto: p}.String())
		}
	}
	for _, st := range n.ip {
		for _, id := range slices.Sorted(maps.Keys(st.tables)) {
			for _, r := range st.tables[id].all() {
				if r.Proto != host.ProtoTowtank && r.Proto != protoKernel {
					out = append(out, "route "+routeText(r))
				}
			}
		}
		for _, r := range st.rules {
			if r.Proto != host.ProtoTowtank {
				out = append(out, "rule "+r.String())
			}
		}
		for _, name := range slices.Sorted(maps.Keys(st.nf)) {
			out = append(out, st.nf[name].foreign()...)
		}
	}
	for _, s := range n.sortedSets() {
		if strings.HasPrefix(s.Name, host.SetPrefix) {
			continue
		}
		out = append(out, "ipset "+s.IPSet.String())
		for _, e := range s.sorted() {
			out = append(out, "setentry "+s.Name+" "+e.String())
		}
	}
	return out
}

// foreign returns the chains and rules of a table that do not carry our mark. Built-in chains without a
// rule and with their first policy are left out: they come and go with the table.
func (t *nfTable) foreign() []string {
	var out []string
	for _, c := range t.ordered() {
		if strings.HasPrefix(c.name, host.SetPrefix) {
			continue
		}
		where := "iptables " + t.name + " "
		if t.fam == host.V6 {
			where = "ip6tables " + t.name + " "
		}
		if !c.builtin || c.policy != "ACCEPT" {
			out = append(out, where+":"+c.name+" "+c.policy)
		}
		for _, r := range c.rules {
			if _, ours := host.FromSpec(t.name, c.name, r.spec); !ours {
				out = append(out, where+strings.TrimSpace("-A "+c.name+" "+r.text))
			}
		}
	}
	return out
}
