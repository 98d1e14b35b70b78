package host

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Peer is the container's side of a veth: what Apply makes inside the network namespace and Check
// verifies there. A Link carries it as text, so that Link stays comparable.
type Peer struct {
	Netns     string         // path (or, in the simulator, name) of the network namespace
	Name      string         // interface name in the container, such as eth0
	MAC       MAC            // zero: the kernel draws one
	MTU       int            // bytes, 68 to 65535
	Addresses []netip.Prefix // at most one of each family; v4 first
	Gateways  []netip.Addr   // next hop of the default route, at most one of each family; v4 first
	// TxOffload leaves transmit checksum offload on. It must be off towards a userspace OVS: packets
	// without a checksum are +inv there.
	TxOffload bool
}

// NewPeer checks p and orders addresses and gateways by family.
func NewPeer(p Peer) (Peer, error) {
	bad := func(err error) (Peer, error) {
		return Peer{}, fmt.Errorf("peer %s in %s: %w", p.Name, p.Netns, err)
	}
	if err := checkWord("network namespace", p.Netns, 4096); err != nil {
		return bad(err)
	}
	if err := checkLinkName("name", p.Name); err != nil {
		return bad(err)
	}
	if p.MTU < 68 || p.MTU > 65535 {
		return bad(fmt.Errorf("MTU %d: want 68 to 65535", p.MTU))
	}
	if p.MAC[0]&1 == 1 {
		return bad(fmt.Errorf("MAC %s: a group address", p.MAC))
	}
	var addrs [2]netip.Prefix
	for _, a := range p.Addresses {
		if err := checkPrefix("address", a); err != nil {
			return bad(err)
		}
		i := familyIndex(a.Addr())
		if addrs[i].IsValid() {
			return bad(fmt.Errorf("addresses %s and %s: want one of each family", addrs[i], a))
		}
		addrs[i] = a
	}
	var gws [2]netip.Addr
	for _, g := range p.Gateways {
		if err := checkAddr("gateway", g); err != nil {
			return bad(err)
		}
		i := familyIndex(g)
		switch {
		case gws[i].IsValid():
			return bad(fmt.Errorf("gateways %s and %s: want one of each family", gws[i], g))
		case !addrs[i].IsValid():
			return bad(fmt.Errorf("gateway %s: no address of its family", g))
		}
		gws[i] = g
	}
	p.Addresses, p.Gateways = nil, nil
	for i := range 2 {
		if addrs[i].IsValid() {
			p.Addresses = append(p.Addresses, addrs[i])
		}
		if gws[i].IsValid() {
			p.Gateways = append(p.Gateways, gws[i])
		}
	}
	return p, nil
}

func familyIndex(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// String returns the text that a Link's Peer holds:
// "netns /run/netns/c1 dev eth0 address 0a:… mtu 1450 addr 10.10.1.2/24 via 10.10.1.1 tx off".
func (p Peer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "netns %s dev %s", p.Netns, p.Name)
	if p.MAC != (MAC{}) {
		b.WriteString(" address " + p.MAC.String())
	}
	b.WriteString(" mtu " + strconv.Itoa(p.MTU))
	for _, a := range p.Addresses {
		b.WriteString(" addr " + a.String())
	}
	for _, g := range p.Gateways {
		b.WriteString(" via " + g.String())
	}
	if p.TxOffload {
		b.WriteString(" tx on")
	} else {
		b.WriteString(" tx off")
	}
	return b.String()
}

// ParsePeer reads what String returned.
func ParsePeer(text string) (Peer, error) {
	var p Peer
	w := newWords(text)
	for !w.done() {
		var err error
		switch s := w.next(); s {
		case "netns":
			p.Netns, err = w.value(s)
		case "dev":
			p.Name, err = w.value(s)
		case "address":
			var m string
			if m, err = w.value(s); err == nil {
				p.MAC, err = ParseMAC(m)
			}
		case "mtu":
			var n uint64
			n, err = w.number(s, 31)
			p.MTU = int(n)
		case "addr":
			var v string
			if v, err = w.value(s); err == nil {
				var a netip.Prefix
				a, err = parsePrefix(v)
				p.Addresses = append(p.Addresses, a)
			}
		case "via":
			var g netip.Addr
			g, err = w.addr(s)
			p.Gateways = append(p.Gateways, g)
		case "tx":
			var v string
			if v, err = w.value(s); err == nil && v != "on" && v != "off" {
				err = fmt.Errorf("tx %q: want on or off", v)
			}
			p.TxOffload = v == "on"
		default:
			err = w.unknown(s)
		}
		if err != nil {
			return Peer{}, fmt.Errorf("peer: %w", err)
		}
	}
	return NewPeer(p)
}
