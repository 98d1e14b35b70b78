package reference

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// IP protocol numbers.
const (
	protoTCP  = 6
	protoUDP  = 17
	protoSCTP = 132
)

// Client is who dials, as the node sees it that handles the connection.
type Client struct {
	Addr netip.Addr
	Kind ClientKind
}

// ClientKind says where a client is.
type ClientKind int

// The kinds of clients.
const (
	LocalPod ClientKind = iota // a Pod of the node, with its own network
	ThisNode                   // a process of the node itself
	Outside                    // anybody whose packets come in by the node's network
)

// Answer is what may happen to a new connection.
type Answer struct {
	// Known is false if the reference has nothing to say: the address is nobody's here.
	Known    bool
	Verdicts []Verdict
	// Backends are the endpoints that may answer, sorted.
	Backends []netip.AddrPort
	// Local is set if the policy Local decided: the client's address is kept.
	Local bool
	Why   string
}

// Allows reports whether a verdict may be.
func (a *Answer) Allows(v Verdict) bool { return slices.Contains(a.Verdicts, v) }

// candidate is one Service port that has the address and port that is dialled.
type candidate struct {
	created int64
	answer  Answer
}

// Dial says what happens to a new connection of the client to an address, if this node decides it. The
// port of a NodePort is dialled on an address of this node.
func (v *View) Dial(c Client, to netip.AddrPort, proto uint8) Answer {
	var found []candidate
	known := false // some Service has the address
	for _, key := range slices.Sorted(maps.Keys(v.Services)) {
		svc := v.Services[key]
		role := v.roleOf(svc, key, to.Addr())
		if role == roleNone {
			continue
		}
		if role == roleForeign {
			return Answer{Why: "Service " + key + " is somebody else's to serve"}
		}
		if !v.Options.ProxyAll && role == roleBalancer && c.Kind != LocalPod {
			return Answer{Why: "the host does not lead to " + to.Addr().String()}
		}
		known = known || role != roleNode
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			if protocolNumber(p.Protocol) != proto {
				continue
			}
			number := uint16(p.Port)
			if role == roleNode {
				number = uint16(p.NodePort)
			}
			if number != to.Port() || number == 0 {
				continue
			}
			found = append(found, candidate{svc.CreationTimestamp.Unix(), v.decide(svc, key, p, role, c, to.Addr())})
		}
	}
	switch {
	case len(found) > 0:
		return oldest(found)
	case known:
		return Answer{Known: true, Verdicts: []Verdict{Reject}, Why: "no Service port is " + to.String()}
	case inPrefixes(v.Options.ServiceCIDRs, to.Addr()):
		return Answer{Known: true, Verdicts: []Verdict{Drop}, Why: "no Service has " + to.Addr().String()}
	}
	return Answer{Why: "no Service has " + to.String()}
}

// oldest merges the answers of the oldest of the Services that claim one address and port: which of
// several of one second wins is not said here.
func oldest(found []candidate) Answer {
	first := slices.MinFunc(found, func(a, b candidate) int { return int(a.created - b.created) }).created
	var out Answer
	n := 0
	for _, f := range found {
		if f.created != first {
			continue
		}
		if n++; n == 1 {
			out = f.answer
			continue
		}
		out.Local = out.Local && f.answer.Local
		out.Why += "; or " + f.answer.Why
		for _, verdict := range f.answer.Verdicts {
			if !out.Allows(verdict) {
				out.Verdicts = append(slices.Clone(out.Verdicts), verdict)
			}
		}
		out.Backends = append(slices.Clone(out.Backends), f.answer.Backends...)
	}
	slices.SortFunc(out.Backends, netip.AddrPort.Compare)
	return out
}

// role says what an address is to a Service.
type role int

const (
	roleNone     role = iota
	roleCluster       // its ClusterIP
	roleNode          // an address of this node, for a NodePort
	roleExternal      // an external IP
	roleBalancer      // the address of a load balancer
	roleForeign       // its address, but not ours to serve
)

// Serves reports whether an address that is no ClusterIP and no node's is a Service's on this node: a load
// balancer's, or an external IP.
func (v *View) Serves(a netip.Addr) bool {
	for key, svc := range v.Services {
		if r := v.roleOf(svc, key, a); r == roleBalancer || r == roleExternal {
			return true
		}
	}
	return false
}

func (v *View) roleOf(svc *corev1.Service, key string, a netip.Addr) role {
	if svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.ClusterIP == "" {
		return roleNone
	}
	r := v.addressRole(svc, a)
	if r == roleNone {
		return r
	}
	_, headless := svc.Labels[corev1.IsHeadlessService]
	_, proxied := svc.Labels["service.kubernetes.io/service-proxy-name"]
	if headless || proxied || slices.Contains(v.Options.SkipServices, key) || slices.Contains(v.Options.SkipServices, svc.Spec.ClusterIP) {
		if r == roleNode {
			return roleNone
		}
		return roleForeign
	}
	return r
}

func (v *View) addressRole(svc *corev1.Service, a netip.Addr) role {
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	if contains(ips, a) {
		return roleCluster
	}
	// A family that the Service does not have is not served on any address.
	if !slices.ContainsFunc(ips, func(t string) bool { ip, err := netip.ParseAddr(t); return err == nil && ip.Is6() == a.Is6() }) {
		return roleNone
	}
	// An external address that is a node's is served by that node, and what else it serves there is not
	// said here.
	ofNode := v.isNodeAddress(a)
	if !ofNode && v.Options.ProxyAll && contains(svc.Spec.ExternalIPs, a) {
		return roleExternal
	}
	if !ofNode && v.Options.ProxyLoadBalancerIPs && svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if proxy := in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeProxy; !proxy && contains([]string{in.IP}, a) {
				return roleBalancer
			}
		}
	}
	if v.Options.ProxyAll && svc.Spec.Type != corev1.ServiceTypeClusterIP && slices.Contains(addresses(v.Nodes[v.Node]), a) &&
		(len(v.Options.NodePortAddresses) == 0 || inPrefixes(v.Options.NodePortAddresses, a)) {
		return roleNode
	}
	return roleNone
}

func (v *View) isNodeAddress(a netip.Addr) bool {
	for _, n := range v.Nodes { // is it in any: the order does not matter
		if slices.Contains(addresses(n), a) {
			return true
		}
	}
	return false
}

func contains(texts []string, a netip.Addr) bool {
	return slices.ContainsFunc(texts, func(t string) bool { ip, err := netip.ParseAddr(t); return err == nil && ip == a })
}

func protocolNumber(p corev1.Protocol) uint8 {
	switch protocol(p) {
	case corev1.ProtocolUDP:
		return protoUDP
	case corev1.ProtocolSCTP:
		return protoSCTP
	}
	return protoTCP
}

// decide says what happens to a connection to a Service port.
func (v *View) decide(svc *corev1.Service, key string, p *corev1.ServicePort, r role, c Client, a netip.Addr) Answer {
	what := fmt.Sprintf("Service %s port %d/%s", key, p.Port, protocol(p.Protocol))
	if r == roleBalancer && len(svc.Spec.LoadBalancerSourceRanges) > 0 {
		switch {
		case c.Kind == ThisNode && slices.ContainsFunc(addresses(v.Nodes[v.Node]), func(a netip.Addr) bool {
			return a.Is6() == c.Addr.Is6() && inRanges(svc.Spec.LoadBalancerSourceRanges, a)
		}):
		case c.Kind == ThisNode:
			// With which of its addresses the node asks is not said: the gateway's may be in the ranges.
			return Answer{Why: what + " has source ranges"}
		case !inRanges(svc.Spec.LoadBalancerSourceRanges, c.Addr):
			return Answer{Known: true, Verdicts: []Verdict{Drop}, Why: what + ": the client is outside the source ranges"}
		}
	}
	local := false
	if r == roleCluster {
		local = value(svc.Spec.InternalTrafficPolicy) == corev1.ServiceInternalTrafficPolicyLocal
	} else if c.Kind == Outside {
		// Clients inside the cluster are not subject to the external policy.
		local = svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	}
	use, exists := v.usable(v.endpoints(key, p, a.Is6()), local)
	switch {
	case len(use) == 0 && exists:
		return Answer{Known: true, Verdicts: []Verdict{Drop}, Why: what + ": the policy is Local, and there are endpoints elsewhere only"}
	case len(use) == 0:
		return Answer{Known: true, Verdicts: []Verdict{Reject}, Why: what + " has no endpoint"}
	}
	out := Answer{Known: true, Verdicts: []Verdict{OK}, Local: local && r != roleCluster, Why: what}
	for _, e := range use {
		if inPrefixes(v.Options.ServiceCIDRs, e.at.Addr()) {
			return Answer{Why: what + " leads on to another Service"}
		}
		out.Backends = append(out.Backends, e.at)
	}
	return out
}

func inRanges(texts []string, a netip.Addr) bool {
	return slices.ContainsFunc(texts, func(t string) bool {
		p, err := netip.ParsePrefix(strings.TrimSpace(t))
		return err == nil && p.Masked().Contains(a)
	})
}

// SourceAt reports whether the endpoint may see a connection of the client come from an address. local
// is that of the Answer.
func (v *View) SourceAt(c Client, endpoint netip.AddrPort, seen netip.Addr, local bool) bool {
	e := endpoint.Addr()
	v6 := e.Is6()
	own := []netip.Addr{v.gateway(v6), transport(v.Nodes[v.Node], v6)}
	home := v.homeOf(e)
	onNode := slices.Contains(addresses(v.Nodes[v.Node]), e)
	switch {
	case onNode:
		// A process of this node: between the bridge and its host the client may have a link-local name.
		return true
	case c.Kind == LocalPod && c.Addr == e:
		return seen != c.Addr // a Pod must not see its own address as the client's
	case c.Kind == LocalPod && home != "":
		return seen == c.Addr
	case c.Kind == ThisNode && home != "":
		return slices.Contains(own, seen)
	case home == "":
		// The endpoint is outside the Pod networks: the connection leaves with whatever address such
		// connections leave with.
		return seen == c.Addr && c.Kind == Outside || !v.isPodAddress(seen)
	case local || home == v.Node:
		return seen == c.Addr
	}
	return seen == c.Addr || slices.Contains(own, seen)
}

func (v *View) isPodAddress(a netip.Addr) bool { return v.homeOf(a) != "" }
