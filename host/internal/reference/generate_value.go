package reference

import "github.com/droverhq/drover/host/internal/wasmbin"

// value pushes one value of type t.
func (g *generator) value(t wasmbin.ValType, depth int) {
	if t.IsRef() {
		g.index(wasmbin.OpRefFunc, g.anyFunc())
		return
	}
	if depth <= 0 || g.budget <= 0 {
		if g.chance(50) {
			g.instr(g.constant(t))
		} else {
			g.index(wasmbin.OpLocalGet, g.local(t, false))
		}
		return
	}
	depth--
	switch g.IntN(14) {
	case 0:
		g.instr(g.constant(t))
	case 1:
		g.index(wasmbin.OpLocalGet, g.local(t, false))
	case 2:
		g.value(t, depth)
		g.index(wasmbin.OpLocalTee, g.local(t, true))
	case 3:
		for i, global := range g.globals {
			if global.Type == t {
				g.index(wasmbin.OpGlobalGet, uint32(i))
				return
			}
		}
		g.instr(g.constant(t))
	case 4:
		g.values([]wasmbin.ValType{t, t, wasmbin.I32}, depth)
		if g.chance(50) {
			g.emit(wasmbin.OpSelect)
		} else {
			g.index(wasmbin.OpSelectT, uint32(t))
		}
	case 5:
		g.block([]wasmbin.ValType{t}, depth)
	case 6:
		g.address(depth)
		g.instr(wasmbin.Instr{Op: pick(g, loads[t]), B: uint64(g.IntN(40))})
	case 7:
		for range 6 {
			f := g.anyFunc()
			callee := g.m.Types[g.funcs[f]]
			if len(callee.Results) == 1 && callee.Results[0] == t && g.mayCall(f) && (int(f) < g.self || g.chance(20)) {
				g.values(callee.Params, depth)
				g.invoke(f)
				return
			}
		}
		g.instr(g.constant(t))
	case 8, 9:
		g.conversion(t, depth)
	default:
		g.arithmetic(t, depth)
	}
}

var loads = map[wasmbin.ValType][]wasmbin.Op{
	wasmbin.I32: {wasmbin.OpI32Load, wasmbin.OpI32Load8S, wasmbin.OpI32Load8U, wasmbin.OpI32Load16S, wasmbin.OpI32Load16U},
	wasmbin.I64: {wasmbin.OpI64Load, wasmbin.OpI64Load8S, wasmbin.OpI64Load8U, wasmbin.OpI64Load16S, wasmbin.OpI64Load16U, wasmbin.OpI64Load32S, wasmbin.OpI64Load32U},
	wasmbin.F32: {wasmbin.OpF32Load},
	wasmbin.F64: {wasmbin.OpF64Load},
}

// A conversion's operand is of the given type. Those that trap are seldom used.
type conversion struct {
	op   wasmbin.Op
	from wasmbin.ValType
	rare bool
}

var conversions = map[wasmbin.ValType][]conversion{
	wasmbin.I32: {
		{wasmbin.OpI32WrapI64, wasmbin.I64, false}, {wasmbin.OpI32ReinterpretF32, wasmbin.F32, false},
		{wasmbin.OpI32Extend8S, wasmbin.I32, false}, {wasmbin.OpI32Extend16S, wasmbin.I32, false},
		{wasmbin.OpI32TruncSatF32S, wasmbin.F32, false}, {wasmbin.OpI32TruncSatF32U, wasmbin.F32, false},
		{wasmbin.OpI32TruncSatF64S, wasmbin.F64, false}, {wasmbin.OpI32TruncSatF64U, wasmbin.F64, false},
		{wasmbin.OpI32TruncF32S, wasmbin.F32, true}, {wasmbin.OpI32TruncF32U, wasmbin.F32, true},
		{wasmbin.OpI32TruncF64S, wasmbin.F64, true}, {wasmbin.OpI32TruncF64U, wasmbin.F64, true},
		{wasmbin.OpI32Eqz, wasmbin.I32, false}, {wasmbin.OpI64Eqz, wasmbin.I64, false},
		{wasmbin.OpRefIsNull, wasmbin.FuncRef, false},
	},
	wasmbin.I64: {
		{wasmbin.OpI64ExtendI32S, wasmbin.I32, false}, {wasmbin.OpI64ExtendI32U, wasmbin.I32, false},
		{wasmbin.OpI64ReinterpretF64, wasmbin.F64, false}, {wasmbin.OpI64Extend8S, wasmbin.I64, false},
		{wasmbin.OpI64Extend16S, wasmbin.I64, false}, {wasmbin.OpI64Extend32S, wasmbin.I64, false},
		{wasmbin.OpI64TruncSatF32S, wasmbin.F32, false}, {wasmbin.OpI64TruncSatF32U, wasmbin.F32, false},
		{wasmbin.OpI64TruncSatF64S, wasmbin.F64, false}, {wasmbin.OpI64TruncSatF64U, wasmbin.F64, false},
		{wasmbin.OpI64TruncF32S, wasmbin.F32, true}, {wasmbin.OpI64TruncF32U, wasmbin.F32, true},
		{wasmbin.OpI64TruncF64S, wasmbin.F64, true}, {wasmbin.OpI64TruncF64U, wasmbin.F64, true},
	},
	wasmbin.F32: {
		{wasmbin.OpF32ConvertI32S, wasmbin.I32, false}, {wasmbin.OpF32ConvertI32U, wasmbin.I32, false},
		{wasmbin.OpF32ConvertI64S, wasmbin.I64, false}, {wasmbin.OpF32ConvertI64U, wasmbin.I64, false},
		{wasmbin.OpF32DemoteF64, wasmbin.F64, false}, {wasmbin.OpF32ReinterpretI32, wasmbin.I32, false},
	},
	wasmbin.F64: {
		{wasmbin.OpF64ConvertI32S, wasmbin.I32, false}, {wasmbin.OpF64ConvertI32U, wasmbin.I32, false},
		{wasmbin.OpF64ConvertI64S, wasmbin.I64, false}, {wasmbin.OpF64ConvertI64U, wasmbin.I64, false},
		{wasmbin.OpF64PromoteF32, wasmbin.F32, false}, {wasmbin.OpF64ReinterpretI64, wasmbin.I64, false},
	},
}

func (g *generator) conversion(t wasmbin.ValType, depth int) {
	c := pick(g, conversions[t])
	if c.rare && g.chance(80) {
		c = conversions[t][0]
	}
	g.value(c.from, depth)
	g.emit(c.op)
}

func (g *generator) arithmetic(t wasmbin.ValType, depth int) {
	between := func(first, last wasmbin.Op) wasmbin.Op { return first + wasmbin.Op(g.IntN(int(last-first)+1)) }
	unary := func(first, last wasmbin.Op) {
		g.value(t, depth)
		g.emit(between(first, last))
	}
	binary := func(operand wasmbin.ValType, op wasmbin.Op) {
		g.values([]wasmbin.ValType{operand, operand}, depth)
		g.emit(op)
	}
	switch t {
	case wasmbin.I32:
		switch g.IntN(8) {
		case 0:
			unary(wasmbin.OpI32Clz, wasmbin.OpI32Popcnt)
		case 1:
			binary(wasmbin.I32, between(wasmbin.OpI32Eq, wasmbin.OpI32GeU))
		case 2:
			binary(wasmbin.I64, between(wasmbin.OpI64Eq, wasmbin.OpI64GeU))
		case 3:
			binary(wasmbin.F32, between(wasmbin.OpF32Eq, wasmbin.OpF32Ge))
		case 4:
			binary(wasmbin.F64, between(wasmbin.OpF64Eq, wasmbin.OpF64Ge))
		case 5:
			if g.chance(50) {
				g.emit(wasmbin.OpMemorySize)
			} else {
				g.index(wasmbin.OpTableSize, g.Uint32N(3))
			}
		default:
			g.integer(t, wasmbin.OpI32Add, wasmbin.OpI32DivS, depth)
		}
	case wasmbin.I64:
		if g.chance(15) {
			unary(wasmbin.OpI64Clz, wasmbin.OpI64Popcnt)
		} else {
			g.integer(t, wasmbin.OpI64Add, wasmbin.OpI64DivS, depth)
		}
	case wasmbin.F32:
		if g.chance(35) {
			unary(wasmbin.OpF32Abs, wasmbin.OpF32Sqrt)
		} else {
			binary(t, between(wasmbin.OpF32Add, wasmbin.OpF32Copysign))
		}
	case wasmbin.F64:
		if g.chance(35) {
			unary(wasmbin.OpF64Abs, wasmbin.OpF64Sqrt)
		} else {
			binary(t, between(wasmbin.OpF64Add, wasmbin.OpF64Copysign))
		}
	}
}

// integer emits one of the fifteen binary operators from add on; most divisors
// are odd, so that most divisions go well.
func (g *generator) integer(t wasmbin.ValType, add, divS wasmbin.Op, depth int) {
	op := add + wasmbin.Op(g.IntN(15))
	g.values([]wasmbin.ValType{t, t}, depth)
	if op >= divS && op < divS+4 && g.chance(90) {
		one, or := wasmbin.Instr{Op: wasmbin.OpI32Const, B: 1}, wasmbin.OpI32Or
		if t == wasmbin.I64 {
			one.Op, or = wasmbin.OpI64Const, wasmbin.OpI64Or
		}
		g.instr(one)
		g.emit(or)
	}
	g.emit(op)
}
