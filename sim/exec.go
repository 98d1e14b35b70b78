package sim

import (
	"fmt"
	"strings"

	"towtank/datapath"
	datahost "towtank/datapath/host"
	"towtank/datapath/openflow"
	"towtank/datapath/ovsdb"
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
	var args []string
	strict := false
	for _, w := range words[1:] {
		switch {
		case w == "--strict":
			strict = true
		case strings.HasPrefix(w, "-O"), strings.HasPrefix(w, "--no-"), w == "--if-exists", w == "--may-exist":
		default:
			args = append(args, w)
		}
	}
	if len(args) == 0 {
		return "", fmt.Errorf("%s: no command", words[0])
	}
	if words[0] == "ovs-vsctl" {
		return n.execVsctl(args)
	}
	return n.execOfctl(args, strict)
}

func (n *Node) execOfctl(args []string, strict bool) (string, error) {
	if len(args) < 2 || args[1] != Bridge {
		return "", fmt.Errorf("ovs-ofctl %s: want the bridge %s", args[0], Bridge)
	}
	rest := strings.Join(args[2:], ",")
	switch args[0] {
	case "dump-flows", "dump-groups", "dump-meters":
		return n.sw.DumpText(), nil
	case "add-flow":
		f, err := openflow.ParseFlow(rest)
		if err != nil {
			return "", err
		}
		return "", one(n.sw.ApplyBundle([]datapath.Op{{New: f}}))
	case "del-flows":
		return "", n.delFlows(rest, strict)
	case "add-group":
		g, err := openflow.ParseGroup(rest)
		if err != nil {
			return "", err
		}
		return "", one(n.sw.ApplyBundle([]datapath.Op{{New: g}}))
	case "del-groups":
		var ops []datapath.Op
		for _, o := range n.sw.DumpAll() {
			if g, ok := o.(*openflow.Group); ok && (rest == "" || rest == fmt.Sprintf("group_id=%d", g.ID())) {
				ops = append(ops, datapath.Op{Old: g})
			}
		}
		return "", one(n.sw.ApplyBundle(ops))
	}
	return "", fmt.Errorf("ovs-ofctl %s is not modelled; there are dump-flows, dump-groups, dump-meters, add-flow, del-flows, add-group, del-groups", args[0])
}

// delFlows deletes flows: with strict the one of the same table, priority and match, else those whose
// text has every part of the match.
func (n *Node) delFlows(match string, strict bool) error {
	var ops []datapath.Op
	var want *openflow.Flow
	parts := strings.FieldsFunc(match, func(r rune) bool { return r == ',' || r == ' ' })
	if strict || strings.Contains(match, "priority=") {
		f, err := openflow.ParseFlow(match + " actions=drop")
		if err != nil {
			return err
		}
		want = f
	}
	for _, o := range n.sw.DumpAll() {
		f, ok := o.(*openflow.Flow)
		if !ok {
			continue
		}
		if want != nil && f.Key() != want.Key() {
			continue
		}
		if want == nil && !hasParts(f, parts) {
			continue
		}
		ops = append(ops, datapath.Op{Old: f})
	}
	return one(n.sw.ApplyBundle(ops))
}

// hasParts reports whether a flow's key has all parts of a loose match: "table=40", "ip", "cookie=…/-1".
func hasParts(f *openflow.Flow, parts []string) bool {
	have := strings.Split(f.Key().Name, ",")
	for _, p := range parts {
		if c, ok := strings.CutPrefix(p, "cookie="); ok {
			c, _, _ = strings.Cut(c, "/")
			if fmt.Sprintf("%#x", f.Cookie()) != c {
				return false
			}
			continue
		}
		found := false
		for _, h := range have {
			found = found || h == p
		}
		if !found {
			return false
		}
	}
	return true
}

func (n *Node) execVsctl(args []string) (string, error) {
	last := args[len(args)-1]
	switch args[0] {
	case "show", "list-ports":
		var b strings.Builder
		for _, st := range n.sw.Ports() {
			fmt.Fprintf(&b, "%s ofport=%d type=%q\n", st.Name, st.OFPort, st.Type)
		}
		return b.String(), nil
	case "del-port":
		st := n.sw.PortByName(last)
		if st == nil || st.Port == nil {
			return "", fmt.Errorf("ovs-vsctl: no port named %s", last)
		}
		return "", one(n.applyPorts([]datapath.Op{{Old: st.Port}}))
	case "add-port":
		if len(args) < 3 || args[1] != Bridge {
			return "", fmt.Errorf("ovs-vsctl add-port: want %s PORT", Bridge)
		}
		p, err := ovsdb.NewPort(ovsdb.PortSpec{Name: args[2]})
		if err != nil {
			return "", err
		}
		return "", one(n.applyPorts([]datapath.Op{{New: p}}))
	}
	return "", fmt.Errorf("ovs-vsctl %s is not modelled; there are show, list-ports, add-port, del-port", args[0])
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
