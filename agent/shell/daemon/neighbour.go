//go:build linux

package daemon

import (
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

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
	link, err := h.LinkByName(n.uplink)
	if err != nil {
		return openflow.MAC{}, false
	}
	family := netlink.FAMILY_V4
	if ip.Is6() {
		family = netlink.FAMILY_V6
	}
	entry := netlink.Neigh{LinkIndex: link.Attrs().Index, Family: family, State: netlink.NUD_NONE, IP: ip.AsSlice()}
	if mac, ok := known(h, entry.LinkIndex, family, ip, netlink.NUD_PERMANENT|netlink.NUD_NOARP); ok {
		return mac, true
	}
	_ = h.NeighDel(&entry) // there may be none
	entry.Flags = useEntry
	if err := h.NeighSet(&entry); err != nil {
		return openflow.MAC{}, false
	}
	// The kernel asks on the wire and tells nobody of this one entry: it is looked at until the answer is there.
	for end := time.Now().Add(neighbourWait); time.Now().Before(end); time.Sleep(neighbourPoll) {
		if mac, ok := known(h, entry.LinkIndex, family, ip, usable); ok {
			return mac, true
		}
	}
	return openflow.MAC{}, false
}

func known(h *netlink.Handle, link, family int, ip netip.Addr, states int) (openflow.MAC, bool) {
	list, err := h.NeighList(link, family)
	if err != nil {
		return openflow.MAC{}, false
	}
	for _, e := range list {
		a, ok := netip.AddrFromSlice(e.IP)
		if ok && a.Unmap() == ip && e.State&states != 0 && len(e.HardwareAddr) == 6 {
			return openflow.MAC(e.HardwareAddr), true
		}
	}
	return openflow.MAC{}, false
}
