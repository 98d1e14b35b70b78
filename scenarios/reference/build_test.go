package reference

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"towtank/agent/apis/crd/v1beta1"
)

// world is the View of node n1 of three, with what a test puts into it.
type world struct{ View }

func newWorld() *world {
	w := &world{View{
		Node: "n1",
		Options: &Options{
			ProxyAll: true, ProxyLoadBalancerIPs: true, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
			MaxEgressIPsPerNode: 255, Tunnelled: true,
		},
		Services: map[string]*corev1.Service{}, Slices: map[string]map[string]*discoveryv1.EndpointSlice{},
		Nodes: map[string]*corev1.Node{}, Pods: map[string]*corev1.Pod{}, Namespaces: map[string]*corev1.Namespace{},
		Egresses: map[string]*v1beta1.Egress{}, Pools: map[string]*v1beta1.ExternalIPPool{},
	}}
	for i, name := range []string{"n1", "n2", "n3"} {
		w.Nodes[name] = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 10, byte(i + 1), 0}), 24).String()}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: netip.AddrFrom4([4]byte{172, 18, 0, byte(11 + i)}).String()},
			}},
		}
		w.Alive = append(w.Alive, name)
	}
	w.Namespaces["default"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	return w
}

// service adds a Service with one TCP port 80 at 10.96.0.2; f changes it.
func (w *world) service(name string, f func(*corev1.Service)) {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1000, 0))},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.2", ClusterIPs: []string{"10.96.0.2"},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	if f != nil {
		f(s)
	}
	w.Services["default/"+name] = s
}

// balanced makes a Service one of a load balancer at 192.0.2.1 with node port 30000.
func balanced(s *corev1.Service) {
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.Ports[0].NodePort = 30000
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
}

// ep is one endpoint at port 8080.
type ep struct {
	ip, node string
	// state is ready, unready, draining (terminating and serving) or gone (terminating, not serving).
	state        string
	zones, nodes []string
}

func (w *world) endpoints(service string, eps ...ep) {
	port, proto := int32(8080), corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &proto}},
	}
	for _, e := range eps {
		is := func(states ...string) *bool {
			v := false
			for _, st := range states {
				v = v || st == e.state
			}
			return &v
		}
		d := discoveryv1.Endpoint{
			Addresses: []string{e.ip}, NodeName: &e.node,
			Conditions: discoveryv1.EndpointConditions{Ready: is("ready"), Serving: is("ready", "draining"), Terminating: is("draining", "gone")},
		}
		if len(e.zones)+len(e.nodes) > 0 {
			d.Hints = &discoveryv1.EndpointHints{}
			for _, z := range e.zones {
				d.Hints.ForZones = append(d.Hints.ForZones, discoveryv1.ForZone{Name: z})
			}
			for _, n := range e.nodes {
				d.Hints.ForNodes = append(d.Hints.ForNodes, discoveryv1.ForNode{Name: n})
			}
		}
		s.Endpoints = append(s.Endpoints, d)
	}
	w.Slices["default/"+service] = map[string]*discoveryv1.EndpointSlice{"default/" + service + "-1": s}
}

func (w *world) pod(name string, labels map[string]string, f func(*corev1.Pod)) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}}
	if f != nil {
		f(p)
	}
	w.Pods["default/"+name] = p
}

// egress adds an Egress for Pods app=web, created at second age.
func (w *world) egress(name, ip, pool string, age int64, f func(*v1beta1.Egress)) {
	e := &v1beta1.Egress{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(age, 0))},
		Spec: v1beta1.EgressSpec{
			AppliedTo: v1beta1.AppliedTo{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			EgressIP:  ip, ExternalIPPool: pool,
		},
	}
	if f != nil {
		f(e)
	}
	w.Egresses[name] = e
}

// pool adds a pool on the nodes with a label of the pool's name.
func (w *world) pool(name string, nodes ...string) {
	w.Pools[name] = &v1beta1.ExternalIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1beta1.ExternalIPPoolSpec{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{name: "yes"}}},
	}
	for _, n := range nodes {
		w.Nodes[n].Labels[name] = "yes"
	}
}
