package openflow

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Ethernet types and IP protocols that have a shorthand in a match.
const (
	EthTypeIPv4 uint16 = 0x0800
	EthTypeARP  uint16 = 0x0806
	EthTypeIPv6 uint16 = 0x86dd

	ProtoICMP   uint8 = 1
	ProtoTCP    uint8 = 6
	ProtoUDP    uint8 = 17
	ProtoICMPv6 uint8 = 58
	ProtoSCTP   uint8 = 132
)

// ct_state bits.
const (
	CTNew uint32 = 1 << iota
	CTEst
	CTRel
	CTRpl
	CTInv
	CTTrk
	CTSNAT
	CTDNAT
)

// ip_frag bits.
const (
	FragAny   = 1
	FragLater = 2
)

// FieldMatch is the condition field&Mask == Value. Value has no bits outside Mask.
type FieldMatch struct {
	Field       Field
	Value, Mask Value
}

// Exact reports whether all bits of the field are compared.
func (m FieldMatch) Exact() bool { return m.Mask == Ones(m.Field.Bits()) }

// Term is a part of a match, made by the constructors below. A term with an error makes the flow's
// Build fail.
type Term struct {
	m     FieldMatch
	proto uint32 // with m.Field None: Ethernet type<<16 | protocol<<8 | 1 if the protocol is set
	err   error
}

// The protocol shorthands of ovs-ofctl.
var (
	IP    = protoTerm(EthTypeIPv4)
	IPv6  = protoTerm(EthTypeIPv6)
	ARP   = protoTerm(EthTypeARP)
	ICMP  = protoTerm(EthTypeIPv4, ProtoICMP)
	TCP   = protoTerm(EthTypeIPv4, ProtoTCP)
	UDP   = protoTerm(EthTypeIPv4, ProtoUDP)
	SCTP  = protoTerm(EthTypeIPv4, ProtoSCTP)
	ICMP6 = protoTerm(EthTypeIPv6, ProtoICMPv6)
	TCP6  = protoTerm(EthTypeIPv6, ProtoTCP)
	UDP6  = protoTerm(EthTypeIPv6, ProtoUDP)
	SCTP6 = protoTerm(EthTypeIPv6, ProtoSCTP)
)

func protoTerm(eth uint16, proto ...uint8) Term {
	t := Term{proto: uint32(eth) << 16}
	if len(proto) > 0 {
		t.proto |= uint32(proto[0])<<8 | 1
	}
	return t
}

// IPFamily is ip for v6 false, else ipv6.
func IPFamily(v6 bool) Term {
	if v6 {
		return IPv6
	}
	return IP
}

// L4 is the shorthand of an IP protocol in a family: tcp, tcp6, udp, …; for a protocol without
// shorthand it is ip or ipv6 with nw_proto.
func L4(v6 bool, proto uint8) Term {
	if v6 {
		return protoTerm(EthTypeIPv6, proto)
	}
	return protoTerm(EthTypeIPv4, proto)
}

// Is matches the whole field with a number.
func (f Field) Is(n uint64) Term { return f.IsMasked(Num(n), Ones(f.Bits())) }

// IsMasked matches the bits of mask.
func (f Field) IsMasked(v, mask Value) Term {
	t := Term{m: FieldMatch{f, v, mask}}
	if w := f.Bits(); v.Len() > int(w) || mask.Len() > int(w) {
		t.err = fmt.Errorf("match %s: value or mask does not fit into %d bits", f, w)
	} else if !v.AndNot(mask).IsZero() {
		t.err = fmt.Errorf("match %s: value %s has bits outside the mask %s", f, appendHex(nil, v), appendHex(nil, mask))
	}
	return t
}

// IsAddr matches an address field, or a register that holds an address, with an address of its width.
func (f Field) IsAddr(a netip.Addr) Term {
	if !addrFits(f, a) {
		return Term{err: fmt.Errorf("match %s: address %s is not of the field's width of %d bits", f, a, f.Bits())}
	}
	return f.IsMasked(AddrValue(a), Ones(f.Bits()))
}

// IsPrefix matches an address field with a prefix. Host bits are cleared; a prefix of length 0
// matches everything.
func (f Field) IsPrefix(p netip.Prefix) Term {
	if !p.IsValid() || !addrFits(f, p.Addr()) {
		return Term{err: fmt.Errorf("match %s: prefix %s is not of the field's width of %d bits", f, p, f.Bits())}
	}
	w := f.Bits()
	mask := Ones(w).AndNot(Ones(w - uint(p.Bits())))
	return f.IsMasked(AddrValue(p.Addr()).And(mask), mask)
}

// IsMAC matches an Ethernet address field.
func (f Field) IsMAC(m MAC) Term {
	if f.Bits() != 48 {
		return Term{err: fmt.Errorf("match %s: %s is an Ethernet address, the field has %d bits", f, m, f.Bits())}
	}
	return f.IsMasked(MACValue(m), Ones(48))
}

func addrFits(f Field, a netip.Addr) bool {
	return a.Is4() && f.Bits() == 32 || a.Is6() && !a.Is4In6() && f.Bits() == 128
}

// Is matches the bits of the range with a number.
func (r Range) Is(n uint64) Term {
	if err := r.check(); err != nil {
		return Term{err: err}
	}
	if Num(n).Len() > int(r.Bits()) {
		return Term{err: fmt.Errorf("match %s: %#x does not fit into %d bits", r, n, r.Bits())}
	}
	return r.Field.IsMasked(Num(n).Shl(uint(r.Lo)), r.Mask())
}

// InPortIs matches in_port.
func InPortIs(port uint32) Term {
	v, err := portValue(port)
	if err != nil {
		return Term{err: fmt.Errorf("match in_port: %w", err)}
	}
	return InPort.Is(v)
}

// Src matches the source address with a single address or prefix, in the field of its family. The
// Ethernet type must be matched as well.
func Src(p netip.Prefix) Term { return familyField(p.Addr(), IPSrc, IPv6Src).IsPrefix(p) }

// Dst matches the destination address with a prefix, in the field of its family.
func Dst(p netip.Prefix) Term { return familyField(p.Addr(), IPDst, IPv6Dst).IsPrefix(p) }

// SrcAddr matches the source address, in the field of its family.
func SrcAddr(a netip.Addr) Term { return familyField(a, IPSrc, IPv6Src).IsAddr(a) }

// DstAddr matches the destination address, in the field of its family.
func DstAddr(a netip.Addr) Term { return familyField(a, IPDst, IPv6Dst).IsAddr(a) }

func familyField(a netip.Addr, v4, v6 Field) Field {
	if a.Is6() {
		return v6
	}
	return v4
}

// SrcPort matches the source port of the protocol (6, 17 or 132), which must be matched as well.
func SrcPort(proto uint8, port uint16) Term { return portField(proto, 0).Is(uint64(port)) }

// DstPort matches the destination port of the protocol (6, 17 or 132).
func DstPort(proto uint8, port uint16) Term { return portField(proto, 1).Is(uint64(port)) }

func portField(proto uint8, dst Field) Field {
	switch proto {
	case ProtoTCP:
		return TCPSrc + dst
	case ProtoUDP:
		return UDPSrc + dst
	case ProtoSCTP:
		return SCTPSrc + dst
	}
	return FieldNone
}

// DstPortField returns the field of the destination port of the protocol, FieldNone if it has none.
func DstPortField(proto uint8) Field { return portField(proto, 1) }

// SrcPortField returns the field of the source port of the protocol, FieldNone if it has none.
func SrcPortField(proto uint8) Field { return portField(proto, 0) }

// CTStateIs matches ct_state: set are the bits that must be set, clear those that must not.
func CTStateIs(set, clear uint32) Term {
	if set&clear != 0 {
		return Term{err: fmt.Errorf("match ct_state: a bit cannot be set and clear: %#x", set&clear)}
	}
	return CTState.IsMasked(Num(uint64(set)), Num(uint64(set|clear)))
}

// CTStateText matches ct_state in ovs-ofctl's notation: "+new+trk", "-rpl+trk".
func CTStateText(s string) Term {
	v, m, err := parseFlags(s, ctStateNames[:], 32)
	if err != nil {
		return Term{err: fmt.Errorf("match ct_state: %w", err)}
	}
	return CTState.IsMasked(v, m)
}

// VLANIs matches a tag with VLAN id n.
func VLANIs(n uint16) Term {
	if n > 0xfff {
		return Term{err: fmt.Errorf("match dl_vlan: %d is not in 0 to 4095", n)}
	}
	return VLANTCI.IsMasked(Num(0x1000|uint64(n)), Num(0x1fff))
}

// VLANTagged matches any tag, NoVLAN packets without one.
func VLANTagged() Term { return VLANTCI.IsMasked(Num(0x1000), Num(0x1000)) }

// NoVLAN matches packets without a tag.
func NoVLAN() Term { return VLANTCI.IsMasked(Num(0), Num(0x1fff)) }

// Match is a conjunction of field matches in canonical form: sorted by field, each field once, views
// resolved, no condition that is always true.
type Match struct{ fields []FieldMatch }

// Fields returns the conditions in order. The caller must not change them.
func (m Match) Fields() []FieldMatch { return m.fields }

// Get returns the condition on a field; one with a zero mask if there is none.
func (m Match) Get(f Field) FieldMatch {
	for _, t := range m.fields {
		if t.Field == f {
			return t
		}
	}
	return FieldMatch{Field: f}
}

// NewMatch builds a match and checks that it has a canonical form: prerequisites are there, and no two
// terms contradict each other.
func NewMatch(terms ...Term) (Match, error) {
	var m Match
	for _, t := range terms {
		if err := m.add(t); err != nil {
			return Match{}, err
		}
	}
	return m, m.check()
}

func (m *Match) add(t Term) error {
	switch {
	case t.err != nil:
		return t.err
	case t.m.Field == FieldNone && t.proto != 0:
		if err := m.put(FieldMatch{EthType, Num(uint64(t.proto >> 16)), Ones(16)}); err != nil {
			return err
		}
		if t.proto&1 != 0 {
			return m.put(FieldMatch{IPProto, Num(uint64(t.proto >> 8 & 0xff)), Ones(8)})
		}
		return nil
	case t.m.Field == FieldNone || t.m.Field >= numFields:
		return errors.New("match: no such field")
	}
	f := t.m
	info := &fields[f.Field]
	if info.exact && !f.Mask.IsZero() && !f.Exact() {
		return fmt.Errorf("match %s: the field cannot be masked", f.Field)
	}
	if info.format == fmtFrag && f.Mask.Lo > FragAny|FragLater {
		if !f.Exact() {
			return fmt.Errorf("match %s: only bits 0 and 1 are known", f.Field)
		}
		f.Mask = Ones(2)
	}
	base, shift := f.Field.Base()
	switch {
	case shift >= 0 && base != f.Field:
		g := FieldMatch{base, f.Value.Shl(uint(shift)), f.Mask.Shl(uint(shift))}
		if base == VLANTCI { // a match on a part of a tag says that there is one
			g.Value, g.Mask = g.Value.Or(Num(0x1000)), g.Mask.Or(Num(0x1000))
		}
		return m.put(g)
	case shift < 0:
		n := f.Field.Bits() / 32
		for i := range n {
			s := 32 * (n - 1 - i)
			if err := m.put(FieldMatch{base + Field(i), f.Value.Shr(s).And(Ones(32)), f.Mask.Shr(s).And(Ones(32))}); err != nil {
				return err
			}
		}
		return nil
	}
	return m.put(f)
}

// put adds a condition on a stored field, merging it with one that is there.
func (m *Match) put(f FieldMatch) error {
	if f.Mask.IsZero() {
		return nil
	}
	if f.Field == VLANTCI && f.Value.Lo&0x1000 == 0 && f.Mask.Lo&0x1000 != 0 && f.Value.IsZero() && f.Mask.Lo != 0x1000 {
		f.Mask = Num(0x1fff) // no tag: OVS compares what is left of the mask in OpenFlow 1.2 and later
	}
	i, found := slices.BinarySearchFunc(m.fields, f.Field, func(a FieldMatch, b Field) int { return int(a.Field) - int(b) })
	if !found {
		m.fields = slices.Insert(m.fields, i, f)
		return nil
	}
	g := &m.fields[i]
	if both := g.Mask.And(f.Mask); g.Value.And(both) != f.Value.And(both) {
		return fmt.Errorf("match %s: %s/%s and %s/%s contradict each other", f.Field,
			appendHex(nil, g.Value), appendHex(nil, g.Mask), appendHex(nil, f.Value), appendHex(nil, f.Mask))
	}
	g.Value, g.Mask = g.Value.Or(f.Value), g.Mask.Or(f.Mask)
	return nil
}

func (m Match) check() error {
	c := m.context()
	for _, f := range m.fields {
		if p := fields[f.Field].pre; !c.allows(p) {
			return fmt.Errorf("match %s: needs a match on %s as well (OFPBMC_BAD_PREREQ)", fieldText(f), prereqNames[p])
		}
	}
	return nil
}

func fieldText(f FieldMatch) string { return string(f.appendText(nil)) }

// context is what is known of a packet that matched, for prerequisites.
type context struct {
	eth         uint16
	proto       uint8
	icmp, code  int    // -1: any
	tags        int    // VLAN tags that are there for certain
	ctState     uint32 // set bits
	inCT        bool   // inside ct(exec(…))
	unconfirmed bool   // nothing is known: all is allowed (a group's bucket)
}

func (m Match) context() context {
	c := context{icmp: -1, code: -1}
	for _, f := range m.fields {
		switch f.Field {
		case EthType:
			c.eth = uint16(f.Value.Lo)
		case IPProto:
			c.proto = uint8(f.Value.Lo)
		case ICMPv6Type:
			c.icmp = int(f.Value.Lo)
		case ICMPv6Code:
			c.code = int(f.Value.Lo)
		case VLANTCI:
			c.tags = int(f.Value.Lo >> 12 & 1)
		case CTState:
			c.ctState = uint32(f.Value.Lo)
		}
	}
	return c
}

func (c context) ip() bool { return c.eth == EthTypeIPv4 || c.eth == EthTypeIPv6 }

func (c context) allows(p prereq) bool {
	if c.unconfirmed {
		return true
	}
	tracked := c.ctState&CTTrk != 0 && c.ctState&(CTNew|CTEst|CTRel|CTRpl) != 0
	icmp6 := c.eth == EthTypeIPv6 && c.proto == ProtoICMPv6
	switch p {
	case preIPv4:
		return c.eth == EthTypeIPv4
	case preIPv6:
		return c.eth == EthTypeIPv6
	case preIP:
		return c.ip()
	case preARP:
		return c.eth == EthTypeARP
	case preTCP:
		return c.ip() && c.proto == ProtoTCP
	case preUDP:
		return c.ip() && c.proto == ProtoUDP
	case preSCTP:
		return c.ip() && c.proto == ProtoSCTP
	case preICMP:
		return c.eth == EthTypeIPv4 && c.proto == ProtoICMP
	case preICMPv6:
		return icmp6
	case preND:
		return icmp6 && (c.icmp == 135 || c.icmp == 136) && c.code <= 0
	case preNS:
		return icmp6 && c.icmp == 135 && c.code <= 0
	case preNA:
		return icmp6 && c.icmp == 136 && c.code <= 0
	case preVLAN:
		return c.tags > 0
	case preCTv4:
		return c.eth == EthTypeIPv4 && tracked
	case preCTv6:
		return c.eth == EthTypeIPv6 && tracked
	case preCT:
		return c.ip() && tracked
	}
	return true
}
