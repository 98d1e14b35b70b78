//go:build linux

package linux

import (
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CountRouteLists counts how often this package lists routes, until undo is called. It is to be called before the
// first Open.
func CountRouteLists() (count func() int64, undo func()) {
	was := listRoutes
	var n atomic.Int64
	listRoutes = func(family int, filter *netlink.Route, mask uint64) ([]netlink.Route, error) {
		n.Add(1)
		return was(family, filter, mask)
	}
	return n.Load, func() { listRoutes = was }
}

// WithoutIPv6 has this package take the kernel for one without IPv6, until the function that it returns is called.
func WithoutIPv6() (undo func()) {
	was := probeIPv6
	probeIPv6 = func() error { return unix.EAFNOSUPPORT }
	return func() { probeIPv6 = was }
}
