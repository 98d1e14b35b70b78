package pipeline

import (
	"fmt"
	"net/netip"
	"slices"

	of "towtank/datapath/openflow"
)

// Frontend is one address and port that a Service port is reached by.
type Frontend struct {
	Addr     netip.Addr // NodePortVIP for a NodePort: it is matched by mark, not by address
	Port     uint16
	NodePort bool
	External bool // NodePort, load-balancer or external address
	// Local is set if the policy for this address is Local.
	Local bool
	// DSR is set if the node of the endpoint is to answer clients outside the cluster itself.
	DSR bool
	// Sources are the only clients that may use the address; empty: everybody.
	Sources []netip.Prefix
}

// Backend is one endpoint to be picked.
type Backend struct {
	netip.AddrPort
	// Local is set if it is on this node.
	Local bool
}

// Service is a Service port of one family as the pipeline sees it.
type Service struct {
	Unit  string
	Proto uint8
	V6    bool
	// ClusterGroup and LocalGroup are the groups of the two policies; NodeGroup has the endpoints of the
	// cluster group that are on this node, for direct server return. 0: not needed.
	ClusterGroup, LocalGroup, NodeGroup uint32
	// SubGroups gives the id of the i-th part of a group that is too large for one message.
	SubGroups func(group uint32, i int) uint32
	// AffinitySeconds is how long a client keeps its endpoint, 0 to 65535; 0: no affinity.
	AffinitySeconds uint16
	Frontends       []Frontend
	// Cluster, Local and Node are the endpoints of the groups.
	Cluster, Local, Node []Backend
	// Made has what was made of the endpoints before, and then what is made of them now. nil: nothing is kept.
	Made *Endpoints
	// LocalOnlyElsewhere is set if there are endpoints, but none for the Local policy: drop.
	LocalOnlyElsewhere bool
}

// maxBuckets is how many buckets go in one group: a bucket takes 88 bytes on the wire at the most,
// and a message has at most 65,535 bytes.
const maxBuckets = 600

// dpHashBuckets is up to how many buckets OVS spreads by its own hash; above that it falls back and
// stops spreading UDP (measured on OVS 3.1).
const dpHashBuckets = 256

// ServiceFlows adds the groups and flows of a Service port.
func (n *Node) ServiceFlows(l *List, s *Service) {
	c := Cookie(CookieService, s.Unit)
	if s.Made == nil {
		s.Made = &Endpoints{}
	}
	s.Made.begin(s.Proto, s.nextTable(), len(s.Cluster)+len(s.Local)+len(s.Node))
	dsr := slices.ContainsFunc(s.Frontends, func(f Frontend) bool { return f.DSR })
	for _, g := range []struct {
		id       uint32
		backends []Backend
	}{{s.ClusterGroup, s.Cluster}, {s.LocalGroup, s.Local}, {s.NodeGroup, s.Node}} {
		if g.id == 0 {
			continue
		}
		first := len(s.Made.made)
		n.group(l, s, g.id, g.backends)
		for i, b := range g.backends {
			s.Made.add(l, s, c, first+i, b)
			if dsr && !b.Local && g.id == s.ClusterGroup {
				s.dsrEndpoint(l, c, uint64(g.id), b)
			}
		}
	}
	s.Made.end()
	for i := range s.Frontends {
		s.frontend(l, c, &s.Frontends[i])
	}
}

// nextTable is where a packet goes when its endpoint is picked.
func (s *Service) nextTable() uint8 {
	if s.AffinitySeconds > 0 {
		return TableServiceLB
	}
	return TableEndpointDNAT
}

// endpoint returns the translation of one endpoint. It is the group's own: an endpoint that another
// Service still has, or the other policy, cannot be reached through a learned flow of this one.
func (s *Service) endpoint(c, id uint64, b Backend) (*of.Flow, error) {
	match := s.picked(id, b)
	return of.NewFlow(TableEndpointDNAT, 200, c).Match(match[:]...).Actions(
		of.CT{Commit: true, Zone: zoneMain(s.V6), Table: of.ToTable(TableL3Forwarding), NAT: of.DNAT(b.Addr(), b.Port()), Exec: markService}).Build()
}

// What all Services have is made once. Nobody changes it.
var (
	markService = []of.Action{ctService.Set(1)}
	routed      = regRouted.Set(1)
	selected    = regLB.Set(lbSelected)
)

// picked matches packets for which the endpoint was picked from the group.
func (s *Service) picked(group uint64, b Backend) [4]of.Term {
	return [...]of.Term{of.L4(s.V6, s.Proto), regService.Is(group), regPortLB.Is(lbSelected<<16 | uint64(b.Port())), s.regEndpoint().IsAddr(b.Addr())}
}

func (s *Service) regEndpoint() of.Field {
	if s.V6 {
		return regEndpoint6.Field
	}
	return regEndpoint4.Field
}

// frontend adds the flows of one address: who may come in, to which group, and what is remembered.
func (s *Service) frontend(l *List, c uint64, f *Frontend) {
	base := terms(of.L4(s.V6, s.Proto), of.DstPort(s.Proto, f.Port))
	if f.NodePort {
		base = append(base, of.IPFamily(s.V6), regNodePort.Is(1))
	} else {
		base = append(base, of.DstAddr(f.Addr))
	}
	load := []of.Action{routed, selected}
	if s.AffinitySeconds > 0 {
		load[1] = regLB.Set(lbLearn)
	}
	if f.External {
		load = append(load, regExternal.Set(1))
	}
	to := func(group uint32) []of.Action {
		return append(slices.Clone(load), regService.Set(uint64(group)), of.ToGroup(group))
	}

	sources := [][]of.Term{nil}
	if len(f.Sources) > 0 {
		sources = nil
		for _, p := range f.Sources {
			sources = append(sources, terms(of.Src(p)))
		}
		flow(l, c, TableServiceLB, 195, append(terms(regLB.Is(lbSelect)), base...))
	}
	for _, src := range sources {
		match := append(append(terms(regLB.Is(lbSelect)), base...), src...)
		switch {
		case !f.Local:
			flow(l, c, TableServiceLB, 200, match, to(s.ClusterGroup)...)
		case s.LocalOnlyElsewhere:
			flow(l, c, TableServiceLB, 200, match)
		default:
			flow(l, c, TableServiceLB, 200, match, to(s.LocalGroup)...)
		}
		if f.DSR {
			s.dsrEntry(l, c, match, to)
		}
		if f.Local && f.External {
			// Clients inside the cluster are not subject to the external policy.
			flow(l, c, TableServiceLB, 210, append(match[:len(match):len(match)], regFromLocal.Is(1)), to(s.ClusterGroup)...)
		}
	}
	if f.DSR {
		s.dsrFrontend(l, c, base, f)
	}
	if s.AffinitySeconds > 0 {
		flow(l, c, TableServiceLB, 190, append(terms(regLB.Is(lbLearn)), base...), s.learn(f), selected, of.Goto(TableEndpointDNAT))
	}
}

// learn remembers the endpoint of a client for one frontend. The time is hard: it does not start
// again with every connection.
//
// What was learned has a cookie of its own for each frontend and policy: the switch forgets it when the
// last flow goes that learns with this cookie, so it goes with the address, and when the policy or the
// clients that may come change.
func (s *Service) learn(f *Frontend) of.Action {
	eth := uint64(of.EthTypeIPv4)
	src, dst := of.IPSrc, of.IPDst
	if s.V6 {
		eth, src, dst = uint64(of.EthTypeIPv6), of.IPv6Src, of.IPv6Dst
	}
	specs := []of.LearnSpec{
		of.LearnMatchValue(of.EthType.All(), eth),
		of.LearnMatchValue(of.IPProto.All(), uint64(s.Proto)),
		of.LearnMatch(of.DstPortField(s.Proto)),
		of.LearnMatch(dst),
		of.LearnMatch(src),
		of.LearnLoadFrom(regPort, regPort),
		of.LearnLoadFrom(s.regEndpoint().All(), s.regEndpoint().All()),
		of.LearnLoadFrom(regService, regService),
		of.LearnLoad(regLB, lbSelected),
		of.LearnLoad(regRouted, 1),
	}
	if f.DSR {
		// What came by tunnel keeps to endpoints of this node, and must not follow what was learned from
		// the same client elsewhere: two nodes could pass it to and fro.
		specs = append(specs, of.LearnMatchFrom(regSource, regSource), of.LearnLoadFrom(regDSR, regDSR))
	}
	if f.External {
		specs = append(specs, of.LearnLoad(regExternal, 1))
	}
	return of.Learn{
		Table: TableAffinity, Priority: 200, HardTimeout: s.AffinitySeconds,
		Cookie: s.learnCookie("affinity", f), DeleteLearned: true, Specs: specs,
	}
}

// learnCookie returns the cookie of what is learned for a frontend.
func (s *Service) learnCookie(what string, f *Frontend) uint64 {
	return Cookie(CookieService, fmt.Sprintf("%s %s %s:%d %t %v", what, s.Unit, f.Addr, f.Port, f.Local, f.Sources))
}

// group adds a select group over the endpoints, in two levels if one message cannot hold them.
func (n *Node) group(l *List, s *Service, id uint32, backends []Backend) {
	if len(backends) == 0 {
		n.addGroup(l, id, []of.Bucket{{ID: 0, Weight: 100, Actions: []of.Action{regNoEndpoint.Set(1), of.Resubmit(TableEndpointDNAT)}}}, s)
		return
	}
	bucket := func(i int, b Backend) of.Bucket {
		return of.Bucket{ID: uint32(i), Weight: 100, Actions: s.Made.bucket(s, id, b)}
	}
	var buckets []of.Bucket
	if len(backends) <= maxBuckets {
		buckets = make([]of.Bucket, 0, len(backends))
		for i, b := range backends {
			buckets = append(buckets, bucket(i, b))
		}
		n.addGroup(l, id, buckets, s)
		return
	}
	for part := 0; part*maxBuckets < len(backends); part++ {
		some := backends[part*maxBuckets : min((part+1)*maxBuckets, len(backends))]
		var sub []of.Bucket
		for i, b := range some {
			// Other bucket ids than on the upper level: OVS hashes them with the packet, and the two
			// choices must be independent.
			sub = append(sub, bucket(10000+part*maxBuckets+i, b))
		}
		subID := s.SubGroups(id, part)
		n.addGroup(l, subID, sub, s)
		buckets = append(buckets, of.Bucket{ID: uint32(part), Weight: uint16(len(some)), Actions: []of.Action{of.ToGroup(subID)}})
	}
	n.addGroupHashed(l, id, buckets, s)
}

func (n *Node) addGroup(l *List, id uint32, buckets []of.Bucket, s *Service) {
	if len(buckets) > dpHashBuckets {
		n.addGroupHashed(l, id, buckets, s)
		return
	}
	g, err := of.NewGroup(of.GroupSpec{ID: id, Type: of.GroupSelect, SelectionMethod: "dp_hash", Buckets: buckets})
	Add(l, g, err)
}

func (n *Node) addGroupHashed(l *List, id uint32, buckets []of.Bucket, s *Service) {
	src := of.IPSrc
	if s.V6 {
		src = of.IPv6Src
	}
	g, err := of.NewGroup(of.GroupSpec{
		ID: id, Type: of.GroupSelect, SelectionMethod: "hash", Buckets: buckets,
		HashFields: []of.Field{src, of.UDPSrc, of.TCPSrc},
	})
	Add(l, g, err)
}

// ServiceAddress adds the flow that refuses the ports of a Service's address that no Service port
// has. Services that share the address share the flow.
func (n *Node) ServiceAddress(l *List, a netip.Addr) {
	flow(l, Cookie(CookieAddress, a.String()), TableServiceLB, 150,
		terms(of.IPFamily(a.Is6()), of.DstAddr(a), regLB.Is(lbSelect)), regNoEndpoint.Set(1), of.Goto(TableEndpointDNAT))
}

// SkippedAddress adds the flow that leaves a Service's address to somebody else on the host.
func (n *Node) SkippedAddress(l *List, unit string, a netip.Addr) {
	flow(l, Cookie(CookieService, unit), TableServiceLB, 220,
		terms(of.IPFamily(a.Is6()), of.DstAddr(a), regLB.Is(lbSelect)), of.Goto(TableL3Forwarding))
}
