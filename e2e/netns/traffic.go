//go:build linux

package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"towtank/e2e/peer"
	"towtank/scenarios"
	"towtank/sim"
	"towtank/sim/packet"
)

// source is where traffic comes from: the newest sandbox of a Pod, a node, or an external host.
type source struct {
	c     *cluster
	name  string // node/N, a Pod, an external host
	m     *machine
	x     *external
	pod   string
	space *space // nil: it does not run
	addrs []netip.Addr
}

// Addr implements scenarios.Source.
func (s *source) Addr(v6 bool) netip.Addr {
	for _, a := range s.addrs {
		if a.Is6() == v6 {
			return a
		}
	}
	return netip.Addr{}
}

// NodeSource implements scenarios.Tank.
func (c *cluster) NodeSource(n scenarios.Node) scenarios.Source {
	m, ok := n.(*machine)
	if !ok {
		return &source{c: c, name: n.Name()}
	}
	return &source{c: c, name: "node/" + m.name, m: m, space: m.netns(), addrs: m.addresses()}
}

// ExternalSource implements scenarios.Tank.
func (c *cluster) ExternalSource(x scenarios.Machine) scenarios.Source {
	e := x.(*external)
	return &source{c: c, name: e.name, x: e, space: e.space, addrs: e.addrs}
}

// PodSource implements scenarios.Tank.
func (c *cluster) PodSource(key string) (scenarios.Source, error) {
	k := c.kubelet
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.pods[key]
	if r != nil && r.hostNet {
		return c.NodeSource(c.machine(r.node)), nil
	}
	s := k.sandboxOf(key)
	if s == nil {
		if r == nil {
			return nil, fmt.Errorf("pod %s is not known", key)
		}
		return &source{c: c, name: key, m: c.machine(r.node), pod: key}, nil
	}
	src := &source{c: c, name: key, m: c.machine(s.node), pod: key}
	// The containers of a Pod start when its ADD has been answered.
	if s.space != nil && s.result != nil {
		src.space, src.addrs = s.space, addresses(s.result)
	}
	return src, nil
}

// now returns the source as it is now: a Pod may have been started anew.
func (s *source) now() *source {
	switch {
	case s.pod != "":
		if n, err := s.c.PodSource(s.pod); err == nil {
			return n.(*source)
		}
	case s.m != nil:
		return s.c.NodeSource(s.m).(*source)
	}
	return s
}

// protocols that a peer speaks.
var protocols = map[uint8]string{packet.ProtoTCP: "tcp", packet.ProtoUDP: "udp", packet.ProtoICMP: "icmp", packet.ProtoICMPv6: "icmp"}

// conn is scenarios.Conn; also that of a probe, which is not kept.
type conn struct {
	c    *cluster
	flow scenarios.Flow
	from *source
	to   peer.Flow

	mu   sync.Mutex
	id   uint64 // at the peer of from; 0: not open
	open bool
	last sim.Result
	rst  bool
}

// token returns one that was not used.
func (c *cluster) token() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens++
	return fmt.Sprintf("%d", c.tokens)
}

// firstPort is the first that clients use, as in the simulator.
const firstPort = 40000

func (c *cluster) sport(name string) uint16 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.ports[name]
	if n < firstPort || n == 65535 {
		n = firstPort - 1
	}
	n++
	c.ports[name] = n
	return n
}

// soon is when a client's next connection to the same port follows its last at once.
const soon = 500 * time.Millisecond

// dialTo is a client and what it dials.
type dialTo struct {
	from string
	to   netip.AddrPort
}

// fresh has the switches forget what they have cached if a client dials the same port again at once: what its
// last connection changed in the flows (its affinity) holds for what is cached only a moment later.
func (c *cluster) fresh(d dialTo) error {
	c.mu.Lock()
	last, again := c.dials[d]
	c.dials[d] = time.Now()
	c.mu.Unlock()
	if !again || time.Since(last) > soon {
		return nil
	}
	return c.onSwitches("revalidator/purge")
}

// dial makes a connection and asks once; keep leaves it open.
func (c *cluster) dial(f scenarios.Flow, keep bool) (*conn, error) {
	from, _ := f.From.(*source)
	k := &conn{c: c, flow: f, from: from}
	if !f.To.IsValid() {
		k.last = sim.Result{Verdict: sim.Drop, Note: "the other end has no address"}
		return k, nil
	}
	if from.space == nil {
		k.last = sim.Result{Verdict: sim.Drop, Note: from.name + " does not run"}
		return k, nil
	}
	if !from.Addr(f.To.Is6()).IsValid() {
		k.last = sim.Result{Verdict: sim.Drop, Note: from.name + " has no address of the family of " + f.To.String()}
		return k, nil
	}
	if from.x != nil {
		next, _ := f.Next.(*machine)
		if err := from.x.prepare(f.To, next); err != nil {
			return nil, fmt.Errorf("%w: %s: next hop for %s: %w", scenarios.ErrTank, from.name, f.To, err)
		}
	}
	sport := f.SPort
	if sport == 0 {
		sport = c.sport(from.name)
	}
	k.to = peer.Flow{
		Proto: protocols[f.Proto], To: f.To, Port: f.Port, SPort: sport, Size: f.Size, DF: f.DF, HTTP: f.HTTP, Token: c.token(),
	}
	if k.to.Proto == "" {
		return nil, fmt.Errorf("protocol %s: the kernel has none", packet.ProtoName(f.Proto))
	}
	c.leaving(false)
	c.wire.ask(from, f, k.to.Token, keep)
	return k, k.ask(func() (r peer.Result, err error) {
		if !keep || k.to.Proto == "icmp" {
			return from.space.peer.Dial(k.to)
		}
		k.id, r, err = from.space.peer.Open(k.to)
		return r, err
	}, keep)
}

// ask has the peer send once, and judges.
func (k *conn) ask(send func() (peer.Result, error), keep bool) error {
	seen := k.c.fabric.follow(k.to.Token)
	r, err := send()
	w := seen()
	switch {
	case errors.Is(err, peer.ErrGone):
		r, err = peer.Result{Verdict: peer.Drop, Note: k.from.name + " has ended"}, nil
	case err != nil:
		return fmt.Errorf("%w: %s to %s: %w", scenarios.ErrTank, k.from.name, k.to.To, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = keep && (k.id != 0 || k.to.Proto == "icmp")
	k.rst = k.rst || r.Reset || r.Verdict == peer.Reject && k.to.Proto == "tcp"
	k.last = k.c.judge(k.flow, k.from, r, w)
	return nil
}

// judge fills in what the peer does not know.
func (c *cluster) judge(f scenarios.Flow, from *source, r peer.Result, w way) sim.Result {
	out := sim.Result{Verdict: sim.Verdict(r.Verdict), Note: r.Note, HTTP: r.HTTP, Via: w.question, ReplyVia: w.answer}
	if out.Via == "" && from.m != nil {
		out.Via = from.m.name
	}
	if r.Verdict != peer.OK {
		return out
	}
	out.Arrived = true
	out.Backend, out.Port, out.Source, out.To = r.Name, r.Port, r.Source, r.To
	if r.Name == "" { // the kernel answered, or a health port
		out.Backend, out.Port, out.To = c.owner(f.To), f.Port, f.To
	}
	if r.Name == endpointHost {
		out.Backend = r.To.String()
	}
	if out.ReplyVia == "" {
		out.ReplyVia = c.home(out.Backend)
	}
	return out
}

// owner names the machine or Pod that has an address.
func (c *cluster) owner(a netip.Addr) string {
	for _, m := range c.machines {
		if m.HasAddress(a) {
			return "node/" + m.name
		}
	}
	for _, x := range c.externals {
		if x.Addr(a.Is6()) == a {
			return x.name
		}
	}
	k := c.kubelet
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range k.order {
		s := k.byID[id]
		if s == nil || s.space == nil || s.result == nil {
			continue
		}
		for _, ip := range addresses(s.result) {
			if ip == a {
				return s.pod
			}
		}
	}
	return ""
}

// home returns the node on which who answered runs, or the external's name.
func (c *cluster) home(backend string) string {
	if name, ok := strings.CutPrefix(backend, "node/"); ok {
		return name
	}
	c.kubelet.mu.Lock()
	defer c.kubelet.mu.Unlock()
	if r := c.kubelet.pods[backend]; r != nil {
		return r.node
	}
	return backend
}

// Probe implements scenarios.Tank.
func (c *cluster) Probe(f scenarios.Flow) (sim.Result, error) {
	if err := c.fresh(dialTo{f.From.(*source).name, netip.AddrPortFrom(f.To, f.Port)}); err != nil {
		return sim.Result{}, fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	k, err := c.dial(f, false)
	if err != nil {
		return sim.Result{}, err
	}
	c.noteDialled(k)
	c.judgeProbe(f, k.last)
	return k.last, nil
}

// Open implements scenarios.Tank.
func (c *cluster) Open(f scenarios.Flow) (scenarios.Conn, error) {
	k, err := c.dial(f, true)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Last implements scenarios.Conn.
func (k *conn) Last() sim.Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// Shape implements scenarios.Conn.
func (k *conn) Shape(size int, df bool) { k.to.Size, k.to.DF = size, df }

// WasReset implements scenarios.Conn.
func (k *conn) WasReset() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rst
}

// Send implements scenarios.Conn.
func (k *conn) Send() sim.Result {
	k.mu.Lock()
	open := k.open
	if !open {
		k.last = sim.Result{Verdict: sim.Drop, Note: "the connection is closed"}
	}
	last := k.last
	k.mu.Unlock()
	if !open {
		return last
	}
	k.to.Token = k.c.token()
	k.c.noteDialled(k)
	err := k.ask(func() (peer.Result, error) {
		if k.to.Proto == "icmp" {
			return k.from.space.peer.Dial(k.to)
		}
		return k.from.space.peer.Send(k.id, k.to)
	}, true)
	k.c.problem(err)
	return k.Last()
}

// Close implements scenarios.Conn.
func (k *conn) Close() {
	k.mu.Lock()
	id := k.id
	k.open, k.id = false, 0
	k.mu.Unlock()
	if id != 0 {
		_ = k.from.space.peer.Close(id) // a peer that is gone has closed it
	}
}

// stream is scenarios.Stream: beats that are due go out whether the ones before were answered or not.
type stream struct {
	c     *cluster
	flow  scenarios.Flow
	quit  chan struct{}
	ended chan struct{}
	once  sync.Once

	mu    sync.Mutex
	beats []sim.Result
	conn  *conn
}

// StartStream implements scenarios.Tank. Pods that are started anew are found by name.
func (c *cluster) StartStream(_ string, f scenarios.Flow, _ func() (scenarios.Source, error), every time.Duration, one bool) scenarios.Stream {
	s := &stream{c: c, flow: f, quit: make(chan struct{}), ended: make(chan struct{})}
	c.mu.Lock()
	c.streams = append(c.streams, s)
	c.mu.Unlock()
	s.beat(one)
	go s.run(every, one)
	return s
}

func (s *stream) run(every time.Duration, one bool) {
	defer close(s.ended)
	t := time.NewTicker(every)
	defer t.Stop()
	var beats sync.WaitGroup
	defer beats.Wait()
	for {
		select {
		case <-s.quit:
			return
		case <-t.C:
			if one {
				s.beat(true) // a connection has one question at a time
				continue
			}
			beats.Go(func() { s.beat(false) })
		}
	}
}

// beat sends once and notes what became of it, in the order of the questions.
func (s *stream) beat(one bool) {
	s.mu.Lock()
	at := len(s.beats)
	s.beats = append(s.beats, sim.Result{Verdict: sim.Drop, Note: "not answered yet"})
	k := s.conn
	s.mu.Unlock()
	began := time.Now()
	r := s.ask(k, one)
	if r.Verdict == sim.Drop && s.c.portsChangedSince(began) {
		// Open vSwitch may have lost it itself (docs/limits.md): what is lost for good is lost again.
		r = s.ask(k, one)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats[at] = r
}

// ask sends one question: on the connection of before, if there is one.
func (s *stream) ask(k *conn, one bool) sim.Result {
	if one && k != nil {
		return k.Send()
	}
	f := s.flow
	f.From = f.From.(*source).now()
	k, err := s.c.dial(f, one)
	if err != nil {
		return sim.Result{Verdict: sim.Drop, Note: err.Error()}
	}
	if one {
		s.mu.Lock()
		s.conn = k
		s.mu.Unlock()
	}
	return k.Last()
}

// changingPorts notes that ports of a switch come or go until the function that it returns is called.
func (c *cluster) changingPorts() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changing++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changing--
		c.portsChanged = time.Now()
	}
}

// portsLater is how long after a CNI call the switch may still be taking its port out.
const portsLater = 300 * time.Millisecond

// portsChangedSince reports whether ports came or went since a time.
func (c *cluster) portsChangedSince(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changing > 0 || c.portsChanged.Add(portsLater).After(t)
}

// Stop implements scenarios.Stream.
func (s *stream) Stop() {
	s.once.Do(func() { close(s.quit) })
	<-s.ended
	s.mu.Lock()
	k := s.conn
	s.mu.Unlock()
	if k != nil {
		k.Close()
	}
}

// Beats implements scenarios.Stream.
func (s *stream) Beats() []sim.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sim.Result(nil), s.beats...)
}
