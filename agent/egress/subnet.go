package egress

import (
	"errors"
	"net/netip"

	"k8s.io/apimachinery/pkg/runtime"

	"towtank/agent/apis/crd/v1beta1"
	"towtank/agent/pipeline"
)

// subnets gives every subnet of Egress IPs on this node a route table, the lowest free one.
type subnets struct {
	tables  map[netip.Prefix]uint32
	users   map[netip.Addr]netip.Prefix // subnet of an IP, as last rendered
	adopted map[netip.Addr]uint32       // tables that an earlier process gave
	waiting map[netip.Addr]bool         // IPs for whose subnet there was no table
}

func newSubnets() *subnets {
	return &subnets{tables: map[netip.Prefix]uint32{}, users: map[netip.Addr]netip.Prefix{}, adopted: map[netip.Addr]uint32{}, waiting: map[netip.Addr]bool{}}
}

// adopt notes the table of an IP that was realised before.
func (s *subnets) adopt(ip netip.Addr, table uint32) { s.adopted[ip] = table }

// of returns the subnet of an address of this node, nil if its pool has none. It is not ok if no table is left: there are as many
// as addresses that a node may have, but those of addresses that are going away are used until they are gone.
func (s *subnets) of(e *Egress, ip netip.Addr) (sub *pipeline.Subnet, ok bool) {
	delete(s.waiting, ip)
	info := e.subnetInfo(ip)
	if info == nil {
		s.free(e, ip)
		return nil, true
	}
	gw, err := netip.ParseAddr(info.Gateway)
	if err != nil || gw.Is6() != ip.Is6() {
		return nil, true
	}
	prefix := netip.PrefixFrom(ip, int(info.PrefixLength)).Masked()
	if s.users[ip] != prefix {
		s.free(e, ip)
	}
	table := s.tables[prefix]
	if table == 0 {
		want := s.adopted[ip]
		if want == 0 {
			want = s.before(prefix)
		}
		if table = s.pick(want); table == 0 {
			e.status.problem(ip, errNoTable)
			s.waiting[ip] = true
			return nil, false
		}
		s.tables[prefix] = table
	}
	s.users[ip] = prefix
	return &pipeline.Subnet{Gateway: gw, Bits: int(info.PrefixLength), VLAN: uint16(info.VLAN), Table: table}, true
}

// errNoTable says that no route table is left for a subnet.
var errNoTable = errors.New("all route tables for Egress subnets are in use on this node")

// before returns the table that addresses of a subnet had before this process, the lowest if they had several; 0 if none had one.
func (s *subnets) before(prefix netip.Prefix) uint32 {
	table := uint32(0)
	//determinism:ignore the lowest is the same in any order
	for ip, t := range s.adopted {
		if prefix.Contains(ip) && (table == 0 || t < table) {
			table = t
		}
	}
	return table
}

// pick returns a table that no subnet has: the one wanted if it is free, else the lowest, of those that addresses had before
// only if there is no other; 0 if there is none.
func (s *subnets) pick(want uint32) uint32 {
	used, had := map[uint32]bool{}, map[uint32]bool{}
	for _, t := range s.tables {
		used[t] = true
	}
	if pipeline.IsSubnetTable(want) && !used[want] {
		return want
	}
	for _, t := range s.adopted {
		had[t] = true
	}
	last := uint32(0)
	for t := uint32(pipeline.FirstSubnetTable); t <= pipeline.LastSubnetTable; t++ {
		switch {
		case !pipeline.IsSubnetTable(t) || used[t]:
		case !had[t]:
			return t
		case last == 0:
			last = t
		}
	}
	return last
}

// free gives the table of an address's subnet back, with its last address. Who waits for one is looked at again.
func (s *subnets) free(e *Egress, ip netip.Addr) {
	delete(s.waiting, ip)
	prefix, ok := s.users[ip]
	if !ok {
		return
	}
	delete(s.users, ip)
	delete(s.adopted, ip)
	for _, p := range s.users {
		if p == prefix {
			return
		}
	}
	delete(s.tables, prefix)
	//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
	for w := range s.waiting {
		e.env.Dirty(unitOfIP(w))
	}
}

// subnetInfo returns what the pool of an address says of its subnet.
func (e *Egress) subnetInfo(ip netip.Addr) *v1beta1.SubnetInfo {
	for _, name := range e.holders[ip] {
		if eg := e.env.Egresses[name]; eg != nil && eg.Spec.ExternalIPPool != "" {
			if pool := e.env.Pools[eg.Spec.ExternalIPPool]; pool != nil {
				return pool.Spec.SubnetInfo
			}
		}
	}
	return nil
}

// subnetChanged marks the addresses of a pool whose subnet is another one now.
func (e *Egress) subnetChanged(name string, old runtime.Object) {
	var was, is *v1beta1.SubnetInfo
	if o, ok := old.(*v1beta1.ExternalIPPool); ok {
		was = o.Spec.SubnetInfo
	}
	if p := e.env.Pools[name]; p != nil {
		is = p.Spec.SubnetInfo
	}
	if (was == nil) == (is == nil) && (was == nil || *was == *is) {
		return
	}
	//determinism:ignore units are rendered in the order of their names, whatever order they were marked in
	for ip, holders := range e.holders {
		for _, h := range holders {
			if eg := e.env.Egresses[h]; eg != nil && eg.Spec.ExternalIPPool == name {
				e.env.Dirty(unitOfIP(ip))
			}
		}
	}
}
