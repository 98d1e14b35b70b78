package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/ptr"
)

// schedulePods gives every Pod without a node one that is ready and that it selects: the node with
// the fewest Pods of the same owner, then with the fewest Pods, then the oldest.
func (c *Cluster) schedulePods() {
	var nodes []*corev1.Node
	for _, key := range c.tables[KindNode].keys() {
		if node, ok := get[*corev1.Node](c, KindNode, key); ok {
			nodes = append(nodes, node)
		}
	}
	for _, key := range c.index.unbound.sorted() {
		pod, ok := get[*corev1.Pod](c, KindPod, key)
		if !ok || pod.DeletionTimestamp != nil {
			continue
		}
		if node := c.nodeFor(pod, nodes); node != "" {
			c.bind(key, node)
		} else {
			c.unschedulable(pod, len(nodes))
		}
	}
}

// bind sets the node of a Pod.
func (c *Cluster) bind(key, node string) {
	// The Pod was just read.
	_ = change(c, KindPod, key, func(p *corev1.Pod) {
		p.Spec.NodeName = node
		setPodCondition(p, corev1.PodScheduled, true, c.now())
	})
}

// unschedulable says of a Pod, once, that no node takes it.
func (c *Cluster) unschedulable(pod *corev1.Pod, nodes int) {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			return
		}
	}
	key := pod.Namespace + "/" + pod.Name
	// The Pod was just read.
	_ = change(c, KindPod, key, func(p *corev1.Pod) {
		setPodCondition(p, corev1.PodScheduled, false, c.now())
		p.Status.Conditions[len(p.Status.Conditions)-1].Reason = corev1.PodReasonUnschedulable
	})
	c.record(RecordedEvent{
		Kind: KindPod, Namespace: pod.Namespace, Name: pod.Name, Type: corev1.EventTypeWarning, Reason: "FailedScheduling", Source: "scheduler",
		Message: fmt.Sprintf("0/%d nodes are available: none is ready and selected by the Pod", nodes),
	})
}

func (c *Cluster) nodeFor(pod *corev1.Pod, nodes []*corev1.Node) string {
	type candidate struct {
		name         string
		siblings     int
		pods         int
		creationRank string
	}
	var siblings map[string]int
	if ref := metav1.GetControllerOf(pod); ref != nil {
		siblings = c.index.siblings[ref.UID]
	}
	var best *candidate
	for _, node := range nodes {
		if node.Spec.Unschedulable || !nodeReady(node) || !selectsNode(&pod.Spec, node) {
			continue
		}
		n := &candidate{node.Name, siblings[node.Name], len(c.index.podsByNode[node.Name]), string(node.UID)}
		if best == nil || cmp.Or(n.siblings-best.siblings, n.pods-best.pods, strings.Compare(n.creationRank, best.creationRank)) < 0 {
			best = n
		}
	}
	if best == nil {
		return ""
	}
	return best.name
}

// selectsNode reports whether nodeSelector and the required node affinity of a Pod take a node.
func selectsNode(spec *corev1.PodSpec, node *corev1.Node) bool {
	for k, v := range spec.NodeSelector {
		if !hasLabel(node.Labels, k, v) {
			return false
		}
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return true
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return required == nil || slices.ContainsFunc(required.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return len(t.MatchExpressions)+len(t.MatchFields) > 0 && matchTerm(t.MatchExpressions, node.Labels) &&
			matchTerm(t.MatchFields, map[string]string{metav1.ObjectNameField: node.Name})
	})
}

var nodeOperators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn, corev1.NodeSelectorOpExists: selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist, corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

// matchTerm reports whether all requirements hold of a node's labels; a malformed one does not.
func matchTerm(requirements []corev1.NodeSelectorRequirement, set map[string]string) bool {
	for _, r := range requirements {
		req, err := labels.NewRequirement(r.Key, nodeOperators[r.Operator], r.Values)
		if err != nil || !req.Matches(labels.Set(set)) {
			return false
		}
	}
	return true
}

func nodeReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return node.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

// notModelled lists what a Pod's spec asks of the scheduler that is not modelled here.
func notModelled(spec *corev1.PodSpec) []string {
	var out []string
	if a := spec.Affinity; a != nil {
		if a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			out = append(out, "podAffinity")
		}
		if a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			out = append(out, "podAntiAffinity")
		}
	}
	if len(spec.TopologySpreadConstraints) > 0 {
		out = append(out, "topologySpreadConstraints")
	}
	if ptr.Deref(spec.RuntimeClassName, "") != "" {
		out = append(out, "runtimeClassName")
	}
	return out
}
