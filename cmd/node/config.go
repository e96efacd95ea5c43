package main

import "github.com/spf13/cobra"

func newConfigCommand() *cobra.Command {
	return newGroup("config", "Check and show the configuration of a node")
}
