// Package stream writes to connections whose other side may stop reading.
package stream

import (
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	chunk    = 64 << 10 // bytes of one write: what a deadline is for
	keepSize = 1 << 20  // bytes of a buffer that is kept for the next time
)

// Writer is a queue in front of a connection. A goroutine writes what was queued, so that nobody who sends, or
// reads from the same connection, waits for the other side to read.
type Writer struct {
	c        net.Conn
	timeout  time.Duration
	progress func()
	failed   func(error)
	wake     chan struct{}

	mu      sync.Mutex // never held while anything is written
	queue   []byte
	writing int // bytes of the queue before this one that are not written yet
	spare   []byte
	stopped bool
}

// NewWriter starts the goroutine; it ends with Stop or after failed was called, once, because the other side did
// not read for longer than timeout or the connection broke. progress, if not nil, is called when the other side
// has taken 64 KiB of something longer.
func NewWriter(c net.Conn, timeout time.Duration, progress func(), failed func(error)) *Writer {
	w := &Writer{c: c, timeout: timeout, progress: progress, failed: failed, wake: make(chan struct{}, 1)}
	go w.run()
	return w
}

// Send queues what f appends to its argument. An error of f queues nothing and is returned; after Stop nothing is
// queued. f must not send.
func (w *Writer) Send(f func([]byte) ([]byte, error)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return net.ErrClosed
	}
	n := len(w.queue)
	b, err := f(w.queue)
	if err != nil {
		w.queue = w.queue[:n]
		return err
	}
	w.queue = b
	w.signal()
	return nil
}

// Queued returns how many bytes the other side has not taken yet.
func (w *Writer) Queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue) + w.writing
}

// Stop drops what is queued and ends the goroutine. A write under way ends when the connection is closed.
func (w *Writer) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped, w.queue = true, nil
	w.signal()
}

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it will look anyway
	}
}

func (w *Writer) run() {
	for range w.wake {
		w.mu.Lock()
		b, stopped := w.queue, w.stopped
		w.queue, w.spare, w.writing = w.spare, nil, len(b)
		w.mu.Unlock()
		if stopped {
			return
		}
		if err := w.write(b); err != nil {
			w.failed(err)
			return
		}
		if cap(b) <= keepSize {
			w.mu.Lock()
			w.spare = b[:0]
			w.mu.Unlock()
		}
	}
}

func (w *Writer) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), chunk)
		if err := w.c.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
			return err
		}
		if _, err := w.c.Write(b[:n]); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		b = b[n:]
		w.mu.Lock()
		w.writing = len(b)
		w.mu.Unlock()
		if n == chunk && w.progress != nil {
			w.progress()
		}
	}
	return nil
}
