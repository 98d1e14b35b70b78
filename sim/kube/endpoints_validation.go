package kube

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// admitSlice defaults and validates an EndpointSlice that was not made by a controller.
func admitSlice(old, s *discoveryv1.EndpointSlice, p *problems) {
	const maxEndpoints, maxPorts, maxAddresses = 1000, 20000, 100
	oneOf(p, "addressType", s.AddressType, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	if old != nil && old.AddressType != s.AddressType {
		p.textf("addressType", "cannot be changed: it is %s, found %s", old.AddressType, s.AddressType)
	}
	if len(s.Endpoints) > maxEndpoints || len(s.Ports) > maxPorts {
		p.textf("endpoints", "found %d endpoints and %d ports, allowed: at most %d and %d", len(s.Endpoints), len(s.Ports), maxEndpoints, maxPorts)
	}
	names := map[string]bool{}
	for i := range s.Ports {
		port := &s.Ports[i]
		if port.Name == nil {
			port.Name = ptr.To("")
		}
		if port.Protocol == nil {
			port.Protocol = ptr.To(corev1.ProtocolTCP)
		}
		at := func(f string) string { return fmt.Sprintf("ports[%d].%s", i, f) }
		if names[*port.Name] {
			p.textf(at("name"), "found %q twice", *port.Name)
		}
		if *port.Name != "" && len(validation.IsDNS1123Label(*port.Name)) > 0 {
			p.bad(at("name"), *port.Name, "lower case letters, digits and -")
		}
		names[*port.Name] = true
		oneOf(p, at("protocol"), *port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		if port.Port != nil && (*port.Port < 1 || *port.Port > 65535) {
			p.bad(at("port"), *port.Port, "1 to 65535")
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.Addresses) == 0 || len(e.Addresses) > maxAddresses {
			p.textf(fmt.Sprintf("endpoints[%d].addresses", i), "found %d, allowed: 1 to %d", len(e.Addresses), maxAddresses)
		}
		for j, a := range e.Addresses {
			if s.AddressType == discoveryv1.AddressTypeFQDN {
				continue
			}
			f := fmt.Sprintf("endpoints[%d].addresses[%d]", i, j)
			if ip, ok := parseOrdinaryIP(p, f, a); ok && discoveryv1.AddressType(familyOf(a)) != s.AddressType {
				p.bad(f, ip, "an address of type %s", s.AddressType)
			}
		}
		if e.Hostname != nil && len(validation.IsDNS1123Label(*e.Hostname)) > 0 {
			p.bad(fmt.Sprintf("endpoints[%d].hostname", i), *e.Hostname, "lower case letters, digits and -")
		}
		if e.NodeName != nil && len(validation.IsDNS1123Subdomain(*e.NodeName)) > 0 {
			p.bad(fmt.Sprintf("endpoints[%d].nodeName", i), *e.NodeName, "the name of a Node")
		}
		if e.Hints != nil {
			validateHints(p, fmt.Sprintf("endpoints[%d].hints", i), e.Hints)
		}
	}
}

// validateHints checks the zones and nodes that an endpoint is for.
func validateHints(p *problems, path string, h *discoveryv1.EndpointHints) {
	const maxHints = 8
	zones, nodes := make([]string, len(h.ForZones)), make([]string, len(h.ForNodes))
	for i, z := range h.ForZones {
		zones[i] = z.Name
	}
	for i, n := range h.ForNodes {
		nodes[i] = n.Name
	}
	for _, list := range []struct {
		field, allowed string
		names          []string
		check          func(string) []string
	}{
		{"forZones", "the value of a label", zones, validation.IsValidLabelValue},
		{"forNodes", "the name of a Node", nodes, validation.IsDNS1123Subdomain},
	} {
		if len(list.names) > maxHints {
			p.textf(path+"."+list.field, "found %d, allowed: at most %d", len(list.names), maxHints)
			continue
		}
		for i, name := range list.names {
			at := fmt.Sprintf("%s.%s[%d].name", path, list.field, i)
			if slices.Index(list.names, name) != i {
				p.textf(at, "found %q twice", name)
			}
			if len(list.check(name)) > 0 {
				p.bad(at, name, "%s", list.allowed)
			}
		}
	}
}

func admitEndpoints(e *legacyEndpoints, p *problems) {
	for i := range e.Subsets {
		s := &e.Subsets[i]
		if len(s.Addresses)+len(s.NotReadyAddresses) == 0 {
			p.textf(fmt.Sprintf("subsets[%d]", i), "must specify addresses or notReadyAddresses")
		}
		for _, list := range []struct {
			field     string
			addresses []corev1.EndpointAddress
		}{{"addresses", s.Addresses}, {"notReadyAddresses", s.NotReadyAddresses}} {
			for j, a := range list.addresses {
				at := func(f string) string { return fmt.Sprintf("subsets[%d].%s[%d].%s", i, list.field, j, f) }
				parseOrdinaryIP(p, at("ip"), a.IP)
				if a.Hostname != "" && len(validation.IsDNS1123Label(a.Hostname)) > 0 {
					p.bad(at("hostname"), a.Hostname, "lower case letters, digits and -")
				}
				if a.NodeName != nil && len(validation.IsDNS1123Subdomain(*a.NodeName)) > 0 {
					p.bad(at("nodeName"), *a.NodeName, "the name of a Node")
				}
			}
		}
		for j := range s.Ports {
			port := &s.Ports[j]
			if port.Protocol == "" {
				port.Protocol = corev1.ProtocolTCP
			}
			at := func(f string) string { return fmt.Sprintf("subsets[%d].ports[%d].%s", i, j, f) }
			if port.Port < 1 || port.Port > 65535 {
				p.bad(at("port"), port.Port, "1 to 65535")
			}
			switch {
			case port.Name == "" && len(s.Ports) > 1:
				p.textf(at("name"), "is required if there are several ports")
			case port.Name != "" && len(validation.IsDNS1123Label(port.Name)) > 0:
				p.bad(at("name"), port.Name, "lower case letters, digits and -")
			}
			oneOf(p, at("protocol"), port.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		}
	}
}
