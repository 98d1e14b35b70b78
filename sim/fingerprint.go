package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"towtank/datapath/openflow"
)

// Fingerprint returns the objects of ours on a node, less what depends on chance: container ids and
// what is derived from them, port numbers, cookies, group ids, marks and ages are renamed by their
// meaning. Two nodes that came to the same state by different ways have the same fingerprint.
func (n *Node) Fingerprint() []string {
	r := n.renames()
	var out []string
	for _, o := range n.Dump() {
		text := o.String()
		if _, ok := o.(*openflow.Flow); ok {
			_, rest, _ := strings.Cut(text, ", ")
			text = rest
		}
		out = append(out, string(o.Kind())+" "+r.Replace(text))
	}
	slices.Sort(out)
	return out
}

// renames maps the names that depend on chance to what they stand for.
func (n *Node) renames() *strings.Replacer {
	pairs := map[string]string{}
	if n.agent == nil || n.agent.loop == nil {
		return strings.NewReplacer()
	}
	env := n.agent.loop.Env()
	for _, unit := range slices.Sorted(maps.Keys(env.Sandboxes)) {
		s := env.Sandboxes[unit]
		pod := s.PodKey()
		pairs[s.HostIf] = "IF(" + pod + ")"
		pairs[s.MAC] = "MAC(" + pod + ")"
		pairs["towtank:"+s.ContainerID+"/"] = "towtank:CID/"
		pairs["towtank-container-id="+s.ContainerID] = "towtank-container-id=CID"
		pairs["towtank-netns="+s.ContainerID] = "towtank-netns=CID"
		pairs[fmt.Sprintf("towtank-age=%d", s.Age)] = "towtank-age=AGE"
		if of := env.OFPort(s.HostIf); of != 0 {
			for _, end := range []string{",", " "} {
				pairs[fmt.Sprintf("in_port=%d%s", of, end)] = "in_port=PORT(" + pod + ")" + end
			}
			pairs[fmt.Sprintf("set_field:%#x->reg1", of)] = "set_field:PORT(" + pod + ")->reg1"
		}
	}
	for _, ip := range env.Marks.All() {
		m := env.Marks.Lookup(ip)
		pairs[fmt.Sprintf("0e:00:00:00:00:%02x", m)] = "CARRIER(" + ip.String() + ")"
		pairs[fmt.Sprintf("set_field:%#x->reg5", m)] = "set_field:MARK(" + ip.String() + ")->reg5"
		pairs[fmt.Sprintf("--mark %#x/0xff", m)] = "--mark MARK(" + ip.String() + ")/0xff"
		pairs[fmt.Sprintf("--set-xmark %#x/0xff", m)] = "--set-xmark MARK(" + ip.String() + ")/0xff"
	}
	owners := env.Groups.Owners()
	for _, owner := range slices.Sorted(maps.Keys(owners)) {
		id := owners[owner]
		pairs[fmt.Sprintf("group:%d", id)] = "group:" + owner
		pairs[fmt.Sprintf("group_id=%d,", id)] = "group_id=" + owner + ","
		pairs[fmt.Sprintf("%#x->reg7", id)] = owner + "->reg7"
		pairs[fmt.Sprintf("reg7=%#x", id)] = "reg7=" + owner
	}
	var list []string
	// The longest first: no name may be cut by a shorter one.
	for _, k := range slices.SortedFunc(maps.Keys(pairs), func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	}) {
		list = append(list, k, pairs[k])
	}
	return strings.NewReplacer(list...)
}

// Diff returns the lines that only one of two sorted lists has, with - and +.
func Diff(a, b []string) []string {
	var out []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case j == len(b) || (i < len(a) && a[i] < b[j]):
			out = append(out, "- "+a[i])
			i++
		case i == len(a) || b[j] < a[i]:
			out = append(out, "+ "+b[j])
			j++
		default:
			i++
			j++
		}
	}
	return out
}
