package host

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Per-link settings (net.ipv4.conf.LINK.…, net.ipv6.conf.LINK.…) that exist here, with their defaults.
// Those in noEffect are kept but change nothing in the model.
var (
	linkSettings = [2]map[string]int{
		{
			"rp_filter": 0, "arp_ignore": 0, "arp_announce": 0, "arp_accept": 0, "promote_secondaries": 0, "forwarding": 0,
			"proxy_arp": 0, "accept_local": 0, "src_valid_mark": 0, "route_localnet": 0, "send_redirects": 1, "accept_redirects": 1,
			"log_martians": 0, "arp_notify": 0,
		},
		{"forwarding": 0, "proxy_ndp": 0, "accept_dad": 1, "dad_transmits": 1, "accept_ra": 1, "autoconf": 1, "accept_redirects": 1, "keep_addr_on_down": 0},
	}
	// globalSettings are those without a link.
	globalSettings = map[string]int{
		"net.ipv4.ip_forward":                                 0,
		"net.ipv4.ip_nonlocal_bind":                           0,
		"net.ipv6.ip_nonlocal_bind":                           0,
		"net.netfilter.nf_conntrack_tcp_loose":                1,
		"net.netfilter.nf_conntrack_tcp_be_liberal":           0,
		"net.netfilter.nf_conntrack_max":                      262144,
		"net.netfilter.nf_conntrack_udp_timeout":              30,
		"net.netfilter.nf_conntrack_udp_timeout_stream":       120,
		"net.netfilter.nf_conntrack_tcp_timeout_syn_sent":     120,
		"net.netfilter.nf_conntrack_tcp_timeout_syn_recv":     60,
		"net.netfilter.nf_conntrack_tcp_timeout_established":  432000,
		"net.netfilter.nf_conntrack_tcp_timeout_close_wait":   60,
		"net.netfilter.nf_conntrack_tcp_timeout_time_wait":    120,
		"net.netfilter.nf_conntrack_tcp_timeout_close":        10,
		"net.netfilter.nf_conntrack_icmp_timeout":             30,
		"net.netfilter.nf_conntrack_icmpv6_timeout":           30,
		"net.netfilter.nf_conntrack_sctp_timeout_cookie_wait": 3,
		"net.netfilter.nf_conntrack_sctp_timeout_established": 210,
		"net.netfilter.nf_conntrack_generic_timeout":          600,
	}
)

func (n *Netns) bootSysctls() {
	n.conf = maps.Clone(globalSettings)
	n.confOf = map[string]map[string]int{}
	for i, f := range []string{"4", "6"} {
		n.confOf[f+"/all"] = maps.Clone(linkSettings[i])
		n.confOf[f+"/default"] = maps.Clone(linkSettings[i])
	}
}

// confMax is the larger of a link's value and that of "all", which is what the kernel uses for
// rp_filter, arp_ignore, arp_announce and, as a logical or, for switches.
func (n *Netns) confMax(l *Link, fi int, setting string) int {
	all := n.confOf["4/all"]
	if fi == 1 {
		all = n.confOf["6/all"]
	}
	return max(all[setting], l.conf[fi][setting])
}

// place finds where a sysctl is kept.
func (n *Netns) place(name string) (m map[string]int, key string, err error) {
	name = strings.TrimSpace(name)
	if _, ok := n.conf[name]; ok {
		return n.conf, name, nil
	}
	bad := fmt.Errorf("sysctl: cannot stat /proc/sys/%s: no such setting, or not modelled", strings.NewReplacer(".", "/", "/", ".").Replace(name))
	w := strings.Split(name, ".")
	if len(w) != 5 || w[0] != "net" || w[1] != "ipv4" && w[1] != "ipv6" || w[2] != "conf" {
		return nil, "", bad
	}
	fi := int(w[1][3]-'4') / 2
	switch link := strings.ReplaceAll(w[3], "/", "."); link {
	case "all", "default":
		m = n.confOf[w[1][3:]+"/"+link]
	default:
		if n.links[link] == nil {
			return nil, "", fmt.Errorf("sysctl %s: %w", name, errNoDevice(link))
		}
		m = n.links[link].conf[fi]
	}
	if _, ok := m[w[4]]; !ok {
		return nil, "", bad
	}
	return m, w[4], nil
}

// Sysctl returns the value of a setting.
func (n *Netns) Sysctl(name string) (string, error) {
	m, key, err := n.place(name)
	if err != nil {
		return "", err
	}
	return strconv.Itoa(m[key]), nil
}

// SetSysctl changes a setting. Forwarding of "all" sets that of every link, and net.ipv4.ip_forward is
// the same as net.ipv4.conf.all.forwarding.
func (n *Netns) SetSysctl(name, value string) error {
	m, key, err := n.place(name)
	if err != nil {
		return err
	}
	v, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil || v < 0 {
		return fmt.Errorf("sysctl %s: value %q: want a number from 0 up", name, value)
	}
	m[key] = v
	switch name {
	case "net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding":
		n.setForwarding(0, v)
	case "net.ipv6.conf.all.forwarding":
		n.setForwarding(1, v)
	}
	return nil
}

func (n *Netns) setForwarding(fi, v int) {
	f := []string{"4", "6"}[fi]
	n.confOf[f+"/all"]["forwarding"] = v
	n.confOf[f+"/default"]["forwarding"] = v
	for _, l := range n.byIndex {
		l.conf[fi]["forwarding"] = v
	}
	if fi == 0 {
		n.conf["net.ipv4.ip_forward"] = v
	}
}

// sysctlNames returns every name, sorted.
func (n *Netns) sysctlNames() []string {
	names := slices.Sorted(maps.Keys(n.conf))
	for i, f := range []string{"ipv4", "ipv6"} {
		links := []string{"all", "default"}
		for _, l := range n.byIndex {
			links = append(links, strings.ReplaceAll(l.name, ".", "/"))
		}
		for _, l := range links {
			for k := range linkSettings[i] {
				names = append(names, "net."+f+".conf."+l+"."+k)
			}
		}
	}
	slices.Sort(names)
	return names
}
