package fuel_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/reference"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// oneFunction returns a module whose function "f" takes and returns an i32, with the
// given body and one local of i32 more, 1. Its types 2 and 3 are () → i32 and
// i32 → i32.
func oneFunction(targets []uint32, body ...wasmbin.Instr) *wasmbin.Module {
	i32 := []wasmbin.ValType{wasmbin.I32}
	m := recursive(wasmbin.FuncType{Params: i32, Results: i32}, []wasmbin.LocalRun{{Count: 1, Type: wasmbin.I32}}, body)
	m.Types = append(m.Types, wasmbin.FuncType{Results: i32}, wasmbin.FuncType{Params: i32, Results: i32})
	m.Code[0].Targets = targets
	return m
}

func i32Const(v uint64) wasmbin.Instr          { return wasmbin.Instr{Op: wasmbin.OpI32Const, B: v} }
func at(op wasmbin.Op, a uint32) wasmbin.Instr { return wasmbin.Instr{Op: op, A: a} }
func typed(op wasmbin.Op, t uint64) wasmbin.Instr {
	return wasmbin.Instr{Op: op, B: t}
}

func join(parts ...[]wasmbin.Instr) (out []wasmbin.Instr) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// idle is n units that leave nothing.
func idle(n int) (out []wasmbin.Instr) {
	for range n {
		out = append(out, i32Const(7), at(wasmbin.OpDrop, 0))
	}
	return out
}

// count is "++local 1 < n".
func count(n uint64) []wasmbin.Instr {
	return []wasmbin.Instr{at(wasmbin.OpLocalGet, 1), i32Const(1), at(wasmbin.OpI32Add, 0), at(wasmbin.OpLocalTee, 1), i32Const(n), at(wasmbin.OpI32LtU, 0)}
}

// TestChargesOfShapes: fuel is exact to the unit in bodies that random ones hardly
// ever are (spec 1.3, Fuel is exact), and what cannot be reached stays valid.
func TestChargesOfShapes(t *testing.T) {
	t.Parallel()
	end, drop := at(wasmbin.OpEnd, 0), at(wasmbin.OpDrop, 0)
	arg := at(wasmbin.OpLocalGet, 0)
	block := typed(wasmbin.OpBlock, 2) // of one i32
	empty := func(op wasmbin.Op) wasmbin.Instr { return typed(op, blockEmpty) }
	f64Block := wasmbin.BlockOf(wasmbin.F64)
	for name, m := range map[string]*wasmbin.Module{
		// The two blocks are left by other edges before, with different debts.
		"br_table with values to labels with debts": oneFunction([]uint32{0, 1, 2, 0},
			join([]wasmbin.Instr{block}, idle(5), []wasmbin.Instr{i32Const(1), arg, i32Const(9), at(wasmbin.OpI32Eq, 0), at(wasmbin.OpBrIf, 0), drop},
				idle(3), []wasmbin.Instr{block}, idle(4), []wasmbin.Instr{i32Const(2), arg, i32Const(8), at(wasmbin.OpI32Eq, 0), at(wasmbin.OpBrIf, 0), drop},
				idle(6), []wasmbin.Instr{i32Const(3), arg, {Op: wasmbin.OpBrTable, B: 4}, end}, idle(2), []wasmbin.Instr{end}, idle(1))...),
		// Each table has a block for the way back to the loop, and one for the way out.
		"two br_tables to the same labels": oneFunction([]uint32{0, 1, 0, 2, 1, 2},
			join([]wasmbin.Instr{empty(wasmbin.OpBlock)}, idle(3), []wasmbin.Instr{empty(wasmbin.OpLoop)}, idle(2),
				[]wasmbin.Instr{empty(wasmbin.OpBlock)}, idle(4), count(3), []wasmbin.Instr{{Op: wasmbin.OpBrTable, B: 3}, end},
				[]wasmbin.Instr{empty(wasmbin.OpBlock)}, idle(1), count(6), []wasmbin.Instr{{Op: wasmbin.OpBrTable, A: 3, B: 3}, end},
				idle(5), []wasmbin.Instr{end, end, at(wasmbin.OpLocalGet, 1)})...),
		"pieces in a loop whose counter is a local": oneFunction(nil,
			join([]wasmbin.Instr{empty(wasmbin.OpLoop), i32Const(0), i32Const(1), i32Const(2<<20 + 5), at(wasmbin.OpMemoryFill, 0)}, idle(3), count(3),
				[]wasmbin.Instr{at(wasmbin.OpBrIf, 0), end, at(wasmbin.OpLocalGet, 1)})...),
		// Behind the br, labels lie further out than they did, and the one that
		// the old number leads to takes something else.
		"branches that cannot be reached, out of a wrapped loop": oneFunction([]uint32{3, 3},
			[]wasmbin.Instr{
				typed(wasmbin.OpBlock, uint64(f64Block)), empty(wasmbin.OpBlock), empty(wasmbin.OpBlock), typed(wasmbin.OpLoop, 2),
				at(wasmbin.OpLocalGet, 1), i32Const(3), at(wasmbin.OpI32LtU, 0), empty(wasmbin.OpIf),
				at(wasmbin.OpLocalGet, 1), i32Const(1), at(wasmbin.OpI32Add, 0), at(wasmbin.OpLocalSet, 1), at(wasmbin.OpBr, 1), end,
				at(wasmbin.OpLocalGet, 1), at(wasmbin.OpReturn, 0),
				{Op: wasmbin.OpF64Const}, at(wasmbin.OpBr, 3), {Op: wasmbin.OpF64Const}, i32Const(0), at(wasmbin.OpBrIf, 3), drop,
				{Op: wasmbin.OpF64Const}, i32Const(0), {Op: wasmbin.OpBrTable, B: 2},
				end, drop, end, end, {Op: wasmbin.OpF64Const}, end, drop, i32Const(1),
			}...),
	} {
		m.Mems[0].Min = 40
		plain := wasmbin.Encode(m)
		res, err := fuel.Rewrite(m, fuel.Options{})
		require.NoError(t, err, name)
		for _, e := range newEngines(t) {
			c, err := e.rt.CompileModule(t.Context(), plain)
			require.NoError(t, err, "%s: the original is not valid", name)
			require.NoError(t, c.Close(t.Context()))
			c, err = e.rt.CompileModule(t.Context(), res.Wasm)
			require.NoError(t, err, name)
			for a := range uint64(11) {
				ref, err := reference.New(m, reference.Options{DepthLimit: 10, MaxPages: maxPages})
				require.NoError(t, err)
				results, err := ref.Call(0, 1<<40, a)
				require.NoError(t, err)
				for _, slice := range []int64{1, 1 << 40} {
					in := e.instantiate(t, c, res)
					e.gift = 3 // must not get lost
					want := verdict{kind: "ok", used: ref.Used, results: results}
					require.Equal(t, want, in.call("f", 1<<40, slice, a), "%s of %d in %s", name, a, e.name)
					require.Equal(t, want, in.call("f", ref.Used, slice, a), "%s of %d in %s", name, a, e.name)
					require.Equal(t, "fuel", in.call("f", ref.Used-1, slice, a).kind, "%s of %d in %s", name, a, e.name)
					in.close(t)
				}
			}
		}
	}
}

// TestLengthsArePaidFirst: what is priced by its length is not begun without the
// fuel for all of it: it neither traps nor changes anything (spec 1.3).
func TestLengthsArePaidFirst(t *testing.T) {
	t.Parallel()
	const n = 0x10000000 // out of the bounds of everything
	for _, op := range []wasmbin.Op{
		wasmbin.OpMemoryFill, wasmbin.OpMemoryCopy, wasmbin.OpMemoryInit, wasmbin.OpTableFill, wasmbin.OpTableCopy, wasmbin.OpTableInit,
	} {
		m := guest()
		m.HasDataCount, m.Data = true, []wasmbin.Data{{Mode: wasmbin.Passive, Init: []byte{1}}}
		second := i32Const(0)
		if op == wasmbin.OpTableFill {
			second = at(wasmbin.OpRefNull, uint32(wasmbin.FuncRef))
		}
		m.Code[0].Body = []wasmbin.Instr{i32Const(0), second, i32Const(n), at(op, 0), at(wasmbin.OpEnd, 0)}
		res, err := fuel.Rewrite(m, fuel.Options{})
		require.NoError(t, err, op)
		for _, e := range newEngines(t) {
			c := e.compile(t, res)
			require.Equal(t, "fuel", e.instantiate(t, c, res).call("f", n-1, n-1).kind, "%s in %s", op, e.name)
			require.Contains(t, e.instantiate(t, c, res).call("f", n+5, n+5).kind, "access", "%s in %s", op, e.name)
		}
	}
	m := guest()
	m.Exports = append(m.Exports, wasmbin.Export{Name: "memory", Kind: wasmbin.KindMemory})
	m.Code[0].Body = []wasmbin.Instr{i32Const(2), at(wasmbin.OpMemoryGrow, 0), at(wasmbin.OpDrop, 0), at(wasmbin.OpEnd, 0)}
	res, err := fuel.Rewrite(m, fuel.Options{})
	require.NoError(t, err)
	for _, e := range newEngines(t) {
		in := e.instantiate(t, e.compile(t, res), res)
		require.Equal(t, "fuel", in.call("f", 2<<16-1, 1000).kind)
		require.EqualValues(t, 1<<16, in.mod.ExportedMemory("memory").Size(), e.name)
		require.Equal(t, verdict{kind: "ok", used: 2<<16 + 3}, in.call("f", 1<<20, 1000))
		require.EqualValues(t, 3<<16, in.mod.ExportedMemory("memory").Size(), e.name)
	}
}

// TestImportsSeeWhatIsUsed: when a guest calls an imported function by its name,
// all that it has executed has been charged, so that the host can look (the
// package's protocol).
func TestImportsSeeWhatIsUsed(t *testing.T) {
	t.Parallel()
	for name, loop := range map[string]bool{"counter in the global": false, "counter in a local": true} {
		m := guest()
		m.Code[0].Body = join(idle(5), []wasmbin.Instr{at(wasmbin.OpCall, 0)}, idle(3), []wasmbin.Instr{at(wasmbin.OpCall, 0)})
		if loop {
			m.Code[0].Locals = []wasmbin.LocalRun{{Count: 2, Type: wasmbin.I32}}
			m.Code[0].Body = join([]wasmbin.Instr{typed(wasmbin.OpLoop, blockEmpty)}, count(0), []wasmbin.Instr{at(wasmbin.OpBrIf, 0), at(wasmbin.OpEnd, 0)}, m.Code[0].Body)
		}
		m.Code[0].Body = append(m.Code[0].Body, at(wasmbin.OpEnd, 0))
		want := []int64{7, 11} // 1 for entering, 1 for each call
		if loop {
			want = []int64{14, 18}
		}
		res, err := fuel.Rewrite(m, fuel.Options{})
		require.NoError(t, err)
		for _, e := range newEngines(t) {
			in := e.instantiate(t, e.compile(t, res), res)
			var used []int64
			e.onImport = func() { used = append(used, e.granted-int64(in.left().Get())) }
			require.Equal(t, "ok", in.call("f", 1000, 1000).kind)
			require.Equal(t, want, used, "%s in %s", name, e.name)
		}
	}
}
