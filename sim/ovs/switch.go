package ovs

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/sim/packet"
)

// Config connects a switch to its world. All functions are called from inside a call to the switch;
// those that are nil are not called.
type Config struct {
	// Name is the bridge and its local port.
	Name string
	// Now is the (virtual) time. Required.
	Now func() time.Time
	// Datapath is "netdev" (the default: pkt_mark does not cross ports) or "system".
	Datapath string
	// Output takes a frame that leaves by an ordinary port. The packet is the callee's.
	Output func(port uint32, p *packet.Packet)
	// Tunnel takes a frame that leaves by a tunnel port. src is zero if neither a flow nor the port's
	// local_ip set it.
	Tunnel func(port *PortState, p *packet.Packet, dst, src netip.Addr, id uint64)
	// PacketIn takes a packet for the controller.
	PacketIn func(PacketIn)
	// PortChanged tells of a port that appeared, changed or went.
	PortChanged func(datapath.PortEvent)
	// Disconnected tells that the OpenFlow connection died of a message that it cannot carry.
	Disconnected func(reason string)
	// Device says whether a network device of the host exists; a port of the type "" has no number
	// without one. nil: all exist.
	Device func(name string) bool
	// Late says whether a port that is added gets no number until ReleaseLate (a fault). nil: none.
	Late func(name string) bool
	// PickBucket chooses among n live buckets of a select group; nil: by hash and weight.
	PickBucket func(groupID uint32, n int, hash uint32) int
	// HashSeed varies the hashes of select groups.
	HashSeed uint64
	// TableName names a table in traces; nil: the number alone.
	TableName func(table uint8) string
	// LocalMAC is the Ethernet address of the local port.
	LocalMAC packet.MAC
	// SCTPByAddress tracks SCTP by addresses alone and translates no SCTP ports, as OVS's userspace
	// connection tracking does. The kernel's, and the model by default, treat SCTP ports like UDP's.
	SCTPByAddress bool
	// MaxRecirculations is how often ct(table=…) and select groups may take a packet through the
	// datapath again; a tunnel that it came by counts as one. 0: 6, as in the userspace datapath of OVS 3.1
	// (MAX_RECIRC_DEPTH; later versions have 8).
	MaxRecirculations int
}

// PacketIn is a packet for the controller, as NXT_PACKET_IN2 carries it.
type PacketIn struct {
	Packet   *packet.Packet
	InPort   uint32
	Userdata []byte
	Cookie   uint64
	TableID  uint8
	Reason   string
	Regs     [16]uint32
	PktMark  uint32
	CTState  uint32
	CTMark   uint32
	CTZone   uint16
	TunID    uint64
	TunSrc   netip.Addr // zero if the packet did not come through a tunnel
	TunDst   netip.Addr
}

// Counters count what a pipeline should never do, for invariants.
type Counters struct {
	TooDeep          uint64 // resubmits over the limits
	Recirculations   uint64 // recirculations over the limit
	NATExhausted     uint64 // no free tuple for a NAT
	Metered          uint64 // packets that a meter dropped
	Stopped          uint64 // packets that came while the switch was stopped
	ToMissingPort    uint64 // outputs to a port that is down or not there
	TunnelWithoutDst uint64 // outputs to a tunnel port without tun_dst
	Unmodelled       uint64 // packets dropped for what the model does not have (a second VLAN tag)
}

// Switch is one bridge. It has no goroutines and no clock of its own; calls must not overlap.
type Switch struct {
	cfg    Config
	tables [openflow.MaxTable + 1]table
	groups map[uint32]*group
	meters map[uint32]*meter
	// users are the rules that use a group or a meter: they go with it.
	groupUsers map[uint32][]*rule // few each
	meterUsers map[uint32]map[*rule]struct{}
	learning   map[learnKey]int                // learn actions with delete_learned
	learned    map[learnKey]map[*rule]struct{} // flows that learn actions made
	ports      map[string]*PortState
	byNumber   map[uint32]*PortState
	ct         conntrack
	macs       map[macKey]macEntry
	timers     timers
	stopped    bool
	tracer     packet.Tracer
	node       string
	silent     bool // what happens to a packet that is gone is not told
	counters   Counters
	undo       []func() // of the bundle in progress
	bundling   bool
	peek       *peek // set while what packets change is noted
}

// New returns a switch with its local port and nothing else.
func New(cfg Config) *Switch {
	if cfg.Datapath == "" {
		cfg.Datapath = "netdev"
	}
	if cfg.MaxRecirculations == 0 {
		cfg.MaxRecirculations = 6
	}
	s := &Switch{cfg: cfg, ports: map[string]*PortState{}, byNumber: map[uint32]*PortState{}}
	local := &PortState{Name: cfg.Name, OFPort: openflow.PortLocal, Type: "internal", Up: true, MAC: cfg.LocalMAC}
	s.ports[cfg.Name], s.byNumber[openflow.PortLocal] = local, local
	s.forget()
	return s
}

// forget empties what vswitchd keeps in memory.
func (s *Switch) forget() {
	for i := range s.tables {
		s.tables[i] = table{}
	}
	s.groups, s.meters = map[uint32]*group{}, map[uint32]*meter{}
	s.groupUsers, s.meterUsers = map[uint32][]*rule{}, map[uint32]map[*rule]struct{}{}
	s.learning, s.learned = map[learnKey]int{}, map[learnKey]map[*rule]struct{}{}
	s.ct = newConntrack()
	s.macs = map[macKey]macEntry{}
	s.timers = timers{}
}

// Restart is a restart of vswitchd: flows (learned ones too), groups, meters and conntrack are lost;
// the database's ports stay and keep their numbers. A port that had no number gets one.
func (s *Switch) Restart() {
	s.Stop()
	s.Start()
}

// Stop kills vswitchd: every packet is dropped, and Apply answers Unknown, until Start.
func (s *Switch) Stop() {
	s.stopped = true
	s.forget()
}

// Start starts vswitchd with an empty memory.
func (s *Switch) Start() {
	s.stopped = false
	s.numberPorts()
}

// Stopped reports whether vswitchd is not running.
func (s *Switch) Stopped() bool { return s.stopped }

// Counters returns what was counted since New.
func (s *Switch) Counters() Counters { return s.counters }

// SetTracer has every step of every packet reported, with node as the node's name. nil ends it.
func (s *Switch) SetTracer(t packet.Tracer, node string) { s.tracer, s.node = t, node }

func (s *Switch) step(where, text string, cookie uint64, drop bool) {
	if s.silent {
		return
	}
	s.tracer.Step(packet.TraceStep{Node: s.node, Where: where, Text: text, Cookie: cookie, Drop: drop})
}

func (s *Switch) tableName(n uint8) string {
	w := "table " + strconv.Itoa(int(n))
	if s.cfg.TableName != nil {
		if name := s.cfg.TableName(n); name != "" {
			w += " " + name
		}
	}
	return w
}

func (s *Switch) now() int64 { return s.cfg.Now().UnixNano() }

// dropf traces the end of a packet.
func (s *Switch) dropf(where string, cookie uint64, format string, args ...any) {
	if s.tracer != nil {
		s.step(where, fmt.Sprintf(format, args...), cookie, true)
	}
}

const (
	millisecond = int64(time.Millisecond)
	second      = int64(time.Second)
)
