// Package scenarios runs scenario files: it takes the typed steps of package lang, does them in a
// tank, and compares what packets, objects and nodes show with what the file expects.
package scenarios

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Outcome is what became of a step.
type Outcome string

// The outcomes.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	Info Outcome = "info" // something to read: a trace, a dump, a note
	Skip Outcome = "skip" // not for this backend
)

// Step is the result of one step.
type Step struct {
	File    string
	Line    int
	Index   int               // from 0, over unrolled loops
	Iter    map[string]string // values of the loop variables
	Text    string
	Time    time.Duration // virtual, since the start
	Outcome Outcome
	Want    map[string]string
	Got     Got
	Text2   string // what an info step shows, or why a step failed
	Trace   []TraceLine
}

// Got is what was observed, as --json shows it.
type Got struct {
	Verdict  string         `json:"verdict,omitempty"`
	Source   string         `json:"source,omitempty"`
	To       string         `json:"to,omitempty"`
	Backends map[string]int `json:"backends,omitempty"`
	Via      string         `json:"via,omitempty"`
	ReplyVia string         `json:"replyVia,omitempty"`
	HTTP     int            `json:"http,omitempty"`
	Sent     int            `json:"sent,omitempty"`
	Lost     int            `json:"lost,omitempty"`
	Writes   map[string]int `json:"writes,omitempty"`
	Value    string         `json:"value,omitempty"` // of other expectations
	Note     string         `json:"note,omitempty"`
}

// MarshalJSON shows how many were lost wherever some were sent, none too.
func (g Got) MarshalJSON() ([]byte, error) {
	type plain Got
	if g.Sent == 0 {
		return json.Marshal(plain(g))
	}
	return json.Marshal(struct {
		plain
		Lost int `json:"lost"`
	}{plain(g), g.Lost})
}

// String says what was observed in one line.
func (g Got) String() string {
	var p []string
	add := func(k, v string) {
		if v != "" {
			p = append(p, k+"="+v)
		}
	}
	if g.Verdict != "" {
		p = append(p, g.Verdict)
	}
	add("source", g.Source)
	add("to", g.To)
	if len(g.Backends) > 0 {
		var b []string
		for _, k := range slices.Sorted(maps.Keys(g.Backends)) {
			b = append(b, fmt.Sprintf("%s×%d", k, g.Backends[k]))
		}
		add("backends", strings.Join(b, ","))
	}
	add("via", g.Via)
	add("reply-via", g.ReplyVia)
	if g.HTTP != 0 {
		add("http", fmt.Sprint(g.HTTP))
	}
	if g.Sent > 0 {
		add("sent", fmt.Sprint(g.Sent))
		add("lost", fmt.Sprint(g.Lost))
	}
	for _, k := range slices.Sorted(maps.Keys(g.Writes)) {
		add(k, fmt.Sprint(g.Writes[k]))
	}
	add("value", g.Value)
	if g.Note != "" {
		p = append(p, "("+g.Note+")")
	}
	return strings.Join(p, " ")
}

// TraceLine is one line of a packet's path.
type TraceLine struct {
	Node  string `json:"node"`
	Where string `json:"where"`
	Text  string `json:"text"`
	Owner string `json:"owner,omitempty"`
	Drop  bool   `json:"drop,omitempty"`
}

// String returns the line as people read it.
func (t TraceLine) String() string {
	s := fmt.Sprintf("%-16s %-22s %s", t.Node, t.Where, t.Text)
	if t.Owner != "" {
		s += "  [" + t.Owner + "]"
	}
	if t.Drop {
		s += "  ✗"
	}
	return s
}

// Invariant is the result of checking one invariant on one node.
type Invariant struct {
	ID     int
	Node   string
	After  int // line of the step after which it was checked
	OK     bool
	Detail string
	// Want is what the reference model expects of the probe that failed, as a scenario writes it; "" if
	// no probe did.
	Want string
}

// End is the result of a file.
type End struct {
	File         string
	Backend      string
	Seed         uint64
	Outcome      Outcome
	Steps        int
	Failed       int
	Time         time.Duration // virtual
	Wall         time.Duration
	LogHash      string
	FaultsUnused []string
	Replay       string
	// Why says why the file was skipped, where its lines don't.
	Why string
	// Err is what Run returns: why the file could not go on, or did not run as it is written.
	Err error
}

// Observer hears of results as they come.
type Observer interface {
	Step(Step)
	Invariant(Invariant)
	End(End)
}

// Stopped is an Observer that also hears of the step that could not be carried out, at which the file ends. To the
// others it is no result: they have the error of Run.
type Stopped interface{ Stopped(Step) }
