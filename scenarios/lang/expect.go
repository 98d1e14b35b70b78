package lang

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Verdict is what became of a packet or connection.
type Verdict string

// The verdicts.
const (
	OK     Verdict = "ok"     // answered end to end
	Drop   Verdict = "drop"   // silence
	Reject Verdict = "reject" // refused in the name of the address dialled
	Reset  Verdict = "reset"  // send: the connection was reset
)

// Expect is what a probe or connection must experience. All that is set must hold.
type Expect struct {
	// Verdict is as written; see Want.
	Verdict Verdict
	// Backend is who answered; Backends the exact set of all who answered a probe with count.
	Backend  *Match[Endpoint]
	Backends []Endpoint
	// Source and To are source and destination address that the receiver saw.
	Source, To *Match[Address]
	// Via and ReplyVia are the nodes whose network the packet and the reply left.
	Via, ReplyVia *Match[NodeRef]
	// Sticky says that one backend answered all.
	Sticky bool
	// SameAs compares the backend with that of another probe or connection.
	SameAs *SameAs
	// HTTP is the status of a health port.
	HTTP *Match[HTTPStatus]
}

// HTTPStatus is the status of an answer of HTTP.
type HTTPStatus int

// String returns the number.
func (h HTTPStatus) String() string { return strconv.Itoa(int(h)) }

func parseHTTPStatus(s string) (HTTPStatus, error) {
	n, err := parseInt(s, 100, 599)
	return HTTPStatus(n), err
}

// SameAs is same-as=NAME or same-as!=NAME.
type SameAs struct {
	Not  bool
	Name string
}

// Want returns the verdict to expect: the written one, else ok if something can only hold of an
// answer, else empty (any).
func (e *Expect) Want() Verdict {
	if e.Verdict == "" && e.needsAnswer() != "" {
		return OK
	}
	return e.Verdict
}

// needsAnswer returns the name of an expectation that fails if nothing arrived, or "".
func (e *Expect) needsAnswer() string {
	switch {
	case e.Backend != nil && !e.Backend.Not:
		return "backend="
	case len(e.Backends) > 0:
		return "backends="
	case e.Source != nil && !e.Source.Not:
		return "source="
	case e.To != nil && !e.To.Not:
		return "to="
	case e.Via != nil && !e.Via.Not:
		return "via="
	case e.ReplyVia != nil && !e.ReplyVia.Not:
		return "reply-via="
	case e.Sticky:
		return "sticky"
	case e.SameAs != nil && !e.SameAs.Not:
		return "same-as="
	case e.HTTP != nil && !e.HTTP.Not:
		return "http="
	}
	return ""
}

// print adds " expect …", nothing if nothing is expected.
func (e *Expect) print(p *printer) {
	if e == nil {
		return
	}
	p.raw("expect")
	if e.Verdict != "" {
		p.raw(string(e.Verdict))
	}
	optMatch(p, "backend", e.Backend)
	p.opt("backends", join(e.Backends, ","))
	optMatch(p, "source", e.Source)
	optMatch(p, "to", e.To)
	optMatch(p, "via", e.Via)
	optMatch(p, "reply-via", e.ReplyVia)
	p.flag("sticky", e.Sticky)
	if e.SameAs != nil && e.SameAs.Not {
		p.raw(quoteOption("same-as", "!=", e.SameAs.Name))
	} else if e.SameAs != nil {
		p.opt("same-as", e.SameAs.Name)
	}
	optMatch(p, "http", e.HTTP)
}

// What each command can expect.
var (
	probeVerdicts  = []Verdict{OK, Drop, Reject}
	openVerdicts   = []Verdict{OK, Reject}
	sendVerdicts   = []Verdict{OK, Drop, Reset}
	injectVerdicts = []Verdict{OK, Drop}
	probeExpects   = []string{"backend", "backends", "source", "to", "via", "reply-via", "sticky", "same-as", "http"}
	openExpects    = []string{"backend", "source", "to", "via", "reply-via", "same-as"}
	sendExpects    = []string{"backend", "source", "to", "via", "reply-via"}
	injectExpects  = []string{}
)

// expect parses the words after "expect", if it comes next.
func (a *args) expect(verdicts []Verdict, keys []string) *Expect {
	if a.pos == len(a.words) || a.words[a.pos] != "expect" {
		return nil
	}
	a.pos++
	e := &Expect{}
	var opts []option
	for _, v := range verdicts {
		opts = append(opts, bare(string(v), func() error {
			if e.Verdict != "" {
				return fmt.Errorf("found a second verdict beside %s", e.Verdict)
			}
			e.Verdict = v
			return nil
		}))
	}
	all := []option{
		{name: "backend", ops: "= !=", set: func(op, v string) (err error) { e.Backend, err = parseMatch(op, v, parseEndpoint); return err }},
		opt("backends", func(v string) (err error) { e.Backends, err = splitList(v, parseEndpoint); return err }),
		{name: "source", ops: "= !=", set: func(op, v string) (err error) { e.Source, err = parseMatch(op, v, ParseAddress); return err }},
		{name: "to", ops: "= !=", set: func(op, v string) (err error) { e.To, err = parseMatch(op, v, ParseAddress); return err }},
		{name: "via", ops: "= !=", set: func(op, v string) (err error) { e.Via, err = parseMatch(op, v, plainNode); return err }},
		{name: "reply-via", ops: "= !=", set: func(op, v string) (err error) { e.ReplyVia, err = parseMatch(op, v, plainNode); return err }},
		bare("sticky", func() error { e.Sticky = true; return nil }),
		{name: "same-as", ops: "= !=", set: func(op, v string) error { e.SameAs = &SameAs{op == "!=", v}; return checkName(v) }},
		{name: "http", ops: "= !=", set: func(op, v string) (err error) { e.HTTP, err = parseMatch(op, v, parseHTTPStatus); return err }},
	}
	for _, o := range all {
		if slices.Contains(keys, o.name) {
			opts = append(opts, o)
		}
	}
	start := a.pos
	a.options(opts)
	if a.pos == start && len(a.words) == start {
		a.failf("expect: nothing is expected; allowed: %s", optionNames(opts))
	}
	if key := e.needsAnswer(); key != "" && (e.Verdict == Drop || e.Verdict == Reject || e.Verdict == Reset) && !strings.HasSuffix(key, "via=") {
		a.failf("expect %s and %s cannot both hold: nothing arrives", e.Verdict, key)
	}
	return e
}

func plainNode(s string) (NodeRef, error) { return parseNode(s) }

// CNIResult is the expected answer to a CNI call.
type CNIResult struct {
	// Fail is set for error.
	Fail bool
	// Code is the CNI error code; 0: any.
	Code int
}

// String returns ok, error or error=CODE.
func (r CNIResult) String() string {
	switch {
	case !r.Fail:
		return "ok"
	case r.Code == 0:
		return "error"
	}
	return "error=" + strconv.Itoa(r.Code)
}

// expectCNI parses expect ok|error[=CODE], if it comes next.
func (a *args) expectCNI() *CNIResult {
	if a.pos == len(a.words) || a.words[a.pos] != "expect" {
		return nil
	}
	a.pos++
	w, ok := a.next("ok or error[=CODE] after expect")
	if !ok {
		return nil
	}
	name, code, hasCode := strings.Cut(w, "=")
	if _, err := oneOf(name, "ok", "error"); err != nil || name == "ok" && hasCode {
		a.failf("expect: found %q, allowed: ok, error, error=CODE", w)
		return nil
	}
	r := &CNIResult{Fail: name == "error"}
	if hasCode {
		var err error
		if r.Code, err = parseInt(code, 1, 9999); err != nil {
			a.failf("expect error=CODE: %v", err)
		}
	}
	return r
}

// APIResult is the expected answer of the API server to a change.
type APIResult struct {
	// Fail is set for error: at least one object is refused.
	Fail bool
	// Text is in what the API says of it; empty: anything.
	Text string
}

// String returns ok, error or error=TEXT.
func (r APIResult) String() string {
	switch {
	case !r.Fail:
		return "ok"
	case r.Text == "":
		return "error"
	}
	return quoteOption("error", "=", r.Text)
}

// expectAPI parses expect ok|error[=TEXT], if it comes next.
func (a *args) expectAPI() *APIResult {
	if a.pos == len(a.words) || a.words[a.pos] != "expect" {
		return nil
	}
	a.pos++
	w, ok := a.next("ok or error[=TEXT] after expect")
	if !ok {
		return nil
	}
	name, text, hasText := strings.Cut(w, "=")
	if _, err := oneOf(name, "ok", "error"); err != nil || hasText && (name == "ok" || text == "") {
		a.failf("expect: found %q, allowed: ok, error, error=TEXT", w)
		return nil
	}
	return &APIResult{Fail: name == "error", Text: text}
}

// StreamExpect is what every packet of a stream must have experienced.
type StreamExpect struct {
	Lost    *Bound
	Source  *Match[Address]
	Backend *Match[Endpoint]
}

func (e *StreamExpect) print(p *printer) {
	if e == nil {
		return
	}
	p.raw("expect")
	p.optBound("lost", e.Lost)
	optMatch(p, "source", e.Source)
	optMatch(p, "backend", e.Backend)
}

func (a *args) expectStream() *StreamExpect {
	if a.pos == len(a.words) || a.words[a.pos] != "expect" {
		return nil
	}
	a.pos++
	e := &StreamExpect{}
	opts := []option{
		{name: "lost", ops: "= <=", set: func(op, v string) (err error) { e.Lost, err = parseBound(op, v); return err }},
		{name: "source", ops: "= !=", set: func(op, v string) (err error) { e.Source, err = parseMatch(op, v, ParseAddress); return err }},
		{name: "backend", ops: "= !=", set: func(op, v string) (err error) { e.Backend, err = parseMatch(op, v, parseEndpoint); return err }},
	}
	if a.pos == len(a.words) {
		a.failf("expect: nothing is expected; allowed: %s", optionNames(opts))
	}
	a.options(opts)
	return e
}

// maxCount bounds every count.
const maxCount = 1_000_000

// parseBound reads N after = or <=; <=N after = is the same as <=.
func parseBound(op, s string) (*Bound, error) {
	b := &Bound{AtMost: op == "<="}
	if rest, ok := strings.CutPrefix(s, "<="); ok && op == "=" {
		b.AtMost, s = true, rest
	}
	var err error
	b.N, err = parseInt(s, 0, maxCount)
	return b, err
}
