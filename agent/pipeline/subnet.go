package pipeline

import (
	"fmt"
	"net/netip"

	"towtank/datapath/host"
)

// Subnet is a network of Egress IPs other than the nodes' own.
type Subnet struct {
	Gateway netip.Addr
	Bits    int
	VLAN    uint16 // 0: untagged, on the uplink
	Table   uint32 // route table of the subnet on this node
}

// Route tables of Egress subnets: as many as a node may have Egress IPs, the kernel's own (253 to 255) left out.
const (
	FirstSubnetTable = 101
	LastSubnetTable  = 358
)

// IsSubnetTable reports whether a route table may be one of an Egress subnet.
func IsSubnetTable(t uint32) bool {
	return t >= FirstSubnetTable && t <= LastSubnetTable && (t < 253 || t > 255)
}

// prioritySubnet is where the policy rules of Egress subnets are.
const prioritySubnet = 1000

// subnetLink returns the device that the addresses of the subnet are on.
func (n *Node) subnetLink(s *Subnet) string {
	if s.VLAN == 0 {
		return n.Cfg.Uplink
	}
	return fmt.Sprintf("ext.%d", s.VLAN)
}

// SubnetAddress adds an Egress IP of a subnet: its device, the address with the subnet's length, and the
// settings that keep the other addresses when one goes, and that accept answers by this way. The kernel makes no route of
// the address: by that whatever goes to the subnet would leave here, with this address, the node's own traffic too.
func (n *Node) SubnetAddress(l *List, ip netip.Addr, s *Subnet) {
	dev := n.subnetLink(s)
	if s.VLAN != 0 {
		link, err := host.NewLink(host.Link{
			Name: dev, Type: host.LinkVLAN, MTU: n.Cfg.UplinkMTU, VLANID: s.VLAN, Parent: n.Cfg.Uplink, Alias: host.AliasPrefix + "subnet",
		})
		Add(l, link, err)
		if !ip.Is6() {
			// The node need not have a way of its own to the subnet: by any filter it would take no answers then.
			sysctl(l, host.SysctlName("ipv4", dev, "rp_filter"), "0")
			sysctl(l, host.SysctlName("ipv4", dev, "promote_secondaries"), "1")
		}
	}
	a, err := host.NewAddress(host.Address{Prefix: netip.PrefixFrom(ip, s.Bits), Link: dev, NoPrefixRoute: true, Deprecated: ip.Is6()})
	Add(l, a, err)
}

// SubnetRoutes adds the routes of a subnet's table, and the rule that sends an Egress IP's traffic there.
func (n *Node) SubnetRoutes(l *List, ip netip.Addr, mark uint8, s *Subnet) {
	dev := n.subnetLink(s)
	v6 := ip.Is6()
	r, err := host.NewRoute(host.Route{Dst: netip.PrefixFrom(ip, s.Bits).Masked(), Dev: dev, Table: s.Table})
	Add(l, r, err)
	anywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if v6 {
		anywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	r, err = host.NewRoute(host.Route{Dst: anywhere, Via: s.Gateway, Dev: dev, Table: s.Table})
	Add(l, r, err)
	rule, err := host.NewRule(host.Rule{Family: family(v6), Priority: prioritySubnet, FwMark: uint32(mark), FwMask: MarkMask, Table: s.Table})
	Add(l, rule, err)
}

// MarkMask is the part of the packet mark that names an Egress IP.
const MarkMask = 0xff
