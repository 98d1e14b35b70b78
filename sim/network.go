package sim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	datahost "towtank/datapath/host"
	"towtank/sim/fabric"
	"towtank/sim/host"
	"towtank/sim/packet"
)

// External is a host outside the cluster, on the nodes' subnet or on a network of its own.
type External struct {
	world *World
	name  string
	index int
	addrs []netip.Addr
	net   string // "" for the nodes' subnet
	next  *Node  // to whom it sends what nobody on its link answers for
	ns    *host.Netns
	via   map[netip.Addr]netip.Addr // next hops of addresses that nobody on its link answers for
}

// Name returns the host's name.
func (x *External) Name() string { return x.name }

// Netns returns the host's network namespace.
func (x *External) Netns() *host.Netns { return x.ns }

// Net returns the name of the host's network, "" for the nodes' subnet.
func (x *External) Net() string { return x.net }

// Addr returns the host's address of the family, invalid if it has none.
func (x *External) Addr(v6 bool) netip.Addr {
	for _, a := range x.addrs {
		if a.Is6() == v6 {
			return a
		}
	}
	return netip.Addr{}
}

// network is a VLAN on the nodes' uplinks.
type network struct {
	name string
	cidr netip.Prefix
	vlan uint16
	// router is the router's address on the nodes' subnet.
	router netip.Addr
	ns     *host.Netns // of the router
}

// routeTo gives a machine the route to a network, by its router on the nodes' subnet, in which the machine is
// with its link dev.
func (w *World) routeTo(ns *host.Netns, nw *network, dev string) {
	if err := ns.AddRoute(datahost.Route{Dst: nw.cidr, Via: nw.router, Dev: dev}); err != nil {
		w.problem(nw.name + ": " + err.Error())
	}
}

// address returns the address of the network with a number, which IPv6 has as its last decimal digits.
func (nw *network) address(number int) netip.Addr {
	if nw.cidr.Addr().Is6() {
		b := nw.cidr.Addr().As16()
		last := netip.MustParseAddr(fmt.Sprintf("::%d", number)).As16()
		b[14], b[15] = b[14]|last[14], b[15]|last[15]
		return netip.AddrFrom16(b)
	}
	a := nw.cidr.Addr()
	for range number {
		a = a.Next()
	}
	return a
}

// AddNetwork adds a VLAN with a router at its first address.
func (w *World) AddNetwork(name string, cidr netip.Prefix, vlan int) error {
	if w.nets[name] != nil {
		return fmt.Errorf("network %s exists", name)
	}
	w.nets[name] = &network{name: name, cidr: cidr.Masked(), vlan: uint16(vlan), router: addressOf(250, len(w.nets)+1, cidr.Addr().Is6())}
	a := w.nets[name].router
	native := []netip.Prefix{netip.PrefixFrom(a, w.bitsOf(a))}
	router, err := w.fabric.Network(name, []netip.Prefix{cidr.Masked()}, uint16(vlan), native, host.Config{Now: w.queue.Now})
	if err != nil {
		delete(w.nets, name)
		return err
	}
	w.nets[name].ns = router
	// The nodes' subnet knows the way to the network: by its router.
	for _, n := range w.nodeOrder {
		w.routeTo(n.ns, w.nets[name], Uplink)
	}
	for _, x := range w.extOrder {
		w.routeTo(x.ns, w.nets[name], Uplink)
	}
	// So do the routers.
	for _, other := range slices.Sorted(maps.Keys(w.nets)) {
		if o := w.nets[other]; other != name && o.cidr.Addr().Is6() == cidr.Addr().Is6() {
			w.routeTo(o.ns, w.nets[name], fabric.NativeLink)
			w.routeTo(router, o, fabric.NativeLink)
		}
	}
	if ns := w.traffic.endpointNS; ns != nil && w.traffic.given > 0 {
		w.routeTo(ns, w.nets[name], Uplink)
	}
	return nil
}

// ExternalConfig says what an external host is like.
type ExternalConfig struct {
	Name  string
	Addrs []netip.Addr // empty: given by position
	Net   string
	Serve []Port // empty: 8080/tcp and 8080/udp
	Next  string // node; empty: the first
}

// Port is a port and IP protocol number.
type Port struct {
	Proto uint8
	Port  uint16
}

// AddExternal adds a host outside the cluster.
func (w *World) AddExternal(c ExternalConfig) (*External, error) {
	if w.externals[c.Name] != nil {
		return nil, fmt.Errorf("external %s exists", c.Name)
	}
	k := len(w.extOrder) + 1
	x := &External{world: w, name: c.Name, index: k, addrs: c.Addrs, net: c.Net, via: map[netip.Addr]netip.Addr{}}
	if len(x.addrs) == 0 {
		if c.Net != "" {
			nw := w.nets[c.Net]
			if nw == nil {
				return nil, fmt.Errorf("external %s: network %s does not exist", c.Name, c.Net)
			}
			a := nw.address(100 + k)
			if !nw.cidr.Contains(a) {
				return nil, fmt.Errorf("external %s: %s has no address number %d: give it one with ip=", c.Name, nw.cidr, 100+k)
			}
			x.addrs = []netip.Addr{a}
		} else {
			if w.opts.V4 {
				x.addrs = append(x.addrs, addressOf(100, k, false))
			}
			if w.opts.V6 {
				x.addrs = append(x.addrs, addressOf(100, k, true))
			}
		}
	}
	if c.Next != "" {
		if x.next = w.nodes[c.Next]; x.next == nil {
			return nil, fmt.Errorf("external %s: node %s does not exist", c.Name, c.Next)
		}
	}
	x.ns = host.New(host.Config{Name: c.Name, Now: w.queue.Now, Queue: w.packets, Delivered: w.traffic.delivered})
	var vlan uint16
	if nw := w.nets[c.Net]; nw != nil {
		vlan = nw.vlan
	}
	w.attach(c.Name, x.ns, vlan, x.addrs)
	if nw := w.nets[c.Net]; nw != nil {
		anywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if nw.cidr.Addr().Is6() {
			anywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if err := x.ns.AddRoute(datahost.Route{Dst: anywhere, Via: nw.cidr.Addr().Next(), Dev: Uplink}); err != nil {
			w.problem(c.Name + ": " + err.Error())
		}
	} else {
		w.routes(x.ns)
	}
	serve := c.Serve
	if len(serve) == 0 {
		serve = []Port{{packet.ProtoTCP, 8080}, {packet.ProtoUDP, 8080}}
	}
	for _, p := range serve {
		x.ns.Listen(p.Proto, p.Port, w.traffic.server(c.Name, p.Proto, p.Port))
	}
	w.externals[c.Name] = x
	w.extOrder = append(w.extOrder, x)
	return x, nil
}

// attach gives a namespace an uplink to the fabric, with addresses.
func (w *World) attach(name string, ns *host.Netns, vlan uint16, addrs []netip.Addr) {
	ns.AddLink(Uplink, macOf(name), 1500, nil)
	if err := w.fabric.Attach(name, vlan, ns, Uplink); err != nil {
		w.problem(name + ": " + err.Error())
		return
	}
	for _, a := range addrs {
		if err := ns.AddAddress(Uplink, netip.PrefixFrom(a, w.bitsOf(a))); err != nil {
			w.problem(name + ": " + err.Error())
		}
	}
}

// bitsOf returns the length of the subnet that an address on the fabric is in.
func (w *World) bitsOf(a netip.Addr) int {
	for _, name := range slices.Sorted(maps.Keys(w.nets)) { // two may overlap
		if nw := w.nets[name]; nw.cidr.Contains(a) {
			return nw.cidr.Bits()
		}
	}
	if a.Is6() {
		return transportBits6
	}
	return transportBits4
}

// macOf returns the address of a machine on the fabric, made from its name.
func macOf(name string) packet.MAC {
	m := packet.MAC{0x02}
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	for i := 1; i < 6; i++ {
		m[i] = byte(h >> (8 * i))
	}
	return m
}

// partition says who is cut off from whom: members of different groups are; who is in no group is cut
// off from nobody.
type partition struct{ groups [][]string }

// apiServer is how a partition names the API server.
const apiServer = "api"

// SetPartition replaces the partition; the group "*" is everybody who is not named.
func (w *World) SetPartition(groups [][]string) error {
	p := &partition{}
	named := map[string]bool{}
	for _, g := range groups {
		for _, m := range g {
			named[m] = true
		}
	}
	for _, g := range groups {
		var members []string
		for _, m := range g {
			if m != "*" {
				members = append(members, m)
				continue
			}
			for _, n := range w.nodeOrder {
				if !named[n.name] {
					members = append(members, n.name)
				}
			}
			for _, x := range w.extOrder {
				if !named[x.name] {
					members = append(members, x.name)
				}
			}
			if !named[apiServer] {
				members = append(members, apiServer)
			}
		}
		p.groups = append(p.groups, members)
	}
	var machines [][]string // the API server has no port on the fabric
	for _, g := range p.groups {
		machines = append(machines, slices.DeleteFunc(slices.Clone(g), func(m string) bool { return m == apiServer }))
	}
	if err := w.fabric.Partition(machines); err != nil {
		return err
	}
	w.partition = p
	w.networkChanged()
	return nil
}

// Heal ends the partition.
func (w *World) Heal() {
	w.partition = nil
	w.fabric.Heal()
	w.networkChanged()
}

// networkChanged has everybody notice who can reach whom.
func (w *World) networkChanged() {
	w.disturbed()
	w.lastNetwork = w.queue.Now()
	w.gossip.changed()
	for _, n := range w.nodeOrder {
		if p := n.agent; p != nil && !p.dead && p.stream != nil {
			if w.apiReachable(n.name) {
				p.stream.Resume(false)
			} else {
				p.stream.Suspend()
			}
		}
	}
	w.pump()
}

func (p *partition) groupOf(name string) int {
	return slices.IndexFunc(p.groups, func(g []string) bool { return slices.Contains(g, name) })
}

// reachable reports whether two machines (or the API server) are not cut off from each other.
func (w *World) reachable(a, b string) bool {
	if w.partition == nil {
		return true
	}
	ga, gb := w.partition.groupOf(a), w.partition.groupOf(b)
	return ga < 0 || gb < 0 || ga == gb
}

func (w *World) apiReachable(node string) bool { return w.reachable(node, apiServer) }

// SetLoss drops a share of the frames between two machines, in percent.
func (w *World) SetLoss(a, b string, percent int) error { return w.fabric.Loss(a, b, percent) }

// onFrame hears of every frame that a machine sends on the fabric.
func (w *World) onFrame(from string, p *packet.Packet) {
	if p.Trace != 0 && p.IsIP() {
		w.traffic.left(from, p)
	}
	if w.OnFrame != nil {
		w.OnFrame(from, p)
	}
}

// nextHop returns the node that the host sends to what nobody on its link answers for; nil if there is
// no node.
func (x *External) nextHop() *Node {
	if x.next == nil && len(x.world.nodeOrder) > 0 {
		return x.world.nodeOrder[0]
	}
	return x.next
}

// prepare gives an external host a route to an address of its own subnet that nobody there answers
// for: it goes to the host's next hop (load-balancer addresses).
func (x *External) prepare(dst netip.Addr, next *Node) error {
	if x.net != "" {
		return nil // its router knows the way, and no node is on its link
	}
	if next == nil {
		next = x.nextHop()
	}
	if next == nil {
		return nil
	}
	via := next.transport(dst.Is6())
	if !via.IsValid() {
		return nil
	}
	if x.world.answersFor(x, dst) {
		via = netip.Addr{}
		if !x.onLink(dst) && !x.world.inNetwork(dst) {
			via = dst
		}
	}
	if p := x.world.peek; p != nil {
		if _, noted := p.via[externalDst{x, dst}]; !noted {
			p.via[externalDst{x, dst}] = x.via[dst]
		}
	}
	return x.route(dst, via)
}

// inNetwork reports whether an address is in a VLAN, to which the routes of all machines lead.
func (w *World) inNetwork(a netip.Addr) bool {
	return slices.ContainsFunc(slices.Sorted(maps.Keys(w.nets)), func(name string) bool { return w.nets[name].cidr.Contains(a) })
}

// onLink reports whether an address is in a subnet that the host is in.
func (x *External) onLink(dst netip.Addr) bool {
	return slices.ContainsFunc(x.ns.Addresses(), func(p netip.Prefix) bool { return p.Masked().Contains(dst) })
}

// route has the host reach an address by a next hop: by none if it is not valid, on its link if it is
// the address itself.
func (x *External) route(dst, via netip.Addr) error {
	old := x.via[dst]
	if old == via {
		return nil
	}
	route := ipCommand(dst) + " route %s " + netip.PrefixFrom(dst, dst.BitLen()).String()
	if old.IsValid() {
		// Somebody may have deleted it by hand.
		_, _ = x.ns.Exec(fmt.Sprintf(route, "del"))
		delete(x.via, dst)
	}
	if !via.IsValid() {
		return nil
	}
	x.via[dst] = via
	text := fmt.Sprintf(route, "add")
	if via != dst {
		text += " via " + via.String()
	}
	_, err := x.ns.Exec(text + " dev " + Uplink)
	return err
}

// answersFor reports whether a machine answers ARP for an address, or is known to own it while it is
// off or cut off.
func (w *World) answersFor(x *External, dst netip.Addr) bool {
	for _, n := range w.nodeOrder {
		if n.v4 == dst || n.v6 == dst {
			return true
		}
		if n.up && w.reachable(n.name, x.name) && n.ns.HasAddress(dst) {
			return true
		}
	}
	for _, o := range w.extOrder {
		if slices.Contains(o.addrs, dst) {
			return true
		}
	}
	return false
}

func ipCommand(a netip.Addr) string {
	if a.Is6() {
		return "ip -6"
	}
	return "ip"
}

// routes gives a machine on the nodes' subnet the routes to all networks.
func (w *World) routes(ns *host.Netns) {
	for _, name := range slices.Sorted(maps.Keys(w.nets)) {
		w.routeTo(ns, w.nets[name], Uplink)
	}
}
