package sim

import (
	"strings"
	"testing"
	"time"

	"towtank/sim/packet"
)

// everything is all that packets can change, as text.
func everything(w *World) string {
	var b strings.Builder
	for _, n := range w.Nodes() {
		b.WriteString(n.name + "\n" + n.ns.DumpText() + n.ns.ConntrackText() + n.sw.DumpText() + n.sw.ConntrackText())
		for _, a := range append([]string(nil), n.ns.Listening()...) {
			b.WriteString(a + "\n")
		}
		for _, p := range w.nodeOrder {
			if at, ok := n.tunnels.used[p.v4]; ok {
				b.WriteString("tunnel " + p.name + " " + at.String() + "\n")
			}
		}
	}
	for _, x := range w.Externals() {
		b.WriteString(x.name + "\n" + x.ns.DumpText() + x.ns.ConntrackText())
	}
	for _, s := range w.runtime.running() {
		b.WriteString(s.id + "\n" + s.ns.DumpText() + s.ns.ConntrackText())
	}
	return b.String()
}

// A peek leaves no trace: not in switches, kernels, neighbour tables or tunnels, and the next probe finds
// and uses what it would have found without it.
func TestPeekLeavesNoTrace(t *testing.T) {
	w := newWorld(t, 1, "n1", "n2")
	if _, err := w.AddExternal(ExternalConfig{Name: "ext"}); err != nil {
		t.Fatal(err)
	}
	pod(t, w, "default", "a", "n1", map[string]string{"app": "web"})
	pod(t, w, "default", "b", "n2", map[string]string{"app": "web"})
	if _, err := w.Kube.Apply([]byte(`
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: LoadBalancer, sessionAffinity: ClientIP, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
status: {loadBalancer: {ingress: [{ip: 172.18.200.1}]}}
---
apiVersion: v1
kind: Service
metadata: {name: none, namespace: default}
spec: {selector: {app: none}, ports: [{port: 80, targetPort: 8080}]}
`), "svc.yaml"); err != nil {
		t.Fatal(err)
	}
	settle(t, w)
	a, err := w.PodSource("default/a")
	if err != nil {
		t.Fatal(err)
	}
	x := w.ExternalSource(w.External("ext"))
	before := everything(w)
	var verdicts []Verdict
	look := func() {
		err := w.Peek(func(probe func(Flow) (Result, error)) {
			for _, f := range []Flow{
				{From: a, To: mustAddr("172.18.0.101"), Port: 8080, Proto: packet.ProtoTCP},
				{From: a, To: mustAddr("10.96.0.2"), Port: 80, Proto: packet.ProtoTCP},
				{From: a, To: mustAddr("10.96.0.3"), Port: 80, Proto: packet.ProtoTCP},
				{From: x, To: mustAddr("172.18.200.1"), Port: 80, Proto: packet.ProtoTCP},
				{From: x, To: mustAddr("172.18.200.1"), Port: 80, Proto: packet.ProtoTCP, Next: w.Node("n2")},
				{From: w.NodeSource(w.Node("n1")), To: mustAddr("10.96.0.2"), Port: 80, Proto: packet.ProtoTCP},
			} {
				r, err := probe(f)
				if err != nil {
					t.Fatal(err)
				}
				verdicts = append(verdicts, r.Verdict)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if after := everything(w); after != before {
			t.Errorf("a peek left a trace:\n--- before\n%s\n--- after\n%s", before, after)
		}
	}
	look()
	if want := []Verdict{OK, OK, Reject, OK, OK, OK}; len(verdicts) != len(want) {
		t.Errorf("verdicts %v, want %v", verdicts, want)
	} else {
		for i := range want {
			if verdicts[i] != want[i] {
				t.Errorf("verdicts %v, want %v", verdicts, want)
			}
		}
	}
	// Now with something there that a peek could disturb.
	probe(t, w, a, "10.96.0.2", 80)
	probe(t, w, x, "172.18.200.1", 80)
	before = everything(w)
	look()
	if r := probe(t, w, a, "172.18.0.101", 8080); r.Verdict != OK {
		t.Errorf("%+v", r)
	}
	if got := w.traffic.ports["default/a"]; got != 40001 {
		t.Errorf("the next source port of the client follows %d, want 40001", got)
	}
}

func BenchmarkPeek(b *testing.B) {
	w, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		if _, err := w.AddNode(n); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := w.AddExternal(ExternalConfig{Name: "ext"}); err != nil {
		b.Fatal(err)
	}
	if err := w.Settle(30 * time.Second); err != nil {
		b.Fatal(err)
	}
	src := w.NodeSource(w.Node("n1"))
	for range b.N {
		_ = w.Peek(func(probe func(Flow) (Result, error)) {
			if r, err := probe(Flow{From: src, To: mustAddr("172.18.0.101"), Port: 8080, Proto: packet.ProtoTCP}); err != nil || r.Verdict != OK {
				b.Fatal(r, err)
			}
		})
	}
}
