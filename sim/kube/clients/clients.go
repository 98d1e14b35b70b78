// Package clients has client-go's fake clientsets over a simulated cluster, for code that wants
// client-go's interfaces: the production shell with its informers. Calls and watch events behave as
// the API server's do: versions, conflicts, the status subresource, lists and watches that begin at a
// version.
package clients

import (
	"fmt"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/testing"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/apis/crd/v1beta1/clientset"
	crdfake "towtank/agent/apis/crd/v1beta1/clientset/fake"
	"towtank/sim/kube"
)

// Clients are the clientsets of one cluster. They may be used from several goroutines, which then must be the only users of the Cluster: every
// call holds one lock.
type Clients struct {
	Kubernetes kubernetes.Interface
	CRD        clientset.Interface

	c        *kube.Cluster
	watchers []*watcher
}

// watchBuffer is how many events a watch that nobody reads takes before it is closed, as a slow
// client's is.
const watchBuffer = 16384

// New returns clients of the cluster.
func New(c *kube.Cluster) *Clients {
	cl := &Clients{c: c}
	set := &fake.Clientset{}
	set.AddReactor("*", "*", cl.react)
	set.AddWatchReactor("*", cl.reactWatch)
	cl.Kubernetes, cl.CRD = set, &crdfake.Clientset{Fake: &set.Fake}
	c.AddObserver(func(e kube.Event) {
		for _, w := range cl.watchers {
			w.push(e)
		}
	})
	return cl
}

// react answers every call but watches. It runs under the lock of the Fake.
func (cl *Clients) react(action testing.Action) (handled bool, ret runtime.Object, err error) {
	kind, err := kindOf(action.GetResource())
	if err != nil {
		return true, nil, err
	}
	switch a := action.(type) {
	case testing.GetActionImpl:
		ret, err = cl.c.Get(kind, a.Namespace, a.Name)
	case testing.ListActionImpl:
		ret, err = cl.list(kind, a)
		return true, ret, err
	case testing.CreateActionImpl:
		if a.GetSubresource() != "" {
			return true, nil, fmt.Errorf("create of %s/%s is not modelled", kind.Resource().Resource, a.GetSubresource())
		}
		ret, err = cl.c.Create(inNamespace(a.GetObject(), a.Namespace))
	case testing.UpdateActionImpl:
		switch a.GetSubresource() {
		case "":
			ret, err = cl.c.Update(inNamespace(a.GetObject(), a.Namespace))
		case "status":
			ret, err = cl.c.UpdateStatus(inNamespace(a.GetObject(), a.Namespace))
		default:
			return true, nil, fmt.Errorf("update of %s/%s is not modelled", kind.Resource().Resource, a.GetSubresource())
		}
	case testing.DeleteActionImpl:
		return true, nil, cl.c.Delete(kind, a.Namespace, a.Name)
	case testing.PatchActionImpl:
		ret, err = cl.patch(kind, a)
	default:
		return true, nil, fmt.Errorf("%s of %s is not modelled", action.GetVerb(), kind.Resource().Resource)
	}
	if err != nil {
		return true, nil, err
	}
	return true, ret.DeepCopyObject(), nil
}

func (cl *Clients) patch(kind kube.Kind, a testing.PatchActionImpl) (runtime.Object, error) {
	sub := a.GetSubresource()
	if t := a.GetPatchType(); t != types.MergePatchType || sub != "" && sub != "status" {
		return nil, fmt.Errorf("patch of %s/%s by %s is not modelled, only merge patches of the object and its status are", kind.Resource().Resource, sub, t)
	}
	if sub == "status" {
		return cl.c.PatchStatus(kind, a.Namespace, a.Name, a.GetPatch())
	}
	return cl.c.PatchObject(kind, a.Namespace, a.Name, a.GetPatch())
}

func inNamespace(o runtime.Object, ns string) runtime.Object {
	if m, err := meta.Accessor(o); err == nil && m.GetNamespace() == "" && ns != "" {
		o = o.DeepCopyObject()
		m, _ = meta.Accessor(o)
		m.SetNamespace(ns)
	}
	return o
}

func kindOf(r schema.GroupVersionResource) (kube.Kind, error) {
	if k, ok := kube.KindOfResource(r.GroupResource()); ok {
		return k, nil
	}
	return "", apierrors.NewNotFound(r.GroupResource(), "")
}

func (cl *Clients) list(kind kube.Kind, a testing.ListActionImpl) (runtime.Object, error) {
	gvk := a.GetKind()
	gvk.Kind += "List"
	list, err := newList(gvk)
	if err != nil {
		return nil, err
	}
	r := a.GetListRestrictions()
	selection := kube.Selection{Namespace: a.Namespace, Labels: r.Labels, Fields: r.Fields}
	var items []runtime.Object
	for _, o := range cl.c.List(kind) {
		if m, err := meta.Accessor(o); err == nil && selection.Takes(m) {
			items = append(items, o)
		}
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	m.SetResourceVersion(strconv.FormatUint(cl.c.Version(), 10))
	return list.DeepCopyObject(), nil
}

func newList(gvk schema.GroupVersionKind) (runtime.Object, error) {
	switch gvk {
	case v1beta1.SchemeGroupVersion.WithKind("EgressList"):
		return &v1beta1.EgressList{}, nil
	case v1beta1.SchemeGroupVersion.WithKind("ExternalIPPoolList"):
		return &v1beta1.ExternalIPPoolList{}, nil
	}
	return scheme.Scheme.New(gvk)
}

// reactWatch opens a watch that begins after a version, with the objects there are if none is given.
func (cl *Clients) reactWatch(action testing.Action) (handled bool, ret watch.Interface, err error) {
	a, ok := action.(testing.WatchActionImpl)
	if !ok {
		return true, nil, fmt.Errorf("watch of %T is not modelled", action)
	}
	kind, err := kindOf(a.GetResource())
	if err != nil {
		return true, nil, err
	}
	r := a.GetWatchRestrictions()
	w := &watcher{
		kind: kind, selection: kube.Selection{Namespace: a.Namespace, Labels: r.Labels, Fields: r.Fields},
		//determinism:ignore the interface of client-go; nobody waits on it in the simulator
		seen: make(map[string]bool), ch: make(chan watch.Event, watchBuffer),
	}
	var after uint64
	if v := r.ResourceVersion; v != "" && v != "0" {
		if after, err = strconv.ParseUint(v, 10, 64); err != nil {
			return true, nil, apierrors.NewBadRequest(fmt.Sprintf("resourceVersion %q is not a number", v))
		}
	}
	deleted, complete := cl.c.DeletedSince(kind, after)
	if after > 0 && !complete {
		return true, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", after))
	}
	if after > 0 {
		for _, e := range deleted {
			w.seen[e.Key] = true
			w.push(e)
		}
	}
	for _, o := range cl.c.List(kind) {
		m, err := meta.Accessor(o)
		if err != nil {
			return true, nil, fmt.Errorf("watch %s: %w", kind, err)
		}
		key := kube.Key(kind, m.GetNamespace(), m.GetName())
		w.seen[key] = w.selection.Takes(m)
		if v, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64); err == nil && v > after {
			delete(w.seen, key)
			w.push(kube.Event{Type: kube.Added, Kind: kind, Key: key, Object: o})
		}
	}
	cl.watchers = append(cl.watchers, w)
	return true, w, nil
}

// watcher is one open watch.
type watcher struct {
	kind      kube.Kind
	selection kube.Selection
	seen      map[string]bool // the objects that the client knows

	mu     sync.Mutex // push may run while Stop does
	ch     chan watch.Event
	closed bool
}

// push gives an event to the watch, as its selectors see it: an object that is no longer selected is
// gone. A watch that does not keep up is closed, and its client lists again.
func (w *watcher) push(e kube.Event) {
	m, err := meta.Accessor(e.Object)
	if err != nil || e.Kind != w.kind {
		return
	}
	selected := e.Type != kube.Deleted && w.selection.Takes(m)
	typ := watch.Modified
	switch known := w.seen[e.Key]; {
	case !known && !selected:
		return
	case !selected:
		typ = watch.Deleted
	case !known:
		typ = watch.Added
	}
	w.seen[e.Key] = selected
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
	case len(w.ch) == cap(w.ch):
		w.closed = true
		//determinism:ignore the interface of client-go; nobody waits on it in the simulator
		close(w.ch)
	default: // there is room: this is the only sender
		//determinism:ignore the interface of client-go; nobody waits on it in the simulator
		w.ch <- watch.Event{Type: typ, Object: e.Object.DeepCopyObject()}
	}
}

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		//determinism:ignore the interface of client-go; nobody waits on it in the simulator
		close(w.ch)
	}
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.ch }
