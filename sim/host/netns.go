package host

import (
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/sim/packet"
)

// Config is what a network namespace needs from the world.
type Config struct {
	// Name is that of the node, Pod or external host; traces and errors show it.
	Name string
	// Now returns the virtual time.
	Now func() time.Time
	// Rand draws MAC addresses and random ports; nil is a generator seeded with the name.
	Rand *rand.Rand
	// Queue is shared with every device that packets are handed to; nil is one of its own.
	Queue *packet.Queue
	// Events, if set, receives datapath.AddressEvent and datapath.LinkEvent.
	Events func(any)
	// Netns finds the namespace in which the other side of a veth is made; nil finds none.
	Netns func(name string) (*Netns, bool)
	// Delivered, if set, hears of every packet that comes to the namespace's sockets, before they do.
	Delivered func(*packet.Packet)
}

// Netns is one network namespace. It is not safe for concurrent use.
type Netns struct {
	cfg    Config
	rand   *rand.Rand
	q      *packet.Queue
	tracer packet.Tracer
	node   string // name in traces

	links   map[string]*Link
	byIndex []*Link // in the order in which they were made
	lo      *Link
	nextIf  int

	local  map[netip.Addr][]*address // addresses of all links
	ip     [2]*ipState               // IPv4, IPv6
	neigh  neighbours
	conf   map[string]int            // sysctls without a link in their name
	confOf map[string]map[string]int // "4/all", "4/default", "6/all", "6/default"
	ours   map[string]string         // sysctls set by Apply, with the value before

	sets   map[string]*ipset
	ct     conntrack
	socks  sockets
	health map[uint16]*healthListener
	// healthPaused: their process is stopped.
	healthPaused bool
	peek         *peek // set while what packets change is noted
}

// ipState is what exists once per family.
type ipState struct {
	fam    host.Family
	tables map[uint32]*fib
	rules  []policyRule       // by priority, then age
	bySrc  map[netip.Addr]int // routes with that preferred source
	nf     map[string]*nfTable
}

// New returns a namespace that has only lo, up, with its addresses.
func New(cfg Config) *Netns {
	n := &Netns{cfg: cfg, rand: cfg.Rand, q: cfg.Queue, node: cfg.Name}
	if n.rand == nil {
		h := fnv.New64a()
		h.Write([]byte(cfg.Name))
		n.rand = rand.New(rand.NewPCG(h.Sum64(), 0))
	}
	if n.q == nil {
		n.q = &packet.Queue{}
	}
	if n.cfg.Now == nil {
		n.cfg.Now = func() time.Time { return time.Time{} }
	}
	n.socks = newSockets()
	n.health = map[uint16]*healthListener{}
	n.boot(nil)
	return n
}

// boot sets everything that does not survive a reboot to its initial state; keep are the links that
// the machine has.
func (n *Netns) boot(keep []*Link) {
	events := n.cfg.Events // nobody listens yet
	n.cfg.Events = nil
	defer func() { n.cfg.Events = events }()
	n.links, n.byIndex = map[string]*Link{}, nil
	n.local = map[netip.Addr][]*address{}
	n.neigh = newNeighbours()
	n.ct = newConntrack()
	n.sets = map[string]*ipset{}
	n.ours = map[string]string{}
	n.bootSysctls()
	for i, f := range []host.Family{host.V4, host.V6} {
		n.ip[i] = &ipState{fam: f, tables: map[uint32]*fib{}, bySrc: map[netip.Addr]int{}, rules: defaultRules(f), nf: newTables()}
	}
	n.lo = &Link{ns: n, name: "lo", kind: kindLoopback, mtu: 65536, up: true}
	n.addLink(n.lo)
	for _, l := range keep {
		*l = Link{ns: n, name: l.name, kind: l.kind, mac: l.mac, macSet: l.macSet, mtu: l.mtu, up: true, transmit: l.transmit, upper: l.upper, KeepMark: l.KeepMark}
		n.addLink(l)
	}
	mustAdd := func(p string) {
		pre := netip.MustParsePrefix(p)
		if err := n.addAddress(&address{Address: host.Address{Prefix: pre, Link: "lo", Proto: protoKernel}, link: n.lo}); err != nil {
			panic(err) // constant input
		}
	}
	mustAdd("127.0.0.1/8")
	mustAdd("::1/128")
}

// Reboot loses everything but the links that AddLink made (they come up without addresses), the
// listeners of processes, and upper handlers. Veth pairs go; their other sides too.
func (n *Netns) Reboot() {
	n.q.Run(func() {
		var keep []*Link
		for _, name := range slices.Sorted(maps.Keys(n.links)) {
			l := n.links[name]
			if l.kind == kindHardware {
				keep = append(keep, l)
			} else if l != n.lo {
				n.deleteLink(l)
			}
		}
		for _, a := range n.sortedAddresses() {
			n.event(datapath.AddressEvent{Addr: a.Prefix.Addr(), Link: a.Link})
		}
		n.socks.reboot()
		n.CloseHealth()
		n.boot(keep)
	})
}

// Close deletes the namespace: all its links go, and the other sides of its veth pairs.
func (n *Netns) Close() {
	n.q.Run(func() {
		for _, name := range slices.Sorted(maps.Keys(n.links)) {
			if l := n.links[name]; l != nil && l != n.lo {
				n.deleteLink(l)
			}
		}
		n.socks = newSockets()
	})
}

// Name returns the name of the namespace.
func (n *Netns) Name() string { return n.cfg.Name }

// SetTracer sends what happens to packets to t, under the name node; nil ends it.
func (n *Netns) SetTracer(t packet.Tracer, node string) {
	n.tracer = t
	if node != "" {
		n.node = node
	}
}

// step records what happened to a packet. Callers that build text check tracer first.
func (n *Netns) step(where, text string) {
	if n.tracer != nil {
		n.tracer.Step(packet.TraceStep{Node: n.node, Where: where, Text: text})
	}
}

// drop records the end of a packet.
func (n *Netns) drop(where, text string) {
	if n.tracer != nil {
		n.tracer.Step(packet.TraceStep{Node: n.node, Where: where, Text: text, Drop: true})
	}
}

func (n *Netns) event(e any) {
	if n.cfg.Events != nil {
		n.cfg.Events(e)
	}
}

func (n *Netns) now() time.Time { return n.cfg.Now() }

// famIndex returns the index of an address's family in Netns.ip.
func famIndex(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func (n *Netns) state(f host.Family) *ipState {
	if f == host.V4 {
		return n.ip[0]
	}
	return n.ip[1]
}

// NextDeadline returns when the namespace has something to do by itself: a neighbour that does not
// answer. Conntrack entries expire without being told.
func (n *Netns) NextDeadline() (time.Time, bool) { return n.neigh.nextDeadline() }

// Tick does what is due at the present time.
func (n *Netns) Tick() { n.q.Run(func() { n.tickNeighbours() }) }

// said is an error in the words of the tool or system call that it stands for.
type said string

// Error returns the words.
func (s said) Error() string { return string(s) }
