package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/httpapi/httpapitest"
	"github.com/droverhq/drover/sharding"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"drover": main})
}

// TestScripts runs the command-line stories in testdata/script: one story a file, prose first.
func TestScripts(t *testing.T) {
	cache := t.TempDir()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_CACHE_HOME", cache)
			return startNodes(env)
		},
	})
}

// startNodes gives each script nodes to talk to: SERVER is a small cluster that never changes by itself, GUARDED wants a token, BROKEN
// fails, NOBODY is an address where nothing listens, FOREIGN one where something else does.
func startNodes(env *testscript.Env) error {
	open := config.Default().HTTP
	guarded := open
	guarded.AdminToken, guarded.ReadToken = "admin-0123456789", "read-0123456789ab"
	quiet := slog.New(slog.DiscardHandler)
	for name, handler := range map[string]http.Handler{
		"SERVER":  httpapi.New(open, &httpapitest.Node{}, "v1", quiet),
		"GUARDED": httpapi.New(guarded, &httpapitest.Node{}, "v1", quiet),
		"BROKEN":  httpapi.New(open, &httpapitest.Node{Err: sharding.ErrUnavailable, NoLeader: true}, "v1", quiet),
		"FOREIGN": http.NotFoundHandler(),
		"NOBODY":  nil,
	} {
		server := httptest.NewServer(handler)
		env.Setenv(name, server.URL)
		if handler == nil {
			server.Close()
			continue
		}
		env.Defer(server.Close)
	}
	return nil
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
