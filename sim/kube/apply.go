package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"towtank/agent/apis/crd/v1beta1"
)

// Result is what happened to one object of a file.
type Result struct {
	Kind            Kind
	Namespace, Name string
	// Action is created, configured, unchanged or deleted, as kubectl says it.
	Action string
	// NoEffect is set for kinds that are kept and do nothing here.
	NoEffect bool
	// Notes say what of the object is not modelled.
	Notes []string
}

// String returns the result as kubectl prints it, with what has no effect.
func (r Result) String() string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	s := fmt.Sprintf("%s %s %s", strings.ToLower(string(r.Kind)), name, r.Action)
	if r.NoEffect {
		s += " (has no effect here)"
	}
	for _, n := range r.Notes {
		s += "; " + n
	}
	return s
}

// Apply creates or updates every object of a file (several YAML documents, Lists). Labels,
// annotations and spec become those of the file; what the cluster filled in (cluster IP, node ports,
// health port, an Egress IP given by a pool) and the status stay, unless the file gives them. An object that cannot be
// read, or is refused, does not keep the others from being applied, as with kubectl. The error says all that were.
// filename is for errors.
func (c *Cluster) Apply(data []byte, filename string) ([]Result, error) {
	defer c.done()
	list, err := decode(data, filename)
	var out []Result
	var refused []error
	if err != nil {
		refused = append(refused, err)
	}
	for _, m := range list {
		r, err := c.applyOne(m)
		if err != nil {
			refused = append(refused, locate(err, m, filename))
			continue
		}
		out = append(out, r)
	}
	return out, errors.Join(refused...)
}

// locate adds file, document and lines to an error about an object that was read from a file.
func locate(err error, m manifest, filename string) error {
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		return fmt.Errorf("%s:%d: %s: %w", filename, lineOf(m.doc, ""), describe(m.info, m.object), err)
	}
	invalid.File, invalid.Document = filename, m.doc.number
	for i := range invalid.Problems {
		invalid.Problems[i].Line = lineOf(m.doc, invalid.Problems[i].Field)
	}
	return invalid
}

func (c *Cluster) applyOne(m manifest) (Result, error) {
	o := m.object
	t := c.tables[m.info.kind]
	if m.info.namespaced && o.GetNamespace() == "" {
		o.SetNamespace("default")
	}
	r := Result{Kind: m.info.kind, Namespace: o.GetNamespace(), Name: o.GetName(), NoEffect: !m.info.effect, Notes: notes(o)}
	old, exists := t.objects[t.key(o)]
	if !exists {
		_, err := c.create(m.info, o)
		if err == nil && m.givenIP {
			c.givenIP[o.GetName()] = true
		}
		r.Action = "created"
		return r, err
	}
	if uid := o.GetUID(); uid != "" && uid != old.GetUID() {
		return r, apierrors.NewConflict(m.info.resource(), o.GetName(), errModified)
	}
	if v := o.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return r, apierrors.NewConflict(m.info.resource(), o.GetName(), errModified)
	}
	if !m.hasStatus {
		copyStatus(o, old)
	}
	if o.GetOwnerReferences() == nil {
		o.SetOwnerReferences(old.GetOwnerReferences())
	}
	o.SetDeletionTimestamp(old.GetDeletionTimestamp())
	o.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	c.keepFilled(old, o)
	stored, err := c.update(t, old, o)
	if err != nil {
		return r, err
	}
	if _, ok := o.(*v1beta1.Egress); ok {
		c.givenIP[o.GetName()] = m.givenIP
	}
	r.Action = "configured"
	if stored == old {
		r.Action = "unchanged"
	}
	return r, nil
}

// keepFilled keeps what the cluster filled in and the file does not give. Services keep theirs on
// every update.
func (c *Cluster) keepFilled(old, o object) {
	switch o := o.(type) {
	case *v1beta1.Egress:
		was := old.(*v1beta1.Egress)
		samePool := o.Spec.ExternalIPPool != "" && o.Spec.ExternalIPPool == was.Spec.ExternalIPPool
		if o.Spec.EgressIP == "" && samePool && !c.givenIP[o.Name] {
			o.Spec.EgressIP = was.Spec.EgressIP
		}
	case *corev1.Node:
		was := old.(*corev1.Node)
		if o.Spec.PodCIDR == "" && len(o.Spec.PodCIDRs) == 0 {
			o.Spec.PodCIDR, o.Spec.PodCIDRs = was.Spec.PodCIDR, slices.Clone(was.Spec.PodCIDRs)
		}
	}
}

// notes say what of an object is not modelled, though its kind is.
func notes(o object) []string {
	var template *corev1.PodSpec
	switch o := o.(type) {
	case *corev1.Pod:
		template = &o.Spec
	case *appsv1.Deployment:
		template = &o.Spec.Template.Spec
	case *appsv1.ReplicaSet:
		template = &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		template = &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		template = &o.Spec.Template.Spec
	case *discoveryv1.EndpointSlice:
		if o.Labels[discoveryv1.LabelServiceName] == "" {
			return []string{"it has no label " + discoveryv1.LabelServiceName + ", so it belongs to no Service"}
		}
	}
	var out []string
	if template != nil {
		for _, n := range notModelled(template) {
			out = append(out, n+" is not modelled: Pods of a workload are spread over the nodes")
		}
	}
	return out
}

// DeleteFile deletes every object of a file, the last first. An object that does not exist, or cannot be read, is an error, and
// does not keep the others from being deleted, as with kubectl.
func (c *Cluster) DeleteFile(data []byte, filename string) ([]Result, error) {
	defer c.done()
	list, refused := decode(data, filename)
	slices.Reverse(list)
	var out []Result
	emptied := map[string]bool{}
	for _, m := range list {
		o := m.object
		if m.info.namespaced && o.GetNamespace() == "" {
			o.SetNamespace("default")
		}
		t := c.tables[m.info.kind]
		old, ok := t.objects[t.key(o)]
		if !ok && m.info.namespaced && emptied[o.GetNamespace()] {
			continue // it went with its Namespace
		}
		if !ok {
			refused = errors.Join(refused, locate(m.info.notFound(o.GetName()), m, filename))
			continue
		}
		if err := c.delete(t, old); err != nil {
			refused = errors.Join(refused, locate(err, m, filename))
			continue
		}
		emptied[o.GetName()] = emptied[o.GetName()] || m.info.kind == KindNamespace
		out = append(out, Result{Kind: m.info.kind, Namespace: o.GetNamespace(), Name: o.GetName(), Action: "deleted", NoEffect: !m.info.effect})
	}
	return out, refused
}

// Patch changes an object by a JSON merge patch (RFC 7396). A status in it goes to the status
// subresource, the rest to the object.
func (c *Cluster) Patch(kind Kind, namespace, name string, patch []byte) (runtime.Object, error) {
	defer c.done()
	t, err := c.table(kind)
	if err != nil {
		return nil, err
	}
	old, ok := t.objects[keyOf(t.info, namespace, name)]
	if !ok {
		return nil, t.info.notFound(name)
	}
	var p map[string]any
	if err := json.Unmarshal(patch, &p); err != nil {
		return nil, fmt.Errorf("patch of %s: not a JSON object: %w", describe(t.info, old), err)
	}
	status, hasStatus := p["status"]
	delete(p, "status")
	if len(p) > 0 {
		o, err := patched(t.info, old, p)
		if err != nil {
			return nil, err
		}
		copyStatus(o, old)
		if old, err = c.update(t, old, o); err != nil {
			return nil, err
		}
	}
	if hasStatus {
		o, err := patched(t.info, old, map[string]any{"status": status})
		if err != nil {
			return nil, err
		}
		if p := validateStatus(o); len(p) > 0 {
			return nil, &InvalidError{Object: describe(t.info, o), Problems: p}
		}
		old = c.replace(t, old, o)
	}
	return old, nil
}

// PatchObject is Patch as the API has it of the object: a status in it is ignored.
func (c *Cluster) PatchObject(kind Kind, namespace, name string, patch []byte) (runtime.Object, error) {
	return c.patchPart(kind, namespace, name, patch, func(p map[string]any) map[string]any {
		delete(p, "status")
		return p
	})
}

// PatchStatus is Patch as the API has it of the status subresource: what is not in the status is ignored,
// but for the resource version.
func (c *Cluster) PatchStatus(kind Kind, namespace, name string, patch []byte) (runtime.Object, error) {
	return c.patchPart(kind, namespace, name, patch, func(p map[string]any) map[string]any {
		part := map[string]any{}
		if v, ok := p["status"]; ok {
			part["status"] = v
		}
		meta, _ := p["metadata"].(map[string]any)
		if v, ok := meta["resourceVersion"]; ok {
			part["metadata"] = map[string]any{"resourceVersion": v}
		}
		return part
	})
}

func (c *Cluster) patchPart(kind Kind, namespace, name string, patch []byte, part func(map[string]any) map[string]any) (runtime.Object, error) {
	var p map[string]any
	if err := json.Unmarshal(patch, &p); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	data, err := json.Marshal(part(p))
	if err != nil {
		return nil, fmt.Errorf("patch of %s %s: %w", kind, name, err)
	}
	return c.Patch(kind, namespace, name, data)
}

// patched returns a copy of an object with a merge patch applied.
func patched(info *kindInfo, old object, patch map[string]any) (object, error) {
	data, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("patch of %s: %w", describe(info, old), err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("patch of %s: %w", describe(info, old), err)
	}
	merge(tree, patch)
	if data, err = json.Marshal(tree); err != nil {
		return nil, fmt.Errorf("patch of %s: %w", describe(info, old), err)
	}
	version := info.versions[0]
	if v := old.GetObjectKind().GroupVersionKind().Version; v != "" {
		version = v
	}
	o, err := info.object(version)
	if err != nil {
		return nil, err
	}
	strict, err := kjson.UnmarshalStrict(data, o)
	if p := decodeProblems(o, document{text: data}, data, strict, err); len(p) > 0 {
		for i := range p {
			p[i].Line = 0
		}
		return nil, &InvalidError{Object: describe(info, old), Problems: p}
	}
	if o.GetName() != old.GetName() || o.GetNamespace() != old.GetNamespace() {
		return nil, fmt.Errorf("patch of %s: name and namespace cannot be changed", describe(info, old))
	}
	if o.GetResourceVersion() != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(info.resource(), old.GetName(), errModified)
	}
	return o, nil
}

// merge applies a JSON merge patch: null removes, objects merge, everything else replaces.
func merge(to, patch map[string]any) {
	//determinism:ignore each key is merged by itself
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(to, k)
		case map[string]any:
			sub, ok := to[k].(map[string]any)
			if !ok {
				sub = make(map[string]any)
			}
			merge(sub, v)
			to[k] = sub
		default:
			to[k] = v
		}
	}
}
