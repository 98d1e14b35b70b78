//go:build linux

package linux

import (
	"fmt"
	"maps"
	"slices"
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
//
// A set with a name of ours that is another one, be it of a type or with an option that we never make, was made by
// another version of us or by hand. If one is wanted by this name it is replaced, unless something refers to it: then
// the kernel keeps it, and the op, and those on its members, are refused. What nobody wants is left alone.
func applySets(ops []datapath.Op, errs []error) {
	live, err := readSets()
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return
	}
	type step struct {
		op    int
		lines string
	}
	var steps []step
	for i, op := range ops {
		lines := setLine(op) + "\n"
		switch o := object(op).(type) {
		case host.IPSet:
			have := live[o.Name]
			switch {
			case op.Delete() && (have == nil || have.foreign):
				continue
			case op.Delete():
				delete(live, o.Name)
			case have != nil && have.set == o:
				continue
			case have != nil:
				if err := have.replace(o); err != nil {
					errs[i] = fmt.Errorf("a set of this name is there and cannot be replaced: %s: %w", have.text, err)
					continue
				}
				live[o.Name] = &liveSet{text: o.String(), set: o}
				continue
			default:
				live[o.Name] = &liveSet{text: o.String(), set: o}
			}
		case host.IPSetEntry:
			have := live[o.Set]
			switch {
			case op.Delete() && (have == nil || have.foreign):
				continue
			case have != nil && have.foreign:
				errs[i] = fmt.Errorf("the set is not ours: %s", have.text)
				continue
			}
		}
		steps = append(steps, step{i, lines})
	}
	if len(steps) == 0 {
		return
	}
	var all strings.Builder
	for _, s := range steps {
		all.WriteString(s.lines)
	}
	_, err = command(all.String(), "ipset", "restore")
	if err == nil {
		return
	}
	if len(steps) == 1 {
		errs[steps[0].op] = err
		return
	}
	for _, s := range steps {
		_, errs[s.op] = command(s.lines, "ipset", "restore")
	}
}

// liveSet is a set with a name of ours as ipset save prints it.
type liveSet struct {
	text    string     // less what the kernel adjusts by itself
	set     host.IPSet // zero if foreign
	foreign bool       // of a type or with an option that a host.IPSet cannot express
	members []host.IPSetEntry
	strange []string // members that a host.IPSetEntry cannot express
}

// replace makes another set of the name, with the members that we know of. A set that something refers to cannot be
// destroyed, so it stays as it is.
func (s *liveSet) replace(o host.IPSet) error {
	if _, err := command("", "ipset", "destroy", o.Name); err != nil {
		return err
	}
	lines := o.String() + "\n"
	for _, m := range s.members {
		lines += m.String() + " -exist\n"
	}
	_, err := command(lines, "ipset", "restore")
	return err
}

// readSets reads what ipset save prints of sets with names of ours.
func readSets() (map[string]*liveSet, error) {
	text, err := command("", "ipset", "save")
	if err != nil {
		return nil, err
	}
	out := map[string]*liveSet{}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) < 3 || !strings.HasPrefix(w[1], host.SetPrefix) {
			continue
		}
		switch w[0] {
		case "create":
			keep := w[:3:3]
			for i := 3; i < len(w); i++ {
				switch w[i] {
				case "hashsize", "bucketsize", "initval": // the kernel's own
					i++
				default:
					keep = append(keep, w[i])
				}
			}
			s := &liveSet{text: strings.Join(keep, " ")}
			s.set, err = host.ParseIPSet(s.text)
			s.foreign = err != nil
			out[w[1]] = s
		case "add":
			s := out[w[1]]
			if s == nil || s.foreign {
				continue
			}
			if m, err := host.ParseIPSetEntry(line); err == nil {
				s.members = append(s.members, m)
			} else {
				s.strange = append(s.strange, strings.Join(w, " "))
			}
		}
	}
	return out, nil
}

func (h *Host) dumpSets(map[int]string) ([]datapath.Object, error) {
	live, err := readSets()
	if err != nil {
		return nil, err
	}
	var out []datapath.Object
	for _, name := range slices.Sorted(maps.Keys(live)) {
		s := live[name]
		if s.foreign {
			h.foreign(s.text)
			continue
		}
		out = append(out, s.set)
		for _, m := range s.members {
			out = append(out, m)
		}
		for _, text := range s.strange {
			h.foreign(text)
		}
	}
	return out, nil
}

// foreign tells of what has our name and is not ours, once.
func (h *Host) foreign(what string) {
	if h.cfg.Foreign != nil && !h.told[what] {
		h.told[what] = true
		h.cfg.Foreign(what)
	}
}
