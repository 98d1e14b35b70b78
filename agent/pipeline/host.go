package pipeline

import (
	"fmt"
	"net/netip"

	"towtank/datapath/host"
)

// Chains and sets of ours on the host.
const (
	chainMark        = "TOWTANK-PREROUTING"  // mangle
	chainPrerouting  = "TOWTANK-PREROUTING"  // nat
	chainOutput      = "TOWTANK-OUTPUT"      // nat
	chainPostrouting = "TOWTANK-POSTROUTING" // nat
	chainForward     = "TOWTANK-FORWARD"     // filter
	setPods          = "TOWTANK-POD-IP"
	setNodePorts     = "TOWTANK-NODEPORT"
	setExternals     = "TOWTANK-EXTERNAL" // ports of external addresses that the node itself has
)

// Bands of priority in the chains.
const (
	bandCarrier    = 100 // mangle: source MAC to mark
	bandSave       = 200 // mangle: mark to and from the connection
	bandClosed     = 300 // mangle: what should have a mark and has none
	bandEgress     = 100 // nat: Egress SNAT
	bandExternal   = 100 // nat: external addresses that the node itself has
	bandMasquerade = 200 // nat: everything else that leaves
)

func family(v6 bool) host.Family {
	if v6 {
		return host.V6
	}
	return host.V4
}

func setName(base string, v6 bool) string {
	if v6 {
		return base + "6"
	}
	return base
}

func rule(l *List, v6 bool, table, chain string, priority int, format string, args ...any) {
	r, err := host.NewIPTables(host.IPTables{
		Family: family(v6), Table: table, Chain: chain, Priority: priority, Rule: fmt.Sprintf(format, args...),
	})
	Add(l, r, err)
}

func sysctl(l *List, name, value string) {
	s, err := host.NewSysctl(host.Sysctl{Name: name, Value: value})
	Add(l, s, err)
}

// Gateway adds what can be on the host once the gateway port is a device there: its addresses, the
// way to the Service network, and the settings that the pipeline relies on.
func (n *Node) Gateway(l *List) {
	link, err := host.NewLink(host.Link{Name: GatewayPort, Type: host.LinkDevice, MTU: n.Cfg.MTU, MAC: hostMAC(n.GWMAC), Alias: host.AliasPrefix + "gateway"})
	Add(l, link, err)
	sysctl(l, "net.ipv4.ip_forward", "1")
	// The bridge accepts ARP from the gateway only in the name of the gateway's address.
	sysctl(l, "net.ipv4.conf."+GatewayPort+".arp_announce", "1")
	if n.HasDSR() {
		// The answer of an endpoint comes from the bridge in the name of the address dialled, which may be
		// one that this node holds.
		sysctl(l, "net.ipv4.conf."+GatewayPort+".accept_local", "1")
	}
	for _, v6 := range n.Cfg.Families() {
		gw, _ := n.Cfg.Gateway(v6)
		if v6 {
			sysctl(l, "net.ipv6.conf.all.forwarding", "1")
		}
		for _, cidr := range n.Cfg.PodCIDRs {
			if cidr.Addr().Is6() == v6 {
				a, err := host.NewAddress(host.Address{Prefix: netip.PrefixFrom(gw, cidr.Bits()), Link: GatewayPort})
				Add(l, a, err)
			}
		}
		nb, err := host.NewNeighbour(host.Neighbour{IP: ServiceVIP(v6), Link: GatewayPort, MAC: hostMAC(VirtualMAC)})
		Add(l, nb, err)
		r, err := host.NewRoute(host.Route{Dst: single(ServiceVIP(v6)), Dev: GatewayPort})
		Add(l, r, err)
		n.viaBridge(l, single(NodePortVIP(v6)))
		for _, c := range n.Cfg.ServiceCIDRs {
			if c.Addr().Is6() == v6 {
				n.viaBridge(l, c)
			}
		}
	}
}

// viaBridge adds the route that takes a destination from the host to the bridge.
func (n *Node) viaBridge(l *List, dst netip.Prefix) {
	v6 := dst.Addr().Is6()
	r, err := host.NewRoute(host.Route{Dst: dst, Via: ServiceVIP(v6), Dev: GatewayPort, Onlink: true})
	Add(l, r, err)
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Netfilter adds the chains, the jumps to them, the sets, and the rules that do not depend on any
// object of the API.
func (n *Node) Netfilter(l *List) {
	for _, v6 := range n.Cfg.Families() {
		n.netfilter(l, v6)
	}
}

func (n *Node) netfilter(l *List, v6 bool) {
	f := family(v6)
	for _, c := range []struct{ table, builtin, chain string }{
		{"mangle", "PREROUTING", chainMark},
		{"nat", "PREROUTING", chainPrerouting},
		{"nat", "OUTPUT", chainOutput},
		{"nat", "POSTROUTING", chainPostrouting},
		{"filter", "FORWARD", chainForward},
	} {
		chain, err := host.NewChain(f, c.table, c.chain)
		Add(l, chain, err)
		jump, err := host.NewJump(f, c.table, c.builtin, c.chain, 0)
		Add(l, jump, err)
	}
	for _, of := range []struct {
		name string
		typ  host.SetType
	}{{setPods, host.SetNet}, {setNodePorts, host.SetIPPort}, {setExternals, host.SetIPPort}} {
		s, err := host.NewIPSet(host.IPSet{Name: setName(of.name, v6), Type: of.typ, Family: f})
		Add(l, s, err)
	}
	var podCIDR netip.Prefix
	for _, c := range n.Cfg.PodCIDRs {
		if c.Addr().Is6() == v6 {
			podCIDR = c.Masked()
		}
	}
	pods, err := host.NetEntry(setName(setPods, v6), podCIDR)
	Add(l, pods, err)

	// conntrack keeps the mark of a connection's first packet: it says which connections an Egress began.
	rule(l, v6, "mangle", chainMark, bandSave, "-i %s -m conntrack --ctstate NEW -m mark ! --mark 0x0/0xff -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff", GatewayPort)
	if n.Carrier {
		// Only the first packet brings its mark as a source MAC. What comes with a carrier that is not known has no
		// mark, and must not leave (it would leave with the node's address).
		rule(l, v6, "mangle", chainMark, bandSave+10, "-i %s -m conntrack --ctstate RELATED,ESTABLISHED --ctdir ORIGINAL -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff", GatewayPort)
		rule(l, v6, "mangle", chainMark, bandClosed, "-i %s -m mac ! --mac-source %s -m conntrack --ctstate NEW -m mark --mark 0x0/0xff -j DROP", GatewayPort, VirtualMAC)
	}
	if n.Cfg.ProxyAll {
		for _, chain := range []string{chainPrerouting, chainOutput} {
			rule(l, v6, "nat", chain, bandMasquerade, "-m set --match-set %s dst,dst -j DNAT --to-destination %s", setName(setNodePorts, v6), NodePortVIP(v6))
		}
	}
	rule(l, v6, "nat", chainPostrouting, bandMasquerade, "-s %s ! -o %s -m set ! --match-set %s dst -j MASQUERADE", podCIDR, GatewayPort, setName(setPods, v6))
	// The node's own connections enter the bridge with the gateway's address, whatever address they had.
	rule(l, v6, "nat", chainPostrouting, bandMasquerade+10, "-o %s -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE", GatewayPort)
	rule(l, v6, "nat", chainPostrouting, bandMasquerade+20, "-s %s -j MASQUERADE", ServiceVIP(v6))
	// What the kernel does not know as a connection is not translated: it would leave with a Pod's address.
	rule(l, v6, "filter", chainForward, bandClosed-bandMasquerade, "-i %s -m conntrack --ctstate INVALID -m set --match-set %s src -m set ! --match-set %s dst -j DROP",
		GatewayPort, setName(setPods, v6), setName(setPods, v6))
	rule(l, v6, "filter", chainForward, bandMasquerade, "-i %s -j ACCEPT", GatewayPort)
	rule(l, v6, "filter", chainForward, bandMasquerade, "-o %s -j ACCEPT", GatewayPort)
}

// Peer adds the host's way to the Pods of another node.
func (n *Node) PeerRoutes(l *List, cidr netip.Prefix, peer netip.Addr) {
	v6 := cidr.Addr().Is6()
	pods, err := host.NetEntry(setName(setPods, v6), cidr)
	Add(l, pods, err)
	if n.Cfg.NeedsTunnel(peer) {
		gw := peerGateway(cidr)
		nb, err := host.NewNeighbour(host.Neighbour{IP: gw, Link: GatewayPort, MAC: hostMAC(VirtualMAC)})
		Add(l, nb, err)
		r, err := host.NewRoute(host.Route{Dst: cidr, Via: gw, Dev: GatewayPort, Onlink: true})
		Add(l, r, err)
		return
	}
	if peer.Is6() != v6 || !n.Cfg.TransportSubnet(v6).Contains(peer) {
		return // the network between the nodes knows the way, or nobody does
	}
	r, err := host.NewRoute(host.Route{Dst: cidr, Via: peer, Dev: n.Cfg.Uplink})
	Add(l, r, err)
}

func peerGateway(cidr netip.Prefix) netip.Addr { return cidr.Masked().Addr().Next() }

// ExternalAddress adds the host's way to a load-balancer or external address of a Service.
func (n *Node) ExternalAddress(l *List, ip netip.Addr) { n.viaBridge(l, single(ip)) }

// NodePort adds what has the host send a NodePort on one of its addresses to the bridge.
func (n *Node) NodePort(l *List, node netip.Addr, proto uint8, port uint16) {
	e, err := host.PortEntry(setName(setNodePorts, node.Is6()), node, proto, port)
	Add(l, e, err)
}

// OwnExternal has the host send a port of an external address that it has itself to the bridge, under
// the address that stands in for it: the kernel would deliver its own address to itself. Unlike
// NodePorts, which the bridge knows by their number, such ports are told apart by their addresses, so
// each has its own stand-in.
func (n *Node) OwnExternal(l *List, ip, standIn netip.Addr, proto uint8, port uint16) {
	v6 := ip.Is6()
	e, err := host.PortEntry(setName(setExternals, v6), ip, proto, port)
	Add(l, e, err)
	for _, chain := range []string{chainPrerouting, chainOutput} {
		rule(l, v6, "nat", chain, bandExternal, "-d %s -m set --match-set %s dst,dst -j DNAT --to-destination %s", single(ip), setName(setExternals, v6), standIn)
	}
	n.viaBridge(l, single(standIn))
}

// StandInOf reads address and stand-in from a rule that OwnExternal made.
func StandInOf(t host.IPTables) (ip, standIn netip.Addr, ok bool) {
	if t.Table != "nat" || t.Chain != chainPrerouting || t.Priority != bandExternal {
		return netip.Addr{}, netip.Addr{}, false
	}
	var dst, set, to string
	if _, err := fmt.Sscanf(t.Rule, "-d %s -m set --match-set %s dst,dst -j DNAT --to-destination %s", &dst, &set, &to); err != nil {
		return netip.Addr{}, netip.Addr{}, false
	}
	p, err1 := netip.ParsePrefix(dst)
	a, err2 := netip.ParseAddr(to)
	return p.Addr(), a, err1 == nil && err2 == nil
}

// EgressRules adds the host's part of an Egress IP that is local: the rule that reads the mark and
// the one that sets the source.
func (n *Node) EgressRules(l *List, ip netip.Addr, mark uint8) {
	v6 := ip.Is6()
	if n.Carrier {
		rule(l, v6, "mangle", chainMark, bandCarrier, "-i %s -m mac --mac-source %s -m conntrack --ctstate NEW -j MARK --set-xmark 0x%x/0xff", GatewayPort, CarrierMAC(mark), mark)
	}
	rule(l, v6, "nat", chainPostrouting, bandEgress, "! -o %s -m mark --mark 0x%x/0xff -j SNAT --to-source %s", GatewayPort, mark, ip)
}

// EgressAddress adds the address itself, on the link that it is served on.
func (n *Node) EgressAddress(l *List, ip netip.Addr) {
	// A deprecated IPv6 address is never chosen as a source by itself: of two addresses on the link the
	// node's own must stay the one (RFC 6724, rule 3 before rule 8).
	a, err := host.NewAddress(host.Address{Prefix: single(ip), Link: n.Cfg.Uplink, Deprecated: ip.Is6()})
	Add(l, a, err)
}

// EgressMarkOf reads IP and mark from a rule that EgressRules made.
func EgressMarkOf(t host.IPTables) (netip.Addr, uint8, bool) {
	if t.Table != "nat" || t.Chain != chainPostrouting || t.Priority != bandEgress {
		return netip.Addr{}, 0, false
	}
	var mark uint8
	var to string
	if _, err := fmt.Sscanf(t.Rule, "! -o "+GatewayPort+" -m mark --mark 0x%x/0xff -j SNAT --to-source %s", &mark, &to); err != nil {
		return netip.Addr{}, 0, false
	}
	ip, err := netip.ParseAddr(to)
	return ip, mark, err == nil
}
