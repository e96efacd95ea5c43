package host

import (
	"os"
	"testing"

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
}
