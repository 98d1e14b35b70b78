package egress

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/edge"
)

// Writes of a status: after a conflict the object is read again at once, a few times; after that, and
// after any other error, with back-off.
const (
	conflictTries = 5
	// lonelyAfter is how long a static Egress IP may be on no node before that is reported: a node
	// that has it needs time to say so.
	lonelyAfter = 5 * time.Second
)

// statusWriter keeps the status of every Egress that this node has a say in. One write per Egress is
// under way at a time; what changed meanwhile is written after it.
type statusWriter struct {
	e        *Egress
	due      map[string]bool // Egresses to look at in the next turn
	writes   map[string]*write
	problems map[netip.Addr]string // why an address of this node is not realised
	lonely   map[string]edge.Timer
	told     map[string]string // last Kubernetes Event per Egress
	// epoch counts what may change who holds an address: members, placements, addresses. Another node's
	// claim is contradicted once per epoch: two nodes that cannot hear each other would write for ever.
	epoch   int
	claimed map[string]int
}

type write struct {
	flight bool
	again  bool
	epoch  int // when it was sent
	tries  int
	delay  time.Duration
	timer  edge.Timer
	// latest is the newest version that an answer brought; the watch may be behind it.
	latest *v1beta1.Egress
}

func newStatusWriter(e *Egress) *statusWriter {
	return &statusWriter{e: e, due: map[string]bool{}, writes: map[string]*write{}, problems: map[netip.Addr]string{}, lonely: map[string]edge.Timer{}, told: map[string]string{}, epoch: 1, claimed: map[string]int{}}
}

// uses reports whether an address matters to any status.
func (w *statusWriter) uses(ip netip.Addr) bool {
	for _, eg := range w.e.env.Egresses {
		if eg.Spec.EgressIP == ip.String() {
			return true
		}
	}
	return false
}

// problem notes why an address cannot be realised here. What is left of one that is not to be here is nobody's problem.
func (w *statusWriter) problem(ip netip.Addr, err error) {
	if w.e.isOurs(ip) && w.problems[ip] != err.Error() {
		w.problems[ip] = err.Error()
		w.addressChanged(ip)
	}
}

// noProblem forgets it: it would be said again when the address comes back, whatever is then.
func (w *statusWriter) noProblem(ip netip.Addr) { delete(w.problems, ip) }

func (w *statusWriter) addressChanged(ip netip.Addr) {
	for _, name := range w.e.holders[ip] {
		w.changed(name)
	}
}

// changed has the status of an Egress looked at in the next turn.
func (w *statusWriter) changed(name string) {
	if !w.due[name] {
		w.due[name] = true
		w.e.env.Wake()
	}
}

// look looks at every status that is due.
func (w *statusWriter) look() {
	names := slices.Sorted(maps.Keys(w.due))
	clear(w.due)
	for _, n := range names {
		w.lookAt(n)
	}
}

func (w *statusWriter) lookAt(name string) {
	eg := w.e.env.Egresses[name]
	wr := w.writes[name]
	if eg == nil {
		if wr != nil && wr.timer != nil {
			wr.timer.Stop()
		}
		delete(w.writes, name)
		delete(w.told, name)
		delete(w.claimed, name)
		w.notLonely(name)
		return
	}
	if wr == nil {
		wr = &write{}
		w.writes[name] = wr
	}
	if wr.flight {
		wr.again = true
		return
	}
	if wr.latest != nil && !newer(wr.latest, eg) {
		wr.latest = nil
	}
	base := eg
	if wr.latest != nil {
		base = wr.latest
	}
	next := w.want(eg, base)
	if next == nil {
		wr.tries, wr.delay = 0, 0
		return
	}
	w.send(name, wr, next)
}

// newer reports whether a is a later version than b of the same object.
func newer(a, b *v1beta1.Egress) bool {
	return a.UID == b.UID && resourceVersion(a.ResourceVersion) > resourceVersion(b.ResourceVersion)
}

func resourceVersion(s string) uint64 {
	var n uint64
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// want returns base with the status that this node says, nil if it has nothing to say or it is there.
func (w *statusWriter) want(eg, base *v1beta1.Egress) *v1beta1.Egress {
	e := w.e
	me := e.env.Cfg.NodeName
	st := base.Status
	st.Conditions = slices.Clone(st.Conditions)
	ip, hasIP := e.effectiveIP(eg)
	place, pooled := e.placements[eg.Name]
	holdsIt := hasIP && e.isLocal(ip) && e.env.Store.Realised(unitOfIP(ip)) && e.env.Marks.Lookup(ip) != 0 && e.env.IsClean(unitOfIP(ip))
	lonely := false
	// What another node says of itself is contradicted once: it may know what this one was not told yet.
	contradicted := base.Status.EgressNode != "" && base.Status.EgressNode != me && w.claimed[eg.Name] == w.epoch
	// What another node says is in its way stands while that node lives: two that say why the address is
	// nowhere would write for ever, each over the other. The same once per epoch if it does not hear us.
	blamed := inTheWayOf(base)
	stands := blamed != "" && blamed != me && (slices.Contains(e.env.Alive, blamed) || w.claimed[eg.Name] == w.epoch)
	inTheWay := hasIP && e.isOurs(ip) && w.problems[ip] != ""
	// Where another node is to have the address, or has it, a problem with it here matters to nobody.
	mine := base.Status.EgressNode == "" || base.Status.EgressNode == me
	if pooled {
		mine = place.Node == me
	}
	switch {
	case holdsIt && contradicted:
		return nil // said already, and contradicted by a node that does not hear us
	case holdsIt:
		w.noProblem(ip)
		if base.Status.EgressNode != me {
			e.taken(ip)
		}
		st.EgressNode, st.EgressIP = me, ip.String()
		if pooled || hasCondition(base) {
			w.condition(&st, corev1.ConditionTrue, v1beta1.ReasonAssigned, "the address is on node "+me)
		}
		w.tell(eg.Name, "Normal", "Assigned", "Assigned Egress IP "+ip.String()+" to Node "+me)
	case inTheWay && mine && (stands || contradicted):
		return nil // another node has said what is in its way, or does not hear what is in ours
	case inTheWay && mine:
		message := inTheWayPrefix + me + ": " + w.problems[ip]
		w.condition(&st, corev1.ConditionFalse, v1beta1.ReasonAssignmentError, message)
		w.tell(eg.Name, "Warning", v1beta1.ReasonAssignmentError, message)
		if st.EgressNode == me || !slices.Contains(e.env.Alive, st.EgressNode) {
			st.EgressNode = "" // who is dead takes nothing back
		}
	case hasIP && e.isLocal(ip) && !inTheWay:
		return nil // on its way
	case blamed == me:
		// What was in the way here is not any more, or nobody waits for it: who has something to say now
		// says it.
		st.Conditions = slices.DeleteFunc(st.Conditions, func(c v1beta1.EgressCondition) bool { return c.Type == v1beta1.IPAssigned })
	case pooled && place.Node == "" && spokesman(e.env.Tables, eg.Name) == me && (contradicted || stands):
		return nil // said already, and a node says that it has the address or why not
	case pooled && place.Node == "" && spokesman(e.env.Tables, eg.Name) == me:
		st.EgressNode, st.EgressIP = "", ""
		w.condition(&st, corev1.ConditionFalse, v1beta1.ReasonAssignmentError, "no Node available")
		w.tell(eg.Name, "Warning", v1beta1.ReasonAssignmentError, "no Node of pool "+eg.Spec.ExternalIPPool+" can take "+place.IP.String())
	case base.Status.EgressNode == me && (!pooled || place.Node != me):
		// It was here and is not any more. Who holds it now says so; only this node may take back what
		// this node said.
		st.EgressNode = ""
		if !pooled {
			st.EgressIP = ""
		}
		w.tell(eg.Name, "Normal", "Unassigned", "Unassigned Egress IP "+base.Status.EgressIP+" from Node "+me)
	case !hasIP && !pooled && base.Status.EgressIP != "" && spokesman(e.env.Tables, eg.Name) == me:
		st.EgressNode, st.EgressIP = "", ""
	case hasIP && !pooled && st.EgressNode == "" && spokesman(e.env.Tables, eg.Name) == me && stands:
		// A node has it and says why not.
	case hasIP && !pooled && st.EgressNode == "" && spokesman(e.env.Tables, eg.Name) == me:
		lonely = true
		if !w.lonelyLongEnough(eg.Name) {
			return nil
		}
		w.condition(&st, corev1.ConditionFalse, v1beta1.ReasonAssignmentError, "no Node has the address "+ip.String())
		w.tell(eg.Name, "Warning", v1beta1.ReasonAssignmentError, "no Node has the address "+ip.String())
	}
	if !lonely {
		w.notLonely(eg.Name)
	}
	if sameStatus(&st, &base.Status) {
		return nil
	}
	next := base.DeepCopy()
	next.Status = st
	return next
}

// inTheWayPrefix begins the message of a condition that says why an address is not realised on a node: a
// name and a colon follow.
const inTheWayPrefix = "on node "

// inTheWayOf returns the node whose problem the condition of an Egress is, "" if it is nobody's.
func inTheWayOf(eg *v1beta1.Egress) string {
	c := assigned(&eg.Status)
	if c.Status != corev1.ConditionFalse {
		return ""
	}
	rest, ok := strings.CutPrefix(c.Message, inTheWayPrefix)
	if !ok {
		return ""
	}
	node, _, _ := strings.Cut(rest, ": ")
	return node
}

func hasCondition(eg *v1beta1.Egress) bool {
	return slices.ContainsFunc(eg.Status.Conditions, func(c v1beta1.EgressCondition) bool { return c.Type == v1beta1.IPAssigned })
}

// lonelyLongEnough starts the wait for a node that has a static address, and reports whether it is
// over.
func (w *statusWriter) lonelyLongEnough(name string) bool {
	t, waiting := w.lonely[name]
	if waiting {
		return t == nil
	}
	w.lonely[name] = w.e.env.Clock.AfterFunc(lonelyAfter, edge.Work, func() {
		if _, ok := w.lonely[name]; ok {
			w.lonely[name] = nil
			w.changed(name)
		}
	})
	return false
}

func (w *statusWriter) notLonely(name string) {
	if t, ok := w.lonely[name]; ok {
		if t != nil {
			t.Stop()
		}
		delete(w.lonely, name)
	}
}

func (w *statusWriter) condition(st *v1beta1.EgressStatus, status corev1.ConditionStatus, reason, message string) {
	c := v1beta1.EgressCondition{
		Type: v1beta1.IPAssigned, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(w.e.env.Clock.Now()),
	}
	for i := range st.Conditions {
		if st.Conditions[i].Type == v1beta1.IPAssigned {
			if st.Conditions[i].Status == status {
				c.LastTransitionTime = st.Conditions[i].LastTransitionTime
			}
			st.Conditions[i] = c
			return
		}
	}
	st.Conditions = append(st.Conditions, c)
}

// sameStatus compares what this node has a say in: times and the controller's condition are not.
func sameStatus(a, b *v1beta1.EgressStatus) bool {
	ca, cb := assigned(a), assigned(b)
	return a.EgressNode == b.EgressNode && a.EgressIP == b.EgressIP && ca.Status == cb.Status && ca.Reason == cb.Reason && ca.Message == cb.Message
}

func assigned(s *v1beta1.EgressStatus) v1beta1.EgressCondition {
	for _, c := range s.Conditions {
		if c.Type == v1beta1.IPAssigned {
			return c
		}
	}
	return v1beta1.EgressCondition{}
}

// moved has it told again that an address is here, which it is on another link than before.
func (w *statusWriter) moved(ip netip.Addr) {
	for _, name := range w.e.holders[ip] {
		if _, known := w.told[name]; known {
			w.told[name] = ""
		}
	}
}

// tell records a Kubernetes Event, once per change.
func (w *statusWriter) tell(name, eventType, reason, message string) {
	if _, known := w.told[name]; !known && eventType == "Normal" && w.e.env.Egresses[name].Status.EgressNode == w.e.env.Cfg.NodeName && reason == "Assigned" {
		w.told[name] = reason + message // said by an earlier process of this node
		return
	}
	if w.told[name] == reason+message {
		return
	}
	w.told[name] = reason + message
	w.e.env.Cluster.Record(edge.Ref{Kind: "Egress", Name: name}, eventType, reason, message)
}

func (w *statusWriter) send(name string, wr *write, next *v1beta1.Egress) {
	wr.flight, wr.epoch = true, w.epoch
	w.e.env.Cluster.UpdateStatus(next, func(o runtime.Object, err error) { w.answered(name, wr, o, err) })
}

func (w *statusWriter) answered(name string, wr *write, o runtime.Object, err error) {
	if w.writes[name] != wr {
		return
	}
	wr.flight = false
	switch {
	case err == nil:
		wr.tries, wr.delay = 0, 0
		w.claimed[name] = wr.epoch
		if eg, ok := o.(*v1beta1.Egress); ok {
			wr.latest = eg
		}
	case apierrors.IsNotFound(err):
		return
	case apierrors.IsConflict(err) && wr.tries < conflictTries:
		wr.tries++
		w.e.env.Decide("egress/status-conflict")
		wr.flight = true
		w.e.env.Cluster.Get(edge.KindEgress, "", name, func(o runtime.Object, err error) {
			if w.writes[name] != wr {
				return
			}
			wr.flight = false
			if err != nil {
				w.later(name, wr, err)
				return
			}
			if eg, ok := o.(*v1beta1.Egress); ok {
				wr.latest = eg
			}
			w.changed(name)
		})
		return
	default:
		w.e.env.Log.Error(err, "The status of an Egress was not written", "egress", name)
		w.later(name, wr, err)
		return
	}
	if wr.again {
		wr.again = false
		w.changed(name)
	}
}

func (w *statusWriter) later(name string, wr *write, err error) {
	wr.tries = 0
	wr.delay = edge.Backoff(wr.delay, err)
	wr.flight = true // until the timer: one write at a time
	wr.timer = w.e.env.Clock.AfterFunc(wr.delay, edge.Work, func() {
		if w.writes[name] == wr {
			wr.flight = false
			w.changed(name)
		}
	})
}
