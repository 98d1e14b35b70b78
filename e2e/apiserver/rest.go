package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/sim"
	"towtank/sim/kube"
)

// maxBody is how long what a client sends may be, in bytes (etcd's limit is 1.5 MiB).
const maxBody = 3 << 20

// single answers a request that is about one object: get and all writes.
func (s *Server) single(r *request) {
	body, err := io.ReadAll(http.MaxBytesReader(r.w, r.http.Body, maxBody))
	if err != nil {
		fail(r.w, apierrors.NewRequestEntityTooLargeError(err.Error()))
		return
	}
	code := http.StatusOK
	var out []byte
	err = s.faulted(r, func() error {
		var o runtime.Object
		o, err := s.perform(r, body)
		if err != nil {
			return err
		}
		if r.verb == "create" {
			code = http.StatusCreated
		}
		out, err = encode(o)
		return err
	})
	if err != nil {
		fail(r.w, err)
		return
	}
	answer(r.w, code, out)
}

// perform does what a request asks for. It needs the lock.
func (s *Server) perform(r *request, body []byte) (runtime.Object, error) {
	if r.kind == "" {
		return s.event(r, body)
	}
	switch r.verb {
	case "get":
		return s.cluster.Get(r.kind, r.namespace, r.name)
	case "create":
		o, err := r.decode(body)
		if err != nil {
			return nil, err
		}
		return s.cluster.Create(o)
	case "update":
		return s.update(r, body)
	case "patch":
		return s.patch(r, body)
	case "delete":
		return s.delete(r, body)
	}
	return nil, r.notAllowed(r.verb)
}

// decode reads the object that a client sent, and checks that it is the one that the path names.
func (r *request) decode(body []byte) (runtime.Object, error) {
	o, gvk, err := decoder.Decode(body, new(r.version.WithKind(string(r.kind))), nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: %v", r.resource, err))
	}
	if gvk.GroupVersion() != r.version || gvk.Kind != string(r.kind) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("found %s, allowed here: %s, Kind=%s", gvk, r.version, r.kind))
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if r.kind.Namespaced() && m.GetNamespace() == "" {
		m.SetNamespace(r.namespace)
	}
	if m.GetNamespace() != r.namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) is not the one of the request (%s)", m.GetNamespace(), r.namespace))
	}
	if r.name != "" && m.GetName() != r.name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) is not the one of the request (%s)", m.GetName(), r.name))
	}
	return o, nil
}

func (s *Server) update(r *request, body []byte) (runtime.Object, error) {
	o, err := r.decode(body)
	if err != nil {
		return nil, err
	}
	m, _ := meta.Accessor(o) // decode has looked
	if m.GetResourceVersion() == "" && r.custom() {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: r.version.Group, Kind: string(r.kind)}, r.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), "", "must be specified for an update"),
		})
	}
	if r.sub == "status" {
		return s.cluster.UpdateStatus(o)
	}
	return s.cluster.Update(o)
}

// custom reports whether the resource is one of a CustomResourceDefinition: those are updated only by who
// says which version.
func (r *request) custom() bool {
	return r.version.Group == v1beta1.GroupName
}

func (s *Server) patch(r *request, body []byte) (runtime.Object, error) {
	t, _, err := mime.ParseMediaType(r.http.Header.Get("Content-Type"))
	if err != nil || types.PatchType(t) != types.MergePatchType {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: fmt.Sprintf("patch of %s: found %q, allowed: %s", r.resource, t, types.MergePatchType),
		}}
	}
	if r.sub == "status" {
		return s.cluster.PatchStatus(r.kind, r.namespace, r.name, body)
	}
	return s.cluster.PatchObject(r.kind, r.namespace, r.name, body)
}

func (s *Server) delete(r *request, body []byte) (runtime.Object, error) {
	if r.sub != "" {
		return nil, r.notAllowed("delete")
	}
	var opts metav1.DeleteOptions
	if len(body) > 0 {
		if _, _, err := decoder.Decode(body, nil, &opts); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("DeleteOptions: %v", err))
		}
	}
	if p := opts.Preconditions; p != nil {
		o, err := s.cluster.Get(r.kind, r.namespace, r.name)
		if err != nil {
			return nil, err
		}
		m, err := meta.Accessor(o)
		if err != nil {
			return nil, err
		}
		if p.UID != nil && *p.UID != m.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != m.GetResourceVersion() {
			return nil, apierrors.NewConflict(r.kind.Resource(), r.name, fmt.Errorf("it is not the one of the preconditions: UID %s, version %s", m.GetUID(), m.GetResourceVersion()))
		}
	}
	if err := s.cluster.Delete(r.kind, r.namespace, r.name); err != nil {
		return nil, err
	}
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, nil
}

// class is what a request counts as, in the words of the simulator's effects; "" if it is none: what an agent
// only does at its start, and leases.
func (r *request) class() string {
	switch {
	case r.kind == "" && r.verb != "get":
		return sim.EffectRecord
	case r.custom() && (r.verb == "create" || r.verb == "update" || r.verb == "patch"):
		return sim.EffectAPIStatus
	case r.verb == "get" && (r.custom() || r.kind == kube.KindPod || r.kind == kube.KindNamespace):
		return sim.EffectAPIGet
	}
	return ""
}

// text is the request as the journal has it.
func (r *request) text() string {
	t := r.access().String() + " " + r.name
	if q := r.http.URL.RawQuery; q != "" {
		t += "?" + q
	}
	return t
}

func jsonOf(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null") // the callers' types always marshal
	}
	return data
}
