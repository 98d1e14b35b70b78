package services

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"towtank/agent/edge"
	"towtank/agent/tables"
	"towtank/datapath"
)

// Port names a Service port.
type Port struct {
	Service string // namespace/name
	Name    string // "" if the port has none
}

// At returns the Service port that an address and port lead to on this node: a ClusterIP, an external
// or load-balancer address, or a node address with a NodePort.
func At(t *tables.Tables, dst netip.AddrPort, proto corev1.Protocol) (Port, bool) {
	s := &Services{env: &tables.Env{Tables: t, Cluster: silent{}}, standIns: newStandIns(), claims: newClaims()}
	keys := make([]string, 0, len(t.Services))
	for key := range t.Services {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		s.claims.set(key, claimsOf(t.Cfg, t.Services[key]))
	}
	v6 := dst.Addr().Is6()
	toNode := slices.Contains(tables.NodePortAddresses(t), dst.Addr())
	for _, key := range keys {
		svc := t.Services[key]
		if !isServed(svc) || isSkipped(t.Cfg, svc) || !clusterIP(svc, v6).IsValid() {
			continue
		}
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			if protocolOf(p) != proto {
				continue
			}
			sp := &servicePort{}
			sp.V6 = v6
			s.frontends(sp, svc, p, false, false)
			for _, f := range sp.Frontends {
				if f.Port == dst.Port() && (f.Addr == dst.Addr() || f.NodePort && toNode) {
					return Port{key, p.Name}, true
				}
			}
		}
	}
	return Port{}, false
}

// Objects returns what the agent wants for a Service, of all its ports and families, sorted by key:
// groups, flows, and what there is on the host. An object that several ports share is named once.
func Objects(st *datapath.Store, service string) []datapath.Object {
	seen := map[datapath.Key]bool{}
	var out []datapath.Object
	for _, u := range st.Units() {
		kind, rest, _ := strings.Cut(u, "/")
		switch kind {
		case "svcport":
			if serviceOf(u) != service {
				continue
			}
		case "svcskip", kindHealth:
			if rest != service {
				continue
			}
		default:
			continue
		}
		for _, o := range st.Objects(u) {
			if !seen[o.Key()] {
				seen[o.Key()] = true
				out = append(out, o)
			}
		}
	}
	slices.SortFunc(out, func(a, b datapath.Object) int { return a.Key().Compare(b.Key()) })
	return out
}

// silent records no Events: asking is not deciding.
type silent struct{ edge.Cluster }

// Record implements edge.Cluster.
func (silent) Record(edge.Ref, string, string, string) {}
