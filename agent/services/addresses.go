package services

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
)

// frontends lists every address of a Service port.
func (s *Services) frontends(sp *servicePort, svc *corev1.Service, port *corev1.ServicePort, internalLocal, externalLocal bool) {
	n := uint16(port.Port)
	cip := clusterIP(svc, sp.V6)
	sp.Frontends = append(sp.Frontends, pipeline.Frontend{Addr: cip, Port: n, Local: internalLocal})
	if s.env.Cfg.ProxyAll && port.NodePort != 0 && svc.Spec.Type != corev1.ServiceTypeClusterIP {
		sp.nodePort = uint16(port.NodePort)
		sp.Frontends = append(sp.Frontends, pipeline.Frontend{
			Addr: pipeline.NodePortVIP(sp.V6), Port: sp.nodePort, NodePort: true, External: true, Local: externalLocal,
		})
	}
	sp.port = n
	for _, a := range servedAddresses(s.env.Cfg, svc) {
		if a.Is6() != sp.V6 || a.Addr == cip || !s.has(svc, claim{netip.AddrPortFrom(a.Addr, n), protoNumber(protocolOf(port))}) {
			continue
		}
		var sources []netip.Prefix
		if a.balancer {
			sources = s.ownIncluded(sourceRanges(svc, sp.V6), sp.V6)
		}
		dsr := pipeline.Of(s.env.Tables).HasDSR() && !externalLocal
		x := s.external(a.Addr)
		sp.external = append(sp.external, x)
		sp.Frontends = append(sp.Frontends, pipeline.Frontend{Addr: a.Addr, Port: n, External: true, Local: externalLocal, DSR: dsr, Sources: sources})
		if x.own && s.env.Cfg.ProxyAll {
			sp.Frontends = append(sp.Frontends, pipeline.Frontend{Addr: s.standIns.Of(a.Addr), Port: n, External: true, Local: externalLocal, Sources: sources})
		}
	}
}

// external finds out whose an address is.
func (s *Services) external(ip netip.Addr) external {
	x := external{Addr: ip, own: len(s.env.Addresses[ip]) > 0}
	//determinism:ignore NodeAddresses only looks, and both results are ors
	for name, n := range s.env.Nodes {
		if slices.Contains(tables.NodeAddresses(n), ip) {
			x.node = true
			x.own = x.own || name == s.env.Cfg.NodeName
		}
	}
	return x
}

// ownIncluded adds the gateway's address to source ranges that one of the node's own addresses is in: what the node itself
// sends to an external address goes by the Pod network, with the gateway's address.
func (s *Services) ownIncluded(ranges []netip.Prefix, v6 bool) []netip.Prefix {
	gateway, ok := s.env.Cfg.Gateway(v6)
	if !ok {
		return ranges
	}
	in := func(a netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	if !in(gateway) && slices.ContainsFunc(tables.NodeAddresses(s.env.ThisNode()), in) {
		ranges = append(ranges, netip.PrefixFrom(gateway, gateway.BitLen()))
	}
	return ranges
}

// sourceRanges returns the ranges of the family. Ranges of the other family only: nobody may come.
func sourceRanges(svc *corev1.Service, v6 bool) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range svc.Spec.LoadBalancerSourceRanges {
		if p, err := netip.ParsePrefix(strings.TrimSpace(r)); err == nil && p.Addr().Is6() == v6 {
			out = append(out, p.Masked())
		}
	}
	if len(out) == 0 && len(svc.Spec.LoadBalancerSourceRanges) > 0 {
		none := netip.IPv4Unspecified()
		if v6 {
			none = netip.IPv6Unspecified()
		}
		out = append(out, netip.PrefixFrom(none, none.BitLen()))
	}
	return out
}

// mayRoute reports whether an external address may be routed into the bridge. An Egress IP may not: tunnels
// to the node that has it end there. Before the Egresses are heard, what is there stays.
func (s *Services) mayRoute(p *pipeline.Node, ip netip.Addr) bool {
	if !s.env.AllSynced(edge.KindEgress) {
		l := &pipeline.List{}
		p.ExternalAddress(l, ip)
		return slices.ContainsFunc(l.Objects(), func(o datapath.Object) bool { return s.env.Store.Known(o.Key()) != nil })
	}
	//determinism:ignore EgressAddresses only looks
	for _, e := range s.env.Egresses {
		if slices.Contains(tables.EgressAddresses(e), ip) {
			return false
		}
	}
	return true
}

// addresses adds what the addresses need around the load balancer: the refusal of other ports, host
// routes and NodePort set entries.
func (s *Services) addresses(l *pipeline.List, p *pipeline.Node, sp *servicePort) {
	p.ServiceAddress(l, sp.Frontends[0].Addr)
	hostReady := s.env.Links[pipeline.GatewayPort].Present
	for _, x := range sp.external {
		if !x.node {
			p.ServiceAddress(l, x.Addr)
		}
		if !s.env.Cfg.ProxyAll || !hostReady {
			continue
		}
		if !x.node && s.mayRoute(p, x.Addr) {
			p.ExternalAddress(l, x.Addr)
		}
		if x.own {
			p.OwnExternal(l, x.Addr, s.standIns.Of(x.Addr), sp.Proto, sp.port)
		}
	}
	if !hostReady {
		return
	}
	if sp.nodePort != 0 {
		for _, a := range tables.NodePortAddresses(s.env.Tables) {
			if a.Is6() == sp.V6 {
				p.NodePort(l, a, sp.Proto, sp.nodePort)
			}
		}
	}
}
