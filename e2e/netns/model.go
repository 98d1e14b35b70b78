//go:build linux

package netns

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/scenarios/lang"
	"towtank/scenarios/reference"
	"towtank/sim/kube"
)

// referenceOptions are the options as the reference model reads them.
func referenceOptions(o lang.Options) *reference.Options {
	r := &reference.Options{
		ProxyAll: o.ProxyAll, ProxyLoadBalancerIPs: o.ProxyLoadBalancerIPs, SkipServices: o.SkipServices, NodePortAddresses: o.NodePortAddresses,
		MaxEgressIPsPerNode: max(o.MaxEgressIPsPerNode, 0), Tunnelled: o.Traffic == "encap", DSR: o.LoadBalancerMode == "dsr",
	}
	for _, p := range o.ServiceCIDRs {
		if p.Addr().Is6() && o.IPv6() || p.Addr().Is4() && o.IPv4() {
			r.ServiceCIDRs = append(r.ServiceCIDRs, p)
		}
	}
	return r
}

// viewOf returns what a node knows that was told everything in the API, Services left out. It is for who has the API
// alone; alive are the members, nil for all nodes.
func viewOf(k *kube.Cluster, node string, o lang.Options, alive []string) *reference.View {
	v := &reference.View{
		Node: node, Options: referenceOptions(o), Services: map[string]*corev1.Service{}, Slices: map[string]map[string]*discoveryv1.EndpointSlice{},
		Nodes: map[string]*corev1.Node{}, Pods: map[string]*corev1.Pod{}, Namespaces: map[string]*corev1.Namespace{}, Egresses: map[string]*v1beta1.Egress{},
		Pools: map[string]*v1beta1.ExternalIPPool{}, Alive: alive,
	}
	for _, x := range k.List(kube.KindNode) {
		n := x.(*corev1.Node)
		v.Nodes[n.Name] = n
		if alive == nil {
			v.Alive = append(v.Alive, n.Name)
		}
	}
	for _, x := range k.List(kube.KindPod) {
		if p := x.(*corev1.Pod); p.Spec.NodeName == node {
			v.Pods[p.Namespace+"/"+p.Name] = p
		}
	}
	for _, x := range k.List(kube.KindNamespace) {
		n := x.(*corev1.Namespace)
		v.Namespaces[n.Name] = n
	}
	for _, x := range k.List(kube.KindEgress) {
		e := x.(*v1beta1.Egress)
		v.Egresses[e.Name] = e
	}
	for _, x := range k.List(kube.KindExternalIPPool) {
		p := x.(*v1beta1.ExternalIPPool)
		v.Pools[p.Name] = p
	}
	if o.Membership == "egressgroup" {
		v.Groups = map[string]*v1beta1.EgressGroup{}
		for _, x := range k.List(kube.KindEgressGroup) {
			g := x.(*v1beta1.EgressGroup)
			v.Groups[g.Name] = g
		}
	}
	return v
}

// withServices adds what a node was told of Services.
func withServices(k *kube.Cluster, v *reference.View) *reference.View {
	for _, x := range k.List(kube.KindService) {
		s := x.(*corev1.Service)
		v.Services[s.Namespace+"/"+s.Name] = s
	}
	for _, x := range k.List(kube.KindEndpointSlice) {
		s := x.(*discoveryv1.EndpointSlice)
		of := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]
		if v.Slices[of] == nil {
			v.Slices[of] = map[string]*discoveryv1.EndpointSlice{}
		}
		v.Slices[of][s.Namespace+"/"+s.Name] = s
	}
	return v
}

// podFamily is one family of one Pod.
type podFamily struct {
	pod string
	v6  bool
}

// leavers knows with which addresses new connections of Pods may leave: by any state of the API since all nodes were
// done last. What an agent was told, and when it was done with it, is not seen from outside at every moment.
type leavers struct {
	opts  lang.Options
	state string // of the API and the members when leaving was asked last; it is of who has the API alone
	mu    sync.Mutex
	may   map[podFamily]map[netip.Addr]bool
}

// relevant are the kinds of objects that decide it.
var relevant = []kube.Kind{kube.KindEgress, kube.KindExternalIPPool, kube.KindEgressGroup, kube.KindNode, kube.KindPod, kube.KindNamespace}

func newLeavers(c *cluster) *leavers {
	l := &leavers{opts: c.opts, may: map[podFamily]map[netip.Addr]bool{}}
	c.api.Do(func(k *kube.Cluster) {
		k.AddObserver(func(e kube.Event) {
			if slices.Contains(relevant, e.Kind) {
				l.add(k, nil, false)
			}
		})
	})
	return l
}

// add notes what may be now: alive are the members, nil for all nodes. anew forgets what was before.
func (l *leavers) add(k *kube.Cluster, alive []string, anew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if anew {
		clear(l.may)
	}
	for _, x := range k.List(kube.KindNode) {
		name := x.(*corev1.Node).Name
		v := viewOf(k, name, l.opts, alive)
		for pod := range v.Pods {
			for _, v6 := range []bool{false, true} {
				l.note(v, podFamily{pod, v6})
			}
		}
	}
}

func (l *leavers) note(v *reference.View, f podFamily) {
	set := l.may[f]
	if set == nil {
		set = map[netip.Addr]bool{}
		l.may[f] = set
	}
	a := v.Leaves(f.pod, f.v6)
	for _, ip := range a.IPs {
		set[ip] = true
	}
	if a.Plain {
		if n := v.Nodes[v.Node]; n != nil {
			for _, at := range n.Status.Addresses {
				if ip, err := netip.ParseAddr(at.Address); err == nil && at.Type == corev1.NodeInternalIP && ip.Is6() == f.v6 {
					set[ip] = true
				}
			}
		}
	}
}

// allows reports whether a connection may leave with an address, and what it may leave with. A Pod that is not
// known may with any.
func (l *leavers) allows(f podFamily, src netip.Addr) (bool, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	set := l.may[f]
	if set == nil || set[src] {
		return true, ""
	}
	var list []string
	for a := range set {
		list = append(list, a.String())
	}
	slices.Sort(list)
	return false, fmt.Sprint(list)
}

// alive are the nodes whose agents run.
func (c *cluster) alive() []string {
	out := []string{}
	for _, m := range c.machines {
		if m.agentRuns() {
			out = append(out, m.name)
		}
	}
	return out
}

// leaving brings leavers up to now; anew: all nodes are done with everything.
func (c *cluster) leaving(anew bool) {
	alive := c.alive()
	c.api.Do(func(k *kube.Cluster) {
		state := fmt.Sprint(k.Version(), alive)
		if !anew && state == c.leavers.state {
			return // as it was
		}
		c.leavers.state = state
		c.leavers.add(k, alive, anew)
		c.leavers.add(k, nil, false)
	})
}
