//go:build linux

package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/shell"
	"towtank/datapath"
	"towtank/scenarios"
	"towtank/scenarios/check"
	"towtank/sim"
	"towtank/sim/kube"
)

// invariants are those that real nodes show:
//
//	1  an audit, in which the agent reads its node anew, writes nothing; nor does an agent that starts anew
//	2  nothing of ours dangles or is unwanted, nothing of others has changed: see foreign.go
//	3  an address of a pool is on at most one node
//	4  no frame leaves a node with a source that it may not have: see wire.go
//	5  connections to Services experience what the reference model says: see services.go
//	6  after everything is deleted, only what the nodes themselves need is wanted, and an audit writes nothing
type invariants struct{ c *cluster }

// quiet reports whether nothing disturbs a node.
func (m *machine) quiet() bool {
	if m.faulted() || m.c.api.Faulted(m.name) {
		return false
	}
	for _, o := range m.c.machines {
		if o.Up() && !m.c.reachable(m.name, o.name) {
			return false
		}
	}
	return true
}

// AfterSettle implements scenarios.Invariants.
func (i invariants) AfterSettle() []check.Result {
	out := i.c.noticed()
	for _, m := range i.c.machines {
		if !m.quiet() {
			continue
		}
		if m.byHand(false) {
			_ = m.auditOnce() // what people broke is repaired
		}
		// Before the next audit: it would remove what nobody wants.
		out = append(out, m.owned(false)...)
		if why := m.auditOnce(); why != "" {
			out = append(out, check.Result{ID: 1, Node: m.name, Detail: why})
		}
		i.c.problem(m.knowForeign())
	}
	return append(append(out, i.holders()...), i.c.wire.noticed()...)
}

// restarted restarts one agent, another one in each file, and says what the new one wrote: a start from what is on
// the node is to find it as it wants it. It is done where nothing comes after that it could disturb, and where no Pod is
// still tried by its kubelet: a call that the new agent takes is written, too.
func (i invariants) restarted() []check.Result {
	if _, retries := i.c.kubelet.idle(); retries || !i.c.calm() || len(i.c.machines) == 0 {
		return nil
	}
	m := i.c.machines[int(runs.Load())%len(i.c.machines)]
	fail := func(why string) []check.Result { return []check.Result{{ID: 1, Node: m.name, Detail: why}} }
	err := i.c.AgentOp(m, "restart")
	if err == nil {
		err = i.c.Settle(endSettle)
	}
	var list shell.WriteList
	if err == nil {
		err = m.ask("/writes?after=0", &list)
	}
	if err != nil {
		return fail("after a restart: " + err.Error())
	}
	if wrote := repairs(list.Writes); len(wrote) > 0 {
		return fail("a restart wrote:\n  " + strings.Join(wrote[:min(len(wrote), maxTold)], "\n  "))
	}
	return nil
}

// repairs are the writes to the node itself, as text. The listeners of health ports end with their process.
func repairs(list []shell.Write) (out []string) {
	for _, w := range list {
		if w.Seam != shell.SeamAPI && string(w.Class) != string(datapath.KindHealth) && sim.SeamOf(string(w.Class)) != "" {
			out = append(out, fmt.Sprintf("%s %v %v", w.Class, w.Units, w.About))
		}
	}
	return out
}

// auditLimit is how long an audit may take.
const auditLimit = 20 * time.Second

// audit has the agent compare its node with what it wants, and says what it repaired; what somebody had typed
// there is repaired before.
func (m *machine) audit() string {
	if m.byHand(false) {
		_ = m.auditOnce()
	}
	return m.auditOnce()
}

func (m *machine) auditOnce() string {
	before, err := m.written()
	if err == nil {
		err = m.post("/audit")
	}
	for end := time.Now().Add(auditLimit); err == nil; time.Sleep(settleEvery) {
		var r shell.Report
		if err = m.ask("/status", &r); err == nil && r.Settled {
			break
		}
		if time.Now().After(end) {
			err = fmt.Errorf("an audit does not end: %s", unsettled(r))
		}
	}
	if err != nil {
		return err.Error()
	}
	var list shell.WriteList
	if err := m.ask(fmt.Sprintf("/writes?after=%d", before), &list); err != nil {
		return err.Error()
	}
	var wrote []string
	for _, w := range list.Writes {
		if w.Seam != shell.SeamAPI {
			wrote = append(wrote, fmt.Sprintf("%s %v %v", w.Class, w.Units, w.About))
		}
	}
	if len(wrote) == 0 {
		return ""
	}
	return "the dump is not what is wanted; an audit wrote:\n  " + strings.Join(wrote[:min(len(wrote), maxLastWrites)], "\n  ")
}

// written returns the number of the agent's last write.
func (m *machine) written() (uint64, error) {
	var r shell.Report
	err := m.ask("/status", &r)
	return r.LastWrite, err
}

func (m *machine) post(path string) error {
	client := &http.Client{Timeout: askLimit, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", m.statusSocket())
		},
	}}
	resp, err := client.Post("http://agent"+path, "", bytes.NewReader(nil))
	if err != nil {
		return fmt.Errorf("node %s: %w", m.name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("node %s: %s: %s", m.name, path, resp.Status)
	}
	return nil
}

// holders looks for addresses of pools that several nodes have.
func (i invariants) holders() []check.Result {
	if i.c.wasCut() {
		return nil
	}
	var out []check.Result
	seen := map[netip.Addr]bool{}
	for _, o := range objects(i).List(kube.KindEgress) {
		eg, ok := o.(*v1beta1.Egress)
		if !ok || eg.Spec.ExternalIPPool == "" {
			continue
		}
		ip, err := netip.ParseAddr(eg.Spec.EgressIP)
		if err != nil || seen[ip] {
			continue
		}
		seen[ip] = true
		var have []string
		for _, name := range i.c.Holders(ip) {
			if i.c.machine(name).agentRuns() {
				have = append(have, name)
			}
		}
		if len(have) > 1 {
			out = append(out, check.Result{ID: 3, Detail: fmt.Sprintf("%s is on %s", ip, strings.Join(have, " and "))})
		}
	}
	return out
}

// Probed implements scenarios.Invariants: the reference model is compared in the simulator.
func (i invariants) Probed(scenarios.Flow, sim.Result) []check.Result { return nil }

// Clean implements scenarios.Invariants.
func (i invariants) Clean(n scenarios.Node) []string {
	m, ok := n.(*machine)
	if !ok {
		return nil
	}
	var out []string
	if why := m.audit(); why != "" {
		out = append(out, why)
	}
	units, err := m.store()
	if err != nil {
		return append(out, err.Error())
	}
	for _, u := range units {
		for _, o := range u.Objects {
			if !o.Known {
				out = append(out, "pending: "+string(o.Kind)+" "+o.Text)
			}
		}
		if why := i.orphaned(u); why != "" {
			out = append(out, why)
		}
	}
	return out
}

// orphaned says why a unit belongs to nothing that exists in Kubernetes, "" if it does.
func (i invariants) orphaned(u shell.Unit) string {
	if len(u.Objects) == 0 {
		return ""
	}
	kind, rest, _ := strings.Cut(u.Name, "/")
	absent := func(kind kube.Kind, key string) string {
		ns, name := cut(key)
		if _, err := objects(i).Get(kind, ns, name); err != nil {
			return fmt.Sprintf("%s: %s %s does not exist", u.Name, kind, key)
		}
		return ""
	}
	switch kind {
	case "podegress":
		return absent(kube.KindPod, rest)
	case "node":
		return absent(kube.KindNode, rest)
	case "svcskip", "svchealth":
		return absent(kube.KindService, rest)
	case "svcport":
		key, _, _ := strings.Cut(rest, ":")
		return absent(kube.KindService, key)
	case "sandbox":
		for _, a := range u.About {
			if pod, ok := strings.CutPrefix(a, "pod/"); ok {
				return absent(kube.KindPod, pod)
			}
		}
	}
	return ""
}

// endSettle is how long the end of a file may take to settle, what gossip takes to find everybody included.
const endSettle = 2 * time.Minute

// End implements scenarios.Invariants.
func (i invariants) End(keep bool) []check.Result {
	fail := func(what string, err error) []check.Result {
		return []check.Result{{ID: 6, Detail: what + ": " + err.Error()}}
	}
	if keep {
		return nil
	}
	if err := i.c.endFaults(); err != nil {
		return fail("the faults could not be ended", err)
	}
	if err := i.c.Settle(endSettle); err != nil {
		return fail("after the faults ended", err)
	}
	out := append(i.AfterSettle(), i.c.tryServices()...)
	out = append(out, i.restarted()...)
	if err := i.deleteAll(); err != nil {
		return append(out, fail("deleting everything", err)...)
	}
	if err := i.c.Settle(endSettle); err != nil {
		return append(out, fail("after everything was deleted", err)...)
	}
	out = append(append(out, i.empty()...), i.c.wire.noticed()...)
	return append(out, i.c.noticed()...)
}

// endFaults ends what a scenario did, and has everybody run.
func (c *cluster) endFaults() error {
	errs := []error{c.Heal(), c.fabric.lossless(), c.controller.op("resume"), c.controller.op("start")}
	c.api.ClearFaults(sim.ControllerName)
	errs = append(errs, c.api.Watch(sim.ControllerName, "release", nil, 0))
	for _, m := range c.machines {
		c.api.ClearFaults(m.name)
		errs = append(errs, c.api.Watch(m.name, "release", nil, 0), c.AgentOp(m, "resume"), c.NodeUp(m, nil), c.OVSOp(m, "start"), c.AgentOp(m, "start"))
	}
	c.mu.Lock()
	c.cut = false // everybody must be found again
	c.mu.Unlock()
	return errors.Join(errs...)
}

// deletable are the kinds that End deletes, owners before what they own.
var deletable = []kube.Kind{
	kube.KindDeployment, kube.KindReplicaSet, kube.KindStatefulSet, kube.KindDaemonSet, kube.KindPod, kube.KindService,
	kube.KindEndpoints, kube.KindEndpointSlice, kube.KindEgress, kube.KindExternalIPPool, kube.KindNamespace,
}

func (i invariants) deleteAll() error {
	for _, kind := range deletable {
		for _, o := range objects(i).List(kind) {
			m, ok := o.(metav1.Object)
			if !ok || kind == kube.KindNamespace && slices.Contains([]string{"default", "kube-system"}, m.GetName()) {
				continue
			}
			// What went with its owner is gone already.
			if err := objects(i).Delete(kind, m.GetNamespace(), m.GetName()); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s %s/%s: %w", kind, m.GetNamespace(), m.GetName(), err)
			}
		}
	}
	i.c.kubelet.removeAll()
	return nil
}

// removeAll takes down the containers that the scenario made by itself.
func (k *kubelet) removeAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.byID {
		k.remove(s)
	}
}

// empty checks that nothing is left on any node but what the nodes themselves need.
func (i invariants) empty() []check.Result {
	var out []check.Result
	for _, m := range i.c.machines {
		out = append(out, m.owned(true)...)
		var wrong []string
		units, err := m.store()
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		for _, u := range units {
			if kind, _, _ := strings.Cut(u.Name, "/"); kind != "host" && kind != "node" && len(u.Objects) > 0 {
				wrong = append(wrong, fmt.Sprintf("%s still wants %d objects", u.Name, len(u.Objects)))
			}
		}
		if why := m.audit(); why != "" {
			wrong = append(wrong, why)
		}
		wrong = append(wrong, m.given()...)
		if len(wrong) > 0 {
			out = append(out, check.Result{ID: 6, Node: m.name, Detail: "after everything was deleted:\n  " + strings.Join(wrong, "\n  ")})
		}
	}
	return out
}

// given returns the addresses that host-local has given out.
func (m *machine) given() []string {
	list, err := os.ReadDir(filepath.Join(m.addressDir(), "towtank"))
	if err != nil {
		return nil // no address was ever given
	}
	var out []string
	for _, e := range list {
		if _, err := netip.ParseAddr(strings.ReplaceAll(e.Name(), "_", ":")); err == nil {
			out = append(out, "the address "+e.Name()+" is given out")
		}
	}
	return out
}
