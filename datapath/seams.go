package datapath

import "net/netip"

// Features is what a switch found out about itself when it was connected.
type Features struct {
	// Datapath is "netdev" (userspace; pkt_mark does not survive the gateway tap, so the source MAC
	// carries it) or "system" (kernel; pkt_mark is the skb mark).
	Datapath string
}

// Tuple selects conntrack entries of a zone: those whose original direction goes to Frontend and
// whose reply direction comes from Backend. A zero Backend selects every backend.
type Tuple struct {
	Zone     uint16
	Proto    uint8 // IP protocol number: 17 UDP, 132 SCTP, 6 TCP
	Frontend netip.AddrPort
	Backend  netip.AddrPort
	// Source, if set, limits the selection to entries whose original source address it is.
	Source netip.Addr
}

// ConntrackEntry is one entry of a conntrack zone.
type ConntrackEntry struct {
	Zone               uint16
	Proto              uint8
	OrigSrc, OrigDst   netip.AddrPort
	ReplySrc, ReplyDst netip.AddrPort
	Mark               uint32
}

// Switch is the seam to Open vSwitch: OpenFlow and OVSDB of one bridge. Calls return at once; done
// is called later, as an event of the caller's loop, exactly once.
type Switch interface {
	// Features returns what was found out when the switch was connected.
	Features() Features
	// Apply runs one stage of a Change. The results are in the order of ops. A bundle is atomic: if
	// one op is refused, the others are Skipped.
	Apply(stage Stage, ops []Op, done func([]OpResult))
	// Dump returns the objects that carry our mark (cookie, external_ids), less learned flows.
	Dump(done func([]Object, error))
	// FlushConntrack deletes the entries that a tuple selects.
	FlushConntrack(tuples []Tuple, done func(error))
	// DumpConntrack returns the entries of the given zones.
	DumpConntrack(zones []uint16, done func([]ConntrackEntry, error))
	// ResolveTunnel has the tunnel neighbours of the peers known ahead of the first packet.
	ResolveTunnel(peers []netip.Addr, done func(error))
}

// Announcement is a gratuitous ARP or an unsolicited neighbour advertisement for IP, sent out of
// Link, or from the interface Link of the network namespace Netns.
type Announcement struct {
	IP    netip.Addr
	Link  string
	Netns string
}

// Host is the seam to the node's kernel network. Calls return at once; done is called later, as an
// event of the caller's loop, exactly once.
type Host interface {
	// Apply runs one host stage of a Change. The results are in the order of ops.
	Apply(stage Stage, ops []Op, done func([]OpResult))
	// Dump returns the objects that carry our mark (route and address protocol, chain and set names,
	// link aliases).
	Dump(done func([]Object, error))
	// Announce tells the neighbours of a link where an address is now.
	Announce(a []Announcement, done func(error))
	// FlushConntrack deletes the entries of the kernel's conntrack that a tuple selects (zone 0).
	FlushConntrack(tuples []Tuple, done func(error))
	// DumpConntrack returns the entries of the kernel's conntrack (zone 0).
	DumpConntrack(done func([]ConntrackEntry, error))
	// Check compares what cannot be dumped (the container side of a link) with the object, and
	// returns what differs.
	Check(o Object, done func(error))
}

// PortEvent says that a port of the bridge appeared, changed or went.
type PortEvent struct {
	Name   string
	OFPort uint32 // 0 if the port is gone or has no number yet
	Up     bool
}

// AddressEvent says that an address appeared on or went from the node.
type AddressEvent struct {
	Addr    netip.Addr
	Link    string
	Present bool
}

// LinkEvent says that a link appeared, changed state or went.
type LinkEvent struct {
	Name    string
	Up      bool
	Present bool
}

// DisconnectEvent says that the connection to the switch was lost (Connected false) or is back; what
// is on the switch is then not known.
type DisconnectEvent struct {
	Connected bool
	// Restarted is set if the switch lost its flows, groups, meters and conntrack.
	Restarted bool
}
