package openflow

// MaxMessage is the largest OpenFlow message in bytes: its length field has 16 bits.
const MaxMessage = 65535

// WireLen returns the length of the flow's OpenFlow 1.5 flow_mod inside a bundle_add message as
// ovs-ofctl writes it, in bytes. It is an estimate where no message was compared: learn, controller.
func (f *Flow) WireLen() int {
	n := bundleHeader + 48 + pad8(4+f.match.wireLen())
	apply := 0
	for _, a := range f.actions {
		switch a.(type) {
		case MeterAction, GotoAction:
			n += a.wireLen()
		default:
			apply += a.wireLen()
		}
	}
	if apply > 0 {
		n += 8 + apply
	}
	return n
}

// WireLen returns the length of the group's OpenFlow 1.5 group_mod inside a bundle_add message as
// ovs-ofctl writes it, in bytes.
func (g *Group) WireLen() int {
	n := bundleHeader + 24
	for i := range g.spec.Buckets {
		k := &g.spec.Buckets[i]
		n += 8
		if g.spec.Type == GroupSelect {
			n += 8 // weight property
		}
		for _, a := range k.Actions {
			n += a.wireLen()
		}
	}
	if g.spec.SelectionMethod != "" {
		n += 40 // experimenter property with the name of the method
		for _, f := range g.spec.HashFields {
			n += 4 + fieldBytes(f)
		}
		n = pad8(n)
	}
	return n
}

// bundleHeader is the length of ofp_bundle_add_msg before the message that it carries.
const bundleHeader = 16

// wireLen is the length of the OXM fields. OVS sends registers in pairs, as OXM_OF_PKT_REG0 to 7.
func (m Match) wireLen() int {
	n := 0
	for i, f := range m.fields {
		if f.Field >= Reg0 && f.Field <= Reg15 {
			n += m.pairLen(i)
			continue
		}
		k := fieldBytes(f.Field)
		switch {
		case f.Field == InPort:
			k = 4 // OXM_OF_IN_PORT
		case !f.Exact():
			k *= 2
		}
		n += 4 + k
	}
	return n
}

// pairLen is what the register that is field i of the match adds: all of its pair if it is the first of
// the two that is matched.
func (m Match) pairLen(i int) int {
	f := m.fields[i]
	other := func(k int) bool {
		return k >= 0 && k < len(m.fields) && m.fields[k].Field >= Reg0 && m.fields[k].Field <= Reg15 && (m.fields[k].Field-Reg0)/2 == (f.Field-Reg0)/2
	}
	switch {
	case other(i - 1):
		return 0
	case other(i+1) && f.Exact() && m.fields[i+1].Exact():
		return 4 + 8
	}
	return 4 + 16
}
