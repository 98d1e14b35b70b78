package host

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/sim/packet"
)

// world is a clock, a queue and namespaces that find each other.
type world struct {
	t     *testing.T
	now   time.Time
	q     packet.Queue
	names map[string]*Netns
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: time.Unix(1000, 0), names: map[string]*Netns{}}
	w.q.OnLoop = func(err error) { t.Error(err) }
	return w
}

func (w *world) netns(name string) *Netns {
	n := New(Config{
		Name: name, Now: func() time.Time { return w.now }, Queue: &w.q,
		Netns: func(s string) (*Netns, bool) { n, ok := w.names[s]; return n, ok },
	})
	w.names[name] = n
	return n
}

// wire connects two namespaces and gives each side its addresses.
func (w *world) wire(a *Netns, la string, aa []string, b *Netns, lb string, ab []string) {
	w.t.Helper()
	if _, _, err := Veth(VethSide{Netns: a, Name: la}, VethSide{Netns: b, Name: lb}); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range []struct {
		n    *Netns
		link string
		as   []string
	}{{a, la, aa}, {b, lb, ab}} {
		w.exec(s.n, "ip link set "+s.link+" up")
		for _, x := range s.as {
			w.exec(s.n, "ip addr add "+x+" dev "+s.link+" nodad")
		}
	}
}

func (w *world) exec(n *Netns, cmd string) string {
	w.t.Helper()
	out, err := n.Exec(cmd)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// advance lets time pass second by second, with what namespaces do by themselves.
func (w *world) advance(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(time.Second)
		for _, name := range sortedKeys(w.names) {
			w.names[name].Tick()
		}
	}
}

func (w *world) apply(n *Netns, objects ...datapath.Object) {
	w.t.Helper()
	for i, r := range n.Apply(puts(objects...)) {
		if r.Outcome != datapath.Done {
			w.t.Fatalf("%s: %v", objects[i], r.Err)
		}
	}
}

func puts(objects ...datapath.Object) []datapath.Op {
	var ops []datapath.Op
	for _, o := range objects {
		ops = append(ops, datapath.Op{New: o})
	}
	return ops
}

func dels(objects ...datapath.Object) []datapath.Op {
	var ops []datapath.Op
	for _, o := range objects {
		ops = append(ops, datapath.Op{Old: o})
	}
	return ops
}

// obj parses the text of an object; it guesses the kind.
func (w *world) obj(text string) datapath.Object {
	w.t.Helper()
	o, err := parseAny(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

func parseAny(text string) (datapath.Object, error) {
	f := strings.Fields(text)
	kind := datapath.KindRoute
	switch {
	case strings.HasPrefix(f[0], "ip") && strings.Contains(f[0], "tables"):
		kind = datapath.KindIPTables
	case f[0] == "create":
		kind = datapath.KindIPSet
	case f[0] == "add":
		kind = datapath.KindIPSetEntry
	case f[0] == "dev":
		kind = datapath.KindLink
	case f[0] == "proxy" || strings.Contains(text, "lladdr"):
		kind = datapath.KindNeighbour
	case f[0] == "health":
		kind = datapath.KindHealth
	case strings.HasPrefix(f[0], "net."):
		kind = datapath.KindSysctl
	case strings.Contains(text, " lookup "):
		kind = datapath.KindRule
	case len(f) >= 3 && f[1] == "dev" && strings.Contains(f[0], "/") && !strings.Contains(text, "scope"):
		kind = datapath.KindAddress
	}
	return host.Parse(kind, text)
}

// probe sends one packet and returns what the client got: "ok SOURCE>TO PAYLOAD" of the answer,
// "rst", "icmp TYPE/CODE from A", or "drop".
func (w *world) probe(from *Netns, proto uint8, dst string, port uint16) string {
	w.t.Helper()
	return w.send(from, &packet.Packet{Dst: netip.MustParseAddr(dst), Proto: proto, DstPort: port})
}

var nextPort uint16 = 40000

func (w *world) send(from *Netns, p *packet.Packet) string {
	w.t.Helper()
	nextPort++
	if p.SrcPort == 0 {
		p.SrcPort = nextPort
	}
	port := p.SrcPort
	switch p.Proto {
	case packet.ProtoTCP:
		if p.TCPFlags == 0 {
			p.TCPFlags = packet.SYN
		}
	case packet.ProtoICMP:
		p.ICMPType, p.ICMPID, p.SrcPort, port = packet.ICMPEchoRequest, nextPort, 0, nextPort
	case packet.ProtoICMPv6:
		p.ICMPType, p.ICMPID, p.SrcPort, port = packet.ICMPv6EchoRequest, nextPort, 0, nextPort
	}
	got := "drop"
	done, err := from.Bind(p.Proto, port, func(in *packet.Packet) {
		switch {
		case in.IsICMPError():
			got = fmt.Sprintf("icmp %d/%d from %s", in.ICMPType, in.ICMPCode, in.Src)
		case in.TCPFlags&packet.RST != 0:
			got = "rst from " + in.Src.String()
		default:
			got = strings.TrimSpace("ok from " + in.Src.String() + " " + in.Payload)
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
	defer done()
	if err := from.Send(p); err != nil {
		return "error " + err.Error()
	}
	return got
}

// saysSource is a handler whose answer names the source that it saw.
func saysSource(in *packet.Packet) *packet.Packet {
	return &packet.Packet{Payload: "src=" + in.Src.String() + " dst=" + in.Dst.String()}
}

func (n *Netns) serve() {
	for _, p := range []uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP} {
		n.Listen(p, 8080, saysSource)
	}
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// steps collects a trace.
type steps struct{ s []string }

func (s *steps) Step(x packet.TraceStep) {
	line := x.Node + " " + x.Where + ": " + x.Text
	if x.Drop {
		line += " DROP"
	}
	s.s = append(s.s, line)
}

func sortedKeys(m map[string]*Netns) []string {
	return slices.Sorted(maps.Keys(m))
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func describe(in *packet.Packet) string {
	return fmt.Sprintf("icmp %d/%d from %s", in.ICMPType, in.ICMPCode, in.Src)
}

func mustAddrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
