//go:build linux

package linux

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"regexp"
	"strings"

	"github.com/vishvananda/netlink"

	"towtank/datapath"
	"towtank/datapath/host"
)

// guardTable begins the name of the nftables table (family netdev) that guards a link.
const guardTable = "towtank-guard-"

// typeOf is the type of a link as the kernel has it. What we do not make is a device.
func typeOf(l netlink.Link) host.LinkType {
	switch t := host.LinkType(l.Type()); t {
	case host.LinkVeth, host.LinkBridge, host.LinkDummy, host.LinkVLAN:
		return t
	}
	return host.LinkDevice
}

// deviceSuffix ends the alias of a device that somebody else made, if its type does not tell: a veth may
// be a Pod's or an uplink.
const deviceSuffix = "!device"

func (h *Host) dumpLinks(links []netlink.Link, names map[int]string) ([]datapath.Object, error) {
	guards, err := guards()
	if err != nil {
		return nil, err
	}
	var out []datapath.Object
	for _, l := range links {
		a := l.Attrs()
		if !ourAlias(a.Alias) {
			continue
		}
		o := host.Link{Name: a.Name, Type: typeOf(l), MTU: a.MTU, Down: a.Flags&net.FlagUp == 0, Alias: a.Alias, Guard: guards[a.Name]}
		if alias, device := strings.CutSuffix(a.Alias, deviceSuffix); device {
			o.Type, o.Alias = host.LinkDevice, alias
		}
		if o.Type == host.LinkVLAN {
			o.VLANID, o.Parent = uint16(l.(*netlink.Vlan).VlanId), names[a.ParentIndex]
		}
		if _, set := h.state.MACs[a.Name]; set && len(a.HardwareAddr) == 6 {
			o.MAC = host.MAC(a.HardwareAddr)
		}
		out = append(out, o)
	}
	return out, nil
}

func (h *Host) putLink(o host.Link) error {
	l, err := netlink.LinkByName(o.Name)
	var none netlink.LinkNotFoundError
	if err != nil && !errors.As(err, &none) {
		return err
	}
	if err != nil {
		l = nil
	}
	if o.Type == host.LinkDevice {
		if l == nil {
			return fmt.Errorf("device %s does not exist", o.Name)
		}
		o.Alias += deviceSuffix
		return h.configure(l, o)
	}
	var peer host.Peer
	if o.Peer != "" {
		if peer, err = host.ParsePeer(o.Peer); err != nil {
			return err
		}
	}
	if l != nil && (!ourAlias(l.Attrs().Alias) || strings.HasSuffix(l.Attrs().Alias, deviceSuffix)) {
		return fmt.Errorf("a %s is there that is not ours (alias %q)", l.Type(), l.Attrs().Alias)
	}
	if l != nil && !h.same(l, o, peer) {
		if err := netlink.LinkDel(l); err != nil {
			return err
		}
		l = nil
	}
	if l == nil {
		if l, err = makeLink(o, peer); err != nil {
			return err
		}
	}
	if err := h.configure(l, o); err != nil {
		return err
	}
	if o.Peer == "" {
		return nil
	}
	return h.within(peer.Netns, func() error { return configurePeer(peer) })
}

// same reports whether a link of our name is the one that is wanted, rather than another to replace.
func (h *Host) same(l netlink.Link, o host.Link, peer host.Peer) bool {
	if typeOf(l) != o.Type {
		return false
	}
	switch {
	case o.Type == host.LinkVLAN:
		parent, err := indexIfAny(o.Parent)
		return err == nil && l.Attrs().ParentIndex == parent && l.(*netlink.Vlan).VlanId == int(o.VLANID)
	case o.Peer != "":
		return h.checkPair(l, peer) == nil
	}
	return true
}

// checkPair tells whether the other side of a veth is where it belongs.
func (h *Host) checkPair(l netlink.Link, peer host.Peer) error {
	other, err := netlink.VethPeerIndex(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: l.Attrs().Name}})
	if err != nil {
		return err
	}
	return h.within(peer.Netns, func() error {
		p, err := netlink.LinkByName(peer.Name)
		if err != nil {
			return fmt.Errorf("%s in %s: %w", peer.Name, peer.Netns, err)
		}
		if p.Attrs().Index != other || p.Attrs().ParentIndex != l.Attrs().Index {
			return fmt.Errorf("%s in %s is not the other side", peer.Name, peer.Netns)
		}
		return nil
	})
}

// makingName is the name of a link that is being made, until it has its alias. It has the longest length of a name.
// One that is left, because the process was killed in between, is deleted by Open.
func makingName(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	return fmt.Sprintf("towtmp-%08x", h.Sum32())
}

var madeName = regexp.MustCompile(`^towtmp-[0-9a-f]{8}$`)

// deleteUnfinished deletes links that were being made when the process was killed.
func deleteUnfinished() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("links: %w", err)
	}
	for _, l := range links {
		if a := l.Attrs(); madeName.MatchString(a.Name) && (a.Alias == "" || ourAlias(a.Alias)) {
			if err := netlink.LinkDel(l); err != nil {
				return fmt.Errorf("link %s that was not finished: %w", a.Name, err)
			}
		}
	}
	return nil
}

// makeLink makes a link. It gets its name last: at no time is there a link of that name that is not known as ours.
func makeLink(o host.Link, peer host.Peer) (netlink.Link, error) {
	making := makingName(o.Name)
	if l, err := netlink.LinkByName(making); err == nil {
		if err := netlink.LinkDel(l); err != nil {
			return nil, err
		}
	}
	if err := addLink(making, o, peer); err != nil {
		return nil, err
	}
	l, err := netlink.LinkByName(making)
	if err != nil {
		return nil, err
	}
	if err = netlink.LinkSetAlias(l, o.Alias); err == nil {
		err = netlink.LinkSetName(l, o.Name)
	}
	if err != nil {
		return nil, errors.Join(err, netlink.LinkDel(l))
	}
	return netlink.LinkByName(o.Name)
}

func addLink(name string, o host.Link, peer host.Peer) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, o.MTU
	if o.MAC != (host.MAC{}) {
		attrs.HardwareAddr = o.MAC[:]
	}
	var l netlink.Link
	switch o.Type {
	case host.LinkVeth:
		if o.Peer == "" {
			return errors.New("a veth that does not exist needs a peer to be made")
		}
		ns, err := openNetns(peer.Netns)
		if err != nil {
			return err
		}
		defer func() { _ = ns.Close() }()
		v := netlink.NewVeth(attrs)
		v.PeerName, v.PeerMTU, v.PeerNamespace = peer.Name, uint32(peer.MTU), netlink.NsFd(int(ns))
		if peer.MAC != (host.MAC{}) {
			v.PeerHardwareAddr = peer.MAC[:]
		}
		l = v
	case host.LinkVLAN:
		i, err := index(o.Parent)
		if err != nil {
			return err
		}
		attrs.ParentIndex = i
		l = &netlink.Vlan{LinkAttrs: attrs, VlanId: int(o.VLANID), VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	case host.LinkBridge:
		l = &netlink.Bridge{LinkAttrs: attrs}
	case host.LinkDummy:
		l = &netlink.Dummy{LinkAttrs: attrs}
	}
	return netlink.LinkAdd(l)
}

// configure brings what can be changed of a link to the object.
func (h *Host) configure(l netlink.Link, o host.Link) error {
	a := l.Attrs()
	if a.Alias != o.Alias {
		if err := netlink.LinkSetAlias(l, o.Alias); err != nil {
			return err
		}
	}
	if o.MAC != (host.MAC{}) {
		if h.state.MACs[o.Name] != o.MAC.String() {
			h.state.MACs[o.Name] = o.MAC.String()
			if err := h.state.save(); err != nil {
				return err
			}
		}
		if host.MAC(a.HardwareAddr) != o.MAC {
			if err := netlink.LinkSetHardwareAddr(l, o.MAC[:]); err != nil {
				return err
			}
		}
	} else if _, set := h.state.MACs[o.Name]; set && typeOf(l) != host.LinkDevice {
		delete(h.state.MACs, o.Name)
		if err := h.state.save(); err != nil {
			return err
		}
	}
	if a.MTU != o.MTU {
		if err := netlink.LinkSetMTU(l, o.MTU); err != nil {
			return err
		}
	}
	if err := setGuard(o.Name, o.Guard); err != nil {
		return err
	}
	if o.Down {
		return netlink.LinkSetDown(l)
	}
	return netlink.LinkSetUp(l)
}

func (h *Host) deleteLink(o host.Link) error {
	l, err := netlink.LinkByName(o.Name)
	var none netlink.LinkNotFoundError
	switch {
	case errors.As(err, &none):
		return h.forget(o.Name)
	case err != nil:
		return err
	case !ourAlias(l.Attrs().Alias):
		return nil
	}
	device := strings.HasSuffix(l.Attrs().Alias, deviceSuffix)
	if device != (o.Type == host.LinkDevice) {
		return nil
	}
	if err := setGuard(o.Name, false); err != nil {
		return err
	}
	if device {
		err = netlink.LinkSetAlias(l, "")
	} else {
		err = netlink.LinkDel(l)
	}
	return errors.Join(err, h.forget(o.Name))
}

func (h *Host) forget(link string) error {
	if _, ok := h.state.MACs[link]; !ok {
		return nil
	}
	delete(h.state.MACs, link)
	return h.state.save()
}

// guards returns the links that have a guard.
func guards() (map[string]bool, error) {
	text, err := command("", "nft", "list", "tables", "netdev")
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		if w := strings.Fields(line); len(w) == 3 {
			if link, ok := strings.CutPrefix(w[2], guardTable); ok {
				out[link] = true
			}
		}
	}
	return out, nil
}

// setGuard adds or removes the table whose chain drops all that the link receives. Readers of AF_PACKET
// get it before.
func setGuard(link string, on bool) error {
	have, err := guards()
	if err != nil || have[link] == on {
		return err
	}
	name := guardTable + link
	if !on {
		_, err = command("delete table netdev "+name+"\n", "nft", "-f", "-")
		return err
	}
	_, err = command(fmt.Sprintf("table netdev %s {\n\tchain ingress {\n\t\ttype filter hook ingress device %q priority -500; policy drop;\n\t}\n}\n", name, link),
		"nft", "-f", "-")
	return err
}
