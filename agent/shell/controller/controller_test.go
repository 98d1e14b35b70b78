package controller_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/apis/crd/v1beta1/clientset"
	"towtank/agent/shell"
	"towtank/agent/shell/controller"
	"towtank/e2e/apiserver"
	"towtank/e2e/apiserver/apitest"
	"towtank/sim"
	"towtank/sim/kube"
)

// cluster is an API server with what the tests ask of it.
type cluster struct {
	*apiserver.Server
	url string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	s, url := apitest.Serve(t, apiserver.Config{Unanswered: 50 * time.Millisecond})
	return &cluster{s, url}
}

func (c *cluster) apply(t *testing.T, yaml string) {
	t.Helper()
	c.Do(func(k *kube.Cluster) {
		if _, err := k.Apply([]byte(yaml), "test.yaml"); err != nil {
			t.Fatal(err)
		}
	})
}

func (c *cluster) egress(t *testing.T, name string) *v1beta1.Egress {
	t.Helper()
	var e *v1beta1.Egress
	c.Do(func(k *kube.Cluster) {
		o, err := k.Get(kube.KindEgress, "", name)
		if err != nil {
			t.Fatal(err)
		}
		e = o.(*v1beta1.Egress)
	})
	return e
}

// process is a running controller.
type process struct {
	stop  context.CancelFunc
	ended chan error
}

// start runs a controller that is known to the server by a name.
func (c *cluster) start(t *testing.T, name string, change func(*controller.Options)) *process {
	t.Helper()
	rest := c.RESTConfig(name, c.url)
	k, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	crd, err := clientset.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	o := controller.Options{
		Kube: k, CRD: crd, Recorder: record.NewFakeRecorder(1000), Log: klog.Background(), Elect: true, Identity: name, Namespace: "kube-system",
		LeaseDuration: 1500 * time.Millisecond, RenewDeadline: time.Second, RetryPeriod: 100 * time.Millisecond,
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{cancel, make(chan error, 1)}
	go func() { p.ended <- controller.Run(ctx, o) }()
	t.Cleanup(cancel)
	return p
}

// end ends a controller as SIGTERM does.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.stop()
	if err := p.wait(t); err != nil {
		t.Errorf("a controller that was ended: %v", err)
	}
}

func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(15 * time.Second):
		t.Fatal("the controller has not ended within 15 s")
		return nil
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	gomega.NewWithT(t).Eventually(ok, "15s", "10ms").Should(gomega.BeTrue(), what)
}

const pool = `
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: pool}
spec:
  ipRanges: [{start: 172.18.0.50, end: 172.18.0.52}]
  nodeSelector: {}
`

func egress(name string) string {
	return fmt.Sprintf("{apiVersion: crd.antrea.io/v1beta1, kind: Egress, metadata: {name: %s}, spec: {appliedTo: {podSelector: {}}, externalIPPool: pool}}", name)
}

func (c *cluster) hasAddress(t *testing.T, name, ip string) {
	t.Helper()
	eventually(t, name+" has "+ip, func() bool {
		e := c.egress(t, name)
		return e.Spec.EgressIP == ip && len(e.Status.Conditions) == 1 && e.Status.Conditions[0].Status == corev1.ConditionTrue
	})
}

// A controller without rivals gives addresses, through conflicts, refusals and lost answers, and says when it has
// done so.
func TestAllocates(t *testing.T) {
	c := newCluster(t)
	c.apply(t, pool)
	// The pool's status goes beside the Egress: as many conflicts as it can meet before the Egress is on its way, and one more.
	c.AddFault(sim.ControllerName, sim.Fault{Effect: sim.EffectAPIStatus, Mode: sim.Conflict, Count: 4})
	c.AddFault(sim.ControllerName, sim.Fault{Effect: sim.EffectAPIStatus, Skip: 5, Mode: sim.LostReply})
	socket := filepath.Join(t.TempDir(), "controller.sock")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String() // free, once the listener is closed
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := c.start(t, sim.ControllerName, func(o *controller.Options) { o.Elect, o.StatusSocket, o.MetricsAddress = false, socket, address })
	for i, name := range []string{"a", "b", "c"} {
		c.apply(t, egress(name))
		c.hasAddress(t, name, fmt.Sprintf("172.18.0.5%d", i))
	}
	c.apply(t, egress("d"))
	eventually(t, "the fourth of three is told that there is none", func() bool {
		e := c.egress(t, "d")
		return len(e.Status.Conditions) == 1 && e.Status.Conditions[0].Reason == v1beta1.ReasonAllocationError
	})
	eventually(t, "it has settled", func() bool {
		var r shell.Report
		return shell.Ask(t.Context(), socket, "/status", &r) == nil && r.Settled && c.Behind(sim.ControllerName, r.Kinds) == nil && r.Writes["api"] > 0
	})
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	metrics, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"towtank_controller_leading 1", "towtank_controller_ready 1", `towtank_controller_api_objects{kind="Egress"} 4`,
		`towtank_controller_api_requests_total{kind="Egress",result="Conflict",verb="update"} `, // how many depends on who is first
	} {
		if !strings.Contains(string(metrics), "\n"+line) {
			t.Errorf("no line %s in\n%s", line, metrics)
		}
	}
	if unused := c.UnusedFaults(); len(unused) > 0 {
		t.Errorf("faults that did not hit: %v", unused)
	}
	p.end(t)
	for _, a := range c.Accesses(sim.ControllerName) {
		if a.Resource == "leases" {
			t.Errorf("without election: %s", a)
		}
	}
}

// Of two one leads. When it ends it gives the Lease back, and the other one goes on at once with what is there.
func TestHandsOver(t *testing.T) {
	c := newCluster(t)
	c.apply(t, pool)
	first := c.start(t, "one", nil)
	c.apply(t, egress("a"))
	c.hasAddress(t, "a", "172.18.0.50")
	second := c.start(t, "two", nil)
	c.apply(t, egress("b"))
	c.hasAddress(t, "b", "172.18.0.51")
	if j := c.Journal("two"); len(j) > 0 {
		t.Errorf("who does not lead writes: %v", j)
	}
	began := time.Now()
	first.end(t)
	c.apply(t, egress("c"))
	c.hasAddress(t, "c", "172.18.0.52")
	if took := time.Since(began); took > 1400*time.Millisecond {
		t.Errorf("the other one took over after %s: the Lease was not given back", took)
	}
	if j := c.Journal("two"); len(j) == 0 {
		t.Error("the other one wrote nothing")
	}
	if ip := c.egress(t, "a").Spec.EgressIP; ip != "172.18.0.50" {
		t.Errorf("the first address is %s now", ip)
	}
	second.end(t)
}

// A leader that cannot reach the API ends before another one begins, so that there are never two.
func TestLosesLease(t *testing.T) {
	c := newCluster(t)
	c.apply(t, pool)
	first := c.start(t, "one", nil)
	c.apply(t, egress("a"))
	c.hasAddress(t, "a", "172.18.0.50")
	second := c.start(t, "two", nil)
	c.SetReachable("one", false)
	if err := first.wait(t); err == nil || !strings.Contains(err.Error(), "another controller leads") {
		t.Errorf("the leader that was cut off ended with %v", err)
	}
	c.apply(t, egress("b"))
	c.hasAddress(t, "b", "172.18.0.51")
	second.end(t)
}

// With groups it also writes which Pods each Egress applies to.
func TestGroups(t *testing.T) {
	c := newCluster(t)
	c.apply(t, pool)
	c.apply(t, egress("a"))
	c.apply(t, `
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {nodeName: n1, containers: [{name: c, image: c}]}
`)
	p := c.start(t, sim.ControllerName, func(o *controller.Options) { o.Elect, o.Groups = false, true })
	eventually(t, "the group has the Pod", func() bool {
		var g *v1beta1.EgressGroup
		c.Do(func(k *kube.Cluster) {
			if o, err := k.Get(kube.KindEgressGroup, "", "a"); err == nil {
				g = o.(*v1beta1.EgressGroup)
			}
		})
		return g != nil && g.Has("default", "web") && g.Of(c.egress(t, "a"))
	})
	p.end(t)
	if !slices.Contains(c.Accesses(sim.ControllerName), apiserver.Access{Verb: "create", Group: v1beta1.GroupName, Resource: "egressgroups"}) {
		t.Error("it created no group")
	}
}
