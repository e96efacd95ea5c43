package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRunExitCodes holds the documented exit codes (spec 5.3).
func TestRunExitCodes(t *testing.T) {
	for _, tc := range []struct {
		line string
		code int
	}{
		{"", 0},
		{"version", 0},
		{"help", 0},
		{"version --help", 0},
		{"nonsense", 2},
		{"config nonsense", 2},
		{"version --nonsense", 2},
		{"version extra", 2},
		{"config check --config testdata/none.toml", 2},
		{"config check --set name=a --config ../../node.toml", 0},
		{"config check --json --config testdata/none.toml", 2},
	} {
		var out, errs bytes.Buffer
		code := run(strings.Fields(tc.line), strings.NewReader(""), &out, &errs)
		assert.Equal(t, tc.code, code, "drover %s\n%s", tc.line, errs.String())
		quiet := tc.code == 0 || strings.Contains(tc.line, "--json")
		assert.Equal(t, quiet, errs.Len() == 0, "drover %s: stderr %q", tc.line, errs.String())
	}
}

func TestReport(t *testing.T) {
	plain := errors.New("disk full")
	for _, tc := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{"plain", plain, 1, "drover: disk full\n"},
		{"hint", withHint(plain, "free some space"), 1, "drover: disk full\nhint: free some space\n"},
		{"usage", usageError(plain, "read the help"), 2, "drover: disk full\nhint: read the help\n"},
		{"wrapped", fmt.Errorf("start: %w", usageError(plain, "h")), 2, "drover: start: disk full\nhint: h\n"},
		{"hint keeps the code", withHint(usageError(plain, "old"), "new"), 2, "drover: disk full\nhint: new\n"},
		{"several lines", errors.Join(plain, errors.New("no memory")), 1, "drover: disk full\ndrover: no memory\n"},
		{"silent", exitWith(4), 4, ""},
	} {
		var w bytes.Buffer
		assert.Equal(t, tc.code, report(&w, tc.err), tc.name)
		assert.Equal(t, tc.text, w.String(), tc.name)
	}
}
