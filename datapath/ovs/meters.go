package ovs

import (
	"fmt"

	"towtank/datapath"
	"towtank/datapath/openflow"
)

// applyMeters puts and deletes meters; each by itself, for they cannot be bundled. A meter that is there
// already is changed, one that is not is added, whatever was thought of it. The switch answers only what it refuses:
// without an answer to the barrier behind them nothing is known of any.
func (ch *channel) applyMeters(ops []datapath.Op, done func([]datapath.OpResult)) {
	const typeMeterMod, codeExists = 12, 1
	res := make([]datapath.OpResult, len(ops))
	var again []int
	first := ch.newXIDs(len(ops))
	for i, op := range ops {
		ch.wait(first+uint32(i), func(m openflow.Message, _ error) {
			if e, ok := m.(*openflow.Error); ok {
				if e.Type == typeMeterMod && e.Code == codeExists && !op.Delete() {
					again = append(again, i)
					return
				}
				res[i] = datapath.OpResult{Outcome: datapath.Refused, Err: fmt.Errorf("%s: %w", op.Key(), e)}
			}
		})
	}
	_ = ch.send(func(b []byte) ([]byte, error) {
		for i, op := range ops {
			b = appendMeter(b, first+uint32(i), op, openflow.Put)
		}
		return b, nil
	})
	ch.barrier(func(err error) {
		for i := range ops {
			ch.forget(first + uint32(i))
		}
		switch {
		case err != nil:
			done(datapath.AllResults(len(ops), datapath.Unknown, err))
		case len(again) > 0:
			ch.changeMeters(ops, again, res, done)
		default:
			done(res)
		}
	})
}

func (ch *channel) changeMeters(ops []datapath.Op, which []int, res []datapath.OpResult, done func([]datapath.OpResult)) {
	first := ch.newXIDs(len(which))
	for k, i := range which {
		ch.wait(first+uint32(k), func(m openflow.Message, _ error) {
			if e, ok := m.(*openflow.Error); ok {
				res[i] = datapath.OpResult{Outcome: datapath.Refused, Err: fmt.Errorf("%s: %w", ops[i].Key(), e)}
			}
		})
	}
	_ = ch.send(func(b []byte) ([]byte, error) {
		for k, i := range which {
			b = appendMeter(b, first+uint32(k), ops[i], openflow.Change)
		}
		return b, nil
	})
	ch.barrier(func(err error) {
		for k := range which {
			ch.forget(first + uint32(k))
		}
		if err != nil {
			done(datapath.AllResults(len(ops), datapath.Unknown, err))
			return
		}
		done(res)
	})
}

func appendMeter(b []byte, xid uint32, op datapath.Op, c openflow.Command) []byte {
	o := op.New
	if op.Delete() {
		o, c = op.Old, openflow.Delete
	}
	if m, ok := o.(*openflow.Meter); ok {
		return openflow.AppendMeterMod(b, xid, c, m)
	}
	return b
}
