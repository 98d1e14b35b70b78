package host

import (
	"fmt"
	"net/netip"
	"strconv"

	"towtank/datapath"
)

// Address is an IP address on a link.
type Address struct {
	Prefix netip.Prefix // address and length of its subnet, such as 10.10.1.1/24
	Link   string
	// Proto is the address protocol number (IFA_PROTO); ours is ProtoTowtank. 0 means ProtoTowtank.
	Proto uint8
	// NoPrefixRoute keeps the kernel from making a route to the subnet.
	NoPrefixRoute bool
	// Deprecated (preferred lifetime 0) keeps the node from choosing an IPv6 address as its own source.
	// Without it a /128 on the uplink wins over the node's address towards destinations that share
	// more bits with it (RFC 6724, rule 8).
	Deprecated bool
}

// NewAddress checks a.
func NewAddress(a Address) (Address, error) {
	if err := checkPrefix("address", a.Prefix); err != nil {
		return Address{}, err
	}
	ip := a.Prefix.Addr()
	if ip.IsUnspecified() || ip.IsMulticast() {
		return Address{}, fmt.Errorf("address %s: not a unicast address", a.Prefix)
	}
	if err := checkLinkName("link", a.Link); err != nil {
		return Address{}, fmt.Errorf("address %s: %w", a.Prefix, err)
	}
	if a.Deprecated && ip.Is4() {
		return Address{}, fmt.Errorf("address %s: preferred lifetime 0 means nothing to IPv4", a.Prefix)
	}
	if a.Proto == 0 {
		a.Proto = ProtoTowtank
	}
	return a, nil
}

// ParseAddress reads the text of an Address.
func ParseAddress(text string) (Address, error) {
	var a Address
	w := newWords(text)
	first := w.next()
	p, err := parsePrefix(first)
	if err != nil {
		return a, fmt.Errorf("address: %w", err)
	}
	a.Prefix = p
	for !w.done() {
		switch s := w.next(); s {
		case "dev":
			a.Link, err = w.value(s)
		case "proto":
			var n uint64
			n, err = w.number(s, 8)
			a.Proto = uint8(n)
		case "noprefixroute":
			a.NoPrefixRoute = true
		case "preferred_lft":
			var v string
			if v, err = w.value(s); err == nil && v != "0" {
				err = fmt.Errorf("preferred_lft %q: want 0 or nothing", v)
			}
			a.Deprecated = true
		default:
			err = w.unknown(s)
		}
		if err != nil {
			return Address{}, fmt.Errorf("address: %w", err)
		}
	}
	return NewAddress(a)
}

// Kind returns datapath.KindAddress.
func (Address) Kind() datapath.Kind { return datapath.KindAddress }

// Key is the address with its length, and the link.
func (a Address) Key() datapath.Key {
	return datapath.Key{Kind: datapath.KindAddress, Name: a.Prefix.String() + " dev " + a.Link}
}

// String returns the text, as "10.10.1.1/24 dev gw0 proto 116".
func (a Address) String() string {
	s := a.Prefix.String() + " dev " + a.Link + " proto " + strconv.Itoa(int(a.Proto))
	if a.NoPrefixRoute {
		s += " noprefixroute"
	}
	if a.Deprecated {
		s += " preferred_lft 0"
	}
	return s
}
