package scenarios

import (
	"errors"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/edge"
	"towtank/scenarios/check"
	"towtank/sim"
	"towtank/sim/kube"
)

// Tank is where the steps of a scenario happen: the simulator, or real nodes. Its errors say that a step
// cannot be done as it is written (exit status 2), unless they wrap ErrTank.
type Tank interface {
	// Objects is the Kubernetes API.
	Objects() Objects
	// Invariants are checked by the Runner after every settle, and at the end.
	Invariants() Invariants

	topologyTank
	podTank
	timeTank
	trafficTank
	faultTank
	lookTank
}

// ErrTank is wrapped by errors of the tank itself: a program of it did not start, a machine is full.
var ErrTank = errors.New("the tank failed")

// Objects are the deeds of people and controllers at the Kubernetes API.
type Objects interface {
	Get(kind kube.Kind, namespace, name string) (runtime.Object, error)
	List(kind kube.Kind) []runtime.Object
	Events(kind kube.Kind, namespace, name string) []kube.RecordedEvent
	Apply(data []byte, file string) ([]kube.Result, error)
	Delete(kind kube.Kind, namespace, name string) error
	DeleteFile(data []byte, file string) ([]kube.Result, error)
	Patch(kind kube.Kind, namespace, name string, patch []byte) (runtime.Object, error)
	CreateNamespace(name string, labels map[string]string) error
	CreatePod(c kube.PodConfig) error
	SetPodTerminating(namespace, name string, serving bool) error
	ChangeLabels(kind kube.Kind, namespace, name string, set map[string]string, remove []string) error
	ChangeAnnotations(kind kube.Kind, namespace, name string, set map[string]string, remove []string) error
}

// Invariants are what must hold without being written; only failures are returned.
type Invariants interface {
	AfterSettle() []check.Result
	// End ends the file: faults end, everything is deleted, and nothing may be left, unless keep is set.
	End(keep bool) []check.Result
	// Clean returns what is wrong with a node that is to be clean.
	Clean(n Node) []string
	// Probed compares a probe without expectation with the reference model.
	Probed(f Flow, r sim.Result) []check.Result
}

// Node is one machine of the cluster, or the one of the pool allocation.
type Node interface {
	Name() string
	Up() bool
	HasAddress(ip netip.Addr) bool
	// Transport and Gateway are invalid if the node has none of the family.
	Transport(v6 bool) netip.Addr
	Gateway(v6 bool) netip.Addr
	// ObjectsOf returns, in text, the objects on the node that its agent has for matching units.
	ObjectsOf(match func(unit string) bool) ([]string, error)
	// Writes counts the effects since the last mark by seam, and packet-ins; nil matches all units.
	Writes(match func(units []string) bool) (map[string]int, error)
	// LastWrites shows the first effects of a seam since the last mark.
	LastWrites(seam string, match func(units []string) bool) []string
}

// Machine is an external host.
type Machine interface {
	Addr(v6 bool) netip.Addr
}

type topologyTank interface {
	AddNode(name string) error
	AddExternal(c sim.ExternalConfig) error
	AddNetwork(name string, cidr netip.Prefix, vlan int) error
	Nodes() []Node
	// Node and External return nil if there is none of the name. The pool allocation is lang.Controller.
	Node(name string) Node
	External(name string) Machine
	// Externals are the external hosts in the order of the file.
	Externals() []Machine
	SetEndpoints(namespace, service string, count int, on []Node) error
}

type podTank interface {
	PreparePod(key string, o sim.PodOptions)
	StartPod(key string) error
	StopPod(key string) error
	SetPodReady(key string, ready bool) error
	CNI(n Node, verb edge.CNIVerb, id, pod, ifname string, done func(edge.CNIReply)) error
	CNIGC(n Node, keep []string, done func(edge.CNIReply))
	CNIStatus(n Node, done func(edge.CNIReply))
}

type timeTank interface {
	// Now is the time since the tank began.
	Now() time.Duration
	Settle(within time.Duration) error
	Advance(d time.Duration) error
	// Step runs single events and returns how many there were.
	Step(n int) int
	// Await lets time pass until the condition holds; it is asked where the done functions of podTank run.
	Await(cond func() bool, limit time.Duration) error
}

// Source is where traffic comes from.
type Source interface {
	// Addr is invalid if the source has none of the family.
	Addr(v6 bool) netip.Addr
}

// Flow is one connection, or one datagram and its answer.
type Flow struct {
	From  Source
	Bind  netip.Addr // the source address; invalid: the sender's own, or for a node what its routes say
	To    netip.Addr // invalid: the other end has no address
	Port  uint16
	Proto uint8
	SPort uint16 // 0: the next unused from 40000 up
	Size  int    // bytes of the IP packet; 0: as small as possible
	DF    bool
	Next  Node // next hop of an external host, nil for its own
	HTTP  bool // asks a health port for its status
}

// Conn is a connection that stays open.
type Conn interface {
	Last() sim.Result // of the last packet
	Send() sim.Result
	Shape(size int, df bool)
	WasReset() bool
	Close()
}

// Stream sends at a steady beat until it is stopped.
type Stream interface {
	Stop()
	// Beats are what every packet experienced, in order.
	Beats() []sim.Result
}

type trafficTank interface {
	NodeSource(n Node) Source
	ExternalSource(x Machine) Source
	// PodSource is the newest sandbox of a Pod, or its node if it uses that one's network.
	PodSource(key string) (Source, error)
	Probe(f Flow) (sim.Result, error)
	Open(f Flow) (Conn, error)
	// StartStream starts a stream; from is asked before every new connection.
	StartStream(name string, f Flow, from func() (Source, error), every time.Duration, one bool) Stream
	Inject(from Source, fields []sim.Field) (sim.Injected, error)
	// Traced returns the way of the packets that do sends.
	Traced(do func()) []TraceLine
}

type faultTank interface {
	AgentOp(n Node, op string) error
	OVSOp(n Node, op string) error
	NodeDown(n Node, silent bool) error
	NodeUp(n Node, ips []netip.Addr) error
	SetPartition(groups [][]string) error
	Heal() error
	SetLoss(a, b string, percent int) error
	SetSkew(n Node, skew time.Duration) error
	Watch(n Node, op string, kinds []kube.Kind, count int) error
	AddFault(n Node, f sim.Fault) error
	ClearFaults(n Node) error
	UnusedFaults() []string
	Exec(n Node, command string) (string, error)
	ExecPod(key, command string) (string, error)
}

type lookTank interface {
	// Holders returns the names of the nodes that are up and hold an address.
	Holders(ip netip.Addr) []string
	// Mark begins a new count of effects on every node.
	Mark()
	// DumpText returns what is on a node: switch, host, store, or all for "".
	DumpText(n Node, what string) (string, error)
	// BeginStep is called before each step with its text.
	BeginStep(text string)
	// Note writes a line to the tank's log; LogHash is the hash of that, "" if it differs from run to run.
	Note(who, what string)
	LogHash() string
	// Problems returns what went wrong inside the tank itself, and forgets it.
	Problems() []string
}
