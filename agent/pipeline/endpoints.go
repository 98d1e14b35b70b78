package pipeline

import (
	"cmp"
	"net/netip"
	"slices"

	of "towtank/datapath/openflow"
)

// Endpoints are what was made of the endpoints of a Service port when it was rendered last. One that is still there
// is not made anew: an EndpointSlice that changes by one endpoint costs one endpoint, and what the Store holds of
// the others stays the same objects.
type Endpoints struct {
	proto     uint8
	next      uint8 // the table of nextTable
	old, made []endpoint
	// port is the last one that a bucket was made for, and setPort the action: most often all have one.
	port    uint16
	setPort of.Action
}

// endpoint is one endpoint in one group.
type endpoint struct {
	group   uint32
	backend netip.AddrPort
	flow    *of.Flow    // its translation; nil until it is made
	actions []of.Action // of its bucket
}

func (e *endpoint) compare(o endpoint) int {
	if c := cmp.Compare(e.group, o.group); c != 0 {
		return c
	}
	return e.backend.Compare(o.backend)
}

// begin starts a rendering. What does not depend on the endpoint alone makes the old ones useless.
// n is how many there are now, in all groups.
func (e *Endpoints) begin(proto, next uint8, n int) {
	e.old, e.made = e.made, nil
	if e.proto != proto || e.next != next {
		e.old = nil
	}
	e.proto, e.next = proto, next
	e.made = make([]endpoint, 0, n)
}

// end ends a rendering.
func (e *Endpoints) end() {
	e.old = nil
	slices.SortFunc(e.made, func(a, b endpoint) int { return a.compare(b) })
}

// before returns what was made of an endpoint before; nothing, if it is new.
func (e *Endpoints) before(group uint32, b Backend) endpoint {
	want := endpoint{group: group, backend: b.AddrPort}
	if i, ok := slices.BinarySearchFunc(e.old, want, func(x, y endpoint) int { return x.compare(y) }); ok {
		return e.old[i]
	}
	return want
}

// bucket returns the actions of an endpoint's bucket.
func (e *Endpoints) bucket(s *Service, group uint32, b Backend) []of.Action {
	x := e.before(group, b)
	if x.actions == nil {
		if e.setPort == nil || e.port != b.Port() {
			e.port, e.setPort = b.Port(), regPort.Set(uint64(b.Port()))
		}
		x.actions = []of.Action{s.regEndpoint().SetAddr(b.Addr()), e.setPort, of.Resubmit(e.next)}
	}
	e.made = append(e.made, x)
	return x.actions
}

// add adds the translation of the i-th endpoint whose bucket was made in this rendering.
func (e *Endpoints) add(l *List, s *Service, cookie uint64, i int, b Backend) {
	x := &e.made[i]
	if x.flow != nil {
		l.objs = append(l.objs, x.flow)
		return
	}
	f, err := s.endpoint(cookie, uint64(x.group), b)
	x.flow = f
	Add(l, f, err)
}
