package ovs

import (
	"towtank/datapath/openflow"
)

// learn makes the flow that a learn action describes, or renews it.
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
	if old := s.flows[f.Key().Name]; old != nil && old.learned && old.flow.String() == f.String() {
		if s.peek != nil {
			s.peek.renewed = append(s.peek.renewed, renewedRule{old, old.created})
		}
		old.created = s.now()
		if s.tracer != nil {
			s.step(s.tableName(t), "learn, again: "+f.String(), cookieOf(rl), false)
		}
		return
	}
	if s.tracer != nil {
		s.step(s.tableName(t), "learn: "+f.String(), cookieOf(rl), false)
	}
	instead := s.flows[f.Key().Name]
	if err := s.putFlow(f, true); err != nil {
		r.drop(s.tableName(t), cookieOf(rl), "learn: %v", err)
	} else if s.peek != nil {
		s.peek.learned = append(s.peek.learned, learnedRule{s.flows[f.Key().Name], instead})
	}
}
