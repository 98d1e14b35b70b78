// Package checksum is the Internet checksum (RFC 1071).
package checksum

import "net/netip"

// Sum is the sum of 16-bit words so far.
type Sum uint32

// Pseudo begins with the pseudo header of TCP, UDP and ICMPv6 (RFC 9293, section 3.1; RFC 8200, section 8.1); length is
// that of the header and the data after it, at most 65,535 bytes.
func Pseudo(src, dst netip.Addr, proto uint8, length int) Sum {
	return Sum(proto).Add(src.AsSlice()).Add(dst.AsSlice()) + Sum(length)
}

// Add adds bytes. An odd number of them may come last only.
func (s Sum) Add(b []byte) Sum {
	for ; len(b) >= 2; b = b[2:] {
		s += Sum(b[0])<<8 | Sum(b[1])
	}
	if len(b) == 1 {
		s += Sum(b[0]) << 8
	}
	return s
}

// Fold returns the checksum.
func (s Sum) Fold() uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}
