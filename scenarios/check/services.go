package check

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/tables"
	"towtank/scenarios/reference"
	"towtank/sim"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

// servicesPerSettle is how many new connections to addresses of Services are tried after a settle. What
// is not tried now is tried after another one.
const servicesPerSettle = 32

// target is an address and port of a Service, or one that no Service has.
type target struct {
	at    netip.AddrPort
	proto uint8
	node  *sim.Node // of a NodePort: whose address it is
	inner bool      // a ClusterIP: of no use outside the cluster
}

// dial is a new connection to be tried: a client, an address, and the node that decides what becomes
// of it.
type dial struct {
	target
	src     *sim.Source
	client  reference.Client
	decider *sim.Node
	next    *sim.Node // of an external client
}

// firstPackets is how many packets may be lost on a path that was not used for long: one each way asks
// for a neighbour.
const firstPackets = 2

// unserved is a port that no Service of a scenario has.
const unserved = 9

// targets lists what can be dialled: every port of every Service on each of its addresses, a port that is
// not served on each, and an address of the Service network that no Service has.
func (c *Checker) targets() []target {
	var out []target
	used := map[netip.Addr]bool{}
	for _, o := range c.w.Kube.List(kube.KindService) {
		svc := o.(*corev1.Service)
		var addrs []target
		add := func(text string, inner bool) {
			if ip, err := netip.ParseAddr(text); err == nil {
				used[ip] = true
				addrs = append(addrs, target{at: netip.AddrPortFrom(ip, 0), inner: inner})
			}
		}
		for _, ip := range svc.Spec.ClusterIPs {
			add(ip, true)
		}
		for _, ip := range svc.Spec.ExternalIPs {
			add(ip, false)
		}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			add(in.IP, false)
		}
		for _, a := range addrs {
			for _, p := range svc.Spec.Ports {
				out = append(out, target{netip.AddrPortFrom(a.at.Addr(), uint16(p.Port)), protoOf(p.Protocol), nil, a.inner})
			}
			out = append(out, target{netip.AddrPortFrom(a.at.Addr(), unserved), packet.ProtoTCP, nil, a.inner})
		}
		for _, p := range svc.Spec.Ports {
			if p.NodePort == 0 {
				continue
			}
			for _, n := range c.w.Nodes() {
				for _, v6 := range []bool{false, true} {
					if a := n.Transport(v6); a.IsValid() {
						out = append(out, target{netip.AddrPortFrom(a, uint16(p.NodePort)), protoOf(p.Protocol), n, false})
					}
				}
			}
		}
	}
	for _, cidr := range c.opts.ServiceCIDRs {
		a := cidr.Addr().Next()
		for used[a] || a == cidr.Addr().Next() {
			a = a.Next()
		}
		if cidr.Contains(a) {
			out = append(out, target{netip.AddrPortFrom(a, 80), packet.ProtoTCP, nil, true})
		}
	}
	return out
}

func protoOf(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return packet.ProtoUDP
	case corev1.ProtocolSCTP:
		return packet.ProtoSCTP
	}
	return packet.ProtoTCP
}

// clients lists who can dial: Pods and nodes where all is quiet, and external hosts.
func (c *Checker) clients(quiet map[string]bool) []*sim.Source {
	var out []*sim.Source
	for _, key := range c.w.RunningPods() {
		if src, err := c.w.PodSource(key); err == nil && src.NS != nil && src.Node != nil && quiet[src.Node.Name()] {
			out = append(out, src)
		}
	}
	for _, n := range c.w.Nodes() {
		if quiet[n.Name()] {
			out = append(out, c.w.NodeSource(n))
		}
	}
	for _, x := range c.w.Externals() {
		out = append(out, c.w.ExternalSource(x))
	}
	return out
}

// dialOf says how a client dials a target, false if it cannot, or if nothing is said about it. turn
// chooses the node by which an external host goes.
func (c *Checker) dialOf(src *sim.Source, t target, quiet map[string]bool, turn int) (dial, bool) {
	v6 := t.at.Addr().Is6()
	d := dial{target: t, src: src, client: reference.Client{Addr: src.Addr(v6), Kind: reference.LocalPod}, decider: src.Node}
	if !d.client.Addr.IsValid() || t.node != nil && !quiet[t.node.Name()] {
		return d, false
	}
	switch {
	case src.Ext != nil:
		if t.inner || !c.opts.ProxyAll {
			return d, false
		}
		if t.node == nil && (len(c.w.Holders(t.at.Addr())) > 0 || src.Ext.Net() != "") {
			return d, false // who is asked is what the host knows of its neighbours, or its router
		}
		d.next = t.node
		for i := 0; i < len(c.w.Nodes()) && d.next == nil; i++ {
			if n := c.w.Nodes()[(turn+i)%len(c.w.Nodes())]; quiet[n.Name()] {
				d.next = n
			}
		}
		if d.next == nil || !c.w.Reachable(src.Name, d.next.Name()) {
			return d, false
		}
		d.client.Kind, d.decider = reference.Outside, d.next
	case t.node != nil && t.node != src.Node:
		// What is dialled on another node leaves this one with its transport address.
		d.client = reference.Client{Addr: src.Node.Transport(v6), Kind: reference.Outside}
		d.decider = t.node
	case src.Pod == "":
		d.client.Kind = reference.ThisNode
		// An Egress IP that is a Service's address, too, is answered where it is.
		holders := c.w.Holders(t.at.Addr())
		if t.node != nil || len(holders) == 0 || holders[0] == src.Node.Name() || !c.isEgressIP(t.at.Addr()) {
			break
		}
		h := c.w.Node(holders[0])
		if len(holders) > 1 || h == nil || !quiet[h.Name()] {
			return d, false
		}
		d.client = reference.Client{Addr: src.Node.Transport(v6), Kind: reference.Outside}
		d.decider = h
	}
	return d, true
}

// isEgressIP reports whether an Egress has an address, or is to have it.
func (c *Checker) isEgressIP(ip netip.Addr) bool {
	for _, o := range c.w.Kube.List(kube.KindEgress) {
		if e, ok := o.(*v1beta1.Egress); ok && slices.Contains(tables.EgressAddresses(e), ip) {
			return true
		}
	}
	return false
}

func (c *Checker) quietNodes() map[string]bool {
	quiet := map[string]bool{}
	for _, n := range c.w.Nodes() {
		quiet[n.Name()] = n.Unquiet() == ""
	}
	return quiet
}

// services checks invariant 5 with some of the connections that could be made.
func (c *Checker) services() []Result {
	quiet := c.quietNodes()
	clients, targets := c.clients(quiet), c.targets()
	total := len(clients) * len(targets)
	if total == 0 || len(c.w.Kube.List(kube.KindService)) == 0 || !c.w.CanPeek() {
		return nil
	}
	views := map[*sim.Node]*reference.View{}
	for _, n := range c.w.Nodes() {
		views[n] = c.view(n)
	}
	var out []Result
	err := c.w.Peek(func(probe func(sim.Flow) (sim.Result, error)) {
		for range min(total, servicesPerSettle) {
			c.dialled++
			// Neighbours in the list have another client and another target.
			i := c.dialled % total
			src, t := clients[i%len(clients)], targets[(i/len(clients)+i)%len(targets)]
			d, ok := c.dialOf(src, t, quiet, c.dialled)
			if !ok {
				continue
			}
			v := views[d.decider]
			answer := v.Dial(d.client, t.at, t.proto)
			if !answer.Known {
				continue
			}
			c.count++
			f := sim.Flow{From: src, To: t.at.Addr(), Port: t.at.Port(), Proto: t.proto, Next: d.next}
			metered := d.decider.Switch().Counters().Metered
			r, err := probe(f)
			for range firstPackets {
				if err == nil && r.Verdict == sim.Drop && !answer.Allows(reference.Drop) {
					r, err = probe(f)
				}
			}
			if err != nil {
				out = append(out, Result{ID: 5, Node: d.decider.Name(), Detail: err.Error()})
				continue
			}
			if d.decider.Switch().Counters().Metered != metered {
				continue // a scenario has used up what refusals are limited to
			}
			if why := c.judgeDial(&d, v, &answer, r); why != "" && !c.meetsBalancer(&d, &answer) {
				out = append(out, Result{ID: 5, Node: d.decider.Name(), Detail: fmt.Sprintf(
					"%s -> %s/%s: %s; %s: want %s", src.Name, t.at, packet.ProtoName(t.proto), why, answer.Why, wantDial(&answer))})
			}
		}
	})
	if err != nil {
		out = append(out, Result{ID: 5, Detail: err.Error()})
	}
	return out
}

func wantDial(a *reference.Answer) string {
	if len(a.Backends) == 0 {
		return fmt.Sprint(a.Verdicts)
	}
	return fmt.Sprintf("%v from one of %v", a.Verdicts, a.Backends)
}

// judgeDial says what is wrong with what a connection experienced, "" if nothing is.
func (c *Checker) judgeDial(d *dial, v *reference.View, a *reference.Answer, r sim.Result) string {
	switch r.Verdict {
	case sim.OK:
		if !a.Allows(reference.OK) {
			return "answered by " + r.Backend
		}
		if r.To == d.at.Addr() && c.opts.DSR {
			return "" // who answers has the address of the Service
		}
		at := netip.AddrPortFrom(r.To, r.Port)
		if !slices.Contains(a.Backends, at) {
			return fmt.Sprintf("answered by %s (%s)", at, r.Backend)
		}
		if !v.SourceAt(d.client, at, r.Source, a.Local) {
			return fmt.Sprintf("%s sees the source %s", at, r.Source)
		}
	case sim.Reject:
		if !a.Allows(reference.Reject) && !slices.ContainsFunc(a.Backends, func(b netip.AddrPort) bool { return !c.listens(b, d.proto) }) {
			return "refused"
		}
	default:
		if !a.Allows(reference.Drop) && c.w.NetworkSettled() && !slices.ContainsFunc(a.Backends, func(b netip.AddrPort) bool { return c.silent(b, d) }) && !c.w.Lossy() {
			return "silence (" + r.Note + ")"
		}
	}
	return ""
}

func (c *Checker) listens(at netip.AddrPort, proto uint8) bool {
	_, ok := c.w.Answers(at, proto)
	return ok
}

// silent reports whether an endpoint need not answer: it does not exist, or its machine is off, cut off,
// or not quiet.
func (c *Checker) silent(at netip.AddrPort, d *dial) bool {
	machine, ok := c.w.Answers(at, d.proto)
	if !ok {
		return true
	}
	if n := c.w.Node(machine); n != nil && n.Unquiet() != "" {
		return true
	}
	if d.client.Kind == reference.LocalPod && c.podNetwork(at.Addr()) == nil {
		// It may leave the cluster by an Egress, whose address may be on no node.
		if a := c.view(d.decider).Leaves(d.src.Pod, at.Addr().Is6()); a.Awaited || len(a.IPs) > 0 {
			return true
		}
	}
	return machine != "" && !c.w.Reachable(machine, d.decider.Name())
}
