package kube

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// manifestOf is a Service without selector and an EndpointSlice of ten endpoints for it.
func manifestOf(i int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: s%d}\nspec: {ports: [{name: http, port: 80, targetPort: 8080}]}\n---\n", i)
	fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: s%d-a\n  labels: {kubernetes.io/service-name: s%d}\naddressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints:\n", i, i)
	for j := range 10 {
		fmt.Fprintf(&b, "- {addresses: [10.%d.%d.%d], nodeName: n%d, conditions: {ready: true}}\n", i>>8, i&255, j+1, j%3+1)
	}
	return b.String() + "---\n"
}

// Loading must not grow with the square of the cluster: 10,000 Services and EndpointSlices, as YAML,
// onto one stream that is drained.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				w := newWorld(b, "v4")
				s := w.watch("n1", KindService, KindEndpointSlice)
				events := 0
				for i := range n {
					if _, err := w.Apply([]byte(manifestOf(i)), "f"); err != nil {
						b.Fatal(err)
					}
					for p := s.Pending(); len(p) > 0; p = s.Pending() {
						s.Next(p[0])
						events++
					}
				}
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB")
				b.ReportMetric(float64(events), "events")
				runtime.KeepAlive(w)
			}
		})
	}
}

// One Pod of a Service of 1000 becomes ready and not ready.
func BenchmarkPodReady(b *testing.B) {
	w := newWorld(b, "v4")
	w.apply(`{apiVersion: v1, kind: Service, metadata: {name: app}, spec: {selector: {app: web}, ports: [{port: 80}]}}`)
	for i := range 1000 {
		w.run(fmt.Sprintf("p%d", i), "n1", fmt.Sprintf("10.10.%d.%d", i>>8, i&255), map[string]string{"app": "web"})
	}
	ready := false
	for b.Loop() {
		if err := w.SetPodReady("default", "p7", ready); err != nil {
			b.Fatal(err)
		}
		ready = !ready
	}
}
