// Package ovsdummy puts the code of Open vSwitch behind the nodes of a simulated world: each node has an
// ovs-vswitchd of its own with the dummy datapath. No root is needed, and time is the world's.
//
//	sim.Node ──Receive──▶ Switch ──netdev-dummy/receive──▶ ovs-vswitchd ──unix sockets──▶ Switch ──Output──▶ sim.Node
//	             Apply ──▶        ──OpenFlow, OVSDB──────▶    │  br-int: ports of type dummy, tunnels
//	             now ────▶        ──time/warp────────────▶    │  br-phy: the underlay of the tunnels
//
// Each call waits until the switch has nothing left to do, so that the world stays deterministic as far as
// the switch is. The numbers of ports, and whether a port has one yet, are decided by the model of the
// switch (towtank/sim/ovs), which knows the devices of the simulated host: OVS gets every port with the
// number that the model gave.
package ovsdummy

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"towtank/agent/pipeline"
	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/datapath/ovs"
	"towtank/e2e/vswitchd"
	"towtank/sim"
	simovs "towtank/sim/ovs"
	"towtank/sim/packet"
)

const (
	bridge   = "br-int"
	underlay = "br-phy"
	physical = "phy0" // the port of the underlay that leads out
)

// waitAtMost is how long OVS may take for anything, in real time.
const waitAtMost = 20 * time.Second

// Switch implements sim.Switch. It is for one goroutine.
type Switch struct {
	cfg    simovs.Config
	model  *simovs.Switch // of the ports only
	server *vswitchd.Server
	of     *ovs.Switch
	loop   chan func()
	in     chan *openflow.PacketIn
	ports  map[string]*port // in OVS, by name
	nextID int              // of sockets

	warped  time.Time // how far OVS's clock is
	down    bool
	sent    map[uint64]*packet.Packet
	nextPkt uint64

	refreshed time.Time     // when the neighbours were told last
	local     [2]netip.Addr // addresses of the underlay, IPv4 and IPv6

	tracer packet.Tracer
	node   string
}

var _ sim.Switch = (*Switch)(nil)

// New starts a switch.
func New(node string, c simovs.Config) (*Switch, error) {
	s := &Switch{
		cfg: c, model: simovs.New(c), loop: make(chan func(), 1<<16), in: make(chan *openflow.PacketIn, 1<<12),
		ports: map[string]*port{}, sent: map[uint64]*packet.Packet{}, node: node, warped: c.Now(),
	}
	var err error
	if s.server, err = vswitchd.Start(); err != nil {
		return nil, err
	}
	if err = s.begin(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// begin makes the bridges and connects.
func (s *Switch) begin() error {
	if err := s.server.AddBridge(bridge); err != nil {
		return err
	}
	if err := s.server.AddPlainBridge(underlay, map[string]string{"hwaddr": underlayMAC.String()}); err != nil {
		return err
	}
	return s.connect()
}

// connect connects to a vswitchd that was just started.
func (s *Switch) connect() (err error) {
	s.of, err = ovs.Connect(ovs.Config{
		Bridge: bridge, Database: s.server.Database(), OpenFlow: s.server.OpenFlow(bridge), Control: s.server.Control(),
		Post: func(f func()) { s.loop <- f }, PacketIn: func(p *openflow.PacketIn) { s.in <- p },
		LearnedTables: []uint8{pipeline.TableAffinity},
	})
	if err != nil {
		return err
	}
	if _, err := s.server.Call("time/stop"); err != nil {
		return err
	}
	if err := s.addPhysical(); err != nil {
		return err
	}
	return s.setUnderlay()
}

// Close ends the processes.
func (s *Switch) Close() {
	if s.of != nil {
		s.of.Close()
	}
	for _, p := range s.ports {
		p.close()
	}
	s.server.Close()
}

// fault reports what should not happen; the run fails with it.
func (s *Switch) fault(what string, err error) {
	if err != nil && s.cfg.Disconnected != nil {
		s.cfg.Disconnected(what + ": " + err.Error())
	}
}

// wait runs start and then what was posted, until done was called.
func (s *Switch) wait(what string, start func(done func())) {
	finished := false
	start(func() { finished = true })
	timer := time.NewTimer(waitAtMost)
	defer timer.Stop()
	for !finished {
		select {
		case f := <-s.loop:
			f()
		case <-timer.C:
			s.fault(what, fmt.Errorf("no answer within %s", waitAtMost))
			return
		}
	}
}

func (s *Switch) call(command string, args ...string) string {
	out, err := s.server.Call(command, args...)
	s.fault(command, err)
	return out
}

// idle returns when vswitchd's main loop has gone round: what was in its queues is then on its sockets.
func (s *Switch) idle() {
	for range 3 {
		s.fault("round", s.server.Round())
	}
}

// Tick has OVS's clock follow the world's.
func (s *Switch) Tick() {
	s.model.Tick()
	if s.down {
		return
	}
	ms := s.cfg.Now().Sub(s.warped).Milliseconds()
	if ms <= 0 {
		return
	}
	s.warped = s.warped.Add(time.Duration(ms) * time.Millisecond)
	s.call("time/warp", fmt.Sprint(ms))
	if ms >= 500 { // something may have ended: vswitchd looks once a second
		s.idle()
	}
	if s.cfg.Now().Sub(s.refreshed) > neighbourLife/2 {
		s.fault("tunnel neighbours", s.setUnderlay())
	}
}

// apply runs a stage.
func (s *Switch) apply(stage datapath.Stage, ops []datapath.Op) []datapath.OpResult {
	s.Tick()
	res := datapath.AllResults(len(ops), datapath.Unknown, fmt.Errorf("the switch is not running"))
	if s.down {
		return res
	}
	s.wait(stage.String(), func(done func()) {
		s.of.Apply(stage, ops, func(r []datapath.OpResult) {
			res = r
			done()
		})
	})
	return res
}

// ApplyMeters implements sim.Switch.
func (s *Switch) ApplyMeters(ops []datapath.Op) []datapath.OpResult {
	return s.apply(datapath.StageMeterAdd, ops)
}

// ApplyBundle implements sim.Switch.
func (s *Switch) ApplyBundle(ops []datapath.Op) []datapath.OpResult {
	return s.apply(datapath.StageBundle, ops)
}

// ApplyPorts implements sim.Switch.
func (s *Switch) ApplyPorts(ops []datapath.Op) []datapath.OpResult {
	res := s.model.ApplyPorts(ops)
	s.syncPorts()
	return res
}

// tables reads the switch.
func (s *Switch) tables() (t ovs.Tables) {
	s.Tick()
	if s.down {
		return t
	}
	s.wait("dump", func(done func()) {
		s.of.DumpTables(func(x ovs.Tables, err error) {
			s.fault("dump", err)
			t = x
			done()
		})
	})
	return t
}

// objects returns what is on the switch, less learned flows, and the model's ports, sorted by key.
func (s *Switch) objects(ports []datapath.Object, keep func(*openflow.Flow) bool) []datapath.Object {
	t := s.tables()
	list := slices.DeleteFunc(ports, func(o datapath.Object) bool { return o.Kind() != datapath.KindPort })
	for _, f := range t.Flows {
		if f.Table() != pipeline.TableAffinity && keep(f) {
			list = append(list, f)
		}
	}
	for _, g := range t.Groups {
		list = append(list, g)
	}
	for _, m := range t.Meters {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b datapath.Object) int { return a.Key().Compare(b.Key()) })
	return list
}

// Dump implements sim.Switch.
func (s *Switch) Dump() []datapath.Object {
	return s.objects(s.model.Dump(), func(f *openflow.Flow) bool { return openflow.OurCookie(f.Cookie()) })
}

// DumpAll implements sim.Switch.
func (s *Switch) DumpAll() []datapath.Object {
	return s.objects(s.model.DumpAll(), func(*openflow.Flow) bool { return true })
}

// Foreign implements sim.Switch.
func (s *Switch) Foreign() []string {
	out := s.model.Foreign()
	for _, f := range s.tables().Flows {
		if !openflow.OurCookie(f.Cookie()) && f.Table() != pipeline.TableAffinity {
			out = append(out, "flow "+f.String())
		}
	}
	slices.Sort(out)
	return out
}

// Flows implements sim.Switch.
func (s *Switch) Flows() []*openflow.Flow {
	list := s.tables().Flows
	simovs.SortFlows(list)
	return list
}

// DumpText implements sim.Switch.
func (s *Switch) DumpText() string {
	t := s.tables()
	simovs.SortFlows(t.Flows)
	slices.SortFunc(t.Groups, func(a, b *openflow.Group) int { return int(int64(a.ID()) - int64(b.ID())) })
	slices.SortFunc(t.Meters, func(a, b *openflow.Meter) int { return int(int64(a.ID) - int64(b.ID)) })
	var b strings.Builder
	for _, f := range t.Flows {
		b.WriteString(f.String() + "\n")
	}
	for _, g := range t.Groups {
		b.WriteString(g.String() + "\n")
	}
	for _, m := range t.Meters {
		b.WriteString(m.String() + "\n")
	}
	return b.String()
}

// FlushConntrack implements sim.Switch.
func (s *Switch) FlushConntrack(tuples []datapath.Tuple) int {
	s.Tick()
	if s.down {
		return 0
	}
	s.wait("conntrack flush", func(done func()) {
		s.of.FlushConntrack(tuples, func(err error) {
			s.fault("conntrack flush", err)
			done()
		})
	})
	return len(tuples)
}

// DumpConntrack implements sim.Switch.
func (s *Switch) DumpConntrack(zones []uint16) (all []datapath.ConntrackEntry) {
	s.Tick()
	if s.down {
		return nil
	}
	s.wait("conntrack dump", func(done func()) {
		s.of.DumpConntrack(zones, func(e []datapath.ConntrackEntry, err error) {
			s.fault("conntrack dump", err)
			all = e
			done()
		})
	})
	slices.SortFunc(all, func(a, b datapath.ConntrackEntry) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return all
}

// Connections returns how many connections Open vSwitch has in all zones, those included whose time is over and that
// wait to be swept.
func (s *Switch) Connections() int {
	s.Tick()
	out := strings.TrimSpace(s.call("dpctl/ct-get-nconns"))
	n, err := strconv.Atoi(out)
	s.fault("dpctl/ct-get-nconns", err)
	return n
}

// ConntrackText implements sim.Switch.
func (s *Switch) ConntrackText() string {
	s.Tick()
	if s.down {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(s.call("dpctl/dump-conntrack")), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// Ports implements sim.Switch.
func (s *Switch) Ports() []*simovs.PortState { return s.model.Ports() }

// PortByName implements sim.Switch.
func (s *Switch) PortByName(name string) *simovs.PortState { return s.model.PortByName(name) }

// PortByNumber implements sim.Switch.
func (s *Switch) PortByNumber(n uint32) *simovs.PortState { return s.model.PortByNumber(n) }

// DeviceChanged implements sim.Switch.
func (s *Switch) DeviceChanged(name string) {
	s.model.DeviceChanged(name)
	s.syncPorts()
}

// ReleaseLate implements sim.Switch.
func (s *Switch) ReleaseLate() {
	s.model.ReleaseLate()
	s.syncPorts()
}

// Stop implements sim.Switch: vswitchd is killed.
func (s *Switch) Stop() {
	s.model.Stop()
	if s.down {
		return
	}
	s.down = true
	s.of.Close()
	s.fault("kill", s.server.Kill())
	for _, p := range s.ports {
		p.close()
	}
}

// Start implements sim.Switch.
func (s *Switch) Start() {
	if s.down {
		err := s.server.StartAgain()
		if err == nil {
			err = s.connect()
		}
		if err != nil {
			s.fault("start", err)
			return
		}
		s.warped, s.down = s.cfg.Now(), false
		for _, p := range s.ports {
			s.fault("port "+p.name, p.open())
		}
		s.idle()
	}
	s.model.Start()
	s.syncPorts()
}

// Restart implements sim.Switch.
func (s *Switch) Restart() {
	s.Stop()
	s.Start()
}

// SetTracer implements sim.Switch. What OVS does inside is not told, only what goes in and comes out.
func (s *Switch) SetTracer(t packet.Tracer, node string) { s.tracer, s.node = t, node }

// Counters implements sim.Switch. OVS does not count what the model counts.
func (s *Switch) Counters() simovs.Counters { return simovs.Counters{} }

// Receive implements sim.Switch.
func (s *Switch) Receive(inPort uint32, p *packet.Packet) {
	st := s.model.PortByNumber(inPort)
	if st == nil || s.down {
		return
	}
	s.step("in_port "+openflow.PortName(inPort)+" "+st.Name, p.String(), false)
	frame, err := s.frame(p)
	if err != nil {
		s.fault("frame", err)
		return
	}
	s.inject(st.Name, frame)
}

// ReceiveTunnel implements sim.Switch.
func (s *Switch) ReceiveTunnel(portNumber uint32, p *packet.Packet, tunSrc, tunDst netip.Addr, id uint64) {
	st := s.model.PortByNumber(portNumber)
	if st == nil || s.down {
		return
	}
	s.step("in_port "+openflow.PortName(portNumber)+" "+st.Name, p.String(), false)
	frame, err := s.frame(p)
	if err == nil {
		s.answerTo(tunDst)
		frame, err = encapsulate(st.Type, frame, tunSrc, tunDst, id)
	}
	if err != nil {
		s.fault("tunnel frame", err)
		return
	}
	s.inject(physical, frame)
}

// inject has a frame arrive at a port, and hands out all that follows from it.
func (s *Switch) inject(name string, frame []byte) {
	s.Tick()
	s.call("revalidator/purge") // no cached decision: what was programmed holds at once
	s.call("netdev-dummy/receive", name, hex.EncodeToString(frame))
	s.handOut()
}

func (s *Switch) step(where, text string, drop bool) {
	if s.tracer != nil {
		s.tracer.Step(packet.TraceStep{Node: s.node, Where: where, Text: text, Drop: drop})
	}
}

// Reset takes everything but ports off the switch, connections too.
func (s *Switch) Reset() {
	t := s.tables()
	var ops, meters []datapath.Op
	for _, f := range t.Flows {
		ops = append(ops, datapath.Op{Old: f})
	}
	for _, g := range t.Groups {
		ops = append(ops, datapath.Op{Old: g})
	}
	for _, m := range t.Meters {
		meters = append(meters, datapath.Op{Old: m})
	}
	if len(ops) > 0 {
		s.apply(datapath.StageBundle, ops)
	}
	if len(meters) > 0 {
		s.apply(datapath.StageMeterDelete, meters)
	}
	s.call("dpctl/flush-conntrack")
}
