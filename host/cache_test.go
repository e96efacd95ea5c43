package host_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
)

// Machine code is kept by the module's digest, the cost model and wazero's version, and is not made again after a restart;
// what is damaged is, and whole then.
func TestCacheSurvivesARestart(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	loadOnce := func(name string, l host.Limits) {
		rt, err := host.NewRuntime(ctx, host.Options{CacheDir: dir})
		require.NoError(t, err)
		s, err := rt.Load(ctx, fixture(t, name), l, nil)
		require.NoError(t, err)
		require.NoError(t, allocate(s).Err)
		require.NoError(t, s.Close(ctx))
		require.NoError(t, rt.Close(ctx))
	}
	kept := func() (code []string) {
		files, err := filepath.Glob(filepath.Join(dir, "cost-model-1", "wazero-*-"+runtime.GOARCH+"-"+runtime.GOOS, "*"))
		require.NoError(t, err)
		for _, f := range files {
			if !strings.HasSuffix(f, ".sum") {
				code = append(code, f)
			}
		}
		return code
	}
	loadOnce("attack/well-behaved", host.Limits{})
	files := kept()
	require.Len(t, files, 1)
	good, err := os.ReadFile(files[0])
	require.NoError(t, err)

	long := time.Now().Add(-24 * time.Hour).Truncate(time.Second)
	require.NoError(t, os.Chtimes(files[0], long, long))
	touched := func() bool {
		info, err := os.Stat(files[0])
		require.NoError(t, err)
		return !info.ModTime().Equal(long)
	}
	loadOnce("attack/well-behaved", host.Limits{Fuel: 1_000_000}) // which is not in the code
	require.Equal(t, files, kept())
	require.False(t, touched(), "made again after a restart")

	require.NoError(t, os.WriteFile(files[0], good[:len(good)/2], 0o600))
	require.NoError(t, os.Chtimes(files[0], long, long))
	loadOnce("attack/well-behaved", host.Limits{})
	require.True(t, touched())
	again, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Equal(t, good, again)

	loadOnce("attack/grow-once", host.Limits{})
	require.Len(t, kept(), 2, "another module")
}
