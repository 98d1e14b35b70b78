package ovs

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"towtank/datapath"
	"towtank/datapath/openflow"
)

func outcomes(res []datapath.OpResult) string {
	var s []string
	for _, r := range res {
		s = append(s, [...]string{"done", "refused", "skipped", "unknown"}[r.Outcome])
	}
	return strings.Join(s, " ")
}

// A group goes with all flows that use it, and comes back with them.
func TestGroupOfSeveralFlows(t *testing.T) {
	b := newBench(t, "p1")
	b.must(`
		group_id=1,type=select,bucket=bucket_id:0,actions=output:1
		table=0,priority=1,cookie=1,ip,actions=group:1
		table=0,priority=2,cookie=1,udp,actions=group:1
		table=0,priority=3,cookie=1,tcp,actions=group:1`)
	before := b.s.DumpText()
	b.apply(`
		- group_id=1,type=select
		+ table=5,priority=1,cookie=1,actions=group:9`)
	if after := b.s.DumpText(); after != before {
		t.Errorf("after a refused bundle:\n%s\nbefore:\n%s", after, before)
	}
	b.must("- group_id=1,type=select")
	if left := b.s.DumpText(); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

// One refused message undoes the whole bundle, whatever it did before, and is named.
func TestBundleIsAtomic(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must(`
		meter=3,pktps,bands=type=drop,rate=10
		group_id=1,type=select,bucket=bucket_id:0,actions=output:1
		group_id=2,type=select,bucket=bucket_id:0,actions=output:2
		table=0,priority=1,cookie=1,actions=group:1
		table=0,priority=2,cookie=1,ip,actions=group:2
		table=0,priority=4,cookie=1,tcp,actions=learn(table=9,priority=5,delete_learned,cookie=0x7,eth_type=0x800,NXM_OF_IP_SRC[]),output:2
		table=0,priority=3,cookie=1,udp,actions=meter:3,output:2`)
	b.send(1, tcp("10.0.0.1:1", "10.0.0.2:2", 2))
	if len(b.s.Learned()) != 1 {
		t.Fatal("nothing was learned")
	}
	before := b.s.DumpText()
	for _, c := range []struct{ culprit, why string }{
		{"+ table=5,priority=1,cookie=1,actions=group:9", "group 9 does not exist (OFPBAC_BAD_OUT_GROUP)"},
		{"+ table=5,priority=1,cookie=1,actions=meter:9,output:1", "meter 9 does not exist"},
		{"+ table=5,priority=1,cookie=1,tcp,actions=learn(table=9,fin_idle_timeout=5)", "fin timeouts are not modelled"},
		{"+ table=5,priority=1,cookie=1,actions=controller(id=5)", "a controller id is not modelled"},
	} {
		res := b.apply(`
			- group_id=2,type=select
			- table=0,priority=4,cookie=1,tcp,actions=drop
			` + c.culprit + `
			+ group_id=1,type=select,bucket=bucket_id:0,actions=output:2
			+ group_id=8,type=select
			+ table=0,priority=1,cookie=2,actions=group:8
			+ table=7,priority=1,cookie=2,actions=drop`)
		if got, want := outcomes(res), "skipped skipped refused skipped skipped skipped skipped"; got != want {
			t.Errorf("%s: %s, want %s", c.culprit, got, want)
		}
		if res[2].Err == nil || !strings.Contains(res[2].Err.Error(), c.why) || !strings.Contains(res[2].Err.Error(), "flow table=5,priority=1") {
			t.Errorf("%s: error %v, want one with %q", c.culprit, res[2].Err, c.why)
		}
		if after := b.s.DumpText(); after != before {
			t.Errorf("%s: something of the bundle is left:\n%s\nbefore:\n%s", c.culprit, after, before)
		}
	}
	// Nothing is left in the indices either: what used groups and meters still goes with them.
	b.must("- group_id=2,type=select\n- group_id=1,type=select\n- meter=3,pktps,bands=type=drop,rate=10")
	if got := b.s.DumpText(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "learn(") {
		t.Errorf("left:\n%s", got)
	}
	b.must("- table=0,priority=4,cookie=1,tcp,actions=drop")
	if got := b.s.DumpText(); got != "" {
		t.Errorf("left:\n%s", got)
	}
}

// A bundle may use a group that it makes itself, in whatever order it names them, and delete a group
// with the flows that used it.
func TestBundleOrder(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must("table=0,priority=1,cookie=1,actions=group:1\ngroup_id=1,type=select,bucket=bucket_id:0,actions=output:2")
	b.must("- group_id=1,type=select\n+ table=0,priority=1,cookie=1,actions=output:2\n+ group_id=2,type=select")
	if got := b.s.DumpText(); got != "cookie=0x1, table=0, priority=1 actions=output:2\ngroup_id=2,type=select\n" {
		t.Errorf("left:\n%s", got)
	}
}

// A message that is too long ends the connection; what became of the bundle is not known to the caller.
func TestTooLongMessage(t *testing.T) {
	b := newBench(t, "p1", "p2")
	spec := openflow.GroupSpec{ID: 1, Type: openflow.GroupSelect}
	for i := range 1100 {
		spec.Buckets = append(spec.Buckets, openflow.Bucket{ID: uint32(i), Weight: 1, Actions: []openflow.Action{
			openflow.Reg(3).Set(uint64(i)), openflow.Reg(4).Set(1), openflow.Resubmit(1),
		}})
	}
	g, err := openflow.NewGroup(spec)
	if err != nil {
		t.Fatal(err)
	}
	res := b.s.ApplyBundle(append(ops(t, "table=1,priority=1,cookie=1,actions=drop"), datapath.Op{New: g}))
	if outcomes(res) != "unknown unknown" || len(b.lost) != 1 || !strings.Contains(b.lost[0], "group_id=1") {
		t.Errorf("%s, disconnected %q", outcomes(res), b.lost)
	}
	if n := len(b.s.DumpText()); n != 0 {
		t.Errorf("%d bytes of flows and groups are left", n)
	}
}

// OVS takes ports that are not there and tables that are empty; packets vanish and the trace says so.
func TestUnknownPortsAndEmptyTablesAreAccepted(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must("table=0,priority=1,cookie=1,udp,actions=output:77\ntable=0,priority=2,cookie=1,tcp,actions=resubmit(,99)")
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"))
	if !strings.Contains(b.path(), "no such port") || b.s.Counters().ToMissingPort != 1 {
		t.Errorf("trace:\n%s", b.path())
	}
	b.expect(1, tcp("10.0.0.1:1", "10.0.0.2:2", 2))
	if !strings.Contains(b.path(), "table 99: miss") {
		t.Errorf("trace:\n%s", b.path())
	}
	b.s.SetPortUp("p2", false)
	b.must("table=0,priority=1,cookie=1,udp,actions=output:2")
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"))
	b.s.SetPortUp("p2", true)
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"), "2 udp 10.0.0.1:1 -> 10.0.0.2:2")
}

func TestDumpShowsOursAndDumpAllEverything(t *testing.T) {
	b := newBench(t, "p1 external_ids:towtank-unit=sandbox/1/eth0", "p2")
	b.must("table=0,priority=1,cookie=0x100000000000001,actions=drop\ntable=0,priority=2,cookie=1,ip,actions=drop\ntable=0,priority=0,actions=NORMAL\ngroup_id=1,type=select\nmeter=3,pktps,bands=type=drop,rate=10")
	var ours, all []string
	for _, o := range b.s.Dump() {
		ours = append(ours, o.Key().String())
	}
	for _, o := range b.s.DumpAll() {
		all = append(all, o.Key().String())
	}
	if got := strings.Join(ours, "; "); got != "flow table=0,priority=1; group group_id=1; meter meter=3; port p1" {
		t.Errorf("ours: %s", got)
	}
	if got := strings.Join(all, "; "); got != "flow table=0,priority=0; flow table=0,priority=1; flow table=0,priority=2,ip; group group_id=1; meter meter=3; port p1; port p2" {
		t.Errorf("all: %s", got)
	}
}

func TestPortNumbers(t *testing.T) {
	b := newBench(t)
	for _, p := range []string{"gw0 type=internal ofport_request=32769", "a", "b", "c ofport_request=2", "d ofport_request=9"} {
		b.port(p + " external_ids:x=y")
	}
	numbers := func() (s string) {
		for _, p := range b.s.Ports() {
			if p.OFPort != openflow.PortLocal {
				s += fmt.Sprintf("%s=%d ", p.Name, p.OFPort)
			}
		}
		return s
	}
	// c asked for the number that b has, and got another.
	if got := numbers(); got != "a=1 b=2 c=3 d=9 gw0=32769 " {
		t.Errorf("numbers %s", got)
	}
	del := func(name string) {
		b.s.ApplyPorts([]datapath.Op{{Old: b.s.PortByName(name).Port}})
	}
	del("a")
	b.port("e external_ids:x=y") // the number of a is used again at once
	if got := numbers(); got != "b=2 c=3 d=9 e=1 gw0=32769 " {
		t.Errorf("numbers %s", got)
	}
	b.s.Restart()
	if got := numbers(); got != "b=2 c=3 d=9 e=1 gw0=32769 " {
		t.Errorf("after a restart %s", got)
	}
	want := "[{gw0 32769 true} {a 1 true} {b 2 true} {c 3 true} {d 9 true} {a 0 false} {e 1 true}]"
	if got := fmt.Sprint(b.ports); got != want {
		t.Errorf("events\n got %s\nwant %s", got, want)
	}
}

// A port without device, and one that is late, have no number until that ends.
func TestPortsWithoutNumber(t *testing.T) {
	b := newBench(t)
	present := map[string]bool{}
	b.s.cfg.Device = func(name string) bool { return present[name] }
	b.s.cfg.Late = func(name string) bool { return name == "slow" }
	b.port("gone")
	b.port("slow type=internal")
	if p, q := b.s.PortByName("gone"), b.s.PortByName("slow"); p.OFPort != 0 || q.OFPort != 0 || len(b.ports) != 0 {
		t.Errorf("numbers %d and %d, events %v", p.OFPort, q.OFPort, b.ports)
	}
	b.s.ReleaseLate()
	present["gone"] = true
	b.s.DeviceChanged("gone")
	present["gone"] = false
	b.s.DeviceChanged("gone")
	if got := fmt.Sprint(b.ports); got != "[{slow 1 true} {gone 2 true} {gone 0 false}]" {
		t.Errorf("events %s", got)
	}
}

// A stopped vswitchd forwards nothing and answers nothing; it starts empty, with its ports.
func TestStopAndRestart(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must("group_id=1,type=select,bucket=bucket_id:0,actions=output:2\nmeter=3,pktps,bands=type=drop,rate=10\ntable=0,priority=1,cookie=1,ip,actions=ct(commit,table=1)\ntable=1,priority=0,cookie=1,actions=group:1")
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"), "2 udp 10.0.0.1:1 -> 10.0.0.2:2")
	b.s.Stop()
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"))
	if got := outcomes(b.s.ApplyBundle(ops(t, "table=0,priority=1,cookie=1,actions=output:2"))); got != "unknown" {
		t.Errorf("a bundle while stopped: %s", got)
	}
	b.port("p3")
	if n := b.s.PortByName("p3").OFPort; n != 0 {
		t.Errorf("p3 has number %d although vswitchd is not running", n)
	}
	b.s.Start()
	if n := b.s.PortByName("p3").OFPort; n != 3 {
		t.Errorf("p3 has number %d after the start", n)
	}
	if got := b.s.DumpText() + b.s.ConntrackText(); got != "" {
		t.Errorf("left:\n%s", got)
	}
	if _, ok := b.s.NextDeadline(); ok {
		t.Error("something is still waiting to end")
	}
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"))
}

func TestFlushConntrack(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must(`
		table=0,priority=2,cookie=1,udp,nw_dst=10.96.0.1,actions=ct(commit,zone=5,nat(dst=10.0.0.2:5353),table=1)
		table=0,priority=2,cookie=1,udp,nw_dst=10.96.0.2,actions=ct(commit,zone=5,nat(dst=10.0.0.3:5353),table=1)
		table=1,priority=0,cookie=1,actions=output:2`)
	for i := range 3 {
		b.send(1, udp(fmt.Sprintf("10.0.0.9:%d", i+1), "10.96.0.1:53"))
		b.send(1, udp(fmt.Sprintf("10.0.0.8:%d", i+1), "10.96.0.2:53"))
	}
	ap := netip.MustParseAddrPort
	for _, c := range []struct {
		t datapath.Tuple
		n int
	}{
		{datapath.Tuple{Zone: 5, Proto: 17, Frontend: ap("10.96.0.1:53"), Backend: ap("10.0.0.7:5353")}, 0},
		{datapath.Tuple{Zone: 6, Proto: 17, Frontend: ap("10.96.0.1:53")}, 0},
		{datapath.Tuple{Zone: 5, Proto: 6, Frontend: ap("10.96.0.1:53")}, 0},
		{datapath.Tuple{Zone: 5, Proto: 17, Frontend: ap("10.96.0.1:53"), Source: netip.MustParseAddr("10.0.0.8")}, 0},
		{datapath.Tuple{Zone: 5, Proto: 17, Frontend: ap("10.96.0.1:53"), Backend: ap("10.0.0.2:5353")}, 3},
		{datapath.Tuple{Zone: 5, Proto: 17, Source: netip.MustParseAddr("10.0.0.8")}, 3},
	} {
		if n := b.s.FlushConntrack([]datapath.Tuple{c.t}); n != c.n {
			t.Errorf("%+v flushed %d entries, want %d", c.t, n, c.n)
		}
	}
	if l := b.s.DumpConntrack([]uint16{5}); len(l) != 0 {
		t.Errorf("left: %v", l)
	}
}
