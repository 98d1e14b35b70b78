package openflow

import (
	"fmt"
	"slices"
	"strings"
)

// Header is the header of a message.
type Header struct {
	Version uint8
	Type    Type
	Length  uint16
	XID     uint32
}

// DecodeHeader reads the first 8 bytes of a message.
func DecodeHeader(b []byte) (Header, error) {
	if len(b) < headerLen {
		return Header{}, fmt.Errorf("an OpenFlow header has %d bytes, %d are there", headerLen, len(b))
	}
	h := Header{b[0], Type(b[1]), be.Uint16(b[2:]), be.Uint32(b[4:])}
	if h.Length < headerLen {
		return h, fmt.Errorf("OpenFlow message of type %d says that it has %d bytes", h.Type, h.Length)
	}
	return h, nil
}

// Message is one of the message types below, or nil for a type that is not looked into.
type Message any

// The messages that Decode returns. Slices in them are copies.
type (
	// Hello is the first message of a connection; its header has the highest version of the switch.
	Hello struct{}
	// EchoRequest wants its data back.
	EchoRequest struct{ Data []byte }
	// EchoReply answers an echo request.
	EchoReply struct{ Data []byte }
	// BarrierReply says that everything before the barrier is done.
	BarrierReply struct{}
	// FeaturesReply tells of the switch.
	FeaturesReply struct {
		DatapathID uint64
		Tables     uint8
	}
	// BundleReply answers a step of a bundle.
	BundleReply struct {
		Bundle uint32
		Step   BundleStep
	}
	// FlowStats is a part of the answer to a flow dump; More says that others follow.
	FlowStats struct {
		More  bool
		Flows []FlowEntry
	}
	// GroupDesc is a part of the answer to a group dump.
	GroupDesc struct {
		More   bool
		Groups []GroupEntry
	}
	// MeterConfig is a part of the answer to a meter dump.
	MeterConfig struct {
		More   bool
		Meters []*Meter
	}
	// PortDesc is a part of the answer to a port dump.
	PortDesc struct {
		More  bool
		Ports []PortInfo
	}
	// PortStatus says that a port was added, deleted or changed.
	PortStatus struct {
		Reason PortReason
		Port   PortInfo
	}
)

// FlowEntry is a flow of a dump. Flow is nil and Err set if it has parts that are not supported.
type FlowEntry struct {
	Cookie uint64
	Flow   *Flow
	Err    error
}

// GroupEntry is a group of a dump. Group is nil and Err set if it has parts that are not supported.
type GroupEntry struct {
	ID    uint32
	Group *Group
	Err   error
}

// PortInfo tells of a port.
type PortInfo struct {
	Number uint32
	Name   string
	MAC    MAC
	Up     bool // neither the port nor its link is down
}

// PortReason is why a port status was sent.
type PortReason uint8

// The reasons.
const (
	PortAdded PortReason = iota
	PortDeleted
	PortModified
)

// Decode reads one whole message. The message is nil if the type is none of those that are looked into.
func Decode(b []byte) (Header, Message, error) {
	h, err := DecodeHeader(b)
	if err != nil {
		return h, nil, err
	}
	if int(h.Length) != len(b) {
		return h, nil, fmt.Errorf("OpenFlow message of type %d says that it has %d bytes, %d are there", h.Type, h.Length, len(b))
	}
	if h.Type == TypeHello {
		return h, Hello{}, nil
	}
	if h.Version != Version {
		return h, nil, fmt.Errorf("OpenFlow message of type %d: version byte %d, want %d (OpenFlow 1.5)", h.Type, h.Version, Version)
	}
	r := reader{b: b[headerLen:]}
	m := r.message(h.Type)
	if r.err != nil {
		return h, nil, fmt.Errorf("OpenFlow message of type %d: %w", h.Type, r.err)
	}
	return h, m, nil
}

func (r *reader) message(t Type) Message {
	switch t {
	case TypeError:
		return r.errorMessage()
	case TypeEchoRequest:
		return EchoRequest{slices.Clone(r.b)}
	case TypeEchoReply:
		return EchoReply{slices.Clone(r.b)}
	case TypeBarrierReply:
		return BarrierReply{}
	case TypeFeaturesReply:
		m := FeaturesReply{DatapathID: r.u64()}
		r.take(4)
		m.Tables = r.u8()
		return m
	case TypeBundleControl:
		return BundleReply{r.u32(), BundleStep(r.u16())}
	case TypePortStatus:
		m := PortStatus{Reason: PortReason(r.u8())}
		r.take(7)
		m.Port = r.port()
		return m
	case TypeExperimenter:
		if vendor, subtype := r.u32(), r.u32(); r.err != nil || vendor != vendorNicira || subtype != nxtPacketIn2 {
			return nil
		}
		return r.packetIn2()
	case TypeMultipartReply:
		return r.multipartReply()
	}
	return nil
}

func (r *reader) multipartReply() Message {
	kind, more := r.u16(), r.u16()&1 != 0
	r.take(4)
	switch kind {
	case multipartFlow:
		m := FlowStats{More: more}
		for len(r.b) > 0 && r.err == nil {
			m.Flows = append(m.Flows, r.flowEntry())
		}
		return m
	case multipartGroupDesc:
		m := GroupDesc{More: more}
		for len(r.b) > 0 && r.err == nil {
			m.Groups = append(m.Groups, r.groupEntry())
		}
		return m
	case multipartMeterConfig:
		m := MeterConfig{More: more}
		for len(r.b) > 0 && r.err == nil {
			m.Meters = append(m.Meters, r.meterEntry())
		}
		return m
	case multipartPortDesc:
		m := PortDesc{More: more}
		for len(r.b) > 0 && r.err == nil {
			m.Ports = append(m.Ports, r.port())
		}
		return m
	}
	return nil
}

// entry returns the part that begins with its length in two bytes.
func (r *reader) entry(least int) reader {
	if len(r.b) < 2 {
		r.fail("an entry of a dump has %d bytes", len(r.b))
		return reader{err: r.err}
	}
	n := int(be.Uint16(r.b))
	if n < least || n > len(r.b) {
		r.fail("an entry of a dump says that it has %d bytes, %d are there", n, len(r.b))
		return reader{err: r.err}
	}
	e := r.part(n)
	e.take(2)
	return e
}

func (r *reader) flowEntry() FlowEntry {
	e := r.entry(24)
	if e.err != nil {
		return FlowEntry{}
	}
	e.take(2)
	table := e.u8()
	e.take(1)
	b := NewFlow(table, e.u16(), 0)
	b.Timeouts(e.u16(), e.u16())
	e.take(4) // flags, importance
	entry := FlowEntry{Cookie: e.u64()}
	b.f.cookie = entry.Cookie
	b.Match(e.decodeMatch()...)
	e.property(true) // statistics
	entry.Flow, entry.Err = e.finishFlow(b)
	return entry
}

// finishFlow reads the instructions and builds the flow.
func (r *reader) finishFlow(b *Builder) (*Flow, error) {
	for len(r.b) > 0 && r.err == nil {
		kind, body := r.property(false)
		switch kind {
		case 1: // goto_table
			b.Actions(GotoAction{body.u8()})
		case 4: // apply_actions
			body.take(4)
			list, err := decodeActions(body.b, 0)
			if err != nil {
				r.fail("%w", err)
			}
			b.Actions(list...)
		case 6: // meter, of older versions
			b.f.actions = append([]Action{MeterAction{body.u32()}}, b.f.actions...)
		default:
			r.fail("instruction %d is not supported", kind)
		}
		if body.err != nil {
			r.fail("instruction %d: %w", kind, body.err)
		}
	}
	if r.err != nil {
		return nil, fmt.Errorf("flow in table %d with cookie %#x: %w", b.f.table, b.f.cookie, r.err)
	}
	return b.Build()
}

func (r *reader) groupEntry() GroupEntry {
	e := r.entry(16)
	if e.err != nil {
		return GroupEntry{}
	}
	s := GroupSpec{Type: GroupType(e.u8())}
	e.take(1)
	s.ID = e.u32()
	n := int(e.u16())
	e.take(6)
	entry := GroupEntry{ID: s.ID}
	entry.Group, entry.Err = e.finishGroup(s, n)
	return entry
}

// finishGroup reads n bytes of buckets and the properties after them.
func (r *reader) finishGroup(s GroupSpec, n int) (*Group, error) {
	buckets := r.part(n)
	for len(buckets.b) > 0 && buckets.err == nil {
		s.Buckets = append(s.Buckets, buckets.bucket(s.Type))
	}
	if buckets.err != nil {
		r.fail("bucket %d: %w", len(s.Buckets), buckets.err)
	}
	for len(r.b) > 0 && r.err == nil {
		kind, p := r.property(true)
		vendor := p.u32()
		if r.err == nil && (kind != 0xffff || vendor != vendorNTR) {
			r.fail("property %#x of vendor %#x is not supported", kind, vendor)
			break
		}
		p.take(8)
		s.SelectionMethod = strings.TrimRight(string(p.take(16)), "\x00")
		p.take(8)
		for len(p.b) > 0 && p.err == nil {
			f, _, mask := p.oxm()
			if p.err == nil && mask != Ones(8*uint(fieldBytes(f))) {
				p.fail("a mask of field %s is not supported", f)
			}
			s.HashFields = append(s.HashFields, f)
		}
		if p.err != nil {
			r.fail("selection method: %w", p.err)
		}
	}
	if r.err != nil {
		return nil, fmt.Errorf("group group_id=%d: %w", s.ID, r.err)
	}
	return NewGroup(s)
}

func (r *reader) bucket(t GroupType) Bucket {
	const watchPort, watchGroup = 1, 2
	e := r.entry(8)
	if e.err != nil {
		return Bucket{}
	}
	n := int(e.u16())
	k := Bucket{ID: e.u32()}
	actions := e.part(n)
	var err error
	if k.Actions, err = decodeActions(actions.b, 0); err != nil {
		r.fail("%w", err)
	}
	for len(e.b) > 0 && e.err == nil {
		kind, p := e.property(false)
		switch kind {
		case 0:
			if w := p.u16(); t == GroupSelect {
				k.Weight = w
			}
		case watchPort, watchGroup:
			if n := p.u32(); n != anyPort {
				e.fail("a bucket that watches port or group %d is not supported", n)
			}
		default:
			e.fail("property %d of a bucket is not supported", kind)
		}
	}
	if e.err != nil {
		r.fail("%w", e.err)
	}
	return k
}

func (r *reader) meterEntry() *Meter {
	e := r.entry(8)
	if e.err != nil {
		return nil
	}
	flags := e.u16()
	m := &Meter{ID: e.u32(), PktPS: flags&meterPktps != 0, Burst: flags&meterBurst != 0}
	if len(e.b) > 0 {
		kind, band := e.property(false)
		if m.Rate, m.BurstSize = band.u32(), band.u32(); kind != 1 || band.err != nil {
			e.fail("meter %d: band of type %d is not supported", m.ID, kind)
		}
		if !m.Burst {
			m.BurstSize = 0
		}
	}
	if len(e.b) > 0 {
		e.fail("meter %d: more than one band", m.ID)
	}
	if e.err != nil {
		r.fail("%w", e.err)
	}
	return m
}

func (r *reader) port() PortInfo {
	const down = 1
	if len(r.b) < 6 {
		r.fail("a port has %d bytes", len(r.b))
		return PortInfo{}
	}
	n := int(be.Uint16(r.b[4:]))
	if n < 40 || n > len(r.b) {
		r.fail("a port says that it has %d bytes, %d are there", n, len(r.b))
		return PortInfo{}
	}
	e := r.part(n)
	p := PortInfo{Number: e.u32()}
	e.take(4)
	copy(p.MAC[:], e.take(6))
	e.take(2)
	p.Name, _, _ = strings.Cut(string(e.take(16)), "\x00")
	config, state := e.u32(), e.u32()
	p.Up = (config|state)&down == 0
	return p
}

// DecodeMod reads a flow_mod, group_mod or meter_mod, in a bundle_add or not, and returns the object.
func DecodeMod(b []byte) (c Command, o Message, err error) {
	h, err := DecodeHeader(b)
	if err != nil {
		return 0, nil, err
	}
	if int(h.Length) != len(b) || h.Version != Version {
		return 0, nil, fmt.Errorf("version %d, length %d of %d bytes: want OpenFlow 1.5 and a whole message", h.Version, h.Length, len(b))
	}
	r := reader{b: b[headerLen:]}
	switch h.Type {
	case TypeBundleAdd:
		r.take(8)
		if inner, err := DecodeHeader(r.b); err != nil || inner.Type == TypeBundleAdd || int(inner.Length) > len(r.b) {
			return 0, nil, fmt.Errorf("bundle_add: no whole message inside: %w", err)
		} else {
			return DecodeMod(r.b[:inner.Length])
		}
	case TypeFlowMod:
		f := NewFlow(0, 0, r.u64())
		r.take(8)
		f.f.table = r.u8()
		c = [...]Command{Put, Change, Change, Delete, Delete}[min(r.u8(), 4)]
		f.Timeouts(r.u16(), r.u16())
		f.f.priority = r.u16()
		r.take(16)
		f.Match(r.decodeMatch()...)
		o, err = r.finishFlow(f)
		return c, o, err
	case TypeGroupMod:
		c = Command(r.u16())
		s := GroupSpec{Type: GroupType(r.u8())}
		r.take(1)
		s.ID = r.u32()
		n := int(r.u16())
		r.take(6)
		o, err = r.finishGroup(s, n)
		return c, o, err
	case TypeMeterMod:
		c = Command(r.u16())
		e := reader{b: append(be.AppendUint16(nil, uint16(len(r.b)+2)), r.b...)}
		m := e.meterEntry()
		return c, m, e.err
	}
	return 0, nil, fmt.Errorf("message of type %d is no flow_mod, group_mod or meter_mod", h.Type)
}
