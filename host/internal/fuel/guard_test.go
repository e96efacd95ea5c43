package fuel_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/reference"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

func TestReservedNames(t *testing.T) {
	t.Parallel()
	require.True(t, fuel.ReservedImport("drover_meter"))
	require.False(t, fuel.ReservedImport("drover"))
	for name, want := range map[string]bool{
		"drover_meter": true, "drover_meter.left": true, "drover_meter.g0": true, "drover_meterx": true,
		"drover_metric": false, "drover_allocate": false, "memory": false, "": false, "x.drover_meter": false,
	} {
		require.Equal(t, want, fuel.ReservedExport(name), name)
	}
}

// guest returns a small valid module; each case of TestGuards breaks it.
func guest() *wasmbin.Module {
	return &wasmbin.Module{
		Types:   []wasmbin.FuncType{{}, {Params: []wasmbin.ValType{wasmbin.I64}, Results: []wasmbin.ValType{wasmbin.I64}}},
		Imports: []wasmbin.Import{{Module: "env", Name: "nop"}},
		Funcs:   []uint32{0, 1},
		Tables:  []wasmbin.TableType{{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 4}}},
		Mems:    []wasmbin.Limits{{Min: 1}},
		Globals: []wasmbin.Global{{Type: wasmbin.GlobalType{Type: wasmbin.I64, Mutable: true}, Init: wasmbin.Instr{Op: wasmbin.OpI64Const}}},
		Exports: []wasmbin.Export{{Name: "f", Index: 1}},
		Elems:   []wasmbin.Elem{{Type: wasmbin.FuncRef, Offset: wasmbin.Instr{Op: wasmbin.OpI32Const}, Init: []wasmbin.Instr{{Op: wasmbin.OpRefFunc, A: 1}}}},
		Code: []wasmbin.Code{
			{Body: []wasmbin.Instr{{Op: wasmbin.OpEnd}}},
			{Body: []wasmbin.Instr{{Op: wasmbin.OpLocalGet}, {Op: wasmbin.OpEnd}}},
		},
	}
}

// TestGuards: no index, name or body of an (invalid) guest reaches what the
// rewrite adds, or makes it panic (spec 1.3: the guest can neither read, write
// nor refill the counters).
func TestGuards(t *testing.T) {
	t.Parallel()
	_, err := fuel.Rewrite(guest(), fuel.Options{})
	require.NoError(t, err)

	body := func(in ...wasmbin.Instr) func(*wasmbin.Module) {
		return func(m *wasmbin.Module) { m.Code[0].Body = append(in, wasmbin.Instr{Op: wasmbin.OpEnd}) }
	}
	at := func(op wasmbin.Op, a uint32) func(*wasmbin.Module) { return body(wasmbin.Instr{Op: op, A: a}) }
	ref := wasmbin.Instr{Op: wasmbin.OpRefFunc, A: 3}
	for name, c := range map[string]struct {
		breaks func(*wasmbin.Module)
		want   string
	}{
		"import of the namespace":    {func(m *wasmbin.Module) { m.Imports[0].Module = fuel.Namespace }, "reserved"},
		"export of left":             {func(m *wasmbin.Module) { m.Exports[0].Name = fuel.Namespace + ".left" }, "reserved"},
		"export of global left":      {func(m *wasmbin.Module) { m.Exports[0] = wasmbin.Export{Name: "x", Kind: wasmbin.KindGlobal, Index: 1} }, "global 1"},
		"export of a split function": {func(m *wasmbin.Module) { m.Exports[0].Index = 3 }, "function 3"},
		"start at a split function":  {func(m *wasmbin.Module) { m.HasStart, m.Start = true, 3 }, "function 3"},
		"global.get left":            {at(wasmbin.OpGlobalGet, 1), "global 1"},
		"global.set depth":           {at(wasmbin.OpGlobalSet, 2), "global 2"},
		"call past the end":          {at(wasmbin.OpCall, 3), "function 3"},
		"call of -2, the refill":     {at(wasmbin.OpCall, 0xFFFFFFFE), "function 4294967294"},
		"ref.func past the end":      {at(wasmbin.OpRefFunc, 3), "function 3"},
		"ref.func -2, dead code":     {body(wasmbin.Instr{Op: wasmbin.OpUnreachable}, wasmbin.Instr{Op: wasmbin.OpRefFunc, A: 0xFFFFFFFE}), "function"},
		"call_indirect of our type":  {at(wasmbin.OpCallIndirect, 2), "type 2"},
		"block of our type":          {body(wasmbin.Instr{Op: wasmbin.OpBlock, B: 4}, wasmbin.Instr{Op: wasmbin.OpEnd}), "type 4"},
		"scratch local":              {at(wasmbin.OpLocalGet, 0), "local 0"},
		"scratch local set":          {at(wasmbin.OpLocalSet, 0), "local 0"},
		"element past the end":       {func(m *wasmbin.Module) { m.Elems[0].Init[0] = ref }, "function 3"},
		"element -2":                 {func(m *wasmbin.Module) { m.Elems[0].Init[0].A = 0xFFFFFFFE }, "function"},
		"global initialised by ours": {func(m *wasmbin.Module) { m.Globals[0].Init = wasmbin.Instr{Op: wasmbin.OpGlobalGet, A: 1} }, "global 1"},
		"global with a function":     {func(m *wasmbin.Module) { m.Globals[0].Init = ref }, "function 3"},
		"offset from ours":           {func(m *wasmbin.Module) { m.Elems[0].Offset = wasmbin.Instr{Op: wasmbin.OpGlobalGet, A: 1} }, "global 1"},
		"data offset from ours": {func(m *wasmbin.Module) {
			m.Data = []wasmbin.Data{{Offset: wasmbin.Instr{Op: wasmbin.OpGlobalGet, A: 1}}}
		}, "global 1"},
		"odd constant":             {func(m *wasmbin.Module) { m.Globals[0].Init = wasmbin.Instr{Op: wasmbin.OpI32Add} }, "i32.add"},
		"function of our type":     {func(m *wasmbin.Module) { m.Funcs[0] = 2 }, "type 2"},
		"import of our type":       {func(m *wasmbin.Module) { m.Imports[0].Func = 2 }, "type 2"},
		"a body too few":           {func(m *wasmbin.Module) { m.Code = m.Code[:1] }, "bodies"},
		"branch out":               {at(wasmbin.OpBr, 1), "label 1"},
		"branch out, dead code":    {body(wasmbin.Instr{Op: wasmbin.OpReturn}, wasmbin.Instr{Op: wasmbin.OpBrIf, A: 9}), "label 9"},
		"br_table without targets": {body(wasmbin.Instr{Op: wasmbin.OpBrTable, B: 1}), "targets"},
		"br_table of nothing":      {body(wasmbin.Instr{Op: wasmbin.OpBrTable}), "targets"},
		"br_table past the end":    {body(wasmbin.Instr{Op: wasmbin.OpBrTable, A: 1, B: 0xFFFFFFFFFFFFFFFF}), "targets"},
		"else without if":          {at(wasmbin.OpElse, 0), "else"},
		"no end":                   {func(m *wasmbin.Module) { m.Code[0].Body = nil }, "missing"},
		"too many ends":            {at(wasmbin.OpEnd, 0), "ended"},
		"unknown opcode":           {at(0xFD, 0), "opcode"},
		"memory.init of nothing":   {at(wasmbin.OpMemoryInit, 7), "segment 7"},
		"data.drop of nothing":     {at(wasmbin.OpDataDrop, 7), "segment 7"},
	} {
		m := guest()
		c.breaks(m)
		_, err := fuel.Rewrite(m, fuel.Options{})
		require.ErrorContains(t, err, c.want, name)
	}
	_, err = fuel.Rewrite(guest(), fuel.Options{DepthLimit: -1})
	require.ErrorContains(t, err, "negative")
}

// TestCountersAreOutOfReach: whatever is reachable in the rewritten module under
// the guest's own indices and names is the guest's own.
func TestCountersAreOutOfReach(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		m := reference.Generate(seed)
		res, err := fuel.Rewrite(m, fuel.Options{})
		require.NoError(t, err)
		out, err := wasmbin.Decode(res.Wasm)
		require.NoError(t, err)
		left, depth := uint32(len(m.AllGlobals())), uint32(len(m.AllGlobals())+1)

		for _, e := range out.Elems {
			for _, in := range e.Init {
				require.False(t, in.Op == wasmbin.OpRefFunc && in.A < 2, "a table holds refill or depth")
			}
		}
		for i, e := range out.Exports {
			if i < len(m.Exports) {
				require.Equal(t, m.Exports[i].Name, e.Name)
				require.False(t, e.Kind == wasmbin.KindGlobal && (e.Index == left || e.Index == depth), e.Name)
				require.False(t, e.Kind == wasmbin.KindFunc && e.Index < 2, e.Name)
			} else {
				require.True(t, fuel.ReservedExport(e.Name), e.Name)
			}
		}
		// A guest's own global.set never names a counter: the originals are a
		// subsequence of the rewritten body, in which the rest is ours. Branches
		// and selects are not kept as they were.
		for i, c := range m.Code {
			at := 0
			for _, in := range c.Body {
				want := in
				if in.Op == wasmbin.OpBr || in.Op == wasmbin.OpBrIf || in.Op == wasmbin.OpBrTable || in.Op == wasmbin.OpSelectT {
					continue
				}
				if in.Op == wasmbin.OpCall || in.Op == wasmbin.OpRefFunc {
					want.A += 2
				}
				if in.Op == wasmbin.OpMemoryInit && m.Data[in.A].Mode == wasmbin.Active {
					want.A = uint32(len(m.Data)) // see TestActiveSegmentsAreSpent
				}
				for at < len(out.Code[i].Body) && out.Code[i].Body[at] != want {
					at++
				}
				require.Less(t, at, len(out.Code[i].Body), "seed %d, function %d: %s %d is gone", seed, i, in.Op, in.A)
				at++
			}
		}
	}
}

// TestGlobalsAreRestorable: every mutable global of the guest can be saved and
// restored through its added export (spec 1.3, Same image every call).
func TestGlobalsAreRestorable(t *testing.T) {
	t.Parallel()
	m := guest()
	m.Globals = append(m.Globals,
		wasmbin.Global{Type: wasmbin.GlobalType{Type: wasmbin.F64}, Init: wasmbin.Instr{Op: wasmbin.OpF64Const}},
		wasmbin.Global{Type: wasmbin.GlobalType{Type: wasmbin.F32, Mutable: true}, Init: wasmbin.Instr{Op: wasmbin.OpF32Const, B: 0x7FA00001}})
	m.Code[0].Body = []wasmbin.Instr{{Op: wasmbin.OpI64Const, B: 77}, {Op: wasmbin.OpGlobalSet}, {Op: wasmbin.OpEnd}}
	res, err := fuel.Rewrite(m, fuel.Options{})
	require.NoError(t, err)
	require.Equal(t, []string{"drover_meter.g0", "drover_meter.g2"}, res.MutableGlobals)
	require.False(t, res.MutableRefs)
	for _, e := range newEngines(t) {
		in := e.instantiate(t, e.compile(t, res), res)
		require.Equal(t, "ok", in.call("f", 100, 100).kind)
		g := in.mod.ExportedGlobal("drover_meter.g0").(api.MutableGlobal)
		require.EqualValues(t, 77, g.Get())
		g.Set(0)
		require.EqualValues(t, 0, g.Get())
		require.EqualValues(t, 0x7FA00001, in.mod.ExportedGlobal("drover_meter.g2").Get())
		require.NoError(t, in.mod.Close(context.Background()))
	}
	m.Globals[2] = wasmbin.Global{Type: wasmbin.GlobalType{Type: wasmbin.FuncRef, Mutable: true}, Init: wasmbin.Instr{Op: wasmbin.OpRefFunc, A: 1}}
	res, err = fuel.Rewrite(m, fuel.Options{})
	require.NoError(t, err)
	require.True(t, res.MutableRefs)
}

// TestModuleFlags: the rewrite sees what the host cannot restore (spec 1.3).
func TestModuleFlags(t *testing.T) {
	t.Parallel()
	for op, want := range map[wasmbin.Op][2]bool{
		wasmbin.OpTableSet: {true, false}, wasmbin.OpTableGrow: {true, false}, wasmbin.OpTableFill: {true, false},
		wasmbin.OpTableCopy: {true, false}, wasmbin.OpTableInit: {true, false}, wasmbin.OpTableGet: {false, false},
		wasmbin.OpDataDrop: {false, true}, wasmbin.OpElemDrop: {false, true}, wasmbin.OpNop: {false, false},
	} {
		m := guest()
		m.HasDataCount, m.Data = true, []wasmbin.Data{{Mode: wasmbin.Passive}}
		m.Code[0].Body = []wasmbin.Instr{{Op: wasmbin.OpUnreachable}, {Op: op}, {Op: wasmbin.OpEnd}}
		res, err := fuel.Rewrite(m, fuel.Options{})
		require.NoError(t, err)
		require.Equal(t, want, [2]bool{res.ChangesTables, res.DropsSegments}, op)
		require.Equal(t, 2, res.Functions)
		require.Equal(t, []int32{1, 1}, res.Weights)
	}
}

// TestRewriteKeepsNames: function names move with their functions; other custom
// sections go.
func TestRewriteKeepsNames(t *testing.T) {
	t.Parallel()
	m := guest()
	m.Names = &wasmbin.Names{Module: "m", HasModule: true, Funcs: []wasmbin.NameAssoc{{Index: 0, Name: "nop"}, {Index: 2, Name: "id"}, {Index: 9, Name: "no such"}}}
	m.Customs = []wasmbin.Custom{{Name: "producers", Data: []byte("x")}}
	before := wasmbin.Encode(m)
	res, err := fuel.Rewrite(m, fuel.Options{})
	require.NoError(t, err)
	require.Equal(t, before, wasmbin.Encode(m), "the input is changed")
	out, err := wasmbin.Decode(res.Wasm)
	require.NoError(t, err)
	require.Equal(t, &wasmbin.Names{Module: "m", HasModule: true, Funcs: []wasmbin.NameAssoc{{Index: 2, Name: "nop"}, {Index: 4, Name: "id"}}}, out.Names)
	require.Empty(t, out.Customs)
	again, err := fuel.Rewrite(m, fuel.Options{})
	require.NoError(t, err)
	require.Equal(t, res.Wasm, again.Wasm, "the rewrite is deterministic")
}

// FuzzRewrite: no module that decodes makes the rewrite panic, valid or not, and
// what it makes of one that an engine finds valid is valid too (spec 1.3).
func FuzzRewrite(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(wasmbin.Encode(reference.Generate(seed)))
	}
	f.Add(wasmbin.Encode(guest()))
	files, err := filepath.Glob("testdata/*/*.wasm")
	require.NoError(f, err)
	for _, name := range files {
		wasm, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(wasm)
	}
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2))
	f.Cleanup(func() { require.NoError(f, rt.Close(ctx)) })
	valid := func(t *testing.T, wasm []byte) (err error) {
		defer func() {
			if p := recover(); p != nil { // as wazero's validator does for some invalid modules
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		c, err := rt.CompileModule(ctx, wasm)
		if err == nil {
			require.NoError(t, c.Close(ctx))
		}
		return err
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, err := wasmbin.Decode(wasm)
		if err != nil {
			return
		}
		original := valid(t, wasmbin.Encode(m))
		for _, o := range []fuel.Options{{}, {RawNaNs: true}} {
			res, err := fuel.Rewrite(m, o)
			if err != nil {
				if original == nil && !strings.Contains(err.Error(), "reserved") {
					t.Fatalf("the module is valid, and not rewritten: %v", err)
				}
				continue
			}
			if _, err := wasmbin.Decode(res.Wasm); err != nil {
				t.Fatalf("the rewritten module does not decode: %v", err)
			}
			if original == nil {
				require.NoError(t, valid(t, res.Wasm), "the original is valid, the rewritten module is not")
			}
		}
	})
}
