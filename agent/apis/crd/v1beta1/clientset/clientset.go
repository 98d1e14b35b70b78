// Package clientset has typed clients for the custom resources of package v1beta1.
package clientset

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"towtank/agent/apis/crd/v1beta1"
)

// Interface gives access to the custom resources.
type Interface interface {
	Egresses() EgressInterface
	ExternalIPPools() ExternalIPPoolInterface
	EgressGroups() EgressGroupInterface
}

// EgressInterface reads and writes Egresses.
type EgressInterface interface {
	Create(ctx context.Context, egress *v1beta1.Egress, opts metav1.CreateOptions) (*v1beta1.Egress, error)
	Update(ctx context.Context, egress *v1beta1.Egress, opts metav1.UpdateOptions) (*v1beta1.Egress, error)
	UpdateStatus(ctx context.Context, egress *v1beta1.Egress, opts metav1.UpdateOptions) (*v1beta1.Egress, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1beta1.Egress, error)
	List(ctx context.Context, opts metav1.ListOptions) (*v1beta1.EgressList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*v1beta1.Egress, error)
}

// ExternalIPPoolInterface reads and writes ExternalIPPools.
type ExternalIPPoolInterface interface {
	Create(ctx context.Context, pool *v1beta1.ExternalIPPool, opts metav1.CreateOptions) (*v1beta1.ExternalIPPool, error)
	Update(ctx context.Context, pool *v1beta1.ExternalIPPool, opts metav1.UpdateOptions) (*v1beta1.ExternalIPPool, error)
	UpdateStatus(ctx context.Context, pool *v1beta1.ExternalIPPool, opts metav1.UpdateOptions) (*v1beta1.ExternalIPPool, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1beta1.ExternalIPPool, error)
	List(ctx context.Context, opts metav1.ListOptions) (*v1beta1.ExternalIPPoolList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*v1beta1.ExternalIPPool, error)
}

// EgressGroupInterface reads and writes EgressGroups.
type EgressGroupInterface interface {
	Create(ctx context.Context, group *v1beta1.EgressGroup, opts metav1.CreateOptions) (*v1beta1.EgressGroup, error)
	Update(ctx context.Context, group *v1beta1.EgressGroup, opts metav1.UpdateOptions) (*v1beta1.EgressGroup, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1beta1.EgressGroup, error)
	List(ctx context.Context, opts metav1.ListOptions) (*v1beta1.EgressGroupList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Clientset talks to an API server.
type Clientset struct {
	client rest.Interface
	codec  runtime.ParameterCodec
}

// NewForConfig returns clients for the API server that config names. config is not changed.
func NewForConfig(config *rest.Config) (*Clientset, error) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("add %s to a scheme: %w", v1beta1.SchemeGroupVersion, err)
	}
	gv := v1beta1.SchemeGroupVersion
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &gv, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	// Custom resources are served as JSON only.
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", gv, err)
	}
	return &Clientset{client: client, codec: runtime.NewParameterCodec(scheme)}, nil
}

// Egresses implements Interface.
func (c *Clientset) Egresses() EgressInterface {
	return gentype.NewClientWithList("egresses", c.client, c.codec, "",
		func() *v1beta1.Egress { return &v1beta1.Egress{} },
		func() *v1beta1.EgressList { return &v1beta1.EgressList{} })
}

// ExternalIPPools implements Interface.
func (c *Clientset) ExternalIPPools() ExternalIPPoolInterface {
	return gentype.NewClientWithList("externalippools", c.client, c.codec, "",
		func() *v1beta1.ExternalIPPool { return &v1beta1.ExternalIPPool{} },
		func() *v1beta1.ExternalIPPoolList { return &v1beta1.ExternalIPPoolList{} })
}

// EgressGroups implements Interface.
func (c *Clientset) EgressGroups() EgressGroupInterface {
	return gentype.NewClientWithList("egressgroups", c.client, c.codec, "",
		func() *v1beta1.EgressGroup { return &v1beta1.EgressGroup{} },
		func() *v1beta1.EgressGroupList { return &v1beta1.EgressGroupList{} })
}
