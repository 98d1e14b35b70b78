package host

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"towtank/datapath"
)

// Rule is a policy routing rule: packets that it selects are routed by its table.
type Rule struct {
	Family   Family
	Priority uint32 // 1 to 32765; the lower is asked first (0, 32766, 32767 are the kernel's)
	From     netip.Prefix
	IIF      string // the link that a packet came in by, or lo for packets that the node makes
	FwMark   uint32 // selects packets whose mark, under FwMask, is FwMark; mask 0: any packet
	FwMask   uint32
	Table    uint32
	Proto    uint8 // 0 means ProtoTowtank
}

// NewRule normalises r (a mark without mask means all bits) and checks it.
func NewRule(r Rule) (Rule, error) {
	bad := func(format string, args ...any) (Rule, error) {
		return Rule{}, fmt.Errorf("rule %d: %w", r.Priority, fmt.Errorf(format, args...))
	}
	if r.Family != V4 && r.Family != V6 {
		return bad("family %d: want 4 or 6", r.Family)
	}
	if r.Priority < 1 || r.Priority > 32765 {
		return bad("priority: want 1 to 32765")
	}
	if r.From.IsValid() {
		if err := checkPrefix("from", r.From); err != nil {
			return bad("%w", err)
		}
		if FamilyOf(r.From.Addr()) != r.Family {
			return bad("from %s: not of family %s", r.From, r.Family)
		}
		r.From = r.From.Masked()
		if r.From.Bits() == 0 {
			r.From = netip.Prefix{}
		}
	}
	if r.IIF != "" {
		if err := checkLinkName("iif", r.IIF); err != nil {
			return bad("%w", err)
		}
	}
	if r.FwMark != 0 && r.FwMask == 0 {
		r.FwMask = 0xffffffff
	}
	if r.FwMark&^r.FwMask != 0 {
		return bad("fwmark 0x%x/0x%x: mark outside its mask never matches", r.FwMark, r.FwMask)
	}
	if r.Table == 0 {
		return bad("no table")
	}
	if r.Proto == 0 {
		r.Proto = ProtoTowtank
	}
	return r, nil
}

// ParseRule reads the text of a Rule.
func ParseRule(text string) (Rule, error) {
	r := Rule{Family: V4}
	w := newWords(text)
	if w.accept("-6") {
		r.Family = V6
	}
	pref := w.next()
	n, err := strconv.ParseUint(strings.TrimSuffix(pref, ":"), 10, 32)
	if err != nil || !strings.HasSuffix(pref, ":") {
		return r, fmt.Errorf("rule %q: want PRIORITY: first, found %q", text, pref)
	}
	r.Priority = uint32(n)
	for !w.done() {
		switch s := w.next(); s {
		case "from":
			var v string
			if v, err = w.value(s); err == nil && v != "all" {
				r.From, err = parsePrefix(v)
			}
		case "iif":
			r.IIF, err = w.value(s)
		case "fwmark":
			var v string
			if v, err = w.value(s); err == nil {
				r.FwMark, r.FwMask, err = parseMark(v)
			}
		case "lookup":
			var v string
			if v, err = w.value(s); err == nil {
				r.Table, err = parseTable(v)
			}
		case "proto":
			n, err = w.number(s, 8)
			r.Proto = uint8(n)
		default:
			err = w.unknown(s)
		}
		if err != nil {
			return Rule{}, fmt.Errorf("rule: %w", err)
		}
	}
	return NewRule(r)
}

// Kind returns datapath.KindRule.
func (Rule) Kind() datapath.Kind { return datapath.KindRule }

// Key is the family and every selector: the kernel allows equal priorities.
func (r Rule) Key() datapath.Key {
	return datapath.Key{Kind: datapath.KindRule, Name: r.Family.String() + " " + r.selector()}
}

func (r Rule) selector() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d: from ", r.Priority)
	if r.From.IsValid() {
		b.WriteString(formatPrefix(r.From))
	} else {
		b.WriteString("all")
	}
	if r.FwMask != 0 {
		b.WriteString(" fwmark " + formatMark(r.FwMark, r.FwMask))
	}
	if r.IIF != "" {
		b.WriteString(" iif " + r.IIF)
	}
	return b.String()
}

// String returns the rule as `ip rule show` prints it, with -6 in front for IPv6.
func (r Rule) String() string {
	s := r.selector() + " lookup " + formatTable(r.Table) + " proto " + strconv.Itoa(int(r.Proto))
	if r.Family == V6 {
		s = "-6 " + s
	}
	return s
}

func formatTable(t uint32) string {
	switch t {
	case TableMain:
		return "main"
	case TableLocal:
		return "local"
	}
	return strconv.FormatUint(uint64(t), 10)
}

func parseTable(s string) (uint32, error) {
	switch s {
	case "main":
		return TableMain, nil
	case "local":
		return TableLocal, nil
	}
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("table %q: want a number, main or local", s)
	}
	return uint32(n), nil
}

// formatMark prints VALUE or VALUE/MASK, as iptables and ip do.
func formatMark(v, mask uint32) string {
	if mask == 0xffffffff {
		return fmt.Sprintf("0x%x", v)
	}
	return fmt.Sprintf("0x%x/0x%x", v, mask)
}

// parseMark reads VALUE or VALUE/MASK.
func parseMark(s string) (v, mask uint32, err error) {
	val, m, slash := strings.Cut(s, "/")
	n, err := strconv.ParseUint(val, 0, 32)
	if err != nil {
		return 0, 0, fmt.Errorf("mark %q: want VALUE or VALUE/MASK of 32 bits", s)
	}
	mask64 := uint64(0xffffffff)
	if slash {
		if mask64, err = strconv.ParseUint(m, 0, 32); err != nil {
			return 0, 0, fmt.Errorf("mark %q: want VALUE or VALUE/MASK of 32 bits", s)
		}
	}
	return uint32(n), uint32(mask64), nil
}
