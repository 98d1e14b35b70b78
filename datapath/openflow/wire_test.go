package openflow

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// wireLine is a line of testdata/wire.txt.
type wireLine struct {
	kind, text string
	bytes      []byte
}

func wireLines(t testing.TB) []wireLine {
	t.Helper()
	var out []wireLine
	for _, l := range lines(t, "testdata/wire.txt") {
		kind, rest, _ := strings.Cut(l, " ")
		h, text, _ := strings.Cut(rest, " ")
		b, err := hex.DecodeString(h)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, wireLine{kind, text, b})
	}
	return out
}

func encode(t *testing.T, kind, text string) []byte {
	t.Helper()
	o, err := parseObject(kind, text)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	switch o := o.(type) {
	case *Flow:
		b, err = AppendFlowMod(nil, 0, Put, o)
	case *Group:
		b, err = AppendGroupMod(nil, 0, Put, o)
	case *Meter:
		b = AppendMeterMod(nil, 0, Put, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What we send for an object is, to the byte, what ovs-ofctl sends for its text.
func TestEncodingIsThatOfOVS(t *testing.T) {
	for _, l := range wireLines(t) {
		if got := encode(t, l.kind, l.text); !bytes.Equal(got, l.bytes) {
			t.Errorf("%s\n got: %x\nwant: %x", l.text, got, l.bytes)
		}
	}
}

// What ovs-ofctl sends for a text is read as the object of the text.
func TestDecodingIsThatOfOVS(t *testing.T) {
	for _, l := range wireLines(t) {
		_, o, err := DecodeMod(l.bytes)
		if err != nil {
			t.Errorf("%s: %v", l.text, err)
			continue
		}
		want, err := parseObject(l.kind, l.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.(interface{ String() string }).String(); got != want.String() {
			t.Errorf("\n got: %s\nwant: %s", got, want)
		}
		f, isFlow := want.(*Flow)
		if isFlow && !cmp.Equal(o.(*Flow).actions, f.actions, cmp.AllowUnexported(CT{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
			t.Errorf("%s: the actions differ inside:\n%s", l.text, cmp.Diff(f.actions, o.(*Flow).actions, cmp.AllowUnexported(CT{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })))
		}
	}
}

// WireLen is the length of what is sent.
func TestWireLenIsTheLengthSent(t *testing.T) {
	for _, l := range wireLines(t) {
		o, err := parseObject(l.kind, l.text)
		if err != nil {
			t.Fatal(err)
		}
		if w, ok := o.(interface{ WireLen() int }); ok && w.WireLen() != len(l.bytes)+bundleHeader {
			t.Errorf("%s: WireLen %d, sent are %d bytes", l.text, w.WireLen(), len(l.bytes)+bundleHeader)
		}
	}
}

func TestBundleAddIsRead(t *testing.T) {
	f, err := ParseFlow("cookie=0x5,table=3,tcp,tp_dst=80,actions=resubmit(,4)")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Command{Put, Change, Delete} {
		b, err := AppendBundleFlow(nil, 7, 9, c, f)
		if err != nil {
			t.Fatal(err)
		}
		got, o, err := DecodeMod(b)
		if err != nil || got != c {
			t.Errorf("command %d is read as %d, %v", c, got, err)
		}
		if g := o.(*Flow); g.Key() != f.Key() {
			t.Errorf("key %s, want %s", g.Key(), f.Key())
		}
		if c != Delete && len(b) != f.WireLen() {
			t.Errorf("%d bytes, WireLen says %d", len(b), f.WireLen())
		}
	}
}

func TestTooLongMessageIsRefused(t *testing.T) {
	spec := GroupSpec{ID: 9, Type: GroupSelect}
	for i := range 2000 {
		spec.Buckets = append(spec.Buckets, Bucket{ID: uint32(i), Weight: 1, Actions: []Action{Reg(4).Set(80), Resubmit(33)}})
	}
	g, err := NewGroup(spec)
	if err != nil {
		t.Fatal(err)
	}
	b := AppendHello(nil, 1)
	n := len(b)
	b, err = AppendBundleGroup(b, 2, 1, Put, g)
	if err == nil || !strings.Contains(err.Error(), "65535") || len(b) != n {
		t.Errorf("error %v, %d bytes are left of %d", err, len(b), n)
	}
}

// The fixed messages are those that ovs-ofctl sent.
func TestOtherMessages(t *testing.T) {
	orig := CTTuple{Src: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), 0), Dst: netip.MustParseAddrPort("10.0.0.2:53")}
	reply := CTTuple{Src: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.3"), 0)}
	out, err := AppendPacketOut(nil, 6, 8, []Action{ResubmitAction{Table: 0}}, []byte{0x50, 0x54})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"hello", AppendHello(nil, 1), "06000010000000010001000800000040"},
		{"features", AppendFeaturesRequest(nil, 2), "0605000800000002"},
		{"set config", AppendSetConfig(nil, 3, 0xffff), "0609000c000000030000ffff"},
		{"packet-in format", AppendSetPacketInFormat(nil, 5), "0604001400000005000023200000001000000002"},
		{"barrier", AppendBarrierRequest(nil, 7), "0614000800000007"},
		{"flow dump", AppendFlowDumpRequest(nil, 2), "06120038000000020001000000000000ff000000ffffffffffffffff00000000000000000000000000000000000000000001000400000000"},
		{"group dump", AppendGroupDescRequest(nil, 2), "06120018000000020007000000000000fffffffc00000000"},
		{"meter dump", AppendMeterConfigRequest(nil, 2), "0612001800000002000a000000000000ffffffff00000000"},
		{"port dump", AppendPortDescRequest(nil, 4), "0612001800000004000d000000000000ffffffff00000000"},
		{"bundle open", AppendBundleControl(nil, 9, 0, BundleOpen), "06210010000000090000000000000003"},
		{"meter delete", AppendMeterMod(nil, 2, Delete, &Meter{ID: 5}), "061d0010000000020002000000000005"},
		{"packet-out", out, "060d003200000006ffffffff001000000001000c800000040000000800000000ffff001000002320000efff8000000005054"},
		{
			"conntrack flush", AppendCTFlush(nil, 2, 5, 17, orig, reply),
			"06040080000000020000232000000020110000000000000000000040000000000000001400000000000000000000ffff0a000001000000000001001400000000000000000000ffff0a0000020000000000030008003500000001002000000000" +
				"0000001400000000000000000000ffff0a000003000000000002000800050000",
		},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s\n got: %s\nwant: %s", c.name, got, c.want)
		}
	}
}

func replies(t testing.TB) [][]byte {
	var out [][]byte
	for _, l := range lines(t, "testdata/replies.txt") {
		b, err := hex.DecodeString(l)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// The messages were recorded from an OVS 3.1 that had one flow, group and meter.
func TestRepliesAreRead(t *testing.T) {
	var flows, groups, meters, ports, errs []string
	var in *PacketIn
	for _, b := range replies(t) {
		_, m, err := Decode(b)
		if err != nil {
			t.Errorf("%x: %v", b, err)
		}
		switch m := m.(type) {
		case FlowStats:
			for _, e := range m.Flows {
				if e.Err != nil {
					t.Error(e.Err)
				} else {
					flows = append(flows, e.Flow.String())
				}
			}
		case GroupDesc:
			for _, e := range m.Groups {
				groups = append(groups, e.Group.String())
			}
		case MeterConfig:
			for _, e := range m.Meters {
				meters = append(meters, e.String())
			}
		case PortDesc:
			for _, p := range m.Ports {
				ports = append(ports, p.Name)
			}
		case *Error:
			errs = append(errs, m.Error())
		case *PacketIn:
			in = m
		}
	}
	flow := "cookie=0x123456789abcdef, table=3, priority=200,tcp,reg0=0x1/0xf,reg4=0x10000/0x70000,reg5=0x7,in_port=5,nw_dst=10.0.0.0/24,tp_dst=80 actions=meter:5,set_field:0x5->reg3,resubmit(,4)"
	for _, c := range [][2][]string{
		{flows, {flow, flow, "cookie=0x0, table=4, priority=32768,ip actions=ct(commit,zone=5,nat(src=1.2.3.4)),goto_table:6"}},
		{groups, {"group_id=7,type=select,selection_method=hash,fields(ip_src,tcp_src,udp_src),bucket=bucket_id:0,weight:50,actions=resubmit(,5)"}},
		{meters, {"meter=5 pktps burst bands=type=drop rate=10 burst_size=10"}},
		{ports, {"p1", "br-int"}},
		{errs, {"OFPBAC_BAD_OUT_GROUP", "OFPMMFC_UNKNOWN_METER"}},
	} {
		if d := cmp.Diff(c[1], c[0]); d != "" {
			t.Error(d)
		}
	}
	if in == nil {
		t.Fatal("the packet-in is missing")
	}
	if in.Cookie != 0x77 || in.Table != 1 || in.Reason != 0 || !bytes.Equal(in.Userdata, []byte{1, 2, 3}) || len(in.Packet) != 54 {
		t.Errorf("packet-in %+v", in)
	}
	for f, want := range map[Field]Value{
		InPort: Num(1), Reg(3): Num(7), CTMark: Num(5), CTZone: Num(5), CTNwProto: Num(6), CTTpDst: Num(80), CTNwDst: AddrValue(netip.MustParseAddr("10.0.0.1")),
	} {
		if got := in.Get(f); got != want {
			t.Errorf("packet-in: %s is %v, want %v", f, got, want)
		}
	}
}

func TestBrokenMessagesAreErrors(t *testing.T) {
	all := replies(t)
	for _, l := range wireLines(t) {
		all = append(all, l.bytes)
	}
	for _, whole := range all {
		for n := range whole {
			cut := bytes.Clone(whole[:n])
			if n >= headerLen {
				be.PutUint16(cut[2:], uint16(n))
			}
			decodeAny(cut) // must not panic
			flip := bytes.Clone(whole)
			flip[n] ^= 0x55
			decodeAny(flip)
		}
	}
}

func decodeAny(b []byte) {
	_, _, _ = Decode(b)
	_, _, _ = DecodeMod(b)
}

func FuzzDecode(f *testing.F) {
	for _, b := range replies(f) {
		f.Add(b)
	}
	for _, l := range wireLines(f) {
		f.Add(l.bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = Decode(b)
		c, o, err := DecodeMod(b)
		if fl, ok := o.(*Flow); ok && err == nil && c == Put {
			again, err := AppendFlowMod(nil, 0, c, fl)
			if err != nil {
				return
			}
			_, o2, err := DecodeMod(again)
			if err != nil || o2.(*Flow).String() != fl.String() {
				t.Fatalf("%s is sent as %x, which is read as %v, %v", fl, again, o2, err)
			}
		}
	})
}

func TestEncodingAllocatesLittle(t *testing.T) {
	f, err := ParseFlow("table=11,priority=200,tcp,reg4=0x10000/0x70000,nw_dst=10.96.0.10,tp_dst=80,actions=set_field:0x200/0x200->reg0,ct(commit,table=5,nat(dst=1.2.3.4:80),exec(set_field:1->ct_mark)),group:5")
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = AppendBundleFlow(make([]byte, 0, 1024), 1, 1, Put, f) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAppendBundleFlow(b *testing.B) {
	f := NewFlow(11, 200, 0x123).Match(TCP, DstAddr(netip.MustParseAddr("10.96.0.10")), DstPort(ProtoTCP, 80), Reg(4).Range(16, 18).Is(1)).
		Actions(Reg(0).Range(9, 9).Set(1), Reg(4).Range(16, 18).Set(2), Reg(7).Set(5), ToGroup(5)).Must()
	b.ReportAllocs()
	buf := make([]byte, 0, 1024)
	for b.Loop() {
		buf, _ = AppendBundleFlow(buf[:0], 1, 1, Put, f)
	}
}
