package openflow

import (
	"errors"
	"fmt"
	"strings"
)

// ParseFlow parses a flow in ovs-ofctl's syntax, as given to add-flow or printed by dump-flows
// (statistics are ignored), and returns it in canonical form.
func ParseFlow(s string) (*Flow, error) {
	f, err := parseFlow(s)
	if err != nil && !strings.HasPrefix(err.Error(), "flow ") {
		return nil, fmt.Errorf("flow %q: %w", s, err)
	}
	return f, err
}

func parseFlow(s string) (*Flow, error) {
	head, actions, err := cutActions(s)
	if err != nil {
		return nil, err
	}
	b := NewFlow(0, DefaultPriority, 0)
	var match []string
	for _, item := range splitItems(head, true) {
		name, val, hasVal := strings.Cut(item, "=")
		number := func(width int) uint64 {
			n, perr := parseUint(name, val, width)
			if perr != nil && err == nil {
				err = perr
			}
			return n
		}
		switch name {
		case "table":
			b.f.table = uint8(number(8))
		case "priority":
			b.f.priority = uint16(number(16))
		case "cookie":
			b.f.cookie = number(64)
		case "idle_timeout":
			b.f.idleTimeout = uint16(number(16))
		case "hard_timeout":
			b.f.hardTimeout = uint16(number(16))
		case "duration", "n_packets", "n_bytes", "idle_age", "hard_age":
			if !hasVal {
				return nil, fmt.Errorf("%s: no value", name)
			}
		case "send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts", "importance", "out_port", "out_group":
			return nil, fmt.Errorf("%s is not supported", name)
		default:
			match = append(match, item)
		}
		if err != nil {
			return nil, err
		}
	}
	terms, err := parseTerms(match)
	if err != nil {
		return nil, err
	}
	b.Match(terms...)
	if b.err != nil {
		return nil, b.err
	}
	c := b.f.match.context()
	list, err := parseActions(actions, &c, b.f.table)
	if err != nil {
		return nil, err
	}
	return b.Actions(list...).Build()
}

// cutActions splits a flow or bucket at "actions=".
func cutActions(s string) (head, actions string, err error) {
	for _, key := range []string{"actions=", "action="} {
		for i := 0; ; {
			k := strings.Index(s[i:], key)
			if k < 0 {
				break
			}
			i += k
			if i == 0 || strings.IndexByte(", \t", s[i-1]) >= 0 {
				return strings.TrimSpace(s[:i]), strings.TrimSpace(s[i+len(key):]), nil
			}
			i += len(key)
		}
	}
	return "", "", errors.New(`no "actions="; for a flow that drops write actions=drop`)
}

// splitItems splits at commas outside parentheses and brackets, and at white space if spaces is set.
// Empty items are left out.
func splitItems(s string, spaces bool) []string {
	var items []string
	depth, start := 0, 0
	flush := func(end int) {
		if t := strings.TrimSpace(s[start:end]); t != "" {
			items = append(items, t)
		}
		start = end + 1
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case depth == 0 && (c == ',' || spaces && (c == ' ' || c == '\t' || c == '\n')):
			flush(i)
		}
	}
	if start <= len(s) {
		flush(len(s))
	}
	return items
}

// ParseGroup parses a group in ovs-ofctl's syntax, as given to add-group or printed by dump-groups, and
// returns it in canonical form.
func ParseGroup(s string) (*Group, error) {
	g, err := parseGroup(s)
	if err != nil && !strings.HasPrefix(err.Error(), "group group_id") {
		return nil, fmt.Errorf("group %q: %w", s, err)
	}
	return g, err
}

func parseGroup(s string) (*Group, error) {
	var spec GroupSpec
	parts := splitBuckets(s)
	typed, numbered := false, false
	for _, item := range splitItems(parts[0], true) {
		name, val, _ := strings.Cut(item, "=")
		switch {
		case name == "group_id":
			n, err := parseUint(name, val, 32)
			if err != nil {
				return nil, err
			}
			spec.ID, numbered = uint32(n), true
		case name == "type":
			for i, t := range groupTypeNames {
				if t == val {
					spec.Type, typed = GroupType(i), true
				}
			}
			if !typed {
				return nil, fmt.Errorf("type %q: want all, select or indirect", val)
			}
		case name == "selection_method":
			spec.SelectionMethod = val
		case strings.HasPrefix(item, "fields("), name == "fields":
			list := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(item, "fields("), ")"), "fields=")
			for _, n := range splitItems(list, true) {
				f, ok := FieldByName(n)
				if !ok {
					return nil, fmt.Errorf("fields: %q is not a field (masks are not supported)", n)
				}
				spec.HashFields = append(spec.HashFields, f)
			}
		default:
			return nil, fmt.Errorf("%q is not supported", item)
		}
	}
	if !numbered || !typed {
		return nil, errors.New("group_id and type must be given")
	}
	for i, part := range parts[1:] {
		k, err := parseBucket(part, uint32(i), spec.Type)
		if err != nil {
			return nil, fmt.Errorf("bucket %d: %w", i, err)
		}
		spec.Buckets = append(spec.Buckets, k)
	}
	return NewGroup(spec)
}

// splitBuckets splits at "bucket=" outside parentheses.
func splitBuckets(s string) []string {
	var parts []string
	depth, start := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 && strings.HasPrefix(s[i:], "bucket=") && (i == 0 || s[i-1] == ',' || s[i-1] == ' ') {
			parts = append(parts, s[start:i])
			i += len("bucket=") - 1
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

func parseBucket(s string, id uint32, t GroupType) (Bucket, error) {
	k := Bucket{ID: id}
	if t == GroupSelect {
		k.Weight = 1
	}
	head, actions, err := cutActions(s)
	if err != nil {
		head, actions = s, "" // the actions may come without "actions="
	}
	var rest []string
	for _, item := range splitItems(head, false) {
		n := strings.IndexAny(item, ":=")
		if n < 0 {
			n = len(item)
		}
		val := strings.TrimLeft(item[n:], ":=")
		switch item[:n] {
		case "bucket_id":
			v, err := parseUint("bucket_id", val, 32)
			if err != nil {
				return k, err
			}
			k.ID = uint32(v)
		case "weight":
			v, err := parseUint("weight", val, 16)
			if err != nil {
				return k, err
			}
			if t != GroupSelect {
				return k, errors.New("only select groups can have bucket weights")
			}
			k.Weight = uint16(v)
		case "watch_port", "watch_group":
			return k, fmt.Errorf("%s is not supported", item[:n])
		default:
			if err == nil {
				return k, fmt.Errorf("%q is not supported", item)
			}
			rest = append(rest, item)
		}
	}
	if err != nil {
		actions = strings.Join(rest, ",")
	}
	k.Actions, err = parseActions(strings.TrimRight(actions, ", "), &context{unconfirmed: true}, 255)
	return k, err
}

// ParseMeter parses a meter in ovs-ofctl's syntax, as given to add-meter or printed by dump-meters.
func ParseMeter(s string) (*Meter, error) {
	m, err := parseMeter(s)
	if err != nil {
		return nil, fmt.Errorf("meter %q: %w", s, err)
	}
	return m, nil
}

func parseMeter(s string) (*Meter, error) {
	var m Meter
	s = strings.NewReplacer("bands=", "", "band=", "").Replace(s)
	bands, unit := 0, ""
	for _, item := range splitItems(s, true) {
		name, val, _ := strings.Cut(item, "=")
		var dst *uint32
		switch name {
		case "meter":
			dst = &m.ID
		case "rate":
			dst = &m.Rate
		case "burst_size":
			dst = &m.BurstSize
		case "kbps", "pktps":
			if unit != "" && unit != name {
				return nil, errors.New("kbps and pktps exclude each other")
			}
			unit, m.PktPS = name, name == "pktps"
		case "burst":
			m.Burst = true
		case "stats":
		case "type":
			if bands++; val != "drop" || bands > 1 {
				return nil, errors.New("one band of type=drop is supported")
			}
		default:
			return nil, fmt.Errorf("%q is not supported", item)
		}
		if dst != nil {
			n, err := parseUint(name, val, 32)
			if err != nil {
				return nil, err
			}
			*dst = uint32(n)
		}
	}
	if unit == "" {
		m.PktPS = false // OVS's default is kbps
	}
	if bands != 1 {
		return nil, errors.New("a band of type=drop must be given")
	}
	return NewMeter(m)
}
