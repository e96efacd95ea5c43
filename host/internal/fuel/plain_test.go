package fuel_test

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// plainGlobal is the prefix under which plain modules export their globals, so
// that they can be compared.
const plainGlobal = "plain.g"

// compilePlain compiles a module as it is, but for exports of its globals, in
// each engine.
func (d *differential) compilePlain(t *testing.T, m *wasmbin.Module) (out []wazero.CompiledModule) {
	t.Helper()
	with := *m
	with.Exports = append([]wasmbin.Export(nil), m.Exports...)
	for i := range m.AllGlobals() {
		with.Exports = append(with.Exports, wasmbin.Export{Name: plainGlobal + strconv.Itoa(i), Kind: wasmbin.KindGlobal, Index: uint32(i)})
	}
	with.HasStart = false // it is called as an export
	if m.HasStart {
		with.Exports = append(with.Exports, wasmbin.Export{Name: fuel.Namespace + ".start", Kind: wasmbin.KindFunc, Index: m.Start})
	}
	wasm := wasmbin.Encode(&with)
	for _, e := range d.engines {
		c, err := e.rt.CompileModule(context.Background(), wasm)
		require.NoError(t, err, "the original is not valid")
		out = append(out, c)
	}
	return out
}

// plain makes the calls that ended without a verdict of metering in the module
// as it is, in each engine, and wants the same results, traps, memory and
// globals (spec 1.3: metering changes nothing else). What an engine's own NaNs
// can have changed is held against the metered module that keeps them as they
// are, everything else against the reference.
func (d *differential) plain(t *testing.T, m *wasmbin.Module, plain []wazero.CompiledModule, made []past) {
	t.Helper()
	for i, p := range made {
		if p.want.kind == "fuel" || p.want.kind == "depth" {
			made = made[:i]
			break
		}
	}
	if len(made) == 0 {
		return
	}
	raw := made[len(made)-1].madeNaN
	var rawResult *fuel.Result
	if raw {
		var err error
		rawResult, err = fuel.Rewrite(m, fuel.Options{RawNaNs: true})
		require.NoError(t, err)
	}
	for i, e := range d.engines {
		mod, err := e.rt.InstantiateModule(context.Background(), plain[i], wazero.NewModuleConfig().WithName("").WithStartFunctions())
		require.NoError(t, err)
		as := &instance{e: e, mod: mod}
		var metered *instance
		if raw {
			c := e.compile(t, rawResult)
			metered = e.instantiate(t, c, rawResult)
			require.NoError(t, c.Close(context.Background()))
		}
		for _, p := range made {
			want := p.want
			if raw {
				d.seen["plain, raw NaNs"]++
				want = metered.call(p.name, p.limit, p.limit, p.args...)
				if want.kind == "fuel" || want.kind == "depth" {
					break // with these NaNs it goes another way
				}
			} else {
				d.seen["plain"]++
			}
			want.used = 0
			got := as.plainCall(p.name, p.args)
			wantState, gotState := state{memory: p.memory}, state{memory: hash(read(t, as))}
			if raw {
				wantState.memory = hash(read(t, metered))
				wantState.globals, gotState.globals = globals(m, metered.mod, fuel.Namespace+".g"), globals(m, mod, plainGlobal)
			}
			if i == 0 && selects(m) && !reflect.DeepEqual([]any{want, wantState}, []any{got, gotState}) {
				d.seen["plain, select lost"]++ // see TestSelectOfFloats
				break
			}
			require.Equal(t, want, got, "%s(%x), plain and metered in %s", p.name, p.args, e.name)
			require.Equal(t, wantState, gotState, "%s(%x), plain and metered in %s", p.name, p.args, e.name)
		}
		as.close(t)
		if raw {
			metered.close(t)
		}
	}
}

// state is what a call leaves behind.
type state struct {
	memory  uint64 // its hash
	globals []uint64
}

// globals returns the numbers in a module's mutable globals, exported by their
// index behind a prefix.
func globals(m *wasmbin.Module, mod api.Module, prefix string) (out []uint64) {
	for i, g := range m.AllGlobals() {
		if g.Mutable && !g.Type.IsRef() {
			out = append(out, mod.ExportedGlobal(prefix+strconv.Itoa(i)).Get())
		}
	}
	return out
}

// plainCall calls an export of a module that is not metered.
func (i *instance) plainCall(name string, args []uint64) verdict {
	f := i.mod.ExportedFunction(name)
	results, err := f.Call(context.Background(), args...)
	if err != nil {
		return verdict{kind: trapName(err)}
	}
	return verdict{kind: "ok", results: masked(f, results)}
}

// masked clears the upper halves of 32-bit results, which the compiler leaves
// undefined.
func masked(f api.Function, results []uint64) []uint64 {
	for i, t := range f.Definition().ResultTypes()[:len(results)] {
		if t == api.ValueTypeI32 || t == api.ValueTypeF32 {
			results[i] = uint64(uint32(results[i]))
		}
	}
	return append([]uint64(nil), results...)
}

// selects tells whether a module may select floats, of which wazero's compiler
// now and then makes something else.
func selects(m *wasmbin.Module) bool {
	return slices.ContainsFunc(m.Code, func(c wasmbin.Code) bool {
		return slices.ContainsFunc(c.Body, func(in wasmbin.Instr) bool {
			return in.Op == wasmbin.OpSelect || in.Op == wasmbin.OpSelectT
		})
	})
}

// initsActive tells of a memory.init from an active data segment, where wazero's
// own behaviour is not what the format says, see TestActiveSegmentsAreSpent.
func initsActive(m *wasmbin.Module) bool {
	for _, c := range m.Code {
		for _, in := range c.Body {
			if in.Op == wasmbin.OpMemoryInit && m.Data[in.A].Mode == wasmbin.Active {
				return true
			}
		}
	}
	return false
}
