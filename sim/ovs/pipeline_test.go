package ovs

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/sim/packet"
)

var servicePorts = []string{"gw0 type=internal ofport_request=2", "p11 ofport_request=111", "p12 ofport_request=112"}

// A connection to a Service is sent to an endpoint and its answers come from the Service again.
func TestServiceDNATAndReply(t *testing.T) {
	b := newBench(t, servicePorts...)
	b.load(pipeline)
	b.s.cfg.PickBucket = func(uint32, int, uint32) int { return 1 } // 10.10.1.12
	b.expect(2, tcp("10.10.1.1:1000", "10.96.0.10:80", packet.SYN), "112 tcp 10.10.1.1:1000 -> 10.10.1.12:8080 [SYN]")
	if b.last.EthDst.String() != "0a:00:00:00:01:0c" {
		t.Errorf("eth_dst is %s", b.last.EthDst)
	}
	b.expect(112, tcp("10.10.1.12:8080", "10.10.1.1:1000", packet.SYN|packet.ACK), "2 tcp 10.96.0.10:80 -> 10.10.1.1:1000 [SYN+ACK]")
	b.s.cfg.PickBucket = func(uint32, int, uint32) int { t.Error("an established connection was balanced again"); return 0 }
	b.expect(2, tcp("10.10.1.1:1000", "10.96.0.10:80", packet.ACK), "112 tcp 10.10.1.1:1000 -> 10.10.1.12:8080 [ACK]")
	text := b.s.ConntrackText()
	want := "tcp,orig=(src=10.10.1.1,dst=10.96.0.10,sport=1000,dport=80),reply=(src=10.10.1.12,dst=10.10.1.1,sport=8080,dport=1000)," +
		"zone=65520,mark=18,labels=0x0,protoinfo=(state=ESTABLISHED)"
	if got := strings.TrimSpace(text); got != strings.Replace(want, ",labels=0x0", "", 1) {
		t.Errorf("conntrack\n got %s\nwant %s", got, want)
	}
}

// A Pod that is balanced to itself: a second zone gives it a source that brings the answer back.
func TestHairpinThroughTwoZones(t *testing.T) {
	b := newBench(t, servicePorts...)
	b.load(pipeline)
	b.s.cfg.PickBucket = func(uint32, int, uint32) int { return 0 } // 10.10.1.11
	b.expect(111, tcp("10.10.1.11:1000", "10.96.0.10:80", packet.SYN), "111 tcp 169.254.0.252:1000 -> 10.10.1.11:8080 [SYN]")
	b.expect(111, tcp("10.10.1.11:8080", "169.254.0.252:1000", packet.SYN|packet.ACK), "111 tcp 10.96.0.10:80 -> 10.10.1.11:1000 [SYN+ACK]")
}

func TestIPv6Service(t *testing.T) {
	b := newBench(t, servicePorts...)
	b.load(pipeline)
	b.expect(2, tcp("[fd00:10:1::1]:1000", "[fd00:96::10]:80", packet.SYN), "112 tcp [fd00:10:1::1]:1000 -> [fd00:10:1::12]:8080 [SYN]")
	b.expect(112, tcp("[fd00:10:1::12]:8080", "[fd00:10:1::1]:1000", packet.SYN|packet.ACK), "2 tcp [fd00:96::10]:80 -> [fd00:10:1::1]:1000 [SYN+ACK]")
}

// The first connection learns where the client goes; the learned flow ends on time whatever the traffic,
// and goes with the flow that learned it.
func TestSessionAffinity(t *testing.T) {
	b := newBench(t, servicePorts...)
	b.load(pipeline)
	picks := 0
	b.s.cfg.PickBucket = func(_ uint32, n int, _ uint32) int { picks++; return picks % n }
	client := func(port int) string { return fmt.Sprintf("10.10.1.1:%d", port) }
	b.expect(2, tcp(client(1), "10.96.0.20:80", packet.SYN), "112 tcp 10.10.1.1:1 -> 10.10.1.12:8080 [SYN]")
	for i := 2; i < 5; i++ {
		b.advance(time.Second)
		b.expect(2, tcp(client(i), "10.96.0.20:80", packet.SYN), "112 tcp 10.10.1.1:"+fmt.Sprint(i)+" -> 10.10.1.12:8080 [SYN]")
	}
	if picks != 1 {
		t.Errorf("%d choices for one client, want 1", picks)
	}
	learned := b.s.Learned()
	want := "cookie=0x123, table=25, hard_timeout=5, priority=200,tcp,nw_src=10.10.1.1,nw_dst=10.96.0.20,tp_dst=80 " +
		"actions=set_field:0xa0a010c->reg3,set_field:0x1f90/0xffff->reg4,set_field:0x20000/0x70000->reg4,set_field:0x200/0x200->reg0"
	if len(learned) != 1 || learned[0].String() != want {
		t.Errorf("learned\n got %v\nwant %s", learned, want)
	}
	if at, ok := b.s.NextDeadline(); !ok || at.Sub(b.now) > 2*time.Second+time.Millisecond {
		t.Errorf("next deadline is %v, %v", at, ok)
	}
	b.advance(2*time.Second + time.Millisecond) // OVS: in the millisecond after its time
	b.expect(2, tcp(client(9), "10.96.0.20:80", packet.SYN), "111 tcp 10.10.1.1:9 -> 10.10.1.11:8080 [SYN]")
	if picks != 2 || len(b.s.Learned()) != 1 {
		t.Errorf("%d choices and %d learned flows, want 2 and 1", picks, len(b.s.Learned()))
	}
	for _, o := range b.s.Dump() {
		if strings.Contains(o.String(), "table=25") && strings.Contains(o.String(), "tcp") {
			t.Errorf("a learned flow is in the dump: %s", o)
		}
	}
	var parent datapath.Object
	for _, o := range b.s.DumpAll() {
		if f, ok := o.(*openflow.Flow); ok && f.Learns() {
			parent = f
		}
	}
	if r := b.s.ApplyBundle([]datapath.Op{{Old: parent}}); r[0].Outcome != datapath.Done || len(b.s.Learned()) != 0 {
		t.Errorf("%v; learned flows after their parent went: %v", r, b.s.Learned())
	}
}

// Changing a flow that learns is a delete and an add: nothing of the old is left.
func TestChangedLearnFlowForgetsWhatItLearned(t *testing.T) {
	b := newBench(t, servicePorts...)
	b.load(pipeline)
	b.send(2, tcp("10.10.1.1:1", "10.96.0.20:80", packet.SYN))
	var old *openflow.Flow
	for _, o := range b.s.DumpAll() {
		if f, ok := o.(*openflow.Flow); ok && f.Learns() {
			old = f
		}
	}
	changed, err := openflow.ParseFlow(strings.Replace(old.String(), "hard_timeout=5", "hard_timeout=50", 1))
	if err != nil {
		t.Fatal(err)
	}
	if r := b.s.ApplyBundle([]datapath.Op{{Old: old, New: changed}}); r[0].Outcome != datapath.Done {
		t.Fatal(r[0].Err)
	}
	if l := b.s.Learned(); len(l) != 0 {
		t.Errorf("still learned: %v", l)
	}
	// As a plain modification, which a client that does not know the old body makes, it keeps them.
	b.send(2, tcp("10.10.1.1:2", "10.96.0.20:80", packet.SYN))
	b.s.ApplyBundle([]datapath.Op{{New: old}})
	if l := b.s.Learned(); len(l) != 1 {
		t.Errorf("learned after a modification: %v", l)
	}
}

func TestARPResponderAndNormal(t *testing.T) {
	b := newBench(t, servicePorts...)
	b.load(pipeline)
	ask := &packet.Packet{
		EthSrc: packet.MAC{0x0a, 0, 0, 0, 1, 0x0b}, EthDst: packet.Broadcast, EthType: packet.EthARP, ARPOp: 1,
		ARPSHA: packet.MAC{0x0a, 0, 0, 0, 1, 0x0b}, ARPSPA: netip.MustParseAddr("10.10.1.11"), ARPTPA: netip.MustParseAddr("169.254.0.253"),
	}
	b.expect(111, ask, "111 arp reply spa=169.254.0.253 tpa=10.10.1.11 sha=aa:bb:cc:dd:ee:ff")
	if b.last.EthDst != ask.ARPSHA || b.last.ARPTHA != ask.ARPSHA || b.last.EthSrc.String() != "aa:bb:cc:dd:ee:ff" {
		t.Errorf("the answer is %+v", b.last)
	}
	ask.ARPTPA = netip.MustParseAddr("10.10.1.12")
	text := "arp request spa=10.10.1.11 tpa=10.10.1.12 sha=0a:00:00:00:01:0b"
	b.expect(111, ask, "LOCAL "+text, "2 "+text, "112 "+text)
	// The answer goes where the question came from, and the next frame to where the answer came from.
	answer := &packet.Packet{
		EthSrc: packet.MAC{0x0a, 0, 0, 0, 1, 0x0c}, EthDst: ask.EthSrc, EthType: packet.EthARP, ARPOp: 2,
		ARPSHA: packet.MAC{0x0a, 0, 0, 0, 1, 0x0c}, ARPTHA: ask.ARPSHA, ARPSPA: ask.ARPTPA, ARPTPA: ask.ARPSPA,
	}
	b.expect(112, answer, "111 arp reply spa=10.10.1.12 tpa=10.10.1.11 sha=0a:00:00:00:01:0c")
	ask.EthDst = answer.EthSrc
	b.expect(111, ask, "112 "+text)
	b.advance(301 * time.Second)
	b.expect(111, ask, "LOCAL "+text, "2 "+text, "112 "+text)
}

// A port's tag separates what NORMAL does, not what output does.
func TestNormalWithTags(t *testing.T) {
	b := newBench(t, "a tag=5", "b tag=5", "c tag=6", "trunk")
	b.must("table=0,priority=0,cookie=1,actions=NORMAL")
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"), "2 udp 10.0.0.1:1 -> 10.0.0.2:2", "LOCAL vlan 5 udp 10.0.0.1:1 -> 10.0.0.2:2", "4 vlan 5 udp 10.0.0.1:1 -> 10.0.0.2:2")
	p := udp("10.0.0.2:2", "10.0.0.1:1")
	p.EthSrc, p.EthDst, p.VLAN = p.EthDst, p.EthSrc, 0x1005
	b.expect(4, p, "1 udp 10.0.0.2:2 -> 10.0.0.1:1")
}

func TestVLANActions(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must(`
		table=0,priority=2,cookie=1,dl_vlan=7,actions=pop_vlan,output:2
		table=0,priority=1,cookie=1,vlan_tci=0/0x1fff,actions=push_vlan:0x8100,set_field:4101->vlan_vid,set_field:3->vlan_pcp,output:2`)
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"), "2 vlan 5 udp 10.0.0.1:1 -> 10.0.0.2:2")
	if b.last.VLANPriority != 3 {
		t.Errorf("priority %d", b.last.VLANPriority)
	}
	p := udp("10.0.0.1:1", "10.0.0.2:2")
	p.VLAN = 0x1007
	b.expect(1, p, "2 udp 10.0.0.1:1 -> 10.0.0.2:2")
	p.VLAN = 0x1008
	b.expect(1, p)
}

func TestTunnels(t *testing.T) {
	b := newBench(t, "p1", "tun0 type=geneve options:remote_ip=flow options:key=flow ofport_request=2")
	b.must(`
		table=0,priority=2,cookie=1,ip,in_port=1,nw_dst=10.2.0.0/16,actions=set_field:192.0.2.7->tun_dst,set_field:5->tun_id,output:2
		table=0,priority=2,cookie=1,ip,in_port=1,nw_dst=10.3.0.0/16,actions=output:2
		table=0,priority=2,cookie=1,ip,in_port=1,nw_dst=10.4.0.0/16,actions=set_field:fd00::7->tun_ipv6_dst,output:2
		table=0,priority=3,cookie=1,ip,tun_id=5,tun_dst=192.0.2.1,tun_src=192.0.2.7,actions=move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG1[],output:1
		table=0,priority=1,cookie=1,in_port=2,actions=output:2,IN_PORT`)
	b.expect(1, udp("10.1.0.1:1", "10.2.0.1:2"), "tun0 to 192.0.2.7 from invalid IP id 5: udp 10.1.0.1:1 -> 10.2.0.1:2")
	b.expect(1, udp("10.1.0.1:1", "10.3.0.1:2"))
	if n := b.s.Counters().TunnelWithoutDst; n != 1 {
		t.Errorf("%d frames without tun_dst counted", n)
	}
	b.expect(1, udp("10.1.0.1:1", "10.4.0.1:2"), "tun0 to fd00::7 from invalid IP id 0: udp 10.1.0.1:1 -> 10.4.0.1:2")
	b.out, b.tun = nil, nil
	src, dst := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.1")
	b.s.ReceiveTunnel(2, udp("10.2.0.1:2", "10.1.0.1:1"), src, dst, 5)
	b.s.ReceiveTunnel(2, udp("10.2.0.1:2", "10.1.0.1:1"), src, dst, 6)
	if len(b.out) != 1 || b.out[0] != "1 udp 10.2.0.1:2 -> 10.1.0.1:1" {
		t.Errorf("left: %v", b.out)
	}
	// A frame of the tunnel goes back into it by IN_PORT only, to where tun_dst says: us.
	if len(b.tun) != 1 || !strings.HasPrefix(b.tun[0], "tun0 to 192.0.2.1 ") {
		t.Errorf("tunnelled: %v", b.tun)
	}
}

func TestDecTTL(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must("table=0,priority=0,cookie=1,ip,actions=dec_ttl,output:2")
	p := udp("10.0.0.1:1", "10.0.0.2:2")
	p.TTL = 2
	b.send(1, p)
	if b.last == nil || b.last.TTL != 1 {
		t.Fatalf("left: %+v", b.last)
	}
	if p.TTL != 2 {
		t.Error("the packet that came in was changed")
	}
	p.TTL = 1
	b.expect(1, p)
	if last := b.trace[len(b.trace)-1]; !last.Drop || !strings.Contains(last.Text, "TTL") {
		t.Errorf("the trace ends with %+v", last)
	}
}

// 100 SYNs in no time: the burst passes. A second later the rate passes.
func TestMeterOfPacketIns(t *testing.T) {
	b := newBench(t, servicePorts...)
	b.load(pipeline)
	count := func() (n int) {
		for i := range 100 {
			b.send(2, tcp(fmt.Sprintf("10.10.1.1:%d", i+1), "10.96.0.30:80", packet.SYN))
			n += len(b.ins)
		}
		return n
	}
	if n := count(); n != 10 {
		t.Errorf("%d of 100 passed, want 10", n)
	}
	if n := count(); n != 0 {
		t.Errorf("%d passed at once after that, want 0", n)
	}
	b.advance(500 * time.Millisecond)
	if n := count(); n != 5 {
		t.Errorf("%d passed after half a second, want 5", n)
	}
	b.advance(time.Second)
	b.send(2, tcp("10.10.1.1:999", "10.96.0.30:80", packet.SYN))
	if len(b.ins) != 1 || string(b.ins[0].Userdata) != "\x01\x02\x03" || b.ins[0].InPort != 2 || b.ins[0].TableID != 30 || b.ins[0].Reason != "no_match" {
		t.Errorf("packet-in %+v", b.ins)
	}
}

func TestMeterOfBytes(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must("meter=7,kbps,burst,bands=type=drop,rate=80,burst_size=16\ntable=0,priority=0,cookie=1,actions=meter:7,output:2")
	passed := 0
	for range 100 {
		p := udp("10.0.0.1:1", "10.0.0.2:2")
		p.Size = 986 // a frame of 1000 bytes
		passed += len(b.send(1, p))
		b.advance(10 * time.Millisecond)
	}
	if passed < 10 || passed > 12 { // 80 kbit/s are 10 frames a second, and the burst is 2 frames
		t.Errorf("%d frames passed in a second, want 10 to 12", passed)
	}
}

// An endless resubmit ends at OVS's limit, is counted and said.
func TestResubmitLimits(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must("table=0,priority=0,cookie=7,actions=resubmit(,0)")
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"))
	if n := b.s.Counters().TooDeep; n != 1 {
		t.Errorf("%d packets counted as too deep", n)
	}
	var text string
	for i := range 13 { // 2^13 resubmits, all forward
		text += fmt.Sprintf("table=%d,priority=0,cookie=7,actions=resubmit(,%d),resubmit(,%d)\n", i, i+1, i+1)
	}
	b.must(text)
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"))
	if n := b.s.Counters().TooDeep; n != 2 {
		t.Errorf("%d packets counted as too deep", n)
	}
}

// Registers that a resubmitted table sets are there afterwards; what a bucket sets is not.
func TestResubmitKeepsAndBucketForgets(t *testing.T) {
	b := newBench(t, "p1", "p2", "p3")
	b.must(`
		group_id=1,type=select,bucket=bucket_id:0,actions=set_field:3->reg1,resubmit(,2)
		table=0,priority=0,cookie=1,actions=resubmit(,1),output:reg1[],group:1,output:reg1[]
		table=1,priority=0,cookie=1,actions=set_field:2->reg1
		table=2,priority=0,cookie=1,actions=output:reg1[]`)
	p := "udp 10.0.0.1:1 -> 10.0.0.2:2"
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"), "2 "+p, "3 "+p, "2 "+p)
}

func TestAllGroupAndInPort(t *testing.T) {
	b := newBench(t, "p1", "p2", "p3")
	b.must(`
		group_id=1,type=all,bucket=bucket_id:0,actions=output:2,bucket=bucket_id:1,actions=set_field:9->udp_dst,output:3,bucket=bucket_id:2,actions=output:1,bucket=bucket_id:3,actions=IN_PORT
		table=0,priority=0,cookie=1,udp,actions=group:1`)
	b.expect(1, udp("10.0.0.1:1", "10.0.0.2:2"), "2 udp 10.0.0.1:1 -> 10.0.0.2:2", "3 udp 10.0.0.1:1 -> 10.0.0.2:9", "1 udp 10.0.0.1:1 -> 10.0.0.2:2")
}

// How a group spreads connections: by weight with dp_hash; UDP ports do not count without a method.
func TestGroupSpread(t *testing.T) {
	spread := func(method string, proto uint8) []uint64 {
		b := newBench(t, "p1", "p2", "p3")
		b.must("group_id=1,type=select" + method + `,bucket=bucket_id:0,weight:100,actions=output:2,bucket=bucket_id:1,weight:300,actions=output:3
			table=0,priority=0,cookie=1,actions=group:1`)
		for i := range 1000 {
			b.s.Receive(1, pkt(proto, fmt.Sprintf("10.0.0.1:%d", 1000+i), "10.0.0.2:2"))
		}
		return b.s.BucketPackets(1)
	}
	for _, c := range []struct {
		method string
		proto  uint8
		spread bool
	}{
		{",selection_method=dp_hash", packet.ProtoUDP, true},
		{",selection_method=dp_hash", packet.ProtoTCP, true},
		{",selection_method=hash,fields(ip_src,tcp_src,udp_src)", packet.ProtoUDP, true},
		{",selection_method=hash,fields(ip_src,tcp_src)", packet.ProtoUDP, false},
		{",selection_method=hash", packet.ProtoUDP, false},
		{"", packet.ProtoUDP, false},
		{"", packet.ProtoTCP, true},
	} {
		n := spread(c.method, c.proto)
		// By highest score, three times the weight gets more than three times the packets.
		if c.spread && (n[0] < 130 || n[0] > 320) {
			t.Errorf("%q, %s: %v, want about 250 and 750", c.method, packet.ProtoName(c.proto), n)
		}
		if !c.spread && n[0] != 0 && n[1] != 0 {
			t.Errorf("%q, %s: %v, want all in one bucket", c.method, packet.ProtoName(c.proto), n)
		}
	}
}

// Two levels of groups spread as one would.
func TestTwoLevelsOfGroups(t *testing.T) {
	b := newBench(t, "p1", "p2")
	text := "table=0,priority=0,cookie=1,actions=group:1\n+ group_id=1,type=select,selection_method=hash,fields(ip_src,udp_src)"
	for i := range 4 {
		text += fmt.Sprintf(",bucket=bucket_id:%d,weight:10,actions=group:%d", i, i+2)
	}
	for i := range 4 {
		text += fmt.Sprintf("\n+ group_id=%d,type=select,selection_method=hash,fields(ip_src,udp_src)", i+2)
		for k := range 10 {
			text += fmt.Sprintf(",bucket=bucket_id:%d,weight:100,actions=output:2", 1000+10*i+k)
		}
	}
	b.must(text)
	for i := range 4000 {
		b.s.Receive(1, udp(fmt.Sprintf("10.0.0.1:%d", 1000+i), "10.0.0.2:2"))
	}
	for i := range 4 {
		for k, n := range b.s.BucketPackets(uint32(i + 2)) {
			if n < 50 || n > 160 {
				t.Errorf("bucket %d of group %d got %d of 4000 packets, want about 100", k, i+2, n)
			}
		}
	}
}

func TestPacketOut(t *testing.T) {
	b := newBench(t, servicePorts...)
	b.load(pipeline)
	p := tcp("10.96.0.30:80", "10.10.1.11:5", packet.RST|packet.ACK)
	if err := b.s.PacketOut(openflow.PortLocal, p, openflow.Output(111)); err != nil {
		t.Fatal(err)
	}
	if err := b.s.PacketOut(openflow.PortController, p, openflow.Reg(0).Set(1), openflow.Resubmit(50)); err != nil {
		t.Fatal(err)
	}
	want := "111 tcp 10.96.0.30:80 -> 10.10.1.11:5 [RST+ACK]"
	if len(b.out) != 2 || b.out[0] != want || b.out[1] != want {
		t.Errorf("left: %v", b.out)
	}
}

// The trace names every table, the choice of the group, the translation and the way out.
func TestTrace(t *testing.T) {
	b := newBench(t, servicePorts...)
	b.load(pipeline)
	b.s.cfg.PickBucket = func(uint32, int, uint32) int { return 1 }
	b.s.cfg.TableName = func(n uint8) string { return map[uint8]string{30: "ServiceLB"}[n] }
	b.send(2, tcp("10.10.1.1:1000", "10.96.0.10:80", packet.SYN))
	text := b.path()
	for _, want := range []string{
		"in_port 2 gw0: tcp 10.10.1.1:1000 -> 10.96.0.10:80 [SYN]",
		"table 30 ServiceLB: cookie=0x0, table=30, priority=200,tcp,reg4=0x10000/0x70000,nw_dst=10.96.0.10,tp_dst=80 actions=",
		"group 1: bucket 1 of 2: set_field:0xa0a010c->reg3",
		"ct commit zone 65520: ct_state=+new+trk+dnat ct_mark=0x12, nat tcp 10.10.1.1:1000 -> 10.96.0.10:80 [SYN] => tcp 10.10.1.1:1000 -> 10.10.1.12:8080 [SYN]",
		"output to port 112 p12: tcp 10.10.1.1:1000 -> 10.10.1.12:8080 [SYN]",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the trace lacks %q:\n%s", want, text)
		}
	}
	b.send(2, udp("10.10.1.1:1000", "10.96.0.99:80"))
	if b.s.ApplyBundle(ops(t, "+ table=0,priority=100,cookie=0x55,udp,actions=drop")); len(b.send(2, udp("10.10.1.1:1000", "10.96.0.99:80"))) != 0 {
		t.Error("the packet was not dropped")
	}
	if last := b.trace[len(b.trace)-1]; !last.Drop || last.Cookie != 0x55 || last.Node != "n1" {
		t.Errorf("the trace ends with %+v", last)
	}
}

func TestFragmentsMatchWithoutPorts(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must("table=0,priority=2,cookie=1,udp,tp_dst=53,actions=output:2\ntable=0,priority=1,cookie=1,ip,ip_frag=later,actions=IN_PORT")
	p := udp("10.0.0.1:1", "10.0.0.2:53")
	p.Frag = 1
	b.expect(1, p, "2 udp 10.0.0.1:1 -> 10.0.0.2:53")
	p.Frag = 2
	b.expect(1, p, "1 udp 10.0.0.1:1 -> 10.0.0.2:53")
}
