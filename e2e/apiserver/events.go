package apiserver

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"towtank/agent/edge"
)

// eventResource is what recorders write. The cluster keeps Events in a form of its own.
var eventResource = schema.GroupResource{Resource: "events"}

// maxEvents is how many Events can still be patched.
const maxEvents = 10_000

// eventStore has the last Events by namespace/name, for recorders that count one up.
type eventStore struct {
	byKey map[string]*corev1.Event
	order []string
}

func newEventStore() eventStore { return eventStore{byKey: map[string]*corev1.Event{}} }

func (e *eventStore) put(key string, ev *corev1.Event) {
	if e.byKey[key] == nil {
		e.order = append(e.order, key)
	}
	e.byKey[key] = ev
	if len(e.order) > maxEvents {
		delete(e.byKey, e.order[0])
		e.order = e.order[1:]
	}
}

// event creates an Event or counts one up. It needs the lock.
func (s *Server) event(r *request, body []byte) (runtime.Object, error) {
	switch r.verb {
	case "create":
		o, _, err := decoder.Decode(body, new(corev1.SchemeGroupVersion.WithKind("Event")), nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("events: %v", err))
		}
		ev, ok := o.(*corev1.Event)
		if !ok {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("events: found %T, allowed: Event", o))
		}
		if ev.Namespace != r.namespace {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) is not the one of the request (%s)", ev.Namespace, r.namespace))
		}
		key := ev.Namespace + "/" + ev.Name
		if s.events.byKey[key] != nil {
			return nil, apierrors.NewAlreadyExists(eventResource, ev.Name)
		}
		s.record(r, key, ev)
		return ev, nil
	case "patch":
		key := r.namespace + "/" + r.name
		old := s.events.byKey[key]
		if old == nil {
			return nil, apierrors.NewNotFound(eventResource, r.name)
		}
		// Recorders patch strategically; of an Event that is the same as merging, as it has no lists.
		ev := old.DeepCopy()
		if err := json.Unmarshal(body, ev); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("patch of event %s: %v", r.name, err))
		}
		s.record(r, key, ev)
		return ev, nil
	case "get":
		if ev := s.events.byKey[r.namespace+"/"+r.name]; ev != nil {
			return ev, nil
		}
		return nil, apierrors.NewNotFound(eventResource, r.name)
	}
	return nil, r.notAllowed(r.verb)
}

func (s *Server) record(r *request, key string, ev *corev1.Event) {
	s.events.put(key, ev)
	o := ev.InvolvedObject
	s.cluster.RecordEvent(r.client.name, edge.Ref{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}, ev.Type, ev.Reason, ev.Message)
}
