//go:build linux

package linux

import "golang.org/x/sys/unix"

// WithoutIPv6 has this package take the kernel for one without IPv6, until the function that it returns is called.
func WithoutIPv6() (undo func()) {
	was := probeIPv6
	probeIPv6 = func() error { return unix.EAFNOSUPPORT }
	return func() { probeIPv6 = was }
}
