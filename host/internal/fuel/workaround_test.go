package fuel_test

import (
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
