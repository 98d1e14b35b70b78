//go:build linux

package daemon

import (
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"towtank/datapath/linux"
	"towtank/datapath/openflow"
)

// neighbours finds the Ethernet addresses of the other ends of tunnels, by the kernel's neighbour table.
type neighbours struct{ ns, uplink string }

// Times of one question.
const (
	neighbourWait = 500 * time.Millisecond
	neighbourPoll = 2 * time.Millisecond
)

// useEntry has the kernel resolve an entry as if a packet had used it (NTF_USE, linux/neighbour.h).
const useEntry = 0x01

// usable are the states in which the kernel itself would send to the address.
const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP

// find asks for the Ethernet address of a neighbour and waits for the answer: so it is called from a goroutine
// that may wait. What the kernel knew before does not count: an Egress IP may just have moved.
func (n *neighbours) find(ip netip.Addr) (openflow.MAC, bool) {
	h, err := handle(n.ns)
	if err != nil {
		return openflow.MAC{}, false
	}
	defer h.Close()
	table, err := linux.OpenNeighbours(n.ns)
	if err != nil {
		return openflow.MAC{}, false
	}
	defer table.Close()
	link, err := h.LinkByName(n.uplink)
	if err != nil {
		return openflow.MAC{}, false
	}
	family := netlink.FAMILY_V4
	if ip.Is6() {
		family = netlink.FAMILY_V6
	}
	entry := netlink.Neigh{LinkIndex: link.Attrs().Index, Family: family, State: netlink.NUD_NONE, IP: ip.AsSlice()}
	if mac, ok := known(table, entry.LinkIndex, ip, netlink.NUD_PERMANENT|netlink.NUD_NOARP); ok {
		return mac, true
	}
	_ = h.NeighDel(&entry) // there may be none
	entry.Flags = useEntry
	if err := h.NeighSet(&entry); err != nil {
		return openflow.MAC{}, false
	}
	// The kernel asks on the wire and tells nobody of this one entry: it is looked at until the answer is there.
	for end := time.Now().Add(neighbourWait); time.Now().Before(end); time.Sleep(neighbourPoll) {
		if mac, ok := known(table, entry.LinkIndex, ip, usable); ok {
			return mac, true
		}
	}
	return openflow.MAC{}, false
}

// known asks for the one entry: a node has as many as it has neighbours, and all of them may be asked about at once.
func known(table *linux.NeighbourTable, link int, ip netip.Addr, states int) (openflow.MAC, bool) {
	mac, state, ok, err := table.Get(link, ip)
	if err != nil || !ok || state&states == 0 {
		return openflow.MAC{}, false
	}
	return openflow.MAC(mac), true
}
