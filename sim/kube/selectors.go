package kube

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selection is what a list or a watch is of: the objects of one namespace (all, if it is empty) that the
// selectors take. A nil selector takes all.
type Selection struct {
	Namespace string
	Labels    labels.Selector
	Fields    fields.Selector
}

// selectable are the fields that a field selector may name, besides the name and the namespace, by kind; as far as
// Kubernetes has them and somebody here asks for them.
var selectable = map[Kind][]string{KindPod: {"spec.nodeName"}, KindService: {"spec.clusterIP", "spec.type"}}

// Check returns an error if a field is named that objects of the kind are not selected by here.
func (s Selection) Check(kind Kind) error {
	if s.Fields == nil {
		return nil
	}
	allowed := append([]string{"metadata.name", "metadata.namespace"}, selectable[kind]...)
	for _, r := range s.Fields.Requirements() {
		if !slices.Contains(allowed, r.Field) {
			return fmt.Errorf("field label not supported: %s of %s, allowed: %s", r.Field, kind, strings.Join(allowed, ", "))
		}
	}
	return nil
}

// Takes reports whether an object is selected.
func (s Selection) Takes(o metav1.Object) bool {
	if s.Namespace != "" && o.GetNamespace() != s.Namespace {
		return false
	}
	if s.Labels != nil && !s.Labels.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	return s.Fields == nil || s.Fields.Empty() || s.Fields.Matches(fieldsOf(o))
}

// fieldsOf returns what field selectors see of an object.
func fieldsOf(o metav1.Object) fields.Set {
	f := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	switch o := o.(type) {
	case *corev1.Pod:
		f["spec.nodeName"] = o.Spec.NodeName
	case *corev1.Service:
		f["spec.clusterIP"], f["spec.type"] = o.Spec.ClusterIP, string(o.Spec.Type)
	}
	return f
}
