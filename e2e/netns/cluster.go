//go:build linux

// Package netns runs scenarios on real nodes: one network namespace and one Open vSwitch (userspace datapath)
// for each, with the production agent as a process of its own, on an API server of the simulator's Kubernetes.
//
//	towtank run ──▶ cluster ──Do──▶ e2e/apiserver ◀──HTTPS── towtank-agent n1, n2, …   towtank-controller
//	                  │  kubelet ──exec──▶ towtank-cni ──unix──▶    │
//	                  │                                             ▼ OpenFlow, OVSDB, rtnetlink, iptables
//	                  │    ┌ namespace n1 ─────────────────────────────────────────┐   ┌ namespace of a Pod ┐
//	                  │    │ eth0 (bridge; node's address) ── phy0    br-int ── … ─┼───┼ eth0               │
//	                  │    └───────────────────────────────────┼───────────────────┘   │ towtank-peer       │
//	                  │    ┌ namespace of the fabric ──────────┼──────┐                └────────────────────┘
//	                  │    │ bridge; nft: partitions, loss ── ports   │
//	                  │    └───────────────────────────────────┼──────┘
//	                  └──stdin/stdout──▶ towtank-peer in external hosts, nodes, Pods
package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"towtank/e2e/apiserver"
	"towtank/e2e/cleanup"
	"towtank/scenarios"
	"towtank/scenarios/check"
	"towtank/scenarios/lang"
	"towtank/sim"
	"towtank/sim/kube"
)

// cluster is what a scenario runs in.
type cluster struct {
	opts     lang.Options
	programs *programs
	prefix   string // of the names of namespaces
	dir      string
	began    time.Time
	api      *apiserver.Server
	fabric   *fabric
	wire     *wire
	leavers  *leavers
	kubelet  *kubelet
	// machines, externals and endpoints are written by the goroutine that runs the scenario, before anything that
	// reads them from another one is started.
	machines   []*machine
	externals  []*external
	endpoints  *external // the machine behind Services without selector
	given      int       // addresses of it
	controller controller

	mu       sync.Mutex
	groups   [][]string // of the partition
	problems []string
	found    []check.Result       // of invariants, between two checks
	settled  uint64               // version of the API at which everybody was done last, 0 if somebody was disturbed
	cut      bool                 // there was a partition, or loss
	ports    map[string]uint16    // next source port by source
	dials    map[dialTo]time.Time // the last connection
	tokens   uint64
	// changing is how many CNI calls are under way that change ports, portsChanged when the last one ended.
	changing     int
	portsChanged time.Time
	replies      []func() // of CNI calls, for the scenario's goroutine
	streams      []*stream
	traces       *[]dialled // what is dialled while a trace is on
	timers       map[string]*time.Timer

	forget func() // the signals
	once   sync.Once
}

// runs counts the clusters of this process.
var runs atomic.Uint64

func newCluster(o lang.Options, p *programs) (*cluster, error) {
	c := &cluster{
		opts: o, programs: p, prefix: fmt.Sprintf("%s%d-", cleanup.Prefix(os.Getpid()), runs.Add(1)), began: time.Now(),
		ports: map[string]uint16{}, timers: map[string]*time.Timer{}, dials: map[dialTo]time.Time{},
	}
	var err error
	if c.forget, err = cleanup.OnSignal(c.takeDown); err != nil {
		return nil, fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	if err := c.start(); err != nil {
		c.close()
		return nil, fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	return c, nil
}

func (c *cluster) start() (err error) {
	if c.dir, err = os.MkdirTemp("", cleanup.Prefix(os.Getpid())); err != nil {
		return err
	}
	c.api, err = apiserver.New(apiserver.Config{
		IPv4: c.opts.IPv4(), IPv6: c.opts.IPv6(), ServiceCIDRs: c.opts.ServiceCIDRs, Kill: c.killed,
	})
	if err != nil {
		return err
	}
	if c.fabric, err = newFabric(c.prefix + "fabric"); err != nil {
		return err
	}
	c.wire, c.leavers = newWire(c), newLeavers(c)
	c.kubelet = newKubelet(c)
	return c.controller.start(c)
}

// close takes everything down.
func (c *cluster) close() {
	c.takeDown()
	c.forget()
}

func (c *cluster) takeDown() {
	c.once.Do(func() {
		for _, t := range c.timers {
			t.Stop()
		}
		for _, s := range c.streams {
			s.Stop()
		}
		c.controller.close()
		if c.kubelet != nil {
			c.kubelet.close()
		}
		for _, m := range c.machines {
			m.close()
		}
		for _, x := range c.externals {
			x.space.close()
		}
		if c.endpoints != nil {
			c.endpoints.space.close()
		}
		if c.wire != nil {
			close(c.wire.stop)
		}
		if c.fabric != nil {
			c.fabric.close()
		}
		if c.api != nil {
			_ = c.api.Close()
		}
		if c.dir != "" {
			_ = os.RemoveAll(c.dir)
		}
	})
}

// do runs f alone with the objects of the API.
func (c *cluster) do(f func(k *kube.Cluster) error) error {
	var err error
	c.api.Do(func(k *kube.Cluster) { err = f(k) })
	return err
}

// problem notes something that went wrong in the tank: it fails the run.
func (c *cluster) problem(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, err.Error())
}

// find notes what does not hold, for the next check of the invariants.
func (c *cluster) find(list []check.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = append(c.found, list...)
}

// noticed returns what was found since the last check.
func (c *cluster) noticed() []check.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.found
	c.found = nil
	return list
}

// Problems implements scenarios.Tank.
func (c *cluster) Problems() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.problems
	c.problems = nil
	return p
}

// Now implements scenarios.Tank.
func (c *cluster) Now() time.Duration { return time.Since(c.began) }

// addressOf returns the address that scenarios give the k-th node (offset 10) or external host (offset 100),
// counted from 1.
func addressOf(offset, k int, v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:18::%d", offset+k))
	}
	return netip.AddrFrom4([4]byte{172, 18, byte((offset + k) >> 8), byte(offset + k)})
}

// Offsets of the addresses of nodes and external hosts.
const (
	offsetNodes     = 10
	offsetExternals = 100
)

// families returns the address families of the cluster: false is IPv4.
func (c *cluster) families() []bool {
	var out []bool
	if c.opts.IPv4() {
		out = append(out, false)
	}
	if c.opts.IPv6() {
		out = append(out, true)
	}
	return out
}

// AddNode implements scenarios.Tank.
func (c *cluster) AddNode(name string) error {
	if c.machine(name) != nil {
		return fmt.Errorf("node %s exists", name)
	}
	k := len(c.machines) + 1
	m := &machine{c: c, name: name, dir: filepath.Join(c.dir, fmt.Sprint(k))}
	for _, v6 := range c.families() {
		cidr, err := sim.PodCIDR(k, c.opts.PodCIDRSize, v6)
		if err != nil {
			return err
		}
		m.podCIDRs = append(m.podCIDRs, cidr)
		if v6 {
			m.v6 = addressOf(offsetNodes, k, true)
		} else {
			m.v4 = addressOf(offsetNodes, k, false)
		}
	}
	c.machines = append(c.machines, m)
	err := errors.Join(os.MkdirAll(m.stateDir(), 0o755), os.MkdirAll(m.addressDir(), 0o755))
	if err == nil {
		err = m.boot()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	err = c.do(func(k *kube.Cluster) error {
		return k.CreateNode(m.registration())
	})
	if err != nil {
		return err
	}
	return m.startAgent()
}

// AddExternal implements scenarios.Tank.
func (c *cluster) AddExternal(e sim.ExternalConfig) error {
	if c.external(e.Name) != nil || c.machine(e.Name) != nil {
		return fmt.Errorf("%s exists", e.Name)
	}
	addrs := e.Addrs
	if len(addrs) == 0 {
		for _, v6 := range c.families() {
			addrs = append(addrs, addressOf(offsetExternals, len(c.externals)+1, v6))
		}
	}
	var next *machine
	if e.Next != "" {
		if next = c.machine(e.Next); next == nil {
			return fmt.Errorf("external %s: node %s does not exist", e.Name, e.Next)
		}
	}
	serve := e.Serve
	if len(serve) == 0 {
		serve = defaultServed
	}
	x, err := c.newExternal(e.Name, addrs, serve)
	if err != nil {
		return fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	x.next = next
	c.externals = append(c.externals, x)
	return nil
}

// AddNetwork implements scenarios.Tank: files with networks are skipped, see unable.
func (c *cluster) AddNetwork(name string, _ netip.Prefix, _ int) error {
	return fmt.Errorf("network %s: the kernel has no VLAN devices", name)
}

// Nodes implements scenarios.Tank.
func (c *cluster) Nodes() []scenarios.Node {
	var out []scenarios.Node
	for _, m := range c.machines {
		out = append(out, m)
	}
	return out
}

// Node implements scenarios.Tank.
func (c *cluster) Node(name string) scenarios.Node {
	if m := c.machine(name); m != nil {
		return m
	}
	if name == lang.Controller {
		return &c.controller
	}
	return nil
}

// External implements scenarios.Tank.
func (c *cluster) External(name string) scenarios.Machine {
	if x := c.external(name); x != nil {
		return x
	}
	return nil
}

// Externals implements scenarios.Tank.
func (c *cluster) Externals() []scenarios.Machine {
	var out []scenarios.Machine
	for _, x := range c.externals {
		out = append(out, x)
	}
	return out
}

func (c *cluster) machine(name string) *machine {
	if i := slices.IndexFunc(c.machines, func(m *machine) bool { return m.name == name }); i >= 0 {
		return c.machines[i]
	}
	return nil
}

func (c *cluster) external(name string) *external {
	if i := slices.IndexFunc(c.externals, func(x *external) bool { return x.name == name }); i >= 0 {
		return c.externals[i]
	}
	return nil
}

// serveAPI has the API server listen on the loopback of a namespace; nil is that of this process.
func (c *cluster) serveAPI(s *space) (net.Listener, error) {
	var l net.Listener
	listen := func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}
	var err error
	if s == nil {
		err = listen()
	} else {
		err = s.do(listen)
	}
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	go func() {
		if err := c.api.Serve(l); err != nil && !errors.Is(err, net.ErrClosed) {
			c.problem(err)
		}
	}()
	return l, nil
}

// killed ends a process that a fault of the API server is to end.
func (c *cluster) killed(client string) {
	if client == sim.ControllerName {
		go c.controller.kill()
		return
	}
	if m := c.machine(client); m != nil {
		go m.killAgent()
	}
}

// Invariants implements scenarios.Tank.
func (c *cluster) Invariants() scenarios.Invariants { return invariants{c} }

// Objects implements scenarios.Tank.
func (c *cluster) Objects() scenarios.Objects { return objects{c} }

// UnusedFaults implements scenarios.Tank.
func (c *cluster) UnusedFaults() []string { return c.api.UnusedFaults() }
