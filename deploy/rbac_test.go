package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"towtank/agent"
	"towtank/agent/apis/crd/v1beta1/clientset"
	"towtank/agent/config"
	"towtank/agent/edge"
	"towtank/agent/shell"
	"towtank/agent/shell/controller"
	"towtank/agent/shell/daemon"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/deploy"
	"towtank/e2e/apiserver"
	"towtank/e2e/apiserver/apitest"
	"towtank/sim"
	"towtank/sim/kube"
)

// server is an API server at which the agent n1 and the controller may do what the manifests give them.
type server struct {
	*apiserver.Server
	url   string
	roles apiserver.Roles
}

func restricted(t *testing.T) *server {
	t.Helper()
	// Without streamed lists clients list, too: the manifests have to be enough for both.
	s, url := apitest.Serve(t, apiserver.Config{NoStreamedLists: true})
	roles, err := apiserver.ReadRoles(deploy.Agent, deploy.Controller)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Restrict("n1", deploy.AgentAccount, roles), s.Restrict(sim.ControllerName, deploy.ControllerAccount, roles)); err != nil {
		t.Fatal(err)
	}
	return &server{s, url, roles}
}

// clients of the agent or the controller, with a recorder.
func (s *server) clients(t *testing.T, name string) (kubernetes.Interface, clientset.Interface, record.EventRecorder) {
	t.Helper()
	c := s.RESTConfig(name, s.url)
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	crd, err := clientset.NewForConfig(rest.CopyConfig(c))
	if err != nil {
		t.Fatal(err)
	}
	b := record.NewBroadcaster()
	t.Cleanup(b.Shutdown)
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: k.CoreV1().Events("")})
	return k, crd, b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: name})
}

func (s *server) apply(t *testing.T, yaml string) {
	t.Helper()
	s.Do(func(c *kube.Cluster) {
		if _, err := c.Apply([]byte(yaml), "test.yaml"); err != nil {
			t.Fatal(err)
		}
	})
}

// did waits until a client has done something.
func (s *server) did(t *testing.T, client, verb, resource string) {
	t.Helper()
	within20s(t, client+" did "+verb+" "+resource, func() bool {
		return slices.ContainsFunc(s.Accesses(client), func(a apiserver.Access) bool { return a.Verb == verb && a.Resource == resource })
	})
}

func within20s(t *testing.T, what string, ok func() bool) {
	t.Helper()
	gomega.NewWithT(t).Eventually(ok, "20s", "10ms").Should(gomega.BeTrue(), what)
}

// exactly compares what a client did with what its account is given: neither more nor less.
func (s *server) exactly(t *testing.T, client, account string) {
	t.Helper()
	did := s.Accesses(client)
	for _, g := range s.roles[account] {
		if !slices.ContainsFunc(did, func(a apiserver.Access) bool { return g.Gives(a, g.Name) }) {
			t.Errorf("%s is given %s and does not use it", account, g.Access)
		}
	}
	for _, a := range did {
		if !slices.ContainsFunc(s.roles[account], func(g apiserver.Grant) bool { return g.Gives(a, g.Name) }) {
			t.Errorf("%s needs %s and is not given it", account, a)
		}
	}
}

const cluster = `
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDRs: [10.10.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.0.2.11}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: c}]}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: static}
spec: {appliedTo: {podSelector: {}}, egressIP: 192.0.2.50}
`

// The agent may do what it does, and nothing else. It runs as in production, but for the node, which takes and
// keeps everything.
func TestAgentRights(t *testing.T) {
	s := restricted(t)
	k, crd, recorder := s.clients(t, "n1")
	s.apply(t, cluster)

	// Its start, as far as that comes without Open vSwitch.
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() {
		started <- daemon.Run(ctx, daemon.Options{Node: "n1", Settings: &daemon.Settings{}, Kube: k, CRD: crd, Recorder: recorder, Log: klog.Background(), Database: "/nowhere"})
	}()
	s.did(t, "n1", "get", "nodes")
	cancel()
	if err := <-started; err != nil {
		t.Error(err)
	}

	// A conflict has it read the Egress; Pods and Namespaces that it was not told of are asked for.
	s.AddFault("n1", sim.Fault{Effect: sim.EffectAPIStatus, Mode: sim.Conflict})
	a := startAgent(t, k, crd, recorder)
	a.ready(t)
	if err := s.Watch("n1", "hold", []kube.Kind{kube.KindPod, kube.KindNamespace}, 0); err != nil {
		t.Fatal(err)
	}
	s.apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: new}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: new}
spec: {nodeName: n1, containers: [{name: c, image: c}]}
`)
	a.q.Post(func() {
		a.loop.Handle(&edge.CNIRequest{
			Verb: edge.CNIAdd, Attachment: edge.Attachment{ContainerID: "c1", Ifname: "eth0"}, Netns: "/run/netns/c1", PodNamespace: "new", PodName: "web",
			Reply: func(edge.CNIReply) {},
		})
	})
	s.did(t, "n1", "get", "pods")
	s.did(t, "n1", "get", "namespaces")
	s.did(t, "n1", "update", "egresses/status")
	s.did(t, "n1", "get", "egresses")
	for range 2 {
		a.cluster.Record(edge.Ref{Kind: "Egress", Name: "static"}, "Warning", "Reason", "said twice")
	}
	s.did(t, "n1", "patch", "events")
	for _, r := range []string{"services", "endpointslices", "nodes", "pods", "namespaces", "egresses", "externalippools", "egressgroups"} {
		s.did(t, "n1", "watch", r)
	}
	s.exactly(t, "n1", deploy.AgentAccount)
}

// running is an agent without a node.
type running struct {
	q       *shell.Queue
	loop    *agent.Loop
	cluster *shell.Cluster
}

// ready waits until the agent was told of everything.
func (a *running) ready(t *testing.T) {
	t.Helper()
	var s agent.Status
	gomega.NewWithT(t).Eventually(func() bool {
		return a.q.Do(t.Context(), func() { s = a.loop.Status() }) && s.Ready
	}, "20s", "10ms").Should(gomega.BeTrue(), func() string { return fmt.Sprintf("the agent is not ready: %+v", s) })
}

func startAgent(t *testing.T, k kubernetes.Interface, crd clientset.Interface, recorder record.EventRecorder) *running {
	t.Helper()
	q := shell.NewQueue()
	a := &running{q: q}
	a.cluster = shell.NewCluster(q, k, crd, recorder, func(ev any) { a.loop.Handle(ev) }, klog.Background())
	node := &memory{q: q, handle: func(ev any) { a.loop.Handle(ev) }, objects: map[datapath.Key]datapath.Object{}}
	var err error
	a.loop, err = agent.New(&config.Config{
		NodeName: "n1", Uplink: "eth0", TransportV4: netip.MustParsePrefix("192.0.2.11/24"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24")},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, MaxEgressIPsPerNode: 255,
	}, agent.Seams{Switch: node, Host: hostOf{node}, Cluster: a.cluster, IPAM: node, Members: node, Clock: shell.NewClock(q), Post: q.Post, Log: klog.Background()})
	if err != nil {
		t.Fatal(err)
	}
	q.Post(func() {
		a.loop.Start()
		for _, kind := range []string{tables.FactPorts, tables.FactLinks, tables.FactAddresses} {
			a.loop.Handle(edge.SyncedEvent{Kind: kind})
		}
		for _, ip := range []string{"192.0.2.11", "192.0.2.50"} {
			a.loop.Handle(datapath.AddressEvent{Addr: netip.MustParseAddr(ip), Link: "eth0", Present: true})
		}
		a.loop.Handle(edge.MembersEvent{Alive: []string{"n1"}, Joined: true})
	})
	if err := a.cluster.WatchAgent(t.Context(), "n1", true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		q.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return a
}

// memory is a node that takes and keeps everything, and gives every port a number.
type memory struct {
	q       *shell.Queue
	handle  func(any)
	objects map[datapath.Key]datapath.Object
}

func (m *memory) Features() datapath.Features { return datapath.Features{Datapath: "netdev"} }

func (m *memory) Apply(_ datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	for _, op := range ops {
		if op.Delete() {
			delete(m.objects, op.Key())
		} else {
			m.objects[op.Key()] = op.New
		}
		if k := op.Key(); k.Kind == datapath.KindPort && !op.Delete() {
			n := uint32(len(m.objects))
			m.q.Post(func() {
				m.handle(datapath.PortEvent{Name: k.Name, OFPort: n, Up: true})
				m.handle(datapath.LinkEvent{Name: k.Name, Up: true, Present: true})
			})
		}
	}
	m.q.Post(func() { done(datapath.AllResults(len(ops), datapath.Done, nil)) })
}

func (m *memory) dump(onSwitch bool, done func([]datapath.Object, error)) {
	var out []datapath.Object
	for k, o := range m.objects {
		if slices.Contains([]datapath.Kind{datapath.KindFlow, datapath.KindGroup, datapath.KindMeter, datapath.KindPort}, k.Kind) == onSwitch {
			out = append(out, o)
		}
	}
	m.q.Post(func() { done(out, nil) })
}

func (m *memory) Dump(done func([]datapath.Object, error)) { m.dump(true, done) }

func (m *memory) FlushConntrack(_ []datapath.Tuple, done func(error)) { m.q.Post(func() { done(nil) }) }

func (m *memory) DumpConntrack(_ []uint16, done func([]datapath.ConntrackEntry, error)) {
	m.q.Post(func() { done(nil, nil) })
}

func (m *memory) ResolveTunnel(_ []netip.Addr, done func(error)) { m.q.Post(func() { done(nil) }) }

func (m *memory) Add(_ edge.Attachment, done func([]netip.Prefix, error)) {
	m.q.Post(func() { done([]netip.Prefix{netip.MustParsePrefix("10.10.1.2/24")}, nil) })
}

func (m *memory) Del(_ edge.Attachment, done func(error)) { m.q.Post(func() { done(nil) }) }

func (m *memory) GC(_ []edge.Attachment, _ []netip.Addr, done func(error)) {
	m.q.Post(func() { done(nil) })
}

func (m *memory) SetPeers(map[string]netip.Addr) {}

func (m *memory) Leave() {}

// hostOf is the same node as a host.
type hostOf struct{ *memory }

func (h hostOf) Dump(done func([]datapath.Object, error)) { h.dump(false, done) }

func (h hostOf) Announce(_ []datapath.Announcement, done func(error)) { h.q.Post(func() { done(nil) }) }

func (h hostOf) DumpConntrack(done func([]datapath.ConntrackEntry, error)) {
	h.q.Post(func() { done(nil, nil) })
}

func (h hostOf) Check(_ datapath.Object, done func(error)) { h.q.Post(func() { done(nil) }) }

// The controller may do what it does, and nothing else.
func TestControllerRights(t *testing.T) {
	s := restricted(t)
	k, crd, recorder := s.clients(t, sim.ControllerName)
	s.apply(t, cluster)
	s.apply(t, `
apiVersion: crd.antrea.io/v1beta1
kind: ExternalIPPool
metadata: {name: pool}
spec: {ipRanges: [{start: 192.0.2.60, end: 192.0.2.60}], nodeSelector: {}}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: pooled}
spec: {appliedTo: {podSelector: {matchLabels: {app: web}}}, externalIPPool: pool}
---
apiVersion: crd.antrea.io/v1beta1
kind: Egress
metadata: {name: late}
spec: {appliedTo: {podSelector: {}}, externalIPPool: pool}
`)
	// Each write meets a conflict, so that everything that can be read again is.
	s.AddFault(sim.ControllerName, sim.Fault{Effect: sim.EffectAPIStatus, Mode: sim.Conflict, Count: 10})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- controller.Run(ctx, controller.Options{
			Kube: k, CRD: crd, Recorder: recorder, Log: klog.Background(), Groups: true, Elect: true, Identity: "one", Namespace: "kube-system",
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 100 * time.Millisecond,
		})
	}()
	for _, did := range []string{
		"update egresses", "update egresses/status", "update externalippools/status", "get egresses", "get externalippools", "create egressgroups",
		"create events", "update leases",
	} {
		verb, resource, _ := strings.Cut(did, " ")
		s.did(t, sim.ControllerName, verb, resource)
	}
	s.ClearFaults(sim.ControllerName)
	within20s(t, "the group is there", func() (ok bool) {
		s.Do(func(c *kube.Cluster) {
			_, err := c.Get(kube.KindEgressGroup, "", "pooled")
			ok = err == nil
		})
		return ok
	})
	s.Do(func(c *kube.Cluster) {
		if err := c.ChangeLabels(kube.KindPod, "default", "web", map[string]string{"app": "web"}, nil); err != nil {
			t.Error(err)
		}
	})
	s.did(t, sim.ControllerName, "update", "egressgroups")
	for range 2 {
		recorder.Event(&corev1.ObjectReference{Kind: "Egress", Name: "late"}, "Warning", "Reason", "said twice")
	}
	s.did(t, sim.ControllerName, "patch", "events")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.exactly(t, sim.ControllerName, deploy.ControllerAccount)
}
