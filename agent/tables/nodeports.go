package tables

import (
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/edge"
	"towtank/datapath"
)

// NodePortAddresses returns the addresses of this node that NodePorts are served on: those of the Node object; with
// networks configured (nodePortAddresses) those in them, and whatever else the node has in them. An Egress IP is never one.
func NodePortAddresses(t *Tables) []netip.Addr {
	var out []netip.Addr
	for _, a := range NodeAddresses(t.ThisNode()) {
		allowed := len(t.Cfg.NodePortAddresses) == 0 || t.inNodePortNetworks(a)
		if _, family := t.Cfg.Gateway(a.Is6()); allowed && family && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, a := range t.moreNodePorts {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

func (t *Tables) inNodePortNetworks(a netip.Addr) bool {
	return slices.ContainsFunc(t.Cfg.NodePortAddresses, func(p netip.Prefix) bool { return p.Contains(a) })
}

// NodePortsChanged reports whether the last event changed NodePortAddresses otherwise than by this node's object.
func (t *Tables) NodePortsChanged() bool { return t.nodePortsChanged }

func (t *Tables) nodePortsMayChange(ev any, old runtime.Object) bool {
	if len(t.Cfg.NodePortAddresses) == 0 {
		return false
	}
	switch e := ev.(type) {
	case datapath.AddressEvent:
		if len(t.Addresses[e.Addr]) == 0 {
			delete(t.leaving, e.Addr)
		}
		return t.inNodePortNetworks(e.Addr)
	case edge.ObjectEvent:
		if e.Kind != edge.KindEgress {
			return false
		}
		was, _ := old.(*v1beta1.Egress)
		is := t.Egresses[e.Key]
		before, after := EgressAddresses(was), EgressAddresses(is)
		changed := false
		for _, a := range slices.Concat(before, after) {
			if slices.Contains(before, a) == slices.Contains(after, a) || len(t.Addresses[a]) == 0 || !t.inNodePortNetworks(a) {
				continue
			}
			changed = true
			if was != nil && was.Spec.ExternalIPPool != "" && was.Spec.EgressIP == a.String() {
				t.leaving[a] = true
			}
		}
		return changed
	case edge.SyncedEvent:
		return e.Kind == edge.KindEgress
	}
	return false
}

// findNodePorts looks which addresses of the node are in the networks of NodePorts and no Egress IPs. Before all Egresses
// are known that cannot be told.
func (t *Tables) findNodePorts() {
	if !t.Synced[edge.KindEgress] {
		return
	}
	var found []netip.Addr
	for _, a := range slices.SortedFunc(maps.Keys(t.Addresses), netip.Addr.Compare) {
		gateway, family := t.Cfg.Gateway(a.Is6())
		if family && a != gateway && t.inNodePortNetworks(a) && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !t.leaving[a] && !t.isEgressIP(a) {
			found = append(found, a)
		}
	}
	t.nodePortsChanged = !slices.Equal(found, t.moreNodePorts)
	t.moreNodePorts = found
}

func (t *Tables) isEgressIP(a netip.Addr) bool {
	for _, e := range t.Egresses {
		if slices.Contains(EgressAddresses(e), a) {
			return true
		}
	}
	return false
}
