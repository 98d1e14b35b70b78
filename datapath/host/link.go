package host

import (
	"fmt"
	"strconv"
	"strings"

	"towtank/datapath"
)

// AliasPrefix begins the alias of every link that is ours.
const AliasPrefix = "towtank:"

// LinkType says what a link is.
type LinkType string

// The link types.
const (
	LinkVeth   LinkType = "veth"   // a pair; the other end is in a container (Peer)
	LinkBridge LinkType = "bridge" // without ports: holds Egress IPs where dummy is missing
	LinkDummy  LinkType = "dummy"  // holds Egress IPs
	LinkVLAN   LinkType = "vlan"   // VLANID on Parent
	// LinkDevice is a link that somebody else makes (an uplink, the gateway port of OVS): applying it
	// sets MTU, alias, state and guard; it is refused while the device is missing. Deleting it takes
	// alias and guard away and leaves the device.
	LinkDevice LinkType = "device"
)

// Link is a network device of the node. For a veth it also says what the container's side is like;
// that side cannot be dumped, so it is outside the text and verified by Host.Check.
type Link struct {
	Name string // 1 to 15 bytes
	Type LinkType
	// MTU in bytes, 68 to 65535 (RFC 791, and ETH_MAX_MTU).
	MTU int
	// MAC of this side; zero: the kernel draws one, and the text has none (addr_assign_type tells). Of a
	// device: the backend remembers whether we set it, as it does for sysctls.
	MAC    MAC
	VLANID uint16 // 1 to 4094, of a vlan
	Parent string // link that carries a vlan
	Down   bool   // administratively down; an address on such a link is still local to the node
	// Alias is AliasPrefix and the owner, at most 255 bytes without spaces.
	Alias string
	// Guard drops what the link receives before the node's own IP stack sees it (nftables, family
	// netdev, hook ingress): for devices attached to a userspace OVS, which reads them first.
	Guard bool
	// Peer is the text of the container's side of a veth, see Peer.String; "" if it is not known.
	Peer string
}

// NewLink normalises and checks l. A Peer, if any, must be a text that Peer.String returned.
func NewLink(l Link) (Link, error) {
	bad := func(err error) (Link, error) { return Link{}, fmt.Errorf("link %s: %w", l.Name, err) }
	if err := checkLinkName("name", l.Name); err != nil {
		return bad(err)
	}
	switch l.Type {
	case LinkVeth, LinkBridge, LinkDummy, LinkDevice:
		if l.VLANID != 0 || l.Parent != "" {
			return bad(fmt.Errorf("VLAN id and parent belong to type vlan, found type %s", l.Type))
		}
	case LinkVLAN:
		if l.VLANID < 1 || l.VLANID > 4094 {
			return bad(fmt.Errorf("VLAN id %d: want 1 to 4094", l.VLANID))
		}
		if err := checkLinkName("parent", l.Parent); err != nil {
			return bad(err)
		}
	default:
		return bad(fmt.Errorf("type %q: want veth, bridge, dummy, vlan or device", l.Type))
	}
	if l.MTU < 68 || l.MTU > 65535 {
		return bad(fmt.Errorf("MTU %d: want 68 to 65535", l.MTU))
	}
	if l.MAC[0]&1 == 1 {
		return bad(fmt.Errorf("MAC %s: a group address", l.MAC))
	}
	if !strings.HasPrefix(l.Alias, AliasPrefix) {
		return bad(fmt.Errorf("alias %q: want %sOWNER", l.Alias, AliasPrefix))
	}
	if err := checkWord("alias", l.Alias, 255); err != nil {
		return bad(err)
	}
	if l.Peer != "" {
		if l.Type != LinkVeth {
			return bad(fmt.Errorf("type %s has no peer", l.Type))
		}
		p, err := ParsePeer(l.Peer)
		if err != nil {
			return bad(err)
		}
		l.Peer = p.String()
	}
	return l, nil
}

// ParseLink reads the text of a Link.
func ParseLink(text string) (Link, error) {
	var l Link
	w := newWords(text)
	for !w.done() {
		var err error
		var n uint64
		switch s := w.next(); s {
		case "dev":
			l.Name, err = w.value(s)
		case "type":
			var t string
			t, err = w.value(s)
			l.Type = LinkType(t)
		case "mtu":
			n, err = w.number(s, 31)
			l.MTU = int(n)
		case "address":
			var m string
			if m, err = w.value(s); err == nil {
				l.MAC, err = ParseMAC(m)
			}
		case "id":
			n, err = w.number(s, 16)
			l.VLANID = uint16(n)
		case "link":
			l.Parent, err = w.value(s)
		case "up":
		case "down":
			l.Down = true
		case "alias":
			l.Alias, err = w.value(s)
		case "guard":
			l.Guard = true
		default:
			err = w.unknown(s)
		}
		if err != nil {
			return Link{}, fmt.Errorf("link: %w", err)
		}
	}
	return NewLink(l)
}

// Kind returns datapath.KindLink.
func (Link) Kind() datapath.Kind { return datapath.KindLink }

// Key is the link's name.
func (l Link) Key() datapath.Key { return datapath.Key{Kind: datapath.KindLink, Name: l.Name} }

// String returns what can be observed on the node; the peer is not part of it.
func (l Link) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "dev %s type %s", l.Name, l.Type)
	if l.Type == LinkVLAN {
		b.WriteString(" id " + strconv.Itoa(int(l.VLANID)) + " link " + l.Parent)
	}
	b.WriteString(" mtu " + strconv.Itoa(l.MTU))
	if l.MAC != (MAC{}) {
		b.WriteString(" address " + l.MAC.String())
	}
	if l.Down {
		b.WriteString(" down")
	} else {
		b.WriteString(" up")
	}
	b.WriteString(" alias " + l.Alias)
	if l.Guard {
		b.WriteString(" guard")
	}
	return b.String()
}

// Owner returns the owner that the alias names.
func (l Link) Owner() string { return strings.TrimPrefix(l.Alias, AliasPrefix) }
