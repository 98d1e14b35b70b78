package services

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"towtank/agent/config"
	"towtank/agent/edge"
	"towtank/datapath/openflow"
)

// claim is an address and port that a Service wants to be reached by. Several Services can want one:
// external and load-balancer addresses are written by people and clouds. The oldest has it, the others
// wait; a ClusterIP is never given away.
type claim struct {
	netip.AddrPort
	proto uint8
}

// claims knows which Services want what.
type claims struct {
	of map[string][]claim
	by map[claim][]string
	// addresses are the external ones of a Service, at the Services that have one of them.
	addresses map[string][]netip.Addr
	at        map[netip.Addr][]string
	// told is who has what a Service claims in vain, as its Events said.
	told map[string]map[claim]string
}

func newClaims() *claims {
	return &claims{
		of: map[string][]claim{}, by: map[claim][]string{}, addresses: map[string][]netip.Addr{}, at: map[netip.Addr][]string{},
		told: map[string]map[claim]string{},
	}
}

// set replaces what a Service claims and returns the other Services that claim any of it, before or
// now: what they have can change with it.
func (c *claims) set(key string, next []claim) []string {
	var others []string
	note := func(cl claim) {
		for _, o := range c.by[cl] {
			if o != key && !slices.Contains(others, o) {
				others = append(others, o)
			}
		}
	}
	for _, cl := range c.of[key] {
		c.by[cl] = slices.DeleteFunc(c.by[cl], func(o string) bool { return o == key })
		if note(cl); len(c.by[cl]) == 0 {
			delete(c.by, cl)
		}
	}
	delete(c.of, key)
	if len(next) == 0 {
		delete(c.told, key)
	}
	for _, cl := range next {
		if slices.Contains(c.by[cl], key) {
			continue
		}
		c.by[cl] = append(c.by[cl], key)
		c.of[key] = append(c.of[key], cl)
		note(cl)
	}
	return others
}

// setAddresses replaces the external addresses of a Service.
func (c *claims) setAddresses(key string, next []netip.Addr) {
	for _, a := range c.addresses[key] {
		if c.at[a] = slices.DeleteFunc(c.at[a], func(o string) bool { return o == key }); len(c.at[a]) == 0 {
			delete(c.at, a)
		}
	}
	delete(c.addresses, key)
	if len(next) == 0 {
		return
	}
	c.addresses[key] = next
	for _, a := range next {
		c.at[a] = append(c.at[a], key)
	}
}

// externalOf returns the external addresses of a Service, each once.
func externalOf(cfg *config.Config, svc *corev1.Service) []netip.Addr {
	if svc == nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range servedAddresses(cfg, svc) {
		out = append(out, a.Addr)
	}
	return out
}

// claimsOf returns what a Service claims: its ports on every address of it.
func claimsOf(cfg *config.Config, svc *corev1.Service) []claim {
	if svc == nil || !isServed(svc) || isSkipped(cfg, svc) {
		return nil
	}
	addrs := externalOf(cfg, svc)
	for _, v6 := range []bool{false, true} {
		if ip := clusterIP(svc, v6); ip.IsValid() {
			addrs = append(addrs, ip)
		}
	}
	var out []claim
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		for _, a := range addrs {
			out = append(out, claim{netip.AddrPortFrom(a, uint16(p.Port)), protoNumber(protocolOf(p))})
		}
	}
	return out
}

// has reports whether a Service has what it claims. If another one has it, an Event says so, once.
func (s *Services) has(svc *corev1.Service, cl claim) bool {
	key := svc.Namespace + "/" + svc.Name
	winner := s.winner(cl)
	told := s.claims.told[key]
	switch {
	case winner == key || winner == "":
		delete(told, cl)
		return true
	case told[cl] == winner:
		return false
	case told == nil:
		told = map[claim]string{}
		s.claims.told[key] = told
	}
	told[cl] = winner
	s.env.Cluster.Record(edge.Ref{Kind: "Service", Namespace: svc.Namespace, Name: svc.Name}, "Warning", "AddressInUse",
		fmt.Sprintf("%s/%s is served for Service %s, which is older", cl.AddrPort, protocolName(cl.proto), winner))
	return false
}

// winner returns the Service that has what several claim, "" if nobody claims it.
func (s *Services) winner(cl claim) string {
	list := s.claims.by[cl]
	if len(list) == 0 {
		return ""
	}
	return slices.MinFunc(list, func(a, b string) int {
		x, y := s.env.Services[a], s.env.Services[b]
		if x == nil || y == nil {
			return cmp.Compare(b2i(x == nil), b2i(y == nil))
		}
		own := func(svc *corev1.Service) int { return b2i(clusterIP(svc, cl.Addr().Is6()) != cl.Addr()) }
		return cmp.Or(
			cmp.Compare(own(x), own(y)),
			x.CreationTimestamp.Compare(y.CreationTimestamp.Time),
			cmp.Compare(a, b),
		)
	})
}

func protocolName(proto uint8) string {
	switch proto {
	case openflow.ProtoUDP:
		return "UDP"
	case openflow.ProtoSCTP:
		return "SCTP"
	}
	return "TCP"
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
