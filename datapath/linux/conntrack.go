//go:build linux

package linux

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"towtank/datapath"
)

// matcher selects entries by tuples, as netlink.CustomConntrackFilter.
type matcher []datapath.Tuple

// MatchConntrackFlow reports whether a tuple selects an entry. What a tuple leaves out it selects whatever it is: its
// frontend, its backend, the port of either.
func (m matcher) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	e := entryOf(f)
	is := func(have, want netip.AddrPort) bool {
		return !want.Addr().IsValid() || have.Addr() == want.Addr() && (want.Port() == 0 || have.Port() == want.Port())
	}
	for _, t := range m {
		if t.Zone == e.Zone && t.Proto == e.Proto && is(e.OrigDst, t.Frontend) && is(e.ReplySrc, t.Backend) &&
			(!t.Source.IsValid() || t.Source == e.OrigSrc.Addr()) {
			return true
		}
	}
	return false
}

func entryOf(f *netlink.ConntrackFlow) datapath.ConntrackEntry {
	return datapath.ConntrackEntry{
		Zone: f.Zone, Proto: f.Forward.Protocol, Mark: f.Mark,
		OrigSrc: netip.AddrPortFrom(addrOf(f.Forward.SrcIP), f.Forward.SrcPort), OrigDst: netip.AddrPortFrom(addrOf(f.Forward.DstIP), f.Forward.DstPort),
		ReplySrc: netip.AddrPortFrom(addrOf(f.Reverse.SrcIP), f.Reverse.SrcPort), ReplyDst: netip.AddrPortFrom(addrOf(f.Reverse.DstIP), f.Reverse.DstPort),
	}
}

// FlushConntrack implements datapath.Host.
func (h *Host) FlushConntrack(tuples []datapath.Tuple, done func(error)) {
	h.do(func() {
		var errs []error
		byFamily := map[int]matcher{}
		for _, t := range tuples {
			a := t.Frontend.Addr()
			if !a.IsValid() {
				a = t.Source
			}
			fam := family(a)
			byFamily[fam] = append(byFamily[fam], t)
		}
		for _, fam := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			if len(byFamily[fam]) == 0 {
				continue
			}
			if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(fam), byFamily[fam]); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("flush conntrack: %w", err))
			}
		}
		h.cfg.Post(func() { done(errors.Join(errs...)) })
	})
}

// DumpConntrack implements datapath.Host.
func (h *Host) DumpConntrack(done func([]datapath.ConntrackEntry, error)) {
	h.do(func() {
		var out []datapath.ConntrackEntry
		var errs []error
		for _, fam := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			list, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(fam))
			if err != nil {
				errs = append(errs, fmt.Errorf("dump conntrack: %w", err))
			}
			for _, f := range list {
				if f.Zone == 0 {
					out = append(out, entryOf(f))
				}
			}
		}
		h.cfg.Post(func() { done(out, errors.Join(errs...)) })
	})
}
