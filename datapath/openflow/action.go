package openflow

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// Action is one of the action types of this package. Actions are values and immutable.
type Action interface {
	// appendText appends the canonical text.
	appendText(b []byte) []byte
	// check says what is wrong with the action after a match of the context.
	check(c *context) error
	// appendWire appends the action as in an OpenFlow 1.5 message.
	appendWire(b []byte) []byte
	// wireLen is the length in an OpenFlow 1.5 message, in bytes.
	wireLen() int
}

// ActionText returns the canonical text of an action.
func ActionText(a Action) string { return string(a.appendText(nil)) }

// invalidAction carries the error of a constructor to Build.
type invalidAction struct{ err error }

func (a invalidAction) appendText(b []byte) []byte { return append(b, "invalid"...) }
func (a invalidAction) check(*context) error       { return a.err }
func (a invalidAction) wireLen() int               { return 0 }

// OutputAction sends the packet out of a port, or of a reserved one: IN_PORT, NORMAL, FLOOD, ALL, LOCAL.
type OutputAction struct{ Port uint32 }

// Output sends the packet out of a port. A packet does not go back to the port it came from: use
// OutputInPort for that.
func Output(port uint32) Action {
	if port == PortController {
		return Controller{}
	}
	return OutputAction{port}
}

// OutputInPort sends the packet back out of the port it came from.
func OutputInPort() Action { return OutputAction{PortInPort} }

// Normal switches the packet as an ordinary learning switch does.
func Normal() Action { return OutputAction{PortNormal} }

func (a OutputAction) appendText(b []byte) []byte {
	if a.Port < PortMax {
		b = append(b, "output:"...)
	}
	return appendPort(b, a.Port)
}

func (a OutputAction) check(*context) error {
	if a.Port == PortController {
		return errors.New("output to the controller is the action controller")
	}
	_, err := portValue(a.Port)
	return err
}

func (a OutputAction) wireLen() int { return 16 }

// OutputRegAction sends the packet out of the port whose number is in a field.
type OutputRegAction struct{ Src Range }

// OutputReg sends the packet out of the port whose number is in the range.
func OutputReg(src Range) Action { return OutputRegAction{src} }

func (a OutputRegAction) appendText(b []byte) []byte {
	return a.Src.appendText(append(b, "output:"...))
}
func (a OutputRegAction) check(c *context) error { return c.checkSource(a.Src) }
func (a OutputRegAction) wireLen() int           { return 24 }

// Controller sends the packet to the controller. The action is printed as OVS does: CONTROLLER:N if
// nothing but the length is set.
type Controller struct {
	MaxLen   uint16 // bytes of the packet; 0 stands for all, as 65535
	Userdata []byte
	MeterID  uint32 // 0: none
	Reason   string // "" or "action", "no_match", "invalid_ttl"
	ID       uint16 // controller connection; 0: the ordinary one
}

func (a Controller) appendText(b []byte) []byte {
	n := a.MaxLen
	if n == 0 {
		n = 0xffff
	}
	reason := a.Reason != "" && a.Reason != "action"
	if len(a.Userdata) == 0 && a.MeterID == 0 && !reason && a.ID == 0 {
		return strconv.AppendUint(append(b, "CONTROLLER:"...), uint64(n), 10)
	}
	b = append(b, "controller("...)
	start := len(b)
	item := func(name string) {
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(append(b, name...), '=')
	}
	if reason {
		item("reason")
		b = append(b, a.Reason...)
	}
	if n != 0xffff {
		item("max_len")
		b = strconv.AppendUint(b, uint64(n), 10)
	}
	if a.ID != 0 {
		item("id")
		b = strconv.AppendUint(b, uint64(a.ID), 10)
	}
	if len(a.Userdata) > 0 {
		item("userdata")
		for i, x := range a.Userdata {
			if i > 0 {
				b = append(b, '.')
			}
			b = append(b, hexDigits[x>>4], hexDigits[x&15])
		}
	}
	if a.MeterID != 0 {
		item("meter_id")
		b = strconv.AppendUint(b, uint64(a.MeterID), 10)
	}
	return append(b, ')')
}

func (a Controller) check(*context) error {
	switch a.Reason {
	case "", "action", "no_match", "invalid_ttl":
		return nil
	}
	return fmt.Errorf("reason %q: want action, no_match or invalid_ttl", a.Reason)
}

func (a Controller) wireLen() int {
	n := 16
	if len(a.Userdata) > 0 || a.MeterID != 0 {
		n += 8 + 8 + pad8(4+len(a.Userdata))
	}
	if a.MeterID != 0 {
		n += 8
	}
	return n
}

// GroupAction hands the packet to a group.
type GroupAction struct{ ID uint32 }

// ToGroup hands the packet to a group.
func ToGroup(id uint32) Action { return GroupAction{id} }

func (a GroupAction) appendText(b []byte) []byte {
	return strconv.AppendUint(append(b, "group:"...), uint64(a.ID), 10)
}
func (a GroupAction) check(*context) error { return checkGroupID(a.ID) }
func (a GroupAction) wireLen() int         { return 8 }

// ResubmitAction looks the packet up in another table, then goes on with the next action.
type ResubmitAction struct {
	Table   uint8  // 255: the current one
	InPort  uint32 // with SetPort: looked up as if the packet came from this port
	SetPort bool
}

// Resubmit looks the packet up in a table and then goes on with the next action.
func Resubmit(table uint8) Action { return resubmits[table] }

// resubmits has the action for each table, once: tens of thousands of flows share a few of them.
var resubmits = func() (all [256]Action) {
	for i := range all {
		all[i] = ResubmitAction{Table: uint8(i)}
	}
	return all
}()

func (a ResubmitAction) appendText(b []byte) []byte {
	if a.SetPort && a.Table == 255 {
		return appendPort(append(b, "resubmit:"...), a.InPort)
	}
	b = append(b, "resubmit("...)
	if a.SetPort {
		b = appendPort(b, a.InPort)
	}
	b = append(b, ',')
	if a.Table != 255 {
		b = strconv.AppendUint(b, uint64(a.Table), 10)
	}
	return append(b, ')')
}

func (a ResubmitAction) check(*context) error {
	if !a.SetPort && a.Table == 255 {
		return errors.New("resubmit: no table and no port is given")
	}
	if a.SetPort {
		_, err := portValue(a.InPort)
		return err
	}
	return nil
}
func (a ResubmitAction) wireLen() int { return 16 }

// GotoAction goes on in a later table; it is the last action.
type GotoAction struct{ Table uint8 }

// Goto goes on in a later table. It must be the last action.
func Goto(table uint8) Action { return GotoAction{table} }

func (a GotoAction) appendText(b []byte) []byte {
	return strconv.AppendUint(append(b, "goto_table:"...), uint64(a.Table), 10)
}
func (a GotoAction) check(*context) error { return nil }
func (a GotoAction) wireLen() int         { return 8 }

// SetFieldAction sets the bits of Mask in a field.
type SetFieldAction struct {
	Field       Field
	Value, Mask Value
}

// Set sets the whole field to a number.
func (f Field) Set(n uint64) Action { return f.SetMasked(Num(n), Ones(f.Bits())) }

// SetMasked sets the bits of mask.
func (f Field) SetMasked(v, mask Value) Action {
	if f == VLANVID {
		v = v.Or(Num(0x1000))
	}
	return SetFieldAction{f, v, mask}
}

// SetAddr sets an address field, or a register, to an address of the field's width.
func (f Field) SetAddr(a netip.Addr) Action {
	if !addrFits(f, a) {
		return invalidAction{fmt.Errorf("set %s: address %s is not of the field's width of %d bits", f, a, f.Bits())}
	}
	return SetFieldAction{f, AddrValue(a), Ones(f.Bits())}
}

// SetMAC sets an Ethernet address field.
func (f Field) SetMAC(m MAC) Action {
	if f.Bits() != 48 {
		return invalidAction{fmt.Errorf("set %s: %s is an Ethernet address, the field has %d bits", f, m, f.Bits())}
	}
	return SetFieldAction{f, MACValue(m), Ones(48)}
}

// Set sets the bits of the range to a number.
func (r Range) Set(n uint64) Action { return r.SetValue(Num(n)) }

// SetValue sets the bits of the range.
func (r Range) SetValue(v Value) Action {
	if err := r.check(); err != nil {
		return invalidAction{err}
	}
	if v.Len() > int(r.Bits()) {
		return invalidAction{fmt.Errorf("set %s: %s does not fit into %d bits", r, appendHex(nil, v), r.Bits())}
	}
	return r.Field.SetMasked(v.Shl(uint(r.Lo)), r.Mask())
}

func (a SetFieldAction) appendText(b []byte) []byte {
	b = appendValue(append(b, "set_field:"...), a.Field, a.Value, a.Mask)
	return append(append(b, "->"...), fields[a.Field].name...)
}

func (a SetFieldAction) check(c *context) error {
	if a.Field == FieldNone || a.Field >= numFields {
		return errors.New("set_field: no such field")
	}
	info := &fields[a.Field]
	width := info.bits
	if a.Field == VLANVID {
		if width++; a.Value.Lo&0x1000 == 0 || a.Mask != Ones(12) && a.Mask != Ones(13) {
			return fmt.Errorf("%s: want a whole VLAN id with bit 0x1000 set (OFPBAC_BAD_SET_ARGUMENT)", ActionText(a))
		}
	}
	switch {
	case info.fixed:
		return fmt.Errorf("%s: %s is read-only", ActionText(a), a.Field)
	case a.Value.Len() > int(width) || a.Mask.Len() > int(width):
		return fmt.Errorf("%s: value or mask does not fit into %d bits", ActionText(a), width)
	case a.Mask.IsZero():
		return fmt.Errorf("%s: the mask is empty", ActionText(a))
	case a.Field != VLANVID && !a.Value.AndNot(a.Mask).IsZero():
		return fmt.Errorf("%s: the value has bits outside the mask (OFPBMC_BAD_WILDCARDS)", ActionText(a))
	}
	if !c.mayTarget(a.Field) {
		return c.targetError(a.Field, a)
	}
	return nil
}

func (a SetFieldAction) wireLen() int {
	n := fieldBytes(a.Field)
	if a.Mask != Ones(a.Field.Bits()) && a.Field != VLANVID {
		n *= 2
	}
	return pad8(4 + 4 + n)
}

// MoveAction copies bits from one field to another.
type MoveAction struct{ Src, Dst Range }

// Move copies the bits of src to dst, which must be as many.
func Move(src, dst Range) Action { return MoveAction{src, dst} }

func (a MoveAction) appendText(b []byte) []byte {
	b = a.Src.appendText(append(b, "move:"...))
	return a.Dst.appendText(append(b, "->"...))
}

func (a MoveAction) check(c *context) error {
	if err := c.checkSource(a.Src); err != nil {
		return err
	}
	if err := a.Dst.check(); err != nil {
		return err
	}
	if a.Src.Bits() != a.Dst.Bits() {
		return fmt.Errorf("%s: the source has %d bits, the destination %d", ActionText(a), a.Src.Bits(), a.Dst.Bits())
	}
	if fields[a.Dst.Field].fixed {
		return fmt.Errorf("%s: %s is read-only", ActionText(a), a.Dst.Field)
	}
	if !c.mayTarget(a.Dst.Field) {
		return c.targetError(a.Dst.Field, a)
	}
	return nil
}
func (a MoveAction) wireLen() int { return 24 }

// DecTTLAction takes one from the TTL; at 0 the packet is dropped.
type DecTTLAction struct{}

// DecTTL takes one from the TTL or hop limit; a packet whose TTL was 1 or 0 is dropped.
func DecTTL() Action { return DecTTLAction{} }

func (a DecTTLAction) appendText(b []byte) []byte { return append(b, "dec_ttl"...) }
func (a DecTTLAction) check(c *context) error     { return c.require(preIP, "dec_ttl") }
func (a DecTTLAction) wireLen() int               { return 8 }

// MeterAction passes the packet through a meter; it must be the first action of a flow.
type MeterAction struct{ ID uint32 }

// ToMeter passes the packet through a meter. It must be the first action of a flow.
func ToMeter(id uint32) Action { return MeterAction{id} }

func (a MeterAction) appendText(b []byte) []byte {
	return strconv.AppendUint(append(b, "meter:"...), uint64(a.ID), 10)
}
func (a MeterAction) check(*context) error { return checkMeterID(a.ID) }
func (a MeterAction) wireLen() int         { return 8 }

// maxTags is how many VLAN tags OVS handles (FLOW_MAX_VLAN_HEADERS).
const maxTags = 2

// PushVLANAction adds a tag with VLAN id 0; a flow's actions may not add a third to what its match says is there.
type PushVLANAction struct{}

// PushVLAN adds an 802.1Q tag with VLAN id 0.
func PushVLAN() Action { return PushVLANAction{} }

func (a PushVLANAction) appendText(b []byte) []byte { return append(b, "push_vlan:0x8100"...) }
func (a PushVLANAction) check(c *context) error {
	if c.tags == maxTags && !c.unconfirmed {
		return fmt.Errorf("push_vlan: a third tag (OFPBAC_BAD_TAG)")
	}
	c.tags++
	return nil
}
func (a PushVLANAction) wireLen() int { return 8 }

// PopVLANAction removes the tag.
type PopVLANAction struct{}

// PopVLAN removes the tag.
func PopVLAN() Action { return PopVLANAction{} }

func (a PopVLANAction) appendText(b []byte) []byte { return append(b, "pop_vlan"...) }
func (a PopVLANAction) check(c *context) error {
	if err := c.require(preVLAN, "pop_vlan"); err != nil {
		return err
	}
	c.tags--
	return nil
}
func (a PopVLANAction) wireLen() int { return 8 }

// CTClearAction forgets what ct found.
type CTClearAction struct{}

// CTClear forgets ct_state, ct_mark and the other fields that ct set.
func CTClear() Action { return CTClearAction{} }

func (a CTClearAction) appendText(b []byte) []byte { return append(b, "ct_clear"...) }
func (a CTClearAction) check(*context) error       { return nil }
func (a CTClearAction) wireLen() int               { return 16 }

func (c *context) require(p prereq, what string) error {
	if c.allows(p) {
		return nil
	}
	return fmt.Errorf("%s: needs a match on %s (OFPBAC_MATCH_INCONSISTENT)", what, prereqNames[p])
}

func (c *context) checkSource(r Range) error {
	if err := r.check(); err != nil {
		return err
	}
	if c.allows(fields[r.Field].pre) {
		return nil
	}
	return c.require(fields[r.Field].pre, r.String())
}

// mayTarget reports whether an action may set f. It is apart from targetError, which makes texts: this runs for
// every action.
func (c *context) mayTarget(f Field) bool {
	return fields[f].ctField == c.inCT && c.allows(fields[f].pre)
}

// targetError says why a may not set f.
func (c *context) targetError(f Field, a Action) error {
	switch {
	case fields[f].ctField && !c.inCT:
		return fmt.Errorf("%s: connection tracking fields are set inside ct(commit,exec(…)) only (OFPBAC_BAD_SET_ARGUMENT)", ActionText(a))
	case !fields[f].ctField && c.inCT:
		return fmt.Errorf("%s: ct(exec(…)) sets ct_mark and ct_label only", ActionText(a))
	}
	return c.require(fields[f].pre, ActionText(a))
}

func checkGroupID(id uint32) error {
	if id > 0xffffff00 {
		return fmt.Errorf("group %d: want 0 to 4294967040 (OpenFlow OFPG_MAX)", id)
	}
	return nil
}

func checkMeterID(id uint32) error {
	if id == 0 || id > 0xffff0000 {
		return fmt.Errorf("meter %d: want 1 to 4294901760 (OpenFlow OFPM_MAX)", id)
	}
	return nil
}

func pad8(n int) int { return (n + 7) &^ 7 }

// fieldBytes is the length of a field's value on the wire.
func fieldBytes(f Field) int { return int(f.Bits()+7) / 8 }

func appendActions(b []byte, actions []Action) []byte {
	if len(actions) == 0 {
		return append(b, "drop"...)
	}
	for i, a := range actions {
		if i > 0 {
			b = append(b, ',')
		}
		b = a.appendText(b)
	}
	return b
}

// ActionsText returns the canonical text of a list of actions: "drop" if it is empty.
func ActionsText(actions []Action) string { return string(appendActions(nil, actions)) }
