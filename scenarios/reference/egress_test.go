package reference

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"towtank/agent/apis/crd/v1beta1"
)

var web = map[string]string{"app": "web"}

// Each case says with which addresses Pod default/a may leave; "node" is the address of its node.
func TestLeaves(t *testing.T) {
	namespaced := func(e *v1beta1.Egress) {
		e.Spec.AppliedTo.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
	}
	for _, tc := range []struct {
		name string
		set  func(w *world)
		v6   bool
		want string
	}{
		{name: "no Egress", set: func(*world) {}, want: "node"},
		{name: "E-001 static", set: func(w *world) { w.egress("e", "172.18.0.50", "", 1, nil) }, want: "172.18.0.50"},
		{name: "E-013 no address", set: func(w *world) { w.egress("e", "", "pool", 1, nil); w.pool("pool", "n1") }, want: "node"},
		{name: "E-018 another Pod's", set: func(w *world) { w.pod("a", nil, nil); w.egress("e", "172.18.0.50", "", 1, nil) }, want: "node"},
		{name: "the oldest counts", set: func(w *world) {
			w.egress("a-new", "172.18.0.51", "", 2, nil)
			w.egress("z-old", "172.18.0.50", "", 1, nil)
		}, want: "172.18.0.50"},
		{name: "of one second the name counts", set: func(w *world) {
			w.egress("b", "172.18.0.51", "", 1, nil)
			w.egress("a", "172.18.0.50", "", 1, nil)
		}, want: "172.18.0.50"},
		{name: "an older one without a place does not count", set: func(w *world) {
			w.pool("pool")
			w.egress("old", "172.18.0.60", "pool", 1, nil)
			w.egress("new", "172.18.0.50", "", 2, nil)
		}, want: "172.18.0.50"},
		{name: "E-035 no node for the pool", set: func(w *world) { w.pool("pool"); w.egress("e", "172.18.0.60", "pool", 1, nil) }, want: "node"},
		{name: "the pool's nodes are dead", set: func(w *world) {
			w.pool("pool", "n2")
			w.Alive = []string{"n1", "n3"}
			w.egress("e", "172.18.0.60", "pool", 1, nil)
		}, want: "node"},
		{name: "the pool is gone", set: func(w *world) { w.egress("e", "172.18.0.60", "pool", 1, nil) }, want: "node"},
		{name: "on another node", set: func(w *world) { w.pool("pool", "n2"); w.egress("e", "172.18.0.60", "pool", 1, nil) }, want: "172.18.0.60"},
		{name: "a family of its own", set: func(w *world) {
			w.egress("e", "172.18.0.50", "", 1, nil)
			w.egress("f", "fd00:18::50", "", 2, nil)
		}, v6: true, want: "fd00:18::50"},
		{name: "no Egress of the family", set: func(w *world) { w.egress("e", "172.18.0.50", "", 1, nil) }, v6: true, want: "node"},
		{name: "host network", set: func(w *world) {
			w.pod("a", web, func(p *corev1.Pod) { p.Spec.HostNetwork = true })
			w.egress("e", "172.18.0.50", "", 1, nil)
		}, want: "node"},
		{name: "a Pod that ended", set: func(w *world) {
			w.pod("a", web, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
			w.egress("e", "172.18.0.50", "", 1, nil)
		}, want: "node"},
		{name: "no selector selects nothing", set: func(w *world) {
			w.egress("e", "172.18.0.50", "", 1, func(e *v1beta1.Egress) { e.Spec.AppliedTo = v1beta1.AppliedTo{} })
		}, want: "node"},
		{name: "another namespace", set: func(w *world) { w.egress("e", "172.18.0.50", "", 1, namespaced) }, want: "node"},
		{name: "its namespace", set: func(w *world) {
			w.Namespaces["default"].Labels = map[string]string{"team": "x"}
			w.egress("e", "172.18.0.50", "", 1, namespaced)
		}, want: "172.18.0.50"},
		{name: "who gets no place is open", set: func(w *world) {
			w.Options.MaxEgressIPsPerNode = 1
			w.pool("wide", "n1", "n2")
			w.pool("narrow", "n1")
			w.egress("e1", "172.18.0.60", "wide", 1, func(e *v1beta1.Egress) { e.Spec.AppliedTo = v1beta1.AppliedTo{} })
			w.egress("e2", "172.18.0.61", "narrow", 2, nil)
		}, want: "172.18.0.61 node"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.pod("a", web, nil)
			tc.set(w)
			l := w.Leaves("default/a", tc.v6)
			var got []string
			for _, ip := range l.IPs {
				got = append(got, ip.String())
			}
			if l.Plain {
				got = append(got, "node")
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("got %q, want %q", s, tc.want)
			}
		})
	}
}

// E-046, E-047: the oldest get a place first; what a node takes is bounded, by default and by annotation.
func TestSchedule(t *testing.T) {
	ip := func(i int) string { return fmt.Sprintf("172.18.0.%d", 60+i) }
	for _, tc := range []struct {
		name string
		set  func(w *world)
		want string // of the addresses in order: p placed, u unplaced, o open
	}{
		{name: "room for all", set: func(w *world) { w.pool("pool", "n1", "n2") }, want: "ppp"},
		{name: "E-046 one node, one address", set: func(w *world) { w.Options.MaxEgressIPsPerNode = 1; w.pool("pool", "n1") }, want: "puu"},
		{name: "E-047 the next node takes it", set: func(w *world) { w.Options.MaxEgressIPsPerNode = 1; w.pool("pool", "n1", "n2") }, want: "ppu"},
		{name: "E-047 per node", set: func(w *world) {
			w.pool("pool", "n1", "n2", "n3")
			for n, k := range map[string]string{"n1": "0", "n2": "2", "n3": "0"} {
				w.Nodes[n].Annotations[maxIPsAnnotation] = k
			}
		}, want: "ppu"},
		{name: "E-049 what is no number does not count", set: func(w *world) {
			w.pool("pool", "n1")
			w.Nodes["n1"].Annotations[maxIPsAnnotation] = "many"
		}, want: "ppp"},
		{name: "nobody is alive", set: func(w *world) { w.pool("pool", "n1"); w.Alive = nil }, want: "uuu"},
	} {
		w := newWorld()
		tc.set(w)
		for i := range 3 {
			w.egress(fmt.Sprint("e", i), ip(i), "pool", int64(i), nil)
		}
		w.egress("twin", ip(0), "pool", 9, nil) // an address counts once
		places := w.Schedule()
		got := ""
		for i := range 3 {
			got += string("upo"[places[netip.MustParseAddr(ip(i))].Fate])
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}
