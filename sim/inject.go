package sim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"towtank/sim/host"
	"towtank/sim/packet"
)

// Injected is what became of a raw packet.
type Injected struct {
	// Left is set if it left a switch by any port.
	Left bool
	// Changed names the neighbour entries that it changed.
	Changed []string
	Result  Result // what a receiver saw, if one did
}

// Field is one field of a raw packet, named as OVS matches it.
type Field struct{ Name, Value string }

// Inject sends one raw packet out of a Pod's or external host's interface: the fields as given, the
// rest as the sender would set it.
func (w *World) Inject(src *Source, fields []Field) (Injected, error) {
	var out Injected
	if src.NS == nil {
		return out, fmt.Errorf("%s does not run", src.Name)
	}
	sender, err := src.raw()
	if err != nil {
		return out, err
	}
	p, err := RawPacket(sender, fields)
	if err != nil {
		return out, err
	}
	t := w.traffic
	t.next++
	p.Trace = t.next
	v6 := p.Src.Is6()
	t.cur = &flight{id: p.Trace, result: &out.Result, from: src, src: src.Addr(v6), dialled: p.Dst, sport: p.SrcPort}
	before := w.neighbours()
	err = src.NS.Transmit(Uplink, p)
	out.Left = t.cur.switched
	t.cur = nil
	after := w.neighbours()
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if before[k] != after[k] {
			out.Changed = append(out.Changed, k+" "+after[k])
		}
	}
	return out, err
}

// neighbours returns every neighbour entry of every machine, as text.
func (w *World) neighbours() map[string]string {
	out := map[string]string{}
	add := func(name string, ns *host.Netns) {
		text, err := ns.Exec("ip neigh show")
		if err != nil {
			w.problem(name + ": " + err.Error())
			return
		}
		for l := range strings.Lines(text) {
			f := strings.Fields(l)
			if i := slices.Index(f, "lladdr"); i >= 0 && i+1 < len(f) && len(f) > 2 {
				out[name+" "+f[0]+" "+f[2]] = f[i+1]
			}
		}
	}
	for _, n := range w.nodeOrder {
		add(n.name, n.ns)
	}
	for _, x := range w.extOrder {
		add(x.name, x.ns)
	}
	for _, s := range w.runtime.running() {
		add(s.pod, s.ns)
	}
	return out
}

// RawSender is who sends a raw packet, as its interface has it.
type RawSender struct {
	MAC packet.MAC
	// Addr and Gateway are invalid if there is none of the family.
	Addr, Gateway func(v6 bool) netip.Addr
	// Neighbour asks for the Ethernet address of a neighbour.
	Neighbour func(ip netip.Addr) (packet.MAC, bool)
}

// raw returns the source as the sender of a raw packet.
func (s *Source) raw() (RawSender, error) {
	l := s.NS.Link(Uplink)
	if l == nil {
		return RawSender{}, fmt.Errorf("%s has no interface %s", s.Name, Uplink)
	}
	return RawSender{
		MAC: l.MAC(), Addr: s.Addr, Gateway: func(v6 bool) netip.Addr { return gatewayOf(s, v6) },
		Neighbour: func(ip netip.Addr) (packet.MAC, bool) {
			if mac, ok := s.NS.Neighbour(Uplink, ip); ok {
				return mac, true
			}
			if ip != gatewayOf(s, ip.Is6()) {
				return packet.MAC{}, false
			}
			s.worldAsk(ip)
			return s.NS.Neighbour(Uplink, ip)
		},
	}, nil
}

// RawPacket makes a packet: the fields as given, the rest as the sender would set it.
func RawPacket(src RawSender, fields []Field) (*packet.Packet, error) {
	v := map[string]string{}
	for _, f := range fields {
		v[f.Name] = f.Value
	}
	has := func(prefix string) bool {
		for k := range v {
			if strings.HasPrefix(k, prefix) {
				return true
			}
		}
		return false
	}
	p := &packet.Packet{EthSrc: src.MAC, TTL: 64}
	v6 := has("ipv6_") || has("icmpv6_") || has("nd_") || (!src.Addr(false).IsValid())
	gw := src.Gateway(v6)
	switch {
	case has("arp_") || v["dl_type"] == "0x0806" || v["dl_type"] == "2054":
		p.EthType, p.EthDst = packet.EthARP, packet.Broadcast
		p.ARPOp, p.ARPSHA, p.ARPSPA, p.ARPTPA = 1, p.EthSrc, src.Addr(false), gw
	default:
		p.SetIPs(src.Addr(v6), gw)
		p.Proto, p.SrcPort, p.DstPort, p.TCPFlags = packet.ProtoTCP, 50000, 8080, packet.SYN
		if has("udp_") {
			p.Proto = packet.ProtoUDP
		}
		if has("sctp_") {
			p.Proto = packet.ProtoSCTP
		}
		if has("icmp_") {
			p.Proto, p.ICMPType = packet.ProtoICMP, packet.ICMPEchoRequest
		}
		if has("icmpv6_") || has("nd_") || has("icmp_") && v6 {
			p.Proto, p.ICMPType = packet.ProtoICMPv6, packet.ICMPv6EchoRequest
		}
		if has("nd_") {
			p.ICMPType = packet.ICMPv6NeighSolicit
			if has("nd_tll") {
				p.ICMPType = packet.ICMPv6NeighAdvert
			}
			p.TTL = 255
		}
	}
	for _, f := range fields {
		if err := setField(p, f); err != nil {
			return nil, fmt.Errorf("%s=%s: %w", f.Name, f.Value, err)
		}
	}
	if p.Proto != packet.ProtoTCP {
		p.TCPFlags = 0
	}
	if _, given := v["dl_dst"]; !given && p.IsIP() {
		mac, ok := src.Neighbour(p.Dst)
		if !ok {
			mac, ok = src.Neighbour(gw)
		}
		if ok {
			p.EthDst = mac
		}
	}
	return p, nil
}

// gatewayOf returns the next hop of a source for the family.
func gatewayOf(src *Source, v6 bool) netip.Addr {
	if src.Node != nil {
		return src.Node.Gateway(v6)
	}
	if src.Ext != nil && src.Ext.nextHop() != nil {
		return src.Ext.nextHop().transport(v6)
	}
	return netip.Addr{}
}

func (s *Source) worldAsk(ip netip.Addr) {
	if s.Node != nil {
		s.Node.world.ask(s.NS, ip)
	} else if s.Ext != nil {
		s.Ext.world.ask(s.NS, ip)
	}
}

func setField(p *packet.Packet, f Field) error {
	number := func() (uint64, error) { return strconv.ParseUint(f.Value, 0, 32) }
	var err error
	var n uint64
	switch f.Name {
	case "dl_src":
		p.EthSrc, err = packet.ParseMAC(f.Value)
	case "dl_dst":
		p.EthDst, err = packet.ParseMAC(f.Value)
	case "arp_sha":
		p.ARPSHA, err = packet.ParseMAC(f.Value)
	case "arp_tha":
		p.ARPTHA, err = packet.ParseMAC(f.Value)
	case "nd_sll":
		p.NDSLL, err = packet.ParseMAC(f.Value)
	case "nd_tll":
		p.NDTLL, err = packet.ParseMAC(f.Value)
	case "nw_src", "ipv6_src":
		p.Src, err = netip.ParseAddr(f.Value)
	case "nw_dst", "ipv6_dst":
		p.Dst, err = netip.ParseAddr(f.Value)
	case "arp_spa":
		p.ARPSPA, err = netip.ParseAddr(f.Value)
	case "arp_tpa":
		p.ARPTPA, err = netip.ParseAddr(f.Value)
	case "nd_target":
		p.NDTarget, err = netip.ParseAddr(f.Value)
	case "tcp_flags":
		for i, name := range []string{"fin", "syn", "rst", "psh", "ack"} {
			if i == 0 {
				p.TCPFlags = 0
			}
			if slices.Contains(strings.Split(f.Value, "|"), name) {
				p.TCPFlags |= 1 << i
			}
		}
	default:
		if n, err = number(); err != nil {
			return err
		}
		setNumber(p, f.Name, n)
	}
	return err
}

func setNumber(p *packet.Packet, name string, n uint64) {
	switch name {
	case "dl_type":
		p.EthType = uint16(n)
	case "dl_vlan":
		p.VLAN = uint16(n) | 0x1000
	case "dl_vlan_pcp":
		p.VLANPriority = uint8(n)
	case "nw_proto":
		p.Proto = uint8(n)
	case "nw_ttl":
		p.TTL = uint8(n)
	case "nw_tos":
		p.TOS = uint8(n)
	case "tp_src", "tcp_src", "udp_src", "sctp_src":
		p.SrcPort = uint16(n)
	case "tp_dst", "tcp_dst", "udp_dst", "sctp_dst":
		p.DstPort = uint16(n)
	case "icmp_type", "icmpv6_type":
		p.ICMPType = uint8(n)
	case "icmp_code", "icmpv6_code":
		p.ICMPCode = uint8(n)
	case "arp_op":
		p.ARPOp = uint16(n)
	}
}
