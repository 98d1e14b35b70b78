//go:build linux

package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"towtank/agent/shell"
	"towtank/scenarios"
	"towtank/sim"
	"towtank/sim/kube"
)

// onMachine runs f on a node's machine; the pool allocation has none.
func onMachine(n scenarios.Node, what string, f func(m *machine) error) error {
	m, ok := n.(*machine)
	if !ok {
		return fmt.Errorf("%s: %s is no node", what, n.Name())
	}
	return f(m)
}

// AgentOp implements scenarios.Tank.
func (c *cluster) AgentOp(n scenarios.Node, op string) error {
	if n == scenarios.Node(&c.controller) {
		return c.controller.op(op)
	}
	return onMachine(n, "agent", func(m *machine) error {
		switch op {
		case "start":
			return m.startAgent()
		case "stop":
			m.stopAgent()
		case "kill":
			m.killAgent()
		case "restart":
			m.killAgent() // the process is replaced: it does not leave the membership
			return m.startAgent()
		case "pause":
			m.pauseAgent(true)
		case "resume":
			m.pauseAgent(false)
		default:
			return fmt.Errorf("agent %s: want start, stop, kill, restart, pause or resume", op)
		}
		return nil
	})
}

func (o *controller) op(op string) error {
	switch op {
	case "start":
		return o.run()
	case "stop":
		o.end(syscall.SIGTERM)
	case "kill":
		o.kill()
	case "restart":
		o.end(syscall.SIGTERM)
		return o.run()
	case "pause":
		o.paused = true
		o.signal(syscall.SIGSTOP)
	case "resume":
		o.paused = false
		o.signal(syscall.SIGCONT)
	default:
		return fmt.Errorf("agent controller %s: want start, stop, kill, restart, pause or resume", op)
	}
	return nil
}

// OVSOp implements scenarios.Tank.
func (c *cluster) OVSOp(n scenarios.Node, op string) error {
	return onMachine(n, "ovs", func(m *machine) error {
		m.forgetForeign() // flows that people added go with it
		if op == "kill" || op == "restart" {
			_ = m.ovs.Kill() // it may have been killed before
			m.awaitDisconnect()
		}
		if op == "kill" {
			return nil
		}
		if m.ovs.Running() {
			return nil
		}
		if err := m.space.do(m.ovs.StartAgain); err != nil {
			return fmt.Errorf("%w: %w", scenarios.ErrTank, err)
		}
		return nil
	})
}

// disconnectLimit is how long an agent may take to notice that its switch is gone.
const disconnectLimit = 5 * time.Second

// awaitDisconnect returns when the agent knows that its switch is gone: else what follows would be taken for
// settled before it begins.
func (m *machine) awaitDisconnect() {
	for end := time.Now().Add(disconnectLimit); m.agentRuns() && time.Now().Before(end); time.Sleep(pollEvery) {
		var r shell.Report
		if err := m.ask("/status", &r); err == nil && !r.Connected {
			return
		}
	}
}

// notReadyAfter is when the control plane calls a node that does not report not ready
// (kube-controller-manager, --node-monitor-grace-period).
const notReadyAfter = 40 * time.Second

// NodeDown implements scenarios.Tank.
func (c *cluster) NodeDown(n scenarios.Node, silent bool) error {
	return onMachine(n, "node-down", func(m *machine) error {
		if silent {
			m.killAgent()
			return nil
		}
		if !m.Up() {
			return nil
		}
		err := errors.Join(c.fabric.setUp(m.name, false), m.powerOff())
		c.kubelet.nodeDown(m)
		c.timers[m.name] = time.AfterFunc(notReadyAfter, func() {
			c.problem(c.do(func(k *kube.Cluster) error { return k.SetNodeReady(m.name, false) }))
		})
		if err != nil {
			return fmt.Errorf("%w: %w", scenarios.ErrTank, err)
		}
		return nil
	})
}

// NodeUp implements scenarios.Tank.
func (c *cluster) NodeUp(n scenarios.Node, ips []netip.Addr) error {
	return onMachine(n, "node-up", func(m *machine) error {
		if m.Up() {
			return m.startAgent() // after a silent death only that has to start
		}
		if t := c.timers[m.name]; t != nil {
			t.Stop()
		}
		m.mu.Lock()
		for _, ip := range ips {
			if ip.Is6() {
				m.v6 = ip
			} else {
				m.v4 = ip
			}
		}
		m.mu.Unlock()
		if err := m.boot(); err != nil {
			return fmt.Errorf("%w: %w", scenarios.ErrTank, err)
		}
		if err := c.do(func(k *kube.Cluster) error { return k.RegisterNode(m.registration()) }); err != nil {
			return err
		}
		if err := m.startAgent(); err != nil {
			return err
		}
		c.kubelet.nodeUp(m)
		return nil
	})
}

// apiServer is how a partition names the API server.
const apiServer = "api"

// SetPartition implements scenarios.Tank: "*" is everybody who is not named.
func (c *cluster) SetPartition(groups [][]string) error {
	var named, rest []string
	for _, g := range groups {
		named = append(named, g...)
	}
	everybody := []string{apiServer}
	for _, m := range c.machines {
		everybody = append(everybody, m.name)
	}
	for _, x := range c.externals {
		everybody = append(everybody, x.name)
	}
	for _, name := range everybody {
		if !slices.Contains(named, name) {
			rest = append(rest, name)
		}
	}
	var full [][]string
	for _, g := range groups {
		var members []string
		for _, name := range g {
			switch {
			case name == "*":
				members = append(members, rest...)
			case !slices.Contains(everybody, name):
				return fmt.Errorf("partition: %s is not known", name)
			default:
				members = append(members, name)
			}
		}
		full = append(full, members)
	}
	return c.partition(full)
}

// Heal implements scenarios.Tank.
func (c *cluster) Heal() error { return c.partition(nil) }

func (c *cluster) partition(groups [][]string) error {
	c.mu.Lock()
	c.groups = groups
	c.cut = true
	c.mu.Unlock()
	var machines [][]string // the API server has no port on the fabric
	for _, g := range groups {
		machines = append(machines, slices.DeleteFunc(slices.Clone(g), func(m string) bool { return m == apiServer }))
	}
	for _, m := range c.machines {
		c.api.SetReachable(m.name, c.reachable(m.name, apiServer))
	}
	if err := c.fabric.partition(machines); err != nil {
		return fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	return nil
}

// wasCut reports whether there ever was a partition or loss.
func (c *cluster) wasCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// reachable reports whether two machines (or the API server) are not cut off from each other.
func (c *cluster) reachable(a, b string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := func(name string) int {
		return slices.IndexFunc(c.groups, func(g []string) bool { return slices.Contains(g, name) })
	}
	ga, gb := of(a), of(b)
	return ga < 0 || gb < 0 || ga == gb
}

// SetLoss implements scenarios.Tank.
func (c *cluster) SetLoss(a, b string, percent int) error {
	c.mu.Lock()
	c.cut = true
	c.mu.Unlock()
	return c.fabric.setLoss(a, b, percent)
}

// SetSkew implements scenarios.Tank: files with it are skipped, see unable.
func (c *cluster) SetSkew(n scenarios.Node, _ time.Duration) error {
	return fmt.Errorf("clock %s: all nodes have the clock of this machine", n.Name())
}

// Watch implements scenarios.Tank.
func (c *cluster) Watch(n scenarios.Node, op string, kinds []kube.Kind, count int) error {
	return c.api.Watch(n.Name(), op, kinds, count)
}

// AddFault implements scenarios.Tank. The agents ask the API server before each effect on their node (e2e/faults).
func (c *cluster) AddFault(n scenarios.Node, f sim.Fault) error {
	c.api.AddFault(n.Name(), f)
	return nil
}

// ClearFaults implements scenarios.Tank.
func (c *cluster) ClearFaults(n scenarios.Node) error {
	c.api.ClearFaults(n.Name())
	return nil
}

// Exec implements scenarios.Tank.
func (c *cluster) Exec(n scenarios.Node, command string) (string, error) {
	var out string
	err := onMachine(n, "host", func(m *machine) (err error) {
		if m.quiet() {
			c.find(m.owned(true)) // what comes after is not the agent's doing
		}
		m.byHand(true)
		out, err = m.exec(command)
		m.forgetForeign()
		return err
	})
	return out, err
}

// exec runs a command on the machine.
func (m *machine) exec(command string) (string, error) {
	s := m.netns()
	if s == nil {
		return "", fmt.Errorf("node %s is off", m.name)
	}
	command = strings.TrimSpace(command)
	if rest, ok := strings.CutPrefix(command, "ovs-ofctl "); ok && !strings.Contains(command, " -O") {
		command = "ovs-ofctl -O OpenFlow15 " + rest
	}
	return s.run("env", "OVS_RUNDIR="+m.ovs.Dir(), "sh", "-c", command)
}

// byHand notes whether somebody changed the machine since the last audit, and returns whether somebody had.
func (m *machine) byHand(now bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.hand
	m.hand = now
	return was
}
