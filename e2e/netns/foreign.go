//go:build linux

package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"towtank/agent/shell"
	"towtank/datapath"
	"towtank/scenarios/check"
)

// Invariant 2 on a real node: no flow or group of ours names what is not there, everything on the node that carries
// our mark is wanted by somebody, and what is not ours is as people left it. The switch is read on a connection of its
// own after each settle; the host in the words of its own programs, which costs a quarter of a second for each node:
// once to begin with, before somebody types something, and at the end. What changed in between shows there, too.

// hostText prints what is on the host, one thing a line, with the kind before those of it.
const hostText = `
echo @link; ip -o link
echo @address; ip -o addr
echo @route; ip route show table all
echo @route6; ip -6 route show table all
echo @rule; ip -d rule
echo @rule6; ip -d -6 rule
echo @iptables; iptables-save
echo @ip6tables; ip6tables-save
echo @ipset; ipset save
echo @nft; nft list tables 2>/dev/null
echo @ovsport; ovs-vsctl -f csv --no-headings --columns=name,external_ids list Port
`

// Marks of ours on the host: of routes and rules, in names of chains and sets, of comments, of links and OVS ports.
const (
	ourProtocol = "proto 116"
	ourNames    = "TOWTANK-"
	ourMark     = "towtank"
)

// hostDump is what is on a host: of others, and with our mark but not wanted.
type hostDump struct{ foreign, unowned []string }

// dumpHost reads the host of a node; units is what its agent wants.
func (m *machine) dumpHost(units []shell.Unit) (*hostDump, error) {
	out, err := m.exec(hostText)
	if err != nil {
		return nil, err
	}
	return sortHost(out, units), nil
}

// sortHost tells what is ours from what is not.
func sortHost(out string, units []shell.Unit) *hostDump {
	wanted := map[datapath.Kind][]string{}
	addrs := map[string]bool{}
	for _, u := range units {
		for _, o := range u.Objects {
			wanted[o.Kind] = append(wanted[o.Kind], o.Text)
			if o.Kind == datapath.KindAddress {
				a, _, _ := strings.Cut(o.Text, "/")
				addrs[a] = true
			}
		}
	}
	has := func(kind datapath.Kind, match func(text string) bool) bool {
		return slices.ContainsFunc(wanted[kind], match)
	}
	d := &hostDump{}
	ours := map[string]bool{} // links
	kind, table := "", ""
	for rest := range strings.SplitSeq(out, "\n") {
		words := strings.Fields(rest)
		if k, ok := strings.CutPrefix(rest, "@"); ok {
			kind = k
			continue
		}
		if len(words) == 0 {
			continue
		}
		if kind == "link" || kind == "address" {
			words = words[1:] // without the number of the link
		}
		line := kind + " " + strings.Join(words, " ")
		owned, mine := true, false
		switch kind {
		case "link":
			name, _, _ := strings.Cut(strings.TrimSuffix(words[0], ":"), "@")
			mine = strings.Contains(rest, "alias "+ourMark+":")
			ours[name] = mine
			owned = has(datapath.KindLink, func(t string) bool { return strings.HasPrefix(t, "dev "+name+" ") })
			line = "link " + name
		case "address":
			a, _, _ := strings.Cut(words[2], "/")
			ip, err := netip.ParseAddr(a)
			if err != nil || ip.IsLinkLocalUnicast() && ip.Is6() {
				continue // the kernel's own
			}
			mine = ours[words[0]] || addrs[a]
			line = "address " + words[2] + " dev " + words[0]
		case "route", "route6":
			if strings.Contains(rest, "proto kernel") || strings.Contains(rest, "proto ra") {
				continue // they come and go with addresses and links
			}
			mine = strings.Contains(rest, ourProtocol)
			owned = has(datapath.KindRoute, func(t string) bool { return strings.HasPrefix(t, words[0]+" ") })
		case "rule", "rule6":
			mine = strings.Contains(rest, ourProtocol)
			owned = has(datapath.KindRule, func(t string) bool { return strings.HasPrefix(t, words[0]+" ") })
		case "iptables", "ip6tables":
			if t, ok := strings.CutPrefix(words[0], "*"); ok {
				table = t
			}
			if words[0] != "-A" {
				continue
			}
			mine = strings.HasPrefix(words[1], ourNames) || strings.Contains(rest, "--comment "+ourMark+"-")
			line = kind + " -t " + table + " " + rest
			owned = has(datapath.KindIPTables, func(t string) bool { return t == line })
		case "ipset":
			mine = strings.HasPrefix(words[1], ourNames)
			kind, prefix := datapath.KindIPSet, "create "+words[1]+" "
			if words[0] == "add" {
				kind, prefix = datapath.KindIPSetEntry, rest
			}
			owned = has(kind, func(t string) bool { return strings.HasPrefix(t, prefix) })
		case "nft":
			mine = strings.HasPrefix(words[len(words)-1], ourMark) || words[1] == "ip" || words[1] == "ip6" // those of iptables
		case "ovsport":
			name, ids, _ := strings.Cut(rest, ",")
			mine = strings.Contains(ids, ourMark+"-")
			owned = has(datapath.KindPort, func(t string) bool { return strings.HasPrefix(t, name+" ") })
			line = "OVS port " + name
		}
		switch {
		case !mine:
			d.foreign = append(d.foreign, line)
		case !owned:
			d.unowned = append(d.unowned, line)
		}
	}
	slices.Sort(d.foreign)
	slices.Sort(d.unowned)
	return d
}

// changes says what is in one of two sorted lists only.
func changes(before, now []string) (out []string) {
	for _, l := range before {
		if !slices.Contains(now, l) {
			out = append(out, "gone: "+l)
		}
	}
	for _, l := range now {
		if !slices.Contains(before, l) {
			out = append(out, "new:  "+l)
		}
	}
	return out
}

// A difference that is gone when it is looked again is a change under way: agents have audits and timers of their own.
const lookAgain = 500 * time.Millisecond

// owned checks invariant 2 of a quiet node; host: the host, too, which is known then.
func (m *machine) owned(host bool) []check.Result {
	wrong := m.disowned(host)
	if len(wrong) > 0 {
		time.Sleep(lookAgain)
		wrong = m.disowned(host)
	}
	var out []check.Result
	for _, w := range wrong {
		out = append(out, check.Result{ID: 2, Node: m.name, Detail: w})
	}
	return out
}

// disowned says what is wrong.
func (m *machine) disowned(host bool) []string {
	fail := func(err error) []string { return []string{err.Error()} }
	units, err := m.store()
	if err != nil {
		return fail(err)
	}
	wanted := map[string]bool{}
	for _, u := range units {
		for _, o := range u.Objects {
			wanted[string(o.Kind)+" "+o.Text] = true
		}
	}
	sw, err := m.dumpSwitch()
	if err != nil {
		return fail(err)
	}
	objs, unowned := sw.ours()
	for _, o := range objs {
		if !wanted[text(o)] {
			unowned = append(unowned, text(o))
		}
	}
	var out []string
	say := func(what string, list []string) {
		if len(list) > 0 {
			out = append(out, what+":\n  "+strings.Join(list[:min(len(list), maxTold)], "\n  "))
		}
	}
	say("flows and groups that name what is not there", sw.dangling(objs))
	if host {
		h, err := m.dumpHost(units)
		if err != nil {
			return fail(err)
		}
		unowned = append(unowned, h.unowned...)
		now := append(h.foreign, sw.foreign()...)
		m.mu.Lock()
		before := m.foreign
		if before == nil {
			m.foreign = now
		}
		m.mu.Unlock()
		if before != nil {
			say("foreign objects changed", changes(before, now))
		}
	}
	say("objects of ours that nobody wants", unowned)
	return out
}

// maxTold is how many objects of one sort are told.
const maxTold = 8

// knowForeign notes what is foreign on a node, if that is not known: what is there later must be the same.
func (m *machine) knowForeign() error {
	m.mu.Lock()
	known := m.foreign != nil
	m.mu.Unlock()
	if known {
		return nil
	}
	units, err := m.store()
	if err != nil {
		return err
	}
	h, err := m.dumpHost(units)
	sw, err2 := m.dumpSwitch()
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("node %s: what is foreign there: %w", m.name, err)
	}
	m.mu.Lock()
	m.foreign = append(append([]string{}, h.foreign...), sw.foreign()...)
	m.mu.Unlock()
	return nil
}

// forgetForeign is called when somebody else changes the node, or it starts anew.
func (m *machine) forgetForeign() {
	m.mu.Lock()
	m.foreign = nil
	m.mu.Unlock()
}
