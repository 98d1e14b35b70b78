package kube

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// admitService does for a Service what the API server does: it keeps what was allocated, drops what
// the type does not have, fills in defaults, validates, and allocates.
func (c *Cluster) admitService(old, s *corev1.Service) []Problem {
	if old != nil {
		keepAllocated(old, s)
		dropUnneeded(old, s)
	}
	defaultService(s)
	p := &problems{}
	c.defaultFamilies(s, p)
	c.validateService(old, s, p)
	if len(p.list) == 0 {
		c.allocate(old, s, p)
	}
	return p.list
}

func hasClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Spec.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true)
}

func hasHealthPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// externallyAccessible Services have an external traffic policy.
func externallyAccessible(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer ||
		s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

// keepAllocated fills in what an update leaves out and the old Service has: addresses, node ports
// (by the ports' names), the health port.
func keepAllocated(old, s *corev1.Service) {
	if hasClusterIP(old) && s.Spec.Type != corev1.ServiceTypeExternalName {
		if s.Spec.ClusterIP == "" {
			s.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP == old.Spec.ClusterIP {
			s.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
			if s.Spec.IPFamilyPolicy == nil && len(s.Spec.IPFamilies) == 0 {
				s.Spec.IPFamilyPolicy = ptr.To(ptr.Deref(old.Spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack))
				s.Spec.IPFamilies = slices.Clone(old.Spec.IPFamilies)
			}
		}
	}
	if hasNodePorts(old) && (s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer) {
		byName := make(map[string]int32)
		for i := range old.Spec.Ports {
			byName[old.Spec.Ports[i].Name] = old.Spec.Ports[i].NodePort
		}
		for i := range s.Spec.Ports {
			if s.Spec.Ports[i].NodePort == 0 {
				s.Spec.Ports[i].NodePort = byName[s.Spec.Ports[i].Name]
			}
		}
	}
	if hasHealthPort(old) && hasHealthPort(s) && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// dropUnneeded clears what the new type does not have and the user did not change: a patch of the type
// alone works.
func dropUnneeded(old, s *corev1.Service) {
	if !hasClusterIP(s) && hasClusterIP(old) && s.Spec.ClusterIP == old.Spec.ClusterIP {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = nil, nil
	}
	if !hasNodePorts(s) && hasNodePorts(old) {
		oldPorts := make(map[int32]bool)
		for i := range old.Spec.Ports {
			oldPorts[old.Spec.Ports[i].NodePort] = true
		}
		for i := range s.Spec.Ports {
			if oldPorts[s.Spec.Ports[i].NodePort] {
				s.Spec.Ports[i].NodePort = 0
			}
		}
	}
	if !hasHealthPort(s) && hasHealthPort(old) && s.Spec.HealthCheckNodePort == old.Spec.HealthCheckNodePort {
		s.Spec.HealthCheckNodePort = 0
	}
	if !externallyAccessible(s) && s.Spec.ExternalTrafficPolicy == old.Spec.ExternalTrafficPolicy {
		s.Spec.ExternalTrafficPolicy = ""
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if ptr.Equal(s.Spec.AllocateLoadBalancerNodePorts, old.Spec.AllocateLoadBalancerNodePorts) {
			s.Spec.AllocateLoadBalancerNodePorts = nil
		}
		if ptr.Equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
			s.Spec.LoadBalancerClass = nil
		}
		if slices.Equal(s.Spec.LoadBalancerSourceRanges, old.Spec.LoadBalancerSourceRanges) {
			s.Spec.LoadBalancerSourceRanges = nil
		}
		// The cloud's controller would take the addresses away.
		if old.Spec.Type == corev1.ServiceTypeLoadBalancer {
			s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		}
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName && ptr.Equal(s.Spec.InternalTrafficPolicy, old.Spec.InternalTrafficPolicy) {
		s.Spec.InternalTrafficPolicy = nil
	}
}

func defaultService(s *corev1.Service) {
	if s.Spec.Type == "" {
		s.Spec.Type = corev1.ServiceTypeClusterIP
	}
	if s.Spec.SessionAffinity == "" {
		s.Spec.SessionAffinity = corev1.ServiceAffinityNone
	}
	switch s.Spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		s.Spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		a := s.Spec.SessionAffinityConfig
		if a == nil || a.ClientIP == nil || a.ClientIP.TimeoutSeconds == nil {
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if port.Protocol == "" {
			port.Protocol = corev1.ProtocolTCP
		}
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if externallyAccessible(s) && s.Spec.ExternalTrafficPolicy == "" {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if s.Spec.InternalTrafficPolicy == nil && s.Spec.Type != corev1.ServiceTypeExternalName {
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.AllocateLoadBalancerNodePorts == nil {
		s.Spec.AllocateLoadBalancerNodePorts = ptr.To(true)
	}
	if s.Spec.ClusterIP == "" && len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

// clusterFamilies are the families of the cluster, the first one first.
func (c *Cluster) clusterFamilies() []corev1.IPFamily {
	var f []corev1.IPFamily
	if c.cfg.IPv4 {
		f = append(f, corev1.IPv4Protocol)
	}
	if c.cfg.IPv6 {
		f = append(f, corev1.IPv6Protocol)
	}
	return f
}

// defaultFamilies fills in ipFamilies and ipFamilyPolicy: from the addresses if they are given, else
// from the cluster's.
func (c *Cluster) defaultFamilies(s *corev1.Service, p *problems) {
	if !hasClusterIP(s) {
		return
	}
	cluster := c.clusterFamilies()
	headless := s.Spec.ClusterIP == corev1.ClusterIPNone
	if headless && len(s.Spec.Selector) == 0 {
		// Whatever its endpoints are, it may have them.
		if s.Spec.IPFamilyPolicy == nil {
			s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
			if len(s.Spec.IPFamilies) == 1 {
				s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
			}
		}
		if len(s.Spec.IPFamilies) == 0 {
			s.Spec.IPFamilies = cluster[:1]
		}
		if *s.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack && len(s.Spec.IPFamilies) == 1 {
			s.Spec.IPFamilies = append(slices.Clone(s.Spec.IPFamilies), other(s.Spec.IPFamilies[0]))
		}
		return
	}
	if len(s.Spec.IPFamilies) == 0 && !headless {
		for _, ip := range s.Spec.ClusterIPs {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, familyOf(ip))
		}
	}
	if s.Spec.IPFamilyPolicy == nil {
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
		if len(s.Spec.IPFamilies) == 2 || len(s.Spec.ClusterIPs) == 2 {
			s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
		}
	}
	if len(s.Spec.IPFamilies) == 0 {
		s.Spec.IPFamilies = cluster[:1]
	}
	switch *s.Spec.IPFamilyPolicy {
	case corev1.IPFamilyPolicySingleStack:
		// A downgrade names only the policy: the second family and address go.
		if len(s.Spec.IPFamilies) == 2 {
			s.Spec.IPFamilies = s.Spec.IPFamilies[:1]
		}
		if len(s.Spec.ClusterIPs) == 2 {
			s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
		}
	case corev1.IPFamilyPolicyRequireDualStack:
		if len(cluster) < 2 {
			p.bad("spec.ipFamilyPolicy", "RequireDualStack", "SingleStack or PreferDualStack: the cluster has one family only")
			return
		}
	}
	if *s.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack && len(s.Spec.IPFamilies) == 1 && len(cluster) == 2 {
		s.Spec.IPFamilies = append(slices.Clone(s.Spec.IPFamilies), other(s.Spec.IPFamilies[0]))
	}
}

func other(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// allocate takes what the Service asks for and gives what it leaves open; what the old one had and
// the new one has not is free again. Nothing is taken if there is a problem.
func (c *Cluster) allocate(old, s *corev1.Service, p *problems) {
	had, hadPorts := allocated(old)
	given := make(map[*addressPool]netip.Addr) // the last ones
	givenPort := c.nodePorts.last
	if hasClusterIP(s) && s.Spec.ClusterIP != corev1.ClusterIPNone {
		for i, f := range s.Spec.IPFamilies {
			if i < len(s.Spec.ClusterIPs) {
				continue
			}
			pool := c.clusterIPs[f == corev1.IPv6Protocol]
			ip, ok := pool.next()
			if !ok {
				p.textf("spec.clusterIPs", "no free %s address is left in %s", f, pool.network)
				return
			}
			given[pool] = ip
			s.Spec.ClusterIPs = append(slices.Clone(s.Spec.ClusterIPs), ip.String())
		}
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	if hasNodePorts(s) {
		taken := make(map[int32]bool)
		for i := range s.Spec.Ports {
			taken[s.Spec.Ports[i].NodePort] = true
		}
		// One port number of two protocols gets one node port, as in Kubernetes.
		byPort := make(map[int32]map[corev1.Protocol]int32)
		for i := range s.Spec.Ports {
			port := &s.Spec.Ports[i]
			if port.NodePort == 0 {
				for proto, n := range byPort[port.Port] {
					if proto != port.Protocol {
						port.NodePort = max(port.NodePort, n)
					}
				}
			}
			if port.NodePort == 0 {
				n, ok := c.nodePorts.next(taken)
				if !ok {
					p.textf("spec.ports", "no free node port is left")
					return
				}
				port.NodePort, givenPort = n, n
			}
			taken[port.NodePort] = true
			if byPort[port.Port] == nil {
				byPort[port.Port] = make(map[corev1.Protocol]int32)
			}
			byPort[port.Port][port.Protocol] = port.NodePort
		}
	}
	if hasHealthPort(s) && s.Spec.HealthCheckNodePort == 0 {
		taken := make(map[int32]bool)
		for i := range s.Spec.Ports {
			taken[s.Spec.Ports[i].NodePort] = true
		}
		n, ok := c.nodePorts.next(taken)
		if !ok {
			p.textf("spec.healthCheckNodePort", "no free node port is left")
			return
		}
		s.Spec.HealthCheckNodePort, givenPort = n, n
	}
	//determinism:ignore each pool is an entry of its own
	for pool, ip := range given {
		pool.last = ip
	}
	c.nodePorts.last = givenPort
	//determinism:ignore each address is an entry of its own
	for ip := range had {
		c.clusterIPs[ip.Is6()].free(ip)
	}
	//determinism:ignore each port is an entry of its own
	for n := range hadPorts {
		c.nodePorts.free(n)
	}
	has, hasPorts := allocated(s)
	//determinism:ignore each address is an entry of its own
	for ip := range has {
		c.clusterIPs[ip.Is6()].take(ip)
	}
	//determinism:ignore each port is an entry of its own
	for n := range hasPorts {
		c.nodePorts.take(n)
	}
}

// allocated returns the addresses and node ports of a Service, which may be nil.
func allocated(s *corev1.Service) (ips map[netip.Addr]bool, ports map[int32]bool) {
	ips, ports = make(map[netip.Addr]bool), make(map[int32]bool)
	if s == nil || !hasClusterIP(s) {
		return ips, ports
	}
	for _, ip := range s.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(ip); err == nil {
			ips[a] = true
		}
	}
	for i := range s.Spec.Ports {
		if n := s.Spec.Ports[i].NodePort; n != 0 {
			ports[n] = true
		}
	}
	if n := s.Spec.HealthCheckNodePort; n != 0 {
		ports[n] = true
	}
	return ips, ports
}

// releaseService frees what a deleted Service had.
func (c *Cluster) releaseService(o object) {
	ips, ports := allocated(o.(*corev1.Service))
	//determinism:ignore each address is an entry of its own
	for ip := range ips {
		if pool := c.clusterIPs[ip.Is6()]; pool != nil {
			pool.free(ip)
		}
	}
	//determinism:ignore each port is an entry of its own
	for n := range ports {
		c.nodePorts.free(n)
	}
}
