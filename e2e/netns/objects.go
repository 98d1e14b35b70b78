//go:build linux

package netns

import (
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/sim/kube"
)

// objects is scenarios.Objects: each method is one deed at the API, alone.
type objects struct{ c *cluster }

// Get implements scenarios.Objects.
func (o objects) Get(kind kube.Kind, namespace, name string) (obj runtime.Object, err error) {
	o.c.api.Do(func(k *kube.Cluster) { obj, err = k.Get(kind, namespace, name) })
	return obj, err
}

// List implements scenarios.Objects.
func (o objects) List(kind kube.Kind) (list []runtime.Object) {
	o.c.api.Do(func(k *kube.Cluster) { list = k.List(kind) })
	return list
}

// Events implements scenarios.Objects.
func (o objects) Events(kind kube.Kind, namespace, name string) (list []kube.RecordedEvent) {
	o.c.api.Do(func(k *kube.Cluster) { list = k.Events(kind, namespace, name) })
	return list
}

// Apply implements scenarios.Objects.
func (o objects) Apply(data []byte, file string) (list []kube.Result, err error) {
	o.c.api.Do(func(k *kube.Cluster) { list, err = k.Apply(data, file) })
	return list, err
}

// Delete implements scenarios.Objects.
func (o objects) Delete(kind kube.Kind, namespace, name string) error {
	return o.c.do(func(k *kube.Cluster) error { return k.Delete(kind, namespace, name) })
}

// DeleteFile implements scenarios.Objects.
func (o objects) DeleteFile(data []byte, file string) (list []kube.Result, err error) {
	o.c.api.Do(func(k *kube.Cluster) { list, err = k.DeleteFile(data, file) })
	return list, err
}

// Patch implements scenarios.Objects.
func (o objects) Patch(kind kube.Kind, namespace, name string, patch []byte) (obj runtime.Object, err error) {
	o.c.api.Do(func(k *kube.Cluster) { obj, err = k.Patch(kind, namespace, name, patch) })
	return obj, err
}

// CreateNamespace implements scenarios.Objects.
func (o objects) CreateNamespace(name string, labels map[string]string) error {
	return o.c.do(func(k *kube.Cluster) error { return k.CreateNamespace(name, labels) })
}

// CreatePod implements scenarios.Objects.
func (o objects) CreatePod(p kube.PodConfig) error {
	return o.c.do(func(k *kube.Cluster) error { return k.CreatePod(p) })
}

// SetPodTerminating implements scenarios.Objects.
func (o objects) SetPodTerminating(namespace, name string, serving bool) error {
	return o.c.do(func(k *kube.Cluster) error { return k.SetPodTerminating(namespace, name, serving) })
}

// ChangeLabels implements scenarios.Objects.
func (o objects) ChangeLabels(kind kube.Kind, namespace, name string, set map[string]string, remove []string) error {
	return o.c.do(func(k *kube.Cluster) error { return k.ChangeLabels(kind, namespace, name, set, remove) })
}

// ChangeAnnotations implements scenarios.Objects.
func (o objects) ChangeAnnotations(kind kube.Kind, namespace, name string, set map[string]string, remove []string) error {
	return o.c.do(func(k *kube.Cluster) error { return k.ChangeAnnotations(kind, namespace, name, set, remove) })
}
