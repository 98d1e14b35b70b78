package kube

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// table has the objects of one kind by key.
type table struct {
	info    *kindInfo
	objects map[string]object
	// deleted are the last deletions in order, for watches that begin at a version.
	deleted []deletion
	// forgotten is the version of the last deletion that is not among them.
	forgotten uint64
}

// maxDeletions is how many deletions of a kind are remembered at least: older versions are expired.
const maxDeletions = 4096

type deletion struct {
	version uint64
	object  object
}

func (c *Cluster) table(kind Kind) (*table, error) {
	if t := c.tables[kind]; t != nil {
		return t, nil
	}
	_, err := KindNamed(string(kind))
	if err == nil {
		err = fmt.Errorf("%q is written as in a manifest", kind)
	}
	return nil, err
}

// keys returns the keys sorted by namespace and name.
func (t *table) keys() []string { return slices.SortedFunc(maps.Keys(t.objects), compareKeys) }

// compareKeys orders keys by namespace, then name. It is not the order of the texts: a/b sorts
// before a-b/c.
func compareKeys(a, b string) int {
	ans, an := splitKey(a)
	bns, bn := splitKey(b)
	if c := strings.Compare(ans, bns); c != 0 {
		return c
	}
	return strings.Compare(an, bn)
}

// keyOf is namespace/name, or name for cluster-scoped kinds.
func keyOf(info *kindInfo, namespace, name string) string {
	if !info.namespaced {
		return name
	}
	return namespace + "/" + name
}

func splitKey(key string) (namespace, name string) {
	if ns, name, ok := strings.Cut(key, "/"); ok {
		return ns, name
	}
	return "", key
}

// key of an object of its kind.
func (t *table) key(o object) string { return keyOf(t.info, o.GetNamespace(), o.GetName()) }

// get returns a typed object by its key.
func get[T object](c *Cluster, kind Kind, key string) (o T, ok bool) {
	v, found := c.tables[kind].objects[key]
	if !found {
		return o, false
	}
	o, ok = v.(T)
	return o, ok
}

// add stores a new object, which it then owns: identity, times and version are set here. It was
// defaulted and validated before.
func (c *Cluster) add(t *table, o object) {
	c.version++
	c.lastUID++
	o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", c.lastUID)))
	o.SetCreationTimestamp(metav1.NewTime(c.cfg.Now().Truncate(time.Second)))
	o.SetResourceVersion(strconv.FormatUint(c.version, 10))
	o.SetGeneration(0)
	if spec(o) != nil {
		o.SetGeneration(1)
	}
	o.SetSelfLink("")
	o.SetManagedFields(nil)
	clearType(t, o)
	key := t.key(o)
	t.objects[key] = o
	c.notify(t, Added, key, nil, o)
}

// clearType removes kind and version from an object that has an effect, as clients see it. The others
// may be of several versions.
func clearType(t *table, o object) {
	if t.info.effect {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
}

// replace stores a new state of an object, which it then owns. It returns what is stored: the old
// object if nothing changed.
func (c *Cluster) replace(t *table, old, o object) object {
	o.SetNamespace(old.GetNamespace())
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetGeneration(old.GetGeneration())
	o.SetResourceVersion(old.GetResourceVersion())
	o.SetSelfLink("")
	o.SetManagedFields(nil)
	clearType(t, o)
	s := spec(o)
	switch {
	case s != nil && !apiequality.Semantic.DeepEqual(spec(old), s):
		o.SetGeneration(old.GetGeneration() + 1)
	case apiequality.Semantic.DeepEqual(old, o):
		return old
	}
	c.version++
	o.SetResourceVersion(strconv.FormatUint(c.version, 10))
	key := t.key(o)
	t.objects[key] = o
	c.notify(t, Modified, key, old, o)
	return o
}

// remove deletes an object and, in the end, what it owns.
func (c *Cluster) remove(t *table, o object) {
	c.version++
	last := o.DeepCopyObject().(object)
	last.SetResourceVersion(strconv.FormatUint(c.version, 10))
	key := t.key(o)
	delete(t.objects, key)
	t.deleted = append(t.deleted, deletion{c.version, last})
	if len(t.deleted) > 2*maxDeletions {
		n := len(t.deleted) - maxDeletions
		t.forgotten = t.deleted[n-1].version
		t.deleted = slices.Clone(t.deleted[n:])
	}
	c.release(o)
	c.notify(t, Deleted, key, o, last)
}

// release gives back what an object had allocated.
func (c *Cluster) release(o object) {
	switch t := kindName(o); t {
	case KindService:
		c.releaseService(o)
	case KindEgress:
		delete(c.givenIP, o.GetName())
	}
}

func kindName(o object) Kind {
	if info, err := kindOf(o); err == nil {
		return info.kind
	}
	return ""
}

// notify spreads a write: to the indexes and controllers, the observer and the streams.
func (c *Cluster) notify(t *table, typ EventType, key string, old, o object) {
	c.indexed(t.info.kind, typ, key, old, o)
	e := Event{Type: typ, Kind: t.info.kind, Key: key, Object: o}
	for _, f := range c.observers {
		f(e)
	}
	for _, s := range c.watchers[t.info.kind] {
		s.push(e)
	}
}

// errModified is the text the API server gives for a conflict.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// current returns the stored object that a write of o is meant for: NotFound if there is none or
// another one of its name, Conflict if it has another version.
func (c *Cluster) current(o runtime.Object) (*table, object, error) {
	info, err := kindOf(o)
	if err != nil {
		return nil, nil, err
	}
	typed, ok := o.(object)
	if !ok {
		return nil, nil, fmt.Errorf("objects of type %T have no metadata", o)
	}
	t := c.tables[info.kind]
	old, ok := t.objects[t.key(typed)]
	if !ok {
		return nil, nil, info.notFound(typed.GetName())
	}
	if uid := typed.GetUID(); uid != "" && uid != old.GetUID() {
		return nil, nil, apierrors.NewConflict(info.resource(), typed.GetName(),
			fmt.Errorf("precondition failed: UID in precondition: %s, UID in object meta: %s", uid, old.GetUID()))
	}
	if v := typed.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, nil, apierrors.NewConflict(info.resource(), typed.GetName(), errModified)
	}
	return t, old, nil
}

// Create stores a new object. It is defaulted and validated; the caller's object is not changed.
// Errors are StatusErrors (AlreadyExists, NotFound of its Namespace) or *InvalidError.
func (c *Cluster) Create(o runtime.Object) (runtime.Object, error) {
	defer c.done()
	info, err := kindOf(o)
	if err != nil {
		return nil, err
	}
	return c.create(info, o.DeepCopyObject().(object))
}

// create is Create of an object that it then owns.
func (c *Cluster) create(info *kindInfo, o object) (object, error) {
	t := c.tables[info.kind]
	if info.namespaced && o.GetNamespace() == "" {
		o.SetNamespace("default")
	}
	if p := validateMeta(info, o); len(p) > 0 {
		return nil, &InvalidError{Object: describe(info, o), Problems: p}
	}
	if _, exists := t.objects[t.key(o)]; exists {
		return nil, apierrors.NewAlreadyExists(info.resource(), o.GetName())
	}
	if info.namespaced {
		if _, ok := c.tables[KindNamespace].objects[o.GetNamespace()]; !ok {
			return nil, c.tables[KindNamespace].info.notFound(o.GetNamespace())
		}
	}
	if p := c.admit(info, nil, o); len(p) > 0 {
		return nil, &InvalidError{Object: describe(info, o), Problems: p}
	}
	c.add(t, o)
	return o, nil
}

// Update replaces metadata and spec of an object and keeps its status. If o has a resource version,
// it must be the stored one: else the error is a Conflict.
func (c *Cluster) Update(o runtime.Object) (runtime.Object, error) {
	defer c.done()
	t, old, err := c.current(o)
	if err != nil {
		return nil, err
	}
	n := o.DeepCopyObject().(object)
	copyStatus(n, old)
	return c.update(t, old, n)
}

// update is Update of an object that it then owns, status included.
func (c *Cluster) update(t *table, old, o object) (object, error) {
	if p := validateMeta(t.info, o); len(p) > 0 {
		return nil, &InvalidError{Object: describe(t.info, o), Problems: p}
	}
	if p := c.admit(t.info, old, o); len(p) > 0 {
		return nil, &InvalidError{Object: describe(t.info, o), Problems: p}
	}
	return c.replace(t, old, o), nil
}

// UpdateStatus replaces the status of an object and nothing else. If o has a resource version, it
// must be the stored one: else the error is a Conflict.
func (c *Cluster) UpdateStatus(o runtime.Object) (runtime.Object, error) {
	defer c.done()
	t, old, err := c.current(o)
	if err != nil {
		return nil, err
	}
	n := old.DeepCopyObject().(object)
	if !copyStatus(n, o.(object)) {
		return nil, apierrors.NewNotFound(t.info.resource(), o.(object).GetName()+"/status")
	}
	if p := validateStatus(n); len(p) > 0 {
		return nil, &InvalidError{Object: describe(t.info, n), Problems: p}
	}
	return c.replace(t, old, n), nil
}

// Delete removes an object at once, and what it owns; of a Namespace also every object in it. The error is a
// StatusError: NotFound, or Forbidden for the Namespaces that a cluster always has.
func (c *Cluster) Delete(kind Kind, namespace, name string) error {
	defer c.done()
	t, err := c.table(kind)
	if err != nil {
		return err
	}
	o, ok := t.objects[keyOf(t.info, namespace, name)]
	if !ok {
		return t.info.notFound(name)
	}
	return c.delete(t, o)
}

// immortal are the Namespaces that Kubernetes' admission does not let go.
var immortal = []string{"default", "kube-system", "kube-public"}

// delete removes an object that people delete.
func (c *Cluster) delete(t *table, o object) error {
	if t.info.kind == KindNamespace {
		if slices.Contains(immortal, o.GetName()) {
			return apierrors.NewForbidden(t.info.resource(), o.GetName(), errors.New("this namespace may not be deleted"))
		}
		for _, info := range kinds {
			if info.namespaced {
				c.empty(c.tables[info.kind], o.GetName())
			}
		}
	}
	c.remove(t, o)
	return nil
}

// empty removes the objects of one kind in a Namespace.
func (c *Cluster) empty(t *table, namespace string) {
	for _, key := range t.keys() {
		if o := t.objects[key]; o.GetNamespace() == namespace {
			c.remove(t, o)
		}
	}
}

// change stores what f makes of a copy of an object; it is for the cluster's own writes, which
// need no validation.
func change[T object](c *Cluster, kind Kind, key string, f func(T)) error {
	old, ok := get[T](c, kind, key)
	if !ok {
		_, name := splitKey(key)
		return c.tables[kind].info.notFound(name)
	}
	n := old.DeepCopyObject().(T)
	f(n)
	c.replace(c.tables[kind], old, n)
	return nil
}

// describe names an object in errors: Kind namespace/name.
func describe(info *kindInfo, o object) string {
	return string(info.kind) + " " + keyOf(info, o.GetNamespace(), o.GetName())
}
