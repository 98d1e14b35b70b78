// Command determinism reports code of the agent and the simulator that could make two runs with one
// seed differ.
//
//	go run ./tools/determinism/cmd/determinism ./...
package main

import (
	"golang.org/x/tools/go/analysis/singlechecker"

	"towtank/tools/determinism"
)

func main() { singlechecker.Main(determinism.Analyzer) }
