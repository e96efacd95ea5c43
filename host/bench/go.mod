module github.com/droverhq/drover/host/bench

go 1.26.0

require (
	github.com/bytecodealliance/wasmtime-go/v39 v39.0.1
	github.com/droverhq/drover v0.0.0
	github.com/tetratelabs/wazero v1.12.0
)

require golang.org/x/sys v0.48.0

replace github.com/droverhq/drover => ../..
