package openflow

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// Next names the table in which a packet goes on after ct; the zero value: none.
type Next uint16

// ToTable goes on in a table after connection tracking.
func ToTable(n uint8) Next { return Next(n) + 1 }

// Table returns the table; ok is false if there is none.
func (n Next) Table() (table uint8, ok bool) { return uint8(n - 1), n != 0 }

// NATKind says which way a NAT translates.
type NATKind uint8

// The kinds.
const (
	NATStored NATKind = iota // as stored with the connection: plain nat
	NATSrc
	NATDst
)

// NAT is the nat argument of ct.
type NAT struct {
	Kind          NATKind
	Addr, Max     netip.Addr // range of addresses; Max zero for a single one; both zero: only tell the direction
	Port, MaxPort uint16     // range of ports; 0: the packet's, or any free one
}

// SNAT translates the source to addr, keeping the port if it is free.
func SNAT(addr netip.Addr) *NAT { return &NAT{Kind: NATSrc, Addr: addr} }

// DNAT translates the destination to addr:port; port 0 keeps the packet's.
func DNAT(addr netip.Addr, port uint16) *NAT { return &NAT{Kind: NATDst, Addr: addr, Port: port} }

// StoredNAT translates as stored with the connection, in either direction.
func StoredNAT() *NAT { return &NAT{} }

// CT hands the packet to connection tracking. With Table it goes on there with the ct fields set (its
// copy goes on with the next action untouched).
type CT struct {
	Commit bool
	Force  bool // with Commit: the direction of the packet becomes the original one
	Zone   uint16
	// ZoneFrom, if its field is set, takes the zone from 16 bits of a field.
	ZoneFrom Range
	Table    Next
	NAT      *NAT
	Exec     []Action // set_field and move into ct_mark and ct_label; needs Commit
}

func (a CT) appendText(b []byte) []byte {
	b = append(b, "ct("...)
	start := len(b)
	sep := func() {
		if len(b) > start {
			b = append(b, ',')
		}
	}
	if a.Commit {
		b = append(b, "commit"...)
	}
	if a.Force {
		sep()
		b = append(b, "force"...)
	}
	if t, ok := a.Table.Table(); ok {
		sep()
		b = strconv.AppendUint(append(b, "table="...), uint64(t), 10)
	}
	if a.ZoneFrom.Field != FieldNone {
		sep()
		b = a.ZoneFrom.appendText(append(b, "zone="...))
	} else if a.Zone != 0 {
		sep()
		b = strconv.AppendUint(append(b, "zone="...), uint64(a.Zone), 10)
	}
	if a.NAT != nil {
		sep()
		b = a.NAT.appendText(b)
	}
	if len(a.Exec) > 0 {
		sep()
		b = append(appendActions(append(b, "exec("...), a.Exec), ')')
	}
	return append(b, ')')
}

func (n *NAT) appendText(b []byte) []byte {
	if n.Kind == NATStored {
		return append(b, "nat"...)
	}
	b = append(b, "nat(src"...)
	if n.Kind == NATDst {
		b = append(b[:len(b)-3], "dst"...)
	}
	if n.Addr.IsValid() {
		bracket := n.Addr.Is6() && n.Port != 0
		one := func(a netip.Addr) {
			if bracket {
				b = append(b, '[')
			}
			b = a.AppendTo(b)
			if bracket {
				b = append(b, ']')
			}
		}
		b = append(b, '=')
		one(n.Addr)
		if n.Max.IsValid() {
			b = append(b, '-')
			one(n.Max)
		}
		if n.Port != 0 {
			b = strconv.AppendUint(append(b, ':'), uint64(n.Port), 10)
			if n.MaxPort != 0 {
				b = strconv.AppendUint(append(b, '-'), uint64(n.MaxPort), 10)
			}
		}
	}
	return append(b, ')')
}

func (a CT) check(c *context) error {
	if err := a.problem(c); err != nil {
		return fmt.Errorf("%s: %w", ActionText(a), err)
	}
	inner := *c
	inner.inCT = true
	for _, e := range a.Exec {
		if err := e.check(&inner); err != nil {
			return fmt.Errorf("ct exec: %w", err)
		}
	}
	return nil
}

// problem returns what is wrong with the action itself.
func (a *CT) problem(c *context) error {
	if !c.allows(preIP) {
		return errors.New("needs a match on ip or ipv6 (OFPBAC_MATCH_INCONSISTENT)")
	}
	if a.Commit && c.ctState&CTInv != 0 {
		return errors.New("an invalid packet cannot be committed (OFPBAC_MATCH_INCONSISTENT)")
	}
	if a.Force && !a.Commit {
		return errors.New("force needs commit")
	}
	if !a.Commit && (len(a.Exec) > 0 || a.NAT != nil && a.NAT.Kind != NATStored) {
		return errors.New("exec, and nat with src or dst, need commit (OFPBAC_BAD_ARGUMENT)")
	}
	if t, ok := a.Table.Table(); ok && t == 255 {
		return errors.New("there is no table 255")
	}
	if a.ZoneFrom.Field != FieldNone {
		if err := c.checkSource(a.ZoneFrom); err != nil {
			return fmt.Errorf("zone: %w", err)
		}
		if a.ZoneFrom.Bits() != 16 || a.Zone != 0 {
			return errors.New("the zone is a number or 16 bits of a field")
		}
	}
	if a.NAT != nil {
		if err := a.NAT.check(c); err != nil {
			return err
		}
	}
	for _, e := range a.Exec {
		switch e.(type) {
		case SetFieldAction, MoveAction, invalidAction:
		default:
			return errors.New("exec(…) takes set_field and move only")
		}
	}
	return nil
}

func (n *NAT) check(c *context) error {
	switch {
	case n.Kind > NATDst:
		return errors.New("nat: no such kind")
	case n.Kind == NATStored && (n.Addr.IsValid() || n.Port != 0):
		return errors.New("nat: plain nat has no address")
	case !n.Addr.IsValid() && (n.Max.IsValid() || n.Port != 0):
		return errors.New("nat: no address is given")
	case n.Addr.Is4In6() || n.Addr.Zone() != "":
		return fmt.Errorf("nat: %s is neither a plain IPv4 nor a plain IPv6 address", n.Addr)
	case n.Max.IsValid() && (n.Max.BitLen() != n.Addr.BitLen() || n.Max.Compare(n.Addr) <= 0):
		return fmt.Errorf("nat: %s to %s is no range of two or more addresses", n.Addr, n.Max)
	case n.MaxPort != 0 && n.MaxPort <= n.Port:
		return fmt.Errorf("nat: %d to %d is no range of two or more ports", n.Port, n.MaxPort)
	case n.Addr.Is4() && !c.allows(preIPv4), n.Addr.Is6() && !c.allows(preIPv6):
		return fmt.Errorf("nat: address %s is not of the family of the match (OFPBAC_MATCH_INCONSISTENT)", n.Addr)
	}
	return nil
}

func (a CT) wireLen() int {
	n := 24
	if a.NAT != nil {
		n += 16
		for _, x := range []netip.Addr{a.NAT.Addr, a.NAT.Max} {
			n += x.BitLen() / 8
		}
		if a.NAT.Port != 0 {
			n += 4
		}
		n = pad8(n)
	}
	for _, e := range a.Exec {
		n += e.wireLen()
	}
	return n
}
