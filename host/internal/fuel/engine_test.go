package fuel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/reference"
)

var (
	errFuel  = errors.New("fuel exhausted")
	errDepth = errors.New("call depth exceeded")
)

// engine runs rewritten modules in one of wazero's engines, the way the host
// does. It is used by one goroutine at a time.
type engine struct {
	name string
	rt   wazero.Runtime
	// The grant of the running call: what has been granted, the limit, and the
	// size of the slices.
	granted, limit, slice int64
	refills               int
	onRefill              func(left int64)
	gift                  int64  // is granted where nothing is owed
	onImport              func() // before an imported function of env
}

var engineConfigs = []struct {
	name   string
	config func() wazero.RuntimeConfig
}{
	{"compiler", wazero.NewRuntimeConfigCompiler},
	{"interpreter", wazero.NewRuntimeConfigInterpreter},
}

func newEngines(t testing.TB) []*engine {
	t.Helper()
	var out []*engine
	for i := range engineConfigs {
		out = append(out, newEngine(t, i, api.CoreFeaturesV2, maxPages))
	}
	return out
}

func newEngine(t testing.TB, config int, features api.CoreFeatures, pages uint32) *engine {
	t.Helper()
	c := engineConfigs[config]
	ctx := context.Background()
	e := &engine{name: c.name, rt: wazero.NewRuntimeWithConfig(ctx, c.config().WithCoreFeatures(features).WithMemoryLimitPages(pages))}
	t.Cleanup(func() { require.NoError(t, e.rt.Close(ctx)) })
	_, err := e.rt.NewHostModuleBuilder(fuel.Namespace).
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
		stack[0] = uint64(e.refill(int64(stack[0])))
	}), []api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).Export("refill").
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(context.Context, []uint64) {
		panic(errDepth)
	}), nil, nil).Export("depth").
		Instantiate(ctx)
	require.NoError(t, err)
	i32, i64 := api.ValueTypeI32, api.ValueTypeI64
	env := func(name string, params []api.ValueType) api.GoFunc {
		return func(_ context.Context, stack []uint64) {
			if e.onImport != nil {
				e.onImport()
			}
			copy(stack, reference.Host["env."+name](stack[:len(params)]))
		}
	}
	mix, nop := []api.ValueType{i32, i64}, []api.ValueType(nil)
	_, err = e.rt.NewHostModuleBuilder("env").
		NewFunctionBuilder().WithGoFunction(env("mix", mix), mix, []api.ValueType{i64}).Export("mix").
		NewFunctionBuilder().WithGoFunction(env("nop", nop), nop, nil).Export("nop").
		Instantiate(ctx)
	require.NoError(t, err)
	binaryen := e.rt.NewHostModuleBuilder("fuzzing-support")
	for name, typ := range map[string]api.ValueType{"log-i32": i32, "log-i64": i64, "log-f32": api.ValueTypeF32, "log-f64": api.ValueTypeF64} {
		binaryen.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(context.Context, []uint64) {}), []api.ValueType{typ}, nil).Export(name)
	}
	_, err = binaryen.Instantiate(ctx)
	require.NoError(t, err)
	return e
}

func (e *engine) refill(left int64) int64 {
	e.refills++
	if e.onRefill != nil {
		e.onRefill(left)
	}
	if left >= 0 {
		e.granted += e.gift
		return left + e.gift
	}
	used := e.granted - left
	if used > e.limit {
		panic(errFuel)
	}
	grant := min(-left+e.slice, e.limit-e.granted)
	e.granted += grant
	return left + grant
}

// instance is an instantiated rewritten module.
type instance struct {
	e   *engine
	res *fuel.Result
	mod api.Module
}

// verdict is how a call ended.
type verdict struct {
	kind    string // ok, fuel, depth, or wazero's name of the trap
	used    int64
	results []uint64
}

func (v verdict) String() string { return fmt.Sprintf("%s, %d units, %x", v.kind, v.used, v.results) }

func (e *engine) compile(t testing.TB, res *fuel.Result) wazero.CompiledModule {
	t.Helper()
	c, err := e.rt.CompileModule(context.Background(), res.Wasm)
	require.NoError(t, err, "%s does not take the rewritten module", e.name)
	return c
}

func (e *engine) instantiate(t testing.TB, c wazero.CompiledModule, res *fuel.Result) *instance {
	t.Helper()
	mod, err := e.rt.InstantiateModule(context.Background(), c, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	require.NoError(t, err)
	return &instance{e: e, res: res, mod: mod}
}

func (i *instance) close(t testing.TB) {
	t.Helper()
	require.NoError(t, i.mod.Close(context.Background()))
}

func (i *instance) left() api.MutableGlobal {
	return i.mod.ExportedGlobal(fuel.Namespace + ".left").(api.MutableGlobal)
}

// call calls an export with a limit, handed out in slices.
func (i *instance) call(name string, limit, slice int64, args ...uint64) verdict {
	e := i.e
	e.limit, e.slice = limit, slice
	e.granted = min(limit, slice)
	e.refills = 0
	i.left().Set(uint64(e.granted))
	i.mod.ExportedGlobal(fuel.Namespace + ".depth").(api.MutableGlobal).Set(uint64(i.res.Depth))
	f := i.mod.ExportedFunction(name)
	results, err := f.Call(context.Background(), args...)
	v := verdict{used: e.granted - int64(i.left().Get())}
	switch {
	case err == nil:
		v.kind, v.results = "ok", masked(f, results)
		if v.used > limit {
			v.kind, v.results = "fuel", nil
		}
	case errors.Is(err, errFuel):
		v.kind, v.used = "fuel", limit
	case errors.Is(err, errDepth):
		v.kind = "depth"
	default:
		v.kind = trapName(err)
	}
	return v
}

// trapName returns wazero's short name of a trap, without the stack.
func trapName(err error) string {
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err.Error()
}
