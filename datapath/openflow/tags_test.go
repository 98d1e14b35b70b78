package openflow

import (
	"strings"
	"testing"
)

// Open vSwitch refuses a third VLAN tag, as far as the match says what is there; in a group's bucket it does not look.
func TestThirdTagIsRefused(t *testing.T) {
	const push = "push_vlan:0x8100,set_field:4101->vlan_vid"
	for _, c := range []struct {
		match, actions string
		ok             bool
	}{
		{"", push, true},
		{"", push + "," + push, true},
		{"", push + "," + push + "," + push, false},
		{"dl_vlan=5,", push, true},
		{"dl_vlan=5,", push + "," + push, false},
		{"vlan_tci=0x1000/0x1000,", push + "," + push, false},
		{"vlan_tci=0x0000/0x1fff,", push + "," + push, true},
		{"dl_vlan=5,", "pop_vlan," + push + "," + push, true},
		{"dl_vlan=5,", push + ",pop_vlan,pop_vlan", true},
		{"dl_vlan=5,", push + ",pop_vlan,pop_vlan,pop_vlan", false},
	} {
		_, err := ParseFlow("table=1,priority=1,cookie=0x1," + c.match + "actions=" + c.actions)
		if c.ok != (err == nil) {
			t.Errorf("%sactions=%s: %v, want ok=%t", c.match, c.actions, err, c.ok)
		}
		if !c.ok && err != nil && !strings.Contains(err.Error(), "OFPBAC_") {
			t.Errorf("%v: want the error's OpenFlow name", err)
		}
	}
	if _, err := ParseGroup("group_id=1,type=all,bucket=bucket_id:0,actions=" + push + "," + push + "," + push); err != nil {
		t.Errorf("in a bucket: %v", err)
	}
}
