package fuel

import (
	"fmt"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

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

// weight returns what a call of the module's own function i adds to the depth:
// native frames grow with the values that a body holds, of which it makes at
// most one an instruction and one a local. Instructions that make several at
// once count for each of them.
func (r *rewriter) weight(i int) (int32, error) {
	c := &r.in.Code[i]
	values := int64(len(c.Body)) + int64(c.NumLocals()) + int64(len(r.in.Types[r.in.Funcs[i]].Params))
	for _, in := range c.Body {
		switch in.Op {
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			if t, ok := in.BlockType().Index(); ok {
				if int64(t) >= int64(len(r.in.Types)) {
					return 0, fmt.Errorf("%s: type %d out of range", in.Op, t)
				}
				values += int64(len(r.in.Types[t].Params)) + further(r.in.Types[t].Results)
			}
		case wasmbin.OpCall:
			if int64(in.A) >= int64(len(r.funcs)) {
				return 0, fmt.Errorf("call: function %d out of range", in.A)
			}
			values += further(r.in.Types[r.funcs[in.A]].Results)
		case wasmbin.OpCallIndirect:
			if int64(in.A) >= int64(len(r.in.Types)) {
				return 0, fmt.Errorf("call_indirect: type %d out of range", in.A)
			}
			values += further(r.in.Types[in.A].Results)
		}
	}
	return int32(min(1+16*values/32768, int64(r.limit)+1)), nil
}

func further(results []wasmbin.ValType) int64 { return max(0, int64(len(results))-1) }
