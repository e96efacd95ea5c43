package reference

import (
	"math"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// nanPath makes a float that is mostly a NaN, takes it along a few of the ways
// that a value can go, and uses its bits.
func (g *generator) nanPath(depth int) {
	t := pick(g, []wasmbin.ValType{wasmbin.F32, wasmbin.F64})
	g.nan(t)
	for range 1 + g.IntN(4) {
		t = g.way(t, depth)
	}
	g.observe(t)
}

// payload pushes a NaN that is not canonical, or an infinity or a zero that
// makes one.
func (g *generator) payload(t wasmbin.ValType) {
	v := pick(g, []uint64{0x7FA12345, 0xFFC54321, 0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0x7F800000, 0xFF800000, 0, 1 << 31})
	if t == wasmbin.F32 {
		g.instr(wasmbin.Instr{Op: wasmbin.OpF32Const, B: v})
		return
	}
	g.instr(wasmbin.Instr{Op: wasmbin.OpF64Const, B: pick(g, []uint64{
		0x7FF4000000012345, 0xFFF8000000054321, 0xFFF8000000000000, 0x7FF0000000000001, math.MaxInt64,
		0x7FF0000000000000, 0xFFF0000000000000, 0, 1 << 63,
	})})
}

func isF32(t wasmbin.ValType) bool { return t == wasmbin.F32 }

// of returns the operator of the type, given that for F32 and that for F64.
func of(t wasmbin.ValType, f32, f64 wasmbin.Op) wasmbin.Op {
	if isF32(t) {
		return f32
	}
	return f64
}

// nan pushes a float that is mostly a NaN: one that was moved, or one that
// arithmetic has made.
func (g *generator) nan(t wasmbin.ValType) {
	switch g.IntN(7) {
	case 0:
		g.payload(t)
	case 1:
		at := g.IntN(1000)
		g.i32(at)
		g.payload(t)
		g.emit(of(t, wasmbin.OpF32Store, wasmbin.OpF64Store))
		g.i32(at)
		g.emit(of(t, wasmbin.OpF32Load, wasmbin.OpF64Load))
	case 2:
		g.value(pick(g, []wasmbin.ValType{t, t}), 0)
	case 3:
		g.payload(t)
		g.unary(t)
	case 4:
		other := wasmbin.F32
		if isF32(t) {
			other = wasmbin.F64
		}
		g.payload(other)
		g.emit(of(t, wasmbin.OpF32DemoteF64, wasmbin.OpF64PromoteF32))
	case 5:
		if isF32(t) {
			g.i32(0x7FC00001)
			g.emit(wasmbin.OpF32ReinterpretI32)
		} else {
			g.instr(wasmbin.Instr{Op: wasmbin.OpI64Const, B: 0xFFF8000000000077})
			g.emit(wasmbin.OpF64ReinterpretI64)
		}
	default:
		g.payload(t)
		g.payload(t)
		g.binary(t)
	}
}

// unary and binary emit arithmetic that makes NaNs.
func (g *generator) unary(t wasmbin.ValType) {
	g.emit(of(t, wasmbin.OpF32Ceil, wasmbin.OpF64Ceil) + wasmbin.Op(g.IntN(5)))
}

func (g *generator) binary(t wasmbin.ValType) {
	g.emit(of(t, wasmbin.OpF32Add, wasmbin.OpF64Add) + wasmbin.Op(g.IntN(6)))
}

// way takes the topmost value along one way, and returns its type at the end.
func (g *generator) way(t wasmbin.ValType, depth int) wasmbin.ValType {
	one := []wasmbin.ValType{t}
	l := g.local(t, true)
	switch g.IntN(18) {
	case 0:
		g.index(wasmbin.OpLocalSet, l)
		g.index(wasmbin.OpLocalGet, l)
	case 1:
		g.index(wasmbin.OpLocalTee, l)
	case 2: // a local that holds what is loaded and what is computed, by turns
		c, n := g.counter(), 1+g.IntN(4)
		g.index(wasmbin.OpLocalSet, l)
		g.enter(wasmbin.OpLoop, nil, nil)
		g.index(wasmbin.OpLocalGet, c)
		g.i32(1)
		g.emit(wasmbin.OpI32And)
		g.enter(wasmbin.OpIf, nil, nil)
		g.i32(g.IntN(1000))
		g.emit(of(t, wasmbin.OpF32Load, wasmbin.OpF64Load))
		g.index(wasmbin.OpLocalSet, l)
		g.emit(wasmbin.OpElse)
		g.index(wasmbin.OpLocalGet, l)
		g.payload(t)
		g.binary(t)
		g.index(wasmbin.OpLocalSet, l)
		g.leave()
		g.again(c, n)
		g.index(wasmbin.OpBrIf, 0)
		g.leave()
		g.index(wasmbin.OpLocalGet, l)
	case 3:
		g.nan(t)
		g.value(wasmbin.I32, 0)
		if g.chance(50) {
			g.emit(wasmbin.OpSelect)
		} else {
			g.index(wasmbin.OpSelectT, uint32(t))
		}
	case 4:
		g.enter(wasmbin.OpBlock, one, one)
		if g.chance(50) {
			g.unary(t)
		}
		g.leave()
	case 5:
		c, n := g.counter(), g.IntN(4)
		g.enter(wasmbin.OpLoop, one, one)
		g.payload(t)
		g.binary(t)
		g.again(c, n)
		g.index(wasmbin.OpBrIf, 0)
		g.leave()
	case 6:
		g.enter(wasmbin.OpBlock, one, one)
		g.unary(t)
		g.value(wasmbin.I32, 0)
		g.index(wasmbin.OpBrIf, 0)
		g.payload(t)
		g.binary(t)
		g.leave()
	case 7:
		g.enter(wasmbin.OpBlock, one, one)
		g.enter(wasmbin.OpBlock, one, one)
		g.unary(t)
		g.value(wasmbin.I32, 0)
		g.table(0, 1, 0)
		g.leave()
		g.unary(t)
		g.leave()
	case 8:
		g.index(wasmbin.OpLocalSet, l)
		g.index(wasmbin.OpLocalGet, l)
		g.value(wasmbin.I32, 0)
		g.enter(wasmbin.OpIf, one, one)
		g.payload(t)
		g.binary(t)
		if g.chance(50) {
			g.emit(wasmbin.OpElse)
			g.unary(t)
		}
		g.leave()
	case 9:
		for i, global := range g.globals {
			if global.Type == t && global.Mutable {
				g.index(wasmbin.OpGlobalSet, uint32(i))
				g.index(wasmbin.OpGlobalGet, uint32(i))
				break
			}
		}
	case 10:
		at := g.IntN(1000)
		g.index(wasmbin.OpLocalSet, l)
		g.i32(at)
		g.index(wasmbin.OpLocalGet, l)
		g.emit(of(t, wasmbin.OpF32Store, wasmbin.OpF64Store))
		g.i32(at)
		g.emit(of(t, wasmbin.OpF32Load, wasmbin.OpF64Load))
	case 11:
		g.emit(of(t, wasmbin.OpF32Abs, wasmbin.OpF64Abs) + wasmbin.Op(g.IntN(2)))
	case 12:
		g.nan(t)
		g.emit(of(t, wasmbin.OpF32Copysign, wasmbin.OpF64Copysign))
	case 13:
		g.emit(of(t, wasmbin.OpF64PromoteF32, wasmbin.OpF32DemoteF64))
		if isF32(t) {
			return wasmbin.F64
		}
		return wasmbin.F32
	case 14:
		g.unary(t)
	case 15:
		g.nan(t)
		g.binary(t)
	case 16:
		g.index(wasmbin.OpLocalSet, l)
		g.argument(t, l, depth)
		g.index(wasmbin.OpLocalGet, l)
	case 17: // the values of the function, by a way that is seldom taken
		g.index(wasmbin.OpLocalSet, l)
		g.value(wasmbin.I32, 0)
		g.i32(g.IntN(4))
		g.emit(wasmbin.OpI32Eq)
		g.enter(wasmbin.OpIf, nil, nil)
		g.with(g.labels[0].types, t, l)
		g.emit(wasmbin.OpReturn)
		g.leave()
		g.index(wasmbin.OpLocalGet, l)
	}
	return t
}

// with pushes values of the types, from the local where the type is t.
func (g *generator) with(types []wasmbin.ValType, t wasmbin.ValType, local uint32) {
	for _, p := range types {
		if p == t {
			g.index(wasmbin.OpLocalGet, local)
			if g.chance(50) {
				g.unary(t)
			}
		} else {
			g.value(p, 0)
		}
	}
}

// argument calls a function that takes a value of type t with a local's, if
// there is one.
func (g *generator) argument(t wasmbin.ValType, local uint32, depth int) {
	for range 8 {
		f := g.anyFunc()
		callee := g.m.Types[g.funcs[f]]
		if !g.mayCall(f) || int(f) >= g.self && g.chance(90) {
			continue
		}
		for _, p := range callee.Params {
			if p == t {
				g.with(callee.Params, t, local)
				g.invoke(f)
				g.consume(callee.Results)
				return
			}
		}
	}
}

// observe consumes a value in a way that uses its bits, or does not.
func (g *generator) observe(t wasmbin.ValType) {
	l := g.local(t, true)
	switch g.IntN(5) {
	case 0:
		g.emit(of(t, wasmbin.OpI32ReinterpretF32, wasmbin.OpI64ReinterpretF64))
		bits := wasmbin.I64
		if isF32(t) {
			bits = wasmbin.I32
		}
		g.index(wasmbin.OpLocalSet, g.local(bits, true))
	case 1:
		g.index(wasmbin.OpLocalSet, l)
		g.i32(g.IntN(1000))
		g.index(wasmbin.OpLocalGet, l)
		if g.chance(50) {
			g.unary(t)
		}
		g.emit(of(t, wasmbin.OpF32Store, wasmbin.OpF64Store))
	case 2:
		g.index(wasmbin.OpLocalSet, l)
	case 3:
		g.payload(t)
		g.emit(of(t, wasmbin.OpF32Lt, wasmbin.OpF64Lt))
		g.emit(wasmbin.OpDrop)
	case 4:
		for i, global := range g.globals {
			if global.Type == t && global.Mutable {
				g.index(wasmbin.OpGlobalSet, uint32(i))
				return
			}
		}
		g.index(wasmbin.OpLocalSet, l)
	}
}
