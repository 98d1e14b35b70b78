package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"towtank/scenarios/lang"
	"towtank/sim"
	"towtank/sim/kube"
)

// look compares objects, Events, writes and dumps with what is expected, and shows traces and dumps.
func (r *Runner) look(st lang.Step, s *Step) error {
	s.Want = wanted(st)
	switch t := st.(type) {
	case lang.ExpectOwner:
		return r.expectOwner(t, s)
	case lang.ExpectStatus:
		return r.expectStatus(t, s)
	case lang.ExpectEvent:
		return r.expectEvent(t, s)
	case lang.ExpectWrites:
		return r.expectWrites(t, s)
	case lang.ExpectClean:
		return r.each(t.Node, func(n Node) error {
			for _, why := range r.tank.Invariants().Clean(n) {
				s.fail("%s: %s", n.Name(), why)
			}
			return nil
		})
	case lang.ExpectObjects:
		return r.each(t.Node, func(n Node) error {
			objs, err := n.ObjectsOf(unitMatch(t.Unit))
			if err != nil {
				return err
			}
			s.Got.Value = fmt.Sprint(len(objs))
			if len(objs) != t.Count {
				text := objs[:min(len(objs), 20)]
				s.fail("%s: want %d objects of %s/%s, got %d\n%s", n.Name(), t.Count, t.Unit.Kind, t.Unit, len(objs), strings.Join(text, "\n"))
			}
			return nil
		})
	case lang.ExpectDump:
		return r.each(t.Node, func(n Node) error {
			text, err := r.tank.DumpText(n, t.Where)
			if err != nil {
				return err
			}
			has := strings.Contains(text, t.Text)
			if has == t.Lacks {
				s.fail("%s: the dump of the %s %s %q", n.Name(), t.Where, map[bool]string{true: "has", false: "lacks"}[has], t.Text)
			}
			return nil
		})
	case lang.Trace:
		f, err := r.flow(t.From, t.To, t.Flow)
		if err != nil {
			return r.soft(s, err)
		}
		s.Outcome = Info
		s.Got, s.Trace = r.trace(f)
		return nil
	case lang.Dump:
		s.Outcome = Info
		return r.each(t.Node, func(n Node) error {
			text, err := r.tank.DumpText(n, t.What)
			s.Text2 += text
			return err
		})
	}
	return callErrorf("%s is not known to the runner", st.Command())
}

// wanted returns what an expectation says, as --json shows it: its text without the command and whom it is about.
func wanted(st lang.Step) map[string]string {
	text := st.String()
	words := 2
	switch st.(type) {
	case lang.ExpectStatus, lang.ExpectEvent:
		words = 3
	case lang.ExpectWrites, lang.ExpectObjects, lang.ExpectDump:
	case lang.ExpectClean:
		return map[string]string{"expect": "clean"}
	case lang.StreamStop:
		if _, expect, ok := strings.Cut(text, " expect "); ok {
			return map[string]string{"expect": expect}
		}
		return nil
	default:
		return nil
	}
	parts := strings.SplitN(text, " ", words+1)
	return map[string]string{"expect": parts[len(parts)-1]}
}

func (r *Runner) expectOwner(t lang.ExpectOwner, s *Step) error {
	holders := r.tank.Holders(t.IP)
	s.Want = map[string]string{"node": t.Nodes()}
	s.Got.Value = strings.Join(holders, ",")
	var names []string
	var unresolved error
	for _, of := range t.Of {
		switch of.Name {
		case lang.NoNode:
			if len(holders) == 0 {
				return nil
			}
			names = append(names, "no node")
		case lang.AnyNode:
			if len(holders) == 1 {
				return nil
			}
			names = append(names, "exactly one node")
		default:
			n, err := r.node(of)
			if err != nil {
				unresolved = errors.Join(unresolved, err)
				continue
			}
			if len(holders) == 1 && holders[0] == n.Name() {
				return nil
			}
			names = append(names, n.Name()+" alone")
		}
	}
	if unresolved != nil {
		return errCall{unresolved}
	}
	s.fail("want %s to hold %s, got: %s", strings.Join(names, " or "), t.IP, orNobody(holders))
	return nil
}

func orNobody(list []string) string {
	if len(list) == 0 {
		return "nobody"
	}
	return strings.Join(list, ", ")
}

func (r *Runner) expectStatus(t lang.ExpectStatus, s *Step) error {
	k, err := kube.KindNamed(t.Object.Kind)
	if err != nil {
		return errCall{err}
	}
	for _, f := range t.Fields {
		if err := kube.CheckField(k, f.Path); err != nil {
			return errCall{err}
		}
	}
	objs, err := r.objectsNamed(k, t.Object)
	if err != nil {
		return err
	}
	matching := 0
	var firstWhy string
	for _, o := range objs {
		why := ""
		for _, f := range t.Fields {
			got, err := kube.Field(o, f.Path)
			if err != nil {
				return errCall{err}
			}
			in := slices.Contains(f.Of, got)
			if in == f.Not {
				op := "="
				if f.Not {
					op = "!="
				}
				why = fmt.Sprintf("want %s%s%s, got %q", f.Path, op, strings.Join(f.Of, "|"), got)
				break
			}
		}
		if why == "" {
			matching++
		} else if firstWhy == "" {
			firstWhy = why
		}
	}
	s.Got.Value = fmt.Sprintf("%d of %d", matching, len(objs))
	switch {
	case t.Count != nil && matching != *t.Count:
		s.fail("want %d matching objects, got %d of %d; %s", *t.Count, matching, len(objs), firstWhy)
	case t.Count == nil && (matching < len(objs) || len(objs) == 0):
		if len(objs) == 0 {
			firstWhy = fmt.Sprintf("there is no %s %s", t.Object.Kind, t.Object)
		}
		s.fail("%s", firstWhy)
	}
	return nil
}

func (r *Runner) objectsNamed(k kube.Kind, ref lang.ObjectRef) ([]runtime.Object, error) {
	var out []runtime.Object
	if ref.Name == "*" {
		return r.tank.Objects().List(k), nil
	}
	o, err := r.tank.Objects().Get(k, ref.Namespace, ref.Name)
	if err != nil {
		return nil, nil //nolint:nilerr // an object that is not there is compared as such
	}
	return append(out, o), nil
}

func (r *Runner) expectEvent(t lang.ExpectEvent, s *Step) error {
	k, err := kube.KindNamed(t.Object.Kind)
	if err != nil {
		return errCall{err}
	}
	n := 0
	var others []string
	for _, e := range r.tank.Objects().Events(k, t.Object.Namespace, t.Object.Name) {
		if e.Reason == t.Reason {
			n += e.Count
		} else {
			others = append(others, e.Reason)
		}
	}
	s.Got.Value = fmt.Sprint(n)
	want := "at least one"
	bad := n == 0
	if t.Count != nil {
		want, bad = fmt.Sprint(*t.Count), n != *t.Count
	}
	if bad {
		s.fail("want %s Event %s, got %d (others: %s)", want, t.Reason, n, strings.Join(others, ", "))
	}
	return nil
}

func (r *Runner) expectWrites(t lang.ExpectWrites, s *Step) error {
	var matchUnits func([]string) bool
	if t.Unit.Name != "" {
		m := unitMatch(t.Unit)
		matchUnits = func(units []string) bool { return slices.ContainsFunc(units, m) }
	}
	return r.each(t.Node, func(n Node) error {
		got, err := n.Writes(matchUnits)
		if err != nil {
			return err
		}
		s.Got.Writes = got
		for _, b := range []struct {
			name string
			*lang.Bound
		}{{"switch", t.Switch}, {"host", t.Host}, {"api", t.API}, {"packet-in", t.PacketIn}} {
			if b.Bound != nil && !b.Holds(got[b.name]) {
				s.fail("%s: want %s, got %d%s", n.Name(), bound(b.name, b.Bound), got[b.name], lastWrites(n, b.name, matchUnits))
			}
		}
		return nil
	})
}

// lastWrites shows what was written, for a failed step.
func lastWrites(n Node, seam string, match func([]string) bool) string {
	var b strings.Builder
	for _, text := range n.LastWrites(seam, match) {
		b.WriteString("\n  " + text)
	}
	return b.String()
}

// unitMatch returns whether a unit of the agent belongs to an object that a scenario names.
func unitMatch(u lang.ObjectRef) func(string) bool {
	return func(unit string) bool { return sim.UnitBelongs(unit, u.Kind, u.Namespace, u.Name) }
}

// bound is an expected number as it is written: switch=2, lost<=0.
func bound(name string, b *lang.Bound) string {
	if b.AtMost {
		return name + b.String()
	}
	return name + "=" + b.String()
}
