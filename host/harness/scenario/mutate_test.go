package scenario_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/host/harness/scenario"
	"github.com/droverhq/drover/internal/tomldoc"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies/hash"
	"github.com/droverhq/drover/strategies/leastshard"
	"github.com/droverhq/drover/strategies/rendezvous"
)

// another returns a value that cannot hold where v does; false for an expectation that is no equality.
func another(key string, v any, first int64) (any, bool) {
	list, _ := v.([]any)
	list = slices.Clone(list)
	switch key {
	case "moves", "moved":
		if len(list) == 0 {
			return []any{first}, true
		}
		return list[1:], true
	case "homes", "owners":
		if len(list) == 0 {
			return []any{""}, true
		}
		if pair, ok := list[0].([]any); ok {
			list[0] = []any{pair[0], ""}
		} else if list[0] == "" {
			list = list[1:]
		} else {
			list[0] = ""
		}
		return list, true
	case "counts":
		if table, ok := v.(map[string]any); ok {
			table = maps.Clone(table)
			for name := range table {
				table[name] = table[name].(int64) + 1
			}
			return table, true
		}
		list[0] = list[0].(int64) + 1
		return list, true
	case "homeless":
		return v.(int64) + 1, true
	case "verdict":
		return "depth", true
	case "reason", "error":
		return "nobody says this", true
	case "cycles":
		return !v.(bool), true
	}
	return nil, false
}

// Every equality that the files of the built-in strategies expect is judged: another value in its place fails the scenario, at
// that expectation.
func TestEachExpectedValueIsJudged(t *testing.T) {
	mutated := 0
	for name, impl := range map[string]pluginapi.Strategy{"hash": hash.Strategy{}, "leastshard": leastshard.Strategy{}, "rendezvous": rendezvous.Strategy{}} {
		s := lab.Native(name, impl)
		files, err := filepath.Glob(filepath.Join("..", "..", "..", "strategies", name, "scenarios", "*.toml"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var tree map[string]any
			require.NoError(t, toml.Unmarshal(data, &tree))
			tree = tomldoc.Normal(tree).(map[string]any)
			first, _ := tree["first"].(int64)
			for _, one := range tree["scenario"].([]any) {
				table := one.(map[string]any)
				steps, several := table["step"].([]any)
				if !several {
					steps = []any{table}
				}
				for _, step := range steps {
					expect, _ := step.(map[string]any)["expect"].(map[string]any)
					for key, value := range expect {
						wrong, ok := another(key, value, first)
						if !ok {
							continue
						}
						expect[key] = wrong
						alone := maps.Clone(tree)
						alone["scenario"] = []any{table}
						var doc bytes.Buffer
						require.NoError(t, toml.NewEncoder(&doc).Encode(alone))
						expect[key] = value
						scenarios, err := scenario.Parse(file, doc.Bytes())
						if err != nil && strings.Contains(err.Error(), "there is no shard 0: there are 0") {
							continue // nothing else can be expected
						}
						require.NoError(t, err, doc.String())
						r, err := scenarios[0].Run(t.Context(), s)
						require.NoError(t, err)
						found := slices.ContainsFunc(r.Failures, func(f *scenario.Failure) bool { return f.Expect == key })
						assert.True(t, found, "%s: %v: %s = %v holds as well as %v", file, table["name"], key, wrong, value)
						mutated++
					}
				}
			}
		}
	}
	assert.Greater(t, mutated, 150)
}
