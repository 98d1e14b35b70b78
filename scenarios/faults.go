package scenarios

import (
	"fmt"
	"strings"

	"towtank/scenarios/lang"
	"towtank/sim"
	"towtank/sim/kube"
)

// faults does what goes wrong.
func (r *Runner) faults(st lang.Step) error {
	w := r.tank
	switch t := st.(type) {
	case lang.Agent:
		return r.each(t.Node, func(n Node) error { return w.AgentOp(n, t.Op) })
	case lang.OVS:
		return r.each(t.Node, func(n Node) error { return w.OVSOp(n, t.Op) })
	case lang.NodeDown:
		return r.each(t.Node, func(n Node) error { return w.NodeDown(n, t.Silent) })
	case lang.NodeUp:
		return r.each(t.Node, func(n Node) error {
			for _, ip := range t.IPs {
				if who := r.machineAt(ip, n.Name()); who != "" {
					return callErrorf("ip: found %s, which is that of %s", ip, who)
				}
			}
			return w.NodeUp(n, t.IPs)
		})
	case lang.Partition:
		var groups [][]string
		for _, g := range t.Groups {
			var names []string
			for _, ref := range g {
				name, err := r.peer(ref)
				if err != nil {
					return errCall{err}
				}
				names = append(names, name)
			}
			groups = append(groups, names)
		}
		return asCall(w.SetPartition(groups))
	case lang.Heal:
		return asCall(w.Heal())
	case lang.Loss:
		a, err := r.peer(t.A)
		if err != nil {
			return errCall{err}
		}
		b, err := r.peer(t.B)
		if err != nil {
			return errCall{err}
		}
		return asCall(w.SetLoss(a, b, t.Percent))
	case lang.Clock:
		return r.each(t.Node, func(n Node) error { return w.SetSkew(n, t.Skew) })
	case lang.Watch:
		var kinds []kube.Kind
		for _, k := range t.Kinds {
			kind, err := kube.KindNamed(k)
			if err != nil {
				return errCall{err}
			}
			kinds = append(kinds, kind)
		}
		return r.each(t.Node, func(n Node) error { return w.Watch(n, t.Op, kinds, t.Count) })
	case lang.Fail:
		return r.each(t.Node, func(n Node) error {
			if t.Clear {
				return w.ClearFaults(n)
			}
			return w.AddFault(n, sim.Fault{Effect: t.Effect, Skip: t.Skip, Count: t.Count, Mode: sim.FaultMode(t.Mode)})
		})
	}
	return nil
}

// peer returns the name of a machine: a node's, which may be given as owner/IP, or any other as it is written.
func (r *Runner) peer(ref lang.NodeRef) (string, error) {
	if !ref.Owner.IsValid() {
		return ref.Name, nil
	}
	n, err := r.node(ref)
	if err != nil {
		return "", err
	}
	return n.Name(), nil
}

// each does something to one node, or to all.
func (r *Runner) each(ref lang.NodeRef, do func(Node) error) error {
	list, err := r.nodesOf(ref)
	if err != nil {
		return errCall{err}
	}
	for _, n := range list {
		if err := do(n); err != nil {
			return asCall(err)
		}
	}
	return nil
}

// host has somebody type a command.
func (r *Runner) host(st lang.Step, s *Step) error {
	switch t := st.(type) {
	case lang.HostAddress:
		n, err := r.node(t.Node)
		if err != nil {
			return errCall{err}
		}
		ip := "ip"
		if t.IP.Is6() {
			ip = "ip -6"
		}
		return r.typed(s, n.Name(), func() (string, error) {
			return r.tank.Exec(n, fmt.Sprintf("%s addr %s %s dev %s", ip, t.Op, prefixOf(t.IP, t.Bits), sim.Uplink))
		})
	case lang.Host:
		if !t.Pod.IsZero() {
			key, err := r.podKey(t.Pod)
			if err != nil {
				return errCall{err}
			}
			return r.typed(s, key, func() (string, error) { return r.tank.ExecPod(key, t.Text) })
		}
		n, err := r.node(t.Node)
		if err != nil {
			return errCall{err}
		}
		return r.typed(s, n.Name(), func() (string, error) { return r.tank.Exec(n, t.Text) })
	}
	return nil
}

func (r *Runner) typed(s *Step, who string, run func() (string, error)) error {
	out, err := run()
	if err != nil {
		if !strings.HasPrefix(err.Error(), who+": ") {
			err = fmt.Errorf("on %s: %w", who, err)
		}
		return asCall(err)
	}
	if out = strings.TrimRight(out, "\n"); out != "" {
		s.Outcome, s.Text2 = Info, out
	}
	return nil
}
