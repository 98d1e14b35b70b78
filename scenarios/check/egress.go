package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/scenarios/reference"
	"towtank/sim"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

// egressPerSettle is how many new connections from Pods to the outside are tried after a settle, and
// egressPerStep how many after an effect that could change their source.
const (
	egressPerSettle = 12
	egressPerStep   = 2
)

// leaving is a new connection from a Pod to an external host.
type leaving struct {
	pod string
	src *sim.Source
	ext *sim.External
	v6  bool
	at  uint16
}

// servedPort returns a TCP port that an external host serves, 0 if there is none.
func servedPort(x *sim.External) uint16 {
	for _, l := range x.Netns().Listening() {
		var port uint16
		if _, err := fmt.Sscanf(l, "tcp %d", &port); err == nil {
			return port
		}
	}
	return 0
}

// leavings lists the connections that can be tried: of every Pod, to every external host.
func (c *Checker) leavings(pods []string) []leaving {
	var out []leaving
	for _, key := range pods {
		src, err := c.w.PodSource(key)
		if err != nil || src.NS == nil || src.Node == nil {
			continue
		}
		for _, x := range c.w.Externals() {
			port := servedPort(x)
			for _, v6 := range []bool{false, true} {
				if port != 0 && x.Addr(v6).IsValid() && src.Addr(v6).IsValid() {
					out = append(out, leaving{key, src, x, v6, port})
				}
			}
		}
	}
	return out
}

func (l *leaving) flow() sim.Flow {
	return sim.Flow{From: l.src, To: l.ext.Addr(l.v6), Port: l.at, Proto: packet.ProtoTCP}
}

// AtStep checks what must hold after every effect of any agent: what was seen of frames meanwhile, and
// with which address those Pods leave that the effect could matter to (invariant 4).
func (c *Checker) AtStep() []Result {
	out := c.noticed()
	for _, n := range c.w.Nodes() {
		s := c.of(n)
		if s.effects == n.Effects() {
			continue
		}
		s.effects = n.Effects()
		if e, ok := n.LastEffect(); ok {
			out = append(out, c.atEffect(n, e)...)
		}
	}
	return append(out, c.noticed()...)
}

// atEffect tries connections of Pods that an effect could matter to.
func (c *Checker) atEffect(n *sim.Node, e sim.Entry) []Result {
	if len(c.w.Externals()) == 0 {
		return nil
	}
	switch e.Class {
	case sim.EffectSwitch, sim.EffectPorts, sim.EffectMeters, sim.EffectIPTables, sim.EffectAddress, sim.EffectRoute, sim.EffectIPSet:
	default:
		return nil
	}
	all := c.w.RunningPods()
	if len(all) == 0 {
		return nil
	}
	var pods []string
	for _, u := range e.Units {
		if pod, ok := strings.CutPrefix(u, "podegress/"); ok && slices.Contains(all, pod) {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		c.turn++
		pods = []string{all[c.turn%len(all)]}
	}
	list := c.leavings(pods)
	if len(list) == 0 {
		return nil
	}
	return c.tryLeaving(c.some(list, egressPerStep), nil)
}

// some returns at most k of a list, other ones each time.
func (c *Checker) some(list []leaving, k int) []leaving {
	if len(list) <= k {
		return list
	}
	out := make([]leaving, k)
	for i := range out {
		c.turn++
		out[i] = list[c.turn%len(list)]
	}
	return out
}

// tryLeaving tries connections and compares their sources with what the Pods' nodes were told. With
// holders, which node holds which Egress IP now, the connections must also arrive, from there.
func (c *Checker) tryLeaving(list []leaving, holders map[netip.Addr]string) []Result {
	if !c.w.CanPeek() {
		return nil
	}
	var out []Result
	err := c.w.Peek(func(probe func(sim.Flow) (sim.Result, error)) {
		for _, l := range list {
			c.count++
			r, err := probe(l.flow())
			for range firstPackets {
				if err == nil && !r.Arrived && holders != nil {
					r, err = probe(l.flow())
				}
			}
			if err != nil {
				out = append(out, Result{ID: 4, Node: l.src.Node.Name(), Detail: err.Error()})
				continue
			}
			if res := c.judgeLeaving(l, r, holders); res != nil && !c.isBalancer(l.ext) {
				out = append(out, *res)
			}
		}
	})
	if err != nil {
		out = append(out, Result{ID: 4, Detail: err.Error()})
	}
	return out
}

func (c *Checker) judgeLeaving(l leaving, r sim.Result, holders map[netip.Addr]string) *Result {
	n := l.src.Node
	what := fmt.Sprintf("a new connection from Pod %s to %s", l.pod, l.ext.Name())
	if r.Arrived {
		allowed := func(v *reference.View) bool {
			a := v.Leaves(l.pod, l.v6)
			return slices.Contains(a.IPs, r.Source) || a.Plain && r.Source == n.Transport(l.v6)
		}
		if !c.ever(n, allowed) {
			return &Result{ID: 4, Node: n.Name(), Detail: fmt.Sprintf("%s has source %s; %s", what, r.Source, c.wantSource(l))}
		}
	}
	if holders == nil {
		return nil
	}
	a := c.view(n).Leaves(l.pod, l.v6)
	if !r.Arrived {
		if c.mayVanish(a, holders) {
			return nil
		}
		return &Result{ID: 3, Node: n.Name(), Detail: fmt.Sprintf("%s does not arrive (%s); %s", what, r.Note, c.wantSource(l))}
	}
	if h := holders[r.Source]; slices.Contains(a.IPs, r.Source) && h != "" && r.Via != h {
		return &Result{ID: 3, Node: n.Name(), Detail: fmt.Sprintf("%s leaves from node %s, the Egress IP %s is on %s", what, r.Via, r.Source, h)}
	}
	return nil
}

// mayVanish reports whether a connection may be dropped: its Pod waits for a group, or it is to have an
// Egress IP that no node holds, which cannot be reached without a tunnel, or which is limited.
func (c *Checker) mayVanish(a reference.Leaving, holders map[netip.Addr]string) bool {
	if a.Awaited || len(a.IPs) == 0 {
		return a.Awaited
	}
	for _, o := range c.w.Kube.List(kube.KindEgress) {
		if eg := o.(*v1beta1.Egress); eg.Name == a.Egress && eg.Spec.Bandwidth != nil {
			return true
		}
	}
	return len(a.IPs) > 1 || holders[a.IPs[0]] == "" || !c.opts.Tunnelled
}

func (c *Checker) wantSource(l leaving) string {
	a := c.view(l.src.Node).Leaves(l.pod, l.v6)
	switch {
	case a.Egress == "":
		return fmt.Sprintf("no Egress applies: want %s", l.src.Node.Transport(l.v6))
	case a.Plain:
		return fmt.Sprintf("Egress %s may apply: want %v or %s", a.Egress, a.IPs, l.src.Node.Transport(l.v6))
	}
	return fmt.Sprintf("Egress %s applies: want %v", a.Egress, a.IPs)
}

// egress checks invariant 3 after a settle, and tries some of the Pods' connections.
func (c *Checker) egress() []Result {
	var out []Result
	quiet := c.w.GossipSettled()
	for _, n := range c.w.Nodes() {
		quiet = quiet && n.Unquiet() == ""
	}
	out = append(out, c.holdings(quiet)...)
	holders := c.knownHolders(quiet)
	var list []leaving
	if len(c.w.Externals()) > 0 {
		list = c.leavings(c.w.RunningPods())
	}
	if holders != nil {
		list = slices.DeleteFunc(list, func(l leaving) bool {
			return slices.ContainsFunc(c.w.Nodes(), func(n *sim.Node) bool { return !c.w.Reachable(n.Name(), l.ext.Name()) })
		})
	}
	if len(list) == 0 {
		return out
	}
	return append(out, c.tryLeaving(c.some(list, egressPerSettle), holders)...)
}

// knownHolders is holders as text, nil if what arrives cannot be told from who holds which address: not
// every node is quiet, or packets are lost.
func (c *Checker) knownHolders(quiet bool) map[netip.Addr]string {
	if !quiet || c.w.Lossy() {
		return nil
	}
	out := map[netip.Addr]string{}
	for ip, nodes := range c.holders() {
		out[ip] = strings.Join(nodes, " and ")
	}
	return out
}

// holders returns which nodes hold an address of an Egress, by address.
func (c *Checker) holders() map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	for _, o := range c.w.Kube.List(kube.KindEgress) {
		ip, err := netip.ParseAddr(o.(*v1beta1.Egress).Spec.EgressIP)
		if err != nil || out[ip] != nil {
			continue
		}
		for _, n := range c.w.Nodes() {
			if n.Up() && n.Netns().HasAddress(ip) {
				out[ip] = append(out[ip], n.Name())
			}
		}
	}
	return out
}

// holdings checks who holds the Egress IPs of pools: of nodes that are quiet, at most one; if all are,
// exactly one if it has a place, which the status names.
func (c *Checker) holdings(allQuiet bool) []Result {
	if !c.w.GossipSettled() || len(c.w.Nodes()) == 0 {
		return nil
	}
	places := c.view(c.w.Nodes()[0]).Schedule()
	holders := c.holders()
	var out []Result
	fail := func(format string, args ...any) {
		out = append(out, Result{ID: 3, Detail: fmt.Sprintf(format, args...)})
	}
	for _, ip := range slices.SortedFunc(maps.Keys(places), netip.Addr.Compare) {
		c.count++
		held := holders[ip]
		running := slices.DeleteFunc(slices.Clone(held), func(name string) bool { return c.w.Node(name).UnquietHost() != "" })
		if len(running) > 1 {
			fail("Egress IP %s is on %s", ip, strings.Join(running, " and "))
			continue
		}
		if !allQuiet {
			continue
		}
		switch p := places[ip]; {
		case p.Fate == reference.Placed && len(held) == 0:
			fail("Egress IP %s is on no node; %s could hold it", ip, strings.Join(p.Nodes, ", "))
		case p.Fate == reference.Unplaced && len(held) > 0:
			fail("Egress IP %s is on %s, where it has no place", ip, held[0])
		case len(held) == 1 && !slices.Contains(p.Nodes, held[0]):
			fail("Egress IP %s is on %s; its pool selects %s", ip, held[0], strings.Join(p.Nodes, ", "))
		}
	}
	if allQuiet {
		c.statuses(holders, fail)
		c.groups(fail)
	}
	return out
}

// groups checks that every EgressGroup has the Pods that its Egress picks, and no others.
func (c *Checker) groups(fail func(string, ...any)) {
	if n := c.w.Controller(); !c.byGroup() || n.Unquiet() != "" {
		return
	}
	all := &reference.View{Pods: map[string]*corev1.Pod{}, Namespaces: map[string]*corev1.Namespace{}}
	for _, o := range c.w.Kube.List(kube.KindPod) {
		if pod := o.(*corev1.Pod); pod.Spec.NodeName != "" {
			all.Pods[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	for _, o := range c.w.Kube.List(kube.KindNamespace) {
		ns := o.(*corev1.Namespace)
		all.Namespaces[ns.Name] = ns
	}
	for _, o := range c.w.Kube.List(kube.KindEgress) {
		eg := o.(*v1beta1.Egress)
		var want, got []string
		for _, key := range slices.Sorted(maps.Keys(all.Pods)) {
			if all.Picks(eg, key) {
				want = append(want, key)
			}
		}
		if g, err := c.w.Kube.Get(kube.KindEgressGroup, "", eg.Name); err == nil {
			for _, m := range g.(*v1beta1.EgressGroup).GroupMembers {
				got = append(got, m.Pod.Namespace+"/"+m.Pod.Name)
			}
		}
		c.count++
		if slices.Sort(got); !slices.Equal(got, want) {
			fail("Egress %s picks %v; its EgressGroup has %v", eg.Name, want, got)
		}
	}
}

// statuses checks that the status of every Egress names the node that holds its address.
func (c *Checker) statuses(holders map[netip.Addr][]string, fail func(string, ...any)) {
	for _, o := range c.w.Kube.List(kube.KindEgress) {
		eg := o.(*v1beta1.Egress)
		ip, err := netip.ParseAddr(eg.Spec.EgressIP)
		if err != nil || len(holders[ip]) > 1 {
			continue
		}
		c.count++
		want := ""
		if len(holders[ip]) == 1 {
			want = holders[ip][0]
		}
		if eg.Status.EgressNode != want {
			fail("the status of Egress %s names node %q; %s is on %q", eg.Name, eg.Status.EgressNode, ip, want)
		} else if want != "" && eg.Status.EgressIP != ip.String() {
			fail("the status of Egress %s names address %q; it has %s", eg.Name, eg.Status.EgressIP, ip)
		}
	}
}
