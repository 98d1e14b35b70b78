package pipeline

import (
	"net/netip"

	of "towtank/datapath/openflow"
)

// Direct server return: a client outside the cluster dials a load-balancer or external address at one
// node, and the endpoint is on another. The first node translates nothing: it sends the packet, as it
// is, to the endpoint's node, which picks one of its own endpoints and answers the client itself.
//
//	client ──▶ n1 (picks a node) ──tunnel, to the address dialled──▶ n2 (picks an endpoint) ──▶ Pod
//	   ▲                                                              │
//	   └──────────────── answer, from the address dialled ────────────┘
//
// The first node sees one direction only, so it tracks nothing: every packet of the connection is new
// to it, and a learned flow for the five-tuple keeps it on its way. The flow ends when nothing came for
// dsrIdleSeconds; then the group picks again, and by the same hash the same endpoint, if it is still one.
//
// Endpoints that no tunnel leads to (on a node's own network, outside the cluster, without
// encapsulation) are translated as ever.
const dsrIdleSeconds = 300

// HasDSR reports whether load-balancer addresses are served by direct server return: it needs tunnels.
func (n *Node) HasDSR() bool { return n.Cfg.LoadBalancerMode == "dsr" && n.Cfg.HasTunnel() }

// dsrFrontend adds what remembers where a connection to an address goes. It is forgotten as affinity is.
func (s *Service) dsrFrontend(l *List, c uint64, base []of.Term, f *Frontend) {
	eth, src, dst := uint64(of.EthTypeIPv4), of.IPSrc, of.IPDst
	if s.V6 {
		eth, src, dst = uint64(of.EthTypeIPv6), of.IPv6Src, of.IPv6Dst
	}
	flow(l, c, TableDSR, 200, append(terms(regDSRKnown.Is(0)), base...),
		of.Learn{
			Table: TableAffinity, Priority: 210, IdleTimeout: dsrIdleSeconds, Cookie: s.learnCookie("dsr", f), DeleteLearned: true,
			Specs: []of.LearnSpec{
				of.LearnMatchValue(of.EthType.All(), eth),
				of.LearnMatchValue(of.IPProto.All(), uint64(s.Proto)),
				of.LearnMatchValue(regSource, fromGateway),
				of.LearnMatch(src),
				of.LearnMatch(dst),
				of.LearnMatch(of.SrcPortField(s.Proto)),
				of.LearnMatch(of.DstPortField(s.Proto)),
				of.LearnLoadFrom(regPort, regPort),
				of.LearnLoadFrom(s.regEndpoint().All(), s.regEndpoint().All()),
				of.LearnLoadFrom(regService, regService),
				of.LearnLoad(regLB, lbSelected),
				of.LearnLoad(regRouted, 1),
				of.LearnLoad(regExternal, 1),
				of.LearnLoad(regDSR, 1),
				of.LearnLoad(regDSRKnown, 1),
			},
		},
		regDSRKnown.Set(1), of.Resubmit(TableDSR))
}

// dsrEntry adds the ways into an address for clients outside: from the gateway, the endpoint's node is
// picked; from the tunnel, another node did that already, and one of our own endpoints is picked.
func (s *Service) dsrEntry(l *List, c uint64, match []of.Term, to func(group uint32) []of.Action) {
	with := func(t ...of.Term) []of.Term { return append(match[:len(match):len(match)], t...) }
	flow(l, c, TableServiceLB, 205, with(regSource.Is(fromGateway), regFromLocal.Is(0)), append([]of.Action{regDSR.Set(1)}, to(s.ClusterGroup)...)...)
	if s.NodeGroup == 0 {
		// The other node was not told yet that the last endpoint here is gone.
		flow(l, c, TableServiceLB, 210, with(regSource.Is(fromTunnel)))
		return
	}
	flow(l, c, TableServiceLB, 210, with(regSource.Is(fromTunnel)), to(s.NodeGroup)...)
}

// dsrEndpoint adds the way to an endpoint of another node.
func (s *Service) dsrEndpoint(l *List, c, group uint64, b Backend) {
	match := s.picked(group, b)
	flow(l, c, TableEndpointDNAT, 205, append(match[:], regDSR.Is(1)), of.Goto(TableDSR))
}

// dsrStatic adds the way back for endpoints that no tunnel leads to.
func (n *Node) dsrStatic(l *List, c uint64, v6 bool) {
	if n.HasDSR() {
		flow(l, c, TableDSR, 0, terms(of.IPFamily(v6)), regDSR.Set(0), of.Resubmit(TableEndpointDNAT))
	}
}

// dsrPeer adds the way to endpoints of a peer. The host took one from the TTL already.
func (n *Node) dsrPeer(l *List, c uint64, cidr netip.Prefix, peer netip.Addr) {
	if !n.HasDSR() {
		return
	}
	v6 := cidr.Addr().Is6()
	endpoint := regEndpoint4.Field
	if v6 {
		endpoint = regEndpoint6.Field
	}
	flow(l, c, TableDSR, 210, terms(of.IPFamily(v6), regDSRKnown.Is(1), endpoint.IsPrefix(cidr)),
		append(n.toTunnel(peer), of.Output(n.TUN))...)
}
