package report

import (
	"encoding/json"
	"fmt"
	"io"

	"towtank/scenarios"
	"towtank/scenarios/lang"
)

// JSONVersion is the version of the objects that JSON writes. It changes when a consumer that
// ignores unknown keys could be misled.
const JSONVersion = 1

// JSON writes results as objects, one a line: kind step, invariant and end; instead of an end, broken.
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
	Why          string            `json:"why,omitempty"`    // a file was skipped
	Errors       []jsonError       `json:"errors,omitempty"` // why the file did not run as it is written, or to its end
}

// jsonBroken stands for the end of a file that has none, as it cannot be read, or the tank failed.
type jsonBroken struct {
	V      int         `json:"v"`
	Kind   string      `json:"kind"`
	File   string      `json:"file"`
	Result string      `json:"result"`
	Errors []jsonError `json:"errors"`
}

type jsonError struct {
	Line int    `json:"line,omitempty"` // if one is to blame
	Text string `json:"text"`
}

// errorsOf takes an error apart into those of single lines, if it has such.
func errorsOf(err error) []jsonError {
	if err == nil {
		return nil
	}
	if out := errorsOfLines(err); len(out) > 0 {
		return out
	}
	return []jsonError{{Text: err.Error()}}
}

func errorsOfLines(err error) (out []jsonError) {
	switch e := err.(type) {
	case lang.Error:
		return []jsonError{{e.Line, e.Text}}
	case *scenarios.LineError:
		return []jsonError{{e.Line, fmt.Sprintf("%s: %v", e.Step, e.Err)}}
	case interface{ Unwrap() error }:
		return errorsOfLines(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, x := range e.Unwrap() {
			out = append(out, errorsOfLines(x)...)
		}
	}
	return out
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

// Stopped implements scenarios.Stopped: the reason stands where that of a step that failed does.
func (j *JSON) Stopped(s scenarios.Step) { j.Step(s) }

// Broken writes that a file has no end, and why.
func (j *JSON) Broken(file string, err error) {
	j.write(jsonBroken{V: JSONVersion, Kind: "broken", File: file, Result: "broken", Errors: errorsOf(err)})
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
		Time: int64(e.Time), WallMS: e.Wall.Milliseconds(), LogHash: e.LogHash, FaultsUnused: e.FaultsUnused, Replay: e.Replay, Why: e.Why, Errors: errorsOf(e.Err),
	}
	if v.FaultsUnused == nil {
		v.FaultsUnused = []string{}
	}
	j.write(v)
}
