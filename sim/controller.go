package sim

import (
	"k8s.io/klog/v2"

	"towtank/agent/pools"
	"towtank/sim/kube"
)

// ControllerName is how scenarios and faults name the pool allocation.
const ControllerName = "controller"

var controllerKinds = []kube.Kind{kube.KindEgress, kube.KindExternalIPPool}

// Controller returns the machine that the pool allocation runs on: a node without a network.
func (w *World) Controller() *Node {
	if w.control == nil {
		w.control = &Node{world: w, name: ControllerName, up: true, ovsUp: true, about: map[string][]string{}}
	}
	return w.control
}

// startController starts the pool allocation, if it does not run.
func (w *World) startController() {
	n := w.Controller()
	if n.agent != nil && !n.agent.dead {
		return
	}
	p := newProc(n, controllerKinds)
	c := pools.New(pools.Seams{
		Cluster: clusterSeam{p}, Clock: clockSeam{p}, Post: func(f func()) { p.post("turn", f) }, Log: klog.New(nopSink{}),
	})
	p.handle, p.stop = c.Handle, c.Stop
	n.agent = p
	p.unhold()
	p.post("start", func() { p.watch() })
}
