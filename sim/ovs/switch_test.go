package ovs

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/datapath/ovsdb"
	"towtank/sim/packet"
)

// bench is a switch with ports p1, p2, … and what left it.
type bench struct {
	t     *testing.T
	s     *Switch
	now   time.Time
	out   []string // "PORT packet", in order
	last  *packet.Packet
	tun   []string
	ins   []PacketIn
	ports []datapath.PortEvent
	lost  []string
	trace []packet.TraceStep
}

func newBench(t *testing.T, ports ...string) *bench {
	b := &bench{t: t, now: time.Unix(1000, 0)}
	b.s = New(Config{
		Name: "br-int",
		Now:  func() time.Time { return b.now },
		Output: func(port uint32, p *packet.Packet) {
			b.out = append(b.out, openflow.PortName(port)+" "+p.String())
			b.last = p
		},
		Tunnel: func(port *PortState, p *packet.Packet, dst, src netip.Addr, id uint64) {
			b.tun = append(b.tun, fmt.Sprintf("%s to %s from %s id %d: %s", port.Name, dst, src, id, p))
			b.last = p
		},
		PacketIn:     func(in PacketIn) { b.ins = append(b.ins, in) },
		PortChanged:  func(e datapath.PortEvent) { b.ports = append(b.ports, e) },
		Disconnected: func(reason string) { b.lost = append(b.lost, reason) },
	})
	for i, p := range ports {
		if !strings.Contains(p, " ") {
			p += fmt.Sprintf(" ofport_request=%d", i+1)
		}
		b.port(p)
	}
	return b
}

func (b *bench) port(text string) {
	b.t.Helper()
	p, err := ovsdb.ParsePort(text)
	if err != nil {
		b.t.Fatal(err)
	}
	if r := b.s.ApplyPorts([]datapath.Op{{New: p}}); r[0].Outcome != datapath.Done {
		b.t.Fatal(r[0].Err)
	}
}

// Step prints a trace as it happens, for tests that fail.
func (b *bench) Step(s packet.TraceStep) { b.trace = append(b.trace, s) }

func parse(t *testing.T, text string) datapath.Object {
	t.Helper()
	var o datapath.Object
	var err error
	switch {
	case strings.HasPrefix(text, "group_id="):
		o, err = openflow.ParseGroup(text)
	case strings.HasPrefix(text, "meter="):
		o, err = openflow.ParseMeter(text)
	default:
		o, err = openflow.ParseFlow(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// ops are "+ text" and "- text", one a line.
func ops(t *testing.T, text string) []datapath.Op {
	t.Helper()
	var list []datapath.Op
	for l := range strings.SplitSeq(text, "\n") {
		l = strings.TrimSpace(l)
		if l == "" || l[0] == '#' {
			continue
		}
		if rest, del := strings.CutPrefix(l, "- "); del {
			list = append(list, datapath.Op{Old: parse(t, rest)})
		} else {
			list = append(list, datapath.Op{New: parse(t, strings.TrimPrefix(l, "+ "))})
		}
	}
	return list
}

func (b *bench) apply(text string) []datapath.OpResult {
	b.t.Helper()
	var meters, rest []datapath.Op
	for _, op := range ops(b.t, text) {
		if op.Kind() == datapath.KindMeter {
			meters = append(meters, op)
		} else {
			rest = append(rest, op)
		}
	}
	return append(b.s.ApplyMeters(meters), b.s.ApplyBundle(rest)...)
}

// must applies, and fails the test if anything was refused.
func (b *bench) must(text string) {
	b.t.Helper()
	for _, r := range b.apply(text) {
		if r.Outcome != datapath.Done {
			b.t.Fatalf("%v", r.Err)
		}
	}
}

// send has a packet come in, and returns what left.
func (b *bench) send(port uint32, p *packet.Packet) []string {
	b.t.Helper()
	b.out, b.tun, b.ins, b.last, b.trace = nil, nil, nil, nil, nil
	b.s.SetTracer(b, "n1")
	b.s.Receive(port, p)
	return append(b.out, b.tun...)
}

// expect has a packet come in, and compares what left.
func (b *bench) expect(port uint32, p *packet.Packet, want ...string) {
	b.t.Helper()
	in := p.String()
	got := b.send(port, p)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		b.t.Errorf("%s from port %d\n got %q\nwant %q\n%s", in, port, got, want, b.path())
	}
}

func (b *bench) path() string {
	var w strings.Builder
	for _, s := range b.trace {
		fmt.Fprintf(&w, "  %s: %s\n", s.Where, s.Text)
	}
	return w.String()
}

func (b *bench) advance(d time.Duration) {
	b.now = b.now.Add(d)
}

func pkt(proto uint8, src, dst string) *packet.Packet {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	p := &packet.Packet{
		EthSrc: packet.MAC{0x0a, 0, 0, 0, 0, 1}, EthDst: packet.MAC{0x0a, 0, 0, 0, 0, 2},
		Proto: proto, TTL: 64, SrcPort: s.Port(), DstPort: d.Port(), Size: 100,
	}
	p.SetIPs(s.Addr(), d.Addr())
	if proto == packet.ProtoTCP {
		p.TCPFlags = packet.SYN
	}
	return p
}

func tcp(src, dst string, flags uint8) *packet.Packet {
	p := pkt(packet.ProtoTCP, src, dst)
	p.TCPFlags = flags
	return p
}

func udp(src, dst string) *packet.Packet { return pkt(packet.ProtoUDP, src, dst) }

const pipeline = "testdata/pipeline.txt"

func (b *bench) load(file string) {
	b.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatal(err)
	}
	b.must(string(data))
}
