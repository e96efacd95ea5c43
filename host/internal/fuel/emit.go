package fuel

import (
	"fmt"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// The bits of the canonical NaNs.
const (
	canonicalF32 = 0x7FC00000
	canonicalF64 = 0x7FF8000000000000
)

// body emits one rewritten body.
type body struct {
	r   *rewriter
	dst []byte
	// The scratch locals, behind the guest's own.
	left, length, depth, f32, f64 uint32
}

// appendBody appends body i of the rewritten module: one of the guest's, or one
// of the split operations behind them. The first error is kept in r.err.
func (r *rewriter) appendBody(dst []byte, i int) []byte {
	if i >= len(r.in.Code) {
		return r.appendSplit(dst, i-len(r.in.Code))
	}
	if r.err != nil {
		return dst
	}
	if err := r.plan.make(r, i); err != nil {
		r.err = fmt.Errorf("function %d: %w", len(r.funcs)-len(r.in.Funcs)+i, err)
		return dst
	}
	b := body{r: r, dst: dst}
	b.locals(i)
	b.enter(r.res.Weights[i])

	c := &r.in.Code[i]
	charges, dead := r.plan.charges, r.plan.dead
	for at, in := range c.Body {
		for len(charges) > 0 && charges[0].at == at {
			b.charge(charges[0].cost)
			charges = charges[1:]
		}
		if len(dead) > 0 && at >= dead[0].to {
			dead = dead[1:]
		}
		if len(dead) > 0 && at >= dead[0].from {
			b.move(in, c.Targets)
			continue
		}
		if zero, or, ok := r.ands.compared(c.Body, at); ok {
			b.dst = wasmbin.AppendInstr(b.dst, wasmbin.Instr{Op: zero}, nil)
			b.op(or)
		}
		b.instr(in, c.Targets)
		if t, ok := makesNaN(in.Op); ok && !readByArithmetic(c.Body[at+1:]) {
			b.canonical(t)
		}
	}
	return b.dst
}

// locals declares the guest's locals and the scratch ones.
func (b *body) locals(i int) {
	c, p := &b.r.in.Code[i], &b.r.plan
	next := uint32(len(b.r.in.Types[b.r.in.Funcs[i]].Params) + c.NumLocals())
	runs := append(make([]wasmbin.LocalRun, 0, len(c.Locals)+5), c.Locals...)
	add := func(wanted bool, index *uint32, t wasmbin.ValType) {
		if wanted {
			*index = next
			next++
			runs = append(runs, wasmbin.LocalRun{Count: 1, Type: t})
		}
	}
	add(true, &b.left, wasmbin.I64)
	add(p.lengths, &b.length, wasmbin.I32)
	add(p.calls, &b.depth, wasmbin.I32)
	add(p.f32, &b.f32, wasmbin.F32)
	add(p.f64, &b.f64, wasmbin.F64)
	b.dst = wasmbin.AppendLocals(b.dst, runs)
}

// enter adds the function's weight to the depth that its caller has set, and
// checks it.
func (b *body) enter(weight int32) {
	b.index(wasmbin.OpGlobalGet, b.r.globalDepth)
	b.i32(weight)
	b.op(wasmbin.OpI32Add)
	if b.r.plan.calls {
		b.index(wasmbin.OpLocalTee, b.depth)
	}
	b.i32(b.r.limit)
	// Unsigned, so that not even a sum that wraps around passes.
	b.op(wasmbin.OpI32GtU)
	b.ifEmpty()
	b.index(wasmbin.OpCall, funcDepth)
	b.op(wasmbin.OpUnreachable)
	b.op(wasmbin.OpEnd)
}

// charge takes a fixed price.
func (b *body) charge(cost uint32) {
	if cost == 0 {
		return
	}
	b.index(wasmbin.OpGlobalGet, b.r.globalLeft)
	b.i64(int64(cost))
	b.pay()
}

// pay subtracts the topmost value from the one below it, the fuel left, and
// calls the host if that makes it negative.
func (b *body) pay() {
	b.op(wasmbin.OpI64Sub)
	b.index(wasmbin.OpLocalTee, b.left)
	b.index(wasmbin.OpGlobalSet, b.r.globalLeft)
	b.index(wasmbin.OpLocalGet, b.left)
	b.i64(0)
	b.op(wasmbin.OpI64LtS)
	b.ifEmpty()
	b.index(wasmbin.OpLocalGet, b.left)
	b.index(wasmbin.OpCall, funcRefill)
	b.index(wasmbin.OpGlobalSet, b.r.globalLeft)
	b.op(wasmbin.OpEnd)
}

// instr emits a reachable instruction with what it needs around it.
func (b *body) instr(in wasmbin.Instr, targets []uint32) {
	if price := lengthPrice(in.Op); price != 0 {
		b.index(wasmbin.OpLocalTee, b.length)
		b.index(wasmbin.OpGlobalGet, b.r.globalLeft)
		b.index(wasmbin.OpLocalGet, b.length)
		b.op(wasmbin.OpI64ExtendI32U)
		if price != 1 {
			b.i64(int64(price))
			b.op(wasmbin.OpI64Mul)
		}
		b.pay()
		if split, ok := b.r.splits.index(in); ok {
			b.index(wasmbin.OpLocalGet, b.length)
			b.i32(Piece)
			b.op(wasmbin.OpI32GtU)
			b.dst = wasmbin.AppendInstr(b.dst, wasmbin.Instr{Op: wasmbin.OpIf, B: uint64(b.r.typeBulk)}, nil)
			b.index(wasmbin.OpCall, split)
			b.op(wasmbin.OpElse)
			b.move(in, targets)
			b.op(wasmbin.OpEnd)
			return
		}
	}
	if in.Op == wasmbin.OpCallIndirect || in.Op == wasmbin.OpCall && int(in.A) >= len(b.r.funcs)-len(b.r.in.Funcs) {
		b.index(wasmbin.OpLocalGet, b.depth)
		b.index(wasmbin.OpGlobalSet, b.r.globalDepth)
	}
	b.move(in, targets)
}

// canonical replaces the topmost value by the canonical NaN if it is one.
func (b *body) canonical(t wasmbin.ValType) {
	local, nan, eq := b.f32, wasmbin.Instr{Op: wasmbin.OpF32Const, B: canonicalF32}, wasmbin.OpF32Eq
	if t == wasmbin.F64 {
		local, nan, eq = b.f64, wasmbin.Instr{Op: wasmbin.OpF64Const, B: canonicalF64}, wasmbin.OpF64Eq
	}
	b.index(wasmbin.OpLocalTee, local)
	b.dst = wasmbin.AppendInstr(b.dst, nan, nil)
	b.index(wasmbin.OpLocalGet, local)
	b.index(wasmbin.OpLocalGet, local)
	b.op(eq)
	b.op(wasmbin.OpSelect)
}

// move emits one of the guest's instructions with its function index moved.
func (b *body) move(in wasmbin.Instr, targets []uint32) {
	if in.Op == wasmbin.OpCall || in.Op == wasmbin.OpRefFunc {
		in.A += addedImports
	}
	b.dst = wasmbin.AppendInstr(b.dst, in, targets)
}

func (b *body) op(op wasmbin.Op) { b.dst = append(b.dst, byte(op)) }

func (b *body) index(op wasmbin.Op, index uint32) {
	b.dst = wasmbin.AppendU32(append(b.dst, byte(op)), index)
}

func (b *body) i32(v int32) {
	b.dst = wasmbin.AppendS64(append(b.dst, byte(wasmbin.OpI32Const)), int64(v))
}

func (b *body) i64(v int64) {
	b.dst = wasmbin.AppendS64(append(b.dst, byte(wasmbin.OpI64Const)), v)
}

func (b *body) ifEmpty() { b.dst = append(b.dst, byte(wasmbin.OpIf), 0x40) }
