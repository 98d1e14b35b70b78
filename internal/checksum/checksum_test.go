package checksum

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// The example of RFC 1071, section 3, and what a receiver checks: with the checksum in its place the sum is 0.
func TestSum(t *testing.T) {
	if got := Sum(0).Add([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}).Fold(); got != ^uint16(0xddf2) {
		t.Errorf("got %#x, want %#x", got, ^uint16(0xddf2))
	}
	src, dst := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	body := []byte{128, 0, 0, 0, 0, 7, 0, 1, 'o', 'd', 'd'}
	binary.BigEndian.PutUint16(body[2:], Pseudo(src, dst, 58, len(body)).Add(body).Fold())
	if got := Pseudo(src, dst, 58, len(body)).Add(body).Fold(); got != 0 {
		t.Errorf("with its checksum the sum is %#x, want 0", got)
	}
}
