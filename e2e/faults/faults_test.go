package faults_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/klog/v2"

	"towtank/agent"
	"towtank/agent/edge"
	"towtank/agent/shell"
	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/datapath/ovsdb"
	"towtank/e2e/apiserver"
	"towtank/e2e/apiserver/apitest"
	"towtank/e2e/faults"
	"towtank/sim"
)

// node notes what is done to it, and answers at once.
type node struct {
	datapath.Switch
	datapath.Host
	edge.IPAM
	mu   sync.Mutex
	did  []string
	post func(func())
}

func (n *node) note(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.did = append(n.did, what)
}

func (n *node) done() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.did)
}

// Apply is that of both seams.
func (n *node) Apply(_ datapath.Stage, ops []datapath.Op, done func([]datapath.OpResult)) {
	n.note(string(datapath.ClassOf(ops[0].Kind())))
	n.post(func() { done(datapath.AllResults(len(ops), datapath.Done, nil)) })
}

func (n *node) FlushConntrack(_ []datapath.Tuple, done func(error)) {
	n.note("flush")
	n.post(func() { done(nil) })
}

func (n *node) Add(edge.Attachment, func([]netip.Prefix, error)) { n.note("ipam") }

// switchOf and hostOf are the node as one seam each.
type switchOf struct{ *node }

func (s switchOf) Dump(func([]datapath.Object, error))                            {}
func (s switchOf) DumpConntrack([]uint16, func([]datapath.ConntrackEntry, error)) {}
func (s switchOf) Features() datapath.Features                                    { return datapath.Features{} }
func (s switchOf) ResolveTunnel([]netip.Addr, func(error))                        {}

type hostOf struct{ *node }

func (h hostOf) Dump(func([]datapath.Object, error))                  {}
func (h hostOf) DumpConntrack(func([]datapath.ConntrackEntry, error)) {}
func (h hostOf) Announce([]datapath.Announcement, func(error))        {}
func (h hostOf) Check(datapath.Object, func(error))                   {}

// rig is a node behind an injector, and the server that it asks.
type rig struct {
	api    *apiserver.Server
	q      *shell.Queue
	node   *node
	seams  agent.Seams
	hear   func(any)
	heard  []any // the queue's
	killed chan string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{q: shell.NewQueue(), killed: make(chan string, 10)}
	var url string
	r.api, url = apitest.Serve(t, apiserver.Config{Kill: func(client string) { r.killed <- client }})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	i, err := faults.New(r.api.RESTConfig("n1", url), klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	r.node = &node{post: r.q.Post}
	r.seams, r.hear = i.Wrap(ctx, r.q, agent.Seams{Switch: switchOf{r.node}, Host: hostOf{r.node}, IPAM: r.node}, func(ev any) { r.heard = append(r.heard, ev) })
	go r.q.Run(ctx)
	return r
}

// op makes an object.
func op(o datapath.Object) datapath.Op { return datapath.Op{New: o} }

var (
	sysctl = op(host.Sysctl{Name: "net.ipv4.ip_forward", Value: "1"})
	port   = func() datapath.Op {
		p, err := ovsdb.NewPort(ovsdb.PortSpec{Name: "p1"})
		if err != nil {
			panic(err)
		}
		return op(p)
	}()
)

// apply has ops applied by a seam, and returns what came back; "" if nothing has within the time.
func (r *rig) apply(onSwitch bool, limit time.Duration, ops ...datapath.Op) string {
	answered := make(chan []datapath.OpResult, 1)
	r.q.Post(func() {
		if onSwitch {
			r.seams.Switch.Apply(datapath.StagePortAdd, ops, func(x []datapath.OpResult) { answered <- x })
		} else {
			r.seams.Host.Apply(datapath.StageHostAdd, ops, func(x []datapath.OpResult) { answered <- x })
		}
	})
	select {
	case x := <-answered:
		var out []string
		for i := range x {
			out = append(out, x[i].Outcome.String())
		}
		return strings.Join(out, " ")
	case <-time.After(limit):
		return ""
	}
}

// Every mode does to an effect what it does in the simulator, and faults are counted as there.
func TestModes(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		fault  sim.Fault
		first  string // what the first effect is answered
		did    bool   // whether it was done
		killed bool
	}{
		{sim.Fault{Effect: sim.EffectPorts, Skip: 1}, "done", true, false},
		{sim.Fault{Effect: sim.EffectMeters}, "done", true, false},
		{sim.Fault{Effect: sim.EffectPorts}, "refused", false, false},
		{sim.Fault{Effect: "any"}, "refused", false, false},
		{sim.Fault{Effect: sim.EffectPorts, Mode: sim.Timeout}, "unknown", false, false},
		{sim.Fault{Effect: sim.EffectPorts, Mode: sim.LostReply}, "unknown", true, false},
		{sim.Fault{Effect: sim.EffectPorts, Mode: sim.Die}, "", false, true},
		{sim.Fault{Effect: sim.EffectPorts, Mode: sim.DieAfter}, "", true, true},
	} {
		r.api.ClearFaults("n1")
		r.api.AddFault("n1", c.fault)
		before := len(r.node.done())
		limit := 5 * time.Second
		if c.killed {
			limit = 500 * time.Millisecond
		}
		if got := r.apply(true, limit, port); got != c.first {
			t.Errorf("%s: answered %q, want %q", &c.fault, got, c.first)
		}
		if did := len(r.node.done()) > before; did != c.did {
			t.Errorf("%s: done %v, want %v", &c.fault, did, c.did)
		}
		select {
		case who := <-r.killed:
			if !c.killed || who != "n1" {
				t.Errorf("%s: killed %s", &c.fault, who)
			}
		default:
			if c.killed {
				t.Errorf("%s: nobody was killed", &c.fault)
			}
		}
	}
}

// Of a stage of the host each class is an effect of its own. A refused one leaves the others be; after one without
// an answer the rest is not tried.
func TestHostStage(t *testing.T) {
	r := newRig(t)
	link := op(host.Link{Name: "l1"})
	r.api.AddFault("n1", sim.Fault{Effect: sim.EffectLink})
	if got := r.apply(false, 5*time.Second, link, sysctl); got != "refused done" {
		t.Errorf("refused: %q", got)
	}
	r.api.AddFault("n1", sim.Fault{Effect: sim.EffectLink, Mode: sim.Timeout})
	if got := r.apply(false, 5*time.Second, link, sysctl); got != "unknown skipped" {
		t.Errorf("timeout: %q", got)
	}
	if got := r.node.done(); !slices.Equal(got, []string{"sysctl"}) {
		t.Errorf("done: %v", got)
	}
}

// A late port has no number until the fault is cleared.
func TestLate(t *testing.T) {
	r := newRig(t)
	r.api.AddFault("n1", sim.Fault{Effect: sim.EffectPorts, Mode: sim.Late})
	if got := r.apply(true, 5*time.Second, port); got != "done" {
		t.Fatalf("answered %q", got)
	}
	heard := func() (n int) {
		r.q.Do(t.Context(), func() { n = len(r.heard) })
		return n
	}
	r.q.Post(func() {
		r.hear(datapath.PortEvent{Name: "p1", OFPort: 5})
		r.hear(datapath.PortEvent{Name: "p2", OFPort: 6})
	})
	time.Sleep(300 * time.Millisecond) // three times as long as it waits between its questions: nothing may come
	if n := heard(); n != 1 {
		t.Errorf("%d events were heard, want that of the other port", n)
	}
	r.api.ClearFaults("n1")
	gomega.NewWithT(t).Eventually(heard, "5s", "10ms").Should(gomega.Equal(2), "the port, after the fault was cleared")
}

// Effects stay in the order in which the loop had them, and whoever cannot ask goes on without faults.
func TestOrder(t *testing.T) {
	r := newRig(t)
	r.api.SetReachable("n1", false)
	if got := r.apply(true, 5*time.Second, port); got != "done" {
		t.Errorf("cut off: %q", got)
	}
	r.api.SetReachable("n1", true)
	last := make(chan struct{})
	r.q.Post(func() {
		for range 20 {
			r.seams.Switch.FlushConntrack(nil, func(error) {})
			r.seams.Switch.Apply(datapath.StagePortAdd, []datapath.Op{port}, func([]datapath.OpResult) {})
		}
		r.seams.Switch.FlushConntrack(nil, func(error) { close(last) })
	})
	<-last
	for i, what := range r.node.done()[1:] {
		if want := []string{"flush", "ports"}[i%2]; what != want {
			t.Fatalf("effect %d is %s, want %s", i, what, want)
		}
	}
}
