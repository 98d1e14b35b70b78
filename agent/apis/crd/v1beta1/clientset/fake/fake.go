// Package fake has clients for the custom resources over client-go's testing.Fake.
package fake

import (
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/testing"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/apis/crd/v1beta1/clientset"
)

// Clientset answers calls from the reactors of its Fake. It has none of its own: the caller adds
// those of an object tracker.
type Clientset struct {
	*testing.Fake
}

var _ clientset.Interface = &Clientset{}

// Egresses implements clientset.Interface.
func (c *Clientset) Egresses() clientset.EgressInterface {
	return gentype.NewFakeClientWithList(c.Fake, "", v1beta1.EgressResource, v1beta1.EgressKind,
		func() *v1beta1.Egress { return &v1beta1.Egress{} },
		func() *v1beta1.EgressList { return &v1beta1.EgressList{} },
		func(dst, src *v1beta1.EgressList) { dst.ListMeta = src.ListMeta },
		func(l *v1beta1.EgressList) []*v1beta1.Egress { return gentype.ToPointerSlice(l.Items) },
		func(l *v1beta1.EgressList, items []*v1beta1.Egress) { l.Items = gentype.FromPointerSlice(items) })
}

// ExternalIPPools implements clientset.Interface.
func (c *Clientset) ExternalIPPools() clientset.ExternalIPPoolInterface {
	return gentype.NewFakeClientWithList(c.Fake, "", v1beta1.ExternalIPPoolResource, v1beta1.ExternalIPPoolKind,
		func() *v1beta1.ExternalIPPool { return &v1beta1.ExternalIPPool{} },
		func() *v1beta1.ExternalIPPoolList { return &v1beta1.ExternalIPPoolList{} },
		func(dst, src *v1beta1.ExternalIPPoolList) { dst.ListMeta = src.ListMeta },
		func(l *v1beta1.ExternalIPPoolList) []*v1beta1.ExternalIPPool { return gentype.ToPointerSlice(l.Items) },
		func(l *v1beta1.ExternalIPPoolList, items []*v1beta1.ExternalIPPool) {
			l.Items = gentype.FromPointerSlice(items)
		})
}

// EgressGroups implements clientset.Interface.
func (c *Clientset) EgressGroups() clientset.EgressGroupInterface {
	return gentype.NewFakeClientWithList(c.Fake, "", v1beta1.EgressGroupResource, v1beta1.EgressGroupKind,
		func() *v1beta1.EgressGroup { return &v1beta1.EgressGroup{} },
		func() *v1beta1.EgressGroupList { return &v1beta1.EgressGroupList{} },
		func(dst, src *v1beta1.EgressGroupList) { dst.ListMeta = src.ListMeta },
		func(l *v1beta1.EgressGroupList) []*v1beta1.EgressGroup { return gentype.ToPointerSlice(l.Items) },
		func(l *v1beta1.EgressGroupList, items []*v1beta1.EgressGroup) {
			l.Items = gentype.FromPointerSlice(items)
		})
}
