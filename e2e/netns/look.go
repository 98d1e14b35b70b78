//go:build linux

package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"towtank/scenarios"
)

// Name implements scenarios.Node.
func (o *controller) Name() string { return "controller" }

// Up implements scenarios.Node.
func (o *controller) Up() bool { return true }

// HasAddress implements scenarios.Node.
func (o *controller) HasAddress(netip.Addr) bool { return false }

// Transport implements scenarios.Node.
func (o *controller) Transport(bool) netip.Addr { return netip.Addr{} }

// Gateway implements scenarios.Node.
func (o *controller) Gateway(bool) netip.Addr { return netip.Addr{} }

// ObjectsOf implements scenarios.Node.
func (o *controller) ObjectsOf(func(string) bool) ([]string, error) { return nil, nil }

// Writes implements scenarios.Node.
func (o *controller) Writes(match func([]string) bool) (map[string]int, error) {
	n := 0
	for _, e := range o.c.api.MarkedJournal(o.Name()) {
		if match == nil || match(e.Units) {
			n++
		}
	}
	return map[string]int{"switch": 0, "host": 0, "api": n, "packet-in": 0}, nil
}

// LastWrites implements scenarios.Node.
func (o *controller) LastWrites(string, func([]string) bool) []string { return nil }

// What DumpText runs: the switch's and the kernel's own words.
var (
	dumpSwitch = []string{
		"ovs-ofctl -O OpenFlow15 --no-stats --no-names dump-flows " + bridge,
		"ovs-ofctl -O OpenFlow15 dump-groups " + bridge,
		"ovs-ofctl -O OpenFlow15 dump-meters " + bridge,
		"ovs-vsctl show",
	}
	dumpHost = []string{
		"ip -d link", "ip addr", "ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all", "ip neigh", "ip -6 neigh",
		"iptables-save", "ip6tables-save", "ipset save",
	}
)

// DumpText implements scenarios.Tank.
func (c *cluster) DumpText(n scenarios.Node, what string) (string, error) {
	var b strings.Builder
	err := onMachine(n, "dump", func(m *machine) error {
		var errs []error
		run := func(title string, commands []string) {
			fmt.Fprintf(&b, "# %s: %s\n", m.name, title)
			for _, command := range commands {
				out, err := m.exec(command)
				errs = append(errs, err)
				b.WriteString(out)
			}
		}
		if what == "switch" || what == "" {
			run("switch", dumpSwitch)
		}
		if what == "host" || what == "" {
			run("host", dumpHost)
		}
		if what == "store" || what == "" {
			errs = append(errs, m.dumpStore(&b))
		}
		return errors.Join(errs...)
	})
	return b.String(), err
}

func (m *machine) dumpStore(b *strings.Builder) error {
	units, err := m.store()
	fmt.Fprintf(b, "# %s: store\n", m.name)
	for _, u := range units {
		fmt.Fprintf(b, "%s %s\n", u.Name, strings.Join(u.About, " "))
		for _, o := range u.Objects {
			state := "pending"
			if o.Known {
				state = "known"
			}
			fmt.Fprintf(b, "  %-7s %-8s %s\n", state, o.Kind, o.Text)
		}
		for _, k := range u.Waiting {
			fmt.Fprintf(b, "  waiting %s\n", k)
		}
	}
	return err
}
