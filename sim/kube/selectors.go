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

// selectable are the fields that a field selector may name; spec.nodeName is one of Pods only.
var selectable = []string{"metadata.name", "metadata.namespace", "spec.nodeName"}

// Check returns an error if a field is named that objects of the kind are not selected by here.
func (s Selection) Check(kind Kind) error {
	if s.Fields == nil {
		return nil
	}
	for _, r := range s.Fields.Requirements() {
		if !slices.Contains(selectable, r.Field) || r.Field == "spec.nodeName" && kind != KindPod {
			return fmt.Errorf("field label not supported: %s of %s, allowed: %s (the last of Pods)", r.Field, kind, strings.Join(selectable, ", "))
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
	return s.Fields == nil || s.Fields.Empty() || s.Fields.Matches(fields.Set{
		"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace(), "spec.nodeName": nodeNameOf(o),
	})
}

func nodeNameOf(o metav1.Object) string {
	if p, ok := o.(*corev1.Pod); ok {
		return p.Spec.NodeName
	}
	return ""
}
