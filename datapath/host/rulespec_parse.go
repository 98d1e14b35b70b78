package host

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// SplitWords splits a command line at spaces, with "…" and '…' and backslash as iptables-restore
// and the shell read them.
func SplitWords(s string) ([]string, error) {
	var out []string
	var cur strings.Builder
	in, quoted := false, rune(0)
	esc := false
	for _, r := range s {
		switch {
		case esc:
			cur.WriteRune(r)
			esc = false
		case r == '\\' && quoted != '\'':
			esc, in = true, true
		case quoted != 0:
			if r == quoted {
				quoted = 0
			} else {
				cur.WriteRune(r)
			}
		case r == '"' || r == '\'':
			quoted, in = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if in {
				out = append(out, cur.String())
				cur.Reset()
				in = false
			}
		default:
			cur.WriteRune(r)
			in = true
		}
	}
	if quoted != 0 || esc {
		return nil, fmt.Errorf("%q: open quote or backslash at the end", s)
	}
	if in {
		out = append(out, cur.String())
	}
	return out, nil
}

// ParseRuleSpec reads a rule as one writes it after "iptables -A CHAIN". What the model has no
// meaning for is an error that names the word.
func ParseRuleSpec(f Family, text string) (*RuleSpec, error) {
	w, err := SplitWords(text)
	if err != nil {
		return nil, err
	}
	return ParseRuleWords(f, w)
}

// ParseRuleWords is ParseRuleSpec for a text that is split already.
func ParseRuleWords(f Family, w []string) (*RuleSpec, error) {
	p := &specParser{w: w, r: &RuleSpec{Family: f}}
	if err := p.parse(); err != nil {
		return nil, fmt.Errorf("rule %q: %w", strings.Join(w, " "), err)
	}
	return p.r, nil
}

type specParser struct {
	w   []string
	r   *RuleSpec
	not bool
	// module is the match of the last -m; its options may follow.
	module string
	// protoPorts is set once -p has implied or -m has named the protocol's own match.
	protoMatch bool
}

func (p *specParser) value(opt string) (string, error) {
	if len(p.w) == 0 {
		return "", fmt.Errorf("nothing after %s", opt)
	}
	v := p.w[0]
	p.w = p.w[1:]
	if v == "!" {
		return "", fmt.Errorf("%s !: write ! before the option", opt)
	}
	return v, nil
}

func (p *specParser) parse() error {
	for len(p.w) > 0 {
		opt := p.w[0]
		p.w = p.w[1:]
		if opt == "!" {
			if p.not {
				return fmt.Errorf("two ! in a row")
			}
			p.not = true
			continue
		}
		if err := p.option(opt); err != nil {
			return err
		}
		if p.not {
			return fmt.Errorf("%s cannot be negated", opt)
		}
	}
	if p.not {
		return fmt.Errorf("! at the end")
	}
	return nil
}

// negated returns and clears the ! in front of the option.
func (p *specParser) negated() bool {
	n := p.not
	p.not = false
	return n
}

func (p *specParser) option(opt string) error {
	switch opt {
	case "-s", "--source", "--src", "-d", "--destination", "--dst":
		m, err := p.net(opt)
		if err != nil {
			return err
		}
		if opt == "-s" || opt == "--source" || opt == "--src" {
			p.r.Src = m
		} else {
			p.r.Dst = m
		}
	case "-i", "--in-interface", "-o", "--out-interface":
		n := p.negated()
		v, err := p.value(opt)
		if err != nil {
			return err
		}
		if err := checkLinkName(opt, v); err != nil {
			return err
		}
		if opt == "-i" || opt == "--in-interface" {
			p.r.In = LinkMatch{v, n}
		} else {
			p.r.Out = LinkMatch{v, n}
		}
	case "-p", "--protocol", "--proto":
		n := p.negated()
		v, err := p.value(opt)
		if err != nil {
			return err
		}
		num, err := parseProto(v)
		if err != nil {
			return err
		}
		p.r.Proto = ProtoMatch{num, n}
		if num == 0 {
			p.r.Proto.Not = false
		}
	case "-m", "--match":
		v, err := p.value(opt)
		if err != nil {
			return err
		}
		return p.matchModule(v)
	case "-j", "--jump", "-g", "--goto":
		v, err := p.value(opt)
		if err != nil {
			return err
		}
		if p.r.Target != nil {
			return fmt.Errorf("a second target %s", v)
		}
		return p.target(v, opt == "-g" || opt == "--goto")
	default:
		return p.matchOption(opt)
	}
	return nil
}

func (p *specParser) net(opt string) (NetMatch, error) {
	n := p.negated()
	v, err := p.value(opt)
	if err != nil {
		return NetMatch{}, err
	}
	if v == "0/0" && p.r.Family == V4 {
		v = "0.0.0.0/0"
	}
	pre, err := parsePrefix(v)
	if err != nil {
		return NetMatch{}, fmt.Errorf("%s: %w", opt, err)
	}
	if FamilyOf(pre.Addr()) != p.r.Family {
		return NetMatch{}, fmt.Errorf("%s %s: not of family %s", opt, v, p.r.Family)
	}
	if pre.Bits() == 0 && !n {
		return NetMatch{}, nil
	}
	return NetMatch{pre.Masked(), n}, nil
}

func (p *specParser) add(m Match) { p.r.Matches = append(p.r.Matches, m) }

// last returns the match that the options of the current module go to.
func last[T Match](p *specParser) (T, bool) {
	if n := len(p.r.Matches); n > 0 {
		m, ok := p.r.Matches[n-1].(T)
		return m, ok
	}
	var zero T
	return zero, false
}

func (p *specParser) setLast(m Match) { p.r.Matches[len(p.r.Matches)-1] = m }

func (p *specParser) matchModule(name string) error {
	p.module = name
	switch name {
	case "tcp", "udp", "sctp":
		num, err := parseProto(name)
		if err != nil {
			return err
		}
		if p.r.Proto != (ProtoMatch{Num: num}) {
			return fmt.Errorf("-m %s needs -p %s", name, name)
		}
		p.add(MatchPorts{Proto: num})
	case "icmp", "icmp6":
		num, six := uint8(1), name == "icmp6"
		if six {
			num = 58
		}
		if p.r.Proto != (ProtoMatch{Num: num}) || six != (p.r.Family == V6) {
			return fmt.Errorf("-m %s needs -p of that protocol and its family", name)
		}
	case "conntrack":
		p.add(MatchConntrack{})
	case "state":
		p.add(MatchConntrack{Legacy: true})
	case "addrtype":
		p.add(MatchAddrType{})
	case "comment", "set", "mark", "connmark", "mac", "multiport":
	default:
		return fmt.Errorf("-m %s: not modelled (known: addrtype, comment, connmark, conntrack, icmp, icmp6, mac, mark, multiport, sctp, set, state, tcp, udp)", name)
	}
	return nil
}

func (p *specParser) matchOption(opt string) error {
	switch opt {
	case "--sport", "--source-port", "--dport", "--destination-port", "--tcp-flags", "--syn":
		return p.ports(opt)
	case "--icmp-type", "--icmpv6-type":
		return p.icmp(opt)
	case "--sports", "--source-ports", "--dports", "--destination-ports", "--ports":
		return p.multiport(opt)
	case "--match-set":
		return p.set(opt)
	case "--mark":
		if p.module != "mark" && p.module != "connmark" {
			return fmt.Errorf("--mark needs -m mark or -m connmark")
		}
		n := p.negated()
		v, err := p.value(opt)
		if err != nil {
			return err
		}
		val, mask, err := parseMark(v)
		if err != nil {
			return err
		}
		p.add(MatchMark{Value: val, Mask: mask, Not: n, Conn: p.module == "connmark"})
	case "--mac-source":
		n := p.negated()
		v, err := p.value(opt)
		if err != nil {
			return err
		}
		mac, err := ParseMAC(v)
		if err != nil {
			return err
		}
		p.add(MatchMAC{mac, n})
	case "--comment":
		v, err := p.value(opt)
		if err != nil {
			return err
		}
		if len(v) > 255 {
			return fmt.Errorf("comment of %d bytes: want at most 255", len(v))
		}
		p.add(MatchComment{v})
	case "--ctstate", "--state", "--ctproto", "--ctorigsrc", "--ctorigdst", "--ctreplsrc", "--ctrepldst", "--ctorigsrcport", "--ctorigdstport", "--ctdir":
		return p.conntrack(opt)
	case "--src-type", "--dst-type", "--limit-iface-in", "--limit-iface-out":
		return p.addrType(opt)
	default:
		return fmt.Errorf("option %s: not modelled", opt)
	}
	return nil
}

func (p *specParser) ports(opt string) error {
	n := p.negated()
	m, ok := last[MatchPorts](p)
	if !ok || p.module != protoName(m.Proto) {
		// -p tcp --dport means -p tcp -m tcp --dport.
		switch p.r.Proto {
		case ProtoMatch{Num: 6}, ProtoMatch{Num: 17}, ProtoMatch{Num: 132}:
		default:
			return fmt.Errorf("%s needs -p tcp, udp or sctp", opt)
		}
		m = MatchPorts{Proto: p.r.Proto.Num}
		p.module = protoName(m.Proto)
		p.add(m)
	}
	switch opt {
	case "--syn":
		m.FlagsMask, m.Flags, m.FlagsNot = 1|2|4|16, 2, n
	case "--tcp-flags":
		var err error
		if m.FlagsMask, err = p.flags(opt); err != nil {
			return err
		}
		if m.Flags, err = p.flags(opt); err != nil {
			return err
		}
		m.FlagsNot = n
	default:
		v, err := p.value(opt)
		if err != nil {
			return err
		}
		r, err := parsePorts(v, ":")
		if err != nil {
			return fmt.Errorf("%s: %w", opt, err)
		}
		r.Not = n
		if opt == "--sport" || opt == "--source-port" {
			m.Src = r
		} else {
			m.Dst = r
		}
	}
	if m.FlagsMask != 0 && m.Proto != 6 {
		return fmt.Errorf("%s needs -p tcp", opt)
	}
	p.setLast(m)
	return nil
}

func (p *specParser) flags(opt string) (uint8, error) {
	v, err := p.value(opt)
	if err != nil {
		return 0, err
	}
	var f uint8
	for s := range strings.SplitSeq(v, ",") {
		if s == "NONE" {
			continue
		}
		i := slices.Index(tcpFlagNames, s)
		if i < 0 {
			return 0, fmt.Errorf("%s %q: want FIN, SYN, RST, PSH, ACK or NONE", opt, s)
		}
		f |= 1 << i
	}
	return f, nil
}

// parsePorts reads FIRST or FIRST SEP LAST.
func parsePorts(s, sep string) (PortRange, error) {
	first, lastPort, ok := strings.Cut(s, sep)
	if !ok {
		lastPort = first
	}
	if ok && first == "" {
		first = "0"
	}
	if ok && lastPort == "" {
		lastPort = "65535"
	}
	a, err1 := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(lastPort, 10, 16)
	if err1 != nil || err2 != nil || a > b {
		return PortRange{}, fmt.Errorf("ports %q: want PORT or FIRST%sLAST", s, sep)
	}
	return PortRange{First: uint16(a), Last: uint16(b), Set: true}, nil
}

var icmpTypes = map[string]string{
	"echo-reply": "0", "destination-unreachable": "3", "echo-request": "8", "time-exceeded": "11",
	"host-unreachable": "3/1", "port-unreachable": "3/3", "fragmentation-needed": "3/4",
}

var icmp6Types = map[string]string{
	"destination-unreachable": "1", "packet-too-big": "2", "time-exceeded": "3", "echo-request": "128",
	"echo-reply": "129", "neighbour-solicitation": "135", "neighbor-solicitation": "135",
	"neighbour-advertisement": "136", "neighbor-advertisement": "136", "port-unreachable": "1/4",
}

func (p *specParser) icmp(opt string) error {
	n := p.negated()
	six := opt == "--icmpv6-type"
	want, names := ProtoMatch{Num: 1}, icmpTypes
	if six {
		want, names = ProtoMatch{Num: 58}, icmp6Types
	}
	if p.r.Proto != want {
		return fmt.Errorf("%s needs -p %s", opt, protoName(want.Num))
	}
	v, err := p.value(opt)
	if err != nil {
		return err
	}
	if s, ok := names[v]; ok {
		v = s
	}
	typ, code, hasCode := strings.Cut(v, "/")
	m := MatchICMP{Code: -1, Not: n}
	t, err := strconv.ParseUint(typ, 10, 8)
	if err != nil {
		return fmt.Errorf("%s %q: want TYPE, TYPE/CODE or a known name", opt, v)
	}
	m.Type = uint8(t)
	if hasCode {
		c, err := strconv.ParseUint(code, 10, 8)
		if err != nil {
			return fmt.Errorf("%s %q: want TYPE, TYPE/CODE or a known name", opt, v)
		}
		m.Code = int(c)
	}
	if six {
		p.add(matchICMP6(m))
	} else {
		p.add(m)
	}
	return nil
}

func (p *specParser) multiport(opt string) error {
	if p.module != "multiport" {
		return fmt.Errorf("%s needs -m multiport", opt)
	}
	switch p.r.Proto {
	case ProtoMatch{Num: 6}, ProtoMatch{Num: 17}, ProtoMatch{Num: 132}:
	default:
		return fmt.Errorf("multiport needs -p tcp, udp or sctp")
	}
	m := MatchMultiport{Not: p.negated(), Side: "ports"}
	switch opt {
	case "--sports", "--source-ports":
		m.Side = "sports"
	case "--dports", "--destination-ports":
		m.Side = "dports"
	}
	v, err := p.value(opt)
	if err != nil {
		return err
	}
	for s := range strings.SplitSeq(v, ",") {
		r, err := parsePorts(s, ":")
		if err != nil {
			return fmt.Errorf("%s: %w", opt, err)
		}
		m.Ports = append(m.Ports, r)
	}
	if len(m.Ports) > 15 {
		return fmt.Errorf("%s: %d ports, want at most 15", opt, len(m.Ports))
	}
	p.add(m)
	return nil
}

func (p *specParser) set(opt string) error {
	if p.module != "set" {
		return fmt.Errorf("%s needs -m set", opt)
	}
	m := MatchSet{Not: p.negated()}
	var err error
	if m.Name, err = p.value(opt); err != nil {
		return err
	}
	v, err := p.value(opt)
	if err != nil {
		return err
	}
	m.Dirs = strings.Split(v, ",")
	for _, d := range m.Dirs {
		if d != "src" && d != "dst" || len(m.Dirs) > 2 {
			return fmt.Errorf("%s %s %s: want src or dst, one or two of them", opt, m.Name, v)
		}
	}
	p.add(m)
	return nil
}

func (p *specParser) conntrack(opt string) error {
	n := p.negated()
	m, ok := last[MatchConntrack](p)
	if !ok || m.Legacy != (opt == "--state") {
		return fmt.Errorf("%s needs -m conntrack (--state: -m state)", opt)
	}
	p.not = n
	switch opt {
	case "--ctorigsrc", "--ctorigdst", "--ctreplsrc", "--ctrepldst":
		nm, err := p.net(opt)
		if err != nil {
			return err
		}
		switch opt {
		case "--ctorigsrc":
			m.OrigSrc = nm
		case "--ctorigdst":
			m.OrigDst = nm
		case "--ctreplsrc":
			m.ReplySrc = nm
		default:
			m.ReplyDst = nm
		}
		p.setLast(m)
		return nil
	}
	n = p.negated()
	v, err := p.value(opt)
	if err != nil {
		return err
	}
	switch opt {
	case "--ctstate", "--state":
		for s := range strings.SplitSeq(v, ",") {
			i := slices.Index(ctStateNames, s)
			if i < 0 {
				return fmt.Errorf("%s %q: want %s", opt, s, strings.Join(ctStateNames, ", "))
			}
			m.States |= 1 << i
		}
		m.StatesNot = n
	case "--ctproto":
		num, err := parseProto(v)
		if err != nil {
			return err
		}
		m.Proto = ProtoMatch{num, n}
	case "--ctorigsrcport", "--ctorigdstport":
		r, err := parsePorts(v, ":")
		if err != nil {
			return fmt.Errorf("%s: %w", opt, err)
		}
		r.Not = n
		if opt == "--ctorigsrcport" {
			m.OrigSPort = r
		} else {
			m.OrigDPort = r
		}
	case "--ctdir":
		if v != "ORIGINAL" && v != "REPLY" {
			return fmt.Errorf("--ctdir %q: want ORIGINAL or REPLY", v)
		}
		m.Dir = v
		p.not = n
	}
	p.setLast(m)
	return nil
}

func (p *specParser) addrType(opt string) error {
	m, ok := last[MatchAddrType](p)
	if !ok {
		return fmt.Errorf("%s needs -m addrtype", opt)
	}
	switch opt {
	case "--limit-iface-in":
		m.LimitIn = true
	case "--limit-iface-out":
		m.LimitOut = true
	default:
		n := p.negated()
		v, err := p.value(opt)
		if err != nil {
			return err
		}
		switch v {
		case "LOCAL", "UNICAST", "BROADCAST", "MULTICAST":
		default:
			return fmt.Errorf("%s %q: want LOCAL, UNICAST, BROADCAST or MULTICAST", opt, v)
		}
		if opt == "--src-type" {
			m.Src, m.SrcNot = v, n
		} else {
			m.Dst, m.DstNot = v, n
		}
	}
	if m.LimitIn && m.LimitOut {
		return fmt.Errorf("--limit-iface-in and --limit-iface-out exclude each other")
	}
	p.setLast(m)
	return nil
}

// target reads the target and its options, which end the rule.
func (p *specParser) target(name string, isGoto bool) error {
	var err error
	switch {
	case isGoto:
		p.r.Target = TargetJump{name, true}
	case name == "ACCEPT" || name == "DROP" || name == "RETURN":
		p.r.Target = TargetVerdict{name}
	case name == "REJECT":
		p.r.Target, err = p.reject()
	case name == "MARK":
		p.r.Target, err = p.mark()
	case name == "CONNMARK":
		p.r.Target, err = p.connmark()
	case name == "SNAT" || name == "DNAT" || name == "MASQUERADE":
		p.r.Target, err = p.nat(name)
	case name == "CT":
		if len(p.w) != 1 || p.w[0] != "--notrack" {
			return fmt.Errorf("CT %s: not modelled, only CT --notrack", strings.Join(p.w, " "))
		}
		p.w = nil
		p.r.Target = TargetNotrack{}
	case name == "NOTRACK":
		p.r.Target = TargetNotrack{}
	case name == "LOG" || name == "TRACE":
		p.r.Target = TargetLog{name, p.w}
		p.w = nil
	case unmodelledTargets[name]:
		return fmt.Errorf("target %s: not modelled", name)
	default:
		if err := checkWord("chain", name, maxChainName); err != nil {
			return err
		}
		p.r.Target = TargetJump{name, false}
	}
	if err != nil {
		return fmt.Errorf("target %s: %w", name, err)
	}
	return nil
}

// maxChainName is XT_EXTENSION_MAXNAMELEN-1 of linux/netfilter/x_tables.h.
const maxChainName = 28

var unmodelledTargets = map[string]bool{
	"AUDIT": true, "CHECKSUM": true, "CLASSIFY": true, "CONNSECMARK": true, "DNPT": true, "DSCP": true,
	"ECN": true, "HL": true, "HMARK": true, "IDLETIMER": true, "LED": true, "NETMAP": true, "NFLOG": true,
	"NFQUEUE": true, "QUEUE": true, "RATEEST": true, "REDIRECT": true, "SECMARK": true, "SET": true,
	"SNPT": true, "SYNPROXY": true, "TCPMSS": true, "TCPOPTSTRIP": true, "TEE": true, "TOS": true,
	"TPROXY": true, "TTL": true, "ULOG": true, "CLUSTERIP": true,
}

var (
	rejects4 = map[string]string{
		"net-unreach": "icmp-net-unreachable", "host-unreach": "icmp-host-unreachable", "port-unreach": "icmp-port-unreachable",
		"admin-prohib": "icmp-admin-prohibited", "tcp-rst": "tcp-reset",
	}
	rejectNames4 = []string{"icmp-net-unreachable", "icmp-host-unreachable", "icmp-port-unreachable", "icmp-host-prohibited", "icmp-admin-prohibited", "tcp-reset"}
	rejectNames6 = []string{"icmp6-no-route", "icmp6-adm-prohibited", "icmp6-addr-unreachable", "icmp6-port-unreachable", "tcp-reset"}
)

func (p *specParser) reject() (Target, error) {
	names := rejectNames4
	with := "icmp-port-unreachable"
	if p.r.Family == V6 {
		names, with = rejectNames6, "icmp6-port-unreachable"
	}
	for len(p.w) > 0 {
		opt := p.w[0]
		p.w = p.w[1:]
		if opt != "--reject-with" {
			return nil, fmt.Errorf("option %s: not modelled", opt)
		}
		v, err := p.value(opt)
		if err != nil {
			return nil, err
		}
		if long, ok := rejects4[v]; ok {
			v = long
		}
		if !slices.Contains(names, v) {
			return nil, fmt.Errorf("--reject-with %q: want %s", v, strings.Join(names, ", "))
		}
		with = v
	}
	if with == "tcp-reset" && p.r.Proto != (ProtoMatch{Num: 6}) {
		return nil, fmt.Errorf("tcp-reset needs -p tcp")
	}
	return TargetReject{with}, nil
}

// xmark computes value and mask of --set-xmark for the other ways to write it.
func xmark(opt, v string) (value, mask uint32, err error) {
	value, mask, err = parseMark(v)
	if err != nil {
		return 0, 0, err
	}
	switch opt {
	case "--set-xmark":
		return value, mask, nil
	case "--set-mark":
		return value, mask | value, nil
	}
	if strings.Contains(v, "/") {
		return 0, 0, fmt.Errorf("%s %s: takes no mask", opt, v)
	}
	switch opt {
	case "--or-mark":
		return value, value, nil
	case "--and-mark":
		return 0, ^value, nil
	default: // --xor-mark
		return value, 0, nil
	}
}

func (p *specParser) mark() (Target, error) {
	if len(p.w) != 2 {
		return nil, fmt.Errorf("want one of --set-xmark, --set-mark, --or-mark, --and-mark, --xor-mark and a value; found %q", strings.Join(p.w, " "))
	}
	opt, v := p.w[0], p.w[1]
	p.w = nil
	switch opt {
	case "--set-xmark", "--set-mark", "--or-mark", "--and-mark", "--xor-mark":
	default:
		return nil, fmt.Errorf("option %s: not modelled", opt)
	}
	val, mask, err := xmark(opt, v)
	return TargetMark{val, mask}, err
}

func (p *specParser) connmark() (Target, error) {
	t := TargetConnmark{NFMask: 0xffffffff, CTMask: 0xffffffff}
	for len(p.w) > 0 {
		opt := p.w[0]
		p.w = p.w[1:]
		switch opt {
		case "--save-mark", "--restore-mark":
			if t.Op != "" {
				return nil, fmt.Errorf("a second operation %s", opt)
			}
			t.Op = strings.TrimSuffix(strings.TrimPrefix(opt, "--"), "-mark")
			continue
		}
		v, err := p.value(opt)
		if err != nil {
			return nil, err
		}
		switch opt {
		case "--set-xmark", "--set-mark", "--or-mark", "--and-mark", "--xor-mark":
			if t.Op != "" {
				return nil, fmt.Errorf("a second operation %s", opt)
			}
			t.Op = "set"
			if t.Value, t.CTMask, err = xmark(opt, v); err != nil {
				return nil, err
			}
			t.NFMask = 0
		case "--nfmask", "--ctmask", "--mask":
			m, err := strconv.ParseUint(v, 0, 32)
			if err != nil || t.Op != "save" && t.Op != "restore" {
				return nil, fmt.Errorf("%s %q: want a mask of 32 bits, after --save-mark or --restore-mark", opt, v)
			}
			if opt != "--ctmask" {
				t.NFMask = uint32(m)
			}
			if opt != "--nfmask" {
				t.CTMask = uint32(m)
			}
		default:
			return nil, fmt.Errorf("option %s: not modelled", opt)
		}
	}
	if t.Op == "" {
		return nil, fmt.Errorf("want --set-xmark, --save-mark or --restore-mark")
	}
	return t, nil
}

func (p *specParser) nat(kind string) (Target, error) {
	t := TargetNAT{Kind: kind}
	for len(p.w) > 0 {
		opt := p.w[0]
		p.w = p.w[1:]
		switch opt {
		case "--random":
			t.Random = true
			continue
		case "--random-fully":
			t.RandomFully = true
			continue
		case "--persistent":
			t.Persistent = true
			continue
		}
		v, err := p.value(opt)
		if err != nil {
			return nil, err
		}
		switch {
		case opt == "--to-ports" && kind == "MASQUERADE":
			t.Ports, err = parsePorts(v, "-")
		case (opt == "--to-source" || opt == "--to") && kind == "SNAT", (opt == "--to-destination" || opt == "--to") && kind == "DNAT":
			t.Addr, t.Ports, err = parseNATTo(v)
			if err == nil && t.Addr.IsValid() && FamilyOf(t.Addr) != p.r.Family {
				err = fmt.Errorf("%s %s: not of family %s", opt, v, p.r.Family)
			}
		default:
			err = fmt.Errorf("option %s: not modelled", opt)
		}
		if err != nil {
			return nil, err
		}
	}
	if kind != "MASQUERADE" && !t.Addr.IsValid() && !t.Ports.Set {
		return nil, fmt.Errorf("no address to translate to")
	}
	if t.Ports.Set && p.r.Proto.Num == 0 {
		return nil, fmt.Errorf("a port needs -p tcp, udp or sctp")
	}
	return t, nil
}

// parseNATTo reads ADDR, ADDR:PORT, ADDR:FIRST-LAST, [ADDR6]:PORT or :PORT.
func parseNATTo(s string) (netip.Addr, PortRange, error) {
	var none PortRange
	host, port := s, ""
	switch {
	case strings.HasPrefix(s, "["):
		h, rest, ok := strings.Cut(s[1:], "]")
		if !ok || rest != "" && !strings.HasPrefix(rest, ":") {
			return netip.Addr{}, none, fmt.Errorf("address %q: want [ADDRESS]:PORT", s)
		}
		host, port = h, strings.TrimPrefix(rest, ":")
	case strings.Count(s, ":") == 1:
		host, port, _ = strings.Cut(s, ":")
	}
	var a netip.Addr
	if host != "" {
		var err error
		if a, err = netip.ParseAddr(host); err != nil || checkAddr("address", a) != nil {
			return a, none, fmt.Errorf("address %q: want one address with an optional port (ranges of addresses are not modelled)", s)
		}
	}
	if port == "" {
		return a, none, nil
	}
	r, err := parsePorts(port, "-")
	return a, r, err
}
