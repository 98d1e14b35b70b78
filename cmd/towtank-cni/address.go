package main

import (
	"fmt"
	"net"
	"net/netip"
)

// prefixOf converts an address with its mask.
func prefixOf(n net.IPNet) (netip.Prefix, error) {
	ip, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, fmt.Errorf("%s is not an address with a length", n.String())
	}
	return netip.PrefixFrom(ip.Unmap(), ones), nil
}
