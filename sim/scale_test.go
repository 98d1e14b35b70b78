package sim

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const endpointsPerService = 10

// addServices makes n Services with their EndpointSlices, as somebody applies them.
func addServices(tb testing.TB, w *World, n int) {
	tb.Helper()
	for i := range n {
		name := fmt.Sprintf("s%05d", i)
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
		}
		if _, err := w.Kube.Create(svc); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Kube.Create(slice(name, i, endpointsPerService)); err != nil {
			tb.Fatal(err)
		}
	}
}

func slice(service string, i, endpoints int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: service + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(8080)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for e := range endpoints {
		k := i*endpointsPerService + e
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", 100+k>>16, k>>8&0xff, k&0xff)},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}, NodeName: ptr.To("n1"),
		})
	}
	return s
}

func scaleWorld(tb testing.TB) *World {
	tb.Helper()
	// Without audits: what a minute's audit costs is measured apart.
	w, err := New(Options{Seed: 1, AuditEvery: 24 * time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := w.AddNode("n1"); err != nil {
		tb.Fatal(err)
	}
	mustSettle(tb, w)
	return w
}

func mustSettle(tb testing.TB, w *World) {
	tb.Helper()
	if err := w.SettleMany(time.Minute, 10_000_000); err != nil {
		tb.Fatal(err)
	}
}

var scales = []int{1000, 2000, 5000, 10000}

// collectLikeTowtank has garbage collected as cmd/towtank has it, unless GOGC says otherwise.
func collectLikeTowtank(b *testing.B) {
	if os.Getenv("GOGC") != "" {
		return
	}
	old := debug.SetGCPercent(400)
	b.Cleanup(func() { debug.SetGCPercent(old) })
}

// BenchmarkColdLoad is the start of an agent that finds n Services with 10 endpoints each: watch, render,
// diff, one bundle, the switch.
func BenchmarkColdLoad(b *testing.B) {
	collectLikeTowtank(b)
	for _, n := range scales {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			w := scaleWorld(b)
			addServices(b, w, n)
			mustSettle(b, w)
			empty := func() {
				w.killAgent(w.Node("n1"), "benchmark")
				w.Node("n1").sw.Restart()
				runtime.GC()
			}
			load := func() float64 {
				began := cpuSeconds()
				w.startAgent(w.Node("n1"))
				mustSettle(b, w)
				return cpuSeconds() - began
			}
			// The first load gets its memory from the kernel, page by page: it is one of fifty rounds with few
			// Services, and one of three with many.
			empty()
			first := load()
			var cpu float64
			for b.Loop() {
				b.StopTimer()
				empty()
				b.StartTimer()
				cpu += load()
			}
			b.ReportMetric(first*1e6/float64(n), "first-cpu-µs/service")
			// Processor time: the machine is shared, and elapsed time says how busy it was.
			b.ReportMetric(cpu*1e6/float64(b.N)/float64(n), "cpu-µs/service")
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapAlloc)/1e6, "MB-heap")
		})
	}
}

// BenchmarkOneChange is one changed EndpointSlice among n Services, from the API to the switch.
func BenchmarkOneChange(b *testing.B) {
	collectLikeTowtank(b)
	for _, n := range scales {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			w := scaleWorld(b)
			addServices(b, w, n)
			mustSettle(b, w)
			// The writer's own work is done before: what is measured is the API, the agent and the switch.
			updates := [2]*discoveryv1.EndpointSlice{slice("s00500", 500, endpointsPerService-1), slice("s00500", 500, endpointsPerService)}
			count := 0
			runtime.GC() // what the set-up left is not the changes' to pay
			began := cpuSeconds()
			defer func() { b.ReportMetric((cpuSeconds()-began)*1e6/float64(max(count, 1)), "cpu-µs/change") }()
			for b.Loop() {
				if _, err := w.Kube.Update(updates[count%2]); err != nil {
					b.Fatal(err)
				}
				count++
				mustSettle(b, w)
			}
		})
	}
}

// The whole of 10,000 Services with 10 endpoints each fits: every Service port is served, and a packet
// finds its way.
func TestTenThousandServices(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	w := scaleWorld(t)
	addServices(t, w, 10000)
	mustSettle(t, w)
	text := w.Node("n1").sw.DumpText()
	if got := strings.Count(text, "group_id="); got != 10000 {
		t.Errorf("%d groups, want 10000", got)
	}
	if left := w.Node("n1").agent.loop.Unsettled(); len(left) > 0 {
		t.Errorf("unsettled: %v", left[:min(len(left), 5)])
	}
}

// cpuSeconds returns the processor time that this process has used.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
