package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// labelTemplate has the hash of the template that a workload's Pod was made of.
const labelTemplate = "pod-template-hash"

// syncWorkload makes the Pods of a Deployment, ReplicaSet, StatefulSet or DaemonSet right. They are
// the workload's own, without ReplicaSets between, and named NAME-0, NAME-1, … (of a DaemonSet
// NAME-NODE), so that a scenario can name them. A Pod of an older template is replaced at once.
func (c *Cluster) syncWorkload(k ownedKey) {
	t := c.tables[k.kind]
	w, ok := t.objects[k.key]
	if !ok {
		return
	}
	template, names, nodes := c.wantedPods(w)
	hash := templateHash(template)
	wanted := make(map[string]bool, len(names))
	for _, n := range names {
		wanted[w.GetNamespace()+"/"+n] = true
	}
	pods := c.tables[KindPod]
	for _, owned := range takeSorted(c.index.owned[w.GetUID()]) {
		pod, ok := get[*corev1.Pod](c, KindPod, owned.key)
		if owned.kind == KindPod && ok && (!wanted[owned.key] || pod.Labels[labelTemplate] != hash) {
			c.remove(pods, pod)
		}
	}
	for i, name := range names {
		key := w.GetNamespace() + "/" + name
		if old, exists := pods.objects[key]; exists {
			if !metav1.IsControlledBy(old, w) {
				c.record(RecordedEvent{
					Kind: k.kind, Namespace: w.GetNamespace(), Name: w.GetName(), Type: corev1.EventTypeWarning,
					Reason: "FailedCreate", Message: fmt.Sprintf("Pod %s exists already and is not of this %s", key, k.kind),
				})
			}
			continue
		}
		pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		pod.Namespace, pod.Name, pod.GenerateName = w.GetNamespace(), name, w.GetName()+"-"
		pod.Labels = maps.Clone(pod.Labels)
		if pod.Labels == nil {
			pod.Labels = map[string]string{}
		}
		pod.Labels[labelTemplate] = hash
		if k.kind == KindStatefulSet {
			pod.Labels[appsv1.StatefulSetPodNameLabel] = name
			pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(i)
			pod.Spec.Hostname = name
			pod.Spec.Subdomain = w.(*appsv1.StatefulSet).Spec.ServiceName
		}
		if nodes != nil {
			pod.Spec.NodeName = nodes[i]
		}
		pod.OwnerReferences = ownerRef(k.kind, w, true)
		defaultPod(pod)
		c.add(pods, pod)
	}
	c.countReplicas(t, w, len(names))
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

// countReplicas writes the status of a workload: how many Pods it has, and how many are ready.
func (c *Cluster) countReplicas(t *table, w object, want int) {
	var ready int32
	for k := range c.index.owned[w.GetUID()] {
		if pod, ok := get[*corev1.Pod](c, KindPod, k.key); ok && k.kind == KindPod && isReady(pod) {
			ready++
		}
	}
	n := int32(want)
	o := w.DeepCopyObject().(object)
	switch o := o.(type) {
	case *appsv1.Deployment:
		o.Status.ObservedGeneration, o.Status.Replicas, o.Status.UpdatedReplicas = o.Generation, n, n
		o.Status.ReadyReplicas, o.Status.AvailableReplicas, o.Status.UnavailableReplicas = ready, ready, n-ready
	case *appsv1.ReplicaSet:
		o.Status.ObservedGeneration, o.Status.Replicas, o.Status.ReadyReplicas, o.Status.AvailableReplicas = o.Generation, n, ready, ready
	case *appsv1.StatefulSet:
		o.Status.ObservedGeneration, o.Status.Replicas, o.Status.ReadyReplicas, o.Status.AvailableReplicas = o.Generation, n, ready, ready
	case *appsv1.DaemonSet:
		o.Status.ObservedGeneration, o.Status.DesiredNumberScheduled, o.Status.CurrentNumberScheduled = o.Generation, n, n
		o.Status.NumberReady, o.Status.NumberAvailable, o.Status.NumberUnavailable = ready, ready, n-ready
	}
	c.replace(t, w, o)
}

func takeSorted(m map[ownedKey]struct{}) []ownedKey {
	c := maps.Clone(m)
	return takeOwned(&c)
}
