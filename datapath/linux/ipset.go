//go:build linux

package linux

import (
	"fmt"
	"strings"

	"towtank/datapath"
	"towtank/datapath/host"
)

func isSet(o datapath.Object) bool {
	switch o.(type) {
	case host.IPSet, host.IPSetEntry:
		return true
	}
	return false
}

// setLine is the line of ipset restore for an op. Putting what is there and deleting what is not is no
// error.
func setLine(op datapath.Op) string {
	switch o := object(op).(type) {
	case host.IPSet:
		if op.Delete() {
			return "destroy " + o.Name
		}
		return o.String() + " -exist"
	case host.IPSetEntry:
		if op.Delete() {
			return "del " + o.Set + " " + o.Element + " -exist"
		}
		return o.String() + " -exist"
	}
	return ""
}

// applySets applies ops on sets in one run; if one is refused, each for itself.
func applySets(ops []datapath.Op, errs []error) {
	sets, err := sets()
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return
	}
	var lines []string
	var list []int
	for i, op := range ops {
		switch o := object(op).(type) {
		case host.IPSet:
			have, there := sets[o.Name]
			switch {
			case op.Delete() && !there:
				continue
			case op.Delete():
				delete(sets, o.Name)
			case there && have.String() != o.String():
				errs[i] = fmt.Errorf("a set of this name is there: %s", have)
				continue
			case there:
				continue
			default:
				sets[o.Name] = o
			}
		case host.IPSetEntry:
			if _, there := sets[o.Set]; !there && op.Delete() {
				continue
			}
		}
		lines = append(lines, setLine(op))
		list = append(list, i)
	}
	if len(lines) == 0 {
		return
	}
	_, err = command(strings.Join(lines, "\n")+"\n", "ipset", "restore")
	if err == nil {
		return
	}
	if len(lines) == 1 {
		errs[list[0]] = err
		return
	}
	for n, i := range list {
		_, errs[i] = command(lines[n]+"\n", "ipset", "restore")
	}
}

// sets returns all sets that a host.IPSet can express, by name.
func sets() (map[string]host.IPSet, error) {
	m := map[string]host.IPSet{}
	err := saveSets(func(o datapath.Object) {
		if s, ok := o.(host.IPSet); ok {
			m[s.Name] = s
		}
	})
	return m, err
}

// saveSets reads what ipset save prints of ours.
func saveSets(found func(datapath.Object)) error {
	text, err := command("", "ipset", "save")
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) < 3 || !strings.HasPrefix(w[1], host.SetPrefix) {
			continue
		}
		var o datapath.Object
		switch w[0] {
		case "create":
			keep := w[:3:3]
			for i := 3; i+1 < len(w); i += 2 {
				switch w[i] {
				case "hashsize", "bucketsize", "initval": // the kernel's own
				default:
					keep = append(keep, w[i], w[i+1])
				}
			}
			o, err = host.ParseIPSet(strings.Join(keep, " "))
		case "add":
			o, err = host.ParseIPSetEntry(line)
		default:
			continue
		}
		if err != nil {
			return err
		}
		found(o)
	}
	return nil
}

func dumpSets(map[int]string) ([]datapath.Object, error) {
	var out []datapath.Object
	err := saveSets(func(o datapath.Object) { out = append(out, o) })
	return out, err
}
