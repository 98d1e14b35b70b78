package sim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"towtank/agent/config"
	"towtank/agent/pipeline"
	"towtank/datapath"
	"towtank/sim/host"
	"towtank/sim/kube"
	"towtank/sim/ovs"
	"towtank/sim/packet"
)

// Names of devices on every simulated node.
const (
	Bridge = "br-int"
	Uplink = "eth0"
)

// Node is one machine of the cluster: kernel, switch, and the agent that runs on it.
type Node struct {
	world *World
	name  string
	index int // from 1

	v4, v6   netip.Addr
	podCIDRs []netip.Prefix
	ns       *host.Netns
	sw       Switch
	internal []string // devices of internal ports, sorted
	tunnels  *tunnels
	ipam     *ipam
	ipamFree time.Time // when the lock of the address files is free
	agent    *proc

	up, ovsUp bool
	skew      int64 // nanoseconds that the agent's clock is ahead
	faults    Faults
	lateNow   bool // ports that are added now get no number

	effects   int
	journal   []Entry
	marked    int                 // length of the journal at the last mark
	about     map[string][]string // what a unit was about at its last effect
	packetIns int                 // since the last mark
	refusals  int
	downTimer interface{ Stop() }
	hand      int // see HandVersion
	// unanswered is how many effects wait for an answer that a fault has swallowed.
	unanswered int
	lives      int // see Life
}

// Name returns the node's name.
func (n *Node) Name() string { return n.name }

// Netns returns the node's network namespace.
func (n *Node) Netns() *host.Netns { return n.ns }

// Switch returns the node's switch.
func (n *Node) Switch() Switch { return n.sw }

// Up reports whether the node is powered on.
func (n *Node) Up() bool { return n.up }

// transport returns the node's address of the family, invalid if it has none.
func (n *Node) transport(v6 bool) netip.Addr {
	if v6 {
		return n.v6
	}
	return n.v4
}

// Transport returns the node's transport address of the family, invalid if it has none.
func (n *Node) Transport(v6 bool) netip.Addr { return n.transport(v6) }

// Gateway returns the gateway address of the node's Pod network of the family.
func (n *Node) Gateway(v6 bool) netip.Addr {
	for _, c := range n.podCIDRs {
		if c.Addr().Is6() == v6 {
			return config.GatewayOf(c)
		}
	}
	return netip.Addr{}
}

// PodCIDRs returns the node's Pod networks.
func (n *Node) PodCIDRs() []netip.Prefix { return n.podCIDRs }

// transportBits are the lengths of the nodes' subnet.
const (
	transportBits4 = 16
	transportBits6 = 64
)

// addressOf returns the address that scenarios give the k-th node (offset 10) or external host
// (offset 100), counted from 1: 172.18.0.(offset+k), and fd00:18:: with the same decimal digits.
func addressOf(offset, k int, v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:18::%d", offset+k))
	}
	return netip.AddrFrom4([4]byte{172, 18, byte((offset + k) >> 8), byte(offset + k)})
}

// AddNode adds the next node: its machine, its Node object, and its agent, which starts.
func (w *World) AddNode(name string) (*Node, error) {
	return w.addNode(name, netip.Addr{}, netip.Addr{})
}

func (w *World) addNode(name string, v4, v6 netip.Addr) (*Node, error) {
	if w.nodes[name] != nil {
		return nil, fmt.Errorf("node %s exists", name)
	}
	k := len(w.nodeOrder) + 1
	n := &Node{world: w, name: name, index: k, up: true, ovsUp: true, about: map[string][]string{}}
	if w.opts.V4 {
		if n.v4 = v4; !v4.IsValid() {
			n.v4 = addressOf(10, k, false)
		}
	}
	if w.opts.V6 {
		if n.v6 = v6; !v6.IsValid() {
			n.v6 = addressOf(10, k, true)
		}
	}
	for _, a := range n.addresses() {
		cidr, err := PodCIDR(k, w.opts.PodCIDRSize, a.Is6())
		if err != nil {
			return nil, err
		}
		n.podCIDRs = append(n.podCIDRs, cidr)
	}
	n.ipam = newIPAM(n.podCIDRs)
	n.tunnels = newTunnels(n)
	n.build()
	w.nodes[name] = n
	w.nodeOrder = append(w.nodeOrder, n)
	for _, f := range w.onNode[name] {
		f(n)
	}
	if err := w.Kube.CreateNode(n.registration()); err != nil {
		return nil, err
	}
	w.startAgent(n)
	return n, nil
}

// OnNode has f called with a node when it is made, or at once if it was.
func (w *World) OnNode(name string, f func(*Node)) {
	switch n := w.nodes[name]; {
	case name == ControllerName:
		f(w.Controller())
	case n != nil:
		f(n)
	default:
		w.onNode[name] = append(w.onNode[name], f)
	}
}

// registration is the node as its kubelet registers it.
func (n *Node) registration() kube.NodeConfig {
	return kube.NodeConfig{Name: n.name, IPs: n.addresses(), PodCIDRs: n.podCIDRs}
}

func (n *Node) addresses() []netip.Addr {
	var out []netip.Addr
	for _, a := range []netip.Addr{n.v4, n.v6} {
		if a.IsValid() {
			out = append(out, a)
		}
	}
	return out
}

// PodCIDR returns the network of the k-th node's Pods, counted from 1: 10.10.k.0 with the given length,
// or fd00:10:k::/64.
func PodCIDR(k, bits int, v6 bool) (netip.Prefix, error) {
	if v6 {
		return netip.ParsePrefix(fmt.Sprintf("fd00:10:%d::/64", k))
	}
	if bits < 24 || bits > 30 {
		return netip.Prefix{}, fmt.Errorf("podCIDRSize %d: want 24 to 30", bits)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 10, byte(k), 0}), bits), nil
}

// build makes the machine.
func (n *Node) build() {
	w := n.world
	n.ns = host.New(host.Config{
		Name: n.name, Now: w.queue.Now, Queue: w.packets, Events: n.hostEvent, Delivered: w.traffic.delivered,
		Netns: func(name string) (*host.Netns, bool) { ns := w.namespaces[name]; return ns, ns != nil },
	})
	w.attach(n.name, n.ns, 0, n.addresses())
	w.routes(n.ns)
	n.sw = w.newSwitch(n, ovs.Config{
		Name: Bridge, Now: w.queue.Now, Datapath: w.opts.Datapath, Output: n.output, Tunnel: n.tunnels.send, PacketIn: n.packetIn,
		PortChanged: n.portChanged, Device: func(name string) bool { return n.ns.Link(name) != nil },
		Late: func(string) bool { return n.lateNow }, HashSeed: w.opts.Seed<<8 | uint64(n.index), TableName: pipeline.TableName,
		Disconnected: func(reason string) { w.problem(n.name + ": the OpenFlow connection died: " + reason) },
	})
	n.listen()
}

// listen starts the processes of the node itself, and the kernel's side of the tunnel.
func (n *Node) listen() {
	for _, proto := range []uint8{packet.ProtoTCP, packet.ProtoUDP} {
		n.ns.Listen(proto, 8080, n.world.traffic.server("node/"+n.name, proto, 8080))
	}
	n.ns.Listen(packet.ProtoUDP, n.tunnels.port(), n.tunnels.receive)
}

// output takes a frame that leaves the switch by an ordinary port: it goes into the device of that
// port. A device of a Pod is a veth; the gateway is a device of the node.
func (n *Node) output(port uint32, p *packet.Packet) {
	st := n.sw.PortByNumber(port)
	if st == nil {
		return
	}
	n.world.traffic.leftSwitch(p)
	if st.Type == "internal" {
		n.ns.Receive(st.Name, p)
		return
	}
	if err := n.ns.Transmit(st.Name, p); err != nil {
		n.world.trace(packet.TraceStep{Node: n.name, Where: "port " + st.Name, Text: err.Error(), Drop: true})
	}
}

// applyPorts writes ports to the database, and brings the devices of internal ports in line.
func (n *Node) applyPorts(ops []datapath.Op) []datapath.OpResult {
	res := n.sw.ApplyPorts(ops)
	n.internalDevices()
	return res
}

// internalDevices makes the devices of internal ports that have a number, and removes those of ports
// that are gone.
func (n *Node) internalDevices() {
	want := map[string]bool{}
	for _, st := range n.sw.Ports() {
		if st.Type != "internal" || st.Port == nil || st.OFPort == 0 {
			continue
		}
		want[st.Name] = true
		if n.ns.Link(st.Name) == nil {
			name := st.Name
			mac, err := packet.ParseMAC(st.Port.MAC())
			if err != nil {
				mac = macOf(n.name + " " + name)
			}
			n.ns.AddLink(name, mac, 1500, func(p *packet.Packet) {
				if st := n.sw.PortByName(name); st != nil && st.OFPort != 0 {
					n.sw.Receive(st.OFPort, p)
				}
			})
		}
	}
	for _, name := range n.internal {
		if n.ns.Link(name) != nil && !want[name] {
			if err := n.ns.DelLink(name); err != nil {
				n.world.problem(n.name + ": " + err.Error())
			}
		}
	}
	n.internal = slices.Sorted(maps.Keys(want))
}

// portChanged hears of a port of the switch: frames of its device go to the switch from now on, and
// the agent is told.
func (n *Node) portChanged(e datapath.PortEvent) {
	st := n.sw.PortByName(e.Name)
	if st != nil && st.Type == "" && e.OFPort != 0 {
		number := e.OFPort
		if err := n.ns.SetUpper(e.Name, func(p *packet.Packet) { n.sw.Receive(number, p) }); err != nil {
			n.world.problem(n.name + ": port " + e.Name + ": " + err.Error())
		}
	}
	if (st == nil || e.OFPort == 0) && n.ns.Link(e.Name) != nil && !slices.Contains(n.internal, e.Name) {
		if err := n.ns.SetUpper(e.Name, nil); err != nil {
			n.world.problem(n.name + ": port " + e.Name + ": " + err.Error())
		}
	}
	n.tell("port", e)
}

// hostEvent hears of links and addresses of the node.
func (n *Node) hostEvent(ev any) {
	if l, ok := ev.(datapath.LinkEvent); ok && n.sw != nil {
		n.sw.DeviceChanged(l.Name)
	}
	n.tell("host", ev)
}

// tell posts an event to the node's agent.
func (n *Node) tell(label string, ev any) {
	if p := n.agent; p != nil && !p.dead {
		if e, ok := ev.(datapath.PortEvent); ok && !p.news(e) {
			return
		}
		p.post(label, func() { p.hear(ev) })
	}
}

// applyHost writes host objects.
func (n *Node) applyHost(ops []datapath.Op) []datapath.OpResult { return n.ns.Apply(ops) }

// config returns the configuration of the node's agent.
func (n *Node) config() *config.Config {
	o := n.world.opts
	c := &config.Config{
		NodeName: n.name, PodCIDRs: n.podCIDRs, Uplink: Uplink, Traffic: config.Traffic(o.Traffic), Tunnel: o.Tunnel,
		ProxyAll: !o.NoProxyAll, ProxyLoadBalancerIPs: !o.NoProxyLoadBalancers, SkipServices: o.SkipServices,
		NodePortAddresses: o.NodePortAddresses, LoadBalancerMode: o.LoadBalancerMode, MaxEgressIPsPerNode: max(o.MaxEgressIPsPerNode, 0),
		Membership: o.Membership, AuditEvery: o.AuditEvery,
	}
	if n.v4.IsValid() {
		c.TransportV4 = netip.PrefixFrom(n.v4, transportBits4)
	}
	if n.v6.IsValid() {
		c.TransportV6 = netip.PrefixFrom(n.v6, transportBits6)
	}
	for _, s := range o.ServiceCIDRs {
		if (s.Addr().Is6() && o.V6) || (!s.Addr().Is6() && o.V4) {
			c.ServiceCIDRs = append(c.ServiceCIDRs, s)
		}
	}
	return c
}

// unsettled returns why a node is not settled, nil if it is or a fault of the scenario explains it.
func (n *Node) unsettled() error {
	if n.agent == nil || n.agent.dead || n.agent.paused || !n.up || !n.ovsUp || n.faulted() || !n.world.apiReachable(n.name) || n.world.Kube.Faulted(n.name) {
		return nil
	}
	if why := n.agent.loop.Unsettled(); len(why) > 0 {
		return fmt.Errorf("node %s: %s", n.name, strings.Join(why, ", "))
	}
	return nil
}

// faulted reports whether a fault of the node is not spent, or its agent still waits for an answer that a
// fault has swallowed.
func (n *Node) faulted() bool {
	return n.unanswered > 0 || n.faults.Unspent()
}

// packetIn takes a packet that the switch sent to the controller: the edge of the agent refuses it,
// without the loop.
func (n *Node) packetIn(in ovs.PacketIn) {
	n.packetIns++
	if n.agent == nil || n.agent.dead || n.agent.paused || len(in.Userdata) == 0 || in.Userdata[0] != pipeline.UserdataRefuse {
		return
	}
	out := refuse(in.Packet)
	if out == nil {
		return
	}
	n.refusals++
	out.EthSrc, out.EthDst = packet.MAC(pipeline.VirtualMAC), in.Packet.EthSrc
	port := in.InPort
	n.world.trace(packet.TraceStep{Node: n.name, Where: "agent", Text: "refused with " + out.String()})
	n.world.packets.Add(func() { n.output(port, out) })
}
