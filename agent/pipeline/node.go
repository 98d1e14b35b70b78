// Package pipeline says how the datapath looks: the OpenFlow tables, registers and marks, and the
// host's chains, sets and routes around them. It has no state; concerns call it with facts and get
// objects.
package pipeline

import (
	"hash/fnv"
	"net/netip"

	"towtank/agent/config"
	"towtank/agent/tables"
	"towtank/datapath/host"
	"towtank/datapath/openflow"
)

// Names and numbers of the ports that every node has. Port numbers from 32768 up are never given out
// by OVS itself, so that a Pod's port cannot take them.
const (
	GatewayPort   = "gw0"
	TunnelPort    = "tun0"
	TunnelOFPort  = 32768
	GatewayOFPort = 32769
)

// VirtualMAC is the address of everything that is reached through the gateway or the tunnel, and the
// source of every packet to the gateway that carries no mark.
var VirtualMAC = openflow.MAC{0x0e, 0x01, 0x00, 0x00, 0x00, 0x01}

// CarrierMAC returns the source address that carries a packet mark to a host on which pkt_mark does
// not survive the gateway port.
func CarrierMAC(mark uint8) openflow.MAC { return openflow.MAC{0x0e, 0, 0, 0, 0, mark} }

// Addresses that exist only between the bridge and its host.
var (
	serviceVIP4  = netip.MustParseAddr("169.254.0.253")
	serviceVIP6  = netip.MustParseAddr("fc01::aabb:ccdd:eeff")
	nodePortVIP4 = netip.MustParseAddr("169.254.0.252")
	nodePortVIP6 = netip.MustParseAddr("fc01::aabb:ccdd:eefe")
)

// ServiceVIP is the next hop of Service addresses on the host, and the source of connections that
// enter by the gateway and leave by it again.
func ServiceVIP(v6 bool) netip.Addr {
	if v6 {
		return serviceVIP6
	}
	return serviceVIP4
}

// NodePortVIP is what the host translates NodePort destinations to, so that the bridge sees them.
func NodePortVIP(v6 bool) netip.Addr {
	if v6 {
		return nodePortVIP6
	}
	return nodePortVIP4
}

// Node is what the pipeline needs to know about its node.
type Node struct {
	Cfg *config.Config
	// GW and TUN are the numbers of gateway and tunnel port, 0 if not known.
	GW, TUN uint32
	GWMAC   openflow.MAC
	// Carrier is set where the source MAC carries the packet mark (netdev datapath).
	Carrier bool
}

// Of returns the node that the tables describe.
func Of(t *tables.Tables) *Node {
	return &Node{
		Cfg: t.Cfg, GW: t.OFPort(GatewayPort), TUN: t.OFPort(TunnelPort),
		GWMAC: GatewayMAC(t.Cfg.NodeName), Carrier: t.Features.Datapath != "system",
	}
}

// Ready reports whether the ports that every flow needs have their numbers.
func Ready(t *tables.Tables) bool { return ready(t.Cfg, t.OFPort(GatewayPort), t.OFPort(TunnelPort)) }

func ready(cfg *config.Config, gw, tun uint32) bool { return gw != 0 && (tun != 0 || !cfg.HasTunnel()) }

// GatewayMAC returns the address of a node's gateway port, made from the node's name so that it is
// the same after every start.
func GatewayMAC(node string) openflow.MAC { return localMAC(0x0a, "gateway/"+node) }

// PodMAC returns the address of a Pod's interface, made from its container.
func PodMAC(containerID, ifname string) openflow.MAC {
	return localMAC(0x0a, "pod/"+containerID+"/"+ifname)
}

// localMAC returns a locally administered unicast address.
func localMAC(first byte, seed string) openflow.MAC {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	x := h.Sum64()
	return openflow.MAC{first, byte(x >> 32), byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x)}
}

// Ready is Ready for the tables that the node is of.
func (n *Node) Ready() bool { return ready(n.Cfg, n.GW, n.TUN) }

func hostMAC(m openflow.MAC) host.MAC { return host.MAC(m) }

// Zones of conntrack: one where Services are translated, one where sources are.
func zoneMain(v6 bool) uint16 {
	if v6 {
		return 65510
	}
	return 65520
}

func zoneSNAT(v6 bool) uint16 { return zoneMain(v6) + 1 }

// Zones returns every conntrack zone that the pipeline uses for the families.
func Zones(families []bool) []uint16 {
	var z []uint16
	for _, v6 := range families {
		z = append(z, zoneMain(v6), zoneSNAT(v6))
	}
	return z
}

// ServiceZone returns the zone in which connections to Services are translated.
func ServiceZone(v6 bool) uint16 { return zoneMain(v6) }
