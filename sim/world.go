// Package sim is the tank: a deterministic world of nodes, Pods, external hosts and a Kubernetes API,
// in which agents run on virtual time. One seed decides the order of everything that has no order of
// its own.
//
//	scenario ──▶ World ──▶ Queue (lanes, timers, seeded choice) ──▶ agents (Loop) ──▶ seams ──▶ effects
//	               │                                                                        │
//	               ├── kube.Cluster ── watches ──▶ agents                                   ▼
//	               ├── gossip, runtime (kubelet), ipam                          ovs.Switch, host.Netns
//	               └── fabric ◀────────────── frames ───────────────────────────────────────┘
package sim

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"towtank/sim/fabric"
	"towtank/sim/host"
	"towtank/sim/kube"
	"towtank/sim/ovs"
	"towtank/sim/packet"
)

// Options is what a world is made with. The zero value of a field is its default.
type Options struct {
	Seed                 uint64
	V4, V6               bool   // families; neither: IPv4
	Traffic              string // encap, noEncap, hybrid
	Tunnel               string // geneve, vxlan
	Datapath             string // netdev (default) or system
	NoProxyAll           bool
	NoProxyLoadBalancers bool
	MaxEgressIPsPerNode  int // default 255; -1 for none
	SkipServices         []string
	LoadBalancerMode     string
	NodePortAddresses    []netip.Prefix
	PodCIDRSize          int // IPv4; IPv6 is always /64
	ServiceCIDRs         []netip.Prefix
	Membership           string
	MemberTimeout        time.Duration
	MemberRejoin         time.Duration
	AuditEvery           time.Duration
	// LogTo, if set, gets every line of the event log.
	LogTo io.Writer
	// NewSwitch makes the switch of a node; nil: the model. Then packets leave traces: see CanPeek.
	NewSwitch func(node string, c ovs.Config) (Switch, error)
	// RestartAfterDeath, if positive, starts an agent again that a fault killed, after that time.
	RestartAfterDeath time.Duration
}

func (o *Options) defaults() {
	if !o.V4 && !o.V6 {
		o.V4 = true
	}
	set(&o.Traffic, "encap")
	set(&o.Tunnel, "geneve")
	set(&o.Datapath, "netdev")
	set(&o.LoadBalancerMode, "nat")
	set(&o.Membership, "local")
	set(&o.MaxEgressIPsPerNode, 255)
	set(&o.PodCIDRSize, 24)
	set(&o.MemberTimeout, 15*time.Second)
	set(&o.MemberRejoin, 60*time.Second)
	set(&o.AuditEvery, 60*time.Second)
	if len(o.ServiceCIDRs) == 0 {
		o.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
	}
}

func set[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// epoch is when every world begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var errConflict = apierrors.NewConflict(schema.GroupResource{Group: "crd.antrea.io", Resource: "egresses"}, "", errors.New("the object has been modified (a fault of the scenario)"))

// World is one simulated cluster and what is around it. It is for one goroutine.
type World struct {
	opts  Options
	queue *Queue
	log   *Log
	Kube  *kube.Cluster

	scheduleRand *rand.Rand // order of events, latencies
	chance       chance
	packets      *packet.Queue
	fabric       *fabric.Fabric
	gossip       *gossip
	runtime      *containers

	nodes      map[string]*Node
	nodeOrder  []*Node
	externals  map[string]*External
	extOrder   []*External
	nets       map[string]*network
	namespaces map[string]*host.Netns // by name: those of containers
	control    *Node                  // the machine of the pool allocation

	lastDisturbance time.Time
	lastNetwork     time.Time // when who reaches whom changed last
	partition       *partition
	tracer          *tracer
	traffic         *traffic
	streams         []*Stream
	inBeat          bool
	// AfterEffect, if set, is called after every effect of any agent: what must hold at every step is
	// checked there.
	AfterEffect func()
	// OnFrame, if set, sees every frame that a machine sends on the fabric. It must neither keep nor
	// change it.
	OnFrame func(from string, p *packet.Packet)
	// OnDecision, if set, is told of the decisions that agents take, by stable names.
	OnDecision func(name string)
	// BeforeTold, if set, is called before the agent of a node hears of an event.
	BeforeTold func(n *Node, ev any)
	baseline   map[string]string // dumps taken after nodes
	problems   []string          // what went wrong inside the model itself
	podWork    []string          // Pods that the runtime is to look at, in the order in which they changed
	onNode     map[string][]func(*Node)
	peek       *peeking
	peekPort   int
	unused     []string // faults that EndFaults ended before they had hit
}

// New returns a world without nodes.
func New(opts Options) (*World, error) {
	opts.defaults()
	w := &World{
		opts: opts, nodes: map[string]*Node{}, externals: map[string]*External{}, nets: map[string]*network{},
		namespaces: map[string]*host.Netns{}, onNode: map[string][]func(*Node){}, baseline: map[string]string{},
		chance: newChance(opts.Seed),
	}
	w.scheduleRand = rand.New(w.chance.schedule)
	w.queue = NewQueue(epoch, w.scheduleRand)
	w.log = NewLog(epoch, opts.LogTo)
	w.queue.OnEvent = func(lane, label string) { w.log.Add(w.queue.now, "event", lane, label) }
	w.packets = &packet.Queue{OnLoop: func(err error) { w.problem(err.Error()) }}
	w.fabric = fabric.New(fabric.Config{
		Rand: rand.New(w.chance.network), Queue: w.packets, OnFrame: w.onFrame,
	})
	w.gossip = newGossip(w)
	w.runtime = newContainers(w)
	w.traffic = newTraffic(w)
	var err error
	w.Kube, err = kube.New(kube.Config{
		Now: w.queue.Now, IPv4: opts.V4, IPv6: opts.V6, ServiceCIDRs: opts.ServiceCIDRs, Wake: w.pump,
	})
	if err != nil {
		return nil, err
	}
	w.Kube.AddObserver(w.observe)
	w.startController()
	return w, nil
}

// decision is what agents tell their decisions to: nil if nobody listens.
func (w *World) decision() func(string) {
	if w.OnDecision == nil {
		return nil
	}
	return func(name string) { w.OnDecision(name) }
}

// problem notes something that went wrong inside the model: it fails the run.
func (w *World) problem(text string) {
	w.problems = append(w.problems, text)
	w.log.Add(w.queue.now, "problem", "world", text)
}

// Problems returns what went wrong inside the model itself, and forgets it.
func (w *World) Problems() []string {
	p := w.problems
	w.problems = nil
	return p
}

// Options returns the options with defaults.
func (w *World) Options() Options { return w.opts }

// Now returns the virtual time since the world began.
func (w *World) Now() time.Duration { return w.queue.Now().Sub(epoch) }

// LogHash returns the hash of everything that happened so far.
func (w *World) LogHash() string { return w.log.Hash() }

// Note writes a line of the caller to the log: a step and its verdict.
func (w *World) Note(who, what string) { w.log.Add(w.queue.now, "step", who, what) }

// Events returns the number of events that ran so far.
func (w *World) Events() uint64 { return w.queue.Ran() }

// Step runs n events; it returns how many there were to run.
func (w *World) Step(n int) int {
	for i := range n {
		if !w.queue.Step() {
			return i
		}
	}
	return n
}

// Settle runs what is due and the work that follows, for at most within. It returns what is not
// settled, with no fault of the scenario to explain it.
func (w *World) Settle(within time.Duration) error { return w.SettleMany(within, Livelock) }

// SettleMany is Settle for loads of many objects: limit is how many events may run before they are
// called a livelock.
func (w *World) SettleMany(within time.Duration, limit int) error {
	for _, n := range w.nodeOrder {
		if n.agent != nil {
			n.agent.loop.CountDirty()
		}
	}
	if err := w.queue.Settle(within, limit); err != nil {
		return fmt.Errorf("%w; most often dirty: %s", err, w.busiest())
	}
	if w.unsettled() == nil {
		return nil
	}
	// A background event (a node is called not ready, a member is missed) just before the end gave work
	// that had no time to be done.
	if err := w.queue.Settle(settleGrace, limit); err != nil {
		return fmt.Errorf("%w; most often dirty: %s", err, w.busiest())
	}
	return w.unsettled()
}

// settleGrace is how much longer a world that did not settle in time may take.
const settleGrace = 5 * time.Second

// unsettled returns what is not settled, with no fault of the scenario to explain it.
func (w *World) unsettled() error {
	var errs []error
	for _, n := range w.nodeOrder {
		if why := n.unsettled(); why != nil {
			errs = append(errs, why)
		}
	}
	return errors.Join(errs...)
}

// busiest names the units that were dirty most often since the last Settle began.
func (w *World) busiest() string {
	type count struct {
		who string
		n   int
	}
	var list []count
	for _, n := range w.nodeOrder {
		if n.agent == nil {
			continue
		}
		times := n.agent.loop.Stats().DirtyTimes
		for _, u := range slices.Sorted(maps.Keys(times)) {
			list = append(list, count{n.name + " " + u, times[u]})
		}
	}
	slices.SortStableFunc(list, func(a, b count) int { return b.n - a.n })
	var text string
	for i, c := range list {
		if i == 5 {
			break
		}
		text += fmt.Sprintf("%s (%d) ", c.who, c.n)
	}
	return text
}

// Advance lets virtual time pass.
func (w *World) Advance(d time.Duration) error {
	err := w.queue.Advance(d)
	for _, n := range w.nodeOrder {
		n.ns.Tick()
		n.sw.Tick()
	}
	return err
}

// pump has the events that wait on the watches delivered, each stream on its own lane.
func (w *World) pump() {
	for _, n := range w.nodeOrder {
		if n.agent != nil && !n.agent.dead {
			n.agent.pump()
		}
	}
	if w.control != nil && w.control.agent != nil {
		w.control.agent.pump()
	}
}

// observe sees every write to the API.
func (w *World) observe(e kube.Event) {
	w.log.Add(w.queue.now, "api", string(e.Kind), string(e.Type)+" "+e.Key)
	if e.Kind == kube.KindPod {
		w.podChanged(e.Key)
		w.runtime.wake()
	}
}

// podChanged has the runtime look at a Pod.
func (w *World) podChanged(key string) {
	if !slices.Contains(w.podWork, key) {
		w.podWork = append(w.podWork, key)
	}
}

// netns returns the network namespace of a container, nil if there is none.
func (w *World) netns(name string) *host.Netns { return w.namespaces[name] }

// Nodes returns the nodes in the order in which they were made.
func (w *World) Nodes() []*Node { return w.nodeOrder }

// Node returns a node by name, nil if there is none.
func (w *World) Node(name string) *Node { return w.nodes[name] }

// Externals returns the external hosts in the order in which they were made.
func (w *World) Externals() []*External { return w.extOrder }

// External returns an external host by name, nil if there is none.
func (w *World) External(name string) *External { return w.externals[name] }

// ask has a namespace resolve a neighbour: a packet that goes nowhere makes it ask.
func (w *World) ask(ns *host.Netns, peer netip.Addr) {
	p := &packet.Packet{Proto: packet.ProtoUDP, SrcPort: 1, DstPort: 1, TTL: 1, Payload: "resolve"}
	p.SetIPs(netip.Addr{}, peer)
	_ = ns.Send(p) // whether it can be sent does not matter: that the neighbour was asked for does
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }
