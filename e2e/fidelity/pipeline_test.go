package fidelity

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"towtank/datapath"
	"towtank/datapath/openflow"
	"towtank/sim/packet"
)

// generator makes pipelines and packets. Values come from small pools, so that they meet.
type generator struct {
	*rand.Rand
	groups int // that actions may use: 1 to this
	// closes: TCP connections end, and none is translated. Open vSwitch gives a connection that begins again another
	// port, as long as it has not swept the translation of the one before.
	closes bool
}

func (g generator) of(list ...string) string { return list[g.IntN(len(list))] }

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

const (
	lastTable = 12
	// Groups are used up to this table, and lead to later ones.
	lastGroupTable = 8
	learnTable     = 32
	ports          = 4
	tunnelPort     = 5
	// Select groups with several buckets have ids from firstChoice on, and a port each from markPort on: each bucket
	// leads to a table of its own, from markTable on, where the packet is sent out of that port with the bucket in its
	// source address. So it shows which bucket Open vSwitch took.
	firstChoice, choices = 4, 2
	mostBuckets          = 3
	markTable, markPort  = 40, 11
)

// mark is the source address that tells of a bucket.
func mark(bucket int) packet.MAC { return packet.MAC{2, 0, 0, 0, 0xee, byte(bucket)} }

var toLearned = fmt.Sprintf("resubmit(,%d)", learnTable)

// pipeline returns objects in the order in which they are to be written: meters and groups come first. Each is one that the codec takes; a switch may refuse it still.
func (g generator) pipeline() (objs []datapath.Object) {
	for id := 1; id <= 2; id++ {
		m, err := openflow.NewMeter(openflow.Meter{ID: uint32(id), PktPS: true, Burst: true, Rate: uint32(1 + g.IntN(3)), BurstSize: uint32(1 + g.IntN(3))})
		if err == nil {
			objs = append(objs, m)
		}
	}
	for id := 1; id < firstChoice; id++ {
		g.groups = id - 1 // no loops: where OVS gives up a packet that went too deep, the model has sent some of it
		text := fmt.Sprintf("group_id=%d,type=%s,bucket=actions=%s", id, g.of("select", "all", "indirect"), strings.Join(g.actions(lastGroupTable, "ip", true), ","))
		if o, err := openflow.ParseGroup(text); err == nil {
			objs = append(objs, o)
		}
	}
	for i := range choices {
		objs = g.choice(objs, i)
	}
	for table := range lastTable + 1 {
		if g.groups = firstChoice - 1 + choices; table > lastGroupTable {
			g.groups = 0
		}
		// Of two flows with one priority that both match, either may be taken: each has its own.
		for _, priority := range g.Perm(5)[:1+g.IntN(4)] {
			objs = g.flow(objs, table, 1+priority)
		}
		if table <= lastGroupTable {
			objs = g.fallback(objs, table)
		}
	}
	return objs
}

// group returns a group that packets of a flow may go to, 0 if there is none. Those with one bucket are for IPv4: their
// buckets translate without asking for the family, and Open vSwitch 3.1 ends on an assertion if an IPv6 packet gets
// there.
func (g generator) group(v4 bool) int {
	if v4 && g.groups > 0 {
		return 1 + g.IntN(g.groups)
	}
	if g.groups >= firstChoice {
		return firstChoice + g.IntN(g.groups-firstChoice+1)
	}
	return 0
}

// fallback makes a flow for what no other of the table takes, so that packets get to where there is something to see. What
// leads on comes last: behind it the packet would be as NAT left it, which the model does not do.
func (g generator) fallback(objs []datapath.Object, table int) []datapath.Object {
	family := g.of("ip", "ip", "ip", "ipv6")
	action := g.of(fmt.Sprintf("group:%d", g.group(family == "ip")), fmt.Sprintf("group:%d", firstChoice+g.IntN(choices)),
		fmt.Sprintf("meter:%d,goto_table:%d", 1+g.IntN(2), table+1), fmt.Sprintf("goto_table:%d", table+1),
		fmt.Sprintf("ct(table=%d)", table+1), fmt.Sprintf("ct(commit,table=%d,zone=1)", table+1),
		fmt.Sprintf("%s,output:reg1[],resubmit(,%d)", toLearned, table+1), fmt.Sprintf("output:%d,resubmit(,%d)", 1+g.IntN(ports), table+1))
	switch {
	case g.chance(15):
		family, action = "tcp", fmt.Sprintf("%s,goto_table:%d", g.learn(), table+1)
	case g.chance(25):
		action = g.ct(family == "ipv6", func() int { return table + 1 })
	}
	f, err := openflow.ParseFlow(fmt.Sprintf("table=%d,priority=0,%s,actions=%s", table, family, action))
	if err != nil {
		return objs
	}
	return append(objs, f)
}

// choice makes the i-th select group with several buckets, and the tables that they lead to.
func (g generator) choice(objs []datapath.Object, i int) []datapath.Object {
	g.groups = 0
	text := fmt.Sprintf("group_id=%d,type=select", firstChoice+i) + g.of("", ",selection_method=dp_hash", ",selection_method=hash,fields(ip_src,udp_src,tcp_src)", ",selection_method=hash")
	var flows []datapath.Object
	for b := range 2 + g.IntN(mostBuckets-1) {
		table := markTable + i*mostBuckets + b
		text += fmt.Sprintf(",bucket=bucket_id:%d,weight:%d,actions=%sresubmit(,%d)", b, []int{1, 2, 50, 100, 0}[g.IntN(5)], g.of("", "set_field:1->reg0,", "set_field:2->reg1,"), table)
		first := fmt.Sprintf("set_field:%s->eth_src,output:%d", mark(b), markPort+i)
		for _, f := range []string{
			fmt.Sprintf("table=%d,priority=1,actions=%s", table, first),
			fmt.Sprintf("table=%d,priority=2,ip,actions=%s,%s", table, first, strings.Join(g.actions(lastGroupTable, "ip", false), ",")),
		} {
			if o, err := openflow.ParseFlow(f); err == nil {
				flows = append(flows, o)
			}
		}
	}
	if o, err := openflow.ParseGroup(text); err == nil {
		objs = append(objs, o)
	}
	return append(objs, flows...)
}

func (g generator) flow(objs []datapath.Object, table, priority int) []datapath.Object {
	proto := g.of("", "ip", "ip", "tcp", "udp", "icmp", "ipv6", "tcp6", "udp6", "icmp6", "arp")
	match := g.match(proto)
	cookie := 1 + g.IntN(5)
	text := fmt.Sprintf("cookie=%#x,table=%d,priority=%d%s,actions=%s", cookie, table, priority, match, strings.Join(g.actions(table, proto, false), ","))
	f, err := openflow.ParseFlow(text)
	if err != nil {
		return objs
	}
	return append(objs, f)
}

func is4(proto string) bool {
	return proto == "ip" || proto == "tcp" || proto == "udp" || proto == "icmp"
}
func is6(proto string) bool { return strings.HasSuffix(proto, "6") }

func (g generator) match(proto string) string {
	var m []string
	add := func(percent int, text string) {
		if g.chance(percent) {
			m = append(m, text)
		}
	}
	if proto != "" {
		m = append(m, proto)
	}
	if proto != "" && g.chance(40) {
		return "," + proto // with more conditions few packets meet them all
	}
	add(20, fmt.Sprint("in_port=", 1+g.IntN(tunnelPort)))
	add(5, "tun_id="+g.of("0", "7", "8"))
	add(5, "tun_src="+g.of("0.0.0.0", "172.18.0.12", "172.18.0.13"))
	add(3, "tun_dst="+g.of("0.0.0.0", "172.18.0.11"))
	add(20, fmt.Sprintf("reg%d=%s", g.IntN(3), g.of("0", "1", "2", "0x1/0x1", "0/0x2")))
	add(5, "metadata="+g.of("0", "1"))
	add(5, "vlan_tci="+g.of("0x0000/0x1fff", "0x1000/0x1000", "0x1005/0x1fff"))
	add(5, "dl_dst="+g.of("02:00:00:00:00:01", "02:00:00:00:00:02", "01:00:00:00:00:00/01:00:00:00:00:00"))
	if is4(proto) || is6(proto) {
		add(25, "ct_state="+g.of("+trk", "-trk", "+new+trk", "+est+trk", "-new+trk", "+rpl+trk", "+inv+trk", "+rel+trk", "+dnat+trk", "+snat+trk"))
		add(8, "ct_mark="+g.of("0", "1", "0x1/0x1"))
		add(5, "ct_zone="+g.of("0", "1", "2"))
		add(5, "nw_ttl="+g.of("64", "63", "1"))
		add(5, "nw_tos="+g.of("0", "32"))
	}
	switch {
	case is4(proto):
		add(25, "nw_src="+g.of("10.0.0.1", "10.0.0.2", "10.0.0.0/31", "10.0.0.0/8"))
		add(25, "nw_dst="+g.of("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.2/31"))
	case is6(proto):
		add(25, "ipv6_src="+g.of("fd00::1", "fd00::2", "fd00::/64"))
		add(25, "ipv6_dst="+g.of("fd00::1", "fd00::2", "fd00::3"))
	case proto == "arp":
		add(30, "arp_op="+g.of("1", "2"))
		add(30, "arp_tpa="+g.of("10.0.0.1", "10.0.0.2"))
	}
	if strings.HasPrefix(proto, "tcp") || strings.HasPrefix(proto, "udp") {
		add(20, "tp_dst="+g.of("80", "81", "1000", "0x50/0xfffe"))
		add(10, "tp_src="+g.of("80", "1000", "1001"))
	}
	if strings.HasPrefix(proto, "tcp") {
		add(10, "tcp_flags="+g.of("+syn", "+ack", "-ack"))
	}
	if strings.HasPrefix(proto, "icmp") {
		add(20, "icmp_type="+g.of("8", "0", "128", "129", "3"))
	}
	if len(m) == 0 {
		return ""
	}
	return "," + strings.Join(m, ",")
}

func (g generator) actions(table int, proto string, bucket bool) []string {
	var a []string
	next := func() int { return table + 1 + g.IntN(max(lastTable-table, 1)) }
	for range 1 + g.IntN(3) {
		a = append(a, g.action(proto, next))
		if last := a[len(a)-1]; strings.HasPrefix(last, "ct(") || strings.HasPrefix(last, "group") || strings.HasPrefix(last, "resubmit") && last != toLearned {
			return a // what comes after a ct has the packet as NAT left it, which the model does not do
		}
	}
	if !bucket && table < lastTable && g.chance(60) {
		a = append(a, fmt.Sprint("goto_table:", next()))
	} else if g.chance(70) {
		a = append(a, fmt.Sprint("output:", 1+g.IntN(ports)))
	}
	return a
}

func (g generator) action(proto string, next func() int) string {
	for {
		switch g.IntN(18) {
		case 0, 1:
			return fmt.Sprint("output:", 1+g.IntN(ports))
		case 2:
			return g.of("in_port", "output:reg1[]", "output:reg0[0..15]")
		case 3, 4:
			return fmt.Sprintf("set_field:%s->reg%d", g.of("1", "2", "3", "0x1/0x1", "0x2/0x2"), g.IntN(3))
		case 5:
			return g.of("move:reg0[0..3]->reg1[0..3]", "move:eth_src->eth_dst", "move:in_port->reg1[0..15]", "set_field:02:00:00:00:00:02->eth_dst", "set_field:1->metadata")
		case 6, 7:
			return g.of(fmt.Sprintf("resubmit(,%d)", next()), fmt.Sprintf("resubmit(,%d)", next()), toLearned)
		case 8:
			if is4(proto) {
				return g.of("set_field:10.0.0.3->ip_dst", "set_field:10.0.0.2->ip_src", "move:ip_src->ip_dst", "dec_ttl", "set_field:32->nw_tos")
			}
			if is6(proto) {
				return g.of("set_field:fd00::3->ipv6_dst", "dec_ttl", "move:ipv6_src->xxreg1")
			}
		case 9:
			if strings.HasPrefix(proto, "tcp") || strings.HasPrefix(proto, "udp") {
				p := proto[:3]
				return g.of("set_field:81->"+p+"_dst", "set_field:1001->"+p+"_src")
			}
		case 10, 11, 12:
			if is4(proto) || is6(proto) {
				return g.ct(is6(proto), next)
			}
		case 13:
			return g.of("push_vlan:0x8100,set_field:4101->vlan_vid", "pop_vlan", "ct_clear")
		case 14:
			if n := g.group(is4(proto)); n > 0 {
				return fmt.Sprint("group:", n)
			}
		case 16:
			return g.of("set_field:172.18.0.12->tun_dst,set_field:7->tun_id,", "set_field:172.18.0.13->tun_dst,", "set_field:8->tun_id,", "") + fmt.Sprint("output:", tunnelPort)
		case 17:
			return g.of("meter:1", "meter:1", "meter:2", "meter:2", "meter:9") // there is no meter 9: it is refused
		case 15:
			if strings.HasPrefix(proto, "tcp") && len(proto) == 3 {
				return g.learn()
			}
		}
	}
}

// learn learns from TCP over IPv4. Learned flows with the same match have the same timeout; with another they have
// another priority.
func (g generator) learn() string {
	n, port := g.IntN(3), ""
	priority := 2 * n
	if g.chance(50) {
		port, priority = "NXM_OF_TCP_DST[],", priority+1
	}
	return fmt.Sprintf("learn(table=%d,hard_timeout=%d,priority=%d,%scookie=%#x,eth_type=0x800,nw_proto=6,NXM_OF_IP_DST[],%sload:NXM_NX_REG0[]->NXM_NX_REG1[],load:0x1->NXM_NX_REG2[0])",
		learnTable, []int{0, 3, 10}[n], priority, g.of("", "delete_learned,"), 1+g.IntN(5), port)
}

// untranslated is a zone without NAT.
const untranslated = 2

func (g generator) ct(v6 bool, next func() int) string {
	var a []string
	commit := g.chance(60)
	if commit {
		a = append(a, "commit")
	}
	if g.chance(70) {
		a = append(a, fmt.Sprint("table=", next()))
	}
	zone := g.IntN(3)
	if zone > 0 {
		a = append(a, fmt.Sprint("zone=", zone))
	}
	switch {
	case g.closes:
	case commit && zone == untranslated:
		// Open vSwitch 3.1 ends with a segmentation fault when force meets an answer of a translated connection.
		if g.chance(20) {
			a = append(a, "force")
		}
	case !commit && g.chance(35):
		a = append(a, "nat")
	case commit && g.chance(50) && v6:
		a = append(a, g.of("nat(dst=[fd00::3]:81)", "nat(dst=fd00::2)", "nat(src=fd00::9)"))
	case commit && g.chance(50):
		a = append(a, g.of("nat(dst=10.0.0.3:81)", "nat(dst=10.0.0.2)", "nat(src=10.0.0.9)"))
	}
	if commit && g.chance(40) {
		a = append(a, "exec("+g.of("set_field:1->ct_mark", "set_field:0x2/0x2->ct_mark", "move:reg0[0..3]->ct_mark[0..3]", "set_field:0x5->ct_label")+")")
	}
	return "ct(" + strings.Join(a, ",") + ")"
}
