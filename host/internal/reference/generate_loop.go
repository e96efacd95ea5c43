package reference

import (
	"slices"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// The statements of this file are shapes that random ones hardly ever take:
// loops with many ways back, by every kind of branch, with values and without,
// and code too long to be metered in one go.

// counter returns a new local that only the loop it is for sets, at zero.
func (g *generator) counter() uint32 {
	c := uint32(len(g.locals))
	g.locals = append(g.locals, wasmbin.I32)
	g.fixed[int(c)] = true
	g.i32(0)
	g.index(wasmbin.OpLocalSet, c)
	return c
}

// again pushes whether a counter, one more than before, is below n.
func (g *generator) again(counter uint32, n int) {
	g.index(wasmbin.OpLocalGet, counter)
	g.i32(1)
	g.emit(wasmbin.OpI32Add)
	g.index(wasmbin.OpLocalTee, counter)
	g.i32(n)
	g.emit(wasmbin.OpI32LtU)
}

// enter opens a block, loop or if, and leave ends it.
func (g *generator) enter(op wasmbin.Op, params, results []wasmbin.ValType) {
	label := genLabel{types: results, loop: op == wasmbin.OpLoop}
	if label.loop {
		label.types = params
	}
	g.instr(wasmbin.Instr{Op: op, B: g.blockType(params, results)})
	g.labels = append(g.labels, label)
}

func (g *generator) leave() {
	g.labels = g.labels[:len(g.labels)-1]
	g.emit(wasmbin.OpEnd)
}

// table emits a br_table.
func (g *generator) table(labels ...uint32) {
	g.instr(wasmbin.Instr{Op: wasmbin.OpBrTable, A: uint32(len(g.targets)), B: uint64(len(labels))})
	g.targets = append(g.targets, labels...)
}

// outermost returns the label of the function, if it takes the types.
func (g *generator) outermost(types []wasmbin.ValType) (uint32, bool) {
	return uint32(len(g.labels) - 1), slices.Equal(g.labels[0].types, types)
}

// loops emits a loop with several ways back.
func (g *generator) loops(depth int) {
	switch g.IntN(4) {
	case 0:
		g.manyBacks(depth)
	case 1:
		g.dispatch(depth)
	case 2:
		g.nest(1+g.IntN(4), depth)
	case 3:
		g.backsWithValues(depth)
	}
}

// manyBacks is a loop that is jumped back to from up to nine places.
func (g *generator) manyBacks(depth int) {
	c, n := g.counter(), g.IntN(30)
	g.enter(wasmbin.OpLoop, nil, nil)
	for range 1 + g.IntN(9) {
		if g.chance(30) {
			g.statements(depth)
		}
		g.again(c, n)
		switch g.IntN(4) {
		case 0:
			g.index(wasmbin.OpBrIf, 0)
		case 1:
			g.value(wasmbin.I32, depth-1)
			g.emit(wasmbin.OpI32And)
			g.index(wasmbin.OpBrIf, 0)
		case 2:
			g.enter(wasmbin.OpIf, nil, nil)
			g.statements(depth - 1)
			g.index(wasmbin.OpBr, 1)
			g.deadCode()
			if g.chance(30) {
				g.emit(wasmbin.OpElse)
				g.statements(depth - 1)
			}
			g.leave()
		case 3:
			g.enter(wasmbin.OpBlock, []wasmbin.ValType{wasmbin.I32}, nil)
			g.table(0, 1, 0)
			g.deadCode()
			g.leave()
		}
	}
	g.leave()
}

// dispatch is a loop around a br_table that leads everywhere: to blocks, to the
// loop, out of it, and out of the function.
func (g *generator) dispatch(depth int) {
	c := g.counter()
	g.enter(wasmbin.OpBlock, nil, nil)
	g.enter(wasmbin.OpLoop, nil, nil)
	loop := len(g.labels) - 1
	g.again(c, g.IntN(20))
	g.emit(wasmbin.OpI32Eqz)
	g.index(wasmbin.OpBrIf, 1)
	blocks := 1 + g.IntN(4)
	for range blocks {
		g.enter(wasmbin.OpBlock, nil, nil)
	}
	g.statements(depth)
	g.value(wasmbin.I32, depth)
	g.i32(7)
	g.emit(wasmbin.OpI32And)
	var to []uint32
	for range 1 + g.IntN(8) {
		to = append(to, g.Uint32N(uint32(blocks+2)))
	}
	if out, fits := g.outermost(nil); fits && g.chance(30) {
		to = append(to, out)
	}
	g.table(to...)
	g.deadCode()
	for range blocks {
		g.leave()
		g.statements(depth - 1)
		if g.chance(30) {
			g.index(wasmbin.OpBr, uint32(len(g.labels)-1-loop))
			g.deadCode()
		}
	}
	g.index(wasmbin.OpBr, 0)
	g.leave()
	g.leave()
}

// nest is loops in one another, and one behind the innermost.
func (g *generator) nest(loops, depth int) {
	c, n := g.counter(), g.IntN(5)
	g.enter(wasmbin.OpLoop, nil, nil)
	if g.chance(40) {
		g.statements(depth)
	}
	if loops > 1 {
		g.nest(loops-1, depth)
	} else if g.chance(30) {
		g.manyBacks(0)
	}
	if g.chance(25) {
		g.call(1)
	}
	g.again(c, n)
	g.index(wasmbin.OpBrIf, 0)
	g.leave()
}

// backsWithValues is a loop with parameters, and jumps back that carry them.
func (g *generator) backsWithValues(depth int) {
	params := append(g.types(1), pick(g, numericTypes))
	c, n := g.counter(), g.IntN(12)
	g.values(params, depth)
	g.enter(wasmbin.OpLoop, params, nil)
	g.consume(params)
	for range 1 + g.IntN(6) {
		if g.chance(40) {
			g.statements(depth)
		}
		switch g.IntN(3) {
		case 0:
			g.values(params, depth-1)
			g.again(c, n)
			g.index(wasmbin.OpBrIf, 0)
			g.consume(params)
		case 1:
			g.again(c, n)
			g.enter(wasmbin.OpIf, nil, nil)
			g.values(params, depth-1)
			g.index(wasmbin.OpBr, 1)
			g.leave()
		case 2:
			g.enter(wasmbin.OpBlock, nil, params)
			g.values(params, depth-1)
			g.again(c, n)
			if out, fits := g.outermost(params); fits {
				g.emit(wasmbin.OpI32Eqz) // from 1 on: out of the function
				g.table(1, out, out)
			} else {
				g.table(0, 1, 0)
			}
			g.deadCode()
			g.leave()
			g.consume(params)
		}
	}
	g.leave()
}

// straight is thousands of units of straight code.
func (g *generator) straight() {
	from, to := g.local(wasmbin.I64, false), g.local(wasmbin.I64, true)
	for range 700 + g.IntN(1500) {
		g.index(wasmbin.OpLocalGet, from)
		g.instr(wasmbin.Instr{Op: wasmbin.OpI64Const, B: 0x9E3779B97F4A7C15})
		g.emit(wasmbin.OpI64Add)
		g.index(wasmbin.OpLocalSet, to)
	}
}
