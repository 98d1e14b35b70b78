package sim

import (
	"fmt"
	"net/netip"
	"slices"
)

// EndFaults ends everything that a scenario did to the world's machinery: streams stop; faults, losses,
// the partition and the clocks' skew end; watches are released; nodes, vswitchds and agents run. Faults
// that hit less than they were to hit stay in UnusedFaults.
func (w *World) EndFaults() error {
	w.StopStreams()
	w.unused = w.UnusedFaults()
	w.ClearLoss()
	w.Heal()
	for _, n := range append(slices.Clone(w.nodeOrder), w.Controller()) {
		n.skew = 0
		n.faults = nil
		if err := w.Watch(n, "release", nil, 0); err != nil {
			return err
		}
		if n == w.control {
			w.pauseAgent(n, false)
			w.startController()
			continue
		}
		w.ClearFaults(n)
		if !n.up {
			if err := w.NodeUp(n, nil); err != nil {
				return fmt.Errorf("node %s: %w", n.name, err)
			}
		}
		w.ovsUp(n)
		// The kubelet reports its node again, whatever somebody did to the object.
		if err := w.Kube.RegisterNode(n.registration()); err != nil {
			return fmt.Errorf("node %s: %w", n.name, err)
		}
		w.pauseAgent(n, false)
		w.startAgent(n)
	}
	return nil
}

// RemoveContainers has the runtime take down every container that is left: those of bare CNI calls go
// with no Pod.
func (w *World) RemoveContainers() {
	for _, s := range w.runtime.running() {
		w.runtime.remove(s)
	}
}

// AddNodeAt adds the next node with transport addresses of its own; those that are not valid are given by
// position.
func (w *World) AddNodeAt(name string, v4, v6 netip.Addr) (*Node, error) {
	return w.addNode(name, v4, v6)
}
