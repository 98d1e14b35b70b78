package fabric

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"towtank/sim/host"
	"towtank/sim/packet"
)

// lan is a fabric with hosts 172.18.0.N, fd18::N.
type lan struct {
	t      *testing.T
	f      *Fabric
	q      packet.Queue
	hosts  map[string]*host.Netns
	frames []string
	port   uint16
}

func newLAN(t *testing.T, names ...string) *lan {
	l := &lan{t: t, hosts: map[string]*host.Netns{}}
	l.q.OnLoop = func(err error) { t.Error(err) }
	l.f = New(Config{Queue: &l.q, OnFrame: func(from string, p *packet.Packet) { l.frames = append(l.frames, from+": "+p.String()) }})
	for i, name := range names {
		l.add(name, 0, fmt.Sprintf("172.18.0.%d/16", i+1), fmt.Sprintf("fd18::%d/64", i+1))
	}
	return l
}

func (l *lan) add(name string, vlan uint16, addrs ...string) *host.Netns {
	l.t.Helper()
	n := host.New(host.Config{Name: name, Queue: &l.q, Now: func() time.Time { return time.Unix(0, 0) }})
	// Each host gets its own MAC: namespaces without Rand draw the same.
	n.AddLink("eth0", packet.MAC{2, 0, 0, 0, 0, byte(len(l.hosts) + 1)}, 1500, nil)
	if err := l.f.Attach(name, vlan, n, "eth0"); err != nil {
		l.t.Fatal(err)
	}
	for _, a := range addrs {
		if err := n.AddAddress("eth0", netip.MustParsePrefix(a)); err != nil {
			l.t.Fatal(err)
		}
	}
	n.Listen(packet.ProtoUDP, 8080, func(in *packet.Packet) *packet.Packet { return &packet.Packet{Payload: "from " + in.Src.String()} })
	l.hosts[name] = n
	return n
}

func (l *lan) probe(from, dst string) string {
	l.t.Helper()
	l.port++
	got := "drop"
	done, err := l.hosts[from].Bind(packet.ProtoUDP, l.port, func(in *packet.Packet) { got = "ok " + in.Payload })
	if err != nil {
		l.t.Fatal(err)
	}
	defer done()
	if err := l.hosts[from].Send(&packet.Packet{Dst: netip.MustParseAddr(dst), Proto: packet.ProtoUDP, SrcPort: l.port, DstPort: 8080}); err != nil {
		return err.Error()
	}
	return got
}

func (l *lan) want(from, dst, want string) {
	l.t.Helper()
	if got := l.probe(from, dst); got != want {
		l.t.Errorf("%s -> %s: got %s, want %s", from, dst, got, want)
	}
}

func (l *lan) exec(name, cmd string) {
	l.t.Helper()
	if _, err := l.hosts[name].Exec(cmd); err != nil {
		l.t.Fatal(err)
	}
}

// The first packet floods; later ones go to one port only.
func TestSwitchLearns(t *testing.T) {
	for _, v := range []struct{ a, b string }{{"172.18.0.1", "172.18.0.2"}, {"fd18::1", "fd18::2"}} {
		l := newLAN(t, "n1", "n2", "n3")
		l.want("n1", v.b, "ok from "+v.a)
		if !slices.ContainsFunc(l.frames, func(s string) bool { return strings.HasPrefix(s, "n1: udp") }) {
			t.Errorf("the tap did not see the packet leave n1: %q", l.frames)
		}
		seen := 0
		if err := l.hosts["n3"].SetUpper("eth0", func(*packet.Packet) { seen++ }); err != nil {
			t.Fatal(err)
		}
		l.want("n1", v.b, "ok from "+v.a)
		if seen != 0 {
			t.Errorf("n3 saw %d frames between n1 and n2", seen)
		}
	}
}

func TestPartition(t *testing.T) {
	for _, addr := range []func(int) string{
		func(i int) string { return fmt.Sprintf("172.18.0.%d", i) }, func(i int) string { return fmt.Sprintf("fd18::%d", i) },
	} {
		l := newLAN(t, "n1", "n2", "n3", "ext")
		for _, c := range []struct {
			groups [][]string
			cut    string // pairs that do not reach each other
		}{
			{[][]string{{"n1"}, {"n2"}}, "n1-n2"},
			{[][]string{{"n1"}, {"*"}}, "n1-n2 n1-n3 n1-ext"},
			{[][]string{{"n1", "ext"}, {"n2", "n3"}}, "n1-n2 n1-n3 ext-n2 ext-n3"},
			{nil, ""},
		} {
			if err := l.f.Partition(c.groups); err != nil {
				t.Fatal(err)
			}
			names := l.f.Ports()
			for i, a := range names {
				l.exec(a, "ip neigh flush all")
				for j, b := range names {
					if i == j {
						continue
					}
					cut := strings.Contains(c.cut, a+"-"+b) || strings.Contains(c.cut, b+"-"+a)
					want := "ok from " + addr(i+1)
					if cut {
						want = "drop"
					}
					l.want(a, addr(j+1), want)
					if l.f.Reaches(a, b) == cut {
						t.Errorf("Reaches(%s, %s) is %t", a, b, !cut)
					}
					l.exec(a, "ip neigh flush all")
				}
			}
		}
	}
	l := newLAN(t, "n1", "n2")
	for _, g := range [][][]string{{{"nope"}}, {{"n1"}, {"n1"}}, {{"*"}, {"*"}}} {
		if err := l.f.Partition(g); err == nil {
			t.Errorf("partition %v was accepted", g)
		}
	}
}

func TestPowerAndLoss(t *testing.T) {
	l := newLAN(t, "n1", "n2", "n3")
	l.want("n1", "172.18.0.2", "ok from 172.18.0.1")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.f.SetDown("n2", true))
	l.want("n1", "172.18.0.2", "drop")
	must(l.f.SetDown("n2", false))
	l.want("n1", "172.18.0.2", "ok from 172.18.0.1")
	must(l.f.Loss("n2", "n1", 100))
	l.want("n1", "172.18.0.2", "drop")
	l.want("n3", "172.18.0.2", "ok from 172.18.0.3")
	must(l.f.Loss("n1", "n2", 50))
	ok := 0
	for range 200 {
		if l.probe("n1", "172.18.0.2") != "drop" {
			ok++
		}
	}
	if ok < 20 || ok > 90 { // a quarter of the round trips
		t.Errorf("%d of 200 passed with 50%% loss each way", ok)
	}
	if l.f.Loss("n1", "n2", 101) == nil || l.f.Loss("n1", "nope", 1) == nil || l.f.SetDown("nope", true) == nil {
		t.Error("a wrong call was accepted")
	}
}

// A node with a VLAN link on its uplink, a host in the VLAN, the router between the VLAN and the native
// network.
//
//	n1 eth0 ── native ──┬── ext eth0 (native)
//	   eth0.10 ─ VLAN 10 ─┬─ lab eth0 (access port)
//	                    router
func TestVLANNetwork(t *testing.T) {
	l := newLAN(t, "n1", "ext")
	l.add("lab", 10, "10.20.0.9/24", "fd20::9/64")
	r, err := l.f.Network("net10", []netip.Prefix{netip.MustParsePrefix("10.20.0.0/24"), netip.MustParsePrefix("fd20::/64")}, 10,
		[]netip.Prefix{netip.MustParsePrefix("172.18.255.1/16"), netip.MustParsePrefix("fd18::ffff/64")}, host.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l.exec("n1", "ip link add link eth0 name eth0.10 type vlan id 10")
	l.exec("n1", "ip link set eth0.10 up")
	l.exec("n1", "ip addr add 10.20.0.5/24 dev eth0.10")
	l.exec("n1", "ip addr add fd20::5/64 dev eth0.10")
	l.want("n1", "10.20.0.9", "ok from 10.20.0.5")
	l.want("n1", "fd20::9", "ok from fd20::5")
	l.want("lab", "10.20.0.5", "ok from 10.20.0.9")
	for _, c := range []string{"ip route add default via 10.20.0.1", "ip -6 route add default via fd20::1"} {
		l.exec("lab", c)
	}
	l.exec("ext", "ip route add 10.20.0.0/24 dev eth0") // the router answers ARP for the VLAN
	l.exec("ext", "ip -6 route add fd20::/64 via fd18::ffff")
	l.want("lab", "172.18.0.2", "ok from 10.20.0.9")
	l.want("lab", "fd18::2", "ok from fd20::9")
	l.want("ext", "10.20.0.9", "ok from 172.18.0.2")
	if !r.HasAddress(netip.MustParseAddr("10.20.0.1")) {
		t.Errorf("router: %v", r.Addresses())
	}
	tagged := slices.ContainsFunc(l.frames, func(s string) bool { return strings.HasPrefix(s, "n1: vlan 10 udp 10.20.0.5") })
	if !tagged {
		t.Errorf("no tagged frame of n1: %q", l.frames)
	}
	if _, err := l.f.Network("x", nil, 0, nil, host.Config{}); err == nil {
		t.Error("VLAN 0 was accepted")
	}
}

// A cable from the switch to itself is a loop without end: the queue's bound ends it and says so.
func TestLoopIsBounded(t *testing.T) {
	l := newLAN(t, "n1")
	var loops []error
	l.q.OnLoop = func(err error) { loops = append(loops, err) }
	cable := host.New(host.Config{Name: "cable", Queue: &l.q})
	for i, other := range []string{"b", "a"} {
		name := []string{"a", "b"}[i]
		cable.AddLink(name, packet.MAC{2, 0, 0, 0, 1, byte(i)}, 1500, nil)
		if err := cable.SetUpper(name, func(p *packet.Packet) { _ = cable.Transmit(other, p) }); err != nil {
			t.Fatal(err)
		}
		if err := l.f.Attach(name, 0, cable, name); err != nil {
			t.Fatal(err)
		}
	}
	l.want("n1", "172.18.0.77", "drop")
	if len(loops) != 1 || !strings.Contains(loops[0].Error(), "packet loop") {
		t.Errorf("loops: %v", loops)
	}
}
