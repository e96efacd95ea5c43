package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover/internal/buildinfo"
)

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		info := buildinfo.Get()
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), info)
		}
		revision := info.Revision
		if revision == "" {
			revision = "unknown revision"
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "drover %s (%s, %s, %s)\n", info.Version, revision, info.Go, info.Platform)
		return err
	}
	return cmd
}
