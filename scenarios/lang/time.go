package lang

import (
	"strconv"
	"time"
)

var timeCommands = []command{
	{"settle", "settle [within=30s]", "runs what is due, and work timers up to within; what is then still dirty fails", parseSettle},
	{"advance", "advance DURATION", "lets time pass", parseAdvance},
	{"step", "step [N]", "sim: N single events", parseStepEvents},
}

// Settle is `settle [within=30s]`.
type Settle struct {
	// Within bounds the time that may pass; 0: DefaultSettle.
	Within time.Duration
}

// DefaultSettle is how much time settle lets pass if it does not say.
const DefaultSettle = 30 * time.Second

// Command implements Step.
func (Settle) Command() string { return "settle" }

// String implements Step.
func (s Settle) String() string {
	var p printer
	p.word("settle")
	p.opt("within", durationOption(s.Within))
	return p.String()
}

func (Settle) names(*nameVisitor) {}

func parseSettle(a *args) Step {
	var s Settle
	a.options([]option{opt("within", func(v string) (err error) { s.Within, err = parseDuration(v, time.Nanosecond); return err })})
	return s
}

// Advance is `advance DURATION`.
type Advance struct{ Duration time.Duration }

// Command implements Step.
func (Advance) Command() string { return "advance" }

// String implements Step.
func (s Advance) String() string { return "advance " + formatDuration(s.Duration) }

func (Advance) names(*nameVisitor) {}

func parseAdvance(a *args) Step {
	return Advance{take(a, "DURATION", func(w string) (time.Duration, error) { return parseDuration(w, 0) })}
}

// StepEvents is `step [N]`.
type StepEvents struct {
	// N is the number of events; 0: 1.
	N int
}

// Command implements Step.
func (StepEvents) Command() string { return "step" }

// String implements Step.
func (s StepEvents) String() string {
	var p printer
	p.word("step")
	if s.N != 0 {
		p.word(strconv.Itoa(s.N))
	}
	return p.String()
}

func (StepEvents) names(*nameVisitor) {}

func parseStepEvents(a *args) Step {
	var s StepEvents
	if a.left() {
		s.N = take(a, "N", func(w string) (int, error) { return parseInt(w, 1, maxCount) })
	}
	return s
}
