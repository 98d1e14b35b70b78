package egress

import (
	"net/netip"
	"slices"
	"strings"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/pipeline"
)

// sources is where a Pod's traffic leaves, per family: the Egress IP, or none.
type sources struct {
	applied, rendered [2]netip.Addr
	ips               []netip.Addr // of the Pod, as last rendered: those of a Pod that is removed, too
	touched           [2]bool      // another than the applied was rendered since, if only for a moment: it may have been used
	known             bool         // applied is known: the Pod was realised before
}

func (e *Egress) renderPod(l *pipeline.List, unit, key string) {
	src := e.source[key]
	src.rendered = [2]netip.Addr{}
	p := pipeline.Of(e.env.Tables)
	sandboxes := e.env.SandboxesOf(key)
	if len(sandboxes) > 0 {
		src.ips = nil
		for _, s := range sandboxes {
			for _, p := range s.IPs {
				src.ips = append(src.ips, p.Addr())
			}
		}
	}
	for i, v6 := range []bool{false, true} {
		if _, ok := e.env.Cfg.Gateway(v6); !ok || len(sandboxes) == 0 {
			continue
		}
		_, ip, how := e.effective(key, v6)
		if how == notSelected {
			continue
		}
		if how == selected {
			src.rendered[i] = ip
		}
		for _, s := range sandboxes {
			of := e.env.OFPort(s.HostIf)
			if of == 0 {
				continue
			}
			node, pool := e.fromPool(ip)
			switch {
			case how == awaited:
				// Neither the one nor the other address until the group is here: a new Pod never begins with its
				// node's address (field bug 1).
				p.PodEgressNone(l, unit, of, v6)
			case e.isLocal(ip):
				if mark, err := e.env.Marks.Mark(ip); err == nil {
					p.PodEgressLocal(l, unit, of, v6, mark)
				} else {
					p.PodEgressNone(l, unit, of, v6)
				}
			case !e.env.Cfg.HasTunnel(), pool && node == e.env.Cfg.NodeName:
				// Without a tunnel another node cannot be asked; and an address that is about to come up
				// here is not asked for elsewhere.
				p.PodEgressNone(l, unit, of, v6)
			default:
				p.PodEgressRemote(l, unit, of, ip)
			}
		}
	}
	for i := range src.rendered {
		src.touched[i] = src.touched[i] || src.rendered[i] != src.applied[i]
	}
	e.source[key] = src
}

// effective returns the Egress that decides a Pod's source address for a family: the oldest that
// selects it and has an address. The others wait.
func (e *Egress) effective(key string, v6 bool) (*v1beta1.Egress, netip.Addr, selection) {
	for _, eg := range e.sorted {
		ip, ok := e.effectiveIP(eg)
		if !ok || ip.Is6() != v6 {
			continue
		}
		if how := e.selects(eg, e.selectorOf(eg), key); how != notSelected {
			return eg, ip, how
		}
	}
	return nil, netip.Addr{}, notSelected
}

// About returns the names of the Egresses for which a unit is there, sorted: those with the address of an
// Egress IP, and those that decide a Pod's source.
func (e *Egress) About(unit string) []string {
	var out []string
	if text, ok := strings.CutPrefix(unit, "egressip/"); ok {
		if ip, err := netip.ParseAddr(text); err == nil {
			out = slices.Clone(e.holders[ip])
		}
	} else if pod, ok := strings.CutPrefix(unit, "podegress/"); ok {
		for _, v6 := range []bool{false, true} {
			if eg, _, how := e.effective(pod, v6); how != notSelected {
				out = append(out, eg.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// realisedPod has kernel connections without an end of their own (all but TCP) of a Pod flushed whose source
// changed: the next packet is translated anew. Those of a Pod that an earlier process wired are looked at; a Pod
// that is just being added has none.
func (e *Egress) realisedPod(key string) {
	src, ok := e.source[key]
	if !ok {
		return
	}
	switch {
	case e.restored[key]:
		delete(e.restored, key)
		e.lookDue = true
	case src.known:
		e.flush(src)
	}
	src.applied, src.touched, src.known = src.rendered, [2]bool{}, true
	e.source[key] = src
	if len(e.env.SandboxesOf(key)) == 0 {
		delete(e.source, key)
		return
	}
	e.resolve(src)
}

// resolve has the tunnel neighbours of remote Egress IPs known ahead, and again when one moved.
func (e *Egress) resolve(src sources) {
	for _, ip := range src.rendered {
		if ip.IsValid() {
			e.resolveIP(ip)
		}
	}
}

// resolveIP asks for an address that another node says it holds.
func (e *Egress) resolveIP(ip netip.Addr) {
	if e.isLocal(ip) || !e.env.Cfg.HasTunnel() {
		e.remote.Forget(ip)
		return
	}
	for _, name := range e.holders[ip] {
		if eg := e.env.Egresses[name]; eg != nil && eg.Status.EgressNode != "" {
			e.remote.Want(ip, eg.Status.EgressNode)
			return
		}
	}
}

// holderChanged asks for the neighbour of an address that a Pod of this node uses, when another node
// has taken it.
func (e *Egress) holderChanged(name string) {
	ip, ok := e.effectiveIP(e.env.Egresses[name])
	if !ok {
		return
	}
	//determinism:ignore the first that matches asks; what is asked does not depend on which it was
	for _, src := range e.source {
		if src.rendered[0] == ip || src.rendered[1] == ip {
			e.resolveIP(ip)
			return
		}
	}
}
