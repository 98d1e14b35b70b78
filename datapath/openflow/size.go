package openflow

// MaxMessage is the largest OpenFlow message in bytes: its length field has 16 bits.
const MaxMessage = 65535

// WireLen estimates the length of the flow's OpenFlow 1.5 flow_mod inside a bundle_add message, in
// bytes. It counts what OVS writes; it may be off by a few bytes for views of registers.
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

// WireLen estimates the length of the group's OpenFlow 1.5 group_mod inside a bundle_add message, in
// bytes.
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

func (m Match) wireLen() int {
	n := 0
	for _, f := range m.fields {
		k := fieldBytes(f.Field)
		if !f.Exact() {
			k *= 2
		}
		n += 4 + k
	}
	return n
}
