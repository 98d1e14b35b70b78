//go:build linux

package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	createServices(b, node)
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
	var last time.Time
	gomega.NewWithT(tb).Eventually(func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		last = b.last
		return b.ops > benchServices*(benchEndpoints+2) && time.Since(last) > 3*time.Second
	}, "5m", "100ms").Should(gomega.BeTrue(), "all Services are in OVS")
	return last
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

// createServices makes the Services and their EndpointSlices.
func createServices(tb testing.TB, node *realNode) {
	node.api.Do(func(c *kube.Cluster) {
		for i := range benchServices {
			svc := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("s%05d", i)},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
			}
			for _, o := range []runtime.Object{svc, benchSlice(i, benchEndpoints)} {
				if _, err := c.Create(o); err != nil {
					tb.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkColdStart measures how long a program takes from its start until it serves 10,000 Services of 2 endpoints, in
// a network namespace of its own: the agent with Open vSwitch, and kube-proxy in nftables mode, with the same objects
// from the same kind of API server. TOWTANK_AGENT and TOWTANK_KUBE_PROXY are the programs (make bench-real).
func BenchmarkColdStart(b *testing.B) {
	b.Run("agent", func(b *testing.B) {
		coldStart(b, "TOWTANK_AGENT", func(node *realNode, kubeconfig string) []string {
			return []string{"--node", "n1", "--settings", node.file(b, "settings.yaml", "serviceCIDRs: [10.96.0.0/16]"), "--kubeconfig", kubeconfig, "--ovs-run-dir", filepath.Dir(node.options.Database),
				"--cni-socket", node.options.Socket, "--status-socket", node.options.StatusSocket, "--state-dir", node.options.StateDir, "--address-dir", node.options.AddressDir}
		}, func(node *realNode) bool {
			var r shell.Report
			return shell.Ask(b.Context(), node.options.StatusSocket, "/status", &r) == nil && r.Settled && len(node.api.Behind("n1", r.Kinds)) == 0
		}, func(node *realNode) int {
			return strings.Count(node.run(b, "ovs-ofctl", "-O", "OpenFlow15", "dump-groups", node.options.OpenFlow), "group_id=")
		})
	})
	b.Run("kube-proxy", func(b *testing.B) {
		const metrics = "127.0.0.1:10249"
		coldStart(b, "TOWTANK_KUBE_PROXY", func(node *realNode, kubeconfig string) []string {
			return []string{"--config=" + node.file(b, "kube-proxy.yaml", fmt.Sprintf(kubeProxyConfig, kubeconfig, metrics))}
		}, func(node *realNode) bool {
			// Everything it was told of has been written.
			text := node.get("http://" + metrics + "/metrics")
			return strings.Contains(text, "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} 1.") &&
				strings.Contains(text, "\nkubeproxy_sync_proxy_rules_endpoint_changes_pending 0\n") &&
				strings.Contains(text, "\nkubeproxy_sync_proxy_rules_service_changes_pending 0\n") &&
				node.elements() >= benchServices
		}, (*realNode).elements)
	})
}

// kubeProxyConfig has kube-proxy write as soon as it can, and leave the machine's conntrack alone.
const kubeProxyConfig = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: n1
clientConnection: {kubeconfig: %q}
metricsBindAddress: %q
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {syncPeriod: 1h, minSyncPeriod: 0s}
`

// elements counts the Services that kube-proxy serves.
func (node *realNode) elements() (n int) {
	node.do(func() {
		out, _ := exec.Command("nft", "list", "map", "ip", "kube-proxy", "service-ips").Output() // not there before the first write
		n = strings.Count(string(out), "goto ")
	})
	return n
}

// get returns what a server in the namespace says, "" if it says nothing.
func (node *realNode) get(url string) (text string) {
	node.do(func() {
		out, err := exec.Command("curl", "-s", url).Output()
		if err == nil {
			text = string(out)
		}
	})
	return text
}

// file writes a file that goes with the test.
func (node *realNode) file(tb testing.TB, name, text string) string {
	path := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

// coldStart starts a program on a new node until it is ready, as often as the benchmark says; served must then be all
// Services.
func coldStart(b *testing.B, program string, args func(node *realNode, kubeconfig string) []string, ready func(*realNode) bool, served func(*realNode) int) {
	path := os.Getenv(program)
	if path == "" {
		b.Skipf("%s does not say which program to measure", program)
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		node := newNode(b, fmt.Sprint("cold", i))
		createServices(b, node)
		kubeconfig := node.serveAPI(b)
		c := exec.Command(path, args(node, kubeconfig)...)
		var said bytes.Buffer
		c.Stderr = &said
		b.StartTimer()
		began := time.Now()
		node.do(func() {
			if err := c.Start(); err != nil {
				b.Fatal(err)
			}
		})
		// kube-proxy tells nobody when it is done: the node is asked, of both programs.
		for end := began.Add(3 * time.Minute); !ready(node); time.Sleep(pollEvery) { // so it is asked again and again, for 3 minutes at the most
			if time.Now().After(end) || c.Process.Signal(syscall.Signal(0)) != nil {
				_ = c.Process.Kill()
				_ = c.Wait()
				b.Fatalf("%s is not ready after %s\n%s", path, time.Since(began), said.String())
			}
		}
		took = append(took, time.Since(began))
		b.StopTimer()
		if n := served(node); n < benchServices {
			b.Errorf("%d Services are served, want %d", n, benchServices)
		}
		_ = c.Process.Signal(os.Interrupt)
		_ = c.Wait() // how it ends is not what is measured
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds(), "s-median")
}

// pollEvery is how often a program is asked whether it is ready: asking costs time, too.
const pollEvery = 100 * time.Millisecond

// serveAPI has the API server listen in the namespace too, and returns a kubeconfig for it.
func (node *realNode) serveAPI(tb testing.TB) string {
	var l net.Listener
	var err error
	node.do(func() { l, err = net.Listen("tcp", "127.0.0.1:0") })
	if err != nil {
		tb.Fatal(err)
	}
	go func() { _ = node.api.Serve(l) }() // ends with the server
	path := filepath.Join(tb.TempDir(), "kubeconfig")
	if err := node.api.WriteKubeconfig(path, "bench", "https://"+l.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	return path
}
