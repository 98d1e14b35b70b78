package host

// peek notes what packets change in a namespace, so that it can be undone.
type peek struct {
	conns    []*conn
	neigh    map[neighKey]*neighbour // as it was; nil: it was not there
	sessions []session
}

// BeginPeek has the namespace note what packets change from now on: connections, neighbours, sessions of
// its listeners.
func (n *Netns) BeginPeek() { n.peek = &peek{} }

// EndPeek undoes what packets changed since BeginPeek. No time may have passed, and nothing else may have
// been done to the namespace.
func (n *Netns) EndPeek() {
	p := n.peek
	n.peek = nil
	for _, c := range p.conns {
		n.ct.remove(c)
	}
	//determinism:ignore each neighbour is restored by itself
	for k, old := range p.neigh {
		if old == nil {
			n.neigh.remove(k)
			continue
		}
		e := n.neigh.entries[k]
		if e == nil {
			e = &neighbour{}
			n.neigh.entries[k] = e
		}
		*e = *old
		n.neigh.setState(e, old.state, old.deadline)
	}
	for _, s := range p.sessions {
		delete(n.socks.sessions, s)
	}
}

// touch notes a neighbour before it is changed.
func (n *Netns) touch(k neighKey) {
	p := n.peek
	if p == nil {
		return
	}
	if _, noted := p.neigh[k]; noted {
		return
	}
	if p.neigh == nil {
		p.neigh = map[neighKey]*neighbour{}
	}
	e := n.neigh.entries[k]
	if e == nil {
		p.neigh[k] = nil
		return
	}
	old := *e
	old.waiting = append([]*pkt(nil), e.waiting...)
	p.neigh[k] = &old
}
