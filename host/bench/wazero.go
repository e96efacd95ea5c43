package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// The ways to run a kernel.
const (
	plain = iota
	metered
	meteredRaw
	wtPlain
	wtFuel
	wtEpochs
	ways
)

// runners prepares a module for every way to run it, and returns its kernels.
func runners(ctx context.Context, wasm []byte) ([]runner, []string, error) {
	m, err := wasmbin.Decode(wasm)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for _, e := range m.Exports {
		if e.Kind == wasmbin.KindFunc && e.Name != "_initialize" {
			names = append(names, e.Name)
		}
	}
	rs := make([]runner, ways)
	if rs[plain], err = newWazero(ctx, "plain", wasm, nil); err != nil {
		return nil, nil, err
	}
	for i, o := range map[int]fuel.Options{metered: {}, meteredRaw: {RawNaNs: true}} {
		res, err := fuel.Rewrite(m, o)
		if err != nil {
			return nil, nil, err
		}
		if rs[i], err = newWazero(ctx, fmt.Sprintf("metered %+v", o), res.Wasm, res); err != nil {
			return nil, nil, err
		}
	}
	return rs, names, addWasmtime(rs, wasm)
}

var errFuel = errors.New("fuel exhausted")

// newWazero instantiates a module, plain if res is nil, else metered the way the
// host does it.
func newWazero(ctx context.Context, name string, wasm []byte, res *fuel.Result) (runner, error) {
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, rt); err != nil {
		return runner{}, err
	}
	var rest int64
	deadline := time.Now().Add(time.Hour)
	_, err := rt.NewHostModuleBuilder(fuel.Namespace).
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
		left := int64(stack[0])
		if rest+left < 0 || time.Now().After(deadline) {
			panic(errFuel)
		}
		if left < 0 {
			grant := min(rest, slice-left)
			rest -= grant
			left += grant
		}
		stack[0] = uint64(left)
	}), []api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).Export("refill").
		NewFunctionBuilder().WithGoFunction(api.GoFunc(func(context.Context, []uint64) { panic("depth") }), nil, nil).Export("depth").
		Instantiate(ctx)
	if err != nil {
		return runner{}, err
	}
	mod, err := rt.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return runner{}, err
	}
	functions := map[string]api.Function{}
	call := func(kernel string) (uint32, error) {
		if res != nil {
			rest = 1<<40 - slice
			mod.ExportedGlobal(fuel.Namespace + ".left").(api.MutableGlobal).Set(slice)
			mod.ExportedGlobal(fuel.Namespace + ".depth").(api.MutableGlobal).Set(uint64(res.Depth))
		}
		f := functions[kernel]
		if f == nil {
			f = mod.ExportedFunction(kernel)
			functions[kernel] = f
		}
		got, err := f.Call(ctx)
		if err != nil || len(got) == 0 {
			return 0, err
		}
		return uint32(got[0]), nil
	}
	if mod.ExportedFunction("_initialize") != nil {
		if _, err := call("_initialize"); err != nil {
			return runner{}, err
		}
	}
	return runner{name, call}, nil
}
