package host

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"towtank/sim/packet"
)

// What e2e/fidelity found: each case is what Linux did where the model had done something else. The picture is that
// of triangle.

// In table raw nothing is tracked yet: there the state is INVALID.
func TestStateBeforeTracking(t *testing.T) {
	w, client, node, _ := triangle(t)
	w.exec(node, "iptables -t raw -A PREROUTING -p udp -m conntrack --ctstate INVALID -j DROP")
	want(t, "udp", w.probe(client, packet.ProtoUDP, "172.18.0.100", 8080), "drop")
	want(t, "tcp", w.probe(client, packet.ProtoTCP, "172.18.0.100", 8080), "ok from 172.18.0.100 src=10.1.0.2 dst=172.18.0.100")
}

// A connection that was refused is forgotten at once: the next try, from the same port, is a new one.
func TestRefusedConnectionIsForgotten(t *testing.T) {
	w, client, node, _ := triangle(t)
	w.exec(node, "iptables -A FORWARD -p tcp --syn -m conntrack ! --ctstate NEW -j DROP")
	for range 2 {
		got := w.send(client, &packet.Packet{Dst: addr("172.18.0.100"), Proto: packet.ProtoTCP, SrcPort: 5000, DstPort: 81})
		want(t, "tcp", got, "rst from 172.18.0.100")
	}
	if list := node.DumpConntrack(); len(list) > 0 {
		t.Errorf("tracked: %v", list)
	}
}

// The way back that rp_filter looks for is that of a packet which comes in where this one goes out.
func TestReversePathFilterAndRules(t *testing.T) {
	for link, result := range map[string]string{"r1": "drop", "r0": "ok from 172.18.0.100 src=10.1.0.2 dst=172.18.0.100"} {
		w, client, node, _ := triangle(t)
		w.exec(node, "sysctl -w net.ipv4.conf.r0.rp_filter=1")
		w.exec(node, "ip route add 10.0.0.0/8 via 172.18.0.100 table 101")
		w.exec(node, "ip rule add iif "+link+" from 10.0.0.0/8 lookup 101")
		w.exec(node, "ip rule add iif "+link+" from 172.16.0.0/12 lookup 101")
		want(t, "rule for iif "+link, w.probe(client, packet.ProtoUDP, "172.18.0.100", 8080), result)
	}
}

// An ICMPv6 error about a packet comes from an address of the link where the packet came in, wherever the error goes.
func TestSourceOfErrorsV6(t *testing.T) {
	w, client, node, ext := triangle(t)
	for _, n := range []*Netns{client, ext} {
		w.exec(n, "ip -6 addr add fd77::2/128 dev eth0 nodad")
	}
	w.exec(node, "ip -6 route add fd77::/64 via fd18::100")
	got := ""
	done, err := ext.Bind(packet.ProtoUDP, 777, func(in *packet.Packet) { got = in.Src.String() })
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if err := client.Send(&packet.Packet{Src: addr("fd77::2"), Dst: addr("fd99::1"), Proto: packet.ProtoUDP, SrcPort: 777, DstPort: 1}); err != nil {
		t.Fatal(err)
	}
	want(t, "source", got, "fd01::1")
}

// An answer that is refused after its destination was translated back: the error goes to who sent it, in the name of
// the address that he sent it to, and about the packet that he sent.
func TestErrorAboutTranslatedAnswer(t *testing.T) {
	w, client, node, ext := triangle(t)
	w.exec(node, "iptables -t nat -A PREROUTING -d 172.18.5.5 -j DNAT --to-destination 172.18.0.100")
	w.exec(node, "iptables -t nat -A POSTROUTING -o r1 -j SNAT --to-source 172.18.0.11")
	w.exec(node, "iptables -A FORWARD -d 10.1.0.0/24 -j REJECT")
	var got []string
	done, err := ext.Bind(packet.ProtoUDP, 9000, func(in *packet.Packet) {
		if in.IsICMPError() {
			got = append(got, "error from "+in.Src.String()+" about "+in.Inner.Dst.String())
			return
		}
		got = append(got, "from "+in.Src.String())
		if err := ext.Send(&packet.Packet{Dst: in.Src, Proto: packet.ProtoUDP, SrcPort: 9000, DstPort: in.SrcPort}); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	want(t, "the client", w.probe(client, packet.ProtoUDP, "172.18.5.5", 9000), "drop")
	if len(got) != 2 || got[0] != "from 172.18.0.11" || got[1] != "error from 172.18.0.11 about 172.18.0.11" {
		t.Errorf("the server got %q", got)
	}
}

// Whoever asks for a MAC has to be one from which a packet would be taken, but for who looks whether an address is free.
func TestWhoIsAnsweredARP(t *testing.T) {
	for _, c := range []struct {
		name, setup, sender string
		answered, learnt    bool
		target              string // "": an address of the link
	}{
		{"neighbour", "", "172.18.0.77", true, true, ""},
		{"no way back", "sysctl -w net.ipv4.conf.r1.rp_filter=2", "8.8.8.8", false, false, ""},
		{"no way back, and nobody minds", "", "8.8.8.8", true, true, ""},
		{"another way back", "sysctl -w net.ipv4.conf.r1.rp_filter=1", "10.1.0.77", false, false, ""},
		{"another way back, loose", "sysctl -w net.ipv4.conf.r1.rp_filter=2", "10.1.0.77", true, true, ""},
		{"our own address", "", "10.1.0.1", false, false, ""},
		{"our own address, accepted", "sysctl -w net.ipv4.conf.r1.accept_local=1", "10.1.0.1", true, true, ""},
		{"loopback", "", "127.0.0.1", false, false, ""},
		{"is it free", "", "0.0.0.0", true, false, ""},
		{"is it free, under arp_ignore", "sysctl -w net.ipv4.conf.r1.arp_ignore=2", "0.0.0.0", true, false, ""},
		{"of another subnet, under arp_ignore", "sysctl -w net.ipv4.conf.r1.arp_ignore=2", "10.1.0.77", false, false, ""},
		{"is loopback free", "", "0.0.0.0", false, false, "127.0.0.1"},
		{"a group, of a proxy", "sysctl -w net.ipv4.conf.r1.proxy_arp=1", "172.18.0.77", false, false, "224.0.0.5"},
		{"nobody, of a proxy", "sysctl -w net.ipv4.conf.r1.proxy_arp=1", "172.18.0.77", false, false, "0.0.0.0"},
		{"somebody else, of a proxy", "sysctl -w net.ipv4.conf.r1.proxy_arp=1", "172.18.0.77", true, true, "10.1.0.50"},
	} {
		w := newWorld(t)
		node := w.netns("node")
		answered := false
		for i, a := range []string{"10.1.0.1/24", "172.18.0.11/16"} {
			link := fmt.Sprint("r", i)
			node.AddLink(link, packet.MAC{2, 0, 0, 0, 1, byte(i)}, 1500, func(p *packet.Packet) {
				answered = answered || p.EthType == packet.EthARP && p.ARPOp == 2 && p.ARPTPA == addr(c.sender)
			})
			w.exec(node, "ip addr add "+a+" dev "+link)
		}
		w.exec(node, "sysctl -w net.ipv4.ip_forward=1")
		w.exec(node, "ip route add 224.0.0.0/3 via 10.1.0.9")
		if c.setup != "" {
			w.exec(node, c.setup)
		}
		asks := packet.MAC{2, 0, 0, 0, 9, 9}
		node.Receive("r1", &packet.Packet{EthType: packet.EthARP, EthSrc: asks, EthDst: packet.Broadcast, ARPOp: 1, ARPSHA: asks, ARPSPA: addr(c.sender), ARPTPA: addr(cmp.Or(c.target, "172.18.0.11"))})
		neighbours := w.exec(node, "ip neigh")
		if learnt := strings.Contains(neighbours, c.sender+" "); answered != c.answered || learnt != c.learnt {
			t.Errorf("%s: answered %t, learnt %t, want %t, %t\n%s", c.name, answered, learnt, c.answered, c.learnt, neighbours)
		}
	}
}

// Who asks all says where he is, or gets no answer; who asked one MAC is not told it again, and takes what comes for a confirmation.
func TestWhoIsAnsweredND(t *testing.T) {
	asks := packet.MAC{2, 0, 0, 0, 9, 9}
	group := "ff02::1:ff00:11"
	for _, c := range []struct {
		name, sender, dst string
		sll               packet.MAC
		ttl               uint8
		want              string // of the answer: to whom, with which MAC
		learnt            bool
	}{
		{"all are asked", "fd18::77", group, asks, 255, "fd18::77 02:00:00:00:01:01", true},
		{"all are asked, by nobody knows whom", "fd18::77", group, packet.MAC{}, 255, "", false},
		{"one is asked", "fd18::77", "fd18::11", asks, 255, "fd18::77 00:00:00:00:00:00", true},
		{"through a router", "fd18::77", group, asks, 254, "", false},
		{"is it free", "::", group, packet.MAC{}, 255, "ff02::1 02:00:00:00:01:01", false},
		{"is it free, with a MAC", "::", group, asks, 255, "", false},
		{"is it free, to one", "::", "fd18::11", packet.MAC{}, 255, "", false},
		{"loopback", "::1", group, asks, 255, "", false},
	} {
		w := newWorld(t)
		node := w.netns("node")
		got := ""
		node.AddLink("r1", packet.MAC{2, 0, 0, 0, 1, 1}, 1500, func(p *packet.Packet) {
			if p.ICMPType == packet.ICMPv6NeighAdvert {
				got += p.Dst.String() + " " + p.NDTLL.String()
			}
		})
		w.exec(node, "ip -6 addr add fd18::11/64 dev r1 nodad")
		p := &packet.Packet{EthSrc: asks, EthDst: packet.MAC{2, 0, 0, 0, 1, 1}, EthType: packet.EthIPv6, Proto: packet.ProtoICMPv6, TTL: c.ttl, Src: addr(c.sender), Dst: addr(c.dst), ICMPType: packet.ICMPv6NeighSolicit, NDTarget: addr("fd18::11"), NDSLL: c.sll}
		if p.Dst.IsMulticast() {
			p.EthDst = packet.MAC{0x33, 0x33, 0xff, 0, 0, 0x11}
		}
		node.Receive("r1", p)
		neighbours := w.exec(node, "ip -6 neigh")
		if learnt := strings.Contains(neighbours, c.sender+" "); got != c.want || learnt != c.learnt {
			t.Errorf("%s: answered %q, learnt %t, want %q, %t\n%s", c.name, got, learnt, c.want, c.learnt, neighbours)
		}
	}
}
