package openflow

import (
	"fmt"
	"strconv"
	"strings"
)

var ctStateNames = [...]string{"new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"}

var tcpFlagNames = [...]string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"}

// protoNames are the shorthands for an Ethernet type and an IP protocol; proto 0 stands for any.
var protoNames = []struct {
	eth   uint16
	proto uint8
	name  string
}{
	{EthTypeIPv4, 0, "ip"},
	{EthTypeIPv4, ProtoICMP, "icmp"},
	{EthTypeIPv4, 2, "igmp"},
	{EthTypeIPv4, ProtoTCP, "tcp"},
	{EthTypeIPv4, ProtoUDP, "udp"},
	{EthTypeIPv4, ProtoSCTP, "sctp"},
	{EthTypeIPv6, 0, "ipv6"},
	{EthTypeIPv6, ProtoICMPv6, "icmp6"},
	{EthTypeIPv6, ProtoTCP, "tcp6"},
	{EthTypeIPv6, ProtoUDP, "udp6"},
	{EthTypeIPv6, ProtoSCTP, "sctp6"},
	{EthTypeARP, 0, "arp"},
}

// shorthand returns the name that stands for the match's Ethernet type, "" if there is none, and
// whether it says the protocol too.
func (m Match) shorthand() (name string, withProto bool) {
	eth, proto := m.Get(EthType), m.Get(IPProto)
	if eth.Mask.IsZero() {
		return "", false
	}
	for _, p := range protoNames {
		if uint64(p.eth) != eth.Value.Lo {
			continue
		}
		if p.proto == 0 {
			name = p.name
		} else if !proto.Mask.IsZero() && uint64(p.proto) == proto.Value.Lo {
			return p.name, true
		}
	}
	return name, false
}

// String returns the match as ovs-ofctl prints it, without priority; empty if it matches all.
func (m Match) String() string { return string(m.appendText(nil)) }

func (m Match) appendText(b []byte) []byte {
	start := len(b)
	name, withProto := m.shorthand()
	ethType := "" // dl_type of a type without shorthand, printed after the Ethernet addresses
	for _, f := range m.fields {
		if f.Field > EthDst && ethType != "" {
			b = append(append(b, ethType...), ',')
			ethType = ""
		}
		switch {
		case f.Field == EthType && name != "":
			b = append(b, name...)
		case f.Field == EthType:
			ethType = fmt.Sprintf("dl_type=0x%04x", f.Value.Lo)
			continue
		case f.Field == IPProto && withProto:
			continue
		default:
			b = f.appendText(b)
		}
		b = append(b, ',')
	}
	if ethType != "" {
		b = append(append(b, ethType...), ',')
	}
	if len(b) > start {
		b = b[:len(b)-1]
	}
	return b
}

// String returns the condition as in a match.
func (m FieldMatch) String() string { return string(m.appendText(nil)) }

func (m FieldMatch) appendText(b []byte) []byte {
	info := &fields[m.Field]
	name := info.match
	if name == "" {
		name = info.name
	}
	switch m.Field {
	case VLANTCI:
		return appendTCI(b, uint16(m.Value.Lo), uint16(m.Mask.Lo))
	case IPTOS:
		if m.Mask.Lo&0xfc != 0 {
			b = strconv.AppendUint(append(b, "nw_tos="...), m.Value.Lo&0xfc, 10)
		}
		if m.Mask.Lo&3 != 0 {
			if m.Mask.Lo&0xfc != 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(append(b, "nw_ecn="...), m.Value.Lo&3, 10)
		}
		return b
	}
	b = append(append(b, name...), '=')
	switch info.format {
	case fmtCTState:
		if m.Exact() {
			return appendFlagList(b, m.Value.Lo, ctStateNames[:])
		}
		return appendFlags(b, m.Value.Lo, m.Mask.Lo, ctStateNames[:])
	case fmtTCPFlags:
		if m.Exact() {
			return appendFlagList(b, m.Value.Lo, tcpFlagNames[:])
		}
		return appendFlags(b, m.Value.Lo, m.Mask.Lo, tcpFlagNames[:])
	case fmtFrag:
		return append(b, fragText(m.Value.Lo, m.Mask.Lo)...)
	}
	if info.format == fmtDec && !m.Exact() { // ports and other 16-bit numbers: both in hexadecimal
		return appendHex(append(appendHex(b, m.Value), '/'), m.Mask)
	}
	return appendValue(b, m.Field, m.Value, m.Mask)
}

func appendTCI(b []byte, v, mask uint16) []byte {
	vid, pcp := mask&0xfff, mask>>13
	if mask&v&0x1000 != 0 && (vid == 0 || vid == 0xfff) && (pcp == 0 || pcp == 7) && vid|pcp != 0 {
		if vid != 0 {
			b = strconv.AppendUint(append(b, "dl_vlan="...), uint64(v&0xfff), 10)
		}
		if pcp != 0 {
			if vid != 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(append(b, "dl_vlan_pcp="...), uint64(v>>13), 10)
		}
		return b
	}
	if mask == 0xffff {
		return fmt.Appendf(b, "vlan_tci=0x%04x", v)
	}
	return fmt.Appendf(b, "vlan_tci=0x%04x/0x%04x", v, mask)
}

// appendValue appends a value of a field as set_field prints it, with the mask unless it is full.
func appendValue(b []byte, f Field, v, mask Value) []byte {
	info := &fields[f]
	full := mask == Ones(info.bits)
	switch info.format {
	case fmtMAC:
		b = appendMAC(b, v.MAC())
		if !full {
			b = appendMAC(append(b, '/'), mask.MAC())
		}
		return b
	case fmtIP4:
		b = v.Addr4().AppendTo(b)
		if !full {
			b = append(b, '/')
			if n := mask.prefixLen(32); n >= 0 {
				return strconv.AppendInt(b, int64(n), 10)
			}
			b = mask.Addr4().AppendTo(b)
		}
		return b
	case fmtIP6:
		b = v.Addr6().AppendTo(b)
		if !full {
			b = append(b, '/')
			if n := mask.prefixLen(128); n >= 0 {
				return strconv.AppendInt(b, int64(n), 10)
			}
			b = mask.Addr6().AppendTo(b)
		}
		return b
	case fmtPort:
		return appendPort(b, portNumber(v.Lo))
	case fmtHex:
		b = appendAltHex(b, v)
	default:
		b = strconv.AppendUint(b, v.Lo, 10)
	}
	if !full && f != VLANVID {
		b = appendAltHex(append(b, '/'), mask)
	}
	return b
}

func appendFlags(b []byte, v, mask uint64, names []string) []byte {
	for i, n := range names {
		if bit := uint64(1) << i; mask&bit != 0 {
			c := byte('-')
			if v&bit != 0 {
				c = '+'
			}
			b = append(append(b, c), n...)
		}
	}
	return b
}

func appendFlagList(b []byte, v uint64, names []string) []byte {
	if v == 0 {
		return append(b, '0')
	}
	first := true
	for i, n := range names {
		if v&(1<<i) != 0 {
			if !first {
				b = append(b, '|')
			}
			first = false
			b = append(b, n...)
		}
	}
	return b
}

// parseFlags parses "+new-est", "new|trk" (exact) and "value/mask" in numbers.
func parseFlags(s string, names []string, width uint) (v, mask Value, err error) {
	if s == "" {
		return v, mask, fmt.Errorf("no flags")
	}
	known := uint64(1)<<len(names) - 1
	if s[0] == '+' || s[0] == '-' {
		for s != "" {
			set := s[0] == '+'
			if !set && s[0] != '-' {
				return v, mask, fmt.Errorf("flags %q: want + or - before each name", s)
			}
			s = s[1:]
			end := strings.IndexAny(s, "+-")
			if end < 0 {
				end = len(s)
			}
			bit, err := flagBit(s[:end], names)
			if err != nil {
				return v, mask, err
			}
			if mask.Lo&bit != 0 {
				return v, mask, fmt.Errorf("flag %q is named twice", s[:end])
			}
			mask.Lo |= bit
			if set {
				v.Lo |= bit
			}
			s = s[end:]
		}
		return v, mask, nil
	}
	mask = Ones(width)
	val, m, masked := strings.Cut(s, "/")
	if val[0] >= '0' && val[0] <= '9' {
		if v, err = parseNum(val); err != nil {
			return v, mask, err
		}
	} else {
		for n := range strings.SplitSeq(val, "|") {
			bit, err := flagBit(n, names)
			if err != nil {
				return v, mask, err
			}
			v.Lo |= bit
		}
	}
	if masked {
		if mask, err = parseNum(m); err != nil {
			return v, mask, err
		}
		if mask.Lo&^known != 0 || mask.Hi != 0 {
			return v, mask, fmt.Errorf("mask %s has bits that no flag has", m)
		}
	}
	if v.Hi != 0 || v.Lo&^known != 0 {
		return v, mask, fmt.Errorf("%s has bits that no flag has", val)
	}
	return v.And(mask), mask, nil
}

func flagBit(name string, names []string) (uint64, error) {
	for i, n := range names {
		if n == name {
			return 1 << i, nil
		}
	}
	return 0, fmt.Errorf("unknown flag %q, known are %s", name, strings.Join(names, " "))
}

func fragText(v, mask uint64) string {
	switch mask {
	case FragAny | FragLater:
		switch v {
		case FragAny:
			return "first"
		case FragAny | FragLater:
			return "later"
		}
		return "no"
	case FragAny:
		if v != 0 {
			return "yes"
		}
		return "no"
	}
	if v != 0 {
		return "later"
	}
	return "not_later"
}

func parseFrag(s string) (v, mask Value, err error) {
	switch s {
	case "no":
		return Num(0), Num(FragAny | FragLater), nil
	case "yes":
		return Num(FragAny), Num(FragAny), nil
	case "first":
		return Num(FragAny), Num(FragAny | FragLater), nil
	case "later":
		return Num(FragAny | FragLater), Num(FragAny | FragLater), nil
	case "not_later":
		return Num(0), Num(FragLater), nil
	}
	return v, mask, fmt.Errorf("%q: want no, yes, first, later or not_later", s)
}
