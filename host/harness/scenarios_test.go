package harness_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/harness"
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
