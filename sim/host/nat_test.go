package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"towtank/datapath"
	"towtank/sim/packet"
)

// gateway is a node with a gateway device to a switch, and an external host. The switch is the test: it
// sees what the node sends to gw0, and puts frames there.
//
//	switch ─── gw0 10.10.1.1 (fd0a::1)  node  eth0 172.18.0.11 (fd18::11) ─── 172.18.0.100 (fd18::100) ext
type gateway struct {
	*world
	node, ext *Netns
	sent      []*packet.Packet // by the node to gw0
}

var (
	gwMAC      = packet.MAC{0x0a, 0, 0, 0, 0, 1}
	podMAC     = packet.MAC{0x0a, 0, 0, 0, 0, 2}
	virtualMAC = packet.MAC{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
)

func newGateway(t *testing.T) *gateway {
	w := newWorld(t)
	g := &gateway{world: w, node: w.netns("node"), ext: w.netns("ext")}
	g.node.AddLink("gw0", gwMAC, 1450, func(p *packet.Packet) { g.sent = append(g.sent, p) })
	w.wire(g.node, "eth0", []string{"172.18.0.11/16", "fd18::11/64"}, g.ext, "eth0", []string{"172.18.0.100/16", "fd18::100/64"})
	w.exec(g.node, "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	for _, cmd := range []string{
		"ip addr add 10.10.1.1/24 dev gw0", "ip addr add fd0a::1/64 dev gw0",
		"ip neigh add 10.10.1.2 lladdr " + podMAC.String() + " dev gw0", "ip neigh add fd0a::2 lladdr " + podMAC.String() + " dev gw0",
	} {
		w.exec(g.node, cmd)
	}
	g.ext.serve()
	g.node.serve()
	return g
}

// fromPod puts a packet of the Pod on gw0, with that source MAC, and returns the answer that came back
// there.
func (g *gateway) fromPod(src packet.MAC, p packet.Packet) string {
	g.t.Helper()
	g.sent = nil
	p.EthSrc, p.EthDst = src, gwMAC
	if !p.Src.IsValid() {
		p.Src = addr("10.10.1.2")
		if p.Dst.Is6() {
			p.Src = addr("fd0a::2")
		}
	}
	p.SetIPs(p.Src, p.Dst)
	if p.Proto == packet.ProtoTCP && p.TCPFlags == 0 {
		p.TCPFlags = packet.SYN
	}
	g.node.Receive("gw0", &p)
	return g.answer()
}

func (g *gateway) answer() string {
	if len(g.sent) == 0 {
		return "drop"
	}
	a := g.sent[len(g.sent)-1]
	switch {
	case a.IsICMPError():
		return fmt.Sprintf("icmp %d/%d from %s to %s about %s", a.ICMPType, a.ICMPCode, a.Src, a.Dst, a.Inner)
	case a.TCPFlags&packet.RST != 0:
		return "rst from " + a.Src.String()
	}
	return strings.TrimSpace(fmt.Sprintf("%s to %s %s", a.Src, a.Dst, a.Payload))
}

// egressRules is the whole of the host part of Egress in netdev mode: the source MAC carries the mark;
// NEW packets set it and save it to the connection, later ones restore it; SNAT goes by the mark.
func egressRules(v6 bool) []string {
	tool, eip := "iptables", "172.18.0.50"
	if v6 {
		tool, eip = "ip6tables", "fd18::50"
	}
	return []string{
		tool + " -t mangle -N TOWTANK-PREROUTING",
		tool + " -t mangle -A PREROUTING -m comment --comment towtank-0 -j TOWTANK-PREROUTING",
		tool + " -t mangle -A TOWTANK-PREROUTING -i gw0 -m conntrack --ctstate NEW -m mac --mac-source 0e:00:00:00:00:05 -m comment --comment towtank-100 -j MARK --set-xmark 0x5/0xff",
		tool + " -t mangle -A TOWTANK-PREROUTING -i gw0 -m conntrack --ctstate NEW -m mark ! --mark 0x0/0xff -m comment --comment towtank-200 -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff",
		tool + " -t mangle -A TOWTANK-PREROUTING -i gw0 -m conntrack ! --ctstate NEW --ctdir ORIGINAL -m comment --comment towtank-300 -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff",
		tool + " -t mangle -A TOWTANK-PREROUTING -i gw0 -m conntrack --ctstate NEW -m mac ! --mac-source " + virtualMAC.String() + " -m mark --mark 0x0/0xff -m comment --comment towtank-900 -j DROP",
		tool + " -t nat -N TOWTANK-POSTROUTING",
		tool + " -t nat -A POSTROUTING -m comment --comment towtank-0 -j TOWTANK-POSTROUTING",
		tool + " -t nat -A TOWTANK-POSTROUTING ! -o gw0 -m mark --mark 0x5/0xff -m comment --comment towtank-100 -j SNAT --to-source " + eip,
	}
}

func (g *gateway) applyTexts(texts ...string) {
	g.t.Helper()
	var objects []datapath.Object
	for _, s := range texts {
		objects = append(objects, g.obj(s))
	}
	g.apply(g.node, objects...)
}

func TestEgressByMACAndMark(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		g := newGateway(t)
		eip, ext, masq := "172.18.0.50", "172.18.0.100", "172.18.0.11"
		if v6 {
			eip, ext, masq = "fd18::50", "fd18::100", "fd18::11"
		}
		g.applyTexts(egressRules(v6)...)
		tool, len, pod := "iptables", "/32", "10.10.1.0/24"
		if v6 {
			tool, len, pod = "ip6tables", "/128 nodad preferred_lft 0", "fd0a::/64"
		}
		g.exec(g.node, "ip addr add "+eip+len+" dev eth0")
		g.exec(g.node, tool+" -t nat -A POSTROUTING -s "+pod+" ! -o gw0 -j MASQUERADE")
		carrier := packet.MAC{0x0e, 0, 0, 0, 0, 5}
		p := packet.Packet{Dst: addr(ext), Proto: packet.ProtoTCP, SrcPort: 1000, DstPort: 8080}
		pod2 := "10.10.1.2"
		if v6 {
			pod2 = "fd0a::2"
		}
		want(t, "carrier", g.fromPod(carrier, p), fmt.Sprintf("%s to %s src=%s dst=%s", ext, pod2, eip, ext))
		// The rest of the connection needs no carrier: the connection mark has it.
		p.TCPFlags = packet.ACK | packet.PSH
		want(t, "later packet", g.fromPod(virtualMAC, p), fmt.Sprintf("%s to %s src=%s dst=%s", ext, pod2, eip, ext))
		for _, c := range g.node.DumpConntrack() {
			if c.Mark != 5 {
				t.Errorf("mark %d of %v", c.Mark, c)
			}
		}
		p.TCPFlags, p.SrcPort = 0, 1001
		want(t, "virtual MAC: masqueraded", g.fromPod(virtualMAC, p), fmt.Sprintf("%s to %s src=%s dst=%s", ext, pod2, masq, ext))
		p.SrcPort = 1002
		want(t, "unknown carrier: fails closed", g.fromPod(packet.MAC{0x0e, 0, 0, 0, 0, 6}, p), "drop")
		p.Proto, p.DstPort = packet.ProtoUDP, 81
		p.SrcPort = 1003
		got := g.fromPod(carrier, p)
		if !strings.Contains(got, "to "+pod2+" about") || !strings.Contains(got, "from "+ext) || !strings.Contains(got, pod2+"]:1003") && !strings.Contains(got, pod2+":1003") {
			t.Errorf("ICMP error of a translated packet: %s", got)
		}
	}
}

// A NodePort is answered by DNAT to a virtual address that is routed to the gateway device.
func TestNodePortByIPSet(t *testing.T) {
	g := newGateway(t)
	g.applyTexts(
		"create TOWTANK-NODEPORT hash:ip,port family inet",
		"add TOWTANK-NODEPORT 172.18.0.11,tcp:30080",
		"169.254.0.253 dev gw0 lladdr aa:bb:cc:dd:ee:ff nud permanent",
		"169.254.0.253 dev gw0 scope link",
		"169.254.0.252 via 169.254.0.253 dev gw0 onlink",
		"iptables -t nat -N TOWTANK-PREROUTING", "iptables -t nat -N TOWTANK-OUTPUT",
		"iptables -t nat -A PREROUTING -m comment --comment towtank-0 -j TOWTANK-PREROUTING",
		"iptables -t nat -A OUTPUT -m comment --comment towtank-0 -j TOWTANK-OUTPUT",
		"iptables -t nat -A TOWTANK-PREROUTING -m set --match-set TOWTANK-NODEPORT dst,dst -m comment --comment towtank-0 -j DNAT --to-destination 169.254.0.252",
		"iptables -t nat -A TOWTANK-OUTPUT -m set --match-set TOWTANK-NODEPORT dst,dst -m comment --comment towtank-0 -j DNAT --to-destination 169.254.0.252",
		"iptables -t nat -N TOWTANK-POSTROUTING",
		"iptables -t nat -A POSTROUTING -m comment --comment towtank-0 -j TOWTANK-POSTROUTING",
		"iptables -t nat -A TOWTANK-POSTROUTING -o gw0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -m comment --comment towtank-0 -j MASQUERADE",
	)
	// The switch answers in the name of the virtual address.
	var seen string
	l := g.node.Link("gw0")
	l.transmit = func(p *packet.Packet) {
		seen = fmt.Sprintf("%s to %s via %s", p.Src, p.Dst, p.EthDst)
		a := &packet.Packet{
			EthSrc: virtualMAC, EthDst: gwMAC, Proto: p.Proto, SrcPort: p.DstPort, DstPort: p.SrcPort, TCPFlags: packet.SYN | packet.ACK, Payload: "backend",
		}
		a.SetIPs(p.Dst, p.Src)
		if p.TCPFlags == packet.SYN {
			g.node.Receive("gw0", a)
		}
	}
	want(t, "from outside", g.probe(g.ext, packet.ProtoTCP, "172.18.0.11", 30080), "ok from 172.18.0.11 backend")
	want(t, "what the switch saw", seen, "172.18.0.100 to 169.254.0.252 via aa:bb:cc:dd:ee:ff")
	want(t, "another port", g.probe(g.ext, packet.ProtoTCP, "172.18.0.11", 30081), "rst from 172.18.0.11")
	want(t, "another protocol", g.probe(g.ext, packet.ProtoUDP, "172.18.0.11", 30080), "icmp 3/3 from 172.18.0.11")
	want(t, "from the node", g.probe(g.node, packet.ProtoTCP, "172.18.0.11", 30080), "ok from 172.18.0.11 backend")
	want(t, "what the switch saw", seen, "10.10.1.1 to 169.254.0.252 via aa:bb:cc:dd:ee:ff")
}

func TestMasqueradeKeepsThePortUnlessTaken(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		g := newGateway(t)
		tool, ext, a, b := "iptables", "172.18.0.100", "10.10.1.2", "10.10.1.3"
		if v6 {
			tool, ext, a, b = "ip6tables", "fd18::100", "fd0a::2", "fd0a::3"
		}
		g.exec(g.node, tool+" -t nat -A POSTROUTING -o eth0 -j MASQUERADE")
		g.exec(g.node, "ip neigh add "+b+" lladdr 0a:00:00:00:00:03 dev gw0")
		for i, c := range []struct {
			src  string
			port uint16
		}{{a, 40000}, {b, 40001}, {a, 65535}, {b, 1024}} {
			sport := uint16(40000)
			if i >= 2 {
				sport = 65535
			}
			p := packet.Packet{Src: addr(c.src), Dst: addr(ext), Proto: packet.ProtoUDP, SrcPort: sport, DstPort: 8080}
			if got := g.fromPod(podMAC, p); !strings.HasPrefix(got, ext+" to "+c.src) {
				t.Fatalf("%s: %s", c.src, got)
			}
			d := g.node.DumpConntrack()
			if e := d[len(d)-1]; e.ReplyDst.Port() != c.port {
				t.Errorf("%s port %d: translated to %s, want port %d", c.src, sport, e.ReplyDst, c.port)
			}
		}
	}
}

// An error about a packet that is translated already, because nobody answers for its next hop, reaches
// the one who sent it.
func TestHostUnreachableBehindMasquerade(t *testing.T) {
	g := newGateway(t)
	g.exec(g.node, "iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE")
	g.exec(g.node, "ip6tables -t nat -A POSTROUTING -o eth0 -j MASQUERADE")
	for dst, exp := range map[string]string{
		"172.18.9.9": "icmp 3/1 from 172.18.0.11 to 10.10.1.2 about udp 10.10.1.2:9 -> 172.18.9.9:53",
		"fd18::9:9":  "icmp 1/3 from fd18::11 to fd0a::2 about udp [fd0a::2]:9 -> [fd18::9:9]:53",
	} {
		want(t, dst, g.fromPod(podMAC, packet.Packet{Dst: addr(dst), Proto: packet.ProtoUDP, SrcPort: 9, DstPort: 53}), "drop")
		g.advance(3 * time.Second)
		want(t, dst+" after 3 s", g.answer(), exp)
	}
}

// The end of a tap without its switch: frames are lost, nothing else changes.
func TestCarrier(t *testing.T) {
	g := newGateway(t)
	before := g.exec(g.node, "ip route")
	if err := g.node.SetCarrier("gw0", false); err != nil {
		t.Fatal(err)
	}
	g.exec(g.ext, "ip route add 10.10.1.0/24 via 172.18.0.11")
	want(t, "without carrier", g.probe(g.ext, packet.ProtoICMP, "10.10.1.2", 0), "drop")
	want(t, "routes", g.exec(g.node, "ip route"), before)
	if err := g.node.SetCarrier("gw0", true); err != nil {
		t.Fatal(err)
	}
	g.sent = nil
	g.probe(g.ext, packet.ProtoICMP, "10.10.1.2", 0)
	if len(g.sent) != 1 {
		t.Errorf("with carrier: %d frames", len(g.sent))
	}
}

// Entries that were masqueraded with an address end with it; others stay.
func TestConntrackTimersAndFlush(t *testing.T) {
	g := newGateway(t)
	g.exec(g.node, "iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE")
	count := func() int { return len(g.node.DumpConntrack()) }
	udp := packet.Packet{Dst: addr("172.18.0.100"), Proto: packet.ProtoUDP, SrcPort: 7, DstPort: 8080}
	g.fromPod(podMAC, udp)
	g.advance(29 * time.Second)
	if count() != 1 {
		t.Errorf("UDP after 29 s: %d entries", count())
	}
	g.fromPod(podMAC, udp) // a stream now: 120 s
	g.advance(119 * time.Second)
	if count() != 1 {
		t.Errorf("UDP stream after 119 s: %d entries", count())
	}
	g.advance(time.Second)
	if count() != 0 {
		t.Errorf("UDP stream after 120 s: %d entries: %s", count(), g.node.ConntrackText())
	}
	tcp := packet.Packet{Dst: addr("172.18.0.100"), Proto: packet.ProtoTCP, SrcPort: 7, DstPort: 8080}
	g.fromPod(podMAC, tcp)
	tcp.TCPFlags = packet.ACK
	g.fromPod(podMAC, tcp)
	g.advance(4 * 24 * time.Hour / 1000) // the timer is 5 days; a sample is enough
	if count() != 1 || !strings.Contains(g.node.ConntrackText(), "ESTABLISHED src=10.10.1.2 dst=172.18.0.100 sport=7 dport=8080 src=172.18.0.100 dst=172.18.0.11 sport=8080 dport=7 [ASSURED]") {
		t.Errorf("established: %s", g.node.ConntrackText())
	}
	g.fromPod(podMAC, udp)
	if n := g.node.FlushConntrack([]datapath.Tuple{{Proto: packet.ProtoUDP, Frontend: mustAddrPort("172.18.0.100:8080"), Backend: mustAddrPort("172.18.0.100:8080")}}); n != 1 || count() != 1 {
		t.Errorf("flush: %d deleted, %d left", n, count())
	}
	if n := g.node.FlushConntrack([]datapath.Tuple{{Proto: packet.ProtoTCP, Source: addr("10.10.1.9")}}); n != 0 {
		t.Errorf("flush of another source: %d deleted", n)
	}
	g.exec(g.node, "ip addr del 172.18.0.11/16 dev eth0")
	if count() != 0 {
		t.Errorf("after the address went: %s", g.node.ConntrackText())
	}
}

func TestFilterTargets(t *testing.T) {
	for _, c := range []struct {
		rule, tcp, udp string
	}{
		{"-I FORWARD -i gw0 -p tcp --dport 8080 -j REJECT --reject-with tcp-reset", "rst from 172.18.0.100", "172.18.0.100 to"},
		{"-I FORWARD -i gw0 -j REJECT", "icmp 3/3 from 10.10.1.1 to 10.10.1.2", "icmp 3/3 from 10.10.1.1 to 10.10.1.2"},
		{"-I FORWARD -i gw+ -p udp -j DROP", "172.18.0.100 to", "drop"},
		{"-P FORWARD DROP", "drop", "drop"},
		{"-I FORWARD ! -i gw0 -m conntrack --ctstate ESTABLISHED -j DROP", "drop", "drop"},
		{"-I FORWARD -p tcp -m multiport --dports 1:3,8080 -j DROP", "drop", "172.18.0.100 to"},
		{"-I FORWARD -m conntrack --ctorigdst 172.18.0.100 --ctdir REPLY -j DROP", "drop", "drop"},
		{"-t raw -I PREROUTING -i gw0 -p udp -j CT --notrack", "172.18.0.100 to", "172.18.0.100 to"},
	} {
		g := newGateway(t)
		g.exec(g.ext, "ip route add 10.10.1.0/24 via 172.18.0.11")
		g.exec(g.node, "iptables "+c.rule)
		for proto, exp := range map[uint8]string{packet.ProtoTCP: c.tcp, packet.ProtoUDP: c.udp} {
			got := g.fromPod(podMAC, packet.Packet{Dst: addr("172.18.0.100"), Proto: proto, SrcPort: 5, DstPort: 8080})
			if !strings.HasPrefix(got, exp) {
				t.Errorf("%s, %s: got %s, want %s…", c.rule, packet.ProtoName(proto), got, exp)
			}
		}
	}
}

// The trace names the rules that changed something, NAT before and after, the route, and the end.
func TestTrace(t *testing.T) {
	g := newGateway(t)
	g.applyTexts(egressRules(false)...)
	g.exec(g.node, "ip addr add 172.18.0.50/32 dev eth0")
	var s steps
	g.node.SetTracer(&s, "n1")
	g.fromPod(packet.MAC{0x0e, 0, 0, 0, 0, 5}, packet.Packet{Dst: addr("172.18.0.100"), Proto: packet.ProtoUDP, SrcPort: 9, DstPort: 8080})
	got := strings.Join(s.s, "\n")
	for _, line := range []string{
		"n1 mangle PREROUTING: -A TOWTANK-PREROUTING -i gw0 -m conntrack --ctstate NEW -m mac --mac-source 0e:00:00:00:00:05 -m comment --comment towtank-100 -j MARK --set-xmark 0x5/0xff",
		"n1 route: 172.18.0.0/16 dev eth0 proto kernel scope link src 172.18.0.11",
		"n1 nat POSTROUTING: -A TOWTANK-POSTROUTING ! -o gw0 -m mark --mark 0x5/0xff -m comment --comment towtank-100 -j SNAT --to-source 172.18.0.50",
		"n1 nat POSTROUTING: udp 10.10.1.2:9 -> 172.18.0.100:8080 => udp 172.18.0.50:9 -> 172.18.0.100:8080",
		"n1 nat PREROUTING: udp 172.18.0.100:8080 -> 172.18.0.50:9 => udp 172.18.0.100:8080 -> 10.10.1.2:9",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no step %q in\n%s", line, got)
		}
	}
	s.s = nil
	g.fromPod(podMAC, packet.Packet{Dst: addr("172.18.0.100"), Proto: packet.ProtoUDP, SrcPort: 10, DstPort: 8080})
	if len(s.s) != 1 || !strings.HasSuffix(s.s[0], "-j DROP DROP") {
		t.Errorf("dropped packet: %q", s.s)
	}
}
