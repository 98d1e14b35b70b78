package services

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"towtank/agent/pipeline"
	"towtank/datapath"
	"towtank/datapath/host"
)

// standIns are the addresses that stand in, between host and bridge, for external addresses that the
// node itself has. They are made from a hash of the address and kept over a restart, because the
// host's rules name them.
type standIns struct {
	of    map[netip.Addr]netip.Addr
	taken map[netip.Addr]bool
}

func newStandIns() *standIns {
	return &standIns{of: map[netip.Addr]netip.Addr{}, taken: map[netip.Addr]bool{}}
}

// Stand-ins are link-local (RFC 3927), in a part of it where no cloud has its metadata server, or in a
// part of the unique local addresses that nothing else of ours uses.
var (
	standIn4 = netip.MustParsePrefix("169.254.64.0/18")
	standIn6 = netip.MustParsePrefix("fc01:0:0:1::/64")
)

// Of returns the stand-in of an address.
func (s *standIns) Of(ip netip.Addr) netip.Addr {
	if a, ok := s.of[ip]; ok {
		return a
	}
	h := fnv.New64a()
	_, _ = h.Write(ip.AsSlice())
	for n := h.Sum64(); ; n++ {
		if a := nth(ip.Is6(), n); !s.taken[a] {
			s.of[ip], s.taken[a] = a, true
			return a
		}
	}
}

func nth(v6 bool, n uint64) netip.Addr {
	if v6 {
		b := standIn6.Addr().As16()
		binary.BigEndian.PutUint64(b[8:], n)
		return netip.AddrFrom16(b)
	}
	b := standIn4.Addr().As4()
	low := binary.BigEndian.Uint32(b[:]) | uint32(n)&(1<<(32-uint(standIn4.Bits()))-1)
	binary.BigEndian.PutUint32(b[:], low)
	return netip.AddrFrom4(b)
}

// keep takes the stand-ins that the host's rules name.
func (s *standIns) keep(dump []datapath.Object) {
	for _, o := range dump {
		r, ok := o.(host.IPTables)
		if !ok {
			continue
		}
		if ip, a, ok := pipeline.StandInOf(r); ok && !s.taken[a] {
			s.of[ip], s.taken[a] = a, true
		}
	}
}

// isStandIn reports whether the host translates to the address: for NodePorts, or for an external address
// of the node.
func isStandIn(a netip.Addr) bool {
	return a == pipeline.NodePortVIP(a.Is6()) || standIn4.Contains(a) || standIn6.Contains(a)
}
