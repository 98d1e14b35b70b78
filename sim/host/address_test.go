package host

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"towtank/datapath"
	"towtank/sim/packet"
)

func lines(s string) []string {
	var out []string
	for _, l := range strings.Split(s, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

// Deleting a primary takes the secondaries of its subnet with it, unless promote_secondaries is set;
// other subnets, also a /32 and an overlapping one, are primaries of their own. (Compared with Linux.)
func TestPromoteSecondaries(t *testing.T) {
	for _, c := range []struct {
		promote string
		want    []string
		routes  []string
	}{
		{"0", []string{"10.0.0.3/25", "10.0.0.50/32"}, []string{
			"10.0.0.0/25 dev e proto kernel scope link src 10.0.0.3",
			"10.9.0.0/16 via 10.0.0.99 dev e",
		}},
		{"1", []string{"10.0.0.2/24", "10.0.0.3/25", "10.0.0.4/24", "10.0.0.50/32"}, []string{
			"10.0.0.0/24 dev e proto kernel scope link src 10.0.0.2",
			"10.0.0.0/25 dev e proto kernel scope link src 10.0.0.3",
			"10.9.0.0/16 via 10.0.0.99 dev e",
		}},
	} {
		w := newWorld(t)
		n := w.netns("n")
		n.AddLink("e", packet.MAC{}, 1500, nil)
		w.exec(n, "sysctl -w net.ipv4.conf.e.promote_secondaries="+c.promote)
		for _, a := range []string{"10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/25", "10.0.0.50/32", "10.0.0.4/24"} {
			w.exec(n, "ip addr add "+a+" dev e")
		}
		w.exec(n, "ip route add 10.9.0.0/16 via 10.0.0.99")
		w.exec(n, "ip route add 10.8.0.0/16 via 10.0.0.99 src 10.0.0.1") // goes with its source
		if out := w.exec(n, "ip addr show dev e"); !strings.Contains(out, "10.0.0.2/24 scope global secondary e") || strings.Contains(out, "10.0.0.3/25 scope global secondary") {
			t.Errorf("secondaries: %s", out)
		}
		w.exec(n, "ip addr del 10.0.0.1/24 dev e")
		var got []string
		for _, a := range n.Addresses() {
			got = append(got, a.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("promote %s: addresses %v, want %v", c.promote, got, c.want)
		}
		if got := lines(w.exec(n, "ip route")); !slices.Equal(got, c.routes) {
			t.Errorf("promote %s: routes %q, want %q", c.promote, got, c.routes)
		}
		w.exec(n, "ip addr flush dev e") // the last address takes all routes of the link with it
		if got := lines(w.exec(n, "ip route show table all")); len(got) != 2 {
			t.Errorf("routes without an address: %q", got)
		}
	}
}

// What a link loses when it goes down, and gets back when it comes up. (Compared with Linux.)
func TestLinkDown(t *testing.T) {
	w := newWorld(t)
	a, b := w.netns("a"), w.netns("b")
	w.wire(a, "v", []string{"10.0.0.1/24", "fd00::1/64"}, b, "v", []string{"10.0.0.2/24", "fd00::2/64"})
	w.exec(a, "ip route add 10.9.0.0/16 via 10.0.0.2")
	w.exec(a, "ip -6 route add fd09::/64 via fd00::2")
	w.exec(a, "ip neigh add 10.0.0.9 lladdr 0a:00:00:00:00:09 dev v")
	w.exec(a, "ip link set v down")
	want(t, "routes", w.exec(a, "ip route")+w.exec(a, "ip -6 route")+w.exec(a, "ip neigh"), "")
	if !a.HasAddress(addr("10.0.0.1")) || a.HasAddress(addr("fd00::1")) {
		t.Errorf("addresses: %v", a.Addresses())
	}
	a.serve()
	want(t, "an address on a link that is down is still local", w.probe(a, packet.ProtoUDP, "10.0.0.1", 8080), "ok from 10.0.0.1 src=10.0.0.1 dst=10.0.0.1")
	if _, err := a.Exec("ip route add 10.9.0.0/16 dev v"); err == nil || !strings.Contains(err.Error(), "Device for nexthop is not up") {
		t.Errorf("route by a link that is down: %v", err)
	}
	w.exec(a, "ip link set v up")
	want(t, "routes", w.exec(a, "ip route"), "10.0.0.0/24 dev v proto kernel scope link src 10.0.0.1\n")
	w.exec(b, "ip link del v")
	if a.Link("v") != nil {
		t.Error("the other side of a deleted veth is still there")
	}
}

// An Egress IP on a bridge without ports, down, is answered for by every link (weak host model); IPv6
// needs a proxy entry.
func TestAddressOnAnotherDevice(t *testing.T) {
	w := newWorld(t)
	node, ext := w.netns("node"), w.netns("ext")
	w.wire(node, "eth0", []string{"172.18.0.11/16", "fd18::11/64"}, ext, "eth0", []string{"172.18.0.100/16", "fd18::100/64"})
	w.exec(node, "ip link add eg0 type bridge")
	node.serve()
	w.exec(node, "ip addr add 172.18.0.50/32 dev eg0")
	w.exec(node, "ip addr add fd18::50/128 dev eg0 nodad")
	want(t, "v4", w.probe(ext, packet.ProtoTCP, "172.18.0.50", 8080), "ok from 172.18.0.50 src=172.18.0.100 dst=172.18.0.50")
	want(t, "v6 without proxy", w.probe(ext, packet.ProtoTCP, "fd18::50", 8080), "drop")
	w.exec(node, "sysctl -w net.ipv6.conf.eth0.proxy_ndp=1 net.ipv6.conf.all.forwarding=1")
	w.exec(node, "ip -6 neigh add proxy fd18::50 dev eth0")
	w.advance(4 * time.Second)
	want(t, "v6 with proxy", w.probe(ext, packet.ProtoTCP, "fd18::50", 8080), "ok from fd18::50 src=fd18::100 dst=fd18::50")
	w.exec(ext, "ip neigh flush all")
	w.exec(node, "sysctl -w net.ipv4.conf.all.arp_ignore=1")
	want(t, "v4 with arp_ignore", w.probe(ext, packet.ProtoTCP, "172.18.0.50", 8080), "drop")
	want(t, "the link's own address", w.probe(ext, packet.ProtoTCP, "172.18.0.11", 8080), "ok from 172.18.0.11 src=172.18.0.100 dst=172.18.0.11")
}

// The source of the node's own packets: IPv4 takes the first address of the next hop's subnet; IPv6 the
// longest common prefix, which is why an Egress IP must be deprecated. (Compared with Linux.)
func TestSourceSelection(t *testing.T) {
	w := newWorld(t)
	n := w.netns("n")
	n.AddLink("e", packet.MAC{}, 1500, nil)
	n.AddLink("f", packet.MAC{}, 1500, nil)
	for _, a := range []string{"10.7.0.1/24 dev f", "10.0.0.50/32 dev e", "10.0.0.1/24 dev e", "10.0.0.2/24 dev e", "fd00::1/64 dev e nodad", "fd00::50/128 dev e nodad"} {
		w.exec(n, "ip addr add "+a)
	}
	w.exec(n, "ip route add 10.9.0.0/16 via 10.0.0.99")
	w.exec(n, "ip route add 10.8.0.0/16 via 10.0.0.99 src 10.0.0.2")
	w.exec(n, "ip link add lonely type bridge")
	w.exec(n, "ip link set lonely up")
	w.exec(n, "ip route add 10.10.0.0/16 dev lonely")
	for dst, src := range map[string]string{
		"10.0.0.7": "10.0.0.1", "10.9.0.1": "10.0.0.1", "10.8.0.1": "10.0.0.2", "10.7.0.9": "10.7.0.1", "10.10.0.1": "10.0.0.50", "fd00::51": "fd00::50",
	} {
		if out := w.exec(n, "ip route get "+dst); !strings.HasSuffix(out, " src "+src+"\n") {
			t.Errorf("%s: %s, want %s", dst, out, src)
		}
	}
	w.exec(n, "ip addr change fd00::50/128 dev e preferred_lft 0")
	if out := w.exec(n, "ip route get fd00::51"); !strings.HasSuffix(out, " src fd00::1\n") {
		t.Errorf("with the Egress IP deprecated: %s", out)
	}
}

func TestPolicyRouting(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		w := newWorld(t)
		n := w.netns("n")
		var out []string
		for _, name := range []string{"up1", "up2", "in"} {
			n.AddLink(name, packet.MAC{}, 1500, func(p *packet.Packet) {
				if p.Proto == packet.ProtoUDP {
					out = append(out, name+" "+p.Src.String())
				}
			})
		}
		ip, a1, a2, gw1, gw2, dst, src := "ip", "10.1.0.1/24", "10.2.0.1/24", "10.1.0.9", "10.2.0.9", "9.9.9.9", "10.3.0.2"
		all := "0.0.0.0/0"
		if v6 {
			ip, a1, a2, gw1, gw2, dst, src = "ip -6", "fd01::1/64", "fd02::1/64", "fd01::9", "fd02::9", "fd99::9", "fd03::2"
			all = "::/0"
		}
		w.exec(n, "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
		for _, c := range []string{
			" addr add " + a1 + " dev up1", " addr add " + a2 + " dev up2",
			" neigh add " + gw1 + " lladdr 0a:00:00:00:00:01 dev up1", " neigh add " + gw2 + " lladdr 0a:00:00:00:00:02 dev up2",
			" route add default via " + gw1,
		} {
			w.exec(n, ip+c)
		}
		r1 := all + " via " + gw2 + " dev up2 table 101"
		rule := "100: from all fwmark 0x5/0xff lookup 101"
		if v6 {
			rule = "-6 " + rule
		}
		w.apply(n, w.obj(r1), w.obj(rule))
		send := func(link string, mark uint32) string {
			out = nil
			p := &packet.Packet{EthDst: n.Link(link).MAC(), Proto: packet.ProtoUDP, SrcPort: 1, DstPort: 2}
			p.SetIPs(addr(src), addr(dst))
			n.Link(link).KeepMark = true
			p.Mark = mark
			n.Receive(link, p)
			return strings.Join(out, ",")
		}
		want(t, "no mark", send("in", 0), "up1 "+src)
		want(t, "mark", send("in", 0x105), "up2 "+src)
		want(t, "another mark", send("in", 6), "up1 "+src)
		w.exec(n, ip+" rule add from "+src+" iif in lookup 101 pref 50")
		want(t, "from and iif", send("in", 0), "up2 "+src)
		w.exec(n, ip+" route add blackhole "+dst+" table 101")
		want(t, "blackhole", send("in", 0), "")
		w.exec(n, ip+" rule del pref 50")
		want(t, "the rule is gone", send("in", 0), "up1 "+src)
		want(t, "mark: blackhole", send("in", 5), "")
		// The node's own packets: the mark of mangle OUTPUT routes them again, the source stays.
		tool := "iptables"
		if v6 {
			tool = "ip6tables"
		}
		w.exec(n, ip+" route del blackhole "+dst+" table 101")
		w.exec(n, tool+" -t mangle -A OUTPUT -p udp --dport 53 -j MARK --set-mark 5")
		out = nil
		for _, port := range []uint16{53, 54} {
			if err := n.Send(&packet.Packet{Dst: addr(dst), Proto: packet.ProtoUDP, SrcPort: 1, DstPort: port}); err != nil {
				t.Fatal(err)
			}
		}
		own := strings.Split(a1, "/")[0]
		want(t, "OUTPUT", strings.Join(out, ","), "up2 "+own+",up1 "+own)
		if got := n.Apply(dels(w.obj(rule), w.obj(r1))); got[0].Err != nil || got[1].Err != nil {
			t.Error(got)
		}
		want(t, "after deletion", send("in", 5), "up1 "+src)
		if d := n.Dump(); len(d) != 0 {
			t.Errorf("left: %v", d)
		}
	}
}

// A neighbour learns from requests and answers; an announcement moves an entry that exists, and makes
// one only with arp_accept.
func TestNeighbourLearning(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		// One wire with three hosts: the test is the hub.
		w := newWorld(t)
		var hosts []*Netns
		for i := range 3 {
			h := w.netns(fmt.Sprintf("h%d", i))
			h.AddLink("e", packet.MAC{2, 0, 0, 0, 0, byte(i + 1)}, 1500, func(p *packet.Packet) {
				for _, o := range hosts {
					if o != h {
						o.Receive("e", p)
					}
				}
			})
			w.exec(h, fmt.Sprintf("ip addr add 10.0.0.%d/24 dev e", i+1))
			w.exec(h, fmt.Sprintf("ip addr add fd00::%d/64 dev e nodad", i+1))
			h.serve()
			hosts = append(hosts, h)
		}
		a, b, c := hosts[0], hosts[1], hosts[2]
		vip, len, ipA, icmp := "10.0.0.50", "/32", "10.0.0.1", packet.ProtoICMP
		if v6 {
			vip, len, ipA, icmp = "fd00::50", "/128", "fd00::1", packet.ProtoICMPv6
		}
		macOf := func(n *Netns, ip string) string {
			m, ok := n.Neighbour("e", addr(ip))
			if !ok {
				return "none"
			}
			return m.String()
		}
		w.exec(b, "ip addr add "+vip+len+" dev e nodad")
		if err := b.Announce(addr(vip), "e"); err != nil {
			t.Fatal(err)
		}
		want(t, "announcement of an unknown neighbour", macOf(a, vip), "none")
		if got := w.probe(a, icmp, vip, 0); got != "ok from "+vip {
			t.Errorf("ping: %s", got)
		}
		want(t, "asked", macOf(a, vip), "02:00:00:00:00:02")
		want(t, "learnt from the question", macOf(b, ipA), "02:00:00:00:00:01")
		// The address moves; b dies.
		w.exec(b, "ip link set e down")
		w.exec(c, "ip addr add "+vip+len+" dev e nodad")
		want(t, "before the announcement", w.probe(a, icmp, vip, 0), "drop")
		if err := c.Announce(addr(vip), "e"); err != nil {
			t.Fatal(err)
		}
		want(t, "moved", macOf(a, vip), "02:00:00:00:00:03")
		want(t, "after it", w.probe(a, icmp, vip, 0), "ok from "+vip)
		if err := c.Announce(addr("10.0.0.51"), "e"); err == nil {
			t.Error("an address that is not there was announced")
		}
		w.advance(6 * time.Second) // the check after the change confirms the entry
		// Without an announcement an entry is checked once it is stale and used: 5 s, then three probes.
		w.exec(c, "ip addr del "+vip+len+" dev e")
		w.exec(b, "ip link set e up")
		if v6 {
			w.exec(b, "ip addr add fd00::2/64 dev e nodad")
			w.exec(b, "ip addr add "+vip+len+" dev e nodad")
		}
		w.advance(30 * time.Second)
		want(t, "stale", w.probe(a, icmp, vip, 0), "drop")
		w.advance(5 * time.Second)
		want(t, "being probed", macOf(a, vip), "02:00:00:00:00:03")
		w.advance(3 * time.Second)
		want(t, "given up", macOf(a, vip), "none")
		want(t, "asked again", w.probe(a, icmp, vip, 0), "ok from "+vip)
		// A permanent entry does not learn.
		w.exec(a, "ip neigh replace "+vip+" lladdr 02:00:00:00:00:09 dev e")
		if err := b.Announce(addr(vip), "e"); err != nil {
			t.Fatal(err)
		}
		want(t, "permanent", macOf(a, vip), "02:00:00:00:00:09")
		if !v6 {
			w.exec(a, "ip neigh del "+vip+" dev e")
			w.exec(a, "sysctl -w net.ipv4.conf.e.arp_accept=1")
			if err := b.Announce(addr(vip), "e"); err != nil {
				t.Fatal(err)
			}
			want(t, "arp_accept", macOf(a, vip), "02:00:00:00:00:02")
		}
	}
}

func TestEvents(t *testing.T) {
	var got []string
	n := New(Config{Name: "n", Events: func(e any) {
		switch e := e.(type) {
		case datapath.AddressEvent:
			got = append(got, fmt.Sprintf("%s %s %t", e.Addr, e.Link, e.Present))
		case datapath.LinkEvent:
			got = append(got, fmt.Sprintf("%s up=%t %t", e.Name, e.Up, e.Present))
		}
	}})
	for _, c := range []string{"ip link add x type dummy", "ip addr add 10.0.0.1/24 dev x", "ip addr add 10.0.0.2/24 dev x", "ip link set x up", "ip addr del 10.0.0.1/24 dev x", "ip link del x"} {
		if _, err := n.Exec(c); err != nil {
			t.Fatal(err)
		}
	}
	exp := "x up=false true;10.0.0.1 x true;10.0.0.2 x true;x up=true true;10.0.0.2 x false;10.0.0.1 x false;x up=false false"
	want(t, "events", strings.Join(got, ";"), exp)
}
