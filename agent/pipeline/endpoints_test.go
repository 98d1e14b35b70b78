package pipeline

import (
	"net/netip"
	"slices"
	"testing"

	"towtank/datapath"
)

// rendering is a Service port with two endpoints, of which the second is 10.10.1.last.
func rendering(made *Endpoints, proto uint8, affinity uint16, last byte) []datapath.Object {
	s := &Service{
		Unit: "svcport/default/web:tcp/v4", Proto: proto, AffinitySeconds: affinity, ClusterGroup: 7, Made: made,
		Cluster: []Backend{
			{AddrPort: netip.MustParseAddrPort("10.10.1.2:8080")},
			{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 10, 1, last}), 8080)},
		},
		Frontends: []Frontend{{Addr: netip.MustParseAddr("10.96.0.2"), Port: 80}},
	}
	l := &List{}
	(&Node{}).ServiceFlows(l, s)
	return l.Objects()
}

// An endpoint that stays is the same object in the next rendering, so that a change costs what it is about; and
// whatever was made before, the texts are those of a rendering that starts from nothing.
func TestEndpointsAreMadeOnce(t *testing.T) {
	made := &Endpoints{}
	first := rendering(made, 6, 0, 3)
	next := rendering(made, 6, 0, 4)
	if !slices.Contains(next, first[1]) {
		t.Errorf("the flow of 10.10.1.2 was made again: %s", first[1])
	}
	for _, c := range []struct {
		proto    uint8
		affinity uint16
		last     byte
	}{{6, 0, 4}, {6, 60, 4}, {6, 60, 3}, {17, 60, 3}, {17, 0, 9}} {
		got, want := rendering(made, c.proto, c.affinity, c.last), rendering(nil, c.proto, c.affinity, c.last)
		if len(got) != len(want) {
			t.Fatalf("%+v: %d objects, want %d", c, len(got), len(want))
		}
		for i := range got {
			if got[i].String() != want[i].String() {
				t.Errorf("%+v: got %s, want %s", c, got[i], want[i])
			}
		}
	}
}
