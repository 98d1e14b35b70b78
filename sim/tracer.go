package sim

import (
	"strings"

	"towtank/agent/pipeline"
	"towtank/sim/packet"
)

// tracer collects what happens to packets while a trace is on.
type tracer struct {
	w     *World
	on    bool
	steps []packet.TraceStep
}

// Step implements packet.Tracer.
func (t *tracer) Step(s packet.TraceStep) {
	if t.on && len(t.steps) < 10_000 {
		t.steps = append(t.steps, s)
	}
}

func (w *World) trace(s packet.TraceStep) {
	if w.tracer != nil {
		w.tracer.Step(s)
	}
}

// tracerFor returns the tracer for a device, nil while no trace is on.
func (w *World) tracerFor() packet.Tracer {
	if w.tracer == nil || !w.tracer.on {
		return nil
	}
	return w.tracer
}

// Traced runs fn with a trace on, and returns what happened to the packets.
func (w *World) Traced(fn func()) []packet.TraceStep {
	w.tracer = &tracer{w: w, on: true}
	w.setTracers(w.tracer)
	fn()
	steps := w.tracer.steps
	w.tracer = nil
	w.setTracers(nil)
	return steps
}

func (w *World) setTracers(t packet.Tracer) {
	for _, n := range w.nodeOrder {
		n.ns.SetTracer(t, n.name)
		n.sw.SetTracer(t, n.name)
	}
	for _, x := range w.extOrder {
		x.ns.SetTracer(t, x.name)
	}
	//determinism:ignore each namespace is told by itself
	for _, s := range w.runtime.byID {
		if s.ns != nil {
			s.ns.SetTracer(t, s.pod)
		}
	}
	w.fabric.SetTracer(t)
}

// Owner returns the unit that a flow with the cookie on a node belongs to, "" if it is not ours.
func (n *Node) Owner(cookie uint64) string {
	if cookie == 0 || n.agent == nil || n.agent.loop == nil {
		return ""
	}
	if cookie == pipeline.Cookie(pipeline.CookieHost, "host") {
		return "host"
	}
	for _, u := range n.agent.loop.Env().Store.Units() {
		if pipeline.CookieOf(u) == cookie {
			return n.describe(u)
		}
	}
	if cookie>>56 == pipeline.CookieAddress {
		return "a Service address"
	}
	return ""
}

func cutUnit(u string) (kind, rest string, ok bool) {
	for i := range u {
		if u[i] == '/' {
			return u[:i], u[i+1:], true
		}
	}
	return u, "", false
}

// describe says a unit in Kubernetes' words.
func (n *Node) describe(unit string) string {
	kind, rest, _ := cutUnit(unit)
	switch kind {
	case "sandbox":
		if s := n.agent.loop.Env().Sandboxes[unit]; s != nil {
			return "Pod " + s.PodKey()
		}
		return "container " + rest
	case "svcport", "svcskip":
		return "Service " + rest
	case "node":
		return "Node " + rest
	case "egressip":
		if of := egressesOf(n.agent.loop.About(unit)); of != "" {
			return "Egress " + of + " (" + rest + ")"
		}
		return "Egress IP " + rest
	case "podegress":
		if of := egressesOf(n.agent.loop.About(unit)); of != "" {
			return "Egress " + of + " of Pod " + rest
		}
		return "Egress of Pod " + rest
	}
	return unit
}

// egressesOf returns the names of the Egresses in what a unit is about.
func egressesOf(about []string) string {
	var names []string
	for _, a := range about {
		if kind, name, _ := cutUnit(a); kind == "egress" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
