//go:build linux

package linux

import (
	"fmt"
	"net"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"towtank/datapath"
)

// watch has the changes of addresses and links posted until Close. The library's goroutines end when
// quit is closed.
func (h *Host) watch() error {
	names := &linkNames{m: map[int]string{}}
	known, err := netlink.NewHandleAt(h.ns)
	if err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	links, err := known.LinkList()
	known.Close()
	if err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	for _, l := range links {
		names.set(l.Attrs().Index, l.Attrs().Name)
	}
	if h.cfg.Address != nil {
		ch := make(chan netlink.AddrUpdate, 64)
		if err := netlink.AddrSubscribeWithOptions(ch, h.quit, netlink.AddrSubscribeOptions{Namespace: &h.ns, ListExisting: true}); err != nil {
			return fmt.Errorf("watch addresses: %w", err)
		}
		go func() {
			for u := range ch {
				e := datapath.AddressEvent{Addr: prefixOf(&u.LinkAddress).Addr(), Link: names.get(u.LinkIndex), Present: u.NewAddr}
				h.cfg.Post(func() { h.cfg.Address(e) })
			}
		}()
	}
	ch := make(chan netlink.LinkUpdate, 64)
	if err := netlink.LinkSubscribeWithOptions(ch, h.quit, netlink.LinkSubscribeOptions{Namespace: &h.ns, ListExisting: true}); err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	go func() {
		for u := range ch {
			a := u.Attrs()
			present := u.Header.Type != unix.RTM_DELLINK
			names.set(a.Index, a.Name)
			if h.cfg.Link == nil {
				continue
			}
			e := datapath.LinkEvent{Name: a.Name, Up: present && a.Flags&net.FlagUp != 0 && a.OperState != netlink.OperDown, Present: present}
			h.cfg.Post(func() { h.cfg.Link(e) })
		}
	}()
	return nil
}

// linkNames tells the name of a link that may be gone by now.
type linkNames struct {
	mu sync.Mutex
	m  map[int]string
}

func (n *linkNames) set(i int, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.m[i] = name
}

func (n *linkNames) get(i int) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.m[i]
}
