package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Option is a word of a traffic step: how packets are made, or what they must experience.
type Option struct {
	text   string
	expect bool
}

func expects(format string, args ...any) Option { return Option{fmt.Sprintf(format, args...), true} }

// The verdicts.
var (
	OK     = expects("ok")     // answered end to end
	Drop   = expects("drop")   // silence
	Reject = expects("reject") // refused in the name of the address dialled
	Reset  = expects("reset")  // of Send: the connection was reset
	Sticky = expects("sticky") // one backend for all
)

// Backend is who must answer: one of these.
func Backend(who ...string) Option { return expects("backend=%s", strings.Join(who, "|")) }

// Backends is the exact set of all who must answer a probe with Count.
func Backends(who ...string) Option { return expects("backends=%s", strings.Join(who, ",")) }

// Source is the source address that the receiver must see: one of these.
func Source(a ...string) Option { return expects("source=%s", strings.Join(a, "|")) }

// NotSource is the source address that the receiver must not see.
func NotSource(a ...string) Option { return expects("source!=%s", strings.Join(a, "|")) }

// To is the destination address that the receiver must see: one of these.
func To(a ...string) Option { return expects("to=%s", strings.Join(a, "|")) }

// Via is the node whose network the packet must leave.
func Via(node string) Option { return expects("via=%s", node) }

// ReplyVia is the node whose network the reply must leave.
func ReplyVia(node string) Option { return expects("reply-via=%s", node) }

// SameAs wants the backend that answered the probe or connection of that name.
func SameAs(name string) Option { return expects("same-as=%s", name) }

// NotSameAs wants another backend than answered the probe or connection of that name.
func NotSameAs(name string) Option { return expects("same-as!=%s", name) }

// HTTP is the status of a health port.
func HTTP(code int) Option { return expects("http=%d", code) }

// Lost bounds how many packets a stream may have lost.
func Lost(atMost int) Option { return expects("lost<=%d", atMost) }

// Count is how many connections are made, or packets sent.
func Count(n int) Option { return Option{text: fmt.Sprintf("count=%d", n)} }

// SPort is the source port.
func SPort(n uint16) Option { return Option{text: fmt.Sprintf("sport=%d", n)} }

// Size is the length of each IP packet in bytes.
func Size(n int) Option { return Option{text: fmt.Sprintf("size=%d", n)} }

// Next is the node that an external host sends to.
func Next(node string) Option { return Option{text: "next=" + node} }

// V4 and V6 are the family of a target that has both.
var (
	V4 = Option{text: "family=v4"}
	V6 = Option{text: "family=v6"}
)

// As names a probe for SameAs.
func As(name string) Option { return Option{text: "as=" + name} }

// Every is how often a stream sends; OneFlow makes it send on one connection.
func Every(d time.Duration) Option { return Option{text: "every=" + d.String()} }

// OneFlow makes a stream send on one connection.
var OneFlow = Option{text: "flow=one"}

// words puts options first, then expectations.
func words(head []string, options []Option) []string {
	for _, o := range options {
		if !o.expect {
			head = append(head, o.text)
		}
	}
	if slices.ContainsFunc(options, func(o Option) bool { return o.expect }) {
		head = append(head, "expect")
	}
	for _, o := range options {
		if o.expect {
			head = append(head, o.text)
		}
	}
	return head
}

// Probe makes new connections: from NS/POD, node/N or an external host, to an address expression with
// a port, as "svc/default/web:80", "nodeport/n1/default/web", "lb/default/web:dns".
func (s *Scenario) Probe(from, to string, options ...Option) *Scenario {
	return s.step(words([]string{"probe", from, "->", to}, options)...)
}

// Open makes a connection that keeps its addresses and ports.
func (s *Scenario) Open(name, from, to string, options ...Option) *Scenario {
	return s.step(words([]string{"open", name, from, "->", to}, options)...)
}

// Send uses an open connection.
func (s *Scenario) Send(name string, options ...Option) *Scenario {
	return s.step(words([]string{"send", name}, options)...)
}

// Close ends an open connection.
func (s *Scenario) Close(name string) *Scenario { return s.step("close", name) }

// Stream makes a connection every while, in the simulator also after every effect of any agent.
func (s *Scenario) Stream(name, from, to string, options ...Option) *Scenario {
	return s.step(words([]string{"stream", name, from, "->", to}, options)...)
}

// StreamStop ends a stream; the expectations hold for every packet of it.
func (s *Scenario) StreamStop(name string, options ...Option) *Scenario {
	return s.step(words([]string{"stream-stop", name}, options)...)
}
