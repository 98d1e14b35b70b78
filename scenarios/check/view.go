package check

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/edge"
	"towtank/datapath"
	"towtank/scenarios/reference"
	"towtank/sim"
	"towtank/sim/kube"
)

func optionsOf(w *sim.World) *reference.Options {
	o := w.Options()
	r := &reference.Options{
		ProxyAll: !o.NoProxyAll, ProxyLoadBalancerIPs: !o.NoProxyLoadBalancers, SkipServices: o.SkipServices,
		NodePortAddresses: o.NodePortAddresses, MaxEgressIPsPerNode: max(o.MaxEgressIPsPerNode, 0),
		Tunnelled: o.Traffic == "encap", DSR: o.LoadBalancerMode == "dsr",
	}
	for _, p := range o.ServiceCIDRs {
		if p.Addr().Is6() && o.V6 || !p.Addr().Is6() && o.V4 {
			r.ServiceCIDRs = append(r.ServiceCIDRs, p)
		}
	}
	return r
}

// view returns what a node was told so far, as the reference model reads it.
func (c *Checker) view(n *sim.Node) *reference.View { return c.viewOf(n.Name(), n.Told()) }

func (c *Checker) viewOf(node string, t sim.Told) *reference.View {
	v := &reference.View{
		Node: node, Options: c.opts, Services: t.Services, Slices: t.Slices, Nodes: t.Nodes, Pods: t.Pods, Namespaces: t.Namespaces,
		Egresses: t.Egresses, Pools: t.Pools, Alive: t.Alive,
	}
	if c.byGroup() {
		v.Groups = t.Groups
	}
	return v
}

// byGroup reports whether agents read EgressGroups in place of selectors.
func (c *Checker) byGroup() bool { return c.w.Options().Membership == "egressgroup" }

// history is what a node was told since its agent was last done with everything: between two such
// moments, a packet may meet what follows from any state in between.
type history struct {
	life int
	told sim.Told // of the present life, as of the last event: live maps
	now  func() sim.Told
	// undo leads from the present state back, the newest last.
	undo []change
	// lives are earlier lives of the agent, which the present one has not replaced yet.
	lives []history
	// lost are addresses that went from the node meanwhile; hand is its HandVersion as of when the agent
	// was last done.
	lost []netip.Addr
	hand int
}

// change is an event of the past: how things were before it.
type change struct {
	kind, key string
	before    runtime.Object // nil: there was none
	alive     []string       // if kind is empty
}

// beforeTold notes what an event is about to replace.
func (c *Checker) beforeTold(n *sim.Node, ev any) {
	h := c.historyOf(n)
	if n.Idle() {
		h.undo, h.lives, h.lost, h.hand = nil, nil, nil, n.HandVersion()
	}
	switch e := ev.(type) {
	case datapath.PortEvent, datapath.LinkEvent:
		c.of(n).facts++
	case datapath.AddressEvent:
		c.of(n).facts++
		if !e.Present {
			h.lost = append(h.lost, e.Addr)
		}
	case edge.MembersEvent:
		c.recheckAll(n)
		h.undo = append(h.undo, change{alive: h.told.Alive})
	case edge.ObjectEvent:
		if before, relevant := current(h.told, e.Kind, e.Key); relevant {
			c.recheckAll(n)
			h.undo = append(h.undo, change{kind: e.Kind, key: e.Key, before: before})
		}
	}
}

// historyOf returns a node's history, brought in line with the life of its agent.
func (c *Checker) historyOf(n *sim.Node) *history {
	h := c.histories[n.Name()]
	switch {
	case h == nil:
		h = &history{life: n.Life()}
		c.histories[n.Name()] = h
	case h.life != n.Life():
		// What the earlier lives left stays until this one is done. The last one has heard more than when it was looked at.
		h.told = h.now()
		past := append(h.lives, history{told: h.told, undo: h.undo})
		// It may have been killed before it heard that an address went.
		lost := append(h.lost, slices.SortedFunc(maps.Keys(h.told.Addresses), netip.Addr.Compare)...)
		*h = history{life: n.Life(), lives: past, lost: lost, hand: h.hand}
	}
	if h.now == nil {
		h.now = n.Hearing()
	}
	h.told = h.now()
	return h
}

// mayHave reports whether a node's agent could not know yet that an address is gone: somebody took it
// away, and the agent did not hear, or is not done with it. An address from a pool is the agent's own
// to take away.
func (c *Checker) mayHave(n *sim.Node, a netip.Addr) bool {
	h := c.historyOf(n)
	if h.hand == n.HandVersion() {
		for _, o := range c.w.Kube.List(kube.KindEgress) {
			if eg := o.(*v1beta1.Egress); eg.Spec.ExternalIPPool != "" && eg.Spec.EgressIP == a.String() {
				return false
			}
		}
	}
	return len(h.told.Addresses[a]) > 0 || slices.Contains(h.lost, a)
}

// current returns the object that a node was told of, if objects of the kind matter to Egress.
func current(t sim.Told, kind, key string) (o runtime.Object, relevant bool) {
	switch kind {
	case edge.KindEgress:
		return lookup(t.Egresses, key), true
	case edge.KindExternalIPPool:
		return lookup(t.Pools, key), true
	case edge.KindEgressGroup:
		return lookup(t.Groups, key), true
	case edge.KindNode:
		return lookup(t.Nodes, key), true
	case edge.KindPod:
		return lookup(t.Pods, key), true
	case edge.KindNamespace:
		return lookup(t.Namespaces, key), true
	}
	return nil, false
}

func lookup[T any, P interface {
	*T
	runtime.Object
}](m map[string]P, key string,
) runtime.Object {
	if o, ok := m[key]; ok {
		return o
	}
	return nil
}

// ever reports whether a condition held in the present state or in any since the agent was last done.
func (c *Checker) ever(n *sim.Node, holds func(*reference.View) bool) bool {
	if holds(c.view(n)) {
		return true
	}
	h := c.historyOf(n)
	if c.back(n.Name(), h.told, h.undo, holds) {
		return true
	}
	for i := len(h.lives) - 1; i >= 0; i-- {
		l := h.lives[i]
		if holds(c.viewOf(n.Name(), l.told)) || c.back(n.Name(), l.told, l.undo, holds) {
			return true
		}
	}
	return false
}

// back goes back from a state, event by event.
func (c *Checker) back(node string, t sim.Told, undo []change, holds func(*reference.View) bool) bool {
	if len(undo) == 0 {
		return false
	}
	t.Egresses, t.Pools, t.Nodes = maps.Clone(t.Egresses), maps.Clone(t.Pools), maps.Clone(t.Nodes)
	t.Pods, t.Namespaces, t.Groups = maps.Clone(t.Pods), maps.Clone(t.Namespaces), maps.Clone(t.Groups)
	for i := len(undo) - 1; i >= 0; i-- {
		u := undo[i]
		switch u.kind {
		case "":
			t.Alive = u.alive
		case edge.KindEgress:
			restore(t.Egresses, u, func(o runtime.Object) *v1beta1.Egress { return o.(*v1beta1.Egress) })
		case edge.KindExternalIPPool:
			restore(t.Pools, u, func(o runtime.Object) *v1beta1.ExternalIPPool { return o.(*v1beta1.ExternalIPPool) })
		case edge.KindEgressGroup:
			restore(t.Groups, u, func(o runtime.Object) *v1beta1.EgressGroup { return o.(*v1beta1.EgressGroup) })
		case edge.KindNode:
			restore(t.Nodes, u, func(o runtime.Object) *corev1.Node { return o.(*corev1.Node) })
		case edge.KindPod:
			restore(t.Pods, u, func(o runtime.Object) *corev1.Pod { return o.(*corev1.Pod) })
		case edge.KindNamespace:
			restore(t.Namespaces, u, func(o runtime.Object) *corev1.Namespace { return o.(*corev1.Namespace) })
		}
		if holds(c.viewOf(node, t)) {
			return true
		}
	}
	return false
}

func restore[T any](m map[string]T, u change, as func(runtime.Object) T) {
	if u.before == nil {
		delete(m, u.key)
		return
	}
	m[u.key] = as(u.before)
}
