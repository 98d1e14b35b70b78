package host

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// String returns the rule as iptables-save prints it, without "-A CHAIN".
func (r *RuleSpec) String() string {
	var a []string
	not := func(n bool) {
		if n {
			a = append(a, "!")
		}
	}
	for _, n := range []struct {
		opt string
		m   NetMatch
	}{{"-s", r.Src}, {"-d", r.Dst}} {
		if n.m.Prefix.IsValid() {
			not(n.m.Not)
			a = append(a, n.opt, n.m.Prefix.String())
		}
	}
	for _, l := range []struct {
		opt string
		m   LinkMatch
	}{{"-i", r.In}, {"-o", r.Out}} {
		if l.m.Name != "" {
			not(l.m.Not)
			a = append(a, l.opt, l.m.Name)
		}
	}
	if r.Proto.Num != 0 {
		not(r.Proto.Not)
		a = append(a, "-p", protoName(r.Proto.Num))
	}
	for _, m := range r.Matches {
		a = append(a, m.args()...)
	}
	if r.Target != nil {
		a = append(a, r.Target.targetArgs()...)
	}
	return strings.Join(a, " ")
}

// builder collects arguments with their negations.
type builder []string

func (b *builder) opt(not bool, words ...string) {
	if not {
		*b = append(*b, "!")
	}
	*b = append(*b, words...)
}

// String returns FIRST or FIRST:LAST.
func (p PortRange) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d:%d", p.First, p.Last)
}

// Contains reports whether a port is inside, not looking at Not; unset contains every port.
func (p PortRange) Contains(port uint16) bool { return !p.Set || p.First <= port && port <= p.Last }

var tcpFlagNames = []string{"FIN", "SYN", "RST", "PSH", "ACK"}

func formatFlags(f uint8) string {
	var s []string
	for i, n := range tcpFlagNames {
		if f&(1<<i) != 0 {
			s = append(s, n)
		}
	}
	if s == nil {
		return "NONE"
	}
	return strings.Join(s, ",")
}

func (m MatchPorts) args() []string {
	b := builder{"-m", protoName(m.Proto)}
	if m.Src.Set {
		b.opt(m.Src.Not, "--sport", m.Src.String())
	}
	if m.Dst.Set {
		b.opt(m.Dst.Not, "--dport", m.Dst.String())
	}
	if m.FlagsMask != 0 {
		b.opt(m.FlagsNot, "--tcp-flags", formatFlags(m.FlagsMask), formatFlags(m.Flags))
	}
	return b
}

func (m MatchMultiport) args() []string {
	var s []string
	for _, p := range m.Ports {
		s = append(s, p.String())
	}
	b := builder{"-m", "multiport"}
	b.opt(m.Not, "--"+m.Side, strings.Join(s, ","))
	return b
}

// matchICMP6 is MatchICMP of IPv6, which iptables names otherwise.
type matchICMP6 MatchICMP

func (m MatchICMP) args() []string {
	b := builder{"-m", "icmp"}
	b.opt(m.Not, "--icmp-type", m.typeCode())
	return b
}

func (m matchICMP6) args() []string {
	b := builder{"-m", "icmp6"}
	b.opt(m.Not, "--icmpv6-type", MatchICMP(m).typeCode())
	return b
}

// ICMP returns the ICMP or ICMPv6 condition that m is, if it is one.
func ICMP(m Match) (MatchICMP, bool) {
	switch m := m.(type) {
	case MatchICMP:
		return m, true
	case matchICMP6:
		return MatchICMP(m), true
	}
	return MatchICMP{}, false
}

func (m MatchICMP) typeCode() string {
	if m.Code < 0 {
		return strconv.Itoa(int(m.Type))
	}
	return fmt.Sprintf("%d/%d", m.Type, m.Code)
}

func (m MatchSet) args() []string {
	b := builder{"-m", "set"}
	b.opt(m.Not, "--match-set", m.Name, strings.Join(m.Dirs, ","))
	return b
}

func (m MatchMark) args() []string {
	b := builder{"-m", "mark"}
	if m.Conn {
		b[1] = "connmark"
	}
	b.opt(m.Not, "--mark", formatMark(m.Value, m.Mask))
	return b
}

func (m MatchMAC) args() []string {
	b := builder{"-m", "mac"}
	b.opt(m.Not, "--mac-source", m.MAC.String())
	return b
}

// String returns the states as iptables prints them, as "NEW,RELATED".
func (s CTState) String() string {
	var n []string
	for i, name := range ctStateNames {
		if s&(1<<i) != 0 {
			n = append(n, name)
		}
	}
	return strings.Join(n, ",")
}

func (m MatchConntrack) args() []string {
	if m.Legacy {
		b := builder{"-m", "state"}
		b.opt(m.StatesNot, "--state", m.States.String())
		return b
	}
	b := builder{"-m", "conntrack"}
	if m.States != 0 {
		b.opt(m.StatesNot, "--ctstate", m.States.String())
	}
	if m.Proto.Num != 0 {
		b.opt(m.Proto.Not, "--ctproto", strconv.Itoa(int(m.Proto.Num)))
	}
	for _, n := range []struct {
		opt string
		m   NetMatch
	}{{"--ctorigsrc", m.OrigSrc}, {"--ctorigdst", m.OrigDst}, {"--ctreplsrc", m.ReplySrc}, {"--ctrepldst", m.ReplyDst}} {
		if n.m.Prefix.IsValid() {
			b.opt(n.m.Not, n.opt, formatPrefix(n.m.Prefix))
		}
	}
	if m.OrigSPort.Set {
		b.opt(m.OrigSPort.Not, "--ctorigsrcport", m.OrigSPort.String())
	}
	if m.OrigDPort.Set {
		b.opt(m.OrigDPort.Not, "--ctorigdstport", m.OrigDPort.String())
	}
	if m.Dir != "" {
		b.opt(false, "--ctdir", m.Dir)
	}
	return b
}

func (m MatchAddrType) args() []string {
	b := builder{"-m", "addrtype"}
	if m.Src != "" {
		b.opt(m.SrcNot, "--src-type", m.Src)
	}
	if m.Dst != "" {
		b.opt(m.DstNot, "--dst-type", m.Dst)
	}
	if m.LimitIn {
		b.opt(false, "--limit-iface-in")
	}
	if m.LimitOut {
		b.opt(false, "--limit-iface-out")
	}
	return b
}

func (m MatchComment) args() []string { return []string{"-m", "comment", "--comment", quote(m.Text)} }

// quote prints a string as xtables does: bare if it has only letters, digits, '_' and '-'.
func quote(s string) string {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' {
			return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`).Replace(s) + `"`
		}
	}
	if s == "" {
		return `""`
	}
	return s
}

func (t TargetVerdict) targetArgs() []string { return []string{"-j", t.Name} }

func (t TargetJump) targetArgs() []string {
	if t.Goto {
		return []string{"-g", t.Chain}
	}
	return []string{"-j", t.Chain}
}

func (t TargetReject) targetArgs() []string { return []string{"-j", "REJECT", "--reject-with", t.With} }

func (t TargetMark) targetArgs() []string {
	return []string{"-j", "MARK", "--set-xmark", fmt.Sprintf("0x%x/0x%x", t.Value, t.Mask)}
}

func (t TargetConnmark) targetArgs() []string {
	if t.Op == "set" {
		return []string{"-j", "CONNMARK", "--set-xmark", fmt.Sprintf("0x%x/0x%x", t.Value, t.CTMask)}
	}
	return []string{
		"-j", "CONNMARK", "--" + t.Op + "-mark",
		"--nfmask", fmt.Sprintf("0x%x", t.NFMask), "--ctmask", fmt.Sprintf("0x%x", t.CTMask),
	}
}

func (t TargetNAT) targetArgs() []string {
	b := builder{"-j", t.Kind}
	ports := strings.ReplaceAll(t.Ports.String(), ":", "-")
	switch {
	case t.Kind == "MASQUERADE":
		if t.Ports.Set {
			b.opt(false, "--to-ports", ports)
		}
	default:
		to := ""
		if t.Addr.IsValid() {
			to = t.Addr.String()
		}
		if t.Ports.Set {
			if t.Addr.Is6() {
				to = "[" + to + "]"
			}
			to += ":" + ports
		}
		b.opt(false, map[string]string{"SNAT": "--to-source", "DNAT": "--to-destination"}[t.Kind], to)
	}
	if t.Random {
		b.opt(false, "--random")
	}
	if t.RandomFully {
		b.opt(false, "--random-fully")
	}
	if t.Persistent {
		b.opt(false, "--persistent")
	}
	return b
}

func (TargetNotrack) targetArgs() []string { return []string{"-j", "CT", "--notrack"} }

func (t TargetLog) targetArgs() []string {
	b := builder{"-j", t.Name}
	for _, a := range t.Args {
		if strings.HasPrefix(a, "--") {
			b.opt(false, a)
		} else {
			b.opt(false, quoteLog(a))
		}
	}
	return b
}

func quoteLog(s string) string {
	if strings.ContainsAny(s, " \"'\\:") {
		return quote(s)
	}
	return s
}

// protoNumbers are the protocols with a name; iptables prints the names of /etc/protocols.
var protoNumbers = []struct {
	name string
	num  uint8
}{
	{"icmp", 1},
	{"igmp", 2},
	{"tcp", 6},
	{"udp", 17},
	{"gre", 47},
	{"esp", 50},
	{"ah", 51},
	{"ipv6-icmp", 58},
	{"vrrp", 112},
	{"sctp", 132},
	{"udplite", 136},
}

func protoName(n uint8) string {
	for _, p := range protoNumbers {
		if p.num == n {
			return p.name
		}
	}
	return strconv.Itoa(int(n))
}

func parseProto(s string) (uint8, error) {
	switch s {
	case "icmpv6", "icmp6":
		s = "ipv6-icmp"
	case "all":
		return 0, nil
	}
	for _, p := range protoNumbers {
		if p.name == strings.ToLower(s) {
			return p.num, nil
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("protocol %q: want a name (tcp, udp, sctp, icmp, …) or 0 to 255", s)
	}
	return uint8(n), nil
}

// Contains reports whether an address meets the condition.
func (m NetMatch) Contains(a netip.Addr) bool {
	return !m.Prefix.IsValid() || m.Prefix.Contains(a) != m.Not
}

// Matches reports whether a link name meets the condition; "" is no link.
func (m LinkMatch) Matches(link string) bool {
	if m.Name == "" {
		return true
	}
	hit := m.Name == link
	if p, ok := strings.CutSuffix(m.Name, "+"); ok {
		hit = strings.HasPrefix(link, p)
	}
	return hit != m.Not
}

// Matches reports whether a protocol meets the condition.
func (m ProtoMatch) Matches(proto uint8) bool { return m.Num == 0 || (m.Num == proto) != m.Not }
