// Package lang is the scenario language: what happens to a cluster, and what a packet must then
// experience, in a form that runs on every backend.
//
// A .scenario file is a txtar archive: commands, one a line, then the files (Kubernetes manifests)
// that the commands apply. Parse turns it into a tree of lines with one typed Step each; Format
// prints the tree as canonical text, which parses to the same tree. Expand unrolls the loops into
// the Instances that a runner executes in order. The Steps are plain structs, so that Go tests and
// random generators can build scenarios that print, shrink and replay as files do.
//
//	file.go      the tree and its text          lex.go, parse.go, args.go   text to tree
//	expand.go    loops to instances             check.go      what can be known before a run
//	address.go, values.go, expect.go            the values in the steps
//	topology.go, kube.go, time.go, traffic.go, faults.go, looking.go        the commands
package lang

import (
	"fmt"
	"strings"
)

// Step is one command. Every Step is a struct value (not a pointer) of this package; its fields are
// the command's options, typed.
type Step interface {
	// Command is the command's first word.
	Command() string
	// String is the whole command in canonical text.
	String() string
	// names tells a visitor which nodes, external hosts, files and named connections the step uses.
	names(v *nameVisitor)
}

// Limits of a scenario file. Nodes and external hosts are limited by the address plan: the k-th node
// has 172.18.0.(10+k), the k-th external host 172.18.0.(100+k).
const (
	MaxSteps     = 100_000 // after loops are unrolled
	MaxLoopDepth = 2
	MaxNodes     = 89
	MaxExternals = 150
	MaxErrors    = 20 // reported for one file
)

// Backends are the names of the backends a file or a line can be limited to.
var Backends = []string{"sim", "ovsdummy", "netns", "cluster"}

// ParseStep parses the text of one command, as a Go test writes it.
func ParseStep(text string) (Step, error) {
	p := &parser{name: "step", lines: []string{text}}
	if strings.Contains(text, "\n") {
		return nil, fmt.Errorf("step %q: want one line", text)
	}
	lines := p.block(nil, 0)
	if err := p.errors.err(); err != nil {
		return nil, err
	}
	if len(lines) != 1 {
		return nil, fmt.Errorf("step %q: want one command", text)
	}
	line := lines[0]
	if line.Step == nil || len(line.Only)+len(line.Except) > 0 || line.Comment != "" {
		return nil, fmt.Errorf("step %q: want one command without prefix and comment", text)
	}
	return line.Step, nil
}

// MustStep is ParseStep for text that is known to be right; it panics if it is not.
func MustStep(text string) Step {
	s, err := ParseStep(text)
	if err != nil {
		panic(err)
	}
	return s
}
