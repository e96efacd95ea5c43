package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Spec 1.6, field by field: what `strategy run --json` prints for each verdict, no key more or less, and null where there is nothing to say.
func TestStrategyRunJSON(t *testing.T) {
	dir := t.TempDir()
	input := filepath.Join(dir, "in.json")
	require.NoError(t, os.WriteFile(input, []byte(`{"nodes":["a","b"],"owners":["a",null,"b"],"config":{}}`), 0o600))
	fixture := func(name string) string { return filepath.Join("..", "..", "host", "testdata", name+".wasm") }
	fields := []string{"verdict", "error", "rule", "op", "digest", "costModel", "fuel", "fuelLimit", "memoryPages", "timeUs", "repeat", "identical", "decision"}
	slices.Sort(fields)
	for _, c := range []struct {
		module, op string
		flags      []string
		exit       int
		verdict    string
		null       string // fields that are null, by name
		decision   string // its keys
	}{
		{"builtin:hash", "rebalance", nil, 0, "ok", "error rule", "moves reason"},
		{"builtin:hash", "allocate", nil, 0, "ok", "error rule", "homes reason"},
		{fixture("admission/import-unknown.func"), "rebalance", nil, 3, "refused", "fuel decision", ""},
		{fixture("attack/unreachable"), "allocate", nil, 4, "trap", "rule fuel decision", ""},
		{fixture("attack/loop"), "allocate", []string{"--fuel", "1000000", "--budget", "1m"}, 4, "fuel", "rule decision", ""},
		{fixture("attack/recursion"), "allocate", nil, 4, "depth", "rule fuel decision", ""},
		{fixture("attack/loop"), "allocate", []string{"--fuel", "1000000000000", "--budget", "10ms"}, 4, "budget", "rule fuel decision", ""},
		{fixture("attack/bad-cbor"), "allocate", nil, 4, "output", "rule decision", ""},
	} {
		t.Run(c.verdict+" "+c.op, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			args := append([]string{"strategy", "run", c.module, "--op", c.op, "--input", input, "--json"}, c.flags...)
			require.Equal(t, c.exit, run(args, nil, &stdout, &stderr), stderr.String())
			require.Empty(t, stderr.String())
			var got map[string]any
			require.NoError(t, json.Unmarshal(stdout.Bytes(), &got))
			require.Equal(t, fields, slices.Sorted(maps.Keys(got)))
			require.Equal(t, c.verdict, got["verdict"])
			require.Equal(t, c.op, got["op"])
			require.Regexp(t, `^sha256:[0-9a-f]{64}$`, got["digest"])
			for _, number := range []string{"costModel", "fuelLimit", "memoryPages", "timeUs", "repeat"} {
				require.IsType(t, 0.0, got[number], number)
			}
			require.Equal(t, true, got["identical"])
			for _, f := range []string{"error", "rule", "fuel", "decision"} {
				require.Equal(t, slices.Contains(strings.Fields(c.null), f), got[f] == nil, "%s: %v", f, got[f])
			}
			if c.decision != "" {
				d := got["decision"].(map[string]any)
				require.Equal(t, strings.Fields(c.decision), slices.Sorted(maps.Keys(d)))
				for _, list := range []string{"moves", "homes"} {
					want := map[string][]string{"moves": {"from", "reason", "shard", "to"}, "homes": {"node", "reason", "shard"}}[list]
					items, _ := d[list].([]any)
					for _, item := range items {
						require.Equal(t, want, slices.Sorted(maps.Keys(item.(map[string]any))))
					}
				}
			}
		})
	}
}
