package egress

import (
	"net/netip"
	"slices"

	"towtank/agent/config"
	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/datapath/openflow"
)

// flush has the kernel forget the connections of a Pod in the families whose source changed. A Pod that is being removed may
// still send, while its Egress IP goes as well.
func (e *Egress) flush(src sources) {
	var tuples []datapath.Tuple
	for i, v6 := range []bool{false, true} {
		if !src.touched[i] {
			continue
		}
		for _, ip := range src.ips {
			if ip.Is6() != v6 {
				continue
			}
			for _, proto := range []uint8{protoUDP, protoSCTP, icmpOf(v6)} {
				tuples = append(tuples, datapath.Tuple{Proto: proto, Source: ip})
				if e.env.Cfg.Traffic == config.Hybrid {
					// What left by another node may have been answered without a tunnel: the kernel took that for a
					// connection to the Pod, and the Pod's next packet for an answer, which is not translated.
					tuples = append(tuples, datapath.Tuple{Proto: proto, Frontend: netip.AddrPortFrom(ip, 0)})
				}
			}
		}
	}
	if len(tuples) > 0 {
		e.env.Decide("egress/flush")
	}
	e.conns.Flush(tuples)
}

// staleConns selects the connections of this node's Pods that leave with another address than the one that is
// effective. TCP connections are left to their ends.
func (e *Egress) staleConns(entries []datapath.ConntrackEntry) []datapath.Tuple {
	pods := map[netip.Addr]sources{}
	for _, key := range e.env.PodsWithSandbox() {
		if src := e.source[key]; src.known {
			for _, s := range e.env.SandboxesOf(key) {
				for _, p := range s.IPs {
					pods[p.Addr()] = src
				}
			}
		}
	}
	var except []netip.Prefix
	var tuples []datapath.Tuple
	for _, c := range entries {
		from := c.OrigSrc.Addr()
		src, ours := pods[from]
		// What is not translated does not leave the cluster.
		if !ours || c.Proto == openflow.ProtoTCP || c.ReplyDst.Addr() == from {
			continue
		}
		want := src.applied[0]
		if from.Is6() {
			want = src.applied[1]
		}
		if want.IsValid() {
			if except == nil {
				except = e.exempt()
			}
			if slices.ContainsFunc(except, func(p netip.Prefix) bool { return p.Contains(c.OrigDst.Addr()) }) {
				want = netip.Addr{}
			}
		}
		made := c.Mark&pipeline.MarkMask != 0 // by an Egress, whichever
		if want.IsValid() && c.ReplyDst.Addr() != want || !want.IsValid() && made {
			tuples = append(tuples, datapath.Tuple{Proto: c.Proto, Frontend: c.OrigDst, Backend: c.ReplySrc, Source: from})
		}
	}
	if len(tuples) > 0 {
		e.env.Decide("egress/flush-stale")
	}
	return tuples
}

// exempt returns the destinations that Egress does not apply to: nodes, Services, and what the configuration names.
func (e *Egress) exempt() []netip.Prefix {
	out := slices.Concat(e.env.Cfg.ExceptCIDRs, e.env.Cfg.ServiceCIDRs)
	for _, v6 := range []bool{false, true} {
		if own, ok := e.env.Cfg.Transport(v6); ok {
			out = append(out, netip.PrefixFrom(own, own.BitLen()))
		}
	}
	//determinism:ignore they are only searched
	for name, n := range e.env.Nodes {
		if name == e.env.Cfg.NodeName {
			continue
		}
		for _, a := range tables.NodeAddresses(n) {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}
