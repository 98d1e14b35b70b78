//go:build linux

package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/vishvananda/netns"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"towtank/agent/apis/crd/v1beta1/clientset"
	"towtank/agent/shell"
	"towtank/agent/shell/daemon"
	"towtank/deploy"
	"towtank/e2e/apiserver"
	"towtank/e2e/apiserver/apitest"
	"towtank/e2e/faults"
	"towtank/e2e/vswitchd"
	"towtank/sim"
	"towtank/sim/kube"
)

// thread is an OS thread inside a network namespace of the test's own. What it starts is in there too.
type thread struct {
	name string
	work chan func()
}

// namespace makes a network namespace that goes with the test.
func namespace(t testing.TB, name string) *thread {
	t.Helper()
	th := &thread{name, make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		h, err := netns.NewNamed(name)
		if err == nil {
			err = h.Close()
		}
		made <- err
		for f := range th.work {
			f()
		}
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(th.work)
		if err := netns.DeleteNamed(name); err != nil {
			t.Error(err)
		}
	})
	return th
}

// do runs f on the thread.
func (th *thread) do(f func()) {
	done := make(chan struct{})
	th.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

func (th *thread) run(t testing.TB, args ...string) string {
	t.Helper()
	var out []byte
	var err error
	th.do(func() { out, err = exec.Command(args[0], args[1:]...).CombinedOutput() })
	if err != nil {
		t.Fatalf("in %s: %s: %v: %s", th.name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// serve answers every connection with a name and the address that it comes from, and every line after
// that with the line.
func (th *thread) serve(t testing.TB, addr, name string) {
	t.Helper()
	var l net.Listener
	var err error
	th.do(func() { l, err = net.Listen("tcp", addr) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
				if _, err := fmt.Fprintf(c, "%-20s", name+" "+host); err == nil {
					_, _ = io.Copy(c, c)
				}
			}()
		}
	}()
}

// dial connects and returns what the server says.
func (th *thread) dial(addr string) (c net.Conn, said string, err error) {
	th.do(func() { c, err = (&net.Dialer{Timeout: 3 * time.Second}).Dial("tcp", addr) })
	if err != nil {
		return nil, "", err
	}
	b := make([]byte, 20)
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, "", errors.Join(err, c.Close())
	}
	return c, strings.TrimSpace(string(b)), nil
}

// eventually dials until the server says what it should. It waits between tries: only packets tell when the
// agent is done.
func (th *thread) eventually(t testing.TB, addr, want string) net.Conn {
	t.Helper()
	var answered net.Conn
	gomega.NewWithT(t).Eventually(func() (string, error) {
		c, said, err := th.dial(addr)
		if err == nil && said != want {
			_ = c.Close()
		}
		answered = c
		return said, err
	}, "15s", "50ms").Should(gomega.Equal(want), "%s to %s", th.name, addr)
	return answered
}

const objects = `
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDRs: [10.10.1.0/24]}
status: {addresses: [{type: InternalIP, address: 172.18.0.11}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default, labels: {app: client}}
spec: {nodeName: n1, containers: [{name: c, image: c}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c, image: c}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ipFamilies: [IPv4], ports: [{name: http, protocol: TCP, port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, protocol: TCP, port: 8080}]
endpoints: [{addresses: [WEB], nodeName: n1, conditions: {ready: true, serving: true, terminating: false}}]
`

// realNode is a node that is a network namespace with a real Open vSwitch in userspace, and an API server.
type realNode struct {
	*thread
	api     *apiserver.Server
	url     string
	options daemon.Options
}

func newNode(t testing.TB, name string) *realNode {
	t.Helper()
	if err := available(); err != nil {
		if os.Getenv("TOWTANK_ROOT") == "1" && os.Getenv("TOWTANK_OVS") == "1" {
			t.Fatal(err)
		}
		t.Skip(err) // a developer's machine without root or Open vSwitch; CI fails above
	}
	name = fmt.Sprintf("towtank-%s-%d", name, os.Getpid())
	node := namespace(t, name)
	node.run(t, "ip", "link", "set", "lo", "up")
	node.run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0-far")
	node.run(t, "ip", "addr", "add", "172.18.0.11/16", "dev", "eth0")
	for _, l := range []string{"eth0", "eth0-far"} {
		node.run(t, "ip", "link", "set", l, "up")
	}
	var server *vswitchd.Server
	var err error
	node.do(func() { server, err = vswitchd.StartReal() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	node.run(t, "ovs-vsctl", "--db=unix:"+server.Database(), "add-br", "br-int", "--",
		"set", "bridge", "br-int", "datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow15")

	api, url := apitest.Serve(t, apiserver.Config{})
	before, _, _ := strings.Cut(objects, endpointSlice)
	api.Do(func(c *kube.Cluster) {
		if results, err := c.Apply([]byte(before), "objects.yaml"); err != nil {
			t.Fatalf("%v %v", results, err)
		}
	})
	// As in a cluster it may do what its manifest gives it.
	roles, err := apiserver.ReadRoles(deploy.Agent)
	if err == nil {
		err = api.Restrict("n1", deploy.AgentAccount, roles)
	}
	if err != nil {
		t.Fatal(err)
	}
	mine, crd := clients(t, api.RESTConfig("n1", url))
	dir := t.TempDir()
	return &realNode{node, api, url, daemon.Options{
		Node: "n1", Settings: &daemon.Settings{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}, Netns: name, Bridge: "br-int",
		Database: server.Database(), OpenFlow: server.OpenFlow("br-int"), Control: server.Control(),
		Socket: filepath.Join(dir, "cni.sock"), StatusSocket: filepath.Join(dir, "agent.sock"), MetricsAddress: freeAddress(t),
		StateDir: filepath.Join(dir, "run"), AddressDir: filepath.Join(dir, "addresses"),
		Kube: mine, CRD: crd, Recorder: record.NewFakeRecorder(1000), Log: klog.Background(),
	}}
}

// TestFaultsOnRealOVS has effects of the production agent fail on a real node, as scenarios do: the Pod is wired
// in the end, and its ADD is not answered before it is.
func TestFaultsOnRealOVS(t *testing.T) {
	node := newNode(t, "faults")
	i, err := faults.New(node.api.RESTConfig("n1", node.url), klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	node.options.Wrap = i.Wrap
	stop := start(t, node.options)
	settled(t, node.options.StatusSocket, node.api)

	node.api.AddFault("n1", sim.Fault{Effect: sim.EffectPorts, Mode: sim.Late})
	node.api.AddFault("n1", sim.Fault{Effect: sim.EffectSwitch, Mode: sim.LostReply})
	pod := namespace(t, node.name+"-web")
	answered := make(chan *shell.CNIAnswer, 1)
	go func() { answered <- call(node.options.Socket, "ADD", pod, "web", nil) }()
	select {
	case a := <-answered:
		t.Fatalf("ADD was answered while the port had no number: %+v", a)
	case <-time.After(time.Second):
	}
	node.api.ClearFaults("n1")
	node.api.AddFault("n1", sim.Fault{Effect: sim.EffectSwitch, Mode: sim.LostReply})
	if a := <-answered; a.Code != 0 {
		t.Fatalf("ADD: %+v", a)
	}
	if unused := node.api.UnusedFaults(); len(unused) > 0 {
		t.Errorf("faults that did not hit: %v", unused)
	}
	pod.serve(t, ":8080", "web")
	settled(t, node.options.StatusSocket, node.api)
	node.eventually(t, "10.10.1.2:8080", "web 10.10.1.1").Close()
	if a := call(node.options.Socket, "DEL", pod, "web", nil); a.Code != 0 {
		t.Errorf("DEL: %+v", a)
	}
	stop()
}

// endpointSlice is where the EndpointSlice begins in objects: the address in it is known later.
const endpointSlice = "---\napiVersion: discovery"

// TestPodsOnRealOVS runs the production agent on a node that is a network namespace with a real Open vSwitch
// in userspace, and has the packets of real Pods decide.
func TestPodsOnRealOVS(t *testing.T) {
	node := newNode(t, "pods")
	name, api, options := node.name, node.api, node.options
	admin, _ := clients(t, api.RESTConfig("admin", node.url))
	_, slice, _ := strings.Cut(objects, endpointSlice)
	stop := start(t, options)

	pods := map[string]*thread{}
	ips := map[string]string{}
	added := map[string]*shell.CNIAnswer{}
	for _, pod := range []string{"client", "web"} {
		pods[pod] = namespace(t, name+"-"+pod)
		a := call(options.Socket, "ADD", pods[pod], pod, nil)
		added[pod] = a
		if a.Code != 0 || len(a.IPs) != 1 {
			t.Fatalf("ADD %s: %+v", pod, a)
		}
		ips[pod] = a.IPs[0].Addr().String()
		pods[pod].serve(t, ":8080", pod)
	}
	pods["client"].eventually(t, net.JoinHostPort(ips["web"], "8080"), "web "+ips["client"]).Close()
	pods["web"].eventually(t, net.JoinHostPort(ips["client"], "8080"), "client "+ips["web"]).Close()
	node.serve(t, ":9090", "node")
	pods["client"].eventually(t, "172.18.0.11:9090", "node "+ips["client"]).Close()
	node.eventually(t, net.JoinHostPort(ips["web"], "8080"), "web 10.10.1.1").Close()

	endpoints := &discoveryv1.EndpointSlice{}
	if err := yaml.UnmarshalStrict([]byte("apiVersion: discovery"+strings.Replace(slice, "WEB", ips["web"], 1)), endpoints); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DiscoveryV1().EndpointSlices("default").Create(t.Context(), endpoints, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	running := pods["client"].eventually(t, "10.96.0.10:80", "web "+ips["client"])
	defer func() { _ = running.Close() }()
	echo(t, running, "before the restart")
	report := settled(t, options.StatusSocket, api)
	if w := report.Writes; w["switch"] == 0 || w["host"] == 0 || report.Kinds["Pod"].Objects != 2 {
		t.Errorf("a report after two Pods: %+v", report)
	}

	scrape(t, options.MetricsAddress,
		`towtank_agent_ready 1`, `towtank_agent_pods 2`, `towtank_agent_services 1`, `towtank_agent_service_endpoints{family="IPv4"} 1`,
		`towtank_agent_service_ports{family="IPv4"} 1`, `towtank_agent_cni_requests_total{code="0",verb="ADD"} 2`, `towtank_agent_units{kind="sandbox"} 2`,
		`towtank_agent_api_objects{kind="Pod"} 2`, `towtank_agent_units_pending{kind="sandbox"} 0`, `towtank_agent_switch_connected 1`,
		`towtank_agent_ops_total{class="link",outcome="done"} 3`)

	// An agent that ends and starts again takes over what is there; connections do not notice.
	stop()
	echo(t, running, "without an agent")
	stop = start(t, options)
	echo(t, running, "after the restart")
	var written shell.WriteList
	settled(t, options.StatusSocket, api)
	if err := shell.Ask(t.Context(), options.StatusSocket, "/writes?after=0", &written); err != nil || len(written.Writes) > 0 || !written.Complete {
		t.Errorf("an agent that starts where everything is there writes: %+v, %v", written, err)
	}
	pods["web"].eventually(t, "10.96.0.10:80", "web "+hairpin).Close()
	if a := call(options.Socket, "CHECK", pods["web"], "web", added["web"]); a.Code != 0 {
		t.Errorf("CHECK: %+v", a)
	}

	// A Service without endpoints refuses, rather than to let people wait.
	if err := admin.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "web-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	refused := error(nil)
	for end := time.Now().Add(15 * time.Second); !errors.Is(refused, syscall.ECONNREFUSED) && time.Now().Before(end); {
		var c net.Conn
		if c, _, refused = pods["client"].dial("10.96.0.10:80"); refused == nil {
			_ = c.Close()
		}
	}
	if !errors.Is(refused, syscall.ECONNREFUSED) {
		t.Errorf("a Service without endpoints: want connection refused, got %v", refused)
	}

	for pod, th := range pods {
		if a := call(options.Socket, "DEL", th, pod, nil); a.Code != 0 {
			t.Errorf("DEL %s: %+v", pod, a)
		}
		if links := th.run(t, "ip", "-o", "link"); strings.Contains(links, "eth0") {
			t.Errorf("%s still has its link:\n%s", pod, links)
		}
	}
	stop()
}

// hairpin is where a Pod's connection to itself by its Service comes from.
const hairpin = "169.254.0.253"

// freeAddress returns an address of loopback on which nobody listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// scrape asks for the metrics, which must have the lines and be named as Prometheus wants it, and for the probes.
func scrape(t testing.TB, address string, lines ...string) {
	t.Helper()
	get := func(path string) string {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v: %s", path, resp.Status, err, body)
		}
		return string(body)
	}
	get("/healthz")
	get("/readyz")
	metrics := get("/metrics")
	for _, l := range lines {
		if !strings.Contains(metrics, "\n"+l+"\n") {
			t.Errorf("no line %s", l)
		}
	}
	problems, err := promlint.New(strings.NewReader(metrics)).Lint()
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if t.Failed() {
		t.Log(metrics)
	}
}

// settled waits until the agent has done everything that was written to the API, and returns what it says
// then.
func settled(t testing.TB, socket string, api *apiserver.Server) shell.Report {
	t.Helper()
	var r shell.Report
	gomega.NewWithT(t).Eventually(func(g gomega.Gomega) {
		r = shell.Report{}
		g.Expect(shell.Ask(t.Context(), socket, "/status", &r)).To(gomega.Succeed())
		g.Expect(r.Settled).To(gomega.BeTrue(), "what the agent says: %+v", r)
		g.Expect(api.Behind("n1", r.Kinds)).To(gomega.BeEmpty(), "kinds that the agent has not heard of")
	}, "15s", "20ms").Should(gomega.Succeed())
	return r
}

func clients(t testing.TB, c *rest.Config) (kubernetes.Interface, clientset.Interface) {
	t.Helper()
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	crd, err := clientset.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return k, crd
}

func available() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root")
	}
	for _, p := range []string{"ip", "ovs-vsctl", "iptables-restore", "ipset", "nft", "ethtool"} {
		if _, err := exec.LookPath(p); err != nil {
			return err
		}
	}
	return vswitchd.Available()
}

// start runs the agent until the returned function is called.
func start(t testing.TB, o daemon.Options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	o.Ready = func() { close(ready) }
	go func() { ended <- daemon.Run(ctx, o) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("the agent ended: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("the agent is not ready after 20 s")
	}
	var once bool
	stop = func() {
		if once {
			return
		}
		once = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func call(socket, verb string, pod *thread, name string, prev *shell.CNIAnswer) *shell.CNIAnswer {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	return shell.Call(ctx, socket, shell.CNICall{
		Command: verb, ContainerID: "c-" + name, Netns: "/run/netns/" + pod.name, Ifname: "eth0", PodNamespace: "default", PodName: name, Prev: prev,
	})
}

// echo sends a line on a connection that is open and wants it back.
func echo(t testing.TB, c net.Conn, text string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Fatalf("sent %q, got %q, %v", text, b, err)
	}
}
