package lab

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/strategies/hash"
)

// By: questions go to the engine that is asked for, which no answer shows, and machine code is kept where it says.
func TestBy(t *testing.T) {
	wasm, err := os.ReadFile(filepath.Join("..", "..", "..", "strategies", "hash", "hash.wasm"))
	require.NoError(t, err)
	cache := filepath.Join(t.TempDir(), "cache")
	for _, engine := range []host.Engine{host.Compiler, host.Interpreter} {
		s := Module("hash", wasm, host.Limits{}).By(host.Options{Engine: engine, CacheDir: cache})
		require.NoError(t, s.Compile(t.Context()))
		c := NewCluster(2, 3)
		_, err := s.Rebalance(t.Context(), c)
		require.NoError(t, err)
		_, err = s.Allocate(t.Context(), c, nil)
		require.NoError(t, err)
		_, err = s.Describe(t.Context())
		require.NoError(t, err)
		assert.Len(t, s.compiled, 1)
		assert.Contains(t, s.compiled, engine)
		require.NoError(t, s.Close(t.Context()))
	}
	kept, err := os.ReadDir(cache)
	require.NoError(t, err)
	assert.NotEmpty(t, kept)

	native := Native("hash", hash.Strategy{})
	assert.True(t, native.Native())
	assert.NoError(t, native.Compile(t.Context()))
	refused := Module("none", []byte("no module"), host.Limits{})
	assert.ErrorIs(t, refused.Compile(t.Context()), host.ErrRefused)
	assert.NoError(t, refused.Close(t.Context()))
}
