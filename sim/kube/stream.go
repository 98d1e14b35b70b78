package kube

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// EventType says what happened to an object.
type EventType string

// The types of events.
const (
	Added    EventType = "Added"
	Modified EventType = "Modified"
	Deleted  EventType = "Deleted"
	// Synced has no object: every object of the kind that existed at the start has been delivered.
	Synced EventType = "Synced"
)

// Event is one change that a watch delivers.
type Event struct {
	Type EventType
	Kind Kind
	Key  string // namespace/name, or name
	// Object is the state after the change, of a deletion the last one. It is shared: nobody changes it.
	Object runtime.Object
	// Tombstone is set for a deletion that was missed and found out by a relist: Object is then the
	// last state that the client had seen.
	Tombstone bool
}

// Stream is what one client (the agent of a node, the controller) watches: a queue for each kind.
// Within a kind the order is that of the writes; which kind comes next is the world's choice.
type Stream struct {
	c       *Cluster
	client  string
	kinds   []Kind
	queues  map[Kind]*queue
	stopped bool
	// suspended streams deliver nothing; see Suspend.
	suspended bool
}

// queue has the events of one kind that were not delivered yet.
type queue struct {
	events []Event
	head   int
	// seen are the objects as they were delivered: what a relist is compared with.
	seen map[string]object
	// synced is set once the initial list was delivered with its mark.
	synced bool
}

// gate is what a fault did to the watches of a client for a kind. It outlives a stream: a restarted
// agent finds its watches as they are.
type gate struct {
	held, closed bool
	allowance    int // events that may pass a held gate
}

// Watch opens a stream. It begins with the objects there are, sorted, and a Synced mark, for each
// kind; then come the changes. The kinds must have an effect.
func (c *Cluster) Watch(client string, kinds []Kind) (*Stream, error) {
	s := &Stream{c: c, client: client, queues: make(map[Kind]*queue)}
	for _, k := range kinds {
		if info := kindByName[k]; info == nil || !info.effect {
			return nil, fmt.Errorf("watch of %s: kind %q cannot be watched", client, k)
		}
		if s.queues[k] != nil {
			return nil, fmt.Errorf("watch of %s: kind %s is given twice", client, k)
		}
		s.kinds = append(s.kinds, k)
		s.queues[k] = &queue{seen: make(map[string]object)}
	}
	for _, k := range s.kinds {
		c.watchers[k] = append(c.watchers[k], s)
		if !c.gate(client, k).closed {
			s.list(k)
		}
	}
	c.done()
	return s, nil
}

func (c *Cluster) gate(client string, k Kind) *gate {
	if c.gates[client] == nil {
		c.gates[client] = make(map[Kind]*gate)
	}
	g := c.gates[client][k]
	if g == nil {
		g = &gate{}
		c.gates[client][k] = g
	}
	return g
}

// Kinds returns what the stream watches, in the order given to Watch.
func (s *Stream) Kinds() []Kind { return slices.Clone(s.kinds) }

// Stop ends the stream: nothing is delivered any more.
func (s *Stream) Stop() {
	s.stopped = true
	for _, k := range s.kinds {
		s.c.watchers[k] = slices.DeleteFunc(s.c.watchers[k], func(o *Stream) bool { return o == s })
	}
}

// push queues a change, unless the watch is closed.
func (s *Stream) push(e Event) {
	if s.c.gate(s.client, e.Kind).closed {
		return
	}
	q := s.queues[e.Kind]
	q.events = append(q.events, e)
	s.c.queued = true
}

// list queues the difference between what the client has seen and what is there: all objects at the
// start; after the watch was closed one event for each object that changed, appeared or went.
func (s *Stream) list(k Kind) {
	q, t := s.queues[k], s.c.tables[k]
	q.events, q.head = nil, 0
	// Deletions first: an object of the same name with another UID is a deletion and an addition.
	for _, key := range slices.SortedFunc(maps.Keys(q.seen), compareKeys) {
		if now, ok := t.objects[key]; ok && now.GetUID() == q.seen[key].GetUID() {
			continue
		}
		q.events = append(q.events, Event{Type: Deleted, Kind: k, Key: key, Object: q.seen[key], Tombstone: true})
	}
	for _, key := range t.keys() {
		o, typ := t.objects[key], Added
		if was, ok := q.seen[key]; ok && was.GetUID() == o.GetUID() {
			if was.GetResourceVersion() == o.GetResourceVersion() {
				continue
			}
			typ = Modified
		}
		q.events = append(q.events, Event{Type: typ, Kind: k, Key: key, Object: o})
	}
	if !q.synced {
		q.events = append(q.events, Event{Type: Synced, Kind: k})
	}
	s.c.queued = s.c.queued || len(q.events) > 0
}

// open reports whether an event of a kind may be delivered now.
func (s *Stream) open(k Kind) bool {
	g := s.c.gate(s.client, k)
	return !s.stopped && !s.suspended && !g.closed && (!g.held || g.allowance > 0)
}

// Pending returns the kinds that have an event that Next would deliver, in the order given to Watch.
func (s *Stream) Pending() []Kind {
	var out []Kind
	for _, k := range s.kinds {
		if q := s.queues[k]; q.head < len(q.events) && s.open(k) {
			out = append(out, k)
		}
	}
	return out
}

// Queued returns how many events of a kind wait, held ones included.
func (s *Stream) Queued(k Kind) int {
	q := s.queues[k]
	if q == nil {
		return 0
	}
	return len(q.events) - q.head
}

// Next delivers the next event of a kind; false if there is none, or its watch is held or closed.
func (s *Stream) Next(k Kind) (Event, bool) {
	q := s.queues[k]
	if q == nil || q.head == len(q.events) || !s.open(k) {
		return Event{}, false
	}
	e := q.events[q.head]
	q.events[q.head] = Event{} // let go of the object
	q.head++
	switch {
	case q.head == len(q.events) && q.head > 1024:
		q.events, q.head = nil, 0 // the initial list is long, what comes after it is not
	case q.head == len(q.events):
		q.events, q.head = q.events[:0], 0
	case q.head > 1024 && q.head > len(q.events)/2:
		q.events = append(q.events[:0], q.events[q.head:]...)
		q.head = 0
	}
	if g := s.c.gate(s.client, k); g.held {
		g.allowance--
	}
	switch e.Type {
	case Synced:
		q.synced = true
	case Deleted:
		delete(q.seen, e.Key)
	default:
		q.seen[e.Key] = e.Object.(object)
	}
	return e, true
}

// Hold keeps events of the kinds (all, if none are given) back until Release; they are then
// delivered late and in order.
func (s *Stream) Hold(kinds ...Kind) { s.c.HoldWatch(s.client, s.of(kinds)...) }

// Close breaks the watches of the kinds (all, if none are given): what was not delivered never is.
// Release lists again.
func (s *Stream) Close(kinds ...Kind) { s.c.CloseWatch(s.client, s.of(kinds)...) }

// Release ends Hold and Close for the kinds (all, if none are given). After Close the client learns
// the difference to what it had seen: deletions as tombstones, several changes of an object as
// one. With a count only so many more events of each kind are delivered, and the rest stays held.
func (s *Stream) Release(count int, kinds ...Kind) { s.c.ReleaseWatch(s.client, count, s.of(kinds)...) }

func (s *Stream) of(kinds []Kind) []Kind {
	if len(kinds) == 0 {
		return s.kinds
	}
	return kinds
}

// HoldWatch is Stream.Hold by the client's name; it also holds streams that the client opens later.
func (c *Cluster) HoldWatch(client string, kinds ...Kind) {
	for _, k := range kinds {
		g := c.gate(client, k)
		g.held, g.allowance = true, 0
	}
}

// CloseWatch is Stream.Close by the client's name; streams that the client opens later list when it
// is released.
func (c *Cluster) CloseWatch(client string, kinds ...Kind) {
	for _, k := range kinds {
		c.gate(client, k).closed = true
		for _, s := range c.streamsOf(client, k) {
			q := s.queues[k]
			q.events, q.head = nil, 0
		}
	}
}

// ReleaseWatch is Stream.Release by the client's name.
func (c *Cluster) ReleaseWatch(client string, count int, kinds ...Kind) {
	for _, k := range kinds {
		g := c.gate(client, k)
		faulted := g.held || g.closed
		if g.closed {
			g.closed = false
			for _, s := range c.streamsOf(client, k) {
				s.list(k)
			}
		}
		if g.held = faulted && count > 0; g.held {
			g.allowance += count
		} else {
			g.allowance = 0
		}
	}
	c.queued = true
	c.done()
}

// Faulted reports whether a watch of the client is held or closed.
func (c *Cluster) Faulted(client string) bool {
	for _, g := range c.gates[client] {
		if g.held || g.closed {
			return true
		}
	}
	return false
}

func (c *Cluster) streamsOf(client string, k Kind) []*Stream {
	var out []*Stream
	for _, s := range c.watchers[k] {
		if s.client == client {
			out = append(out, s)
		}
	}
	return out
}

// Suspend stops the stream from delivering, without any effect on holds: the API server is not
// reachable. Resume delivers what was queued meanwhile, or lists again, as after Close, if relist is set.
func (s *Stream) Suspend() { s.suspended = true }

// Resume ends Suspend.
func (s *Stream) Resume(relist bool) {
	s.suspended = false
	for _, k := range s.kinds {
		if relist && !s.c.gate(s.client, k).closed {
			s.list(k)
		}
	}
	s.c.queued = true
	s.c.done()
}

// Synced reports whether the client knows every object that existed when it began to watch a kind.
func (s *Stream) Synced(k Kind) bool { return s.queues[k] != nil && s.queues[k].synced }
