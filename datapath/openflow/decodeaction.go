package openflow

import (
	"fmt"
	"net/netip"
	"slices"
)

// decodeActions reads a list of actions to its end. depth limits ct inside ct.
func decodeActions(b []byte, depth int) ([]Action, error) {
	r := reader{b: b}
	var list []Action
	for len(r.b) > 0 && r.err == nil {
		kind, body := r.property(false)
		if r.err != nil {
			break
		}
		a := body.action(kind, depth)
		if body.err != nil {
			return nil, fmt.Errorf("action %d (type %d): %w", len(list)+1, kind, body.err)
		}
		list = append(list, a)
	}
	return list, r.err
}

func (r *reader) action(kind uint16, depth int) Action {
	switch kind {
	case actOutput:
		port, n := r.u32(), r.u16()
		if port == PortController {
			return Controller{MaxLen: n}
		}
		return OutputAction{port}
	case actPushVLAN:
		if t := r.u16(); t != 0x8100 {
			r.fail("push_vlan %#x: 0x8100 is supported", t)
		}
		return PushVLANAction{}
	case actPopVLAN:
		return PopVLANAction{}
	case actGroup:
		return GroupAction{r.u32()}
	case actMeter:
		return MeterAction{r.u32()}
	case actDecTTL:
		return DecTTLAction{}
	case actSetField:
		f, v, mask := r.oxm()
		if r.err != nil {
			return nil
		}
		if mask == Ones(8*uint(fieldBytes(f))) {
			mask = Ones(f.Bits())
		}
		return SetFieldAction{f, v, mask}
	case actCopyField:
		bits, from, to := r.u16(), r.u16(), r.u16()
		r.take(2)
		return MoveAction{r.rangeOf(from, bits), r.rangeOf(to, bits)}
	case actExperiment:
		if v := r.u32(); r.err == nil && v != vendorNicira {
			r.fail("vendor %#x is not supported", v)
		}
		return r.niciraAction(r.u16(), depth)
	}
	r.fail("not supported")
	return nil
}

func (r *reader) niciraAction(subtype uint16, depth int) Action {
	switch subtype {
	case nxResubmitTable:
		a := ResubmitAction{InPort: portNumber(uint64(r.u16()))}
		a.Table = r.u8()
		if a.InPort == PortInPort && a.Table != noTable {
			a.InPort = 0
		} else {
			a.SetPort = true
		}
		return a
	case nxOutputReg:
		lo, bits := splitOfsBits(r.u16())
		return OutputRegAction{r.rangeOf(lo, bits)}
	case nxController:
		a := Controller{MaxLen: r.u16(), ID: r.u16()}
		r.setReason(&a, r.u8())
		if a.MaxLen == 0xffff {
			a.MaxLen = 0
		}
		return a
	case nxController2:
		return r.controller2()
	case nxCTClear:
		return CTClearAction{}
	case nxLearn:
		return r.learn()
	case nxCT:
		if depth == 0 {
			return r.ct()
		}
	case nxNAT:
		if depth > 0 {
			return natAction{r.nat()}
		}
	}
	r.fail("Nicira's action %d is not supported here", subtype)
	return nil
}

func (r *reader) setReason(a *Controller, n uint8) {
	switch n {
	case 0:
		a.Reason = "no_match"
	case 1:
	case 2:
		a.Reason = "invalid_ttl"
	default:
		r.fail("controller: reason %d is not supported", n)
	}
}

func (r *reader) controller2() Action {
	var a Controller
	r.take(6)
	for len(r.b) > 0 && r.err == nil {
		kind, p := r.property(true)
		switch kind {
		case ctrlMaxLen:
			if a.MaxLen = p.u16(); a.MaxLen == 0xffff {
				a.MaxLen = 0
			}
		case ctrlID:
			a.ID = p.u16()
		case ctrlReason:
			p.setReason(&a, p.u8())
		case ctrlUserdata:
			a.Userdata = slices.Clone(p.b)
		case ctrlMeter:
			a.MeterID = p.u32()
		default:
			r.fail("controller: property %d is not supported", kind)
		}
		if p.err != nil {
			r.fail("controller: property %d: %w", kind, p.err)
		}
	}
	return a
}

// natAction stands in the list of ct's actions only.
type natAction struct{ nat *NAT }

func (a natAction) appendText(b []byte) []byte { return a.nat.appendText(b) }
func (a natAction) check(*context) error       { return fmt.Errorf("nat is allowed in ct only") }
func (a natAction) appendWire(b []byte) []byte { return a.nat.appendWire(b) }
func (a natAction) wireLen() int               { return len(a.nat.appendWire(nil)) }

func (r *reader) ct() Action {
	var a CT
	flags, src, zone, table := r.u16(), r.u32(), r.u16(), r.u8()
	r.take(3)
	if alg := r.u16(); alg != 0 {
		r.fail("ct: alg %d is not supported", alg)
	}
	if flags&^(nxCTCommit|nxCTForce) != 0 {
		r.fail("ct: flags %#x are not supported", flags)
	}
	a.Commit, a.Force = flags&nxCTCommit != 0, flags&nxCTForce != 0
	if src == 0 {
		a.Zone = zone
	} else {
		lo, bits := splitOfsBits(zone)
		h := reader{b: be.AppendUint32(nil, src)}
		if a.ZoneFrom = h.rangeOf(lo, bits); h.err != nil {
			r.fail("ct: zone: %w", h.err)
		}
	}
	if table != noTable {
		a.Table = ToTable(table)
	}
	if r.err != nil {
		return nil
	}
	list, err := decodeActions(r.b, 1)
	if err != nil {
		r.fail("ct: %w", err)
	}
	for _, e := range list {
		if n, ok := e.(natAction); !ok {
			a.Exec = append(a.Exec, e)
		} else if a.NAT == nil {
			a.NAT = n.nat
		} else {
			r.fail("ct: nat is there twice")
		}
	}
	return a
}

func (r *reader) nat() *NAT {
	r.take(2)
	n := &NAT{Kind: NATKind(r.u16())}
	present := r.u16()
	if n.Kind > NATDst || present > natPortMax<<1-1 {
		r.fail("nat: flags %d with range %#x are not supported", n.Kind, present)
		return n
	}
	for _, p := range [...]struct {
		bit   uint16
		bytes int
		to    *netip.Addr
	}{{natIPv4Min, 4, &n.Addr}, {natIPv4Max, 4, &n.Max}, {natIPv6Min, 16, &n.Addr}, {natIPv6Max, 16, &n.Max}} {
		if present&p.bit == 0 {
			continue
		}
		if p.to.IsValid() {
			r.fail("nat: IPv4 and IPv6 addresses together")
		}
		*p.to, _ = netip.AddrFromSlice(r.take(p.bytes))
	}
	if present&natPortMin != 0 {
		n.Port = r.u16()
	}
	if present&natPortMax != 0 {
		n.MaxPort = r.u16()
	}
	return n
}

func (r *reader) learn() Action {
	a := Learn{IdleTimeout: r.u16(), HardTimeout: r.u16(), Priority: r.u16(), Cookie: r.u64()}
	flags := r.u16()
	if flags&^2 != 0 {
		r.fail("learn: flags %#x are not supported", flags)
	}
	a.DeleteLearned = flags&2 != 0
	a.Table = r.u8()
	r.take(1)
	a.FinIdleTimeout, a.FinHardTimeout = r.u16(), r.u16()
	for len(r.b) >= 2 && r.err == nil {
		h := r.u16()
		if h == 0 {
			break // padding
		}
		a.Specs = append(a.Specs, r.learnSpec(h))
	}
	return a
}

func (r *reader) learnSpec(h uint16) LearnSpec {
	const bitsMask = 1<<nxLearnDstShift - 1
	s := LearnSpec{Kind: LearnKind(h >> nxLearnDstShift & 3)}
	bits := h & bitsMask
	if s.Kind > LearnKindOutput || h>>14 != 0 || bits > 128 {
		r.fail("learn: specification %#x is not supported", h)
		return s
	}
	if h&nxLearnImmediate != 0 {
		s.Value = r.value(int(bits+15) / 16 * 2)
	} else {
		s.Src = r.fieldAndOffset(bits)
	}
	if s.Kind != LearnKindOutput {
		s.Dst = r.fieldAndOffset(bits)
	}
	return s
}

func (r *reader) fieldAndOffset(bits uint16) Range {
	if len(r.b) < 6 {
		r.fail("learn: %d bytes are left, a field has 6", len(r.b))
		return Range{}
	}
	lo := be.Uint16(r.b[4:])
	f := r.rangeOf(lo, bits)
	r.take(2)
	return f
}
