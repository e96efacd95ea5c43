package harness_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/harness"
	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/host/harness/scenario"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies/hash"
	"github.com/droverhq/drover/strategies/leastshard"
	"github.com/droverhq/drover/strategies/rendezvous"
)

// Spec 1.5 and 1.2: the scenario files of the built-in strategies hold natively and through wasm.
func TestScenariosOfTheBuiltIns(t *testing.T) {
	for name, impl := range map[string]pluginapi.Strategy{
		"hash": hash.Strategy{}, "leastshard": leastshard.Strategy{}, "rendezvous": rendezvous.Strategy{},
	} {
		dir := filepath.Join("..", "..", "strategies", name)
		for kind, s := range map[string]*harness.Strategy{
			"native": harness.Native(t, name, impl), "wasm": harness.Open(t, filepath.Join(dir, name+".wasm")),
		} {
			t.Run(name+"/"+kind, func(t *testing.T) { harness.Scenarios(t, s, filepath.Join(dir, "scenarios", "*.toml")) })
		}
	}
}

// Spec 1.5: every example that has scenario files keeps to them.
func TestScenariosOfTheExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "plugins-examples", "*", "scenarios"))
	require.NoError(t, err)
	for _, dir := range files {
		modules, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*.wasm"))
		require.NoError(t, err)
		require.Len(t, modules, 1, "%s: whose scenarios are these?", dir)
		t.Run(filepath.Base(filepath.Dir(dir)), func(t *testing.T) {
			assert.True(t, harness.Scenarios(t, harness.Open(t, modules[0]), filepath.Join(dir, "*.toml")))
		})
	}
}

// Spec 1.5: the oscillation detector, shown on a strategy that oscillates.
func TestScenariosOfAStrategyThatOscillates(t *testing.T) {
	dir := filepath.Join("scenario", "testdata", "oscillates")
	harness.Scenarios(t, harness.Open(t, filepath.Join(dir, "oscillates.wasm")), filepath.Join(dir, "scenarios", "*.toml"))
}

// No file is about what any strategy does: each tells its own from another built-in one at least.
func TestScenariosTellStrategiesApart(t *testing.T) {
	impls := map[string]pluginapi.Strategy{"hash": hash.Strategy{}, "leastshard": leastshard.Strategy{}, "rendezvous": rendezvous.Strategy{}}
	for name := range impls {
		files, err := filepath.Glob(filepath.Join("..", "..", "strategies", name, "scenarios", "*.toml"))
		require.NoError(t, err)
		for _, file := range files {
			failed := 0
			for other, impl := range impls {
				if other == name {
					continue
				}
				scenarios, err := scenario.Load(file)
				require.NoError(t, err)
				for _, one := range scenarios {
					r, err := one.Run(t.Context(), lab.Native(other, impl))
					require.NoError(t, err, one.Name)
					failed += len(r.Failures)
				}
			}
			assert.Positive(t, failed, "%s holds of every built-in strategy", file)
		}
	}
}

// A file that is wrong, or a pattern that names none, ends the test; what is not as expected fails it and is told.
func TestScenariosThatFail(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	s := harness.Native(t, "hash", hash.Strategy{})
	for path, want := range map[string]string{
		filepath.Join(dir, "none*.toml"): "none*.toml names no file",
		filepath.Join(dir, "[.toml"):     "syntax error in pattern",
		file("bad.toml", "nods = 1\n"):   `bad.toml:1:1: nods: unknown key: did you mean "nodes"?`,
	} {
		text, failed := record(t, func(t testing.TB) { harness.Scenarios(t, s, path) })
		assert.True(t, failed, path)
		assert.Contains(t, text, want)
	}
	good := file("good.toml", "nodes = 1\ncounts = [1]\nop = \"rebalance\"\nexpect.moves = []\n")
	wrong := file("wrong.toml", "nodes = 1\ncounts = [1]\nop = \"rebalance\"\nexpect.moves = [0]\n")
	text, failed := record(t, func(t testing.TB) { assert.True(t, harness.Scenarios(t, s, good)) })
	assert.False(t, failed, text)
	text, failed = record(t, func(t testing.TB) { assert.False(t, harness.Scenarios(t, s, wrong)) })
	assert.True(t, failed)
	assert.Contains(t, text, `wrong.toml:4:16: scenario "wrong": rebalance, moves`)
	assert.Contains(t, text, "right would have been: moves: 0 a→anywhere")
}
