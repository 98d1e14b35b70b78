// Package groups computes which Pods each Egress applies to, and writes it as EgressGroups, for agents that do not
// look at selectors themselves (membership=egressgroup). It runs in the controller's process, with the same kind of
// loop as the agent: events in, writes out, no goroutine and no clock of its own.
package groups

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/edge"
)

// Kinds are the kinds that the controller has to be told of.
var Kinds = []string{edge.KindEgress, edge.KindEgressGroup, edge.KindPod, edge.KindNamespace}

// Seams is everything that the controller has effects on.
type Seams struct {
	Cluster edge.Cluster
	Clock   edge.Clock
	Post    func(f func())
	Log     klog.Logger
}

// Controller computes and writes groups.
type Controller struct {
	s          Seams
	egresses   map[string]*egress
	pods       map[string]*corev1.Pod
	namespaces map[string]*corev1.Namespace
	groups     map[string]*v1beta1.EgressGroup
	synced     map[string]bool
	due        map[string]bool // Egresses whose group may differ from what it should be
	flight     map[string]bool
	delay      map[string]time.Duration // before the next try, of writes that failed
	posted     bool
	stopped    bool
}

// egress is an Egress with its selectors, parsed, and the Pods that it applies to.
type egress struct {
	*v1beta1.Egress
	podSelector, namespaceSelector labels.Selector // nil: not given
	members                        map[string]bool
}

// New returns a controller.
func New(s Seams) *Controller {
	return &Controller{
		s: s, egresses: map[string]*egress{}, pods: map[string]*corev1.Pod{}, namespaces: map[string]*corev1.Namespace{},
		groups: map[string]*v1beta1.EgressGroup{}, synced: map[string]bool{}, due: map[string]bool{}, flight: map[string]bool{},
		delay: map[string]time.Duration{},
	}
}

// Stop ends the controller.
func (c *Controller) Stop() { c.stopped = true }

// Handle takes one event.
func (c *Controller) Handle(ev any) {
	switch e := ev.(type) {
	case edge.ObjectEvent:
		c.object(e)
	case edge.SyncedEvent:
		c.synced[e.Kind] = true
	}
	c.wake()
}

// Ready reports whether everything that there was at the start is known.
func (c *Controller) Ready() bool {
	return !slices.ContainsFunc(Kinds, func(k string) bool { return !c.synced[k] })
}

// Writing returns the Egresses whose group is to be looked at or is being written, sorted, as group/NAME.
func (c *Controller) Writing() []string {
	var out []string
	for _, names := range []map[string]bool{c.due, c.flight} {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			out = append(out, "group/"+name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Idle reports whether there is nothing left to do for what was heard.
func (c *Controller) Idle() bool { return c.Ready() && !c.posted && len(c.due)+len(c.flight) == 0 }

func (c *Controller) object(e edge.ObjectEvent) {
	switch e.Kind {
	case edge.KindEgress:
		delete(c.egresses, e.Key)
		if eg, ok := e.Object.(*v1beta1.Egress); ok {
			c.egresses[e.Key] = c.parsed(eg)
			c.due[e.Key] = true
		}
	case edge.KindEgressGroup:
		delete(c.groups, e.Key)
		if g, ok := e.Object.(*v1beta1.EgressGroup); ok {
			c.groups[e.Key] = g
		}
		c.due[e.Key] = true
	case edge.KindPod:
		delete(c.pods, e.Key)
		if pod, ok := e.Object.(*corev1.Pod); ok {
			c.pods[e.Key] = pod
		}
		c.look(e.Key)
	case edge.KindNamespace:
		delete(c.namespaces, e.Key)
		if ns, ok := e.Object.(*corev1.Namespace); ok {
			c.namespaces[e.Key] = ns
		}
		//determinism:ignore every Pod is looked at by itself
		for key := range c.pods {
			if strings.HasPrefix(key, e.Key+"/") {
				c.look(key)
			}
		}
	}
}

// parsed reads an Egress and finds its Pods.
func (c *Controller) parsed(eg *v1beta1.Egress) *egress {
	e := &egress{Egress: eg, members: map[string]bool{}}
	e.podSelector = parse(eg.Spec.AppliedTo.PodSelector)
	e.namespaceSelector = parse(eg.Spec.AppliedTo.NamespaceSelector)
	//determinism:ignore every Pod is looked at by itself
	for key := range c.pods {
		if c.selects(e, key) {
			e.members[key] = true
		}
	}
	return e
}

// parse returns nil for a selector that is not given, and one that picks nothing for one that cannot be read.
func parse(in *metav1.LabelSelector) labels.Selector {
	if in == nil {
		return nil
	}
	s, err := metav1.LabelSelectorAsSelector(in)
	if err != nil {
		return labels.Nothing()
	}
	return s
}

// look finds out which Egresses apply to a Pod.
func (c *Controller) look(key string) {
	//determinism:ignore every Egress is looked at by itself
	for name, e := range c.egresses {
		if is := c.selects(e, key); is != e.members[key] {
			c.due[name] = true
			if is {
				e.members[key] = true
			} else {
				delete(e.members, key)
			}
		}
	}
}

// selects reports whether an Egress applies to a Pod: one that has a node, does not use its network, and did not end.
func (c *Controller) selects(e *egress, key string) bool {
	pod := c.pods[key]
	if pod == nil || pod.Spec.NodeName == "" || pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded ||
		pod.Status.Phase == corev1.PodFailed || e.podSelector == nil && e.namespaceSelector == nil {
		return false
	}
	if e.podSelector != nil && !e.podSelector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	ns := c.namespaces[pod.Namespace]
	return e.namespaceSelector == nil || ns != nil && e.namespaceSelector.Matches(labels.Set(ns.Labels))
}

func (c *Controller) wake() {
	if c.posted || c.stopped {
		return
	}
	c.posted = true
	c.s.Post(func() {
		c.posted = false
		if !c.stopped && c.Ready() {
			c.turn()
		}
	})
}

// turn writes the groups that differ from what they should be. A group whose Egress went is left to the API server,
// as its owner is gone.
func (c *Controller) turn() {
	for _, name := range slices.Sorted(maps.Keys(c.due)) {
		if c.flight[name] {
			continue
		}
		delete(c.due, name)
		if e := c.egresses[name]; e != nil {
			c.write(name, e)
		}
	}
}

// write brings the group of an Egress up to date.
func (c *Controller) write(name string, e *egress) {
	want := e.group()
	old := c.groups[name]
	if old == nil {
		c.send(name, func(done func(runtime.Object, error)) { c.s.Cluster.Create(want, done) })
		return
	}
	if old.Of(e.Egress) && slices.Equal(old.GroupMembers, want.GroupMembers) {
		return
	}
	next := old.DeepCopy()
	next.OwnerReferences, next.GroupMembers = want.OwnerReferences, want.GroupMembers
	c.send(name, func(done func(runtime.Object, error)) { c.s.Cluster.Update(next, done) })
}

// group returns the group as it should be.
func (e *egress) group() *v1beta1.EgressGroup {
	g := &v1beta1.EgressGroup{ObjectMeta: metav1.ObjectMeta{
		Name:            e.Name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(e.Egress, v1beta1.EgressKind)},
	}}
	for _, key := range slices.Sorted(maps.Keys(e.members)) {
		ns, name, _ := strings.Cut(key, "/")
		g.GroupMembers = append(g.GroupMembers, v1beta1.GroupMember{Pod: v1beta1.PodReference{Namespace: ns, Name: name}})
	}
	slices.SortFunc(g.GroupMembers, func(a, b v1beta1.GroupMember) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return g
}

// send writes, one at a time for each group. The answer is what the group is now, until the watch tells more.
func (c *Controller) send(name string, call func(done func(runtime.Object, error))) {
	c.flight[name] = true
	call(func(o runtime.Object, err error) {
		delete(c.flight, name)
		switch {
		case err == nil:
			delete(c.delay, name)
			if g, ok := o.(*v1beta1.EgressGroup); ok && newer(g, c.groups[name]) {
				c.groups[name] = g
			}
		case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
			// The watch tells what is there now; if it does not, the next try does.
			c.later(name, err)
			return
		default:
			c.s.Log.Error(err, "Writing an EgressGroup failed", "egress", name)
			c.later(name, err)
			return
		}
		c.due[name] = true
		c.wake()
	})
}

// newer reports whether a is a later version than b, which may be nil.
func newer(a, b *v1beta1.EgressGroup) bool {
	return b == nil || a.UID != b.UID || len(a.ResourceVersion) > len(b.ResourceVersion) ||
		len(a.ResourceVersion) == len(b.ResourceVersion) && a.ResourceVersion > b.ResourceVersion
}

// later tries again after a while.
func (c *Controller) later(name string, err error) {
	d := edge.Backoff(c.delay[name], err)
	c.delay[name] = d
	c.s.Clock.AfterFunc(d, edge.Work, func() {
		c.due[name] = true
		c.wake()
	})
}
