// Package agent is the node agent: a state machine that turns typed events into dirty units, units
// into objects, and the difference between wanted and known objects into staged Changes. It has no
// goroutine, clock or I/O of its own: the shell around it (the simulator, or the production process)
// calls Handle with events and runs what it posts, one at a time.
package agent

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"towtank/agent/config"
	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/datapath/openflow"
)

// Seams is everything that the agent has effects on.
type Seams struct {
	Switch  datapath.Switch
	Host    datapath.Host
	Cluster edge.Cluster
	IPAM    edge.IPAM
	Members edge.Members
	Clock   edge.Clock
	// Post runs f later on the loop, after what is queued already.
	Post func(f func())
	Log  klog.Logger
	// Decision, if set, is told of the decisions the agent takes, by a stable name.
	Decision func(name string)
}

// Loop is the agent's one state machine.
type Loop struct {
	env      *tables.Env
	seams    Seams
	concerns []tables.Concern
	byKind   map[string]tables.Concern
	kinds    []string // of all concerns, in their order

	dirty  map[string]bool
	marked map[string]bool     // kinds of units that the present event has marked, for coverage
	queues map[string][]string // dirty units by kind

	turnPosted bool
	stopped    bool
	dumped     bool // both dumps were read: known is known
	dumping    bool
	reread     bool // the switch began anew during the dump
	connected  bool

	wiring   map[string]bool // sandbox units with a link op in flight
	change   *change         // the Change in flight on the datapath lane
	quarant  map[string]*quarantine
	stuck    map[datapath.Key]time.Duration // back-off of objects that nobody wants and whose deletion was refused
	pacing   pacing
	audit    edge.Timer
	auditDue bool
	stats    Stats
	since    map[string]time.Time // when units that are not realised became dirty
}

// Stats counts what the loop did, for metrics and benchmarks. The maps are the loop's own.
type Stats struct {
	Turns, Renders, Changes, Ops uint64
	DirtyTimes                   map[string]int    // since the last call of CountDirty; nil before the first
	Refusals                     map[string]uint64 // of units, by kind
	Audits                       uint64            // times that the node was read
	Repairs                      uint64            // objects that an audit found otherwise than they were known
	Orphans                      uint64            // objects that were deleted because nobody wants them
	// ChangeTime is from when a Change is sent off until its last stage is answered; UnitTime by kind from when
	// a unit is marked dirty until everything that it wants is there.
	ChangeTime Histogram
	UnitTime   map[string]*Histogram
}

// quarantine keeps a refused unit out of Changes until its back-off ends.
type quarantine struct {
	err      error
	delay    time.Duration
	until    time.Time
	timer    edge.Timer
	released bool
}

// Back-off of a refused unit (seed behaviour EG-01).
const (
	backoffMin = 5 * time.Second
	backoffMax = 300 * time.Second
)

// wiringLimit is the number of links that are made or removed at once.
const wiringLimit = 8

// New returns a loop that has not started: events may be posted only after Start.
func New(cfg *config.Config, seams Seams) (*Loop, error) {
	cfg.Defaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l := &Loop{
		seams: seams, byKind: map[string]tables.Concern{}, dirty: map[string]bool{}, marked: map[string]bool{}, queues: map[string][]string{}, wiring: map[string]bool{},
		quarant: map[string]*quarantine{}, stuck: map[datapath.Key]time.Duration{}, connected: true, since: map[string]time.Time{},
	}
	l.stats.Refusals, l.stats.UnitTime = map[string]uint64{}, map[string]*Histogram{}
	l.env = &tables.Env{
		Tables: tables.New(cfg), Store: datapath.NewStore(), Clock: seams.Clock, Cluster: seams.Cluster, IPAM: seams.IPAM,
		Members: seams.Members, Switch: seams.Switch, Host: seams.Host, Log: seams.Log, Dirty: l.markDirty, Wake: l.wake,
		Decision: seams.Decision,
		IsClean:  func(u string) bool { return !l.dirty[u] },
		AllClean: func(kind string) bool { return len(l.queues[kind]) == 0 },
		Retry:    func(u string) { l.release(u); l.wake() },
		Restored: func() bool { return l.dumped },
	}
	l.pacing.tokens = pacingBurst
	for _, c := range newConcerns(l.env) {
		l.concerns = append(l.concerns, c)
		for _, k := range c.Kinds() {
			l.byKind[k] = c
			l.kinds = append(l.kinds, k)
		}
	}
	return l, nil
}

// Start reads what is on the node; Changes wait for that.
func (l *Loop) Start() {
	l.env.Features = l.seams.Switch.Features()
	l.readBack()
	l.armAudit()
}

// Stop ends the loop: nothing is rendered or applied any more. What is on the node stays.
func (l *Loop) Stop() {
	l.stopped = true
	if l.audit != nil {
		l.audit.Stop()
	}
}

// Handle takes one event.
func (l *Loop) Handle(ev any) {
	if l.stopped {
		return
	}
	if req, ok := ev.(*edge.CNIRequest); ok {
		for _, c := range l.concerns {
			if h, ok := c.(interface{ HandleCNI(*edge.CNIRequest) }); ok {
				h.HandleCNI(req)
			}
		}
		l.wake()
		return
	}
	if d, ok := ev.(datapath.DisconnectEvent); ok {
		l.connection(d)
	}
	if l.takenAway(ev) {
		l.auditDue = true // more than this may be gone: a route goes with its address
	}
	old := l.env.Apply(ev)
	clear(l.marked)
	for _, c := range l.concerns {
		c.Handle(ev, old)
	}
	l.decided(ev, old)
	l.wake()
}

// takenAway reports whether an event says that an address or link went (or was set down) which is wanted, and was
// known to be there: somebody else removed it. What went by our own Change is not wanted any more.
func (l *Loop) takenAway(ev any) bool {
	wanted := func(k datapath.Key) bool { return l.env.Store.Known(k) != nil && l.env.Store.Wanted(k) != nil }
	switch t := ev.(type) {
	case datapath.AddressEvent:
		// The event has no prefix length, the key has.
		for bits := 0; !t.Present && bits <= t.Addr.BitLen(); bits++ {
			if wanted(host.Address{Prefix: netip.PrefixFrom(t.Addr, bits), Link: t.Link}.Key()) {
				return true
			}
		}
	case datapath.LinkEvent:
		// Routes go with a link that is set down, if only for a moment: Open vSwitch does that to set an address.
		down := l.connected && !t.Up && l.env.Links[t.Name].Up
		return (!t.Present || down) && wanted(host.Link{Name: t.Name}.Key())
	}
	return false
}

func (l *Loop) connection(d datapath.DisconnectEvent) {
	l.connected = d.Connected
	if l.change != nil {
		l.change.broken = true // what is left of it was meant for the switch as it was
	}
	if !d.Connected {
		return
	}
	l.reread = true // a dump under way may be one of the switch as it was
	// What is on the switch now is told by the switch. The fresh dump leads to one bundle with
	// everything, so that no half pipeline forwards.
	l.env.Store.Forget(isSwitchKind)
	for _, u := range slices.Sorted(maps.Keys(l.quarant)) {
		l.release(u)
	}
	l.wake()
}

func isSwitchKind(k datapath.Kind) bool {
	switch k {
	case datapath.KindFlow, datapath.KindGroup, datapath.KindMeter, datapath.KindPort:
		return true
	}
	return false
}

func isHostKind(k datapath.Kind) bool { return !isSwitchKind(k) }

func unitKind(unit string) string {
	k, _, _ := strings.Cut(unit, "/")
	return k
}

func (l *Loop) markDirty(unit string) {
	if l.stats.DirtyTimes != nil {
		l.stats.DirtyTimes[unit]++
	}
	if !l.dirty[unit] {
		l.dirty[unit] = true
		k := unitKind(unit)
		l.queues[k] = append(l.queues[k], unit)
		if _, ok := l.since[unit]; !ok {
			l.since[unit] = l.seams.Clock.Now()
		}
	}
	l.wake()
}

// wake has a turn taken after what is queued now; events in between are coalesced into it.
func (l *Loop) wake() {
	if l.turnPosted || l.stopped {
		return
	}
	l.turnPosted = true
	l.seams.Post(func() {
		l.turnPosted = false
		if !l.stopped {
			l.turn()
		}
	})
}

// turn renders what is dirty, tells what was realised, and sends Changes off.
func (l *Loop) turn() {
	l.stats.Turns++
	if !l.dumped {
		// What is on the node decides marks and group ids, and which sandboxes there are: nothing is
		// rendered before it was read.
		l.readBack()
		return
	}
	for _, c := range l.concerns {
		if p, ok := c.(interface{ Prepare() }); ok {
			p.Prepare()
		}
	}
	l.render()
	l.tellRealised()
	l.releaseOrphans()
	l.dispatch()
	l.tellRealised()
	for _, c := range l.concerns {
		if a, ok := c.(interface{ Advance() }); ok {
			a.Advance()
		}
	}
	if l.env.Marks.Retry() {
		l.wake()
	}
}

// render renders the dirty units of every kind whose sources were heard. The others wait, untouched:
// what arrives until then costs nothing.
func (l *Loop) render() {
	if len(l.queues) == 0 {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(l.queues)) {
		c := l.byKind[kind]
		if c == nil {
			delete(l.queues, kind)
			continue
		}
		if !c.Ready(kind) || (kind == pacedKind && !l.pacing.admit(l)) {
			continue
		}
		// Sorted, so that the order in which units were marked does not matter.
		queue := l.queues[kind]
		slices.Sort(queue)
		delete(l.queues, kind)
		for _, u := range queue {
			l.renderUnit(c, u)
		}
	}
}

func (l *Loop) renderUnit(c tables.Concern, u string) {
	delete(l.dirty, u)
	objs, prec := c.Render(u)
	l.stats.Renders++
	if l.env.Store.Set(u, prec, objs) {
		// A unit that wants something else now is worth another try at once.
		l.release(u)
	}
	l.outcome(u, len(objs))
}

func (l *Loop) tellRealised() {
	for {
		units := l.env.Store.TakeRealised()
		if len(units) == 0 {
			return
		}
		for _, u := range units {
			l.forgive(u)
			l.timed(u)
			if c := l.byKind[unitKind(u)]; c != nil {
				c.Realised(u)
			}
			l.env.Groups.Settled(u)
		}
	}
}

// timed counts how long a unit took that is realised now.
func (l *Loop) timed(unit string) {
	began, ok := l.since[unit]
	if !ok {
		return
	}
	kind := unitKind(unit)
	h := l.stats.UnitTime[kind]
	if h == nil {
		h = &Histogram{}
		l.stats.UnitTime[kind] = h
	}
	now := l.seams.Clock.Now()
	h.Observe(now.Sub(began))
	if delete(l.since, unit); l.dirty[unit] {
		l.since[unit] = now // for what it wants next
	}
}

// releaseOrphans lets what nobody wants be deleted, once every source of every kind was heard and
// everything was rendered. Until then a part of the truth could delete what the rest of it wants.
func (l *Loop) releaseOrphans() {
	if !l.dumped || len(l.queues) > 0 {
		return
	}
	if !l.Ready() {
		return
	}
	if n := l.giveOrphans() + l.env.Store.ReleaseOrphans(nil); n > 0 {
		l.stats.Orphans += uint64(n)
		l.env.Log.V(2).Info("Deleting objects that nobody wants", "count", n)
	}
}

// giveOrphans gives flows and groups that a unit of now had before this agent started, and does not want any more, to that unit:
// if what it wants instead is refused, they stay as well, and what there was goes on.
func (l *Loop) giveOrphans() (given int) {
	st := l.env.Store
	orphans := st.Orphans()
	if len(orphans) == 0 {
		return 0
	}
	units := map[uint64]string{}
	for _, u := range st.Units() {
		if c := pipeline.CookieOf(u); c != 0 {
			units[c] = u
		}
	}
	for _, o := range orphans {
		var cookie uint64
		switch t := o.(type) {
		case *openflow.Flow:
			cookie = t.Cookie()
		case *openflow.Group:
			cookie = l.env.Groups.Kept(t.ID())
		}
		if u, ok := units[cookie]; ok && st.GiveOrphan(o.Key(), u) {
			given++
			if c, ok := l.byKind[unitKind(u)].(interface{ Given(string) }); ok {
				c.Given(u)
			}
		}
	}
	return given
}

// Ready reports whether the agent has read what is on the node and heard every source.
func (l *Loop) Ready() bool {
	if !l.dumped {
		return false
	}
	for _, k := range l.kinds {
		if !l.byKind[k].Ready(k) {
			return false
		}
	}
	return true
}

// Env returns the loop's tables and Store, for queries: callers only read.
func (l *Loop) Env() *tables.Env { return l.env }

// Stats returns what was counted so far.
func (l *Loop) Stats() Stats { return l.stats }

// CountDirty begins a new count of how often units are dirty.
func (l *Loop) CountDirty() { l.stats.DirtyTimes = map[string]int{} }

// Idle reports whether there is nothing left to do for what was heard: every source has spoken, and
// nothing is dirty, pending or in flight.
func (l *Loop) Idle() bool {
	return l.Ready() && !l.stopped && !l.turnPosted && !l.dumping && !l.auditDue && len(l.queues) == 0 && l.change == nil &&
		len(l.wiring) == 0 && l.env.Store.PendingCount() == 0
}

// Unsettled names the units that are dirty, pending or quarantined, with the reason, sorted.
func (l *Loop) Unsettled() []string {
	if l.dumped && l.change == nil && len(l.queues) == 0 && l.env.Store.PendingCount() == 0 {
		return nil
	}
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(l.queues)) {
		for _, u := range l.queues[kind] {
			out = append(out, u+": dirty")
		}
	}
	if !l.dumped {
		out = append(out, "host: the node was not read back")
	}
	for _, u := range l.env.Store.Units() {
		if q := l.quarant[u]; q != nil && !l.env.Store.Realised(u) {
			out = append(out, u+": "+q.err.Error())
		} else if !l.env.Store.Realised(u) {
			out = append(out, u+": pending")
		}
	}
	if l.change != nil {
		out = append(out, "a Change is in flight")
	}
	slices.Sort(out)
	return out
}
