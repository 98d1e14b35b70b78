package packet

import "fmt"

// MaxDeliveries is how many deliveries one drain of a Queue runs before it calls the traffic a loop.
const MaxDeliveries = 10_000

// Queue runs deliveries one after the other, so that switches, hosts and the fabric hand packets to
// each other at one instant without recursion: a delivery that causes others appends them, and the
// outermost call runs all. The zero value is ready. All devices that can reach each other share one.
type Queue struct {
	todo    []func()
	head    int
	running bool
	err     error
	// OnLoop, if set, is told of a packet loop; the deliveries that were left are dropped.
	OnLoop func(error)
}

// Add appends a delivery; if no drain is running, it runs it and all that follows from it.
func (q *Queue) Add(deliver func()) {
	q.todo = append(q.todo, deliver)
	if !q.running {
		q.drain()
	}
}

// Run calls fn at once, inside the running drain or else as the first of a new one: what fn adds runs
// after it.
func (q *Queue) Run(fn func()) {
	if q.running {
		fn()
		return
	}
	q.Add(fn)
}

// Err returns the first packet loop, nil if there was none.
func (q *Queue) Err() error { return q.err }

func (q *Queue) drain() {
	q.running = true
	defer func() {
		q.todo, q.head, q.running = nil, 0, false
	}()
	for ; q.head < len(q.todo); q.head++ {
		if q.head == MaxDeliveries {
			err := fmt.Errorf("packet loop: %d deliveries at one instant, %d more waiting", q.head, len(q.todo)-q.head)
			if q.err == nil {
				q.err = err
			}
			if q.OnLoop != nil {
				q.OnLoop(err)
			}
			return
		}
		fn := q.todo[q.head]
		q.todo[q.head] = nil
		fn()
	}
}
