// Command towtank runs scenarios in the tank: what happens to a cluster, and what a packet must then
// experience.
//
//	towtank run scenarios/
package main

import (
	"os"

	"towtank/cmd/towtank/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
