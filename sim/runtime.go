package sim

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"towtank/agent/edge"
	"towtank/sim/host"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

// containers is the container runtime and kubelet of every node: it makes sandboxes for Pods, calls
// CNI, and reports addresses and readiness. What fails is taken down and tried anew, after 1 s, 2 s, …
// up to 60 s.
type containers struct {
	w      *World
	pods   map[string]*podRun
	byID   map[string]*container
	posted bool
	next   int
}

// podRun is a Pod that was started.
type podRun struct {
	key, node string
	uid       types.UID    // of the Pod that was looked at last
	prepared  bool         // the options are those of the next Pod of this name
	ips       []netip.Addr // asked for
	notReady  bool         // stays unready
	manual    bool         // started and stopped by the scenario only
	stopped   bool         // the scenario stopped it
	hostNet   bool
	sandbox   *container
	backoff   time.Duration
	timer     edge.Timer
	starting  bool
	// open are the ports that a Pod serves on its node's network.
	open []kube.PodPort
}

// container is one sandbox: its network namespace, and what CNI returned for it.
type container struct {
	id, pod, node string
	ifname        string
	ns            *host.Netns
	result        *edge.CNIResult
	deleting      bool
}

// cniLimit is how long the runtime waits for an answer.
const cniLimit = 2 * time.Minute

func newContainers(w *World) *containers {
	return &containers{w: w, pods: map[string]*podRun{}, byID: map[string]*container{}}
}

// requested returns the addresses that a container was asked to get.
func (c *containers) requested(id string) []netip.Addr {
	if s := c.byID[id]; s != nil {
		if run := c.pods[s.pod]; run != nil {
			return run.ips
		}
	}
	return nil
}

// run returns the record of a Pod, making it.
func (c *containers) run(key string) *podRun {
	r := c.pods[key]
	if r == nil {
		r = &podRun{key: key}
		c.pods[key] = r
	}
	return r
}

// wake has the Pods that changed looked at.
func (c *containers) wake() {
	if c.posted {
		return
	}
	c.posted = true
	c.w.queue.Post("kubelet", "pods", func() {
		c.posted = false
		keys := c.w.podWork
		c.w.podWork = nil
		for _, k := range keys {
			c.look(k)
		}
	})
}

// look brings what runs in line with a Pod object.
func (c *containers) look(key string) {
	pod := c.pod(key)
	r := c.pods[key]
	if pod == nil {
		if r != nil {
			c.stop(r)
			delete(c.pods, key)
		}
		return
	}
	if r != nil && r.uid != "" && r.uid != pod.UID {
		r = c.replaced(r)
	}
	n := c.w.nodes[pod.Spec.NodeName]
	if n == nil {
		if pod.Spec.NodeName != "" {
			ref := edge.Ref{Kind: string(kube.KindPod), Namespace: pod.Namespace, Name: pod.Name}
			c.w.Kube.RecordEvent("pod-garbage-collector", ref, "Warning", "NodeNotFound", "There is no node "+pod.Spec.NodeName+" to run it")
		}
		return
	}
	if r == nil {
		r = c.run(key)
	}
	r.uid, r.node, r.prepared = pod.UID, n.name, false
	if !n.up || r.manual || r.stopped || r.sandbox != nil || r.starting || r.timer != nil {
		return
	}
	if pod.Spec.HostNetwork {
		c.startOnHost(r, n, pod)
		return
	}
	if finishedPod(pod) {
		return
	}
	c.start(r, n)
}

// replaced stops the Pod that had the name before, and returns a record for the new one.
func (c *containers) replaced(old *podRun) *podRun {
	c.stop(old)
	r := &podRun{key: old.key}
	if old.prepared {
		r.ips, r.notReady, r.stopped = old.ips, old.notReady, old.stopped
	}
	c.pods[r.key] = r
	return r
}

func finishedPod(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func (c *containers) pod(key string) *corev1.Pod {
	ns, name, _ := cutKey(key)
	o, err := c.w.Kube.Get(kube.KindPod, ns, name)
	if err != nil {
		return nil
	}
	pod, _ := o.(*corev1.Pod)
	return pod
}

func cutKey(key string) (namespace, name string, ok bool) {
	for i := range key {
		if key[i] == '/' {
			return key[:i], key[i+1:], true
		}
	}
	return "", key, false
}

// served returns the ports that a Pod serves: those its containers declare, else 8080/tcp and 8080/udp.
func served(pod *corev1.Pod) []kube.PodPort {
	if pod != nil {
		if p := kube.ServedPorts(pod); len(p) > 0 {
			return p
		}
	}
	return []kube.PodPort{{Port: 8080, Protocol: corev1.ProtocolTCP}, {Port: 8080, Protocol: corev1.ProtocolUDP}}
}

func protoOf(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return packet.ProtoUDP
	case corev1.ProtocolSCTP:
		return packet.ProtoSCTP
	}
	return packet.ProtoTCP
}

// startOnHost starts a Pod that uses the network of its node.
func (c *containers) startOnHost(r *podRun, n *Node, pod *corev1.Pod) {
	if r.hostNet {
		return
	}
	r.hostNet = true
	r.open = served(pod)
	for _, p := range r.open {
		n.ns.Listen(protoOf(p.Protocol), p.Port, c.w.traffic.server(r.key, protoOf(p.Protocol), p.Port))
	}
	c.report(r, n.addresses(), true)
}

// closeOnHost ends the servers of a Pod on its node's network. What else serves one of their ports there, serves it
// again.
func (c *containers) closeOnHost(r *podRun) {
	n := c.w.nodes[r.node]
	if n == nil || len(r.open) == 0 {
		return
	}
	for _, p := range r.open {
		n.ns.Listen(protoOf(p.Protocol), p.Port, nil)
	}
	r.open = nil
	n.listen()
	for _, key := range slices.Sorted(maps.Keys(c.pods)) {
		if o := c.pods[key]; o.node == r.node {
			for _, p := range o.open {
				n.ns.Listen(protoOf(p.Protocol), p.Port, c.w.traffic.server(o.key, protoOf(p.Protocol), p.Port))
			}
		}
	}
}

// endServers ends the processes of a Pod: its ports are closed, its network stays.
func (c *containers) endServers(key string) {
	if r := c.pods[key]; r != nil {
		c.closeOnHost(r)
	}
	for _, s := range c.running() {
		if s.pod != key {
			continue
		}
		for _, p := range served(c.pod(key)) {
			s.ns.Listen(protoOf(p.Protocol), p.Port, nil)
		}
	}
}

// newSandbox makes a network namespace for a container.
func (c *containers) newSandbox(id, pod, node, ifname string) *container {
	s := &container{id: id, pod: pod, node: node, ifname: ifname}
	s.ns = host.New(host.Config{Name: id, Now: c.w.queue.Now, Queue: c.w.packets, Delivered: c.w.traffic.delivered})
	s.ns.SetTracer(c.w.tracerFor(), pod)
	for _, p := range served(c.pod(pod)) {
		proto := protoOf(p.Protocol)
		s.ns.Listen(proto, p.Port, c.w.traffic.server(pod, proto, p.Port))
	}
	c.w.namespaces[id] = s.ns
	c.byID[id] = s
	return s
}

func (c *containers) start(r *podRun, n *Node) {
	r.starting = true
	c.next++
	// Not a name that a scenario gives to a container of its own.
	id := fmt.Sprintf("kubelet-%d", c.next)
	s := c.newSandbox(id, r.key, n.name, "eth0")
	r.sandbox = s
	c.call(n, edge.CNIAdd, s, nil, func(reply edge.CNIReply) {
		if c.byID[id] != s {
			return // the node went away meanwhile
		}
		r.starting = false
		if c.pods[r.key] != r || r.sandbox != s {
			return // stopped meanwhile: the DEL follows the ADD
		}
		if reply.Err != nil {
			c.event(n, s.pod, "FailedCreatePodSandBox", "The sandbox could not be made: "+reply.Err.Error())
			c.failed(r, s)
			return
		}
		s.result = reply.Result
		r.backoff = 0
		c.report(r, addrs(reply.Result.IPs), !r.notReady)
	})
}

func addrs(p []netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for _, x := range p {
		out = append(out, x.Addr())
	}
	return out
}

// report writes a Pod's status.
func (c *containers) report(r *podRun, ips []netip.Addr, ready bool) {
	ns, name, _ := cutKey(r.key)
	if err := c.w.Kube.SetPodIPs(ns, name, ips); err != nil {
		return // the Pod went meanwhile
	}
	_ = c.w.Kube.SetPodReady(ns, name, ready && len(ips) > 0)
}

// event records what a node's kubelet says about a Pod, if it reaches the API.
func (c *containers) event(n *Node, pod, reason, message string) {
	if ns, name, ok := cutKey(pod); ok && c.w.apiReachable(n.name) {
		c.w.Kube.RecordEvent("kubelet/"+n.name, edge.Ref{Kind: string(kube.KindPod), Namespace: ns, Name: name}, "Warning", reason, message)
	}
}

// failed takes a sandbox down whose ADD failed, and has the next one tried later.
func (c *containers) failed(r *podRun, s *container) {
	r.sandbox = nil
	c.remove(s)
	r.backoff = min(max(2*r.backoff, time.Second), time.Minute)
	r.timer = c.w.queue.After(r.backoff, edge.Work, "kubelet", "retry "+r.key, func() {
		r.timer = nil
		if c.pods[r.key] == r {
			c.look(r.key)
		}
	})
}

// stop takes a Pod's sandbox down.
func (c *containers) stop(r *podRun) {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	r.starting = false
	c.closeOnHost(r)
	r.hostNet = false
	if s := r.sandbox; s != nil {
		r.sandbox = nil
		c.remove(s)
	}
}

// remove calls DEL for a sandbox until it succeeds, then drops its namespace.
func (c *containers) remove(s *container) {
	if s.deleting {
		return
	}
	s.deleting = true
	c.tryRemove(s, time.Second)
}

func (c *containers) tryRemove(s *container, backoff time.Duration) {
	n := c.w.nodes[s.node]
	if n == nil || c.byID[s.id] != s {
		return
	}
	if !n.up {
		s.deleting = false // the kubelet looks at it again when the node is up
		return
	}
	c.call(n, edge.CNIDel, s, nil, func(reply edge.CNIReply) {
		if c.byID[s.id] != s {
			return
		}
		if reply.Err == nil {
			c.forget(s)
			return
		}
		c.event(n, s.pod, "FailedKillPod", "The sandbox could not be taken down: "+reply.Err.Error())
		c.w.queue.After(backoff, edge.Work, "kubelet", "retry DEL "+s.id, func() { c.tryRemove(s, min(2*backoff, time.Minute)) })
	})
}

func (c *containers) forget(s *container) {
	delete(c.byID, s.id)
	delete(c.w.namespaces, s.id)
	if s.ns != nil {
		s.ns.Close()
	}
}

// call makes a CNI call to the agent of a node; done is called as an event of the kubelet. Without an
// agent the plugin answers that it is to be tried again later.
func (c *containers) call(n *Node, verb edge.CNIVerb, s *container, prev *edge.CNIResult, done func(edge.CNIReply)) {
	ns, name, _ := cutKey(s.pod)
	req := &edge.CNIRequest{
		Verb: verb, Attachment: edge.Attachment{ContainerID: s.id, Ifname: s.ifname}, Netns: s.id,
		PodNamespace: ns, PodName: name, PrevResult: prev,
	}
	if s.ns == nil {
		req.Netns = ""
	}
	c.send(n, req, done)
}

// send hands a request to an agent. An answer after cniLimit is not waited for.
func (c *containers) send(n *Node, req *edge.CNIRequest, done func(edge.CNIReply)) {
	answered := false
	var limit edge.Timer
	answer := func(r edge.CNIReply) {
		if answered {
			return
		}
		answered = true
		if limit != nil {
			limit.Stop()
		}
		what := "ok"
		if r.Err != nil {
			what = r.Err.Error()
		}
		c.w.log.Add(c.w.queue.Now(), "cni", n.name, string(req.Verb)+" "+req.ContainerID+" "+what)
		c.w.queue.Post("kubelet/"+n.name, "cni "+string(req.Verb), func() { done(r) })
	}
	p := n.agent
	if p == nil || p.dead {
		answer(edge.CNIReply{Err: &edge.CNIError{Code: edge.CNITryAgainLater, Msg: "the agent does not run"}})
		return
	}
	req.Reply = func(r edge.CNIReply) {
		delete(p.calls, req)
		answer(r)
	}
	p.calls[req] = true
	limit = c.w.queue.After(cniLimit, edge.Background, "kubelet", "cni timeout", func() {
		answer(edge.CNIReply{Err: &edge.CNIError{Code: edge.CNITryAgainLater, Msg: "no answer after " + cniLimit.String()}})
	})
	p.post("cni "+string(req.Verb), func() { p.loop.Handle(req) })
}

// connectionLost answers the calls that an agent had when it ended.
func (c *containers) connectionLost(p *proc) {
	for _, req := range slices.SortedFunc(maps.Keys(p.calls), func(a, b *edge.CNIRequest) int {
		return cmp.Or(cmp.Compare(a.ContainerID, b.ContainerID), cmp.Compare(a.Ifname, b.Ifname), cmp.Compare(a.Verb, b.Verb))
	}) {
		reply := req.Reply
		reply(edge.CNIReply{Err: &edge.CNIError{Code: edge.CNITryAgainLater, Msg: "connection to the agent lost"}})
	}
}

// nodeDown loses what ran on a node.
func (c *containers) nodeDown(n *Node) {
	for _, id := range slices.Sorted(maps.Keys(c.byID)) {
		s := c.byID[id]
		if s.node != n.name || s.ns == nil { // nil: lost in an earlier power-off, and not removed since
			continue
		}
		s.ns.Close()
		delete(c.w.namespaces, id)
		s.ns = nil
		s.deleting = false
	}
	for _, key := range slices.Sorted(maps.Keys(c.pods)) {
		r := c.pods[key]
		if r.node != n.name {
			continue
		}
		if r.timer != nil {
			r.timer.Stop()
			r.timer = nil
		}
		r.hostNet, r.starting = false, false
		r.sandbox = nil // its DEL comes when the node is up
	}
}

// nodeUp takes down what is left of the sandboxes of the last boot, and starts every Pod anew.
func (c *containers) nodeUp(n *Node) {
	for _, id := range slices.Sorted(maps.Keys(c.byID)) {
		if s := c.byID[id]; s.node == n.name {
			c.remove(s)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.pods)) {
		if r := c.pods[key]; r.node == n.name {
			c.w.podChanged(key)
		}
	}
	c.wake()
}

// sandboxOf returns the newest running sandbox of a Pod, nil if there is none.
func (c *containers) sandboxOf(key string) *container {
	if r := c.pods[key]; r != nil && r.sandbox != nil {
		return r.sandbox
	}
	var best *container
	for _, id := range slices.Sorted(maps.Keys(c.byID)) {
		s := c.byID[id]
		if s.pod == key && !s.deleting && s.result != nil {
			best = s
		}
	}
	return best
}

// running returns the sandboxes that have a namespace, sorted by id.
func (c *containers) running() []*container {
	var out []*container
	for _, id := range slices.Sorted(maps.Keys(c.byID)) {
		if s := c.byID[id]; s.ns != nil {
			out = append(out, s)
		}
	}
	return out
}
