package host

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/sim/packet"
)

// everything is one of each kind, in the order in which a Change would put them.
var everything = []string{
	"net.ipv4.ip_forward = 1",
	"dev gw0 type device mtu 1450 address 0a:00:00:00:00:01 up alias towtank:host guard",
	"dev eth0 type device mtu 1500 up alias towtank:uplink guard",
	"dev eg0 type dummy mtu 1500 down alias towtank:egress",
	"dev eth0.10 type vlan id 10 link eth0 mtu 1500 up alias towtank:vlan10",
	"10.10.1.1/24 dev gw0 proto 116",
	"172.18.0.50/32 dev eg0 proto 116",
	"fd18::50/128 dev eg0 proto 116 preferred_lft 0",
	"169.254.0.253 dev gw0 lladdr aa:bb:cc:dd:ee:ff nud permanent proto 116",
	"proxy fd18::50 dev eth0 proto 116",
	"10.10.2.0/24 via 10.10.2.1 dev gw0 proto 116 onlink",
	"169.254.0.253 dev gw0 proto 116 scope link",
	"169.254.0.252 via 169.254.0.253 dev gw0 proto 116",
	"default via 10.20.0.1 dev eth0.10 table 101 proto 116 onlink",
	"blackhole 10.96.0.0/16 proto 116",
	"100: from all fwmark 0x5/0xff lookup 101 proto 116",
	"-6 100: from all fwmark 0x5/0xff lookup 101 proto 116",
	"create TOWTANK-NODEPORT hash:ip,port family inet maxelem 65536",
	"create TOWTANK-POD hash:net family inet maxelem 65536",
	"add TOWTANK-NODEPORT 172.18.0.11,tcp:30080",
	"add TOWTANK-POD 10.10.0.0/16",
	"add TOWTANK-POD 10.11.0.1",
	"iptables -t nat -N TOWTANK-POSTROUTING",
	"iptables -t nat -A POSTROUTING -m comment --comment towtank-0 -j TOWTANK-POSTROUTING",
	"iptables -t nat -A TOWTANK-POSTROUTING ! -o gw0 -m mark --mark 0x5/0xff -m comment --comment towtank-100 -j SNAT --to-source 172.18.0.50",
	"iptables -t nat -A TOWTANK-POSTROUTING -s 10.10.1.0/24 ! -o gw0 -m set ! --match-set TOWTANK-POD dst -m comment --comment towtank-200 -j MASQUERADE",
	"ip6tables -t filter -N TOWTANK-FORWARD",
	"health 30500 service default/web local 2",
}

func bare(t *testing.T) (*world, *Netns) {
	w := newWorld(t)
	n := w.netns("node")
	n.AddLink("gw0", gwMAC, 1500, nil)
	n.AddLink("eth0", packet.MAC{2, 0, 0, 0, 0, 1}, 1500, nil)
	return w, n
}

// What was put is dumped as it was written, putting it again changes nothing, and after deletion the
// namespace is as it was.
func TestApplyDumpDelete(t *testing.T) {
	w, n := bare(t)
	before := n.DumpText()
	var objects []datapath.Object
	var texts []string
	for _, s := range everything {
		objects = append(objects, w.obj(s))
		texts = append(texts, w.obj(s).String())
	}
	for range 2 {
		w.apply(n, objects...)
		var got []string
		for _, o := range n.Dump() {
			got = append(got, o.String())
		}
		slices.Sort(got)
		exp := slices.Sorted(slices.Values(texts))
		if !slices.Equal(got, exp) {
			t.Fatalf("dump:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(exp, "\n"))
		}
	}
	for _, o := range objects {
		if err := n.Check(o); err != nil {
			t.Error(err)
		}
	}
	slices.Reverse(objects)
	for range 2 { // deleting what is not there is done
		for i, r := range n.Apply(dels(objects...)) {
			if r.Err != nil {
				t.Errorf("delete %s: %v", objects[i], r.Err)
			}
		}
	}
	if d := n.Dump(); len(d) != 0 {
		t.Errorf("left: %v", d)
	}
	want(t, "after deletion", n.DumpText(), strings.Replace(before, "mtu 1500", "mtu 1450", 1)) // the MTU of the device stays
}

func TestApplyLeavesForeignObjectsAlone(t *testing.T) {
	w, n := bare(t)
	for _, c := range []string{
		"ip addr add 10.10.1.1/24 dev gw0", "ip route add 10.10.2.0/24 dev gw0", "ip neigh add 10.10.1.9 lladdr 0a:00:00:00:00:09 dev gw0",
		"ip rule add pref 100 fwmark 0x5/0xff lookup 101", "ip link add eg0 type dummy", "ipset create KUBE-X hash:ip",
		"iptables -t nat -N KUBE-POSTROUTING", "iptables -t nat -A POSTROUTING -j KUBE-POSTROUTING",
	} {
		w.exec(n, c)
	}
	before := n.DumpText()
	for _, s := range []string{
		"10.10.1.1/24 dev gw0", "10.10.2.0/24 dev gw0 scope link", "dev eg0 type dummy mtu 1400 up alias towtank:x",
	} {
		if r := n.Apply(puts(w.obj(s))); r[0].Outcome != datapath.Refused {
			t.Errorf("put %s: %v", s, r)
		}
	}
	for _, s := range []string{
		"10.10.1.1/24 dev gw0", "10.10.2.0/24 dev gw0 scope link", "10.10.1.9 dev gw0 lladdr 0a:00:00:00:00:09",
		"100: from all fwmark 0x5/0xff lookup 101", "dev eg0 type dummy mtu 1400 up alias towtank:x",
	} {
		if r := n.Apply(dels(w.obj(s))); r[0].Outcome != datapath.Done {
			t.Errorf("delete %s: %v", s, r)
		}
	}
	want(t, "foreign objects", n.DumpText(), before)
	if d := n.Dump(); len(d) != 0 {
		t.Errorf("dump: %v", d)
	}
}

func TestApplyRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"10.0.0.1/24 dev nope", `Cannot find device "nope"`},
		{"10.9.0.0/16 via 9.9.9.9 dev gw0", "Nexthop has invalid gateway"},
		{"fd09::/64 via fd77::9 dev gw0", "No route to host"},
		{"10.9.0.0/16 dev gw0 src 9.9.9.9 scope link", "Invalid prefsrc"},
		{"169.254.0.253 dev nope lladdr aa:bb:cc:dd:ee:ff", "Cannot find device"},
		{"net.ipv4.conf.nope.rp_filter = 2", "Cannot find device"},
		{"net.ipv4.tcp_syncookies = 1", "not modelled"},
		{"add TOWTANK-NONE 10.0.0.1", "does not exist"},
		{"add TOWTANK-IP 10.0.0.0/24", "does not fit type hash:ip"},
		{"add TOWTANK-IP fd00::1", "not of family v4"},
		{"create TOWTANK-IP hash:net family inet", "another type"},
		{"iptables -t nat -A TOWTANK-NONE -m comment --comment towtank-1 -j RETURN", "not declared"},
		{"iptables -t nat -A PREROUTING -m comment --comment towtank-1 -j TOWTANK-NONE", "No chain/target/match"},
		{"iptables -t nat -A PREROUTING -m set --match-set TOWTANK-NONE src -m comment --comment towtank-1 -j RETURN", "Set TOWTANK-NONE doesn't exist"},
		{"dev web-1 type veth mtu 1450 up alias towtank:c1", "needs a peer"},
		{"dev br-int type device mtu 1450 up alias towtank:x", "Cannot find device"},
		{"dev x.9 type vlan id 9 link nope mtu 1500 up alias towtank:x", "Cannot find device"},
		{"health 8080 service a/b local 1", "Address already in use"},
	} {
		w, n := bare(t)
		n.serve()
		w.exec(n, "ipset create TOWTANK-IP hash:ip")
		r := n.Apply(puts(w.obj(c.text)))
		if r[0].Outcome != datapath.Refused || !strings.Contains(r[0].Err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.text, r, c.want)
		}
	}
	// A refused rule does not hold up the others of its table; a set in use stays.
	w, n := bare(t)
	r := n.Apply(puts(w.obj("iptables -t nat -N TOWTANK-X"),
		w.obj("iptables -t nat -A TOWTANK-NONE -m comment --comment towtank-1 -j RETURN"),
		w.obj("iptables -t nat -A TOWTANK-X -m comment --comment towtank-1 -j RETURN")))
	if r[0].Err != nil || r[1].Err == nil || r[2].Err != nil {
		t.Error(r)
	}
	w.apply(n, w.obj("create TOWTANK-S hash:ip family inet"), w.obj("iptables -t nat -A TOWTANK-X -m set --match-set TOWTANK-S src -m comment --comment towtank-1 -j RETURN"))
	if r := n.Apply(dels(w.obj("create TOWTANK-S hash:ip family inet"))); r[0].Err == nil || !strings.Contains(r[0].Err.Error(), "in use") {
		t.Error(r)
	}
	if r := n.Apply(dels(w.obj("iptables -t nat -N TOWTANK-X"))); r[0].Err == nil || !strings.Contains(r[0].Err.Error(), "not empty") {
		t.Error(r)
	}
	w.exec(n, "iptables -t nat -A OUTPUT -j TOWTANK-X")
	w.exec(n, "iptables -t nat -F TOWTANK-X")
	if r := n.Apply(dels(w.obj("iptables -t nat -N TOWTANK-X"))); r[0].Err == nil || !strings.Contains(r[0].Err.Error(), "chain OUTPUT jumps there") {
		t.Error(r)
	}
}

// Our rules come first in built-in chains, and in their order in our chains, whatever the order of ops;
// people's rules stay. What people do to ours shows in the dump and is put right by putting.
func TestChainsAreRebuilt(t *testing.T) {
	w, n := bare(t)
	w.exec(n, "iptables -t nat -N KUBE-SERVICES")
	w.exec(n, "iptables -t nat -A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES")
	chain := w.obj("iptables -t nat -N TOWTANK-PRE")
	jump := w.obj("iptables -t nat -A PREROUTING -m comment --comment towtank-0 -j TOWTANK-PRE")
	r2 := w.obj("iptables -t nat -A TOWTANK-PRE -s 10.0.0.2/32 -m comment --comment towtank-5 -j RETURN")
	r1 := w.obj("iptables -t nat -A TOWTANK-PRE -s 10.0.0.1/32 -m comment --comment towtank-5 -j RETURN")
	r9 := w.obj("iptables -t nat -A TOWTANK-PRE -m comment --comment towtank-10 -j ACCEPT")
	w.apply(n, r9, jump, r2, r1, chain)
	exp := []string{
		"-P PREROUTING ACCEPT", "-P INPUT ACCEPT", "-P OUTPUT ACCEPT", "-P POSTROUTING ACCEPT", "-N KUBE-SERVICES", "-N TOWTANK-PRE",
		"-A PREROUTING -m comment --comment towtank-0 -j TOWTANK-PRE", `-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`,
		"-A TOWTANK-PRE -s 10.0.0.1/32 -m comment --comment towtank-5 -j RETURN", "-A TOWTANK-PRE -s 10.0.0.2/32 -m comment --comment towtank-5 -j RETURN",
		"-A TOWTANK-PRE -m comment --comment towtank-10 -j ACCEPT",
	}
	if got := lines(w.exec(n, "iptables -t nat -S")); !slices.Equal(got, exp) {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(exp, "\n"))
	}
	dump := func() string {
		var s []string
		for _, o := range n.Dump() {
			s = append(s, o.String())
		}
		return strings.Join(s, "\n")
	}
	clean := dump()
	for _, c := range []struct{ cmds, lost, extra string }{
		{"iptables -t nat -F TOWTANK-PRE", "-s 10.0.0.1/32", ""},
		{"iptables -t nat -I PREROUTING -j KUBE-SERVICES", "", "towtank-0 -j TOWTANK-PRE # behind KUBE-SERVICES"},
		{"iptables -t nat -A TOWTANK-PRE -s 9.9.9.9 -j RETURN", "", "-A TOWTANK-PRE -s 9.9.9.9/32 -j RETURN"},
		{"iptables -t nat -D TOWTANK-PRE 1;iptables -t nat -A TOWTANK-PRE -s 10.0.0.1 -m comment --comment towtank-5 -j RETURN", "", "# behind a-later-rule"},
	} {
		for cmd := range strings.SplitSeq(c.cmds, ";") {
			w.exec(n, cmd)
		}
		got := dump()
		if got == clean || c.lost != "" && strings.Contains(got, c.lost) || !strings.Contains(got, c.extra) {
			t.Errorf("%s: dump\n%s", c.cmds, got)
		}
		// What the Store would do: delete what is not desired, put what is missing or differs.
		var ops []datapath.Op
		for _, o := range n.Dump() {
			if !slices.ContainsFunc([]datapath.Object{chain, jump, r1, r2, r9}, func(d datapath.Object) bool { return d.Key() == o.Key() }) {
				ops = append(ops, datapath.Op{Old: o})
			}
		}
		ops = append(ops, puts(chain, jump, r1, r2, r9)...)
		for _, r := range n.Apply(ops) {
			if r.Err != nil {
				t.Errorf("%s: %v", c.cmds, r.Err)
			}
		}
		want(t, "after "+c.cmds, dump(), clean)
	}
	if got := w.exec(n, "iptables -t nat -S PREROUTING"); strings.Count(got, "KUBE-SERVICES") != 2 {
		t.Errorf("people's rules: %s", got)
	}
}

func TestVethAndCheck(t *testing.T) {
	w, n := bare(t)
	peer := "netns c1 dev eth0 mtu 1450 addr 10.10.1.2/24 addr fd0a::2/64 via 10.10.1.1 via fd0a::1 tx off"
	p, err := host.ParsePeer(peer)
	if err != nil {
		t.Fatal(err)
	}
	l, err := host.NewLink(host.Link{Name: "web-1", Type: host.LinkVeth, MTU: 1450, Alias: "towtank:c1/eth0", Guard: true, Peer: p.String()})
	if err != nil {
		t.Fatal(err)
	}
	if r := n.Apply(puts(l)); r[0].Err == nil || !strings.Contains(r[0].Err.Error(), "network namespace c1: No such file") {
		t.Errorf("without namespace: %v", r)
	}
	pod := w.netns("c1")
	w.apply(n, l)
	w.apply(n, l)
	if err := n.Check(l); err != nil {
		t.Error(err)
	}
	if d := n.Dump(); len(d) != 1 || !datapath.Equal(d[0], l) {
		t.Errorf("dump: %v", d)
	}
	eth0 := pod.Link("eth0")
	if eth0 == nil || eth0.TxOffload() || eth0.Peer().Name() != "web-1" {
		t.Fatalf("container's side: %+v", eth0)
	}
	for _, c := range []struct{ cmd, want string }{
		{"ip addr del 10.10.1.2/24 dev eth0", "address 10.10.1.2/24: not there"},
		{"ip link set eth0 mtu 1500", "MTU: want 1450, found 1500"},
		{"ip route del default", "default route via 10.10.1.1: not there"},
		{"ip link set eth0 down", "down"},
	} {
		w.exec(pod, c.cmd)
		if err := n.Check(l); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("after %s: %v, want %s", c.cmd, err, c.want)
		}
		w.apply(n, l)
		if err := n.Check(l); err != nil {
			t.Errorf("put again after %s: %v", c.cmd, err)
		}
	}
	// A guarded link shows its frames to the switch only; an unguarded one to the node's stack too.
	w.exec(n, "ip addr add 10.10.1.1/24 dev gw0")
	var upper []string
	if err := n.SetUpper("web-1", func(p *packet.Packet) { upper = append(upper, p.String()) }); err != nil {
		t.Fatal(err)
	}
	want(t, "guarded", w.probe(pod, packet.ProtoICMP, "10.10.1.1", 0), "drop")
	if len(upper) != 1 || !strings.HasPrefix(upper[0], "arp request") {
		t.Errorf("the switch saw %v", upper)
	}
	l.Guard = false
	w.apply(n, l)
	w.exec(n, "ip route add 10.10.1.2 dev web-1")
	w.exec(pod, "ip neigh flush all")
	want(t, "not guarded: the node's kernel answers", w.probe(pod, packet.ProtoICMP, "10.10.1.1", 0), "ok from 10.10.1.1")
	if r := n.Apply(dels(l)); r[0].Err != nil || pod.Link("eth0") != nil {
		t.Errorf("delete: %v, %v", r, pod.Link("eth0"))
	}
}

func TestHealth(t *testing.T) {
	w := newWorld(t)
	node, ext := w.netns("node"), w.netns("ext")
	w.wire(node, "eth0", []string{"172.18.0.11/16", "fd18::11/64"}, ext, "eth0", []string{"172.18.0.100/16", "fd18::100/64"})
	w.apply(node, w.obj("health 30500 service default/web local 2"))
	for _, dst := range []string{"172.18.0.11", "fd18::11"} {
		if got := w.probe(ext, packet.ProtoTCP, dst, 30500); !strings.Contains(got, "200 OK") || !strings.Contains(got, `"localEndpoints":2`) {
			t.Errorf("%s: %s", dst, got)
		}
	}
	w.apply(node, w.obj("health 30500 service default/web local 0 addrs 172.18.0.11"))
	if got := w.probe(ext, packet.ProtoTCP, "172.18.0.11", 30500); !strings.Contains(got, "503") {
		t.Error(got)
	}
	want(t, "another address", w.probe(ext, packet.ProtoTCP, "fd18::11", 30500), "rst from fd18::11")
	node.CloseHealth()
	want(t, "the agent is gone", w.probe(ext, packet.ProtoTCP, "172.18.0.11", 30500), "rst from 172.18.0.11")
	if d := node.Dump(); len(d) != 0 {
		t.Error(d)
	}
}

func TestReboot(t *testing.T) {
	w, n := bare(t)
	pod := w.netns("c1")
	var objects []datapath.Object
	for _, s := range everything {
		objects = append(objects, w.obj(s))
	}
	w.apply(n, objects...)
	_, _, err := Veth(VethSide{Netns: n, Name: "v"}, VethSide{Netns: pod, Name: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	n.serve()
	n.Reboot()
	if d := n.Dump(); len(d) != 0 {
		t.Errorf("dump: %v", d)
	}
	if n.Link("gw0") == nil || n.Link("eg0") != nil || pod.Link("eth0") != nil || len(n.Addresses()) != 0 {
		t.Errorf("after the reboot: %s", n.DumpText())
	}
	want(t, "listeners start again", strings.Join(n.Listening(), ","), "sctp 8080,tcp 8080,udp 8080")
	w.apply(n, objects...)
}

// Tens of thousands of routes and set entries: the cost of one more, and of a packet, does not grow with
// them. A generous bound on work, not on time: the test would take minutes otherwise.
func TestManyObjects(t *testing.T) {
	g := newGateway(t)
	g.exec(g.node, "ip route add default via 172.18.0.100")
	g.exec(g.node, "ipset create TOWTANK-N hash:net maxelem 100000")
	g.exec(g.node, "ipset create TOWTANK-P hash:ip,port maxelem 100000")
	g.exec(g.node, "iptables -A FORWARD -m set --match-set TOWTANK-N dst -j DROP")
	var objects []datapath.Object
	for i := range 30000 {
		objects = append(objects,
			g.obj(fmt.Sprintf("add TOWTANK-N 20.%d.%d.0/24", i/250, i%250)),
			g.obj(fmt.Sprintf("add TOWTANK-P 20.%d.%d.1,tcp:%d", i/250, i%250, i)),
			g.obj(fmt.Sprintf("30.%d.%d.0/24 via 172.18.0.100 dev eth0", i/250, i%250)))
	}
	g.apply(g.node, objects...)
	for i := range 5000 {
		got := g.fromPod(podMAC, packet.Packet{Dst: addr(fmt.Sprintf("20.%d.%d.9", i/250, i%250)), Proto: packet.ProtoUDP, SrcPort: uint16(i + 1), DstPort: 8080})
		if got != "drop" {
			t.Fatal(got)
		}
	}
	if n := len(g.node.Dump()); n != len(objects)+2 {
		t.Errorf("%d objects in the dump, want %d", n, len(objects)+2)
	}
	if r := g.node.Apply(dels(objects...)); slices.ContainsFunc(r, func(r datapath.OpResult) bool { return r.Err != nil }) {
		t.Error("a deletion was refused")
	}
	if n := len(g.node.Dump()); n != 2 {
		t.Errorf("%d objects left", n)
	}
}
