//go:build linux

package netns

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"towtank/agent/shell"
	"towtank/sim"
)

// askLimit bounds a question to an agent.
const askLimit = 10 * time.Second

// statusSocket is where the agent answers questions about itself.
func (m *machine) statusSocket() string { return filepath.Join(m.dir, "status.sock") }

// ask asks the agent of a node.
func (m *machine) ask(path string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	if err := shell.Ask(ctx, m.statusSocket(), path, into); err != nil {
		return fmt.Errorf("node %s: %w", m.name, err)
	}
	return nil
}

// ledger has what the agents of a node wrote since the last mark.
type ledger struct {
	since   uint64 // number of the write before, of the process that runs
	refused uint64 // packets that this process had refused then
	writes  []shell.Write
	packets uint64 // refused by earlier processes since the mark
	gap     bool   // some are not known
}

// harvest takes over what the agent wrote since it was asked last. It is asked before its process ends, too; what
// that writes in its last moment is lost.
func (m *machine) harvest() error {
	m.mu.Lock()
	l := m.ledger
	m.mu.Unlock()
	var list shell.WriteList
	if err := m.ask(fmt.Sprintf("/writes?after=%d", l.since), &list); err != nil {
		return err
	}
	var r shell.Report
	if err := m.ask("/status", &r); err != nil {
		return err
	}
	l.writes = append(l.writes[:len(l.writes):len(l.writes)], list.Writes...)
	l.gap = l.gap || !list.Complete
	if n := len(list.Writes); n > 0 {
		l.since = list.Writes[n-1].Number
	}
	l.packets += r.Refused - l.refused
	l.refused = r.Refused
	m.mu.Lock()
	m.ledger = l
	m.mu.Unlock()
	return nil
}

// Mark implements scenarios.Tank.
func (c *cluster) Mark() {
	for _, m := range c.machines {
		if m.agentRuns() {
			c.problem(m.harvest())
		}
		m.mu.Lock()
		m.ledger.writes, m.ledger.packets, m.ledger.gap = nil, 0, false
		m.mu.Unlock()
	}
}

// since returns the writes since the last mark that match.
func (m *machine) since(match func(units []string) bool) ([]shell.Write, uint64, error) {
	if m.agentRuns() {
		if err := m.harvest(); err != nil {
			return nil, 0, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ledger.gap {
		return nil, 0, fmt.Errorf("node %s: more was written than its agent remembers", m.name)
	}
	var out []shell.Write
	for _, w := range m.ledger.writes {
		if match == nil || match(w.Units) || match(w.About) {
			out = append(out, w)
		}
	}
	return out, m.ledger.packets, nil
}

// Writes implements scenarios.Node.
func (m *machine) Writes(match func(units []string) bool) (map[string]int, error) {
	list, packets, err := m.since(match)
	out := map[string]int{shell.SeamSwitch: 0, shell.SeamHost: 0, shell.SeamAPI: 0, "packet-in": int(packets)}
	for _, w := range list {
		if sim.SeamOf(string(w.Class)) != "" {
			out[w.Seam]++
		}
	}
	return out, err
}

// maxLastWrites is how many writes LastWrites shows.
const maxLastWrites = 5

// LastWrites implements scenarios.Node.
func (m *machine) LastWrites(seam string, match func([]string) bool) []string {
	list, _, err := m.since(match)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, w := range list {
		if w.Seam == seam && len(out) < maxLastWrites {
			out = append(out, fmt.Sprintf("%s %v %v", w.Class, w.Units, w.About))
		}
	}
	return out
}

// store asks what each unit wants.
func (m *machine) store() ([]shell.Unit, error) {
	var out []shell.Unit
	return out, m.ask("/store", &out)
}

// ObjectsOf implements scenarios.Node.
func (m *machine) ObjectsOf(match func(unit string) bool) ([]string, error) {
	units, err := m.store()
	seen := map[string]bool{}
	for _, u := range units {
		if !match(u.Name) && !slices.ContainsFunc(u.About, match) {
			continue
		}
		for _, o := range u.Objects {
			if o.Known {
				seen[string(o.Kind)+" "+o.Text] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen)), err
}

// Holders implements scenarios.Tank.
func (c *cluster) Holders(ip netip.Addr) []string {
	var out []string
	for _, m := range c.machines {
		if m.HasAddress(ip) {
			out = append(out, m.name)
		}
	}
	return out
}
