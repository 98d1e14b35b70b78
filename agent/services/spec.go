package services

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"towtank/agent/config"
	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/datapath/openflow"
)

func mapEqual(a, b map[string]string) bool { return maps.Equal(a, b) }

func sameSpec(a, b *corev1.Service) bool { return equality.Semantic.DeepEqual(&a.Spec, &b.Spec) }

func sameIngress(a, b corev1.LoadBalancerIngress) bool { return equality.Semantic.DeepEqual(a, b) }

// clusterIP returns the ClusterIP of the family, invalid if the Service has none.
func clusterIP(svc *corev1.Service, v6 bool) netip.Addr {
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	for _, t := range ips {
		if ip, err := netip.ParseAddr(t); err == nil && ip.Is6() == v6 {
			return ip
		}
	}
	return netip.Addr{}
}

// servedAddress is a load-balancer or external address that is served.
type servedAddress struct {
	netip.Addr
	balancer bool // source ranges hold for it
}

// servedAddresses returns the external and load-balancer addresses of a Service that the configuration
// has us serve, of the families that the Service has.
func servedAddresses(cfg *config.Config, svc *corev1.Service) []servedAddress {
	var out []servedAddress
	add := func(text string, balancer bool) {
		ip, err := netip.ParseAddr(text)
		if err == nil && clusterIP(svc, ip.Is6()).IsValid() && !slices.ContainsFunc(out, func(a servedAddress) bool { return a.Addr == ip }) {
			out = append(out, servedAddress{ip, balancer})
		}
	}
	if cfg.ProxyAll {
		for _, t := range svc.Spec.ExternalIPs {
			add(t, false)
		}
	}
	if cfg.ProxyLoadBalancerIPs && svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if in.IPMode == nil || *in.IPMode != corev1.LoadBalancerIPModeProxy {
				add(in.IP, true)
			}
		}
	}
	return out
}

func protocolOf(p *corev1.ServicePort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return p.Protocol
}

func protoNumber(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return openflow.ProtoUDP
	case corev1.ProtocolSCTP:
		return openflow.ProtoSCTP
	}
	return openflow.ProtoTCP
}

// keepGroups reserves the group ids that flows in a dump use for the owners of those flows.
func keepGroups(g *tables.Groups, dump []datapath.Object) {
	var ids []uint32
	for _, o := range dump {
		f, ok := o.(*openflow.Flow)
		if !ok || f.Table() != pipeline.TableServiceLB {
			continue
		}
		ids = f.Groups(ids[:0])
		slices.Sort(ids)
		for _, id := range ids {
			g.Keep(id, f.Cookie())
		}
	}
}
