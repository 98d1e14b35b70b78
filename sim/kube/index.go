package kube

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// set is a set of keys; whoever walks it sorts it first.
type set map[string]struct{}

// sets is a set for each of many names.
type sets map[string]set

func (s sets) add(name, key string) {
	if s[name] == nil {
		s[name] = make(set)
	}
	s[name][key] = struct{}{}
}

func (s sets) remove(name, key string) {
	if delete(s[name], key); len(s[name]) == 0 {
		delete(s, name)
	}
}

func (s set) sorted() []string { return slices.SortedFunc(maps.Keys(s), compareKeys) }

// index finds objects without walking all of them, so that the cost of a write does not grow with
// the cluster.
type index struct {
	// podsByLabel has Pods by namespace/label=value, podsByNode by node.
	podsByLabel, podsByNode sets
	// servicesByPair has Services with a selector by namespace/label=value of its first label.
	servicesByPair sets
	// slicesByService has EndpointSlices by the Service they name.
	slicesByService sets
	// owned has what an object owns by its UID: kind and key.
	owned map[types.UID]map[ownedKey]struct{}
	// siblings counts the Pods on each node by the UID of their controller.
	siblings map[types.UID]map[string]int
	// daemonSets has all DaemonSets, unbound the Pods without a node.
	daemonSets, unbound set
}

type ownedKey struct {
	kind Kind
	key  string
}

func newIndex() index {
	return index{
		podsByLabel: make(sets), podsByNode: make(sets), servicesByPair: make(sets), slicesByService: make(sets),
		owned: make(map[types.UID]map[ownedKey]struct{}), siblings: make(map[types.UID]map[string]int), daemonSets: make(set), unbound: make(set),
	}
}

// dirty is what the controllers have to look at again.
type dirty struct {
	services, endpoints set                   // keys
	workloads           map[ownedKey]struct{} // Deployments, ReplicaSets, StatefulSets, DaemonSets
	orphans             map[ownedKey]struct{} // objects whose owner is gone
	schedule            bool                  // Pods without a node, or nodes, changed
}

func newDirty() dirty {
	return dirty{
		services: make(set), endpoints: make(set),
		workloads: make(map[ownedKey]struct{}), orphans: make(map[ownedKey]struct{}),
	}
}

// pairs calls f with namespace/label=value of every label.
func pairs(namespace string, labels map[string]string, f func(pair string)) {
	//determinism:ignore f adds to an index, or takes from it
	for k, v := range labels {
		f(namespace + "/" + k + "=" + v)
	}
}

// firstPair is the entry of a selector that a Service is indexed by.
func firstPair(namespace string, selector map[string]string) string {
	k := slices.Sorted(maps.Keys(selector))[0]
	return namespace + "/" + k + "=" + selector[k]
}

// indexed keeps the indexes right after a write, and marks what depends on it as dirty. A deletion
// comes with the old object twice.
func (c *Cluster) indexed(kind Kind, typ EventType, key string, old, o object) {
	c.indexOwners(kind, typ, key, old, o)
	gone := typ == Deleted
	switch kind {
	case KindPod:
		oldPod, _ := old.(*corev1.Pod)
		c.indexPod(key, oldPod, o.(*corev1.Pod), gone)
	case KindService:
		if s, ok := old.(*corev1.Service); ok && len(s.Spec.Selector) > 0 {
			c.index.servicesByPair.remove(firstPair(s.Namespace, s.Spec.Selector), key)
		}
		if s := o.(*corev1.Service); !gone && len(s.Spec.Selector) > 0 {
			c.index.servicesByPair.add(firstPair(s.Namespace, s.Spec.Selector), key)
		}
		c.dirty.services[key] = struct{}{}
		c.dirty.endpoints[key] = struct{}{}
	case KindEndpoints:
		c.dirty.endpoints[key] = struct{}{}
	case KindEndpointSlice:
		if old != nil && !gone && old.GetLabels()[discoveryv1.LabelServiceName] == o.GetLabels()[discoveryv1.LabelServiceName] {
			return
		}
		if old != nil {
			c.index.slicesByService.remove(old.GetNamespace()+"/"+old.GetLabels()[discoveryv1.LabelServiceName], key)
		}
		if !gone {
			c.index.slicesByService.add(o.GetNamespace()+"/"+o.GetLabels()[discoveryv1.LabelServiceName], key)
		}
	case KindNode:
		oldNode, _ := old.(*corev1.Node)
		c.indexNode(oldNode, o.(*corev1.Node), gone)
	case KindDeployment, KindReplicaSet, KindStatefulSet, KindDaemonSet:
		if !gone {
			c.dirty.workloads[ownedKey{kind, key}] = struct{}{}
		}
		if kind == KindDaemonSet {
			c.index.daemonSets[key] = struct{}{}
			if gone {
				delete(c.index.daemonSets, key)
			}
		}
	}
}

// indexOwners keeps who owns what, and finds the orphans of a deleted object.
func (c *Cluster) indexOwners(kind Kind, typ EventType, key string, old, o object) {
	k := ownedKey{kind, key}
	each := func(refs []metav1.OwnerReference, f func(uid types.UID)) {
		for i := range refs {
			f(refs[i].UID)
		}
	}
	if old != nil {
		each(old.GetOwnerReferences(), func(uid types.UID) {
			if delete(c.index.owned[uid], k); len(c.index.owned[uid]) == 0 {
				delete(c.index.owned, uid)
			}
			// An owner sees what it owns go.
			if w, ok := c.workloadOf(old, uid); ok {
				c.dirty.workloads[w] = struct{}{}
			}
		})
	}
	if typ == Deleted {
		for owned := range c.index.owned[o.GetUID()] {
			c.dirty.orphans[owned] = struct{}{}
		}
		return
	}
	each(o.GetOwnerReferences(), func(uid types.UID) {
		if c.index.owned[uid] == nil {
			c.index.owned[uid] = make(map[ownedKey]struct{})
		}
		c.index.owned[uid][k] = struct{}{}
	})
}

// workloadOf returns the workload with a UID that owns o, if it still exists.
func (c *Cluster) workloadOf(o object, uid types.UID) (ownedKey, bool) {
	for _, ref := range o.GetOwnerReferences() {
		kind := Kind(ref.Kind)
		if ref.UID != uid || !isWorkload(kind) {
			continue
		}
		key := o.GetNamespace() + "/" + ref.Name
		if w, ok := c.tables[kind].objects[key]; ok && w.GetUID() == uid {
			return ownedKey{kind, key}, true
		}
	}
	return ownedKey{}, false
}

func isWorkload(k Kind) bool {
	return k == KindDeployment || k == KindReplicaSet || k == KindStatefulSet || k == KindDaemonSet
}

func (c *Cluster) indexPod(key string, old, pod *corev1.Pod, gone bool) {
	if endpointChanged(old, pod, gone) {
		if old != nil {
			c.dirtyServicesOf(old)
		}
		c.dirtyServicesOf(pod)
	}
	if old != nil {
		pairs(old.Namespace, old.Labels, func(p string) { c.index.podsByLabel.remove(p, key) })
		if old.Spec.NodeName != "" {
			c.index.podsByNode.remove(old.Spec.NodeName, key)
			c.countSibling(old, -1)
		}
	}
	delete(c.index.unbound, key)
	if gone {
		return
	}
	pairs(pod.Namespace, pod.Labels, func(p string) { c.index.podsByLabel.add(p, key) })
	if pod.Spec.NodeName != "" {
		c.index.podsByNode.add(pod.Spec.NodeName, key)
		c.countSibling(pod, 1)
	} else {
		c.index.unbound[key] = struct{}{}
		c.dirty.schedule = true
	}
}

// countSibling counts a Pod that is on a node with those of its controller.
func (c *Cluster) countSibling(pod *corev1.Pod, n int) {
	ref := metav1.GetControllerOf(pod)
	if ref == nil {
		return
	}
	byNode := c.index.siblings[ref.UID]
	if byNode == nil {
		byNode = make(map[string]int)
		c.index.siblings[ref.UID] = byNode
	}
	if byNode[pod.Spec.NodeName] += n; byNode[pod.Spec.NodeName] == 0 {
		delete(byNode, pod.Spec.NodeName)
	}
	if len(byNode) == 0 {
		delete(c.index.siblings, ref.UID)
	}
}

// endpointChanged reports whether a write of a Pod may matter to a Service: most do not, and each
// that does costs a walk over the Service's Pods.
func endpointChanged(old, pod *corev1.Pod, gone bool) bool {
	if old == nil || gone {
		return len(pod.Status.PodIPs) > 0
	}
	return !slices.Equal(old.Status.PodIPs, pod.Status.PodIPs) || old.Status.Phase != pod.Status.Phase || isReady(old) != isReady(pod) ||
		(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) || old.Spec.NodeName != pod.Spec.NodeName ||
		old.UID != pod.UID || !maps.Equal(old.Labels, pod.Labels)
}

// dirtyServicesOf marks the Services that select a Pod.
func (c *Cluster) dirtyServicesOf(pod *corev1.Pod) {
	pairs(pod.Namespace, pod.Labels, func(p string) {
		for key := range c.index.servicesByPair[p] {
			c.dirty.services[key] = struct{}{}
		}
	})
}

// indexNode marks what a change of a node concerns: its Pods' endpoints if its zone changed, the
// Pods that wait for a node, and the DaemonSets.
func (c *Cluster) indexNode(old, node *corev1.Node, gone bool) {
	if old == nil || gone || (old.Labels[corev1.LabelTopologyZone] != node.Labels[corev1.LabelTopologyZone]) {
		//determinism:ignore marks Services, which are looked at in the order of their keys
		for key := range c.index.podsByNode[node.Name] {
			if pod, ok := get[*corev1.Pod](c, KindPod, key); ok {
				c.dirtyServicesOf(pod)
			}
		}
	}
	c.dirty.schedule = true
	for key := range c.index.daemonSets {
		c.dirty.workloads[ownedKey{KindDaemonSet, key}] = struct{}{}
	}
}
