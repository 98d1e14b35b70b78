//go:build linux

package linux_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/datapath/linux"
)

func TestCorpusDumpsBackEqual(t *testing.T) {
	n := start(t)
	pod := namespace(t, n.name+"-pod")
	n.run("ip", "addr", "add", "172.18.0.11/16", "dev", "eth0")
	n.run("ip", "addr", "add", "fd00:18::11/64", "dev", "eth0", "nodad")
	n.run("ip", "addr", "add", "172.20.0.1/16", "dev", "gw0") // whose /16 makes next hops known
	n.run("ip", "route", "add", "172.18.1.145", "dev", "eth0")
	objects := corpus(t)
	if !n.hasVLAN() {
		t.Log("this kernel has no VLAN devices: ext.20 is a veth of somebody else's here")
		n.run("ip", "link", "add", "ext.20", "type", "veth", "peer", "name", "ext.20-far")
		for i, o := range objects {
			if l, ok := o.(host.Link); ok && l.Type == host.LinkVLAN {
				l.Type, l.VLANID, l.Parent = host.LinkDevice, 0, ""
				objects[i] = l
			}
		}
	}
	var want []string
	var puts, dels []datapath.Op
	for i, o := range objects {
		want = append(want, string(o.Kind())+" "+o.String())
		if l, ok := o.(host.Link); ok && l.Type == host.LinkVeth {
			p, err := host.NewPeer(host.Peer{
				Netns: pod, Name: "eth0", MTU: 1450, Addresses: []netip.Prefix{netip.MustParsePrefix("10.10.1.5/24"), netip.MustParsePrefix("fd00:10:1::5/64")},
				Gateways: []netip.Addr{netip.MustParseAddr("10.10.1.1"), netip.MustParseAddr("fd00:10:1::1")},
			})
			if err != nil {
				t.Fatal(err)
			}
			l.Peer = p.String()
			objects[i] = l
		}
		puts = append(puts, put(objects[i]))
		dels = append([]datapath.Op{del(objects[i])}, dels...)
	}
	before := n.run("iptables-save") + n.run("ip", "-d", "addr")
	n.must(puts...)
	slices.Sort(want)
	compare(t, "after the first time", want, n.dump())
	n.must(puts...)
	compare(t, "after the second time", want, n.dump())
	for _, o := range objects {
		n.Check(o, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	n.Close()
	for len(n.loop) > 0 {
		(<-n.loop)()
	}
	n.open()
	// The listeners went with the process.
	compare(t, "after a restart", slices.DeleteFunc(slices.Clone(want), func(s string) bool { return strings.HasPrefix(s, "health ") }), n.dump())
	n.must(dels...)
	compare(t, "after all was deleted", nil, n.dump())
	if after := n.run("iptables-save"); strings.Contains(after, "TOWTANK") {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
}

func compare(t *testing.T, when string, want, have []string) {
	t.Helper()
	for _, s := range want {
		if !slices.Contains(have, s) {
			t.Errorf("%s: missing %s", when, s)
		}
	}
	for _, s := range have {
		if !slices.Contains(want, s) {
			t.Errorf("%s: unexpected %s", when, s)
		}
	}
}

func TestForeignObjectsStay(t *testing.T) {
	n := start(t)
	n.run("iptables", "-t", "nat", "-A", "POSTROUTING", "-m", "statistic", "--mode", "random", "--probability", "0.5", "-j", "RETURN")
	n.run("iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "eth0", "-j", "MASQUERADE")
	n.run("ip", "addr", "add", "172.18.0.50/32", "dev", "eth0")
	n.run("ip", "route", "add", "10.10.2.0/24", "dev", "eth0")
	jump := []datapath.Object{
		parse(t, datapath.KindIPTables, "iptables -t nat -N TOWTANK-POSTROUTING"),
		parse(t, datapath.KindIPTables, "iptables -t nat -A POSTROUTING -m comment --comment towtank-0 -j TOWTANK-POSTROUTING"),
		parse(t, datapath.KindIPTables, "iptables -t nat -A TOWTANK-POSTROUTING -s 10.10.1.0/24 -m comment --comment towtank-10 -j ACCEPT"),
		parse(t, datapath.KindIPTables, "iptables -t nat -A TOWTANK-POSTROUTING -s 10.10.1.0/24 -m comment --comment towtank-5 -j RETURN"),
	}
	var ops []datapath.Op
	for _, o := range jump {
		ops = append(ops, put(o))
	}
	n.must(ops...)
	rules := n.run("iptables", "-t", "nat", "-S", "POSTROUTING")
	lines := strings.Split(strings.TrimSpace(rules), "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], "TOWTANK-POSTROUTING") || !strings.Contains(lines[2], "statistic") {
		t.Errorf("the jump is not first, or foreign rules went:\n%s", rules)
	}
	if own := n.run("iptables", "-t", "nat", "-S", "TOWTANK-POSTROUTING"); strings.Index(own, "towtank-5") > strings.Index(own, "towtank-10") {
		t.Errorf("not sorted by priority:\n%s", own)
	}
	for text, kind := range map[string]datapath.Kind{
		"172.18.0.50/32 dev eth0 proto 116":              datapath.KindAddress,
		"10.10.2.0/24 dev eth0 proto 116 scope link":     datapath.KindRoute,
		"dev eth0 type veth mtu 1500 up alias towtank:x": datapath.KindLink,
	} {
		o := parse(t, kind, text)
		if r := n.apply(put(o)); r[0].Outcome != datapath.Refused {
			t.Errorf("%s: want Refused, it is somebody else's; got %v", o, r[0].Outcome)
		}
		n.must(del(o))
	}
	if s := n.run("ip", "addr", "show", "dev", "eth0") + n.run("ip", "route"); !strings.Contains(s, "172.18.0.50/32") || !strings.Contains(s, "10.10.2.0/24") {
		t.Errorf("something foreign went:\n%s", s)
	}
}

// TestOneRefusedDoesNotHoldUpOthers has the kernel refuse one of several ops of a transaction.
func TestOneRefusedDoesNotHoldUpOthers(t *testing.T) {
	n := start(t)
	texts := []string{
		"iptables -t nat -N TOWTANK-OUTPUT",
		"iptables -t nat -A TOWTANK-OUTPUT -m set --match-set TOWTANK-NONE dst,dst -m comment --comment towtank-1 -j RETURN",
		"iptables -t nat -A TOWTANK-OUTPUT -d 10.0.0.1/32 -m comment --comment towtank-2 -j RETURN",
		"iptables -t nat -A TOWTANK-MISSING -d 10.0.0.1/32 -m comment --comment towtank-2 -j RETURN",
	}
	var ops []datapath.Op
	for _, s := range texts {
		ops = append(ops, put(parse(t, datapath.KindIPTables, s)))
	}
	for i, r := range n.apply(ops...) {
		if refused := r.Outcome == datapath.Refused; refused != (i%2 == 1) {
			t.Errorf("%s: %v %v", texts[i], r.Outcome, r.Err)
		}
	}
	compare(t, "what can be", []string{"iptables " + texts[0], "iptables " + texts[2]}, n.dump())

	set := parse(t, datapath.KindIPSet, "create TOWTANK-NODEPORT hash:ip,port family inet maxelem 65536")
	good := parse(t, datapath.KindIPSetEntry, "add TOWTANK-NODEPORT 172.18.0.11,tcp:80")
	bad := parse(t, datapath.KindIPSetEntry, "add TOWTANK-NODEPORT fd00::1,tcp:80")
	lost := parse(t, datapath.KindIPSetEntry, "add TOWTANK-LOST 172.18.0.11,tcp:80")
	for i, r := range n.apply(put(set), put(bad), put(good), put(lost)) {
		if refused := r.Outcome == datapath.Refused; refused != (i%2 == 1) {
			t.Errorf("set op %d: %v %v", i, r.Outcome, r.Err)
		}
	}
}

func TestAnnouncementIsSeenOnTheWire(t *testing.T) {
	n := start(t)
	far := namespace(t, n.name+"-far")
	n.run("ip", "link", "add", "up0", "address", "0a:00:00:00:00:01", "type", "veth", "peer", "name", "far0", "netns", far)
	n.run("ip", "link", "set", "up0", "up")
	ns, err := netns.GetFromName(far)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	l, err := h.LinkByName("far0")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"172.18.0.1/16", "fd00:18::1/64"} {
		p, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		p.Flags = 2 // IFA_F_NODAD
		if err := h.AddrAdd(l, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
	// A neighbour that knows another address learns the new one from the announcement.
	old, _ := net.ParseMAC("0a:00:00:00:00:99")
	for _, ip := range []string{"172.18.0.50", "fd00:18::50"} {
		if err := h.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: net.ParseIP(ip), HardwareAddr: old, State: netlink.NUD_STALE}); err != nil {
			t.Fatal(err)
		}
	}
	learned := func() int {
		c := 0
		list, err := h.NeighList(l.Attrs().Index, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			if x.HardwareAddr.String() == "0a:00:00:00:00:01" {
				c++
			}
		}
		return c
	}
	for end := time.Now().Add(10 * time.Second); learned() < 2; {
		if time.Now().After(end) {
			t.Fatalf("%d of 2 neighbours learned the address", learned())
		}
		done := false
		n.Announce([]datapath.Announcement{{IP: netip.MustParseAddr("172.18.0.50"), Link: "up0"}, {IP: netip.MustParseAddr("fd00:18::50"), Link: "up0"}},
			func(err error) {
				if err != nil {
					t.Fatal(err)
				}
				done = true
			})
		n.until("announced", func() bool { return done })
	}
	var failed error
	done := false
	n.Announce([]datapath.Announcement{{IP: netip.MustParseAddr("172.18.0.50"), Link: "none0"}}, func(err error) { failed, done = err, true })
	n.until("announced", func() bool { return done })
	if failed == nil {
		t.Error("announced on a link that is not there")
	}
}

func TestEvents(t *testing.T) {
	n := start(t)
	n.must(put(parse(t, datapath.KindAddress, "172.18.0.50/32 dev eth0 proto 116")))
	want := datapath.AddressEvent{Addr: netip.MustParseAddr("172.18.0.50"), Link: "eth0", Present: true}
	n.until("address", func() bool { return slices.Contains(n.addrs, want) })
	n.must(del(parse(t, datapath.KindAddress, "172.18.0.50/32 dev eth0 proto 116")))
	want.Present = false
	n.until("address gone", func() bool { return slices.Contains(n.addrs, want) })
	n.run("ip", "link", "set", "eth0", "down")
	n.until("link down", func() bool { return slices.Contains(n.links, datapath.LinkEvent{Name: "eth0", Present: true}) })
	n.run("ip", "link", "del", "gw0")
	n.until("link gone", func() bool { return slices.Contains(n.links, datapath.LinkEvent{Name: "gw0"}) })

	// A link that is renamed takes its addresses with it.
	n.must(put(parse(t, datapath.KindAddress, "172.18.0.51/32 dev eth0 proto 116")))
	n.run("ip", "link", "set", "eth0", "name", "eth5")
	at := func(link string, present bool) datapath.AddressEvent {
		return datapath.AddressEvent{Addr: netip.MustParseAddr("172.18.0.51"), Link: link, Present: present}
	}
	n.until("address of the new name", func() bool { return slices.Contains(n.addrs, at("eth5", true)) })
	n.until("address of the old name gone", func() bool { return slices.Contains(n.addrs, at("eth0", false)) })
	n.until("old name gone", func() bool { return slices.Contains(n.links, datapath.LinkEvent{Name: "eth0"}) })
	n.run("ip", "link", "del", "eth5")
	n.until("address gone with its link", func() bool { return slices.Contains(n.addrs, at("eth5", false)) })
}

// Sets that have a name of ours and are not what we make do not stop a dump. They are told, left alone if nobody
// wants them, and replaced if one is wanted and nothing refers to them.
func TestForeignSets(t *testing.T) {
	n := start(t)
	n.run("ipset", "create", "TOWTANK-IFACE", "hash:net,iface")
	n.run("ipset", "create", "TOWTANK-LIST", "list:set")
	n.run("ipset", "add", "TOWTANK-LIST", "TOWTANK-IFACE")
	n.run("ipset", "create", "TOWTANK-TIMEOUT", "hash:ip", "timeout", "100")
	n.run("ipset", "create", "TOWTANK-COUNTERS", "hash:ip", "counters")
	n.run("ipset", "create", "TOWTANK-NET", "hash:net")
	n.run("ipset", "add", "TOWTANK-NET", "10.1.0.0/16", "nomatch")
	n.run("ipset", "add", "TOWTANK-NET", "10.2.0.0/16")
	set := parse(t, datapath.KindIPSet, "create TOWTANK-NET hash:net family inet maxelem 65536")
	entry := parse(t, datapath.KindIPSetEntry, "add TOWTANK-NET 10.2.0.0/16")
	mine := []string{string(set.Kind()) + " " + set.String(), string(entry.Kind()) + " " + entry.String()}
	for range 2 {
		compare(t, "among foreign sets", mine, n.dump())
	}
	told := n.told()
	for _, s := range []string{"TOWTANK-IFACE", "TOWTANK-LIST", "TOWTANK-TIMEOUT", "TOWTANK-COUNTERS", "10.1.0.0/16 nomatch"} {
		if c := strings.Count(strings.Join(told, "\n"), s); c != 1 {
			t.Errorf("%s was told %d times: %q", s, c, told)
		}
	}
	// Nothing refers to TOWTANK-TIMEOUT; TOWTANK-IFACE is in a list.
	free := parse(t, datapath.KindIPSet, "create TOWTANK-TIMEOUT hash:ip family inet maxelem 65536")
	used := parse(t, datapath.KindIPSet, "create TOWTANK-IFACE hash:ip family inet maxelem 65536")
	res := n.apply(put(free), put(parse(t, datapath.KindIPSetEntry, "add TOWTANK-TIMEOUT 10.0.0.1")), put(used), put(parse(t, datapath.KindIPSetEntry, "add TOWTANK-IFACE 10.0.0.1")))
	for i, want := range []datapath.Outcome{datapath.Done, datapath.Done, datapath.Refused, datapath.Refused} {
		if res[i].Outcome != want {
			t.Errorf("op %d: %v %v, want %v", i, res[i].Outcome, res[i].Err, want)
		}
	}
	// A set of ours that becomes another keeps its members.
	larger := parse(t, datapath.KindIPSet, "create TOWTANK-NET hash:net family inet maxelem 131072")
	n.must(datapath.Op{Old: set, New: larger})
	n.must(del(parse(t, datapath.KindIPSet, "create TOWTANK-COUNTERS hash:ip family inet maxelem 65536")))
	if text := n.run("ipset", "save"); !strings.Contains(text, "maxelem 131072") || !strings.Contains(text, "add TOWTANK-NET 10.2.0.0/16") ||
		!strings.Contains(text, "create TOWTANK-COUNTERS") || !strings.Contains(text, "add TOWTANK-TIMEOUT 10.0.0.1\n") || !strings.Contains(text, "TOWTANK-IFACE hash:net,iface") {
		t.Errorf("sets are now\n%s", text)
	}
}

// A kernel without IPv6 (ipv6.disable=1) cannot be asked for anything of it. This one has it, so what would be asked
// for is seen: a rule of ours that another has put there.
func TestKernelWithoutIPv6(t *testing.T) {
	n := start(t)
	v4, v6 := "100 from 10.0.0.0/8 lookup 100 proto 116", "100 from fd00::/8 lookup 100 proto 116"
	n.run("ip", "rule", "add", "pref", "100", "from", "10.0.0.0/8", "lookup", "100", "proto", "116")
	n.run("ip", "-6", "rule", "add", "pref", "100", "from", "fd00::/8", "lookup", "100", "proto", "116")
	n.run("ip", "-6", "route", "add", "blackhole", "fd00:99::/64", "proto", "116")
	n.run("ip6tables", "-t", "nat", "-N", "TOWTANK-X")
	if d := n.dump(); len(d) != 4 {
		t.Errorf("with IPv6: %v; want a rule (%s), one of IPv6 (%s), a route and a chain", d, v4, v6)
	}
	defer linux.WithoutIPv6()()
	if d := n.dump(); len(d) != 1 || !strings.Contains(d[0], "10.0.0.0/8") {
		t.Errorf("without IPv6: %v; want the rule of IPv4 alone", d)
	}
}

// Another program inserts a rule between our reading of a chain and our writing to it.
func TestRuleInsertedMeanwhileStays(t *testing.T) {
	n := start(t)
	var ops, dels []datapath.Op
	for _, s := range []string{
		"iptables -t nat -N TOWTANK-POSTROUTING",
		"iptables -t nat -A POSTROUTING -m comment --comment towtank-0 -j TOWTANK-POSTROUTING",
	} {
		o := parse(t, datapath.KindIPTables, s)
		ops, dels = append(ops, put(o)), append([]datapath.Op{del(o)}, dels...)
	}
	n.must(ops...)
	real, err := exec.LookPath("iptables-restore")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\niptables -t nat -I POSTROUTING 1 -s 10.9.9.9 -j RETURN\nexec " + real + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "iptables-restore"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	n.must(dels...)
	if rules := n.run("iptables", "-t", "nat", "-S"); !strings.Contains(rules, "10.9.9.9") || strings.Contains(rules, "TOWTANK") {
		t.Errorf("want somebody else's rule and none of ours:\n%s", rules)
	}
}

// However often rules of ours are there, and wherever they were moved, they are put in order and others stay.
func TestRulesOfOursInDisorder(t *testing.T) {
	n := start(t)
	var ops []datapath.Op
	for _, s := range []string{
		"iptables -t nat -N TOWTANK-A", "iptables -t nat -N TOWTANK-B",
		"iptables -t nat -A POSTROUTING -m comment --comment towtank-0 -j TOWTANK-A",
		"iptables -t nat -A POSTROUTING -m comment --comment towtank-1 -j TOWTANK-B",
	} {
		ops = append(ops, put(parse(t, datapath.KindIPTables, s)))
	}
	n.must(ops...)
	want := n.dump()
	for i, target := range []string{"TOWTANK-A", "TOWTANK-B", "TOWTANK-A"} {
		n.run("iptables", "-t", "nat", "-A", "POSTROUTING", "-s", fmt.Sprintf("10.9.9.%d", i), "-j", "RETURN")
		n.run("iptables", "-t", "nat", "-A", "POSTROUTING", "-m", "comment", "--comment", fmt.Sprintf("towtank-%d", i%2), "-j", target)
	}
	n.run("iptables", "-t", "nat", "-D", "POSTROUTING", "1")
	n.must(ops...)
	compare(t, "put in order", want, n.dump())
	rules := strings.Split(strings.TrimSpace(n.run("iptables", "-t", "nat", "-S", "POSTROUTING")), "\n")
	for i, part := range []string{"-P", "TOWTANK-A", "TOWTANK-B", "10.9.9.0", "10.9.9.1", "10.9.9.2"} {
		if i >= len(rules) || !strings.Contains(rules[i], part) || len(rules) != 6 {
			t.Fatalf("rules are\n%s", strings.Join(rules, "\n"))
		}
	}
}

// A process may be killed at any time: a link that has its name has its alias, else it would be somebody else's for
// good. What was not finished is deleted at the next start.
func TestLinkIsOursAsSoonAsItHasItsName(t *testing.T) {
	n := start(t)
	pod := namespace(t, n.name+"-pod")
	ns, err := netns.GetFromName(n.name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	updates, end := make(chan netlink.LinkUpdate, 1000), make(chan struct{})
	defer close(end)
	if err := netlink.LinkSubscribeWithOptions(updates, end, netlink.LinkSubscribeOptions{Namespace: &ns}); err != nil {
		t.Fatal(err)
	}
	p, err := host.NewPeer(host.Peer{
		Netns: pod, Name: "eth0", MTU: 1450, Addresses: []netip.Prefix{netip.MustParsePrefix("10.10.1.5/24")}, Gateways: []netip.Addr{netip.MustParseAddr("10.10.1.1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := parse(t, datapath.KindLink, "dev pod0 type veth mtu 1450 up alias towtank:x").(host.Link)
	l.Peer = p.String()
	n.must(put(l))
	n.until("the event of the link", func() bool {
		return slices.Contains(n.links, datapath.LinkEvent{Name: "pod0", Up: true, Present: true})
	})
	for _, e := range n.links {
		if strings.HasPrefix(e.Name, "towtmp-") {
			t.Errorf("told of a link that is being made: %+v", e)
		}
	}
	seen := 0
	for up := false; !up; {
		select {
		case u := <-updates:
			if a := u.Attrs(); a.Name == "pod0" {
				seen++
				up = a.Flags&net.FlagUp != 0
				if a.Alias != "towtank:x" {
					t.Errorf("pod0 is there with alias %q", a.Alias)
				}
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("pod0 is not up; %d updates", seen)
		}
	}

	n.Close()
	n.run("ip", "link", "add", "towtmp-00c0ffee", "type", "veth", "peer", "name", "far1")
	n.run("ip", "link", "add", "towtmp-mine", "type", "veth", "peer", "name", "far2") // not a name that we make
	n.open()
	if s := n.run("ip", "-o", "link"); strings.Contains(s, "00c0ffee") || strings.Contains(s, "far1") || !strings.Contains(s, "towtmp-mine") || !strings.Contains(s, "pod0") {
		t.Errorf("links after a start:\n%s", s)
	}
}
