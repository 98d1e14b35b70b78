package ovs_test

import (
	"encoding/json"
	"net"
	"path/filepath"
	"testing"

	"towtank/datapath"
	"towtank/datapath/ovs"
)

// An entry that cannot be read is left out and told of once; the others are there.
func TestConntrackEntryThatCannotBeRead(t *testing.T) {
	l := start(t)
	l.cfg.Control = filepath.Join(l.server.Dir(), "control")
	var strange []error
	l.cfg.Strange = func(err error) { strange = append(strange, err) }
	answerer(t, l.cfg.Control, func(c net.Conn) {
		d, e := json.NewDecoder(c), json.NewEncoder(c)
		for {
			var ask struct{ ID json.RawMessage }
			if d.Decode(&ask) != nil {
				return
			}
			_ = e.Encode(map[string]any{"id": ask.ID, "error": nil, "result": `
carrier-pigeon,orig=(src=10.0.0.2,dst=10.0.0.1),reply=(src=10.0.0.1,dst=10.0.0.2),zone=5
udp,orig=(src=10.0.0.2,dst=10.0.0.1,sport=8,dport=53),reply=(src=10.0.0.9,dst=10.0.0.2,sport=5353,dport=8),zone=5,mark=16
`})
		}
	})
	s, err := ovs.Connect(l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 3 {
		var entries []datapath.ConntrackEntry
		done := false
		s.DumpConntrack([]uint16{5}, func(e []datapath.ConntrackEntry, err error) {
			if err != nil {
				t.Error(err)
			}
			entries, done = e, true
		})
		l.until("conntrack", func() bool { return done })
		if len(entries) != 1 || entries[0].Proto != 17 {
			t.Errorf("entries %+v", entries)
		}
	}
	if len(strange) != 1 {
		t.Errorf("told of: %v", strange)
	}
}
