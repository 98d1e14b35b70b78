package kube

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/apis/crd/v1beta1"
)

// world is a cluster of three nodes whose clock the test moves.
type world struct {
	*Cluster
	t   testing.TB
	now time.Time
}

func newWorld(t testing.TB, families string) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)}
	c, err := New(Config{Now: func() time.Time { return w.now }, IPv4: families != "v6", IPv6: families != "v4"})
	if err != nil {
		t.Fatal(err)
	}
	w.Cluster = c
	for i, name := range []string{"n1", "n2", "n3"} {
		w.ok(c.CreateNode(NodeConfig{
			Name: name, IPs: []netip.Addr{netip.AddrFrom4([4]byte{172, 18, 0, byte(11 + i)})},
			PodCIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 10, byte(i + 1), 0}), 24)},
		}))
	}
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// apply applies YAML and returns what kubectl would say.
func (w *world) apply(yaml string) string {
	w.t.Helper()
	results, err := w.Apply([]byte(yaml), "f.yaml")
	w.ok(err)
	var lines []string
	for _, r := range results {
		lines = append(lines, r.String())
	}
	return strings.Join(lines, "\n")
}

// refuse applies YAML that must be refused with this text.
func (w *world) refuse(yaml, want string) {
	w.t.Helper()
	_, err := w.Apply([]byte(yaml), "f.yaml")
	if err == nil || !strings.Contains(err.Error(), want) {
		w.t.Errorf("%s\n\tgot  %v\n\twant %s", yaml, err, want)
	}
}

func object1[T runtime.Object](w *world, kind Kind, ns, name string) T {
	w.t.Helper()
	o, err := w.Get(kind, ns, name)
	w.ok(err)
	return o.(T)
}

func (w *world) service(name string) *corev1.Service {
	w.t.Helper()
	return object1[*corev1.Service](w, KindService, "default", name)
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	return object1[*corev1.Pod](w, KindPod, "default", name)
}

func (w *world) egress(name string) *v1beta1.Egress {
	w.t.Helper()
	return object1[*v1beta1.Egress](w, KindEgress, "", name)
}

// run creates a Pod that has an address and is ready.
func (w *world) run(name, node, ip string, labels map[string]string, ports ...PodPort) {
	w.t.Helper()
	w.ok(w.CreatePod(PodConfig{Namespace: "default", Name: name, Node: node, Labels: labels, Ports: ports}))
	w.ok(w.SetPodIPs("default", name, []netip.Addr{netip.MustParseAddr(ip)}))
	w.ok(w.SetPodReady("default", name, true))
}

// slices returns the EndpointSlices of a Service.
func (w *world) slices(service string) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, o := range w.List(KindEndpointSlice) {
		if s := o.(*discoveryv1.EndpointSlice); s.Labels[discoveryv1.LabelServiceName] == service {
			out = append(out, s)
		}
	}
	return out
}

// endpoints returns address/ready/serving/terminating of all endpoints of a Service.
func (w *world) endpoints(service string) string {
	var out []string
	for _, s := range w.slices(service) {
		for _, e := range s.Endpoints {
			text := e.Addresses[0]
			for _, c := range []struct {
				name string
				set  *bool
			}{{"ready", e.Conditions.Ready}, {"serving", e.Conditions.Serving}, {"terminating", e.Conditions.Terminating}} {
				if c.set != nil && *c.set {
					text += " " + c.name
				}
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}

func (w *world) equal(what string, got, want any) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
