package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"towtank/agent/edge"
	"towtank/datapath"
)

// change is one Change on the datapath lane. Its stages run one after the other; each prefix of them
// is safe.
type change struct {
	stages [datapath.StageEffects][]datapath.Op // by Stage-1
	failed map[string]bool                      // units with an op that was not done
	broken bool                                 // the bundle was refused or not answered: the rest waits
	began  time.Time
}

// dispatch sends off what can go now on each lane.
func (l *Loop) dispatch() {
	if l.mustReadBack() {
		// A dump must not cross an op: nothing new leaves until what is in flight has come back.
		if l.change == nil && len(l.wiring) == 0 {
			l.readBack()
		}
		return
	}
	l.dispatchWiring()
	l.dispatchDatapath()
}

// mustReadBack reports whether something is to be read back: while the switch is away, of the host.
func (l *Loop) mustReadBack() bool {
	if !l.connected {
		return l.dumped && (l.auditDue || l.env.Store.Unknown(isHostKind))
	}
	return l.auditDue || l.env.Store.Unknown(isSwitchKind) || l.env.Store.Unknown(isHostKind)
}

// isWiring reports whether an op goes by the wiring lane: the link of a sandbox.
func isWiring(op datapath.Op) bool {
	return op.Kind() == datapath.KindLink && len(op.Units) > 0 && unitKind(op.Units[0]) == "sandbox"
}

// dispatchWiring makes and removes links of sandboxes, several at once and one per sandbox. A link is
// removed only when the port and the flows are known to be gone, because OVS reuses port numbers.
func (l *Loop) dispatchWiring() {
	if len(l.wiring) >= wiringLimit || l.dumping {
		return
	}
	ops := l.env.Store.Pending(func(op datapath.Op) bool {
		return isWiring(op) && !l.held(op) && !l.wiring[op.Units[0]]
	})
	for _, op := range order(ops) {
		if len(l.wiring) >= wiringLimit {
			return
		}
		unit := op.Units[0]
		stage := datapath.StageHostAdd
		if op.Delete() {
			if l.env.Store.UnitPending(unit, datapath.KindFlow, datapath.KindPort) {
				continue
			}
			stage = datapath.StageHostDelete
		}
		l.wiring[unit] = true
		one := []datapath.Op{op}
		l.env.Store.Depart(one)
		l.stats.Ops++
		l.seams.Host.Apply(stage, one, func(r []datapath.OpResult) {
			delete(l.wiring, unit)
			l.env.Store.Arrive(one, r)
			l.blame(one, r)
			l.wake()
		})
	}
}

// held reports whether an op has to wait because a unit that it belongs to is quarantined.
func (l *Loop) held(op datapath.Op) bool {
	for _, u := range op.Units {
		if q := l.quarant[u]; q != nil && !q.released {
			return true
		}
	}
	return false
}

// dispatchDatapath sends the next Change off, if none is in flight.
func (l *Loop) dispatchDatapath() {
	if l.change != nil || l.dumping {
		return
	}
	ops := l.env.Store.Pending(func(op datapath.Op) bool {
		if isWiring(op) || l.held(op) {
			return false
		}
		if isSwitchKind(op.Kind()) && !l.connected {
			return false
		}
		// A port follows its link: a unit's stage order holds across lanes.
		if op.Kind() == datapath.KindPort && !op.Delete() && len(op.Units) > 0 {
			return !l.env.Store.UnitPending(op.Units[0], datapath.KindLink)
		}
		return true
	})
	if len(ops) == 0 {
		return
	}
	c := &change{failed: map[string]bool{}, began: l.seams.Clock.Now()}
	var sizes [len(c.stages)]int
	for _, op := range ops {
		sizes[datapath.StageOf(op.Kind(), op.Delete())-1]++
	}
	if s := slices.Index(sizes[:], len(ops)); s >= 0 {
		c.stages[s] = ops // most Changes are one bundle and nothing else
	} else {
		for _, op := range ops {
			s := datapath.StageOf(op.Kind(), op.Delete()) - 1
			if c.stages[s] == nil {
				c.stages[s] = make([]datapath.Op, 0, sizes[s])
			}
			c.stages[s] = append(c.stages[s], op)
		}
	}
	for i := range c.stages {
		c.stages[i] = order(c.stages[i])
	}
	l.env.Store.Depart(ops)
	l.stats.Changes++
	l.stats.Ops += uint64(len(ops))
	l.change = c
	l.run(datapath.StageHostAdd)
}

// order returns the ops of a stage sorted: made bottom-up (groups before the flows that use them), then deleted
// top-down; what is equal stays in the order in which it became pending.
func order(ops []datapath.Op) []datapath.Op {
	const deletes = 100 // above all ranks
	return datapath.Arranged(ops, func(op datapath.Op) int {
		r := datapath.Rank(op.Kind())
		if op.Delete() {
			return deletes - r
		}
		return r
	})
}

// run applies the stage and those after it.
func (l *Loop) run(stage datapath.Stage) {
	c := l.change
	for ; stage < datapath.StageEffects; stage++ {
		ops := l.stillGood(c, c.stages[stage-1])
		if len(ops) == 0 {
			continue
		}
		done := func(r []datapath.OpResult) { l.stageDone(stage, ops, r) }
		switch stage {
		case datapath.StageHostAdd, datapath.StageHostDelete:
			l.seams.Host.Apply(stage, ops, done)
		default:
			l.seams.Switch.Apply(stage, ops, done)
		}
		return
	}
	l.stats.ChangeTime.Observe(l.seams.Clock.Now().Sub(c.began))
	l.change = nil
	l.wake()
}

// stillGood returns the ops of a stage whose units had no failure in an earlier one; the others go
// back to the Store untried.
func (l *Loop) stillGood(c *change, ops []datapath.Op) []datapath.Op {
	if !c.broken && len(c.failed) == 0 {
		return ops
	}
	var good, back []datapath.Op
	for _, op := range ops {
		if c.broken || slices.ContainsFunc(op.Units, func(u string) bool { return c.failed[u] }) {
			back = append(back, op)
		} else {
			good = append(good, op)
		}
	}
	l.env.Store.Arrive(back, datapath.AllResults(len(back), datapath.Skipped, nil))
	return good
}

func (l *Loop) stageDone(stage datapath.Stage, ops []datapath.Op, r []datapath.OpResult) {
	if l.stopped {
		return
	}
	if len(r) != len(ops) {
		err := fmt.Errorf("stage %s: %d results for %d ops", stage, len(r), len(ops))
		r = datapath.AllResults(len(ops), datapath.Unknown, err)
	}
	l.env.Store.Arrive(ops, r)
	l.blame(ops, r)
	c := l.change
	for i := range r {
		if r[i].Outcome == datapath.Done {
			continue
		}
		if stage == datapath.StageBundle {
			c.broken = true
		}
		for _, u := range ops[i].Units {
			c.failed[u] = true
		}
	}
	l.run(stage + 1)
}

// blame quarantines the units whose ops were refused, and tells the concerns. An op without an
// answer quarantines nobody: it is read back.
func (l *Loop) blame(ops []datapath.Op, r []datapath.OpResult) {
	told := map[string]bool{}
	for i := range r {
		if r[i].Outcome != datapath.Refused {
			if r[i].Outcome == datapath.Done && len(l.stuck) > 0 {
				delete(l.stuck, ops[i].Key())
			}
			continue
		}
		err := fmt.Errorf("%s: %w", ops[i].Key(), r[i].Err)
		units := ops[i].Units
		if len(units) == 0 {
			l.withhold(ops[i].Key())
			l.env.Log.Error(err, "Could not delete an object that nobody wants")
			continue
		}
		for _, u := range units {
			if told[u] {
				continue
			}
			told[u] = true
			l.quarantine(u, err)
			if c := l.byKind[unitKind(u)]; c != nil {
				c.Refused(u, err)
			}
		}
	}
}

// withhold has an object that nobody wants, and that could not be deleted, tried again after a back-off: there is no
// unit that could be quarantined.
func (l *Loop) withhold(k datapath.Key) {
	l.env.Store.Withhold(k)
	delay := min(max(2*l.stuck[k], backoffMin), backoffMax)
	l.stuck[k] = delay
	l.seams.Clock.AfterFunc(delay, edge.Work, func() {
		switch {
		case l.stopped:
		case l.env.Store.Reclaim(k):
			l.wake()
		default:
			delete(l.stuck, k)
		}
	})
}

func (l *Loop) quarantine(unit string, err error) {
	l.env.Decide("quarantine/" + unitKind(unit))
	l.stats.Refusals[unitKind(unit)]++
	q := l.quarant[unit]
	if q == nil {
		q = &quarantine{}
		l.quarant[unit] = q
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	q.err, q.released = err, false
	q.delay = min(max(2*q.delay, backoffMin), backoffMax)
	q.until = l.seams.Clock.Now().Add(q.delay)
	l.env.Log.V(2).Info("Unit refused", "unit", unit, "retryIn", q.delay, "err", err)
	q.timer = l.seams.Clock.AfterFunc(q.delay, edge.Work, func() {
		if l.stopped || l.quarant[unit] != q {
			return
		}
		q.released = true
		l.markDirty(unit)
	})
}

// release lets a quarantined unit try again now; its back-off is kept until it is realised.
func (l *Loop) release(unit string) {
	if q := l.quarant[unit]; q != nil && !q.released {
		q.released = true
		if q.timer != nil {
			q.timer.Stop()
		}
	}
}

// forgive ends the quarantine of a unit that was realised.
func (l *Loop) forgive(unit string) {
	if q := l.quarant[unit]; q != nil {
		if q.timer != nil {
			q.timer.Stop()
		}
		delete(l.quarant, unit)
	}
}

// errNotRead is what a dump that failed is retried for.
var errNotRead = errors.New("the node could not be read")

const readRetry = time.Second

// readBack dumps switch and host and takes the dumps as known. It runs with no Change in flight.
func (l *Loop) readBack() {
	if l.dumping || l.change != nil || l.stopped || !l.connected && !l.dumped {
		return
	}
	// What is told from here on may be newer than the dump: it makes the next one due.
	due := l.auditDue
	l.dumping, l.auditDue, l.reread = true, false, false
	var all []datapath.Object
	fail := func(err error) {
		l.auditDue = l.auditDue || due
		l.env.Log.Error(errors.Join(errNotRead, err), "Reading the node failed")
		l.seams.Clock.AfterFunc(readRetry, edge.Work, func() {
			l.dumping = false
			l.wake()
		})
	}
	if !l.connected {
		// The switch is read when it is back; the node has its addresses and routes meanwhile.
		l.seams.Host.Dump(func(h []datapath.Object, err error) {
			if err != nil {
				fail(err)
				return
			}
			l.dumping = false
			l.took(l.env.Store.Load(h, isHostKind))
			l.wake()
		})
		return
	}
	l.seams.Switch.Dump(func(sw []datapath.Object, err error) {
		if err != nil {
			fail(err)
			return
		}
		all = append(all, sw...)
		l.seams.Host.Dump(func(h []datapath.Object, err error) {
			if err != nil {
				fail(err)
				return
			}
			if l.reread {
				l.dumping, l.auditDue = false, l.auditDue || due
				l.wake()
				return
			}
			all = append(all, h...)
			l.loaded(sw, h, all)
		})
	})
}

func (l *Loop) loaded(sw, h, all []datapath.Object) {
	l.dumping = false
	n := l.env.Store.Load(sw, isSwitchKind) + l.env.Store.Load(h, isHostKind)
	if !l.dumped {
		l.dumped = true
		for _, c := range l.concerns {
			c.Restore(all)
		}
		n = 0
	}
	l.took(n)
	l.wake()
}

// took counts an audit that found n objects which are not as they were known.
func (l *Loop) took(n int) {
	l.stats.Audits++
	if n > 0 {
		l.stats.Repairs += uint64(n)
		l.env.Log.V(2).Info("The node differs from what was known", "objects", n)
	}
}

func (l *Loop) armAudit() {
	l.audit = l.seams.Clock.AfterFunc(l.env.Cfg.AuditEvery, edge.Background, func() {
		if l.stopped {
			return
		}
		l.auditDue = true
		l.wake()
		l.armAudit()
	})
}

// Audit has the node read back and repaired now.
func (l *Loop) Audit() {
	l.auditDue = true
	l.wake()
}
