package ovs

import (
	"towtank/datapath"
	"towtank/datapath/openflow"
)

// Tables is what is on a bridge besides ports.
type Tables struct {
	Flows  []*openflow.Flow
	Groups []*openflow.Group
	Meters []*openflow.Meter
	// Strange are objects with parts that this package does not know; they are somebody else's.
	Strange []error
}

// dumpTables reads all flows, groups and meters.
func (ch *channel) dumpTables(done func(Tables, error)) {
	var t Tables
	left, failed := 3, false
	first := ch.newXIDs(3)
	part := func(xid uint32, more bool) {
		if more {
			return
		}
		ch.forget(xid)
		if left--; left == 0 && !failed {
			done(t, nil)
		}
	}
	for i := range uint32(3) {
		ch.wait(first+i, func(m openflow.Message, err error) {
			switch m := m.(type) {
			case openflow.FlowStats:
				for _, f := range m.Flows {
					if f.Err != nil {
						t.Strange = append(t.Strange, f.Err)
					} else {
						t.Flows = append(t.Flows, f.Flow)
					}
				}
				part(first+i, m.More)
			case openflow.GroupDesc:
				for _, g := range m.Groups {
					if g.Err != nil {
						t.Strange = append(t.Strange, g.Err)
					} else {
						t.Groups = append(t.Groups, g.Group)
					}
				}
				part(first+i, m.More)
			case openflow.MeterConfig:
				t.Meters = append(t.Meters, m.Meters...)
				part(first+i, m.More)
			case *openflow.Error:
				err = m
			}
			if err != nil && !failed {
				failed = true
				for k := range uint32(3) {
					ch.forget(first + k) // no part of the others is of use
				}
				done(Tables{}, err)
			}
		})
	}
	_ = ch.send(func(b []byte) ([]byte, error) {
		b = openflow.AppendFlowDumpRequest(b, first)
		b = openflow.AppendGroupDescRequest(b, first+1)
		return openflow.AppendMeterConfigRequest(b, first+2), nil
	})
}

// flush deletes the connections that the tuples select.
func (ch *channel) flush(tuples []datapath.Tuple, done func(error)) {
	first := ch.newXIDs(len(tuples))
	var refused error
	for i := range tuples {
		ch.wait(first+uint32(i), func(m openflow.Message, err error) {
			if e, ok := m.(*openflow.Error); ok {
				refused = e
			}
		})
	}
	_ = ch.send(func(b []byte) ([]byte, error) {
		for i, t := range tuples {
			orig := openflow.CTTuple{Dst: t.Frontend}
			if t.Source.IsValid() {
				orig.Src = addrPort(t.Source)
			}
			b = openflow.AppendCTFlush(b, first+uint32(i), t.Zone, t.Proto, orig, openflow.CTTuple{Src: t.Backend})
		}
		return b, nil
	})
	ch.barrier(func(err error) {
		for i := range tuples {
			ch.forget(first + uint32(i))
		}
		if err == nil {
			err = refused
		}
		done(err)
	})
}
