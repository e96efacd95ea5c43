package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"drover": main})
}

// TestScripts runs the command-line stories in testdata/script: one story a file, prose first.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			// The scripts must not see the configuration of whoever runs the tests.
			for _, name := range []string{"DROVER_ADDRESS", "DROVER_TOKEN"} {
				env.Setenv(name, "")
			}
			return nil
		},
	})
}
