package host

import (
	"errors"
	"fmt"
	"slices"

	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/sim/packet"
)

// Check compares an object with what is there, for a veth its container's side too, and returns what
// differs.
func (n *Netns) Check(o datapath.Object) error {
	if l, ok := o.(host.Link); ok {
		return n.checkLink(l)
	}
	for _, have := range n.Dump() {
		if have.Key() != o.Key() {
			continue
		}
		if have.String() != o.String() {
			return fmt.Errorf("check %s: found %s", o, have)
		}
		return nil
	}
	return fmt.Errorf("check %s: not there", o)
}

func (n *Netns) checkLink(o host.Link) error {
	l := n.links[o.Name]
	if l == nil {
		return fmt.Errorf("check link %s: %w", o.Name, errNoDevice(o.Name))
	}
	have := l.object()
	if o.MAC == (host.MAC{}) {
		have.MAC = host.MAC{}
	}
	if have.String() != o.String() {
		return fmt.Errorf("check link %s: want %s, found %s", o.Name, o, have)
	}
	if o.Peer == "" {
		return nil
	}
	want, err := host.ParsePeer(o.Peer)
	if err != nil {
		return fmt.Errorf("check link %s: %w", o.Name, err)
	}
	ns, err := n.findNetns(want.Netns)
	if err != nil {
		return fmt.Errorf("check link %s: %w", o.Name, err)
	}
	p := ns.links[want.Name]
	if p == nil || p.peer != l {
		return fmt.Errorf("check link %s: %s in %s is not its other side", o.Name, want.Name, want.Netns)
	}
	return p.check(want)
}

// check returns every difference of the container's side.
func (l *Link) check(want host.Peer) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("check %s in %s: %w", l.name, l.ns.Name(), fmt.Errorf(format, args...)))
	}
	if !l.up {
		bad("down")
	}
	if want.MAC != (host.MAC{}) && packet.MAC(want.MAC) != l.mac {
		bad("MAC: want %s, found %s", want.MAC, l.mac)
	}
	if want.MTU != l.mtu {
		bad("MTU: want %d, found %d", want.MTU, l.mtu)
	}
	if want.TxOffload == l.noTx {
		bad("transmit checksum offload: want %t, found %t", want.TxOffload, !l.noTx)
	}
	for _, p := range want.Addresses {
		if !slices.ContainsFunc(l.addrs[famIndex(p.Addr())], func(a *address) bool { return a.Prefix == p }) {
			bad("address %s: not there", p)
		}
	}
	for _, gw := range want.Gateways {
		dst := defaultOf(host.FamilyOf(gw))
		t := l.ns.ip[famIndex(gw)].table(host.TableMain)
		if !slices.ContainsFunc(t.bucket(dst), func(r *route) bool { return r.link == l && r.Via == gw }) {
			bad("default route via %s: not there", gw)
		}
	}
	return errors.Join(errs...)
}
