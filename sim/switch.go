package sim

import (
	"net/netip"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/sim/ovs"
	"towtank/sim/packet"
)

// Switch is what a node needs of its switch. The model (*ovs.Switch) is one; another has the code of Open
// vSwitch behind it. Calls return when everything that they cause has happened.
type Switch interface {
	// ApplyPorts, ApplyMeters and ApplyBundle put and delete objects; see the methods of the model.
	ApplyPorts(ops []datapath.Op) []datapath.OpResult
	ApplyMeters(ops []datapath.Op) []datapath.OpResult
	ApplyBundle(ops []datapath.Op) []datapath.OpResult
	// Dump returns what is the agent's, DumpAll everything but learned flows, Foreign what is neither.
	Dump() []datapath.Object
	DumpAll() []datapath.Object
	// Flows returns all flows, learned ones too, by table, falling priority and key.
	Flows() []*openflow.Flow
	DumpText() string
	Foreign() []string

	FlushConntrack(tuples []datapath.Tuple) int
	DumpConntrack(zones []uint16) []datapath.ConntrackEntry
	ConntrackText() string

	// Receive takes a frame that arrives at an ordinary port, ReceiveTunnel one that was carried in a tunnel.
	Receive(inPort uint32, p *packet.Packet)
	ReceiveTunnel(port uint32, p *packet.Packet, tunSrc, tunDst netip.Addr, tunID uint64)

	Ports() []*ovs.PortState
	PortByName(name string) *ovs.PortState
	PortByNumber(n uint32) *ovs.PortState
	DeviceChanged(name string)
	ReleaseLate()

	Stop()
	Start()
	Restart()
	Tick()

	SetTracer(t packet.Tracer, node string)
	Counters() ovs.Counters
}

// peeker is a switch that can undo what packets changed.
type peeker interface {
	BeginPeek()
	EndPeek()
}

// newSwitch returns the node's switch.
func (w *World) newSwitch(n *Node, c ovs.Config) Switch {
	if w.opts.NewSwitch == nil {
		return ovs.New(c)
	}
	sw, err := w.opts.NewSwitch(n.name, c)
	if err != nil {
		w.problem(n.name + ": " + err.Error())
		return ovs.New(c)
	}
	return sw
}

// CanPeek reports whether Peek works: only the model can undo what packets did to it.
func (w *World) CanPeek() bool { return w.opts.NewSwitch == nil }
