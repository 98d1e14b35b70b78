package host

import (
	"fmt"
	"slices"

	"towtank/datapath"
	"towtank/datapath/host"
	"towtank/sim/packet"
)

// Apply puts and deletes host objects in the order of ops, and returns what became of each. Putting
// what is there, and deleting what is not, is Done. Objects that are not ours are neither replaced nor
// deleted. All iptables ops of a family and table take effect together, at the first of them; one that
// is refused does not hold up the others.
func (n *Netns) Apply(ops []datapath.Op) []datapath.OpResult {
	results := make([]datapath.OpResult, len(ops))
	n.q.Run(func() {
		done := make([]bool, len(ops))
		for i, op := range ops {
			if done[i] {
				continue
			}
			if op.Old == nil && op.New == nil {
				results[i] = datapath.OpResult{Outcome: datapath.Refused, Err: fmt.Errorf("host %s: an op without object", n.Name())}
				continue
			}
			if t, ok := opObject(op).(host.IPTables); ok {
				n.applyTable(ops, i, t, results, done)
				continue
			}
			if err := n.apply(op); err != nil {
				results[i] = datapath.OpResult{Outcome: datapath.Refused, Err: fmt.Errorf("host %s: %s: %w", n.Name(), op, err)}
			}
		}
	})
	return results
}

func opObject(op datapath.Op) datapath.Object {
	if op.New != nil {
		return op.New
	}
	return op.Old
}

func (n *Netns) apply(op datapath.Op) error {
	del := op.Delete()
	switch o := opObject(op).(type) {
	case host.Link:
		if del {
			return n.deleteOurLink(o)
		}
		return n.putLink(o)
	case host.Address:
		if del {
			return n.deleteOurAddress(o)
		}
		return n.putAddress(o)
	case host.Route:
		if del {
			t := n.ip[famIndex(o.Dst.Addr())].table(o.Table)
			t.remove(func(r *route) bool { return r.Metric == o.Metric && r.Proto == o.Proto }, o.Dst)
			return nil
		}
		return n.putRoute(o)
	case host.Rule:
		n.deleteOurRule(o)
		if !del {
			n.addRule(policyRule{Rule: o})
		}
		return nil
	case host.Neighbour:
		if del {
			n.deleteOurNeighbour(o)
			return nil
		}
		return n.putNeighbour(o)
	case host.Sysctl:
		if del {
			return n.restoreSysctl(o)
		}
		return n.putSysctl(o)
	case host.IPSet:
		if del {
			if n.sets[o.Name] == nil {
				return nil
			}
			return n.destroySet(o.Name)
		}
		return n.putSet(o)
	case host.IPSetEntry:
		return n.applyEntry(o, del)
	case host.Health:
		if del {
			n.deleteHealth(o.Port)
			return nil
		}
		return n.putHealth(o)
	}
	return fmt.Errorf("kind %s is not a host object", opObject(op).Kind())
}

func ourAlias(alias string) bool {
	return len(alias) > len(host.AliasPrefix) && alias[:len(host.AliasPrefix)] == host.AliasPrefix
}

func (n *Netns) putLink(o host.Link) error {
	l := n.links[o.Name]
	if o.Type == host.LinkDevice {
		if l == nil {
			return errNoDevice(o.Name)
		}
		if l.kind != kindHardware {
			return fmt.Errorf("a %s, not a device that somebody else makes", l.kind)
		}
		n.configure(l, o)
		return nil
	}
	if l != nil && !ourAlias(l.alias) {
		return fmt.Errorf("%w: a %s that is not ours (alias %q)", errExists, l.kind, l.alias)
	}
	var peer host.Peer
	var peerNS *Netns
	if o.Peer != "" {
		var err error
		if peer, err = host.ParsePeer(o.Peer); err != nil {
			return err
		}
		if peerNS, err = n.findNetns(peer.Netns); err != nil {
			return err
		}
	}
	if l != nil && (l.kind != o.Type || l.vlan != o.VLANID || l.parent != nil && l.parent.name != o.Parent ||
		peerNS != nil && (l.peer.ns != peerNS || l.peer.name != peer.Name)) {
		n.deleteLink(l) // another device under our name
		l = nil
	}
	if l == nil {
		var err error
		if l, err = n.makeLink(o, peer, peerNS); err != nil {
			return err
		}
	}
	n.configure(l, o)
	if peerNS != nil {
		return peerNS.configurePeer(l.peer, peer)
	}
	return nil
}

func (n *Netns) findNetns(name string) (*Netns, error) {
	if n.cfg.Netns != nil {
		if ns, ok := n.cfg.Netns(name); ok {
			return ns, nil
		}
	}
	return nil, fmt.Errorf("network namespace %s: No such file or directory", name)
}

func (n *Netns) makeLink(o host.Link, peer host.Peer, peerNS *Netns) (*Link, error) {
	switch o.Type {
	case host.LinkVeth:
		if peerNS == nil {
			return nil, fmt.Errorf("a veth that does not exist needs a peer to be made")
		}
		l, _, err := Veth(
			VethSide{Netns: n, Name: o.Name, MAC: packet.MAC(o.MAC), MTU: o.MTU},
			VethSide{Netns: peerNS, Name: peer.Name, MAC: packet.MAC(peer.MAC), MTU: peer.MTU})
		return l, err
	case host.LinkVLAN:
		parent := n.links[o.Parent]
		if parent == nil {
			return nil, errNoDevice(o.Parent)
		}
		for _, c := range n.byIndex {
			if c.parent == parent && c.vlan == o.VLANID {
				return nil, fmt.Errorf("VLAN %d on %s is %s: %w", o.VLANID, o.Parent, c.name, errExists)
			}
		}
		l := &Link{ns: n, name: o.Name, kind: o.Type, mac: parent.mac, mtu: o.MTU, vlan: o.VLANID, parent: parent}
		n.addLink(l)
		return l, nil
	default:
		l := &Link{ns: n, name: o.Name, kind: o.Type, mac: n.randomMAC(), mtu: o.MTU}
		n.addLink(l)
		return l, nil
	}
}

// configure brings what can be changed of a link to the object.
func (n *Netns) configure(l *Link, o host.Link) {
	l.mtu, l.alias, l.guard = o.MTU, o.Alias, o.Guard
	if o.MAC != (host.MAC{}) {
		l.mac, l.macSet, l.macOur = packet.MAC(o.MAC), true, true
	}
	n.setUp(l, !o.Down)
}

// configurePeer makes the container's side as the object says: addresses and default routes, and
// nothing else.
func (n *Netns) configurePeer(l *Link, p host.Peer) error {
	l.mtu, l.noTx = p.MTU, !p.TxOffload
	if p.MAC != (host.MAC{}) {
		l.mac, l.macSet = packet.MAC(p.MAC), true
	}
	n.setUp(n.lo, true)
	n.setUp(l, true)
	for i := range l.addrs {
		for _, a := range slices.Clone(l.addrs[i]) {
			if !slices.Contains(p.Addresses, a.Prefix) {
				n.removeAddress(a, true)
			}
		}
	}
	for _, pre := range p.Addresses {
		if n.findAddress(l, pre) == nil {
			if err := n.AddAddress(l.name, pre); err != nil {
				return err
			}
		}
	}
	for _, gw := range p.Gateways {
		r, err := host.NewRoute(host.Route{Dst: defaultOf(host.FamilyOf(gw)), Via: gw, Dev: l.name, Proto: protoBoot})
		if err != nil {
			return err
		}
		if err := n.addRoute(r, true); err != nil {
			return err
		}
	}
	return nil
}

func (n *Netns) deleteOurLink(o host.Link) error {
	l := n.links[o.Name]
	if l == nil || !ourAlias(l.alias) {
		return nil
	}
	if o.Type == host.LinkDevice || l.kind == kindHardware {
		l.alias, l.guard, l.macOur = "", false, false
		return nil
	}
	n.deleteLink(l)
	return nil
}

func (n *Netns) putAddress(o host.Address) error {
	l := n.links[o.Link]
	if l == nil {
		return errNoDevice(o.Link)
	}
	if a := n.findAddress(l, o.Prefix); a != nil {
		if a.Proto != o.Proto {
			return fmt.Errorf("%w and is not ours", errAssigned)
		}
		a.Deprecated = o.Deprecated
		if a.NoPrefixRoute == o.NoPrefixRoute {
			return nil
		}
		n.removeAddress(a, true)
	}
	return n.addAddress(&address{Address: o, link: l})
}

func (n *Netns) deleteOurAddress(o host.Address) error {
	l := n.links[o.Link]
	if l == nil {
		return nil
	}
	if a := n.findAddress(l, o.Prefix); a != nil && a.Proto == o.Proto {
		n.removeAddress(a, n.promotes(l))
	}
	return nil
}

func (n *Netns) putRoute(o host.Route) error {
	t := n.ip[famIndex(o.Dst.Addr())].table(o.Table)
	for _, r := range t.bucket(o.Dst) {
		if r.Metric != o.Metric {
			continue
		}
		if r.Proto != o.Proto {
			return fmt.Errorf("%w and is not ours: %s", errExists, routeText(r))
		}
	}
	return n.addRoute(o, true)
}

func (n *Netns) deleteOurRule(o host.Rule) {
	st := n.state(o.Family)
	st.rules = slices.DeleteFunc(st.rules, func(r policyRule) bool { return r.Proto == o.Proto && r.Rule.Key() == o.Key() })
}

func (n *Netns) putNeighbour(o host.Neighbour) error {
	l := n.links[o.Link]
	switch {
	case l == nil:
		return errNoDevice(o.Link)
	case !l.up:
		return fmt.Errorf("%s: Network is down", o.Link)
	}
	if o.Proxy {
		n.neigh.proxies[neighKey{l, o.IP}] = o.Proto
		return nil
	}
	n.setNeighbour(l, o.IP, packet.MAC(o.MAC), o.Proto)
	return nil
}

func (n *Netns) deleteOurNeighbour(o host.Neighbour) {
	l := n.links[o.Link]
	if l == nil {
		return
	}
	k := neighKey{l, o.IP}
	if o.Proxy {
		if n.neigh.proxies[k] == o.Proto {
			delete(n.neigh.proxies, k)
		}
		return
	}
	if e := n.neigh.entries[k]; e != nil && e.state == nudPermanent && e.proto == o.Proto {
		n.neigh.remove(k)
	}
}

func (n *Netns) putSysctl(o host.Sysctl) error {
	old, err := n.Sysctl(o.Name)
	if err != nil {
		return err
	}
	if err := n.SetSysctl(o.Name, o.Value); err != nil {
		return err
	}
	if _, ok := n.ours[o.Name]; !ok {
		n.ours[o.Name] = old
	}
	return nil
}

func (n *Netns) restoreSysctl(o host.Sysctl) error {
	old, ok := n.ours[o.Name]
	if !ok {
		return nil
	}
	delete(n.ours, o.Name)
	if _, err := n.Sysctl(o.Name); err != nil {
		return nil // the link is gone, and its settings with it
	}
	return n.SetSysctl(o.Name, old)
}

func (n *Netns) putSet(o host.IPSet) error {
	if s := n.sets[o.Name]; s != nil {
		if s.IPSet != o {
			return fmt.Errorf("%w: %s", errSetName, s.IPSet)
		}
		return nil
	}
	return n.createSet(o)
}

func (n *Netns) applyEntry(o host.IPSetEntry, del bool) error {
	s := n.sets[o.Set]
	if s == nil {
		if del {
			return nil
		}
		return errNoSet
	}
	e, err := s.element(o.Element)
	if err != nil {
		return err
	}
	_, there := s.elems[e]
	switch {
	case there == !del:
		return nil
	case del:
		return s.del(e)
	}
	return s.add(e)
}

func defaultOf(f host.Family) (p prefix) {
	if f == host.V4 {
		return anyV4
	}
	return anyV6
}
