package pools

import (
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/edge"
)

// api is an API server that answers every write with err, and the clock beside it.
type api struct {
	edge.Cluster
	err    error
	writes int
	events []string
	posted []func()
	timers []func()
}

func (a *api) write(o runtime.Object, done func(runtime.Object, error)) {
	a.writes++
	if err := a.err; err != nil {
		a.posted = append(a.posted, func() { done(nil, err) })
		return
	}
	if m, ok := o.(metav1.Object); ok {
		m.SetResourceVersion(strconv.Itoa(100 * a.writes))
	}
	a.posted = append(a.posted, func() { done(o, nil) })
}

func (a *api) Update(o runtime.Object, done func(runtime.Object, error))       { a.write(o, done) }
func (a *api) UpdateStatus(o runtime.Object, done func(runtime.Object, error)) { a.write(o, done) }
func (a *api) Record(_ edge.Ref, _, _, message string)                         { a.events = append(a.events, message) }
func (a *api) Now() time.Time                                                  { return time.Time{} }
func (a *api) Stop()                                                           {}

func (a *api) AfterFunc(_ time.Duration, _ edge.TimerClass, f func()) edge.Timer {
	a.timers = append(a.timers, f)
	return a
}

// run has everything done that is due, and all timers that are set then end.
func (a *api) run(t *testing.T) {
	t.Helper()
	for n := 0; len(a.posted) > 0; n++ {
		if n > 100 {
			t.Fatal("the controller does not come to rest")
		}
		f := a.posted[0]
		a.posted = a.posted[1:]
		f()
	}
	due := a.timers
	a.timers = nil
	for _, f := range due {
		f()
	}
}

func (a *api) tells(t *testing.T, n int) {
	t.Helper()
	if len(a.events) != n {
		t.Fatalf("%d Events, want %d: %q", len(a.events), n, a.events)
	}
}

// TestRefusalIsToldOnce has the API refuse what is written of an Egress, again and again: people are told once, and once
// more of a refusal after something was written. So it is whether the condition says that all is well or what is wrong.
func TestRefusalIsToldOnce(t *testing.T) {
	refusal := apierrors.NewInvalid(schema.GroupKind{Group: "crd.antrea.io", Kind: "Egress"}, "e", nil)
	for name, c := range map[string]struct {
		spec    v1beta1.EgressSpec
		reports int // Events of the condition itself
	}{
		"well":  {v1beta1.EgressSpec{ExternalIPPool: "pool", EgressIP: "172.18.0.50"}, 0},
		"wrong": {v1beta1.EgressSpec{ExternalIPPool: "pool", EgressIP: "172.18.0.99"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a := &api{err: refusal}
			ctl := New(Seams{Cluster: a, Clock: a, Post: func(f func()) { a.posted = append(a.posted, f) }, Log: klog.Background()})
			ctl.Handle(edge.ObjectEvent{Kind: edge.KindExternalIPPool, Key: "pool", Object: &v1beta1.ExternalIPPool{
				ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1beta1.ExternalIPPoolSpec{IPRanges: []v1beta1.IPRange{{Start: "172.18.0.50", End: "172.18.0.59"}}},
			}})
			seen := func(version string) {
				ctl.Handle(edge.ObjectEvent{Kind: edge.KindEgress, Key: "e", Object: &v1beta1.Egress{
					ObjectMeta: metav1.ObjectMeta{Name: "e", ResourceVersion: version}, Spec: c.spec,
				}})
			}
			seen("1")
			ctl.Handle(edge.SyncedEvent{Kind: edge.KindEgress})
			ctl.Handle(edge.SyncedEvent{Kind: edge.KindExternalIPPool})
			before := 0
			for range 5 {
				a.run(t)
				if a.writes == before {
					t.Fatal("what was refused was not tried again")
				}
				before = a.writes
			}
			a.tells(t, 1+c.reports)
			a.err = nil
			a.run(t)
			a.run(t)
			a.tells(t, 1+c.reports)
			// Somebody took the condition away, and it is refused once more.
			a.err = refusal
			seen("9000")
			a.run(t)
			a.run(t)
			a.tells(t, 2+c.reports)
		})
	}
}
