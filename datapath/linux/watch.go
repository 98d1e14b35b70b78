//go:build linux

package linux

import (
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"towtank/datapath"
)

// rewatchAfter is how long to wait before watching again, after the kernel had more to tell than was read.
const rewatchAfter = 100 * time.Millisecond

// watch posts the addresses and links that there are, and then what changes, until Close. When it returns,
// what there is has been posted.
func (h *Host) watch() error {
	end := make(chan struct{})
	addrs, links := make(chan netlink.AddrUpdate, 64), make(chan netlink.LinkUpdate, 64)
	if err := netlink.AddrSubscribeWithOptions(addrs, end, netlink.AddrSubscribeOptions{Namespace: &h.ns}); err != nil {
		return fmt.Errorf("watch addresses: %w", err)
	}
	if err := netlink.LinkSubscribeWithOptions(links, end, netlink.LinkSubscribeOptions{Namespace: &h.ns}); err != nil {
		close(end)
		return fmt.Errorf("watch links: %w", err)
	}
	names, err := h.tellAll()
	if err != nil {
		close(end)
		return err
	}
	go h.tell(names, addrs, links, end)
	return nil
}

// tellAll posts what there is.
func (h *Host) tellAll() (names map[int]string, err error) {
	kernel, err := netlink.NewHandleAt(h.ns)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	defer kernel.Close()
	links, err := kernel.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names = map[int]string{}
	for _, l := range links {
		a := l.Attrs()
		names[a.Index] = a.Name
		h.postLink(a, true)
	}
	list, err := kernel.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range list {
		h.postAddress(datapath.AddressEvent{Addr: prefixOf(a.IPNet).Addr(), Link: names[a.LinkIndex], Present: true})
	}
	return names, nil
}

// tell posts changes. When a subscription breaks it makes both again and posts everything; what went
// meanwhile is found by the audit.
func (h *Host) tell(names map[int]string, addrs chan netlink.AddrUpdate, links chan netlink.LinkUpdate, end chan struct{}) {
	defer close(end)
	for {
		select {
		case <-h.quit:
			return
		case u, ok := <-addrs:
			if !ok {
				h.watchAgain()
				return
			}
			h.postAddress(datapath.AddressEvent{Addr: prefixOf(&u.LinkAddress).Addr(), Link: names[u.LinkIndex], Present: u.NewAddr})
		case u, ok := <-links:
			if !ok {
				h.watchAgain()
				return
			}
			a := u.Attrs()
			names[a.Index] = a.Name
			h.postLink(a, u.Header.Type != unix.RTM_DELLINK)
		}
	}
}

func (h *Host) watchAgain() {
	go func() {
		for {
			select {
			case <-h.quit:
				return
			case <-time.After(rewatchAfter):
			}
			if h.watch() == nil {
				return
			}
		}
	}()
}

func (h *Host) postAddress(e datapath.AddressEvent) {
	if h.cfg.Address != nil {
		h.cfg.Post(func() { h.cfg.Address(e) })
	}
}

func (h *Host) postLink(a *netlink.LinkAttrs, present bool) {
	if h.cfg.Link != nil && !madeName.MatchString(a.Name) {
		e := datapath.LinkEvent{Name: a.Name, Up: present && a.Flags&net.FlagUp != 0 && a.OperState != netlink.OperDown, Present: present}
		h.cfg.Post(func() { h.cfg.Link(e) })
	}
}
