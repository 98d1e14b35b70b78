package reference

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	podClient  = Client{netip.MustParseAddr("10.10.1.2"), LocalPod}
	nodeClient = Client{netip.MustParseAddr("172.18.0.11"), ThisNode}
	outside    = Client{netip.MustParseAddr("172.18.0.101"), Outside}
)

const (
	b = "10.10.1.3" // on n1
	c = "10.10.2.3" // on n2
	d = "10.10.3.3" // on n3
)

// Each case dials and says what may come of it: "ok b c", "drop", "reject", or "?" if nothing is said.
func TestDial(t *testing.T) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	proxyMode := corev1.LoadBalancerIPModeProxy
	everywhere := []ep{{ip: b, node: "n1", state: "ready"}, {ip: c, node: "n2", state: "ready"}}
	elsewhere := []ep{{ip: c, node: "n2", state: "ready"}}
	externalLocal := func(s *corev1.Service) {
		balanced(s)
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	internalLocal := func(s *corev1.Service) { balanced(s); s.Spec.InternalTrafficPolicy = &local }
	cases := []struct {
		name string
		svc  func(*corev1.Service)
		eps  []ep
		set  func(*world)
		who  Client
		to   string
		udp  bool
		want string
	}{
		{name: "S-001 any endpoint", eps: everywhere, who: podClient, to: "10.96.0.2:80", want: "ok b c"},
		{name: "S-001 from the node", eps: everywhere, who: nodeClient, to: "10.96.0.2:80", want: "ok b c"},
		{name: "S-004 unserved port", eps: everywhere, who: podClient, to: "10.96.0.2:81", want: "reject"},
		{name: "S-004 unserved protocol", eps: everywhere, who: podClient, to: "10.96.0.2:80", udp: true, want: "reject"},
		{name: "S-004 unallocated", eps: everywhere, who: podClient, to: "10.96.0.77:80", want: "drop"},
		{name: "nobody's address", eps: everywhere, who: podClient, to: "172.18.0.101:80", want: "?"},
		{name: "S-007 no endpoint", who: podClient, to: "10.96.0.2:80", want: "reject"},
		{name: "S-013 headless", svc: func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} }, eps: everywhere, who: podClient, to: "10.96.0.2:80", want: "drop"},
		{name: "S-014 another proxy's", svc: func(s *corev1.Service) { s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "x"} }, eps: everywhere, who: podClient, to: "10.96.0.2:80", want: "?"},
		{name: "S-015 skipped", eps: everywhere, set: func(w *world) { w.Options.SkipServices = []string{"default/web"} }, who: podClient, to: "10.96.0.2:80", want: "?"},
		{name: "S-018 one address twice, the ready entry counts", eps: []ep{{ip: b, node: "n1", state: "gone"}, {ip: b, node: "n1", state: "ready"}}, who: podClient, to: "10.96.0.2:80", want: "ok b"},
		{name: "S-020 node port, policy Cluster", svc: balanced, eps: everywhere, who: outside, to: "172.18.0.11:30000", want: "ok b c"},
		{name: "S-022 node port, policy Local", svc: externalLocal, eps: everywhere, who: outside, to: "172.18.0.11:30000", want: "ok b"},
		{name: "S-025 policy Local, endpoints elsewhere", svc: externalLocal, eps: elsewhere, who: outside, to: "192.0.2.1:80", want: "drop"},
		{name: "policy Local, none at all", svc: externalLocal, who: outside, to: "192.0.2.1:80", want: "reject"},
		{name: "policy Local, a Pod uses all", svc: externalLocal, eps: elsewhere, who: podClient, to: "192.0.2.1:80", want: "ok c"},
		{name: "policy Local, the node uses all", svc: externalLocal, eps: elsewhere, who: nodeClient, to: "172.18.0.11:30000", want: "ok c"},
		{name: "S-026 internal Local", svc: internalLocal, eps: everywhere, who: podClient, to: "10.96.0.2:80", want: "ok b"},
		{name: "S-026 internal Local does not matter outside", svc: internalLocal, eps: everywhere, who: outside, to: "192.0.2.1:80", want: "ok b c"},
		{name: "S-027 internal Local, endpoints elsewhere", svc: internalLocal, eps: elsewhere, who: podClient, to: "10.96.0.2:80", want: "drop"},
		{name: "S-027 internal Local, none at all", svc: internalLocal, who: podClient, to: "10.96.0.2:80", want: "reject"},
		{name: "S-031 external IP", svc: func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"198.51.100.1"} }, eps: everywhere, who: outside, to: "198.51.100.1:80", want: "ok b c"},
		{name: "S-032 node port on an address that is left out", svc: balanced, eps: everywhere, set: func(w *world) {
			w.Options.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
		}, who: outside, to: "172.18.0.11:30000", want: "?"},
		{name: "S-032 an unserved port of the node is the node's", svc: balanced, eps: everywhere, who: outside, to: "172.18.0.11:30001", want: "?"},
		{name: "S-036 ipMode Proxy", svc: func(s *corev1.Service) { balanced(s); s.Status.LoadBalancer.Ingress[0].IPMode = &proxyMode }, eps: everywhere, who: podClient, to: "192.0.2.1:80", want: "?"},
		{name: "S-037 no load-balancer addresses", svc: balanced, eps: everywhere, set: func(w *world) { w.Options.ProxyLoadBalancerIPs = false }, who: podClient, to: "192.0.2.1:80", want: "?"},
		{name: "no proxyAll: node port", svc: balanced, eps: everywhere, set: func(w *world) { w.Options.ProxyAll = false }, who: outside, to: "172.18.0.11:30000", want: "?"},
		{name: "no proxyAll: a Pod reaches the load balancer", svc: balanced, eps: everywhere, set: func(w *world) { w.Options.ProxyAll = false }, who: podClient, to: "192.0.2.1:80", want: "ok b c"},
		{name: "unserved port of a load balancer", svc: balanced, eps: everywhere, who: outside, to: "192.0.2.1:81", want: "reject"},
		{name: "source ranges: inside", svc: func(s *corev1.Service) { balanced(s); s.Spec.LoadBalancerSourceRanges = []string{"172.18.0.0/16"} }, eps: everywhere, who: outside, to: "192.0.2.1:80", want: "ok b c"},
		{name: "source ranges: outside", svc: func(s *corev1.Service) { balanced(s); s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"} }, eps: everywhere, who: outside, to: "192.0.2.1:80", want: "drop"},
		{name: "source ranges: the node is inside", svc: func(s *corev1.Service) { balanced(s); s.Spec.LoadBalancerSourceRanges = []string{"172.18.0.0/16"} }, eps: everywhere, who: nodeClient, to: "192.0.2.1:80", want: "ok b c"},
		{name: "source ranges are of the load balancer only", svc: func(s *corev1.Service) { balanced(s); s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"} }, eps: everywhere, who: outside, to: "172.18.0.11:30000", want: "ok b c"},
		{name: "S-048 ready ones only", eps: []ep{{ip: b, node: "n1", state: "unready"}, {ip: c, node: "n2", state: "ready"}}, who: podClient, to: "10.96.0.2:80", want: "ok c"},
		{name: "S-048 none is ready", eps: []ep{{ip: b, node: "n1", state: "unready"}}, who: podClient, to: "10.96.0.2:80", want: "reject"},
		{name: "S-049 draining ones as a last resort", eps: []ep{{ip: b, node: "n1", state: "draining"}, {ip: c, node: "n2", state: "gone"}}, who: podClient, to: "10.96.0.2:80", want: "ok b"},
		{name: "S-049 not beside ready ones", eps: []ep{{ip: b, node: "n1", state: "draining"}, {ip: c, node: "n2", state: "ready"}}, who: podClient, to: "10.96.0.2:80", want: "ok c"},
		{name: "Local falls back to draining here", svc: externalLocal, eps: []ep{{ip: b, node: "n1", state: "draining"}, {ip: c, node: "n2", state: "ready"}}, who: outside, to: "192.0.2.1:80", want: "ok b"},
		{name: "S-052 the only one of the zone is not ready", eps: []ep{{ip: b, node: "n1", state: "unready", zones: []string{"a"}}, {ip: c, node: "n2", state: "ready", zones: []string{"z"}}}, set: zone("a"), who: podClient, to: "10.96.0.2:80", want: "ok c"},
		{name: "S-054 hints", eps: []ep{{ip: b, node: "n1", state: "ready", zones: []string{"a"}}, {ip: c, node: "n2", state: "ready", zones: []string{"z"}}}, set: zone("a"), who: podClient, to: "10.96.0.2:80", want: "ok b"},
		{name: "S-054 a hint for the node goes first", eps: []ep{{ip: b, node: "n1", state: "ready", zones: []string{"a"}, nodes: []string{"n2"}}, {ip: c, node: "n2", state: "ready", zones: []string{"a"}, nodes: []string{"n1"}}}, set: zone("a"), who: podClient, to: "10.96.0.2:80", want: "ok c"},
		{name: "S-055 one has no hint", eps: []ep{{ip: b, node: "n1", state: "ready", zones: []string{"a"}}, {ip: c, node: "n2", state: "ready"}}, set: zone("a"), who: podClient, to: "10.96.0.2:80", want: "ok b c"},
		{name: "S-055 the node has no zone", eps: []ep{{ip: b, node: "n1", state: "ready", zones: []string{"a"}}, {ip: c, node: "n2", state: "ready", zones: []string{"z"}}}, who: podClient, to: "10.96.0.2:80", want: "ok b c"},
		{name: "S-056 an unready one without a hint does not count", eps: []ep{{ip: b, node: "n1", state: "ready", zones: []string{"a"}}, {ip: c, node: "n2", state: "ready", zones: []string{"a", "z"}}, {ip: d, node: "n3", state: "unready"}}, set: zone("a"), who: podClient, to: "10.96.0.2:80", want: "ok b c"},
		{name: "S-057 hints don't restrict Local", svc: externalLocal, eps: []ep{{ip: b, node: "n1", state: "ready", zones: []string{"z"}}, {ip: c, node: "n2", state: "ready", zones: []string{"a"}}}, set: zone("a"), who: outside, to: "192.0.2.1:80", want: "ok b"},
		{name: "S-060 affinity only narrows", svc: func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }, eps: everywhere, who: podClient, to: "10.96.0.2:80", want: "ok b c"},
	}
	names := map[string]string{b: "b", c: "c", d: "d"}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.service("web", tc.svc)
			w.endpoints("web", tc.eps...)
			if tc.set != nil {
				tc.set(w)
			}
			proto := uint8(protoTCP)
			if tc.udp {
				proto = protoUDP
			}
			got := answerText(w.Dial(tc.who, netip.MustParseAddrPort(tc.to), proto), names)
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.to, got, tc.want)
			}
		})
	}
}

func zone(z string) func(*world) {
	return func(w *world) { w.Nodes["n1"].Labels[corev1.LabelTopologyZone] = z }
}

func answerText(a Answer, names map[string]string) string {
	if !a.Known {
		return "?"
	}
	var words []string
	for _, v := range a.Verdicts {
		words = append(words, string(v))
	}
	for _, b := range a.Backends {
		words = append(words, names[b.Addr().String()])
	}
	return strings.Join(words, " ")
}

// Two Services with one load-balancer address: ports of one are not unserved because of the other; for
// one port the older Service counts.
func TestSharedAddress(t *testing.T) {
	w := newWorld()
	w.service("old", func(s *corev1.Service) { balanced(s) })
	w.service("new", func(s *corev1.Service) {
		balanced(s)
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.3", []string{"10.96.0.3"}
		s.CreationTimestamp = metav1.NewTime(time.Unix(2000, 0))
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "x", Port: 81})
	})
	w.endpoints("old", ep{ip: b, node: "n1", state: "ready"})
	w.endpoints("new", ep{ip: c, node: "n2", state: "ready"})
	names := map[string]string{b: "b", c: "c"}
	for to, want := range map[string]string{
		"192.0.2.1:80": "ok b", "10.96.0.3:80": "ok c", "192.0.2.1:81": "reject", "192.0.2.1:82": "reject", // 81: the port's name is another one
	} {
		if got := answerText(w.Dial(outside, netip.MustParseAddrPort(to), protoTCP), names); got != want {
			t.Errorf("%s: got %q, want %q", to, got, want)
		}
	}
	w.Services["default/new"].CreationTimestamp = w.Services["default/old"].CreationTimestamp
	a := w.Dial(outside, netip.MustParseAddrPort("192.0.2.1:80"), protoTCP)
	if got := answerText(a, names); got != "ok b c" {
		t.Errorf("two of one age: got %q, want either", got)
	}
}

func TestSourceAt(t *testing.T) {
	w := newWorld()
	at := func(ip string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(ip), 8080) }
	for _, tc := range []struct {
		name  string
		who   Client
		at    string
		local bool
		yes   []string
		no    []string
	}{
		{name: "a Pod keeps its address", who: podClient, at: c, yes: []string{"10.10.1.2"}, no: []string{"10.10.1.1", "172.18.0.11"}},
		{name: "a Pod that reaches itself", who: podClient, at: "10.10.1.2", yes: []string{"10.10.1.1"}, no: []string{"10.10.1.2"}},
		{name: "S-047 the node", who: nodeClient, at: c, yes: []string{"10.10.1.1", "172.18.0.11"}, no: []string{"169.254.0.253", "10.10.1.2"}},
		{name: "S-020 from outside to here", who: outside, at: b, yes: []string{"172.18.0.101"}, no: []string{"10.10.1.1"}},
		{name: "S-020 from outside to elsewhere", who: outside, at: c, yes: []string{"10.10.1.1", "172.18.0.101"}, no: []string{"10.10.1.2"}},
		{name: "Local keeps the client", who: outside, at: b, local: true, yes: []string{"172.18.0.101"}, no: []string{"10.10.1.1", "172.18.0.11"}},
		{name: "an endpoint outside the cluster", who: podClient, at: "203.0.113.9", yes: []string{"172.18.0.11"}, no: []string{"10.10.1.2"}},
	} {
		for i, list := range [][]string{tc.yes, tc.no} {
			for _, seen := range list {
				if got := w.SourceAt(tc.who, at(tc.at), netip.MustParseAddr(seen), tc.local); got != (i == 0) {
					t.Errorf("%s: source %s at %s: allowed %v", tc.name, seen, tc.at, got)
				}
			}
		}
	}
}

func TestAnswersAreSorted(t *testing.T) {
	w := newWorld()
	w.service("web", nil)
	w.endpoints("web", ep{ip: d, node: "n3", state: "ready"}, ep{ip: b, node: "n1", state: "ready"}, ep{ip: c, node: "n2", state: "ready"})
	a := w.Dial(podClient, netip.MustParseAddrPort("10.96.0.2:80"), protoTCP)
	if !slices.IsSortedFunc(a.Backends, netip.AddrPort.Compare) || len(a.Backends) != 3 {
		t.Errorf("backends %v", a.Backends)
	}
}
