package kube

import (
	"time"

	"towtank/agent/edge"
)

// RecordedEvent is a Kubernetes Event: something that was said about an object, once or often.
type RecordedEvent struct {
	// Kind, Namespace and Name are the object it is about.
	Kind            Kind
	Namespace, Name string
	// Type is Normal or Warning.
	Type, Reason, Message string
	// Source is who said it: the agent of a node, the controller.
	Source string
	// Count is how often; First and Last are when.
	Count       int
	First, Last time.Time
}

type recordedKey struct {
	ref                          edge.Ref
	typ, reason, message, source string
}

// maxEvents bounds the Events that are kept: the oldest go first, as they do in a cluster after an hour.
const maxEvents = 100_000

// RecordEvent records that somebody said something about an object; the same again only counts.
func (c *Cluster) RecordEvent(source string, ref edge.Ref, eventType, reason, message string) {
	c.record(RecordedEvent{
		Kind: Kind(ref.Kind), Namespace: ref.Namespace, Name: ref.Name,
		Type: eventType, Reason: reason, Message: message, Source: source,
	})
}

func (c *Cluster) record(e RecordedEvent) {
	key := recordedKey{edge.Ref{Kind: string(e.Kind), Namespace: e.Namespace, Name: e.Name}, e.Type, e.Reason, e.Message, e.Source}
	now := c.cfg.Now()
	if i, ok := c.eventAt[key]; ok {
		c.events[i].Count++
		c.events[i].Last = now
		return
	}
	if len(c.events) >= maxEvents {
		c.events = append(c.events[:0], c.events[maxEvents/2:]...)
		for k, i := range c.eventAt {
			if c.eventAt[k] = i - maxEvents/2; i < maxEvents/2 {
				delete(c.eventAt, k)
			}
		}
	}
	e.Count, e.First, e.Last = 1, now, now
	c.eventAt[key] = len(c.events)
	c.events = append(c.events, e)
}

// Events returns what was said about an object, in the order in which it was said first.
func (c *Cluster) Events(kind Kind, namespace, name string) []RecordedEvent {
	var out []RecordedEvent
	for i := range c.events {
		if e := &c.events[i]; e.Kind == kind && e.Namespace == namespace && e.Name == name {
			out = append(out, *e)
		}
	}
	return out
}
