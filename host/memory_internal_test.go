package host

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/fuel"
)

// Copies and clears at the edges of a piece.
func TestPieces(t *testing.T) {
	for _, n := range []int{0, 1, fuel.Piece - 1, fuel.Piece, fuel.Piece + 1, 3*fuel.Piece + 5} {
		src := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, n/7+1)[:n]
		dst := make([]byte, n+3)
		require.Equal(t, n, copyInPieces(dst, src))
		require.True(t, bytes.Equal(src, dst[:n]))
		require.Equal(t, n, copyInPieces(dst[:n], append(src, 9)), "as much as there is room for")
		clearInPieces(dst[:n])
		require.True(t, bytes.Equal(make([]byte, n+3), dst), n)
	}
}

// Memory that an instance leaves behind is dirty, and clean once another gets it, however far that grows in it.
func TestMemoryIsHandedOn(t *testing.T) {
	var m memories
	first := m.allocate(4 * PageBytes)
	b := first.Reallocate(3 * PageBytes)
	for i := range b {
		b[i] = 7
	}
	first.Free()
	first.Free() // wazero may
	require.Len(t, m.free, 1)
	second := m.allocate(4 * PageBytes)
	require.Empty(t, m.free)
	for _, pages := range []uint64{1, 2, 4} {
		got := second.Reallocate(pages * PageBytes)
		require.True(t, bytes.Equal(make([]byte, pages*PageBytes), got), pages)
	}
	require.Nil(t, second.Reallocate(4*PageBytes+1))
	require.Same(t, &b[0], &second.Reallocate(PageBytes)[0], "nothing was allocated anew")
}

// A guest that grows page by page is copied once, and that is what it began with: the longest stretch in which the host cannot stop it.
func TestGrowingCopiesOnce(t *testing.T) {
	var m memories
	l := m.allocate(MaxMemoryPages * PageBytes)
	at, moved := &l.Reallocate(3 * PageBytes)[0], 0
	for pages := uint64(4); pages <= MaxMemoryPages; pages++ {
		if now := &l.Reallocate(pages * PageBytes)[0]; now != at {
			at = now
			moved++
			require.LessOrEqual(t, pages, uint64(7))
		}
	}
	require.Equal(t, 1, moved)
}
