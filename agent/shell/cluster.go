package shell

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/apis/crd/v1beta1/clientset"
	"towtank/agent/edge"
)

// apiTimeout bounds one request to the API.
const apiTimeout = 10 * time.Second

// apiWriters is how many requests to the API run at once.
const apiWriters = 4

// Cluster is edge.Cluster on an API server, and the informers that tell the loop of objects.
type Cluster struct {
	q        *Queue
	kube     kubernetes.Interface
	crd      clientset.Interface
	recorder record.EventRecorder
	handle   func(any)
	slots    chan struct{}
	log      klog.Logger
	// known has the resource versions of the objects that the loop was told of, by kind and key. It is the
	// queue's goroutine's.
	known map[string]map[string]uint64
	calls sync.WaitGroup
}

// NewCluster returns a cluster whose events go to handle, on the queue's goroutine.
func NewCluster(q *Queue, kube kubernetes.Interface, crd clientset.Interface, recorder record.EventRecorder, handle func(any), log klog.Logger) *Cluster {
	return &Cluster{q: q, kube: kube, crd: crd, recorder: recorder, handle: handle, slots: make(chan struct{}, apiWriters), log: log, known: map[string]map[string]uint64{}}
}

// WatchAgent starts the informers of a node's agent; with byGroup it reads EgressGroups, too.
func (c *Cluster) WatchAgent(ctx context.Context, node string, byGroup bool) error {
	onNode := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	core := c.kube.CoreV1()
	list := []kindInformer{
		informer(c.kube, edge.KindService, &corev1.Service{}, core.Services("").List, core.Services("").Watch, nil),
		informer(c.kube, edge.KindEndpointSlice, &discoveryv1.EndpointSlice{}, c.kube.DiscoveryV1().EndpointSlices("").List, c.kube.DiscoveryV1().EndpointSlices("").Watch, nil),
		informer(c.kube, edge.KindNode, &corev1.Node{}, core.Nodes().List, core.Nodes().Watch, nil),
		informer(c.kube, edge.KindPod, &corev1.Pod{}, core.Pods("").List, core.Pods("").Watch, onNode),
		informer(c.kube, edge.KindNamespace, &corev1.Namespace{}, core.Namespaces().List, core.Namespaces().Watch, nil),
		c.egresses(), c.pools(),
	}
	if byGroup {
		list = append(list, c.groups())
	}
	return c.run(ctx, list...)
}

// WatchController starts the informers of the controller: of the pool allocation, and with groups of what they are
// computed from.
func (c *Cluster) WatchController(ctx context.Context, groups bool) error {
	list := []kindInformer{c.egresses(), c.pools()}
	if groups {
		core := c.kube.CoreV1()
		list = append(list, c.groups(),
			informer(c.kube, edge.KindPod, &corev1.Pod{}, core.Pods("").List, core.Pods("").Watch, nil),
			informer(c.kube, edge.KindNamespace, &corev1.Namespace{}, core.Namespaces().List, core.Namespaces().Watch, nil))
	}
	return c.run(ctx, list...)
}

func (c *Cluster) egresses() kindInformer {
	return informer(c.kube, edge.KindEgress, &v1beta1.Egress{}, c.crd.Egresses().List, c.crd.Egresses().Watch, nil)
}

func (c *Cluster) pools() kindInformer {
	return informer(c.kube, edge.KindExternalIPPool, &v1beta1.ExternalIPPool{}, c.crd.ExternalIPPools().List, c.crd.ExternalIPPools().Watch, nil)
}

func (c *Cluster) groups() kindInformer {
	return informer(c.kube, edge.KindEgressGroup, &v1beta1.EgressGroup{}, c.crd.EgressGroups().List, c.crd.EgressGroups().Watch, nil)
}

// kindInformer is the informer of one kind.
type kindInformer struct {
	kind string
	cache.SharedIndexInformer
}

func informer[L runtime.Object](client any, kind string, example runtime.Object, list func(context.Context, metav1.ListOptions) (L, error),
	open func(context.Context, metav1.ListOptions) (watch.Interface, error), tweak func(*metav1.ListOptions),
) kindInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if tweak != nil {
				tweak(&o)
			}
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if tweak != nil {
				tweak(&o)
			}
			return open(ctx, o)
		},
	}
	// A client that cannot stream lists, such as a fake one, says so.
	return kindInformer{kind, cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client), example, 0, cache.Indexers{})}
}

// run starts informers; each posts its objects, and after those that existed at the start that the kind
// is synced.
func (c *Cluster) run(ctx context.Context, list ...kindInformer) error {
	for _, i := range list {
		reg, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { c.changed(i.kind, o, false) },
			UpdateFunc: func(_, o any) { c.changed(i.kind, o, false) },
			DeleteFunc: func(o any) { c.changed(i.kind, o, true) },
		})
		if err != nil {
			return fmt.Errorf("watch %s: %w", i.kind, err)
		}
		go i.RunWithContext(ctx)
		go func() {
			if cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
				c.q.Post(func() {
					c.knownOf(i.kind)
					c.handle(edge.SyncedEvent{Kind: i.kind})
				})
			}
		}()
	}
	return nil
}

// changed posts an event. A deletion that was missed comes as a tombstone with the last state known.
func (c *Cluster) changed(kind string, o any, gone bool) {
	if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = t.Obj
	}
	obj, ok := o.(runtime.Object)
	if !ok {
		c.log.Error(nil, "An informer told of something that is no object", "kind", kind, "type", fmt.Sprintf("%T", o))
		return
	}
	key, err := cache.MetaNamespaceKeyFunc(o)
	if err != nil {
		c.log.Error(err, "An object has no key", "kind", kind)
		return
	}
	version := versionOf(obj)
	if gone {
		obj = nil
	}
	c.q.Post(func() {
		if gone {
			delete(c.knownOf(kind), key)
		} else {
			c.knownOf(kind)[key] = version
		}
		c.handle(edge.ObjectEvent{Kind: kind, Key: key, Object: obj})
	})
}

func (c *Cluster) knownOf(kind string) map[string]uint64 {
	if c.known[kind] == nil {
		c.known[kind] = map[string]uint64{}
	}
	return c.known[kind]
}

// versionOf returns an object's resource version as a number, as Kubernetes compares them since 1.35; 0 if it
// is none.
func versionOf(o runtime.Object) uint64 {
	m, err := meta.Accessor(o)
	if err != nil {
		return 0
	}
	v, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// Known is how much the loop was told of a kind: how many objects, and the highest resource version of them.
// Two of them of what is told in order are of the same objects if they are equal: a write raises the version,
// and what goes lowers the count.
type Known struct {
	Objects int    `json:"objects"`
	Version uint64 `json:"resourceVersion,string"`
}

// String returns the state for people.
func (k Known) String() string {
	return fmt.Sprintf("%d objects up to version %d", k.Objects, k.Version)
}

// Known returns what the loop was told, by kind. It is called on the queue's goroutine.
func (c *Cluster) Known() map[string]Known {
	out := map[string]Known{}
	for kind, objects := range c.known {
		k := Known{Objects: len(objects)}
		for _, v := range objects {
			k.Version = max(k.Version, v)
		}
		out[kind] = k
	}
	return out
}

// do makes a request on a goroutine of its own, at most apiWriters at once, and posts the answer.
func (c *Cluster) do(call func(ctx context.Context) (runtime.Object, error), done func(runtime.Object, error)) {
	c.calls.Go(func() {
		c.slots <- struct{}{}
		defer func() { <-c.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
		defer cancel()
		o, err := call(ctx)
		c.q.Post(func() { done(o, err) })
	})
}

// Wait waits until no request is under way, for a loop that has ended.
func (c *Cluster) Wait() { c.calls.Wait() }

// UpdateStatus implements edge.Cluster.
func (c *Cluster) UpdateStatus(obj runtime.Object, done func(runtime.Object, error)) {
	c.do(func(ctx context.Context) (runtime.Object, error) {
		switch o := obj.(type) {
		case *v1beta1.Egress:
			return c.crd.Egresses().UpdateStatus(ctx, o, metav1.UpdateOptions{})
		case *v1beta1.ExternalIPPool:
			return c.crd.ExternalIPPools().UpdateStatus(ctx, o, metav1.UpdateOptions{})
		}
		return nil, fmt.Errorf("status of %T: not written by the agent", obj)
	}, done)
}

// Update implements edge.Cluster.
func (c *Cluster) Update(obj runtime.Object, done func(runtime.Object, error)) {
	c.do(func(ctx context.Context) (runtime.Object, error) {
		switch o := obj.(type) {
		case *v1beta1.Egress:
			return c.crd.Egresses().Update(ctx, o, metav1.UpdateOptions{})
		case *v1beta1.EgressGroup:
			return c.crd.EgressGroups().Update(ctx, o, metav1.UpdateOptions{})
		}
		return nil, fmt.Errorf("%T: not written by the agent", obj)
	}, done)
}

// Create implements edge.Cluster.
func (c *Cluster) Create(obj runtime.Object, done func(runtime.Object, error)) {
	c.do(func(ctx context.Context) (runtime.Object, error) {
		if o, ok := obj.(*v1beta1.EgressGroup); ok {
			return c.crd.EgressGroups().Create(ctx, o, metav1.CreateOptions{})
		}
		return nil, fmt.Errorf("%T: not made by the controller", obj)
	}, done)
}

// Get implements edge.Cluster.
func (c *Cluster) Get(kind, namespace, name string, done func(runtime.Object, error)) {
	c.do(func(ctx context.Context) (runtime.Object, error) {
		switch kind {
		case edge.KindPod:
			return c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		case edge.KindNamespace:
			return c.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		case edge.KindEgress:
			return c.crd.Egresses().Get(ctx, name, metav1.GetOptions{})
		case edge.KindExternalIPPool:
			return c.crd.ExternalIPPools().Get(ctx, name, metav1.GetOptions{})
		}
		return nil, fmt.Errorf("kind %s: not read by the agent", kind)
	}, done)
}

// Record implements edge.Cluster.
func (c *Cluster) Record(ref edge.Ref, eventType, reason, message string) {
	c.recorder.Event(&corev1.ObjectReference{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}, eventType, reason, message)
}
