//go:build linux

package netns

import (
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"towtank/scenarios"
	"towtank/sim"
	"towtank/sim/packet"
)

// Inject implements scenarios.Tank. Whether the packet leaves the switch is what ofproto/trace says of its bytes:
// on a port, it cannot be told from what else leaves there.
func (c *cluster) Inject(from scenarios.Source, fields []sim.Field) (sim.Injected, error) {
	var out sim.Injected
	src := from.(*source)
	if src.space == nil {
		return out, fmt.Errorf("%s does not run", src.name)
	}
	if src.pod == "" {
		return out, fmt.Errorf("%s: raw packets are sent by Pods", src.name)
	}
	sender, err := src.raw()
	if err != nil {
		return out, err
	}
	p, err := sim.RawPacket(sender, fields)
	if err != nil {
		return out, err
	}
	frame, err := packet.Marshal(p)
	if err != nil {
		return out, err
	}
	in, err := src.m.portOf(src)
	if err != nil {
		return out, fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	text, err := src.m.ovs.Call("ofproto/trace", bridge, "in_port="+in, hex.EncodeToString(frame))
	if err != nil {
		return out, fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	_, actions, _ := strings.Cut(text, "Datapath actions: ")
	out.Left = !strings.HasPrefix(strings.TrimSpace(actions), "drop")
	before := c.neighbours()
	if err := src.space.peer.Transmit(uplink, frame); err != nil {
		return out, fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	if err := c.fabric.sync(); err != nil {
		return out, fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	after := c.neighbours()
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if old, known := before[k]; known && old != after[k] {
			out.Changed = append(out.Changed, k+" "+after[k])
		}
	}
	return out, nil
}

// raw returns the source as the sender of a raw packet.
func (s *source) raw() (sim.RawSender, error) {
	mac, err := s.mac()
	if err != nil {
		return sim.RawSender{}, err
	}
	return sim.RawSender{
		MAC: mac, Addr: s.Addr, Gateway: s.m.Gateway,
		Neighbour: func(netip.Addr) (packet.MAC, bool) {
			to, err := packet.ParseMAC(gatewayMAC(s.m))
			return to, err == nil
		},
	}, nil
}

func (s *source) mac() (packet.MAC, error) {
	text, err := s.space.run("ip", "-o", "link", "show", uplink)
	if err != nil {
		return packet.MAC{}, fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	_, after, _ := strings.Cut(text, "link/ether ")
	mac, _, _ := strings.Cut(after, " ")
	return packet.ParseMAC(mac)
}

// neighbours returns the Ethernet addresses that machines and Pods know, by where and for which address.
func (c *cluster) neighbours() map[string]string {
	out := map[string]string{}
	note := func(name string, s *space) {
		if s == nil {
			return
		}
		text, err := s.run("ip", "neigh", "show")
		if err != nil {
			return
		}
		for l := range strings.SplitSeq(text, "\n") {
			if f := strings.Fields(l); len(f) > 4 && f[3] == "lladdr" {
				out[name+" "+f[0]] = f[4]
			}
		}
	}
	for _, m := range c.machines {
		note(m.name, m.netns())
	}
	for _, x := range c.externals {
		note(x.name, x.space)
	}
	c.kubelet.mu.Lock()
	all := maps.Clone(c.kubelet.byID)
	c.kubelet.mu.Unlock()
	for id, s := range all {
		note(id, s.space)
	}
	return out
}
