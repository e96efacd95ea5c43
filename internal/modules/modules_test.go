package modules

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "modules")
	s, err := Open(dir, []byte("builtin"))
	require.NoError(t, err)
	d, err := s.Put([]byte("one"))
	require.NoError(t, err)
	assert.Equal(t, Digest(sha256.Sum256([]byte("one"))), d)
	_, err = s.Put([]byte("one"))
	require.NoError(t, err)
	got, err := s.Get(d)
	require.NoError(t, err)
	assert.Equal(t, "one", string(got))
	got, err = s.Get(sha256.Sum256([]byte("builtin")))
	require.NoError(t, err)
	assert.Equal(t, "builtin", string(got))
	_, err = s.Get(Digest{1})
	require.ErrorIs(t, err, ErrNotHere)
	_, err = s.Put(make([]byte, MaxSize+1))
	require.ErrorContains(t, err, "at most")
}

// A torn or rotten copy is never handed out, and a good one can be stored in its place.
func TestDamagedModuleIsNotThere(t *testing.T) {
	s, err := Open(t.TempDir())
	require.NoError(t, err)
	d, err := s.Put([]byte("one"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path(d), []byte("on"), 0o600))
	_, err = s.Get(d)
	require.ErrorIs(t, err, ErrNotHere)
	require.ErrorContains(t, err, "damaged")
	_, err = s.Put([]byte("one"))
	require.NoError(t, err)
	assert.True(t, s.Has(d))
}

// A module that a build embeds, and the next one no longer: what the log names must outlive the change (spec 1.4).
func TestBuiltinIsKept(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, []byte("builtin"))
	require.NoError(t, err)
	d, err := s.Put([]byte("builtin"))
	require.NoError(t, err)
	next, err := Open(dir, []byte("another"))
	require.NoError(t, err)
	got, err := next.Get(d)
	require.NoError(t, err)
	assert.Equal(t, "builtin", string(got))
}

func TestParseDigest(t *testing.T) {
	d := Digest{1, 2, 3}
	for _, text := range []string{d.String(), "sha256:" + d.String()} {
		got, err := ParseDigest(text)
		require.NoError(t, err)
		assert.Equal(t, d, got)
	}
	for _, bad := range []string{"", "sha256:", "zz", d.String()[1:], "sha256:sha256:" + d.String()} {
		_, err := ParseDigest(bad)
		assert.ErrorContains(t, err, "64 hexadecimal", bad)
	}
}
