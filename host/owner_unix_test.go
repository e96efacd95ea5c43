//go:build unix

package host

import (
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// ownedBy is a directory of some user's, with some mode.
type ownedBy struct {
	fs.FileInfo
	uid  uint32
	mode fs.FileMode
}

func (o ownedBy) Mode() fs.FileMode { return fs.ModeDir | o.mode }
func (o ownedBy) Sys() any          { return &syscall.Stat_t{Uid: o.uid} }

// Who owns the directory around that of the machine code can put another in its place while a node runs, a sticky bit or
// not: it has to be the node's own user, or root.
func TestCacheInADirectoryOfAnotherUser(t *testing.T) {
	const me, other = 1000, 1001
	info, err := os.Stat(t.TempDir())
	require.NoError(t, err)
	for _, mode := range []fs.FileMode{0o700, 0o755, 0o777 | fs.ModeSticky} {
		require.NoError(t, checkPrivate("d", ownedBy{info, me, mode}, false, me), mode)
		require.NoError(t, checkPrivate("d", ownedBy{info, 0, mode}, false, me), mode)
		require.ErrorContains(t, checkPrivate("d", ownedBy{info, other, mode}, false, me), "d belongs to user 1001", mode)
		require.ErrorContains(t, checkPrivate("d", ownedBy{info, 0, mode}, true, me), "d belongs to user 0", mode)
	}
	require.ErrorContains(t, checkPrivate("d", ownedBy{info, 0, 0o777}, false, me), "mode 0777")
}
