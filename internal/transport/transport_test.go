package transport

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// modes are the ways to prove who one is (spec 2.1, 5.2).
func modes(t *testing.T, run func(t *testing.T, secure func(*Config))) {
	ca := newAuthority(t)
	t.Run("open", func(t *testing.T) { run(t, func(*Config) {}) })
	t.Run("keyed", func(t *testing.T) { run(t, keyed(key(1))) })
	t.Run("tls", func(t *testing.T) { run(t, ca.secure) })
}

func TestFramesAndCalls(t *testing.T) {
	modes(t, func(t *testing.T, secure func(*Config)) {
		a, b := start(t, "a", secure), start(t, "b", secure)
		meet(a, b)
		for _, class := range []Class{Control, Data} {
			for i := range 3 {
				require.NoError(t, a.Send(b.member, class, fmt.Append(nil, i)))
			}
			b.rec.untilIn(t, a.member, class, "opened", "frame 0", "frame 1", "frame 2")
			a.rec.untilOut(t, b.member, class, "up")
		}
		peer := b.rec.peers[linkKey{a.member, Data}]
		require.Equal(t, a.member, peer.Member)
		require.True(t, peer.Coordinator)
		require.Equal(t, a.Addr().String(), peer.Addr)

		answer, err := a.Call(t.Context(), b.member, "hello", []byte("body"))
		require.NoError(t, err)
		require.Equal(t, "a hello body", string(answer))

		// To itself, the same way.
		require.NoError(t, a.Send(a.member, Data, []byte("own")))
		a.rec.untilIn(t, a.member, Data, "opened", "frame own")
		answer, err = a.Call(t.Context(), a.member, "hello", []byte("me"))
		require.NoError(t, err)
		require.Equal(t, "a hello me", string(answer))

		require.NoError(t, a.Close())
		b.rec.untilIn(t, a.member, Data, "opened", "frame 0", "frame 1", "frame 2", "closed")
		a.rec.untilOut(t, b.member, Data, "up", "down")
		a.rec.untilIn(t, a.member, Data, "opened", "frame own", "closed")
	})
}
