package ovs

import (
	"container/heap"
	"time"
)

// timer is a deadline at which something may end. An end that has moved is found out when the timer is
// due, and the timer is set again.
type timer struct {
	at  int64
	seq uint64
	// end ends what is due at now, or returns the later time at which to ask again; 0: never again.
	end func(now int64) int64
}

type timers struct {
	heap timerHeap
	seq  uint64
}

type timerHeap []timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)   { *h = append(*h, x.(timer)) }
func (h *timerHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = timer{}
	*h = old[:len(old)-1]
	return x
}

func (t *timers) add(at int64, end func(now int64) int64) {
	t.seq++
	heap.Push(&t.heap, timer{at, t.seq, end})
}

// run ends everything that is due.
func (t *timers) run(now int64) {
	for len(t.heap) > 0 && t.heap[0].at <= now {
		if again := t.heap[0].end(now); again > now {
			t.heap[0].at = again
			heap.Fix(&t.heap, 0)
		} else {
			heap.Pop(&t.heap)
		}
	}
}

// Tick ends what is due: learned flows and other flows with timeouts, and connections. Every other call
// does it first, too: Tick is needed only to have things gone from a dump without any other call.
func (s *Switch) Tick() { s.timers.run(s.now()) }

// NextDeadline returns a time before which nothing ends by itself; at that time something may. ok is
// false if nothing is waiting to end.
func (s *Switch) NextDeadline() (at time.Time, ok bool) {
	if len(s.timers.heap) == 0 {
		return time.Time{}, false
	}
	return time.Unix(0, s.timers.heap[0].at).In(s.cfg.Now().Location()), true
}
