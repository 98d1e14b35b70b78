package datapath

import "fmt"

// Stage is a step of a Change. Stages run in order, and every prefix of them leaves the node safe:
// what a later stage needs was made by an earlier one, and what is removed was let go of before.
type Stage int

// The stages. Only StageBundle is atomic.
const (
	StageHostAdd     Stage = 1 + iota // host objects made or changed
	StagePortAdd                      // OVSDB ports made or changed
	StageMeterAdd                     // meters made or changed (they cannot be bundled)
	StageBundle                       // groups and flows, one atomic OpenFlow bundle
	StageMeterDelete                  // meters removed
	StagePortDelete                   // OVSDB ports removed
	StageHostDelete                   // host objects removed
	StageEffects                      // conntrack flush, announcements, replies
)

var stageNames = map[Stage]string{
	StageHostAdd: "host-add", StagePortAdd: "port-add", StageMeterAdd: "meter-add", StageBundle: "bundle",
	StageMeterDelete: "meter-delete", StagePortDelete: "port-delete", StageHostDelete: "host-delete", StageEffects: "effects",
}

// String returns the stage's name.
func (s Stage) String() string {
	if n, ok := stageNames[s]; ok {
		return n
	}
	return fmt.Sprintf("stage(%d)", int(s))
}

// StageOf returns the stage in which an object of the kind is put (made or changed) or deleted.
func StageOf(k Kind, del bool) Stage {
	switch k {
	case KindFlow, KindGroup:
		return StageBundle
	case KindMeter:
		if del {
			return StageMeterDelete
		}
		return StageMeterAdd
	case KindPort:
		if del {
			return StagePortDelete
		}
		return StagePortAdd
	}
	if del {
		return StageHostDelete
	}
	return StageHostAdd
}

var ranks = map[Kind]int{
	KindLink: 1, KindSysctl: 2, KindAddress: 3, KindNeighbour: 4, KindRoute: 5, KindRule: 6,
	KindIPSet: 7, KindIPSetEntry: 8, KindIPTables: 9, KindHealth: 10,
	KindPort: 20, KindMeter: 30, KindGroup: 40, KindFlow: 41,
}

// Rank orders kinds inside a stage: an object is put after those of a lower rank and deleted
// before them.
func Rank(k Kind) int { return ranks[k] }

// Op is the change of one object: put if New is set (Old is the version known to be there, nil if
// none or not known), delete if New is nil (Old is what is deleted).
type Op struct {
	Old, New Object
	// Units are the owners of the object, for errors and the journal; the first is the one that
	// the object is rendered for.
	Units []string
	entry *entry // of the Store that the op came from
}

// Key returns the key of the object that the op changes.
func (o Op) Key() Key {
	if o.New != nil {
		return o.New.Key()
	}
	return o.Old.Key()
}

// Kind returns the kind of the object that the op changes.
func (o Op) Kind() Kind {
	if o.New != nil {
		return o.New.Kind()
	}
	return o.Old.Kind()
}

// Delete reports whether the op deletes its object.
func (o Op) Delete() bool { return o.New == nil }

// String returns the op as a diff line: "+ text", "- text" or "~ text" for a changed object.
func (o Op) String() string { return string(o.AppendText(nil)) }

// AppendText appends what String returns.
func (o Op) AppendText(b []byte) []byte {
	sign, of := "~ ", o.New
	switch {
	case o.New == nil:
		sign, of = "- ", o.Old
	case o.Old == nil:
		sign = "+ "
	}
	b = append(append(b, sign...), of.Kind()...)
	return append(append(b, ' '), of.String()...)
}

// BundlePhase orders the ops of a bundle: groups before the flows that use them, flows deleted before their
// groups.
func (o Op) BundlePhase() int {
	isFlow := o.Kind() == KindFlow
	switch {
	case !o.Delete() && !isFlow:
		return 0
	case !o.Delete():
		return 1
	case isFlow:
		return 2
	}
	return 3
}

// Outcome says what became of an op.
type Outcome int

// The outcomes.
const (
	Done    Outcome = iota // applied and acknowledged
	Refused                // refused by the backend; nothing of this op was applied
	Skipped                // not tried, or rolled back with a refused op of the same bundle
	Unknown                // no answer: it may have been applied
)

// String returns the outcome's name.
func (o Outcome) String() string {
	switch o {
	case Done:
		return "done"
	case Refused:
		return "refused"
	case Skipped:
		return "skipped"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("outcome(%d)", int(o))
}

// OpResult is the result of one op. Err is set for Refused and Unknown.
type OpResult struct {
	Outcome Outcome
	Err     error
}

// AllResults returns n equal results.
func AllResults(n int, o Outcome, err error) []OpResult {
	r := make([]OpResult, n)
	for i := range r {
		r[i] = OpResult{o, err}
	}
	return r
}
