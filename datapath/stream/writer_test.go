package stream_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"towtank/datapath/stream"
)

func text(s string) func([]byte) ([]byte, error) {
	return func(b []byte) ([]byte, error) { return append(b, s...), nil }
}

// The other end of a net.Pipe has no buffer: a write ends when it is read.
func TestSendDoesNotWaitForTheOtherSide(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	failed := make(chan error, 1)
	w := stream.NewWriter(near, 50*time.Millisecond, nil, func(err error) { failed <- err })
	for range 100 {
		if err := w.Send(text("x")); err != nil { // comes back though nobody reads
			t.Fatal(err)
		}
	}
	if n := w.Queued(); n == 0 {
		t.Error("nothing is queued though nobody read")
	}
	select {
	case err := <-failed:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("failed with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a side that does not read was not given up")
	}
}

func TestWriterKeepsOrderAndLeavesOutWhatFailed(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	parts := make(chan struct{}, 100)
	w := stream.NewWriter(near, 10*time.Second, func() { parts <- struct{}{} }, func(err error) { t.Error(err) })
	var want []byte
	for i := range 300 {
		b := make([]byte, 1000)
		for j := range b {
			b[j] = byte(i)
		}
		want = append(want, b...)
		if err := w.Send(text(string(b))); err != nil {
			t.Fatal(err)
		}
		if err := w.Send(func(b []byte) ([]byte, error) { return append(b, 1, 2, 3), errors.New("no") }); err == nil {
			t.Error("the error was lost")
		}
	}
	have := make([]byte, len(want))
	for n := 0; n < len(have); {
		k, err := far.Read(have[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	if string(have) != string(want) {
		t.Error("what came is not what was sent")
	}
	if len(parts) == 0 {
		t.Error("300,000 bytes were taken without a sign of progress")
	}
	w.Stop()
	if err := w.Send(text("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Stop: %v", err)
	}
}
