package host

import (
	"fmt"
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
	w    []string
	r    *RuleSpec
	not  bool
	seen string // the options of once that came
	// module is the match of the last -m; its options may follow.
	module string
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

// once are the options that a rule has once at the most, by all their names.
var once = map[string]string{
	"-s": "-s", "--source": "-s", "--src": "-s", "-d": "-d", "--destination": "-d", "--dst": "-d", "-i": "-i", "--in-interface": "-i",
	"-o": "-o", "--out-interface": "-o", "-p": "-p", "--protocol": "-p", "--proto": "-p",
}

func (p *specParser) option(opt string) error {
	if name := once[opt]; name != "" {
		if strings.Contains(p.seen, name) {
			return fmt.Errorf("multiple %s flags not allowed", name)
		}
		p.seen += name
	}
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
