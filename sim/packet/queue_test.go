package packet

import "testing"

func TestQueueRunsInOrderAndStopsLoops(t *testing.T) {
	var q Queue
	var got string
	q.Run(func() {
		got += "a"
		q.Add(func() { got += "c" })
		q.Run(func() { got += "b" })
	})
	if got != "abc" {
		t.Errorf("got %s, want abc", got)
	}
	n, told := 0, 0
	q.OnLoop = func(error) { told++ }
	var loop func()
	loop = func() { n++; q.Add(loop) }
	q.Add(loop)
	if n != MaxDeliveries || told != 1 || q.Err() == nil {
		t.Errorf("%d deliveries, told %d times, error %v", n, told, q.Err())
	}
	q.Add(func() { got = "again" })
	if got != "again" {
		t.Error("the queue does not run after a loop")
	}
}
