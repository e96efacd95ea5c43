//go:build !cgo

package main

// addWasmtime adds nothing: wasmtime is there with cgo alone.
func addWasmtime([]runner, []byte) error { return nil }
