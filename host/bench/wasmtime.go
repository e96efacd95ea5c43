//go:build cgo

package main

import (
	"fmt"

	"github.com/bytecodealliance/wasmtime-go/v39"
)

type wasmtimeOptions struct{ fuel, epochs bool }

// addWasmtime adds wasmtime's ways to run a module.
func addWasmtime(rs []runner, wasm []byte) (err error) {
	for i, o := range map[int]wasmtimeOptions{wtPlain: {}, wtFuel: {fuel: true}, wtEpochs: {epochs: true}} {
		if rs[i], err = newWasmtime(wasm, o); err != nil {
			return err
		}
	}
	return nil
}

// newWasmtime instantiates a module with wasmtime's own metering, or none. Its
// slices are ours: it yields to nobody, so fuel is given once for a call.
func newWasmtime(wasm []byte, o wasmtimeOptions) (runner, error) {
	config := wasmtime.NewConfig()
	config.SetConsumeFuel(o.fuel)
	config.SetEpochInterruption(o.epochs)
	engine := wasmtime.NewEngineWithConfig(config)
	module, err := wasmtime.NewModule(engine, wasm)
	if err != nil {
		return runner{}, err
	}
	linker := wasmtime.NewLinker(engine)
	if err := linker.DefineWasi(); err != nil {
		return runner{}, err
	}
	store := wasmtime.NewStore(engine)
	store.SetWasi(wasmtime.NewWasiConfig())
	ready := func() error {
		if o.epochs {
			store.SetEpochDeadline(1 << 40)
		}
		if o.fuel {
			return store.SetFuel(1 << 40)
		}
		return nil
	}
	if err := ready(); err != nil {
		return runner{}, err
	}
	instance, err := linker.Instantiate(store, module)
	if err != nil {
		return runner{}, err
	}
	functions := map[string]*wasmtime.Func{}
	call := func(kernel string) (uint32, error) {
		if err := ready(); err != nil {
			return 0, err
		}
		f := functions[kernel]
		if f == nil {
			f = instance.GetFunc(store, kernel)
			functions[kernel] = f
		}
		got, err := f.Call(store)
		if err != nil || got == nil {
			return 0, err
		}
		return uint32(got.(int32)), nil
	}
	if instance.GetFunc(store, "_initialize") != nil {
		if _, err := call("_initialize"); err != nil {
			return runner{}, err
		}
	}
	return runner{fmt.Sprintf("wasmtime %+v", o), call}, nil
}
