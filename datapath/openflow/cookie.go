package openflow

// MaxCookieKind is the highest kind of unit that Cookie takes.
const MaxCookieKind = 7

// OurCookie reports whether a flow with the cookie is ours: its uppermost 8 bits are the kind of the unit
// that made it, 1 to MaxCookieKind. Everybody else's flows have 0 there, but for those of somebody who draws
// all 64 bits.
func OurCookie(cookie uint64) bool {
	kind := cookie >> 56
	return kind >= 1 && kind <= MaxCookieKind
}
