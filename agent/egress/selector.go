package egress

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/tables"
	"towtank/datapath/openflow"
)

const (
	protoUDP  = openflow.ProtoUDP
	protoSCTP = openflow.ProtoSCTP
)

func icmpOf(v6 bool) uint8 {
	if v6 {
		return openflow.ProtoICMPv6
	}
	return openflow.ProtoICMP
}

func mapsEqual(a, b map[string]string) bool { return maps.Equal(a, b) }

// selector is the parsed appliedTo of an Egress.
type selector struct {
	pods, namespaces labels.Selector // nil: not given
}

func newSelector(eg *v1beta1.Egress) *selector {
	s := &selector{}
	s.pods = parseSelector(eg.Spec.AppliedTo.PodSelector)
	s.namespaces = parseSelector(eg.Spec.AppliedTo.NamespaceSelector)
	return s
}

// parseSelector returns nil for a selector that is not given, and one that picks nothing for one that
// cannot be read (validation refuses those).
func parseSelector(in *metav1.LabelSelector) labels.Selector {
	if in == nil {
		return nil
	}
	s, err := metav1.LabelSelectorAsSelector(in)
	if err != nil {
		return labels.Nothing()
	}
	return s
}

func (e *Egress) selectorOf(eg *v1beta1.Egress) *selector {
	s := e.selectors[eg.Name]
	if s == nil {
		s = newSelector(eg)
		e.selectors[eg.Name] = s
	}
	return s
}

// selection is how an Egress applies to a Pod.
type selection int

// The ways. awaited is a Pod that the selectors pick and the group does not have: one of the two is late.
const (
	notSelected selection = iota
	selected
	awaited
)

// selects reports how an Egress applies to a Pod of this node: by the Egress' group if membership is read from
// groups, else by its selectors. A Pod that is not known, does not run any more, or uses the node's network is not
// selected.
func (e *Egress) selects(eg *v1beta1.Egress, s *selector, key string) selection {
	pod := e.env.Pods[key]
	if pod == nil || finished(pod) || pod.Spec.HostNetwork {
		return notSelected
	}
	if e.env.Cfg.ByGroup() {
		if g := e.env.EgressGroups[eg.Name]; g != nil && g.Of(eg) && g.Has(pod.Namespace, pod.Name) {
			return selected
		}
	}
	switch {
	case !s.matches(e.env.Tables, key):
		return notSelected
	case e.env.Cfg.ByGroup():
		return awaited
	}
	return selected
}

// matches reports whether the selectors pick a Pod that is known.
func (s *selector) matches(t *tables.Tables, key string) bool {
	pod := t.Pods[key]
	if s.pods == nil && s.namespaces == nil {
		return false
	}
	if s.pods != nil && !s.pods.Matches(labels.Set(pod.Labels)) {
		return false
	}
	if s.namespaces == nil {
		return true
	}
	name, _, _ := strings.Cut(key, "/")
	ns := t.Namespaces[name]
	return ns != nil && s.namespaces.Matches(labels.Set(ns.Labels))
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// kilobits reads a quantity of bits.
func kilobits(text string) (uint32, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("bandwidth %q: %w", text, err)
	}
	k := q.Value() / 1000
	if k < 0 || k > 1<<32-1 {
		return 0, fmt.Errorf("bandwidth %q: want 1k to 4294967295k", text)
	}
	return uint32(k), nil
}
