package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"towtank/agent/edge"
	"towtank/datapath"
	"towtank/sim/kube"
)

// notReadyAfter is when the control plane calls a node that does not report not ready
// (kube-controller-manager, --node-monitor-grace-period).
const notReadyAfter = 40 * time.Second

// AgentOp starts, stops, kills, restarts, pauses or resumes the agent of a node.
func (w *World) AgentOp(n *Node, op string) error {
	start := func() {
		if n == w.control {
			w.startController()
		} else {
			w.startAgent(n)
		}
	}
	switch op {
	case "start":
		start()
	case "stop":
		w.stopAgent(n, true)
	case "kill":
		w.killAgent(n, "by the scenario")
	case "restart":
		// The process is replaced: it is back before anybody misses it, so it does not leave.
		w.stopAgent(n, false)
		start()
	case "pause":
		w.pauseAgent(n, true)
	case "resume":
		w.pauseAgent(n, false)
	default:
		return fmt.Errorf("agent %s: want start, stop, kill, restart, pause or resume", op)
	}
	return nil
}

// OVSOp restarts, kills or starts the vswitchd of a node. Flows, groups, meters and conntrack are lost;
// the database stays.
func (w *World) OVSOp(n *Node, op string) error {
	switch op {
	case "restart":
		w.ovsDown(n)
		w.ovsUp(n)
	case "kill":
		w.ovsDown(n)
	case "start":
		w.ovsUp(n)
	default:
		return fmt.Errorf("ovs %s: want restart, kill or start", op)
	}
	return nil
}

func (w *World) ovsDown(n *Node) {
	if !n.ovsUp {
		return
	}
	n.ovsUp = false
	n.ByHand()
	n.sw.Stop()
	n.sw.Restart()
	n.tunnels.forget()
	n.tell("disconnected", datapath.DisconnectEvent{})
}

func (w *World) ovsUp(n *Node) {
	if n.ovsUp || !n.up {
		return
	}
	n.ovsUp = true
	n.ByHand()
	n.sw.Start()
	n.internalDevices()
	// A new connection brings the ports there are: an agent that started meanwhile does not know them.
	for _, st := range n.sw.Ports() {
		if st.OFPort != 0 && st.Port != nil {
			n.tell("port", datapath.PortEvent{Name: st.Name, OFPort: st.OFPort, Up: st.Up})
		}
	}
	n.tell("connected", datapath.DisconnectEvent{Connected: true, Restarted: true})
}

// NodeDown powers a node off, or with silent ends only its agent: kernel, addresses and flows stay.
func (w *World) NodeDown(n *Node, silent bool) {
	if silent {
		w.killAgent(n, "silent death")
		return
	}
	if !n.up {
		return
	}
	w.killAgent(n, "power off")
	n.up, n.ovsUp = false, false
	n.sw.Stop()
	if err := w.fabric.SetDown(n.name, true); err != nil {
		w.problem(err.Error())
	}
	w.runtime.nodeDown(n)
	w.networkChanged()
	n.downTimer = w.queue.After(notReadyAfter, edge.Background, "node-controller", "not ready "+n.name, func() {
		if err := w.Kube.SetNodeReady(n.name, false); err != nil {
			w.problem(err.Error())
		}
	})
}

// NodeUp boots a node: OVSDB and IPAM files are there; links, addresses, flows, netfilter and conntrack
// are not. With addresses, it comes back under those.
func (w *World) NodeUp(n *Node, ips []netip.Addr) error {
	if n.up {
		// After a silent death only the agent has to start.
		w.startAgent(n)
		return nil
	}
	n.up, n.ovsUp = true, true
	n.ByHand()
	if n.downTimer != nil {
		n.downTimer.Stop()
	}
	n.ns.Reboot()
	n.tunnels.forget()
	for _, ip := range ips {
		if ip.Is6() {
			n.v6 = ip
		} else {
			n.v4 = ip
		}
	}
	if err := w.fabric.SetDown(n.name, false); err != nil {
		return err
	}
	for _, a := range n.addresses() {
		if err := n.ns.AddAddress(Uplink, netip.PrefixFrom(a, w.bitsOf(a))); err != nil {
			return err
		}
	}
	w.routes(n.ns)
	n.listen()
	n.sw.Restart()
	n.sw.Start()
	for _, st := range n.sw.Ports() {
		n.sw.DeviceChanged(st.Name)
	}
	n.internalDevices()
	if err := w.Kube.RegisterNode(n.registration()); err != nil {
		return err
	}
	w.startAgent(n)
	w.networkChanged()
	w.runtime.nodeUp(n)
	return nil
}

// AddFault sets a fault on a node.
func (w *World) AddFault(n *Node, f Fault) {
	n.faults = append(n.faults, &f)
}

// ClearFaults ends the faults of a node; ports that were held back get their numbers.
func (w *World) ClearFaults(n *Node) {
	n.faults = nil
	if n == w.control {
		return // it has no switch
	}
	n.sw.ReleaseLate()
	n.internalDevices()
}

// UnusedFaults returns the faults of all nodes that hit less than they were to hit.
func (w *World) UnusedFaults() []string {
	out := slices.Clone(w.unused)
	nodes := w.nodeOrder
	if w.control != nil {
		nodes = append(slices.Clip(nodes), w.control)
	}
	for _, n := range nodes {
		for _, f := range n.faults.Unused() {
			out = append(out, n.name+" "+f)
		}
	}
	return out
}

// SetSkew puts the clock of a node's agent ahead.
func (w *World) SetSkew(n *Node, skew time.Duration) { n.skew = int64(skew) }

// Watch holds, closes or releases watches of a node's agent, or of the controller.
func (w *World) Watch(n *Node, op string, kinds []kube.Kind, count int) error {
	if len(kinds) == 0 {
		kinds = w.agentKinds()
		if n == w.control {
			kinds = w.controllerKinds()
		}
	}
	switch op {
	case "hold":
		w.Kube.HoldWatch(n.name, kinds...)
	case "close":
		w.Kube.CloseWatch(n.name, kinds...)
	case "release":
		w.Kube.ReleaseWatch(n.name, count, kinds...)
		w.pump()
	default:
		return fmt.Errorf("watch %s: want hold, close or release", op)
	}
	return nil
}

// Mark begins a new count of effects on every node.
func (w *World) Mark() {
	for _, n := range w.nodeOrder {
		n.marked = len(n.journal)
		n.packetIns = 0
	}
}

// Writes counts the effects of a node since the last mark, by seam (switch, host, api) and packet-ins.
// With a unit only those that touch it count.
func (n *Node) Writes(match func(units []string) bool) map[string]int {
	out := map[string]int{"switch": 0, "host": 0, "api": 0, "packet-in": n.packetIns}
	for _, e := range n.journal[n.marked:] {
		if s := seamOf(e.Class); s != "" && (match == nil || match(e.Units) || match(e.About)) {
			out[s]++
		}
	}
	return out
}

// Effects returns how many effects a node's agents had so far.
func (n *Node) Effects() int { return n.effects }

// Journal returns the effects of a node's agents, in order.
func (n *Node) Journal() []Entry { return slices.Clone(n.journal) }

// CNI makes a bare CNI call for a container of the scenario; the Pod object is made if there is none.
func (w *World) CNI(n *Node, verb edge.CNIVerb, id, pod, ifname string, done func(edge.CNIReply)) error {
	c := w.runtime
	if ifname == "" {
		ifname = "eth0"
	}
	ns, name, _ := cutKey(pod)
	if verb == edge.CNIAdd {
		r := c.run(pod)
		r.manual, r.node = true, n.name
		if c.pod(pod) == nil {
			if err := w.Kube.CreatePod(kube.PodConfig{Namespace: ns, Name: name, Node: n.name}); err != nil {
				return err
			}
		}
	}
	s := c.byID[id]
	if s == nil {
		if verb == edge.CNIAdd {
			s = c.newSandbox(id, pod, n.name, ifname)
		} else {
			s = &container{id: id, pod: pod, node: n.name, ifname: ifname}
		}
	}
	c.call(n, verb, s, s.result, func(r edge.CNIReply) {
		switch {
		case verb == edge.CNIAdd && r.Err == nil:
			s.result = r.Result
			c.report(c.run(pod), addrs(r.Result.IPs), true)
		case verb == edge.CNIDel && r.Err == nil && c.byID[id] == s:
			c.forget(s)
		}
		done(r)
	})
	return nil
}

// CNIGC makes a GC call: keep are the container ids that stay.
func (w *World) CNIGC(n *Node, keep []string, done func(edge.CNIReply)) {
	req := &edge.CNIRequest{Verb: edge.CNIGC}
	for _, id := range keep {
		ifname := "eth0"
		if s := w.runtime.byID[id]; s != nil {
			ifname = s.ifname
		}
		req.Valid = append(req.Valid, edge.Attachment{ContainerID: id, Ifname: ifname})
	}
	w.runtime.send(n, req, done)
}

// CNIStatus makes a STATUS call.
func (w *World) CNIStatus(n *Node, done func(edge.CNIReply)) {
	w.runtime.send(n, &edge.CNIRequest{Verb: edge.CNIStatus}, done)
}

// PodOptions is what a scenario says of a Pod beyond its object.
type PodOptions struct {
	IPs      []netip.Addr
	NotReady bool
	NoAdd    bool
}

// PreparePod notes what a Pod is to get, before its object is made.
func (w *World) PreparePod(key string, o PodOptions) {
	r := w.runtime.run(key)
	r.ips, r.notReady, r.stopped, r.prepared = o.IPs, o.NotReady, o.NoAdd, true
}

// StartPod has the kubelet start a Pod (ADD).
func (w *World) StartPod(key string) error {
	r := w.runtime.pods[key]
	if r == nil {
		return fmt.Errorf("pod %s is not known", key)
	}
	r.stopped, r.manual = false, false
	w.podChanged(key)
	w.runtime.wake()
	return nil
}

// StopPod has the kubelet stop a Pod (DEL); its object stays.
func (w *World) StopPod(key string) error {
	r := w.runtime.pods[key]
	if r == nil {
		return fmt.Errorf("pod %s is not known", key)
	}
	r.stopped = true
	w.runtime.stop(r)
	for _, s := range w.runtime.running() {
		if s.pod == key {
			w.runtime.remove(s)
		}
	}
	w.runtime.report(r, nil, false)
	return nil
}

// PodNetns returns the name of the network namespace of a Pod's newest sandbox, "" if none runs.
func (w *World) PodNetns(key string) string {
	if s := w.runtime.sandboxOf(key); s != nil {
		return s.id
	}
	return ""
}

// IPAMCount returns how many addresses are given on a node.
func (n *Node) IPAMCount() int { return n.ipam.count() }
