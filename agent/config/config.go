// Package config is the agent's configuration: what an operator sets, with defaults and checks.
package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"towtank/agent/edge"
)

// Traffic is how Pod traffic crosses nodes.
type Traffic string

// The traffic modes: always in a tunnel, never, or only where the nodes are in different subnets.
const (
	Encap   Traffic = "encap"
	NoEncap Traffic = "noEncap"
	Hybrid  Traffic = "hybrid"
)

// Config is one node's configuration.
type Config struct {
	NodeName string
	// TransportV4 and TransportV6 are the node's own addresses with their subnet; invalid if the node
	// has none of the family.
	TransportV4, TransportV6 netip.Prefix
	// PodCIDRs are the node's Pod networks, at most one per family.
	PodCIDRs     []netip.Prefix
	ServiceCIDRs []netip.Prefix
	Uplink       string // device of the transport addresses
	UplinkMTU    int    // bytes; 0: 1500
	Traffic      Traffic
	Tunnel       string // geneve or vxlan
	// ProxyAll serves NodePorts, external and load-balancer addresses for clients outside the cluster.
	ProxyAll             bool
	ProxyLoadBalancerIPs bool
	SkipServices         []string       // namespace/name
	NodePortAddresses    []netip.Prefix // empty: the addresses of the Node object
	LoadBalancerMode     string         // nat or dsr
	MaxEgressIPsPerNode  int            // 0..255: marks have 8 bits
	ExceptCIDRs          []netip.Prefix // destinations that Egress never applies to
	Membership           string         // local or egressgroup
	MTU                  int            // of Pods; bytes
	AuditEvery           time.Duration
}

// Defaults fills what is not set.
func (c *Config) Defaults() {
	if c.Traffic == "" {
		c.Traffic = Encap
	}
	if c.Tunnel == "" {
		c.Tunnel = "geneve"
	}
	if c.LoadBalancerMode == "" {
		c.LoadBalancerMode = "nat"
	}
	if c.Membership == "" {
		c.Membership = MembershipLocal
	}
	if c.Uplink == "" {
		c.Uplink = "eth0"
	}
	if c.UplinkMTU == 0 {
		c.UplinkMTU = 1500
	}
	if c.MTU == 0 {
		c.MTU = c.UplinkMTU - c.overhead()
	}
	if c.AuditEvery == 0 {
		c.AuditEvery = 60 * time.Second
	}
}

// overhead is how many bytes a tunnel puts around a Pod's packet: the inner Ethernet header (14), Geneve without options
// or VXLAN (8), UDP (8) and the outer IP header, which is IPv6's (40, not 20) for packets to Pod networks of IPv6.
func (c *Config) overhead() int {
	_, v6 := c.Gateway(true)
	switch {
	case !c.HasTunnel():
		return 0
	case c.TransportV6.IsValid() && (v6 || !c.TransportV4.IsValid()):
		return 70
	}
	return 50
}

// EgressKinds are the kinds of objects that decide which Pods an Egress applies to, besides the Pods.
// The caller must not change them.
func (c *Config) EgressKinds() []string {
	if c.ByGroup() {
		return egressKinds[:]
	}
	return egressKinds[:len(egressKinds)-1]
}

var egressKinds = [...]string{edge.KindEgress, edge.KindExternalIPPool, edge.KindNamespace, edge.KindEgressGroup}

// Who finds out which Pods an Egress applies to.
const (
	MembershipLocal  = "local"       // each node
	MembershipGroups = "egressgroup" // the controller
)

// ByGroup reports whether the Pods of an Egress are those of its EgressGroup, and not those that its selectors pick.
func (c *Config) ByGroup() bool { return c.Membership == MembershipGroups }

// ValidateSettings names the first setting that has a value which is not allowed: what all nodes have in common.
func (c *Config) ValidateSettings() error {
	if !slices.Contains([]Traffic{Encap, NoEncap, Hybrid}, c.Traffic) {
		return fmt.Errorf("config: trafficMode %q: allowed are encap, noEncap, hybrid", c.Traffic)
	}
	if c.Tunnel != "geneve" && c.Tunnel != "vxlan" {
		return fmt.Errorf("config: tunnelType %q: allowed are geneve, vxlan", c.Tunnel)
	}
	if c.LoadBalancerMode != "nat" && c.LoadBalancerMode != "dsr" {
		return fmt.Errorf("config: loadBalancerMode %q: allowed are nat, dsr", c.LoadBalancerMode)
	}
	if c.Membership != MembershipLocal && c.Membership != MembershipGroups {
		return fmt.Errorf("config: membership %q: allowed are local, egressgroup", c.Membership)
	}
	if c.MaxEgressIPsPerNode < 0 || c.MaxEgressIPsPerNode > 255 {
		return fmt.Errorf("config: maxEgressIPsPerNode %d: allowed are 0 to 255", c.MaxEgressIPsPerNode)
	}
	return nil
}

// Validate names the first field that has a value which is not allowed.
func (c *Config) Validate() error {
	if c.NodeName == "" {
		return fmt.Errorf("config: nodeName is empty")
	}
	if err := c.ValidateSettings(); err != nil {
		return err
	}
	if len(c.PodCIDRs) == 0 || len(c.PodCIDRs) > 2 {
		return fmt.Errorf("config: node %s has %d Pod CIDRs: want one per address family", c.NodeName, len(c.PodCIDRs))
	}
	if !c.TransportV4.IsValid() && !c.TransportV6.IsValid() {
		return fmt.Errorf("config: node %s has no transport address", c.NodeName)
	}
	return nil
}

// Transport returns the node's own address of the family, if it has one.
func (c *Config) Transport(v6 bool) (netip.Addr, bool) {
	p := c.TransportV4
	if v6 {
		p = c.TransportV6
	}
	return p.Addr(), p.IsValid()
}

// TransportSubnet returns the subnet of the node's own address of the family.
func (c *Config) TransportSubnet(v6 bool) netip.Prefix {
	if v6 {
		return c.TransportV6.Masked()
	}
	return c.TransportV4.Masked()
}

// IsPodAddress reports whether an address is of this node's Pod network.
func (c *Config) IsPodAddress(a netip.Addr) bool {
	return slices.ContainsFunc(c.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Gateway returns the address of the gateway port for the family: the first of the Pod CIDR.
func (c *Config) Gateway(v6 bool) (netip.Addr, bool) {
	for _, p := range c.PodCIDRs {
		if p.Addr().Is6() == v6 {
			return GatewayOf(p), true
		}
	}
	return netip.Addr{}, false
}

// Families returns false for IPv4 and true for IPv6, as far as the node has Pod CIDRs of them.
func (c *Config) Families() []bool {
	var f []bool
	for _, v6 := range []bool{false, true} {
		if _, ok := c.Gateway(v6); ok {
			f = append(f, v6)
		}
	}
	return f
}

// GatewayOf returns the gateway address of a Pod CIDR: its first host address.
func GatewayOf(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }

// NeedsTunnel reports whether Pods of a peer at the transport address are reached by tunnel.
func (c *Config) NeedsTunnel(peer netip.Addr) bool {
	switch c.Traffic {
	case NoEncap:
		return false
	case Hybrid:
		return !c.TransportSubnet(peer.Is6()).Contains(peer)
	}
	return true
}

// HasTunnel reports whether the node has a tunnel port at all.
func (c *Config) HasTunnel() bool { return c.Traffic != NoEncap }

// MaxMarks is the number of Egress IPs that can be realised on a node at once: a mark has 8 bits and
// 0 means none. Static Egress IPs take marks too, so it does not follow MaxEgressIPsPerNode.
func (c *Config) MaxMarks() int { return 255 }
