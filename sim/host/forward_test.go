package host

import (
	"testing"

	"towtank/sim/packet"
)

// triangle is a client and a server on two wires of a router, dual stack.
//
//	client eth0 10.1.0.2 ─── 10.1.0.1 r0  node  r1 172.18.0.11 ─── 172.18.0.100 eth0 ext
func triangle(t *testing.T) (w *world, client, node, ext *Netns) {
	t.Helper()
	w = newWorld(t)
	client, node, ext = w.netns("client"), w.netns("node"), w.netns("ext")
	w.wire(client, "eth0", []string{"10.1.0.2/24", "fd01::2/64"}, node, "r0", []string{"10.1.0.1/24", "fd01::1/64"})
	w.wire(ext, "eth0", []string{"172.18.0.100/16", "fd18::100/64"}, node, "r1", []string{"172.18.0.11/16", "fd18::11/64"})
	w.exec(client, "ip route add default via 10.1.0.1")
	w.exec(client, "ip -6 route add default via fd01::1")
	w.exec(ext, "ip route add 10.1.0.0/24 via 172.18.0.11")
	w.exec(ext, "ip -6 route add fd01::/64 via fd18::11")
	w.exec(node, "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	for _, n := range []*Netns{client, node, ext} {
		n.serve()
	}
	return w, client, node, ext
}

func TestRoutesAndAnswers(t *testing.T) {
	w, client, node, _ := triangle(t)
	tcp, udp, sctp := packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP
	for _, c := range []struct {
		proto uint8
		dst   string
		port  uint16
		want  string
	}{
		{tcp, "172.18.0.100", 8080, "ok from 172.18.0.100 src=10.1.0.2 dst=172.18.0.100"},
		{udp, "172.18.0.100", 8080, "ok from 172.18.0.100 src=10.1.0.2 dst=172.18.0.100"},
		{sctp, "172.18.0.100", 8080, "ok from 172.18.0.100 src=10.1.0.2 dst=172.18.0.100"},
		{packet.ProtoICMP, "172.18.0.100", 0, "ok from 172.18.0.100"},
		{packet.ProtoICMPv6, "fd18::100", 0, "ok from fd18::100"},
		{tcp, "fd18::100", 8080, "ok from fd18::100 src=fd01::2 dst=fd18::100"},
		{tcp, "172.18.0.100", 81, "rst from 172.18.0.100"},
		{udp, "172.18.0.100", 81, "icmp 3/3 from 172.18.0.100"},
		{sctp, "172.18.0.100", 81, "icmp 3/3 from 172.18.0.100"},
		{udp, "fd18::100", 81, "icmp 1/4 from fd18::100"},
		{tcp, "10.1.0.1", 8080, "ok from 10.1.0.1 src=10.1.0.2 dst=10.1.0.1"},
		{tcp, "172.18.0.11", 8080, "ok from 172.18.0.11 src=10.1.0.2 dst=172.18.0.11"}, // weak host model
		{tcp, "10.1.0.2", 8080, "ok from 10.1.0.2 src=10.1.0.2 dst=10.1.0.2"},          // to itself
		{tcp, "127.0.0.1", 8080, "ok from 127.0.0.1 src=127.0.0.1 dst=127.0.0.1"},
		{tcp, "::1", 8080, "ok from ::1 src=::1 dst=::1"},
		{tcp, "9.9.9.9", 80, "icmp 3/0 from 10.1.0.1"}, // the router has no route
		{tcp, "fd99::1", 80, "icmp 1/0 from fd01::1"},
		{tcp, "172.18.9.9", 80, "drop"}, // nobody answers ARP
	} {
		want(t, packet.ProtoName(c.proto)+" "+c.dst, w.probe(client, c.proto, c.dst, c.port), c.want)
	}
	w.exec(node, "sysctl -w net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0")
	want(t, "without forwarding", w.probe(client, tcp, "172.18.0.100", 8080), "drop")
	want(t, "without forwarding, v6", w.probe(client, tcp, "fd18::100", 8080), "drop")
}

// After three unanswered ARP requests the router says host unreachable; packets that waited are
// answered, three at most.
func TestUnresolvedNeighbour(t *testing.T) {
	w, client, node, _ := triangle(t)
	for dst, wantGot := range map[string]string{"172.18.9.9": "icmp 3/1 from 10.1.0.1", "fd18::9:9": "icmp 1/3 from fd01::1"} {
		got := []string{}
		done, err := client.Bind(packet.ProtoUDP, 777, func(in *packet.Packet) { got = append(got, describe(in)) })
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if err := client.Send(&packet.Packet{Dst: addr(dst), Proto: packet.ProtoUDP, SrcPort: 777, DstPort: 1}); err != nil {
				t.Fatal(err)
			}
		}
		w.advance(2e9)
		if len(got) != 0 {
			t.Errorf("%s after 2 s: %v", dst, got)
		}
		if d, ok := node.NextDeadline(); !ok || !d.Equal(w.now.Add(1e9)) {
			t.Errorf("%s: next deadline %v, %t", dst, d, ok)
		}
		w.advance(1e9)
		if len(got) != 3 || got[0] != wantGot {
			t.Errorf("%s: got %v, want 3 of %s", dst, got, wantGot)
		}
		done()
	}
}

func TestMTU(t *testing.T) {
	w, client, node, ext := triangle(t)
	w.exec(node, "ip link set r1 mtu 1400")
	w.exec(ext, "ip link set eth0 mtu 1400")
	big := func(dst string, df bool) string {
		return w.send(client, &packet.Packet{Dst: addr(dst), Proto: packet.ProtoUDP, DstPort: 8080, Size: 1450, DF: df})
	}
	want(t, "DF", big("172.18.0.100", true), "icmp 3/4 from 10.1.0.1")
	want(t, "v6", big("fd18::100", false), "icmp 2/0 from fd01::1")
	w.exec(ext, "ip link set eth0 mtu 1500") // the model does not cut packets
	want(t, "without DF", big("172.18.0.100", false), "ok from 172.18.0.100 src=10.1.0.2 dst=172.18.0.100")
	w.exec(client, "ip link set eth0 mtu 1400")
	want(t, "own link, DF", big("172.18.0.100", true), "error send to 172.18.0.100: Message too long")
}

func TestTTL(t *testing.T) {
	w, client, _, _ := triangle(t)
	for dst, exp := range map[string]string{"172.18.0.100": "icmp 11/0 from 10.1.0.1", "fd18::100": "icmp 3/0 from fd01::1"} {
		want(t, dst, w.send(client, &packet.Packet{Dst: addr(dst), Proto: packet.ProtoUDP, DstPort: 8080, TTL: 1}), exp)
	}
}

// Two default routes in a circle: the packet dies by its TTL, not by the queue's bound.
func TestRoutingLoopEndsByTTL(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.netns("a"), w.netns("b"), w.netns("c")
	w.wire(a, "eth0", []string{"10.0.0.1/24", "fd00::1/64"}, b, "eth0", []string{"10.0.0.2/24", "fd00::2/64"})
	w.wire(a, "eth1", []string{"10.1.0.1/24", "fd01::1/64"}, c, "eth0", []string{"10.1.0.2/24", "fd01::2/64"})
	w.exec(a, "ip route add default via 10.0.0.2")
	w.exec(b, "ip route add default via 10.0.0.1")
	w.exec(c, "ip route add default via 10.1.0.1")
	w.exec(a, "ip -6 route add default via fd00::2")
	w.exec(b, "ip -6 route add default via fd00::1")
	w.exec(c, "ip -6 route add default via fd01::1")
	for _, n := range []*Netns{a, b} {
		w.exec(n, "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	}
	want(t, "v4", w.probe(c, packet.ProtoUDP, "9.9.9.9", 1), "icmp 11/0 from 10.0.0.2")
	want(t, "v6", w.probe(c, packet.ProtoUDP, "fd99::9", 1), "icmp 3/0 from fd00::2")
}

func TestReversePathFilter(t *testing.T) {
	w, client, node, ext := triangle(t)
	// ext sends in the name of an address that the node routes elsewhere, or nowhere.
	w.exec(ext, "sysctl -w net.ipv4.ip_nonlocal_bind=1")
	got := ""
	client.Listen(packet.ProtoUDP, 9, func(in *packet.Packet) *packet.Packet { got = in.Src.String(); return nil })
	send := func(src string) string {
		t.Helper()
		got = "drop"
		if err := ext.Send(&packet.Packet{Src: addr(src), Dst: addr("10.1.0.2"), Proto: packet.ProtoUDP, SrcPort: 5, DstPort: 9}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	const elsewhere, nowhere, nodes = "10.1.0.77", "9.9.9.9", "10.1.0.1"
	want(t, "off, elsewhere", send(elsewhere), elsewhere)
	want(t, "off, nowhere", send(nowhere), nowhere)
	want(t, "off, the node's own", send(nodes), "drop")
	w.exec(node, "sysctl -w net.ipv4.conf.r1.rp_filter=2")
	want(t, "loose, elsewhere", send(elsewhere), elsewhere)
	want(t, "loose, nowhere", send(nowhere), "drop")
	w.exec(node, "sysctl -w net.ipv4.conf.r1.rp_filter=1")
	want(t, "strict, elsewhere", send(elsewhere), "drop")
	want(t, "strict, right", send("172.18.0.100"), "172.18.0.100")
	w.exec(node, "sysctl -w net.ipv4.conf.all.rp_filter=2") // the larger of the two counts
	want(t, "strict and all=2, elsewhere", send(elsewhere), elsewhere)
	w.exec(node, "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.r1.rp_filter=0 net.ipv4.conf.r1.accept_local=1")
	want(t, "accept_local, the node's own", send(nodes), nodes)
}

func TestTCPSession(t *testing.T) {
	for _, dst := range []string{"172.18.0.100", "fd18::100"} {
		w, client, _, _ := triangle(t)
		syn := &packet.Packet{Dst: addr(dst), Proto: packet.ProtoTCP, DstPort: 8080, SrcPort: 1234}
		data := &packet.Packet{Dst: addr(dst), Proto: packet.ProtoTCP, DstPort: 8080, SrcPort: 1234, TCPFlags: packet.ACK | packet.PSH}
		want(t, "data without connection", w.send(client, data), "rst from "+dst)
		if got := w.send(client, syn); got[:2] != "ok" {
			t.Errorf("SYN: %s", got)
		}
		if got := w.send(client, data); got[:2] != "ok" {
			t.Errorf("data: %s", got)
		}
	}
}
