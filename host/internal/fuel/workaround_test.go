package fuel_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/reference"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// TestAndBelowZero: a branch on a comparison of zero with an and goes the same
// way in both engines and in the reference (spec 1.3, Fuel is exact).
func TestAndBelowZero(t *testing.T) {
	t.Parallel()
	engines := newEngines(t)
	type in = wasmbin.Instr
	// Between the and and the comparison, none of these keeps the two apart.
	betweens := map[string][]in{
		"nothing": nil,
		"nop":     {{Op: wasmbin.OpNop}},
		"drop":    {{Op: wasmbin.OpI32Const, B: 1}, {Op: wasmbin.OpDrop}},
		"local":   {{Op: wasmbin.OpLocalSet, A: 3}, {Op: wasmbin.OpLocalGet, A: 3}},
		"tee":     {{Op: wasmbin.OpLocalTee, A: 3}},
		"move":    {{Op: wasmbin.OpLocalSet, A: 3}, {Op: wasmbin.OpLocalGet, A: 3}, {Op: wasmbin.OpLocalSet, A: 4}, {Op: wasmbin.OpLocalGet, A: 4}},
		"block":   {{Op: wasmbin.OpLocalSet, A: 3}, {Op: wasmbin.OpBlock, B: blockEmpty}, {Op: wasmbin.OpEnd}, {Op: wasmbin.OpLocalGet, A: 3}},
	}
	for _, typ := range []wasmbin.ValType{wasmbin.I32, wasmbin.I64} {
		zero, and, first := wasmbin.OpI32Const, wasmbin.OpI32And, wasmbin.OpI32Eq
		if typ == wasmbin.I64 {
			zero, and, first = wasmbin.OpI64Const, wasmbin.OpI64And, wasmbin.OpI64Eq
		}
		for cmp := first; cmp < first+10; cmp++ {
			for name, between := range betweens {
				for _, left := range []in{{Op: zero}, {Op: wasmbin.OpLocalGet, A: 2}} {
					body := append([]in{left, {Op: wasmbin.OpLocalGet}, {Op: wasmbin.OpLocalGet, A: 1}, {Op: and}}, between...)
					body = append(body, in{Op: cmp}, in{Op: wasmbin.OpIf, B: blockEmpty}, in{Op: wasmbin.OpI32Const, B: 7}, in{Op: wasmbin.OpDrop}, in{Op: wasmbin.OpEnd})
					m := recursive(wasmbin.FuncType{Params: []wasmbin.ValType{typ, typ}}, []wasmbin.LocalRun{{Count: 3, Type: typ}}, body)
					res, err := fuel.Rewrite(m, fuel.Options{})
					require.NoError(t, err)
					ref, err := reference.New(m, reference.Options{DepthLimit: 10, MaxPages: 1})
					require.NoError(t, err)
					for _, args := range [][2]uint64{{1, 1}, {1, 2}, {0xFFFFFFFFFFFFFFFF, 0x8000000080000000}} {
						_, err := ref.Call(0, 1000, args[0], args[1])
						require.NoError(t, err)
						for _, e := range engines {
							i := e.instantiate(t, e.compile(t, res), res)
							require.Equal(t, verdict{kind: "ok", used: ref.Used}, i.call("f", 1000, 1000, args[0], args[1]), "%s, %s, %v in %s", cmp, name, args, e.name)
							i.close(t)
						}
					}
				}
			}
		}
	}
}

// TestActiveSegmentsAreSpent: of an active data segment, of whatever length,
// instantiation leaves nothing that memory.init could read.
func TestActiveSegmentsAreSpent(t *testing.T) {
	t.Parallel()
	const oob = "out of bounds memory access"
	m := guest()
	m.Mems[0].Min = 80
	m.HasDataCount = true
	m.Data = []wasmbin.Data{
		{Mode: wasmbin.Active, Offset: wasmbin.Instr{Op: wasmbin.OpI32Const}, Init: pattern(3 << 20)},
		{Mode: wasmbin.Passive, Init: []byte{5, 6, 7}},
	}
	m.Types = append(m.Types, wasmbin.FuncType{Params: []wasmbin.ValType{wasmbin.I32, wasmbin.I32, wasmbin.I32}})
	m.Funcs = []uint32{2, 2}
	m.Exports = []wasmbin.Export{{Name: "active", Index: 1}, {Name: "passive", Index: 2}, {Name: "memory", Kind: wasmbin.KindMemory}}
	m.Code = nil
	for segment := range uint32(2) {
		m.Code = append(m.Code, wasmbin.Code{Body: []wasmbin.Instr{
			{Op: wasmbin.OpLocalGet}, {Op: wasmbin.OpLocalGet, A: 1}, {Op: wasmbin.OpLocalGet, A: 2}, {Op: wasmbin.OpMemoryInit, A: segment}, {Op: wasmbin.OpEnd},
		}})
	}
	ref, err := reference.New(m, reference.Options{DepthLimit: 10, MaxPages: maxPages, Host: reference.Host})
	require.NoError(t, err)
	res, err := fuel.Rewrite(m, fuel.Options{})
	require.NoError(t, err)
	for _, e := range newEngines(t) {
		in := e.instantiate(t, e.compile(t, res), res)
		for _, c := range []struct {
			dst, src, n uint64
			want        string
		}{{0, 0, 0, "ok"}, {0, 0, 1, oob}, {0, 1, 0, oob}, {0, 0, 2 << 20, oob}, {0, 1 << 20, 2 << 20, oob}, {0, 0, 4 << 20, oob}} {
			want := "ok"
			if _, err := ref.Call(1, 1<<40, c.dst, c.src, c.n); err != nil {
				want = err.Error()
			}
			require.Equal(t, c.want, want, "%+v in the reference", c)
			require.Equal(t, want, in.call("active", 1<<40, 1<<40, c.dst, c.src, c.n).kind, "%+v in %s", c, e.name)
			require.True(t, bytes.Equal(m.Data[0].Init, read(t, in)[:3<<20]))
		}
		require.Equal(t, "ok", in.call("passive", 1<<40, 1<<40, 1, 1, 2).kind)
		require.Equal(t, []byte{6, 7}, read(t, in)[1:3])
	}
}

// TestSelectOfFloats: a select of floats whose operands have to be kept in memory
// while the host is called is what it should be, call for call (spec 1.3,
// Determinism). In plain code wazero's compiler makes something else of one call
// in some hundreds.
func TestSelectOfFloats(t *testing.T) {
	t.Parallel()
	engines := newEngines(t)
	type in = wasmbin.Instr
	for _, typ := range []wasmbin.ValType{wasmbin.F32, wasmbin.F64} {
		convert, constant, want := wasmbin.OpF32ConvertI32S, in{Op: wasmbin.OpF32Const, B: 0x41F80000}, uint64(0x41F80000)
		if typ == wasmbin.F64 {
			convert, constant, want = wasmbin.OpF64ConvertI32S, in{Op: wasmbin.OpF64Const, B: 0x403F000000000000}, 0x403F000000000000
		}
		for name, sel := range map[string]in{"untyped": {Op: wasmbin.OpSelect}, "typed": {Op: wasmbin.OpSelectT, A: uint32(typ)}} {
			m := recursive(wasmbin.FuncType{Results: []wasmbin.ValType{typ}}, []wasmbin.LocalRun{{Count: 1, Type: typ}}, []in{
				{Op: wasmbin.OpI32Const, B: 3}, {Op: convert}, {Op: wasmbin.OpLocalTee}, constant,
				{Op: wasmbin.OpI32Const}, {Op: wasmbin.OpMemoryGrow}, {Op: wasmbin.OpI32Eqz}, sel, // memory.grow calls the host
				{Op: wasmbin.OpLocalGet}, {Op: wasmbin.OpCall, A: 1},
			})
			m.Types[1].Params = []wasmbin.ValType{typ}
			res, err := fuel.Rewrite(m, fuel.Options{})
			require.NoError(t, err)
			for _, e := range engines {
				i := e.instantiate(t, e.compile(t, res), res)
				for call := range 4000 {
					require.Equal(t, verdict{kind: "ok", used: 12, results: []uint64{want}}, i.call("f", 1000, 1000), "%s, %s: call %d in %s", typ, name, call, e.name)
				}
				i.close(t)
			}
		}
	}
}
