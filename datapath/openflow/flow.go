package openflow

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"towtank/datapath"
)

// DefaultPriority is the priority of a flow that does not name one (OpenFlow OFP_DEFAULT_PRIORITY).
const DefaultPriority uint16 = 32768

// MaxTable is the last table that a flow can be in; OVS keeps 254 for itself and 255 means any.
const MaxTable uint8 = 253

// Flow is an OpenFlow flow. Its identity is table, priority and match (OpenFlow's strict match).
// Flows are immutable; use NewFlow or ParseFlow.
type Flow struct {
	table       uint8
	priority    uint16
	idleTimeout uint16
	hardTimeout uint16
	cookie      uint64
	match       Match
	actions     []Action
	key, text   string
	// one and few are what actions and match have of most flows, so that a flow is one object and its texts.
	one [1]Action
	few [6]FieldMatch
}

// Table returns the table, 0 to 253.
func (f *Flow) Table() uint8 { return f.table }

// Priority returns the priority.
func (f *Flow) Priority() uint16 { return f.priority }

// Cookie returns the cookie.
func (f *Flow) Cookie() uint64 { return f.cookie }

// IdleTimeout returns the seconds without a packet after which the flow goes; 0: never.
func (f *Flow) IdleTimeout() uint16 { return f.idleTimeout }

// HardTimeout returns the seconds after which the flow goes; 0: never.
func (f *Flow) HardTimeout() uint16 { return f.hardTimeout }

// Match returns the match.
func (f *Flow) Match() Match { return f.match }

// Actions returns the actions; none means drop. The caller must not change them.
func (f *Flow) Actions() []Action { return f.actions }

// Kind returns datapath.KindFlow.
func (*Flow) Kind() datapath.Kind { return datapath.KindFlow }

// Key identifies the flow as "table=T,priority=P,match".
func (f *Flow) Key() datapath.Key { return datapath.Key{Kind: datapath.KindFlow, Name: f.key} }

// String returns the text as "cookie=0x…, table=T, priority=P,match actions=…".
func (f *Flow) String() string { return f.text }

// Learns reports whether an action of the flow learns other flows.
func (f *Flow) Learns() bool {
	for _, a := range f.actions {
		if _, ok := a.(Learn); ok {
			return true
		}
	}
	return false
}

// Groups appends the groups that the flow's actions use.
func (f *Flow) Groups(ids []uint32) []uint32 { return usedGroups(ids, f.actions) }

// Meters appends the meters that the flow's actions use.
func (f *Flow) Meters(ids []uint32) []uint32 { return usedMeters(ids, f.actions) }

func usedGroups(ids []uint32, actions []Action) []uint32 {
	for _, a := range actions {
		if g, ok := a.(GroupAction); ok {
			ids = append(ids, g.ID)
		}
	}
	return ids
}

func usedMeters(ids []uint32, actions []Action) []uint32 {
	for _, a := range actions {
		switch a := a.(type) {
		case MeterAction:
			ids = append(ids, a.ID)
		case Controller:
			if a.MeterID != 0 {
				ids = append(ids, a.MeterID)
			}
		}
	}
	return ids
}

// Builder collects the parts of a flow.
type Builder struct {
	f   *Flow
	err error
}

// NewFlow starts a flow. Match and Actions add to it, Build ends it.
func NewFlow(table uint8, priority uint16, cookie uint64) *Builder {
	f := &Flow{table: table, priority: priority, cookie: cookie}
	f.actions, f.match.fields = f.one[:0], f.few[:0]
	return &Builder{f: f}
}

// Match adds terms to the match.
func (b *Builder) Match(terms ...Term) *Builder {
	for _, t := range terms {
		if b.err == nil {
			b.err = b.f.match.add(t)
		}
	}
	return b
}

// Actions adds actions. No action at all is drop.
func (b *Builder) Actions(actions ...Action) *Builder {
	b.f.actions = append(b.f.actions, actions...)
	return b
}

// Timeouts sets the idle and the hard timeout in seconds; 0: none.
func (b *Builder) Timeouts(idle, hard uint16) *Builder {
	b.f.idleTimeout, b.f.hardTimeout = idle, hard
	return b
}

// Build returns the flow, or an error that names it if it has no canonical form or if OVS would
// refuse it whatever else is on the switch.
func (b *Builder) Build() (*Flow, error) {
	f := b.f
	if f == nil {
		return nil, errors.New("flow: Build was called twice")
	}
	b.f = nil
	scratch := scratches.Get().(*[]byte)
	defer scratches.Put(scratch)
	text, match := f.appendText((*scratch)[:0])
	if b.err == nil {
		b.err = f.check()
	}
	if b.err != nil {
		return nil, fmt.Errorf("flow %s: %w", text, b.err)
	}
	// Behind the text comes the key, in one string with it. match is a part of the text.
	all := strconv.AppendUint(append(text, "table="...), uint64(f.table), 10)
	all = strconv.AppendUint(append(all, ",priority="...), uint64(f.priority), 10)
	if len(match) > 0 {
		all = append(append(all, ','), match...)
	}
	*scratch = all
	both := string(all)
	f.text, f.key = both[:len(text)], both[len(text):]
	return f, nil
}

// scratches are buffers in which texts are put together: what is kept is a copy of the right size.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// Must is Build for flows whose parts cannot be wrong. It panics with Build's error.
func (b *Builder) Must() *Flow {
	f, err := b.Build()
	if err != nil {
		panic(err) // a mistake in the program: whoever cannot be sure of the parts calls Build
	}
	return f
}

// appendText appends the text and returns with it the part that is the match.
func (f *Flow) appendText(b []byte) (text, match []byte) {
	b = appendHex(append(b, "cookie="...), Num(f.cookie))
	b = strconv.AppendUint(append(b, ", table="...), uint64(f.table), 10)
	b = append(b, ", "...)
	if f.idleTimeout != 0 {
		b = strconv.AppendUint(append(b, "idle_timeout="...), uint64(f.idleTimeout), 10)
		b = append(b, ", "...)
	}
	if f.hardTimeout != 0 {
		b = strconv.AppendUint(append(b, "hard_timeout="...), uint64(f.hardTimeout), 10)
		b = append(b, ", "...)
	}
	b = strconv.AppendUint(append(b, "priority="...), uint64(f.priority), 10)
	start := len(b)
	if len(f.match.fields) > 0 {
		b = append(b, ',')
		start++
		b = f.match.appendText(b)
	}
	match = b[start:]
	b = append(b, " actions="...)
	return appendActions(b, f.actions), match
}

func (f *Flow) check() error {
	if f.table > MaxTable {
		return fmt.Errorf("table %d: want 0 to %d (OFPBRC_EPERM)", f.table, MaxTable)
	}
	if err := f.match.check(); err != nil {
		return err
	}
	c := f.match.context()
	for i, a := range f.actions {
		if a == nil {
			return fmt.Errorf("action %d is nil", i+1)
		}
		if err := a.check(&c); err != nil {
			return err
		}
		switch a := a.(type) {
		case MeterAction:
			if i > 0 {
				return fmt.Errorf("%s: meter must be the first action", ActionText(a))
			}
		case GotoAction:
			if i < len(f.actions)-1 {
				return fmt.Errorf("%s: goto_table must be the last action", ActionText(a))
			}
			if a.Table <= f.table || a.Table > MaxTable {
				return fmt.Errorf("%s: want a table after %d and up to %d (OFPBIC_BAD_TABLE_ID)", ActionText(a), f.table, MaxTable)
			}
		}
	}
	return nil
}
