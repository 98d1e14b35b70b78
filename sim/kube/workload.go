package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// labelTemplate has the hash of the template that a workload's Pod was made of.
const labelTemplate = "pod-template-hash"

// syncWorkload brings the Pods of a Deployment, ReplicaSet, StatefulSet or DaemonSet nearer to what it says. They
// are the workload's own, without ReplicaSets between, and have names that a scenario can know: NAME-0, NAME-1, …,
// for a new one the first that is free, and of a DaemonSet NAME-NODE. How Pods of an older template are replaced is in
// rollout.go.
func (c *Cluster) syncWorkload(k ownedKey) {
	t := c.tables[k.kind]
	w, ok := t.objects[k.key]
	if !ok {
		return
	}
	s := &workload{c: c, kind: k.kind, object: w}
	s.template, s.names, s.nodes = c.wantedPods(w)
	s.hash = templateHash(s.template)
	for _, owned := range takeSorted(c.index.owned[w.GetUID()]) {
		if pod, ok := get[*corev1.Pod](c, KindPod, owned.key); ok && owned.kind == KindPod {
			s.pods = append(s.pods, pod)
		}
	}
	slices.SortFunc(s.pods, byNumber)
	switch w := w.(type) {
	case *appsv1.Deployment:
		s.deployment(w)
	case *appsv1.ReplicaSet:
		s.replicas(s.active(), len(s.names))
	case *appsv1.StatefulSet:
		s.statefulSet(w)
	case *appsv1.DaemonSet:
		s.daemonSet(w)
	}
	c.countReplicas(t, w, len(s.names), s.hash)
}

// workload is one that is brought in line.
type workload struct {
	c        *Cluster
	kind     Kind
	object   object
	template *corev1.PodTemplateSpec
	hash     string
	names    []string      // of the Pods that it is to have; of a Deployment or ReplicaSet as many
	nodes    []string      // of a DaemonSet, those of the names
	pods     []*corev1.Pod // that it has
}

// current reports whether a Pod is of the present template.
func (s *workload) current(pod *corev1.Pod) bool { return pod.Labels[labelTemplate] == s.hash }

// active returns the Pods that count: those that neither end nor have ended.
func (s *workload) active() []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range s.pods {
		if pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			out = append(out, pod)
		}
	}
	return out
}

// delete removes a Pod.
func (s *workload) delete(pod *corev1.Pod) {
	s.c.remove(s.c.tables[KindPod], pod)
	s.pods = slices.DeleteFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == pod.Name })
}

// create makes the Pod of a name, unless the name is taken.
func (s *workload) create(name string, index int, node string) {
	w, key := s.object, s.object.GetNamespace()+"/"+name
	if old, exists := s.c.tables[KindPod].objects[key]; exists {
		if !metav1.IsControlledBy(old, w) {
			s.c.record(RecordedEvent{
				Kind: s.kind, Namespace: w.GetNamespace(), Name: w.GetName(), Type: corev1.EventTypeWarning,
				Reason: "FailedCreate", Message: fmt.Sprintf("Pod %s exists already and is not of this %s", key, s.kind),
			})
		}
		return
	}
	pod := &corev1.Pod{ObjectMeta: *s.template.ObjectMeta.DeepCopy(), Spec: *s.template.Spec.DeepCopy()}
	pod.Namespace, pod.Name, pod.GenerateName = w.GetNamespace(), name, w.GetName()+"-"
	pod.Labels = maps.Clone(pod.Labels)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[labelTemplate] = s.hash
	if set, ok := w.(*appsv1.StatefulSet); ok {
		pod.Labels[appsv1.StatefulSetPodNameLabel] = name
		pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(index)
		pod.Spec.Hostname = name
		pod.Spec.Subdomain = set.Spec.ServiceName
	}
	if node != "" {
		pod.Spec.NodeName = node
	}
	pod.OwnerReferences = ownerRef(s.kind, w, true)
	defaultPod(pod)
	s.c.add(s.c.tables[KindPod], pod)
	s.pods = append(s.pods, pod)
}

// createNumbered makes Pods with the first numbers that none of the workload's has.
func (s *workload) createNumbered(count int) {
	used := make(map[string]bool, len(s.pods))
	for _, pod := range s.pods {
		used[pod.Name] = true
	}
	for i := 0; count > 0; i++ {
		name := fmt.Sprintf("%s-%d", s.object.GetName(), i)
		if used[name] {
			continue
		}
		s.create(name, i, "")
		count--
	}
}

// replicas makes Pods, or removes some, until there are as many as wanted. Those that do the least go first: without a
// node, then not ready, then with the highest number.
func (s *workload) replicas(have []*corev1.Pod, want int) {
	if len(have) <= want {
		s.createNumbered(want - len(have))
		return
	}
	have = slices.SortedFunc(slices.Values(have), func(a, b *corev1.Pod) int {
		return cmp.Or(truth(a.Spec.NodeName != "")-truth(b.Spec.NodeName != ""), truth(isReady(a))-truth(isReady(b)), byNumber(b, a))
	})
	for _, pod := range have[:len(have)-want] {
		s.delete(pod)
	}
}

// byNumber compares Pods of one workload by the numbers in their names.
func byNumber(a, b *corev1.Pod) int {
	return cmp.Or(len(a.Name)-len(b.Name), cmp.Compare(a.Name, b.Name))
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// wantedPods returns the template and names of a workload's Pods; of a DaemonSet also their nodes.
func (c *Cluster) wantedPods(w object) (template *corev1.PodTemplateSpec, names, nodes []string) {
	replicas := int32(0)
	switch w := w.(type) {
	case *appsv1.Deployment:
		template, replicas = &w.Spec.Template, ptr.Deref(w.Spec.Replicas, 1)
	case *appsv1.ReplicaSet:
		template, replicas = &w.Spec.Template, ptr.Deref(w.Spec.Replicas, 1)
	case *appsv1.StatefulSet:
		template, replicas = &w.Spec.Template, ptr.Deref(w.Spec.Replicas, 1)
	case *appsv1.DaemonSet:
		template = &w.Spec.Template
		for _, key := range c.tables[KindNode].keys() {
			node, _ := get[*corev1.Node](c, KindNode, key)
			if selectsNode(&template.Spec, node) {
				names = append(names, w.Name+"-"+node.Name)
				nodes = append(nodes, node.Name)
			}
		}
		return template, names, nodes
	}
	for i := range replicas {
		names = append(names, fmt.Sprintf("%s-%d", w.GetName(), i))
	}
	return template, names, nil
}

func templateHash(template *corev1.PodTemplateSpec) string {
	// A template is plain data: it always marshals, with sorted keys.
	data, _ := json.Marshal(template)
	return suffix(string(data))
}

// countReplicas writes the status of a workload: how many Pods it has, are ready, and are of its template.
func (c *Cluster) countReplicas(t *table, w object, want int, hash string) {
	var n, ready, updated int32
	for k := range c.index.owned[w.GetUID()] {
		pod, ok := get[*corev1.Pod](c, KindPod, k.key)
		if !ok || k.kind != KindPod || pod.DeletionTimestamp != nil {
			continue
		}
		n++
		ready += int32(truth(isReady(pod)))
		updated += int32(truth(pod.Labels[labelTemplate] == hash))
	}
	o := w.DeepCopyObject().(object)
	switch o := o.(type) {
	case *appsv1.Deployment:
		o.Status.ObservedGeneration, o.Status.Replicas, o.Status.UpdatedReplicas = o.Generation, n, updated
		o.Status.ReadyReplicas, o.Status.AvailableReplicas, o.Status.UnavailableReplicas = ready, ready, max(max(n, int32(want))-ready, 0)
	case *appsv1.ReplicaSet:
		o.Status.ObservedGeneration, o.Status.Replicas, o.Status.ReadyReplicas, o.Status.AvailableReplicas = o.Generation, n, ready, ready
	case *appsv1.StatefulSet:
		o.Status.ObservedGeneration, o.Status.Replicas, o.Status.ReadyReplicas, o.Status.AvailableReplicas = o.Generation, n, ready, ready
		o.Status.UpdatedReplicas = updated
	case *appsv1.DaemonSet:
		o.Status.ObservedGeneration, o.Status.DesiredNumberScheduled, o.Status.CurrentNumberScheduled = o.Generation, int32(want), n
		o.Status.UpdatedNumberScheduled = updated
		o.Status.NumberReady, o.Status.NumberAvailable, o.Status.NumberUnavailable = ready, ready, max(int32(want)-ready, 0)
	}
	c.replace(t, w, o)
}

func takeSorted(m map[ownedKey]struct{}) []ownedKey {
	c := maps.Clone(m)
	return takeOwned(&c)
}
