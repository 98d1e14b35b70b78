//go:build linux

package daemon

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"towtank/agent/config"
	"towtank/agent/edge"
)

// machine has an IPv4 and an IPv6 address on eth0, and one of each on eth1.
func machine(ip netip.Addr) (place, error) {
	at, ok := map[string]place{
		"172.18.0.11": {netip.MustParsePrefix("172.18.0.11/16"), "eth0", 1500}, "fd00:18::11": {netip.MustParsePrefix("fd00:18::11/64"), "eth0", 1500},
		"10.0.0.11": {netip.MustParsePrefix("10.0.0.11/24"), "eth1", 9000}, "fd00:99::11": {netip.MustParsePrefix("fd00:99::11/64"), "eth1", 9000},
	}[ip.String()]
	if !ok {
		return at, errors.New("no link of this machine has it")
	}
	return at, nil
}

func nodeOf(cidrs, ips string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDRs: strings.Fields(cidrs)}}
	for _, ip := range strings.Fields(ips) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n1"})
	return n
}

const (
	v4 = "10.10.1.0/24"
	v6 = "fd00:10:1::/64"
)

// The uplink is the link of the first InternalIP that is there, and both transport addresses are on it. Pods' packets
// fit into the tunnel that they take.
func TestUplinkAndMTU(t *testing.T) {
	for _, c := range []struct {
		name, cidrs, ips, mode string
		v4, v6, uplink         string
		mtu                    int
		err                    string
	}{
		{name: "IPv4", cidrs: v4, ips: "172.18.0.11", v4: "172.18.0.11/16", uplink: "eth0", mtu: 1450},
		{name: "IPv6", cidrs: v6, ips: "fd00:18::11", v6: "fd00:18::11/64", uplink: "eth0", mtu: 1430},
		{name: "both", cidrs: v4 + " " + v6, ips: "172.18.0.11 fd00:18::11", v4: "172.18.0.11/16", v6: "fd00:18::11/64", uplink: "eth0", mtu: 1430},
		{name: "both, Pods of IPv4 only", cidrs: v4, ips: "172.18.0.11 fd00:18::11", v4: "172.18.0.11/16", v6: "fd00:18::11/64", uplink: "eth0", mtu: 1450},
		{name: "no tunnels", cidrs: v4 + " " + v6, ips: "172.18.0.11 fd00:18::11", mode: "noEncap", v4: "172.18.0.11/16", v6: "fd00:18::11/64", uplink: "eth0", mtu: 1500},
		{name: "two of a family", cidrs: v4, ips: "172.18.0.11 10.0.0.11", v4: "172.18.0.11/16", uplink: "eth0", mtu: 1450},
		{name: "jumbo frames", cidrs: v4, ips: "10.0.0.11 172.18.0.11", v4: "10.0.0.11/24", uplink: "eth1", mtu: 8950},
		{name: "the first is not on the machine", cidrs: v4, ips: "172.18.0.99 172.18.0.11", v4: "172.18.0.11/16", uplink: "eth0", mtu: 1450},
		{name: "the other family on another link", cidrs: v4, ips: "172.18.0.11 fd00:99::11", v4: "172.18.0.11/16", uplink: "eth0", mtu: 1450},
		{name: "the other family of Pods on another link", cidrs: v4 + " " + v6, ips: "172.18.0.11 fd00:99::11", err: "InternalIP fd00:99::11: it is on eth1, not on eth0"},
		{name: "none on the machine", cidrs: v4, ips: "172.18.0.99", err: "InternalIP 172.18.0.99: no link"},
		{name: "no Pod CIDR", ips: "172.18.0.11", err: "no spec.podCIDRs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := configOf(&Settings{TrafficMode: c.mode}, nodeOf(c.cidrs, c.ips), machine)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text := func(p netip.Prefix) string {
				if !p.IsValid() {
					return ""
				}
				return p.String()
			}
			if text(got.TransportV4) != c.v4 || text(got.TransportV6) != c.v6 || got.Uplink != c.uplink || got.MTU != c.mtu {
				t.Errorf("%v %v on %s, MTU %d, want %s %s on %s, MTU %d", got.TransportV4, got.TransportV6, got.Uplink, got.MTU, c.v4, c.v6, c.uplink, c.mtu)
			}
		})
	}
}

// A Node that is registered anew with another Pod CIDR, or has another address, is noticed; heartbeats, other nodes and
// a Node that has neither yet are not.
func TestOutdated(t *testing.T) {
	c := &config.Config{
		NodeName: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix(v4)}, TransportV4: netip.MustParsePrefix("172.18.0.11/16"),
	}
	event := func(n *corev1.Node) any { return edge.ObjectEvent{Kind: edge.KindNode, Key: n.Name, Object: n} }
	other := nodeOf("10.10.7.0/24", "172.18.0.17")
	other.Name = "n7"
	for _, x := range []struct {
		name string
		ev   any
		want string
	}{
		{"the same", event(nodeOf(v4, "172.18.0.11")), ""},
		{"one more address", event(nodeOf(v4, "172.18.0.10 172.18.0.11 fd00:18::11")), ""},
		{"nothing yet", event(nodeOf("", "")), ""},
		{"deleted", edge.ObjectEvent{Kind: edge.KindNode, Key: "n1"}, ""},
		{"another node", event(other), ""},
		{"another Pod CIDR", event(nodeOf("10.10.7.0/24", "172.18.0.11")), "spec.podCIDRs are [10.10.7.0/24] now"},
		{"one more Pod CIDR", event(nodeOf(v4+" "+v6, "172.18.0.11")), "spec.podCIDRs"},
		{"another address", event(nodeOf(v4, "172.18.0.17")), "not 172.18.0.11 any more"},
	} {
		err := outdated(c, x.ev)
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
}

// Settings that are not allowed end the start: nobody waits for them to become so.
func TestSettingsAreCheckedFirst(t *testing.T) {
	for _, c := range []struct {
		s    Settings
		want string
	}{
		{Settings{TunnelType: "gre"}, `tunnelType "gre": allowed are geneve, vxlan`},
		{Settings{MTU: 500}, "mtu 500: allowed are 1280 to 65535"},
		{Settings{MemberTimeout: "5"}, `memberTimeout "5"`},
		{Settings{AuditEvery: "1ms"}, "auditEvery"},
	} {
		_, err := nodeConfig(t.Context(), Options{Node: "n1", Settings: &c.s})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.s, err, c.want)
		}
	}
}
