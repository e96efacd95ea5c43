package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/wasmbin"
	"github.com/droverhq/drover/strategies"
)

func segment(at uint32, b ...byte) wasmbin.Data {
	return wasmbin.Data{Mode: wasmbin.Active, Offset: wasmbin.Instr{Op: wasmbin.OpI32Const, B: uint64(at)}, Init: b}
}

// lay writes the segments into memory, as instantiation does.
func lay(m *wasmbin.Module) []byte {
	mem := make([]byte, m.Mems[0].Min*PageBytes)
	for _, d := range m.Data {
		copy(mem[uint32(d.Offset.B):], d.Init)
	}
	return mem
}

func TestMergeData(t *testing.T) {
	onePage := []wasmbin.Limits{{Min: 1}}
	for _, c := range []struct {
		name string
		data []wasmbin.Data
		want int
	}{
		{"adjacent", []wasmbin.Data{segment(8, 1, 2), segment(10, 3), segment(11, 4)}, 1},
		{"gap that is written", []wasmbin.Data{segment(0, 1), segment(257, 2)}, 1},
		{"gap that is kept", []wasmbin.Data{segment(0, 1), segment(258, 2)}, 2},
		{"overlapping", []wasmbin.Data{segment(0, 1, 2), segment(1, 0)}, 2},
		{"descending", []wasmbin.Data{segment(10, 1), segment(0, 2), segment(3, 4)}, 1},
		{"a step back", []wasmbin.Data{segment(10, 1), segment(0, 2), segment(11, 4), segment(12, 5)}, 1},
		{"the later one wins", []wasmbin.Data{segment(2, 7, 7), segment(0, 1), segment(3, 9)}, 3},
		{"beyond the memory", []wasmbin.Data{segment(65535, 1), segment(65536, 1)}, 2},
		{"empty ones", []wasmbin.Data{segment(4), segment(4, 9), segment(5)}, 1},
	} {
		m := &wasmbin.Module{Mems: onePage, Data: append([]wasmbin.Data(nil), c.data...)}
		before := append([]byte(nil), c.data[0].Init...)
		if c.name != "beyond the memory" {
			want := lay(m)
			mergeData(m)
			require.Equal(t, want, lay(m), c.name)
		} else {
			mergeData(m)
		}
		require.Len(t, m.Data, c.want, c.name)
		require.Equal(t, before, append([]byte(nil), c.data[0].Init...), "the module's bytes are not written to")
	}
}

func TestMergeDataLeavesNumberedSegments(t *testing.T) {
	for _, op := range []wasmbin.Op{wasmbin.OpMemoryInit, wasmbin.OpDataDrop} {
		m := &wasmbin.Module{Mems: []wasmbin.Limits{{Min: 1}}, HasDataCount: true,
			Data: []wasmbin.Data{segment(0, 1), segment(1, 2)},
			Code: []wasmbin.Code{{Body: []wasmbin.Instr{{Op: op}, {Op: wasmbin.OpEnd}}}}}
		mergeData(m)
		require.Len(t, m.Data, 2, op.String())
	}
	passive := segment(1, 2)
	passive.Mode = wasmbin.Passive
	m := &wasmbin.Module{Mems: []wasmbin.Limits{{Min: 1}}, Data: []wasmbin.Data{segment(0, 1), passive}}
	mergeData(m)
	require.Len(t, m.Data, 2)
}

// The case that it is for.
func TestMergeDataOfStandardGo(t *testing.T) {
	wasm, _, _ := strategies.Builtin("hash")
	m, err := wasmbin.Decode(wasm)
	require.NoError(t, err)
	n, want := len(m.Data), lay(m)
	mergeData(m)
	require.Equal(t, want, lay(m))
	t.Logf("%d segments become %d", n, len(m.Data))
	require.Less(t, len(m.Data), n/100)
}
