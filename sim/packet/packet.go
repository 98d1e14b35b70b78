// Package packet is the packet of the simulated network: one parsed value that the switch model,
// the host model and the scenarios share. Every field is named as OVS names it where it has a name.
package packet

import (
	"fmt"
	"net/netip"
	"strings"
)

// MAC is an Ethernet address.
type MAC [6]byte

// String returns the address in colon notation.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// ParseMAC parses colon notation, lower or upper case.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) == 17 {
		if n, err := fmt.Sscanf(s, "%02x:%02x:%02x:%02x:%02x:%02x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]); n == 6 && err == nil {
			return m, nil
		}
	}
	return m, fmt.Errorf("MAC address %q: want six hexadecimal bytes as 0a:00:00:00:00:01", s)
}

// Broadcast is ff:ff:ff:ff:ff:ff.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// IsMulticast reports whether the address is a group address (broadcast included).
func (m MAC) IsMulticast() bool { return m[0]&1 == 1 }

// Ethernet types.
const (
	EthIPv4 uint16 = 0x0800
	EthARP  uint16 = 0x0806
	EthIPv6 uint16 = 0x86dd
)

// IP protocol numbers.
const (
	ProtoICMP   uint8 = 1
	ProtoTCP    uint8 = 6
	ProtoUDP    uint8 = 17
	ProtoICMPv6 uint8 = 58
	ProtoSCTP   uint8 = 132
)

// TCP flags.
const (
	FIN uint8 = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// ICMP types and codes that the model makes or reads.
const (
	ICMPEchoReply      uint8 = 0
	ICMPUnreachable    uint8 = 3 // code 0 net, 1 host, 3 port, 4 fragmentation needed, 10 host prohibited, 13 admin prohibited
	ICMPEchoRequest    uint8 = 8
	ICMPTimeExceeded   uint8 = 11
	ICMPv6Unreachable  uint8 = 1 // code 0 no route, 1 prohibited, 3 address, 4 port
	ICMPv6PacketTooBig uint8 = 2
	ICMPv6TimeExceeded uint8 = 3
	ICMPv6EchoRequest  uint8 = 128
	ICMPv6EchoReply    uint8 = 129
	ICMPv6NeighSolicit uint8 = 135
	ICMPv6NeighAdvert  uint8 = 136
)

// Packet is one Ethernet frame. A zero EthType never occurs on the wire. Packets are passed by
// pointer and owned by whoever holds them: a device that keeps or changes a packet it does not own
// clones it first.
type Packet struct {
	EthSrc, EthDst MAC
	EthType        uint16
	VLAN           uint16 // VLAN id with bit 12 (0x1000, CFI) set if a tag is present, as OVS's vlan_tci; 0 without tag
	VLANPriority   uint8

	// ARP (EthType EthARP).
	ARPOp  uint16 // 1 request, 2 reply
	ARPSHA MAC
	ARPTHA MAC
	ARPSPA netip.Addr
	ARPTPA netip.Addr

	// IPv4 and IPv6.
	Src, Dst netip.Addr
	Proto    uint8
	TTL      uint8
	TOS      uint8 // DSCP and ECN
	DF       bool
	Frag     uint8 // 0 not a fragment, 1 first, 3 later

	// TCP, UDP, SCTP.
	SrcPort, DstPort uint16
	TCPFlags         uint8
	Seq, Ack         uint32

	// ICMP and ICMPv6.
	ICMPType, ICMPCode uint8
	ICMPID, ICMPSeq    uint16
	// NDTarget, NDSLL and NDTLL are the fields of neighbour solicitations and advertisements.
	NDTarget     netip.Addr
	NDSLL, NDTLL MAC

	// Inner is the packet inside: of a tunnel packet the frame that is carried, of an ICMP error the
	// packet that caused it (its Ethernet part is meaningless then).
	Inner *Packet
	// TunnelID is the VNI of a tunnel packet (UDP to port 6081 or 4789 with Inner set).
	TunnelID uint64

	// Size is the length of the IP packet in bytes, headers included (0: as small as possible).
	Size int
	// MaxFragment is the length of the longest fragment as which the packet travels (0: it was not
	// fragmented). The model keeps the fragments together: they are one Packet.
	MaxFragment int
	// Payload is carried unchanged end to end; the model's applications read it.
	Payload string

	// Mark is the kernel's skb mark (OVS: pkt_mark). It never leaves a host.
	Mark uint32

	// Trace identifies the probe that the packet belongs to; answers inherit it. 0: none.
	Trace uint64
}

// Clone returns a deep copy.
func (p *Packet) Clone() *Packet {
	q := *p
	if p.Inner != nil {
		q.Inner = p.Inner.Clone()
	}
	return &q
}

// IsIP reports whether the packet is IPv4 or IPv6.
func (p *Packet) IsIP() bool { return p.EthType == EthIPv4 || p.EthType == EthIPv6 }

// IsICMPError reports whether the packet is an ICMP or ICMPv6 error message.
func (p *Packet) IsICMPError() bool {
	switch p.Proto {
	case ProtoICMP:
		return p.ICMPType == ICMPUnreachable || p.ICMPType == ICMPTimeExceeded || p.ICMPType == 12
	case ProtoICMPv6:
		return p.ICMPType < 128
	}
	return false
}

// SetIPs sets source and destination and the Ethernet type that their family has.
func (p *Packet) SetIPs(src, dst netip.Addr) {
	p.Src, p.Dst = src, dst
	p.EthType = EthIPv4
	if dst.Is6() {
		p.EthType = EthIPv6
	}
}

// ProtoName returns tcp, udp, sctp, icmp, icmp6, or the number.
func ProtoName(n uint8) string {
	switch n {
	case ProtoTCP:
		return "tcp"
	case ProtoUDP:
		return "udp"
	case ProtoSCTP:
		return "sctp"
	case ProtoICMP:
		return "icmp"
	case ProtoICMPv6:
		return "icmp6"
	}
	return fmt.Sprint(n)
}

// String describes the packet in one line, for traces and errors.
func (p *Packet) String() string {
	var b strings.Builder
	if p.VLAN != 0 {
		fmt.Fprintf(&b, "vlan %d ", p.VLAN&0xfff)
	}
	switch {
	case p.EthType == EthARP:
		verb := "request"
		if p.ARPOp == 2 {
			verb = "reply"
		}
		fmt.Fprintf(&b, "arp %s spa=%s tpa=%s sha=%s", verb, p.ARPSPA, p.ARPTPA, p.ARPSHA)
	case p.IsIP():
		name := ProtoName(p.Proto)
		switch p.Proto {
		case ProtoTCP, ProtoUDP, ProtoSCTP:
			fmt.Fprintf(&b, "%s %s -> %s", name, netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort))
			if p.Proto == ProtoTCP {
				fmt.Fprintf(&b, " [%s]", flagString(p.TCPFlags))
			}
		case ProtoICMP, ProtoICMPv6:
			fmt.Fprintf(&b, "%s %s -> %s type=%d code=%d", name, p.Src, p.Dst, p.ICMPType, p.ICMPCode)
		default:
			fmt.Fprintf(&b, "proto %s %s -> %s", name, p.Src, p.Dst)
		}
		if p.Inner != nil {
			fmt.Fprintf(&b, " {%s}", p.Inner)
		}
	default:
		fmt.Fprintf(&b, "eth type 0x%04x", p.EthType)
	}
	return b.String()
}

func flagString(f uint8) string {
	var s []string
	for i, n := range []string{"FIN", "SYN", "RST", "PSH", "ACK"} {
		if f&(1<<i) != 0 {
			s = append(s, n)
		}
	}
	return strings.Join(s, "+")
}

// TraceStep is one thing that happened to a packet on its way.
type TraceStep struct {
	Node  string // node, Pod or external host
	Where string // "table 11 ServiceLB", "nat POSTROUTING", "route", "link eth0", …
	Text  string // what matched and what was done, in the canonical text of the object
	Drop  bool   // the packet ends here; Text says why
	// Cookie is that of the flow that matched, 0 if none: it leads to the owner.
	Cookie uint64
}

// Tracer receives the steps of packets while a trace is on; devices with a nil Tracer record
// nothing.
type Tracer interface {
	Step(s TraceStep)
}
