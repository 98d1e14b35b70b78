package check

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"towtank/datapath"
	"towtank/sim"
	"towtank/sim/kube"
)

// objects are what the world of these tests has: a pool Egress, and Services of several sorts.
const objects = `
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: pool}
spec:
  ipRanges: [{start: 172.18.0.50, end: 172.18.0.59}]
  nodeSelector: {matchLabels: {egress: "yes"}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: web}
spec:
  appliedTo: {podSelector: {matchLabels: {app: web}}}
  externalIPPool: pool
---
apiVersion: v1
kind: Service
metadata: {name: plain, namespace: default}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: node, namespace: default}
spec: {type: NodePort, selector: {app: web}, ports: [{name: a, port: 80, targetPort: 8080}, {name: b, port: 53, protocol: UDP, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: lb, namespace: default}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
---
apiVersion: v1
kind: Service
metadata: {name: sticky, namespace: default}
spec: {sessionAffinity: ClientIP, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: default}
spec: {selector: {app: none}, ports: [{port: 80, targetPort: 8080}]}
`

// world returns a settled world of three nodes, six Pods, and the objects.
func world(t testing.TB, seed uint64) (*sim.World, *Checker) {
	t.Helper()
	o := sim.Options{Seed: seed}
	if os.Getenv("SIMLOG") != "" {
		o.LogTo = os.Stderr
	}
	w, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		if _, err := w.AddNode(n); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{"n2", "n3"} {
		if err := w.Kube.ChangeLabels(kube.KindNode, "", n, map[string]string{"egress": "yes"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.AddExternal(sim.ExternalConfig{Name: "ext"}); err != nil {
		t.Fatal(err)
	}
	apply(t, w, objects)
	for name, at := range map[string]string{"a": "n1", "b": "n2", "c": "n2"} {
		pod(t, w, name, at, map[string]string{"app": "web"})
	}
	for name, at := range map[string]string{"x": "n1", "y": "n2", "z": "n3"} {
		pod(t, w, name, at, nil)
	}
	c := New(w)
	settle(t, w)
	return w, c
}

func pod(t testing.TB, w *sim.World, name, node string, labels map[string]string) {
	t.Helper()
	if err := w.Kube.CreatePod(kube.PodConfig{Namespace: "default", Name: name, Node: node, Labels: labels}); err != nil {
		t.Fatal(err)
	}
}

func apply(t testing.TB, w *sim.World, yaml string) {
	t.Helper()
	if _, err := w.Kube.Apply([]byte(yaml), "test.yaml"); err != nil {
		t.Fatal(err)
	}
}

func settle(t testing.TB, w *sim.World) {
	t.Helper()
	if err := w.Settle(30 * time.Second); err != nil {
		t.Fatalf("settle: %v", err)
	}
	for _, p := range w.Problems() {
		t.Errorf("problem: %s", p)
	}
}

func replace(s string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(s) }

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func none(t testing.TB, when string, got []Result) {
	t.Helper()
	for _, r := range got {
		t.Errorf("%s: %s", when, r)
	}
}

// fails asserts that an invariant failed on a node, and that its detail has a text.
func fails(t testing.TB, got []Result, id int, node, has string) {
	t.Helper()
	for _, r := range got {
		if r.ID == id && r.Node == node && strings.Contains(r.Detail, has) {
			return
		}
	}
	t.Errorf("invariant %d did not fail on %q with %q: %v", id, node, has, got)
}

func TestHoldsThroughLifeAndEnd(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		w, c := world(t, seed)
		none(t, "settled", c.AfterSettle())
		for _, n := range w.Nodes() {
			for _, why := range c.Clean(n) {
				t.Errorf("node %s is not clean: %s", n.Name(), why)
			}
		}
		none(t, "end", c.End(false))
		if c.Count() == 0 {
			t.Error("nothing was checked")
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// anyOp returns an op that deletes the first object of a kind whose text has the given part.
func anyOp(t *testing.T, n *sim.Node, kind datapath.Kind, has string) datapath.Op {
	t.Helper()
	for _, i := range dump(n) {
		if i.key.Kind == kind && strings.Contains(i.obj.String(), has) {
			return datapath.Op{Old: i.obj}
		}
	}
	t.Fatalf("node %s has no %s with %q", n.Name(), kind, has)
	return datapath.Op{}
}

func BenchmarkAfterSettle(b *testing.B) {
	w, c := world(b, 1)
	for range b.N {
		for _, n := range w.Nodes() {
			n.ByHand()
		}
		if r := c.AfterSettle(); len(r) > 0 {
			b.Fatal(r)
		}
	}
}
