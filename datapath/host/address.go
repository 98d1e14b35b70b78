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
		default:
			err = w.unknown(s)
		}
		if err != nil {
			return Address{}, fmt.Errorf("address: %w", err)
		}
	}
	return NewAddress(a)
}

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
	return s
}
