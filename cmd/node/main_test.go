package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"drover": main})
}

// TestScripts runs the command-line stories in testdata/script: one story a file, prose first.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
	})
}

// TestEveryCommandIsDocumented holds docs/cli.md against the command tree.
func TestEveryCommandIsDocumented(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	require.NoError(t, err)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		assert.NotEmpty(t, cmd.Short, cmd.CommandPath())
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if !cmd.HasSubCommands() {
			line := "| `" + strings.TrimPrefix(cmd.CommandPath(), "drover ") + "` |"
			assert.Contains(t, string(data), line, "add the command to the table in docs/cli.md")
		}
	}
	walk(newRootCommand())
}
