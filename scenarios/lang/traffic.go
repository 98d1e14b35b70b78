package lang

import (
	"fmt"
	"time"
)

const flowUsage = "[sport=N] [size=N] [df] [family=v4|v6] [next=N]"

var trafficCommands = []command{
	{
		"probe", "probe FROM -> TO[:PORT[/PROTO]] " + flowUsage + " [count=N] [as=NAME] [expect [ok|drop|reject] [backend=A|…] " +
			"[backends=A,A] [source=A] [to=A] [via=N] [reply-via=N] [sticky] [same-as=NAME] [http=CODE]]",
		"new connections; PROTO is tcp, udp, sctp, http; TO/icmp", parseProbe,
	},
	{"open", "open NAME FROM -> TO[:PORT[/PROTO]] " + flowUsage + " [expect ok|reject …]", "opens a connection that keeps its 5-tuple", parseOpen},
	{"close", "close NAME", "closes a connection", parseClose},
	{"send", "send NAME [count=N] [size=N] [df] [expect ok|drop|reset source=… backend=…]", "sends on an open connection", parseSend},
	{"stream", "stream NAME FROM -> TO[:PORT[/PROTO]] every=D [flow=one] " + flowUsage, "a new connection every D; flow=one: one connection", parseStream},
	{"stream-stop", "stream-stop NAME [expect lost<=N source=… backend=…]", "ends a stream; the expectations hold for every packet", parseStreamStop},
	{"inject", "inject NS/POD|NAME FIELD=VALUE… [expect ok|drop]", "sends one raw packet; fields named as OVS matches", parseInject},
}

// FlowOptions are how a connection's packets are made.
type FlowOptions struct {
	// SPort is the source port; 0: the client's next unused one from 40000 up.
	SPort uint16
	// Size is the length of each IP packet in bytes; 0: as small as possible.
	Size int
	// DF forbids fragmentation.
	DF bool
	// Family is v4 or v6; empty: the target's first.
	Family string
	// Next is the node that the sender, an external host, sends to; empty: as its network says.
	Next NodeRef
}

func (f FlowOptions) print(p *printer) {
	p.num("sport", int(f.SPort))
	p.num("size", f.Size)
	p.flag("df", f.DF)
	p.opt("family", f.Family)
	p.opt("next", f.Next.String())
}

func (f *FlowOptions) options() []option {
	return []option{
		opt("sport", func(v string) (err error) { f.SPort, err = parsePort(v); return err }),
		opt("size", func(v string) (err error) { f.Size, err = parseInt(v, 28, 65535); return err }),
		bare("df", func() error { f.DF = true; return nil }),
		opt("family", func(v string) (err error) { f.Family, err = oneOf(v, "v4", "v6"); return err }),
		opt("next", func(v string) (err error) { f.Next, err = plainNode(v); return err }),
	}
}

// between parses FROM -> TO.
func (a *args) between() (from Address, to Target) {
	from = take(a, "FROM", ParseAddress)
	a.literal("->")
	to = take(a, "TO", ParseTarget)
	return from, to
}

// sender refuses what cannot send.
func (a *args) sender(from Address) {
	switch from.Kind {
	case AddrService, AddrLB, AddrNodePort, AddrEgress:
		a.failf("FROM: found %q, allowed: NS/POD, backend/NAME, node/N, gateway/N, an external host, or an IP address that one of them has", from)
	}
}

// Probe is `probe FROM -> TO…`.
type Probe struct {
	From Address
	To   Target
	Flow FlowOptions
	// Count is the number of connections; 0: 1.
	Count int
	// As names the probe for same-as and backend/NAME.
	As     string
	Expect *Expect
}

// Command implements Step.
func (Probe) Command() string { return "probe" }

// String implements Step.
func (s Probe) String() string {
	var p printer
	p.word("probe", s.From.String(), "->", s.To.String())
	s.Flow.print(&p)
	p.num("count", s.Count)
	p.opt("as", s.As)
	s.Expect.print(&p)
	return p.String()
}

func (s Probe) names(v *nameVisitor) {
	v.flow(s.From, s.To, s.Flow)
	v.expect(s.Expect)
	v.probe(s.As)
}

func parseProbe(a *args) Step {
	var s Probe
	s.From, s.To = a.between()
	a.sender(s.From)
	a.options(append(s.Flow.options(),
		opt("count", func(v string) (err error) { s.Count, err = parseInt(v, 1, maxCount); return err }),
		opt("as", func(v string) error { s.As = v; return checkName(v) }),
	))
	s.Expect = a.expect(probeVerdicts, probeExpects)
	if s.Expect != nil && s.Expect.HTTP != nil && s.To.Proto != ProtoHTTP {
		a.failf("expect http= needs a target with /http, found %s", s.To)
	}
	return s
}

// Open is `open NAME FROM -> TO…`.
type Open struct {
	Name   string
	From   Address
	To     Target
	Flow   FlowOptions
	Expect *Expect
}

// Command implements Step.
func (Open) Command() string { return "open" }

// String implements Step.
func (s Open) String() string {
	var p printer
	p.word("open", s.Name, s.From.String(), "->", s.To.String())
	s.Flow.print(&p)
	s.Expect.print(&p)
	return p.String()
}

func (s Open) names(v *nameVisitor) {
	v.flow(s.From, s.To, s.Flow)
	v.expect(s.Expect)
	v.open("open", s.Name)
}

func parseOpen(a *args) Step {
	var s Open
	s.Name = a.name()
	s.From, s.To = a.between()
	a.sender(s.From)
	a.options(s.Flow.options())
	s.Expect = a.expect(openVerdicts, openExpects)
	return s
}

// name takes the name of a connection or stream.
func (a *args) name() string {
	return take(a, "NAME", func(w string) (string, error) { return w, checkName(w) })
}

// Close is `close NAME`.
type Close struct{ Name string }

// Command implements Step.
func (Close) Command() string { return "close" }

// String implements Step.
func (s Close) String() string { return "close " + s.Name }

func (s Close) names(v *nameVisitor) { v.closeOpen("open", s.Name) }

func parseClose(a *args) Step { return Close{a.name()} }

// Send is `send NAME …`.
type Send struct {
	Name string
	// Count is the number of packets; 0: 1.
	Count int
	// Size is the length of each IP packet in bytes; 0: as small as possible.
	Size   int
	DF     bool
	Expect *Expect
}

// Command implements Step.
func (Send) Command() string { return "send" }

// String implements Step.
func (s Send) String() string {
	var p printer
	p.word("send", s.Name)
	p.num("count", s.Count)
	p.num("size", s.Size)
	p.flag("df", s.DF)
	s.Expect.print(&p)
	return p.String()
}

func (s Send) names(v *nameVisitor) {
	v.useOpen("open", s.Name)
	v.expect(s.Expect)
}

func parseSend(a *args) Step {
	s := Send{Name: a.name()}
	a.options([]option{
		opt("count", func(v string) (err error) { s.Count, err = parseInt(v, 1, maxCount); return err }),
		opt("size", func(v string) (err error) { s.Size, err = parseInt(v, 28, 65535); return err }),
		bare("df", func() error { s.DF = true; return nil }),
	})
	s.Expect = a.expect(sendVerdicts, sendExpects)
	return s
}

// Stream is `stream NAME FROM -> TO… every=D [flow=one]`.
type Stream struct {
	Name  string
	From  Address
	To    Target
	Every time.Duration
	// OneFlow sends every beat on one connection instead of a new one.
	OneFlow bool
	Flow    FlowOptions
}

// Command implements Step.
func (Stream) Command() string { return "stream" }

// String implements Step.
func (s Stream) String() string {
	var p printer
	p.word("stream", s.Name, s.From.String(), "->", s.To.String())
	p.opt("every", durationOption(s.Every))
	p.flag("flow=one", s.OneFlow)
	s.Flow.print(&p)
	return p.String()
}

func (s Stream) names(v *nameVisitor) {
	v.flow(s.From, s.To, s.Flow)
	v.open("stream", s.Name)
}

func parseStream(a *args) Step {
	var s Stream
	s.Name = a.name()
	s.From, s.To = a.between()
	a.sender(s.From)
	a.options(append(s.Flow.options(),
		opt("every", func(v string) (err error) { s.Every, err = parseDuration(v, time.Millisecond); return err }),
		opt("flow", func(v string) error { _, err := oneOf(v, "one"); s.OneFlow = true; return err }),
	))
	a.require(s.Every != 0, "every=D")
	if s.Flow.SPort != 0 && !s.OneFlow {
		a.failf("sport=%d needs flow=one: every beat is a new connection", s.Flow.SPort)
	}
	return s
}

// StreamStop is `stream-stop NAME [expect …]`.
type StreamStop struct {
	Name   string
	Expect *StreamExpect
}

// Command implements Step.
func (StreamStop) Command() string { return "stream-stop" }

// String implements Step.
func (s StreamStop) String() string {
	var p printer
	p.word("stream-stop", s.Name)
	s.Expect.print(&p)
	return p.String()
}

func (s StreamStop) names(v *nameVisitor) {
	if e := s.Expect; e != nil {
		v.addresses(e.Source)
		v.endpoints(e.Backend)
	}
	v.closeOpen("stream", s.Name)
}

func parseStreamStop(a *args) Step {
	s := StreamStop{Name: a.name()}
	a.options(nil)
	s.Expect = a.expectStream()
	return s
}

// Inject is `inject NS/POD|NAME FIELD=VALUE… [expect ok|drop]`.
type Inject struct {
	// From is a Pod (AddrPod, AddrBackend) or an external host (AddrExternal).
	From Address
	// Fields are named as OVS matches; see InjectFields.
	Fields []KeyValue
	Expect *Expect
}

// Command implements Step.
func (Inject) Command() string { return "inject" }

// String implements Step.
func (s Inject) String() string {
	var p printer
	p.word("inject", s.From.String())
	for _, f := range s.Fields {
		p.raw(quoteOption(f.Key, "=", f.Value))
	}
	s.Expect.print(&p)
	return p.String()
}

func (s Inject) names(v *nameVisitor) {
	v.address(s.From)
	v.expect(s.Expect)
}

func parseInject(a *args) Step {
	var s Inject
	s.From = take(a, "NS/POD or NAME", func(w string) (Address, error) {
		addr, err := ParseAddress(w)
		if err == nil && addr.Kind != AddrPod && addr.Kind != AddrBackend && addr.Kind != AddrExternal {
			err = fmt.Errorf("found %q, allowed: NS/POD, backend/NAME, an external host", w)
		}
		return addr, err
	})
	var opts []option
	for _, f := range injectFields {
		opts = append(opts, opt(f.name, func(v string) error {
			s.Fields = append(s.Fields, KeyValue{f.name, v})
			return f.check(v)
		}))
	}
	a.options(opts)
	a.require(len(s.Fields) > 0, "FIELD=VALUE")
	if why := contradiction(s.Fields); why != "" {
		a.failf("%s", why)
	}
	s.Expect = a.expect(injectVerdicts, injectExpects)
	return s
}
