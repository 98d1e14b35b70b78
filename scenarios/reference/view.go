// Package reference says what packets may experience, from Kubernetes objects alone: which endpoints a
// Service may lead to, which address a Pod may leave with, which node holds an Egress IP. It knows no
// flows and nothing of the agent, so that the agent can be compared with it. What it allows is a set: the
// choice among several endpoints or nodes is nobody's business here.
package reference

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"towtank/agent/apis/crd/v1beta1"
)

// Verdict is what a new connection or packet experiences.
type Verdict string

// The verdicts.
const (
	OK     Verdict = "ok"
	Drop   Verdict = "drop"
	Reject Verdict = "reject"
)

// Options are those of the cluster.
type Options struct {
	ProxyAll             bool
	ProxyLoadBalancerIPs bool
	SkipServices         []string       // namespace/name or ClusterIP
	NodePortAddresses    []netip.Prefix // empty: all
	ServiceCIDRs         []netip.Prefix
	MaxEgressIPsPerNode  int
	// Tunnelled is set if Pods of all nodes are reached by tunnel: a Pod address is never seen between
	// nodes then.
	Tunnelled bool
	DSR       bool
}

// View is what one node was told. The maps are by namespace/name, or name.
type View struct {
	Node       string
	Options    *Options
	Services   map[string]*corev1.Service
	Slices     map[string]map[string]*discoveryv1.EndpointSlice // by Service, then by slice
	Nodes      map[string]*corev1.Node
	Pods       map[string]*corev1.Pod // those of the node
	Namespaces map[string]*corev1.Namespace
	Egresses   map[string]*v1beta1.Egress
	Pools      map[string]*v1beta1.ExternalIPPool
	// Groups, by Egress, say which Pods an Egress applies to; nil: its selectors do.
	Groups map[string]*v1beta1.EgressGroup
	Alive  []string // members, this node included
}

// addresses returns the InternalIP and ExternalIP addresses of a node.
func addresses(n *corev1.Node) []netip.Addr {
	var out []netip.Addr
	if n == nil {
		return nil
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				out = append(out, ip)
			}
		}
	}
	return out
}

// transport returns the first InternalIP of a family.
func transport(n *corev1.Node, v6 bool) netip.Addr {
	if n != nil {
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && ip.Is6() == v6 {
				return ip
			}
		}
	}
	return netip.Addr{}
}

// podNetworks returns the Pod CIDRs of a node.
func podNetworks(n *corev1.Node) []netip.Prefix {
	if n == nil {
		return nil
	}
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 {
		texts = []string{n.Spec.PodCIDR}
	}
	var out []netip.Prefix
	for _, t := range texts {
		if p, err := netip.ParsePrefix(t); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// homeOf returns the node whose Pod network an address is in, "" if none.
func (v *View) homeOf(a netip.Addr) string {
	for name, n := range v.Nodes { //determinism:ignore the Pod networks of nodes do not overlap
		for _, p := range podNetworks(n) {
			if p.Contains(a) {
				return name
			}
		}
	}
	return ""
}

// gateway returns the address of the family that this node has in its own Pod network.
func (v *View) gateway(v6 bool) netip.Addr {
	for _, p := range podNetworks(v.Nodes[v.Node]) {
		if p.Addr().Is6() == v6 {
			return p.Addr().Next()
		}
	}
	return netip.Addr{}
}

// inPrefixes reports whether one of the prefixes has an address.
func inPrefixes(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
