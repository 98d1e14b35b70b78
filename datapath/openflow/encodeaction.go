package openflow

// Action types (OpenFlow 1.5, 7.2.8) and subtypes of Nicira's actions (OVS, ofp-actions.c).
const (
	actOutput     = 0
	actPushVLAN   = 17
	actPopVLAN    = 18
	actGroup      = 22
	actDecTTL     = 24
	actSetField   = 25
	actCopyField  = 28
	actMeter      = 29
	actExperiment = 0xffff

	nxResubmitTable = 14
	nxOutputReg     = 15
	nxLearn         = 16
	nxController    = 20
	nxCT            = 35
	nxNAT           = 36
	nxController2   = 37
	nxCTClear       = 43

	vendorNicira = 0x2320
	vendorNTR    = 0x154d // Netronome: selection_method of groups

	nxLearnImmediate = 1 << 13
	nxLearnDstShift  = 11

	nxCTCommit = 1
	nxCTForce  = 2

	noTable = 255
)

// Properties of NXAST_CONTROLLER2.
const (
	ctrlMaxLen = iota
	ctrlID
	ctrlReason
	ctrlUserdata
	_ // pause
	ctrlMeter
)

// Bits of a NAT action that say what follows.
const (
	natIPv4Min = 1 << iota
	natIPv4Max
	natIPv6Min
	natIPv6Max
	natPortMin
	natPortMax
)

// nicira appends the header of a Nicira action; the length is set by endAction.
func nicira(b []byte, subtype uint16) []byte {
	b = append(b, 0xff, 0xff, 0, 0)
	return be.AppendUint16(be.AppendUint32(b, vendorNicira), subtype)
}

// endAction pads the action that begins at start and sets its length.
func endAction(b []byte, start int) []byte {
	b = padTo8(b, start)
	be.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

func ofsBits(r Range) uint16 { return uint16(r.Lo)<<6 | uint16(r.Bits()-1) }

func (a invalidAction) appendWire(b []byte) []byte { return b }

func appendOutput(b []byte, port uint32, maxLen uint16) []byte {
	b = be.AppendUint32(append(b, 0, actOutput, 0, 16), port)
	return append(be.AppendUint16(b, maxLen), 0, 0, 0, 0, 0, 0)
}

func (a OutputAction) appendWire(b []byte) []byte { return appendOutput(b, a.Port, 0) }

func (a OutputRegAction) appendWire(b []byte) []byte {
	start := len(b)
	b = be.AppendUint16(nicira(b, nxOutputReg), ofsBits(a.Src))
	b = be.AppendUint32(b, wireHeaders[a.Src.Field])
	return endAction(append(b, 0xff, 0xff, 0, 0, 0, 0, 0, 0), start)
}

var controllerReasons = map[string]uint8{"no_match": 0, "": 1, "action": 1, "invalid_ttl": 2}

func (a Controller) appendWire(b []byte) []byte {
	start, n, reason := len(b), a.MaxLen, controllerReasons[a.Reason]
	if n == 0 {
		n = 0xffff
	}
	if len(a.Userdata) == 0 && a.MeterID == 0 {
		if reason == 1 && a.ID == 0 {
			return appendOutput(b, PortController, n)
		}
		b = be.AppendUint16(be.AppendUint16(nicira(b, nxController), n), a.ID)
		return endAction(append(b, reason, 0), start)
	}
	b = append(nicira(b, nxController2), 0, 0, 0, 0, 0, 0)
	if n != 0xffff {
		b = append(be.AppendUint16(append(b, 0, ctrlMaxLen, 0, 8), n), 0, 0)
	}
	if a.ID != 0 {
		b = append(be.AppendUint16(append(b, 0, ctrlID, 0, 8), a.ID), 0, 0)
	}
	if reason != 1 {
		b = append(b, 0, ctrlReason, 0, 5, reason, 0, 0, 0)
	}
	if len(a.Userdata) > 0 {
		at := len(b)
		b = be.AppendUint16(append(b, 0, ctrlUserdata), uint16(4+len(a.Userdata)))
		b = padTo8(append(b, a.Userdata...), at)
	}
	if a.MeterID != 0 {
		b = be.AppendUint32(append(b, 0, ctrlMeter, 0, 8), a.MeterID)
	}
	return endAction(b, start)
}

func (a GroupAction) appendWire(b []byte) []byte {
	return be.AppendUint32(append(b, 0, actGroup, 0, 8), a.ID)
}

func (a ResubmitAction) appendWire(b []byte) []byte {
	port := uint16(PortInPort & 0xffff)
	if a.SetPort {
		port = uint16(a.InPort)
	}
	start := len(b)
	b = be.AppendUint16(nicira(b, nxResubmitTable), port)
	return endAction(append(b, a.Table), start)
}

// appendWire appends the instruction; it stands after the actions.
func (a GotoAction) appendWire(b []byte) []byte { return append(b, 0, 1, 0, 8, a.Table, 0, 0, 0) }

func (a SetFieldAction) appendWire(b []byte) []byte {
	start := len(b)
	b = append(b, 0, actSetField, 0, 0)
	exact := a.Field == VLANVID || a.Mask == Ones(a.Field.Bits())
	return endAction(appendOXM(b, wireHeaders[a.Field], a.Value, a.Mask, exact), start)
}

func (a MoveAction) appendWire(b []byte) []byte {
	b = be.AppendUint16(append(b, 0, actCopyField, 0, 24), uint16(a.Src.Bits()))
	b = be.AppendUint16(be.AppendUint16(b, uint16(a.Src.Lo)), uint16(a.Dst.Lo))
	b = be.AppendUint32(append(b, 0, 0), wireHeaders[a.Src.Field])
	return append(be.AppendUint32(b, wireHeaders[a.Dst.Field]), 0, 0, 0, 0)
}

func (a DecTTLAction) appendWire(b []byte) []byte {
	return append(b, 0, actDecTTL, 0, 8, 0, 0, 0, 0)
}

func (a MeterAction) appendWire(b []byte) []byte {
	return be.AppendUint32(append(b, 0, actMeter, 0, 8), a.ID)
}

func (a PushVLANAction) appendWire(b []byte) []byte {
	return append(b, 0, actPushVLAN, 0, 8, 0x81, 0, 0, 0)
}

func (a PopVLANAction) appendWire(b []byte) []byte {
	return append(b, 0, actPopVLAN, 0, 8, 0, 0, 0, 0)
}

func (a CTClearAction) appendWire(b []byte) []byte {
	start := len(b)
	return endAction(nicira(b, nxCTClear), start)
}

func (a CT) appendWire(b []byte) []byte {
	start := len(b)
	var flags uint16
	if a.Commit {
		flags |= nxCTCommit
	}
	if a.Force {
		flags |= nxCTForce
	}
	b = be.AppendUint16(nicira(b, nxCT), flags)
	if a.ZoneFrom.Field != FieldNone {
		b = be.AppendUint16(be.AppendUint32(b, wireHeaders[a.ZoneFrom.Field]), ofsBits(a.ZoneFrom))
	} else {
		b = be.AppendUint16(be.AppendUint32(b, 0), a.Zone)
	}
	table, ok := a.Table.Table()
	if !ok {
		table = noTable
	}
	b = append(b, table, 0, 0, 0, 0, 0)
	if a.NAT != nil {
		b = a.NAT.appendWire(b)
	}
	for _, e := range a.Exec {
		b = e.appendWire(b)
	}
	return endAction(b, start)
}

func (n *NAT) appendWire(b []byte) []byte {
	start := len(b)
	b = be.AppendUint16(append(nicira(b, nxNAT), 0, 0), uint16(n.Kind))
	var present uint16
	b = append(b, 0, 0)
	at := len(b) - 2
	for i, x := range [...]struct {
		ok   bool
		bit4 uint16
		bit6 uint16
	}{{n.Addr.IsValid(), natIPv4Min, natIPv6Min}, {n.Max.IsValid(), natIPv4Max, natIPv6Max}} {
		if !x.ok {
			continue
		}
		addr := n.Addr
		if i == 1 {
			addr = n.Max
		}
		if addr.Is4() {
			a4 := addr.As4()
			present, b = present|x.bit4, append(b, a4[:]...)
		} else {
			a16 := addr.As16()
			present, b = present|x.bit6, append(b, a16[:]...)
		}
	}
	if n.Port != 0 {
		present, b = present|natPortMin, be.AppendUint16(b, n.Port)
		if n.MaxPort != 0 {
			present, b = present|natPortMax, be.AppendUint16(b, n.MaxPort)
		}
	}
	be.PutUint16(b[at:], present)
	return endAction(b, start)
}

func (a Learn) appendWire(b []byte) []byte {
	start := len(b)
	b = nicira(b, nxLearn)
	for _, n := range [...]uint16{a.IdleTimeout, a.HardTimeout, a.Priority} {
		b = be.AppendUint16(b, n)
	}
	b = be.AppendUint64(b, a.Cookie)
	b = append(b, 0, 0, a.Table, 0)
	if a.DeleteLearned {
		b[len(b)-3] = 2
	}
	b = be.AppendUint16(be.AppendUint16(b, a.FinIdleTimeout), a.FinHardTimeout)
	for _, s := range a.Specs {
		b = s.appendWire(b)
	}
	return endAction(b, start)
}

func (s LearnSpec) appendWire(b []byte) []byte {
	imm := s.Src.Field == FieldNone
	r := s.Src
	if imm {
		r = s.Dst
	}
	h := uint16(r.Bits()) | uint16(s.Kind)<<nxLearnDstShift
	if imm {
		h |= nxLearnImmediate
	}
	b = be.AppendUint16(b, h)
	if imm {
		b = appendWireValue(b, s.Value, int(s.Dst.Bits()+15)/16*2)
	} else {
		b = be.AppendUint16(be.AppendUint32(b, learnHeader(s.Src.Field)), uint16(s.Src.Lo))
	}
	if s.Kind != LearnKindOutput {
		b = be.AppendUint16(be.AppendUint32(b, learnHeader(s.Dst.Field)), uint16(s.Dst.Lo))
	}
	return b
}

// learnHeader returns the header that OVS uses in learn: NXM's if the field has one.
func learnHeader(f Field) uint32 {
	if a := wireAliases[f]; len(a) > 0 && f != InPort {
		return a[0]
	}
	return wireHeaders[f]
}
