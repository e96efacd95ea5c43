package datadir

import (
	"encoding/json"
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
	a, err := Open(path, "a")
	require.NoError(t, err)
	assert.Empty(t, a.Supersedes())
	_, err = Open(path, "a")
	require.ErrorContains(t, err, "in use")
	require.ErrorContains(t, err, "pid")
	cluster := sharding.NewIncarnation()
	require.NoError(t, a.SetCluster(cluster))
	require.NoError(t, os.Mkdir(a.Path(RaftDir), 0o700))
	require.NoError(t, os.WriteFile(a.Path(RaftDir, "log"), nil, 0o600))
	first := a.Incarnation()
	require.NoError(t, a.Close())

	b, err := Open(path, "a")
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

// Spec 2.1, "a wiped disk never returns under an old name": without its log, a raft server is another one.
func TestIdentityWithoutItsLogIsAnother(t *testing.T) {
	path := t.TempDir()
	a, err := Open(path, "a")
	require.NoError(t, err)
	assert.False(t, a.Renewed(), "a new one")
	server, store := a.Identity().Server, a.Identity().Store
	require.NoError(t, os.Mkdir(a.Path(RaftDir), 0o700)) // all in it was deleted
	require.NoError(t, a.Close())
	for range 2 {
		b, err := Open(path, "a")
		require.NoError(t, err)
		assert.True(t, b.Renewed())
		assert.NotEqual(t, server, b.Identity().Server)
		assert.Equal(t, store, b.Identity().Store)
		server = b.Identity().Server
		require.NoError(t, os.RemoveAll(b.Path(RaftDir)))
		require.NoError(t, b.Close())
	}
}

func TestPastIsBounded(t *testing.T) {
	path := t.TempDir()
	var last sharding.Incarnation
	for range 3 * maxPast {
		d, err := Open(path, "a")
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
			_, err := Open(path, "a")
			require.ErrorContains(t, err, idFile)
			left, err := os.ReadFile(filepath.Join(path, idFile))
			require.NoError(t, err)
			assert.Equal(t, content, string(left), "nothing is lost")
		})
	}
}

// A node that made itself a new identity on the log of the old one would be another raft server with that one's entries, of whatever cluster.
func TestLostIdentityOfALogIsAnError(t *testing.T) {
	path := t.TempDir()
	d, err := Open(path, "a")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(d.Path(RaftDir), 0o700))
	require.NoError(t, d.Close())
	require.NoError(t, os.Remove(d.Path(idFile)))
	_, err = Open(path, "a")
	require.ErrorContains(t, err, d.Path(idFile)+" is gone")
	require.ErrorContains(t, err, "restore it from a backup")

	require.NoError(t, os.Remove(d.Path(RaftDir)))
	d, err = Open(path, "a")
	require.NoError(t, err, "and the error has let go of the lock")
	require.NoError(t, d.Close())
}

func TestUnwritableIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Open(filepath.Join(file, "data"), "a")
	require.ErrorContains(t, err, "cannot be made")
}

// Spec 2.1: a raft server is known by the UUID in data_dir, so a copy of it under another name would be a second server with the first one's identity.
func TestDirectoryOfAnotherNodeIsRefused(t *testing.T) {
	path := t.TempDir()
	a, err := Open(path, "a")
	require.NoError(t, err)
	require.NoError(t, a.Close())
	before, err := os.ReadFile(filepath.Join(path, idFile))
	require.NoError(t, err)
	copied := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(copied, idFile), before, 0o600))

	for range 2 { // the refusal leaves no lock behind
		_, err = Open(copied, "b")
		require.ErrorContains(t, err, copied)
		require.ErrorContains(t, err, `belongs to node "a", this node is "b"`)
	}
	left, err := os.ReadFile(filepath.Join(copied, idFile))
	require.NoError(t, err)
	assert.Equal(t, before, left, "nothing is lost")
	a, err = Open(path, "a")
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

// A file that was written before names were kept becomes that of the node that opens it.
func TestIdentityWithoutANameIsTaken(t *testing.T) {
	path := t.TempDir()
	old := Identity{V: version, Server: sharding.NewIncarnation(), Store: sharding.NewIncarnation(), Cluster: sharding.NewIncarnation()}
	b, err := json.Marshal(old)
	require.NoError(t, err)
	require.NotContains(t, string(b), "node", "as it was")
	require.NoError(t, os.MkdirAll(filepath.Join(path, RaftDir, "log"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(path, idFile), b, 0o600))
	d, err := Open(path, "a")
	require.NoError(t, err)
	assert.Equal(t, old.Server, d.Identity().Server)
	assert.Equal(t, old.Cluster, d.Cluster())
	require.NoError(t, d.Close())
	_, err = Open(path, "b")
	require.ErrorContains(t, err, `belongs to node "a"`)
}

// What a process was writing when it was killed takes no room for ever.
func TestUnfinishedFilesGo(t *testing.T) {
	path := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(path, "modules"), 0o700))
	kept := filepath.Join(path, "modules", "kept")
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	for _, dir := range []string{path, filepath.Join(path, "modules")} {
		f, err := os.CreateTemp(dir, unfinished+"*")
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	d, err := Open(path, "a")
	require.NoError(t, err)
	defer d.Close()
	left, err := filepath.Glob(filepath.Join(path, "*", "*"))
	require.NoError(t, err)
	assert.Equal(t, []string{kept}, left)
	left, err = filepath.Glob(filepath.Join(path, unfinished+"*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
