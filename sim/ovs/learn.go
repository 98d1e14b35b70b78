package ovs

import (
	"towtank/datapath/openflow"
)

// learned is a flow that a pass through the tables learned.
type learned struct {
	flow  *openflow.Flow
	by    *rule
	table uint8
}

// learn makes the flow that a learn action describes, or renews it. The pass that learns a flow does not match it, nor
// miss the one that it replaces: OVS translates a whole pass on one version of the tables.
func (r *run) learn(a openflow.Learn, rl *rule, t uint8) {
	s := r.s
	b := openflow.NewFlow(a.Table, a.Priority, a.Cookie).Timeouts(a.IdleTimeout, a.HardTimeout)
	for _, spec := range a.Specs {
		v := spec.Value
		if spec.Src.Field != openflow.FieldNone {
			v = r.k.get(spec.Src)
		}
		switch spec.Kind {
		case openflow.LearnKindMatch:
			if spec.Dst.Field == openflow.VLANTCI && spec.Dst == spec.Dst.Field.All() && v.Lo&0x1000 == 0 {
				b.Match(openflow.NoVLAN())
				continue
			}
			b.Match(spec.Dst.Field.IsMasked(v.Shl(uint(spec.Dst.Lo)), spec.Dst.Mask()))
		case openflow.LearnKindLoad:
			b.Actions(spec.Dst.SetValue(v))
		case openflow.LearnKindOutput:
			b.Actions(openflow.Output(portNumber(uint16(v.Lo))))
		}
	}
	f, err := b.Build()
	if err != nil {
		r.drop(s.tableName(t), cookieOf(rl), "learn: %v", err)
		return
	}
	if s.tracer != nil {
		s.step(s.tableName(t), "learn: "+f.String(), cookieOf(rl), false)
	}
	r.learned = append(r.learned, learned{f, rl, t})
}

// passed ends a pass through the tables: what it learned is there for the next. A flow that was learned before is renewed.
func (r *run) passed() {
	s := r.s
	for _, l := range r.learned {
		instead := s.rule(l.flow)
		if instead != nil && instead.learned && instead.flow.String() == l.flow.String() {
			if s.peek != nil {
				s.peek.renewed = append(s.peek.renewed, renewedRule{instead, instead.created})
			}
			instead.created = s.now()
			continue
		}
		if err := s.putFlow(l.flow, true); err != nil {
			r.drop(s.tableName(l.table), cookieOf(l.by), "learn: %v", err)
		} else if s.peek != nil {
			s.peek.learned = append(s.peek.learned, learnedRule{s.rule(l.flow), instead})
		}
	}
	r.learned = nil
}
