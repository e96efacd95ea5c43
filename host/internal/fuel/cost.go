package fuel

import "github.com/droverhq/drover/host/internal/wasmbin"

// entryCost is the price of entering a function.
const entryCost = 1

// opCost returns the price of an operator, without what bulk operations pay for
// their length.
func opCost(op wasmbin.Op) uint32 {
	switch op {
	case wasmbin.OpUnreachable, wasmbin.OpNop, wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpElse,
		wasmbin.OpEnd, wasmbin.OpReturn, wasmbin.OpDrop:
		return 0
	}
	return 1
}

// lengthPrice returns what an operator pays for each unit of its length operand,
// which is the topmost one; 0 if its price is fixed. The largest, 2³²−1 pages,
// stays below 2⁴⁸, far from the ends of the 64 bits that fuel is counted in.
func lengthPrice(op wasmbin.Op) uint32 {
	switch op {
	case wasmbin.OpMemoryFill, wasmbin.OpMemoryCopy, wasmbin.OpMemoryInit,
		wasmbin.OpTableFill, wasmbin.OpTableCopy, wasmbin.OpTableInit:
		return 1
	case wasmbin.OpMemoryGrow:
		return 65536
	case wasmbin.OpTableGrow:
		return 8
	}
	return 0
}

// weightShare is how many values a unit of weight stands for.
const weightShare = 32768 / 16

// weight returns what a call of a function with so many values adds to the
// depth.
func (r *rewriter) weight(values int) int32 {
	// A weight beyond the limit says no more than one just beyond it.
	return int32(min(1+int64(values)/weightShare, int64(r.limit)+1))
}
