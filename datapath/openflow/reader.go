package openflow

import "fmt"

// reader takes numbers off the front of a message. After the first one that is missing, it gives zeros and
// keeps the error.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.b = nil
}

// take returns the next n bytes, nil if there are not as many.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail("%d more bytes are needed, %d are there", n, len(r.b))
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) uint(n int) uint64 {
	var v uint64
	for _, x := range r.take(n) {
		v = v<<8 | uint64(x)
	}
	return v
}

func (r *reader) u8() uint8   { return uint8(r.uint(1)) }
func (r *reader) u16() uint16 { return uint16(r.uint(2)) }
func (r *reader) u32() uint32 { return uint32(r.uint(4)) }
func (r *reader) u64() uint64 { return r.uint(8) }

// value reads n bytes, at most 16.
func (r *reader) value(n int) Value {
	if n > 8 {
		hi := r.uint(n - 8)
		return Value{hi, r.uint(8)}
	}
	return Num(r.uint(n))
}

// part returns a reader of the next n bytes, of which the caller has read those before.
func (r *reader) part(n int) reader {
	b := r.take(n)
	return reader{b: b, err: r.err}
}

// property reads a property or action: type, length, body. Padding to 8 bytes is skipped if pad is set, and
// may be missing at the end.
func (r *reader) property(pad bool) (kind uint16, body reader) {
	if len(r.b) < 4 {
		r.fail("%d bytes are left, a property has 4 or more", len(r.b))
		return 0, reader{err: r.err}
	}
	kind = be.Uint16(r.b)
	n := int(be.Uint16(r.b[2:]))
	if n < 4 || n > len(r.b) {
		r.fail("a property of type %#x has length %d, %d bytes are left", kind, n, len(r.b))
		return 0, reader{err: r.err}
	}
	b := r.take(n)
	if pad {
		r.take(min(pad8(n)-n, len(r.b)))
	}
	return kind, reader{b: b[4:]}
}
