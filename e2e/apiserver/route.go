package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"towtank/sim/kube"
)

// Access is something that a client did, in the words of RBAC.
type Access struct {
	// Verb is get, list, watch, create, update, patch or delete.
	Verb string
	// Group and Resource are those of the API; Resource has its subresource: egresses/status.
	Group, Resource string
	// Namespace is where; empty for cluster-scoped resources and for all namespaces.
	Namespace string
}

// String returns the access as kubectl auth can-i words it.
func (a Access) String() string {
	r := a.Resource
	if a.Group != "" {
		r = a.Group + "/" + r
	}
	if a.Namespace != "" {
		r += " in " + a.Namespace
	}
	return a.Verb + " " + r
}

// request is one request for a resource.
type request struct {
	client          *client
	verb            string
	version         schema.GroupVersion
	kind            kube.Kind // empty for Events
	resource        string
	namespace, name string
	sub             string
	http            *http.Request
	w               http.ResponseWriter
}

// access is the request in the words of RBAC.
func (r *request) access() Access {
	a := Access{Verb: r.verb, Group: r.version.Group, Resource: r.resource, Namespace: r.namespace}
	if r.sub != "" {
		a.Resource += "/" + r.sub
	}
	return a
}

// serve answers one request.
func (s *Server) serve(w http.ResponseWriter, hr *http.Request) {
	c := s.who(hr)
	if c == nil {
		fail(w, apierrors.NewUnauthorized("no bearer token of a client of this server"))
		return
	}
	if s.effects(c, w, hr) || s.discovery(w, hr) {
		return
	}
	r, err := parse(hr)
	if err != nil {
		fail(w, err)
		return
	}
	r.client, r.w = c, w
	s.mu.Lock()
	c.access[r.access()] = true
	err = r.forbidden()
	s.mu.Unlock()
	if err != nil {
		fail(w, err)
		return
	}
	switch r.verb {
	case "list":
		s.list(r)
	case "watch":
		s.watch(r)
	default:
		s.single(r)
	}
}

// who returns the client that a request is from, nil if its token is nobody's.
func (s *Server) who(hr *http.Request) *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _ := strings.CutPrefix(hr.Header.Get("Authorization"), "Bearer ")
	c := s.byToken[t]
	if conn, ok := hr.Context().Value(connKey{}).(net.Conn); ok && c != nil {
		c.conns[conn] = true
	}
	return c
}

// parse reads method and path: /api/v1/… or /apis/GROUP/VERSION/…, then
// [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func parse(hr *http.Request) (*request, error) {
	r := &request{http: hr}
	parts := strings.Split(strings.Trim(hr.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		r.version, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		r.version, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return nil, noSuchPath(hr)
	}
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" {
		r.namespace, parts = parts[1], parts[2:]
	}
	r.resource, parts = parts[0], parts[1:]
	if len(parts) > 0 {
		r.name, parts = parts[0], parts[1:]
	}
	if len(parts) > 0 {
		r.sub, parts = parts[0], parts[1:]
	}
	if err := r.known(len(parts)); err != nil {
		return nil, err
	}
	return r, r.setVerb(hr)
}

// known finds the kind of a request.
func (r *request) known(left int) error {
	gr := schema.GroupResource{Group: r.version.Group, Resource: r.resource}
	isEvent := gr == eventResource && r.version.Version == "v1"
	kind, ok := kube.KindOfResource(gr)
	r.kind = kind
	switch {
	case isEvent && r.sub == "":
	case !ok || kind.APIVersion() != r.version.String() || left > 0:
		return noSuchPath(r.http)
	case r.sub != "" && (r.sub != "status" || !kind.HasStatus()):
		return noSuchPath(r.http)
	case !kind.Namespaced() && r.namespace != "":
		return noSuchPath(r.http)
	case kind.Namespaced() && r.namespace == "" && r.name != "":
		return noSuchPath(r.http)
	}
	return nil
}

func noSuchPath(hr *http.Request) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("the server could not find the requested resource (%s)", hr.URL.Path),
	}}
}

// setVerb finds the verb of RBAC for a method.
func (r *request) setVerb(hr *http.Request) error {
	collection := r.name == ""
	watch := hr.URL.Query().Get("watch")
	switch {
	case hr.Method == http.MethodGet && collection && (watch == "1" || watch == "true"):
		r.verb = "watch"
	case hr.Method == http.MethodGet && collection:
		r.verb = "list"
	case hr.Method == http.MethodGet:
		r.verb = "get"
	case hr.Method == http.MethodPost && collection:
		r.verb = "create"
	case hr.Method == http.MethodPut && !collection:
		r.verb = "update"
	case hr.Method == http.MethodPatch && !collection:
		r.verb = "patch"
	case hr.Method == http.MethodDelete && !collection:
		r.verb = "delete"
	default:
		return r.notAllowed(strings.ToLower(hr.Method))
	}
	return nil
}

func (r *request) notAllowed(verb string) error {
	return apierrors.NewMethodNotSupported(schema.GroupResource{Group: r.version.Group, Resource: r.resource}, verb)
}

// Accesses returns what a client did so far, each once, in no order.
func (s *Server) Accesses(client string) []Access {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Access
	for a := range s.client(client).access {
		out = append(out, a)
	}
	return out
}

// statusOf makes an error one of the API.
func statusOf(err error) metav1.Status {
	var invalid *kube.InvalidError
	var api apierrors.APIStatus
	switch {
	case errors.As(err, &invalid):
		st := invalid.Status()
		st.Message = invalid.Error()
		return st
	case errors.As(err, &api):
		return api.Status()
	}
	return apierrors.NewInternalError(err).Status()
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	st := statusOf(err)
	st.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	data, err := json.Marshal(st)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, int(st.Code), data)
}

// answer writes JSON.
func answer(w http.ResponseWriter, code int, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	if code == 0 {
		code = http.StatusInternalServerError
	}
	w.WriteHeader(code)
	_, _ = w.Write(data) // the client is gone if this fails
}
