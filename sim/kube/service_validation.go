package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// validateService checks a Service that was defaulted; old is nil for a new one.
func (c *Cluster) validateService(old, s *corev1.Service, p *problems) {
	oneOf(p, "spec.type", s.Spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	c.validateClusterIPs(old, s, p)
	c.validatePorts(old, s, p)
	validateSelector(p, "spec.selector", s.Spec.Selector)
	oneOf(p, "spec.sessionAffinity", s.Spec.SessionAffinity, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	if a := s.Spec.SessionAffinityConfig; a != nil && a.ClientIP != nil && a.ClientIP.TimeoutSeconds != nil {
		if n := *a.ClientIP.TimeoutSeconds; n < 1 || n > 86400 {
			p.bad("spec.sessionAffinityConfig.clientIP.timeoutSeconds", n, "1 to 86400")
		}
	}
	c.validatePolicies(old, s, p)
	for i, ip := range s.Spec.ExternalIPs {
		parseOrdinaryIP(p, fmt.Sprintf("spec.externalIPs[%d]", i), ip)
	}
	if len(s.Spec.LoadBalancerSourceRanges) > 0 && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		p.textf("spec.loadBalancerSourceRanges", "may only be set if spec.type is LoadBalancer, found %s", s.Spec.Type)
	}
	for i, r := range s.Spec.LoadBalancerSourceRanges {
		// The API server allows blanks around a range, for old annotations' sake.
		if _, err := netip.ParsePrefix(strings.TrimSpace(r)); err != nil {
			p.bad(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), r, "a network as 10.0.0.0/24")
		}
	}
	if s.Spec.LoadBalancerIP != "" {
		parseIP(p, "spec.loadBalancerIP", s.Spec.LoadBalancerIP)
	}
	if d := s.Spec.TrafficDistribution; d != nil {
		oneOf(p, "spec.trafficDistribution", *d,
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName && s.Spec.ExternalName == "" {
		p.textf("spec.externalName", "is required for type ExternalName")
	}
	validateLoadBalancerStatus(s, p)
}

func (c *Cluster) validatePolicies(old, s *corev1.Service, p *problems) {
	if i := s.Spec.InternalTrafficPolicy; i != nil {
		oneOf(p, "spec.internalTrafficPolicy", *i, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	if externallyAccessible(s) {
		oneOf(p, "spec.externalTrafficPolicy", s.Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	} else if s.Spec.ExternalTrafficPolicy != "" {
		p.textf("spec.externalTrafficPolicy", "may only be set for NodePort and LoadBalancer, and with externalIPs; found %s for type %s", s.Spec.ExternalTrafficPolicy, s.Spec.Type)
	}
	n := s.Spec.HealthCheckNodePort
	switch {
	case n == 0:
	case !hasHealthPort(s):
		p.textf("spec.healthCheckNodePort", "may only be set if spec.type is LoadBalancer and spec.externalTrafficPolicy Local; found %d", n)
	case old != nil && hasHealthPort(old) && old.Spec.HealthCheckNodePort != n:
		p.textf("spec.healthCheckNodePort", "cannot be changed: it is %d, found %d", old.Spec.HealthCheckNodePort, n)
	default:
		c.validateNodePort(old, "spec.healthCheckNodePort", n, p)
	}
}

// validateNodePort checks the range, and that no other Service has the port.
func (c *Cluster) validateNodePort(old *corev1.Service, field string, n int32, p *problems) {
	if !c.nodePorts.contains(n) {
		p.bad(field, n, "%d to %d", c.nodePorts.from, c.nodePorts.to)
		return
	}
	if _, own := allocated(old); c.nodePorts.used[n] && !own[n] {
		p.textf(field, "found %d, which another Service has", n)
	}
}

func (c *Cluster) validateClusterIPs(old, s *corev1.Service, p *problems) {
	if !hasClusterIP(s) {
		if s.Spec.ClusterIP != "" {
			p.textf("spec.clusterIP", "may not be set for type ExternalName; found %q", s.Spec.ClusterIP)
		}
		return
	}
	if f := s.Spec.IPFamilyPolicy; f != nil {
		oneOf(p, "spec.ipFamilyPolicy", *f, corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)
	}
	headless := s.Spec.ClusterIP == corev1.ClusterIPNone
	if headless && (s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer) {
		p.textf("spec.clusterIP", "may not be None for type %s", s.Spec.Type)
	}
	cluster := c.clusterFamilies()
	for i, f := range s.Spec.IPFamilies {
		field := fmt.Sprintf("spec.ipFamilies[%d]", i)
		oneOf(p, field, f, corev1.IPv4Protocol, corev1.IPv6Protocol)
		if slices.Index(s.Spec.IPFamilies, f) != i {
			p.textf(field, "found %s twice", f)
		}
		if !slices.Contains(cluster, f) && (!headless || len(s.Spec.Selector) > 0) {
			p.bad(field, string(f), "%v, the families of the cluster", cluster)
		}
	}
	if len(s.Spec.IPFamilies) > 2 {
		p.textf("spec.ipFamilies", "found %d, allowed: at most 2", len(s.Spec.IPFamilies))
	}
	if len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIPs[0] != s.Spec.ClusterIP {
		p.textf("spec.clusterIPs[0]", "found %q, allowed: the same as spec.clusterIP, %q", s.Spec.ClusterIPs[0], s.Spec.ClusterIP)
	}
	if len(s.Spec.ClusterIPs) > 2 || headless && len(s.Spec.ClusterIPs) > 1 {
		p.textf("spec.clusterIPs", "found %d, allowed: at most one of each family, or None alone", len(s.Spec.ClusterIPs))
		return
	}
	hadIPs, _ := allocated(old)
	for i, ip := range s.Spec.ClusterIPs {
		field := fmt.Sprintf("spec.clusterIPs[%d]", i)
		if i == 0 {
			field = "spec.clusterIP"
		}
		if headless {
			break
		}
		a, ok := parseIP(p, field, ip)
		if !ok {
			continue
		}
		pool := c.clusterIPs[a.Is6()]
		switch {
		case i < len(s.Spec.IPFamilies) && familyOf(ip) != s.Spec.IPFamilies[i]:
			p.textf(field, "found %s, which is not of family %s in spec.ipFamilies[%d]", ip, s.Spec.IPFamilies[i], i)
		case pool == nil:
			p.textf(field, "found %s, but the cluster has no %s", ip, familyOf(ip))
		case !pool.contains(a):
			p.bad(field, ip, "an address of the Service network %s", pool.network)
		case pool.used[a] && !hadIPs[a]:
			p.textf(field, "found %s, which another Service has", ip)
		}
	}
	if old == nil || !hasClusterIP(old) {
		return
	}
	if old.Spec.ClusterIP != "" && s.Spec.ClusterIP != old.Spec.ClusterIP {
		p.textf("spec.clusterIP", "cannot be changed: it is %q, found %q", old.Spec.ClusterIP, s.Spec.ClusterIP)
		return
	}
	if len(old.Spec.IPFamilies) > 0 && len(s.Spec.IPFamilies) > 0 && old.Spec.IPFamilies[0] != s.Spec.IPFamilies[0] {
		p.textf("spec.ipFamilies[0]", "cannot be changed: it is %s, found %s", old.Spec.IPFamilies[0], s.Spec.IPFamilies[0])
	}
	if len(old.Spec.ClusterIPs) == 2 && len(s.Spec.ClusterIPs) == 2 && old.Spec.ClusterIPs[1] != s.Spec.ClusterIPs[1] {
		p.textf("spec.clusterIPs[1]", "cannot be changed: it is %q, found %q", old.Spec.ClusterIPs[1], s.Spec.ClusterIPs[1])
	}
}

func (c *Cluster) validatePorts(old, s *corev1.Service, p *problems) {
	headless := s.Spec.ClusterIP == corev1.ClusterIPNone
	if len(s.Spec.Ports) == 0 && !headless && s.Spec.Type != corev1.ServiceTypeExternalName {
		p.textf("spec.ports", "is required: found no port")
	}
	type portProto struct {
		port  int32
		proto corev1.Protocol
	}
	names, ports, nodePorts := map[string]bool{}, map[portProto]bool{}, map[portProto]bool{}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		at := func(f string) string { return fmt.Sprintf("spec.ports[%d].%s", i, f) }
		switch {
		case port.Name == "" && len(s.Spec.Ports) > 1:
			p.textf(at("name"), "is required if there are several ports")
		case port.Name != "" && len(validation.IsDNS1123Label(port.Name)) > 0:
			p.bad(at("name"), port.Name, "lower case letters, digits and -")
		case names[port.Name]:
			p.textf(at("name"), "found %q twice", port.Name)
		}
		names[port.Name] = true
		if port.Port < 1 || port.Port > 65535 {
			p.bad(at("port"), port.Port, "1 to 65535")
		}
		oneOf(p, at("protocol"), port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		if pp := (portProto{port.Port, port.Protocol}); ports[pp] {
			p.textf(at("port"), "found %d/%s twice", port.Port, port.Protocol)
		} else {
			ports[pp] = true
		}
		switch t := port.TargetPort; {
		case t.Type == intstr.Int && (t.IntVal < 1 || t.IntVal > 65535):
			p.bad(at("targetPort"), t.IntVal, "1 to 65535, or the name of a container's port")
		case t.Type == intstr.String && len(validation.IsValidPortName(t.StrVal)) > 0:
			p.bad(at("targetPort"), t.StrVal, "a port's name: at most 15 lower case letters, digits and -, with a letter")
		}
		if port.NodePort == 0 {
			continue
		}
		if s.Spec.Type != corev1.ServiceTypeNodePort && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
			p.textf(at("nodePort"), "may not be set for type %s; found %d", s.Spec.Type, port.NodePort)
			continue
		}
		if np := (portProto{port.NodePort, port.Protocol}); nodePorts[np] {
			p.textf(at("nodePort"), "found %d/%s twice", port.NodePort, port.Protocol)
		} else {
			nodePorts[np] = true
		}
		c.validateNodePort(old, at("nodePort"), port.NodePort, p)
	}
}

func validateLoadBalancerStatus(s *corev1.Service, p *problems) {
	for i := range s.Status.LoadBalancer.Ingress {
		in := &s.Status.LoadBalancer.Ingress[i]
		at := func(f string) string { return fmt.Sprintf("status.loadBalancer.ingress[%d].%s", i, f) }
		if in.IP != "" {
			parseIP(p, at("ip"), in.IP)
		} else if in.Hostname == "" {
			p.textf(at("ip"), "found neither ip nor hostname")
		}
		if in.IPMode != nil {
			oneOf(p, at("ipMode"), *in.IPMode, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)
			if in.IP == "" {
				p.textf(at("ipMode"), "may only be set with ip")
			}
		}
	}
	if len(s.Status.LoadBalancer.Ingress) > 0 && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		p.textf("status.loadBalancer", "may only be set if spec.type is LoadBalancer; found %s", s.Spec.Type)
	}
}

// parseIP adds a problem if the text is not an address in plain form.
func parseIP(p *problems, field, s string) (netip.Addr, bool) {
	if !isIP(s) {
		p.bad(field, s, "an IP address")
		return netip.Addr{}, false
	}
	return netip.MustParseAddr(s), true
}

// parseOrdinaryIP is parseIP for an address that is no special one. Kubernetes (ValidateNonSpecialIP) takes
// multicast addresses that are not of the link; no packet reaches them here, so they are refused, too.
func parseOrdinaryIP(p *problems, field, s string) (netip.Addr, bool) {
	a, ok := parseIP(p, field, s)
	if ok && (a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast()) {
		p.bad(field, s, "an address that is not unspecified, loopback, link-local or multicast")
		return a, false
	}
	return a, ok
}

// isIP reports whether s is an address that Kubernetes allows in its objects.
func isIP(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == "" && !a.Is4In6()
}
