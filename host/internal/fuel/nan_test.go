package fuel_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/reference"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// TestNaNsOfShapes: NaNs of arithmetic are canonical and all others keep their
// bits where random bodies hardly ever look (spec 1.3, Determinism).
func TestNaNsOfShapes(t *testing.T) {
	t.Parallel()
	bits := at(wasmbin.OpI32ReinterpretF32, 0)
	// A local that holds a NaN that is canonical but for its sign, or a sum.
	sign := oneFunction(nil, wasmbin.Instr{Op: wasmbin.OpF32Const, B: 0xFFC00000}, at(wasmbin.OpLocalSet, 2),
		at(wasmbin.OpLocalGet, 0), typed(wasmbin.OpIf, blockEmpty),
		at(wasmbin.OpLocalGet, 2), at(wasmbin.OpLocalGet, 2), at(wasmbin.OpF32Add, 0), at(wasmbin.OpLocalSet, 2), at(wasmbin.OpEnd, 0),
		at(wasmbin.OpLocalGet, 2), bits)
	sign.Code[0].Locals = append(sign.Code[0].Locals, wasmbin.LocalRun{Count: 1, Type: wasmbin.F32})
	// A root that nobody but the function called by way of a table looks at.
	table := oneFunction(nil, wasmbin.Instr{Op: wasmbin.OpF32Const, B: 0xBF800000}, at(wasmbin.OpF32Sqrt, 0), i32Const(0), at(wasmbin.OpCallIndirect, 1))
	table.Types[1] = wasmbin.FuncType{Params: []wasmbin.ValType{wasmbin.F32}, Results: []wasmbin.ValType{wasmbin.I32}}
	table.Code[1].Body = []wasmbin.Instr{at(wasmbin.OpLocalGet, 0), bits, at(wasmbin.OpEnd, 0)}
	table.Tables = []wasmbin.TableType{{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 1}}}
	table.Elems = []wasmbin.Elem{{Mode: wasmbin.Active, Type: wasmbin.FuncRef, Offset: i32Const(0), Init: []wasmbin.Instr{at(wasmbin.OpRefFunc, 1)}}}
	back := oneFunction(nil, at(wasmbin.OpCall, 1), bits)
	back.Types[1] = wasmbin.FuncType{Results: []wasmbin.ValType{wasmbin.F32}}
	back.Code[1].Body = []wasmbin.Instr{{Op: wasmbin.OpF32Const, B: 0xBF800000}, at(wasmbin.OpF32Sqrt, 0), at(wasmbin.OpReturn, 0), at(wasmbin.OpEnd, 0)}
	for _, c := range []struct {
		name string
		m    *wasmbin.Module
		want [2]uint64 // of 0, of 1
	}{
		{"a negative canonical NaN in a local", sign, [2]uint64{0xFFC00000, 0x7FC00000}},
		{"a value that is returned", back, [2]uint64{0x7FC00000, 0x7FC00000}},
		{"an argument of call_indirect", table, [2]uint64{0x7FC00000, 0x7FC00000}},
	} {
		res, err := fuel.Rewrite(c.m, fuel.Options{})
		require.NoError(t, err, c.name)
		for _, e := range newEngines(t) {
			for arg, want := range c.want {
				ref, err := reference.New(c.m, reference.Options{DepthLimit: 10, MaxPages: 1})
				require.NoError(t, err)
				results, err := ref.Call(0, 1000, uint64(arg))
				require.NoError(t, err)
				require.Equal(t, []uint64{want}, results, "%s in the reference", c.name)
				in := e.instantiate(t, e.compile(t, res), res)
				require.Equal(t, verdict{kind: "ok", used: ref.Used, results: results}, in.call("f", 1000, 1000, uint64(arg)), "%s of %d in %s", c.name, arg, e.name)
			}
		}
	}
}
