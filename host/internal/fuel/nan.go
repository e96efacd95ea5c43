package fuel

import "github.com/droverhq/drover/host/internal/wasmbin"

// The bits of the canonical NaNs.
const (
	canonicalF32 = 0x7FC00000
	canonicalF64 = 0x7FF8000000000000
)

// nans finds out where one body has to make NaNs canonical. The bits of a NaN
// that arithmetic makes are the engine's choice, but most are never seen: they
// go into more arithmetic, or into comparisons. Values that can become one
// another, by way of locals and selects, form a class, whatever the order of
// events. Then a class whose bits are seen is made canonical
//
//   - where it is seen, if nothing but arithmetic makes its values, and they are
//     on top of the stack there;
//   - where arithmetic makes a value, otherwise: values that come from elsewhere
//     keep their bits (spec 1.3).
type nans struct {
	parent  []int32           // union-find over classes, from 1 on
	flags   []nanFlags        // of each class, where it is its own parent
	types   []wasmbin.ValType // of each class
	floats  []wasmbin.ValType // of the locals; 0 for those that hold no floats
	stack   []int32           // classes of the operands
	heights []nanFrame
	ops     []nanPlace // arithmetic, in order
	seen    []nanPlace // where a class is seen that may be made canonical there
	selects []nanPlace // of floats
}

type nanFlags uint8

const (
	nanMade   nanFlags = 1 << iota // arithmetic makes values of the class
	nanRaw                         // some come from elsewhere
	nanSeen                        // their bits are seen
	nanBuried                      // and not where they are on top of the stack
)

type nanPlace struct {
	at    int
	class int32
	t     wasmbin.ValType
}

type nanFrame struct {
	height          int // of the stack below the block's parameters
	params, results []wasmbin.ValType
}

// The classes of values that are not followed, which are told apart by type.
const (
	noFloat      = -iota // an integer or a reference
	unknown              // where nothing is
	elsewhereF32         // floats whose bits are to be kept
	elsewhereF64
	noNaNF32 // floats that are never a NaN, or a canonical one
	noNaNF64
)

// elsewhere returns the class of values of a type that come from elsewhere.
func elsewhere(t wasmbin.ValType) int32 {
	switch t {
	case wasmbin.F32:
		return elsewhereF32
	case wasmbin.F64:
		return elsewhereF64
	}
	return noFloat
}

func isElsewhere(c int32) bool { return c == elsewhereF32 || c == elsewhereF64 }

// float returns the type of a class of floats, or 0.
func (n *nans) float(c int32) wasmbin.ValType {
	switch c {
	case noFloat, unknown:
		return 0
	case elsewhereF32, noNaNF32:
		return wasmbin.F32
	case elsewhereF64, noNaNF64:
		return wasmbin.F64
	}
	return n.types[c]
}

// start begins a body.
func (n *nans) start(r *rewriter, i int) {
	c, t := &r.in.Code[i], r.in.Types[r.in.Funcs[i]]
	n.parent, n.flags, n.types = append(n.parent[:0], 0), append(n.flags[:0], 0), append(n.types[:0], 0)
	n.floats = n.floats[:0]
	n.stack, n.heights, n.ops, n.seen, n.selects = n.stack[:0], n.heights[:0], n.ops[:0], n.seen[:0], n.selects[:0]
	local := func(t wasmbin.ValType, flags nanFlags) {
		if t != wasmbin.F32 && t != wasmbin.F64 {
			t = 0
		}
		n.floats = append(n.floats, t)
		n.class(t, flags)
	}
	for _, p := range t.Params {
		local(p, nanRaw)
	}
	for _, run := range c.Locals {
		for range run.Count {
			local(run.Type, 0)
		}
	}
	n.heights = append(n.heights, nanFrame{results: t.Results})
}

// class begins a class of values.
func (n *nans) class(t wasmbin.ValType, flags nanFlags) int32 {
	id := int32(len(n.parent))
	n.parent = append(n.parent, id)
	n.flags = append(n.flags, flags)
	n.types = append(n.types, t)
	return id
}

func (n *nans) find(c int32) int32 {
	for n.parent[c] != c {
		n.parent[c] = n.parent[n.parent[c]]
		c = n.parent[c]
	}
	return c
}

// join makes one class of two, and returns it.
func (n *nans) join(a, b int32) int32 {
	switch {
	case a <= 0 && b <= 0:
		if isElsewhere(b) {
			return b
		}
		return a
	case a <= 0:
		a, b = b, a
	}
	a = n.find(a)
	if b <= 0 {
		if isElsewhere(b) {
			n.flags[a] |= nanRaw
		}
		return a
	}
	if b = n.find(b); a != b {
		n.parent[b] = a
		n.flags[a] |= n.flags[b]
	}
	return a
}

func (n *nans) push(c int32) { n.stack = append(n.stack, c) }

// pop returns the topmost class; below a block's operands there is nothing that
// was made in it, as in code that cannot be reached.
func (n *nans) pop() int32 {
	if len(n.stack) <= n.heights[len(n.heights)-1].height {
		return unknown
	}
	c := n.stack[len(n.stack)-1]
	n.stack = n.stack[:len(n.stack)-1]
	return c
}

// see notes that the bits of a class are seen by the instruction at, on top of
// the stack.
func (n *nans) see(c int32, at int) {
	if c > 0 {
		n.flags[n.find(c)] |= nanSeen
		n.seen = append(n.seen, nanPlace{at, c, n.types[c]})
	}
}

func (n *nans) bury(c int32) {
	if c > 0 {
		n.flags[n.find(c)] |= nanSeen | nanBuried
	}
}

// sees pops operands whose bits are seen: the topmost, if it comes first, and
// others.
func (n *nans) sees(operands, at int) {
	for i := range operands {
		if i == 0 {
			n.see(n.pop(), at)
		} else {
			n.bury(n.pop())
		}
	}
}

// instr follows a reachable instruction.
func (n *nans) instr(r *rewriter, in wasmbin.Instr, at int) {
	switch op := in.Op; op {
	case wasmbin.OpLocalGet:
		if n.floats[in.A] == 0 {
			n.push(noFloat)
		} else {
			n.push(1 + int32(in.A))
		}
	case wasmbin.OpLocalSet, wasmbin.OpLocalTee:
		c := n.pop()
		if n.floats[in.A] != 0 {
			c = n.join(1+int32(in.A), c)
		}
		if op == wasmbin.OpLocalTee {
			n.push(c)
		}
	case wasmbin.OpSelect, wasmbin.OpSelectT:
		n.pop()
		b, a := n.pop(), n.pop()
		c := n.join(a, b)
		if t := n.float(c); t != 0 {
			n.selects = append(n.selects, nanPlace{at, c, t})
		}
		n.push(c)
	case wasmbin.OpF32Const:
		n.push(constClass(in.B&0x7FFFFFFF > 0x7F800000 && in.B != canonicalF32, elsewhereF32, noNaNF32))
	case wasmbin.OpF64Const:
		n.push(constClass(in.B&^(1<<63) > 0x7FF0000000000000 && in.B != canonicalF64, elsewhereF64, noNaNF64))
	case wasmbin.OpCall, wasmbin.OpCallIndirect:
		if op == wasmbin.OpCallIndirect {
			n.pop()
		}
		t := r.callee(in)
		if op == wasmbin.OpCall {
			n.sees(len(t.Params), at)
		} else {
			for range t.Params {
				n.bury(n.pop()) // the index was on top
			}
		}
		for _, t := range t.Results {
			n.push(elsewhere(t))
		}
	case wasmbin.OpGlobalSet, wasmbin.OpI32ReinterpretF32, wasmbin.OpI64ReinterpretF64,
		wasmbin.OpF32Neg, wasmbin.OpF32Abs, wasmbin.OpF64Neg, wasmbin.OpF64Abs, wasmbin.OpF32Store, wasmbin.OpF64Store:
		n.see(n.pop(), at)
		if isFloatStore(op) {
			n.pop()
		} else if op != wasmbin.OpGlobalSet {
			n.push(elsewhere(resultOf(op)))
		}
	case wasmbin.OpF32Copysign, wasmbin.OpF64Copysign:
		n.sees(2, at)
		n.push(elsewhere(resultOf(op)))
	case wasmbin.OpGlobalGet:
		n.push(elsewhere(r.globals[in.A].Type))
	default:
		pops, pushes := operands(op)
		for range pops {
			n.pop()
		}
		t, made := makesNaN(op)
		switch {
		case made:
			c := n.class(t, nanMade)
			n.ops = append(n.ops, nanPlace{at, c, t})
			n.push(c)
		case op >= wasmbin.OpF32ConvertI32S && op <= wasmbin.OpF32ConvertI64U:
			n.push(noNaNF32)
		case op >= wasmbin.OpF64ConvertI32S && op <= wasmbin.OpF64ConvertI64U:
			n.push(noNaNF64)
		default:
			for range pushes {
				n.push(elsewhere(resultOf(op)))
			}
		}
	}
}

func constClass(raw bool, elsewhere, noNaN int32) int32 {
	if raw {
		return elsewhere
	}
	return noNaN
}

// resultOf returns the type of what an operator makes that only moves bits, if
// that is a float, or 0.
func resultOf(op wasmbin.Op) wasmbin.ValType {
	switch op {
	case wasmbin.OpF32Load, wasmbin.OpF32ReinterpretI32, wasmbin.OpF32Neg, wasmbin.OpF32Abs, wasmbin.OpF32Copysign:
		return wasmbin.F32
	case wasmbin.OpF64Load, wasmbin.OpF64ReinterpretI64, wasmbin.OpF64Neg, wasmbin.OpF64Abs, wasmbin.OpF64Copysign:
		return wasmbin.F64
	}
	return 0
}

// leave follows a branch with so many values, or a return; on tells that an
// operand was on top of them.
func (n *nans) leave(values, at int, on bool) {
	h := n.heights[len(n.heights)-1].height
	for i := range min(values, len(n.stack)-h) {
		c := n.stack[len(n.stack)-1-i]
		if i == 0 && !on {
			n.see(c, at)
		} else {
			n.bury(c)
		}
	}
}

// open follows the start of a block with such parameters, a condition popped
// before.
func (n *nans) open(params, results []wasmbin.ValType) {
	for range params {
		n.bury(n.pop())
	}
	n.heights = append(n.heights, nanFrame{height: len(n.stack), params: params, results: results})
	n.enter(params)
}

func (n *nans) enter(values []wasmbin.ValType) {
	n.stack = n.stack[:n.heights[len(n.heights)-1].height]
	for _, t := range values {
		n.push(elsewhere(t))
	}
}

// other follows an else, and close the end of a block: of what leaves it, if
// that can be reached, the bits count as seen.
func (n *nans) other(live bool, at int) {
	f := n.heights[len(n.heights)-1]
	if live {
		n.leave(len(f.results), at, false)
	}
	n.enter(f.params)
}

func (n *nans) close(live bool, at int) {
	f := n.heights[len(n.heights)-1]
	if live {
		n.leave(len(f.results), at, false)
	}
	n.enter(f.results)
	n.heights = n.heights[:len(n.heights)-1]
}

// atMade tells whether the value that the arithmetic at has made must be made
// canonical at once.
func (n *nans) atMade(class int32) bool {
	f := n.flags[n.find(class)]
	return f&nanSeen != 0 && f&(nanRaw|nanBuried) != 0
}

// atSeen tells whether the value on top of the stack must be made canonical
// before it is seen.
func (n *nans) atSeen(class int32) bool {
	f := n.flags[n.find(class)]
	return f&nanMade != 0 && f&(nanRaw|nanBuried) == 0
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

// operands returns how many operands an operator takes and leaves. Control,
// calls and those that nans tells apart are not among them.
func operands(op wasmbin.Op) (pops, pushes int) {
	switch {
	case op >= wasmbin.OpI32Load && op <= wasmbin.OpI64Load32U, op == wasmbin.OpMemoryGrow, op == wasmbin.OpTableGet, op == wasmbin.OpRefIsNull:
		return 1, 1
	case op >= wasmbin.OpI32Store && op <= wasmbin.OpI64Store32, op == wasmbin.OpTableSet:
		return 2, 0
	case op == wasmbin.OpTableGrow, binary(op):
		return 2, 1
	case op >= wasmbin.OpMemoryInit && op <= wasmbin.OpTableFill &&
		op != wasmbin.OpDataDrop && op != wasmbin.OpElemDrop && op != wasmbin.OpTableSize:
		return 3, 0
	case op == wasmbin.OpDrop:
		return 1, 0
	case op == wasmbin.OpNop, op == wasmbin.OpDataDrop, op == wasmbin.OpElemDrop:
		return 0, 0
	case op >= wasmbin.OpI32Eqz && op <= wasmbin.OpI64Extend32S, op >= wasmbin.OpI32TruncSatF32S && op <= wasmbin.OpI64TruncSatF64U:
		return 1, 1
	}
	return 0, 1 // constants, global.get, sizes, references
}

// binary tells whether an operator makes one number of two.
func binary(op wasmbin.Op) bool {
	return op >= wasmbin.OpI32Eq && op <= wasmbin.OpI32GeU ||
		op >= wasmbin.OpI64Eq && op <= wasmbin.OpF64Ge ||
		op >= wasmbin.OpI32Add && op <= wasmbin.OpI32Rotr ||
		op >= wasmbin.OpI64Add && op <= wasmbin.OpI64Rotr ||
		op >= wasmbin.OpF32Add && op <= wasmbin.OpF32Copysign ||
		op >= wasmbin.OpF64Add && op <= wasmbin.OpF64Copysign
}

func isFloatStore(op wasmbin.Op) bool { return op == wasmbin.OpF32Store || op == wasmbin.OpF64Store }

// callee returns the type of what an instruction calls.
func (r *rewriter) callee(in wasmbin.Instr) wasmbin.FuncType {
	if in.Op == wasmbin.OpCall {
		return r.in.Types[r.funcs[in.A]]
	}
	return r.in.Types[in.A]
}
