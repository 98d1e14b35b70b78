package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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
