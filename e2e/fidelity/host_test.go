//go:build linux

package fidelity

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"towtank/sim/packet"
)

// Random routes, rules, ipsets and iptables, and random packets: what is refused and what leaves by which link is the
// same for the model of the host and for Linux. TOWTANK_HOSTS and TOWTANK_SEED say how many, and where to begin.
func TestModelIsAsLinux(t *testing.T) {
	if err := rooted(); err != nil {
		if os.Getenv("TOWTANK_ROOT") == "1" {
			t.Fatal(err)
		}
		t.Skip(err) // a developer's machine; CI fails above
	}
	first, count := number("TOWTANK_SEED", 1), number("TOWTANK_HOSTS", 8)
	met := map[string]int{}
	differ := 0
	for seed := first; seed < first+count && differ < 5; seed++ {
		if why := compareRouters(t, newHostGenerator(seed), met); why != "" {
			differ++
			t.Errorf("TOWTANK_SEED=%d TOWTANK_HOSTS=1: %s", seed, why)
		}
	}
	t.Logf("%d hosts: %v", count, met)
	if count < 8 {
		return
	}
	for _, what := range []string{"refused", "forwarded", "answered", "dropped", "translated", "told a MAC"} {
		if met[what] == 0 {
			t.Errorf("%d hosts, and no packet or command was %s", count, what)
		}
	}
}

// rooted says why namespaces cannot be made here.
func rooted() error {
	if os.Getuid() != 0 {
		return fmt.Errorf("not root")
	}
	for _, tool := range []string{"ip", "iptables", "ip6tables", "ipset", "ethtool", "sysctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	return nil
}

// packetsOfHost is how many packets go through one host.
const packetsOfHost = 60

func compareRouters(t *testing.T, g hostGenerator, met map[string]int) string {
	model, real := newModelRouter(), newKernelRouter(t)
	defer real.close()
	var written []string
	for _, c := range g.commands() {
		a, b := model.do(c), real.do(c)
		if (a == nil) != (b == nil) {
			return fmt.Sprintf("%s\nis refused by one only: the model says %v, Linux %v\nafter\n  %s", c, a, b, strings.Join(written, "\n  "))
		}
		if a == nil {
			written = append(written, c)
		} else {
			met["refused"]++
		}
	}
	var way []string
	var seen []left
	for range packetsOfHost {
		i, p := g.packet(seen)
		frame, err := packet.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		way = append(way, fmt.Sprintf("%s: %s %s > %s ttl=%d", linkName(i), p, p.EthSrc, p.EthDst, p.TTL))
		out := real.send(i, frame)
		a, b := texts(model.send(i, frame)), texts(out)
		if !slices.Equal(a, b) || model.err != nil {
			return fmt.Sprintf("packets:\n  %s\ncommands:\n  %s\nout of the model: %v\n  %s\nout of Linux:\n  %s",
				strings.Join(way, "\n  "), strings.Join(written, "\n  "), model.err, strings.Join(a, "\n  "), strings.Join(b, "\n  "))
		}
		note2(met, i, p, out)
		seen = append(seen, out...)
	}
	return ""
}

// note2 counts what became of a packet.
func note2(met map[string]int, in int, p *packet.Packet, out []left) {
	met["packets"]++
	if len(out) == 0 {
		met["dropped"]++
	}
	for _, l := range out {
		q, _, err := packet.Unmarshal(l.frame)
		switch {
		case err != nil:
		case q.EthType == packet.EthARP, q.Proto == packet.ProtoICMPv6 && q.ICMPType == packet.ICMPv6NeighAdvert:
			met["told a MAC"]++
		case q.Dst == p.Src && l.link == in && !p.IsICMPError():
			met["answered"]++
		case q.Src != p.Src || q.Dst != p.Dst || q.DstPort != p.DstPort:
			met["translated"]++
		default:
			met["forwarded"]++
		}
	}
}

// texts returns what left, in an order of its own, without what nobody chose.
func texts(list []left) (out []string) {
	for _, l := range list {
		p, _, err := packet.Unmarshal(l.frame)
		if err != nil {
			out = append(out, fmt.Sprintf("%s: %v: %x", linkName(l.link), err, l.frame))
			continue
		}
		if p.Proto == packet.ProtoICMPv6 && p.ICMPType == packet.ICMPv6NeighAdvert {
			out = append(out, fmt.Sprintf("%s: advertisement %s -> %s of %s tll=%s ttl=%d %s > %s", linkName(l.link), p.Src, p.Dst, p.NDTarget, p.NDTLL, p.TTL, p.EthSrc, p.EthDst))
			continue
		}
		if p.Dst.IsMulticast() || p.Proto == packet.ProtoICMP && p.ICMPType == 3 && p.ICMPCode == 0 {
			continue // Linux says only now and then that there is no route (net.ipv4.route.error_cost, of the whole machine)
		}
		if p.Proto == packet.ProtoICMPv6 && p.ICMPType >= 130 && p.ICMPType <= 143 {
			continue // neighbours, routers and groups: the kernel's own affair
		}
		inner := ""
		if p.Inner != nil {
			inner = fmt.Sprintf(" of %s", p.Inner)
		}
		out = append(out, fmt.Sprintf("%s: %s%s ttl=%d %s > %s", linkName(l.link), p, inner, p.TTL, p.EthSrc, p.EthDst))
	}
	slices.Sort(out)
	return out
}

// hostGenerator makes commands and packets.
type hostGenerator struct {
	generator
	ports *uint16 // the last source port
	last  *sent   // the last packet with ports
	open6 *bool   // nothing filters IPv6, which neighbour discovery would meet in Linux, and does not in the model
}

// sent is a packet and the link that it went to.
type sent struct {
	link int
	p    *packet.Packet
}

func newHostGenerator(seed int) hostGenerator {
	ports := uint16(2000)
	return hostGenerator{generator{Rand: rand.New(rand.NewPCG(uint64(seed), 2))}, &ports, &sent{}, new(bool)}
}

// Addresses: .1 is the router's, .2 and .9 are neighbours, and 10.9.i.0/24 is behind the neighbour of link i.
func onLink(i int, v6 bool, last int) string {
	if v6 {
		return fmt.Sprintf("fd0%d::%d", i+1, last)
	}
	return fmt.Sprintf("10.%d.0.%d", i+1, last)
}

func behind(i int, v6 bool) string {
	if v6 {
		return fmt.Sprintf("fd09:%d::5", i+1)
	}
	return fmt.Sprintf("10.9.%d.5", i+1)
}

func (g hostGenerator) link() int { return g.IntN(routerLinks) }

// commands returns what is typed, in order.
func (g hostGenerator) commands() (list []string) {
	add := func(format string, a ...any) { list = append(list, fmt.Sprintf(format, a...)) }
	for i := range routerLinks {
		for _, v6 := range []bool{false, true} {
			ip, bits, far, nodad := "ip", 24, 24, ""
			if v6 {
				ip, bits, far, nodad = "ip -6", 64, 32, " nodad"
			}
			add("%s addr add %s/%d dev %s%s", ip, onLink(i, v6, 1), bits, linkName(i), nodad)
			for _, last := range []int{2, 9} {
				add("%s neigh add %s lladdr %s dev %s nud permanent", ip, onLink(i, v6, last), peerMAC(i), linkName(i))
			}
			if g.chance(80) {
				add("%s route add %s/%d via %s", ip, netip.MustParsePrefix(behind(i, v6)+fmt.Sprintf("/%d", far)).Masked().Addr(), far, onLink(i, v6, 2))
			}
		}
	}
	add("sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	for range g.IntN(3) {
		add("sysctl -w net.ipv4.conf.%s.rp_filter=%d", g.of("all", linkName(g.link())), g.IntN(3))
	}
	for range g.IntN(4) {
		l := linkName(g.link())
		list = append(list, g.of("sysctl -w net.ipv4.conf."+l+".proxy_arp=1", fmt.Sprintf("sysctl -w net.ipv4.conf.%s.arp_ignore=%d", l, 1+g.IntN(2)),
			"sysctl -w net.ipv4.conf."+l+".accept_local=1", "sysctl -w net.ipv6.conf."+l+".proxy_ndp=1", "ip -6 neigh add proxy "+g.of(onLink(g.link(), true, 9), behind(g.link(), true))+" dev "+l,
			"ip neigh add proxy "+g.of(onLink(g.link(), false, 9), behind(g.link(), false))+" dev "+l))
	}
	list = append(list, g.routes()...)
	list = append(list, g.sets()...)
	*g.open6 = g.chance(30)
	for _, tool := range []string{"iptables", "ip6tables"} {
		if tool == "ip6tables" && *g.open6 {
			continue
		}
		list = append(list, g.tables(tool == "ip6tables", tool)...)
	}
	return list
}

func (g hostGenerator) routes() (list []string) {
	add := func(format string, a ...any) { list = append(list, fmt.Sprintf(format, a...)) }
	for _, v6 := range []bool{false, true} {
		ip, everything, virtual := "ip", "10.0.0.0/8", "10.96.0.0/16"
		if v6 {
			ip, everything, virtual = "ip -6", "fd00::/8", "fd96::/64"
		}
		if g.chance(40) {
			add("%s route add default via %s", ip, onLink(g.link(), v6, 2))
		}
		if g.chance(30) {
			add("%s route add blackhole %s", ip, virtual)
		} else if g.chance(50) {
			add("%s route add %s via %s", ip, virtual, onLink(g.link(), v6, 9))
		}
		if g.chance(60) {
			add("%s route add %s via %s table 101", ip, g.of("default", everything, virtual), onLink(g.link(), v6, g.IntN(2)*7+2))
		}
		for range g.IntN(3) {
			add("%s rule add %s lookup %s", ip, g.of("fwmark 0x1/0xff", "fwmark 0x2/0xff", "from "+onLink(g.link(), v6, 2), "iif "+linkName(g.link())), g.of("101", "101", "main"))
		}
		if g.chance(10) {
			add("%s route add %s via %s", ip, everything, map[bool]string{false: "9.9.9.9", true: "fd77::9"}[v6]) // nobody there
		}
	}
	return list
}

func (g hostGenerator) sets() (list []string) {
	for _, v6 := range []bool{false, true} {
		n, family, net := "", "", "10.9.0.0/16"
		if v6 {
			n, family, net = "6", " family inet6", "fd09::/16"
		}
		list = append(list, "ipset create IP"+n+" hash:ip"+family, "ipset create NET"+n+" hash:net"+family, "ipset create PORT"+n+" hash:ip,port"+family)
		for range 1 + g.IntN(3) {
			list = append(list, fmt.Sprintf("ipset add IP%s %s", n, g.address(v6)), fmt.Sprintf("ipset add PORT%s %s,%s:%d", n, g.address(v6), g.of("tcp", "udp"), 80+g.IntN(2)))
		}
		list = append(list, fmt.Sprintf("ipset add NET%s %s", n, g.of(net, g.address(v6))))
	}
	return list
}

// address returns one that packets have.
func (g hostGenerator) address(v6 bool) string {
	virtual := "10.96.0.10"
	if v6 {
		virtual = "fd96::10"
	}
	return g.of(onLink(g.link(), v6, 1), onLink(g.link(), v6, 2), onLink(g.link(), v6, 2), onLink(g.link(), v6, 9), behind(g.link(), v6), virtual)
}

// chains are the built-in chains of each table.
var chains = map[string][]string{
	"raw": {"PREROUTING", "OUTPUT"}, "mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
	"nat": {"PREROUTING", "POSTROUTING", "OUTPUT"}, "filter": {"INPUT", "FORWARD", "OUTPUT"},
}

func (g hostGenerator) tables(v6 bool, tool string) (list []string) {
	for _, table := range []string{"raw", "mangle", "nat", "filter"} {
		own := table == "mangle" && g.chance(50)
		if own {
			list = append(list, fmt.Sprintf("%s -t mangle -N OWN", tool))
			for range 1 + g.IntN(2) {
				list = append(list, fmt.Sprintf("%s -t mangle -A OWN%s -j %s", tool, g.matches("OWN", v6), g.of("RETURN", "MARK --set-xmark 0x2/0xff", "MARK --or-mark 0x1")))
			}
		}
		for range g.IntN(5) {
			chain := chains[table][g.IntN(len(chains[table]))]
			target := g.target(table, chain, v6)
			if own && g.chance(40) {
				target = "OWN"
			}
			list = append(list, fmt.Sprintf("%s -t %s -A %s%s -j %s", tool, table, chain, g.matches(chain, v6), target))
		}
	}
	return list
}

func (g hostGenerator) matches(chain string, v6 bool) string {
	var m []string
	add := func(percent int, text string) {
		if g.chance(percent) {
			m = append(m, text)
		}
	}
	n := ""
	if v6 {
		n = "6"
	}
	if proto := g.of("", "", "tcp", "udp"); proto != "" {
		m = append(m, "-p "+proto)
		add(40, fmt.Sprintf("-m %s --dport %s", proto, g.of("80", "81", "80:81")))
		if proto == "tcp" {
			add(15, "--syn")
		}
	}
	add(20, "-s "+g.address(v6))
	add(20, g.of("", "", "! ")+"-d "+g.address(v6))
	add(1, "-d "+g.address(v6)) // twice is refused
	if chain != "POSTROUTING" && chain != "OUTPUT" && chain != "OWN" {
		add(25, "-i "+linkName(g.link()))
	}
	if chain == "POSTROUTING" || chain == "OUTPUT" || chain == "FORWARD" {
		add(25, "-o "+linkName(g.link()))
	}
	add(15, "-m conntrack --ctstate "+g.of("NEW", "ESTABLISHED", "RELATED,ESTABLISHED", "INVALID", "NEW,INVALID"))
	add(10, "-m mark --mark "+g.of("0x1/0xff", "0x2/0xff", "0/0xff"))
	add(15, "-m set --match-set "+g.of("IP"+n+" src", "IP"+n+" dst", "NET"+n+" dst", "PORT"+n+" dst,dst"))
	if chain == "PREROUTING" {
		add(10, "-m mac --mac-source "+peerMAC(g.link()).String())
	}
	add(8, "-m addrtype --dst-type LOCAL")
	if len(m) == 0 {
		return ""
	}
	return " " + strings.Join(m, " ")
}

func (g hostGenerator) target(table, chain string, v6 bool) string {
	to := g.address(v6)
	port := to + ":81"
	if v6 {
		port = "[" + to + "]:81"
	}
	switch table {
	case "raw":
		return g.of("ACCEPT", "DROP", "ACCEPT")
	case "mangle":
		return g.of("MARK --set-xmark 0x1/0xff", "MARK --set-xmark 0x2/0xff", "MARK --set-xmark 0x0/0xff", "ACCEPT", "RETURN",
			"CONNMARK --save-mark --nfmask 0xff --ctmask 0xff", "CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff", "DROP")
	case "nat":
		if chain == "POSTROUTING" {
			return g.of("MASQUERADE", "SNAT --to-source "+onLink(g.link(), v6, 1), "SNAT --to-source "+onLink(g.link(), v6, 9), "ACCEPT")
		}
		return g.of("ACCEPT", "DNAT --to-destination "+to, "DNAT --to-destination "+to, "DNAT --to-destination "+port)
	}
	return g.of("ACCEPT", "DROP", "REJECT", "REJECT --reject-with tcp-reset", "RETURN")
}

// arp returns an ARP request or reply, of whomever, and the link that it arrives at.
func (g hostGenerator) arp() (int, *packet.Packet) {
	i := g.link()
	p := &packet.Packet{EthType: packet.EthARP, EthSrc: peerMAC(i), EthDst: routerMAC(i), ARPOp: uint16(1 + g.IntN(10)/8), ARPSHA: peerMAC(i)}
	if p.ARPOp == 2 {
		p.ARPTHA = routerMAC(i)
	}
	sender := g.of(onLink(i, false, 2), onLink(i, false, 7), g.address(false), onLink(g.link(), false, 7), "0.0.0.0", "127.0.0.1", "0.0.0.5", "224.0.0.1", "255.255.255.255", "240.0.0.1")
	p.ARPSPA, p.ARPTPA = netip.MustParseAddr(sender), netip.MustParseAddr(g.of(onLink(i, false, 1), onLink(i, false, 1), g.address(false), onLink(g.link(), false, 7), g.of("127.0.0.1", "224.0.0.1", "0.0.0.0")))
	if g.chance(10) {
		p.ARPTPA = p.ARPSPA
	}
	return i, p
}

// solicitation returns a neighbour solicitation, of whomever, and the link that it arrives at.
func (g hostGenerator) solicitation() (int, *packet.Packet) {
	i := g.link()
	p := &packet.Packet{EthSrc: peerMAC(i), EthDst: routerMAC(i), TTL: 255, ICMPType: packet.ICMPv6NeighSolicit}
	p.NDTarget = netip.MustParseAddr(g.of(onLink(i, true, 1), onLink(i, true, 1), g.address(true), onLink(g.link(), true, 7)))
	src := g.of(onLink(i, true, 2), onLink(i, true, 7), onLink(g.link(), true, 7), behind(i, true), "::", "::1")
	dst := p.NDTarget
	if src == "::" || g.chance(50) {
		a := p.NDTarget.As16()
		dst = netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]})
		p.EthDst = packet.MAC{0x33, 0x33, 0xff, a[13], a[14], a[15]}
	}
	p.SetIPs(netip.MustParseAddr(src), dst)
	p.Proto = packet.ProtoICMPv6
	if g.chance(70) {
		p.NDSLL = peerMAC(i)
	}
	if g.chance(5) {
		p.TTL = 64
	}
	return i, p
}

// packet returns a random packet and the link that it arrives at. Often it answers one that came out.
func (g hostGenerator) packet(seen []left) (int, *packet.Packet) {
	if len(seen) > 0 && g.chance(40) {
		o := seen[len(seen)-1-g.IntN(min(len(seen), 4))]
		if q, _, err := packet.Unmarshal(o.frame); err == nil {
			if a := answer(q); a != nil {
				a.EthSrc, a.EthDst = peerMAC(o.link), routerMAC(o.link)
				return o.link, a
			}
		}
	}
	if g.last.p != nil && g.chance(15) {
		return g.last.link, g.last.p // once more
	}
	switch {
	case g.chance(12):
		return g.arp()
	case *g.open6 && g.chance(10):
		return g.solicitation()
	}
	i := g.link()
	v6 := g.chance(35)
	p := &packet.Packet{EthSrc: peerMAC(i), EthDst: routerMAC(i), TTL: 64}
	if g.chance(4) {
		p.TTL = 1
	}
	src := g.of(onLink(i, v6, 2), onLink(i, v6, 2), onLink(i, v6, 9), behind(i, v6))
	if g.chance(5) {
		src = onLink(g.link(), v6, 2) // not from there
	}
	p.SetIPs(netip.MustParseAddr(src), netip.MustParseAddr(g.address(v6)))
	switch g.IntN(5) {
	case 0, 1:
		p.Proto, p.TCPFlags, p.Seq = packet.ProtoTCP, packet.SYN, sequence
		if g.chance(6) {
			p.TCPFlags, p.Ack = packet.ACK, sequence
		}
	case 2, 3:
		p.Proto = packet.ProtoUDP
	default:
		*g.ports++
		p.Proto, p.ICMPType, p.ICMPID = packet.ProtoICMP, packet.ICMPEchoRequest, *g.ports
		if v6 {
			p.Proto, p.ICMPType = packet.ProtoICMPv6, packet.ICMPv6EchoRequest
		}
		return i, p
	}
	// A port of its own for each connection: which one a NAT takes when two meet is Linux's own choice.
	*g.ports++
	p.SrcPort, p.DstPort = *g.ports, uint16(80+g.IntN(2))
	*g.last = sent{i, p}
	return i, p
}
