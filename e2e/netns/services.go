//go:build linux

package netns

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"towtank/scenarios"
	"towtank/scenarios/check"
	"towtank/scenarios/reference"
	"towtank/sim"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

// Invariant 5 on real nodes: what a new connection to a Service experiences is compared with the reference model, if
// everybody was done with everything, nothing was written since, and nothing disturbs a node. That are the probes of the
// scenario, and at its end, when nothing comes after that they could disturb, some of the connections that there could
// be. In between none is tried: a real node cannot take back what a packet did.

// triedAtEnd is how many connections are tried at the end of a file.
const triedAtEnd = 12

// calm reports whether what connections experience can be told from the API.
func (c *cluster) calm() bool {
	c.mu.Lock()
	at := c.settled
	c.mu.Unlock()
	return at != 0 && at == c.version() && !c.wasCut() && !slices.ContainsFunc(c.machines, func(m *machine) bool { return !m.quiet() || m.touched() })
}

// touched reports whether somebody changed the machine since the last audit.
func (m *machine) touched() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hand
}

// decides says which node decides what becomes of a connection, and as whom it sees the client; nil: nothing is said.
func (c *cluster) decides(f scenarios.Flow, from *source) (*machine, reference.Client) {
	v6 := f.To.Is6()
	client := reference.Client{Addr: from.Addr(v6), Kind: reference.LocalPod}
	decider := from.m
	at := slices.IndexFunc(c.machines, func(m *machine) bool { return m.Transport(v6) == f.To })
	if at < 0 && c.wire.holds(f.To) {
		return nil, client // of an Egress and of a Service: who is asked depends on who asks
	}
	switch {
	case from.x != nil:
		if in(referenceOptions(c.opts).ServiceCIDRs, f.To) || !c.opts.ProxyAll {
			return nil, client
		}
		client.Kind = reference.Outside
		switch next, _ := f.Next.(*machine); {
		case at >= 0:
			decider = c.machines[at]
		case next != nil:
			decider = next
		case from.x.next != nil:
			decider = from.x.next
		case len(c.machines) > 0:
			decider = c.machines[0]
		}
	case at >= 0 && c.machines[at] != from.m:
		// What is dialled on another node leaves this one with its transport address.
		client = reference.Client{Addr: from.m.Transport(v6), Kind: reference.Outside}
		decider = c.machines[at]
	case from.pod == "":
		client.Kind = reference.ThisNode
	}
	return decider, client
}

// probed compares what a new connection experienced with the reference model; nil if it is as it should be, or if the
// model has nothing to say.
func (c *cluster) probed(f scenarios.Flow, r sim.Result) *check.Result {
	from, _ := f.From.(*source)
	if from == nil || from.space == nil || f.HTTP || f.Size > 0 || f.SPort != 0 || f.Proto != packet.ProtoTCP && f.Proto != packet.ProtoUDP || !c.calm() {
		return nil
	}
	decider, client := c.decides(f, from)
	if decider == nil || !client.Addr.IsValid() {
		return nil
	}
	var v *reference.View
	alive := c.alive()
	c.api.Do(func(k *kube.Cluster) { v = withServices(k, viewOf(k, decider.name, c.opts, alive)) })
	at := netip.AddrPortFrom(f.To, f.Port)
	a := v.Dial(client, at, f.Proto)
	if !a.Known {
		return nil
	}
	if from.x != nil && (v.Serves(client.Addr) || c.external(c.owner(f.To)) != nil) {
		return nil // the host is the Service's load balancer: whose its address is on the nodes is the Service
	}
	why := c.wrong(f, r, v, &a, client)
	if why == "" || !c.calm() {
		return nil
	}
	want := fmt.Sprint(a.Verdicts)
	if len(a.Backends) > 0 {
		want += fmt.Sprintf(" from one of %v", a.Backends)
	}
	return &check.Result{ID: 5, Node: decider.name, Detail: fmt.Sprintf("%s -> %s/%s: %s; %s: want %s", from.name, at, packet.ProtoName(f.Proto), why, a.Why, want)}
}

// wrong says what is wrong with what a connection experienced, "" if nothing is.
func (c *cluster) wrong(f scenarios.Flow, r sim.Result, v *reference.View, a *reference.Answer, client reference.Client) string {
	switch r.Verdict {
	case sim.OK:
		if !a.Allows(reference.OK) {
			return "answered by " + r.Backend
		}
		if r.To == f.To {
			return "" // the kernel of the node, or with loadBalancerMode=dsr who has the address itself
		}
		b := netip.AddrPortFrom(r.To, r.Port)
		if !slices.Contains(a.Backends, b) {
			return fmt.Sprintf("answered by %s (%s)", b, r.Backend)
		}
		if !v.SourceAt(client, b, r.Source, a.Local) {
			return fmt.Sprintf("%s sees the source %s", b, r.Source)
		}
	case sim.Reject:
		if !a.Allows(reference.Reject) && !slices.ContainsFunc(a.Backends, func(b netip.AddrPort) bool { return !c.serves(b, f.Proto) }) {
			return "refused"
		}
	default:
		// Endpoints outside the Pod networks may be behind an Egress whose address no node has.
		if !a.Allows(reference.Drop) && !slices.ContainsFunc(a.Backends, func(b netip.AddrPort) bool { return !c.serves(b, f.Proto) }) {
			return "silence (" + r.Note + ")"
		}
	}
	return ""
}

// serves reports whether a Pod with that address serves a port: what else is an endpoint need not answer.
func (c *cluster) serves(at netip.AddrPort, proto uint8) bool {
	pod := c.owner(at.Addr())
	if pod == "" || c.external(pod) != nil {
		return false
	}
	return slices.ContainsFunc(served(c.kubelet.pod(pod)), func(p sim.Port) bool { return p.Port == at.Port() && p.Proto == proto })
}

// again dials anew what was silent and should not have been: first packets of a path may be lost.
func (c *cluster) again(f scenarios.Flow) *check.Result {
	k, err := c.dial(f, false)
	if err != nil {
		return &check.Result{ID: 5, Detail: err.Error()}
	}
	return c.probed(f, k.last)
}

// judgeProbe notes it if a probe of the scenario was not as it should be.
func (c *cluster) judgeProbe(f scenarios.Flow, r sim.Result) {
	wrong := c.probed(f, r)
	if wrong != nil && r.Verdict == sim.Drop {
		wrong = c.again(f)
	}
	if wrong != nil {
		c.find([]check.Result{*wrong})
	}
}

// unserved is a port that no Service of a scenario has.
const unserved = 9

// tryServices tries some of the connections that there could be, others with each number of Pods and Services.
func (c *cluster) tryServices() []check.Result {
	if !c.calm() {
		return nil
	}
	var flows []scenarios.Flow
	for _, from := range c.clients() {
		for _, o := range (objects{c}).List(kube.KindService) {
			svc := o.(*corev1.Service)
			for _, text := range svc.Spec.ClusterIPs {
				ip, err := netip.ParseAddr(text)
				if err != nil || !from.Addr(ip.Is6()).IsValid() {
					continue
				}
				for _, p := range svc.Spec.Ports {
					proto := uint8(packet.ProtoTCP)
					switch p.Protocol {
					case corev1.ProtocolUDP:
						proto = packet.ProtoUDP
					case corev1.ProtocolSCTP:
						continue
					}
					flows = append(flows, scenarios.Flow{From: from, To: ip, Port: uint16(p.Port), Proto: proto})
				}
				flows = append(flows, scenarios.Flow{From: from, To: ip, Port: unserved, Proto: packet.ProtoTCP})
			}
		}
	}
	wrong := make([]*check.Result, min(len(flows), triedAtEnd))
	var all sync.WaitGroup
	for i := range wrong {
		f := flows[i*len(flows)/len(wrong)]
		all.Go(func() {
			for range firstPackets {
				if wrong[i] = c.again(f); wrong[i] == nil {
					return
				}
			}
		})
	}
	all.Wait()
	var out []check.Result
	for _, w := range wrong {
		if w != nil {
			out = append(out, *w)
		}
	}
	return out
}

// firstPackets is how often a connection is tried before it counts.
const firstPackets = 3

// clients are who can dial: Pods and nodes.
func (c *cluster) clients() []*source {
	c.kubelet.mu.Lock()
	var pods []string
	for key, r := range c.kubelet.pods {
		if r.sandbox != nil && !r.hostNet {
			pods = append(pods, key)
		}
	}
	c.kubelet.mu.Unlock()
	slices.Sort(pods)
	var out []*source
	for _, key := range pods {
		if s, err := c.PodSource(key); err == nil && s.(*source).space != nil {
			out = append(out, s.(*source))
		}
	}
	for _, m := range c.machines {
		out = append(out, c.NodeSource(m).(*source))
	}
	return out
}
