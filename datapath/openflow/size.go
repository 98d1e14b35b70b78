package openflow

// MaxMessage is the largest OpenFlow message in bytes: its length field has 16 bits.
const MaxMessage = 65535

// WireLen returns the length of the flow's OpenFlow 1.5 flow_mod inside a bundle_add message, in
// bytes.
func (f *Flow) WireLen() int {
	var match [512]byte
	n := bundleHeader + 48 + len(f.match.appendWire(match[:0]))
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

// WireLen returns the length of the group's OpenFlow 1.5 group_mod inside a bundle_add message, in bytes.
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
