package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

// Spec 2.1: the raft server's UUID lives in data_dir, the incarnation is fresh each start, and the lock proves that the earlier ones are dead.
func TestIdentityOutlivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	a, err := Open(path)
	require.NoError(t, err)
	assert.Empty(t, a.Supersedes())
	_, err = Open(path)
	require.ErrorContains(t, err, "in use")
	require.ErrorContains(t, err, "pid")
	cluster := sharding.NewIncarnation()
	require.NoError(t, a.SetCluster(cluster))
	first := a.Incarnation()
	require.NoError(t, a.Close())

	b, err := Open(path)
	require.NoError(t, err)
	defer b.Close()
	assert.Equal(t, a.Identity().Server, b.Identity().Server)
	assert.Equal(t, a.Identity().Store, b.Identity().Store)
	assert.NotEqual(t, first, b.Incarnation())
	assert.Equal(t, []sharding.Incarnation{first}, b.Supersedes())
	assert.ErrorContains(t, b.SetCluster(sharding.NewIncarnation()), cluster.String())

	st, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), st.Mode().Perm())
}

func TestPastIsBounded(t *testing.T) {
	path := t.TempDir()
	var last sharding.Incarnation
	for range 3 * maxPast {
		d, err := Open(path)
		require.NoError(t, err)
		if !last.IsZero() {
			past := d.Supersedes()
			require.LessOrEqual(t, len(past), maxPast)
			require.Equal(t, last, past[len(past)-1])
		}
		last = d.Incarnation()
		require.NoError(t, d.Close())
	}
}

func TestDamagedIdentityIsNamed(t *testing.T) {
	for name, content := range map[string]string{"torn": `{"v":1,"ser`, "empty": "", "other version": `{"v":9}`} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(path, idFile), []byte(content), 0o600))
			_, err := Open(path)
			require.ErrorContains(t, err, idFile)
			left, err := os.ReadFile(filepath.Join(path, idFile))
			require.NoError(t, err)
			assert.Equal(t, content, string(left), "nothing is lost")
		})
	}
}

func TestUnwritableIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(filepath.Join(file, "data"))
	require.ErrorContains(t, err, "cannot be made")
}
