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

// The endpoints' machine has an address of each family through which the nodes reach all others: the kernel's table
// of neighbours, which all namespaces share, has room for a thousand.
var (
	endpointVia4, endpointNet4 = netip.MustParseAddr("172.18.127.254"), netip.MustParsePrefix("172.18.128.0/17")
	endpointVia6, endpointNet6 = netip.MustParseAddr("fd00:18::ffff"), netip.MustParsePrefix("fd00:18::1:0/112")
)

// startEndpoints makes the endpoints' machine, and the routes to it.
func (c *cluster) startEndpoints() (err error) {
	var addrs []netip.Addr
	var routes []string
	for _, v6 := range c.families() {
		via, net := endpointVia4, endpointNet4
		if v6 {
			via, net = endpointVia6, endpointNet6
		}
		addrs = append(addrs, via)
		routes = append(routes, fmt.Sprintf("route replace %s via %s dev %s", net.Masked(), via, uplink))
	}
	if c.endpoints, err = c.newExternal(endpointHost, addrs, nil); err != nil {
		return err
	}
	text := strings.Join(routes, "\n") + "\n"
	for _, m := range c.machines {
		if s := m.netns(); s != nil {
			if err := s.feed(text, "ip", "-batch", "-"); err != nil {
				return err
			}
			m.forgetForeign()
		}
	}
	for _, x := range c.externals {
		if err := x.space.feed(text, "ip", "-batch", "-"); err != nil {
			return err
		}
	}
	return nil
}

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
		if err := c.startEndpoints(); err != nil {
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
