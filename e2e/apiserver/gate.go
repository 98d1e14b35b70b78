package apiserver

import (
	"fmt"
	"slices"

	"towtank/sim"
	"towtank/sim/kube"
)

// gate is what a scenario did to the watches of one client for one kind.
type gate struct {
	held, closed bool
	allowance    int // writes that may pass a held gate
	// expired is the version before which no watch can begin: writes up to it went by while the gate was closed.
	expired uint64
	// closings tells the watches that were open when the gate was closed from later ones.
	closings int
}

// gate returns the gate of a client for a kind. It needs the lock.
func (c *client) gate(k kube.Kind) *gate {
	g := c.gates[k]
	if g == nil {
		g = &gate{}
		c.gates[k] = g
	}
	return g
}

// open returns how many of n writes may pass now.
func (g *gate) open(n int) int {
	switch {
	case g.closed:
		return 0
	case g.held:
		return min(n, g.allowance)
	}
	return n
}

// passed counts writes that passed.
func (g *gate) passed(n int) {
	if g.held {
		g.allowance -= n
	}
}

// Watch holds, closes or releases watches of a client, as sim.World.Watch does: hold then release delivers
// late and in order, count more writes of each kind and the rest stays held if count is positive; close then
// release never delivers what was written between, the client lists again. No kinds: all that an agent or
// the controller watches. Lists and watches that the client begins meanwhile wait too.
func (s *Server) Watch(client, op string, kinds []kube.Kind, count int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(kinds) == 0 {
		kinds = sim.Kinds()
	}
	if !slices.Contains([]string{"hold", "close", "release"}, op) {
		return fmt.Errorf("watch %s: found %q, allowed: hold, close, release", client, op)
	}
	for _, k := range kinds {
		s.turn(s.client(client).gate(k), k, op, count)
	}
	s.tell()
	return nil
}

func (s *Server) turn(g *gate, k kube.Kind, op string, count int) {
	switch op {
	case "hold":
		g.held, g.allowance = true, 0
	case "close":
		g.closed = true
		g.closings++
	case "release":
		faulted := g.held || g.closed
		if g.closed {
			g.closed, g.expired = false, s.histories[k].version
		}
		if g.held = faulted && count > 0; g.held {
			g.allowance += count
		} else {
			g.allowance = 0
		}
	}
}

// Faulted reports whether a watch of the client is held or closed.
func (s *Server) Faulted(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.client(client).gates {
		if g.held || g.closed {
			return true
		}
	}
	return false
}

// SetReachable cuts a client off from the server, or ends that. While it is cut off, requests end without an
// answer; watches are silent, and go on where they were; new ones wait.
func (s *Server) SetReachable(client string, reachable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client(client).cut = !reachable
	s.tell()
}

// Reachable reports whether a client is not cut off.
func (s *Server) Reachable(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.client(client).cut
}
