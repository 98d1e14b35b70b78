package kube

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// legacyEndpoints is the API that EndpointSlices replaced: deprecated, and still served and written.
//
//lint:ignore SA1019 clusters have such objects, so the simulated one takes them
type legacyEndpoints = corev1.Endpoints

// syncMirror makes EndpointSlices of the Endpoints that somebody wrote for a Service without
// selector, as kube-controller-manager's mirroring controller does.
func (c *Cluster) syncMirror(key string) {
	svc, ok := get[*corev1.Service](c, KindService, key)
	if !ok {
		ns, name := splitKey(key)
		gone := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		(&packer{c: c, svc: gone, managedBy: managedByMirror}).pack(nil)
		return
	}
	endpoints, ok := get[*legacyEndpoints](c, KindEndpoints, key)
	p := &packer{c: c, svc: svc, managedBy: managedByMirror}
	if !ok || len(svc.Spec.Selector) > 0 || endpoints.Labels[discoveryv1.LabelSkipMirror] == "true" {
		p.pack(nil)
		return
	}
	p.owner = ownerRef(KindEndpoints, endpoints, true)
	var families []corev1.IPFamily
	for i := range endpoints.Subsets {
		s := &endpoints.Subsets[i]
		ports := []discoveryv1.EndpointPort{}
		for j := range s.Ports {
			sp := &s.Ports[j]
			ports = append(ports, discoveryv1.EndpointPort{
				Name: ptr.To(sp.Name), Protocol: ptr.To(sp.Protocol), Port: ptr.To(sp.Port), AppProtocol: sp.AppProtocol,
			})
		}
		for _, list := range []struct {
			addresses []corev1.EndpointAddress
			ready     bool
		}{{s.Addresses, true}, {s.NotReadyAddresses, false}} {
			for _, a := range list.addresses {
				family := familyOf(a.IP)
				families = appendMissing(families, family)
				g := p.group(family, ports)
				e := discoveryv1.Endpoint{
					Addresses:  []string{a.IP},
					Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(list.ready)},
					NodeName:   a.NodeName, TargetRef: a.TargetRef,
				}
				if a.Hostname != "" {
					e.Hostname = ptr.To(a.Hostname)
				}
				if a.NodeName != nil {
					e.Zone = c.zoneOf(*a.NodeName)
				}
				g.endpoints = append(g.endpoints, e)
			}
		}
	}
	p.pack(families)
}

func familyOf(ip string) corev1.IPFamily {
	if a, err := netip.ParseAddr(ip); err == nil && a.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func appendMissing[T comparable](list []T, v T) []T {
	for _, o := range list {
		if o == v {
			return list
		}
	}
	return append(list, v)
}

// SliceEndpoint is one endpoint of SetEndpoints.
type SliceEndpoint struct {
	IP   netip.Addr
	Node string // empty: on no node
	// NotReady endpoints are not used.
	NotReady bool
}

// SetEndpoints gives a Service without selector these endpoints, in EndpointSlices of
// MaxEndpointsPerSlice, and takes those away that an earlier call gave. Each serves all of the Service's
// ports at their target ports, which must be numbers.
func (c *Cluster) SetEndpoints(namespace, service string, endpoints []SliceEndpoint) error {
	defer c.done()
	svc, ok := get[*corev1.Service](c, KindService, namespace+"/"+service)
	if !ok {
		return c.tables[KindService].info.notFound(service)
	}
	if len(svc.Spec.Selector) > 0 {
		return fmt.Errorf("endpoints of Service %s/%s: its selector gives it its endpoints", namespace, service)
	}
	ports := []discoveryv1.EndpointPort{}
	for i := range svc.Spec.Ports {
		sp := &svc.Spec.Ports[i]
		number, ok := targetPort(sp, &corev1.Pod{})
		if !ok {
			return fmt.Errorf("endpoints of Service %s/%s: spec.ports[%d].targetPort: found the name %q, allowed: a number", namespace, service, i, sp.TargetPort.StrVal)
		}
		ports = append(ports, discoveryv1.EndpointPort{
			Name: ptr.To(sp.Name), Protocol: ptr.To(sp.Protocol), Port: ptr.To(number), AppProtocol: sp.AppProtocol,
		})
	}
	p := &packer{c: c, svc: svc, managedBy: managedByWorld, owner: ownerRef(KindService, svc, true)}
	var families []corev1.IPFamily
	for _, e := range endpoints {
		family := familyOf(e.IP.String())
		families = appendMissing(families, family)
		g := p.group(family, ports)
		ep := discoveryv1.Endpoint{
			Addresses: []string{e.IP.String()},
			Conditions: discoveryv1.EndpointConditions{
				Ready: ptr.To(!e.NotReady), Serving: ptr.To(!e.NotReady), Terminating: ptr.To(false),
			},
		}
		if e.Node != "" {
			ep.NodeName, ep.Zone = ptr.To(e.Node), c.zoneOf(e.Node)
		}
		g.endpoints = append(g.endpoints, ep)
	}
	if len(svc.Spec.IPFamilies) > 0 && len(families) == 0 {
		families = svc.Spec.IPFamilies
	}
	p.hints()
	p.pack(families)
	return nil
}
