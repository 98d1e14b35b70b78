package services

import (
	"testing"

	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/datapath/openflow"
)

// The flow of an address that a Service lost while the agent was down is found only after the Service's own objects were found to
// be there, and its deletion is refused: when it goes, what came in by it has to be looked at, however often the Service was
// rendered meanwhile.
func TestRefusedDeletionOfWhatWasThere(t *testing.T) {
	const unit = "svcport/default/dns:udp/v4"
	f := newFlusher(&tables.Env{Tables: &tables.Tables{}, Store: datapath.NewStore()})
	f.dumping = true // a look is under way all the time: none is begun here
	sp := &servicePort{}
	sp.Proto = openflow.ProtoUDP
	f.next(unit, sp)
	f.realised(unit)
	f.synced = true
	f.next(unit, sp)
	f.realised(unit)
	f.started = true
	f.given(unit)
	f.refused(unit)
	if f.due {
		t.Fatal("looked at before it went")
	}
	f.realised(unit)
	if !f.due {
		t.Error("nobody looks at the entries that the old flow made")
	}
}
