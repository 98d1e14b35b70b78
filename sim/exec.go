package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"towtank/datapath"
	datahost "towtank/datapath/host"
	"towtank/datapath/openflow"
)

// execOVS has somebody type ovs-ofctl or ovs-vsctl. What is not modelled is an error.
func (n *Node) execOVS(command string) (string, error) {
	words, err := datahost.SplitWords(command)
	if err != nil {
		return "", err
	}
	if !n.ovsUp {
		return "", errOVSDown
	}
	if words[0] == "ovs-vsctl" {
		return n.execVsctl(words[1:])
	}
	return n.execOfctl(words[1:])
}

// openFlowVersions are what -O of ovs-ofctl takes; each can say everything that is modelled.
var openFlowVersions = []string{"OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"}

// ofctlOptions takes the options out of the words of an ovs-ofctl command.
func ofctlOptions(words []string) (args []string, strict bool, err error) {
	for len(words) > 0 {
		w := words[0]
		words = words[1:]
		version, isVersion := strings.CutPrefix(w, "-O")
		if !isVersion {
			version, isVersion = strings.CutPrefix(w, "--protocols=")
		} else if version == "" && len(words) > 0 {
			version, words = words[0], words[1:]
		}
		switch {
		case isVersion:
			for v := range strings.SplitSeq(version, ",") {
				if !slices.Contains(openFlowVersions, v) {
					return nil, false, fmt.Errorf("ovs-ofctl: Unknown OpenFlow version: %q", v)
				}
			}
		case w == "--strict":
			strict = true
		case w == "--no-stats", w == "--stats", w == "--no-names", w == "--names": // what is printed has neither
		case strings.HasPrefix(w, "-"):
			return nil, false, fmt.Errorf("ovs-ofctl: option %s is not modelled", w)
		default:
			args = append(args, w)
		}
	}
	return args, strict, nil
}

func (n *Node) execOfctl(words []string) (string, error) {
	args, strict, err := ofctlOptions(words)
	switch {
	case err != nil:
		return "", err
	case len(args) == 0:
		return "", fmt.Errorf("ovs-ofctl: no command")
	case len(args) < 2 || args[1] != Bridge:
		return "", fmt.Errorf("ovs-ofctl %s: want the bridge %s", args[0], Bridge)
	case len(args) > 3:
		return "", fmt.Errorf("ovs-ofctl: '%s' command takes at most 2 arguments", args[0])
	}
	rest := strings.Join(args[2:], "")
	switch args[0] {
	case "dump-flows":
		flows, err := n.selectFlows(rest, false)
		var b strings.Builder
		for _, f := range flows {
			b.WriteString(f.String() + "\n")
		}
		return b.String(), err
	case "dump-groups":
		only, err := numbered(args[0], rest, "group_id=")
		return n.objectTexts(func(o datapath.Object) bool {
			g, ok := o.(*openflow.Group)
			return ok && (only == nil || *only == g.ID())
		}), err
	case "dump-meters":
		only, err := numbered(args[0], rest, "meter=")
		return n.objectTexts(func(o datapath.Object) bool {
			m, ok := o.(*openflow.Meter)
			return ok && (only == nil || *only == m.ID)
		}), err
	case "add-flow":
		f, err := openflow.ParseFlow(rest)
		if err != nil {
			return "", err
		}
		return "", one(n.sw.ApplyBundle([]datapath.Op{{New: f}}))
	case "del-flows":
		flows, err := n.selectFlows(rest, strict)
		if err != nil {
			return "", err
		}
		var ops []datapath.Op
		for _, f := range flows {
			ops = append(ops, datapath.Op{Old: f})
		}
		return "", one(n.sw.ApplyBundle(ops))
	case "add-group":
		g, err := openflow.ParseGroup(rest)
		if err != nil {
			return "", err
		}
		return "", one(n.sw.ApplyBundle([]datapath.Op{{New: g}}))
	case "del-groups":
		only, err := numbered(args[0], rest, "group_id=")
		if err != nil {
			return "", err
		}
		var ops []datapath.Op
		for _, o := range n.sw.DumpAll() {
			if g, ok := o.(*openflow.Group); ok && (only == nil || *only == g.ID()) {
				ops = append(ops, datapath.Op{Old: g})
			}
		}
		return "", one(n.sw.ApplyBundle(ops))
	}
	return "", fmt.Errorf("ovs-ofctl %s is not modelled; there are dump-flows, dump-groups, dump-meters, add-flow, del-flows, add-group, del-groups", args[0])
}

// numbered reads which group or meter a command is for, nil for all.
func numbered(command, text, prefix string) (*uint32, error) {
	if text == "" {
		return nil, nil
	}
	number, err := strconv.ParseUint(strings.TrimPrefix(text, prefix), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("ovs-ofctl %s: found %q, allowed: %sN", command, text, prefix)
	}
	id := uint32(number)
	return &id, nil
}

// objectTexts prints objects of the switch, a line each.
func (n *Node) objectTexts(which func(datapath.Object) bool) string {
	var b strings.Builder
	for _, o := range n.sw.DumpAll() {
		if which(o) {
			b.WriteString(o.String() + "\n")
		}
	}
	return b.String()
}

// selection is what del-flows and dump-flows ask for.
type selection struct {
	table              int // -1: any
	cookie, cookieMask uint64
	strict             bool
	priority           uint16 // of a strict one
	match              openflow.Match
}

// parseSelection reads it as ovs-ofctl does: a priority is known to a strict one only, and a cookie has a mask.
func parseSelection(text string, strict bool) (*selection, error) {
	s := &selection{table: -1, strict: strict}
	var rest []string
	for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, value, _ := strings.Cut(item, "=")
		switch name {
		case "table":
			t, err := strconv.ParseUint(value, 0, 8)
			if err != nil {
				return nil, fmt.Errorf("ovs-ofctl: table: found %q, allowed: 0 to 255", value)
			}
			s.table = int(t)
		case "cookie":
			cookie, mask, ok := strings.Cut(value, "/")
			if !ok {
				return nil, fmt.Errorf("ovs-ofctl: cannot set cookie: write cookie=%s/-1", value)
			}
			c, err := strconv.ParseUint(cookie, 0, 64)
			if err != nil {
				return nil, fmt.Errorf("ovs-ofctl: cookie: found %q, allowed: a number of 64 bits", cookie)
			}
			s.cookieMask = ^uint64(0)
			if mask != "-1" {
				if s.cookieMask, err = strconv.ParseUint(mask, 0, 64); err != nil {
					return nil, fmt.Errorf("ovs-ofctl: cookie: found mask %q, allowed: a number of 64 bits, or -1", mask)
				}
			}
			s.cookie = c & s.cookieMask
		case "actions", "idle_timeout", "hard_timeout", "duration", "n_packets", "n_bytes", "idle_age", "hard_age":
			return nil, fmt.Errorf("ovs-ofctl: unknown keyword %s", name)
		case "priority":
			if !strict {
				return nil, fmt.Errorf("ovs-ofctl: unknown keyword priority: it needs --strict")
			}
			rest = append(rest, item)
		default:
			rest = append(rest, item)
		}
	}
	f, err := openflow.ParseFlow(strings.Join(append(rest, "actions=drop"), ","))
	if err != nil {
		return nil, err
	}
	s.priority, s.match = f.Priority(), f.Match()
	return s, nil
}

// has reports whether a flow is selected: a strict selection has the one with its priority and match, another every
// flow whose match is at least as specific.
func (s *selection) has(f *openflow.Flow) bool {
	if s.table >= 0 && int(f.Table()) != s.table || f.Cookie()&s.cookieMask != s.cookie {
		return false
	}
	if s.strict {
		return f.Priority() == s.priority && slices.Equal(f.Match().Fields(), s.match.Fields())
	}
	for _, want := range s.match.Fields() {
		if got := f.Match().Get(want.Field); got.Mask.And(want.Mask) != want.Mask || got.Value.And(want.Mask) != want.Value {
			return false
		}
	}
	return true
}

// selectFlows returns the flows of the switch, learned ones too, that a text selects.
func (n *Node) selectFlows(text string, strict bool) ([]*openflow.Flow, error) {
	s, err := parseSelection(text, strict)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(n.sw.Flows(), func(f *openflow.Flow) bool { return !s.has(f) }), nil
}

// one returns the first error of results.
func one(results []datapath.OpResult) error {
	for _, r := range results {
		if r.Outcome != datapath.Done {
			return r.Err
		}
	}
	return nil
}
