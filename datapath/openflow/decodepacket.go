package openflow

import "slices"

// PacketIn is a packet that the action controller handed up (NXT_PACKET_IN2).
type PacketIn struct {
	Packet   []byte
	TotalLen uint32 // of the packet; more than len(Packet) if max_len cut it
	Table    uint8
	Cookie   uint64
	Reason   uint8 // 0: no_match, 1: action, 2: invalid_ttl
	Userdata []byte
	// Metadata has registers, in_port, the tunnel's and connection tracking's fields, as the packet had them.
	Metadata []FieldMatch
}

// Get returns what the packet had in a metadata field; 0 if it is not told, which is the same.
func (p *PacketIn) Get(f Field) Value {
	for _, m := range p.Metadata {
		if m.Field == f {
			return m.Value
		}
	}
	return Value{}
}

// Properties of NXT_PACKET_IN2.
const (
	pinPacket = iota
	pinFullLen
	pinBufferID
	pinTable
	pinCookie
	pinReason
	pinMetadata
	pinUserdata
	pinContinuation
)

func (r *reader) packetIn2() Message {
	p := &PacketIn{}
	for len(r.b) > 0 && r.err == nil {
		kind, q := r.property(true)
		switch kind {
		case pinPacket:
			p.Packet = slices.Clone(q.b)
		case pinFullLen:
			p.TotalLen = q.u32()
		case pinTable:
			p.Table = q.u8()
		case pinCookie:
			q.take(4)
			p.Cookie = q.u64()
		case pinReason:
			p.Reason = q.u8()
		case pinUserdata:
			p.Userdata = slices.Clone(q.b)
		case pinMetadata:
			p.Metadata = q.metadata()
		}
		if q.err != nil {
			r.fail("packet-in: property %d: %w", kind, q.err)
		}
	}
	if p.TotalLen == 0 {
		p.TotalLen = uint32(len(p.Packet))
	}
	return p
}

// metadata reads what is known of the fields; those that are not supported are left out.
func (r *reader) metadata() []FieldMatch {
	var m Match
	for len(r.b) >= 4 && r.err == nil {
		h := be.Uint32(r.b)
		n := h & 0xff
		bare := h &^ 0x1ff
		if h&oxmMasked != 0 {
			bare |= n / 2
		} else {
			bare |= n
		}
		if _, err := fieldOfWire(bare); err != nil {
			r.take(4 + int(n))
			continue
		}
		f, v, mask := r.oxm()
		if r.err == nil {
			if err := m.add(wireTerm(f, v.And(mask), mask)); err != nil {
				r.fail("%w", err)
			}
		}
	}
	return m.fields
}
