package host

import (
	"fmt"
	"net/netip"
	"strconv"

	"towtank/datapath"
)

// Neighbour is a permanent neighbour entry, or with Proxy an address that the node answers
// neighbour requests for.
type Neighbour struct {
	IP    netip.Addr
	Link  string
	MAC   MAC // none with Proxy
	Proxy bool
	Proto uint8 // 0 means ProtoTowtank
}

// NewNeighbour checks n.
func NewNeighbour(n Neighbour) (Neighbour, error) {
	if err := checkAddr("neighbour", n.IP); err != nil {
		return Neighbour{}, err
	}
	if err := checkLinkName("link", n.Link); err != nil {
		return Neighbour{}, fmt.Errorf("neighbour %s: %w", n.IP, err)
	}
	if n.Proxy != (n.MAC == MAC{}) {
		return Neighbour{}, fmt.Errorf("neighbour %s: want a MAC, or proxy and none; found %s, proxy %t", n.IP, n.MAC, n.Proxy)
	}
	if n.Proto == 0 {
		n.Proto = ProtoTowtank
	}
	return n, nil
}

// ParseNeighbour reads the text of a Neighbour.
func ParseNeighbour(text string) (Neighbour, error) {
	var n Neighbour
	w := newWords(text)
	n.Proxy = w.accept("proxy")
	var err error
	if n.IP, err = w.addr("neighbour"); err != nil {
		return n, err
	}
	for !w.done() {
		var v string
		switch s := w.next(); s {
		case "dev":
			n.Link, err = w.value(s)
		case "lladdr":
			if v, err = w.value(s); err == nil {
				n.MAC, err = ParseMAC(v)
			}
		case "nud":
			if v, err = w.value(s); err == nil && v != "permanent" {
				err = fmt.Errorf("nud %q: want permanent", v)
			}
		case "proto":
			var p uint64
			p, err = w.number(s, 8)
			n.Proto = uint8(p)
		default:
			err = w.unknown(s)
		}
		if err != nil {
			return Neighbour{}, fmt.Errorf("neighbour: %w", err)
		}
	}
	return NewNeighbour(n)
}

// Kind returns datapath.KindNeighbour.
func (Neighbour) Kind() datapath.Kind { return datapath.KindNeighbour }

// Key is the address and the link.
func (n Neighbour) Key() datapath.Key {
	name := n.IP.String() + " dev " + n.Link
	if n.Proxy {
		name = "proxy " + name
	}
	return datapath.Key{Kind: datapath.KindNeighbour, Name: name}
}

// String returns the text that `ip neigh replace` takes.
func (n Neighbour) String() string {
	proto := " proto " + strconv.Itoa(int(n.Proto))
	if n.Proxy {
		return "proxy " + n.IP.String() + " dev " + n.Link + proto
	}
	return n.IP.String() + " dev " + n.Link + " lladdr " + n.MAC.String() + " nud permanent" + proto
}
