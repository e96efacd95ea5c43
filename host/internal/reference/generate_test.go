package reference_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/droverhq/drover/host/internal/reference"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// open is a block of a body that is being looked at.
type open struct {
	op          wasmbin.Op
	params      int
	backs       int  // places that jump back to a loop
	calls, dead bool // contains calls of metered functions; cannot be reached
	loops       bool // contains loops that are jumped back to
}

// shapes counts the constructs of generated bodies.
type shapes struct {
	m    *wasmbin.Module
	leaf []bool
	seen map[string]int
}

func (s *shapes) imported(f uint32) bool { return int(f) < len(s.m.Imports) }

// arity returns the number of values of a block's parameters and results.
func (s *shapes) arity(in wasmbin.Instr) (params, results int) {
	if i, ok := in.BlockType().Index(); ok {
		return len(s.m.Types[i].Params), len(s.m.Types[i].Results)
	}
	if _, ok := in.BlockType().Result(); ok {
		return 0, 1
	}
	return 0, 0
}

func (s *shapes) body(c *wasmbin.Code, results int) {
	blocks := []open{{op: wasmbin.OpBlock}}
	arities := []int{results}
	live, units := true, 0
	for at, in := range c.Body {
		top := &blocks[len(blocks)-1]
		if live {
			units++
		}
		if units > 4096 {
			s.seen["more than 4096 units of a body"]++
			units = 0
		}
		label := func(l uint32) (*open, int) { i := len(blocks) - 1 - int(l); return &blocks[i], arities[i] }
		jump := func(how string, l uint32) {
			b, arity := label(l)
			to := "block"
			switch {
			case int(l) == len(blocks)-1:
				to = "function"
			case b.op == wasmbin.OpLoop:
				to = "loop"
				if live {
					b.backs++
				}
			case b.op == wasmbin.OpIf:
				to = "if"
			}
			if arity > 0 {
				to += " with values"
			}
			if arity > 1 {
				s.seen["branch with several values"]++
			}
			if !live {
				how = "dead " + how
			}
			s.seen[how+" to "+to]++
		}
		switch in.Op {
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			params, results := s.arity(in)
			if params > 0 {
				s.seen[in.Op.String()+" with parameters"]++
			}
			if !live {
				s.seen["dead "+in.Op.String()]++
			}
			arity := results
			if in.Op == wasmbin.OpLoop {
				arity = params
			}
			blocks, arities = append(blocks, open{op: in.Op, params: params, dead: !live}), append(arities, arity)
		case wasmbin.OpElse:
			live = !top.dead
		case wasmbin.OpEnd:
			b := *top
			blocks, arities = blocks[:len(blocks)-1], arities[:len(arities)-1]
			live = !b.dead // good enough: no generated block ends without a way to its end
			if len(blocks) == 0 {
				continue
			}
			outer := &blocks[len(blocks)-1]
			outer.calls = outer.calls || b.calls
			outer.loops = outer.loops || b.loops || b.backs > 0
			if b.backs > 4 {
				s.seen["more than four ways back"]++
			}
			if b.backs > 1 && b.params > 0 {
				s.seen["several ways back with values"]++
			}
			if b.backs > 0 {
				switch {
				case b.loops:
					s.seen["loop around loops"]++
				case b.calls:
					s.seen["innermost loop with calls"]++
				case b.params > 0:
					s.seen["innermost loop with parameters"]++
				default:
					s.seen["innermost loop"]++
				}
			}
		case wasmbin.OpBr:
			jump("br", in.A)
			live = false
		case wasmbin.OpBrIf:
			jump("br_if", in.A)
		case wasmbin.OpBrTable:
			for _, l := range c.Targets[in.A : uint64(in.A)+in.B] {
				jump("br_table", l)
			}
			live = false
		case wasmbin.OpReturn, wasmbin.OpUnreachable:
			live = false
			s.seen[in.Op.String()]++
		case wasmbin.OpCall:
			in2 := "straight code"
			for _, b := range blocks {
				if b.op == wasmbin.OpLoop {
					in2 = "a loop"
				}
			}
			switch {
			case !live:
				s.seen["dead call"]++
			case s.imported(in.A):
				s.seen["call of an import in "+in2]++
			case s.leaf[int(in.A)-len(s.m.Imports)]:
				top.calls = true
				s.seen["call of a leaf in "+in2]++
			default:
				top.calls = true
				s.seen["call in "+in2]++
			}
		case wasmbin.OpCallIndirect:
			top.calls = true
			s.seen["call_indirect"]++
			if in.B > 0 {
				s.seen["call_indirect by another table"]++
			}
			if before := c.Body[at-1]; before.Op == wasmbin.OpI32Const {
				if refs := s.m.Elems[0].Init; before.B < uint64(len(refs)) && s.imported(refs[before.B].A) {
					s.seen["call_indirect of an import"]++
				}
			}
		case wasmbin.OpTableInit:
			s.seen["table.init of a segment that is "+s.m.Elems[in.A].Mode.String()]++
		case wasmbin.OpF32Store, wasmbin.OpF64Store, wasmbin.OpI32ReinterpretF32, wasmbin.OpI64ReinterpretF64,
			wasmbin.OpF32Neg, wasmbin.OpF64Abs, wasmbin.OpF32Copysign, wasmbin.OpF64Copysign, wasmbin.OpF64PromoteF32, wasmbin.OpF32DemoteF64,
			wasmbin.OpMemoryInit, wasmbin.OpMemoryGrow, wasmbin.OpTableGrow, wasmbin.OpTableGet, wasmbin.OpSelect, wasmbin.OpSelectT, wasmbin.OpGlobalSet, wasmbin.OpLocalTee:
			s.seen[in.Op.String()]++
		}
	}
}

// TestGeneratorMakes: all that package fuel treats apart is in the modules that
// its differential test runs, or that would pass idly.
func TestGeneratorMakes(t *testing.T) {
	t.Parallel()
	s := &shapes{seen: map[string]int{}}
	for seed := range uint64(1200) {
		s.m = reference.Generate(seed)
		s.leaf = nil
		for _, c := range s.m.Code {
			leaf := true
			for _, in := range c.Body {
				leaf = leaf && in.Op != wasmbin.OpCallIndirect && (in.Op != wasmbin.OpCall || s.imported(in.A))
			}
			s.leaf = append(s.leaf, leaf)
		}
		for i := range s.m.Code {
			s.body(&s.m.Code[i], len(s.m.Types[s.m.Funcs[i]].Results))
		}
		if s.m.HasStart {
			s.seen["start"]++
		}
	}
	for _, how := range []string{"br", "br_if", "br_table", "dead br", "dead br_if", "dead br_table"} {
		for _, to := range []string{"function", "function with values", "block", "block with values", "if", "if with values", "loop", "loop with values"} {
			assert.Positive(t, s.seen[how+" to "+to], "%s to %s", how, to)
		}
	}
	for _, shape := range []string{
		"block with parameters", "loop with parameters", "if with parameters", "dead block", "dead loop", "dead if", "dead call",
		"branch with several values", "more than four ways back", "several ways back with values",
		"loop around loops", "innermost loop with calls", "innermost loop with parameters", "innermost loop",
		"call of an import in straight code", "call of a leaf in straight code", "call in straight code",
		"call of an import in a loop", "call of a leaf in a loop", "call in a loop", "call_indirect", "call_indirect of an import",
		"more than 4096 units of a body", "start", "return", "unreachable",
		"f32.store", "f64.store", "i32.reinterpret_f32", "i64.reinterpret_f64", "f32.neg", "f64.abs", "f32.copysign", "f64.copysign",
		"f64.promote_f32", "f32.demote_f64", "memory.init", "memory.grow", "table.grow", "table.get", "select",
		"table.init of a segment that is active", "table.init of a segment that is passive", "table.init of a segment that is declarative",
		"call_indirect by another table", "global.set", "local.tee",
	} {
		assert.GreaterOrEqual(t, s.seen[shape], 10, shape)
	}
	t.Log(s.seen)
}
