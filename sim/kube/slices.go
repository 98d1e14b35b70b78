package kube

import (
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// MaxEndpointsPerSlice is how many endpoints a controller puts into one EndpointSlice, as
// kube-controller-manager does by default.
const MaxEndpointsPerSlice = 100

// The controllers that manage EndpointSlices, as in the label endpointslice.kubernetes.io/managed-by.
const (
	managedBySlices = "endpointslice-controller.k8s.io"
	managedByMirror = "endpointslicemirroring-controller.k8s.io"
	managedByWorld  = "towtank"
)

// syncEndpointSlices makes the EndpointSlices of a Service with a selector right.
func (c *Cluster) syncEndpointSlices(key string) {
	svc, ok := get[*corev1.Service](c, KindService, key)
	if !ok {
		return // the slices go with their owner
	}
	p := &packer{c: c, svc: svc, managedBy: managedBySlices, owner: ownerRef(KindService, svc, true)}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		p.pack(nil)
		return
	}
	if len(svc.Spec.Selector) == 0 {
		return // as in Kubernetes: what there is stays, and what comes is somebody else's
	}
	pods := c.selectedPods(svc)
	for _, family := range svc.Spec.IPFamilies {
		for _, pod := range pods {
			p.addPod(family, pod)
		}
	}
	p.hints()
	p.pack(svc.Spec.IPFamilies)
}

// selectedPods returns the Pods that a Service selects and that have not ended, sorted.
func (c *Cluster) selectedPods(svc *corev1.Service) []*corev1.Pod {
	var out []*corev1.Pod
	for key := range c.index.podsByLabel[firstPair(svc.Namespace, svc.Spec.Selector)] {
		pod, ok := get[*corev1.Pod](c, KindPod, key)
		if !ok || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		matches := true
		for k, v := range svc.Spec.Selector {
			matches = matches && hasLabel(pod.Labels, k, v)
		}
		if matches {
			out = append(out, pod)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func hasLabel(labels map[string]string, key, value string) bool {
	v, ok := labels[key]
	return ok && v == value
}

// packer turns the endpoints of a Service into EndpointSlices with as few changes as possible:
// what is in a slice stays in it.
type packer struct {
	c         *Cluster
	svc       *corev1.Service
	managedBy string
	owner     []metav1.OwnerReference
	groups    []*sliceGroup
	// byPorts finds a group without comparing all their ports.
	byPorts map[string]*sliceGroup
}

// sliceGroup is the endpoints that may share a slice: of one family, with the same ports.
type sliceGroup struct {
	family    corev1.IPFamily
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint
}

func (p *packer) group(family corev1.IPFamily, ports []discoveryv1.EndpointPort) *sliceGroup {
	var key strings.Builder
	key.WriteString(string(family))
	for i := range ports {
		q := &ports[i]
		fmt.Fprintf(&key, " %s/%s/%d/%s", *q.Name, *q.Protocol, *q.Port, ptr.Deref(q.AppProtocol, ""))
	}
	if g := p.byPorts[key.String()]; g != nil {
		return g
	}
	if p.byPorts == nil {
		p.byPorts = make(map[string]*sliceGroup)
	}
	g := &sliceGroup{family: family, ports: ports}
	p.byPorts[key.String()] = g
	p.groups = append(p.groups, g)
	return g
}

// addPod adds the endpoint of a Pod, if it has an address of the family.
func (p *packer) addPod(family corev1.IPFamily, pod *corev1.Pod) {
	ip := podIP(pod, family)
	if ip == "" {
		return
	}
	// As Kubernetes' controller: a Pod whose Node is gone is no endpoint, unless unready ones are wanted, too.
	if _, ok := p.c.tables[KindNode].objects[pod.Spec.NodeName]; !ok && pod.Spec.NodeName != "" && !p.svc.Spec.PublishNotReadyAddresses {
		return
	}
	serving := isReady(pod)
	terminating := pod.DeletionTimestamp != nil
	e := discoveryv1.Endpoint{
		Addresses: []string{ip},
		Conditions: discoveryv1.EndpointConditions{
			Ready:       ptr.To(p.svc.Spec.PublishNotReadyAddresses || serving && !terminating),
			Serving:     ptr.To(serving),
			Terminating: ptr.To(terminating),
		},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if pod.Spec.NodeName != "" {
		e.NodeName = ptr.To(pod.Spec.NodeName)
		e.Zone = p.c.zoneOf(pod.Spec.NodeName)
	}
	if pod.Spec.Hostname != "" && pod.Spec.Subdomain == p.svc.Name {
		e.Hostname = ptr.To(pod.Spec.Hostname)
	}
	g := p.group(family, endpointPorts(p.svc, pod))
	g.endpoints = append(g.endpoints, e)
}

// zoneOf returns the zone of a node, nil if it has none.
func (c *Cluster) zoneOf(node string) *string {
	if n, ok := get[*corev1.Node](c, KindNode, node); ok && n.Labels[corev1.LabelTopologyZone] != "" {
		return ptr.To(n.Labels[corev1.LabelTopologyZone])
	}
	return nil
}

// endpointPorts are a Service's ports on a Pod; a named target port that the Pod has not is left out.
func endpointPorts(svc *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	ports := []discoveryv1.EndpointPort{}
	for i := range svc.Spec.Ports {
		sp := &svc.Spec.Ports[i]
		if number, ok := targetPort(sp, pod); ok {
			ports = append(ports, discoveryv1.EndpointPort{
				Name: ptr.To(sp.Name), Protocol: ptr.To(sp.Protocol), Port: ptr.To(number), AppProtocol: sp.AppProtocol,
			})
		}
	}
	return ports
}

// hints sets the hints that Kubernetes gives for spec.trafficDistribution, and for the topology-mode
// annotation as long as every endpoint has a zone: an endpoint is for its own zone, or node.
func (p *packer) hints() {
	distribution := ptr.Deref(p.svc.Spec.TrafficDistribution, "")
	mode := p.svc.Annotations[corev1.AnnotationTopologyMode]
	auto := mode == "Auto" || mode == "auto"
	for _, g := range p.groups {
		if auto && distribution == "" && slices.ContainsFunc(g.endpoints, func(e discoveryv1.Endpoint) bool { return *e.Conditions.Ready && e.Zone == nil }) {
			continue
		}
		for i := range g.endpoints {
			e := &g.endpoints[i]
			if !*e.Conditions.Ready {
				continue
			}
			var h discoveryv1.EndpointHints
			if e.Zone != nil && (auto || distribution != "") {
				h.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
			}
			if e.NodeName != nil && distribution == corev1.ServiceTrafficDistributionPreferSameNode {
				h.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
			}
			if h.ForZones != nil || h.ForNodes != nil {
				e.Hints = &h
			}
		}
	}
}

// pack writes the slices: for each of the families at least one, which is empty if the Service has
// no endpoints; slices of other families go.
func (p *packer) pack(families []corev1.IPFamily) {
	var existing []*discoveryv1.EndpointSlice
	for _, key := range p.c.index.slicesByService[p.svc.Namespace+"/"+p.svc.Name].sorted() {
		if s, ok := get[*discoveryv1.EndpointSlice](p.c, KindEndpointSlice, key); ok && s.Labels[discoveryv1.LabelManagedBy] == p.managedBy {
			existing = append(existing, s)
		}
	}
	for _, family := range families {
		existing = p.packFamily(family, existing)
	}
	for _, s := range existing {
		p.c.remove(p.c.tables[KindEndpointSlice], s)
	}
}

// packFamily writes the slices of one family and returns the existing slices that it did not use.
func (p *packer) packFamily(family corev1.IPFamily, existing []*discoveryv1.EndpointSlice) (rest []*discoveryv1.EndpointSlice) {
	addressType := discoveryv1.AddressType(family)
	var free []*discoveryv1.EndpointSlice // of this family, and of no use for its endpoints and ports
	taken := make(map[*discoveryv1.EndpointSlice]bool)
	for _, g := range p.groups {
		if g.family != family || len(g.endpoints) == 0 {
			continue
		}
		p.packGroup(g, existing, taken)
	}
	for _, s := range existing {
		switch {
		case taken[s]:
		case s.AddressType == addressType:
			free = append(free, s)
		default:
			rest = append(rest, s)
		}
	}
	if len(taken) == 0 && !p.hasEndpoints(family) {
		// One empty slice says that the Service has no endpoints.
		var s *discoveryv1.EndpointSlice
		if len(free) > 0 {
			s, free = free[0], free[1:]
		}
		p.write(s, &sliceGroup{family: family}, nil)
	}
	return append(rest, free...)
}

func (p *packer) hasEndpoints(family corev1.IPFamily) bool {
	return slices.ContainsFunc(p.groups, func(g *sliceGroup) bool { return g.family == family && len(g.endpoints) > 0 })
}

// packGroup writes the slices of a group and marks the existing ones it keeps as taken. An endpoint
// that is in a slice stays there; new ones fill the slices that change anyway, then the others, then
// new slices.
func (p *packer) packGroup(g *sliceGroup, existing []*discoveryv1.EndpointSlice, taken map[*discoveryv1.EndpointSlice]bool) {
	wanted := make(map[string]discoveryv1.Endpoint, len(g.endpoints))
	var order []string
	for _, e := range g.endpoints {
		id := endpointID(e)
		if _, twice := wanted[id]; !twice {
			wanted[id] = e
			order = append(order, id)
		}
	}
	type plan struct {
		slice     *discoveryv1.EndpointSlice // nil: a new one
		endpoints []discoveryv1.Endpoint
		changed   bool
	}
	var plans []*plan
	for _, s := range existing {
		reusable := apiequality.Semantic.DeepEqual(s.Ports, g.ports) || len(s.Endpoints) == 0
		if taken[s] || s.AddressType != discoveryv1.AddressType(g.family) || !reusable {
			continue
		}
		pl := &plan{slice: s}
		for _, e := range s.Endpoints {
			w, ok := wanted[endpointID(e)]
			if !ok {
				pl.changed = true
				continue
			}
			delete(wanted, endpointID(e))
			pl.changed = pl.changed || !sameEndpoint(&e, &w)
			pl.endpoints = append(pl.endpoints, w)
		}
		plans = append(plans, pl)
	}
	var added []discoveryv1.Endpoint
	for _, id := range order {
		if e, ok := wanted[id]; ok {
			added = append(added, e)
		}
	}
	fill := func(pl *plan) {
		n := min(MaxEndpointsPerSlice-len(pl.endpoints), len(added))
		pl.endpoints, added = append(pl.endpoints, added[:n]...), added[n:]
		pl.changed = pl.changed || n > 0
	}
	for _, changed := range []bool{true, false} {
		for _, pl := range plans {
			if pl.changed == changed && len(added) > 0 && len(pl.endpoints) < MaxEndpointsPerSlice {
				fill(pl)
			}
		}
	}
	for len(added) > 0 {
		pl := &plan{}
		fill(pl)
		plans = append(plans, pl)
	}
	for _, pl := range plans {
		if len(pl.endpoints) == 0 {
			continue // goes, unless it is used as the empty one
		}
		if pl.slice != nil {
			taken[pl.slice] = true
			if !pl.changed && maps.Equal(pl.slice.Labels, p.labels()) {
				continue
			}
		}
		p.write(pl.slice, g, pl.endpoints)
	}
}

// sameEndpoint compares two endpoints of one ID; it is much faster than reflection.
func sameEndpoint(a, b *discoveryv1.Endpoint) bool {
	return ptr.Equal(a.Conditions.Ready, b.Conditions.Ready) && ptr.Equal(a.Conditions.Serving, b.Conditions.Serving) &&
		ptr.Equal(a.Conditions.Terminating, b.Conditions.Terminating) &&
		ptr.Equal(a.NodeName, b.NodeName) && ptr.Equal(a.Zone, b.Zone) && ptr.Equal(a.Hostname, b.Hostname) &&
		slices.Equal(a.Addresses, b.Addresses) && ptr.Equal(a.TargetRef, b.TargetRef) &&
		(a.Hints == b.Hints || a.Hints != nil && b.Hints != nil &&
			slices.Equal(a.Hints.ForZones, b.Hints.ForZones) && slices.Equal(a.Hints.ForNodes, b.Hints.ForNodes))
}

// endpointID tells whether two endpoints are the same one in two states.
func endpointID(e discoveryv1.Endpoint) string {
	id := strings.Join(e.Addresses, ",")
	if e.TargetRef != nil {
		id += " " + string(e.TargetRef.UID)
	}
	return id
}

// write stores a slice: old in a new state, or a new one if old is nil.
func (p *packer) write(old *discoveryv1.EndpointSlice, g *sliceGroup, endpoints []discoveryv1.Endpoint) {
	t := p.c.tables[KindEndpointSlice]
	if endpoints == nil {
		endpoints = []discoveryv1.Endpoint{}
	}
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.svc.Namespace, Labels: p.labels(), OwnerReferences: p.owner, GenerateName: p.svc.Name + "-",
		},
		AddressType: discoveryv1.AddressType(g.family), Endpoints: endpoints, Ports: g.ports,
	}
	if old != nil {
		s.Name = old.Name
		s.Annotations = old.Annotations
		p.c.replace(t, old, s)
		return
	}
	for n := 0; ; n++ {
		s.Name = p.svc.Name + "-" + suffix(fmt.Sprintf("%s %s %s %s %d", p.svc.Namespace, p.svc.Name, p.managedBy, g.family, n))
		if _, exists := t.objects[t.key(s)]; !exists {
			break
		}
	}
	p.c.add(t, s)
}

// labels are those of the Service and those that say whose the slice is.
func (p *packer) labels() map[string]string {
	labels := make(map[string]string, len(p.svc.Labels)+3)
	for k, v := range p.svc.Labels {
		if k != discoveryv1.LabelServiceName && k != discoveryv1.LabelManagedBy && k != corev1.IsHeadlessService {
			labels[k] = v
		}
	}
	if p.svc.Spec.ClusterIP == corev1.ClusterIPNone {
		labels[corev1.IsHeadlessService] = ""
	}
	labels[discoveryv1.LabelServiceName] = p.svc.Name
	labels[discoveryv1.LabelManagedBy] = p.managedBy
	return labels
}

// suffix makes five letters of a text, of those that Kubernetes uses in generated names.
func suffix(text string) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	h := fnv.New64a()
	h.Write([]byte(text))
	n := h.Sum64()
	var b [5]byte
	for i := range b {
		b[i] = letters[n%uint64(len(letters))]
		n /= uint64(len(letters))
	}
	return string(b[:])
}

func ownerRef(kind Kind, o object, controller bool) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: kindByName[kind].apiVersion(), Kind: string(kind), Name: o.GetName(), UID: o.GetUID(),
		Controller: ptr.To(controller), BlockOwnerDeletion: ptr.To(true),
	}}
}

// podIP returns a Pod's address of a family, "" if it has none.
func podIP(pod *corev1.Pod, family corev1.IPFamily) string {
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Is6() == (family == corev1.IPv6Protocol) {
			return ip.IP
		}
	}
	return ""
}

// isReady reports the condition Ready of a Pod.
func isReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return pod.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}
