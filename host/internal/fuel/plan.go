package fuel

import (
	"fmt"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// plan is where one body is charged: at the start of each stretch of code that
// runs as a whole if its first instruction runs, for all of it. It is what a
// cleverer scheme replaces; costs and the rewriting of instructions are apart.
type plan struct {
	charges []charge
	dead    []span
	frames  []frame

	calls, lengths, f32, f64 bool // what scratch locals are needed
}

// charge asks for cost units before instruction at.
type charge struct {
	at   int
	cost uint32
}

// span is the instructions from..to-1.
type span struct{ from, to int }

type frame struct {
	op       wasmbin.Op // block, loop or if; else behind an if's else
	live     bool       // the frame's start can be reached
	branched bool       // there is a branch to the frame's end
	thenEnds bool       // the end of an if's first arm can be reached
}

// make checks the nesting and the indices of body i and plans its charges.
func (p *plan) make(r *rewriter, i int) error {
	c := &r.in.Code[i]
	*p = plan{charges: p.charges[:0], dead: p.dead[:0], frames: p.frames[:0]}
	p.open(0)
	p.charges[0].cost = entryCost
	p.frames = append(p.frames, frame{op: wasmbin.OpBlock, live: true})
	locals := len(r.in.Types[r.in.Funcs[i]].Params) + c.NumLocals()
	r.ands.start(locals)
	live, deadFrom := true, 0
	for at, in := range c.Body {
		if len(p.frames) == 0 {
			return fmt.Errorf("instruction %d: the body has ended", at)
		}
		if err := r.check(in, locals); err != nil {
			return fmt.Errorf("instruction %d: %s: %w", at, in.Op, err)
		}
		r.ands.note(c.Body, at)
		if live {
			p.charges[len(p.charges)-1].cost += opCost(in.Op)
			p.note(in.Op)
		}
		was := live
		switch in.Op {
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			p.frames = append(p.frames, frame{op: in.Op, live: live})
			if live && in.Op != wasmbin.OpBlock {
				p.open(at + 1)
			}
		case wasmbin.OpElse:
			f := &p.frames[len(p.frames)-1]
			if f.op != wasmbin.OpIf {
				return fmt.Errorf("instruction %d: else without if", at)
			}
			f.op, f.thenEnds, live = in.Op, live, f.live
			if live {
				p.open(at + 1)
			}
		case wasmbin.OpEnd:
			f := p.frames[len(p.frames)-1]
			p.frames = p.frames[:len(p.frames)-1]
			// Where other ways than straight on lead here, a stretch begins.
			joined := f.branched || f.thenEnds || (f.op == wasmbin.OpIf && f.live)
			live = live || joined
			if joined {
				p.open(at + 1)
			}
		case wasmbin.OpBr, wasmbin.OpBrIf:
			if err := p.branch(in.A, live); err != nil {
				return fmt.Errorf("instruction %d: %w", at, err)
			}
			if in.Op == wasmbin.OpBr {
				live = false
			} else if live {
				p.open(at + 1)
			}
		case wasmbin.OpBrTable:
			n := uint64(len(c.Targets))
			if in.B == 0 || uint64(in.A) > n || in.B > n-uint64(in.A) {
				return fmt.Errorf("instruction %d: br_table without its targets", at)
			}
			for _, label := range c.Targets[in.A : uint64(in.A)+in.B] {
				if err := p.branch(label, live); err != nil {
					return fmt.Errorf("instruction %d: %w", at, err)
				}
			}
			live = false
		case wasmbin.OpReturn, wasmbin.OpUnreachable:
			live = false
		}
		if was && !live {
			deadFrom = at + 1
		}
		if !was && live {
			p.dead = append(p.dead, span{deadFrom, at + 1})
		}
	}
	if len(p.frames) != 0 {
		return fmt.Errorf("%d ends are missing", len(p.frames))
	}
	if !live {
		p.dead = append(p.dead, span{deadFrom, len(c.Body)})
	}
	return nil
}

func (p *plan) open(at int) { p.charges = append(p.charges, charge{at: at}) }

func (p *plan) branch(label uint32, live bool) error {
	if uint64(label) >= uint64(len(p.frames)) {
		return fmt.Errorf("label %d out of range", label)
	}
	f := &p.frames[len(p.frames)-1-int(label)]
	if live && f.op != wasmbin.OpLoop {
		f.branched = true
	}
	return nil
}

// note records the scratch locals that an instruction needs.
func (p *plan) note(op wasmbin.Op) {
	switch {
	case op == wasmbin.OpCall || op == wasmbin.OpCallIndirect:
		p.calls = true
	case lengthPrice(op) != 0:
		p.lengths = true
	default:
		if t, ok := makesNaN(op); ok {
			p.f32 = p.f32 || t == wasmbin.F32
			p.f64 = p.f64 || t == wasmbin.F64
		}
	}
}

// check holds an instruction's indices against the guest's own spaces, where
// the rewrite adds to them.
func (r *rewriter) check(in wasmbin.Instr, locals int) error {
	outOf := func(what string, n int) error {
		if uint64(in.A) >= uint64(n) {
			return fmt.Errorf("%s %d out of range", what, in.A)
		}
		return nil
	}
	switch in.Op {
	case wasmbin.OpLocalGet, wasmbin.OpLocalSet, wasmbin.OpLocalTee:
		return outOf("local", locals)
	case wasmbin.OpGlobalGet, wasmbin.OpGlobalSet:
		return outOf("global", len(r.globals))
	case wasmbin.OpCall, wasmbin.OpRefFunc:
		return outOf("function", len(r.funcs))
	case wasmbin.OpCallIndirect:
		return outOf("type", len(r.in.Types))
	case wasmbin.OpMemoryInit:
		return outOf("data segment", len(r.in.Data))
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
		if t, ok := in.BlockType().Index(); ok && uint64(t) >= uint64(len(r.in.Types)) {
			return fmt.Errorf("type %d out of range", t)
		}
	default:
		if !in.Op.Known() {
			return fmt.Errorf("unknown opcode 0x%X", uint16(in.Op))
		}
	}
	return nil
}
