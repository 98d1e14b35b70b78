// Package nodes renders what a node has whatever runs on it (unit host) and the way to every other
// node (units node/<name>).
package nodes

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/datapath/ovsdb"
)

// Nodes is the concern.
type Nodes struct {
	env        *tables.Env
	neighbours *tables.Resolver
	alive      []string // members at the last event
}

// New returns the concern.
func New(env *tables.Env) *Nodes { return &Nodes{env: env, neighbours: tables.NewResolver(env)} }

// Kinds implements tables.Concern.
func (n *Nodes) Kinds() []string { return []string{"host", "node"} }

// Restore implements tables.Concern.
func (n *Nodes) Restore([]datapath.Object) { n.env.Dirty(tables.HostUnit) }

// Ready implements tables.Concern.
func (n *Nodes) Ready(kind string) bool {
	if kind == "host" {
		return n.env.AllSynced(tables.FactPorts, tables.FactLinks)
	}
	return n.env.AllSynced(edge.KindNode, tables.FactPorts, tables.FactLinks)
}

// Handle implements tables.Concern.
func (n *Nodes) Handle(ev any, old runtime.Object) {
	if n.env.NodePortsChanged() {
		n.env.Dirty(tables.HostUnit)
	}
	switch e := ev.(type) {
	case edge.ObjectEvent:
		if e.Kind == edge.KindNode {
			n.nodeChanged(e.Key, old)
		}
	case edge.SyncedEvent:
		if e.Kind == edge.KindNode {
			n.setPeers()
			n.env.Dirty(tables.HostUnit)
		}
	case datapath.DisconnectEvent:
		if e.Connected {
			n.neighbours.Again()
		}
	case edge.MembersEvent:
		n.membersChanged(e.Alive)
	case datapath.PortEvent:
		if e.Name == pipeline.GatewayPort || e.Name == pipeline.TunnelPort {
			n.all()
		}
	case datapath.LinkEvent:
		if e.Name == pipeline.GatewayPort {
			n.all()
		}
	}
}

func (n *Nodes) nodeChanged(name string, old runtime.Object) {
	cur := n.env.Nodes[name]
	if o, ok := old.(*corev1.Node); ok && cur != nil && sameNode(o, cur) {
		return
	}
	n.setPeers()
	if name == n.env.Cfg.NodeName {
		n.env.Dirty(tables.HostUnit)
		return
	}
	n.env.Dirty("node/" + name)
}

// sameNode reports whether two versions of a Node are the same to the datapath: status heartbeats
// and labels are not.
func sameNode(a, b *corev1.Node) bool {
	return slices.Equal(tables.NodePodCIDRs(a), tables.NodePodCIDRs(b)) && slices.Equal(tables.NodeAddresses(a), tables.NodeAddresses(b))
}

// membersChanged asks again for the neighbours of nodes that are back.
func (n *Nodes) membersChanged(alive []string) {
	if !n.env.Cfg.HasTunnel() {
		return
	}
	for _, name := range alive {
		if node := n.env.Nodes[name]; node != nil && !slices.Contains(n.alive, name) && name != n.env.Cfg.NodeName && n.alive != nil {
			for _, a := range tables.NodeAddresses(node) {
				n.neighbours.Forget(a)
			}
			n.resolve(node, "back")
		}
	}
	n.alive = alive
}

func (n *Nodes) all() {
	n.env.Dirty(tables.HostUnit)
	//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
	for name := range n.env.Nodes {
		if name != n.env.Cfg.NodeName {
			n.env.Dirty("node/" + name)
		}
	}
}

// setPeers tells the membership which nodes there are. A node that is not Linux runs no agent.
func (n *Nodes) setPeers() {
	if !n.env.AllSynced(edge.KindNode) {
		return
	}
	peers := map[string]netip.Addr{}
	//determinism:ignore each node has an entry of its own
	for name, node := range n.env.Nodes {
		if node.Labels[corev1.LabelOSStable] == "windows" {
			continue
		}
		for _, v6 := range []bool{false, true} {
			if a, ok := tables.NodeTransport(node, v6); ok {
				peers[name] = a
				break
			}
		}
	}
	n.env.Members.SetPeers(peers)
}

// Render implements tables.Concern.
func (n *Nodes) Render(unit string) ([]datapath.Object, datapath.Precedence) {
	l := &pipeline.List{}
	var prec datapath.Precedence
	if unit == tables.HostUnit {
		n.host(l)
	} else {
		name := unit[len("node/"):]
		if node := n.env.Nodes[name]; node != nil && name != n.env.Cfg.NodeName {
			prec.Age = node.CreationTimestamp.Unix()
			n.peer(l, unit, node)
		}
	}
	if err := l.Err(); err != nil {
		n.env.Log.Error(err, "Node cannot be rendered whole", "unit", unit)
	}
	return l.Objects(), prec
}

func (n *Nodes) host(l *pipeline.List) {
	p := pipeline.Of(n.env.Tables)
	gw, err := ovsdb.NewPort(ovsdb.PortSpec{
		Name: pipeline.GatewayPort, Type: "internal", OFPortRequest: pipeline.GatewayOFPort, MAC: p.GWMAC.String(),
		MTURequest:  uint16(n.env.Cfg.MTU),
		ExternalIDs: map[string]string{"towtank-type": "gateway"},
	})
	pipeline.Add(l, gw, err)
	if n.env.Cfg.HasTunnel() {
		tun, err := ovsdb.NewPort(ovsdb.PortSpec{
			Name: pipeline.TunnelPort, Type: n.env.Cfg.Tunnel, OFPortRequest: pipeline.TunnelOFPort,
			Options:     map[string]string{"key": "flow", "remote_ip": "flow"},
			ExternalIDs: map[string]string{"towtank-type": "tunnel"},
		})
		pipeline.Add(l, tun, err)
	}
	p.Netfilter(l)
	if n.env.Links[pipeline.GatewayPort].Present {
		p.Gateway(l)
	}
	p.Static(l)
	if n.env.Cfg.ProxyAll && p.Ready() {
		for _, a := range tables.NodePortAddresses(n.env.Tables) {
			p.NodePortAddress(l, a)
		}
	}
}

func (n *Nodes) peer(l *pipeline.List, unit string, node *corev1.Node) {
	p := pipeline.Of(n.env.Tables)
	if !p.Ready() {
		return
	}
	for _, a := range tables.NodeAddresses(node) {
		if _, ok := n.env.Cfg.Gateway(a.Is6()); ok {
			p.PeerAddress(l, unit, a)
		}
	}
	hostReady := n.env.Links[pipeline.GatewayPort].Present
	for _, cidr := range tables.NodePodCIDRs(node) {
		peer, ok := peerAddress(n.env.Tables, node, cidr.Addr().Is6())
		if _, family := n.env.Cfg.Gateway(cidr.Addr().Is6()); !ok || !family {
			continue
		}
		p.PeerFlows(l, unit, cidr, peer)
		if hostReady {
			p.PeerRoutes(l, cidr, peer)
		}
	}
}

// peerAddress returns the transport address by which Pods of the family are reached: that of the same
// family if both nodes have one, else the other (a tunnel carries both).
func peerAddress(t *tables.Tables, node *corev1.Node, v6 bool) (netip.Addr, bool) {
	for _, f := range []bool{v6, !v6} {
		if _, ok := t.Cfg.Transport(f); !ok {
			continue
		}
		if a, ok := tables.NodeTransport(node, f); ok {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// Realised implements tables.Concern: a peer's tunnel neighbour is asked for ahead of the first packet.
func (n *Nodes) Realised(unit string) {
	if unit == tables.HostUnit || !n.env.Cfg.HasTunnel() {
		return
	}
	node := n.env.Nodes[unit[len("node/"):]]
	if node == nil {
		return
	}
	n.resolve(node, "")
}

// resolve asks for the addresses by which the Pods of a node are reached.
func (n *Nodes) resolve(node *corev1.Node, reason string) {
	for _, cidr := range tables.NodePodCIDRs(node) {
		if a, ok := peerAddress(n.env.Tables, node, cidr.Addr().Is6()); ok && n.env.Cfg.NeedsTunnel(a) {
			n.neighbours.Want(a, reason)
		}
	}
}

// Refused implements tables.Concern.
func (n *Nodes) Refused(string, error) {}
