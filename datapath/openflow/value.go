package openflow

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
)

// Value is an unsigned number of up to 128 bits: the content of a field, right-aligned.
type Value struct{ Hi, Lo uint64 }

// Num returns the value of a number.
func Num(n uint64) Value { return Value{Lo: n} }

// AddrValue returns the value of an IPv4 (32 bits) or IPv6 (128 bits) address; an invalid address
// gives 0.
func AddrValue(a netip.Addr) Value {
	switch {
	case a.Is4():
		b := a.As4()
		return Value{Lo: uint64(binary.BigEndian.Uint32(b[:]))}
	case a.Is6():
		b := a.As16()
		return Value{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
	}
	return Value{}
}

// MACValue returns the value of an Ethernet address (48 bits).
func MACValue(m MAC) Value {
	return Value{Lo: uint64(m[0])<<40 | uint64(m[1])<<32 | uint64(m[2])<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])}
}

// Addr4 returns the low 32 bits as an IPv4 address.
func (v Value) Addr4() netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(v.Lo))
	return netip.AddrFrom4(b)
}

// Addr6 returns the value as an IPv6 address.
func (v Value) Addr6() netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], v.Hi)
	binary.BigEndian.PutUint64(b[8:], v.Lo)
	return netip.AddrFrom16(b)
}

// MAC returns the low 48 bits as an Ethernet address.
func (v Value) MAC() MAC {
	return MAC{byte(v.Lo >> 40), byte(v.Lo >> 32), byte(v.Lo >> 24), byte(v.Lo >> 16), byte(v.Lo >> 8), byte(v.Lo)}
}

// And, Or and AndNot are the bitwise operations.
func (v Value) And(o Value) Value { return Value{v.Hi & o.Hi, v.Lo & o.Lo} }

// Or returns the union of the bits.
func (v Value) Or(o Value) Value { return Value{v.Hi | o.Hi, v.Lo | o.Lo} }

// AndNot clears the bits of o.
func (v Value) AndNot(o Value) Value { return Value{v.Hi &^ o.Hi, v.Lo &^ o.Lo} }

// IsZero reports whether no bit is set.
func (v Value) IsZero() bool { return v.Hi == 0 && v.Lo == 0 }

// Shl shifts left by n bits, n at most 128.
func (v Value) Shl(n uint) Value {
	if n >= 64 {
		return Value{v.Lo << (n - 64), 0}
	}
	if n == 0 {
		return v
	}
	return Value{v.Hi<<n | v.Lo>>(64-n), v.Lo << n}
}

// Shr shifts right by n bits, n at most 128.
func (v Value) Shr(n uint) Value {
	if n >= 64 {
		return Value{0, v.Hi >> (n - 64)}
	}
	if n == 0 {
		return v
	}
	return Value{v.Hi >> n, v.Lo>>n | v.Hi<<(64-n)}
}

// Ones returns a value of n set bits at the low end, n at most 128.
func Ones(n uint) Value {
	switch {
	case n >= 128:
		return Value{^uint64(0), ^uint64(0)}
	case n > 64:
		return Value{1<<(n-64) - 1, ^uint64(0)}
	case n == 64:
		return Value{0, ^uint64(0)}
	}
	return Value{0, 1<<n - 1}
}

// Len returns the number of bits that are needed for the value.
func (v Value) Len() int {
	if v.Hi != 0 {
		return 64 + bits.Len64(v.Hi)
	}
	return bits.Len64(v.Lo)
}

// prefixLen returns the length of a mask that is a prefix of width bits, or -1.
func (v Value) prefixLen(width uint) int {
	ones := bits.OnesCount64(v.Hi) + bits.OnesCount64(v.Lo)
	if v == Ones(width).AndNot(Ones(width-uint(ones))) {
		return ones
	}
	return -1
}

const hexDigits = "0123456789abcdef"

// appendHex appends 0x and the value without leading zeros.
func appendHex(b []byte, v Value) []byte {
	b = append(b, '0', 'x')
	if v.Hi == 0 {
		return strconv.AppendUint(b, v.Lo, 16)
	}
	b = strconv.AppendUint(b, v.Hi, 16)
	for s := 60; s >= 0; s -= 4 {
		b = append(b, hexDigits[v.Lo>>uint(s)&15])
	}
	return b
}

// appendAltHex appends the value as C's %#x does: zero has no prefix.
func appendAltHex(b []byte, v Value) []byte {
	if v.IsZero() {
		return append(b, '0')
	}
	return appendHex(b, v)
}

func appendMAC(b []byte, m MAC) []byte {
	for i, x := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, hexDigits[x>>4], hexDigits[x&15])
	}
	return b
}

// parseNum parses a decimal or 0x number of up to 128 bits.
func parseNum(s string) (Value, error) {
	if len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') {
		h := s[2:]
		for len(h) > 1 && h[0] == '0' {
			h = h[1:]
		}
		if len(h) > 32 {
			return Value{}, fmt.Errorf("%q: more than 128 bits", s)
		}
		var v Value
		var err error
		if len(h) > 16 {
			if v.Hi, err = strconv.ParseUint(h[:len(h)-16], 16, 64); err != nil {
				return Value{}, fmt.Errorf("%q is not a number", s)
			}
			h = h[len(h)-16:]
		}
		if v.Lo, err = strconv.ParseUint(h, 16, 64); err != nil {
			return Value{}, fmt.Errorf("%q is not a number", s)
		}
		return v, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return Value{}, fmt.Errorf("%q is not a number", s)
	}
	return Num(n), nil
}

// parseUint parses a number of at most width bits.
func parseUint(what, s string, width int) (uint64, error) {
	v, err := parseNum(s)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if v.Len() > width {
		return 0, fmt.Errorf("%s %s does not fit into %d bits", what, s, width)
	}
	return v.Lo, nil
}

// MAC is an Ethernet address.
type MAC [6]byte

// String returns the address in lower-case colon notation.
func (m MAC) String() string { return string(appendMAC(make([]byte, 0, 17), m)) }

// ParseMAC parses colon notation; a byte may have one digit.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	i, digits := 0, 0
	for k := 0; k < len(s); k++ {
		c := s[k]
		if c == ':' {
			if digits == 0 || i == 5 {
				return MAC{}, badMAC(s)
			}
			i, digits = i+1, 0
			continue
		}
		var d byte
		switch {
		case c >= '0' && c <= '9':
			d = c - '0'
		case c >= 'a' && c <= 'f':
			d = c - 'a' + 10
		case c >= 'A' && c <= 'F':
			d = c - 'A' + 10
		default:
			return MAC{}, badMAC(s)
		}
		if digits++; digits > 2 {
			return MAC{}, badMAC(s)
		}
		m[i] = m[i]<<4 | d
	}
	if i != 5 || digits == 0 {
		return MAC{}, badMAC(s)
	}
	return m, nil
}

func badMAC(s string) error {
	return fmt.Errorf("%q is not an Ethernet address such as 0a:00:00:00:00:01", s)
}
