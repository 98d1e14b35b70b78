//go:build linux

// Package daemon puts the production agent of a node together: the loop, Open vSwitch, the kernel, the API
// server, the CNI socket, membership and address management.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"towtank/agent"
	"towtank/agent/apis/crd/v1beta1/clientset"
	"towtank/agent/config"
	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/agent/shell"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/datapath/linux"

	"towtank/datapath/openflow"
	"towtank/datapath/ovs"
)

// Options say where the agent finds what it needs.
type Options struct {
	Node     string
	Settings *Settings
	// Netns is the node's network namespace, "" for the one of the process.
	Netns string
	// Bridge exists already. Database, OpenFlow and Control are paths of sockets, see ovs.Config.
	Bridge, Database, OpenFlow, Control string
	// Socket is where the CNI plugin calls. StatusSocket is where the agent answers questions about itself
	// (shell.Inspector); "": nowhere.
	Socket, StatusSocket string
	// MetricsAddress is the TCP address of the metrics and probes (shell.ServeMetrics); "": nowhere.
	MetricsAddress string
	// StateDir is below /run: its contents are of no use after a boot. AddressDir outlives boots.
	StateDir, AddressDir string
	// GossipPort of the membership; 0: none, this node alone is alive.
	GossipPort uint16
	GossipKey  []byte

	Kube     kubernetes.Interface
	CRD      clientset.Interface
	Recorder record.EventRecorder
	Log      klog.Logger
	// Wrap, if set, puts something between the loop and its seams, and between events and the loop: tests have effects
	// fail there. What it starts ends with ctx.
	Wrap func(ctx context.Context, q *shell.Queue, s agent.Seams, handle func(any)) (agent.Seams, func(any))
	// Ready is called once what was on the node has been read and calls are taken. nil: nobody hears.
	Ready func()
}

// retryEvery is how often the start tries again to get what is not there yet.
const retryEvery = time.Second

// Run runs the agent until ctx ends; what is on the node stays as it is. It returns nil if ctx ended it.
func Run(ctx context.Context, o Options) error {
	cfg, err := nodeConfig(ctx, o)
	if err != nil {
		return ifRunning(ctx, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	n := &node{o: o, q: shell.NewQueue(), stop: cancel, refuser: &refuser{log: o.Log}}
	defer n.close()
	n.q.Post(func() { n.loop.Start() })
	if err := n.open(ctx, cfg); err != nil {
		return ifRunning(ctx, err)
	}
	if err := n.assemble(ctx, cfg); err != nil {
		return err
	}
	closeServers, err := n.serve()
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-n.q.Overflow():
			cancel(fmt.Errorf("%d events wait: start again from what is there", shell.MaxQueued))
		case <-ctx.Done():
		}
	}()
	if o.Ready != nil {
		n.q.Post(o.Ready)
	}
	n.q.Run(ctx)
	n.loop.Stop()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return errors.Join(err, closeServers())
}

// node is the loop with what is around it.
type node struct {
	o       Options
	q       *shell.Queue
	loop    *agent.Loop
	hear    func(ev any)    // the loop's Handle, or what is between
	stop    func(err error) // ends the process
	refuser *refuser
	sw      *ovs.Switch
	kernel  *linux.Host
	members edge.Members
	cluster *shell.Cluster
	clock   *shell.Clock
	journal *shell.Journal
	// closers are called in the opposite order.
	closers []func()
}

func (n *node) close() {
	for _, f := range slices.Backward(n.closers) {
		f()
	}
}

// handle hands an event to the loop. It runs on the queue, which is run when the loop is there.
func (n *node) handle(ev any) { n.hear(ev) }

// synced tells the loop that what there was of kinds of facts at the start has been told.
func (n *node) synced(facts ...string) {
	n.q.Post(func() {
		for _, f := range facts {
			n.handle(edge.SyncedEvent{Kind: f})
		}
	})
}

// open connects to Open vSwitch, the kernel and the other nodes.
func (n *node) open(ctx context.Context, cfg *config.Config) (err error) {
	if n.sw, err = connect(ctx, n.o, cfg.Uplink, n.q, n.handle, n.refuser); err != nil {
		return err
	}
	n.closers = append(n.closers, n.sw.Close)
	n.synced(tables.FactPorts)
	n.kernel, err = linux.Open(linux.Config{
		Netns: n.o.Netns, StateFile: filepath.Join(n.o.StateDir, "state.json"), Post: n.q.Post,
		Address: func(e datapath.AddressEvent) { n.handle(e) }, Link: func(e datapath.LinkEvent) { n.handle(e) },
		Foreign: func(what string) {
			n.o.Log.Info("An ipset has a name of ours and is not ours: it is left alone", "ipset", what)
		},
	})
	if err != nil {
		return err
	}
	n.closers = append(n.closers, n.kernel.Close)
	n.synced(tables.FactLinks, tables.FactAddresses)
	var leave func()
	if n.members, leave, err = membership(n.o, cfg, n.q, n.handle); err != nil {
		return err
	}
	n.closers = append(n.closers, leave)
	return nil
}

// assemble makes the loop, and has it told of the objects of the API.
func (n *node) assemble(ctx context.Context, cfg *config.Config) (err error) {
	n.cluster, n.clock = shell.NewCluster(n.q, n.o.Kube, n.o.CRD, n.o.Recorder, n.handle, n.o.Log), shell.NewClock(n.q)
	n.journal = shell.NewJournal(func(unit string) []string { return n.loop.About(unit) })
	seams := agent.Seams{
		Switch: n.sw, Host: n.kernel, Cluster: n.cluster, IPAM: shell.NewIPAM(n.q, n.o.AddressDir, cfg.PodCIDRs), Members: n.members, Clock: n.clock,
		Post: n.q.Post, Log: n.o.Log,
	}
	n.hear = func(ev any) { n.loop.Handle(ev) }
	if n.o.Wrap != nil {
		seams, n.hear = n.o.Wrap(ctx, n.q, seams, n.hear)
	}
	seams.Switch, seams.Host = n.journal.Switch(seams.Switch), n.journal.Host(seams.Host)
	seams.Cluster, seams.IPAM = n.journal.Cluster(seams.Cluster), n.journal.IPAM(seams.IPAM)
	loop := n.hear
	n.hear = func(ev any) {
		if err := outdated(cfg, ev); err != nil {
			n.stop(err)
			return
		}
		loop(ev)
	}
	n.loop, err = agent.New(cfg, seams)
	if err != nil {
		return err
	}
	return n.cluster.WatchAgent(ctx, n.o.Node, cfg.ByGroup())
}

// serve takes calls of the CNI plugin, and questions.
func (n *node) serve() (closeServers func() error, err error) {
	inspector := &shell.Inspector{
		Node: n.o.Node, Queue: n.q, Subject: n.loop, Cluster: n.cluster, Clock: n.clock, Journal: n.journal, Refused: n.refuser.refused.Load,
	}
	// Questions first: whoever sees that calls are taken may ask.
	closeInspector, err := inspector.Serve(n.o.StatusSocket, n.o.MetricsAddress, shell.AgentMetrics)
	if err != nil {
		return nil, err
	}
	requests, err := shell.ServeRequests(n.q, n.o.Socket, func(ev any) {
		if req, ok := ev.(*edge.CNIRequest); ok {
			n.journal.Call(req)
		}
		n.handle(ev)
	})
	if err != nil {
		return nil, errors.Join(err, closeInspector())
	}
	return func() error { return errors.Join(requests.Close(), closeInspector()) }, nil
}

// ifRunning returns nil if the context ended: then an error is only how that shows.
func ifRunning(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// wait waits before the next try; it returns false if ctx ends first.
func wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(retryEvery):
		return true
	}
}

// connect connects to Open vSwitch, as soon as it is there.
func connect(ctx context.Context, o Options, uplink string, q *shell.Queue, handle func(any), r *refuser) (*ovs.Switch, error) {
	for {
		sw, err := ovs.ConnectContext(ctx, ovs.Config{
			Bridge: o.Bridge, Database: o.Database, OpenFlow: o.OpenFlow, Control: o.Control, Post: q.Post,
			Port: func(e datapath.PortEvent) { handle(e) }, Disconnect: func(e datapath.DisconnectEvent) { handle(e) },
			PacketIn: r.packetIn,
			Strange: func(err error) {
				o.Log.Error(err, "Entries of conntrack are not understood: connections of UDP and SCTP among them are not flushed")
			},
			LearnedTables: []uint8{pipeline.TableAffinity},
			// The device of the node's address is the local port of the bridge that tunnels leave by, of the same name.
			Neighbour: (&neighbours{o.Netns, uplink}).find, NeighbourBridge: uplink,
		})
		if err == nil {
			r.sw.Store(sw)
			return sw, nil
		}
		o.Log.Error(err, "Open vSwitch is not there yet", "bridge", o.Bridge)
		if !wait(ctx) {
			return nil, err
		}
	}
}

// refuser answers packets that the pipeline wants refused. It does not enter the loop: a flood of them delays
// nobody else.
type refuser struct {
	sw      atomic.Pointer[ovs.Switch] // nil until the connection stands
	log     klog.Logger
	refused atomic.Uint64 // how many packets were answered
}

func (r *refuser) packetIn(in *openflow.PacketIn) {
	sw := r.sw.Load()
	if sw == nil || len(in.Userdata) == 0 || in.Userdata[0] != pipeline.UserdataRefuse {
		return
	}
	frame := shell.Refuse(in.Packet, pipeline.VirtualMAC)
	if frame == nil {
		return
	}
	port := uint32(in.Get(openflow.InPort).Lo)
	if err := sw.PacketOut(port, []openflow.Action{openflow.OutputInPort()}, frame); err != nil {
		r.log.Error(err, "A connection was not refused", "port", port)
		return
	}
	r.refused.Add(1)
}

// membership joins the others; leave ends that, and tells them that this node goes if the settings say so.
func membership(o Options, cfg *config.Config, q *shell.Queue, handle func(any)) (m edge.Members, leave func(), err error) {
	if o.GossipPort == 0 {
		return alone(func() { q.Post(func() { handle(edge.MembersEvent{Alive: []string{o.Node}, Joined: true}) }) }), func() {}, nil
	}
	addr, ok := cfg.Transport(false)
	if !ok {
		addr, _ = cfg.Transport(true)
	}
	timeout, rejoin, err := o.Settings.members()
	if err != nil {
		return nil, nil, err
	}
	list, err := shell.NewMembers(q, shell.MembersConfig{
		Node: o.Node, Bind: netip.AddrPortFrom(addr, o.GossipPort), Key: o.GossipKey, Timeout: timeout, Rejoin: rejoin,
	}, handle, o.Log)
	if err != nil {
		return nil, nil, err
	}
	return list, func() {
		if o.Settings.LeaveOnStop {
			list.Leave()
		}
		list.Close()
	}, nil
}

// alone is the membership of a node without others: it posts that this node is alive.
type alone func()

// SetPeers implements edge.Members.
func (tell alone) SetPeers(map[string]netip.Addr) { tell() }

// Leave implements edge.Members.
func (alone) Leave() {}

func handle(ns string) (*netlink.Handle, error) {
	if ns == "" {
		return netlink.NewHandle()
	}
	h, err := netns.GetFromName(ns)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", ns, err)
	}
	defer func() { _ = h.Close() }()
	return netlink.NewHandleAt(h)
}
