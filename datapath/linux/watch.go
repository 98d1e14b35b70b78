//go:build linux

package linux

import (
	"errors"
	"fmt"
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
	w, err := h.tellAll()
	if err != nil {
		close(end)
		return err
	}
	go h.tell(w, addrs, links, end)
	return nil
}

// tellAll posts what there is.
func (h *Host) tellAll() (*watched, error) {
	kernel, err := netlink.NewHandleAt(h.ns)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	defer kernel.Close()
	links, err := kernel.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	w := newWatched(h.nameOf, h.postAddress, h.postLink)
	for _, l := range links {
		w.link(l.Attrs(), true)
	}
	list, err := kernel.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range list {
		w.address(a.LinkIndex, prefixOf(a.IPNet), true)
	}
	return w, nil
}

// nameOf asks the kernel for the name of a link, "" if it does not answer.
func (h *Host) nameOf(index int) (name string, there bool) {
	kernel, err := netlink.NewHandleAt(h.ns)
	if err != nil {
		return "", true
	}
	defer kernel.Close()
	l, err := kernel.LinkByIndex(index)
	var none netlink.LinkNotFoundError
	switch {
	case errors.As(err, &none):
		return "", false
	case err != nil:
		return "", true
	}
	return l.Attrs().Name, true
}

// tell posts changes. When a subscription breaks it makes both again and posts everything; what went
// meanwhile is found by the audit.
func (h *Host) tell(w *watched, addrs chan netlink.AddrUpdate, links chan netlink.LinkUpdate, end chan struct{}) {
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
			w.address(u.LinkIndex, prefixOf(&u.LinkAddress), u.NewAddr)
		case u, ok := <-links:
			if !ok {
				h.watchAgain()
				return
			}
			w.link(u.Attrs(), u.Header.Type != unix.RTM_DELLINK)
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

func (h *Host) postLink(e datapath.LinkEvent) {
	if h.cfg.Link != nil {
		h.cfg.Post(func() { h.cfg.Link(e) })
	}
}
