package v1beta1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyInto copies the receiver into out.
func (in *Egress) DeepCopyInto(out *Egress) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	in.Spec.DeepCopyInto(&out.Spec)
	in.Status.DeepCopyInto(&out.Status)
}

// DeepCopy returns a copy that shares nothing with the receiver.
func (in *Egress) DeepCopy() *Egress {
	if in == nil {
		return nil
	}
	out := new(Egress)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (in *Egress) DeepCopyObject() runtime.Object {
	if in == nil {
		return nil
	}
	return in.DeepCopy()
}

// DeepCopyInto copies the receiver into out.
func (in *EgressSpec) DeepCopyInto(out *EgressSpec) {
	*out = *in
	in.AppliedTo.DeepCopyInto(&out.AppliedTo)
	out.EgressIPs = slices.Clone(in.EgressIPs)
	out.ExternalIPPools = slices.Clone(in.ExternalIPPools)
	if in.Bandwidth != nil {
		b := *in.Bandwidth
		out.Bandwidth = &b
	}
}

// DeepCopyInto copies the receiver into out.
func (in *AppliedTo) DeepCopyInto(out *AppliedTo) {
	out.PodSelector = in.PodSelector.DeepCopy()
	out.NamespaceSelector = in.NamespaceSelector.DeepCopy()
}

// DeepCopyInto copies the receiver into out.
func (in *EgressStatus) DeepCopyInto(out *EgressStatus) {
	*out = *in
	if in.Conditions == nil {
		return
	}
	out.Conditions = make([]EgressCondition, len(in.Conditions))
	for i := range in.Conditions {
		in.Conditions[i].DeepCopyInto(&out.Conditions[i])
	}
}

// DeepCopy returns a copy that shares nothing with the receiver.
func (in *EgressStatus) DeepCopy() *EgressStatus {
	if in == nil {
		return nil
	}
	out := new(EgressStatus)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyInto copies the receiver into out.
func (in *EgressCondition) DeepCopyInto(out *EgressCondition) {
	*out = *in
	in.LastTransitionTime.DeepCopyInto(&out.LastTransitionTime)
}

// DeepCopyInto copies the receiver into out.
func (in *EgressList) DeepCopyInto(out *EgressList) {
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	if in.Items == nil {
		return
	}
	out.Items = make([]Egress, len(in.Items))
	for i := range in.Items {
		in.Items[i].DeepCopyInto(&out.Items[i])
	}
}

// DeepCopyObject implements runtime.Object.
func (in *EgressList) DeepCopyObject() runtime.Object {
	if in == nil {
		return nil
	}
	out := new(EgressList)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyInto copies the receiver into out.
func (in *ExternalIPPool) DeepCopyInto(out *ExternalIPPool) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	in.Spec.DeepCopyInto(&out.Spec)
}

// DeepCopy returns a copy that shares nothing with the receiver.
func (in *ExternalIPPool) DeepCopy() *ExternalIPPool {
	if in == nil {
		return nil
	}
	out := new(ExternalIPPool)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (in *ExternalIPPool) DeepCopyObject() runtime.Object {
	if in == nil {
		return nil
	}
	return in.DeepCopy()
}

// DeepCopyInto copies the receiver into out.
func (in *ExternalIPPoolSpec) DeepCopyInto(out *ExternalIPPoolSpec) {
	*out = *in
	out.IPRanges = slices.Clone(in.IPRanges)
	if in.SubnetInfo != nil {
		s := *in.SubnetInfo
		out.SubnetInfo = &s
	}
	in.NodeSelector.DeepCopyInto(&out.NodeSelector)
}

// DeepCopyInto copies the receiver into out.
func (in *ExternalIPPoolList) DeepCopyInto(out *ExternalIPPoolList) {
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	if in.Items == nil {
		return
	}
	out.Items = make([]ExternalIPPool, len(in.Items))
	for i := range in.Items {
		in.Items[i].DeepCopyInto(&out.Items[i])
	}
}

// DeepCopyObject implements runtime.Object.
func (in *ExternalIPPoolList) DeepCopyObject() runtime.Object {
	if in == nil {
		return nil
	}
	out := new(ExternalIPPoolList)
	in.DeepCopyInto(out)
	return out
}
