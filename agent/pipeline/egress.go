package pipeline

import (
	"net/netip"

	"towtank/datapath"
	"towtank/datapath/host"
	of "towtank/datapath/openflow"
)

// EgressIP adds the flows of an Egress IP that this node holds: what arrives by tunnel for it gets
// its mark.
func (n *Node) EgressIP(l *List, unit string, ip netip.Addr, mark uint8) {
	if !n.Cfg.HasTunnel() {
		return
	}
	tun := of.TunDst
	if ip.Is6() {
		tun = of.TunIPv6Dst
	}
	flow(l, Cookie(CookieEgressIP, unit), TableEgressMark, 200,
		terms(of.IPFamily(ip.Is6()), tun.IsAddr(ip), regSource.Is(fromTunnel)), n.marked(mark)...)
}

// EgressMeter adds the rate limit of an Egress IP; rate in kbit/s, burst in kbit.
func (n *Node) EgressMeter(l *List, unit string, mark uint8, rate, burst uint32) {
	m, err := of.NewMeter(of.Meter{ID: uint32(mark), Burst: burst > 0, Rate: rate, BurstSize: burst})
	Add(l, m, err)
	flow(l, Cookie(CookieEgressIP, unit), TableEgressQoS, 200, terms(regMark.Is(uint64(mark))), of.ToMeter(uint32(mark)), of.Goto(TableL2Forwarding))
}

// marked returns the actions that send a packet to the host with a mark.
func (n *Node) marked(mark uint8) []of.Action {
	a := []of.Action{regMark.Set(uint64(mark)), regDest.Set(toGateway)}
	if n.Carrier {
		a = append(a, of.EthSrc.SetMAC(CarrierMAC(mark)), regCarrier.Set(1))
	} else {
		a = append(a, of.PktMark.Range(0, 7).Set(uint64(mark)))
	}
	return append(a, of.Goto(TableEgressQoS))
}

// PodEgressLocal has a Pod's traffic leave from this node with the mark of its Egress IP.
func (n *Node) PodEgressLocal(l *List, unit string, ofport uint32, v6 bool, mark uint8) {
	flow(l, Cookie(CookiePodEgress, unit), TableEgressMark, 200, terms(of.IPFamily(v6), of.InPortIs(ofport)), n.marked(mark)...)
}

// PodEgressRemote has a Pod's traffic leave from the node that holds its Egress IP. The outer
// destination is the Egress IP itself, so that it need not be known which node that is.
func (n *Node) PodEgressRemote(l *List, unit string, ofport uint32, ip netip.Addr) {
	flow(l, Cookie(CookiePodEgress, unit), TableEgressMark, 200, terms(of.IPFamily(ip.Is6()), of.InPortIs(ofport)),
		append(n.toTunnel(ip), of.Goto(TableL2Forwarding))...)
}

// PodEgressUnknown drops what leaves the cluster until the Pod's Egress is known. It gives way to what the
// Egress then says.
func (n *Node) PodEgressUnknown(l *List, unit string, ofport uint32, v6 bool) {
	flow(l, Cookie(CookieSandbox, unit), TableEgressMark, 195, terms(of.IPFamily(v6), of.InPortIs(ofport)))
}

// PodEgressNone drops what leaves the cluster: the Pod has an Egress IP that cannot be used now, and
// must not leave with another address.
func (n *Node) PodEgressNone(l *List, unit string, ofport uint32, v6 bool) {
	flow(l, Cookie(CookiePodEgress, unit), TableEgressMark, 200, terms(of.IPFamily(v6), of.InPortIs(ofport)))
}

// MarkOf returns the mark of an Egress IP that an object sets or acts on.
func MarkOf(o datapath.Object) (mark uint8, ok bool) {
	switch t := o.(type) {
	case host.IPTables:
		_, mark, ok = EgressMarkOf(t)
	case host.Rule:
		mark, ok = uint8(t.FwMark), t.FwMask == MarkMask
	case *of.Meter:
		mark, ok = uint8(t.ID), t.ID <= MarkMask
	case *of.Flow:
		for _, a := range t.Actions() {
			if set, isSet := a.(of.SetFieldAction); isSet && set.Field == regMark.Field {
				return uint8(set.Value.Lo), true
			}
		}
	}
	return mark, ok
}
