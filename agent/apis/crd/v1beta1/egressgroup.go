package v1beta1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// EgressGroup is the Pods that the Egress of the same name applies to, as the controller computed them. Agents that
// run with membership=egressgroup read them in place of the selectors. In Antrea this is an internal type that its
// controller serves; here it is a custom resource like the others, owned by the Egress.
type EgressGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// GroupMembers are sorted by namespace and name.
	GroupMembers []GroupMember `json:"groupMembers,omitempty"`
}

// GroupMember is one Pod.
type GroupMember struct {
	Pod PodReference `json:"pod"`
}

// PodReference names a Pod.
type PodReference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Has reports whether a Pod is a member.
func (g *EgressGroup) Has(namespace, name string) bool {
	return slices.Contains(g.GroupMembers, GroupMember{PodReference{namespace, name}})
}

// Of reports whether the group was computed for this Egress, and not for an earlier one of its name.
func (g *EgressGroup) Of(e *Egress) bool {
	return slices.ContainsFunc(g.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == e.UID })
}

// EgressGroupList is a list of EgressGroups.
type EgressGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EgressGroup `json:"items"`
}

// DeepCopyInto copies the receiver into out.
func (g *EgressGroup) DeepCopyInto(out *EgressGroup) {
	*out = *g
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.GroupMembers = slices.Clone(g.GroupMembers)
}

// DeepCopy returns a copy that shares nothing with the receiver.
func (g *EgressGroup) DeepCopy() *EgressGroup {
	if g == nil {
		return nil
	}
	out := new(EgressGroup)
	g.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (g *EgressGroup) DeepCopyObject() runtime.Object {
	if g == nil {
		return nil
	}
	return g.DeepCopy()
}

// DeepCopyInto copies the receiver into out.
func (l *EgressGroupList) DeepCopyInto(out *EgressGroupList) {
	*out = *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	if l.Items == nil {
		return
	}
	out.Items = make([]EgressGroup, len(l.Items))
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&out.Items[i])
	}
}

// DeepCopyObject implements runtime.Object.
func (l *EgressGroupList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	out := new(EgressGroupList)
	l.DeepCopyInto(out)
	return out
}
