package sim

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/edge"
	"towtank/sim/kube"
)

// clusterSeam is edge.Cluster of one agent.
type clusterSeam struct{ p *proc }

var errNoAPI = errors.New("the API server cannot be reached")

// UpdateStatus implements edge.Cluster.
func (c clusterSeam) UpdateStatus(obj runtime.Object, done func(runtime.Object, error)) {
	c.write(obj, c.p.node.world.Kube.UpdateStatus, done)
}

// Update implements edge.Cluster.
func (c clusterSeam) Update(obj runtime.Object, done func(runtime.Object, error)) {
	c.write(obj, c.p.node.world.Kube.Update, done)
}

// Create implements edge.Cluster.
func (c clusterSeam) Create(obj runtime.Object, done func(runtime.Object, error)) {
	c.write(obj, c.p.node.world.Kube.Create, done)
}

func (c clusterSeam) write(obj runtime.Object, call func(runtime.Object) (runtime.Object, error), done func(runtime.Object, error)) {
	p := c.p
	key := objectKey(obj)
	var out runtime.Object
	var err error
	p.effect(effect{
		class: EffectAPIStatus, units: []string{key}, lane: "api " + key,
		do: func() {
			if !p.node.world.apiReachable(p.node.name) {
				err = errNoAPI
				return
			}
			out, err = call(obj)
		},
		refuse: func(e error, _ bool) { done(nil, e) },
		answer: func() { done(out, err) },
	})
}

func objectKey(o runtime.Object) string {
	type named interface {
		GetNamespace() string
		GetName() string
	}
	n, ok := o.(named)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%T/%s/%s", o, n.GetNamespace(), n.GetName())
}

// Get implements edge.Cluster.
func (c clusterSeam) Get(kind, namespace, name string, done func(runtime.Object, error)) {
	p := c.p
	var out runtime.Object
	var err error
	p.effect(effect{
		class: EffectAPIGet, text: kind + " " + namespace + "/" + name, lane: "api get " + kind + namespace + name,
		do: func() {
			if !p.node.world.apiReachable(p.node.name) {
				err = errNoAPI
				return
			}
			out, err = p.node.world.Kube.Get(kube.Kind(kind), namespace, name)
		},
		refuse: func(e error, _ bool) { done(nil, e) },
		answer: func() { done(out, err) },
	})
}

// Record implements edge.Cluster. An Event that cannot be written is lost, as with Kubernetes' own
// recorder.
func (c clusterSeam) Record(ref edge.Ref, eventType, reason, message string) {
	p := c.p
	p.effect(effect{
		class: EffectRecord, units: []string{ref.Kind + "/" + ref.Namespace + "/" + ref.Name}, text: eventType + " " + reason + ": " + message, lane: "events",
		do: func() {
			if p.node.world.apiReachable(p.node.name) {
				p.node.world.Kube.RecordEvent(p.node.name, ref, eventType, reason, message)
			}
		},
		refuse: func(error, bool) {},
		answer: func() {},
	})
}

// mine reports whether the Pod of an event is on the agent's node.
func (p *proc) mine(e kube.Event) bool {
	pod, ok := e.Object.(*corev1.Pod)
	return ok && pod.Spec.NodeName == p.node.name
}
