package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"strconv"
	"time"
)

// Log is the event log with its running hash: the same seed gives the same hash, whatever machine it
// runs on. What is in the log is what happened, in order: events, effects, verdicts.
type Log struct {
	start time.Time
	h     hash.Hash
	buf   []byte
	out   io.Writer // nil: the text is not kept
	lines int
}

// NewLog returns an empty log; out, if not nil, gets every line.
func NewLog(start time.Time, out io.Writer) *Log {
	return &Log{start: start, h: sha256.New(), out: out}
}

// Add appends a line; what it tells of comes in parts, which follow each other without anything between them.
func (l *Log) Add(now time.Time, kind, who string, what ...string) {
	l.lines++
	l.buf = append(strconv.AppendInt(l.buf[:0], now.Sub(l.start).Nanoseconds(), 10), ' ')
	l.buf = append(append(append(append(l.buf, kind...), ' '), who...), ' ')
	for _, part := range what {
		l.buf = append(l.buf, part...)
	}
	l.buf = append(l.buf, '\n')
	_, _ = l.h.Write(l.buf) // a hash does not fail
	if l.out != nil {
		_, _ = l.out.Write(l.buf) // a log that cannot be written must not stop the run
	}
}

// Hash returns the hash of everything so far, 16 hexadecimal digits.
func (l *Log) Hash() string { return hex.EncodeToString(l.h.Sum(nil))[:16] }

// Lines returns the number of lines.
func (l *Log) Lines() int { return l.lines }
