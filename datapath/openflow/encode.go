package openflow

import (
	"fmt"
	"net/netip"
)

// Version is the version byte of OpenFlow 1.5.
const Version = 6

// Type is the type of a message (OpenFlow 1.5, 7.1.1).
type Type uint8

// The types that are sent or understood.
const (
	TypeHello            Type = 0
	TypeError            Type = 1
	TypeEchoRequest      Type = 2
	TypeEchoReply        Type = 3
	TypeExperimenter     Type = 4
	TypeFeaturesRequest  Type = 5
	TypeFeaturesReply    Type = 6
	TypeSetConfig        Type = 9
	TypePacketIn         Type = 10
	TypeFlowRemoved      Type = 11
	TypePortStatus       Type = 12
	TypePacketOut        Type = 13
	TypeFlowMod          Type = 14
	TypeGroupMod         Type = 15
	TypeMultipartRequest Type = 18
	TypeMultipartReply   Type = 19
	TypeBarrierRequest   Type = 20
	TypeBarrierReply     Type = 21
	TypeMeterMod         Type = 29
	TypeBundleControl    Type = 33
	TypeBundleAdd        Type = 34
)

// Multipart types (OpenFlow 1.5, 7.3.5).
const (
	multipartFlow        = 1
	multipartGroupDesc   = 7
	multipartMeterConfig = 10
	multipartPortDesc    = 13
)

// Subtypes of Nicira's experimenter messages.
const (
	nxtSetPacketInFormat = 16
	nxtPacketIn2         = 30
	nxtCTFlush           = 32
)

// Command says what a mod message does with its object.
type Command uint16

// The commands. Put adds the object or replaces one with the same key; OpenFlow tells an added from a
// changed group and meter, so for these Put is of a new one and Change of one that is there.
const (
	Put Command = iota
	Change
	Delete
)

// PutOrChange puts a group whether it is there or not (an extension of OVS).
const PutOrChange Command = 0x8000

// BundleStep is a step of a bundle.
type BundleStep uint16

// The steps of a bundle, and the replies to them (OpenFlow 1.5, 7.3.9).
const (
	BundleOpen    BundleStep = 0
	BundleOpened  BundleStep = 1
	BundleClose   BundleStep = 2
	BundleClosed  BundleStep = 3
	BundleCommit  BundleStep = 4
	BundleDone    BundleStep = 5
	BundleDiscard BundleStep = 6
	BundleGone    BundleStep = 7
)

// bundleFlags are atomic and ordered.
const bundleFlags = 3

const (
	headerLen = 8
	anyPort   = 0xffffffff
	anyGroup  = 0xffffffff
	allTables = 255
	noBuffer  = 0xffffffff
	allGroups = 0xfffffffc
	anyMeter  = 0xffffffff
)

// The Append functions append one message to b and return the longer slice. They fail only if the message
// would be longer than MaxMessage; b is then returned as it was.

func header(b []byte, t Type, xid uint32) []byte {
	return be.AppendUint32(append(b, Version, byte(t), 0, 0), xid)
}

func finish(b []byte, start int) ([]byte, error) {
	n := len(b) - start
	if n > MaxMessage {
		return b[:start], fmt.Errorf("the message would have %d bytes, OpenFlow allows %d", n, MaxMessage)
	}
	be.PutUint16(b[start+2:], uint16(n))
	return b, nil
}

// short sets the length of a message that is always short enough.
func short(b []byte, start int) []byte {
	be.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

// AppendHello appends a hello that offers OpenFlow 1.5 only.
func AppendHello(b []byte, xid uint32) []byte {
	start := len(b)
	return short(append(header(b, TypeHello, xid), 0, 1, 0, 8, 0, 0, 0, 1<<Version), start)
}

// AppendEchoReply appends the answer to an echo request with the same data.
func AppendEchoReply(b []byte, xid uint32, data []byte) []byte {
	start := len(b)
	return short(append(header(b, TypeEchoReply, xid), data[:min(len(data), MaxMessage-headerLen)]...), start)
}

// AppendEchoRequest appends an echo request without data.
func AppendEchoRequest(b []byte, xid uint32) []byte {
	return short(header(b, TypeEchoRequest, xid), len(b))
}

// AppendFeaturesRequest appends a request for the switch's features.
func AppendFeaturesRequest(b []byte, xid uint32) []byte {
	return short(header(b, TypeFeaturesRequest, xid), len(b))
}

// AppendBarrierRequest appends a barrier: its reply comes after those of all messages before it.
func AppendBarrierRequest(b []byte, xid uint32) []byte {
	return short(header(b, TypeBarrierRequest, xid), len(b))
}

// AppendSetConfig appends the number of bytes of a packet that a packet-in carries. OVS sends no packet-ins
// before it is set to more than 0.
func AppendSetConfig(b []byte, xid uint32, missSendLen uint16) []byte {
	start := len(b)
	return short(be.AppendUint16(append(header(b, TypeSetConfig, xid), 0, 0), missSendLen), start)
}

func experimenter(b []byte, xid, subtype uint32) []byte {
	return be.AppendUint32(be.AppendUint32(header(b, TypeExperimenter, xid), vendorNicira), subtype)
}

// AppendSetPacketInFormat asks for packet-ins as NXT_PACKET_IN2, with userdata and connection tracking fields.
func AppendSetPacketInFormat(b []byte, xid uint32) []byte {
	start := len(b)
	return short(be.AppendUint32(experimenter(b, xid, nxtSetPacketInFormat), 2), start)
}

// AppendFlowMod appends a flow_mod. Delete is strict: of the flow with this table, priority and match.
func AppendFlowMod(b []byte, xid uint32, c Command, f *Flow) ([]byte, error) {
	start := len(b)
	return finish(appendFlowMod(b, xid, c, f), start)
}

func appendFlowMod(b []byte, xid uint32, c Command, f *Flow) []byte {
	const modifyStrict, deleteStrict = 2, 4
	b = header(b, TypeFlowMod, xid)
	cookie, command := f.cookie, byte(0)
	switch c {
	case Change:
		command = modifyStrict
	case Delete:
		cookie, command = 0, deleteStrict
	}
	start := len(b) - headerLen
	b = be.AppendUint64(be.AppendUint64(b, cookie), 0)
	b = append(b, f.table, command)
	for _, n := range [...]uint16{f.idleTimeout, f.hardTimeout, f.priority} {
		b = be.AppendUint16(b, n)
	}
	for _, n := range [...]uint32{noBuffer, anyPort, anyGroup} {
		b = be.AppendUint32(b, n)
	}
	b = f.match.appendWire(append(b, 0, 0, 0, 0))
	if c != Delete {
		b = appendInstructions(b, f.actions)
	}
	return putLength(b, start)
}

// putLength sets the length of the message inside another one; the outer finish tells if it is too long.
func putLength(b []byte, start int) []byte {
	be.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

func appendInstructions(b []byte, actions []Action) []byte {
	last := len(actions)
	var next Action
	if last > 0 {
		if g, ok := actions[last-1].(GotoAction); ok {
			last, next = last-1, g
		}
	}
	if last > 0 {
		at := len(b)
		b = append(b, 0, 4, 0, 0, 0, 0, 0, 0)
		for _, a := range actions[:last] {
			b = a.appendWire(b)
		}
		be.PutUint16(b[at+2:], uint16(len(b)-at))
	}
	if next != nil {
		b = next.appendWire(b)
	}
	return b
}

// AppendGroupMod appends a group_mod.
func AppendGroupMod(b []byte, xid uint32, c Command, g *Group) ([]byte, error) {
	start := len(b)
	return finish(appendGroupMod(b, xid, c, g), start)
}

func appendGroupMod(b []byte, xid uint32, c Command, g *Group) []byte {
	const allBuckets = 0xffffffff
	start := len(b)
	b = be.AppendUint16(header(b, TypeGroupMod, xid), uint16(c))
	t := g.spec.Type
	if c == Delete {
		t = GroupAll
	}
	b = be.AppendUint32(append(b, byte(t), 0), g.spec.ID)
	at := len(b)
	b = be.AppendUint32(append(b, 0, 0, 0, 0), allBuckets)
	if c == Delete {
		return putLength(b, start)
	}
	first := len(b)
	for i := range g.spec.Buckets {
		b = g.spec.Buckets[i].appendWire(b, t)
	}
	be.PutUint16(b[at:], uint16(len(b)-first))
	if g.spec.SelectionMethod != "" {
		b = appendSelection(b, &g.spec)
	}
	return putLength(b, start)
}

func (k *Bucket) appendWire(b []byte, t GroupType) []byte {
	at := len(b)
	b = be.AppendUint32(append(b, 0, 0, 0, 0), k.ID)
	for _, a := range k.Actions {
		b = a.appendWire(b)
	}
	be.PutUint16(b[at+2:], uint16(len(b)-at-8))
	if t == GroupSelect {
		b = append(be.AppendUint16(append(b, 0, 0, 0, 8), k.Weight), 0, 0)
	}
	be.PutUint16(b[at:], uint16(len(b)-at))
	return b
}

// appendSelection appends the experimenter property with selection_method and fields.
func appendSelection(b []byte, s *GroupSpec) []byte {
	const nameLen = 16
	at := len(b)
	b = be.AppendUint32(append(b, 0xff, 0xff, 0, 0), vendorNTR)
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 0)
	b = append(b, s.SelectionMethod...)
	b = append(b, make([]byte, nameLen-len(s.SelectionMethod)+8)...)
	for _, f := range s.HashFields {
		h := wireHeaders[f]
		b = appendWireValue(be.AppendUint32(b, h), Ones(8*uint(h&0xff)), int(h&0xff))
	}
	be.PutUint16(b[at+2:], uint16(len(b)-at))
	return padTo8(b, at)
}

// Bits of a meter's flags.
const (
	meterKbps  = 1
	meterPktps = 2
	meterBurst = 4
)

// AppendMeterMod appends a meter_mod.
func AppendMeterMod(b []byte, xid uint32, c Command, m *Meter) []byte {
	start := len(b)
	flags := uint16(meterKbps)
	if m.PktPS {
		flags = meterPktps
	}
	if m.Burst {
		flags |= meterBurst
	}
	if c == Delete {
		flags = 0
	}
	b = be.AppendUint16(be.AppendUint16(header(b, TypeMeterMod, xid), uint16(c)), flags)
	b = be.AppendUint32(b, m.ID)
	if c != Delete {
		b = be.AppendUint32(append(b, 0, 1, 0, 16), m.Rate)
		b = append(be.AppendUint32(b, m.BurstSize), 0, 0, 0, 0)
	}
	return short(b, start)
}

// AppendBundleControl appends a step of an atomic, ordered bundle.
func AppendBundleControl(b []byte, xid, bundle uint32, s BundleStep) []byte {
	start := len(b)
	b = be.AppendUint16(be.AppendUint32(header(b, TypeBundleControl, xid), bundle), uint16(s))
	return short(append(b, 0, bundleFlags), start)
}

func bundleAdd(b []byte, xid, bundle uint32) []byte {
	b = be.AppendUint32(header(b, TypeBundleAdd, xid), bundle)
	return append(b, 0, 0, 0, bundleFlags)
}

// AppendBundleFlow appends the flow_mod of a flow as part of a bundle. Message and flow_mod have the same xid.
func AppendBundleFlow(b []byte, xid, bundle uint32, c Command, f *Flow) ([]byte, error) {
	start := len(b)
	return finish(appendFlowMod(bundleAdd(b, xid, bundle), xid, c, f), start)
}

// AppendBundleGroup appends the group_mod of a group as part of a bundle.
func AppendBundleGroup(b []byte, xid, bundle uint32, c Command, g *Group) ([]byte, error) {
	start := len(b)
	return finish(appendGroupMod(bundleAdd(b, xid, bundle), xid, c, g), start)
}

func multipart(b []byte, xid uint32, t uint16) []byte {
	return append(be.AppendUint16(header(b, TypeMultipartRequest, xid), t), 0, 0, 0, 0, 0, 0)
}

// AppendFlowDumpRequest asks for all flows.
func AppendFlowDumpRequest(b []byte, xid uint32) []byte {
	start := len(b)
	b = append(multipart(b, xid, multipartFlow), allTables, 0, 0, 0)
	b = be.AppendUint32(be.AppendUint32(b, anyPort), anyGroup)
	b = append(b, make([]byte, 4+8+8)...)
	return short(Match{}.appendWire(b), start)
}

// AppendGroupDescRequest asks for all groups.
func AppendGroupDescRequest(b []byte, xid uint32) []byte {
	start := len(b)
	return short(append(be.AppendUint32(multipart(b, xid, multipartGroupDesc), allGroups), 0, 0, 0, 0), start)
}

// AppendMeterConfigRequest asks for all meters.
func AppendMeterConfigRequest(b []byte, xid uint32) []byte {
	start := len(b)
	return short(append(be.AppendUint32(multipart(b, xid, multipartMeterConfig), anyMeter), 0, 0, 0, 0), start)
}

// AppendPortDescRequest asks for all ports.
func AppendPortDescRequest(b []byte, xid uint32) []byte {
	start := len(b)
	return short(append(be.AppendUint32(multipart(b, xid, multipartPortDesc), anyPort), 0, 0, 0, 0), start)
}

// AppendPacketOut appends a packet that the switch passes through actions, as if it came from inPort.
func AppendPacketOut(b []byte, xid, inPort uint32, actions []Action, packet []byte) ([]byte, error) {
	start := len(b)
	b = be.AppendUint32(header(b, TypePacketOut, xid), noBuffer)
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	b = append(be.AppendUint32(append(b, 0, 1, 0, 12), oxmInPort), 0, 0, 0, 0, 0, 0, 0, 0)
	be.PutUint32(b[at+12:], inPort)
	first := len(b)
	for _, a := range actions {
		b = a.appendWire(b)
	}
	be.PutUint16(b[at:], uint16(len(b)-first))
	return finish(append(b, packet...), start)
}

// CTTuple selects connections of one direction; zero values select any.
type CTTuple struct {
	Src, Dst netip.AddrPort
}

// AppendCTFlush appends NXT_CT_FLUSH: the connections of a zone and protocol whose original and reply
// directions are as given are deleted.
func AppendCTFlush(b []byte, xid uint32, zone uint16, proto uint8, orig, reply CTTuple) []byte {
	const propOrig, propReply, propZone = 0, 1, 2
	start := len(b)
	b = append(experimenter(b, xid, nxtCTFlush), proto, 0, 0, 0, 0, 0, 0, 0)
	b = orig.appendWire(b, propOrig)
	b = reply.appendWire(b, propReply)
	b = append(be.AppendUint16(append(b, 0, propZone, 0, 8), zone), 0, 0)
	return short(b, start)
}

func (t CTTuple) appendWire(b []byte, kind byte) []byte {
	const src, dst, srcPort, dstPort = 0, 1, 2, 3
	if t == (CTTuple{}) {
		return b
	}
	at := len(b)
	b = append(b, 0, kind, 0, 0, 0, 0, 0, 0)
	for i, a := range [...]netip.Addr{t.Src.Addr(), t.Dst.Addr()} {
		if a.IsValid() {
			a16 := a.As16() // IPv4 as ::ffff:a.b.c.d
			b = append(append(b, 0, byte(src+i*(dst-src)), 0, 20), a16[:]...)
			b = append(b, 0, 0, 0, 0)
		}
	}
	for i, p := range [...]uint16{t.Src.Port(), t.Dst.Port()} {
		if p != 0 {
			b = append(be.AppendUint16(append(b, 0, byte(srcPort+i*(dstPort-srcPort)), 0, 8), p), 0, 0)
		}
	}
	be.PutUint16(b[at+2:], uint16(len(b)-at))
	return b
}
