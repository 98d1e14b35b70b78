package openflow

import "encoding/binary"

var be = binary.BigEndian

// appendWireValue appends the low n bytes of a value, n at most 16.
func appendWireValue(b []byte, v Value, n int) []byte {
	for i := n - 1; i >= 0; i-- {
		if i >= 8 {
			b = append(b, byte(v.Hi>>(8*(i-8))))
		} else {
			b = append(b, byte(v.Lo>>(8*i)))
		}
	}
	return b
}

// appendOXM appends header and value, and the mask unless the field is exact.
func appendOXM(b []byte, h uint32, v, mask Value, exact bool) []byte {
	n := int(h & 0xff)
	if exact {
		return appendWireValue(be.AppendUint32(b, h), v, n)
	}
	b = be.AppendUint32(b, h|oxmMasked+uint32(n))
	return appendWireValue(appendWireValue(b, v, n), mask, n)
}

// matchOrder is the order in which OVS sends the fields of a match. Registers are sent in pairs, at Reg0.
var matchOrder = []Field{
	InPort, EthSrc, EthDst, EthType, VLANTCI, IPSrc, IPDst, IPv6Src, IPv6Dst, IPFrag, IPTOS, IPTTL, IPProto,
	TCPSrc, TCPDst, TCPFlags, UDPSrc, UDPDst, SCTPSrc, SCTPDst, ICMPType, ICMPCode, ICMPv6Type, ICMPv6Code, NDTarget, NDSLL, NDTLL,
	ARPOp, ARPSPA, ARPTPA, ARPSHA, ARPTHA, TunID, TunSrc, TunDst, TunIPv6Src, TunIPv6Dst, Reg0, PktMark,
	CTState, CTZone, CTMark, CTLabel, CTNwSrc, CTNwDst, CTIPv6Src, CTIPv6Dst, CTNwProto, CTTpSrc, CTTpDst, Metadata,
}

// appendWire appends the match as ofp_match: type OXM, length, fields, padding to 8 bytes.
func (m Match) appendWire(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 1, 0, 0)
	var at [numFields]uint8 // position in m.fields, from 1
	for i, f := range m.fields {
		at[f.Field] = uint8(i + 1)
	}
	for _, f := range matchOrder {
		if f == Reg0 {
			b = m.appendRegisters(b, &at)
		} else if i := at[f]; i > 0 {
			b = m.fields[i-1].appendWire(b)
		}
	}
	be.PutUint16(b[start+2:], uint16(len(b)-start))
	return padTo8(b, start)
}

func (m Match) appendRegisters(b []byte, at *[numFields]uint8) []byte {
	for pair := range Field(8) {
		var v, mask Value
		if i := at[Reg0+2*pair]; i > 0 {
			v, mask = m.fields[i-1].Value.Shl(32), m.fields[i-1].Mask.Shl(32)
		}
		if i := at[Reg0+2*pair+1]; i > 0 {
			v, mask = v.Or(m.fields[i-1].Value), mask.Or(m.fields[i-1].Mask)
		}
		if !mask.IsZero() {
			b = appendOXM(b, wireHeaders[XReg0+pair], v, mask, mask == Ones(64))
		}
	}
	return b
}

func (m FieldMatch) appendWire(b []byte) []byte {
	h := wireHeaders[m.Field]
	switch m.Field {
	case InPort:
		return be.AppendUint32(be.AppendUint32(b, oxmInPort), portNumber(m.Value.Lo))
	case IPTOS:
		if m.Mask.Lo&0xfc != 0 {
			b = appendOXM(b, wireHeaders[IPDSCP], m.Value.Shr(2), Value{}, true)
		}
		if m.Mask.Lo&3 != 0 {
			b = appendOXM(b, wireHeaders[IPECN], m.Value.And(Num(3)), Value{}, true)
		}
		return b
	case VLANTCI:
		if mask := m.Mask.And(Num(0x1fff)); !mask.IsZero() {
			b = appendOXM(b, wireHeaders[VLANVID], m.Value.And(Num(0x1fff)), mask, mask.Lo == 0x1fff)
		}
		if m.Mask.Lo&0xe000 != 0 {
			b = appendOXM(b, wireHeaders[VLANPCP], m.Value.Shr(13), Value{}, true)
		}
		return b
	case IPFrag:
		return appendOXM(b, h, m.Value, m.Mask, m.Mask.Lo&3 == FragAny|FragLater)
	case CTState: // OVS knows 8 bits and refuses a mask of more
		return appendOXM(b, h, m.Value, m.Mask.And(Num(0xff)), false)
	}
	return appendOXM(b, h, m.Value, m.Mask, m.Exact())
}

// padTo8 appends zeros until the part that begins at start is a multiple of 8 long.
func padTo8(b []byte, start int) []byte {
	for (len(b)-start)%8 != 0 {
		b = append(b, 0)
	}
	return b
}
