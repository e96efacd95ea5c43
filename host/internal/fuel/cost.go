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

// makesNaN tells whether an operator can make a NaN whose bits the
// specification leaves open, and the type of its result. Operators that move
// bits (neg, abs, copysign, loads, reinterpretations) are defined to the bit.
func makesNaN(op wasmbin.Op) (wasmbin.ValType, bool) {
	switch {
	case op >= wasmbin.OpF32Ceil && op <= wasmbin.OpF32Max, op == wasmbin.OpF32DemoteF64:
		return wasmbin.F32, true
	case op >= wasmbin.OpF64Ceil && op <= wasmbin.OpF64Max, op == wasmbin.OpF64PromoteF32:
		return wasmbin.F64, true
	}
	return 0, false
}

// readsNumber tells whether an operator takes so many floats, and whatever it
// makes of a NaN does not depend on its bits.
func readsNumber(op wasmbin.Op, operands int) bool {
	switch {
	case op >= wasmbin.OpF32Eq && op <= wasmbin.OpF64Ge,
		op >= wasmbin.OpF32Add && op <= wasmbin.OpF32Max,
		op >= wasmbin.OpF64Add && op <= wasmbin.OpF64Max:
		return operands == 2
	case op >= wasmbin.OpI32TruncF32S && op <= wasmbin.OpI32TruncF64U,
		op >= wasmbin.OpI64TruncF32S && op <= wasmbin.OpI64TruncF64U,
		op >= wasmbin.OpI32TruncSatF32S && op <= wasmbin.OpI64TruncSatF64U:
		return operands == 1
	}
	_, ok := makesNaN(op)
	return ok && operands == 1
}

// readByArithmetic tells whether the topmost value is next read, and only read,
// by an operator that does not show its bits: the one that comes next, or the
// one behind another operand that is simply pushed.
func readByArithmetic(next []wasmbin.Instr) bool {
	if len(next) < 2 {
		return false
	}
	switch next[0].Op {
	case wasmbin.OpLocalGet, wasmbin.OpGlobalGet, wasmbin.OpF32Const, wasmbin.OpF64Const:
		return readsNumber(next[1].Op, 2)
	}
	return readsNumber(next[0].Op, 1) || readsNumber(next[0].Op, 2)
}

// weightShare is how many values a unit of weight stands for.
const weightShare = 32768 / 16

// weight returns what a call of a function with so many values adds to the
// depth.
func (r *rewriter) weight(values int) int32 {
	// A weight beyond the limit says no more than one just beyond it.
	return int32(min(1+int64(values)/weightShare, int64(r.limit)+1))
}
