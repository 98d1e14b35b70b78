package services

import (
	"net/netip"
	"slices"
	"time"

	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/datapath/openflow"
)

// flusher removes conntrack entries that lead UDP and SCTP traffic to where it must not go any more:
// such traffic has no end that conntrack could see. TCP connections are left to their ends.
//
// An entry is stale if its Service port went, or its endpoint is no longer one of it. The flush is
// issued when the unit is realised, so that no packet can make the entry again.
type flusher struct {
	env *tables.Env
	// rendered is what the last rendering of a unit allows, applied what the last realised one did.
	rendered, applied map[string]*allowed
	synced            bool // entries that existed before this process were looked at
	dumping           bool
	again             bool // and once more when this dump is done
	started           bool // they were looked at when nothing old was left on the node that could go
	// waiting are the units that were rendered and since then neither realised nor refused. late are those that were
	// refused before anything of theirs was looked at: what the process before made for them stays on the node, and
	// makes entries, until they are realised.
	waiting, late map[string]bool
	// inherits are the units that were rendered before the entries of the process before were looked at, or were given what
	// that process had made, and were not realised since, however often they were rendered again.
	inherits map[string]bool
	withheld bool // something old was left, whose deletion was refused
	due      bool // something of that went: what it made has to be looked at

	switchRetry retry
	kernel      *tables.KernelConntrack
}

// retry is when a flush or a look at what is there that failed is followed by another look.
type retry struct {
	delay  time.Duration
	timer  edge.Timer // nil: none runs
	paused bool       // there is no switch: when it is back, it is looked at anyway
}

// pause ends waiting until resume.
func (r *retry) pause() {
	if r.timer != nil {
		r.timer.Stop()
	}
	*r = retry{paused: true}
}

func (r *retry) resume() { r.paused = false }

// Back-off of what fails.
const (
	retryMin = time.Second
	retryMax = time.Minute
)

// retry looks at what is there later, after a flush or a look that failed: what became of a flush is not known.
func (f *flusher) retry(err error) {
	r := &f.switchRetry
	switch {
	case err == nil:
		r.delay = 0
	case r.timer == nil && !r.paused:
		r.delay = min(max(2*r.delay, retryMin), retryMax)
		f.env.Log.Error(err, "Conntrack was not flushed or not read", "retry", r.delay)
		r.timer = f.env.Clock.AfterFunc(r.delay, edge.Work, func() {
			r.timer = nil
			f.resync()
		})
	}
}

// disconnected hears that there is no switch: nothing on it is tried until resync is called.
func (f *flusher) disconnected() { f.switchRetry.pause() }

// connected hears that there is a switch again.
func (f *flusher) connected() {
	f.switchRetry.resume()
	f.resync()
}

// allowed is which backends connections to the frontends of a Service port may have.
type allowed struct {
	proto     uint8
	zone      uint16
	frontends []netip.AddrPort
	backends  []netip.AddrPort
	nodePorts []netip.AddrPort // frontends that the kernel translates first
	// initial is set if entries from before this process were not looked at when it was rendered.
	initial bool
}

func newFlusher(env *tables.Env) *flusher {
	f := &flusher{env: env, rendered: map[string]*allowed{}, applied: map[string]*allowed{}, waiting: map[string]bool{}, late: map[string]bool{}, inherits: map[string]bool{}}
	f.kernel = tables.NewKernelConntrack(env, f.staleInKernel)
	return f
}

// next notes what a rendering allows; sp is nil if the unit is to go.
func (f *flusher) next(unit string, sp *servicePort) {
	if !f.synced {
		f.inherits[unit] = true
	}
	if sp == nil || sp.Proto == openflow.ProtoTCP {
		if f.rendered[unit] != nil || f.applied[unit] != nil {
			f.rendered[unit], f.waiting[unit] = nil, true
		}
		return
	}
	a := &allowed{proto: sp.Proto, zone: pipeline.ServiceZone(sp.V6), initial: !f.synced}
	for _, fr := range sp.Frontends {
		a.frontends = append(a.frontends, netip.AddrPortFrom(fr.Addr, fr.Port))
		if fr.NodePort {
			// Pods and the node itself dial the node's own address.
			for _, n := range tables.NodePortAddresses(f.env.Tables) {
				if n.Is6() == sp.V6 {
					a.frontends = append(a.frontends, netip.AddrPortFrom(n, fr.Port))
					a.nodePorts = append(a.nodePorts, netip.AddrPortFrom(n, fr.Port))
				}
			}
		}
	}
	for _, x := range sp.external {
		if x.own {
			a.nodePorts = append(a.nodePorts, netip.AddrPortFrom(x.Addr, sp.port))
		}
	}
	for _, b := range unionOf(sp.Cluster, sp.Local) {
		a.backends = append(a.backends, b.AddrPort)
	}
	f.rendered[unit], f.waiting[unit] = a, true
}

// given notes that a unit has something to let go of that was there before this process.
func (f *flusher) given(unit string) {
	if f.rendered[unit] != nil {
		f.waiting[unit], f.inherits[unit] = true, true
	}
}

// refused notes that a unit was not taken as it was rendered last.
func (f *flusher) refused(unit string) {
	delete(f.waiting, unit)
	if _, ok := f.rendered[unit]; ok && f.inherits[unit] {
		f.late[unit] = true
	}
}

// realised issues the flush for what the unit allowed before and does not now.
func (f *flusher) realised(unit string) {
	cur, ok := f.rendered[unit]
	delete(f.inherits, unit)
	if !ok {
		return
	}
	delete(f.waiting, unit)
	if f.late[unit] {
		delete(f.late, unit)
		f.due = f.due || f.started
	}
	old := f.applied[unit]
	if cur == nil {
		delete(f.applied, unit)
		delete(f.rendered, unit)
	} else {
		f.applied[unit] = cur
	}
	if !f.synced && !f.waits() {
		f.resync()
	}
	var tuples []datapath.Tuple
	if old != nil {
		for _, fr := range old.frontends {
			if cur == nil || !slices.Contains(cur.frontends, fr) {
				tuples = append(tuples, datapath.Tuple{Zone: old.zone, Proto: old.proto, Frontend: fr})
				continue
			}
			for _, b := range old.backends {
				if !slices.Contains(cur.backends, b) {
					tuples = append(tuples, datapath.Tuple{Zone: old.zone, Proto: old.proto, Frontend: fr, Backend: b})
				}
			}
		}
	}
	if cur != nil && !cur.initial {
		// Who sent to the address before it was served has an entry that translates nothing.
		for _, fr := range cur.frontends {
			if old == nil || !slices.Contains(old.frontends, fr) {
				tuples = append(tuples, datapath.Tuple{Zone: cur.zone, Proto: cur.proto, Frontend: fr, Backend: fr})
			}
		}
	}
	f.flush(tuples)
	f.flushKernel(old, cur)
}

// flushKernel has the kernel forget who sent to a NodePort before it was one, and after: it translates
// what it has an entry for as it did before.
func (f *flusher) flushKernel(old, cur *allowed) {
	var tuples []datapath.Tuple
	has := func(a *allowed, fr netip.AddrPort) bool { return a != nil && slices.Contains(a.nodePorts, fr) }
	if old != nil {
		for _, fr := range old.nodePorts {
			if !has(cur, fr) {
				tuples = append(tuples, datapath.Tuple{Proto: old.proto, Frontend: fr})
			}
		}
	}
	if cur != nil && !cur.initial {
		for _, fr := range cur.nodePorts {
			if !has(old, fr) {
				tuples = append(tuples, datapath.Tuple{Proto: cur.proto, Frontend: fr, Backend: fr})
			}
		}
	}
	f.flushHost(tuples)
}

func (f *flusher) flushHost(tuples []datapath.Tuple) {
	if len(tuples) > 0 {
		f.env.Decide("services/flush-kernel")
		f.kernel.Flush(tuples)
	}
}

// staleInKernel returns the entries of the kernel that translate what is no NodePort any more, and those that do not
// translate what is one.
func (f *flusher) staleInKernel(entries []datapath.ConntrackEntry) []datapath.Tuple {
	type key struct {
		proto    uint8
		frontend netip.AddrPort
	}
	served := map[key]bool{}
	for _, set := range []map[string]*allowed{f.applied, f.rendered} {
		for _, a := range set {
			if a == nil {
				continue
			}
			for _, fr := range a.nodePorts {
				served[key{a.proto, fr}] = true
			}
		}
	}
	var tuples []datapath.Tuple
	for _, e := range entries {
		translated := isStandIn(e.ReplySrc.Addr())
		if e.Proto != openflow.ProtoTCP && served[key{e.Proto, e.OrigDst}] != translated && (translated || e.ReplySrc == e.OrigDst) {
			tuples = append(tuples, datapath.Tuple{Proto: e.Proto, Frontend: e.OrigDst, Backend: e.ReplySrc})
		}
	}
	if len(tuples) > 0 {
		f.env.Decide("services/flush-kernel")
	}
	return tuples
}

func (f *flusher) flush(tuples []datapath.Tuple) {
	if len(tuples) == 0 {
		return
	}
	f.env.Decide("services/flush")
	f.env.Switch.FlushConntrack(tuples, func(err error) {
		f.retry(err)
	})
}

// resync looks at all entries: at start, after a reconnect, and after an unknown result. Entries with
// the Service mark that lead where no Service port allows are flushed.
func (f *flusher) resync() {
	f.synced = true
	if f.dumping {
		f.again = true
		return
	}
	f.dumping, f.again = true, false
	var zones []uint16
	for _, v6 := range f.env.Cfg.Families() {
		zones = append(zones, pipeline.ServiceZone(v6))
	}
	f.env.Switch.DumpConntrack(zones, func(entries []datapath.ConntrackEntry, err error) {
		f.dumping = false
		if err != nil {
			f.synced = false
			f.retry(err)
			return
		}
		tuples := f.stale(entries)
		if len(tuples) == 0 {
			f.retry(nil)
		}
		f.flush(tuples)
		if f.again {
			f.resync()
		}
	})
}

// waits reports whether the switch is looked at later anyway: each look reads everything that it has.
func (f *flusher) waits() bool {
	return f.dumping || f.switchRetry.timer != nil || f.switchRetry.paused
}

// quiet reports whether nothing of a Service is to be written that can be, and nothing is left that can go and that
// nobody wants. What others want does not matter: that may be refused for good.
func (f *flusher) quiet() bool { return len(f.waiting) == 0 && !f.env.Store.Leaving(leadsServices) }

// leadsServices reports whether an object of that kind can lead to where a Service leads.
func leadsServices(k datapath.Kind) bool {
	switch k {
	case datapath.KindFlow, datapath.KindGroup, datapath.KindIPTables, datapath.KindIPSet, datapath.KindIPSetEntry:
		return true
	}
	return false
}

// advance looks at what is there at the start: once everything was rendered, and again once nothing is left on the
// node of what was there before and is wanted no more, because it made entries until then. What cannot go is looked
// after once more when it did.
func (f *flusher) advance() {
	if f.withheld && f.quiet() && !f.env.Store.Withheld(leadsServices) {
		f.withheld, f.due = false, true
	}
	if f.due {
		f.due = false
		f.resync()
		f.kernel.Look()
	}
	if f.started {
		return
	}
	if !f.synced && !f.waits() {
		f.resync()
		f.kernel.Look()
	}
	if f.quiet() {
		f.started, f.withheld = true, f.env.Store.Withheld(leadsServices)
		f.resync()
		f.kernel.Look()
	}
}

func (f *flusher) stale(entries []datapath.ConntrackEntry) []datapath.Tuple {
	type key struct {
		proto    uint8
		frontend netip.AddrPort
	}
	index := map[key][]netip.AddrPort{}
	for _, set := range []map[string]*allowed{f.applied, f.rendered} {
		//determinism:ignore the backends of a frontend are only searched, never listed
		for _, a := range set {
			if a == nil {
				continue
			}
			for _, fr := range a.frontends {
				k := key{a.proto, fr}
				index[k] = append(index[k], a.backends...)
			}
		}
	}
	var tuples []datapath.Tuple
	for _, e := range entries {
		backends, served := index[key{e.Proto, e.OrigDst}]
		if e.Proto == openflow.ProtoTCP || (e.Mark&pipeline.ServiceMark == 0 && !(served && e.ReplySrc == e.OrigDst)) {
			continue
		}
		if !slices.Contains(backends, e.ReplySrc) {
			tuples = append(tuples, datapath.Tuple{Zone: e.Zone, Proto: e.Proto, Frontend: e.OrigDst, Backend: e.ReplySrc})
		}
	}
	return tuples
}
