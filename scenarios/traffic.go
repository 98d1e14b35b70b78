package scenarios

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"towtank/scenarios/lang"
	"towtank/sim"
)

// probe makes new connections and compares each with what is expected.
func (r *Runner) probe(st lang.Step, s *Step) error {
	p := st.(lang.Probe)
	count := max(p.Count, 1)
	var results []sim.Result
	var last Flow
	for range count {
		f, err := r.flow(p.From, p.To, p.Flow)
		// To a Pod that was never wired there is nothing to send: silence, as to an address that nobody has.
		if err != nil && !errors.Is(err, errNoAddress) {
			return r.soft(s, err)
		}
		if r.skips(s, p.As, p.To.Address, f) {
			return nil
		}
		res, err := r.tank.Probe(f)
		if err != nil {
			return asCall(err)
		}
		results = append(results, res)
		last = f
		if r.opts.CheckProbes && p.Expect == nil {
			r.report(r.tank.Invariants().Probed(f, res))
		}
	}
	if p.As != "" {
		final := results[len(results)-1]
		r.named[p.As] = &named{final.Backend, final.Port}
	}
	bad := r.judge(s, p.Expect, results)
	if s.Outcome == Fail {
		r.explain(s, last, results[bad])
	}
	return nil
}

// skips marks a step as skipped, with those of the same name after it, if the backend cannot carry its traffic.
func (r *Runner) skips(s *Step, name string, to lang.Address, f Flow) bool {
	delete(r.cannot, name)
	if r.opts.Cannot == nil {
		return false
	}
	why := r.opts.Cannot(to, f)
	if why == "" {
		return false
	}
	if name != "" {
		r.cannot[name] = why
	}
	s.skip(why)
	return true
}

func (s *Step) skip(why string) { s.Outcome, s.Text2 = Skip, why }

// soft turns an error of the moment (an address that is not there yet) into a failed step, and passes
// on one of the call.
func (r *Runner) soft(s *Step, err error) error {
	if _, ok := err.(errCall); ok {
		return err
	}
	s.fail("%v", err)
	return nil
}

// alike is how many connections explain makes at most to find one that fares like the one that failed.
const alike = 16

// explain traces a flow once more, so that people see where it went: a new connection that fares like the one that
// failed, or else that one's packet again, with a word about what became of it this time.
func (r *Runner) explain(s *Step, f Flow, failed sim.Result) {
	want := gotOf([]sim.Result{failed})
	for range alike {
		f.SPort = 0
		var got Got
		if got, s.Trace = r.trace(f); fared(got) == fared(want) {
			return
		}
	}
	if failed.SPort == 0 {
		s.Text2 += "\nthe way of a later connection, which fared otherwise:"
		return
	}
	f.SPort = failed.SPort
	got, lines := r.trace(f)
	s.Trace = lines
	s.Text2 += "\nthe same packet again: got " + fared(got)
}

// fared says what became of a connection.
func fared(g Got) string {
	g.Note, g.Sent, g.Lost = "", 0, 0
	return g.String()
}

// trace makes a connection with a trace on, and returns what became of it.
func (r *Runner) trace(f Flow) (Got, []TraceLine) {
	var got Got
	lines := r.tank.Traced(func() {
		res, err := r.tank.Probe(f)
		if err != nil {
			r.tank.Note("trace", err.Error())
			got.Note = err.Error()
			return
		}
		got = gotOf([]sim.Result{res})
	})
	return got, lines
}

func gotOf(results []sim.Result) Got {
	var g Got
	for _, res := range results {
		g.Sent++
		if res.Verdict != sim.OK {
			g.Lost++
		}
		if res.Backend != "" {
			if g.Backends == nil {
				g.Backends = map[string]int{}
			}
			g.Backends[fmt.Sprintf("%s:%d", res.Backend, res.Port)]++
		}
	}
	last := results[len(results)-1]
	g.Verdict, g.Via, g.ReplyVia, g.HTTP, g.Note = string(last.Verdict), last.Via, last.ReplyVia, last.HTTP, last.Note
	if last.Source.IsValid() {
		g.Source = last.Source.String()
	}
	if last.To.IsValid() {
		g.To = last.To.String()
	}
	if len(results) == 1 {
		g.Sent, g.Lost = 0, 0
	}
	return g
}

// judge compares results with an expectation, all of them, and returns which one is not as expected; the last, if it is
// none in particular.
func (r *Runner) judge(s *Step, e *lang.Expect, results []sim.Result) int {
	s.Got = gotOf(results)
	last := len(results) - 1
	if e == nil {
		return last
	}
	s.Want = map[string]string{"expect": strings.TrimPrefix(lang.ExpectText(e), "expect ")}
	for i, res := range results {
		if why := r.compare(e, res); why != "" {
			s.Got = gotOf([]sim.Result{res})
			if len(results) > 1 {
				why = fmt.Sprintf("connection %d of %d: %s", i+1, len(results), why)
			}
			s.fail("%s", why)
			return i
		}
	}
	if e.Sticky {
		for i, res := range results {
			if res.Backend != results[0].Backend || res.Port != results[0].Port {
				s.fail("not sticky: %s:%d and %s:%d answered", results[0].Backend, results[0].Port, res.Backend, res.Port)
				return i
			}
		}
	}
	if len(e.Backends) > 0 {
		return r.compareSet(s, e.Backends, results)
	}
	return last
}

// compareSet compares the set of all who answered, and returns who should not have; the last, if it is none.
func (r *Runner) compareSet(s *Step, want []lang.Endpoint, results []sim.Result) int {
	for i, res := range results {
		if !slices.ContainsFunc(want, func(w lang.Endpoint) bool { return r.isBackend(w, res) }) {
			s.fail("%s:%d answered, which is not in the set", res.Backend, res.Port)
			return i
		}
	}
	for _, w := range want {
		if !slices.ContainsFunc(results, func(res sim.Result) bool { return r.isBackend(w, res) }) {
			s.fail("%s never answered in %d connections", w, len(results))
			break
		}
	}
	return len(results) - 1
}

// compare returns why a result is not what is expected, "" if it is.
func (r *Runner) compare(e *lang.Expect, res sim.Result) string {
	if want := e.Want(); want != "" && string(want) != string(res.Verdict) {
		return fmt.Sprintf("want %s, got %s", want, res.Verdict)
	}
	if why := match(e.Backend, res.Arrived, "backend", func(w lang.Endpoint) bool { return r.isBackend(w, res) }, fmt.Sprintf("%s:%d", res.Backend, res.Port)); why != "" {
		return why
	}
	if why := match(e.Source, res.Arrived, "source", func(a lang.Address) bool { return r.isAddress(a, res.Source) }, seen(res.Source)); why != "" {
		return why
	}
	if why := match(e.To, res.Arrived, "to", func(a lang.Address) bool { return r.isAddress(a, res.To) }, seen(res.To)); why != "" {
		return why
	}
	if why := match(e.Via, res.Via != "", "via", func(n lang.NodeRef) bool { return r.isNode(n, res.Via) }, res.Via); why != "" {
		return why
	}
	if why := match(e.ReplyVia, res.ReplyVia != "", "reply-via", func(n lang.NodeRef) bool { return r.isNode(n, res.ReplyVia) }, res.ReplyVia); why != "" {
		return why
	}
	if why := match(e.HTTP, res.HTTP != 0, "http", func(h lang.HTTPStatus) bool { return int(h) == res.HTTP }, fmt.Sprint("http=", res.HTTP)); why != "" {
		return why
	}
	if e.SameAs != nil {
		return r.compareSame(e.SameAs, res)
	}
	return ""
}

func (r *Runner) compareSame(e *lang.SameAs, res sim.Result) string {
	o := r.named[e.Name]
	if o == nil {
		return "there is no " + e.Name + " to compare with"
	}
	same := res.Arrived && o.backend == res.Backend && o.port == res.Port
	switch {
	case !e.Not && !same:
		return fmt.Sprintf("want the same backend as %s (%s:%d), got %s:%d", e.Name, o.backend, o.port, res.Backend, res.Port)
	case e.Not && same:
		return fmt.Sprintf("want another backend than %s, got %s:%d again", e.Name, res.Backend, res.Port)
	}
	return ""
}

// match compares one field; if nothing arrived, = fails and != holds.
func match[T fmt.Stringer](m *lang.Match[T], arrived bool, name string, is func(T) bool, got string) string {
	if m == nil {
		return ""
	}
	if !arrived {
		if m.Not {
			return ""
		}
		return fmt.Sprintf("want %s=%s, but nothing arrived", name, m)
	}
	any := slices.ContainsFunc(m.Of, is)
	switch {
	case !m.Not && !any:
		return fmt.Sprintf("want %s=%s, got %s", name, m, got)
	case m.Not && any:
		return fmt.Sprintf("want %s!=%s, got %s", name, m, got)
	}
	return ""
}

func (r *Runner) isBackend(w lang.Endpoint, res sim.Result) bool {
	if w.Port != 0 && w.Port != res.Port {
		return false
	}
	switch w.Kind {
	case lang.AddrPod:
		return res.Backend == w.Namespace+"/"+w.Name
	case lang.AddrBackend:
		o := r.named[w.Name]
		return o != nil && o.backend == res.Backend
	case lang.AddrExternal:
		return res.Backend == w.Name
	case lang.AddrNode:
		n, err := r.node(w.Node)
		return err == nil && res.Backend == "node/"+n.Name()
	}
	return r.isAddress(w.Address, res.To)
}

// seen is an address that a receiver saw, where the backend can tell.
func seen(a netip.Addr) string {
	if !a.IsValid() {
		return "an address that is not known"
	}
	return a.String()
}

func (r *Runner) isAddress(a lang.Address, got netip.Addr) bool {
	ips, err := r.addresses(a)
	return err == nil && slices.Contains(ips, got)
}

func (r *Runner) isNode(ref lang.NodeRef, got string) bool {
	n, err := r.node(ref)
	if err != nil {
		return ref.Name == got
	}
	return n.Name() == got
}

// connection opens, uses and closes connections.
func (r *Runner) connection(st lang.Step, s *Step) error {
	switch c := st.(type) {
	case lang.Open:
		f, err := r.flow(c.From, c.To, c.Flow)
		if err != nil {
			return r.soft(s, err)
		}
		if r.skips(s, c.Name, c.To.Address, f) {
			return nil
		}
		conn, err := r.tank.Open(f)
		if err != nil {
			return asCall(err)
		}
		if old := r.conns[c.Name]; old != nil {
			old.Close()
		}
		r.conns[c.Name] = conn
		res := conn.Last()
		r.named[c.Name] = &named{res.Backend, res.Port}
		e := c.Expect
		if e == nil {
			e = &lang.Expect{Verdict: lang.OK}
		}
		r.judge(s, e, []sim.Result{res})
		if s.Outcome == Fail {
			r.explain(s, f, res)
		}
	case lang.Close:
		if conn := r.conns[c.Name]; conn != nil {
			conn.Close()
			delete(r.conns, c.Name)
		}
	case lang.Send:
		conn := r.conns[c.Name]
		if why := r.cannot[c.Name]; why != "" {
			s.skip(why)
			return nil
		}
		if conn == nil {
			return callErrorf("no connection %q is open", c.Name)
		}
		return r.send(c, conn, s)
	}
	return nil
}

func (r *Runner) send(c lang.Send, conn Conn, s *Step) error {
	conn.Shape(c.Size, c.DF)
	var results []sim.Result
	for range max(c.Count, 1) {
		results = append(results, conn.Send())
	}
	if last := results[len(results)-1]; last.Arrived {
		r.named[c.Name] = &named{last.Backend, last.Port}
	}
	e := c.Expect
	if e != nil && e.Verdict == lang.Reset {
		s.Got = gotOf(results)
		s.Want = map[string]string{"expect": "reset"}
		if !conn.WasReset() && results[len(results)-1].Verdict != sim.Reject {
			s.fail("want reset, got %s", results[len(results)-1].Verdict)
		}
		return nil
	}
	r.judge(s, e, results)
	if s.Outcome == Fail {
		s.Trace = r.tracedSend(conn)
	}
	return nil
}

func (r *Runner) tracedSend(conn Conn) []TraceLine {
	return r.tank.Traced(func() { conn.Send() })
}

// streams starts and ends streams.
func (r *Runner) streams(st lang.Step, s *Step) error {
	switch c := st.(type) {
	case lang.Stream:
		f, err := r.flow(c.From, c.To, c.Flow)
		if err != nil {
			return r.soft(s, err)
		}
		if r.skips(s, c.Name, c.To.Address, f) {
			return nil
		}
		from := c.From
		r.stream[c.Name] = r.tank.StartStream(c.Name, f, func() (Source, error) { return r.source(from) }, c.Every, c.OneFlow)
	case lang.StreamStop:
		x := r.stream[c.Name]
		if why := r.cannot[c.Name]; why != "" {
			s.skip(why)
			return nil
		}
		if x == nil {
			return callErrorf("no stream %q runs", c.Name)
		}
		delete(r.stream, c.Name)
		x.Stop()
		r.streamEnd(c, x, s)
	}
	return nil
}

func (r *Runner) streamEnd(c lang.StreamStop, x Stream, s *Step) {
	lost := 0
	beats := x.Beats()
	s.Want = wanted(c)
	s.Got = Got{Sent: len(beats), Backends: map[string]int{}}
	for _, b := range beats {
		if b.Verdict != sim.OK {
			lost++
		} else if b.Backend != "" {
			s.Got.Backends[fmt.Sprintf("%s:%d", b.Backend, b.Port)]++
		}
	}
	s.Got.Lost = lost
	if len(beats) == 0 {
		s.fail("the stream sent nothing")
		return
	}
	e := c.Expect
	if e == nil {
		return
	}
	if e.Lost != nil && !e.Lost.Holds(lost) {
		s.fail("want %s, got lost=%d of %d", bound("lost", e.Lost), lost, len(beats))
	}
	for i, b := range beats {
		if !b.Arrived {
			continue
		}
		why := r.compare(&lang.Expect{Source: e.Source, Backend: e.Backend}, b)
		if why != "" {
			s.fail("packet %d: %s", i+1, why)
			return
		}
	}
}
