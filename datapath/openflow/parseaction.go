package openflow

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// parseActions parses a list of actions that follow a match of context c, in a flow of the table.
func parseActions(s string, c *context, table uint8) ([]Action, error) {
	items := splitItems(s, false)
	if len(items) == 0 || len(items) == 1 && items[0] == "drop" {
		return nil, nil
	}
	list := make([]Action, 0, len(items))
	for _, item := range items {
		a, err := parseAction(item, c, table)
		if err != nil {
			return nil, fmt.Errorf("action %q: %w", item, err)
		}
		list = append(list, a)
	}
	return list, nil
}

// cutName splits "name(args)" and "name:args".
func cutName(s string) (name, args string, paren bool) {
	i := strings.IndexAny(s, "(:=")
	switch {
	case i < 0:
		return s, "", false
	case s[i] == '(':
		return s[:i], strings.TrimSuffix(s[i+1:], ")"), true
	}
	return s[:i], s[i+1:], false
}

func parseAction(s string, c *context, table uint8) (Action, error) {
	name, args, paren := cutName(s)
	if paren && !strings.HasSuffix(s, ")") {
		return nil, errors.New("missing )")
	}
	switch name {
	case "output":
		if paren {
			return nil, errors.New("output(…) is not supported")
		}
		if p, err := parsePort(args); err == nil {
			return Output(p), nil
		}
		r, err := parseRange(args)
		if err != nil {
			return nil, fmt.Errorf("%q is neither a port nor a field", args)
		}
		return OutputReg(r), nil
	case "controller", "CONTROLLER":
		return parseController(args, paren)
	case "group":
		n, err := parseUint("group", args, 32)
		return GroupAction{uint32(n)}, err
	case "resubmit":
		return parseResubmit(args, paren)
	case "goto_table":
		n, err := parseUint("table", args, 8)
		return GotoAction{uint8(n)}, err
	case "meter":
		n, err := parseUint("meter", args, 32)
		return MeterAction{uint32(n)}, err
	case "set_field":
		return parseSetField(args, c)
	case "load":
		return parseLoad(args)
	case "move":
		src, dst, ok := strings.Cut(args, "->")
		if !ok {
			return nil, errors.New("want move:SRC->DST")
		}
		a, err := parseRange(src)
		if err != nil {
			return nil, err
		}
		b, err := parseRange(dst)
		return MoveAction{a, b}, err
	case "ct":
		return parseCT(args, c, table)
	case "ct_clear":
		return CTClear(), nil
	case "learn":
		return parseLearn(args, table)
	case "dec_ttl":
		if args != "" {
			return nil, errors.New("controller ids are not supported")
		}
		return DecTTL(), nil
	case "push_vlan":
		if n, err := parseUint("Ethernet type", args, 16); err != nil || n != 0x8100 {
			return nil, errors.New("want push_vlan:0x8100")
		}
		return PushVLAN(), nil
	case "pop_vlan", "strip_vlan":
		return PopVLAN(), nil
	case "mod_dl_src":
		return parseSetField(args+"->eth_src", c)
	case "mod_dl_dst":
		return parseSetField(args+"->eth_dst", c)
	case "mod_nw_src":
		return parseSetField(args+"->ip_src", c)
	case "mod_nw_dst":
		return parseSetField(args+"->ip_dst", c)
	case "mod_tp_src", "mod_tp_dst":
		return parseSetField(args+"->"+strings.TrimPrefix(name, "mod_"), c)
	case "drop":
		return nil, errors.New("drop must not be accompanied by any other action")
	}
	if args == "" {
		if p, err := parsePort(name); err == nil {
			return Output(p), nil
		}
	}
	return nil, errors.New("not supported")
}

func parseController(args string, paren bool) (Action, error) {
	a := Controller{}
	if !paren {
		if args != "" {
			n, err := parseUint("max_len", args, 16)
			if err != nil {
				return nil, err
			}
			a.MaxLen = uint16(n)
		}
		return a, nil
	}
	for _, item := range splitItems(args, true) {
		name, val, _ := strings.Cut(item, "=")
		switch name {
		case "max_len", "id":
			n, err := parseUint(name, val, 16)
			if err != nil {
				return nil, err
			}
			if name == "id" {
				a.ID = uint16(n)
			} else {
				a.MaxLen = uint16(n)
			}
		case "meter_id":
			n, err := parseUint(name, val, 32)
			if err != nil {
				return nil, err
			}
			a.MeterID = uint32(n)
		case "reason":
			a.Reason = val
		case "userdata":
			b, err := hex.DecodeString(strings.ReplaceAll(val, ".", ""))
			if err != nil {
				return nil, fmt.Errorf("userdata %q: want bytes such as 01.0a", val)
			}
			a.Userdata = b
		default:
			return nil, fmt.Errorf("%q is not supported", item)
		}
	}
	return a, nil
}

func parseResubmit(args string, paren bool) (Action, error) {
	a := ResubmitAction{Table: 255}
	port, table, _ := strings.Cut(args, ",")
	port, table = strings.TrimSpace(port), strings.TrimSpace(table)
	if port != "" && !strings.EqualFold(port, "in_port") {
		p, err := parsePort(port)
		if err != nil {
			return nil, err
		}
		a.SetPort, a.InPort = true, p
	}
	if table != "" {
		if !paren {
			return nil, errors.New("want resubmit(PORT,TABLE)")
		}
		n, err := parseUint("table", table, 8)
		if err != nil {
			return nil, err
		}
		a.Table = uint8(n)
	}
	if strings.EqualFold(port, "in_port") && a.Table == 255 {
		a.SetPort, a.InPort = true, PortInPort
	}
	return a, nil
}

// actionField resolves names that stand for another field of each protocol.
func actionField(name string, c *context) (Field, error) {
	d := Field(0)
	if strings.HasSuffix(name, "dst") || strings.HasSuffix(name, "code") {
		d = 1
	}
	switch name {
	case "tp_src", "tp_dst":
		if f := portField(c.proto, d); f != FieldNone {
			return f, nil
		}
		return FieldNone, fmt.Errorf("%s: needs a match on tcp, udp or sctp", name)
	}
	f, ok := FieldByName(name)
	if !ok {
		return FieldNone, fmt.Errorf("unknown field %q", name)
	}
	return f, nil
}

func parseSetField(args string, c *context) (Action, error) {
	val, name, ok := strings.Cut(args, "->")
	if !ok {
		return nil, errors.New("want set_field:VALUE[/MASK]->FIELD")
	}
	f, err := actionField(strings.TrimSuffix(name, "[]"), c)
	if err != nil {
		return nil, err
	}
	v, m, err := parseValue(f, val)
	if err != nil {
		return nil, err
	}
	if v != v.And(m) && !m.IsZero() && (fields[f].format == fmtIP4 || fields[f].format == fmtIP6) {
		v = v.And(m)
	}
	return SetFieldAction{f, v, m}, nil
}

// parseLoad parses the Nicira spelling of set_field: load:VALUE->FIELD[LO..HI].
func parseLoad(args string) (Action, error) {
	val, name, ok := strings.Cut(args, "->")
	if !ok {
		return nil, errors.New("want load:VALUE->FIELD[LO..HI]")
	}
	r, err := parseRange(name)
	if err != nil {
		return nil, err
	}
	v, err := parseNum(val)
	if err != nil {
		return nil, err
	}
	a := r.SetValue(v)
	if bad, ok := a.(invalidAction); ok {
		return nil, bad.err
	}
	return a, nil
}

func parseCT(args string, c *context, table uint8) (Action, error) {
	var a CT
	for _, item := range splitItems(args, true) {
		name, val, paren := cutName(item)
		var err error
		switch name {
		case "commit":
			a.Commit = true
		case "force":
			a.Force = true
		case "table":
			var n uint64
			n, err = parseUint("table", val, 8)
			a.Table = ToTable(uint8(n))
		case "zone":
			var n uint64
			if n, err = parseUint("zone", val, 16); err == nil {
				a.Zone = uint16(n)
			} else {
				a.ZoneFrom, err = parseRange(val)
			}
		case "nat":
			a.NAT = &NAT{}
			if paren {
				a.NAT, err = parseNAT(val)
			}
		case "exec":
			inner := *c
			inner.inCT = true
			a.Exec, err = parseActions(val, &inner, table)
		default:
			err = errors.New("not supported")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", item, err)
		}
	}
	return a, nil
}

func parseNAT(s string) (*NAT, error) {
	n := &NAT{}
	for _, item := range splitItems(s, false) {
		kind, val, _ := strings.Cut(item, "=")
		switch kind {
		case "src":
			n.Kind = NATSrc
		case "dst":
			n.Kind = NATDst
		default:
			return nil, fmt.Errorf("%q is not supported", item)
		}
		if val == "" {
			continue
		}
		addrs, ports := val, ""
		switch {
		case strings.HasPrefix(val, "["):
			i := strings.LastIndexByte(val, ']')
			if i < 0 {
				return nil, fmt.Errorf("%q: missing ]", val)
			}
			addrs, ports = strings.NewReplacer("[", "", "]", "").Replace(val[:i]), strings.TrimPrefix(val[i+1:], ":")
		case strings.Count(val, ":") == 1:
			addrs, ports, _ = strings.Cut(val, ":")
		}
		var err error
		lo, hi, two := strings.Cut(addrs, "-")
		if n.Addr, err = netip.ParseAddr(lo); err != nil {
			return nil, fmt.Errorf("%q is not an address", lo)
		}
		if two && hi != lo {
			if n.Max, err = netip.ParseAddr(hi); err != nil {
				return nil, fmt.Errorf("%q is not an address", hi)
			}
		}
		if ports != "" {
			lo, hi, two := strings.Cut(ports, "-")
			p, err := parseUint("port", lo, 16)
			if err != nil {
				return nil, err
			}
			n.Port = uint16(p)
			if two && hi != lo {
				if p, err = parseUint("port", hi, 16); err != nil {
					return nil, err
				}
				n.MaxPort = uint16(p)
			}
		}
	}
	return n, nil
}

func parseLearn(args string, table uint8) (Action, error) {
	a := Learn{Table: table, Priority: DefaultPriority}
	if table == 255 {
		a.Table = 1
	}
	for _, item := range splitItems(args, true) {
		name, val, _ := strings.Cut(item, "=")
		number := map[string]struct {
			width int
			set   func(uint64)
		}{
			"table":            {8, func(n uint64) { a.Table = uint8(n) }},
			"priority":         {16, func(n uint64) { a.Priority = uint16(n) }},
			"idle_timeout":     {16, func(n uint64) { a.IdleTimeout = uint16(n) }},
			"hard_timeout":     {16, func(n uint64) { a.HardTimeout = uint16(n) }},
			"fin_idle_timeout": {16, func(n uint64) { a.FinIdleTimeout = uint16(n) }},
			"fin_hard_timeout": {16, func(n uint64) { a.FinHardTimeout = uint16(n) }},
			"cookie":           {64, func(n uint64) { a.Cookie = n }},
		}
		if p, ok := number[name]; ok {
			n, err := parseUint(name, val, p.width)
			if err != nil {
				return nil, err
			}
			p.set(n)
			continue
		}
		switch name {
		case "delete_learned":
			a.DeleteLearned = true
			continue
		case "send_flow_rem", "limit", "result_dst":
			return nil, fmt.Errorf("%s is not supported", name)
		}
		s, err := parseLearnSpec(item)
		if err != nil {
			return nil, err
		}
		a.Specs = append(a.Specs, s)
	}
	return a, nil
}

func parseLearnSpec(item string) (LearnSpec, error) {
	var s LearnSpec
	var err error
	if rest, ok := strings.CutPrefix(item, "output:"); ok {
		s.Kind = LearnKindOutput
		s.Src, err = parseRange(rest)
		return s, err
	}
	if rest, ok := strings.CutPrefix(item, "load:"); ok {
		s.Kind = LearnKindLoad
		src, dst, ok := strings.Cut(rest, "->")
		if !ok {
			return s, fmt.Errorf("%q: want load:SRC->DST", item)
		}
		if s.Dst, err = parseRange(dst); err != nil {
			return s, err
		}
		if src != "" && src[0] >= '0' && src[0] <= '9' {
			s.Value, err = parseNum(src)
		} else {
			s.Src, err = parseRange(src)
		}
		return s, err
	}
	dst, src, two := strings.Cut(item, "=")
	if s.Dst, err = parseRange(dst); err != nil {
		return s, err
	}
	if !two {
		s.Src = s.Dst
		return s, nil
	}
	name, _, _ := strings.Cut(src, "[")
	if _, isField := FieldByName(name); isField {
		s.Src, err = parseRange(src)
		return s, err
	}
	var mask Value
	if s.Dst == s.Dst.Field.All() {
		s.Value, mask, err = parseValue(s.Dst.Field, src)
		if err == nil && mask != Ones(s.Dst.Field.Bits()) {
			err = fmt.Errorf("%q: a mask is not supported, name the bits", item)
		}
		return s, err
	}
	s.Value, err = parseNum(src)
	return s, err
}
