package report

import (
	"encoding/json"
	"io"

	"towtank/scenarios"
)

// JSONVersion is the version of the objects that JSON writes. It changes when a consumer that
// ignores unknown keys could be misled.
const JSONVersion = 1

// JSON writes results as objects, one a line: kind step, invariant and end.
type JSON struct {
	W io.Writer
	// Err is the first error of writing.
	Err error

	file string // of the last step
}

type jsonStep struct {
	V      int                   `json:"v"`
	Kind   string                `json:"kind"`
	File   string                `json:"file"`
	Line   int                   `json:"line"`
	Index  int                   `json:"index"`
	Iter   map[string]string     `json:"iter"`
	Text   string                `json:"text"`
	Time   int64                 `json:"t_ns"` // virtual, since the start
	Result scenarios.Outcome     `json:"result"`
	Want   map[string]string     `json:"want"`
	Got    scenarios.Got         `json:"got"`
	Detail string                `json:"detail,omitempty"` // why it failed, or what an info step shows
	Trace  []scenarios.TraceLine `json:"trace"`
}

type jsonInvariant struct {
	V      int               `json:"v"`
	Kind   string            `json:"kind"`
	File   string            `json:"file"`
	ID     int               `json:"id"`
	Node   string            `json:"node"`
	After  int               `json:"after"` // line of the step before
	Result scenarios.Outcome `json:"result"`
	Detail string            `json:"detail"`
}

type jsonEnd struct {
	V            int               `json:"v"`
	Kind         string            `json:"kind"`
	File         string            `json:"file"`
	Backend      string            `json:"backend"`
	Seed         uint64            `json:"seed"`
	Result       scenarios.Outcome `json:"result"`
	Steps        int               `json:"steps"`
	Failed       int               `json:"failed"`
	Time         int64             `json:"t_ns"`
	WallMS       int64             `json:"wall_ms"`
	LogHash      string            `json:"logHash"`
	FaultsUnused []string          `json:"faultsUnused"`
	Replay       string            `json:"replay"`
	Why          string            `json:"why,omitempty"` // a file was skipped
}

func (j *JSON) write(v any) {
	enc := json.NewEncoder(j.W)
	enc.SetEscapeHTML(false) // -> stays readable
	if err := enc.Encode(v); j.Err == nil {
		j.Err = err
	}
}

// Step implements scenarios.Observer.
func (j *JSON) Step(s scenarios.Step) {
	j.file = s.File
	v := jsonStep{
		V: JSONVersion, Kind: "step", File: s.File, Line: s.Line, Index: s.Index, Iter: s.Iter, Text: s.Text, Time: int64(s.Time),
		Result: s.Outcome, Want: s.Want, Got: s.Got, Detail: s.Text2, Trace: s.Trace,
	}
	if v.Iter == nil {
		v.Iter = map[string]string{}
	}
	if v.Want == nil {
		v.Want = map[string]string{}
	}
	if v.Trace == nil {
		v.Trace = []scenarios.TraceLine{}
	}
	j.write(v)
}

// Invariant implements scenarios.Observer.
func (j *JSON) Invariant(i scenarios.Invariant) {
	v := jsonInvariant{V: JSONVersion, Kind: "invariant", File: j.file, ID: i.ID, Node: i.Node, After: i.After, Result: scenarios.Pass, Detail: i.Detail}
	if !i.OK {
		v.Result = scenarios.Fail
	}
	j.write(v)
}

// End implements scenarios.Observer.
func (j *JSON) End(e scenarios.End) {
	v := jsonEnd{
		V: JSONVersion, Kind: "end", File: e.File, Backend: e.Backend, Seed: e.Seed, Result: e.Outcome, Steps: e.Steps, Failed: e.Failed,
		Time: int64(e.Time), WallMS: e.Wall.Milliseconds(), LogHash: e.LogHash, FaultsUnused: e.FaultsUnused, Replay: e.Replay, Why: e.Why,
	}
	if v.FaultsUnused == nil {
		v.FaultsUnused = []string{}
	}
	j.write(v)
}
