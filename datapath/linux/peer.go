//go:build linux

package linux

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"towtank/datapath"
	"towtank/datapath/host"
)

// configurePeer makes the container's side as the object says, in the namespace of the thread: addresses
// and default routes, and nothing else.
func configurePeer(p host.Peer) error {
	l, err := netlink.LinkByName(p.Name)
	if err != nil {
		return fmt.Errorf("%s in %s: %w", p.Name, p.Netns, err)
	}
	if p.MAC != (host.MAC{}) && host.MAC(l.Attrs().HardwareAddr) != p.MAC {
		if err := netlink.LinkSetHardwareAddr(l, p.MAC[:]); err != nil {
			return err
		}
	}
	if l.Attrs().MTU != p.MTU {
		if err := netlink.LinkSetMTU(l, p.MTU); err != nil {
			return err
		}
	}
	if err := setTxOffload(p.Name, p.TxOffload); err != nil {
		return err
	}
	if lo, err := netlink.LinkByName("lo"); err == nil {
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	have, err := peerAddresses(l)
	if err != nil {
		return err
	}
	for _, a := range have {
		if !slices.Contains(p.Addresses, prefixOf(a.IPNet)) {
			if err := netlink.AddrDel(l, &a); err != nil {
				return err
			}
		}
	}
	for _, a := range p.Addresses {
		na := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			na.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrReplace(l, na); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	for _, gw := range p.Gateways {
		r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(defaultOf(gw)), Gw: gw.AsSlice(), Protocol: unix.RTPROT_BOOT}
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("default route via %s: %w", gw, err)
		}
	}
	return nil
}

func defaultOf(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// peerAddresses returns a link's addresses, less the link-local ones that the kernel makes.
func peerAddresses(l netlink.Link) ([]netlink.Addr, error) {
	list, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", l.Attrs().Name, err)
	}
	return slices.DeleteFunc(list, func(a netlink.Addr) bool {
		return a.IP.To4() == nil && a.IP.IsLinkLocalUnicast()
	}), nil
}

// txFeature is what ethtool calls transmit checksum offload.
const txFeature = "tx-checksumming:"

func txOffload(link string) (bool, error) {
	text, err := command("", "ethtool", "-k", link)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), txFeature); ok {
			return strings.HasPrefix(strings.TrimSpace(v), "on"), nil
		}
	}
	return false, fmt.Errorf("ethtool -k %s: no %q", link, txFeature)
}

func setTxOffload(link string, on bool) error {
	have, err := txOffload(link)
	if err != nil || have == on {
		return err
	}
	v := "off"
	if on {
		v = "on"
	}
	_, err = command("", "ethtool", "-K", link, "tx", v)
	return err
}

// Check implements datapath.Host.
func (h *Host) Check(o datapath.Object, done func(error)) {
	h.do(func() {
		err := h.check(o)
		h.cfg.Post(func() { done(err) })
	})
}

func (h *Host) check(o datapath.Object) error {
	objects, err := h.dump()
	if err != nil {
		return fmt.Errorf("check %s: %w", o, err)
	}
	i := slices.IndexFunc(objects, func(have datapath.Object) bool { return have.Key() == o.Key() })
	if i < 0 {
		return fmt.Errorf("check %s: not there", o)
	}
	have := objects[i]
	want, isLink := o.(host.Link)
	if l, ok := have.(host.Link); ok && isLink && want.MAC == (host.MAC{}) {
		l.MAC = host.MAC{}
		have = l
	}
	if have.String() != o.String() {
		return fmt.Errorf("check %s: found %s", o, have)
	}
	if !isLink || want.Peer == "" {
		return nil
	}
	peer, err := host.ParsePeer(want.Peer)
	if err != nil {
		return fmt.Errorf("check link %s: %w", want.Name, err)
	}
	l, err := netlink.LinkByName(want.Name)
	if err != nil {
		return fmt.Errorf("check link %s: %w", want.Name, err)
	}
	if err := h.checkPair(l, peer); err != nil {
		return fmt.Errorf("check link %s: %w", want.Name, err)
	}
	return h.within(peer.Netns, func() error { return checkPeer(peer) })
}

// checkPeer returns every difference of the container's side, in the namespace of the thread.
func checkPeer(want host.Peer) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("check %s in %s: %w", want.Name, want.Netns, fmt.Errorf(format, args...)))
	}
	l, err := netlink.LinkByName(want.Name)
	if err != nil {
		bad("%w", err)
		return errors.Join(errs...)
	}
	a := l.Attrs()
	if a.Flags&net.FlagUp == 0 {
		bad("down")
	}
	if want.MAC != (host.MAC{}) && host.MAC(a.HardwareAddr) != want.MAC {
		bad("MAC: want %s, found %s", want.MAC, a.HardwareAddr)
	}
	if want.MTU != a.MTU {
		bad("MTU: want %d, found %d", want.MTU, a.MTU)
	}
	if tx, err := txOffload(want.Name); err != nil {
		bad("%w", err)
	} else if tx != want.TxOffload {
		bad("transmit checksum offload: want %t, found %t", want.TxOffload, tx)
	}
	have, err := peerAddresses(l)
	if err != nil {
		bad("%w", err)
	}
	for _, p := range want.Addresses {
		if !slices.ContainsFunc(have, func(a netlink.Addr) bool { return prefixOf(a.IPNet) == p }) {
			bad("address %s: not there", p)
		}
	}
	for _, gw := range want.Gateways {
		all, err := routes(family(gw), map[int]string{a.Index: a.Name})
		if err != nil {
			bad("%w", err)
		}
		if !slices.ContainsFunc(all, func(r host.Route) bool { return r.Dst == defaultOf(gw) && r.Dev == a.Name && r.Via == gw }) {
			bad("default route via %s: not there", gw)
		}
	}
	return errors.Join(errs...)
}
