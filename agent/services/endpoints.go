package services

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"towtank/agent/pipeline"
	"towtank/agent/tables"
)

// Endpoint is one address and port behind a Service port.
type Endpoint struct {
	netip.AddrPort
	Node        string
	Local       bool
	Ready       bool
	Serving     bool
	Terminating bool
	hints       *discoveryv1.EndpointHints // nil: none
}

// better reports whether e is the one to believe of two entries for one address: while a Pod is
// replaced, slices can name the address twice (field bug 76), and the ready one wins.
func (e *Endpoint) better(o *Endpoint) bool {
	if e.Ready != o.Ready {
		return e.Ready
	}
	if e.Serving != o.Serving {
		return e.Serving
	}
	return !e.Terminating && o.Terminating
}

// Selection is which endpoints are used for a Service port on this node.
type Selection struct {
	// Cluster are used under the Cluster policy, Local under the Local policy. Both are sorted.
	Cluster, Local []Endpoint
	// Any reports whether there is an endpoint to use anywhere: a Local policy without a local
	// endpoint drops then, instead of refusing.
	Any bool
}

// collect merges the slices of a Service for one port name and family.
func collect(t *tables.Tables, svcKey, portName string, proto corev1.Protocol, v6 bool) []Endpoint {
	family := discoveryv1.AddressTypeIPv4
	if v6 {
		family = discoveryv1.AddressTypeIPv6
	}
	var all []Endpoint
	// Sorted: of two equally good endpoints with one address, on two nodes, the first is kept.
	for _, name := range slices.Sorted(maps.Keys(t.Slices[svcKey])) {
		slice := t.Slices[svcKey][name]
		if slice.AddressType != family {
			continue
		}
		for _, p := range slice.Ports {
			if p.Port == nil || deref(p.Name) != portName || (p.Protocol != nil && *p.Protocol != proto) || (p.Protocol == nil && proto != corev1.ProtocolTCP) {
				continue
			}
			all = slices.Grow(all, len(slice.Endpoints))
			for i := range slice.Endpoints {
				all = addEndpoint(t, all, &slice.Endpoints[i], uint16(*p.Port))
			}
		}
	}
	return bestOf(all)
}

// bestOf sorts endpoints and keeps one for each address and port.
func bestOf(all []Endpoint) []Endpoint {
	slices.SortStableFunc(all, func(a, b Endpoint) int {
		if c := a.AddrPort.Compare(b.AddrPort); c != 0 {
			return c
		}
		switch {
		case a.better(&b):
			return -1
		case b.better(&a):
			return 1
		}
		return 0
	})
	return slices.CompactFunc(all, func(a, b Endpoint) bool { return a.AddrPort == b.AddrPort })
}

// addEndpoint appends an endpoint, unless it has no address.
func addEndpoint(t *tables.Tables, all []Endpoint, in *discoveryv1.Endpoint, port uint16) []Endpoint {
	if len(in.Addresses) == 0 {
		return all
	}
	// Only the first address of an endpoint is used (Kubernetes, EndpointSlice API).
	ip, err := netip.ParseAddr(in.Addresses[0])
	if err != nil {
		return all
	}
	c := in.Conditions
	e := Endpoint{
		AddrPort: netip.AddrPortFrom(ip, port),
		Ready:    c.Ready == nil || *c.Ready,
		Node:     deref(in.NodeName),
	}
	// serving unset means the same as ready (Kubernetes, EndpointConditions).
	e.Serving = e.Ready
	if c.Serving != nil {
		e.Serving = *c.Serving
	}
	e.Terminating = c.Terminating != nil && *c.Terminating
	e.Local = e.Node == t.Cfg.NodeName
	e.hints = in.Hints
	return append(all, e)
}

// choose picks the endpoints to use: ready ones, else those that serve while they terminate
// (KEP-1669), narrowed by topology hints for the Cluster policy only.
func choose(all []Endpoint, nodeName, zone string) Selection {
	ready := filter(all, func(e *Endpoint) bool { return e.Ready })
	draining := filter(all, func(e *Endpoint) bool { return !e.Ready && e.Serving && e.Terminating })

	var s Selection
	s.Any = len(ready) > 0 || len(draining) > 0
	s.Cluster = hinted(ready, nodeName, zone)
	if len(s.Cluster) == 0 {
		s.Cluster = draining
	}
	local := func(e *Endpoint) bool { return e.Local }
	s.Local = filter(ready, local)
	if len(s.Local) == 0 {
		s.Local = filter(draining, local)
	}
	return s
}

// hinted narrows ready endpoints to those meant for this node, or else for its zone. Hints count only
// if every ready endpoint has them and at least one is for us.
func hinted(ready []Endpoint, nodeName, zone string) []Endpoint {
	if len(ready) == 0 {
		return ready
	}
	every := func(has func(*Endpoint) bool) bool {
		return !slices.ContainsFunc(ready, func(e Endpoint) bool { return !has(&e) })
	}
	if every(func(e *Endpoint) bool { return e.hints != nil && len(e.hints.ForNodes) > 0 }) {
		if mine := filter(ready, func(e *Endpoint) bool { return slices.Contains(e.hints.ForNodes, discoveryv1.ForNode{Name: nodeName}) }); len(mine) > 0 {
			return mine
		}
	}
	if zone != "" && every(func(e *Endpoint) bool { return e.hints != nil && len(e.hints.ForZones) > 0 }) {
		if mine := filter(ready, func(e *Endpoint) bool { return slices.Contains(e.hints.ForZones, discoveryv1.ForZone{Name: zone}) }); len(mine) > 0 {
			return mine
		}
	}
	return ready
}

// filter returns those to keep. If that is all, as it is most often, it is the list itself, which nobody changes.
func filter(in []Endpoint, keep func(*Endpoint) bool) []Endpoint {
	n := 0
	for i := range in {
		if keep(&in[i]) {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case len(in):
		return in
	}
	out := make([]Endpoint, 0, n)
	for i := range in {
		if keep(&in[i]) {
			out = append(out, in[i])
		}
	}
	return out
}

// unionOf merges sorted lists without duplicates.
func unionOf(lists ...[]pipeline.Backend) []pipeline.Backend {
	out := slices.Concat(lists...)
	slices.SortFunc(out, func(a, b pipeline.Backend) int { return a.AddrPort.Compare(b.AddrPort) })
	return slices.CompactFunc(out, func(a, b pipeline.Backend) bool { return a.AddrPort == b.AddrPort })
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
