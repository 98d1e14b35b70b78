package check

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"towtank/scenarios/reference"
	"towtank/sim"
	"towtank/sim/kube"
)

// A host outside the cluster may have the address of a Service's load balancer, or an external IP: it is the load
// balancer. On the nodes, that address is the Service's, so that what they send there comes to an endpoint, or back to
// the node, and answers to the host do, too. Who else dials the address meets the host, or a node, as the network
// has it. So nothing is said of connections with such a host at the other end.

// isBalancer reports whether an external host has an address that is a Service's on some node, or was as long as
// that node is not done with what it was told, or as of the last settle.
func (c *Checker) isBalancer(x *sim.External) bool { return c.balancers[x.Name()] || c.balancesNow(x) }

func (c *Checker) balancesNow(x *sim.External) bool {
	for _, n := range c.w.Nodes() {
		v := c.view(n)
		for _, v6 := range []bool{false, true} {
			if a := x.Addr(v6); a.IsValid() && v.Serves(a) {
				return true
			}
		}
	}
	return false
}

// noteBalancers notes which external hosts are load balancers by what the API says.
func (c *Checker) noteBalancers() {
	clear(c.balancers)
	if len(c.w.Externals()) == 0 {
		return
	}
	note := func(text string) {
		if ip, err := netip.ParseAddr(text); err == nil {
			if x := c.externalAt(ip); x != nil {
				c.balancers[x.Name()] = true
			}
		}
	}
	for _, o := range c.w.Kube.List(kube.KindService) {
		svc := o.(*corev1.Service)
		for _, ip := range svc.Spec.ExternalIPs {
			note(ip)
		}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if in.IPMode == nil || *in.IPMode != corev1.LoadBalancerIPModeProxy {
				note(in.IP)
			}
		}
	}
}

// meetsBalancer reports whether a connection has a load balancer at the other end: it dials, it is dialled from outside,
// or it may be the endpoint.
func (c *Checker) meetsBalancer(d *dial, a *reference.Answer) bool {
	is := func(at netip.Addr) bool {
		x := c.externalAt(at)
		return x != nil && c.isBalancer(x)
	}
	return d.src.Ext != nil && (c.isBalancer(d.src.Ext) || is(d.at.Addr())) ||
		slices.ContainsFunc(a.Backends, func(b netip.AddrPort) bool { return is(b.Addr()) })
}
