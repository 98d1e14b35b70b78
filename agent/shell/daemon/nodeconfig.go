//go:build linux

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"towtank/agent/config"
	"towtank/agent/edge"
	"towtank/agent/tables"
)

// nodeConfig waits until the Node has Pod CIDRs and addresses that are on the machine's links. Settings that are not
// allowed are not waited for.
func nodeConfig(ctx context.Context, o Options) (*config.Config, error) {
	if err := o.Settings.validate(); err != nil {
		return nil, err
	}
	for {
		node, err := o.Kube.CoreV1().Nodes().Get(ctx, o.Node, metav1.GetOptions{})
		if err == nil {
			var c *config.Config
			if c, err = configOf(o.Settings, node, func(ip netip.Addr) (place, error) { return find(o.Netns, ip) }); err == nil {
				return c, nil
			}
		} else if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return nil, err
		}
		o.Log.Error(err, "The node is not ready to be configured", "node", o.Node)
		if !wait(ctx) {
			return nil, err
		}
	}
}

// place is where an address is on the machine.
type place struct {
	subnet netip.Prefix // the address with its subnet
	link   string
	mtu    int // of the link, bytes
}

// configOf returns the configuration of a node. Its transport addresses are the first InternalIP of each family, as
// far as it is on the link of the first of all: that is the uplink.
func configOf(s *Settings, node *corev1.Node, find func(netip.Addr) (place, error)) (*config.Config, error) {
	c, err := s.config()
	if err != nil {
		return nil, err
	}
	c.NodeName = node.Name
	cidrs := node.Spec.PodCIDRs
	if len(cidrs) == 0 && node.Spec.PodCIDR != "" {
		cidrs = []string{node.Spec.PodCIDR}
	}
	if len(cidrs) == 0 {
		return nil, fmt.Errorf("node %s has no spec.podCIDRs", node.Name)
	}
	for _, s := range cidrs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("node %s: spec.podCIDRs: %w", node.Name, err)
		}
		c.PodCIDRs = append(c.PodCIDRs, p)
	}
	var missing []error
	for _, ip := range internalIPs(node) {
		to := &c.TransportV4
		if ip.Is6() {
			to = &c.TransportV6
		}
		if to.IsValid() {
			continue
		}
		at, err := find(ip)
		if err == nil && c.UplinkMTU != 0 && at.link != c.Uplink {
			err = fmt.Errorf("it is on %s, not on %s as the first", at.link, c.Uplink)
		}
		if err != nil {
			missing = append(missing, fmt.Errorf("node %s: InternalIP %s: %w", node.Name, ip, err))
			continue
		}
		*to, c.Uplink, c.UplinkMTU = at.subnet, at.link, at.mtu
	}
	for _, p := range c.PodCIDRs {
		// An address of the family may come a moment later than the other.
		if _, ok := c.Transport(p.Addr().Is6()); !ok && slices.ContainsFunc(internalIPs(node), func(ip netip.Addr) bool { return ip.Is6() == p.Addr().Is6() }) {
			return nil, errors.Join(missing...)
		}
	}
	c.Defaults()
	return c, c.Validate()
}

func internalIPs(node *corev1.Node) (ips []netip.Addr) {
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			ips = append(ips, ip)
		}
	}
	return ips
}

// find returns where an address is.
func find(ns string, ip netip.Addr) (place, error) {
	h, err := handle(ns)
	if err != nil {
		return place{}, err
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return place{}, fmt.Errorf("links: %w", err)
	}
	for _, l := range links {
		addrs, err := h.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return place{}, fmt.Errorf("addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range addrs {
			if x, ok := netip.AddrFromSlice(a.IP); ok && x.Unmap() == ip {
				ones, _ := a.Mask.Size()
				return place{netip.PrefixFrom(ip, ones), l.Attrs().Name, l.Attrs().MTU}, nil
			}
		}
	}
	return place{}, errors.New("no link of this machine has it")
}

// outdated says what of its own Node an agent was configured with is not so any more. Pods, routes, rules and the
// membership have it: the agent has to start anew. An event of something else, or a Node that has not got it yet, says
// nothing.
func outdated(c *config.Config, ev any) error {
	e, ok := ev.(edge.ObjectEvent)
	if !ok || e.Kind != edge.KindNode || e.Key != c.NodeName {
		return nil
	}
	node, ok := e.Object.(*corev1.Node)
	if !ok || node == nil {
		return nil
	}
	now := tables.NodePodCIDRs(node)
	var was []netip.Prefix
	for _, p := range c.PodCIDRs {
		was = append(was, p.Masked())
	}
	if len(now) > 0 && !slices.Equal(now, was) {
		return fmt.Errorf("node %s: spec.podCIDRs are %v now, and were %v: the agent starts anew", c.NodeName, now, was)
	}
	ips := internalIPs(node)
	for _, v6 := range []bool{false, true} {
		ip, ok := c.Transport(v6)
		family := func(a netip.Addr) bool { return a.Is6() == v6 }
		if ok && slices.ContainsFunc(ips, family) && !slices.Contains(ips, ip) {
			return fmt.Errorf("node %s: its InternalIPs are %v now, and not %s any more: the agent starts anew", c.NodeName, ips, ip)
		}
	}
	return nil
}
