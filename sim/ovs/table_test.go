package ovs

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/sim/packet"
)

// lookupLinear is what lookup must be equal to.
func lookupLinear(rules []*rule, k *key) *rule {
	var best *rule
next:
	for _, r := range rules {
		if best != nil && best.flow.Priority() >= r.flow.Priority() {
			continue
		}
		for i, m := range r.sub.mask {
			if k[m.word]&m.bits != r.values[i] {
				continue next
			}
		}
		best = r
	}
	return best
}

func randomFlow(rng *rand.Rand, priority uint16) *openflow.Flow {
	b := openflow.NewFlow(0, priority, 1)
	addr := func() netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(8))}) }
	b.Match(openflow.TCP)
	if rng.IntN(2) == 0 {
		b.Match(openflow.IPDst.IsAddr(addr()))
	}
	if rng.IntN(3) == 0 {
		b.Match(openflow.IPSrc.IsPrefix(netip.PrefixFrom(addr(), 29+rng.IntN(4))))
	}
	if rng.IntN(2) == 0 {
		b.Match(openflow.TCPDst.Is(uint64(rng.IntN(4))))
	}
	if rng.IntN(3) == 0 {
		b.Match(openflow.InPortIs(uint32(1 + rng.IntN(3))))
	}
	if rng.IntN(4) == 0 {
		b.Match(openflow.Reg(rng.IntN(16)).Range(4, 7).Is(uint64(rng.IntN(2))))
	}
	return b.Must()
}

func randomPacket(rng *rand.Rand) *packet.Packet {
	return pkt(packet.ProtoTCP, fmt.Sprintf("10.0.0.%d:%d", rng.IntN(8), 1+rng.IntN(9)), fmt.Sprintf("10.0.0.%d:%d", rng.IntN(8), rng.IntN(4)))
}

// Over random flows that come and go, a lookup finds what a linear scan finds.
func TestLookupEqualsLinearScan(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t, "p1", "p2", "p3")
		var rules []*rule
		rebuild := func() {
			rules = rules[:0]
			for _, o := range b.s.DumpAll() {
				if o.Kind() == datapath.KindFlow {
					rules = append(rules, b.s.rule(o.(*openflow.Flow)))
				}
			}
		}
		for round := range 30 {
			var list []datapath.Op
			for range 20 {
				if f := randomFlow(rng, uint16(rng.IntN(2000))); rng.IntN(3) > 0 {
					list = append(list, datapath.Op{New: f})
				}
			}
			for range min(8, len(rules)) {
				list = append(list, datapath.Op{Old: rules[rng.IntN(len(rules))].flow})
			}
			for _, r := range b.s.ApplyBundle(list) {
				if r.Outcome != datapath.Done {
					t.Fatal(r.Err)
				}
			}
			rebuild()
			for range 50 {
				r := b.s.newRun(uint32(1+rng.IntN(3)), randomPacket(rng))
				r.k.setNum(openflow.Reg(rng.IntN(16)), rng.Uint64()&0xff)
				got, want := b.s.tables[0].lookup(&r.k), lookupLinear(rules, &r.k)
				switch {
				case got == want:
				case got == nil || want == nil:
					t.Fatalf("seed %d round %d: found %v, want %v", seed, round, got, want)
				case got.flow.Priority() != want.flow.Priority():
					t.Fatalf("seed %d round %d: found %s, want %s", seed, round, got.flow, want.flow)
				}
			}
		}
	}
}

// serviceTable is a table of n flows as a Service table has them, and a packet that meets one.
func serviceTable(tb testing.TB, n int) (*Switch, []*rule, *run) {
	s := New(Config{Name: "br-int", Now: func() time.Time { return time.Unix(0, 0) }})
	list := make([]datapath.Op, 0, n)
	for i := range n {
		vip := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
		state := openflow.Reg(4).Range(16, 18)
		list = append(list, datapath.Op{New: openflow.NewFlow(0, uint16(190+10*(i%3)), uint64(i)+1).
			Match(openflow.L4(false, []uint8{6, 17}[i%2]), openflow.IPDst.IsAddr(vip), openflow.DstPort([]uint8{6, 17}[i%2], 80), state.Is(0)).
			Actions(state.Set(2), openflow.Resubmit(1)).Must()})
	}
	for _, r := range s.ApplyBundle(list) {
		if r.Outcome != datapath.Done {
			tb.Fatal(r.Err)
		}
	}
	var rules []*rule
	for _, o := range list {
		rules = append(rules, s.rule(o.New.(*openflow.Flow)))
	}
	return s, rules, s.newRun(1, pkt(packet.ProtoTCP, "10.0.0.1:1", fmt.Sprintf("10.96.%d.%d:80", n/2>>8, n/2&0xfe)))
}

func TestLookupDoesNotAllocate(t *testing.T) {
	s, rules, r := serviceTable(t, 1000)
	want := lookupLinear(rules, &r.k)
	if n := testing.AllocsPerRun(100, func() {
		if got := s.tables[0].lookup(&r.k); got == nil || got != want {
			t.Fatalf("found %v, want %v", got, want)
		}
	}); n != 0 {
		t.Errorf("%v allocations a lookup", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	s, _, r := serviceTable(b, 10000)
	for b.Loop() {
		if s.tables[0].lookup(&r.k) == nil {
			b.Fatal("not found")
		}
	}
}

func BenchmarkLookupLinear(b *testing.B) {
	_, rules, r := serviceTable(b, 10000)
	for b.Loop() {
		if lookupLinear(rules, &r.k) == nil {
			b.Fatal("not found")
		}
	}
}

// BenchmarkLoad loads 150,000 flows and 10,000 groups in one bundle.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		s, bytes := bigSwitch(b)
		b.ReportMetric(float64(bytes)/1e6, "MB")
		runtime.KeepAlive(s)
	}
}

func bigSwitch(tb testing.TB) (*Switch, uint64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := New(Config{Name: "br-int", Now: func() time.Time { return time.Unix(0, 0) }})
	var list []datapath.Op
	for i := range 10000 {
		spec := openflow.GroupSpec{ID: uint32(i + 1), Type: openflow.GroupSelect, SelectionMethod: "dp_hash"}
		for k := range 5 {
			spec.Buckets = append(spec.Buckets, openflow.Bucket{ID: uint32(k), Weight: 100, Actions: []openflow.Action{
				openflow.Reg(3).Set(uint64(i*5 + k)), openflow.Reg(4).Range(0, 15).Set(80), openflow.Reg(4).Range(16, 18).Set(2), openflow.Resubmit(12),
			}})
		}
		g, err := openflow.NewGroup(spec)
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, datapath.Op{New: g})
	}
	for i := range 150000 {
		vip := netip.AddrFrom4([4]byte{10, byte(96 + i>>16), byte(i >> 8), byte(i)})
		list = append(list, datapath.Op{New: openflow.NewFlow(11, 200, uint64(i)+1).
			Match(openflow.TCP, openflow.IPDst.IsAddr(vip), openflow.TCPDst.Is(80), openflow.Reg(4).Range(16, 18).Is(1)).
			Actions(openflow.Reg(0).Range(9, 9).Set(1), openflow.Reg(4).Range(16, 18).Set(2), openflow.Reg(7).Set(5), openflow.ToGroup(uint32(i%10000)+1)).Must()})
	}
	for _, r := range s.ApplyBundle(list) {
		if r.Outcome != datapath.Done {
			tb.Fatal(r.Err)
		}
	}
	list = nil
	runtime.GC()
	runtime.ReadMemStats(&after)
	return s, after.HeapAlloc - before.HeapAlloc
}

// BenchmarkSmallBundle changes 5 flows of 150,000.
func BenchmarkSmallBundle(b *testing.B) {
	s, _ := bigSwitch(b)
	var list []datapath.Op
	for i := range 5 {
		list = append(list, datapath.Op{New: openflow.NewFlow(11, 210, 7).Match(openflow.TCP, openflow.IPDst.IsAddr(netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}))).Actions(openflow.ToGroup(1)).Must()})
	}
	b.ResetTimer()
	for b.Loop() {
		s.ApplyBundle(list)
	}
}

// BenchmarkPipeline is one packet of an established connection through the pipeline of the tests.
func BenchmarkPipeline(b *testing.B) {
	t := newBench(&testing.T{}, servicePorts...)
	t.load(pipeline)
	t.s.Receive(2, tcp("10.10.1.1:1000", "10.96.0.10:80", packet.SYN))
	p := tcp("10.10.1.1:1000", "10.96.0.10:80", packet.ACK)
	for b.Loop() {
		t.out = t.out[:0]
		t.s.Receive(2, p)
	}
}
