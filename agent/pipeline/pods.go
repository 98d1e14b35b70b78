package pipeline

import (
	"net/netip"

	of "towtank/datapath/openflow"
)

var linkLocal6 = netip.MustParsePrefix("fe80::/10")

// Sandbox adds the flows of one interface of a container: what it may send, and how it is reached.
func (n *Node) Sandbox(l *List, unit string, ofport uint32, mac of.MAC, ips []netip.Prefix) {
	c := Cookie(CookieSandbox, unit)
	flow(l, c, TableL2Forwarding, 200, terms(of.EthDst.IsMAC(mac)), regOut.Set(uint64(ofport)), regToPort.Set(1), of.Goto(TableCommit))
	for _, p := range ips {
		a := p.Addr()
		v6 := a.Is6()
		ip := of.IPFamily(v6)
		in := of.InPortIs(ofport)
		if v6 {
			n.sandboxND(l, c, in, mac, a)
		} else {
			flow(l, c, TableARPGuard, 200, terms(of.ARP, in, of.EthSrc.IsMAC(mac), of.ARPSPA.IsAddr(a), of.ARPSHA.IsMAC(mac)), of.Normal())
		}
		flow(l, c, TableClassifier, 190, terms(ip, in, of.EthSrc.IsMAC(mac), of.SrcAddr(a)),
			regSource.Set(fromPod), regFromLocal.Set(1), of.Goto(TableUnSNAT))
		flow(l, c, TableL3Forwarding, 200, terms(ip, regRouted.Is(1), of.DstAddr(a)),
			of.EthSrc.SetMAC(n.GWMAC), of.EthDst.SetMAC(mac), of.Goto(TableDecTTL))
		// A Pod that reaches itself through a Service must see another source than itself.
		flow(l, c, TableSNATMark, 190, terms(ip, of.CTStateText("+new+trk"), of.SrcAddr(a), of.DstAddr(a)),
			of.CT{Commit: true, Zone: zoneMain(v6), Table: of.ToTable(TableSNAT), Exec: []of.Action{ctSNAT.Set(1), ctHairpin.Set(1), of.Move(regSource, ctSource)}})
	}
}

// sandboxND lets neighbour discovery pass in the Pod's own name: from its address, from a link-local
// one, and from none while it checks for duplicates.
func (n *Node) sandboxND(l *List, c uint64, in of.Term, mac of.MAC, a netip.Addr) {
	src := of.EthSrc.IsMAC(mac)
	for _, p := range []netip.Prefix{single(a), linkLocal6, netip.PrefixFrom(netip.IPv6Unspecified(), 128)} {
		flow(l, c, TableNDGuard, 210, terms(of.ICMP6, in, src, of.ICMPv6Type.Is(135), of.Src(p)), of.Normal())
	}
	for _, p := range []netip.Prefix{single(a), linkLocal6} {
		flow(l, c, TableNDGuard, 210, terms(of.ICMP6, in, src, of.ICMPv6Type.Is(136), of.NDTarget.IsPrefix(p)), of.Normal())
	}
}

// PeerFlows adds the flows towards the Pods of another node, and those that keep Egress from traffic
// to the node itself.
func (n *Node) PeerFlows(l *List, unit string, cidr netip.Prefix, peer netip.Addr) {
	c := Cookie(CookieNode, unit)
	ip := of.IPFamily(cidr.Addr().Is6())
	if n.Cfg.NeedsTunnel(peer) {
		flow(l, c, TableL3Forwarding, 200, terms(ip, of.Dst(cidr)), append(n.toTunnel(peer), of.Goto(TableDecTTL))...)
		n.dsrPeer(l, c, cidr, peer)
		return
	}
	flow(l, c, TableL3Forwarding, 200, terms(ip, of.Dst(cidr)), of.EthDst.SetMAC(n.GWMAC), regDest.Set(toGateway), of.Goto(TableDecTTL))
}

// PeerAddress adds the flow that keeps Egress from traffic to an address of another node.
func (n *Node) PeerAddress(l *List, unit string, a netip.Addr) {
	flow(l, Cookie(CookieNode, unit), TableEgressMark, 210, terms(of.IPFamily(a.Is6()), of.DstAddr(a)), regDest.Set(toGateway), of.Goto(TableL2Forwarding))
}

// toTunnel returns the actions that send a packet to a peer.
func (n *Node) toTunnel(peer netip.Addr) []of.Action {
	dst := of.TunDst
	if peer.Is6() {
		dst = of.TunIPv6Dst
	}
	return []of.Action{of.EthSrc.SetMAC(n.GWMAC), of.EthDst.SetMAC(VirtualMAC), dst.SetAddr(peer), regDest.Set(toTunnel)}
}
