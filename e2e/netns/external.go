//go:build linux

package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"towtank/e2e/peer"
	"towtank/sim"
	"towtank/sim/packet"
)

// external is a host outside the cluster.
type external struct {
	c     *cluster
	name  string
	space *space
	addrs []netip.Addr
	next  *machine // nil: the first node

	mu  sync.Mutex
	via map[netip.Addr]netip.Addr // routes that were made for destinations
}

// Addr implements scenarios.Machine.
func (x *external) Addr(v6 bool) netip.Addr {
	for _, a := range x.addrs {
		if a.Is6() == v6 {
			return a
		}
	}
	return netip.Addr{}
}

func (c *cluster) newExternal(name string, addrs []netip.Addr, serve []sim.Port) (*external, error) {
	s, err := newSpace(c.prefix + name)
	if err != nil {
		return nil, err
	}
	c.wire.client(addrs)
	x := &external{c: c, name: name, space: s, addrs: addrs, via: map[netip.Addr]netip.Addr{}}
	if err := x.start(serve); err != nil {
		s.close()
		return nil, fmt.Errorf("external host %s: %w", name, err)
	}
	return x, nil
}

func (x *external) start(serve []sim.Port) error {
	if err := x.c.fabric.plug(x.name, x.space, uplink, macOf(x.name)); err != nil {
		return err
	}
	err := x.space.do(func() error {
		errs := []error{command("", "ip", "link", "set", uplink, "up"),
			// Open vSwitch's userspace datapath takes frames as they are: they need their checksums.
			command("", "ethtool", "-K", uplink, "tx", "off")}
		for _, a := range x.addrs {
			errs = append(errs, command("", "ip", "addr", "add", netip.PrefixFrom(a, transportBits(a)).String(), "dev", uplink))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	if err := x.space.startPeer(x.c.programs.peer); err != nil {
		return err
	}
	for _, p := range serve {
		if p.Proto == packet.ProtoSCTP {
			continue // the kernel has none: probes of it are skipped with that reason
		}
		if err := x.space.peer.Serve(peer.Port{Proto: packet.ProtoName(p.Proto), Port: p.Port, Name: x.name}); err != nil {
			return err
		}
	}
	return nil
}

// prepare gives the host a route to an address that nobody on its link answers for: it goes to the host's next
// hop (load-balancer addresses, Pods).
func (x *external) prepare(dst netip.Addr, next *machine) error {
	if next == nil {
		next = x.next
	}
	if next == nil && len(x.c.machines) > 0 {
		next = x.c.machines[0]
	}
	if next == nil {
		return nil
	}
	via := next.Transport(dst.Is6())
	if !via.IsValid() {
		return nil
	}
	if x.c.answersFor(x, dst) {
		via = netip.Addr{}
		if !x.onLink(dst) {
			via = dst
		}
	}
	return x.route(dst, via)
}

func (x *external) onLink(dst netip.Addr) bool {
	return slices.ContainsFunc(x.addrs, func(a netip.Addr) bool {
		return a.Is6() == dst.Is6() && netip.PrefixFrom(a, transportBits(a)).Masked().Contains(dst)
	})
}

// route has the host reach an address by a next hop: by none if it is not valid, on its link if it is the
// address itself.
func (x *external) route(dst, via netip.Addr) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.via[dst]
	if old == via {
		return nil
	}
	ip := []string{"ip"}
	if dst.Is6() {
		ip = []string{"ip", "-6"}
	}
	to := netip.PrefixFrom(dst, dst.BitLen()).String()
	if old.IsValid() {
		_, _ = x.space.run(append(ip, "route", "del", to)...) // somebody may have deleted it by hand
		delete(x.via, dst)
	}
	if !via.IsValid() {
		return nil
	}
	x.via[dst] = via
	args := append(ip, "route", "replace", to)
	if via != dst {
		args = append(args, "via", via.String())
	}
	_, err := x.space.run(append(args, "dev", uplink)...)
	return err
}

// answersFor reports whether a machine answers ARP for an address, or is known to own it while it is off or cut
// off.
func (c *cluster) answersFor(x *external, dst netip.Addr) bool {
	for _, m := range c.machines {
		if slices.Contains(m.addresses(), dst) {
			return true
		}
		if m.Up() && c.reachable(m.name, x.name) && m.HasAddress(dst) {
			return true
		}
	}
	for _, o := range c.externals {
		if slices.Contains(o.addrs, dst) {
			return true
		}
	}
	return false
}
