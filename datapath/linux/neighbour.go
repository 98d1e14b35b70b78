//go:build linux

package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"towtank/datapath"
	"towtank/datapath/host"
)

// neighbourEntry is an entry of the kernel's neighbour table (struct ndmsg in linux/neighbour.h).
type neighbourEntry struct {
	link  int
	state uint16
	proxy bool
	ip    netip.Addr // of IPv4 or IPv6; entries of bridges have none
	mac   host.MAC
	hwLen int // how many bytes the link-layer address has; 0: none is known
	proto uint8
}

func entryOfNeighbour(m []byte) (e neighbourEntry, err error) {
	if len(m) < unix.SizeofNdMsg {
		return e, fmt.Errorf("a message of %d bytes", len(m))
	}
	at, err := attributes(m[unix.SizeofNdMsg:])
	if err != nil {
		return e, err
	}
	e.link, e.state = int(binary.NativeEndian.Uint32(m[4:8])), binary.NativeEndian.Uint16(m[8:10])
	e.proxy = m[10]&netlink.NTF_PROXY != 0
	e.ip, _ = netip.AddrFromSlice(at[unix.NDA_DST])
	mac := at[unix.NDA_LLADDR]
	if e.hwLen = len(mac); e.hwLen == len(e.mac) {
		e.mac = host.MAC(mac)
	}
	if p := at[attrNeighbourProto]; len(p) > 0 {
		e.proto = p[0]
	}
	return e, nil
}

func (e neighbourEntry) object(link string) host.Neighbour {
	o := host.Neighbour{IP: e.ip, Link: link, Proxy: e.proxy, Proto: e.proto}
	if !e.proxy {
		o.MAC = e.mac
	}
	return o
}

// getNeighbour asks for one entry. sockets are those to ask by; nil: one of the namespace of the calling thread.
func getNeighbour(sockets map[int]*nl.SocketHandle, link int, ip netip.Addr, proxy bool) (e neighbourEntry, found bool, err error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	req.Sockets = sockets
	hdr := &netlink.Ndmsg{Family: uint8(family(ip)), Index: uint32(link)}
	if proxy {
		hdr.Flags = netlink.NTF_PROXY
	}
	req.AddData(hdr)
	req.AddData(nl.NewRtAttr(unix.NDA_DST, ip.AsSlice()))
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if errors.Is(err, unix.ENOENT) || err == nil && len(msgs) == 0 {
		return e, false, nil
	}
	if err == nil {
		e, err = entryOfNeighbour(msgs[0])
	}
	if err != nil {
		return e, false, fmt.Errorf("neighbour %s: %w", ip, err)
	}
	return e, true, nil
}

// NeighbourTable asks the kernel of a network namespace for entries of its neighbour table, one by one: a node has as
// many as it has neighbours, and all are more than whoever waits for one wants to read.
type NeighbourTable struct{ sockets map[int]*nl.SocketHandle }

// OpenNeighbours opens the table of a network namespace, named as in Config.Netns.
func OpenNeighbours(name string) (*NeighbourTable, error) {
	ns, err := openNetns(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	s, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("neighbours: %w", err)
	}
	if err := errors.Join(s.SetSendTimeout(&nl.SocketTimeoutTv), s.SetReceiveTimeout(&nl.SocketTimeoutTv)); err != nil {
		s.Close()
		return nil, fmt.Errorf("neighbours: %w", err)
	}
	return &NeighbourTable{map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}}, nil
}

// Close ends asking.
func (t *NeighbourTable) Close() {
	for _, s := range t.sockets {
		s.Close()
	}
}

// Get returns the Ethernet address of a neighbour and the state of its entry (NUD_…); ok is false if there is no entry,
// or it has no such address.
func (t *NeighbourTable) Get(link int, ip netip.Addr) (mac host.MAC, state int, ok bool, err error) {
	e, found, err := getNeighbour(t.sockets, link, ip, false)
	return e.mac, int(e.state), found && e.hwLen == len(e.mac), err
}

// neighbours returns the permanent entries, or the proxies, whoever made them.
func neighbours(names map[int]string, proxy bool) ([]host.Neighbour, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
	hdr := &netlink.Ndmsg{}
	if proxy {
		hdr.Flags = netlink.NTF_PROXY
	}
	req.AddData(hdr)
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil {
		return nil, fmt.Errorf("neighbours: %w", err)
	}
	var out []host.Neighbour
	for _, m := range msgs {
		e, err := entryOfNeighbour(m)
		if err != nil {
			return nil, fmt.Errorf("neighbours: %w", err)
		}
		if e.ip.IsValid() && e.proxy == proxy && (proxy || e.state&netlink.NUD_PERMANENT != 0) {
			out = append(out, e.object(names[e.link]))
		}
	}
	return out, nil
}

func putNeighbour(o host.Neighbour) error {
	i, err := index(o.Link)
	if err != nil {
		return err
	}
	return changeNeighbour(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, i, o)
}

func deleteNeighbour(o host.Neighbour) error {
	i, err := indexIfAny(o.Link)
	if err != nil || i == 0 {
		return err
	}
	e, found, err := getNeighbour(nil, i, o.IP, o.Proxy)
	if err != nil || !found || e.proto != o.Proto || (!o.Proxy && e.state&netlink.NUD_PERMANENT == 0) {
		return err
	}
	return changeNeighbour(unix.RTM_DELNEIGH, 0, i, e.object(o.Link))
}

func changeNeighbour(msg, flags, i int, o host.Neighbour) error {
	req := nl.NewNetlinkRequest(msg, flags|unix.NLM_F_ACK)
	hdr := &netlink.Ndmsg{Family: uint8(family(o.IP)), Index: uint32(i), State: netlink.NUD_PERMANENT}
	if o.Proxy {
		hdr.Flags = netlink.NTF_PROXY
	}
	req.AddData(hdr)
	req.AddData(nl.NewRtAttr(unix.NDA_DST, o.IP.AsSlice()))
	if !o.Proxy {
		req.AddData(nl.NewRtAttr(unix.NDA_LLADDR, o.MAC[:]))
	}
	req.AddData(nl.NewRtAttr(attrNeighbourProto, []byte{o.Proto}))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func dumpNeighbours(names map[int]string) ([]datapath.Object, error) {
	var out []datapath.Object
	for _, proxy := range []bool{false, true} {
		all, err := neighbours(names, proxy)
		if err != nil {
			return nil, err
		}
		for _, n := range all {
			if n.Proto == host.ProtoTowtank {
				out = append(out, n)
			}
		}
	}
	return out, nil
}
