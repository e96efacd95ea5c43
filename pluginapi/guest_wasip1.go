//go:build wasip1

package pluginapi

import "unsafe"

var (
	registered Strategy
	// input and output belong to the host between calls: package variables keep them alive, as the host holds addresses.
	input, output []byte
)

// Register makes s the strategy of this module. Call it once, from an init function of the main package.
func Register(s Strategy) { registered = s }

// Log hands a message to the host's log. It never changes a decision.
func Log(level Level, msg string) {
	hostLog(int32(level), unsafe.Pointer(unsafe.StringData(msg)), uint32(len(msg)))
}

//go:wasmimport drover log
//go:noescape
func hostLog(level int32, ptr unsafe.Pointer, n uint32)

//go:wasmexport drover_abi_v1
func exportABI() {}

//go:wasmexport drover_buffer
func exportBuffer(n uint32) uint32 {
	input = make([]byte, n)
	return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(input))))
}

//go:wasmexport drover_allocate
func exportAllocate(ptr, n uint32) uint64 {
	return answer(decide(registered, OpAllocate, received(ptr, n)))
}

//go:wasmexport drover_rebalance
func exportRebalance(ptr, n uint32) uint64 {
	return answer(decide(registered, OpRebalance, received(ptr, n)))
}

//go:wasmexport drover_configure
func exportConfigure(ptr, n uint32) uint64 { return answer(configure(registered, received(ptr, n))) }

//go:wasmexport drover_describe
func exportDescribe() uint64 { return answer(describe(registered)) }

// received returns the bytes that the host wrote. It looks at the buffer that it gave out, never at a foreign address.
func received(ptr, n uint32) []byte {
	if len(input) < int(n) || ptr != uint32(uintptr(unsafe.Pointer(unsafe.SliceData(input)))) {
		panic("drover: the input is not where drover_buffer said")
	}
	return input[:n]
}

func answer(b []byte) uint64 {
	output = b
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))<<32 | uint64(len(b))
}
