package ovs

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"towtank/datapath"
	"towtank/datapath/openflow"
)

// dropping is a channel to a switch that answers nothing, and closes the connection when it has read n messages.
func dropping(t *testing.T, n int) *channel {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "mgmt"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Write(openflow.AppendHello(nil, 1)); err != nil {
			return
		}
		head := make([]byte, 8)
		for range 3 + n { // hello and two settings come first
			if _, err := io.ReadFull(c, head); err != nil {
				return
			}
			h, err := openflow.DecodeHeader(head)
			if err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, c, int64(h.Length)-8); err != nil {
				return
			}
		}
	}()
	ch, err := dialOpenFlow(context.Background(), "unix", l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ch.close(io.EOF) })
	return ch
}

func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("no answer within 20 s")
		panic("") // not reached: Fatal ends the test, and the compiler does not know
	}
}

// The connection ends between the meters and the answer to the barrier behind them, or has ended before: of no meter
// is anything known. The results are read as soon as they come (run with -race).
func TestMetersOfALostConnection(t *testing.T) {
	var ops []datapath.Op
	for i := range uint32(20) {
		m, err := openflow.NewMeter(openflow.Meter{ID: i + 1, Rate: 500})
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, datapath.Op{New: m})
	}
	ch := dropping(t, len(ops)+1)
	for _, what := range []string{"a connection that ends", "one that has ended"} {
		results := make(chan []datapath.OpResult, 1)
		ch.applyMeters(ops, func(r []datapath.OpResult) { results <- r })
		for i, r := range within(t, results) {
			if r.Outcome != datapath.Unknown || r.Err == nil {
				t.Errorf("%s: meter %d: outcome %d: %v", what, i, r.Outcome, r.Err)
			}
		}
		within(t, ch.done)
	}
}

// Whoever waits when the connection ends is told in the order in which they asked.
func TestOrderOfLostAnswers(t *testing.T) {
	const n = 30
	ch := dropping(t, n)
	told := make(chan int, n)
	for i := range n {
		ch.barrier(func(error) { told <- i })
	}
	within(t, ch.done)
	var order []int
	for range n {
		order = append(order, within(t, told))
	}
	if !slices.IsSorted(order) {
		t.Errorf("told in the order %v", order)
	}
}
