package host

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// What wazero's compiler spends on a function grows with more than its size:
// with the square of its basic blocks, with blocks times the locals that have to
// be found across them (a local that is only read costs as much), with the
// square of a br_table. Where loops nest it finds out that a local is not set in
// them one level a pass, and each pass takes the square of the locals a loop. The
// prices are nanoseconds measured on shapes that consist of nothing else
// (bomb_test.go), for the code that metering makes of them, on a busy machine; an
// idle one takes a third.
const (
	costInstr      = 300  // each instruction
	costBlockPair  = 60   // each pair of blocks
	costBlockLocal = 1800 // each block times each local that is looked up
	costLocalPair  = 1    // each block times each pair of such locals
	costLoopLocal  = 2    // each loop times one more than their nesting times each pair of such locals
	costTablePair  = 1    // each pair of br_table entries
	costCallValue  = 1700 // each parameter and result of a call
)

// As how many instructions an operator counts of which wazero makes much machine
// code, with checks that trap or registers to save: both its time and the memory
// that it holds until the function is done.
const (
	weightAccess       = 10 // a load, a store, an entry of a table
	weightCall         = 10 // call and ref.func
	weightDivide       = 15 // a division, a truncation of a float
	weightCallIndirect = 100
)

// Metering interrupts straight code: after so many units without a branch, of
// which a call is worth some, it asks for fuel, and that is another block.
const (
	straightUnits = 4_096
	callUnits     = 64
)

// How many basic blocks an operator becomes once it is metered, in halves.
const (
	halvesBranch = 2 // block, br, br_if, br_table, return, else
	halvesLoop   = 3 // fuel is asked for outside of it
	halvesIf     = 6
	halvesBulk   = 8 // memory.fill and the like: split into pieces
	halvesGrow   = 4
	halvesFloat  = 1 // arithmetic: canonical NaNs
	halvesStore  = 1 // of floats: likewise
	halvesAsk    = 4 // straight code that is interrupted
)

// The estimate that a module may have: a fixed part for the smallest, and so
// much for each byte. Standard Go's is at little more than half of it.
const (
	compileCostBase    = 1_000_000_000
	compileCostPerByte = 1_500
)

// shape is what the caps and the estimate look at in one body.
type shape struct {
	instrs, depth, brTable int
	weight                 int // of the instructions
	halves                 int // of basic blocks
	stack                  int // operands at most, about
	tablePairs, callValues int64
	locals                 int // read in another basic block than the one that set them
	loops, loopDepth       int
}

func (s shape) blocks() int { return s.halves / 2 }

// code checks every body against the caps, and the module's estimate. It names
// the first function that is over a cap: a bomb repeats itself.
func (a *admission) code(size int) {
	var total, worst int64
	worstFunc := -1
	imported := len(a.funcs) - len(a.m.Funcs)
	var locals localUse
	for i := range a.m.Code {
		c := &a.m.Code[i]
		name := a.funcName(imported + i)
		params := 0
		if i < len(a.m.Funcs) {
			if t, ok := a.funcType(a.m.Funcs[i]); ok {
				params = len(t.Params)
			}
		}
		s := a.shape(c, i+1, &locals)
		switch {
		case !a.atMost(RuleLocals, "locals in "+name, c.NumLocals()+params, maxLocals),
			!a.atMost(RuleFunctionSize, "instructions in "+name, s.instrs, maxInstructions),
			!a.atMost(RuleNesting, "nested blocks in "+name, s.depth, maxNesting),
			!a.atMost(RuleBlocks, "blocks and branches in "+name, s.blocks(), maxBlocks),
			!a.atMost(RuleBrTable, "entries in a br_table of "+name, s.brTable, maxBrTable),
			!a.atMost(RuleStack, "operands on the stack of "+name, s.stack, maxStack),
			!a.atMost(RuleFunctionSize, "instructions in "+name+", calls, loads, stores and divisions counted as several", s.weight, maxWeight):
			return
		}
		cost := s.cost()
		if cost > worst {
			worst, worstFunc = cost, i
		}
		total += cost
	}
	if most := compileCostBase + int64(size)*compileCostPerByte; total > most {
		a.add(RuleCompileCost, "an estimated %d ms to compile %d KiB: at most %d ms; most of it (%d ms) for %s",
			total/1e6, size>>10, most/1e6, worst/1e6, a.funcName(imported+worstFunc))
	}
}

// localUse remembers where the locals of one body after the other were used:
// scratch, never cleared, as bodies and blocks are numbered on from 1.
type localUse struct {
	block  int
	locals [maxLocals]struct{ block, body int }
}

// found notes that a local's value is known in the present block, and tells
// whether it was not before.
func (u *localUse) found(local uint32) bool {
	if int64(local) >= maxLocals {
		return false // the body is over the cap
	}
	l := &u.locals[local]
	was := l.block
	l.block = u.block
	return was != u.block
}

// first tells whether a local is asked about for the first time in a body.
func (u *localUse) first(local uint32, body int) bool {
	l := &u.locals[local]
	was := l.body
	l.body = body
	return was != body
}

// shape reads one body, the body'th from 1.
func (a *admission) shape(c *wasmbin.Code, body int, locals *localUse) shape {
	s := shape{instrs: len(c.Body)}
	depth, stack, straight := 0, 0, 0
	var loops []int // depths of the open ones
	locals.block++
	for _, in := range c.Body {
		op := in.Op
		s.weight += weight(op)
		if straight++; op == wasmbin.OpCall || op == wasmbin.OpCallIndirect {
			straight += callUnits
		}
		if straight > straightUnits {
			straight = 0
			locals.block++
			s.halves += halvesAsk
		}
		switch {
		case op == wasmbin.OpBlock || op == wasmbin.OpLoop || op == wasmbin.OpIf:
			locals.block++
			s.halves += halvesBranch
			if op == wasmbin.OpIf {
				s.halves += halvesIf - halvesBranch
			}
			depth++
			s.depth = max(s.depth, depth)
			if op == wasmbin.OpLoop {
				s.halves += halvesLoop - halvesBranch
				loops = append(loops, depth)
				s.loops++
				s.loopDepth = max(s.loopDepth, len(loops))
			}
		case op == wasmbin.OpEnd:
			locals.block++
			if n := len(loops); n > 0 && loops[n-1] == depth {
				loops = loops[:n-1]
			}
			depth--
		case op == wasmbin.OpElse || op == wasmbin.OpBr || op == wasmbin.OpBrIf || op == wasmbin.OpReturn:
			locals.block++
			s.halves += halvesBranch
		case op == wasmbin.OpBrTable:
			locals.block++
			s.halves += halvesBranch
			s.brTable = max(s.brTable, int(min(in.B, 1<<30)))
			s.tablePairs += int64(in.B) * int64(in.B)
		case op == wasmbin.OpLocalGet:
			if locals.found(in.A) && locals.first(in.A, body) {
				s.locals++
			}
		case op == wasmbin.OpLocalSet || op == wasmbin.OpLocalTee:
			locals.found(in.A)
		case op == wasmbin.OpCall:
			if t, ok := a.exportedType(in.A); ok {
				s.callValues += int64(len(t.Params) + len(t.Results))
			}
		case op == wasmbin.OpCallIndirect:
			if t, ok := a.funcType(in.A); ok {
				s.callValues += int64(len(t.Params) + len(t.Results))
			}
		case op == wasmbin.OpMemoryGrow || op == wasmbin.OpTableGrow:
			locals.block++
			s.halves += halvesGrow
		case op == wasmbin.OpMemoryFill || op == wasmbin.OpMemoryCopy || op == wasmbin.OpMemoryInit ||
			op == wasmbin.OpTableFill || op == wasmbin.OpTableCopy || op == wasmbin.OpTableInit:
			locals.block++
			s.halves += halvesBulk
		case op >= wasmbin.OpF32Abs && op <= wasmbin.OpF64Copysign:
			s.halves += halvesFloat
		case op == wasmbin.OpF32Store || op == wasmbin.OpF64Store:
			s.halves += halvesStore
		}
		stack = max(0, stack+pushes(op))
		s.stack = max(s.stack, stack)
	}
	return s
}

// pushes tells by how much an operator changes the height of the stack, as far
// as that is known without types: control and calls count as leaving nothing.
// It is enough to see a function that piles up operands, which the compiler
// keeps alive one and all.
func pushes(op wasmbin.Op) int {
	switch {
	case op == wasmbin.OpLocalGet || op == wasmbin.OpGlobalGet || op == wasmbin.OpMemorySize || op == wasmbin.OpTableSize,
		op >= wasmbin.OpI32Const && op <= wasmbin.OpF64Const, op == wasmbin.OpRefNull || op == wasmbin.OpRefFunc:
		return 1
	case op == wasmbin.OpDrop || op == wasmbin.OpLocalSet || op == wasmbin.OpGlobalSet:
		return -1
	case op == wasmbin.OpSelect || op == wasmbin.OpSelectT || op == wasmbin.OpTableSet,
		op >= wasmbin.OpI32Store && op <= wasmbin.OpI64Store32:
		return -2
	case op >= wasmbin.OpMemoryInit && op <= wasmbin.OpTableFill && op != wasmbin.OpDataDrop && op != wasmbin.OpElemDrop && op != wasmbin.OpTableGrow:
		return -3
	case op == wasmbin.OpTableGrow || binaryOp(op):
		return -1
	case op < wasmbin.OpDrop:
		return -1 << 20 // a branch, a call, the end of a block
	}
	return 0
}

// weight is as how many instructions an operator counts.
func weight(op wasmbin.Op) int {
	switch {
	case op == wasmbin.OpCallIndirect:
		return weightCallIndirect
	case op == wasmbin.OpCall || op == wasmbin.OpRefFunc:
		return weightCall
	case op >= wasmbin.OpI32DivS && op <= wasmbin.OpI32RemU, op >= wasmbin.OpI64DivS && op <= wasmbin.OpI64RemU,
		op >= wasmbin.OpI32TruncF32S && op <= wasmbin.OpI32TruncF64U, op >= wasmbin.OpI64TruncF32S && op <= wasmbin.OpI64TruncF64U:
		return weightDivide
	case op >= wasmbin.OpI32Load && op <= wasmbin.OpI64Store32, op == wasmbin.OpTableGet || op == wasmbin.OpTableSet:
		return weightAccess
	}
	return 1
}

// binaryOp tells whether an operator takes two numbers and gives one.
func binaryOp(op wasmbin.Op) bool {
	return op >= wasmbin.OpI32Eq && op <= wasmbin.OpI32GeU || op >= wasmbin.OpI64Eq && op <= wasmbin.OpF64Ge ||
		op >= wasmbin.OpI32Add && op <= wasmbin.OpI32Rotr || op >= wasmbin.OpI64Add && op <= wasmbin.OpI64Rotr ||
		op >= wasmbin.OpF32Add && op <= wasmbin.OpF32Copysign || op >= wasmbin.OpF64Add && op <= wasmbin.OpF64Copysign
}

// cost estimates the time to compile the body, in nanoseconds. The caps keep it
// far from overflow.
func (s shape) cost() int64 {
	blocks, locals := int64(s.blocks()), int64(s.locals)
	return int64(s.weight)*costInstr +
		blocks*blocks*costBlockPair +
		blocks*locals*(costBlockLocal+locals*costLocalPair) +
		locals*locals*int64(s.loops)*int64(s.loopDepth+1)*costLoopLocal +
		s.tablePairs*costTablePair +
		s.callValues*costCallValue
}

// funcName names a function for a message.
func (a *admission) funcName(i int) string {
	if a.m.Names != nil {
		names := a.m.Names.Funcs
		at, found := slices.BinarySearchFunc(names, i, func(n wasmbin.NameAssoc, i int) int { return cmp.Compare(int(n.Index), i) })
		if found {
			return fmt.Sprintf("function %d (%s)", i, clean(names[at].Name, maxName))
		}
	}
	return fmt.Sprintf("function %d", i)
}
