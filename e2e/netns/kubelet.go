//go:build linux

package netns

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"towtank/agent/edge"
	"towtank/e2e/peer"
	"towtank/sim"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

// kubelet is the kubelet and container runtime of every node: it makes sandboxes for Pods, calls CNI, and reports
// addresses and readiness, by the rules of the simulator's. What fails is taken down and tried anew, after 1 s,
// 2 s, … up to 60 s. Its state changes under one lock; calls run without it.
type kubelet struct {
	c    *cluster
	stop func()

	mu     sync.Mutex
	pods   map[string]*podRun
	byID   map[string]*sandbox
	order  []string // of byID, as they were made
	work   []string // Pods to look at, as they changed
	wake   chan struct{}
	busy   int // calls that are under way
	later  int // retries that wait
	next   int
	closed bool
}

// podRun is a Pod that was started.
type podRun struct {
	key, node string
	uid       types.UID
	prepared  bool
	ips       []netip.Addr // asked for
	notReady  bool
	manual    bool // started and stopped by the scenario only
	stopped   bool
	hostNet   bool
	sandbox   *sandbox
	backoff   time.Duration
	timer     *time.Timer
	starting  bool
}

// sandbox is a container: its namespace, and what CNI answered.
type sandbox struct {
	id, pod, node string
	ifname        string
	space         *space // nil: lost with its node
	result        *edge.CNIResult
	raw           []byte // the same as the plugin printed it
	deleting      bool
}

var defaultServed = []sim.Port{{Proto: packet.ProtoTCP, Port: defaultPort}, {Proto: packet.ProtoUDP, Port: defaultPort}}

func newKubelet(c *cluster) *kubelet {
	k := &kubelet{c: c, pods: map[string]*podRun{}, byID: map[string]*sandbox{}, wake: make(chan struct{}, 1)}
	c.api.Do(func(cl *kube.Cluster) {
		cl.AddObserver(func(e kube.Event) {
			if e.Kind == kube.KindPod {
				k.changed(e.Key)
			}
		})
	})
	quit, ended := make(chan struct{}), make(chan struct{})
	go k.run(quit, ended)
	k.stop = func() {
		close(quit)
		<-ended
	}
	return k
}

// changed has a Pod looked at.
func (k *kubelet) changed(key string) {
	k.mu.Lock()
	if !slices.Contains(k.work, key) {
		k.work = append(k.work, key)
	}
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *kubelet) run(quit, ended chan struct{}) {
	defer close(ended)
	for {
		select {
		case <-quit:
			return
		case <-k.wake:
		}
		for k.one() {
		}
	}
}

// one looks at one Pod that changed.
func (k *kubelet) one() bool {
	k.mu.Lock()
	if len(k.work) == 0 {
		k.mu.Unlock()
		return false
	}
	key := k.work[0]
	k.work = k.work[1:]
	k.busy++
	k.mu.Unlock()
	pod := k.pod(key)
	k.mu.Lock()
	k.look(key, pod)
	k.busy--
	k.mu.Unlock()
	return true
}

// idle reports whether nothing is under way, no call and no Pod to look at, and whether a retry waits.
func (k *kubelet) idle() (idle, later bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.busy == 0 && len(k.work) == 0, k.later > 0
}

func (k *kubelet) pod(key string) *corev1.Pod {
	ns, name := cut(key)
	o, err := objects{k.c}.Get(kube.KindPod, ns, name)
	if err != nil {
		return nil
	}
	pod, _ := o.(*corev1.Pod)
	return pod
}

func (k *kubelet) of(key string) *podRun {
	r := k.pods[key]
	if r == nil {
		r = &podRun{key: key}
		k.pods[key] = r
	}
	return r
}

// look brings what runs in line with a Pod object.
func (k *kubelet) look(key string, pod *corev1.Pod) {
	if k.closed {
		return
	}
	r := k.pods[key]
	if pod == nil {
		if r != nil {
			k.end(r)
			delete(k.pods, key)
		}
		return
	}
	if r != nil && r.uid != "" && r.uid != pod.UID {
		r = k.replaced(r)
	}
	m := k.c.machine(pod.Spec.NodeName)
	if m == nil {
		if pod.Spec.NodeName != "" {
			go k.event("pod-garbage-collector", key, "NodeNotFound", "There is no node "+pod.Spec.NodeName+" to run it")
		}
		return
	}
	if r == nil {
		r = k.of(key)
	}
	r.uid, r.node, r.prepared = pod.UID, m.name, false
	if !m.Up() || r.manual || r.stopped || r.sandbox != nil || r.starting || r.timer != nil {
		return
	}
	switch {
	case pod.Spec.HostNetwork:
		k.startOnHost(r, m, pod)
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
	default:
		k.start(r, m, pod)
	}
}

// replaced stops the Pod that had the name before, and returns a record for the new one.
func (k *kubelet) replaced(old *podRun) *podRun {
	k.end(old)
	r := &podRun{key: old.key}
	if old.prepared {
		r.ips, r.notReady, r.stopped = old.ips, old.notReady, old.stopped
	}
	k.pods[r.key] = r
	return r
}

// served returns the ports that a Pod serves.
func served(pod *corev1.Pod) []sim.Port {
	var out []sim.Port
	if pod != nil {
		for _, p := range kube.ServedPorts(pod) {
			proto := uint8(packet.ProtoTCP)
			switch p.Protocol {
			case corev1.ProtocolUDP:
				proto = packet.ProtoUDP
			case corev1.ProtocolSCTP:
				proto = packet.ProtoSCTP
			}
			out = append(out, sim.Port{Proto: proto, Port: p.Port})
		}
	}
	if len(out) == 0 {
		return defaultServed
	}
	return out
}

func serveAll(s *space, name string, ports []sim.Port) error {
	for _, p := range ports {
		if p.Proto == packet.ProtoSCTP {
			continue // the kernel has none
		}
		if err := s.peer.Serve(peer.Port{Proto: packet.ProtoName(p.Proto), Port: p.Port, Name: name}); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// startOnHost starts a Pod that uses the network of its node.
func (k *kubelet) startOnHost(r *podRun, m *machine, pod *corev1.Pod) {
	if r.hostNet {
		return
	}
	r.hostNet = true
	s := m.netns()
	if s == nil {
		return
	}
	k.async(func() {
		k.c.problem(serveAll(s, r.key, served(pod)))
		k.report(r, m.addresses(), true)
	})
}

// async runs f without the lock, as something that is under way.
func (k *kubelet) async(f func()) {
	k.busy++
	go func() {
		f()
		k.mu.Lock()
		k.busy--
		k.mu.Unlock()
	}()
}

// newSandbox makes a namespace for a container. It is called without the lock.
func (k *kubelet) newSandbox(id, key, node, ifname string, pod *corev1.Pod) (*sandbox, error) {
	sp, err := newSpace(k.c.prefix + id)
	if err != nil {
		return nil, err
	}
	err = sp.startPeer(k.c.programs.peer)
	if err == nil {
		err = serveAll(sp, key, served(pod))
	}
	if err != nil {
		sp.close()
		return nil, fmt.Errorf("sandbox of %s: %w", key, err)
	}
	return &sandbox{id: id, pod: key, node: node, ifname: ifname, space: sp}, nil
}

func (k *kubelet) add(s *sandbox) {
	k.byID[s.id] = s
	k.order = append(k.order, s.id)
}

func (k *kubelet) start(r *podRun, m *machine, pod *corev1.Pod) {
	r.starting = true
	k.next++
	id := fmt.Sprintf("kubelet-%d", k.next) // not a name that a scenario gives to a container of its own
	wait, done := m.turn(len(r.ips) > 0)
	k.async(func() {
		defer done()
		s, err := k.newSandbox(id, r.key, m.name, "eth0", pod)
		if err != nil {
			k.c.problem(err)
			return
		}
		k.mu.Lock()
		gone := k.closed || k.pods[r.key] != r || !r.starting
		if !gone {
			r.sandbox = s
			k.add(s)
		}
		ips := r.ips
		k.mu.Unlock()
		if gone {
			s.space.close()
			return
		}
		wait()
		reply := k.call(m, edge.CNIAdd, s, ips)
		k.added(r, m, s, reply)
	})
}

// turn puts those that ask for certain addresses in a row, and the others behind them: who comes first gets it.
// wait returns when it is one's turn, done ends it. It needs the kubelet's lock.
func (m *machine) turn(asks bool) (wait, done func()) {
	before := m.last
	wait = func() {
		if before != nil {
			<-before
		}
	}
	if !asks {
		return wait, func() {}
	}
	mine := make(chan struct{})
	m.last = mine
	return wait, func() { close(mine) }
}

func (k *kubelet) added(r *podRun, m *machine, s *sandbox, reply edge.CNIReply) {
	k.mu.Lock()
	if k.byID[s.id] != s || s.space == nil {
		k.mu.Unlock()
		return // the node went away meanwhile
	}
	r.starting = false
	if k.pods[r.key] != r || r.sandbox != s {
		k.mu.Unlock()
		return // stopped meanwhile: the DEL follows the ADD
	}
	if reply.Err != nil {
		k.failed(r, s)
		k.mu.Unlock()
		k.eventAt(m, s.pod, "FailedCreatePodSandBox", "The sandbox could not be made: "+reply.Err.Error())
		return
	}
	s.result = reply.Result
	r.backoff = 0
	ready := !r.notReady
	k.mu.Unlock()
	k.report(r, addresses(reply.Result), ready)
}

func addresses(r *edge.CNIResult) []netip.Addr {
	var out []netip.Addr
	for _, p := range r.IPs {
		out = append(out, p.Addr())
	}
	return out
}

// report writes a Pod's status. It is called without the lock.
func (k *kubelet) report(r *podRun, ips []netip.Addr, ready bool) {
	ns, name := cut(r.key)
	_ = k.c.do(func(c *kube.Cluster) error {
		if err := c.SetPodIPs(ns, name, ips); err != nil {
			return err // the Pod went meanwhile
		}
		return c.SetPodReady(ns, name, ready && len(ips) > 0)
	})
}

func (k *kubelet) event(source, pod, reason, message string) {
	ns, name := cut(pod)
	k.c.api.Do(func(c *kube.Cluster) {
		c.RecordEvent(source, edge.Ref{Kind: string(kube.KindPod), Namespace: ns, Name: name}, "Warning", reason, message)
	})
}

// eventAt records what a node's kubelet says about a Pod, if it reaches the API.
func (k *kubelet) eventAt(m *machine, pod, reason, message string) {
	if k.c.api.Reachable(m.name) {
		k.event("kubelet/"+m.name, pod, reason, message)
	}
}

// failed takes a sandbox down whose ADD failed, and has the next one tried later.
func (k *kubelet) failed(r *podRun, s *sandbox) {
	r.sandbox = nil
	k.remove(s)
	r.backoff = min(max(2*r.backoff, time.Second), time.Minute)
	k.later++
	r.timer = time.AfterFunc(r.backoff, func() {
		k.mu.Lock()
		k.later--
		r.timer = nil
		current := k.pods[r.key] == r
		k.mu.Unlock()
		if current {
			k.changed(r.key)
		}
	})
}

// end takes a Pod's sandbox down.
func (k *kubelet) end(r *podRun) {
	k.stopTimer(r)
	r.starting = false
	if m := k.c.machine(r.node); r.hostNet && m != nil {
		r.hostNet = false
		k.async(func() { k.c.problem(k.unserve(m)) })
	}
	if s := r.sandbox; s != nil {
		r.sandbox = nil
		k.remove(s)
	}
}

func (k *kubelet) stopTimer(r *podRun) {
	if r.timer != nil && r.timer.Stop() {
		k.later--
	}
	r.timer = nil
}

// unserve gives the ports of a Pod on a node's own network back to the node.
func (k *kubelet) unserve(m *machine) error {
	if m.netns() == nil {
		return nil
	}
	return m.listen()
}

// remove calls DEL for a sandbox until it succeeds, then drops its namespace.
func (k *kubelet) remove(s *sandbox) {
	if s.deleting {
		return
	}
	s.deleting = true
	k.async(func() { k.tryRemove(s) })
}

func (k *kubelet) tryRemove(s *sandbox) {
	for backoff := time.Second; ; backoff = min(2*backoff, time.Minute) {
		k.mu.Lock()
		m, mine := k.c.machine(s.node), k.byID[s.id] == s && !k.closed
		if m != nil && mine && !m.Up() {
			s.deleting = false // the kubelet looks at it again when the node is up
			mine = false
		}
		k.mu.Unlock()
		if m == nil || !mine {
			return
		}
		reply := k.call(m, edge.CNIDel, s, nil)
		if reply.Err == nil {
			k.forget(s)
			return
		}
		k.eventAt(m, s.pod, "FailedKillPod", "The sandbox could not be taken down: "+reply.Err.Error())
		k.sleep(backoff)
	}
}

// sleep waits for the next try: meanwhile nothing is under way, but something is to be done later.
func (k *kubelet) sleep(d time.Duration) {
	k.mu.Lock()
	k.busy, k.later = k.busy-1, k.later+1
	k.mu.Unlock()
	time.Sleep(d)
	k.mu.Lock()
	k.busy, k.later = k.busy+1, k.later-1
	k.mu.Unlock()
}

// forget drops a sandbox that CNI has let go.
func (k *kubelet) forget(s *sandbox) {
	k.mu.Lock()
	if k.byID[s.id] == s {
		delete(k.byID, s.id)
	}
	sp := s.space
	s.space = nil
	k.mu.Unlock()
	if sp != nil {
		sp.close()
	}
}

// nodeDown loses what ran on a node.
func (k *kubelet) nodeDown(m *machine) {
	k.mu.Lock()
	var lost []*space
	for _, s := range k.byID {
		if s.node == m.name && s.space != nil {
			lost = append(lost, s.space)
			s.space, s.deleting = nil, false
		}
	}
	for _, r := range k.pods {
		if r.node == m.name {
			k.stopTimer(r)
			r.hostNet, r.starting, r.sandbox = false, false, nil
		}
	}
	k.mu.Unlock()
	for _, s := range lost {
		s.close()
	}
}

// nodeUp takes down what is left of the sandboxes of the last boot, and starts every Pod anew.
func (k *kubelet) nodeUp(m *machine) {
	k.mu.Lock()
	var again []string
	for _, s := range k.byID {
		if s.node == m.name {
			k.remove(s)
		}
	}
	for key, r := range k.pods {
		if r.node == m.name {
			again = append(again, key)
		}
	}
	k.mu.Unlock()
	for _, key := range again {
		k.changed(key)
	}
}

// sandboxOf returns the newest running sandbox of a Pod, nil if there is none. It needs the lock.
func (k *kubelet) sandboxOf(key string) *sandbox {
	if r := k.pods[key]; r != nil && r.sandbox != nil {
		return r.sandbox
	}
	var best *sandbox
	for _, id := range k.order {
		if s := k.byID[id]; s != nil && s.pod == key && !s.deleting && s.result != nil {
			best = s
		}
	}
	return best
}

// close ends what the kubelets started.
func (k *kubelet) close() {
	k.stop()
	k.mu.Lock()
	k.closed = true
	var all []*space
	for _, s := range k.byID {
		if s.space != nil {
			all = append(all, s.space)
		}
	}
	for _, r := range k.pods {
		k.stopTimer(r)
	}
	k.mu.Unlock()
	for _, s := range all {
		s.close()
	}
}

// lastGiven tells host-local which address of its n-th network it gave last.
func lastGiven(dir string, n int, ip netip.Addr) error {
	p := filepath.Join(dir, "towtank", fmt.Sprintf("last_reserved_ip.%d", n))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	return os.WriteFile(p, []byte(ip.String()), 0o644)
}

func cut(key string) (namespace, name string) {
	for i := range key {
		if key[i] == '/' {
			return key[:i], key[i+1:]
		}
	}
	return "", key
}
