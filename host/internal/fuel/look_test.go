package fuel_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// work is so many units that cannot trap, and leaves the stack as it was.
func (b *bodyBuilder) work(units int) {
	for range units / 2 {
		b.op(wasmbin.OpGlobalGet)
		b.op(wasmbin.OpGlobalSet)
	}
}

// TestLooksAreFrequent: however a guest is written, it looks at its counter
// often enough that a slice holds (spec 1.3: "about 1 ms"). With slices of one
// unit each look that finds more than that spent calls the host, so what is owed
// then is what was executed since the look before.
func TestLooksAreFrequent(t *testing.T) {
	t.Parallel()
	calls := func(n int, callee func(*bodyBuilder), call func(*bodyBuilder)) *wasmbin.Module {
		var b, f bodyBuilder
		for range n {
			call(&b)
		}
		callee(&f)
		f.op(wasmbin.OpEnd)
		m := recursive(wasmbin.FuncType{}, nil, b.body)
		m.Code[1].Body = f.body
		m.Tables = []wasmbin.TableType{{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 2}}}
		m.Elems = []wasmbin.Elem{{Mode: wasmbin.Active, Type: wasmbin.FuncRef, Offset: wasmbin.Instr{Op: wasmbin.OpI32Const},
			Init: []wasmbin.Instr{{Op: wasmbin.OpRefFunc}, {Op: wasmbin.OpRefFunc, A: 1}}}}
		return m
	}
	direct := func(b *bodyBuilder) { b.index(wasmbin.OpCall, 1) }
	indirect := func(b *bodyBuilder) {
		b.body = append(b.body, wasmbin.Instr{Op: wasmbin.OpI32Const, B: 1}, wasmbin.Instr{Op: wasmbin.OpCallIndirect, A: 1})
	}
	// deep calls itself 1 400 times, counting in global 1, and then works on the
	// way back, where nothing is entered any more.
	deep := func(units int, back func(*bodyBuilder)) *wasmbin.Module {
		var b bodyBuilder
		b.index(wasmbin.OpGlobalGet, 1)
		b.body = append(b.body, wasmbin.Instr{Op: wasmbin.OpI32Const, B: 1400}, wasmbin.Instr{Op: wasmbin.OpI32LtS})
		b.block(wasmbin.OpIf)
		b.index(wasmbin.OpGlobalGet, 1)
		b.body = append(b.body, wasmbin.Instr{Op: wasmbin.OpI32Const, B: 1}, wasmbin.Instr{Op: wasmbin.OpI32Add}, wasmbin.Instr{Op: wasmbin.OpGlobalSet, A: 1})
		b.op(wasmbin.OpCall)
		back(&b)
		b.work(units)
		b.op(wasmbin.OpEnd)
		m := recursive(wasmbin.FuncType{}, nil, b.body)
		var leaf bodyBuilder
		leaf.work(24)
		leaf.op(wasmbin.OpEnd)
		m.Code[1].Body = leaf.body
		return m
	}
	// loop goes around 1 000 times, each with so many units.
	loop := func(units int) *wasmbin.Module {
		var b bodyBuilder
		b.block(wasmbin.OpLoop)
		b.work(units)
		b.body = append(b.body, wasmbin.Instr{Op: wasmbin.OpLocalGet}, wasmbin.Instr{Op: wasmbin.OpI32Const, B: 1},
			wasmbin.Instr{Op: wasmbin.OpI32Add}, wasmbin.Instr{Op: wasmbin.OpLocalTee}, wasmbin.Instr{Op: wasmbin.OpI32Const, B: 1000},
			wasmbin.Instr{Op: wasmbin.OpI32LtU}, wasmbin.Instr{Op: wasmbin.OpBrIf})
		b.op(wasmbin.OpEnd)
		return recursive(wasmbin.FuncType{}, []wasmbin.LocalRun{{Count: 1, Type: wasmbin.I32}}, b.body)
	}
	const (
		straight = 5_000 // of straight code, and what may lie around it
		back     = 1400 * 100
	)
	for name, c := range map[string]struct {
		m    *wasmbin.Module
		most int64
	}{
		"straight code": {func() *wasmbin.Module {
			var b bodyBuilder
			b.work(100_000)
			return recursive(wasmbin.FuncType{}, nil, b.body)
		}(), straight},
		"small leaves":           {calls(5000, func(b *bodyBuilder) { b.work(24) }, direct), straight},
		"long leaves":            {calls(200, func(b *bodyBuilder) { b.work(3000) }, direct), straight},
		"leaves by table":        {calls(5000, func(b *bodyBuilder) { b.work(24) }, indirect), straight},
		"a long body in a loop":  {loop(9000), straight},
		"a short body in a loop": {loop(10), straight},
		// The last look of a round lies as far behind as the first of the next ahead.
		"a long body around a loop": {func() *wasmbin.Module {
			m := loop(8100)
			body := &m.Code[0].Body
			once := []wasmbin.Instr{typed(wasmbin.OpLoop, blockEmpty), i32Const(0), at(wasmbin.OpBrIf, 0), at(wasmbin.OpEnd, 0)}
			*body = join((*body)[:1], once, (*body)[1:])
			return m
		}(), straight},
		"work on the way back":     {deep(1000, func(*bodyBuilder) {}), back},
		"a little on the way back": {deep(240, func(*bodyBuilder) {}), back},
		"leaves on the way back": {deep(0, func(b *bodyBuilder) {
			for range 12 {
				b.index(wasmbin.OpCall, 1)
			}
		}), back},
	} {
		res, err := fuel.Rewrite(c.m, fuel.Options{})
		require.NoError(t, err, name)
		for _, e := range newEngines(t) {
			in := e.instantiate(t, e.compile(t, res), res)
			owed := int64(0)
			e.onRefill = func(left int64) { owed = max(owed, -left) }
			got := in.call("f", 1<<40, 1)
			owed = max(owed, -int64(in.left().Get())) // the host looks at the end
			require.Equal(t, "ok", got.kind, "%s in %s", name, e.name)
			require.Greater(t, got.used, c.most, "%s: too little is done for the test to mean anything", name)
			require.Positive(t, e.refills, "%s in %s", name, e.name)
			require.LessOrEqual(t, owed, c.most, "%s in %s", name, e.name)
			t.Logf("%s in %s: %d of %d units", name, e.name, owed, got.used)
		}
	}
}

// TestCallersChargeFirst: what the active calls have executed before they call on
// does not escape the looks of their callees (spec 1.3: slices hold).
func TestCallersChargeFirst(t *testing.T) {
	t.Parallel()
	for name, call := range map[string][]wasmbin.Instr{
		"direct":   {at(wasmbin.OpCall, 0)},
		"indirect": {i32Const(0), at(wasmbin.OpCallIndirect, 0)},
	} {
		for _, units := range []int64{24, 40, 200, 1000, 4000} {
			var b bodyBuilder
			b.body = []wasmbin.Instr{at(wasmbin.OpGlobalGet, 1), i32Const(1), at(wasmbin.OpI32Add, 0), at(wasmbin.OpGlobalSet, 1)}
			b.work(int(units))
			m := recursive(wasmbin.FuncType{}, nil, append(b.body, call...))
			m.Tables = []wasmbin.TableType{{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 1}}}
			m.Elems = []wasmbin.Elem{{Mode: wasmbin.Active, Type: wasmbin.FuncRef, Offset: i32Const(0), Init: []wasmbin.Instr{at(wasmbin.OpRefFunc, 0)}}}
			res, err := fuel.Rewrite(m, fuel.Options{})
			require.NoError(t, err)
			const limit = 10_000
			for _, e := range newEngines(t) {
				in := e.instantiate(t, e.compile(t, res), res)
				kind := in.call("f", limit, limit).kind
				executed := int64(in.mod.ExportedGlobal(fuel.Namespace+".g1").Get()) * units
				require.Contains(t, []string{"fuel", "depth"}, kind)
				require.LessOrEqual(t, executed, int64(limit+1500*40), "%s, %d units a call, in %s: %s", name, units, e.name, kind)
			}
		}
	}
}
