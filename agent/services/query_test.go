package services

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"towtank/agent/config"
	"towtank/agent/edge"
	"towtank/agent/tables"
)

func testTables() *tables.Tables {
	cfg := &config.Config{
		NodeName: "n1", ProxyAll: true, ProxyLoadBalancerIPs: true, SkipServices: []string{"default/skipped"},
		PodCIDRs:    []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24"), netip.MustParsePrefix("fd00:10:1::/64")},
		TransportV4: netip.MustParsePrefix("172.18.0.11/16"),
	}
	cfg.Defaults()
	t := tables.New(cfg)
	put := func(o *corev1.Service) {
		t.Apply(edge.ObjectEvent{Kind: edge.KindService, Key: o.Namespace + "/" + o.Name, Object: o})
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	put(&corev1.Service{
		ObjectMeta: meta("web"),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.2", ClusterIPs: []string{"10.96.0.2", "fd00:96::2"}, ExternalIPs: []string{"192.0.2.20"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, NodePort: 30053}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.10"}}}},
	})
	put(&corev1.Service{ObjectMeta: meta("skipped"), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.3", Ports: []corev1.ServicePort{{Port: 80}}}})
	put(&corev1.Service{ObjectMeta: meta("headless"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}}})
	t.Apply(edge.ObjectEvent{Kind: edge.KindNode, Key: "n1", Object: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.18.0.11"}}},
	}})
	return t
}

func TestAt(t *testing.T) {
	tb := testTables()
	for _, c := range []struct {
		dst   string
		proto corev1.Protocol
		want  string // name of the port of default/web, "" for none
	}{
		{"10.96.0.2:80", corev1.ProtocolTCP, "http"},
		{"10.96.0.2:53", corev1.ProtocolUDP, "dns"},
		{"10.96.0.2:53", corev1.ProtocolTCP, ""},
		{"10.96.0.2:30080", corev1.ProtocolTCP, ""},
		{"[fd00:96::2]:80", corev1.ProtocolTCP, "http"},
		{"192.0.2.10:80", corev1.ProtocolTCP, "http"},
		{"192.0.2.20:53", corev1.ProtocolUDP, "dns"},
		{"172.18.0.11:30080", corev1.ProtocolTCP, "http"},
		{"172.18.0.11:80", corev1.ProtocolTCP, ""},
		{"172.18.0.12:30080", corev1.ProtocolTCP, ""},
		{"10.96.0.3:80", corev1.ProtocolTCP, ""},
	} {
		got, ok := At(tb, netip.MustParseAddrPort(c.dst), c.proto)
		if want := (Port{"default/web", c.want}); ok != (c.want != "") || ok && got != want {
			t.Errorf("At(%s/%s) = %v, %t, want port %q", c.dst, c.proto, got, ok, c.want)
		}
	}
	tb.Apply(edge.ObjectEvent{Kind: edge.KindService, Key: "default/web"})
	if got, ok := At(tb, netip.MustParseAddrPort("10.96.0.2:80"), corev1.ProtocolTCP); ok {
		t.Errorf("a deleted Service is still found: %v", got)
	}
}
