// Package report writes the results of scenarios: as text for people, and as JSON for programs.
package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"towtank/scenarios"
)

// Text writes results as people read them: FILE:LINE, ok, FAIL, info or skip, and the step; under a
// failure what was wanted, what was seen, and where the packet went.
type Text struct {
	W io.Writer
	// Verbose shows the steps that held, too.
	Verbose bool
	// Color marks results with ANSI colours.
	Color bool
	// Max is how many failures are shown in full; 0: all.
	Max int

	file   string
	failed int
}

// The ANSI colours of results.
const (
	red    = "31;1"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	faint  = "2"
)

func (t *Text) paint(code, s string) string {
	if !t.Color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// words are the results as they stand in a line.
var words = map[scenarios.Outcome]struct{ text, color string }{
	scenarios.Pass: {"ok", green}, scenarios.Fail: {"FAIL", red}, scenarios.Info: {"info", cyan}, scenarios.Skip: {"skip", yellow},
}

// Step implements scenarios.Observer.
func (t *Text) Step(s scenarios.Step) {
	t.file = s.File
	if s.Outcome != scenarios.Fail && s.Outcome != scenarios.Info && !t.Verbose {
		return
	}
	if s.Outcome == scenarios.Fail && t.tooMany() {
		return
	}
	word := words[s.Outcome]
	fmt.Fprintf(t.W, "%s:%d %s %s%s\n", s.File, s.Line, t.paint(word.color, word.text), s.Text, t.paint(faint, loop(s.Iter)))
	if s.Outcome == scenarios.Fail {
		t.difference(s)
	}
	if s.Text2 != "" {
		t.indented(s.Text2)
	}
	t.trace(s)
}

// loop says the values of the loop variables, as a comment behind the step.
func loop(iter map[string]string) string {
	if len(iter) == 0 {
		return ""
	}
	var p []string
	for _, k := range slices.Sorted(maps.Keys(iter)) {
		p = append(p, k+"="+iter[k])
	}
	return "  # " + strings.Join(p, " ")
}

func (t *Text) difference(s scenarios.Step) {
	for _, k := range slices.Sorted(maps.Keys(s.Want)) {
		fmt.Fprintf(t.W, "  want  %s\n", s.Want[k])
	}
	if got := s.Got.String(); got != "" {
		fmt.Fprintf(t.W, "  got   %s\n", got)
	}
}

func (t *Text) indented(text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintf(t.W, "  %s\n", line)
	}
}

func (t *Text) trace(s scenarios.Step) {
	Path{Brief: true, Drop: s.Got.Verdict == "drop", Mark: t.mark}.Write(t.W, s.Trace)
	if s.Outcome == scenarios.Info && len(s.Trace) > 0 {
		fmt.Fprintf(t.W, "  %s\n", Verdict(s))
	}
}

// tooMany counts a failure and reports whether it is beyond Max.
func (t *Text) tooMany() bool {
	t.failed++
	if t.Max > 0 && t.failed == t.Max+1 {
		fmt.Fprintln(t.W, "further failures are not shown")
	}
	return t.Max > 0 && t.failed > t.Max
}

// Invariant implements scenarios.Observer.
func (t *Text) Invariant(i scenarios.Invariant) {
	if i.OK || t.tooMany() {
		return
	}
	fmt.Fprintf(t.W, "%s:%d %s invariant %d", t.file, i.After, t.paint(red, "FAIL"), i.ID)
	if i.Node != "" {
		fmt.Fprintf(t.W, " on %s", i.Node)
	}
	if title := InvariantTitles[i.ID]; title != "" {
		fmt.Fprintf(t.W, ": %s", title)
	}
	fmt.Fprintln(t.W)
	t.indented(i.Detail)
}

// InvariantTitles say in a few words what each invariant demands.
var InvariantTitles = map[int]string{
	1: "what the agent wants is what the node has",
	2: "nothing of ours dangles or is without an owner, nothing of others is changed",
	3: "an Egress IP is held once, and where it should be",
	4: "a packet that leaves carries a source address that it may have",
	5: "a Service answers with an eligible endpoint, or refuses as it should",
	6: "after everything is deleted, nothing is left",
	7: "Pods and nodes reach every Pod",
}

// End implements scenarios.Observer.
func (t *Text) End(e scenarios.End) {
	for _, f := range e.FaultsUnused {
		fmt.Fprintf(t.W, "%s: %s: not every effect that this fault was for came: %s\n", e.File, t.paint(yellow, "note"), f)
	}
	fmt.Fprintf(t.W, "%s %s seed=%d steps=%d virtual=%s wall=%s", t.result(e.Outcome), e.Backend, e.Seed, e.Steps, Short(e.Time), Short(e.Wall))
	if len(e.LogHash) > hashShown {
		fmt.Fprintf(t.W, " hash=%s", e.LogHash[:hashShown])
	}
	fmt.Fprintf(t.W, "  %s\n", e.File)
	if e.Why != "" {
		fmt.Fprintf(t.W, "  %s\n", e.Why)
	}
	if e.Outcome == scenarios.Fail {
		fmt.Fprintf(t.W, "replay: %s\n", e.Replay)
	}
}

// hashShown is how much of the hash of the event log people see.
const hashShown = 12

func (t *Text) result(o scenarios.Outcome) string {
	s := strings.ToUpper(string(o))
	return t.paint(words[o].color, s)
}

// Short prints a duration with three significant digits at most.
func Short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}

func (t *Text) mark(s string) string { return t.paint(red, s) }

// Mark returns a function that paints what should stand out.
func Mark(color bool) func(string) string { return (&Text{Color: color}).mark }
