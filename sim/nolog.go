package sim

import "github.com/go-logr/logr"

// nopSink is a log that goes nowhere: what an agent decides is in the event log and the API.
type nopSink struct{}

func (nopSink) Init(logr.RuntimeInfo)            {}
func (nopSink) Enabled(int) bool                 { return false }
func (nopSink) Info(int, string, ...any)         {}
func (nopSink) Error(error, string, ...any)      {}
func (s nopSink) WithValues(...any) logr.LogSink { return s }
func (s nopSink) WithName(string) logr.LogSink   { return s }
