// Package pools gives Egresses their addresses from ExternalIPPools. It is a process of its own, with
// the same kind of loop as the agent: events in, writes out, no goroutine and no clock of its own.
package pools

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/edge"
)

// Seams is everything that the controller has effects on.
type Seams struct {
	Cluster edge.Cluster
	Clock   edge.Clock
	Post    func(f func())
	Log     klog.Logger
}

// Controller allocates. What an Egress has in spec.egressIP is its allocation; the controller has no
// other store. Nothing is given before all Egresses and pools that exist are known.
type Controller struct {
	s        Seams
	egresses map[string]*v1beta1.Egress
	pools    map[string]*v1beta1.ExternalIPPool
	synced   map[string]bool
	posted   bool
	stopped  bool
	writes   map[string]*write
	told     map[string]string // last message of the condition, by Egress
	refusals map[string]string // last message of what the API refused, by Egress
}

// write is what is under way for one object.
type write struct {
	flight bool
	delay  time.Duration
	tries  int
	// latest is the newest version that an answer brought; the watch may be behind it.
	latest runtime.Object
}

const (
	conflictTries = 5
)

// New returns a controller.
func New(s Seams) *Controller {
	return &Controller{
		s: s, egresses: map[string]*v1beta1.Egress{}, pools: map[string]*v1beta1.ExternalIPPool{}, synced: map[string]bool{},
		writes: map[string]*write{}, told: map[string]string{}, refusals: map[string]string{},
	}
}

// Stop ends the controller.
func (c *Controller) Stop() { c.stopped = true }

// Handle takes one event.
func (c *Controller) Handle(ev any) {
	switch e := ev.(type) {
	case edge.ObjectEvent:
		switch e.Kind {
		case edge.KindEgress:
			if eg, ok := e.Object.(*v1beta1.Egress); ok {
				c.egresses[e.Key] = eg
			} else {
				delete(c.egresses, e.Key)
				delete(c.told, e.Key)
				delete(c.refusals, e.Key)
			}
		case edge.KindExternalIPPool:
			if p, ok := e.Object.(*v1beta1.ExternalIPPool); ok {
				c.pools[e.Key] = p
			} else {
				delete(c.pools, e.Key)
			}
		}
	case edge.SyncedEvent:
		c.synced[e.Kind] = true
	}
	c.wake()
}

// Ready reports whether all Egresses and pools that there were at the start are known.
func (c *Controller) Ready() bool {
	return c.synced[edge.KindEgress] && c.synced[edge.KindExternalIPPool]
}

// Writing returns the objects for which a write is under way or waits to be tried again, sorted, as
// egress/NAME and pool/NAME.
func (c *Controller) Writing() []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(c.writes)) {
		if c.writes[key].flight {
			out = append(out, key)
		}
	}
	return out
}

// Idle reports whether there is nothing left to do for what was heard.
func (c *Controller) Idle() bool { return c.Ready() && !c.posted && len(c.Writing()) == 0 }

func (c *Controller) wake() {
	if c.posted || c.stopped {
		return
	}
	c.posted = true
	c.s.Post(func() {
		c.posted = false
		if !c.stopped && c.Ready() {
			c.turn()
		}
	})
}

// egress returns the newest known version of an Egress.
func (c *Controller) egress(name string) *v1beta1.Egress {
	eg := c.egresses[name]
	if eg == nil {
		return nil
	}
	if w := c.writes["egress/"+name]; w != nil {
		if l, ok := w.latest.(*v1beta1.Egress); ok && l.UID == eg.UID && newer(l.ResourceVersion, eg.ResourceVersion) {
			return l
		}
	}
	return eg
}

func newer(a, b string) bool { return len(a) > len(b) || (len(a) == len(b) && a > b) }

// turn computes every allocation from what there is, the oldest Egress first, and writes what differs.
// It starts from nothing each time, so that events which came as one lead where each alone had led.
func (c *Controller) turn() {
	pools := map[string]*pool{}
	broken := map[string]error{}
	//determinism:ignore each pool is read by itself
	for name, p := range c.pools {
		pl, err := readPool(p)
		if err != nil {
			broken[name] = err
			continue
		}
		pools[name] = pl
	}
	var list []*v1beta1.Egress
	for name := range c.egresses {
		if eg := c.egress(name); eg.Spec.ExternalIPPool != "" {
			list = append(list, eg)
		} else if condition(eg).Type != "" {
			list = append(list, eg)
		}
	}
	slices.SortFunc(list, func(a, b *v1beta1.Egress) int {
		return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	used := map[netip.Addr]string{}
	var empty []*v1beta1.Egress
	for _, eg := range list {
		if eg.Spec.ExternalIPPool != "" && !c.keep(eg, pools, used) {
			empty = append(empty, eg)
		}
	}
	for _, eg := range empty {
		c.give(eg, pools, broken, used)
	}
	of := make(map[string]string, len(list)) // pools of Egresses
	for _, eg := range list {
		of[eg.Name] = eg.Spec.ExternalIPPool
	}
	count := map[string]int{}
	for _, name := range used {
		count[of[name]]++
	}
	for _, name := range slices.Sorted(maps.Keys(c.pools)) {
		if pools[name] != nil {
			c.usage(c.pools[name], pools[name], count[name])
		}
	}
}

// keep reports whether an Egress keeps the address it has, or a fault of it was reported.
func (c *Controller) keep(eg *v1beta1.Egress, pools map[string]*pool, used map[netip.Addr]string) bool {
	if eg.Spec.EgressIP == "" {
		return false
	}
	ip, err := netip.ParseAddr(eg.Spec.EgressIP)
	if err != nil {
		c.report(eg, corev1.ConditionFalse, v1beta1.ReasonAllocationError, fmt.Sprintf("spec.egressIP %q is not an IP address", eg.Spec.EgressIP))
		return true
	}
	p := pools[eg.Spec.ExternalIPPool]
	if p == nil || !p.contains(ip) {
		if allocated(eg) || p == nil {
			// The pool it came from is gone, or is another one now: the address goes with it.
			c.setIP(eg, "")
			return true
		}
		c.report(eg, corev1.ConditionFalse, v1beta1.ReasonAllocationError, fmt.Sprintf("spec.egressIP %s is not in pool %s", ip, eg.Spec.ExternalIPPool))
		return true
	}
	if o, taken := used[ip]; taken {
		c.report(eg, corev1.ConditionFalse, v1beta1.ReasonAllocationError, fmt.Sprintf("spec.egressIP %s is used by Egress %s", ip, o))
		return true
	}
	used[ip] = eg.Name
	c.report(eg, corev1.ConditionTrue, v1beta1.ReasonAllocated, "address "+ip.String()+" of pool "+eg.Spec.ExternalIPPool)
	return true
}

func (c *Controller) give(eg *v1beta1.Egress, pools map[string]*pool, broken map[string]error, used map[netip.Addr]string) {
	p := pools[eg.Spec.ExternalIPPool]
	if p == nil {
		why := "pool " + eg.Spec.ExternalIPPool + " does not exist"
		if err := broken[eg.Spec.ExternalIPPool]; err != nil {
			why = "pool " + eg.Spec.ExternalIPPool + ": " + err.Error()
		}
		c.report(eg, corev1.ConditionFalse, v1beta1.ReasonAllocationError, why)
		return
	}
	ip, ok := p.firstFree(used)
	if !ok {
		c.report(eg, corev1.ConditionFalse, v1beta1.ReasonAllocationError, "pool "+eg.Spec.ExternalIPPool+" has no free address")
		return
	}
	used[ip] = eg.Name
	c.setIP(eg, ip.String())
}

func condition(eg *v1beta1.Egress) v1beta1.EgressCondition {
	for _, k := range eg.Status.Conditions {
		if k.Type == v1beta1.IPAllocated {
			return k
		}
	}
	return v1beta1.EgressCondition{}
}

func allocated(eg *v1beta1.Egress) bool { return condition(eg).Status == corev1.ConditionTrue }

func (c *Controller) setIP(eg *v1beta1.Egress, ip string) {
	next := eg.DeepCopy()
	next.Spec.EgressIP = ip
	c.send("egress/"+eg.Name, edge.KindEgress, eg.Name, func(done func(runtime.Object, error)) { c.s.Cluster.Update(next, done) })
}

// report writes the condition IPAllocated, and an Event if something is wrong.
func (c *Controller) report(eg *v1beta1.Egress, status corev1.ConditionStatus, reason, message string) {
	if status == corev1.ConditionFalse && c.told[eg.Name] != message {
		c.s.Cluster.Record(edge.Ref{Kind: "Egress", Name: eg.Name}, "Warning", reason, message)
	}
	c.told[eg.Name] = message
	cur := condition(eg)
	if cur.Status == status && cur.Reason == reason && cur.Message == message {
		return
	}
	next := eg.DeepCopy()
	k := v1beta1.EgressCondition{
		Type: v1beta1.IPAllocated, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(c.s.Clock.Now()),
	}
	if i := slices.IndexFunc(next.Status.Conditions, func(x v1beta1.EgressCondition) bool { return x.Type == v1beta1.IPAllocated }); i >= 0 {
		next.Status.Conditions[i] = k
	} else {
		next.Status.Conditions = append(next.Status.Conditions, k)
	}
	c.send("egress/"+eg.Name, edge.KindEgress, eg.Name, func(done func(runtime.Object, error)) { c.s.Cluster.UpdateStatus(next, done) })
}

// usage writes the numbers of a pool, of which n addresses are used.
func (c *Controller) usage(p *v1beta1.ExternalIPPool, pl *pool, n int) {
	if w := c.writes["pool/"+p.Name]; w != nil {
		if l, ok := w.latest.(*v1beta1.ExternalIPPool); ok && l.UID == p.UID && newer(l.ResourceVersion, p.ResourceVersion) {
			p = l
		}
	}
	total := int(pl.total())
	if p.Status.Usage.Total == total && p.Status.Usage.Used == n {
		return
	}
	next := p.DeepCopy()
	next.Status.Usage.Total, next.Status.Usage.Used = total, n
	c.send("pool/"+p.Name, edge.KindExternalIPPool, p.Name, func(done func(runtime.Object, error)) { c.s.Cluster.UpdateStatus(next, done) })
}

// send writes, one at a time per object; the turn after the answer looks at it again.
func (c *Controller) send(key, kind, name string, call func(done func(runtime.Object, error))) {
	w := c.writes[key]
	if w == nil {
		w = &write{}
		c.writes[key] = w
	}
	if w.flight {
		return
	}
	w.flight = true
	call(func(o runtime.Object, err error) {
		w.flight = false
		switch {
		case err == nil:
			w.latest, w.tries, w.delay = o, 0, 0
			if kind == edge.KindEgress {
				delete(c.refusals, name)
			}
			c.wake()
		case apierrors.IsNotFound(err):
			delete(c.writes, key)
		case apierrors.IsConflict(err) && w.tries < conflictTries:
			w.tries++
			w.flight = true
			c.s.Cluster.Get(kind, "", name, func(o runtime.Object, err error) {
				w.flight = false
				if err == nil {
					w.latest = o
					c.wake()
					return
				}
				c.later(w, err)
			})
		default:
			c.s.Log.Error(err, "Writing failed", "object", key)
			if kind == edge.KindEgress && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
				c.refused(name, err)
			}
			c.later(w, err)
		}
	})
}

// refused tells people, once, that the API does not take what is to be written of an Egress. It is tried again later:
// what it is refused for may be changed elsewhere.
func (c *Controller) refused(egress string, err error) {
	message := "the API refuses the allocation: " + err.Error()
	if c.refusals[egress] == message {
		return
	}
	c.refusals[egress] = message
	c.s.Cluster.Record(edge.Ref{Kind: "Egress", Name: egress}, "Warning", v1beta1.ReasonAllocationError, message)
}

func (c *Controller) later(w *write, err error) {
	w.tries = 0
	w.delay = edge.Backoff(w.delay, err)
	w.flight = true
	c.s.Clock.AfterFunc(w.delay, edge.Work, func() {
		w.flight = false
		c.wake()
	})
}
