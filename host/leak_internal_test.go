package host

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/pluginapi"
)

// hash is over all that an instance hands to the next call: memory, its size,
// mutable globals, and what lies hidden behind memory's end, which growing shows.
func (in *instance) hash() [sha256.Size]byte {
	h := sha256.New()
	mem := in.mod.Memory()
	b, _ := mem.Read(0, mem.Size())
	h.Write(b)
	state := []uint64{uint64(mem.Size())}
	for _, g := range in.globals {
		state = append(state, g.Get())
	}
	for _, x := range in.memory.buf[len(in.memory.buf):cap(in.memory.buf)] {
		if x != 0 {
			state = append(state, uint64(x))
		}
	}
	_ = binary.Write(h, binary.LittleEndian, state) // a hash takes what it gets
	return [sha256.Size]byte(h.Sum(nil))
}

// Spec 1.3, "Same image every call": whatever a guest did to memory, its size
// and its globals, the next call starts from the very same bits. A guest whose
// tables or segments change has a new instance each time; wazero has no way to
// look at those, and the fixtures look themselves (TestNothingSurvivesACall).
func TestEveryCallStartsFromTheSameBits(t *testing.T) {
	files, err := filepath.Glob("testdata/leak/*.wasm")
	require.NoError(t, err)
	files = append(files, "testdata/guests/leastshard.wasm", "../strategies/leastshard/leastshard.wasm")
	ctx := context.Background()
	for _, e := range []Engine{Compiler, Interpreter} {
		rt, err := NewRuntime(ctx, Options{Engine: e})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, rt.Close(ctx)) })
		reused := 0
		for _, file := range files {
			t.Run(e.String()+"/"+strings.TrimSuffix(filepath.Base(file), ".wasm"), func(t *testing.T) {
				wasm, err := os.ReadFile(file)
				require.NoError(t, err)
				s, err := rt.Load(ctx, wasm, Limits{Budget: time.Minute}, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, s.Close(ctx)) }()
				look := func() (*instance, [sha256.Size]byte) {
					in, _, err := s.wasm.pool.get(ctx, 0)
					require.NoError(t, err)
					if s.wasm.image != nil {
						require.True(t, in.restore(s.wasm.image))
					}
					hash := in.hash()
					require.NoError(t, s.wasm.pool.put(in, s.wasm.image != nil))
					return in, hash
				}
				before, want := look()
				snap := bitsSnapshot()
				for range 4 {
					_ = s.Allocate(ctx, snap, []uint32{0}) // the guest in C has none
					require.NoError(t, s.Rebalance(ctx, snap).Err)
					in, hash := look()
					require.Equal(t, want, hash)
					if in == before {
						reused++
					}
				}
				if s.wasm.image == nil {
					require.Empty(t, s.wasm.pool.idle, "nothing of it may be used again")
				}
			})
		}
		require.GreaterOrEqual(t, reused, 40, "instances are used again, those whose memory grew too")
	}
}

// bitsSnapshot is one that a least-shard strategy has moves for, longer than
// the warm-up's.
func bitsSnapshot() *pluginapi.Snapshot {
	snap := &pluginapi.Snapshot{Type: "t", MaxMoves: 10, Owners: slices.Repeat([]uint32{0, 1}, 8)}
	for i := range 8 {
		name := fmt.Sprintf("node-%03d", i)
		snap.Nodes = append(snap.Nodes, pluginapi.Node{Name: name, Addr: name, Incarnation: name, State: pluginapi.StateUp, Version: "1", Weight: 100})
		snap.Candidates = append(snap.Candidates, i)
	}
	return snap
}

// Memory at its limit cannot be grown, and so not cut: such an instance is
// closed, and the next call has one like any other.
func TestMemoryAtItsLimitIsNotCut(t *testing.T) {
	ctx := context.Background()
	for _, e := range []Engine{Compiler, Interpreter} {
		rt, err := NewRuntime(ctx, Options{Engine: e})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, rt.Close(ctx)) })
		wasm, err := os.ReadFile("testdata/leak/scribble.wasm")
		require.NoError(t, err)
		for _, c := range []struct {
			pages uint32
			kept  bool
		}{{8, false}, {9, true}} {
			s, err := rt.Load(ctx, wasm, Limits{MemoryPages: c.pages, Budget: time.Minute}, nil)
			require.NoError(t, err)
			before := s.wasm.pool.idle[0]
			for range 3 {
				res := s.Call(ctx, pluginapi.OpAllocate, bitsSnapshot(), []uint32{0}, 0)
				require.NoError(t, res.Err)
				require.Equal(t, []int{0}, res.Homes.Nodes)
				require.EqualValues(t, 8, res.Record.Pages)
			}
			require.Equal(t, c.kept, slices.Contains(s.wasm.pool.idle, before), "%s, %d pages", e, c.pages)
			require.NoError(t, s.Close(ctx))
		}
	}
}
