package sim

import (
	"k8s.io/klog/v2"

	"towtank/agent/groups"
	"towtank/agent/pools"
	"towtank/sim/kube"
)

// ControllerName is how scenarios and faults name the controller.
const ControllerName = "controller"

// controllerKinds returns the kinds that the controller watches: those of the pool allocation, and with groups all that
// they are computed from.
func (w *World) controllerKinds() []kube.Kind {
	kinds := []kube.Kind{kube.KindEgress, kube.KindExternalIPPool}
	if w.byGroup() {
		kinds = append(kinds, kube.KindEgressGroup, kube.KindPod, kube.KindNamespace)
	}
	return kinds
}

// Controller returns the machine that the controller runs on: a node without a network.
func (w *World) Controller() *Node {
	if w.control == nil {
		w.control = &Node{world: w, name: ControllerName, up: true, ovsUp: true, about: map[string][]string{}}
	}
	return w.control
}

// startController starts the controller, if it does not run: the pool allocation, and with membership=egressgroup the
// groups.
func (w *World) startController() {
	n := w.Controller()
	if n.agent != nil && !n.agent.dead {
		return
	}
	p := newProc(n, w.controllerKinds())
	c := pools.New(pools.Seams{
		Cluster: clusterSeam{p}, Clock: clockSeam{p}, Post: func(f func()) { p.post("turn", f) }, Log: klog.New(nopSink{}),
	})
	p.handle, p.stop = c.Handle, c.Stop
	if w.byGroup() {
		g := groups.New(groups.Seams{
			Cluster: clusterSeam{p}, Clock: clockSeam{p}, Post: func(f func()) { p.post("groups", f) }, Log: klog.New(nopSink{}),
		})
		p.handle = func(ev any) {
			c.Handle(ev)
			g.Handle(ev)
		}
		p.stop = func() {
			c.Stop()
			g.Stop()
		}
	}
	n.agent = p
	p.unhold()
	p.post("start", func() { p.watch() })
}
