package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"towtank/scenarios"
	"towtank/scenarios/report"
)

// progress is a line on a terminal that says how far a long run is. It is overwritten in place, and
// cleared before anything else is printed.
type progress struct {
	mu      sync.Mutex
	w       io.Writer // nil: not a terminal
	files   int
	done    int
	began   time.Time
	painted time.Time
	shown   bool
}

// The line appears after a while, and is painted no more often than people can read.
const (
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
)

func newProgress(t *terminal, files int) *progress {
	p := &progress{files: files, began: time.Now()}
	if t.live {
		p.w = t.err
	}
	return p
}

func (p *progress) step(s scenarios.Step) {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.began) < progressAfter || now.Sub(p.painted) < progressEvery {
		return
	}
	p.painted, p.shown = now, true
	fmt.Fprintf(p.w, "\r\x1b[K[%d/%d] %s:%d step %d, virtual %s", p.done, p.files, s.File, s.Line, s.Index+1, report.Short(s.Time))
}

func (p *progress) finished() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
}

func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// over returns a writer that clears the line first.
func (p *progress) over(w io.Writer) io.Writer { return &clearing{w, p} }

type clearing struct {
	w io.Writer
	p *progress
}

// Write implements io.Writer.
func (c *clearing) Write(b []byte) (int, error) {
	c.p.clear()
	return c.w.Write(b)
}

// watched passes results on and shows progress.
type watched struct {
	scenarios.Observer
	p      *progress
	replay string // if set, what to run again instead
	ended  bool   // there was an end
}

// Step implements scenarios.Observer.
func (w *watched) Step(s scenarios.Step) {
	w.Observer.Step(s)
	w.p.step(s)
}

// Stopped implements scenarios.Stopped.
func (w *watched) Stopped(s scenarios.Step) {
	if o, ok := w.Observer.(scenarios.Stopped); ok {
		o.Stopped(s)
	}
}

// End implements scenarios.Observer.
func (w *watched) End(e scenarios.End) {
	if w.replay != "" {
		e.Replay = w.replay
	}
	w.ended = true
	w.Observer.End(e)
	w.p.finished()
}
