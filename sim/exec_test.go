package sim

import (
	"strings"
	"testing"
)

// Flows that are deleted by hand are those that Open vSwitch would delete: every one whose match is at least as
// specific, or with --strict the one with the same match and priority.
func TestDeleteFlowsByHand(t *testing.T) {
	w := newWorld(t, 1, "n1")
	settle(t, w)
	n := w.Node("n1")
	type exec = struct{ command, want string }
	for _, c := range []struct {
		del  string
		gone bool
	}{
		{"table=99", true}, {"table=98", false}, {"table=99,ip", true}, {"table=99,tcp", true}, {"table=99,udp", false}, {"table=99,ipv6", false},
		{"table=99,ip,nw_dst=1.2.0.0/16", true}, {"table=99,ip,nw_dst=1.3.0.0/16", false}, {"table=99,tcp,nw_dst=1.2.3.4,tp_dst=80", false},
		{"table=99,tcp,tp_dst=0x50/0xfff0", true}, {"table=99,reg0=0x10/0x30", true}, {"table=99,reg0=0x20/0x30", false}, {"table=99,reg0=0x110", false},
		{"table=99,ct_state=+trk", true}, {"table=99,ct_state=+trk+new", true}, {"table=99,ct_state=+est", false}, {"tcp,nw_dst=1.2.3.0/24", true},
		{"cookie=0x12/-1", true}, {"cookie=0x10/0xf0", true}, {"cookie=0x13/-1", false}, {"cookie=0x12/-1,table=99,udp", false},
		{"--strict table=99,priority=7,tcp,nw_dst=1.2.3.0/24", false},
		{"--strict table=99,priority=8,tcp,nw_dst=1.2.3.0/24,tp_dst=80/0xfff0,reg0=0x10/0x11,ct_state=+trk+new", false},
		{"--strict table=99,priority=7,tcp,nw_dst=1.2.3.0/24,tp_dst=80/0xfff0,reg0=0x10/0x11,ct_state=+trk+new", false},
		{"--strict table=99,priority=7,tcp,nw_dst=1.2.3.0/24,tp_dst=80/0xfff0,reg0=0x10/0x31,ct_state=+trk+new", true},
	} {
		for _, command := range []string{
			"ovs-ofctl add-flow br-int cookie=0x12,table=99,priority=7,tcp,nw_dst=1.2.3.0/24,tp_dst=80/0xfff0,reg0=0x10/0x31,ct_state=+trk+new,actions=drop",
			"ovs-ofctl -O OpenFlow13 del-flows br-int " + c.del,
		} {
			if strings.Contains(command, "--strict ") {
				command = strings.Replace(strings.Replace(command, "--strict ", "", 1), "del-flows", "del-flows --strict", 1)
			}
			if _, err := w.Exec(n, command); err != nil {
				t.Fatalf("%s: %v", command, err)
			}
		}
		left, err := w.Exec(n, "ovs-ofctl dump-flows br-int table=99,ip")
		if err != nil {
			t.Fatal(err)
		}
		if gone := left == ""; gone != c.gone {
			t.Errorf("del-flows %s: the flow is gone: %v, want %v; left: %s", c.del, gone, c.gone, left)
		}
	}
	all, _ := w.Exec(n, "ovs-ofctl dump-flows br-int")
	some, err := w.Exec(n, "ovs-ofctl -OOpenFlow15 --no-stats dump-flows br-int table=10")
	if err != nil || some == "" || len(some) >= len(all) || strings.Contains(some, "table=20,") {
		t.Errorf("dump-flows table=10: %v: %s", err, some)
	}
	for _, c := range []exec{
		{"ovs-ofctl del-flows br-int priority=5", "unknown keyword priority"},
		{"ovs-ofctl del-flows br-int cookie=0x1", "cannot set cookie"},
		{"ovs-ofctl dump-flows br-ext", "want the bridge br-int"},
		{"ovs-ofctl -O OpenFlow16 dump-flows br-int", "Unknown OpenFlow version"},
		{"ovs-ofctl --bundle add-flow br-int actions=drop", "--bundle is not modelled"},
		{"ovs-ofctl add-flow br-int table=0 actions=drop", "at most 2 arguments"},
		{"ovs-ofctl dump-groups br-int x", "allowed: group_id=N"},
		{"ovs-vsctl list-ports br-ext", "no bridge named br-ext"},
		{"ovs-vsctl add-port br-ext foo", "no bridge named br-ext"},
		{"ovs-vsctl add-port br-int gw0", "already exists"},
		{"ovs-vsctl del-port nosuch", "no port named nosuch"},
		{"ovs-vsctl --if-exists add-port br-int foo", "has no '--if-exists' option"},
		{"ovs-vsctl add-port br-int foo -- blah", "blah is not modelled"},
		{"ovs-vsctl add-port br-int foo -- set interface foo mtu_request=9000", "mtu_request of interface is not modelled"},
		{"ovs-vsctl add-port br-int foo -- set interface foo type=patch", `type: found "patch", allowed: system, internal`},
		{"ovs-vsctl add-port br-int foo vlan_mode=trunk", "vlan_mode of port is not modelled"},
	} {
		if _, err := w.Exec(n, c.command); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.command, err, c.want)
		}
	}
	if n.Switch().PortByName("foo") != nil {
		t.Error("a refused transaction left a port")
	}
}

// The commands that an error offers are those that the host has.
func TestHostToolsAreThoseOfTheHost(t *testing.T) {
	w := newWorld(t, 1, "n1")
	settle(t, w)
	n := w.Node("n1")
	_, err := n.ns.Exec("ls")
	if err == nil || !strings.Contains(err.Error(), "known: "+strings.Join(hostTools, ", ")+")") {
		t.Errorf("the host says %v", err)
	}
	for _, c := range []struct{ command, want string }{
		{"ovs-vsct show", `ovs-vsct: command not modelled; did you mean "ovs-vsctl"? (known: ip, `},
		{"ls", "ls: command not modelled (known: ip, iptables, "},
		{"ls", ", ovs-vsctl, ovs-ofctl)"},
	} {
		if _, err := w.Exec(n, c.command); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.command, err, c.want)
		}
	}
}
