package tables

import (
	"net/netip"
	"testing"
)

// A mark that was given back is given out again when no flow has it any more, and an address that got none then asks again.
func TestMarksCool(t *testing.T) {
	a, b := netip.MustParseAddr("172.18.1.1"), netip.MustParseAddr("172.18.1.2")
	m := NewMarks(1)
	mark, err := m.Mark(a)
	if err != nil || mark != 1 {
		t.Fatalf("mark %d, %v, want 1", mark, err)
	}
	m.Free(a)
	m.Settled(map[uint8]bool{1: true}) // the flow of a Pod could not be changed
	if mark, err := m.Mark(b); err == nil || m.Retry() {
		t.Fatalf("%s got the mark %d while a flow has it, retry %t", b, mark, m.Retry())
	}
	m.Settled(nil)
	if ips := m.TakeRetry(); len(ips) != 1 || ips[0] != b {
		t.Fatalf("to ask again: %v, want %s", ips, b)
	}
	if mark, err := m.Mark(b); err != nil || mark != 1 || m.Cooling() {
		t.Fatalf("mark %d, %v, want 1", mark, err)
	}
}

// The id of a group is given to nobody else before the unit that had it is realised, whatever becomes of others.
func TestGroupIDsCool(t *testing.T) {
	g := NewGroups()
	id := g.ID("svcport/a", "cluster", 1)
	other := g.ID("svcport/b", "cluster", 2)
	g.Free("svcport/a", "cluster")
	g.Free("svcport/b", "cluster")
	g.Settled("svcport/b")
	if _, cools := g.cooling[other]; cools {
		t.Error("svcport/b is realised, and its id is kept back")
	}
	if _, cools := g.cooling[id]; !cools {
		t.Error("svcport/a is not realised, and its id may be given to others")
	}
	if again := g.ID("svcport/a", "cluster", 1); again != id {
		t.Errorf("svcport/a has the id %d, and had %d", again, id)
	}
	g.Settled("svcport/a")
	if len(g.cooling) != 0 || len(g.freed) != 0 {
		t.Errorf("kept back after everything is realised: %v, %v", g.cooling, g.freed)
	}
}
