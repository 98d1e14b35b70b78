package pods

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"towtank/agent/edge"
	"towtank/agent/pipeline"
	"towtank/datapath"
	"towtank/datapath/openflow"
)

// Back-off of flushes that fail.
const (
	forgetRetryMin = time.Second
	forgetRetryMax = time.Minute
)

// forget has switch and kernel forget the connections of addresses that nobody has any more: the next
// Pod with one of them must not be taken for the last. What was not flushed is flushed later: done does not
// wait for that, as the runtime has no use for an address that does not come back.
func (p *Pods) forget(ips []netip.Prefix, done func()) { p.forgetAfter(ips, 0, done) }

func (p *Pods) forgetAfter(ips []netip.Prefix, last time.Duration, done func()) {
	var kernel, zones []datapath.Tuple
	for _, ip := range ips {
		v6 := ip.Addr().Is6()
		protos := []uint8{openflow.ProtoTCP, openflow.ProtoUDP, openflow.ProtoSCTP, openflow.ProtoICMP}
		if v6 {
			protos[3] = openflow.ProtoICMPv6
		}
		for _, proto := range protos {
			kernel = append(kernel, datapath.Tuple{Proto: proto, Source: ip.Addr()})
			for _, zone := range pipeline.Zones([]bool{v6}) {
				zones = append(zones, datapath.Tuple{Zone: zone, Proto: proto, Source: ip.Addr()})
			}
		}
	}
	if len(kernel) == 0 {
		done()
		return
	}
	p.env.Switch.FlushConntrack(zones, func(ofSwitch error) {
		p.env.Host.FlushConntrack(kernel, func(ofKernel error) {
			if err := errors.Join(ofSwitch, ofKernel); err != nil {
				delay := min(max(2*last, forgetRetryMin), forgetRetryMax)
				p.env.Log.Error(err, "Connections of a removed Pod were not flushed", "retry", delay)
				p.env.Clock.AfterFunc(delay, edge.Work, func() { p.forgetAfter(p.unused(ips), delay, func() {}) })
			}
			done()
		})
	})
}

// unused returns the addresses that no sandbox has: the connections of one that came back are those of another Pod.
func (p *Pods) unused(ips []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(ips), func(ip netip.Prefix) bool {
		for _, s := range p.env.Sandboxes {
			if slices.ContainsFunc(s.IPs, func(o netip.Prefix) bool { return o.Addr() == ip.Addr() }) {
				return true
			}
		}
		return false
	})
}
