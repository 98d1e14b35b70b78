package sim

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"towtank/agent/edge"
)

// Queue is the world's one event queue and virtual clock. Events wait in lanes: the events of a lane
// run in order, and of the lanes that have one, a seeded generator picks the next. That is how two
// things that happen at one time happen in either order, and in the same order for one seed.
type Queue struct {
	now    time.Time
	rng    *rand.Rand
	lanes  map[string]*lane
	active []*lane // lanes with an event that may run, in the order in which they became so
	timers [2]timerHeap
	seq    uint64
	ran    uint64
	// OnEvent, if set, is told of every event before it runs.
	OnEvent func(lane, label string)
}

type lane struct {
	name   string
	events []event
	head   int
	at     int // index in active, -1 if not there
	held   bool
}

type event struct {
	label string
	fn    func()
}

// timer is an event in the future.
type timer struct {
	at    time.Time
	seq   uint64
	lane  string
	label string
	fn    func()
	index int
	class edge.TimerClass
	q     *Queue
}

// Stop implements edge.Timer.
func (t *timer) Stop() {
	if t.index >= 0 {
		heap.Remove(&t.q.timers[t.class], t.index)
	}
	t.fn = nil
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *timerHeap) Push(x any)   { t := x.(*timer); t.index = len(*h); *h = append(*h, t) }
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil // what it was to run is to be forgotten with it
	*h = old[:len(old)-1]
	t.index = -1
	return t
}

// NewQueue returns an empty queue at the given time.
func NewQueue(start time.Time, rng *rand.Rand) *Queue {
	return &Queue{now: start, rng: rng, lanes: map[string]*lane{}}
}

// Now returns the virtual time.
func (q *Queue) Now() time.Time { return q.now }

func (q *Queue) lane(name string) *lane {
	l := q.lanes[name]
	if l == nil {
		l = &lane{name: name, at: -1}
		q.lanes[name] = l
	}
	return l
}

// Post appends an event to a lane, due now.
func (q *Queue) Post(laneName, label string, fn func()) {
	l := q.lane(laneName)
	l.events = append(l.events, event{label, fn})
	q.update(l)
}

// After has an event appended to a lane after d (at least 0).
func (q *Queue) After(d time.Duration, class edge.TimerClass, laneName, label string, fn func()) edge.Timer {
	q.seq++
	t := &timer{at: q.now.Add(max(d, 0)), seq: q.seq, lane: laneName, label: label, fn: fn, class: class, q: q}
	heap.Push(&q.timers[class], t)
	return t
}

// Hold stops or resumes a lane: its events stay.
func (q *Queue) Hold(laneName string, held bool) {
	l := q.lane(laneName)
	l.held = held
	q.update(l)
}

// Drop forgets the events of a lane. Its timers fire all the same, as the schedule has them, and do nothing: what they were
// to run, and all that it holds, is forgotten now.
func (q *Queue) Drop(laneName string) {
	l := q.lane(laneName)
	l.events, l.head = nil, 0
	q.update(l)
	for _, timers := range q.timers {
		for _, t := range timers {
			if t.lane == laneName {
				t.fn = func() {}
			}
		}
	}
}

// Empty reports whether a lane has no events.
func (q *Queue) Empty(laneName string) bool {
	l := q.lanes[laneName]
	return l == nil || l.head == len(l.events)
}

func (q *Queue) update(l *lane) {
	can := l.head < len(l.events) && !l.held
	switch {
	case can && l.at < 0:
		l.at = len(q.active)
		q.active = append(q.active, l)
	case !can && l.at >= 0:
		last := len(q.active) - 1
		q.active[l.at] = q.active[last]
		q.active[l.at].at = l.at
		q.active = q.active[:last]
		l.at = -1
	}
	if l.head == len(l.events) && l.head > 0 {
		l.events, l.head = l.events[:0], 0
	}
}

// fire moves the timers that are due into their lanes.
func (q *Queue) fire() {
	for {
		t, ok := q.earliest(true)
		if !ok || t.at.After(q.now) {
			return
		}
		heap.Pop(&q.timers[t.class])
		if t.fn != nil {
			q.Post(t.lane, t.label, t.fn)
		}
	}
}

// earliest returns the next timer; background ones count only if asked for.
func (q *Queue) earliest(background bool) (*timer, bool) {
	var best *timer
	for class := range q.timers {
		if edge.TimerClass(class) == edge.Background && !background {
			continue
		}
		h := q.timers[class]
		if len(h) > 0 && (best == nil || h[0].at.Before(best.at) || (h[0].at.Equal(best.at) && h[0].seq < best.seq)) {
			best = h[0]
		}
	}
	return best, best != nil
}

// Step runs one event that is due now; false if there is none.
func (q *Queue) Step() bool {
	q.fire()
	if len(q.active) == 0 {
		return false
	}
	l := q.active[0]
	if len(q.active) > 1 {
		l = q.active[q.rng.IntN(len(q.active))]
	}
	e := l.events[l.head]
	l.events[l.head] = event{}
	l.head++
	q.update(l)
	q.ran++
	if q.OnEvent != nil {
		q.OnEvent(l.name, e.label)
	}
	e.fn()
	return true
}

// Livelock is how many events one settle may run before it is called a livelock.
const Livelock = 100_000

// ErrLivelock says that events kept causing events.
var ErrLivelock = errors.New("livelock")

// Drain runs everything that is due now.
func (q *Queue) Drain(budget *int) error {
	for q.Step() {
		if *budget--; *budget <= 0 {
			return fmt.Errorf("%w: too many events without an end", ErrLivelock)
		}
	}
	return nil
}

// Settle runs what is due, and moves time on from one work timer to the next, up to within; background
// timers fire when time passes over them.
func (q *Queue) Settle(within time.Duration, limit int) error {
	deadline := q.now.Add(within)
	budget := limit
	for {
		if err := q.Drain(&budget); err != nil {
			return err
		}
		w, ok := q.earliest(false)
		if !ok || w.at.After(deadline) {
			return nil
		}
		next, _ := q.earliest(true)
		q.now = maxTime(q.now, next.at)
	}
}

// Advance lets time pass, running everything that becomes due on the way.
func (q *Queue) Advance(d time.Duration) error {
	target := q.now.Add(d)
	budget := Livelock * (1 + int(d/time.Minute))
	for {
		if err := q.Drain(&budget); err != nil {
			return err
		}
		t, ok := q.earliest(true)
		if !ok || t.at.After(target) {
			q.now = target
			return q.Drain(&budget)
		}
		q.now = maxTime(q.now, t.at)
	}
}

// WorkLeft reports whether any work is due now or later.
func (q *Queue) WorkLeft() bool {
	_, work := q.earliest(false)
	return work || len(q.active) > 0
}

// Ran returns the number of events that ran so far.
func (q *Queue) Ran() uint64 { return q.ran }

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
