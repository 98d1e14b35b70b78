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
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	q := shell.NewQueue()
	var loop *agent.Loop
	handle := func(ev any) { loop.Handle(ev) } // runs on the queue, which starts when the loop is there
	q.Post(func() { loop.Start() })

	refuser := &refuser{log: o.Log}
	sw, err := connect(ctx, o, q, handle, refuser)
	if err != nil {
		return ifRunning(ctx, err)
	}
	defer sw.Close()
	q.Post(func() { handle(edge.SyncedEvent{Kind: tables.FactPorts}) })

	kernel, err := linux.Open(linux.Config{
		Netns: o.Netns, StateFile: filepath.Join(o.StateDir, "state.json"), Post: q.Post,
		Address: func(e datapath.AddressEvent) { handle(e) }, Link: func(e datapath.LinkEvent) { handle(e) },
	})
	if err != nil {
		return err
	}
	defer kernel.Close()
	q.Post(func() {
		handle(edge.SyncedEvent{Kind: tables.FactLinks})
		handle(edge.SyncedEvent{Kind: tables.FactAddresses})
	})

	members, leave, err := membership(o, cfg, q, handle)
	if err != nil {
		return err
	}
	defer leave()
	cluster := shell.NewCluster(q, o.Kube, o.CRD, o.Recorder, handle, o.Log)
	journal, clock := shell.NewJournal(func(unit string) []string { return loop.About(unit) }), shell.NewClock(q)
	loop, err = agent.New(cfg, agent.Seams{
		Switch: journal.Switch(sw), Host: journal.Host(kernel), Cluster: journal.Cluster(cluster), IPAM: journal.IPAM(shell.NewIPAM(q, o.AddressDir, cfg.PodCIDRs)),
		Members: members, Clock: clock, Post: q.Post, Log: o.Log,
	})
	if err != nil {
		return err
	}
	if err := cluster.WatchAgent(ctx, o.Node, cfg.ByGroup()); err != nil {
		return err
	}
	requests, err := shell.ServeRequests(q, o.Socket, func(ev any) {
		if req, ok := ev.(*edge.CNIRequest); ok {
			journal.Call(req)
		}
		handle(ev)
	})
	if err != nil {
		return err
	}
	inspector := &shell.Inspector{Node: o.Node, Queue: q, Subject: loop, Cluster: cluster, Clock: clock, Journal: journal, Refused: refuser.refused.Load}
	closeInspector, err := inspector.Serve(o.StatusSocket, o.MetricsAddress, shell.AgentMetrics)
	if err != nil {
		return errors.Join(err, requests.Close())
	}
	go func() {
		select {
		case <-q.Overflow():
			cancel(fmt.Errorf("%d events wait: start again from what is there", shell.MaxQueued))
		case <-ctx.Done():
		}
	}()
	if o.Ready != nil {
		q.Post(o.Ready)
	}
	q.Run(ctx)
	loop.Stop()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return errors.Join(err, requests.Close(), closeInspector())
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
func connect(ctx context.Context, o Options, q *shell.Queue, handle func(any), r *refuser) (*ovs.Switch, error) {
	for {
		sw, err := ovs.Connect(ovs.Config{
			Bridge: o.Bridge, Database: o.Database, OpenFlow: o.OpenFlow, Control: o.Control, Post: q.Post,
			Port: func(e datapath.PortEvent) { handle(e) }, Disconnect: func(e datapath.DisconnectEvent) { handle(e) },
			PacketIn:      r.packetIn,
			LearnedTables: []uint8{pipeline.TableAffinity},
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

// membership joins the others; leave tells them that this node goes.
func membership(o Options, cfg *config.Config, q *shell.Queue, handle func(any)) (m edge.Members, leave func(), err error) {
	if o.GossipPort == 0 {
		return alone(func() { q.Post(func() { handle(edge.MembersEvent{Alive: []string{o.Node}, Joined: true}) }) }), func() {}, nil
	}
	addr, ok := cfg.Transport(false)
	if !ok {
		addr, _ = cfg.Transport(true)
	}
	list, err := shell.NewMembers(q, shell.MembersConfig{Node: o.Node, Bind: netip.AddrPortFrom(addr, o.GossipPort), Key: o.GossipKey}, handle, o.Log)
	if err != nil {
		return nil, nil, err
	}
	return list, func() {
		list.Leave()
		list.Close()
	}, nil
}

// alone is the membership of a node without others: it posts that this node is alive.
type alone func()

// SetPeers implements edge.Members.
func (tell alone) SetPeers(map[string]netip.Addr) { tell() }

// Leave implements edge.Members.
func (alone) Leave() {}

// nodeConfig waits until the Node has Pod CIDRs, and finds its addresses on the machine's links.
func nodeConfig(ctx context.Context, o Options) (*config.Config, error) {
	for {
		node, err := o.Kube.CoreV1().Nodes().Get(ctx, o.Node, metav1.GetOptions{})
		if err == nil {
			var c *config.Config
			if c, err = configOf(o, node); err == nil {
				return c, nil
			}
		} else if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return nil, err
		}
		o.Log.Error(err, "The node is not ready to be configured", "node", o.Node)
		if !wait(ctx) {
			return nil, err
		}
	}
}

func configOf(o Options, node *corev1.Node) (*config.Config, error) {
	c, err := o.Settings.config()
	if err != nil {
		return nil, err
	}
	c.NodeName = o.Node
	cidrs := node.Spec.PodCIDRs
	if len(cidrs) == 0 && node.Spec.PodCIDR != "" {
		cidrs = []string{node.Spec.PodCIDR}
	}
	if len(cidrs) == 0 {
		return nil, fmt.Errorf("node %s has no spec.podCIDRs", o.Node)
	}
	for _, s := range cidrs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("node %s: spec.podCIDRs: %w", o.Node, err)
		}
		c.PodCIDRs = append(c.PodCIDRs, p)
	}
	for _, a := range node.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if a.Type != corev1.NodeInternalIP || err != nil {
			continue
		}
		p, link, err := find(o.Netns, ip)
		if err != nil {
			return nil, fmt.Errorf("node %s: InternalIP %s: %w", o.Node, ip, err)
		}
		c.Uplink = link
		if ip.Is4() && !c.TransportV4.IsValid() {
			c.TransportV4 = p
		}
		if ip.Is6() && !c.TransportV6.IsValid() {
			c.TransportV6 = p
		}
	}
	c.Defaults()
	return c, c.Validate()
}

// find returns the link that has an address, and the address with its subnet.
func find(ns string, ip netip.Addr) (p netip.Prefix, link string, err error) {
	h, err := handle(ns)
	if err != nil {
		return p, "", err
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return p, "", fmt.Errorf("links: %w", err)
	}
	for _, l := range links {
		addrs, err := h.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return p, "", fmt.Errorf("addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range addrs {
			if x, ok := netip.AddrFromSlice(a.IP); ok && x.Unmap() == ip {
				ones, _ := a.Mask.Size()
				return netip.PrefixFrom(ip, ones), l.Attrs().Name, nil
			}
		}
	}
	return p, "", errors.New("no link of this machine has it")
}

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
