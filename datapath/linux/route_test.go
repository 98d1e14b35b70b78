//go:build linux

package linux_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"towtank/datapath"
	"towtank/datapath/linux"
)

// A node has a route to each other node. Routes that are new cost no look at those that there are, and any number of
// changed ones cost one: a start would cost the square of the nodes otherwise.
func TestRoutesCostNoLists(t *testing.T) {
	lists, undo := linux.CountRouteLists()
	t.Cleanup(undo)
	n := start(t)
	n.run("ip", "addr", "add", "172.18.0.11/16", "dev", "eth0")
	routes := func(via string) (ops []datapath.Op) {
		for i := range 50 {
			ops = append(ops,
				put(parse(t, datapath.KindRoute, fmt.Sprintf("10.20.%d.0/24 %sdev eth0 proto 116", i, via))),
				put(parse(t, datapath.KindRoute, fmt.Sprintf("fd00:20:%x::/64 dev eth0 proto 116 metric 1024", i+1))))
		}
		return ops
	}
	n.must(routes("via 172.18.0.9 ")...)
	if c := lists(); c != 0 {
		t.Errorf("new routes: %d lists", c)
	}
	n.must(routes("via 172.18.0.8 ")...)
	if c := lists(); c > 2 {
		t.Errorf("changed routes: %d lists, want one for each family", c)
	}
	if s := n.run("ip", "route"); strings.Count(s, "via 172.18.0.8") != 50 || strings.Contains(s, "172.18.0.9") {
		t.Errorf("routes:\n%s", s)
	}
}

// The kernel takes a next hop only if a route leads to it, whatever the order of the two in a Change.
func TestRouteBeforeThatToItsNextHop(t *testing.T) {
	n := start(t)
	n.must(
		put(parse(t, datapath.KindRoute, "default via fd00:20::1 dev eth0 table 101 proto 116 metric 1024")),
		put(parse(t, datapath.KindRoute, "fd00:20::/64 dev eth0 table 101 proto 116 metric 1024")),
	)
	if s := n.run("ip", "-6", "route", "show", "table", "101"); strings.Count(s, "fd00:20::") != 2 {
		t.Errorf("routes:\n%s", s)
	}
}

// One entry of the neighbour table is asked for by its address.
func TestNeighbourByAddress(t *testing.T) {
	n := start(t)
	n.must(put(parse(t, datapath.KindNeighbour, "172.18.0.9 lladdr 0a:00:00:00:00:09 dev eth0 proto 116")))
	n.run("ip", "neigh", "replace", "172.18.0.8", "lladdr", "0a:00:00:00:00:08", "dev", "eth0", "nud", "stale")
	n.run("ip", "neigh", "replace", "fd00::8", "lladdr", "0a:00:00:00:00:68", "dev", "eth0")
	link := strings.SplitN(n.run("ip", "-o", "link", "show", "eth0"), ":", 2)[0]
	var index int
	if _, err := fmt.Sscan(link, &index); err != nil {
		t.Fatal(err)
	}
	table, err := linux.OpenNeighbours(n.name)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	const permanent, stale = 0x80, 0x04
	for _, c := range []struct {
		ip, mac string
		state   int
	}{
		{"172.18.0.9", "0a:00:00:00:00:09", permanent},
		{"172.18.0.8", "0a:00:00:00:00:08", stale},
		{"fd00::8", "0a:00:00:00:00:68", permanent},
		{"172.18.0.7", "", 0},
		{"fd00::7", "", 0},
	} {
		mac, state, ok, err := table.Get(index, netip.MustParseAddr(c.ip))
		if err != nil || ok != (c.mac != "") || (ok && (mac.String() != c.mac || state != c.state)) {
			t.Errorf("%s: %s, state %#x, %v, %v; want %s, %#x", c.ip, mac, state, ok, err, c.mac, c.state)
		}
	}
}
