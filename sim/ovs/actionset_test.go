package ovs

import (
	"net/netip"
	"testing"

	"towtank/datapath/openflow"
	"towtank/sim/packet"
)

// A bucket is an action set: compared with an OVS 3.1, by random pipelines.
func TestBucketIsAnActionSet(t *testing.T) {
	for in, want := range map[string]string{
		"set_field:1->reg0,set_field:2->reg1,resubmit(,5)":       "set_field:0x1->reg0,set_field:0x2->reg1,resubmit(,5)",
		"group:1,set_field:10.0.0.3->ip_dst,output:1":            "set_field:10.0.0.3->ip_dst,group:1",
		"output:1,dec_ttl,set_field:1->reg0,output:2":            "dec_ttl,set_field:0x1->reg0,output:2",
		"resubmit(,5),ct(table=6),set_field:1->reg0":             "set_field:0x1->reg0,resubmit(,5)",
		"set_field:1->reg0":                                      "drop",
		"output:NXM_NX_REG1[]":                                   "drop",
		"push_vlan:0x8100,set_field:4101->vlan_vid,pop_vlan,all": "pop_vlan,push_vlan:0x8100,set_field:4101->vlan_vid,ALL",
	} {
		g, err := openflow.ParseGroup("group_id=1,type=all,bucket=actions=" + in)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := openflow.ActionsText(actionSet(g.Buckets()[0].Actions)); got != want {
			t.Errorf("%s\n got: %s\nwant: %s", in, got, want)
		}
	}
}

// dec_ttl in a bucket lets ARP pass, which has no TTL: found by comparing with an OVS 3.1.
func TestDecTTLOfARPDoesNothing(t *testing.T) {
	b := newBench(t, "p1", "p2")
	b.must("group_id=1,type=all,bucket=actions=dec_ttl,output:2")
	b.must("table=0,priority=1,cookie=1,actions=group:1")
	out := b.send(1, &packet.Packet{EthType: packet.EthARP, ARPOp: 1, ARPSPA: netip.MustParseAddr("10.0.0.1"), ARPTPA: netip.MustParseAddr("10.0.0.2")})
	if len(out) != 1 {
		t.Errorf("%d frames came out, want 1", len(out))
	}
}
