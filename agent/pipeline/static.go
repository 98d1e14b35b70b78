package pipeline

import (
	"net/netip"

	of "towtank/datapath/openflow"
)

// flow builds one flow and adds it to the list.
func flow(l *List, cookie uint64, table uint8, priority uint16, match []of.Term, actions ...of.Action) {
	f, err := of.NewFlow(table, priority, cookie).Match(match...).Actions(actions...).Build()
	Add(l, f, err)
}

func terms(t ...of.Term) []of.Term { return t }

// Static adds the flows that every node has, whatever objects there are.
func (n *Node) Static(l *List) {
	if !n.Ready() {
		return
	}
	c := Cookie(CookieHost, "host")
	meter, err := of.NewMeter(of.Meter{ID: MeterRefuse, PktPS: true, Burst: true, Rate: 1000, BurstSize: 2000})
	Add(l, meter, err)
	if n.TUN != 0 {
		flow(l, c, TableClassifier, 200, terms(of.InPortIs(n.TUN)), regSource.Set(fromTunnel), regRouted.Set(1), of.Goto(TableUnSNAT))
		flow(l, c, TableL2Forwarding, 200, terms(of.EthDst.IsMAC(VirtualMAC)), regOut.Set(uint64(n.TUN)), regToPort.Set(1), of.Goto(TableCommit))
	}
	flow(l, c, TableClassifier, 200, terms(of.InPortIs(n.GW)), regSource.Set(fromGateway), of.Goto(TableUnSNAT))
	// Every packet to the gateway has the virtual MAC as source, unless a mark rides in it already.
	flow(l, c, TableL2Forwarding, 210, terms(regCarrier.Is(1), of.EthDst.IsMAC(n.GWMAC)), regOut.Set(uint64(n.GW)), regToPort.Set(1), of.Goto(TableCommit))
	flow(l, c, TableL2Forwarding, 200, terms(of.EthDst.IsMAC(n.GWMAC)), of.EthSrc.SetMAC(VirtualMAC), regOut.Set(uint64(n.GW)), regToPort.Set(1), of.Goto(TableCommit))
	flow(l, c, TableUnSNAT, 0, nil, of.Goto(TableZone))
	flow(l, c, TableState, 0, nil, of.Goto(TablePreRouting))
	flow(l, c, TableServiceLB, 1, terms(regLB.Is(lbSelected)), of.Goto(TableEndpointDNAT))
	flow(l, c, TableServiceLB, 0, nil, of.Goto(TableL3Forwarding))
	flow(l, c, TableEndpointDNAT, 210, terms(regNoEndpoint.Is(1)), of.Controller{Userdata: []byte{UserdataRefuse}, MeterID: MeterRefuse})
	// A learned endpoint that is gone: pick another one.
	flow(l, c, TableEndpointDNAT, 190, terms(regLB.Is(lbSelected)), regLB.Set(lbSelect), of.Resubmit(TableServiceLB))
	flow(l, c, TableL3Forwarding, 0, nil, regDest.Set(toGateway), of.Goto(TableL2Forwarding))
	flow(l, c, TableEgressMark, 0, nil, regDest.Set(toGateway), of.Goto(TableL2Forwarding))
	flow(l, c, TableEgressQoS, 0, nil, of.Goto(TableL2Forwarding))
	flow(l, c, TableSNATMark, 0, nil, of.Goto(TableSNAT))
	flow(l, c, TableSNAT, 0, nil, of.Goto(TableL2Forwarding))
	flow(l, c, TableCommit, 0, nil, of.Goto(TableOutput))
	flow(l, c, TableOutput, 200, terms(regToPort.Is(1)), of.OutputReg(regOut))
	for _, v6 := range n.Cfg.Families() {
		n.staticFamily(l, c, v6)
	}
}

func (n *Node) staticFamily(l *List, c uint64, v6 bool) {
	ip := of.IPFamily(v6)
	gw, _ := n.Cfg.Gateway(v6)
	var podCIDR netip.Prefix
	for _, p := range n.Cfg.PodCIDRs {
		if p.Addr().Is6() == v6 {
			podCIDR = p
		}
	}
	main, snat := zoneMain(v6), zoneSNAT(v6)
	newConn := of.CTStateText("+new+trk")

	flow(l, c, TableRoot, 200, terms(ip), of.Goto(TableClassifier))
	if v6 {
		flow(l, c, TableRoot, 210, terms(of.ICMP6, of.ICMPv6Type.Is(135)), of.Goto(TableNDGuard))
		flow(l, c, TableRoot, 210, terms(of.ICMP6, of.ICMPv6Type.Is(136)), of.Goto(TableNDGuard))
		flow(l, c, TableRoot, 205, terms(of.IPv6, of.IPv6Dst.IsPrefix(netip.MustParsePrefix("ff00::/8"))), of.Goto(TableNDGuard))
		flow(l, c, TableNDGuard, 200, terms(of.IPv6, of.InPortIs(n.GW)), of.Normal())
	} else {
		flow(l, c, TableRoot, 200, terms(of.ARP), of.Goto(TableARPGuard))
		flow(l, c, TableARPGuard, 200, terms(of.ARP, of.InPortIs(n.GW), of.ARPSPA.IsAddr(gw), of.ARPSHA.IsMAC(n.GWMAC)), of.Normal())
	}
	flow(l, c, TableClassifier, 210, terms(ip, of.InPortIs(n.GW), of.SrcAddr(gw)),
		regSource.Set(fromGateway), regFromLocal.Set(1), of.Goto(TableUnSNAT))

	// A reply to a translated source goes through that zone first, then through the other.
	for _, a := range []netip.Addr{ServiceVIP(v6), gw} {
		flow(l, c, TableUnSNAT, 200, terms(ip, of.DstAddr(a)), of.CT{Zone: snat, NAT: of.StoredNAT(), Table: of.ToTable(TableZone)})
	}
	flow(l, c, TableZone, 200, terms(ip), of.CT{Zone: main, NAT: of.StoredNAT(), Table: of.ToTable(TableState)})
	flow(l, c, TableState, 200, terms(ip, of.CTStateText("+inv+trk")))
	flow(l, c, TableState, 190, terms(ip, of.CTStateText("-new+trk"), ctService.Is(1)), regRouted.Set(1), of.Goto(TableL3Forwarding))
	flow(l, c, TableState, 180, terms(ip, of.CTStateText("-new+trk")), of.Goto(TableL3Forwarding))

	flow(l, c, TablePreRouting, 200, terms(ip), regLB.Set(lbSelect),
		of.Resubmit(TableNodePortMark), of.Resubmit(TableAffinity), of.Resubmit(TableServiceLB))
	if n.Cfg.ProxyAll {
		flow(l, c, TableNodePortMark, 200, terms(ip, of.DstAddr(NodePortVIP(v6))), regNodePort.Set(1))
	}
	for _, cidr := range n.Cfg.ServiceCIDRs {
		if cidr.Addr().Is6() == v6 {
			// An address of the Service network that no Service has leads nowhere.
			flow(l, c, TableServiceLB, 10, terms(ip, of.Dst(cidr), regLB.Is(lbSelect)))
			flow(l, c, TableEgressMark, 210, terms(ip, of.Dst(cidr)), regDest.Set(toGateway), of.Goto(TableL2Forwarding))
		}
	}

	n.dsrStatic(l, c, v6)

	flow(l, c, TableL3Forwarding, 210, terms(ip, of.DstAddr(gw)), of.EthDst.SetMAC(n.GWMAC), regDest.Set(toGateway), of.Goto(TableDecTTL))
	flow(l, c, TableL3Forwarding, 210, terms(ip, of.CTStateText("+rpl+trk"), ctSource.Is(fromGateway)),
		of.EthDst.SetMAC(n.GWMAC), regDest.Set(toGateway), of.Goto(TableDecTTL))
	flow(l, c, TableL3Forwarding, 200, terms(ip, regRouted.Is(0), of.Dst(podCIDR)), of.Goto(TableL2Forwarding))
	// A Pod address that no Pod of this node has is not sent anywhere.
	flow(l, c, TableL3Forwarding, 195, terms(ip, of.Dst(podCIDR)))
	flow(l, c, TableL3Forwarding, 190, terms(ip, of.CTStateText("-rpl+trk"), regSource.Is(fromPod)), of.Goto(TableEgressMark))
	flow(l, c, TableL3Forwarding, 190, terms(ip, of.CTStateText("-rpl+trk"), regSource.Is(fromTunnel)), of.EthDst.SetMAC(n.GWMAC), of.Goto(TableEgressMark))
	flow(l, c, TableL3Forwarding, 180, terms(ip, regSource.Is(fromGateway), regRouted.Is(1), ctService.Is(1)),
		of.EthDst.SetMAC(n.GWMAC), regDest.Set(toGateway), of.Goto(TableDecTTL))

	bypass := append([]netip.Prefix(nil), n.Cfg.ExceptCIDRs...)
	if own, ok := n.Cfg.Transport(v6); ok {
		bypass = append(bypass, single(own))
	}
	for _, p := range bypass {
		if p.Addr().Is6() == v6 {
			flow(l, c, TableEgressMark, 210, terms(ip, of.Dst(p)), regDest.Set(toGateway), of.Goto(TableL2Forwarding))
		}
	}
	// What came by tunnel to leave here, but not to an Egress IP of this node, does not leave: neither a
	// new connection nor one that another node began with its Egress IP.
	flow(l, c, TableEgressMark, 190, terms(ip, regSource.Is(fromTunnel)))

	flow(l, c, TableDecTTL, 210, terms(ip, regSource.Is(fromGateway)), of.Goto(TableSNATMark)) // the host took one already
	flow(l, c, TableDecTTL, 200, terms(ip), of.DecTTL(), of.Goto(TableSNATMark))

	toSNAT := of.ToTable(TableSNAT)
	flow(l, c, TableSNATMark, 200, terms(ip, newConn, regSource.Is(fromGateway), regDest.Is(toGateway)),
		of.CT{Commit: true, Zone: main, Table: toSNAT, Exec: []of.Action{ctSNAT.Set(1), ctHairpin.Set(1), of.Move(regSource, ctSource)}})
	// Everything from the gateway into the tunnel is tracked in the SNAT zone, also what has the
	// gateway's address already: two connections of one source port must not share a reply.
	flow(l, c, TableSNATMark, 200, terms(ip, newConn, regSource.Is(fromGateway), regDest.Is(toTunnel)),
		of.CT{Commit: true, Zone: main, Table: toSNAT, Exec: []of.Action{ctSNAT.Set(1), of.Move(regSource, ctSource)}})
	toL2 := of.ToTable(TableL2Forwarding)
	// The marks are written in this zone too: those of the other zone cannot be read after it.
	hairpin := []of.Action{ctService.Set(1), ctSNAT.Set(1), ctHairpin.Set(1)}
	flow(l, c, TableSNAT, 200, terms(ip, newConn, regSource.Is(fromGateway), ctHairpin.Is(1)),
		of.CT{Commit: true, Zone: snat, Table: toL2, NAT: of.SNAT(ServiceVIP(v6)), Exec: hairpin})
	flow(l, c, TableSNAT, 200, terms(ip, newConn, regSource.Is(fromPod), ctHairpin.Is(1)),
		of.CT{Commit: true, Zone: snat, Table: toL2, NAT: of.SNAT(ServiceVIP(v6)), Exec: hairpin})
	flow(l, c, TableSNAT, 190, terms(ip, newConn, regSource.Is(fromGateway), ctSNAT.Is(1)),
		of.CT{Commit: true, Zone: snat, Table: toL2, NAT: of.SNAT(gw), Exec: hairpin[:2]})
	flow(l, c, TableSNAT, 200, terms(ip, of.CTStateText("-new-rpl+trk"), ctSNAT.Is(1)), of.CT{Zone: snat, Table: toL2, NAT: of.StoredNAT()})

	flow(l, c, TableCommit, 200, terms(ip, newConn, ctSNAT.Is(0)),
		of.CT{Commit: true, Zone: main, Table: of.ToTable(TableOutput), Exec: []of.Action{of.Move(regSource, ctSource)}})
	flow(l, c, TableOutput, 210, terms(ip, regToPort.Is(1), ctHairpin.Is(1)), of.OutputInPort())
}

// NodePortAddress adds the flow that knows an address of this node as one that serves NodePorts.
func (n *Node) NodePortAddress(l *List, a netip.Addr) {
	flow(l, Cookie(CookieHost, "host"), TableNodePortMark, 200, terms(of.IPFamily(a.Is6()), of.DstAddr(a)), regNodePort.Set(1))
}
