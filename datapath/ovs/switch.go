// Package ovs is datapath.Switch on a real Open vSwitch: one persistent OpenFlow connection and one to the
// database for each bridge, and the control socket for what neither offers. It runs no ovs-* program.
//
//	caller's loop ──Apply──▶ Switch ──bundle──▶ channel (OpenFlow 1.5) ──▶ ovs-vswitchd
//	      ▲                    ├─────ports───▶ ovsdb.Client (RFC 7047) ──▶ ovsdb-server
//	      └─────── Post ◀──────┴─────dump────▶ unixctl.Client
//
// All goroutines are in here. Results and events reach the caller by Config.Post only.
package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/datapath/ovsdb"
	"towtank/datapath/ovsdb/database"
	"towtank/datapath/unixctl"
)

// Config says where a bridge is and who hears of it.
type Config struct {
	Bridge   string
	Database string // path of ovsdb-server's socket
	OpenFlow string // path of the bridge's management socket, RUNDIR/BRIDGE.mgmt
	// Control is the path of ovs-vswitchd's control socket; or of its pid file (….pid), beside which the
	// socket is under a name that changes with every start.
	Control string

	// Post runs a function in the caller's loop. Required.
	Post func(func())
	// Port, Disconnect and PacketIn hear of events, by Post; nil: nobody does. PacketIn is called from the
	// reading goroutine, without Post: the refusal of packets does not enter the loop.
	Port       func(datapath.PortEvent)
	Disconnect func(datapath.DisconnectEvent)
	PacketIn   func(*openflow.PacketIn)

	// Strange hears, once, of an entry of conntrack that DumpConntrack cannot read and leaves out; nil: nobody does.
	// It is called without Post.
	Strange func(error)

	// LearnedTables are tables in which all flows were learned: they are left out of Dump.
	LearnedTables []uint8
	// Neighbour returns the Ethernet address of a node's tunnel end, if the host knows it. nil: never.
	Neighbour func(netip.Addr) (openflow.MAC, bool)
	// NeighbourBridge is the bridge that tunnels leave by.
	NeighbourBridge string
	// RetryEvery is how long a lost connection waits before each attempt; 0: a second.
	RetryEvery time.Duration
	// EchoEvery is how long the database server may be silent until it is asked whether it is there; it is given
	// up after three times as long. 0: 5 s, which is also what OpenFlow connections have.
	EchoEvery time.Duration
}

// Switch implements datapath.Switch.
type Switch struct {
	cfg   Config
	life  context.Context // ends with Close
	close context.CancelFunc

	telling sync.Mutex                    // held while a port is told of
	told    map[string]datapath.PortEvent // what the caller knows of the ports that have a number
	attempt int                           // the connection whose events count: what an older one says last is not told

	strange sync.Once // of Config.Strange

	mu     sync.Mutex
	of     *channel
	db     *database.Client
	ctl    *unixctl.Client
	kind   string // datapath_type
	closed bool
}

var errNotConnected = errors.New("not connected to Open vSwitch")

// Connect connects to the bridge. A connection that is lost later is made again until Close.
func Connect(cfg Config) (*Switch, error) { return ConnectContext(context.Background(), cfg) }

// ConnectContext is Connect, with a context that ends the attempt; it is not used after that.
func ConnectContext(ctx context.Context, cfg Config) (*Switch, error) {
	s := &Switch{cfg: cfg, told: map[string]datapath.PortEvent{}}
	s.life, s.close = context.WithCancel(context.Background())
	if cfg.RetryEvery == 0 {
		s.cfg.RetryEvery = time.Second
	}
	if err := s.connect(ctx); err != nil {
		s.close()
		return nil, err
	}
	go s.keep()
	return s, nil
}

// connect makes all three connections. The database comes last: it tells of ports, and while vswitchd is down every
// attempt fails. Ports that were told of before and are not there any more are told as gone.
func (s *Switch) connect(ctx context.Context) (err error) {
	ctl, err := dialControl(s.cfg.Control)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			ctl.Close()
		}
	}()
	of, err := dialOpenFlow(ctx, "unix", s.cfg.OpenFlow, func(m openflow.Message) {
		if in, ok := m.(*openflow.PacketIn); ok && s.cfg.PacketIn != nil {
			s.cfg.PacketIn(in)
		}
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			of.close(err)
		}
	}()
	s.telling.Lock()
	s.attempt++
	attempt, before := s.attempt, slices.Collect(maps.Keys(s.told))
	s.telling.Unlock()
	db, err := database.Open(ctx, database.Config{
		Network: "unix", Address: s.cfg.Database, Bridge: s.cfg.Bridge, Before: before, EchoEvery: s.cfg.EchoEvery,
		Changed: func(e datapath.PortEvent) { s.portChanged(attempt, e) },
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		db.Close()
		return errNotConnected
	}
	s.db, s.of, s.ctl = db, of, ctl
	if s.kind = db.DatapathType(); s.kind == "" {
		s.kind = "system"
	}
	return nil
}

// portChanged tells the caller of a port, unless that is what it was told last: a new connection to the database
// brings all ports, and a caller that hears of one does work.
func (s *Switch) portChanged(attempt int, e datapath.PortEvent) {
	s.telling.Lock()
	defer s.telling.Unlock()
	before, known := s.told[e.Name]
	if attempt != s.attempt || e == before || (e.OFPort == 0 && !known) {
		return
	}
	if e.OFPort == 0 {
		delete(s.told, e.Name)
	} else {
		s.told[e.Name] = e
	}
	if s.cfg.Port != nil {
		s.cfg.Post(func() { s.cfg.Port(e) })
	}
}

func dialControl(path string) (*unixctl.Client, error) {
	if prefix, ok := strings.CutSuffix(path, ".pid"); ok {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("process id of ovs-vswitchd: %w", err)
		}
		path = prefix + "." + strings.TrimSpace(string(data)) + ".ctl"
	}
	return unixctl.Dial(path)
}

// keep makes lost connections again. Any of the three that is lost takes the others with it: what was under
// way is then not known, on any of them.
func (s *Switch) keep() {
	for {
		of, db, ctl, err := s.conns()
		if err != nil {
			return // closed
		}
		select {
		case <-s.life.Done():
		case <-of.done:
		case <-db.Done():
		case <-ctl.Done():
		}
		if s.life.Err() != nil {
			return
		}
		s.drop()
		s.disconnected(datapath.DisconnectEvent{})
		for {
			select {
			case <-s.life.Done():
				return
			case <-time.After(s.cfg.RetryEvery):
			}
			if s.connect(s.life) == nil {
				break
			}
		}
		if of, _, _, err = s.conns(); err != nil {
			return // closed
		}
		of.dumpTables(func(t Tables, err error) {
			if err == nil {
				s.disconnected(datapath.DisconnectEvent{Connected: true, Restarted: !slices.ContainsFunc(t.Flows, func(f *openflow.Flow) bool { return openflow.OurCookie(f.Cookie()) })})
			}
		})
	}
}

func (s *Switch) disconnected(e datapath.DisconnectEvent) {
	if s.cfg.Disconnect != nil {
		s.cfg.Post(func() { s.cfg.Disconnect(e) })
	}
}

// drop closes the connections.
func (s *Switch) drop() {
	s.mu.Lock()
	of, db, ctl := s.of, s.db, s.ctl
	s.of, s.db, s.ctl = nil, nil, nil
	s.mu.Unlock()
	if of != nil {
		of.close(errors.New("given up"))
		db.Close()
		ctl.Close()
	}
}

// Close ends the connections for good. No event is posted after it but those that are under way.
func (s *Switch) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.drop()
}

func (s *Switch) conns() (*channel, *database.Client, *unixctl.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		return nil, nil, nil, errNotConnected
	}
	return s.of, s.db, s.ctl, nil
}

// Features implements datapath.Switch. The dummy datapath is the userspace one.
func (s *Switch) Features() datapath.Features {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind == "system" {
		return datapath.Features{Datapath: "system"}
	}
	return datapath.Features{Datapath: "netdev"}
}

// Apply implements datapath.Switch.
func (s *Switch) Apply(stage datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	answer := func(r []datapath.OpResult) { s.cfg.Post(func() { done(r) }) }
	of, db, _, err := s.conns()
	if err != nil {
		answer(datapath.AllResults(len(ops), datapath.Unknown, err))
		return
	}
	switch stage {
	case datapath.StagePortAdd, datapath.StagePortDelete:
		db.Apply(ops, answer)
	case datapath.StageMeterAdd, datapath.StageMeterDelete:
		of.applyMeters(ops, answer)
	case datapath.StageBundle:
		of.applyBundle(ops, answer)
	default:
		answer(datapath.AllResults(len(ops), datapath.Refused, fmt.Errorf("stage %s is not one of the switch", stage)))
	}
}

// Dump implements datapath.Switch.
func (s *Switch) Dump(done func([]datapath.Object, error)) {
	s.DumpAll(func(t Tables, ports []*ovsdb.Port, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(s.ours(t, ports), nil)
	})
}

// ours returns the objects that are the caller's, sorted by key.
func (s *Switch) ours(t Tables, ports []*ovsdb.Port) []datapath.Object {
	var list []datapath.Object
	for _, f := range t.Flows {
		if openflow.OurCookie(f.Cookie()) && !slices.Contains(s.cfg.LearnedTables, f.Table()) {
			list = append(list, f)
		}
	}
	for _, g := range t.Groups {
		list = append(list, g)
	}
	for _, m := range t.Meters {
		list = append(list, m)
	}
	for _, p := range ports {
		if p.Ours() {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b datapath.Object) int { return a.Key().Compare(b.Key()) })
	return list
}

// DumpAll returns everything on the bridge: learned flows and what is somebody else's as well.
func (s *Switch) DumpAll(done func(Tables, []*ovsdb.Port, error)) {
	of, db, _, err := s.conns()
	if err != nil {
		s.cfg.Post(func() { done(Tables{}, nil, err) })
		return
	}
	of.dumpTables(func(t Tables, err error) {
		ports := db.Ports()
		s.cfg.Post(func() { done(t, ports, err) })
	})
}

// DumpTables returns all flows, groups and meters of the bridge.
func (s *Switch) DumpTables(done func(Tables, error)) {
	s.DumpAll(func(t Tables, _ []*ovsdb.Port, err error) { done(t, err) })
}

// SyncPorts has done called when ovs-vswitchd has taken in all that was written to the database before.
func (s *Switch) SyncPorts(done func(error)) {
	answer := func(err error) { s.cfg.Post(func() { done(err) }) }
	_, db, _, err := s.conns()
	if err != nil {
		answer(err)
		return
	}
	db.Sync(answer)
}

// FlushConntrack implements datapath.Switch: on the OpenFlow connection, so that it comes after the bundles
// before it.
func (s *Switch) FlushConntrack(tuples []datapath.Tuple, done func(error)) {
	answer := func(err error) { s.cfg.Post(func() { done(err) }) }
	of, _, _, err := s.conns()
	if err != nil {
		answer(err)
		return
	}
	of.flush(tuples, answer)
}

// DumpConntrack implements datapath.Switch. Entries that it cannot read are left out.
func (s *Switch) DumpConntrack(zones []uint16, done func([]datapath.ConntrackEntry, error)) {
	_, _, ctl, err := s.conns()
	if err != nil {
		s.cfg.Post(func() { done(nil, err) })
		return
	}
	go func() {
		var all []datapath.ConntrackEntry
		for _, z := range zones {
			entries, strange, err := ctl.DumpConntrack(z)
			if err != nil {
				s.cfg.Post(func() { done(nil, err) })
				return
			}
			if strange != nil && s.cfg.Strange != nil {
				s.strange.Do(func() { s.cfg.Strange(strange) })
			}
			all = append(all, entries...)
		}
		s.cfg.Post(func() { done(all, nil) })
	}()
}

// ResolveTunnel implements datapath.Switch: it tells OVS the Ethernet addresses that the host knows. A peer
// that the host does not know yet is an error.
func (s *Switch) ResolveTunnel(peers []netip.Addr, done func(error)) {
	_, _, ctl, err := s.conns()
	if err != nil {
		s.cfg.Post(func() { done(err) })
		return
	}
	go func() {
		var all error
		for _, a := range peers {
			var mac openflow.MAC
			known := false
			if s.cfg.Neighbour != nil {
				mac, known = s.cfg.Neighbour(a)
			}
			if !known {
				all = errors.Join(all, fmt.Errorf("tunnel neighbour %s is not known to the host", a))
				continue
			}
			_, err := ctl.Call("tnl/neigh/set", s.cfg.NeighbourBridge, a.String(), mac.String())
			all = errors.Join(all, err)
		}
		s.cfg.Post(func() { done(all) })
	}()
}

// PacketOut has the switch pass a frame through actions as if it came from inPort. It is an error if much is
// waiting already until the switch reads it.
func (s *Switch) PacketOut(inPort uint32, actions []openflow.Action, frame []byte) error {
	of, _, _, err := s.conns()
	if err != nil {
		return err
	}
	if n := of.out.Queued(); n > packetOutQueue {
		return fmt.Errorf("packet-out: %d bytes wait until the switch reads them", n)
	}
	xid := of.newXIDs(1)
	return of.send(func(b []byte) ([]byte, error) { return openflow.AppendPacketOut(b, xid, inPort, actions, frame) })
}

// Barrier has done called when the switch has done everything that was sent before, and the packet-ins that
// it had for us are here.
func (s *Switch) Barrier(done func(error)) {
	answer := func(err error) { s.cfg.Post(func() { done(err) }) }
	of, _, _, err := s.conns()
	if err != nil {
		answer(err)
		return
	}
	of.barrier(answer)
}

func addrPort(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 0) }
