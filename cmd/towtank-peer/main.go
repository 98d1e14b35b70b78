//go:build linux

// Command towtank-peer serves and dials in a network namespace as the backend netns tells it: one request a
// line on the standard input. It ends with its input.
package main

import (
	"fmt"
	"os"

	"towtank/e2e/peer"
)

func main() {
	if err := peer.Run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "towtank-peer:", err)
		os.Exit(1)
	}
}
