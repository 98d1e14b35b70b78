package host

import (
	"fmt"

	"towtank/datapath/host"
	"towtank/sim/packet"
)

type verdict int

const (
	goOn verdict = iota // to the next rule
	accept
	dropped
	returned
)

// table runs the chain of a hook; it reports whether the packet goes on.
func (n *Netns) table(t *nfTable, c *pkt, hook string) bool {
	if t == nil {
		return true
	}
	ch := t.chains[hook]
	if ch == nil {
		return true
	}
	switch n.chain(t, ch, c, hook) {
	case accept:
		return true
	case dropped:
		return false
	}
	if ch.policy == "DROP" {
		n.drop(t.name+" "+hook, "policy DROP")
		return false
	}
	return true
}

func (n *Netns) chain(t *nfTable, ch *chain, c *pkt, hook string) verdict {
	for _, r := range ch.rules {
		if !n.matches(r, c) {
			continue
		}
		switch v := n.target(t, ch, r, c, hook); v {
		case goOn:
		case returned:
			return goOn
		default:
			return v
		}
	}
	return goOn
}

// applied records a rule that did something.
func (n *Netns) applied(t *nfTable, ch *chain, r *rule, hook string, drop bool) {
	if n.tracer == nil {
		return
	}
	where := t.name + " " + hook
	text := "-A " + ch.name + " " + r.text
	if drop {
		n.drop(where, text)
	} else {
		n.step(where, text)
	}
}

func (n *Netns) target(t *nfTable, ch *chain, r *rule, c *pkt, hook string) verdict {
	switch tg := r.spec.Target.(type) {
	case host.TargetVerdict:
		switch tg.Name {
		case "ACCEPT":
			return accept
		case "RETURN":
			return returned
		default:
			n.applied(t, ch, r, hook, true)
			return dropped
		}
	case host.TargetJump:
		if r.jump == nil {
			return goOn
		}
		v := n.chain(t, r.jump, c, hook)
		if tg.Goto && v == goOn {
			return returned
		}
		return v
	case host.TargetReject:
		n.applied(t, ch, r, hook, true)
		n.reject(c, tg.With)
		return dropped
	case host.TargetMark:
		c.p.Mark = c.p.Mark&^tg.Mask ^ tg.Value
		n.applied(t, ch, r, hook, false)
	case host.TargetConnmark:
		if c.ct == nil {
			return goOn
		}
		switch tg.Op {
		case "set":
			c.ct.mark = c.ct.mark&^tg.CTMask ^ tg.Value
		case "save":
			c.ct.mark = c.ct.mark&^tg.CTMask ^ c.p.Mark&tg.NFMask
		default:
			c.p.Mark = c.p.Mark&^tg.NFMask ^ c.ct.mark&tg.CTMask
		}
		n.applied(t, ch, r, hook, false)
	case host.TargetNAT:
		n.applied(t, ch, r, hook, false)
		if !n.natTarget(c, tg) {
			return dropped
		}
		return accept
	case host.TargetNotrack:
		if c.ct == nil {
			c.state = ctUntracked
			n.applied(t, ch, r, hook, false)
		}
	}
	return goOn
}

// reject answers as REJECT --reject-with does.
func (n *Netns) reject(c *pkt, with string) {
	if with == "tcp-reset" {
		if c.p.TCPFlags&packet.RST == 0 {
			if c.local {
				r := reset(c.p)
				n.q.Add(func() { n.socket(&pkt{p: r, fi: c.fi, in: n.lo}) })
				return
			}
			n.answer(c, reset(c.p))
		}
		return
	}
	codes := map[string]uint8{
		"icmp-net-unreachable": 0, "icmp-host-unreachable": 1, "icmp-port-unreachable": 3, "icmp-host-prohibited": 10, "icmp-admin-prohibited": 13,
		"icmp6-no-route": 0, "icmp6-adm-prohibited": 1, "icmp6-addr-unreachable": 3, "icmp6-port-unreachable": 4,
	}
	typ := packet.ICMPUnreachable
	if c.fi == 1 {
		typ = packet.ICMPv6Unreachable
	}
	n.icmpError(c, typ, codes[with])
}

// matches reports whether every condition of a rule holds.
func (n *Netns) matches(r *rule, c *pkt) bool {
	s, p := r.spec, c.p
	if !s.Src.Contains(p.Src) || !s.Dst.Contains(p.Dst) || !s.Proto.Matches(p.Proto) {
		return false
	}
	if !s.In.Matches(linkName(c.in)) || !s.Out.Matches(linkName(c.out)) {
		return false
	}
	for i, m := range s.Matches {
		if !n.match(m, r.sets[i], c) {
			return false
		}
	}
	return true
}

func linkName(l *Link) string {
	if l == nil {
		return ""
	}
	return l.name
}

func (n *Netns) match(m host.Match, set *ipset, c *pkt) bool {
	p := c.p
	switch m := m.(type) {
	case host.MatchComment:
		return true
	case host.MatchPorts:
		return p.Frag != 3 && portOK(m.Src, p.SrcPort) && portOK(m.Dst, p.DstPort) &&
			(m.FlagsMask == 0 || (p.TCPFlags&m.FlagsMask == m.Flags) != m.FlagsNot)
	case host.MatchMultiport:
		hit := false
		for _, r := range m.Ports {
			hit = hit || m.Side != "dports" && r.Contains(p.SrcPort) || m.Side != "sports" && r.Contains(p.DstPort)
		}
		return p.Frag != 3 && hit != m.Not
	case host.MatchSet:
		return set.contains(p, m.Dirs) != m.Not
	case host.MatchMark:
		v := p.Mark
		if m.Conn {
			if c.ct == nil {
				return false
			}
			v = c.ct.mark
		}
		return (v&m.Mask == m.Value) != m.Not
	case host.MatchMAC:
		return c.in != nil && c.in != n.lo && (packet.MAC(m.MAC) == p.EthSrc) != m.Not
	case host.MatchConntrack:
		return n.matchConntrack(m, c)
	case host.MatchAddrType:
		return n.matchAddrType(m, c)
	}
	if i, ok := host.ICMP(m); ok {
		return (p.ICMPType == i.Type && (i.Code < 0 || int(p.ICMPCode) == i.Code)) != i.Not
	}
	panic(fmt.Sprintf("match %T: the parser knows it, the model does not", m))
}

func portOK(r host.PortRange, port uint16) bool { return !r.Set || r.Contains(port) != r.Not }

func (n *Netns) matchConntrack(m host.MatchConntrack, c *pkt) bool {
	if m.States != 0 {
		s := c.state
		if s == 0 {
			s = ctInvalid // in table raw, before it is tracked (xt_conntrack.c)
		}
		if e := c.ct; e != nil {
			if e.srcNAT {
				s |= host.CTSNAT
			}
			if e.dstNAT {
				s |= host.CTDNAT
			}
		}
		if (m.States&s != 0) == m.StatesNot {
			return false
		}
	}
	e := c.ct
	if e == nil {
		// Without an entry only conditions on the state can hold.
		return m.Dir == "" && m.Proto.Num == 0 && !m.OrigSrc.Prefix.IsValid() && !m.OrigDst.Prefix.IsValid() &&
			!m.ReplySrc.Prefix.IsValid() && !m.ReplyDst.Prefix.IsValid() && !m.OrigSPort.Set && !m.OrigDPort.Set
	}
	if m.Dir != "" && (m.Dir == "REPLY") != c.reply {
		return false
	}
	return m.Proto.Matches(e.orig.proto) && m.OrigSrc.Contains(e.orig.src) && m.OrigDst.Contains(e.orig.dst) &&
		m.ReplySrc.Contains(e.reply.src) && m.ReplyDst.Contains(e.reply.dst) &&
		portOK(m.OrigSPort, e.orig.sport) && portOK(m.OrigDPort, e.orig.dport)
}

func (n *Netns) matchAddrType(m host.MatchAddrType, c *pkt) bool {
	var on *Link
	switch {
	case m.LimitIn:
		on = c.in
	case m.LimitOut:
		on = c.out
	}
	if m.Src != "" && (n.addrType(c.p.Src, on) == m.Src) == m.SrcNot {
		return false
	}
	return m.Dst == "" || (n.addrType(c.p.Dst, on) == m.Dst) != m.DstNot
}
