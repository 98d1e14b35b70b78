package host

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

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
