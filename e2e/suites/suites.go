//go:build linux

// Package suites has the Ginkgo suites run on real nodes.
package suites

import (
	"fmt"
	"os"

	"towtank/e2e/netns"
	"towtank/scenarios/spec"
)

// Use has the scenarios of this process run where TOWTANK_BACKEND says: sim (or nothing) or netns.
func Use() {
	switch b := os.Getenv("TOWTANK_BACKEND"); b {
	case "", "sim":
	case "netns":
		spec.On(netns.Run)
	default:
		fmt.Fprintf(os.Stderr, "TOWTANK_BACKEND: found %q, allowed: sim, netns\n", b)
		os.Exit(2)
	}
}
