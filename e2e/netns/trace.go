//go:build linux

package netns

import (
	"fmt"
	"slices"
	"strings"

	"towtank/agent/pipeline"
	"towtank/e2e/peer"
	"towtank/scenarios"
)

// dialled is a flow that went out while a trace was on.
type dialled struct {
	from *source
	flow peer.Flow
}

func (c *cluster) noteDialled(k *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.traces != nil && k.to.Proto != "" {
		*c.traces = append(*c.traces, dialled{k.from, k.to})
	}
}

// Traced implements scenarios.Tank: what goes through a switch, as ofproto/trace of that switch says it. The
// packet is computed anew, so that conntrack is as it is afterwards.
func (c *cluster) Traced(do func()) []scenarios.TraceLine {
	var list []dialled
	c.mu.Lock()
	c.traces = &list
	c.mu.Unlock()
	do()
	c.mu.Lock()
	c.traces = nil
	c.mu.Unlock()
	var out []scenarios.TraceLine
	for _, d := range list {
		out = append(out, c.trace(d)...)
	}
	return out
}

func (c *cluster) trace(d dialled) []scenarios.TraceLine {
	m := d.from.m
	if m == nil || d.from.pod == "" {
		return nil // nothing of what an external host or a node sends meets br-int for certain
	}
	lines := func(where, text string) []scenarios.TraceLine {
		var out []scenarios.TraceLine
		for l := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
			if l = strings.TrimRight(l, " "); l != "" {
				out = append(out, scenarios.TraceLine{Node: m.name, Where: where, Text: l, Drop: strings.TrimSpace(l) == "drop"})
			}
		}
		return out
	}
	in, err := m.ingress(d)
	if err != nil {
		return lines("trace", err.Error())
	}
	text, err := m.ovs.Call("ofproto/trace", bridge, in, "--names")
	if err != nil {
		return lines("trace", err.Error())
	}
	return lines("ofproto/trace", text)
}

// ingress describes a Pod's packet as it enters br-int.
func (m *machine) ingress(d dialled) (string, error) {
	mac, err := d.from.mac()
	if err != nil {
		return "", err
	}
	port, err := m.portOf(d.from)
	if err != nil {
		return "", err
	}
	src := d.from.Addr(d.flow.To.Is6())
	proto, nw := d.flow.Proto, "nw"
	if d.flow.To.Is6() {
		proto, nw = proto+"6", "ipv6"
	}
	text := fmt.Sprintf("in_port=%s,%s,dl_src=%s,dl_dst=%s,%s_src=%s,%s_dst=%s,nw_ttl=64", port, proto, mac, gatewayMAC(m), nw, src, nw, d.flow.To)
	switch d.flow.Proto {
	case "tcp":
		text += fmt.Sprintf(",tp_src=%d,tp_dst=%d,tcp_flags=syn", d.flow.SPort, d.flow.Port)
	case "udp":
		text += fmt.Sprintf(",tp_src=%d,tp_dst=%d", d.flow.SPort, d.flow.Port)
	}
	return text, nil
}

func gatewayMAC(m *machine) string { return pipeline.GatewayMAC(m.name).String() }

// portOf returns the number of a Pod's port, by the flow that lets its packets in.
func (m *machine) portOf(s *source) (string, error) {
	units, err := m.store()
	if err != nil {
		return "", err
	}
	for _, u := range units {
		if !slices.Contains(u.About, "pod/"+s.pod) {
			continue
		}
		for _, o := range u.Objects {
			if _, after, ok := strings.Cut(o.Text, "in_port="); ok && o.Known {
				port, _, _ := strings.Cut(after, ",")
				return strings.Fields(port)[0], nil
			}
		}
	}
	return "", fmt.Errorf("the port of %s is not known", s.pod)
}
