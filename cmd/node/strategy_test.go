package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// TestStrategyScripts runs the stories about strategy check, describe, run and test. $FIXTURES holds modules that misbehave, $BUILTINS the built-in ones.
func TestStrategyScripts(t *testing.T) {
	fixtures, err := filepath.Abs(filepath.Join("..", "..", "host", "testdata"))
	require.NoError(t, err)
	builtins, err := filepath.Abs(filepath.Join("..", "..", "strategies"))
	require.NoError(t, err)
	cache := t.TempDir()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/strategy",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("FIXTURES", fixtures)
			env.Setenv("BUILTINS", builtins)
			env.Setenv("XDG_CACHE_HOME", cache)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"json":  jsonEqual,
			"exits": exitsWith,
		},
	})
}

// exitsWith runs a program that must end with a code: exits CODE PROGRAM ARGS….
func exitsWith(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got := strconv.Itoa(code); got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// jsonEqual compares the JSON on stdout with a file: json FILE. Keys of the file alone are compared, so that a story
// leaves out what differs from run to run.
func jsonEqual(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: json FILE")
	}
	var got, want map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &got))
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(json.Unmarshal(data, &want))
	for key, w := range want {
		g, ok := got[key]
		if !ok {
			ts.Fatalf("%s is missing", key)
		}
		a, _ := json.Marshal(g)
		b, _ := json.Marshal(w)
		if string(a) != string(b) {
			ts.Fatalf("%s: got %s, want %s", key, a, b)
		}
	}
}
