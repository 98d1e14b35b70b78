package openflow

import (
	"fmt"
	"strconv"
)

// Field is a header, metadata or register field, as OVS knows it. The order of the constants is the
// order in which ovs-ofctl prints a match.
type Field uint8

// The fields that a match is stored as. Names in ovs-ofctl's syntax are in the field table below.
const (
	FieldNone Field = iota
	PktMark
	CTState
	CTZone
	CTMark
	CTLabel
	CTNwSrc // addresses, protocol and ports of the original direction of the connection
	CTIPv6Src
	CTNwDst
	CTIPv6Dst
	CTNwProto
	CTTpSrc
	CTTpDst
	EthType
	Reg0 // Reg0 to Reg15 are consecutive: use Reg(n)
	Reg1
	Reg2
	Reg3
	Reg4
	Reg5
	Reg6
	Reg7
	Reg8
	Reg9
	Reg10
	Reg11
	Reg12
	Reg13
	Reg14
	Reg15
	TunID
	TunSrc
	TunDst
	TunIPv6Src
	TunIPv6Dst
	Metadata
	InPort
	VLANTCI
	EthSrc
	EthDst
	IPv6Src
	IPv6Dst
	ARPSPA
	ARPTPA
	IPSrc
	IPDst
	ARPOp
	IPProto
	ARPSHA
	ARPTHA
	IPTOS
	IPTTL
	IPFrag
	ICMPType // of ICMP; ICMPv6 has its own
	ICMPCode
	ICMPv6Type
	ICMPv6Code
	NDTarget
	NDSLL
	NDTLL
	TCPSrc
	TCPDst
	UDPSrc
	UDPDst
	SCTPSrc
	SCTPDst
	TCPFlags

	// Views of other fields: a match on one is stored as a match on the field under it.
	VLANVID // bits 0..12 of vlan_tci (bit 12: a tag is present)
	VLANPCP // bits 13..15 of vlan_tci
	IPDSCP  // bits 2..7 of nw_tos
	IPECN   // bits 0..1 of nw_tos
	XReg0   // XReg0 to XReg7: reg(2n) is the upper half, reg(2n+1) the lower
	XReg1
	XReg2
	XReg3
	XReg4
	XReg5
	XReg6
	XReg7
	XXReg0 // XXReg0 to XXReg3: reg(4n) is the uppermost quarter
	XXReg1
	XXReg2
	XXReg3

	numFields
)

// Reg returns the field of register n, 0 to 15; FieldNone for another n.
func Reg(n int) Field {
	if n < 0 || n > 15 {
		return FieldNone
	}
	return Reg0 + Field(n)
}

// XXReg returns the 128-bit view n, 0 to 3, of four registers (xxreg3 is reg12 to reg15).
func XXReg(n int) Field {
	if n < 0 || n > 3 {
		return FieldNone
	}
	return XXReg0 + Field(n)
}

type format uint8

const (
	fmtDec format = iota
	fmtHex
	fmtMAC
	fmtIP4
	fmtIP6
	fmtCTState
	fmtTCPFlags
	fmtFrag
	fmtPort
)

// prereq is what a match must say before a field may be used (OpenFlow 1.5, 7.2.3.6).
type prereq uint8

const (
	preNone prereq = iota
	preIPv4
	preIPv6
	preIP
	preARP
	preTCP
	preUDP
	preSCTP
	preICMP
	preICMPv6
	preND   // neighbour solicitation or advertisement
	preNS   // solicitation
	preNA   // advertisement
	preVLAN // a tag is present
	preCTv4 // a tracked connection, IPv4
	preCTv6
	preCT
)

var prereqNames = [...]string{
	preIPv4: "ip", preIPv6: "ipv6", preIP: "ip or ipv6", preARP: "arp", preTCP: "tcp or tcp6", preUDP: "udp or udp6",
	preSCTP: "sctp or sctp6", preICMP: "icmp", preICMPv6: "icmp6", preND: "icmp6 with icmp_type 135 or 136 and icmp_code 0",
	preNS: "icmp6 with icmp_type 135 and icmp_code 0", preNA: "icmp6 with icmp_type 136 and icmp_code 0",
	preVLAN: "a VLAN tag", preCTv4: "ip and a tracked ct_state", preCTv6: "ipv6 and a tracked ct_state",
	preCT: "ip or ipv6 and a tracked ct_state",
}

type fieldInfo struct {
	name    string // in set_field and learn
	match   string // in a match, if different
	nxm     string // in move, output and learn
	bits    uint
	format  format
	pre     prereq
	fixed   bool // read-only for actions
	exact   bool // no masks
	ctField bool // may be set inside ct(exec(…)) only
}

var fields = [numFields]fieldInfo{
	PktMark:    {name: "pkt_mark", nxm: "NXM_NX_PKT_MARK", bits: 32, format: fmtHex},
	CTState:    {name: "ct_state", nxm: "NXM_NX_CT_STATE", bits: 32, format: fmtCTState, fixed: true},
	CTZone:     {name: "ct_zone", nxm: "NXM_NX_CT_ZONE", bits: 16, fixed: true, exact: true},
	CTMark:     {name: "ct_mark", nxm: "NXM_NX_CT_MARK", bits: 32, format: fmtHex, ctField: true},
	CTLabel:    {name: "ct_label", nxm: "NXM_NX_CT_LABEL", bits: 128, format: fmtHex, ctField: true},
	CTNwSrc:    {name: "ct_nw_src", nxm: "NXM_NX_CT_NW_SRC", bits: 32, format: fmtIP4, pre: preCTv4, fixed: true},
	CTNwDst:    {name: "ct_nw_dst", nxm: "NXM_NX_CT_NW_DST", bits: 32, format: fmtIP4, pre: preCTv4, fixed: true},
	CTIPv6Src:  {name: "ct_ipv6_src", nxm: "NXM_NX_CT_IPV6_SRC", bits: 128, format: fmtIP6, pre: preCTv6, fixed: true},
	CTIPv6Dst:  {name: "ct_ipv6_dst", nxm: "NXM_NX_CT_IPV6_DST", bits: 128, format: fmtIP6, pre: preCTv6, fixed: true},
	CTNwProto:  {name: "ct_nw_proto", nxm: "NXM_NX_CT_NW_PROTO", bits: 8, pre: preCT, fixed: true, exact: true},
	CTTpSrc:    {name: "ct_tp_src", nxm: "NXM_NX_CT_TP_SRC", bits: 16, pre: preCT, fixed: true},
	CTTpDst:    {name: "ct_tp_dst", nxm: "NXM_NX_CT_TP_DST", bits: 16, pre: preCT, fixed: true},
	EthType:    {name: "eth_type", match: "dl_type", nxm: "NXM_OF_ETH_TYPE", bits: 16, format: fmtHex, fixed: true, exact: true},
	TunID:      {name: "tun_id", nxm: "NXM_NX_TUN_ID", bits: 64, format: fmtHex},
	TunSrc:     {name: "tun_src", nxm: "NXM_NX_TUN_IPV4_SRC", bits: 32, format: fmtIP4},
	TunDst:     {name: "tun_dst", nxm: "NXM_NX_TUN_IPV4_DST", bits: 32, format: fmtIP4},
	TunIPv6Src: {name: "tun_ipv6_src", nxm: "NXM_NX_TUN_IPV6_SRC", bits: 128, format: fmtIP6},
	TunIPv6Dst: {name: "tun_ipv6_dst", nxm: "NXM_NX_TUN_IPV6_DST", bits: 128, format: fmtIP6},
	Metadata:   {name: "metadata", nxm: "OXM_OF_METADATA", bits: 64, format: fmtHex},
	InPort:     {name: "in_port", nxm: "NXM_OF_IN_PORT", bits: 16, format: fmtPort, exact: true},
	VLANTCI:    {name: "vlan_tci", nxm: "NXM_OF_VLAN_TCI", bits: 16, format: fmtHex},
	EthSrc:     {name: "eth_src", match: "dl_src", nxm: "NXM_OF_ETH_SRC", bits: 48, format: fmtMAC},
	EthDst:     {name: "eth_dst", match: "dl_dst", nxm: "NXM_OF_ETH_DST", bits: 48, format: fmtMAC},
	IPv6Src:    {name: "ipv6_src", nxm: "NXM_NX_IPV6_SRC", bits: 128, format: fmtIP6, pre: preIPv6},
	IPv6Dst:    {name: "ipv6_dst", nxm: "NXM_NX_IPV6_DST", bits: 128, format: fmtIP6, pre: preIPv6},
	ARPSPA:     {name: "arp_spa", nxm: "NXM_OF_ARP_SPA", bits: 32, format: fmtIP4, pre: preARP},
	ARPTPA:     {name: "arp_tpa", nxm: "NXM_OF_ARP_TPA", bits: 32, format: fmtIP4, pre: preARP},
	IPSrc:      {name: "ip_src", match: "nw_src", nxm: "NXM_OF_IP_SRC", bits: 32, format: fmtIP4, pre: preIPv4},
	IPDst:      {name: "ip_dst", match: "nw_dst", nxm: "NXM_OF_IP_DST", bits: 32, format: fmtIP4, pre: preIPv4},
	ARPOp:      {name: "arp_op", nxm: "NXM_OF_ARP_OP", bits: 16, pre: preARP, exact: true},
	IPProto:    {name: "nw_proto", nxm: "NXM_OF_IP_PROTO", bits: 8, pre: preIP, fixed: true, exact: true},
	ARPSHA:     {name: "arp_sha", nxm: "NXM_NX_ARP_SHA", bits: 48, format: fmtMAC, pre: preARP},
	ARPTHA:     {name: "arp_tha", nxm: "NXM_NX_ARP_THA", bits: 48, format: fmtMAC, pre: preARP},
	IPTOS:      {name: "nw_tos", nxm: "NXM_OF_IP_TOS", bits: 8, pre: preIP, exact: true},
	IPTTL:      {name: "nw_ttl", nxm: "NXM_NX_IP_TTL", bits: 8, pre: preIP, exact: true},
	IPFrag:     {name: "ip_frag", match: "nw_frag", nxm: "NXM_NX_IP_FRAG", bits: 8, format: fmtFrag, pre: preIP, fixed: true},
	ICMPType:   {name: "icmp_type", nxm: "NXM_OF_ICMP_TYPE", bits: 8, pre: preICMP, exact: true},
	ICMPCode:   {name: "icmp_code", nxm: "NXM_OF_ICMP_CODE", bits: 8, pre: preICMP, exact: true},
	ICMPv6Type: {name: "icmpv6_type", match: "icmp_type", nxm: "NXM_NX_ICMPV6_TYPE", bits: 8, pre: preICMPv6, exact: true},
	ICMPv6Code: {name: "icmpv6_code", match: "icmp_code", nxm: "NXM_NX_ICMPV6_CODE", bits: 8, pre: preICMPv6, exact: true},
	NDTarget:   {name: "nd_target", nxm: "NXM_NX_ND_TARGET", bits: 128, format: fmtIP6, pre: preND},
	NDSLL:      {name: "nd_sll", nxm: "NXM_NX_ND_SLL", bits: 48, format: fmtMAC, pre: preNS},
	NDTLL:      {name: "nd_tll", nxm: "NXM_NX_ND_TLL", bits: 48, format: fmtMAC, pre: preNA},
	TCPSrc:     {name: "tcp_src", match: "tp_src", nxm: "NXM_OF_TCP_SRC", bits: 16, pre: preTCP},
	TCPDst:     {name: "tcp_dst", match: "tp_dst", nxm: "NXM_OF_TCP_DST", bits: 16, pre: preTCP},
	UDPSrc:     {name: "udp_src", match: "tp_src", nxm: "NXM_OF_UDP_SRC", bits: 16, pre: preUDP},
	UDPDst:     {name: "udp_dst", match: "tp_dst", nxm: "NXM_OF_UDP_DST", bits: 16, pre: preUDP},
	SCTPSrc:    {name: "sctp_src", match: "tp_src", nxm: "OXM_OF_SCTP_SRC", bits: 16, pre: preSCTP},
	SCTPDst:    {name: "sctp_dst", match: "tp_dst", nxm: "OXM_OF_SCTP_DST", bits: 16, pre: preSCTP},
	TCPFlags:   {name: "tcp_flags", nxm: "NXM_NX_TCP_FLAGS", bits: 12, format: fmtTCPFlags, pre: preTCP, fixed: true},
	VLANVID:    {name: "vlan_vid", nxm: "OXM_OF_VLAN_VID", bits: 12, pre: preVLAN},
	VLANPCP:    {name: "vlan_pcp", nxm: "OXM_OF_VLAN_PCP", bits: 3, pre: preVLAN, exact: true},
	IPDSCP:     {name: "ip_dscp", nxm: "OXM_OF_IP_DSCP", bits: 6, pre: preIP, exact: true},
	IPECN:      {name: "nw_ecn", nxm: "NXM_NX_IP_ECN", bits: 2, pre: preIP, exact: true},
}

// fieldByName finds a field by any of its names: that of set_field, that of a match, or NXM.
// Names that mean different fields for different protocols (tp_src, icmp_type of ICMPv6) are resolved
// where the match is known.
var fieldByName = map[string]Field{
	"dl_src": EthSrc, "dl_dst": EthDst, "dl_type": EthType, "nw_src": IPSrc, "nw_dst": IPDst, "ip_proto": IPProto, "nw_frag": IPFrag,
	"ip_ecn": IPECN, "ttl": IPTTL, "OXM_OF_IN_PORT": InPort, "OXM_OF_ETH_SRC": EthSrc, "OXM_OF_ETH_DST": EthDst, "OXM_OF_ETH_TYPE": EthType,
	"OXM_OF_IPV4_SRC": IPSrc, "OXM_OF_IPV4_DST": IPDst, "OXM_OF_IPV6_SRC": IPv6Src, "OXM_OF_IPV6_DST": IPv6Dst, "OXM_OF_IP_PROTO": IPProto,
	"OXM_OF_TCP_SRC": TCPSrc, "OXM_OF_TCP_DST": TCPDst, "OXM_OF_UDP_SRC": UDPSrc, "OXM_OF_UDP_DST": UDPDst,
	"OXM_OF_ICMPV4_TYPE": ICMPType, "OXM_OF_ICMPV4_CODE": ICMPCode, "OXM_OF_ICMPV6_TYPE": ICMPv6Type, "OXM_OF_ICMPV6_CODE": ICMPv6Code,
	"OXM_OF_IPV6_ND_TARGET": NDTarget, "OXM_OF_IPV6_ND_SLL": NDSLL, "OXM_OF_IPV6_ND_TLL": NDTLL, "OXM_OF_ARP_OP": ARPOp,
	"OXM_OF_ARP_SPA": ARPSPA, "OXM_OF_ARP_TPA": ARPTPA, "OXM_OF_ARP_SHA": ARPSHA, "OXM_OF_ARP_THA": ARPTHA, "OXM_OF_TUNNEL_ID": TunID,
	"tunnel_id": TunID, "OXM_OF_IP_ECN": IPECN, "OXM_OF_TCP_FLAGS": TCPFlags, "OXM_OF_PKT_REG0": XReg0, "dl_vlan_pcp": VLANPCP,
}

func init() {
	for n := range 16 {
		s := strconv.Itoa(n)
		fields[Reg(n)] = fieldInfo{name: "reg" + s, nxm: "NXM_NX_REG" + s, bits: 32, format: fmtHex}
	}
	for n := range 8 {
		s := strconv.Itoa(n)
		fields[XReg0+Field(n)] = fieldInfo{name: "xreg" + s, nxm: "OXM_OF_PKT_REG" + s, bits: 64, format: fmtHex}
	}
	for n := range 4 {
		s := strconv.Itoa(n)
		fields[XXReg(n)] = fieldInfo{name: "xxreg" + s, nxm: "NXM_NX_XXREG" + s, bits: 128, format: fmtHex}
	}
	for f := FieldNone + 1; f < numFields; f++ {
		fieldByName[fields[f].name] = f
		fieldByName[fields[f].nxm] = f
	}
}

// Name returns the name that set_field and learn use, such as eth_dst or reg4.
func (f Field) Name() string {
	if f == FieldNone || f >= numFields {
		return fmt.Sprintf("field(%d)", uint8(f))
	}
	return fields[f].name
}

// String returns the name.
func (f Field) String() string { return f.Name() }

// Bits returns the width of the field.
func (f Field) Bits() uint {
	if f >= numFields {
		return 0
	}
	return fields[f].bits
}

// FieldByName returns the field of an ovs-ofctl or NXM name.
func FieldByName(name string) (Field, bool) {
	f, ok := fieldByName[name]
	return f, ok
}

// Base returns the field that f is a view of and the position of f's lowest bit in it; f itself and 0
// for a field that is no view. The 64-bit and 128-bit views span registers: Base returns the first of
// them and -1.
func (f Field) Base() (Field, int) {
	switch {
	case f == VLANVID:
		return VLANTCI, 0
	case f == VLANPCP:
		return VLANTCI, 13
	case f == IPDSCP:
		return IPTOS, 2
	case f == IPECN:
		return IPTOS, 0
	case f >= XReg0 && f <= XReg7:
		return Reg0 + 2*(f-XReg0), -1
	case f >= XXReg0 && f <= XXReg3:
		return Reg0 + 4*(f-XXReg0), -1
	}
	return f, 0
}

// Range is a run of bits of a field, Lo to Hi inclusive: reg4[16..18].
type Range struct {
	Field  Field
	Lo, Hi uint8
}

// All returns all bits of the field.
func (f Field) All() Range { return Range{f, 0, uint8(max(f.Bits(), 1) - 1)} }

// Range returns bits lo to hi of the field, inclusive.
func (f Field) Range(lo, hi uint8) Range { return Range{f, lo, hi} }

// Bits returns the number of bits.
func (r Range) Bits() uint { return uint(r.Hi) - uint(r.Lo) + 1 }

// Mask returns the bits of the range in the field.
func (r Range) Mask() Value { return Ones(r.Bits()).Shl(uint(r.Lo)) }

func (r Range) check() error {
	if r.Field == FieldNone || r.Field >= numFields {
		return fmt.Errorf("no such field")
	}
	if r.Lo > r.Hi || uint(r.Hi) >= r.Field.Bits() {
		return fmt.Errorf("%s[%d..%d]: the field has bits 0 to %d", r.Field, r.Lo, r.Hi, r.Field.Bits()-1)
	}
	return nil
}

// String returns the range in NXM notation, as ovs-ofctl prints it.
func (r Range) String() string { return string(r.appendText(nil)) }

func (r Range) appendText(b []byte) []byte {
	b = append(b, fields[r.Field].nxm...)
	b = append(b, '[')
	if r != r.Field.All() {
		b = strconv.AppendUint(b, uint64(r.Lo), 10)
		if r.Hi != r.Lo {
			b = append(b, '.', '.')
			b = strconv.AppendUint(b, uint64(r.Hi), 10)
		}
	}
	return append(b, ']')
}
