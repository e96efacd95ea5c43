// Command drover runs a Drover node and talks to a cluster.
//
// This package owns flags, output and exit codes, nothing else: what a command does lives in the packages it calls.
// Each command group has a file of its own with a constructor, newXCommand, listed in newRootCommand.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
