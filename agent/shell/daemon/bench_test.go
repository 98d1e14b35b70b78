//go:build linux

package daemon_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"towtank/agent"
	"towtank/agent/edge"
	"towtank/agent/shell"
	"towtank/datapath"
	"towtank/datapath/ovs"
	"towtank/sim/kube"
)

// bundles tells of every bundle that the agent's switch has committed.
type bundles struct {
	datapath.Switch
	done  chan []datapath.Op
	mu    sync.Mutex
	last  time.Time // when one was committed last
	heard time.Time // when the agent heard of an EndpointSlice last
	ops   int
}

// Apply implements datapath.Switch.
func (b *bundles) Apply(stage datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	b.Switch.Apply(stage, ops, func(r []datapath.OpResult) {
		if stage == datapath.StageBundle {
			b.mu.Lock()
			b.last, b.ops = time.Now(), b.ops+len(ops)
			b.mu.Unlock()
			select {
			case b.done <- ops:
			default: // nobody measures
			}
		}
		done(r)
	})
}

func (b *bundles) wrap(_ context.Context, _ *shell.Queue, s agent.Seams, handle func(any)) (agent.Seams, func(any)) {
	b.Switch = s.Switch
	s.Switch = b
	return s, func(ev any) {
		if o, ok := ev.(edge.ObjectEvent); ok && o.Kind == edge.KindEndpointSlice {
			b.mu.Lock()
			b.heard = time.Now()
			b.mu.Unlock()
		}
		handle(ev)
	}
}

// benchServices and benchEndpoints are the size of the cluster.
const (
	benchServices  = 10000
	benchEndpoints = 2
)

func benchSlice(i, endpoints int) *discoveryv1.EndpointSlice {
	name := fmt.Sprintf("s%05d", i)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(8080)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for e := range endpoints {
		k := i*4 + e
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 100+k>>16, k>>8&0xff, k&0xff)}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}, NodeName: ptr.To("n2"),
		})
	}
	return s
}

// BenchmarkServiceUpdate measures, on a real Open vSwitch with 10,000 Services of 2 endpoints, the time from the change
// of an EndpointSlice at the API server to the bundle that OVS has committed for it (written), and from when the agent
// hears of it (heard): what is between is the API server's and the client library's. The floor is the same bundle sent by
// a client that does nothing else, in turn with the agent: first what takes the change back, then the change again. Cold
// is the start of the agent until the last Service is in OVS. Run it with -benchtime 60x: between two changes it waits
// for the agent's pacing.
func BenchmarkServiceUpdate(b *testing.B) {
	node := newNode(b, "bench")
	node.api.Do(func(c *kube.Cluster) {
		for i := range benchServices {
			svc := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("s%05d", i)},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
			}
			for _, create := range []func() error{func() error { _, err := c.Create(svc); return err }, func() error { _, err := c.Create(benchSlice(i, benchEndpoints)); return err }} {
				if err := create(); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	watched := &bundles{done: make(chan []datapath.Op, 1)}
	node.options.Wrap = watched.wrap
	began := time.Now()
	defer start(b, node.options)()
	cold := watched.quiet(b).Sub(began)
	bare, err := ovs.Connect(ovs.Config{
		Bridge: node.options.Bridge, Database: node.options.Database, OpenFlow: node.options.OpenFlow, Control: node.options.Control, Post: func(f func()) { f() },
	})
	if err != nil {
		b.Fatal(err)
	}
	defer bare.Close()
	admin, _ := clients(b, node.api.RESTConfig("admin", node.url))

	var written, heard, floor []time.Duration
	for i := 0; b.Loop(); i++ {
		time.Sleep(1100 * time.Millisecond) // the agent's pacing: what is measured is one change, not a queue of them
		began := time.Now()
		done, ops := watched.change(b, admin, benchSlice(777, benchEndpoints+1-i%2))
		written, heard = append(written, done.Sub(began)), append(heard, done.Sub(watched.heard))
		floor = append(floor, commit(b, bare, inverse(ops)), commit(b, bare, ops))
	}
	for _, d := range [][]time.Duration{written, heard, floor} {
		slices.Sort(d)
	}
	at := func(d []time.Duration, percent int) float64 {
		return float64(d[min(len(d)*percent/100, len(d)-1)].Microseconds())
	}
	b.ReportMetric(cold.Seconds(), "cold-s")
	b.ReportMetric(at(written, 50), "written-µs-median")
	b.ReportMetric(at(written, 99), "written-µs-p99")
	b.ReportMetric(at(heard, 50), "heard-µs-median")
	b.ReportMetric(at(heard, 99), "heard-µs-p99")
	b.ReportMetric(at(floor, 50), "floor-µs-median")
	b.ReportMetric(at(floor, 99), "floor-µs-p99")
	b.ReportMetric(at(heard, 50)/at(floor, 50), "heard/floor-median")
	b.ReportMetric(at(heard, 99)/at(floor, 99), "heard/floor-p99")
	b.ReportMetric(at(written, 50)/at(floor, 50), "written/floor-median")
	b.ReportMetric(at(written, 99)/at(floor, 99), "written/floor-p99")
}

// quiet waits until every Service is in OVS and nothing was committed for a while, and returns when that was.
func (b *bundles) quiet(tb testing.TB) time.Time {
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		b.mu.Lock()
		last, ops := b.last, b.ops
		b.mu.Unlock()
		if ops > benchServices*(benchEndpoints+2) && time.Since(last) > 3*time.Second {
			return last
		}
	}
	tb.Fatal("the Services are not in OVS after 5 minutes")
	return time.Time{}
}

// change writes an EndpointSlice, and returns when OVS had committed the bundle for it.
func (b *bundles) change(tb testing.TB, admin kubernetes.Interface, s *discoveryv1.EndpointSlice) (time.Time, []datapath.Op) {
	select {
	case <-b.done: // of before
	default:
	}
	if _, err := admin.DiscoveryV1().EndpointSlices(s.Namespace).Update(tb.Context(), s, metav1.UpdateOptions{}); err != nil {
		tb.Fatal(err)
	}
	select {
	case ops := <-b.done:
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.last, ops
	case <-time.After(10 * time.Second):
		tb.Fatal("no bundle after 10 s")
		return time.Time{}, nil
	}
}

// commit has a client that does nothing else commit a bundle.
func commit(tb testing.TB, sw *ovs.Switch, ops []datapath.Op) time.Duration {
	done := make(chan []datapath.OpResult, 1)
	began := time.Now()
	sw.Apply(datapath.StageBundle, ops, func(r []datapath.OpResult) { done <- r })
	r := <-done
	took := time.Since(began)
	for i := range r {
		if r[i].Outcome != datapath.Done {
			tb.Fatalf("%s: %v", ops[i], r[i].Err)
		}
	}
	return took
}

// inverse returns the ops that take ops back.
func inverse(ops []datapath.Op) []datapath.Op {
	out := make([]datapath.Op, len(ops))
	for i, op := range ops {
		out[i] = datapath.Op{Old: op.New, New: op.Old}
	}
	return out
}
