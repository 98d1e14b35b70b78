package sim

import (
	"time"

	"towtank/agent/edge"
)

// Stream sends at a steady beat: a new connection each time, or one packet of one connection. In the
// simulator it also sends after every effect of any agent, so that no step of a Change goes unseen.
type Stream struct {
	w     *World
	name  string
	flow  Flow
	from  func() (*Source, error) // where it comes from now: a Pod may have been started anew
	every time.Duration
	one   bool
	conn  *Conn
	timer edge.Timer
	ended bool
	// Beats are what every packet experienced, in order.
	Beats []Result
}

// StartStream starts a stream. from is asked before every new connection.
func (w *World) StartStream(name string, flow Flow, from func() (*Source, error), every time.Duration, one bool) *Stream {
	s := &Stream{w: w, name: name, flow: flow, from: from, every: every, one: one}
	w.streams = append(w.streams, s)
	s.beat()
	s.arm()
	return s
}

func (s *Stream) arm() {
	s.timer = s.w.queue.After(s.every, edge.Background, "stream "+s.name, "beat", func() {
		if s.ended {
			return
		}
		s.beat()
		s.arm()
	})
}

// Stop ends the stream.
func (s *Stream) Stop() {
	if s.ended {
		return
	}
	s.ended = true
	s.timer.Stop()
	if s.conn != nil {
		s.conn.Close()
	}
	for i, o := range s.w.streams {
		if o == s {
			s.w.streams = append(s.w.streams[:i:i], s.w.streams[i+1:]...)
			break
		}
	}
}

func (s *Stream) beat() {
	if s.one && s.conn != nil {
		s.Beats = append(s.Beats, s.conn.Send())
		return
	}
	src, err := s.from()
	if err != nil {
		s.Beats = append(s.Beats, Result{Verdict: Drop, Note: err.Error()})
		return
	}
	f := s.flow
	f.From = src
	c, err := s.w.traffic.dial(&f)
	if err != nil {
		s.Beats = append(s.Beats, Result{Verdict: Drop, Note: err.Error()})
		return
	}
	s.Beats = append(s.Beats, c.last)
	if s.one {
		s.conn = c
		return
	}
	c.Close()
}

// afterEffect has every stream send once more.
func (w *World) afterEffect(*Node) {
	if w.inBeat {
		return
	}
	w.inBeat = true
	for _, s := range append([]*Stream(nil), w.streams...) {
		s.beat()
	}
	w.inBeat = false
	if w.AfterEffect != nil {
		w.AfterEffect()
	}
}
