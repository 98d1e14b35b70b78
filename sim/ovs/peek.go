package ovs

// peek notes what packets change on a switch, so that it can be undone. Counters of flows and buckets are
// not part of it.
type peek struct {
	conns    []*conn
	learned  []learnedRule
	renewed  []renewedRule
	macs     map[macKey]oldMAC
	meters   map[*meter]meter
	counters Counters
}

type learnedRule struct{ rule, instead *rule }

type renewedRule struct {
	rule    *rule
	created int64
}

type oldMAC struct {
	macEntry
	was bool
}

// BeginPeek has the switch note what packets change from now on: connections, learned flows, Ethernet
// addresses, tokens of meters.
func (s *Switch) BeginPeek() { s.peek = &peek{counters: s.counters} }

// EndPeek undoes what packets changed since BeginPeek. No time may have passed, and nothing else may have
// been done to the switch.
func (s *Switch) EndPeek() {
	p := s.peek
	s.peek = nil
	for i := len(p.conns) - 1; i >= 0; i-- {
		s.ct.remove(p.conns[i])
	}
	for i := len(p.renewed) - 1; i >= 0; i-- {
		p.renewed[i].rule.created = p.renewed[i].created
	}
	for i := len(p.learned) - 1; i >= 0; i-- {
		if l := p.learned[i]; !l.rule.gone {
			s.unlink(l.rule)
			if l.instead != nil {
				s.relink(l.instead)
			}
		}
	}
	for k, m := range p.macs {
		if m.was {
			s.macs[k] = m.macEntry
		} else {
			delete(s.macs, k)
		}
	}
	//determinism:ignore each meter is restored by itself
	for m, old := range p.meters {
		*m = old
	}
	s.counters = p.counters
}

// pass takes the tokens of a packet from a meter; false drops the packet.
func (s *Switch) pass(m *meter, size int) bool {
	if p := s.peek; p != nil {
		if _, noted := p.meters[m]; !noted {
			if p.meters == nil {
				p.meters = map[*meter]meter{}
			}
			p.meters[m] = *m
		}
	}
	return m.pass(s.now(), size)
}

// sawMAC learns behind which port an Ethernet address is.
func (s *Switch) sawMAC(k macKey, e macEntry) {
	if p := s.peek; p != nil {
		if _, noted := p.macs[k]; !noted {
			if p.macs == nil {
				p.macs = map[macKey]oldMAC{}
			}
			old, was := s.macs[k]
			p.macs[k] = oldMAC{old, was}
		}
	}
	s.macs[k] = e
}
