//go:build linux

package linux

import (
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"towtank/datapath"
)

// watched is what was told of links and their addresses. The kernel tells of links in order, and of addresses, but not
// of both in one order: an address may be heard of before its link, while the link still seems to have the name that it
// was made under, or after the link is gone.
type watched struct {
	nameOf      func(index int) (name string, there bool) // asks the kernel; "" if it does not answer
	postAddress func(datapath.AddressEvent)
	postLink    func(datapath.LinkEvent)

	links map[int]*watchedLink // by index
}

// watchedLink is a link that there is. While its name is not known, or one that links are made under, nobody is told of
// it, nor of its addresses.
type watchedLink struct {
	name      string
	addresses map[netip.Prefix]bool
}

// untold reports whether nobody is told of a link of that name.
func untold(name string) bool { return name == "" || madeName.MatchString(name) }

func newWatched(nameOf func(int) (string, bool), postAddress func(datapath.AddressEvent), postLink func(datapath.LinkEvent)) *watched {
	return &watched{nameOf: nameOf, postAddress: postAddress, postLink: postLink, links: map[int]*watchedLink{}}
}

// link hears of a link.
func (w *watched) link(a *netlink.LinkAttrs, present bool) {
	if !present {
		w.gone(a)
		return
	}
	l := w.links[a.Index]
	switch {
	case l == nil:
		l = &watchedLink{name: a.Name, addresses: map[netip.Prefix]bool{}}
		w.links[a.Index] = l
	case l.name != a.Name && untold(a.Name):
		return // from before it got the name that the kernel was asked for
	case l.name != a.Name:
		w.rename(l, a.Name)
	}
	if !untold(a.Name) {
		w.postLink(datapath.LinkEvent{Name: a.Name, Up: a.Flags&net.FlagUp != 0 && a.OperState != netlink.OperDown, Present: true})
	}
}

// rename tells of the addresses under a new name. Those under the old one go last, so that none is away meanwhile.
func (w *watched) rename(l *watchedLink, name string) {
	old := l.name
	l.name = name
	w.tellAddresses(l, name, true)
	if untold(old) {
		return
	}
	w.tellAddresses(l, old, false)
	w.postLink(datapath.LinkEvent{Name: old})
}

func (w *watched) gone(a *netlink.LinkAttrs) {
	l := w.links[a.Index]
	if l == nil {
		l = &watchedLink{name: a.Name}
	}
	delete(w.links, a.Index)
	if untold(l.name) {
		return
	}
	w.tellAddresses(l, l.name, false)
	w.postLink(datapath.LinkEvent{Name: l.name})
}

func (w *watched) tellAddresses(l *watchedLink, name string, present bool) {
	for _, p := range slices.SortedFunc(maps.Keys(l.addresses), netip.Prefix.Compare) {
		w.postAddress(datapath.AddressEvent{Addr: p.Addr(), Link: name, Present: present})
	}
}

// address hears of an address of a link.
func (w *watched) address(index int, p netip.Prefix, present bool) {
	l := w.links[index]
	if present && (l == nil || untold(l.name)) {
		name, there := w.nameOf(index)
		switch {
		case !there:
			return // it is gone, and its addresses with it
		case l == nil:
			l = &watchedLink{name: name, addresses: map[netip.Prefix]bool{}}
			w.links[index] = l
		case !untold(name):
			w.rename(l, name)
		}
	}
	if l == nil {
		return // its addresses were told of as gone when it was
	}
	if present {
		l.addresses[p] = true
	} else {
		delete(l.addresses, p)
	}
	if untold(l.name) {
		return // told of when it has its name
	}
	if !present {
		for other := range l.addresses {
			if other.Addr() == p.Addr() {
				return // it is there still, with another prefix length
			}
		}
	}
	w.postAddress(datapath.AddressEvent{Addr: p.Addr(), Link: l.name, Present: present})
}
