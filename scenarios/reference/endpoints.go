package reference

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// endpoint is one address and port behind a Service port, with what decides whether it is used.
type endpoint struct {
	at       netip.AddrPort
	node     string
	ready    bool
	draining bool // terminating, and still serving
	zones    []string
	nodes    []string
}

// endpoints returns the endpoints of a Service port of one family, each address once. Of two entries for
// one address (a Pod that is being replaced) the ready one counts, then the draining one.
func (v *View) endpoints(service string, port *corev1.ServicePort, v6 bool) []endpoint {
	family := discoveryv1.AddressTypeIPv4
	if v6 {
		family = discoveryv1.AddressTypeIPv6
	}
	found := map[netip.AddrPort]endpoint{}
	for _, name := range slices.Sorted(maps.Keys(v.Slices[service])) { // of two equal ones the first is kept
		s := v.Slices[service][name]
		if _, headless := s.Labels[corev1.IsHeadlessService]; headless || s.AddressType != family {
			continue
		}
		for _, p := range s.Ports {
			if p.Port == nil || value(p.Name) != port.Name || protocol(value(p.Protocol)) != protocol(port.Protocol) {
				continue
			}
			for i := range s.Endpoints {
				e, ok := read(&s.Endpoints[i], uint16(*p.Port))
				if !ok {
					continue
				}
				if old, twice := found[e.at]; !twice || worth(e) > worth(old) {
					found[e.at] = e
				}
			}
		}
	}
	var out []endpoint
	for _, e := range found {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b endpoint) int { return a.at.Compare(b.at) })
	return out
}

func worth(e endpoint) int {
	switch {
	case e.ready:
		return 2
	case e.draining:
		return 1
	}
	return 0
}

// read reads an endpoint: only its first address counts; ready unset means ready, serving unset means the
// same as ready (Kubernetes, EndpointConditions).
func read(in *discoveryv1.Endpoint, port uint16) (endpoint, bool) {
	if len(in.Addresses) == 0 {
		return endpoint{}, false
	}
	ip, err := netip.ParseAddr(in.Addresses[0])
	if err != nil {
		return endpoint{}, false
	}
	c := in.Conditions
	e := endpoint{at: netip.AddrPortFrom(ip, port), node: value(in.NodeName), ready: c.Ready == nil || *c.Ready}
	serving := e.ready
	if c.Serving != nil {
		serving = *c.Serving
	}
	e.draining = !e.ready && serving && value(c.Terminating)
	if in.Hints != nil {
		for _, z := range in.Hints.ForZones {
			e.zones = append(e.zones, z.Name)
		}
		for _, n := range in.Hints.ForNodes {
			e.nodes = append(e.nodes, n.Name)
		}
	}
	return e, true
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func protocol(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

func only(in []endpoint, keep func(endpoint) bool) []endpoint {
	var out []endpoint
	for _, e := range in {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

func isReady(e endpoint) bool    { return e.ready }
func isDraining(e endpoint) bool { return e.draining }

// readyElseDraining is the rule of Kubernetes for terminating endpoints (KEP-1669).
func readyElseDraining(in []endpoint) []endpoint {
	if r := only(in, isReady); len(r) > 0 {
		return r
	}
	return only(in, isDraining)
}

// usable returns which of the endpoints of a Service port this node may use: anywhere under the policy
// Cluster, with hints; here under the policy Local, where hints don't count. exists reports whether there
// is any at all.
func (v *View) usable(all []endpoint, local bool) (use []endpoint, exists bool) {
	anywhere := readyElseDraining(all)
	if local {
		here := only(all, func(e endpoint) bool { return e.node == v.Node })
		return readyElseDraining(here), len(anywhere) > 0
	}
	if len(anywhere) > 0 && anywhere[0].ready {
		anywhere = v.hinted(anywhere)
	}
	return anywhere, len(anywhere) > 0
}

// hinted applies topology hints: they count if every ready endpoint has one and any is meant for us. A
// hint for a node goes before one for its zone.
func (v *View) hinted(ready []endpoint) []endpoint {
	apply := func(hints func(endpoint) []string, us string) []endpoint {
		if us == "" || slices.ContainsFunc(ready, func(e endpoint) bool { return len(hints(e)) == 0 }) {
			return nil
		}
		return only(ready, func(e endpoint) bool { return slices.Contains(hints(e), us) })
	}
	if mine := apply(func(e endpoint) []string { return e.nodes }, v.Node); len(mine) > 0 {
		return mine
	}
	zone := ""
	if n := v.Nodes[v.Node]; n != nil {
		zone = n.Labels[corev1.LabelTopologyZone]
	}
	if mine := apply(func(e endpoint) []string { return e.zones }, zone); len(mine) > 0 {
		return mine
	}
	return ready
}
