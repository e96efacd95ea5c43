package reference

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// Host is what generated modules import, and those that binaryen's fuzzer makes:
// pure functions of their arguments.
var Host = map[string]HostFunc{
	"env.mix": func(args []uint64) []uint64 {
		return []uint64{(args[0]&math.MaxUint32)*0x9E3779B97F4A7C15>>7 ^ args[1]}
	},
	"env.nop":                 nothing,
	"fuzzing-support.log-i32": nothing,
	"fuzzing-support.log-i64": nothing,
	"fuzzing-support.log-f32": nothing,
	"fuzzing-support.log-f64": nothing,
}

func nothing([]uint64) []uint64 { return nil }

var numericTypes = []wasmbin.ValType{wasmbin.I32, wasmbin.I64, wasmbin.F32, wasmbin.F64}

// Generate makes a random valid module. It exports its memory as "memory", its
// functions as "f0", "f1", …, and may have a start function. Most calls end
// soon; some loop or recurse for ever, and some trap.
func Generate(seed uint64) *wasmbin.Module {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x5EED)), m: &wasmbin.Module{}}
	g.module()
	return g.m
}

type generator struct {
	*rand.Rand
	m       *wasmbin.Module
	big     bool // a memory of more than two pieces
	globals []wasmbin.GlobalType
	funcs   []uint32

	// The function at hand.
	self    int  // its index
	leaf    bool // it calls imports alone
	locals  []wasmbin.ValType
	fixed   map[int]bool // loop counters, which only their loop sets
	labels  []genLabel
	body    []wasmbin.Instr
	targets []uint32
	budget  int
}

type genLabel struct {
	types []wasmbin.ValType
	loop  bool
}

// chance is true in percent of 100 cases.
func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

func (g *generator) types(most int) []wasmbin.ValType {
	var out []wasmbin.ValType
	for range g.IntN(most + 1) {
		out = append(out, pick(g, numericTypes))
	}
	return out
}

func (g *generator) typeIndex(t wasmbin.FuncType) uint32 {
	for i := range g.m.Types {
		if sameType(&g.m.Types[i], &t) {
			return uint32(i)
		}
	}
	g.m.Types = append(g.m.Types, t)
	return uint32(len(g.m.Types) - 1)
}

func (g *generator) module() {
	m := g.m
	if g.chance(60) {
		mix := g.typeIndex(wasmbin.FuncType{Params: []wasmbin.ValType{wasmbin.I32, wasmbin.I64}, Results: []wasmbin.ValType{wasmbin.I64}})
		m.Imports = append(m.Imports, wasmbin.Import{Module: "env", Name: "mix", Kind: wasmbin.KindFunc, Func: mix})
		if g.chance(50) {
			m.Imports = append(m.Imports, wasmbin.Import{Module: "env", Name: "nop", Kind: wasmbin.KindFunc, Func: g.typeIndex(wasmbin.FuncType{})})
		}
	}
	for range 2 + g.IntN(5) {
		m.Funcs = append(m.Funcs, g.typeIndex(wasmbin.FuncType{Params: g.types(3), Results: g.types(3)}))
	}
	if g.chance(20) {
		start := len(m.Imports) + g.IntN(len(m.Funcs))
		m.Funcs[start-len(m.Imports)] = g.typeIndex(wasmbin.FuncType{})
		m.HasStart, m.Start = true, uint32(start)
	}
	g.funcs = append(m.ImportedFuncs(), m.Funcs...)

	pages := wasmbin.Limits{Min: 1 + g.Uint32N(2), HasMax: g.chance(70)}
	pages.Max = pick(g, []uint32{pages.Min, pages.Min + 1, 4}) // a page to grow by costs most of the fuel
	if g.big = g.chance(4); g.big {
		pages = wasmbin.Limits{Min: 40 + g.Uint32N(8)}
	}
	if !pages.HasMax {
		pages.Max = 0
	}
	m.Mems = []wasmbin.Limits{pages}
	m.Tables = []wasmbin.TableType{
		{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 8, Max: 20, HasMax: true}},
		{Elem: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: g.Uint32N(5)}},
		{Elem: wasmbin.ExternRef, Limits: wasmbin.Limits{Min: 3}},
	}
	for range 3 + g.IntN(4) {
		t := pick(g, numericTypes)
		m.Globals = append(m.Globals, wasmbin.Global{
			Type: wasmbin.GlobalType{Type: t, Mutable: g.chance(75)},
			Init: g.constant(t),
		})
	}
	m.Globals = append(m.Globals, wasmbin.Global{
		Type: wasmbin.GlobalType{Type: wasmbin.FuncRef, Mutable: true},
		Init: wasmbin.Instr{Op: wasmbin.OpRefFunc, A: g.anyFunc()},
	})
	g.globals = m.AllGlobals()

	zero := wasmbin.Instr{Op: wasmbin.OpI32Const}
	m.Elems = []wasmbin.Elem{
		{Mode: wasmbin.Active, Type: wasmbin.FuncRef, Offset: zero, Init: g.refs(6 + g.IntN(3))},
		{Mode: wasmbin.Passive, Type: wasmbin.FuncRef, Init: append(g.refs(3), wasmbin.Instr{Op: wasmbin.OpRefNull, A: uint32(wasmbin.FuncRef)})},
		{Mode: wasmbin.Declarative, Type: wasmbin.FuncRef},
	}
	for i := range m.Imports { // the rest is declared by exports
		m.Elems[2].Init = append(m.Elems[2].Init, wasmbin.Instr{Op: wasmbin.OpRefFunc, A: uint32(i)})
	}
	m.HasDataCount = true
	m.Data = []wasmbin.Data{
		{Mode: wasmbin.Active, Offset: wasmbin.Instr{Op: wasmbin.OpI32Const, B: uint64(g.IntN(500))}, Init: g.bytes(20)},
		{Mode: wasmbin.Passive, Init: g.bytes(8)},
	}
	if g.big {
		m.Data = append(m.Data, wasmbin.Data{Mode: wasmbin.Passive, Init: g.bytes(5 << 19)})
	}
	m.Exports = []wasmbin.Export{{Name: "memory", Kind: wasmbin.KindMemory}}
	for i := range m.Funcs {
		m.Exports = append(m.Exports, wasmbin.Export{Name: fmt.Sprintf("f%d", i), Kind: wasmbin.KindFunc, Index: uint32(len(m.Imports) + i)})
	}
	for i := range m.Funcs {
		m.Code = append(m.Code, g.function(i))
	}
	if g.chance(30) {
		m.Names = &wasmbin.Names{Module: "generated", HasModule: true, Funcs: []wasmbin.NameAssoc{{Index: 0, Name: "först"}}}
	}
}

func (g *generator) anyFunc() uint32 { return g.Uint32N(uint32(len(g.funcs))) }

func (g *generator) refs(n int) []wasmbin.Instr {
	var out []wasmbin.Instr
	for range n {
		out = append(out, wasmbin.Instr{Op: wasmbin.OpRefFunc, A: g.anyFunc()})
	}
	return out
}

func (g *generator) bytes(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(g.Uint32())
	}
	return out
}

func (g *generator) function(i int) wasmbin.Code {
	t := g.m.Types[g.m.Funcs[i]]
	g.self = len(g.m.Imports) + i
	g.locals, g.fixed = slices.Clone(t.Params), map[int]bool{}
	g.body, g.targets = nil, nil
	g.budget = 20 + g.IntN(120)
	g.leaf = g.chance(35)
	g.labels = []genLabel{{types: t.Results}}
	g.locals = append(g.locals, numericTypes...)
	if g.chance(5) {
		// Enough to weigh something in the depth.
		for range 1000 + g.IntN(8000) {
			g.locals = append(g.locals, wasmbin.I64)
		}
	}
	if g.chance(2) {
		g.straight()
	}
	g.statements(4)
	g.values(t.Results, 4)
	g.emit(wasmbin.OpEnd)

	c := wasmbin.Code{Body: g.body, Targets: g.targets}
	for _, t := range g.locals[len(t.Params):] {
		if n := len(c.Locals); n > 0 && c.Locals[n-1].Type == t {
			c.Locals[n-1].Count++
		} else {
			c.Locals = append(c.Locals, wasmbin.LocalRun{Count: 1, Type: t})
		}
	}
	return c
}

func (g *generator) emit(op wasmbin.Op)            { g.instr(wasmbin.Instr{Op: op}) }
func (g *generator) index(op wasmbin.Op, i uint32) { g.instr(wasmbin.Instr{Op: op, A: i}) }
func (g *generator) instr(in wasmbin.Instr)        { g.body = append(g.body, in); g.budget-- }
func (g *generator) i32(v int)                     { g.instr(wasmbin.Instr{Op: wasmbin.OpI32Const, B: uint64(uint32(v))}) }

func (g *generator) constant(t wasmbin.ValType) wasmbin.Instr {
	switch t {
	case wasmbin.I32:
		v := pick(g, []uint32{0, 1, 2, 7, 31, 255, 65536, math.MaxInt32, 1 << 31, math.MaxUint32, g.Uint32()})
		return wasmbin.Instr{Op: wasmbin.OpI32Const, B: uint64(v)}
	case wasmbin.I64:
		v := pick(g, []uint64{0, 1, 63, 1 << 32, math.MaxInt64, 1 << 63, math.MaxUint64, g.Uint64()})
		return wasmbin.Instr{Op: wasmbin.OpI64Const, B: v}
	case wasmbin.F32:
		v := pick(g, []uint32{0, 1 << 31, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7FA12345, 0xFFC54321, 1,
			0x4F000000, 0xCF000001, g.Uint32()})
		return wasmbin.Instr{Op: wasmbin.OpF32Const, B: uint64(v)}
	}
	v := pick(g, []uint64{0, 1 << 63, 0x3FF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0xFFF8000000000000,
		0x7FF4000000012345, 0xFFF8000000054321, 1, 0x41E0000000000000, 0x43E0000000000000, g.Uint64()})
	return wasmbin.Instr{Op: wasmbin.OpF64Const, B: v}
}

// local returns a local of type t that may be set, if set, or just read.
func (g *generator) local(t wasmbin.ValType, set bool) uint32 {
	var fit []int
	for i, l := range g.locals[:min(len(g.locals), 16)] {
		if l == t && !(set && g.fixed[i]) {
			fit = append(fit, i)
		}
	}
	return uint32(pick(g, fit))
}

// blockType returns a block type for the signature.
func (g *generator) blockType(params, results []wasmbin.ValType) uint64 {
	b := wasmbin.BlockEmpty
	switch {
	case len(params) == 0 && len(results) == 0 && g.chance(80):
	case len(params) == 0 && len(results) == 1:
		b = wasmbin.BlockOf(results[0])
	default:
		b = wasmbin.BlockType(g.typeIndex(wasmbin.FuncType{Params: params, Results: results}))
	}
	return uint64(b)
}

// values pushes one value of each type.
func (g *generator) values(types []wasmbin.ValType, depth int) {
	if len(types) > 1 && depth > 0 && g.chance(25) {
		g.block(types, depth-1)
		return
	}
	for _, t := range types {
		g.value(t, depth)
	}
}

// consume takes values of the types off the stack.
func (g *generator) consume(types []wasmbin.ValType) {
	for _, t := range slices.Backward(types) {
		if g.chance(50) {
			g.emit(wasmbin.OpDrop)
		} else {
			g.index(wasmbin.OpLocalSet, g.local(t, true))
		}
	}
}

// block pushes values of the types from a block, loop or if.
func (g *generator) block(results []wasmbin.ValType, depth int) {
	params := g.types(2)
	if g.chance(60) {
		params = nil
	}
	g.values(params, depth-1)
	enter := func(op wasmbin.Op) {
		g.enter(op, params, results)
		g.consume(params)
	}
	switch g.IntN(3) {
	case 0:
		enter(wasmbin.OpBlock)
		g.statements(depth)
		g.values(results, depth)
		g.leave()
	case 1:
		counter := g.counter()
		enter(wasmbin.OpLoop)
		g.statements(depth)
		g.values(params, depth-1)
		g.again(counter, g.IntN(6))
		g.index(wasmbin.OpBrIf, 0)
		g.consume(params)
		g.values(results, depth-1)
		g.leave()
	case 2:
		g.value(wasmbin.I32, depth-1)
		enter(wasmbin.OpIf)
		g.statements(depth)
		g.values(results, depth)
		if !slices.Equal(params, results) || g.chance(70) {
			g.emit(wasmbin.OpElse)
			g.consume(params)
			g.statements(depth - 1)
			g.values(results, depth-1)
		}
		g.leave()
	}
}

func (g *generator) statements(depth int) {
	for range 1 + g.IntN(3) {
		if depth <= 0 || g.budget <= 0 {
			return
		}
		g.statement(depth - 1)
	}
}

// label returns a random label's depth, seldom a loop's, and all depths whose
// labels have the same types.
func (g *generator) label() (uint32, []wasmbin.ValType, []uint32) {
	at := g.IntN(len(g.labels))
	if g.labels[at].loop && g.chance(85) {
		at = 0
	}
	var same []uint32
	for i, l := range g.labels {
		if slices.Equal(l.types, g.labels[at].types) && (!l.loop || g.chance(10)) {
			same = append(same, uint32(len(g.labels)-1-i))
		}
	}
	depth := uint32(len(g.labels) - 1 - at)
	return depth, g.labels[at].types, append(same, depth)
}

// statement leaves the stack as it is, or unreachable.
func (g *generator) statement(depth int) {
	switch g.IntN(29) {
	case 0, 1, 2:
		t := pick(g, numericTypes)
		g.value(t, depth)
		g.index(wasmbin.OpLocalSet, g.local(t, true))
	case 3, 4:
		if i := g.IntN(len(g.globals)); g.globals[i].Mutable {
			g.value(g.globals[i].Type, depth)
			g.index(wasmbin.OpGlobalSet, uint32(i))
		}
	case 5, 6:
		op := wasmbin.OpI32Store + wasmbin.Op(g.IntN(9))
		g.address(depth)
		g.value([]wasmbin.ValType{wasmbin.I32, wasmbin.I64, wasmbin.F32, wasmbin.F64, wasmbin.I32, wasmbin.I32, wasmbin.I64, wasmbin.I64, wasmbin.I64}[op-wasmbin.OpI32Store], depth)
		g.instr(wasmbin.Instr{Op: op, B: uint64(g.IntN(40))})
	case 7:
		g.value(pick(g, numericTypes), depth)
		g.emit(wasmbin.OpDrop)
	case 8:
		g.emit(wasmbin.OpNop)
	case 9, 10, 11, 12:
		types := g.types(2)
		g.block(types, depth)
		g.consume(types)
	case 13, 14:
		l, types, _ := g.label()
		g.values(types, depth)
		g.value(wasmbin.I32, depth)
		g.index(wasmbin.OpBrIf, l)
		g.consume(types)
	case 15:
		if g.chance(40) {
			l, types, _ := g.label()
			g.values(types, depth)
			g.index(wasmbin.OpBr, l)
			g.deadCode()
		}
	case 16:
		if g.chance(60) {
			_, types, same := g.label()
			g.values(types, depth)
			g.value(wasmbin.I32, depth)
			at := uint32(len(g.targets))
			n := 1 + g.IntN(5)
			for range n {
				g.targets = append(g.targets, pick(g, same))
			}
			g.instr(wasmbin.Instr{Op: wasmbin.OpBrTable, A: at, B: uint64(n)})
			g.deadCode()
		}
	case 17:
		if g.chance(10) {
			g.emit(wasmbin.OpUnreachable)
			g.deadCode()
		} else if g.chance(10) {
			g.values(g.labels[0].types, depth)
			g.emit(wasmbin.OpReturn)
			g.deadCode()
		}
	case 18, 19:
		g.call(depth)
	case 20, 21, 22:
		g.bulk(depth)
	case 23:
		if g.chance(20) {
			g.index(pick(g, []wasmbin.Op{wasmbin.OpDataDrop, wasmbin.OpElemDrop}), g.Uint32N(2))
		}
	case 24, 25:
		g.loops(depth)
	case 26, 27, 28:
		g.nanPath(depth)
	}
}

// deadCode follows an unconditional branch: statements as anywhere, and
// operators that only type-check on a stack that has anything.
func (g *generator) deadCode() {
	if g.chance(25) {
		g.statements(2)
	}
	if g.chance(5) {
		g.loops(1)
	}
	if g.chance(40) {
		op := pick(g, []wasmbin.Op{wasmbin.OpI32Add, wasmbin.OpF64Mul, wasmbin.OpSelect, wasmbin.OpI32WrapI64, wasmbin.OpMemoryGrow, wasmbin.OpF32Sqrt})
		g.emit(op)
		g.emit(wasmbin.OpDrop)
	}
}

// call calls a function and drops its results. Backward calls are preferred:
// recursion is wanted now and then.
func (g *generator) call(depth int) {
	f := g.anyFunc()
	if int(f) >= g.self && g.chance(75) {
		f = g.Uint32N(uint32(g.self) + 1)
	}
	if int(f) == g.self && g.chance(60) || !g.mayCall(f) {
		return
	}
	t := g.m.Types[g.funcs[f]]
	g.values(t.Params, depth)
	g.invoke(f)
	g.consume(t.Results)
}

// mayCall tells whether the function at hand may call f.
func (g *generator) mayCall(f uint32) bool { return !g.leaf || int(f) < len(g.m.Imports) }

// invoke calls a function whose arguments are on the stack, directly or by way
// of a table.
func (g *generator) invoke(f uint32) {
	if g.leaf || g.chance(70) {
		g.index(wasmbin.OpCall, f)
		return
	}
	at := g.IntN(9)
	for i, in := range g.m.Elems[0].Init {
		if in.A == f {
			at = i
		}
	}
	g.i32(at)
	in := wasmbin.Instr{Op: wasmbin.OpCallIndirect, A: g.funcs[f]}
	if g.chance(10) {
		in.B = 1 // which holds what was copied to it, or nothing
	}
	g.instr(in)
}

// bulk emits an operator on whole memories and tables.
func (g *generator) bulk(depth int) {
	small := func(n int) {
		if g.chance(90) {
			g.i32(g.IntN(n))
		} else {
			g.value(wasmbin.I32, depth)
			if g.chance(80) {
				g.i32(15)
				g.emit(wasmbin.OpI32And)
			}
		}
	}
	long := func(n int) {
		if g.big && g.chance(60) {
			g.i32(g.IntN(3 << 20))
		} else {
			small(n)
		}
	}
	ref := func(t wasmbin.ValType) {
		switch {
		case g.chance(15):
			small(3)
			from := uint32(2)
			if t == wasmbin.FuncRef {
				from = g.Uint32N(2)
			}
			g.index(wasmbin.OpTableGet, from)
		case t == wasmbin.FuncRef && g.chance(80):
			g.index(wasmbin.OpRefFunc, g.anyFunc())
		default:
			g.index(wasmbin.OpRefNull, uint32(t))
		}
	}
	table := g.Uint32N(3)
	elem := g.m.Tables[table].Elem
	switch g.IntN(9) {
	case 0:
		g.address(depth)
		g.value(wasmbin.I32, depth)
		long(300)
		g.emit(wasmbin.OpMemoryFill)
	case 1:
		long(5000)
		long(5000)
		long(300)
		g.emit(wasmbin.OpMemoryCopy)
	case 2:
		segment := uint32(1 + g.IntN(len(g.m.Data)-1))
		if g.chance(3) {
			segment = 0 // of which nothing is left
		}
		g.address(depth)
		if segment == 2 {
			g.i32(g.IntN(1 << 20))
			long(9)
		} else {
			small(3)
			small(6)
		}
		g.index(wasmbin.OpMemoryInit, segment)
	case 3:
		small(3)
		ref(elem)
		g.index(wasmbin.OpTableSet, table)
	case 4:
		ref(elem)
		small(4)
		g.index(wasmbin.OpTableGrow, table)
		g.emit(wasmbin.OpDrop)
	case 5:
		small(3)
		ref(elem)
		small(4)
		g.index(wasmbin.OpTableFill, table)
	case 6:
		small(4)
		small(4)
		small(3)
		if elem == wasmbin.FuncRef {
			g.instr(wasmbin.Instr{Op: wasmbin.OpTableCopy, A: g.Uint32N(2), B: uint64(table)})
		} else {
			g.instr(wasmbin.Instr{Op: wasmbin.OpTableCopy, A: table, B: uint64(table)})
		}
	case 7:
		small(4)
		small(3)
		small(3)
		segment := uint32(1)
		if g.chance(25) {
			segment = g.Uint32N(3) // active and declarative ones are spent
		}
		g.instr(wasmbin.Instr{Op: wasmbin.OpTableInit, A: segment, B: uint64(g.IntN(2))})
	case 8:
		if g.chance(5) {
			g.value(wasmbin.I32, depth)
		} else {
			g.i32(g.IntN(3))
		}
		g.emit(wasmbin.OpMemoryGrow)
		g.emit(wasmbin.OpDrop)
	}
}

// address pushes an address that is mostly within the memory.
func (g *generator) address(depth int) {
	if g.chance(50) {
		g.i32(g.IntN(60000))
		return
	}
	g.value(wasmbin.I32, depth-1)
	if g.chance(95) {
		g.i32(0xFFF)
		g.emit(wasmbin.OpI32And)
	}
}

// Argument returns a random argument of a numeric type, interesting ones more
// often than others.
func Argument(r *rand.Rand, t wasmbin.ValType) uint64 {
	return (&generator{Rand: r}).constant(t).B
}
