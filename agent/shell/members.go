package shell

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"k8s.io/klog/v2"

	"towtank/agent/edge"
)

// MembersConfig says how a node takes part in the membership.
type MembersConfig struct {
	Node string
	Bind netip.AddrPort // transport address and gossip port
	Key  []byte         // of the gossip, 16, 24 or 32 bytes; nil: not encrypted
	// Timeout is how long after its last word a member is taken for dead, at least a second; 0: 15 s. In clusters
	// of more than ten nodes it grows with the logarithm of their number.
	Timeout time.Duration
	// Rejoin is how often members that are missing are joined again; 0: a minute.
	Rejoin time.Duration
}

// Members is edge.Members over hashicorp/memberlist.
type Members struct {
	q      *Queue
	cfg    MembersConfig
	list   *memberlist.Memberlist // set under mu, before NewMembers returns
	handle func(any)
	log    klog.Logger

	telling sync.Mutex // one tells at a time, so that the last one to post knows the newest

	mu     sync.Mutex
	peers  map[string]netip.Addr
	joined bool // the peers were tried
	stop   chan struct{}
	once   sync.Once
}

// joinPatience bounds how long the peers are tried before this node goes by what it knows: one that is off
// takes memberlist 10 s, and one whose agent is being replaced, too, refuses at once and is there a moment later.
const (
	joinPatience = 3 * time.Second
	joinRetry    = 100 * time.Millisecond
)

// leaveTimeout bounds how long the word that this node leaves may take.
const leaveTimeout = 2 * time.Second

// NewMembers joins nobody yet: SetPeers says whom.
func NewMembers(q *Queue, cfg MembersConfig, handle func(any), log klog.Logger) (*Members, error) {
	m := &Members{q: q, cfg: cfg, handle: handle, log: log, stop: make(chan struct{})}
	c := memberlist.DefaultLANConfig()
	c.Name = cfg.Node
	c.BindAddr, c.BindPort = cfg.Bind.Addr().String(), int(cfg.Bind.Port())
	c.AdvertiseAddr, c.AdvertisePort = c.BindAddr, c.BindPort
	c.SecretKey = cfg.Key
	cfg.detect(c)
	c.LogOutput = io.Discard
	c.Events = notify{m}
	// A node that comes back under another address takes its name back at once.
	c.DeadNodeReclaimTime = 10 * time.Millisecond
	list, err := memberlist.Create(c)
	if err != nil {
		return nil, fmt.Errorf("membership on %s: %w", cfg.Bind, err)
	}
	m.mu.Lock()
	m.list = list
	m.mu.Unlock()
	m.tell()
	go m.rejoin()
	return m, nil
}

// defaultTimeout is when a member is taken for dead.
const defaultTimeout = 15 * time.Second

// Shares of the timeout: a member that does not answer is suspected within three probes at the latest, and has the
// rest of the time to object.
const (
	probesOfTimeout = 15
	probesToObject  = 12
	answersWithin   = 2 // parts of a probe
	longerSuspicion = 1 // times: the suspicion ends when it should, not later
	gossipsOfProbe  = 5
	minGossipEvery  = 50 * time.Millisecond
)

// detect sets how fast memberlist notices that a member is gone.
func (cfg *MembersConfig) detect(c *memberlist.Config) {
	timeout := cfg.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	c.ProbeInterval = timeout / probesOfTimeout
	c.ProbeTimeout = c.ProbeInterval / answersWithin
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = probesToObject, longerSuspicion
	c.GossipInterval = max(c.ProbeInterval/gossipsOfProbe, minGossipEvery)
}

// notify is memberlist's way to tell of changes.
type notify struct{ m *Members }

// NotifyJoin implements memberlist.EventDelegate.
func (n notify) NotifyJoin(*memberlist.Node) { n.m.tell() }

// NotifyLeave implements memberlist.EventDelegate.
func (n notify) NotifyLeave(*memberlist.Node) { n.m.tell() }

// NotifyUpdate implements memberlist.EventDelegate.
func (n notify) NotifyUpdate(*memberlist.Node) {}

// tell posts who is alive. It runs on a goroutine of its own: memberlist holds its lock while it notifies.
func (m *Members) tell() {
	go func() {
		m.telling.Lock()
		defer m.telling.Unlock()
		m.mu.Lock()
		list, joined := m.list, m.joined
		m.mu.Unlock()
		if list == nil {
			return // memberlist is being made, and tells of this node itself; NewMembers tells after that
		}
		var alive []string
		for _, n := range list.Members() {
			alive = append(alive, n.Name)
		}
		slices.Sort(alive)
		m.q.Post(func() { m.handle(edge.MembersEvent{Alive: alive, Joined: joined}) })
	}()
}

// SetPeers implements edge.Members.
func (m *Members) SetPeers(peers map[string]netip.Addr) {
	m.mu.Lock()
	m.peers = maps.Clone(peers)
	m.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A peer whose agent starts at the same time refuses until it listens, and does not say when it does.
		for end := time.Now().Add(joinPatience); !m.join() && time.Now().Before(end); time.Sleep(joinRetry) {
		}
	}()
	go func() {
		select {
		case <-done:
		case <-time.After(joinPatience):
		case <-m.stop:
			return
		}
		m.mu.Lock()
		m.joined = true
		m.mu.Unlock()
		m.tell()
	}()
}

func (m *Members) rejoin() {
	every := m.cfg.Rejoin
	if every <= 0 {
		every = time.Minute
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			m.join()
		case <-m.stop:
			return
		}
	}
}

// join tries the peers that are not members; it returns whether all are.
func (m *Members) join() bool {
	have := map[string]bool{m.cfg.Node: true}
	for _, n := range m.list.Members() {
		have[n.Name] = true
	}
	m.mu.Lock()
	var addrs []string
	for _, name := range slices.Sorted(maps.Keys(m.peers)) {
		if !have[name] {
			addrs = append(addrs, netip.AddrPortFrom(m.peers[name], m.cfg.Bind.Port()).String())
		}
	}
	m.mu.Unlock()
	if len(addrs) == 0 {
		return true
	}
	n, err := m.list.Join(addrs)
	if err != nil {
		m.log.V(2).Info("Some members could not be joined", "addresses", addrs, "err", err)
	}
	return n == len(addrs)
}

// Leave implements edge.Members.
func (m *Members) Leave() {
	m.once.Do(func() {
		close(m.stop)
		if err := errors.Join(m.list.Leave(leaveTimeout), m.list.Shutdown()); err != nil {
			m.log.Error(err, "Leaving the membership failed")
		}
	})
}

// Close ends the membership without a word: the process is replaced.
func (m *Members) Close() {
	m.once.Do(func() {
		close(m.stop)
		if err := m.list.Shutdown(); err != nil {
			m.log.Error(err, "Ending the membership failed")
		}
	})
}

// DefaultGossipPort is where members talk, TCP and UDP.
const DefaultGossipPort = 10351

// ParsePort reads a port number.
func ParsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %q: want 1 to 65535", s)
	}
	return uint16(n), nil
}
