package sim

import (
	"os"
	"runtime"
	"testing"
	"time"

	"towtank/sim/kube"
	"towtank/sim/packet"
)

func newWorld(t *testing.T, seed uint64, names ...string) *World {
	t.Helper()
	o := Options{Seed: seed}
	if os.Getenv("SIMLOG") != "" {
		o.LogTo = os.Stderr
	}
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if _, err := w.AddNode(n); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func settle(t *testing.T, w *World) {
	t.Helper()
	if err := w.Settle(30 * time.Second); err != nil {
		t.Fatalf("settle: %v", err)
	}
	for _, p := range w.Problems() {
		t.Errorf("problem: %s", p)
	}
}

func pod(t *testing.T, w *World, ns, name, node string, labels map[string]string) {
	t.Helper()
	if err := w.Kube.CreatePod(kube.PodConfig{Namespace: ns, Name: name, Node: node, Labels: labels}); err != nil {
		t.Fatal(err)
	}
}

func probe(t *testing.T, w *World, from *Source, to string, port uint16) Result {
	t.Helper()
	r, err := w.Probe(Flow{From: from, To: mustAddr(to), Port: port, Proto: packet.ProtoTCP})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Two Pods on two nodes, a Service with both behind it, an Egress for one: the first walk through every
// seam.
func TestFirstWalk(t *testing.T) {
	w := newWorld(t, 1, "n1", "n2")
	if _, err := w.AddExternal(ExternalConfig{Name: "ext"}); err != nil {
		t.Fatal(err)
	}
	settle(t, w)
	pod(t, w, "default", "a", "n1", map[string]string{"app": "web"})
	pod(t, w, "default", "b", "n2", map[string]string{"app": "web"})
	settle(t, w)
	a, err := w.PodSource("default/a")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := w.PodSource("default/b")
	if len(b.addrs) == 0 || len(a.addrs) == 0 {
		t.Fatalf("no addresses: %v %v", a.addrs, b.addrs)
	}
	check := func(what string, r Result, want Verdict, source string) {
		t.Helper()
		if r.Verdict != want {
			for _, s := range w.Traced(func() { probe(t, w, a, "10.96.0.2", 80) }) {
				t.Logf("  %s %s: %s drop=%v", s.Node, s.Where, s.Text, s.Drop)
			}
		}
		if r.Verdict != want || (source != "" && r.Source.String() != source) {
			t.Errorf("%s: %+v, want %s source=%s", what, r, want, source)
		}
	}
	check("pod to pod", probe(t, w, a, b.addrs[0].String(), 8080), OK, a.addrs[0].String())
	check("pod to ext", probe(t, w, a, "172.18.0.101", 8080), OK, "172.18.0.11")
	check("pod to node", probe(t, w, a, "172.18.0.12", 8080), OK, "172.18.0.11")
	x := w.ExternalSource(w.External("ext"))
	_ = x
	if _, err := w.Kube.Apply([]byte(`
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`), "svc.yaml"); err != nil {
		t.Fatal(err)
	}
	settle(t, w)
	check("pod to service", probe(t, w, a, "10.96.0.2", 80), OK, "")
	check("ext to nodeport", probe(t, w, x, "172.18.0.11", 30000), OK, "")
	check("unserved", probe(t, w, a, "10.96.0.2", 81), Reject, "")
	check("unallocated", probe(t, w, a, "10.96.0.77", 81), Drop, "")
}

// An agent that was killed is forgotten with all that it knew, though its timers still fire.
func TestKilledAgentIsForgotten(t *testing.T) {
	w := scaleWorld(t)
	addServices(t, w, 20)
	mustSettle(t, w)
	forgotten := make(chan struct{})
	runtime.AddCleanup(w.Node("n1").agent.loop, func(int) { close(forgotten) }, 0)
	w.killAgent(w.Node("n1"), "test")
	w.startAgent(w.Node("n1"))
	mustSettle(t, w)
	for range 100 { // a cleanup runs some time after the collection that found the object
		runtime.GC()
		select {
		case <-forgotten:
			runtime.KeepAlive(w)
			return
		default:
			runtime.Gosched()
		}
	}
	t.Fatal("something in the world still holds the agent that was killed")
}
