package reference

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"towtank/agent/apis/crd/v1beta1"
)

// Leaving says how new connections of a Pod may leave the cluster.
type Leaving struct {
	// IPs are the Egress IPs that they may carry; more than one if it is not decided which Egress is
	// effective.
	IPs []netip.Addr
	// Plain is set if they may carry the address of the Pod's node.
	Plain bool
	// Egress names what decides, "" if nothing does.
	Egress string
	// Awaited is set if an Egress picks the Pod and its group does not have it yet: connections may wait.
	Awaited bool
}

// Leaves says how new connections of a Pod of this node may leave the cluster: with the address of the
// oldest Egress that selects it and has one; the node's own if there is none.
func (v *View) Leaves(pod string, v6 bool) Leaving {
	var out Leaving
	fates := v.Schedule()
	for _, e := range v.byAge() {
		ip, ok := addressOf(e)
		if !ok || ip.Is6() != v6 {
			continue
		}
		if !v.selects(e, pod) {
			out.Awaited = out.Awaited || v.Groups != nil && v.Picks(e, pod)
			continue
		}
		fate := Placed
		if e.Spec.ExternalIPPool != "" {
			fate = fates[ip].Fate
		}
		if fate == Unplaced {
			continue
		}
		if out.Egress == "" {
			out.Egress = e.Name
		}
		out.IPs = append(out.IPs, ip)
		if fate == Placed {
			return out
		}
	}
	out.Plain = true
	return out
}

func (v *View) byAge() []*v1beta1.Egress {
	return slices.SortedFunc(maps.Values(v.Egresses), func(a, b *v1beta1.Egress) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// addressOf returns the address that an Egress has: given by the user, or filled in from its pool.
func addressOf(e *v1beta1.Egress) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(e.Spec.EgressIP)
	return ip, err == nil
}

// Picks reports whether the selectors of an Egress pick a Pod of the View, whatever groups there are.
func (v *View) Picks(e *v1beta1.Egress, key string) bool {
	plain := *v
	plain.Groups = nil
	return plain.selects(e, key)
}

// selects reports whether an Egress applies to a Pod of this node. Pods that ended, and those that use
// their node's network, are not selected; neither is anything by an Egress without selectors.
func (v *View) selects(e *v1beta1.Egress, key string) bool {
	pod := v.Pods[key]
	to := e.Spec.AppliedTo
	if pod == nil || pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	if v.Groups != nil {
		g := v.Groups[e.Name]
		return g != nil && slices.ContainsFunc(g.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == e.UID }) &&
			slices.Contains(g.GroupMembers, v1beta1.GroupMember{Pod: v1beta1.PodReference{Namespace: pod.Namespace, Name: pod.Name}})
	}
	if to.PodSelector == nil && to.NamespaceSelector == nil {
		return false
	}
	if to.PodSelector != nil && !matches(to.PodSelector, pod.Labels) {
		return false
	}
	if to.NamespaceSelector == nil {
		return true
	}
	ns, _, _ := strings.Cut(key, "/")
	return v.Namespaces[ns] != nil && matches(to.NamespaceSelector, v.Namespaces[ns].Labels)
}

func matches(s *metav1.LabelSelector, l map[string]string) bool {
	sel, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && sel.Matches(labels.Set(l))
}

// Fate says whether an address from a pool is on a node.
type Fate int

// The fates. Which node takes which address is not decided here, so that of several pools that share
// nodes without room for all it may be open who gets none.
const (
	Unplaced Fate = iota
	Placed
	Open
)

// Place is what is known of where an address from a pool is.
type Place struct {
	Fate  Fate
	Nodes []string // that may hold it, sorted
}

// maxIPsAnnotation sets how many Egress IPs one node takes (Antrea's name).
const maxIPsAnnotation = "node.antrea.io/max-egress-ips"

// Schedule says for every address from a pool whether a node holds it: the oldest Egresses get a place
// first, on any alive node that their pool selects and that has room. An address counts once.
func (v *View) Schedule() map[netip.Addr]Place {
	out := map[netip.Addr]Place{}
	// older are the node sets of the addresses that were placed, or may have been, in order.
	type taken struct {
		nodes []string
		sure  bool
	}
	var older []taken
	for _, e := range v.byAge() {
		ip, ok := addressOf(e)
		if !ok || e.Spec.ExternalIPPool == "" {
			continue
		}
		if _, done := out[ip]; done {
			continue
		}
		nodes := v.eligible(e.Spec.ExternalIPPool)
		room, sureInside, maybeInside := 0, 0, 0
		for _, n := range nodes {
			room += v.capacity(n)
		}
		for _, t := range older {
			if slices.ContainsFunc(t.nodes, func(n string) bool { return slices.Contains(nodes, n) }) {
				maybeInside++
			}
			if t.sure && !slices.ContainsFunc(t.nodes, func(n string) bool { return !slices.Contains(nodes, n) }) {
				sureInside++
			}
		}
		p := Place{Fate: Open, Nodes: nodes}
		switch {
		case room > maybeInside:
			p.Fate = Placed
		case room <= sureInside:
			p.Fate = Unplaced
			p.Nodes = nil
		}
		out[ip] = p
		if p.Fate != Unplaced {
			older = append(older, taken{nodes, p.Fate == Placed})
		}
	}
	return out
}

// eligible returns the alive nodes that a pool selects and that take any address, sorted.
func (v *View) eligible(pool string) []string {
	p := v.Pools[pool]
	if p == nil {
		return nil
	}
	var out []string
	for _, name := range v.Alive {
		n := v.Nodes[name]
		if n != nil && n.Labels[corev1.LabelOSStable] != "windows" && matches(&p.Spec.NodeSelector, n.Labels) && v.capacity(name) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// capacity is how many Egress IPs from pools a node takes; an annotation that is no number from 0 to 255
// does not count.
func (v *View) capacity(node string) int {
	if n := v.Nodes[node]; n != nil {
		if i, err := strconv.Atoi(n.Annotations[maxIPsAnnotation]); err == nil && i >= 0 && i <= 255 {
			return i
		}
	}
	return v.Options.MaxEgressIPsPerNode
}
