//go:build linux

package netns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"towtank/agent"
	"towtank/agent/shell"
	"towtank/scenarios/lang"
	"towtank/sim"
	"towtank/sim/kube"
)

// Times of settling: how often it is looked, and how often in a row all must be done.
const (
	settleEvery = 30 * time.Millisecond
	settleTwice = 2
	minRetries  = time.Second // how long retries are waited for at least
	// settleGrace is how much longer what began just before the end may take.
	settleGrace = 3 * time.Second
)

// errRetry is no failure: a retry is waited for as long as there is time.
var errRetry = errors.New("a retry of the kubelet waits")

// Settle implements scenarios.Tank: everybody has applied what was written last, and nothing is under way.
func (c *cluster) Settle(within time.Duration) error {
	// What the simulator does at once takes a real node a moment: a limit below that says nothing.
	deadline, retries := time.Now().Add(max(within, lang.DefaultSettle)), time.Now().Add(max(within, minRetries))
	good := 0
	var last uint64
	for {
		version := c.version()
		why := c.busy(retries)
		if why == nil && c.version() == version && (good == 0 || version == last) {
			good++
		} else {
			good = 0
		}
		last = version
		if good == settleTwice {
			calm := c.undisturbed()
			c.leaving(calm)
			c.mu.Lock()
			if c.settled = version; !calm {
				c.settled = 0
			}
			c.mu.Unlock()
			return c.revalidated()
		}
		if time.Now().After(deadline.Add(settleGrace)) {
			if why == nil {
				why = errors.New("the API goes on changing")
			}
			return why
		}
		time.Sleep(settleEvery)
	}
}

// undisturbed reports whether every node is done with everything, and nothing keeps it from that.
func (c *cluster) undisturbed() bool {
	return !slices.ContainsFunc(c.machines, func(m *machine) bool { return !m.quiet() })
}

func (c *cluster) version() (v uint64) {
	c.api.Do(func(k *kube.Cluster) { v = k.Version() })
	return v
}

// busy says what is not done, nil if everything is. Retries that are due before the given time count.
func (c *cluster) busy(retries time.Time) error {
	idle, later := c.kubelet.idle()
	if !idle {
		return errors.New("the kubelet still works")
	}
	if later && time.Now().Before(retries) {
		return errRetry
	}
	if err := c.controller.busy(); err != nil {
		return err
	}
	for _, m := range c.machines {
		if err := m.busy(retries); err != nil {
			return err
		}
	}
	return nil
}

// away reports whether the node's agent is not there, or cannot do or hear anything.
func (m *machine) away() bool {
	return !m.agentRuns() || !m.ovs.Running() || !m.c.api.Reachable(m.name)
}

// faulted reports whether something explains that the node's agent is not done.
func (m *machine) faulted() bool { return m.away() || m.c.api.Unspent(m.name) }

// explained reports whether what an agent has not done is explained: by watches that are held, or by a fault that
// has not hit as often as it is to. What that makes it try again is waited for.
func (m *machine) explained(r shell.Report) bool {
	if m.c.api.Faulted(m.name) && waits(r) {
		return true
	}
	return m.c.api.Unspent(m.name) && r.InFlight == agent.InFlight{} && r.Requests == 0 && len(r.Dirty) == 0
}

func (m *machine) busy(retries time.Time) error {
	if m.away() {
		return nil
	}
	var r shell.Report
	if err := m.ask("/status", &r); err != nil {
		return err
	}
	if !r.Connected {
		return fmt.Errorf("node %s: its agent is not connected to the switch yet", m.name)
	}
	if behind := m.c.api.Behind(m.name, r.Kinds); len(behind) > 0 {
		return fmt.Errorf("node %s: %s", m.name, strings.Join(behind, ", "))
	}
	if !r.Settled && !m.explained(r) {
		return fmt.Errorf("node %s: %s", m.name, unsettled(r))
	}
	if len(r.Due) > 0 && r.Due[0].Before(retries) {
		return fmt.Errorf("node %s: a retry is due at %s", m.name, r.Due[0].Format(time.TimeOnly))
	}
	return m.missed(r.Alive)
}

// waits reports whether all that an agent has not done is what it was not told enough for.
func waits(r shell.Report) bool {
	return r.InFlight == agent.InFlight{} && r.Calls == 0 && r.Requests == 0 && !slices.ContainsFunc(r.Dirty, func(unit string) bool {
		kind, _, _ := strings.Cut(unit, "/")
		return !slices.Contains(r.Unheard, kind)
	})
}

// missed says whom the node does not know to be alive. It joins at its start at once; after a partition it takes
// its time, which scenarios let pass.
func (m *machine) missed(alive []string) error {
	if m.c.wasCut() {
		return nil
	}
	for _, o := range m.c.machines {
		if o.agentRuns() && !slices.Contains(alive, o.name) {
			return fmt.Errorf("node %s: it does not know yet that %s is alive", m.name, o.name)
		}
	}
	return nil
}

func unsettled(r shell.Report) string {
	var out []string
	for name, list := range map[string][]string{"not heard": r.Unheard, "dirty": r.Dirty, "pending": r.Pending} {
		if len(list) > 0 {
			out = append(out, name+" "+strings.Join(list, " "))
		}
	}
	for _, q := range r.Quarantined {
		out = append(out, fmt.Sprintf("quarantined %s: %s", q.Unit, q.Error))
	}
	if len(out) == 0 {
		out = append(out, fmt.Sprintf("ready %t, in flight %+v, calls %d, requests %d", r.Ready, r.InFlight, r.Calls, r.Requests))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// revalidated returns when no switch forwards by what it had cached before.
func (c *cluster) revalidated() error { return c.onSwitches("revalidator/wait") }

// onSwitches has all switches that run do something at once.
func (c *cluster) onSwitches(command string) error {
	errs := make([]error, len(c.machines))
	var all sync.WaitGroup
	for i, m := range c.machines {
		if m.Up() && m.ovs.Running() {
			all.Go(func() { _, errs[i] = m.ovs.Call(command) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// busy says what the pool allocation has not done.
func (o *controller) busy() error {
	if o.proc == nil || !o.proc.running() || o.paused || o.c.api.Unspent(sim.ControllerName) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	var r shell.Report
	if err := shell.Ask(ctx, o.statusSocket(), "/status", &r); err != nil {
		return err
	}
	if behind := o.c.api.Behind(sim.ControllerName, r.Kinds); len(behind) > 0 {
		return fmt.Errorf("controller: %s", strings.Join(behind, ", "))
	}
	if !r.Settled && !o.c.api.Faulted(sim.ControllerName) {
		return errors.New("controller: a write is under way")
	}
	return nil
}

// Advance implements scenarios.Tank.
func (c *cluster) Advance(d time.Duration) error {
	time.Sleep(d)
	return nil
}

// Step implements scenarios.Tank: files with it are skipped, see unable.
func (c *cluster) Step(int) int { return 0 }

// BeginStep implements scenarios.Tank.
func (c *cluster) BeginStep(string) {}

// Note implements scenarios.Tank: there is no log of which a hash could be made.
func (c *cluster) Note(string, string) {}

// LogHash implements scenarios.Tank.
func (c *cluster) LogHash() string { return "" }
