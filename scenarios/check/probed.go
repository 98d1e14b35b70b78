package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"towtank/scenarios/reference"
	"towtank/sim"
	"towtank/sim/packet"
)

// Probed compares what a scenario's probe experienced with the reference model, if nothing has happened
// since the last AfterSettle: invariants 3 and 4 for one that leaves the cluster, 5 for one to a
// Service, 7 (Pods and nodes reach every Pod) for one straight to a Pod. Nothing is returned where the
// model has nothing to say.
func (c *Checker) Probed(f sim.Flow, r sim.Result) []Result {
	if c.moment() != c.last || f.HTTP || f.Bind.IsValid() || !f.To.IsValid() || f.From.NS == nil || f.Size > 0 || !c.w.CanPeek() {
		return nil
	}
	quiet := c.quietNodes()
	for _, n := range c.w.Nodes() {
		// An agent that was just started has heard nothing yet.
		quiet[n.Name()] = quiet[n.Name()] && n.Idle()
	}
	if f.From.Node != nil && !quiet[f.From.Node.Name()] {
		return nil
	}
	var res *Result
	icmp := f.Proto == packet.ProtoICMP || f.Proto == packet.ProtoICMPv6
	if d, ok := c.serviceDial(f, quiet); ok && !icmp {
		res = c.probedService(&d, f, r)
	} else if x := c.externalAt(f.To); x != nil && f.From.Pod != "" {
		res = c.probedOutside(x, f, r, quiet)
	} else {
		res = c.probedPod(f, r, quiet)
	}
	if res == nil {
		return nil
	}
	return []Result{*res}
}

// serviceDial returns the dial of a flow to an address of a Service, or of the Service network.
func (c *Checker) serviceDial(f sim.Flow, quiet map[string]bool) (dial, bool) {
	at := netip.AddrPortFrom(f.To, f.Port)
	var t *target
	for _, x := range c.targets() {
		if x.at.Addr() != f.To || x.node != nil && (x.at != at || x.proto != f.Proto) {
			continue // a node's address is a Service's for its node ports only
		}
		t = &target{at, f.Proto, x.node, x.inner}
		if x.at == at {
			break
		}
	}
	if t == nil && inCIDRs(c.opts.ServiceCIDRs, f.To) {
		t = &target{at, f.Proto, nil, true}
	}
	if t == nil || f.From.Ext != nil && t.node == nil && (f.Next == nil || f.From.Ext.Net() != "") {
		return dial{}, false
	}
	d, ok := c.dialOf(f.From, *t, quiet, 0)
	if ok && f.From.Ext != nil && t.node == nil {
		if !quiet[f.Next.Name()] || !c.w.Reachable(f.From.Name, f.Next.Name()) {
			return d, false
		}
		d.next, d.decider = f.Next, f.Next
	}
	return d, ok && quiet[d.decider.Name()]
}

func inCIDRs(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// probedService judges a probe to an address of a Service (invariant 5).
func (c *Checker) probedService(d *dial, f sim.Flow, r sim.Result) *Result {
	v := c.view(d.decider)
	answer := v.Dial(d.client, d.at, d.proto)
	if !answer.Known {
		return nil
	}
	c.count++
	if r.Verdict == sim.Drop && !answer.Allows(reference.Drop) {
		metered := d.decider.Switch().Counters().Metered
		r = c.again(f, r)
		if d.decider.Switch().Counters().Metered != metered {
			return nil
		}
	}
	why := c.judgeDial(d, v, &answer, r)
	if why == "" || c.meetsBalancer(d, &answer) {
		return nil
	}
	return &Result{
		ID: 5, Node: d.decider.Name(), Want: wantText(&answer),
		Detail: fmt.Sprintf("%s -> %s/%s: %s; %s: want %s", d.src.Name, d.at, packet.ProtoName(d.proto), why, answer.Why, wantDial(&answer)),
	}
}

// wantText writes what the reference model expects as a scenario does.
func wantText(a *reference.Answer) string {
	if len(a.Verdicts) != 1 {
		return ""
	}
	text := "expect " + string(a.Verdicts[0])
	var at []string
	for _, b := range a.Backends {
		at = append(at, b.String())
	}
	if len(at) > 0 {
		text += " backend=" + strings.Join(at, "|")
	}
	return text
}

// again tries a silent flow anew, without a trace: the first packets of a path that was not used for long
// may be lost.
func (c *Checker) again(f sim.Flow, r sim.Result) sim.Result {
	f.SPort = 0
	err := c.w.Peek(func(probe func(sim.Flow) (sim.Result, error)) {
		for range firstPackets {
			if x, err := probe(f); err == nil && r.Verdict == sim.Drop {
				r = x
			}
		}
	})
	if err != nil {
		r.Note = err.Error()
	}
	return r
}

func (c *Checker) externalAt(a netip.Addr) *sim.External {
	for _, x := range c.w.Externals() {
		if x.Addr(a.Is6()) == a {
			return x
		}
	}
	return nil
}

// probedOutside judges a probe of a Pod to an external host (invariants 3 and 4).
func (c *Checker) probedOutside(x *sim.External, f sim.Flow, r sim.Result, quiet map[string]bool) *Result {
	if !x.Netns().Listens(netip.AddrPortFrom(f.To, f.Port), f.Proto) {
		return nil
	}
	all := c.w.GossipSettled() && c.w.NetworkSettled()
	for _, n := range c.w.Nodes() {
		all = all && quiet[n.Name()] && c.w.Reachable(n.Name(), x.Name())
	}
	c.count++
	if all && !r.Arrived {
		r = c.again(f, r)
	}
	l := leaving{pod: f.From.Pod, src: f.From, ext: x, v6: f.To.Is6(), at: f.Port}
	res := c.judgeLeaving(l, r, c.knownHolders(all))
	if res == nil || c.isBalancer(x) {
		return nil
	}
	a := c.view(f.From.Node).Leaves(l.pod, l.v6)
	var sources []string
	for _, ip := range a.IPs {
		sources = append(sources, ip.String())
	}
	if a.Plain {
		sources = append(sources, f.From.Node.Transport(l.v6).String())
	}
	res.Want = "expect ok source=" + strings.Join(sources, "|")
	return res
}

// probedPod judges a probe of a Pod or a node straight to a Pod (invariant 7).
func (c *Checker) probedPod(f sim.Flow, r sim.Result, quiet map[string]bool) *Result {
	if f.From.Node == nil || c.w.Lossy() || !c.w.NetworkSettled() {
		return nil
	}
	for _, key := range c.w.RunningPods() {
		dst, err := c.w.PodSource(key)
		if err != nil || dst.NS == nil || dst.Addr(f.To.Is6()) != f.To {
			continue
		}
		if dst.Node == nil || !quiet[dst.Node.Name()] || !c.w.Reachable(f.From.Node.Name(), dst.Node.Name()) {
			return nil
		}
		c.count++
		return c.judgePod(f, r, key, dst)
	}
	return nil
}

func (c *Checker) judgePod(f sim.Flow, r sim.Result, key string, dst *sim.Source) *Result {
	want := sim.OK
	if icmp := f.Proto == packet.ProtoICMP || f.Proto == packet.ProtoICMPv6; !icmp && !dst.NS.Listens(netip.AddrPortFrom(f.To, f.Port), f.Proto) {
		want = sim.Reject
	}
	if r.Verdict == sim.Drop {
		r = c.again(f, r)
	}
	why := ""
	switch {
	case r.Verdict != want:
		why = fmt.Sprintf("got %s (%s)", r.Verdict, r.Note)
	case want == sim.OK && r.Backend != key:
		why = "answered by " + r.Backend
	case f.From.Pod != "" && want == sim.OK && r.Source.IsValid() && r.Source != f.From.Addr(f.To.Is6()):
		why = "it sees the source " + r.Source.String()
	default:
		return nil
	}
	text := "expect " + string(want)
	if want == sim.OK {
		text += " backend=" + key
	}
	return &Result{
		ID: 7, Node: dst.Node.Name(), Want: text,
		Detail: fmt.Sprintf("%s -> Pod %s, %s:%d/%s: %s; want %s", f.From.Name, key, f.To, f.Port, packet.ProtoName(f.Proto), why, want),
	}
}
