package ovs

import (
	"fmt"

	"towtank/datapath"
	"towtank/datapath/openflow"
)

// part is one message of a bundle.
type part struct {
	op     int // index in ops
	c      openflow.Command
	object datapath.Object
}

// parts returns the messages of a bundle in order. A flow that learns is never modified but deleted and
// added, so that what it learned goes with it.
func parts(ops []datapath.Op) []part {
	var out []part
	for i, op := range ops {
		switch old, isFlow := op.Old.(*openflow.Flow); {
		case op.Delete():
			out = append(out, part{i, openflow.Delete, op.Old})
		case isFlow && (old.Learns() || learns(op.New)) && old.String() != op.New.String():
			out = append(out, part{i, openflow.Delete, op.Old}, part{i, openflow.Put, op.New})
		default:
			out = append(out, part{i, openflow.Put, op.New})
		}
	}
	return datapath.Arranged(out, func(p part) int { return ops[p.op].BundlePhase() })
}

func learns(o datapath.Object) bool {
	f, ok := o.(*openflow.Flow)
	return ok && f.Learns()
}

func (p part) append(b []byte, xid, bundle uint32) ([]byte, error) {
	switch o := p.object.(type) {
	case *openflow.Flow:
		return openflow.AppendBundleFlow(b, xid, bundle, p.c, o)
	case *openflow.Group:
		c := p.c
		if c == openflow.Put {
			c = openflow.PutOrChange
		}
		return openflow.AppendBundleGroup(b, xid, bundle, c, o)
	}
	return b, fmt.Errorf("not a flow or group but %T", p.object)
}

// applyBundle sends all ops as one bundle and calls done once with the results. It commits only when the
// switch has taken every message: a message that OVS refuses at once would otherwise be left out of the
// bundle, and the rest committed.
func (ch *channel) applyBundle(ops []datapath.Op, done func([]datapath.OpResult)) {
	b := &bundle{ch: ch, ops: ops, parts: parts(ops), done: done}
	b.first = ch.newXIDs(len(b.parts) + 4)
	b.id = b.first
	buf := openflow.AppendBundleControl(nil, b.stepXID(0), b.id, openflow.BundleOpen)
	var err error
	for i, p := range b.parts {
		if buf, err = p.append(buf, b.first+uint32(i), b.id); err != nil {
			b.refuse(p.op, err)
			b.finish(datapath.Skipped, nil)
			return
		}
	}
	buf = openflow.AppendBundleControl(buf, b.stepXID(1), b.id, openflow.BundleClose)
	b.waitForAll()
	_ = ch.send(func(b []byte) ([]byte, error) { return append(b, buf...), nil })
}

// bundle is a bundle under way. Its functions are called one after the other.
type bundle struct {
	ch    *channel
	ops   []datapath.Op
	parts []part
	first uint32 // xid of the first part; open, close, commit and discard come after the parts
	id    uint32
	done  func([]datapath.OpResult)

	refused map[int]error // by op
}

func (b *bundle) stepXID(i int) uint32 { return b.first + uint32(len(b.parts)+i) }

// finish reports, once: the refused ops if there are any, else the outcome of all.
func (b *bundle) finish(all datapath.Outcome, err error) {
	if b.done == nil {
		return
	}
	for i := range len(b.parts) + 4 {
		b.ch.forget(b.first + uint32(i))
	}
	done := b.done
	b.done = nil
	if len(b.refused) == 0 || all == datapath.Unknown {
		done(datapath.AllResults(len(b.ops), all, err))
		return
	}
	res := datapath.AllResults(len(b.ops), datapath.Skipped, nil)
	for i, err := range b.refused {
		res[i] = datapath.OpResult{Outcome: datapath.Refused, Err: fmt.Errorf("%s: %w", b.ops[i].Key(), err)}
	}
	done(res)
}

func (b *bundle) refuse(op int, err error) {
	if b.refused == nil {
		b.refused = map[int]error{}
	}
	if b.refused[op] == nil {
		b.refused[op] = err
	}
}

func (b *bundle) waitForAll() {
	for i, p := range b.parts {
		b.ch.wait(b.first+uint32(i), func(m openflow.Message, err error) {
			if e, ok := m.(*openflow.Error); ok {
				b.refuse(p.op, e)
			} else if err != nil {
				b.finish(datapath.Unknown, err)
			}
		})
	}
	b.step(0, func() {})
	b.step(1, func() {
		if len(b.refused) > 0 {
			b.sendStep(3, openflow.BundleDiscard)
			b.finish(datapath.Skipped, nil)
			return
		}
		b.step(2, func() { b.finish(datapath.Done, nil) })
		b.sendStep(2, openflow.BundleCommit)
	})
}

// step waits for the answer to a step of the bundle.
func (b *bundle) step(i int, then func()) {
	b.ch.wait(b.stepXID(i), func(m openflow.Message, err error) {
		e, refused := m.(*openflow.Error)
		switch {
		case err != nil:
			b.finish(datapath.Unknown, err)
		case refused && e.BundleFailed():
			b.finish(datapath.Skipped, nil)
		case refused:
			b.finish(datapath.Refused, fmt.Errorf("bundle: %w", e))
		case b.done != nil:
			then()
		}
	})
}

func (b *bundle) sendStep(i int, s openflow.BundleStep) {
	_ = b.ch.send(func(buf []byte) ([]byte, error) {
		return openflow.AppendBundleControl(buf, b.stepXID(i), b.id, s), nil
	})
}
