package services

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"towtank/agent/edge"
	"towtank/agent/tables"
	"towtank/datapath"
)

// An address that comes to the node or goes costs what the Services with that address cost, however many others
// have addresses of their own.
func TestAddressEventIsForTheServicesThatHaveIt(t *testing.T) {
	dirty := map[string]bool{}
	env := &tables.Env{Tables: testTables(), Dirty: func(u string) { dirty[u] = true }}
	s := New(env)
	put := func(key string, svc *corev1.Service) {
		ev := edge.ObjectEvent{Kind: edge.KindService, Key: key, Object: svc}
		if svc == nil {
			ev.Object = nil
		}
		old := env.Apply(ev)
		s.Handle(ev, old)
	}
	svc := func(name string, i int, external ...string) *corev1.Service {
		ip := fmt.Sprintf("10.96.%d.%d", 1+i/250, 1+i%250)
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, ExternalIPs: external, Ports: []corev1.ServicePort{{Port: 80}}},
		}
	}
	event := func(ip string) datapath.AddressEvent {
		return datapath.AddressEvent{Addr: netip.MustParseAddr(ip), Link: "eth0", Present: true}
	}
	put("default/one", svc("one", 0, "192.0.2.100"))
	put("default/two", svc("two", 1, "192.0.2.100", "192.0.2.101", "192.0.2.100"))
	cost := func() float64 { return testing.AllocsPerRun(20, func() { s.Handle(event("192.0.2.100"), nil) }) }
	few := cost()
	for i := range 2000 {
		put(fmt.Sprintf("default/s%d", i), svc(fmt.Sprintf("s%d", i), 2+i, fmt.Sprintf("198.51.%d.%d", i/250, 1+i%250)))
	}
	if many := cost(); many > few+1 {
		t.Errorf("with 2000 other Services an event costs %.0f allocations, %.0f without", many, few)
	}
	marked := func(ip string) int {
		clear(dirty)
		s.Handle(event(ip), nil)
		return len(dirty)
	}
	for ip, n := range map[string]int{"192.0.2.100": 2, "192.0.2.101": 1, "198.51.3.7": 1, "192.0.2.99": 0, "10.96.1.1": 0} {
		if got := marked(ip); got != n {
			t.Errorf("%s: %d units are marked, want %d: %v", ip, got, n, dirty)
		}
	}
	put("default/two", svc("two", 1, "192.0.2.101"))
	put("default/one", nil)
	for ip, n := range map[string]int{"192.0.2.100": 0, "192.0.2.101": 1} {
		if got := marked(ip); got != n {
			t.Errorf("after changes, %s: %d units are marked, want %d: %v", ip, got, n, dirty)
		}
	}
}
