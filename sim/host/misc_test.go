package host

import (
	"strings"
	"testing"
	"time"

	"towtank/datapath/host"
	"towtank/sim/packet"
)

// Routes that refuse say so to the sender, each in its way; a flush takes what it names.
func TestRefusingRoutes(t *testing.T) {
	w, client, node, _ := triangle(t)
	for _, c := range []struct{ route, dst, want string }{
		{"ip route add unreachable 20.0.1.0/24", "20.0.1.1", "icmp 3/1 from 10.1.0.1"},
		{"ip route add prohibit 20.0.2.0/24", "20.0.2.1", "icmp 3/13 from 10.1.0.1"},
		{"ip route add blackhole 20.0.3.0/24", "20.0.3.1", "drop"},
		{"ip route add throw 20.0.4.0/24", "20.0.4.1", "icmp 3/0 from 10.1.0.1"},
		{"ip -6 route add unreachable fd20:1::/64", "fd20:1::1", "icmp 1/0 from fd01::1"},
		{"ip -6 route add prohibit fd20:2::/64", "fd20:2::1", "icmp 1/1 from fd01::1"},
		{"ip -6 route add blackhole fd20:3::/64", "fd20:3::1", "drop"},
	} {
		w.exec(node, c.route)
		want(t, c.route, w.probe(client, packet.ProtoUDP, c.dst, 5), c.want)
		if err := node.Send(&packet.Packet{Dst: addr(c.dst), Proto: packet.ProtoUDP}); err == nil {
			t.Errorf("%s: the node's own packet was sent", c.route)
		}
	}
	w.exec(node, "ip route add 20.1.0.0/16 via 172.18.0.100 proto static")
	w.exec(node, "ip route add 20.2.0.0/16 via 172.18.0.100 table 9")
	w.exec(node, "ip route flush proto static")
	if out := w.exec(node, "ip route"); strings.Contains(out, "20.1.0.0") || !strings.Contains(out, "blackhole 20.0.3.0/24") {
		t.Errorf("after flush proto static: %s", out)
	}
	w.exec(node, "ip route flush table 9")
	want(t, "table 9", w.exec(node, "ip route show table 9"), "")
	if err := node.AddRoute(host.Route{Dst: anyV4, Via: addr("172.18.0.100"), Dev: "r1"}); err != nil {
		t.Error(err)
	}
	want(t, "default route", w.probe(client, packet.ProtoUDP, "172.18.0.100", 8080), "ok from 172.18.0.100 src=10.1.0.2 dst=172.18.0.100")
}

// A node's own packet that is translated in OUTPUT and goes to nobody: its socket hears of the address
// that it dialled.
func TestErrorAboutOwnTranslatedPacket(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		g := newGateway(t)
		tool, to, dst, exp := "iptables", "172.18.9.9", "9.9.9.9", "icmp 3/1"
		if v6 {
			tool, to, dst, exp = "ip6tables", "fd18::9:9", "fd99::9", "icmp 1/3"
		}
		g.exec(g.node, "ip route add default via 172.18.0.100")
		g.exec(g.node, "ip -6 route add default via fd18::100")
		g.exec(g.node, tool+" -t nat -A OUTPUT -d "+dst+" -j DNAT --to-destination "+to)
		got := ""
		done, err := g.node.Bind(packet.ProtoUDP, 7, func(in *packet.Packet) { got = describe(in)[:8] + " about " + in.Inner.Dst.String() })
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		if err := g.node.Send(&packet.Packet{Dst: addr(dst), Proto: packet.ProtoUDP, SrcPort: 7, DstPort: 1}); err != nil {
			t.Fatal(err)
		}
		g.advance(3 * time.Second)
		want(t, tool, got, exp+" about "+dst)
	}
}

// A veth side moved to another namespace, as old-fashioned CNI plugins do.
func TestMoveLink(t *testing.T) {
	w := newWorld(t)
	node, pod := w.netns("node"), w.netns("pod")
	for _, c := range []string{"ip link add v type veth peer name eth0", "ip link set eth0 netns pod", "ip link set v up", "ip addr add 10.0.0.1/24 dev v"} {
		w.exec(node, c)
	}
	w.exec(pod, "ip link set eth0 up")
	w.exec(pod, "ip addr add 10.0.0.2/24 dev eth0")
	want(t, "ping", w.probe(pod, packet.ProtoICMP, "10.0.0.1", 0), "ok from 10.0.0.1")
	if node.Link("eth0") != nil {
		t.Error("eth0 is still in the node")
	}
	if err := pod.SetLinkUp("eth0", false); err != nil {
		t.Fatal(err)
	}
	want(t, "other side down", w.probe(node, packet.ProtoICMP, "10.0.0.2", 0), "drop")
	pod.Close()
	if node.Link("v") != nil {
		t.Error("the node's side outlived the Pod's namespace")
	}
}

// A switch that reads a device and writes to another joins two containers; the node's stack is not
// asked.
func TestTransmitAndUpper(t *testing.T) {
	w := newWorld(t)
	node, a, b := w.netns("node"), w.netns("a"), w.netns("b")
	w.wire(a, "eth0", []string{"10.0.0.1/24", "fd00::1/64"}, node, "va", nil)
	w.wire(b, "eth0", []string{"10.0.0.2/24", "fd00::2/64"}, node, "vb", nil)
	for from, to := range map[string]string{"va": "vb", "vb": "va"} {
		if err := node.SetUpper(from, func(p *packet.Packet) {
			if err := node.Transmit(to, p); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "v4", w.probe(a, packet.ProtoICMP, "10.0.0.2", 0), "ok from 10.0.0.2")
	want(t, "v6", w.probe(b, packet.ProtoICMPv6, "fd00::1", 0), "ok from fd00::1")
	w.exec(b, "ip link set eth0 down")
	want(t, "down", w.probe(a, packet.ProtoICMP, "10.0.0.2", 0), "drop")
}

// The mark never leaves the namespace, but for the internal port of a kernel switch.
func TestMarkStaysInside(t *testing.T) {
	g := newGateway(t)
	g.exec(g.node, "iptables -t mangle -A OUTPUT -o gw0 -j MARK --or-mark 0x80000000")
	for _, keep := range []bool{false, true} {
		g.sent = nil
		g.node.Link("gw0").KeepMark = keep
		if err := g.node.Send(&packet.Packet{Dst: addr("10.10.1.2"), Proto: packet.ProtoUDP, SrcPort: 1, DstPort: 2}); err != nil {
			t.Fatal(err)
		}
		if len(g.sent) != 1 || (g.sent[0].Mark == 0x80000000) != keep {
			t.Errorf("KeepMark %t: %+v", keep, g.sent)
		}
	}
}
