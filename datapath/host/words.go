package host

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ProtoTowtank is the protocol number of our addresses, neighbours, routes and policy rules
// (rtnetlink's RTPROT_*). It is one that rtnetlink.h and rt_protos give to nobody; routing daemons
// sweep the numbers they know (186 to 197) when they start.
const ProtoTowtank = 116

// words reads a text word by word.
type words struct {
	text string
	w    []string
}

func newWords(text string) *words { return &words{text, strings.Fields(text)} }

func (w *words) done() bool { return len(w.w) == 0 }

// next returns the next word, "" at the end.
func (w *words) next() string {
	if len(w.w) == 0 {
		return ""
	}
	s := w.w[0]
	w.w = w.w[1:]
	return s
}

// accept consumes the next word if it is s.
func (w *words) accept(s string) bool {
	if len(w.w) > 0 && w.w[0] == s {
		w.w = w.w[1:]
		return true
	}
	return false
}

// value returns the word after an option.
func (w *words) value(option string) (string, error) {
	if len(w.w) == 0 {
		return "", fmt.Errorf("%q: nothing after %s", w.text, option)
	}
	return w.next(), nil
}

func (w *words) number(option string, bits int) (uint64, error) {
	s, err := w.value(option)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		return 0, fmt.Errorf("%q: %s %q: want a number of %d bits", w.text, option, s, bits)
	}
	return n, nil
}

func (w *words) addr(option string) (netip.Addr, error) {
	s, err := w.value(option)
	if err != nil {
		return netip.Addr{}, err
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, fmt.Errorf("%q: %s %q: want an IP address", w.text, option, s)
	}
	return a, nil
}

func (w *words) unknown(word string) error {
	return fmt.Errorf("%q: unknown word %q", w.text, word)
}

// parsePrefix reads 10.0.0.0/8 or a bare address, which is a prefix of full length.
func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("prefix %q: want ADDRESS or ADDRESS/LENGTH", s)
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("prefix %q: want ADDRESS or ADDRESS/LENGTH", s)
	}
	return p, nil
}

// formatPrefix prints a prefix as ip and ipset do: a full-length one without its length.
func formatPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func checkAddr(what string, a netip.Addr) error {
	switch {
	case !a.IsValid():
		return fmt.Errorf("%s: no address", what)
	case a.Zone() != "":
		return fmt.Errorf("%s %s: addresses have no zone here", what, a)
	case a.Is4In6():
		return fmt.Errorf("%s %s: an IPv4 address in IPv6 form; write %s", what, a, a.Unmap())
	}
	return nil
}

func checkPrefix(what string, p netip.Prefix) error {
	if !p.IsValid() {
		return fmt.Errorf("%s: no valid prefix", what)
	}
	return checkAddr(what, p.Addr())
}

// maxLinkName is IFNAMSIZ-1 of linux/if.h.
const maxLinkName = 15

func checkLinkName(what, name string) error {
	if name == "" || len(name) > maxLinkName || name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n") {
		return fmt.Errorf("%s %q: want 1 to %d bytes without '/', ':' and space", what, name, maxLinkName)
	}
	return nil
}

func checkWord(what, s string, limit int) error {
	if s == "" || len(s) > limit {
		return fmt.Errorf("%s %q: want 1 to %d bytes", what, s, limit)
	}
	for _, r := range s {
		if r <= ' ' || r > '~' {
			return fmt.Errorf("%s %q: want printable ASCII without spaces", what, s)
		}
	}
	return nil
}

// Family is an IP family, 4 or 6.
type Family uint8

// The families.
const (
	V4 Family = 4
	V6 Family = 6
)

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return V4
	}
	return V6
}

// String returns v4 or v6.
func (f Family) String() string { return "v" + strconv.Itoa(int(f)) }

// MAC is an Ethernet address.
type MAC [6]byte

// String returns the address in colon notation.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// ParseMAC parses colon notation, lower or upper case.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) == 17 {
		if n, err := fmt.Sscanf(s, "%02x:%02x:%02x:%02x:%02x:%02x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]); n == 6 && err == nil {
			return m, nil
		}
	}
	return m, fmt.Errorf("MAC address %q: want six hexadecimal bytes as 0a:00:00:00:00:01", s)
}
