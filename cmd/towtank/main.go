// Command towtank runs scenarios in the tank: what happens to a cluster, and what a packet must then
// experience.
//
//	towtank run scenarios/
package main

import (
	"os"

	"towtank/cmd/towtank/cli"
	"towtank/e2e/cleanup"
)

func main() {
	status := cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	cleanup.Run()
	os.Exit(status)
}
