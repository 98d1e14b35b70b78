package sim

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"towtank/sim/fabric"
	"towtank/sim/host"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

// Verdict is what a new connection or packet experienced.
type Verdict string

// The verdicts.
const (
	OK     Verdict = "ok"     // answered end to end
	Drop   Verdict = "drop"   // silence
	Reject Verdict = "reject" // refused in the name of the address that was dialled
)

// Source is where traffic comes from.
type Source struct {
	Name  string // node/N, a Pod, an external
	NS    *host.Netns
	Node  *Node     // where the Pod or process runs; nil for an external
	Ext   *External // set for an external
	Pod   string    // namespace/name, "" if it is none
	addrs []netip.Addr
}

// Addr returns the source's address of the family, invalid if it has none.
func (s *Source) Addr(v6 bool) netip.Addr {
	for _, a := range s.addrs {
		if a.Is6() == v6 {
			return a
		}
	}
	return netip.Addr{}
}

// Flow is one connection, or one datagram and its answer.
type Flow struct {
	From  *Source
	Bind  netip.Addr // the source address; invalid: the sender's own, or for a node what its routes say
	To    netip.Addr
	Port  uint16
	Proto uint8
	SPort uint16 // 0: the next unused from 40000 up
	Size  int    // bytes of the IP packet; 0: as small as possible
	DF    bool
	Next  *Node // next hop of an external
	// HTTP asks a health port for its status.
	HTTP bool
}

// Result is what a flow experienced.
type Result struct {
	Verdict    Verdict
	Arrived    bool // some receiver got it
	Backend    string
	Port       uint16 // of the receiver
	Source, To netip.Addr
	SPort      uint16 // of the client; 0: not known
	Via        string // node (or host) that it left last on its way there
	ReplyVia   string // the same of the answer
	HTTP       int
	Note       string // why the verdict is what it is, where that is not plain
}

// traffic makes packets and sees who gets them.
type traffic struct {
	w     *World
	next  uint64
	ports map[string]uint16 // next source port by source name
	cur   *flight
	// given counts the addresses of endpoints, and endpointNS answers for them.
	given      int
	endpointNS *host.Netns
}

// flight is the packet that is under way.
type flight struct {
	id      uint64
	result  *Result
	reached bool // a process got it, and the result says who
	// delivered is set once it came to the sockets of a machine or Pod, where it had these addresses: what
	// leaves now is the answer.
	delivered        bool
	seenSrc, seenDst netip.Addr
	// answered is set once the answer is back: what leaves now (the last ACK of a handshake) counts no more.
	answered bool
	// src is the client's own address, dialled the one that it sends to.
	src, dialled netip.Addr
	sport        uint16
	from         *Source
	// switched is set once it left a switch.
	switched bool
}

func newTraffic(w *World) *traffic {
	return &traffic{w: w, ports: map[string]uint16{}}
}

// server returns what a process does that serves a port: it answers, and notes what it saw.
func (t *traffic) server(name string, proto uint8, port uint16) host.Handler {
	return func(in *packet.Packet) *packet.Packet {
		if f := t.cur; f != nil && in.Trace == f.id && !f.reached {
			f.reached = true
			f.result.Arrived = true
			f.result.Backend, f.result.Port = name, port
			f.result.Source, f.result.To = in.Src, in.Dst
		}
		return &packet.Packet{Payload: in.Payload}
	}
}

// delivered hears of a packet that comes to sockets.
func (t *traffic) delivered(p *packet.Packet) {
	f := t.cur
	// What a tunnel carries is not there yet when the packet around it is.
	if f == nil || p.Trace != f.id || f.delivered || p.Inner != nil {
		return
	}
	f.delivered, f.seenSrc, f.seenDst = true, p.Src, p.Dst
}

// refusal reports whether a packet says that another one was refused.
func refusal(p *packet.Packet) bool {
	return p.IsICMPError() || p.Proto == packet.ProtoTCP && p.TCPFlags&packet.RST != 0
}

// left hears of a frame of the current flight that a machine sends on the fabric.
func (t *traffic) left(from string, p *packet.Packet) {
	f := t.cur
	if f == nil || p.Trace != f.id {
		return
	}
	// What a router only passes on left the node before it.
	if t.w.nets[strings.TrimSuffix(from, fabric.VLANPort)] != nil {
		return
	}
	inner := p
	for inner.Inner != nil && !inner.IsICMPError() {
		inner = inner.Inner
	}
	switch {
	case !f.delivered && !refusal(inner):
		f.result.Via = from
	case !f.answered:
		f.result.ReplyVia = from
	}
}

// leftSwitch hears of a packet that leaves a switch by a port.
func (t *traffic) leftSwitch(p *packet.Packet) {
	if f := t.cur; f != nil && p.Trace == f.id {
		f.switched = true
	}
}

// sport returns a source port for a new flow.
func (t *traffic) sport(f *Flow) uint16 {
	if f.SPort != 0 {
		return f.SPort
	}
	n := t.ports[f.From.Name]
	if n < 40000 || n == 65535 {
		n = 39999
	}
	n++
	t.ports[f.From.Name] = n
	return n
}

// Probe makes a new connection (or sends a datagram or an echo request) and returns what it
// experienced. It takes no virtual time.
func (w *World) Probe(f Flow) (Result, error) {
	c, err := w.traffic.dial(&f)
	if err != nil {
		return Result{}, err
	}
	c.close()
	return c.last, nil
}

// Conn is a connection that stays open: its packets have one 5-tuple.
type Conn struct {
	t       *traffic
	flow    Flow
	src     netip.Addr
	sport   uint16
	open    bool
	closeFn func()
	last    Result
	answer  *packet.Packet
	seq     uint32
	// Reset is set once the connection was refused or reset.
	Reset bool
}

// Last returns what the last packet of the connection experienced.
func (c *Conn) Last() Result { return c.last }

// Open makes a connection that is kept.
func (w *World) Open(f Flow) (*Conn, error) { return w.traffic.dial(&f) }

// Close ends a connection.
func (c *Conn) Close() { c.close() }

func (c *Conn) close() {
	if c.open {
		c.open = false
		c.closeFn()
	}
}

func (t *traffic) dial(f *Flow) (*Conn, error) {
	c := &Conn{t: t, flow: *f}
	if !f.To.IsValid() {
		c.last = Result{Verdict: Drop, Note: "the other end has no address"}
		c.closeFn = func() {}
		return c, nil
	}
	v6 := f.To.Is6()
	c.src = f.From.Addr(v6)
	if !c.src.IsValid() {
		c.last = Result{Verdict: Drop, Note: f.From.Name + " has no address of the family of " + f.To.String()}
		c.closeFn = func() {}
		return c, nil
	}
	if f.Bind.IsValid() {
		if f.Bind.Is6() != v6 {
			c.last = Result{Verdict: Drop, Note: f.Bind.String() + " is not of the family of " + f.To.String()}
			c.closeFn = func() {}
			return c, nil
		}
		c.src = f.Bind
	}
	if f.From.NS == nil {
		c.last = Result{Verdict: Drop, Note: f.From.Name + " does not run"}
		c.closeFn = func() {}
		return c, nil
	}
	c.sport = t.sport(f)
	if f.From.Ext != nil {
		if err := f.From.Ext.prepare(f.To, f.Next); err != nil {
			return nil, fmt.Errorf("%s: next hop for %s: %w", f.From.Name, f.To, err)
		}
	}
	closeFn, err := f.From.NS.Bind(f.Proto, c.sport, func(in *packet.Packet) {
		c.answer = in.Clone()
		if t.cur != nil && t.cur.id == in.Trace {
			t.cur.answered = true
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: port %d: %w", f.From.Name, c.sport, err)
	}
	c.closeFn, c.open = closeFn, true
	first := c.packet()
	if f.Proto == packet.ProtoTCP {
		first.TCPFlags = packet.SYN
	}
	c.exchange(first)
	return c, nil
}

func (c *Conn) packet() *packet.Packet {
	f := &c.flow
	p := &packet.Packet{Proto: f.Proto, TTL: 64, Size: f.Size, DF: f.DF, SrcPort: c.sport, DstPort: f.Port, Seq: c.seq}
	src := c.src
	if f.From.Pod == "" && f.From.Ext == nil && !f.Bind.IsValid() {
		// A process of the node binds to no address: the route decides.
		src = netip.Addr{}
	}
	p.SetIPs(src, f.To)
	switch f.Proto {
	case packet.ProtoICMP:
		p.ICMPType, p.ICMPID, p.SrcPort, p.DstPort = packet.ICMPEchoRequest, c.sport, 0, 0
	case packet.ProtoICMPv6:
		p.ICMPType, p.ICMPID, p.SrcPort, p.DstPort = packet.ICMPv6EchoRequest, c.sport, 0, 0
	}
	return p
}

// Send sends one more packet of the connection.
func (c *Conn) Send() Result {
	if !c.open {
		c.last = Result{Verdict: Drop, Note: "the connection is closed"}
		return c.last
	}
	p := c.packet()
	if c.flow.Proto == packet.ProtoTCP {
		p.TCPFlags = packet.ACK | packet.PSH
		p.Payload = "data"
	}
	c.exchange(p)
	return c.last
}

// exchange sends a packet and waits for what comes back at once.
func (c *Conn) exchange(p *packet.Packet) {
	t := c.t
	t.next++
	id := t.next
	p.Trace = id
	c.seq++
	var r Result
	c.answer = nil
	prev := t.cur
	fl := &flight{id: id, result: &r, from: c.flow.From, src: c.src, sport: c.sport, dialled: c.flow.To}
	t.cur = fl
	if c.flow.HTTP {
		p.Payload = "GET /healthz"
	}
	err := c.flow.From.NS.Send(p)
	t.cur = prev
	r.SPort = c.sport
	c.judge(&r, fl, err)
	c.last = r
	t.w.log.Add(t.w.queue.Now(), "packet", c.flow.From.Name, fmt.Sprintf("%s %s:%d %s backend=%s source=%s", packet.ProtoName(c.flow.Proto), c.flow.To, c.flow.Port, r.Verdict, r.Backend, r.Source))
}

// judge turns the answer into a verdict.
func (c *Conn) judge(r *Result, fl *flight, err error) {
	f := &c.flow
	if r.Via == "" && f.From.Node != nil {
		r.Via = f.From.Node.name
	}
	if r.ReplyVia == "" && r.Arrived {
		r.ReplyVia = c.t.home(r.Backend)
	}
	a := c.answer
	r.Verdict = Drop
	switch {
	case err != nil && a == nil:
		r.Note = err.Error()
		return
	case a == nil:
		return
	case a.Src != f.To:
		r.Note = "an answer came from " + a.Src.String() + ", not from " + f.To.String()
		return
	case a.IsICMPError():
		r.Verdict = Reject
		if a.ICMPType == packet.ICMPUnreachable && a.ICMPCode == 4 && a.Proto == packet.ProtoICMP || a.Proto == packet.ProtoICMPv6 && a.ICMPType == packet.ICMPv6PacketTooBig {
			r.Verdict, r.Note = Drop, "too big for the path"
		}
	case a.Proto == packet.ProtoTCP && a.TCPFlags&packet.RST != 0:
		r.Verdict = Reject
		c.Reset = true
	case f.HTTP && a.Payload == "":
		r.Note = "the connection was accepted, and nothing answered the request"
	default:
		r.Verdict = OK
		if f.HTTP {
			_, _ = fmt.Sscanf(a.Payload, "HTTP/1.1 %d", &r.HTTP)
		}
		if !r.Arrived {
			c.t.kernelAnswer(r, fl)
		}
	}
}

// kernelAnswer fills in who answered where no process of ours did: echo requests are answered by the kernel.
func (t *traffic) kernelAnswer(r *Result, f *flight) {
	r.Arrived = true
	r.Source, r.To = f.seenSrc, f.seenDst
	r.Backend = t.owner(f.seenDst)
}

// owner names the machine or Pod that has an address.
func (t *traffic) owner(a netip.Addr) string {
	for _, n := range t.w.nodeOrder {
		if n.ns.HasAddress(a) {
			return "node/" + n.name
		}
	}
	for _, x := range t.w.extOrder {
		if x.ns.HasAddress(a) {
			return x.name
		}
	}
	for _, s := range t.w.runtime.running() {
		if s.ns.HasAddress(a) {
			return s.pod
		}
	}
	return ""
}

// home returns the node on which who answered runs, or the external's name.
func (t *traffic) home(backend string) string {
	if len(backend) > 5 && backend[:5] == "node/" {
		return backend[5:]
	}
	if r := t.w.runtime.pods[backend]; r != nil {
		return r.node
	}
	return backend
}

// NodeSource returns a node's own processes as a source.
func (w *World) NodeSource(n *Node) *Source {
	s := &Source{Name: "node/" + n.name, NS: n.ns, Node: n, addrs: n.addresses()}
	if !n.up {
		s.NS = nil
	}
	return s
}

// ExternalSource returns an external host as a source.
func (w *World) ExternalSource(x *External) *Source {
	return &Source{Name: x.name, NS: x.ns, Ext: x, addrs: x.addrs}
}

// PodSource returns the newest running sandbox of a Pod as a source, or the node for a Pod that uses
// its node's network.
func (w *World) PodSource(key string) (*Source, error) {
	r := w.runtime.pods[key]
	if r != nil && r.hostNet {
		s := w.NodeSource(w.nodes[r.node])
		return s, nil
	}
	s := w.runtime.sandboxOf(key)
	if s == nil {
		if r == nil {
			return nil, fmt.Errorf("pod %s is not known", key)
		}
		return &Source{Name: key, Node: w.nodes[r.node], Pod: key}, nil
	}
	src := &Source{Name: key, Node: w.nodes[s.node], Pod: key}
	// The containers of a Pod start when its ADD has been answered.
	if s.ns != nil && s.result != nil {
		src.NS = s.ns
		for _, p := range s.ns.Addresses() {
			if !p.Addr().IsLinkLocalUnicast() {
				src.addrs = append(src.addrs, p.Addr())
			}
		}
	}
	return src, nil
}

// Shape sets size and don't-fragment of the packets that follow.
func (c *Conn) Shape(size int, df bool) { c.flow.Size, c.flow.DF = size, df }

// endpointHost is the machine that answers for the endpoints of Services without selector.
const endpointHost = "endpoints"

// endpointAddress returns the i-th address of such endpoints, in a part of the nodes' subnet that
// nothing else uses: 172.18.128.0 and fd00:18::1:0 up.
func endpointAddress(i int, v6 bool) netip.Addr {
	if v6 {
		b := netip.MustParseAddr("fd00:18::1:0").As16()
		b[13], b[14], b[15] = byte(1+i>>16), byte(i>>8), byte(i)
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte{172, 18, byte(128 + i>>8), byte(i)})
}

// maxEndpoints is how many addresses there are for endpoints.
const maxEndpoints = 32000

// endpoints gives a Service without selector endpoints that answer, spread over nodes in turn.
func (t *traffic) endpoints(namespace, service string, count int, on []*Node) error {
	w := t.w
	if count < 0 || t.given+count > maxEndpoints {
		return fmt.Errorf("endpoints of %s/%s: %d: there are %d addresses left", namespace, service, count, maxEndpoints-t.given)
	}
	o, err := w.Kube.Get(kube.KindService, namespace, service)
	if err != nil {
		return err
	}
	svc, _ := o.(*corev1.Service)
	if t.endpointNS == nil {
		t.endpointNS = host.New(host.Config{Name: endpointHost, Now: w.queue.Now, Queue: w.packets, Delivered: w.traffic.delivered})
		w.attach(endpointHost, t.endpointNS, 0, nil)
	}
	var list []kube.SliceEndpoint
	for i := range count {
		for _, f := range svc.Spec.IPFamilies {
			a := endpointAddress(t.given+i, f == corev1.IPv6Protocol)
			if err := t.endpointNS.AddAddress(Uplink, netip.PrefixFrom(a, w.bitsOf(a))); err != nil {
				return err
			}
			list = append(list, kube.SliceEndpoint{IP: a, Node: on[i%len(on)].name})
		}
	}
	if t.given == 0 && count > 0 {
		w.routes(t.endpointNS) // a gateway is reachable only once there is an address
	}
	t.given += count
	for _, p := range svc.Spec.Ports {
		proto, port := protoOf(p.Protocol), uint16(p.TargetPort.IntVal)
		if port == 0 {
			port = uint16(p.Port)
		}
		t.endpointNS.Listen(proto, port, func(in *packet.Packet) *packet.Packet {
			return t.server(in.Dst.String(), proto, port)(in)
		})
	}
	return w.Kube.SetEndpoints(namespace, service, list)
}
