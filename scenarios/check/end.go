package check

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"towtank/datapath"
	"towtank/sim"
	"towtank/sim/kube"
)

// Times of the end of a file: what gossip takes to settle with the defaults, and what a settle takes at
// the most.
const (
	endAdvance = 90 * time.Second
	endSettle  = 30 * time.Second
)

// End checks invariant 6. The world is not of use any more after it: unless keep is set, everything in it
// is deleted.
func (c *Checker) End(keep bool) []Result {
	fail := func(format string, args ...any) []Result {
		return []Result{{ID: 6, Detail: fmt.Sprintf(format, args...)}}
	}
	if keep {
		return nil
	}
	if err := c.w.EndFaults(); err != nil {
		return fail("the faults could not be ended: %v", err)
	}
	if err := c.w.Advance(endAdvance); err != nil {
		return fail("after the faults ended: %v", err)
	}
	if err := c.w.Settle(endSettle); err != nil {
		return fail("after the faults ended: %v", err)
	}
	c.restarts = len(c.w.Nodes())
	c.last = moment{}
	out := c.AfterSettle()
	if err := c.deleteAll(); err != nil {
		return append(out, fail("deleting everything: %v", err)...)
	}
	if err := c.w.Settle(endSettle); err != nil {
		return append(out, fail("after everything was deleted: %v", err)...)
	}
	return append(append(out, c.noticed()...), c.empty()...)
}

// deletable are the kinds that End deletes, owners before what they own.
var deletable = []kube.Kind{
	kube.KindDeployment, kube.KindReplicaSet, kube.KindStatefulSet, kube.KindDaemonSet, kube.KindPod, kube.KindService,
	kube.KindEndpoints, kube.KindEndpointSlice, kube.KindEgress, kube.KindExternalIPPool, kube.KindNamespace,
}

func (c *Checker) deleteAll() error {
	for _, k := range deletable {
		for _, o := range c.w.Kube.List(k) {
			m, ok := o.(metav1.Object)
			if !ok || k == kube.KindNamespace && slices.Contains([]string{"default", "kube-system", "kube-public"}, m.GetName()) {
				continue
			}
			// What went with its owner is gone already.
			if err := c.w.Kube.Delete(k, m.GetNamespace(), m.GetName()); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s %s/%s: %w", k, m.GetNamespace(), m.GetName(), err)
			}
		}
	}
	c.w.RemoveContainers()
	return nil
}

// empty compares every node with one of a world in which nothing ever was.
func (c *Checker) empty() []Result {
	fresh, err := c.fresh()
	if err != nil {
		return []Result{{ID: 6, Detail: fmt.Sprintf("a fresh world could not be made: %v", err)}}
	}
	var out []Result
	for i, n := range c.w.Nodes() {
		c.count++
		wrong := differ(fresh[i], dump(n))
		if groups, marks := n.Identifiers(); groups > 0 || len(marks) > 0 {
			wrong = append(wrong, fmt.Sprintf("%d group ids are given out, marks of %v", groups, marks))
		}
		if k := n.IPAMCount(); k > 0 {
			wrong = append(wrong, fmt.Sprintf("%d addresses are given out", k))
		}
		if len(wrong) > 0 {
			out = append(out, Result{ID: 6, Node: n.Name(), Detail: "after everything was deleted:\n  " + listed(wrong)})
		}
	}
	return out
}

// freshDumps are what fresh worlds look like, by options and nodes: many files have the same. Objects are
// immutable, so that runs at one time may share them.
var freshDumps = struct {
	sync.Mutex
	of map[string][][]item
}{of: map[string][][]item{}}

// maxFresh bounds freshDumps.
const maxFresh = 64

// fresh returns the dumps of the nodes of a settled world with the same options and nodes, and nothing
// else. They don't depend on the seed.
func (c *Checker) fresh() ([][]item, error) {
	o := c.w.Options()
	o.LogTo, o.Seed = nil, 0
	key := fmt.Sprintf("%+v", o)
	for _, n := range c.w.Nodes() {
		key += fmt.Sprintf(" %s %s %s %v", n.Name(), n.Transport(false), n.Transport(true), c.served(n))
	}
	freshDumps.Lock()
	defer freshDumps.Unlock()
	if d, ok := freshDumps.of[key]; ok {
		return d, nil
	}
	w, err := sim.New(o)
	if err != nil {
		return nil, err
	}
	for _, n := range c.w.Nodes() {
		made, err := w.AddNodeAt(n.Name(), n.Transport(false), n.Transport(true))
		if err != nil {
			return nil, err
		}
		for _, p := range c.served(n) {
			if err := made.Netns().AddAddress(sim.Uplink, p); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Settle(endSettle); err != nil {
		return nil, err
	}
	var dumps [][]item
	for _, n := range w.Nodes() {
		dumps = append(dumps, dump(n))
	}
	if len(freshDumps.of) >= maxFresh {
		clear(freshDumps.of)
	}
	freshDumps.of[key] = dumps
	return dumps, nil
}

// served returns the addresses that somebody put on a node and that NodePorts are served on: something of each is there
// also without a Service.
func (c *Checker) served(n *sim.Node) []netip.Prefix {
	if len(c.w.Options().NodePortAddresses) == 0 {
		return nil
	}
	return slices.DeleteFunc(n.Netns().Link(sim.Uplink).Addresses(), func(p netip.Prefix) bool {
		return p.Addr() == n.Transport(p.Addr().Is6()) || p.Addr().IsLinkLocalUnicast()
	})
}

// differ compares two dumps.
func differ(want, have []item) []string {
	var out []string
	in := func(list []item) map[datapath.Key]string {
		m := make(map[datapath.Key]string, len(list))
		for _, i := range list {
			m[i.key] = i.obj.String()
		}
		return m
	}
	w, h := in(want), in(have)
	for _, i := range have {
		switch t, ok := w[i.key]; {
		case !ok:
			out = append(out, "left over: "+text(i.obj))
		case t != i.obj.String():
			out = append(out, "changed: "+text(i.obj)+"\n  was: "+t)
		}
	}
	for _, i := range want {
		if _, ok := h[i.key]; !ok {
			out = append(out, "missing: "+text(i.obj))
		}
	}
	return out
}
