package openflow

import (
	"fmt"
	"net/netip"
	"strings"
)

// parseTerms parses the items of a match. Items that mean another field for each protocol are
// resolved after the protocol is known.
func parseTerms(items []string) ([]Term, error) {
	terms := make([]Term, 0, len(items))
	var probe Match
	for _, item := range items {
		if t, ok, err := parseProto(item); err != nil {
			return nil, err
		} else if ok {
			terms = append(terms, t)
			if err := probe.add(t); err != nil {
				return nil, err
			}
		}
	}
	c := probe.context()
	for i := range terms {
		if c.eth == EthTypeARP && terms[i].m.Field == IPProto { // nw_proto of arp is arp_op
			terms[i] = ARPOp.Is(terms[i].m.Value.Lo)
		}
	}
	for _, item := range items {
		if _, ok, _ := parseProto(item); ok {
			continue
		}
		t, err := parseTerm(item, &c)
		if err != nil {
			return nil, err
		}
		terms = append(terms, t)
	}
	return terms, nil
}

// parseProto parses a shorthand, dl_type or nw_proto.
func parseProto(item string) (t Term, ok bool, err error) {
	name, val, hasVal := strings.Cut(item, "=")
	if !hasVal {
		for _, p := range protoNames {
			if p.name == name {
				if p.proto != 0 {
					return protoTerm(p.eth, p.proto), true, nil
				}
				return protoTerm(p.eth), true, nil
			}
		}
		return t, false, nil
	}
	switch f := fieldByName[name]; f {
	case EthType:
		n, err := parseUint(name, val, 16)
		return protoTerm(uint16(n)), true, err
	case IPProto:
		n, err := parseUint(name, val, 8)
		if err != nil {
			return t, true, err
		}
		return IPProto.Is(n), true, nil
	}
	return t, false, nil
}

// parseTerm parses one item of a match; c says which protocol it is of.
func parseTerm(item string, c *context) (Term, error) {
	name, val, hasVal := strings.Cut(item, "=")
	if !hasVal {
		return Term{}, fmt.Errorf("match: %q is no protocol and no field=value", item)
	}
	switch name {
	case "dl_vlan":
		n, err := parseUint(name, val, 16)
		if err != nil {
			return Term{}, err
		}
		if n == 0xffff {
			return NoVLAN(), nil
		}
		return VLANIs(uint16(min(n, 0x1000))), nil
	case "vlan_vid":
		v, m, masked := strings.Cut(val, "/")
		n, err := parseUint(name, v, 13)
		if err != nil {
			return Term{}, err
		}
		mask := uint64(0x1fff)
		if masked {
			if mask, err = parseUint(name, m, 13); err != nil {
				return Term{}, err
			}
		}
		return VLANTCI.IsMasked(Num(n&mask), Num(mask)), nil
	case "tp_src", "tp_dst":
		d := Field(0)
		if name == "tp_dst" {
			d = 1
		}
		f := portField(c.proto, d)
		switch {
		case c.eth == EthTypeIPv4 && c.proto == ProtoICMP:
			f = ICMPType + d
		case c.eth == EthTypeIPv6 && c.proto == ProtoICMPv6:
			f = ICMPv6Type + d
		}
		if f == FieldNone || !c.ip() {
			return Term{}, fmt.Errorf("match %s: needs a match on tcp, udp or sctp as well", item)
		}
		return termOf(f, val)
	case "nw_src", "nw_dst":
		if c.eth == EthTypeARP {
			return termOf(map[string]Field{"nw_src": ARPSPA, "nw_dst": ARPTPA}[name], val)
		}
	case "icmp_type", "icmp_code":
		if c.eth == EthTypeIPv6 {
			return termOf(map[string]Field{"icmp_type": ICMPv6Type, "icmp_code": ICMPv6Code}[name], val)
		}
	case "nw_tos":
		n, err := parseUint(name, val, 8)
		if err != nil {
			return Term{}, err
		}
		return IPDSCP.Is(n >> 2), nil
	}
	f, ok := FieldByName(name)
	if !ok {
		return Term{}, fmt.Errorf("match: unknown field %q", name)
	}
	return termOf(f, val)
}

func termOf(f Field, val string) (Term, error) {
	v, m, err := parseValue(f, val)
	if err != nil {
		return Term{}, fmt.Errorf("match %s=%s: %w", f, val, err)
	}
	if f == EthType || f == IPProto {
		return Term{}, fmt.Errorf("match %s: given twice", f)
	}
	t := f.IsMasked(v.And(m), m)
	return t, t.err
}

// parseValue parses "value" or "value/mask" of a field.
func parseValue(f Field, s string) (v, mask Value, err error) {
	info := &fields[f]
	full := Ones(info.bits)
	switch info.format {
	case fmtCTState:
		return parseFlags(s, ctStateNames[:], info.bits)
	case fmtTCPFlags:
		return parseFlags(s, tcpFlagNames[:], info.bits)
	case fmtFrag:
		return parseFrag(s)
	case fmtPort:
		p, err := parsePort(s)
		if err != nil {
			return v, mask, err
		}
		n, err := portValue(p)
		return Num(n), full, err
	}
	val, m, masked := strings.Cut(s, "/")
	mask = full
	switch info.format {
	case fmtMAC:
		if v, err = parseMACValue(val); err == nil && masked {
			mask, err = parseMACValue(m)
		}
	case fmtIP4, fmtIP6:
		if v, err = parseAddrValue(val, info.format); err == nil && masked {
			mask, err = parseAddrMask(m, info)
		}
	default:
		if v, err = parseNum(val); err == nil && masked {
			mask, err = parseNum(m)
		}
	}
	if err != nil {
		return v, mask, err
	}
	width := info.bits
	if f == VLANVID {
		width++
	}
	if v.Len() > int(width) || mask.Len() > int(width) {
		return v, mask, fmt.Errorf("value or mask does not fit into %d bits", info.bits)
	}
	return v, mask, nil
}

func parseMACValue(s string) (Value, error) {
	m, err := ParseMAC(s)
	return MACValue(m), err
}

func parseAddrValue(s string, f format) (Value, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || f == fmtIP4 && !a.Is4() || f == fmtIP6 && (!a.Is6() || a.Zone() != "") {
		want := "IPv4"
		if f == fmtIP6 {
			want = "IPv6"
		}
		return Value{}, fmt.Errorf("%q is not an %s address", s, want)
	}
	return AddrValue(a), nil
}

func parseAddrMask(s string, info *fieldInfo) (Value, error) {
	if !strings.ContainsAny(s, ".:") {
		n, err := parseUint("prefix length", s, 8)
		if err != nil || uint(n) > info.bits {
			return Value{}, fmt.Errorf("prefix length %q: want 0 to %d", s, info.bits)
		}
		return Ones(info.bits).AndNot(Ones(info.bits - uint(n))), nil
	}
	return parseAddrValue(s, info.format)
}

// parseRange parses reg4[16..18], NXM_NX_REG4[], reg4 and ip_dst.
func parseRange(s string) (Range, error) {
	name, bits := s, "]"
	if i := strings.IndexByte(s, '['); i >= 0 {
		name, bits = s[:i], s[i+1:]
		if !strings.HasSuffix(bits, "]") {
			return Range{}, fmt.Errorf("%q: missing ]", s)
		}
	}
	f, ok := FieldByName(name)
	if !ok {
		return Range{}, fmt.Errorf("unknown field %q", name)
	}
	bits = strings.TrimSuffix(bits, "]")
	if bits == "" {
		return f.All(), nil
	}
	lo, hi, two := strings.Cut(bits, "..")
	if !two {
		hi = lo
	}
	a, err := parseUint("bit", lo, 8)
	if err != nil {
		return Range{}, fmt.Errorf("%q: %w", s, err)
	}
	b, err := parseUint("bit", hi, 8)
	if err != nil {
		return Range{}, fmt.Errorf("%q: %w", s, err)
	}
	r := Range{f, uint8(a), uint8(b)}
	return r, r.check()
}
