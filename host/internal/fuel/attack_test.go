package fuel_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// TestAttacks: whatever the guest is doing, it is stopped (spec 1.3); the first
// word of an export's name is the verdict.
func TestAttacks(t *testing.T) {
	t.Parallel()
	m := readModule(t, "testdata/attacks/attacks.wasm")
	res, err := fuel.Rewrite(m, fuel.Options{})
	require.NoError(t, err)
	attacks := 0
	for _, e := range newEngines(t) {
		c := e.compile(t, res)
		for _, x := range m.Exports {
			if x.Kind != wasmbin.KindFunc {
				continue
			}
			attacks++
			in := e.instantiate(t, c, res)
			want, _, _ := strings.Cut(x.Name, " ")
			started := time.Now()
			got := in.call(x.Name, 5_000_000, 500_000)
			require.Equal(t, want, got.kind, "%s in %s", x.Name, e.name)
			require.LessOrEqual(t, e.refills, 5000)
			t.Logf("%s, %s: %v", e.name, x.Name, time.Since(started))
			in.close(t)
		}
	}
	require.Equal(t, 38, attacks)
}

// TestStartIsStopped: the start section runs as an export, with fuel (spec 1.3).
func TestStartIsStopped(t *testing.T) {
	t.Parallel()
	res, err := fuel.Rewrite(readModule(t, "testdata/attacks/start.wasm"), fuel.Options{})
	require.NoError(t, err)
	require.True(t, res.Start)
	for _, e := range newEngines(t) {
		in := e.instantiate(t, e.compile(t, res), res) // does not hang
		require.Equal(t, "fuel", in.call(fuel.Namespace+".start", 100_000, 1000).kind)
	}
}

// TestClockIsAskedBetweenPieces: a bulk operation longer than 1 MiB comes back
// to the host between pieces and can be stopped there (spec 1.3).
func TestClockIsAskedBetweenPieces(t *testing.T) {
	t.Parallel()
	const limit = 1 << 40
	res, err := fuel.Rewrite(readModule(t, "testdata/attacks/clock.wasm"), fuel.Options{})
	require.NoError(t, err)
	for _, e := range newEngines(t) {
		c := e.compile(t, res)
		for _, f := range []struct {
			n       uint64
			refills int
		}{{0, 0}, {fuel.Piece, 0}, {fuel.Piece + 1, 1}, {2 * fuel.Piece, 1}, {2*fuel.Piece + 1, 2}, {5 * fuel.Piece, 4}} {
			in := e.instantiate(t, c, res)
			require.Equal(t, "ok", in.call("fill", limit, limit, f.n).kind)
			require.Equal(t, f.refills, e.refills, "fill of %d bytes in %s", f.n, e.name)
			mem := read(t, in)
			require.Equal(t, int(f.n), bytes.Count(mem, []byte{7}))
			require.Equal(t, bytes.Repeat([]byte{7}, int(f.n)), mem[:f.n])
		}

		in := e.instantiate(t, c, res)
		e.onRefill = func(int64) {
			if e.refills == 2 {
				panic(errFuel)
			}
		}
		require.Equal(t, "fuel", in.call("fill", limit, limit, 4*fuel.Piece).kind)
		e.onRefill = nil
		require.Equal(t, 2*fuel.Piece, bytes.Count(read(t, in), []byte{7}), "stopped after two pieces")

		// Overlapping copies in both directions, against Go's copy.
		for _, f := range []struct{ dst, src, n int }{
			{3, 0, 3 << 20}, {0, 3, 3 << 20}, {1 << 20, 0, 3<<20 + 7}, {0, 1 << 20, 3<<20 + 7}, {5 << 19, 1, 2<<20 + 1}, {9, 9, 4 << 20},
		} {
			in := e.instantiate(t, c, res)
			before := pattern(80 << 16)
			require.True(t, in.mod.ExportedMemory("memory").Write(0, before))
			copy(before[f.dst:f.dst+f.n], before[f.src:f.src+f.n])
			require.Equal(t, "ok", in.call("copy", limit, limit, uint64(f.dst), uint64(f.src), uint64(f.n)).kind)
			require.Positive(t, e.refills)
			require.True(t, bytes.Equal(before, read(t, in)), "copy %+v in %s", f, e.name)
		}

		// Out of bounds: nothing is written.
		for _, f := range []struct{ dst, src, n uint64 }{{0, 1 << 20, 5 << 20}, {1 << 20, 0, 5 << 20}, {0, 0xFFFFFFFF, 2 << 20}, {0, 0, 0xFFFFFFFF}} {
			in := e.instantiate(t, c, res)
			before := pattern(80 << 16)
			require.True(t, in.mod.ExportedMemory("memory").Write(0, before))
			require.Equal(t, "out of bounds memory access", in.call("copy", limit, limit, f.dst, f.src, f.n).kind)
			require.True(t, bytes.Equal(before, read(t, in)))
			require.Equal(t, "out of bounds memory access", in.call("fill", limit, limit, 80<<16+1).kind)
			require.True(t, bytes.Equal(before, read(t, in)))
		}
	}
}

// TestInitInPieces: memory.init of a segment longer than 1 MiB, whole, beyond
// its end, and dropped.
func TestInitInPieces(t *testing.T) {
	t.Parallel()
	const limit = 1 << 40
	m := guest()
	m.Mems[0].Min = 80
	m.HasDataCount = true
	m.Data = []wasmbin.Data{{Mode: wasmbin.Passive, Init: pattern(3<<20 + 5)}}
	m.Types = append(m.Types, wasmbin.FuncType{Params: []wasmbin.ValType{wasmbin.I32, wasmbin.I32, wasmbin.I32}})
	m.Funcs = []uint32{2, 0}
	m.Exports = []wasmbin.Export{{Name: "init", Index: 1}, {Name: "drop", Index: 2}, {Name: "memory", Kind: wasmbin.KindMemory}}
	m.Code = []wasmbin.Code{
		{Body: []wasmbin.Instr{{Op: wasmbin.OpLocalGet}, {Op: wasmbin.OpLocalGet, A: 1}, {Op: wasmbin.OpLocalGet, A: 2}, {Op: wasmbin.OpMemoryInit}, {Op: wasmbin.OpEnd}}},
		{Body: []wasmbin.Instr{{Op: wasmbin.OpDataDrop}, {Op: wasmbin.OpEnd}}},
	}
	res, err := fuel.Rewrite(m, fuel.Options{})
	require.NoError(t, err)
	for _, e := range newEngines(t) {
		in := e.instantiate(t, e.compile(t, res), res)
		zero := make([]byte, 80<<16)
		trap := func(dst, src, n uint64) {
			require.Equal(t, "out of bounds memory access", in.call("init", limit, limit, dst, src, n).kind)
			require.True(t, bytes.Equal(zero, read(t, in)), "written in spite of the trap")
		}
		trap(0, 1, 3<<20+5)
		trap(78<<16, 0, 3<<20)
		trap(0, 0xFFFFFFFF, 3<<20)
		trap(0xFFFFFFFF, 0, 3<<20)
		require.Equal(t, verdict{kind: "ok", used: 5 + 3<<20}, in.call("init", limit, limit, 9, 5, 3<<20))
		require.Equal(t, 2, e.refills)
		require.True(t, bytes.Equal(m.Data[0].Init[5:], read(t, in)[9:9+3<<20]))

		in = e.instantiate(t, e.compile(t, res), res)
		require.Equal(t, "ok", in.call("drop", limit, limit).kind)
		trap(0, 0, 3<<20)
	}
}

func read(t *testing.T, in *instance) []byte {
	t.Helper()
	mem := in.mod.ExportedMemory("memory")
	b, ok := mem.Read(0, mem.Size())
	require.True(t, ok)
	return b
}

func pattern(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}
