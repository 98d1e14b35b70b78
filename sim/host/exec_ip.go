package host

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"towtank/datapath/host"
	"towtank/sim/packet"
)

func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%q: want an address or a prefix", s)
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q: want an address or a prefix", s)
	}
	return p, nil
}

func parseUint(s string, bits int) (uint64, error) {
	v, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		return 0, fmt.Errorf("%q: want a number of %d bits", s, bits)
	}
	return v, nil
}

func protoNumber(s string) (uint8, error) {
	for _, p := range []uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP, packet.ProtoICMP, packet.ProtoICMPv6} {
		if packet.ProtoName(p) == s || s == "icmpv6" && p == packet.ProtoICMPv6 {
			return p, nil
		}
	}
	v, err := parseUint(s, 8)
	return uint8(v), err
}

// execIP runs ip OBJECT COMMAND.
func (n *Netns) execIP(a *args) (string, error) {
	var fam host.Family
	for !a.done() && strings.HasPrefix(a.w[0], "-") {
		switch opt := a.next(); opt {
		case "-4":
			fam = host.V4
		case "-6":
			fam = host.V6
		case "-d", "-details", "-o", "-oneline", "-br", "-brief":
		default:
			return "", fmt.Errorf("option %s: not modelled", opt)
		}
	}
	object, command := a.next(), a.next()
	if command == "" {
		command = "show"
	}
	cmd := verb(command, "add", "append", "change", "delete", "replace", "flush", "show", "list", "set", "get")
	if cmd == "list" {
		cmd = "show"
	}
	bad := func() (string, error) {
		return "", fmt.Errorf("ip %s %s: not modelled", object, command)
	}
	switch verb(object, "link", "address", "route", "rule", "neighbour", "neighbor") {
	case "link":
		return n.execLink(cmd, command, a)
	case "address":
		switch cmd {
		case "add", "replace", "change":
			return "", n.execAddrAdd(a, cmd != "add")
		case "delete":
			return "", n.execAddrDel(a)
		case "flush":
			return "", n.execAddrFlush(fam, a)
		case "show":
			link := ""
			if !a.flag("dev") && a.done() {
				return n.addrShow(fam, ""), nil
			}
			link = a.next()
			if n.links[link] == nil {
				return "", errNoDevice(link)
			}
			return n.addrShow(fam, link), a.end()
		}
	case "route":
		switch cmd {
		case "add", "append", "replace", "change", "delete":
			return "", n.execRoute(cmd, fam, a)
		case "flush":
			return "", n.execRouteFlush(fam, a)
		case "get":
			return n.execRouteGet(a)
		case "show":
			table := "main"
			if a.flag("table") {
				table = a.next()
			}
			if err := a.end(); err != nil {
				return "", err
			}
			i := 0
			if fam == host.V6 {
				i = 1
			}
			return n.routeShow(i, table), nil
		}
	case "rule":
		if fam == 0 {
			fam = host.V4
		}
		switch cmd {
		case "add", "delete":
			return "", n.execRule(cmd, fam, a)
		case "flush":
			st := n.state(fam)
			st.rules = slices.DeleteFunc(st.rules, func(r policyRule) bool { return r.Priority != 0 })
			return "", a.end()
		case "show":
			i := 0
			if fam == host.V6 {
				i = 1
			}
			return n.ruleShow(i), a.end()
		}
	case "neighbour", "neighbor":
		switch cmd {
		case "add", "replace", "change", "delete":
			return "", n.execNeigh(cmd, a)
		case "flush":
			return "", n.execNeighFlush(fam, a)
		case "show":
			return n.neighShow(fam), a.end()
		}
	}
	return bad()
}

func (n *Netns) link(name string) (*Link, error) {
	if l := n.links[name]; l != nil {
		return l, nil
	}
	return nil, errNoDevice(name)
}

func (n *Netns) execLink(cmd, typed string, a *args) (string, error) {
	switch cmd {
	case "show":
		a.flag("dev")
		name := a.next()
		if err := a.end(); err != nil {
			return "", err
		}
		var b strings.Builder
		for _, l := range n.byIndex {
			if name == "" || l.name == name {
				b.WriteString(l.show() + "\n")
			}
		}
		if name != "" && b.Len() == 0 {
			return "", errNoDevice(name)
		}
		return b.String(), nil
	case "add":
		return "", n.execLinkAdd(a)
	case "delete":
		a.flag("dev")
		l, err := n.link(a.next())
		if err != nil {
			return "", err
		}
		if l.kind == kindHardware || l == n.lo {
			return "", fmt.Errorf("RTNETLINK answers: Operation not supported")
		}
		if err := a.end(); err != nil {
			return "", err
		}
		n.deleteLink(l)
		return "", nil
	case "set", "change":
		a.flag("dev")
		l, err := n.link(a.next())
		if err != nil {
			return "", err
		}
		return "", n.execLinkSet(l, a)
	}
	return "", fmt.Errorf("ip link %s: not modelled", typed)
}

func (n *Netns) execLinkAdd(a *args) error {
	l := &Link{ns: n, mtu: 1500, mac: n.randomMAC()}
	peer := ""
	a.flag("dev")
	for !a.done() {
		opt := a.next()
		var err error
		v := ""
		if opt == "link" || opt == "name" || opt == "address" || opt == "mtu" || opt == "type" || opt == "id" {
			if v, err = a.value(opt); err != nil {
				return err
			}
		}
		switch opt {
		case "link":
			l.parent, err = n.link(v)
		case "name":
			l.name = v
		case "address":
			l.mac, err = packet.ParseMAC(v)
			l.macSet = true
		case "mtu":
			var m uint64
			m, err = parseUint(v, 16)
			l.mtu = int(m)
		case "type":
			l.kind = host.LinkType(v)
		case "id":
			var id uint64
			id, err = parseUint(v, 12)
			l.vlan = uint16(id)
		case "peer":
			a.flag("name")
			peer, err = a.value(opt)
		default:
			if l.name != "" {
				err = fmt.Errorf("%q: not modelled", opt)
			}
			l.name = opt
		}
		if err != nil {
			return err
		}
	}
	if l.name == "" || len(l.name) > 15 {
		return fmt.Errorf("name %q: want 1 to 15 bytes", l.name)
	}
	if n.links[l.name] != nil {
		return errExists
	}
	switch l.kind {
	case host.LinkBridge, host.LinkDummy:
	case host.LinkVLAN:
		if l.parent == nil || l.vlan == 0 {
			return fmt.Errorf("vlan needs link and id")
		}
		if !l.macSet {
			l.mac = l.parent.mac
		}
	case host.LinkVeth:
		if peer == "" {
			return fmt.Errorf("veth needs peer name")
		}
		mac := packet.MAC{}
		if l.macSet {
			mac = l.mac
		}
		_, _, err := Veth(VethSide{n, l.name, mac, l.mtu}, VethSide{Netns: n, Name: peer})
		return err
	default:
		return said(fmt.Sprintf("Unknown device type %q (modelled: bridge, dummy, veth, vlan)", l.kind))
	}
	n.addLink(l)
	return nil
}

func (n *Netns) execLinkSet(l *Link, a *args) error {
	for !a.done() {
		opt := a.next()
		switch opt {
		case "up", "down":
			n.setUp(l, opt == "up")
			continue
		}
		v, err := a.value(opt)
		if err != nil {
			return err
		}
		switch opt {
		case "mtu":
			m, err := parseUint(v, 16)
			if err != nil {
				return err
			}
			if m < 68 {
				return said("Error: mtu less than device minimum.")
			}
			l.mtu = int(m)
		case "address":
			m, err := packet.ParseMAC(v)
			if err != nil {
				return err
			}
			l.mac, l.macSet = m, true
		case "alias":
			l.alias = v
		case "netns":
			return n.moveLink(l, v)
		default:
			return fmt.Errorf("ip link set %s: not modelled", opt)
		}
	}
	return nil
}

// moveLink moves a link to another namespace; it arrives down, without addresses.
func (n *Netns) moveLink(l *Link, to string) error {
	ns, err := n.findNetns(to)
	if err != nil {
		return err
	}
	if l.kind != host.LinkVeth {
		return fmt.Errorf("moving a %s to another namespace: not modelled", l.kind)
	}
	if ns.links[l.name] != nil {
		return errExists
	}
	peer := l.peer
	l.peer, peer.peer = nil, nil // the other side stays
	n.deleteLink(l)
	l.peer, peer.peer = peer, l
	l.ns, l.upper, l.alias, l.guard = ns, nil, "", false
	ns.addLink(l)
	return nil
}

func (n *Netns) execAddrAdd(a *args, replace bool) error {
	pre, err := parsePrefix(a.next())
	if err != nil {
		return err
	}
	o := host.Address{Prefix: pre}
	for !a.done() {
		switch opt := a.next(); opt {
		case "dev":
			if o.Link, err = a.value(opt); err != nil {
				return err
			}
		case "noprefixroute":
			o.NoPrefixRoute = true
		case "nodad", "home", "mngtmpaddr", "autojoin":
		case "proto":
			v, err := a.value(opt)
			if err != nil {
				return err
			}
			p, err := parseUint(v, 8)
			if err != nil {
				return err
			}
			o.Proto = uint8(p)
		case "scope", "brd", "broadcast", "label", "valid_lft":
			if _, err := a.value(opt); err != nil {
				return err
			}
		case "preferred_lft":
			v, err := a.value(opt)
			if err != nil {
				return err
			}
			o.Deprecated = v == "0"
		default:
			return fmt.Errorf("%q: not modelled", opt)
		}
	}
	l, err := n.link(o.Link)
	if err != nil {
		return err
	}
	proto := o.Proto
	if o, err = host.NewAddress(o); err != nil {
		return err
	}
	o.Proto = proto
	if old := n.findAddress(l, pre); old != nil && replace {
		old.Deprecated, old.Proto = o.Deprecated, o.Proto
		return nil
	}
	return n.addAddress(&address{Address: o, link: l})
}

func (n *Netns) execAddrDel(a *args) error {
	pre, err := parsePrefix(a.next())
	if err != nil {
		return err
	}
	if !a.flag("dev") {
		return fmt.Errorf("want dev LINK")
	}
	l, err := n.link(a.next())
	if err != nil {
		return err
	}
	if err := a.end(); err != nil {
		return err
	}
	found := n.findAddress(l, pre)
	if found == nil && pre.IsSingleIP() { // ip del ADDRESS takes any length
		for _, x := range n.local[pre.Addr()] {
			if x.link == l {
				found = x
			}
		}
	}
	if found == nil {
		return said("Error: Address not found.")
	}
	n.removeAddress(found, n.promotes(l))
	return nil
}

func (n *Netns) execAddrFlush(fam host.Family, a *args) error {
	a.flag("dev")
	l, err := n.link(a.next())
	if err != nil {
		return err
	}
	if err := a.end(); err != nil {
		return err
	}
	for i := range l.addrs {
		if fam != 0 && n.ip[i].fam != fam {
			continue
		}
		for len(l.addrs[i]) > 0 {
			n.removeAddress(l.addrs[i][0], n.promotes(l))
		}
	}
	return nil
}
