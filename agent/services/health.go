package services

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"towtank/agent/pipeline"
	"towtank/agent/tables"
	"towtank/datapath"
	"towtank/datapath/host"
)

// kindHealth is the kind of the units of health check listeners, one per Service. They are apart from
// the Service ports, because a node must not ask for traffic before it serves: the listener comes once
// every port of the Service is realised, or one was refused, and counts an endpoint no sooner than that.
const kindHealth = "svchealth"

func hasHealthPort(svc *corev1.Service) bool {
	return svc != nil && svc.Spec.HealthCheckNodePort != 0 && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// served has the listener of a Service rendered, once all its ports are as they should be.
func (s *Services) served(key string) {
	if hasHealthPort(s.env.Services[key]) && s.allServed(key) {
		s.health[key] = s.localReady(s.env.Services[key])
		s.env.Dirty(kindHealth + "/" + key)
	}
}

// healthChanged has the listener of a Service rendered if it has one.
func (s *Services) healthChanged(key string) {
	if _, told := s.health[key]; told {
		s.env.Dirty(kindHealth + "/" + key)
	}
}

// notServed has the listener of a Service say that nothing is served, if a port was refused before any was served.
func (s *Services) notServed(key string) {
	if _, told := s.health[key]; !told && hasHealthPort(s.env.Services[key]) {
		s.health[key] = 0
		s.env.Dirty(kindHealth + "/" + key)
	}
}

// switchChanged has all listeners say that the node serves nothing, or again what it serves, once that is there again.
func (s *Services) switchChanged(connected bool) {
	s.down = !connected
	//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
	for key := range s.health {
		if s.down {
			s.unwell[key] = true // also if it is back before the listener is rendered
		}
		s.env.Dirty(kindHealth + "/" + key)
	}
}

func (s *Services) allServed(key string) bool {
	for _, u := range s.units[key] {
		if !s.env.IsClean(u) || !s.env.Store.Realised(u) {
			return false
		}
	}
	return len(s.units[key]) > 0
}

// renderHealth renders a Service's listener. An endpoint that goes counts no more at once; one that
// comes counts when it is served.
func (s *Services) renderHealth(l *pipeline.List, key string) ([]datapath.Object, datapath.Precedence) {
	svc := s.env.Services[key]
	if !hasHealthPort(svc) || len(s.units[key]) == 0 {
		delete(s.health, key)
		delete(s.unwell, key)
		return nil, datapath.Precedence{}
	}
	told, ok := s.health[key]
	if !ok {
		return nil, datapath.Precedence{}
	}
	now := s.localReady(svc)
	if now < told || s.allServed(key) {
		told = now
	}
	s.health[key] = told
	if !s.down && s.allServed(key) {
		delete(s.unwell, key)
	}
	addrs := ""
	if len(s.env.Cfg.NodePortAddresses) > 0 {
		var list []string
		for _, a := range tables.NodePortAddresses(s.env.Tables) {
			list = append(list, a.String())
		}
		if addrs = strings.Join(list, ","); addrs == "" {
			return nil, datapath.Precedence{}
		}
	}
	h, err := host.NewHealth(host.Health{Port: uint16(svc.Spec.HealthCheckNodePort), Service: key, LocalEndpoints: told, Unhealthy: s.unwell[key], Addrs: addrs})
	pipeline.Add(l, h, err)
	return l.Objects(), datapath.Precedence{Age: svc.CreationTimestamp.Unix()}
}

// localReady counts the ready endpoints of a Service on this node, each address once. Terminating
// ones do not count: a node that only drains is to get no new traffic.
func (s *Services) localReady(svc *corev1.Service) int {
	key := svc.Namespace + "/" + svc.Name
	seen := map[netip.Addr]bool{}
	for _, port := range svc.Spec.Ports {
		for _, v6 := range s.env.Cfg.Families() {
			for _, e := range collect(s.env.Tables, key, port.Name, protocolOf(&port), v6) {
				if e.Local && e.Ready {
					seen[e.Addr()] = true
				}
			}
		}
	}
	return len(seen)
}
