package ovs

import (
	"errors"
	"fmt"

	"towtank/datapath"
	"towtank/datapath/openflow"
)

// meter is a token bucket. Tokens are thousandths of a packet or of a kilobit (that is, bits).
type meter struct {
	m      *openflow.Meter
	tokens uint64
	at     int64 // ns, when tokens was right
	passed uint64
	drops  uint64
}

func newMeter(m *openflow.Meter, now int64) *meter {
	return &meter{m: m, tokens: burstOf(m), at: now}
}

// burstOf is the size of the bucket: what the meter says, or one second's worth.
func burstOf(m *openflow.Meter) uint64 {
	if m.Burst {
		return uint64(m.BurstSize) * 1000
	}
	return uint64(m.Rate) * 1000
}

// pass takes the tokens of a packet of size bytes; false drops the packet.
func (b *meter) pass(now int64, size int) bool {
	limit := burstOf(b.m)
	// In whole milliseconds, and no more of them than fill the bucket, rounded down: so a bucket of 2 packets that fills
	// with 3 a second never gets from 0 to 2 again, but to 1.998 (OVS, dpif-netdev.c, max_delta_t).
	elapsed := min(uint64(now/1e6-b.at/1e6), limit/uint64(b.m.Rate))
	b.at = now
	b.tokens = min(b.tokens+elapsed*uint64(b.m.Rate), limit)
	cost := uint64(1000)
	if !b.m.PktPS {
		cost = uint64(size) * 8
	}
	if b.tokens < cost {
		b.drops++
		return false
	}
	b.tokens -= cost
	b.passed++
	return true
}

var errNotConnected = errors.New("the switch is not running")

// ApplyMeters puts and deletes meters one by one; deleting a meter deletes the flows that use it.
func (s *Switch) ApplyMeters(ops []datapath.Op) []datapath.OpResult {
	if s.stopped {
		return datapath.AllResults(len(ops), datapath.Unknown, errNotConnected)
	}
	s.Tick()
	res := make([]datapath.OpResult, len(ops))
	for i, op := range ops {
		o := op.New
		if op.Delete() {
			o = op.Old
		}
		m, ok := o.(*openflow.Meter)
		switch {
		case !ok:
			res[i] = datapath.OpResult{Outcome: datapath.Refused, Err: fmt.Errorf("%s: not a meter but %T", op.Key(), o)}
		case op.Delete():
			delete(s.meters, m.ID)
			for _, r := range sortedRules(members(s.meterUsers[m.ID])) {
				s.removeRule(r)
			}
		default:
			s.meters[m.ID] = newMeter(m, s.now())
		}
	}
	return res
}
