package scenarios

import (
	"fmt"
	"net/netip"
	"time"

	"towtank/agent/edge"
	"towtank/scenarios/check"
	"towtank/scenarios/lang"
	"towtank/sim"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

// simulate makes a simulator.
func (r *Runner) simulate(o lang.Options, found func([]check.Result)) (Tank, error) {
	w, err := sim.New(worldOptions(o, r.opts))
	if err != nil {
		return nil, err
	}
	c := check.New(w)
	w.AfterEffect = func() { found(c.AtStep()) }
	if r.opts.Hook != nil {
		r.opts.Hook(w)
	}
	return simulator{w, c}, nil
}

func worldOptions(o lang.Options, run Options) sim.Options {
	most := o.MaxEgressIPsPerNode
	if most == 0 {
		most = -1
	}
	return sim.Options{
		Seed: run.Seed, V4: o.IPv4(), V6: o.IPv6(), Traffic: o.Traffic, Tunnel: o.Tunnel, NoProxyAll: !o.ProxyAll,
		NoProxyLoadBalancers: !o.ProxyLoadBalancerIPs, MaxEgressIPsPerNode: most, SkipServices: o.SkipServices,
		LoadBalancerMode: o.LoadBalancerMode, NodePortAddresses: o.NodePortAddresses, PodCIDRSize: o.PodCIDRSize,
		ServiceCIDRs: o.ServiceCIDRs, Membership: o.Membership, MemberTimeout: o.MemberTimeout, MemberRejoin: o.MemberRejoin,
		AuditEvery: o.AuditEvery, LogTo: run.LogTo, RestartAfterDeath: run.RestartAfterDeath, NewSwitch: run.NewSwitch,
	}
}

// simulator is a sim.World as a Tank. Methods that are not here are the world's own.
type simulator struct {
	*sim.World
	check *check.Checker
}

// simNode is a sim.Node as a Node.
type simNode struct{ *sim.Node }

func nodeOf(n Node) *sim.Node {
	if n == nil {
		return nil
	}
	return n.(simNode).Node
}

// HasAddress implements Node.
func (n simNode) HasAddress(ip netip.Addr) bool { return n.Netns().HasAddress(ip) }

// ObjectsOf implements Node.
func (n simNode) ObjectsOf(match func(unit string) bool) ([]string, error) {
	var out []string
	for _, o := range n.Node.ObjectsOf(match) {
		out = append(out, o.Key().String())
	}
	return out, nil
}

// Writes implements Node.
func (n simNode) Writes(match func(units []string) bool) (map[string]int, error) {
	return n.Node.Writes(match), nil
}

// Bounds of what LastWrites shows.
const (
	maxLastWrites = 5
	maxWriteText  = 300
)

// LastWrites implements Node.
func (n simNode) LastWrites(seam string, match func([]string) bool) []string {
	var out []string
	for _, e := range n.MarkedJournal() {
		if sim.SeamOf(e.Class) != seam || (match != nil && !match(e.Units) && !match(e.About)) {
			continue
		}
		text := e.Text
		if len(text) > maxWriteText {
			text = text[:maxWriteText] + "…"
		}
		if out = append(out, fmt.Sprintf("%s %v: %s", e.Class, e.Units, text)); len(out) == maxLastWrites {
			break
		}
	}
	return out
}

// Objects implements Tank.
func (s simulator) Objects() Objects { return s.Kube }

// Invariants implements Tank.
func (s simulator) Invariants() Invariants { return simInvariants{s.check} }

type simInvariants struct{ *check.Checker }

// Clean implements Invariants.
func (i simInvariants) Clean(n Node) []string { return i.Checker.Clean(nodeOf(n)) }

// Probed implements Invariants.
func (i simInvariants) Probed(f Flow, r sim.Result) []check.Result {
	return i.Checker.Probed(f.simulated(), r)
}

// AddNode implements Tank.
func (s simulator) AddNode(name string) error {
	_, err := s.World.AddNode(name)
	return err
}

// AddExternal implements Tank.
func (s simulator) AddExternal(c sim.ExternalConfig) error {
	_, err := s.World.AddExternal(c)
	return err
}

// Nodes implements Tank.
func (s simulator) Nodes() []Node {
	var out []Node
	for _, n := range s.World.Nodes() {
		out = append(out, simNode{n})
	}
	return out
}

// Node implements Tank.
func (s simulator) Node(name string) Node {
	n := s.World.Node(name)
	if n == nil && name == lang.Controller {
		n = s.Controller()
	}
	if n == nil {
		return nil
	}
	return simNode{n}
}

// External implements Tank.
func (s simulator) External(name string) Machine {
	if x := s.World.External(name); x != nil {
		return x
	}
	return nil
}

// Externals implements Tank.
func (s simulator) Externals() []Machine {
	var out []Machine
	for _, x := range s.World.Externals() {
		out = append(out, x)
	}
	return out
}

// SetEndpoints implements Tank.
func (s simulator) SetEndpoints(namespace, service string, count int, on []Node) error {
	var list []*sim.Node
	for _, n := range on {
		list = append(list, nodeOf(n))
	}
	return s.World.SetEndpoints(namespace, service, count, list)
}

// CNI implements Tank.
func (s simulator) CNI(n Node, verb edge.CNIVerb, id, pod, ifname string, done func(edge.CNIReply)) error {
	return s.World.CNI(nodeOf(n), verb, id, pod, ifname, done)
}

// CNIGC implements Tank.
func (s simulator) CNIGC(n Node, keep []string, done func(edge.CNIReply)) {
	s.World.CNIGC(nodeOf(n), keep, done)
}

// CNIStatus implements Tank.
func (s simulator) CNIStatus(n Node, done func(edge.CNIReply)) { s.World.CNIStatus(nodeOf(n), done) }

// NodeSource implements Tank.
func (s simulator) NodeSource(n Node) Source { return s.World.NodeSource(nodeOf(n)) }

// ExternalSource implements Tank.
func (s simulator) ExternalSource(x Machine) Source { return s.World.ExternalSource(x.(*sim.External)) }

// PodSource implements Tank.
func (s simulator) PodSource(key string) (Source, error) {
	src, err := s.World.PodSource(key)
	if err != nil {
		return nil, err
	}
	return src, nil
}

func (f Flow) simulated() sim.Flow {
	return sim.Flow{
		From: f.From.(*sim.Source), Bind: f.Bind, To: f.To, Port: f.Port, Proto: f.Proto, SPort: f.SPort, Size: f.Size, DF: f.DF,
		Next: nodeOf(f.Next), HTTP: f.HTTP,
	}
}

// Probe implements Tank.
func (s simulator) Probe(f Flow) (sim.Result, error) { return s.World.Probe(f.simulated()) }

// simConn is a sim.Conn as a Conn.
type simConn struct{ *sim.Conn }

// WasReset implements Conn.
func (c simConn) WasReset() bool { return c.Reset }

// Open implements Tank.
func (s simulator) Open(f Flow) (Conn, error) {
	c, err := s.World.Open(f.simulated())
	if err != nil {
		return nil, err
	}
	return simConn{c}, nil
}

// simStream is a sim.Stream as a Stream.
type simStream struct{ *sim.Stream }

// Beats implements Stream.
func (s simStream) Beats() []sim.Result { return s.Stream.Beats }

// StartStream implements Tank.
func (s simulator) StartStream(name string, f Flow, from func() (Source, error), every time.Duration, one bool) Stream {
	source := func() (*sim.Source, error) {
		src, err := from()
		if err != nil {
			return nil, err
		}
		return src.(*sim.Source), nil
	}
	return simStream{s.World.StartStream(name, f.simulated(), source, every, one)}
}

// Inject implements Tank.
func (s simulator) Inject(from Source, fields []sim.Field) (sim.Injected, error) {
	return s.World.Inject(from.(*sim.Source), fields)
}

// Traced implements Tank.
func (s simulator) Traced(do func()) []TraceLine {
	steps := s.World.Traced(do)
	out := make([]TraceLine, 0, len(steps))
	for _, t := range steps {
		out = append(out, TraceLine{Node: t.Node, Where: t.Where, Text: t.Text, Owner: s.owner(t), Drop: t.Drop})
	}
	return out
}

// owner names the owner of a flow on a node in Kubernetes' words.
func (s simulator) owner(t packet.TraceStep) string {
	if n := s.World.Node(t.Node); n != nil {
		return n.Owner(t.Cookie)
	}
	return ""
}

// AgentOp implements Tank.
func (s simulator) AgentOp(n Node, op string) error { return s.World.AgentOp(nodeOf(n), op) }

// OVSOp implements Tank.
func (s simulator) OVSOp(n Node, op string) error { return s.World.OVSOp(nodeOf(n), op) }

// NodeDown implements Tank.
func (s simulator) NodeDown(n Node, silent bool) error {
	s.World.NodeDown(nodeOf(n), silent)
	return nil
}

// NodeUp implements Tank.
func (s simulator) NodeUp(n Node, ips []netip.Addr) error { return s.World.NodeUp(nodeOf(n), ips) }

// Heal implements Tank.
func (s simulator) Heal() error {
	s.World.Heal()
	return nil
}

// SetSkew implements Tank.
func (s simulator) SetSkew(n Node, skew time.Duration) error {
	s.World.SetSkew(nodeOf(n), skew)
	return nil
}

// Watch implements Tank.
func (s simulator) Watch(n Node, op string, kinds []kube.Kind, count int) error {
	return s.World.Watch(nodeOf(n), op, kinds, count)
}

// AddFault implements Tank.
func (s simulator) AddFault(n Node, f sim.Fault) error {
	s.World.AddFault(nodeOf(n), f)
	return nil
}

// ClearFaults implements Tank.
func (s simulator) ClearFaults(n Node) error {
	s.World.ClearFaults(nodeOf(n))
	return nil
}

// Exec implements Tank.
func (s simulator) Exec(n Node, command string) (string, error) {
	return s.World.Exec(nodeOf(n), command)
}

// DumpText implements Tank.
func (s simulator) DumpText(n Node, what string) (string, error) {
	return s.World.DumpText(nodeOf(n), what), nil
}
