package kube

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"towtank/agent/apis/crd/v1beta1"
)

// admitEgress validates an Egress as Antrea's schema and webhook do. Addresses of a pool are given
// by the controller, not here; an address that the user names must be in the pool.
func (c *Cluster) admitEgress(old, e *v1beta1.Egress) []Problem {
	p := &problems{}
	validateLabelSelector(p, "spec.appliedTo.podSelector", e.Spec.AppliedTo.PodSelector)
	validateLabelSelector(p, "spec.appliedTo.namespaceSelector", e.Spec.AppliedTo.NamespaceSelector)
	if len(e.Spec.EgressIPs) > 0 {
		p.textf("spec.egressIPs", "is not supported yet; use egressIP")
	}
	if len(e.Spec.ExternalIPPools) > 0 {
		p.textf("spec.externalIPPools", "is not supported yet; use externalIPPool")
	}
	if e.Spec.EgressIP == "" && e.Spec.ExternalIPPool == "" && len(p.list) == 0 && old == nil {
		p.textf("spec", "found neither egressIP nor externalIPPool, allowed: at least one")
	}
	if b := e.Spec.Bandwidth; b != nil {
		quantity(p, "spec.bandwidth.rate", b.Rate)
		quantity(p, "spec.bandwidth.burst", b.Burst)
	}
	if e.Spec.EgressIP == "" {
		return p.list
	}
	ip, ok := parseIP(p, "spec.egressIP", e.Spec.EgressIP)
	if !ok {
		return p.list
	}
	if ip.IsUnspecified() || ip.IsLoopback() || ip.IsMulticast() {
		p.bad("spec.egressIP", e.Spec.EgressIP, "an address that a node can have")
	}
	unchanged := old != nil && old.Spec.EgressIP == e.Spec.EgressIP && old.Spec.ExternalIPPool == e.Spec.ExternalIPPool
	if e.Spec.ExternalIPPool == "" || unchanged {
		return p.list
	}
	pool, ok := get[*v1beta1.ExternalIPPool](c, KindExternalIPPool, e.Spec.ExternalIPPool)
	switch {
	case !ok:
		p.textf("spec.externalIPPool", "there is no ExternalIPPool %q", e.Spec.ExternalIPPool)
	case !PoolContains(pool, ip):
		p.textf("spec.egressIP", "found %s, allowed: an address of ExternalIPPool %s", ip, pool.Name)
	}
	return p.list
}

// quantity checks a Kubernetes quantity above zero.
func quantity(p *problems, field, s string) {
	if q, err := resource.ParseQuantity(s); err != nil || q.Sign() <= 0 {
		p.bad(field, s, "a quantity above 0 as 500k or 10M")
	}
}

// ipRange is a range of a pool; first and last are the addresses that may be given.
type ipRange struct {
	first, last netip.Addr
	// whole is the range with the addresses of a CIDR that are not given.
	wholeFirst, wholeLast netip.Addr
}

func (r ipRange) contains(a netip.Addr) bool {
	return a.BitLen() == r.first.BitLen() && r.first.Compare(a) <= 0 && a.Compare(r.last) <= 0
}

func (r ipRange) overlaps(o ipRange) bool {
	return r.wholeFirst.BitLen() == o.wholeFirst.BitLen() && r.wholeFirst.Compare(o.wholeLast) <= 0 && o.wholeFirst.Compare(r.wholeLast) <= 0
}

// parseRange reads a range of a pool. Of a CIDR the first address is not given, and for IPv4 neither is
// the last; a /31, /32, /127 or /128 gives all it has.
func parseRange(r v1beta1.IPRange) (ipRange, error) {
	switch {
	case r.CIDR != "" && (r.Start != "" || r.End != ""):
		return ipRange{}, fmt.Errorf("found cidr and start or end, allowed: cidr, or start and end")
	case r.CIDR != "":
		p, err := netip.ParsePrefix(r.CIDR)
		if err != nil || p.Addr().Is4In6() {
			return ipRange{}, fmt.Errorf("found cidr %q, allowed: a network as 10.0.0.0/24", r.CIDR)
		}
		p = p.Masked()
		last := lastOf(p)
		out := ipRange{p.Addr(), last, p.Addr(), last}
		// A network of one or two addresses has no network and broadcast address of its own (RFC 3021, RFC 6164).
		if p.Bits() < p.Addr().BitLen()-1 {
			out.first = p.Addr().Next()
			if p.Addr().Is4() {
				out.last = last.Prev()
			}
		}
		return out, nil
	case r.Start == "" || r.End == "":
		return ipRange{}, fmt.Errorf("found %+v, allowed: cidr, or start and end", r)
	}
	start, err1 := netip.ParseAddr(r.Start)
	end, err2 := netip.ParseAddr(r.End)
	switch {
	case err1 != nil || err2 != nil || start.Zone() != "" || end.Zone() != "":
		return ipRange{}, fmt.Errorf("found start %q and end %q, allowed: two IP addresses", r.Start, r.End)
	case start.BitLen() != end.BitLen():
		return ipRange{}, fmt.Errorf("found start %s and end %s, allowed: two addresses of one family", start, end)
	case end.Less(start):
		return ipRange{}, fmt.Errorf("found start %s and end %s, allowed: start not above end", start, end)
	}
	return ipRange{start, end, start, end}, nil
}

// lastOf returns the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b) // of the same length, so it is one
	return a
}

// PoolContains reports whether an address is one that a pool gives.
func PoolContains(pool *v1beta1.ExternalIPPool, ip netip.Addr) bool {
	for _, r := range pool.Spec.IPRanges {
		if parsed, err := parseRange(r); err == nil && parsed.contains(ip) {
			return true
		}
	}
	return false
}

// admitPool validates an ExternalIPPool as Antrea's schema and webhook do.
func (c *Cluster) admitPool(old, pool *v1beta1.ExternalIPPool) []Problem {
	p := &problems{}
	if len(pool.Spec.IPRanges) == 0 {
		p.textf("spec.ipRanges", "is required: found no range")
	}
	validateLabelSelector(p, "spec.nodeSelector", &pool.Spec.NodeSelector)
	var subnet netip.Prefix
	if s := pool.Spec.SubnetInfo; s != nil {
		subnet = validateSubnet(p, s)
	}
	var ranges []ipRange
	for i, r := range pool.Spec.IPRanges {
		field := fmt.Sprintf("spec.ipRanges[%d]", i)
		parsed, err := parseRange(r)
		if err != nil {
			p.textf(field, "%v", err)
			continue
		}
		for j, o := range ranges {
			if parsed.overlaps(o) {
				p.textf(field, "%s overlaps spec.ipRanges[%d]", rangeText(r), j)
			}
		}
		ranges = append(ranges, parsed)
		if subnet.IsValid() && !(subnet.Contains(parsed.first) && subnet.Contains(parsed.last)) {
			p.textf(field, "%s is not in the subnet %s of spec.subnetInfo", rangeText(r), subnet)
		}
		c.overlapsOthers(p, pool.Name, field, r, parsed)
	}
	if old != nil {
		for _, r := range old.Spec.IPRanges {
			if !slices.Contains(pool.Spec.IPRanges, r) {
				p.textf("spec.ipRanges", "range %s cannot be changed or removed", rangeText(r))
			}
		}
	}
	return p.list
}

func (c *Cluster) overlapsOthers(p *problems, name, field string, r v1beta1.IPRange, parsed ipRange) {
	for _, key := range c.tables[KindExternalIPPool].keys() {
		o, ok := get[*v1beta1.ExternalIPPool](c, KindExternalIPPool, key)
		if !ok || key == name {
			continue
		}
		for _, or := range o.Spec.IPRanges {
			if other, err := parseRange(or); err == nil && parsed.overlaps(other) {
				p.textf(field, "%s overlaps %s of ExternalIPPool %s", rangeText(r), rangeText(or), key)
			}
		}
	}
}

func rangeText(r v1beta1.IPRange) string {
	if r.CIDR != "" {
		return r.CIDR
	}
	return r.Start + "-" + r.End
}

// validateSubnet returns the subnet, an invalid one if there is a problem.
func validateSubnet(p *problems, s *v1beta1.SubnetInfo) netip.Prefix {
	if s.VLAN < 0 || s.VLAN > 4094 {
		p.bad("spec.subnetInfo.vlan", s.VLAN, "0 to 4094")
	}
	gateway, ok := parseIP(p, "spec.subnetInfo.gateway", s.Gateway)
	if !ok {
		return netip.Prefix{}
	}
	if s.PrefixLength < 1 || int(s.PrefixLength) >= gateway.BitLen() {
		p.bad("spec.subnetInfo.prefixLength", s.PrefixLength, "1 to %d", gateway.BitLen()-1)
		return netip.Prefix{}
	}
	return netip.PrefixFrom(gateway, int(s.PrefixLength)).Masked()
}
