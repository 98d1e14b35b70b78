//go:build linux

package netns

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"towtank/e2e/peer"
	"towtank/scenarios"
	"towtank/sim/kube"
	"towtank/sim/packet"
)

// endpointHost is the machine that answers for the endpoints of Services without selector.
const endpointHost = "endpoints"

// endpointAddress returns the i-th address of such endpoints, in a part of the nodes' subnet that nothing else
// uses.
func endpointAddress(i int, v6 bool) netip.Addr {
	if v6 {
		b := netip.MustParseAddr("fd00:18::1:0").As16()
		b[13], b[14], b[15] = byte(1+i>>16), byte(i>>8), byte(i)
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte{172, 18, byte(128 + i>>8), byte(i)})
}

// maxEndpoints is how many addresses there are for endpoints.
const maxEndpoints = 32000

// SetEndpoints implements scenarios.Tank.
func (c *cluster) SetEndpoints(namespace, service string, count int, on []scenarios.Node) error {
	if count < 0 || c.given+count > maxEndpoints {
		return fmt.Errorf("endpoints of %s/%s: %d: there are %d addresses left", namespace, service, count, maxEndpoints-c.given)
	}
	o, err := objects{c}.Get(kube.KindService, namespace, service)
	if err != nil {
		return err
	}
	svc, _ := o.(*corev1.Service)
	if c.endpoints == nil {
		if c.endpoints, err = c.newExternal(endpointHost, nil, nil); err != nil {
			return fmt.Errorf("%w: %w", scenarios.ErrTank, err)
		}
	}
	var list []kube.SliceEndpoint
	var batch strings.Builder
	for i := range count {
		for _, f := range svc.Spec.IPFamilies {
			a := endpointAddress(c.given+i, f == corev1.IPv6Protocol)
			fmt.Fprintf(&batch, "addr add %s dev %s\n", netip.PrefixFrom(a, transportBits(a)), uplink)
			list = append(list, kube.SliceEndpoint{IP: a, Node: on[i%len(on)].Name()})
		}
	}
	if err := c.endpoints.space.feed(batch.String(), "ip", "-batch", "-"); err != nil {
		return fmt.Errorf("%w: %w", scenarios.ErrTank, err)
	}
	c.given += count
	for _, p := range svc.Spec.Ports {
		port := uint16(p.TargetPort.IntVal)
		if port == 0 {
			port = uint16(p.Port)
		}
		proto := strings.ToLower(string(p.Protocol))
		if proto == packet.ProtoName(packet.ProtoSCTP) {
			continue
		}
		if err := c.endpoints.space.peer.Serve(peer.Port{Proto: proto, Port: port, Name: endpointHost}); err != nil {
			return fmt.Errorf("%w: %w", scenarios.ErrTank, err)
		}
	}
	return c.do(func(k *kube.Cluster) error { return k.SetEndpoints(namespace, service, list) })
}
