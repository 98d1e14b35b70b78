package openflow

import "fmt"

// decodeMatch reads an ofp_match with its padding.
func (r *reader) decodeMatch() []Term {
	kind, body := r.property(true)
	if r.err == nil && kind != 1 {
		r.fail("match type %d: want 1 (OXM)", kind)
	}
	terms, err := decodeOXMs(body.b)
	if err != nil {
		r.fail("match: %w", err)
	}
	return terms
}

func decodeOXMs(b []byte) ([]Term, error) {
	r := reader{b: b}
	var terms []Term
	for len(r.b) > 0 && r.err == nil {
		f, v, mask := r.oxm()
		if r.err == nil {
			terms = append(terms, wireTerm(f, v, mask))
		}
	}
	return terms, r.err
}

// oxm reads header, value and mask of a field.
func (r *reader) oxm() (f Field, v, mask Value) {
	h := r.u32()
	if r.err != nil {
		return FieldNone, v, mask
	}
	masked := h&oxmMasked != 0
	n := h & 0xff
	if masked {
		if n%2 != 0 {
			r.fail("field %#08x: value and mask have %d bytes together", h, n)
			return FieldNone, v, mask
		}
		n /= 2
	}
	f, err := fieldOfWire(h&^0x1ff | n)
	if err != nil {
		r.fail("%w", err)
		return FieldNone, v, mask
	}
	v = r.value(int(n))
	mask = Ones(8 * uint(n))
	if masked {
		mask = r.value(int(n))
	}
	if h&^0x1ff|n == oxmInPort {
		port, err := portValue(uint32(v.Lo))
		if err != nil || masked {
			r.fail("in_port %#x: no port number, or masked", v.Lo)
		}
		return f, Num(port), Ones(16)
	}
	return f, v, mask
}

// wireTerm makes the term of a match; what OVS sends with more bits than the field has is cut.
func wireTerm(f Field, v, mask Value) Term {
	full := mask == Ones(8*uint(fieldBytes(f)))
	switch f {
	case CTState:
		if mask = mask.And(Num(0xff)); mask.Lo == 0xff {
			mask = Ones(32)
		}
	case IPFrag:
		if full {
			mask = Num(FragAny | FragLater)
		}
	case VLANVID: // bit 12 says that a tag is present
		if full {
			mask = Num(0x1fff)
		}
		if !v.AndNot(mask).IsZero() || v.Len() > 13 {
			return Term{err: fmt.Errorf("match vlan_vid: %#x/%#x", v.Lo, mask.Lo)}
		}
		return VLANTCI.IsMasked(v, mask.And(Num(0x1fff)))
	case VLANPCP:
		if v.Len() > 3 {
			return Term{err: fmt.Errorf("match vlan_pcp: %d is over 7", v.Lo)}
		}
		return VLANTCI.IsMasked(Num(v.Lo<<13), Num(7<<13))
	case TCPFlags, IPDSCP, IPECN:
		if full {
			mask = Ones(f.Bits())
		}
	}
	return f.IsMasked(v, mask)
}

// rangeOf reads the 4-byte header of a field and makes the range of bits from lo.
func (r *reader) rangeOf(lo, bits uint16) Range {
	h := r.u32()
	if r.err != nil {
		return Range{}
	}
	f, err := fieldOfWire(h)
	if err != nil {
		r.fail("%w", err)
		return Range{}
	}
	if bits == 0 || uint(lo)+uint(bits) > f.Bits() {
		r.fail("%s: bits %d to %d of %d", f, lo, uint(lo)+uint(bits)-1, f.Bits())
		return Range{}
	}
	return Range{f, uint8(lo), uint8(lo + bits - 1)}
}

func splitOfsBits(n uint16) (lo, bits uint16) { return n >> 6, n&63 + 1 }
