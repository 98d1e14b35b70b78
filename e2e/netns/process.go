//go:build linux

package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"towtank/agent/shell/daemon"
	"towtank/scenarios"
	"towtank/scenarios/lang"
	"towtank/sim"
)

// settings is what the option lines of a scenario say, as the agents' settings file.
func settings(o lang.Options) ([]byte, error) {
	most := o.MaxEgressIPsPerNode
	proxy := o.ProxyLoadBalancerIPs
	return json.Marshal(daemon.Settings{ // YAML reads JSON
		ServiceCIDRs: o.ServiceCIDRs, TrafficMode: o.Traffic, TunnelType: o.Tunnel, ProxyAll: o.ProxyAll, ProxyLoadBalancerIPs: &proxy,
		SkipServices: o.SkipServices, NodePortAddresses: o.NodePortAddresses, LoadBalancerMode: o.LoadBalancerMode,
		MaxEgressIPsPerNode: &most, AuditEvery: o.AuditEvery.String(), Membership: o.Membership,
		MemberTimeout: o.MemberTimeout.String(), MemberRejoin: o.MemberRejoin.String(),
		LeaveOnStop: true, // agent N stop; agent N restart kills
	})
}

// startLimit is how long an agent may take until it takes calls. One that cannot (without its switch, or the API)
// is not waited for.
const startLimit = 10 * time.Second

// startAgent starts the node's agent, if it does not run, and returns when it takes calls: what the simulator's
// does at once.
func (m *machine) startAgent() error {
	started, err := m.launchAgent()
	if err != nil || !started || !m.ovs.Running() || !m.c.api.Reachable(m.name) {
		return err
	}
	for end := time.Now().Add(startLimit); time.Now().Before(end) && m.agentRuns(); time.Sleep(pollEvery) {
		conn, err := net.Dial("unix", m.socket())
		if err == nil {
			return conn.Close()
		}
	}
	return fmt.Errorf("%w: the agent of %s takes no calls after %s:\n%s", scenarios.ErrTank, m.name, startLimit, m.agent.log)
}

func (m *machine) launchAgent() (started bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.up || m.agent != nil && m.agent.running() {
		return false, nil
	}
	kubeconfig, conf := filepath.Join(m.dir, "kubeconfig"), filepath.Join(m.dir, "settings.yaml")
	if m.api == nil {
		l, err := m.c.serveAPI(m.space)
		if err != nil {
			return false, err
		}
		m.api = l
		text, err := settings(m.c.opts)
		if err == nil {
			err = errors.Join(os.WriteFile(conf, text, 0o644), m.c.api.WriteKubeconfig(kubeconfig, m.name, "https://"+l.Addr().String()))
		}
		if err != nil {
			return false, fmt.Errorf("agent of %s: %w", m.name, err)
		}
	}
	p, err := m.space.start(nil, nil, nil, m.c.programs.agent, "--node", m.name, "--settings", conf, "--kubeconfig", kubeconfig, "--faults",
		"--ovs-run-dir", m.ovs.Dir(), "--bridge", bridge, "--cni-socket", m.socket(), "--status-socket", m.statusSocket(), "--state-dir", m.stateDir(), "--address-dir", m.addressDir())
	if err != nil {
		return false, err
	}
	m.agent, m.paused = p, false
	m.ledger.since, m.ledger.refused = 0, 0
	return true, nil
}

// stopAgent ends the agent on purpose: it may say that it goes.
func (m *machine) stopAgent() {
	m.endAgent(syscall.SIGTERM)
}

// killAgent ends the agent at once.
func (m *machine) killAgent() { m.endAgent(syscall.SIGKILL) }

func (m *machine) endAgent(sig syscall.Signal) {
	if m.agentRuns() {
		m.c.problem(m.harvest())
	}
	m.mu.Lock()
	p, paused := m.agent, m.paused
	m.paused = false
	m.mu.Unlock()
	if p == nil {
		return
	}
	if paused && sig != syscall.SIGKILL {
		p.signal(syscall.SIGCONT)
	}
	p.signal(sig)
	<-p.ended
}

// pauseAgent stops the agent where it is, or lets it go on.
func (m *machine) pauseAgent(paused bool) {
	m.mu.Lock()
	p := m.agent
	m.paused = paused && p != nil
	m.mu.Unlock()
	if p == nil {
		return
	}
	if paused {
		p.signal(syscall.SIGSTOP)
	} else {
		p.signal(syscall.SIGCONT)
	}
}

// agentRuns reports whether the agent runs and is not paused.
func (m *machine) agentRuns() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.up && !m.paused && m.agent != nil && m.agent.running()
}

// controller is the process of the pool allocation.
type controller struct {
	c      *cluster
	dir    string
	api    net.Listener
	proc   *process
	home   *space
	paused bool
}

// start makes the controller's home and starts it.
func (o *controller) start(c *cluster) (err error) {
	o.c, o.dir = c, filepath.Join(c.dir, "c")
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	if o.home, err = newSpace(c.prefix + sim.ControllerName); err != nil {
		return err
	}
	if o.api, err = c.serveAPI(o.home); err != nil {
		return err
	}
	if err := c.api.WriteKubeconfig(o.kubeconfig(), sim.ControllerName, "https://"+o.api.Addr().String()); err != nil {
		return err
	}
	return o.run()
}

func (o *controller) kubeconfig() string { return filepath.Join(o.dir, "kubeconfig") }

func (o *controller) statusSocket() string { return filepath.Join(o.dir, "status.sock") }

func (o *controller) run() (err error) {
	if o.proc != nil && o.proc.running() {
		return nil
	}
	o.paused = false
	o.proc, err = o.home.start(nil, nil, nil, o.c.programs.controller, "--kubeconfig", o.kubeconfig(), "--status-socket", o.statusSocket(),
		"--leader-elect=false", "--membership", o.c.opts.Membership)
	return err
}

func (o *controller) signal(sig syscall.Signal) {
	if o.proc != nil {
		o.proc.signal(sig)
	}
}

// end ends the process, so or so.
func (o *controller) end(sig syscall.Signal) {
	if o.proc == nil {
		return
	}
	o.signal(syscall.SIGCONT)
	o.proc.signal(sig)
	<-o.proc.ended
}

func (o *controller) kill() { o.end(syscall.SIGKILL) }

// close ends the process for good.
func (o *controller) close() {
	o.kill()
	if o.home != nil {
		o.home.close()
	}
}
