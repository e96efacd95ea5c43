package host

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A directory of another user's is no place for machine code, whatever its mode.
func TestCacheOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.NoError(t, checkPrivate(dir, info, true, os.Geteuid()))
	require.ErrorContains(t, checkPrivate(dir, info, true, os.Geteuid()+1), "belongs to user")
	require.NoError(t, checkPrivate(dir, ownerless{info}, true, os.Geteuid()), "there are no users and modes here")
}

// ownerless is a directory as Windows shows it.
type ownerless struct{ fs.FileInfo }

func (ownerless) Mode() fs.FileMode { return fs.ModeDir | 0o777 }
func (ownerless) Sys() any          { return nil }

// The cache is bounded, the oldest code goes first. What another process is writing stays until it must be dead: wazero fails where it is gone.
func TestSweepCache(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "wazero"), 0o700))
	path := func(name string) string { return filepath.Join(dir, "wazero", name) }
	now := time.Now()
	write := func(name string, age time.Duration) {
		require.NoError(t, os.WriteFile(path(name), make([]byte, 100), 0o600))
		require.NoError(t, os.Chtimes(path(name), now.Add(-age), now.Add(-age)))
	}
	write("b-old", 3*time.Hour)
	write("a-older", 4*time.Hour)
	write("c-oldest", 5*time.Hour)
	write("young.1.tmp", 0)
	write("dead.2.tmp", 2*maxTempAge)
	require.NoError(t, sealCache(dir))
	write("unsealed", 0)
	require.NoError(t, sweepCache(dir, 350))
	left := func() (names []string) {
		entries, err := os.ReadDir(filepath.Join(dir, "wazero"))
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	require.Equal(t, []string{"a-older", "a-older.sum", "b-old", "b-old.sum", "young.1.tmp"}, left())
	require.NoError(t, sweepCache(dir, 100))
	require.Equal(t, []string{"b-old", "b-old.sum", "young.1.tmp"}, left())
	require.NoError(t, clearCache(dir))
	require.Equal(t, []string{"young.1.tmp"}, left())
}

// What is no regular file is removed and not read: a device or a pipe has no end, whether it stands for code or for a sum.
func TestSweepCacheReadsFilesAlone(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "code")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "wazero"), 0o700))
	path := func(name string) string { return filepath.Join(dir, "wazero", name) }
	require.NoError(t, os.WriteFile(outside, []byte("code"), 0o600))
	sum, err := sumOf(outside)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(outside+sumSuffix, sum, 0o600))
	require.NoError(t, os.Symlink(outside, path("linked")))
	require.NoError(t, os.WriteFile(path("linked"+sumSuffix), sum, 0o600))
	require.NoError(t, os.WriteFile(path("code"), []byte("code"), 0o600))
	require.NoError(t, os.Symlink(outside+sumSuffix, path("code"+sumSuffix)))
	require.NoError(t, os.Mkdir(path("directory"), 0o700))
	require.NoError(t, sweepCache(dir, maxCacheBytes))
	for _, name := range []string{"linked", "linked" + sumSuffix, "code", "code" + sumSuffix, "directory"} {
		require.NoFileExists(t, path(name))
		require.NoDirExists(t, path(name))
	}
	require.FileExists(t, outside)
}

// A data_dir may be called as it likes: what would be a pattern elsewhere is a name.
func TestSweepCacheOfAnyName(t *testing.T) {
	for _, name := range []string{"node[1]", "node[", "*"} {
		dir := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "wazero"), 0o700))
		sealed, unsealed := filepath.Join(dir, "wazero", "sealed"), filepath.Join(dir, "wazero", "unsealed")
		require.NoError(t, os.WriteFile(sealed, []byte("code"), 0o600))
		require.NoError(t, sealCache(dir), name)
		require.NoError(t, os.WriteFile(unsealed, []byte("code"), 0o600))
		require.NoError(t, sweepCache(dir, maxCacheBytes), name)
		require.FileExists(t, sealed, name)
		require.NoFileExists(t, unsealed, name)
	}
}

// A cache that is gone, or that nothing can be written to, costs the next start a compilation, and no strategy its place.
func TestCacheThatIsGone(t *testing.T) {
	ctx := t.Context()
	for name, spoil := range map[string]func(dir string) error{
		"removed": func(string) error { return nil },
		"a file":  func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	} {
		dir := filepath.Join(t.TempDir(), "cache")
		rt, err := NewRuntime(ctx, Options{CacheDir: dir})
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(rt.cacheDir))
		require.NoError(t, spoil(rt.cacheDir))
		wasm, err := os.ReadFile("testdata/attack/well-behaved.wasm")
		require.NoError(t, err)
		s, err := rt.Load(ctx, wasm, Limits{}, nil)
		require.NoError(t, err, name)
		require.NoError(t, s.Rebalance(ctx, warmUp()).Err, name)
		require.NoError(t, s.Close(ctx))
		require.NoError(t, rt.Close(ctx))
	}
}
