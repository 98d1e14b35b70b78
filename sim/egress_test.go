package sim

import (
	"testing"
	"time"
)

const egressYAML = `
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
`

// The example of the scenario language: an Egress IP from a pool, on another node than the Pod, moves
// when its node dies; another Pod's traffic does not notice.
func TestEgressFailover(t *testing.T) {
	for seed := uint64(0); seed < 300; seed++ {
		w := newWorld(t, seed, "n1", "n2", "n3")
		for _, n := range []string{"n2", "n3"} {
			if err := w.Kube.ChangeLabels("Node", "", n, map[string]string{"egress": "yes"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.AddExternal(ExternalConfig{Name: "ext"}); err != nil {
			t.Fatal(err)
		}
		pod(t, w, "default", "client", "n1", map[string]string{"app": "web"})
		pod(t, w, "default", "other", "n1", nil)
		if _, err := w.Kube.Apply([]byte(egressYAML), "egress.yaml"); err != nil {
			t.Fatal(err)
		}
		settle(t, w)
		client, _ := w.PodSource("default/client")
		other, _ := w.PodSource("default/other")
		expect := func(from *Source, want string) {
			t.Helper()
			r := probe(t, w, from, "172.18.0.101", 8080)
			if r.Verdict != OK || r.Source.String() != want {
				t.Errorf("seed %d: %+v, want source %s", seed, r, want)
				for _, s := range w.Traced(func() { probe(t, w, from, "172.18.0.101", 8080) }) {
					t.Logf("  %s %s: %s drop=%v", s.Node, s.Where, s.Text, s.Drop)
				}
			}
		}
		expect(client, "172.18.0.50")
		expect(other, "172.18.0.11")
		var owner *Node
		for _, n := range w.Nodes() {
			if n.ns.HasAddress(mustAddr("172.18.0.50")) {
				if owner != nil {
					t.Errorf("two owners")
				}
				owner = n
			}
		}
		if owner == nil {
			t.Fatal("no owner")
		}
		w.NodeDown(owner, false)
		if err := w.Advance(20 * time.Second); err != nil {
			t.Fatal(err)
		}
		settle(t, w)
		expect(client, "172.18.0.50")
		h := w.LogHash()
		_ = h
		if t.Failed() {
			return
		}
	}
}
