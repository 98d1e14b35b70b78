package check

import (
	"fmt"
	"net/netip"
	"slices"

	"towtank/sim"
	"towtank/sim/packet"
)

// kept checks that connections which were there before leave the cluster with the address that new ones would (a part of
// invariant 4): the kernel of a node goes on translating a connection as it began, so the agent has to have it forget
// those without an end of their own when another Egress applies to their Pod. TCP keeps its address. It is told of Pods of
// the node only: an agent does not know which Pods of others leave by its node (docs/limits.md).
func (c *Checker) kept(n *sim.Node, pods map[netip.Addr]podFamily) []Result {
	var out []Result
	for _, e := range n.Netns().DumpConntrack() {
		f, ok := pods[e.OrigSrc.Addr()]
		if !ok || e.Proto == packet.ProtoTCP || c.externalAt(e.OrigDst.Addr()) == nil {
			continue
		}
		src, err := c.w.PodSource(f.pod)
		if err != nil || src.Node != n {
			continue
		}
		a := c.view(n).Leaves(f.pod, f.v6)
		want := a.IPs
		switch {
		case a.Plain:
			want = append(slices.Clone(want), n.Transport(f.v6))
		case !n.Netns().HasAddress(want[0]):
			continue // its packets leave by another node
		}
		c.count++
		if got := e.ReplyDst.Addr(); got != e.OrigSrc.Addr() && !slices.Contains(want, got) {
			out = append(out, Result{ID: 4, Node: n.Name(), Detail: fmt.Sprintf("a kept connection of Pod %s to %s (protocol %d) leaves with %s; %s",
				f.pod, e.OrigDst, e.Proto, got, c.wantSource(leaving{pod: f.pod, src: src, v6: f.v6}))})
		}
	}
	return out
}

// podAddresses returns which Pod has which address.
func (c *Checker) podAddresses() map[netip.Addr]podFamily {
	out := map[netip.Addr]podFamily{}
	for _, key := range c.w.RunningPods() {
		src, err := c.w.PodSource(key)
		if err != nil {
			continue
		}
		for _, v6 := range []bool{false, true} {
			if a := src.Addr(v6); a.IsValid() {
				out[a] = podFamily{key, v6}
			}
		}
	}
	return out
}
