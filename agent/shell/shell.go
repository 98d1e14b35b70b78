// Package shell runs the agent's loop in production: it has the goroutines, the clock and the sockets
// that the loop has not. Each of them only posts: what happens to the agent's state happens on one
// goroutine, in the order in which it was posted.
//
//	informers   CNI socket   memberlist   netlink   OpenFlow, OVSDB   timers
//	    └───────────┴────────────┴────┬─────┴───────────┴───────────────┘
//	                                  ▼ Post
//	                       queue ──▶ one goroutine ──▶ agent.Loop
package shell

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"towtank/agent/edge"
)

// MaxQueued is how many posted functions may wait; the agent that cannot keep up with that many is
// better started anew, from what is there, than fed from memory.
const MaxQueued = 1_000_000

// Queue is the way onto the loop's goroutine.
type Queue struct {
	mu     sync.Mutex
	todo   []func()
	wake   chan struct{}
	full   chan struct{}
	closed bool
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	return &Queue{wake: make(chan struct{}, 1), full: make(chan struct{})}
}

// Post appends f. It never blocks; after Run has ended it does nothing.
func (q *Queue) Post(f func()) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	q.todo = append(q.todo, f)
	if len(q.todo) > MaxQueued {
		q.closed = true
		close(q.full)
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Overflow is closed when more than MaxQueued functions waited.
func (q *Queue) Overflow() <-chan struct{} { return q.full }

// Do runs f on the loop's goroutine and waits for it; false if the loop ended first.
func (q *Queue) Do(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	q.Post(func() {
		f()
		close(done)
	})
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// Run runs what is posted, one after the other, until ctx ends.
func (q *Queue) Run(ctx context.Context) {
	defer func() {
		q.mu.Lock()
		q.closed = true
		q.mu.Unlock()
	}()
	for {
		q.mu.Lock()
		batch := q.todo
		q.todo = nil
		q.mu.Unlock()
		for _, f := range batch {
			if ctx.Err() != nil {
				return
			}
			f()
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return
		}
	}
}

// Clock is edge.Clock on real time: timers fire as events of the queue. Its methods are called on the queue's
// goroutine.
type Clock struct {
	q    *Queue
	work map[*timer]time.Time // work timers that run, and when they are due
}

// NewClock returns a clock whose timers fire on the queue.
func NewClock(q *Queue) *Clock { return &Clock{q: q, work: map[*timer]time.Time{}} }

// Now implements edge.Clock.
func (*Clock) Now() time.Time { return time.Now() }

// AfterFunc implements edge.Clock.
func (c *Clock) AfterFunc(d time.Duration, class edge.TimerClass, f func()) edge.Timer {
	t := &timer{c: c}
	if class == edge.Work {
		c.work[t] = time.Now().Add(d)
	}
	t.t = time.AfterFunc(d, func() {
		c.q.Post(func() {
			if !t.stopped {
				delete(c.work, t)
				f()
			}
		})
	})
	return t
}

// Due returns when the work timers that run are due, the next first.
func (c *Clock) Due() []time.Time {
	return slices.SortedFunc(maps.Values(c.work), time.Time.Compare)
}

// timer is stopped by the loop's goroutine, which is also where it fires.
type timer struct {
	c       *Clock
	t       *time.Timer
	stopped bool
}

// Stop implements edge.Timer.
func (t *timer) Stop() {
	t.stopped = true
	t.t.Stop()
	delete(t.c.work, t)
}
