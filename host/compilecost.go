package host

import (
	"fmt"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// What wazero's compiler spends on a function grows with more than its size:
// with the square of its basic blocks, with blocks times the variables that are
// alive across them, with the square of a br_table. The prices are nanoseconds
// measured on the machine that figures in RATIONALE.md are from, for the code
// that metering makes of the shape.
const (
	costInstr      = 300  // each instruction
	costBlockPair  = 60   // each pair of blocks, loops, branches
	costBlockLocal = 1800 // each block times each local written
	costTablePair  = 1    // each pair of br_table entries
	costCallValue  = 1200 // each parameter and result of a call
)

// The estimate that a module may have: a fixed part for the smallest, and so
// much for each byte.
const (
	compileCostBase    = 1_000_000_000
	compileCostPerByte = 1_000
)

// shape is what the caps and the estimate look at in one body.
type shape struct {
	instrs, blocks, depth, brTable int
	tablePairs, callValues         int64
	locals                         int // written
}

// code checks every body against the caps, and the module's estimate. It names
// the first function that is over a cap: a bomb repeats itself.
func (a *admission) code(size int) {
	var total, worst int64
	worstFunc := -1
	imported := len(a.m.ImportedFuncs())
	written := make([]int, maxLocals)
	for i := range a.m.Code {
		c := &a.m.Code[i]
		name := a.funcName(imported + i)
		params := 0
		if i < len(a.m.Funcs) {
			if t, ok := a.funcType(a.m.Funcs[i]); ok {
				params = len(t.Params)
			}
		}
		s := a.shape(c, i+1, written)
		switch {
		case !a.atMost(RuleLocals, "locals in "+name, c.NumLocals()+params, maxLocals),
			!a.atMost(RuleFunctionSize, "instructions in "+name, s.instrs, maxInstructions),
			!a.atMost(RuleNesting, "nested blocks in "+name, s.depth, maxNesting),
			!a.atMost(RuleBlocks, "blocks and branches in "+name, s.blocks, maxBlocks),
			!a.atMost(RuleBrTable, "entries in a br_table of "+name, s.brTable, maxBrTable):
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

// shape reads one body. written is scratch: the last body, by number from 1,
// that wrote each local.
func (a *admission) shape(c *wasmbin.Code, body int, written []int) shape {
	s := shape{instrs: len(c.Body)}
	depth := 0
	for _, in := range c.Body {
		switch in.Op {
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			s.blocks++
			depth++
			s.depth = max(s.depth, depth)
		case wasmbin.OpEnd:
			depth--
		case wasmbin.OpElse, wasmbin.OpBr, wasmbin.OpBrIf, wasmbin.OpReturn:
			s.blocks++
		case wasmbin.OpBrTable:
			s.blocks++
			s.brTable = max(s.brTable, int(min(in.B, 1<<30)))
			s.tablePairs += int64(in.B) * int64(in.B)
		case wasmbin.OpLocalSet, wasmbin.OpLocalTee:
			if int64(in.A) < int64(len(written)) && written[in.A] != body {
				written[in.A] = body
				s.locals++
			}
		case wasmbin.OpCall:
			if t, ok := a.exportedType(in.A); ok {
				s.callValues += int64(len(t.Params) + len(t.Results))
			}
		case wasmbin.OpCallIndirect:
			if t, ok := a.funcType(in.A); ok {
				s.callValues += int64(len(t.Params) + len(t.Results))
			}
		}
	}
	return s
}

// cost estimates the time to compile the body, in nanoseconds. The caps keep it
// far from overflow.
func (s shape) cost() int64 {
	blocks := int64(s.blocks)
	return int64(s.instrs)*costInstr +
		blocks*blocks*costBlockPair +
		blocks*int64(s.locals)*costBlockLocal +
		s.tablePairs*costTablePair +
		s.callValues*costCallValue
}

// funcName names a function for a message.
func (a *admission) funcName(i int) string {
	if a.m.Names != nil {
		for _, n := range a.m.Names.Funcs {
			if int64(n.Index) == int64(i) {
				return fmt.Sprintf("function %d (%s)", i, n.Name)
			}
		}
	}
	return fmt.Sprintf("function %d", i)
}
