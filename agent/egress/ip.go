package egress

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/datapath"
)

func (e *Egress) renderIP(l *pipeline.List, unit string, ip netip.Addr) {
	if !e.isOurs(ip) {
		e.status.noProblem(ip) // nobody waits for it here
	}
	if _, family := e.env.Cfg.Gateway(ip.Is6()); !family || len(e.holders[ip]) == 0 {
		return
	}
	if !e.isOurs(ip) {
		return // no route table is taken for what other nodes have
	}
	p := pipeline.Of(e.env.Tables)
	subnet, ok := e.subnets.of(e, ip)
	if !ok {
		return
	}
	if node, pool := e.fromPool(ip); pool && node == e.env.Cfg.NodeName && !e.isOwn(ip) {
		if subnet != nil {
			p.SubnetAddress(l, ip, subnet)
		} else {
			p.EgressAddress(l, ip)
		}
	}
	if !e.isLocal(ip) {
		return
	}
	mark, err := e.env.Marks.Mark(ip)
	if err != nil {
		e.env.Decide("egress/marks-exhausted")
		e.status.problem(ip, err)
		return
	}
	p.EgressRules(l, ip, mark)
	if subnet != nil {
		p.SubnetRoutes(l, ip, mark, subnet)
	}
	p.EgressIP(l, unit, ip, mark)
	if rate, burst, ok := e.bandwidth(ip); ok {
		p.EgressMeter(l, unit, mark, rate, burst)
	}
}

// isOwn reports whether an address is the node's own transport address: it is never put or removed.
func (e *Egress) isOwn(ip netip.Addr) bool {
	own, ok := e.env.Cfg.Transport(ip.Is6())
	return ok && own == ip
}

// bandwidth returns the limit of the oldest Egress of an address, in kbit/s and kbit: one address has
// one meter.
func (e *Egress) bandwidth(ip netip.Addr) (rate, burst uint32, ok bool) {
	for _, name := range e.holders[ip] {
		eg := e.env.Egresses[name]
		if eg == nil || eg.Spec.Bandwidth == nil {
			continue
		}
		r, errRate := kilobits(eg.Spec.Bandwidth.Rate)
		b, errBurst := kilobits(eg.Spec.Bandwidth.Burst)
		if errRate != nil || errBurst != nil || r == 0 {
			continue
		}
		return r, b, true
	}
	return 0, 0, false
}

func (e *Egress) realisedIP(unit string, ip netip.Addr) {
	if !e.isLocal(ip) && !e.env.Store.Has(unit) {
		e.env.Marks.Free(ip)
		e.marksSeen = 0
		e.subnets.free(e, ip)
		delete(e.announced, ip)
	}
	if was, link := e.announced[ip], e.linkOf(ip); e.isLocal(ip) && was != link {
		// Also an address that people put: who moved it by hand may not have told the neighbours.
		e.announced[ip] = link
		if was != "" {
			e.status.moved(ip)
		}
		e.announce(ip)
		e.announceAgain(ip)
	}
	e.status.addressChanged(ip)
}

// taken announces an address that was there at the start, if its status does not name this node: another
// node held it meanwhile, and the neighbours send to that one, or this node died before it told them.
func (e *Egress) taken(ip netip.Addr) {
	if e.found[ip] {
		delete(e.found, ip)
		e.announce(ip)
		e.announceAgain(ip)
	}
}

// linkOf returns the link that an address is on.
func (e *Egress) linkOf(ip netip.Addr) string {
	if on := e.env.Addresses[ip]; len(on) > 0 {
		return on[0]
	}
	return e.env.Cfg.Uplink
}

func (e *Egress) announce(ip netip.Addr) {
	e.env.Decide("egress/announce")
	e.env.Host.Announce([]datapath.Announcement{{IP: ip, Link: e.linkOf(ip)}}, func(err error) {
		if err != nil {
			e.env.Log.Error(err, "An Egress IP was not announced", "ip", ip)
			delete(e.announced, ip)
		}
	})
}

// joinGrace is how long after its start an agent takes who joins for one that was there all the time.
const joinGrace = 5 * time.Second

// membersChanged notes who went; if one of those is back, the addresses of this node are announced again:
// a node that was cut off may have claimed them meanwhile. So may one that comes late after a start: this
// node may have been cut off when its agent started.
func (e *Egress) membersChanged(alive []string) {
	back := false
	late := e.env.Clock.Now().Sub(e.since) > joinGrace
	for _, n := range alive {
		if e.lost[n] || late && !slices.Contains(e.alive, n) {
			delete(e.lost, n)
			back = true
		}
	}
	for _, n := range e.alive {
		if !slices.Contains(alive, n) {
			e.lost[n] = true
		}
	}
	if !slices.Equal(e.alive, alive) {
		// Somebody else may have to speak for what nobody holds.
		//determinism:ignore statuses are looked at in the order of their names
		for name := range e.env.Egresses {
			e.status.changed(name)
		}
	}
	e.alive = alive
	if back {
		e.reannounce()
	}
}

// reannounce tells the neighbours again where the addresses of this node are.
func (e *Egress) reannounce() {
	for _, ip := range slices.SortedFunc(maps.Keys(e.announced), netip.Addr.Compare) {
		if e.isLocal(ip) {
			e.announce(ip)
			e.announceAgain(ip)
		}
	}
}

// repeatAnnounce is when an address is announced once more: who held it before has let go of it by then,
// and whoever asked in between may have been answered by that node.
const repeatAnnounce = 2 * time.Second

func (e *Egress) announceAgain(ip netip.Addr) {
	e.env.Clock.AfterFunc(repeatAnnounce, edge.Work, func() {
		if e.announced[ip] != "" && e.isLocal(ip) {
			e.announce(ip)
		}
	})
}
