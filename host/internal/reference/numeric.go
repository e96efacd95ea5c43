package reference

import (
	"math"
	"math/bits"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

const (
	nan32 = 0x7FC00000
	nan64 = 0x7FF8000000000000
)

func f32(v uint64) float32 { return math.Float32frombits(uint32(v)) }
func f64(v uint64) float64 { return math.Float64frombits(v) }

// arith32 and arith64 are for results of arithmetic: NaNs are canonical (spec
// 1.3, Determinism).
func arith32(f float32) uint64 {
	if f != f {
		return nan32
	}
	return uint64(math.Float32bits(f))
}

func arith64(f float64) uint64 {
	if f != f {
		return nan64
	}
	return math.Float64bits(f)
}

// numeric executes an operator that only computes.
func (x *Machine) numeric(op wasmbin.Op) {
	switch {
	case op == wasmbin.OpI32Eqz:
		x.push(truth(x.pop32() == 0))
	case op >= wasmbin.OpI32Eq && op <= wasmbin.OpI32GeU:
		b, a := uint32(x.pop()), uint32(x.pop())
		x.push(truth(compare(int(op-wasmbin.OpI32Eq), int64(int32(a)), int64(int32(b)), uint64(a), uint64(b))))
	case op == wasmbin.OpI64Eqz:
		x.push(truth(x.pop() == 0))
	case op >= wasmbin.OpI64Eq && op <= wasmbin.OpI64GeU:
		b, a := x.pop(), x.pop()
		x.push(truth(compare(int(op-wasmbin.OpI64Eq), int64(a), int64(b), a, b)))
	case op >= wasmbin.OpF32Eq && op <= wasmbin.OpF32Ge:
		b, a := f32(x.pop()), f32(x.pop())
		x.push(truth(compareFloat(int(op-wasmbin.OpF32Eq), float64(a), float64(b))))
	case op >= wasmbin.OpF64Eq && op <= wasmbin.OpF64Ge:
		b, a := f64(x.pop()), f64(x.pop())
		x.push(truth(compareFloat(int(op-wasmbin.OpF64Eq), a, b)))
	case op >= wasmbin.OpI32Clz && op <= wasmbin.OpI32Popcnt:
		a := uint32(x.pop())
		x.push(uint64([]int{bits.LeadingZeros32(a), bits.TrailingZeros32(a), bits.OnesCount32(a)}[op-wasmbin.OpI32Clz]))
	case op >= wasmbin.OpI64Clz && op <= wasmbin.OpI64Popcnt:
		a := x.pop()
		x.push(uint64([]int{bits.LeadingZeros64(a), bits.TrailingZeros64(a), bits.OnesCount64(a)}[op-wasmbin.OpI64Clz]))
	case op >= wasmbin.OpI32Add && op <= wasmbin.OpI32Rotr:
		b, a := uint32(x.pop()), uint32(x.pop())
		x.push(uint64(binary32(op, a, b)))
	case op >= wasmbin.OpI64Add && op <= wasmbin.OpI64Rotr:
		b, a := x.pop(), x.pop()
		x.push(binary64(op, a, b))
	case op >= wasmbin.OpF32Abs && op <= wasmbin.OpF32Sqrt:
		x.push(unaryF32(op, x.pop32()))
	case op >= wasmbin.OpF64Abs && op <= wasmbin.OpF64Sqrt:
		x.push(unaryF64(op, x.pop()))
	case op >= wasmbin.OpF32Add && op <= wasmbin.OpF32Copysign:
		b, a := x.pop32(), x.pop32()
		x.push(binaryF32(op, a, b))
	case op >= wasmbin.OpF64Add && op <= wasmbin.OpF64Copysign:
		b, a := x.pop(), x.pop()
		x.push(binaryF64(op, a, b))
	default:
		x.push(convert(op, x.pop()))
	}
	switch top := x.stack[len(x.stack)-1]; {
	case op >= wasmbin.OpF32Ceil && op <= wasmbin.OpF32Max, op == wasmbin.OpF32DemoteF64:
		x.MadeNaN = x.MadeNaN || top == nan32
	case op >= wasmbin.OpF64Ceil && op <= wasmbin.OpF64Max, op == wasmbin.OpF64PromoteF32:
		x.MadeNaN = x.MadeNaN || top == nan64
	}
}

// compare does eq, ne, lt_s, lt_u, gt_s, gt_u, le_s, le_u, ge_s, ge_u.
func compare(which int, sa, sb int64, ua, ub uint64) bool {
	switch which {
	case 0:
		return ua == ub
	case 1:
		return ua != ub
	case 2:
		return sa < sb
	case 3:
		return ua < ub
	case 4:
		return sa > sb
	case 5:
		return ua > ub
	case 6:
		return sa <= sb
	case 7:
		return ua <= ub
	case 8:
		return sa >= sb
	}
	return ua >= ub
}

// compareFloat does eq, ne, lt, gt, le, ge.
func compareFloat(which int, a, b float64) bool {
	switch which {
	case 0:
		return a == b
	case 1:
		return a != b
	case 2:
		return a < b
	case 3:
		return a > b
	case 4:
		return a <= b
	}
	return a >= b
}

func binary32(op wasmbin.Op, a, b uint32) uint32 {
	switch op {
	case wasmbin.OpI32Add:
		return a + b
	case wasmbin.OpI32Sub:
		return a - b
	case wasmbin.OpI32Mul:
		return a * b
	case wasmbin.OpI32DivS, wasmbin.OpI32DivU, wasmbin.OpI32RemS, wasmbin.OpI32RemU:
		if b == 0 {
			panic(TrapDivideByZero)
		}
		sa, sb := int64(int32(a)), int64(int32(b))
		switch op {
		case wasmbin.OpI32DivS:
			if sa/sb == 1<<31 {
				panic(TrapOverflow)
			}
			return uint32(sa / sb)
		case wasmbin.OpI32DivU:
			return a / b
		case wasmbin.OpI32RemS:
			return uint32(sa % sb)
		}
		return a % b
	case wasmbin.OpI32And:
		return a & b
	case wasmbin.OpI32Or:
		return a | b
	case wasmbin.OpI32Xor:
		return a ^ b
	case wasmbin.OpI32Shl:
		return a << (b % 32)
	case wasmbin.OpI32ShrS:
		return uint32(int32(a) >> (b % 32))
	case wasmbin.OpI32ShrU:
		return a >> (b % 32)
	case wasmbin.OpI32Rotl:
		return bits.RotateLeft32(a, int(b%32))
	}
	return bits.RotateLeft32(a, -int(b%32))
}

func binary64(op wasmbin.Op, a, b uint64) uint64 {
	switch op {
	case wasmbin.OpI64Add:
		return a + b
	case wasmbin.OpI64Sub:
		return a - b
	case wasmbin.OpI64Mul:
		return a * b
	case wasmbin.OpI64DivS, wasmbin.OpI64DivU, wasmbin.OpI64RemS, wasmbin.OpI64RemU:
		if b == 0 {
			panic(TrapDivideByZero)
		}
		switch op {
		case wasmbin.OpI64DivS:
			if a == 1<<63 && b == math.MaxUint64 {
				panic(TrapOverflow)
			}
			return uint64(int64(a) / int64(b))
		case wasmbin.OpI64DivU:
			return a / b
		case wasmbin.OpI64RemS:
			if b == math.MaxUint64 {
				return 0
			}
			return uint64(int64(a) % int64(b))
		}
		return a % b
	case wasmbin.OpI64And:
		return a & b
	case wasmbin.OpI64Or:
		return a | b
	case wasmbin.OpI64Xor:
		return a ^ b
	case wasmbin.OpI64Shl:
		return a << (b % 64)
	case wasmbin.OpI64ShrS:
		return uint64(int64(a) >> (b % 64))
	case wasmbin.OpI64ShrU:
		return a >> (b % 64)
	case wasmbin.OpI64Rotl:
		return bits.RotateLeft64(a, int(b%64))
	}
	return bits.RotateLeft64(a, -int(b%64))
}

func unaryF32(op wasmbin.Op, v uint64) uint64 {
	switch op {
	case wasmbin.OpF32Abs:
		return v &^ (1 << 31)
	case wasmbin.OpF32Neg:
		return v ^ 1<<31
	}
	// Rounding and roots of a float32 are exact by way of float64.
	return arith32(float32(round(int(op-wasmbin.OpF32Ceil), float64(f32(v)))))
}

func unaryF64(op wasmbin.Op, v uint64) uint64 {
	switch op {
	case wasmbin.OpF64Abs:
		return v &^ (1 << 63)
	case wasmbin.OpF64Neg:
		return v ^ 1<<63
	}
	return arith64(round(int(op-wasmbin.OpF64Ceil), f64(v)))
}

// round does ceil, floor, trunc, nearest, sqrt.
func round(which int, f float64) float64 {
	switch which {
	case 0:
		return math.Ceil(f)
	case 1:
		return math.Floor(f)
	case 2:
		return math.Trunc(f)
	case 3:
		return math.RoundToEven(f)
	}
	return math.Sqrt(f)
}

func binaryF32(op wasmbin.Op, a, b uint64) uint64 {
	fa, fb := f32(a), f32(b)
	switch op {
	case wasmbin.OpF32Add:
		return arith32(fa + fb)
	case wasmbin.OpF32Sub:
		return arith32(fa - fb)
	case wasmbin.OpF32Mul:
		return arith32(fa * fb)
	case wasmbin.OpF32Div:
		return arith32(fa / fb)
	case wasmbin.OpF32Min:
		return arith32(float32(smaller(float64(fa), float64(fb))))
	case wasmbin.OpF32Max:
		return arith32(float32(larger(float64(fa), float64(fb))))
	}
	return a&^(1<<31) | b&(1<<31)
}

func binaryF64(op wasmbin.Op, a, b uint64) uint64 {
	fa, fb := f64(a), f64(b)
	switch op {
	case wasmbin.OpF64Add:
		return arith64(fa + fb)
	case wasmbin.OpF64Sub:
		return arith64(fa - fb)
	case wasmbin.OpF64Mul:
		return arith64(fa * fb)
	case wasmbin.OpF64Div:
		return arith64(fa / fb)
	case wasmbin.OpF64Min:
		return arith64(smaller(fa, fb))
	case wasmbin.OpF64Max:
		return arith64(larger(fa, fb))
	}
	return a&^(1<<63) | b&(1<<63)
}

// smaller and larger let a NaN win, even over an infinity, unlike math.Min.
func smaller(a, b float64) float64 {
	if a != a || b != b {
		return math.NaN()
	}
	return math.Min(a, b)
}

func larger(a, b float64) float64 {
	if a != a || b != b {
		return math.NaN()
	}
	return math.Max(a, b)
}

func convert(op wasmbin.Op, v uint64) uint64 {
	switch op {
	case wasmbin.OpI32WrapI64, wasmbin.OpI64ExtendI32U, wasmbin.OpI32ReinterpretF32, wasmbin.OpF32ReinterpretI32:
		return uint64(uint32(v))
	case wasmbin.OpI64ReinterpretF64, wasmbin.OpF64ReinterpretI64:
		return v
	case wasmbin.OpI64ExtendI32S, wasmbin.OpI64Extend32S:
		return uint64(int32(v))
	case wasmbin.OpI32Extend8S:
		return uint64(uint32(int8(v)))
	case wasmbin.OpI32Extend16S:
		return uint64(uint32(int16(v)))
	case wasmbin.OpI64Extend8S:
		return uint64(int8(v))
	case wasmbin.OpI64Extend16S:
		return uint64(int16(v))
	case wasmbin.OpF32ConvertI32S:
		return uint64(math.Float32bits(float32(int32(v))))
	case wasmbin.OpF32ConvertI32U:
		return uint64(math.Float32bits(float32(uint32(v))))
	case wasmbin.OpF32ConvertI64S:
		return uint64(math.Float32bits(float32(int64(v))))
	case wasmbin.OpF32ConvertI64U:
		return uint64(math.Float32bits(float32(v)))
	case wasmbin.OpF64ConvertI32S:
		return math.Float64bits(float64(int32(v)))
	case wasmbin.OpF64ConvertI32U:
		return math.Float64bits(float64(uint32(v)))
	case wasmbin.OpF64ConvertI64S:
		return math.Float64bits(float64(int64(v)))
	case wasmbin.OpF64ConvertI64U:
		return math.Float64bits(float64(v))
	case wasmbin.OpF32DemoteF64:
		return arith32(float32(f64(v)))
	case wasmbin.OpF64PromoteF32:
		return arith64(float64(f32(v)))
	}
	return truncate(op, v)
}

// truncation describes a conversion to an integer: the exclusive bounds that the
// truncated value lies in, and what saturates to.
type truncation struct {
	from64, to64, signed, saturates bool
}

var truncations = map[wasmbin.Op]truncation{
	wasmbin.OpI32TruncF32S: {false, false, true, false}, wasmbin.OpI32TruncF32U: {false, false, false, false},
	wasmbin.OpI32TruncF64S: {true, false, true, false}, wasmbin.OpI32TruncF64U: {true, false, false, false},
	wasmbin.OpI64TruncF32S: {false, true, true, false}, wasmbin.OpI64TruncF32U: {false, true, false, false},
	wasmbin.OpI64TruncF64S: {true, true, true, false}, wasmbin.OpI64TruncF64U: {true, true, false, false},
	wasmbin.OpI32TruncSatF32S: {false, false, true, true}, wasmbin.OpI32TruncSatF32U: {false, false, false, true},
	wasmbin.OpI32TruncSatF64S: {true, false, true, true}, wasmbin.OpI32TruncSatF64U: {true, false, false, true},
	wasmbin.OpI64TruncSatF32S: {false, true, true, true}, wasmbin.OpI64TruncSatF32U: {false, true, false, true},
	wasmbin.OpI64TruncSatF64S: {true, true, true, true}, wasmbin.OpI64TruncSatF64U: {true, true, false, true},
}

func truncate(op wasmbin.Op, v uint64) uint64 {
	t, ok := truncations[op]
	if !ok {
		panic("reference: no such operator: " + op.String())
	}
	f := float64(f32(v))
	if t.from64 {
		f = f64(v)
	}
	width := 32
	if t.to64 {
		width = 64
	}
	mask := uint64(math.MaxUint64) >> (64 - width)
	if f != f {
		if t.saturates {
			return 0
		}
		panic(TrapConversion)
	}
	f = math.Trunc(f)
	lowest, beyond := 0.0, math.Ldexp(1, width)
	least, most := uint64(0), mask
	if t.signed {
		lowest, beyond = -math.Ldexp(1, width-1), math.Ldexp(1, width-1)
		least, most = 1<<(width-1), mask>>1
	}
	if f < lowest || f >= beyond {
		switch {
		case !t.saturates:
			panic(TrapOverflow)
		case f < lowest:
			return least
		}
		return most
	}
	if f < 0 {
		return uint64(int64(f)) & mask
	}
	return uint64(f) & mask
}
