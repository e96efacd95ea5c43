// Package pluginapi is the contract between a Drover node and a placement strategy, version 1: the Go types of a
// snapshot and of an answer, their CBOR form (strategy.cddl), and the SDK that turns a Go value with two methods into a
// WebAssembly module.
//
// A strategy is a pure function of its input. It implements [Strategy], calls [Register] from an init function of a
// main package, and is built with
//
//	GOOS=wasip1 GOARCH=wasm go build -trimpath -buildvcs=false -ldflags='-s -w' -buildmode=c-shared -o mine.wasm
//
// (or with TinyGo, -target=wasip1 -buildmode=c-shared). On every other platform Register and [Log] do nothing, so a
// strategy's own tests are plain `go test` over plain Go values.
//
// The package imports nothing but the standard library, and of that nothing that reflects or formats (no fmt, no
// encoding/json): a reflective decoder inside a guest costs 30 to 160 times what this one does. It must stay so.
//
// # CBOR
//
// The encoders write core-deterministic CBOR (RFC 8949, 4.2.1: sorted keys, shortest integers, definite lengths) with
// one exception: floats are always 64 bits wide. The decoders skip unknown keys, take keys in any order, integers and
// floats of any width, and arrays and maps of indefinite length; they refuse strings of indefinite length, duplicate
// keys, text that is not UTF-8, nesting deeper than 32, indices that point nowhere, and bytes after the value. They never
// panic, and they allocate at most a small multiple of the bytes that they are given.
package pluginapi
