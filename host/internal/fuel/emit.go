package fuel

import (
	"fmt"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// body emits one rewritten body.
type body struct {
	r   *rewriter
	p   *plan
	dst []byte
	// The scratch locals, behind the guest's own.
	left, length, calls, choice, address, other32, other64, f32, f64 uint32

	depth  int // of the emitted blocks that are open
	frames []frame
	// pend is the price of what has been executed and not been charged; unseen
	// bounds what this call and the leaves that it has called have executed since
	// the counter was last looked at.
	pend, unseen int64
	// blind tells that the counter may not have been looked at since the start of
	// the innermost loop.
	blind     bool
	ways, out []uint32 // see branchTable
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
	b := &r.body
	*b = body{r: r, p: &r.plan, dst: dst, frames: b.frames[:0], ways: b.ways[:0], out: b.out[:0], pend: entryCost, unseen: entryCost}
	b.locals(i)
	b.enter(r.res.Weights[i])
	blocks := r.plan.blocks
	b.frames = append(b.frames, frame{block: blocks[0], wanted: true})
	blocks = blocks[1:]

	c := &r.in.Code[i]
	dead := r.plan.dead
	for at, in := range c.Body {
		if len(dead) > 0 && at >= dead[0].to {
			dead = dead[1:]
		}
		live := len(dead) == 0 || at < dead[0].from
		t, canonical := b.seen(at)
		if canonical && !isFloatStore(in.Op) {
			b.canonical(t)
		}
		switch in.Op {
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			if live {
				b.spend(in)
			}
			b.openFrame(in, blocks[0], live)
			blocks = blocks[1:]
			continue
		case wasmbin.OpElse:
			b.elseArm(live)
			continue
		case wasmbin.OpEnd:
			if len(b.frames) > 1 {
				b.closeFrame(live)
				continue
			}
			if live {
				b.leave()
			}
			b.op(wasmbin.OpEnd)
			continue
		}
		if !live {
			b.unreachable(in, c.Targets)
			continue
		}
		if zero, or, ok := r.ands.compared(c.Body, at); ok {
			b.dst = wasmbin.AppendInstr(b.dst, wasmbin.Instr{Op: zero}, nil)
			b.op(or)
		}
		b.spend(in)
		if canonical && isFloatStore(in.Op) {
			b.store(in, t)
			continue
		}
		if t, ok := next(&b.r.nans.selects, at, always); ok {
			b.selectFloat(t)
			continue
		}
		b.instr(in, c.Targets)
		if t, ok := b.made(at); ok {
			b.canonical(t)
		}
	}
	return b.dst
}

// locals declares the guest's locals and the scratch ones.
func (b *body) locals(i int) {
	c, p := &b.r.in.Code[i], b.p
	next := uint32(len(b.r.in.Types[b.r.in.Funcs[i]].Params) + c.NumLocals())
	runs := append(make([]wasmbin.LocalRun, 0, len(c.Locals)+9), c.Locals...)
	add := func(wanted bool, index *uint32, t wasmbin.ValType) {
		if wanted {
			*index = next
			next++
			runs = append(runs, wasmbin.LocalRun{Count: 1, Type: t})
		}
	}
	add(p.loops, &b.left, wasmbin.I64)
	add(p.calls, &b.calls, wasmbin.I64)
	add(p.lengths, &b.length, wasmbin.I32)
	add(p.tables || p.select32 || p.select64, &b.choice, wasmbin.I32)
	add(p.select32, &b.other32, wasmbin.I32)
	add(p.select64, &b.other64, wasmbin.I64)
	add(p.stores, &b.address, wasmbin.I32)
	add(p.f32, &b.f32, wasmbin.F32)
	add(p.f64, &b.f64, wasmbin.F64)
	b.dst = wasmbin.AppendLocals(b.dst, runs)
}

// enter takes the function's weight from the depth that its caller has set, and
// checks it. A function that calls looks at the fuel there too, in one go.
func (b *body) enter(weight int32) {
	b.unshare()
	b.index(wasmbin.OpGlobalGet, b.r.globalDepth)
	b.i64(int64(weight))
	b.op(wasmbin.OpI64Sub)
	if b.p.calls {
		b.index(wasmbin.OpLocalTee, b.calls)
		b.counter()
		b.op(wasmbin.OpI64Or)
	}
	b.i64(0)
	b.op(wasmbin.OpI64LtS)
	b.ifEmpty()
	if b.p.calls {
		b.index(wasmbin.OpLocalGet, b.calls)
		b.i64(0)
		b.op(wasmbin.OpI64LtS)
		b.ifEmpty()
	}
	b.index(wasmbin.OpCall, funcDepth)
	b.op(wasmbin.OpUnreachable)
	if b.p.calls {
		b.end()
		b.refill()
	}
	b.end()
}

// instr emits a reachable instruction with what it needs around it.
func (b *body) instr(in wasmbin.Instr, targets []uint32) {
	switch in.Op {
	case wasmbin.OpBr:
		b.branch(in)
	case wasmbin.OpBrIf:
		b.branchIf(in)
	case wasmbin.OpBrTable:
		b.branchTable(in, targets)
	case wasmbin.OpReturn:
		b.leave()
		b.op(wasmbin.OpReturn)
	case wasmbin.OpCall:
		if b.r.imported(in.A) {
			b.chargeAll() // the host may look
			b.share()
		} else {
			b.prepare()
		}
		b.move(in)
		b.unshare()
		if i := int(in.A) - (len(b.r.funcs) - len(b.r.in.Funcs)); i >= 0 && !b.r.leaf[i] {
			b.looked() // when it was entered
		}
	case wasmbin.OpCallIndirect:
		b.prepare()
		b.move(in)
		b.unshare()
	default:
		if price := lengthPrice(in.Op); price != 0 {
			b.bulk(in, price)
		} else {
			b.move(in)
		}
	}
}

// prepare emits what comes before a call of a metered function.
func (b *body) prepare() {
	if b.pend > mostPending {
		b.chargeAll()
	}
	b.index(wasmbin.OpLocalGet, b.calls)
	b.index(wasmbin.OpGlobalSet, b.r.globalDepth)
	b.share()
}

// bulk emits an operator that is priced by its length.
func (b *body) bulk(in wasmbin.Instr, price uint32) {
	b.index(wasmbin.OpLocalTee, b.length)
	b.counter()
	b.index(wasmbin.OpLocalGet, b.length)
	b.op(wasmbin.OpI64ExtendI32U)
	if price != 1 {
		b.i64(int64(price))
		b.op(wasmbin.OpI64Mul)
	}
	b.op(wasmbin.OpI64Sub)
	b.setCounter()
	b.look()
	split, ok := b.r.splits.index(in)
	if !ok {
		b.move(in)
		return
	}
	b.index(wasmbin.OpLocalGet, b.length)
	b.i32(Piece)
	b.op(wasmbin.OpI32GtU)
	b.dst = wasmbin.AppendInstr(b.dst, wasmbin.Instr{Op: wasmbin.OpIf, B: uint64(b.r.typeBulk)}, nil)
	b.share()
	b.index(wasmbin.OpCall, split)
	b.unshare()
	b.op(wasmbin.OpElse)
	b.move(in)
	b.op(wasmbin.OpEnd)
}

// unreachable emits an instruction that is never executed: it needs nothing but
// to stay valid.
func (b *body) unreachable(in wasmbin.Instr, targets []uint32) {
	switch in.Op {
	case wasmbin.OpBr, wasmbin.OpBrIf:
		b.index(in.Op, uint32(b.depth-b.label(in.A).abs))
	case wasmbin.OpBrTable:
		b.out = b.out[:0]
		for _, t := range targets[in.A : uint64(in.A)+in.B] {
			b.out = append(b.out, uint32(b.depth-b.label(t).abs))
		}
		b.table(b.out)
	default:
		b.move(in)
	}
}

// made tells whether the arithmetic at has made a value that must be made
// canonical, and seen the same of the value that the instruction at sees.
func (b *body) made(at int) (wasmbin.ValType, bool) {
	return next(&b.r.nans.ops, at, b.r.nans.atMade)
}

func (b *body) seen(at int) (wasmbin.ValType, bool) {
	return next(&b.r.nans.seen, at, b.r.nans.atSeen)
}

func next(places *[]nanPlace, at int, when func(int32) bool) (wasmbin.ValType, bool) {
	if len(*places) == 0 || (*places)[0].at != at {
		return 0, false
	}
	p := (*places)[0]
	*places = (*places)[1:]
	return p.t, when(p.class)
}

func always(int32) bool { return true }

// canonical replaces the topmost value by the canonical NaN if it is one. The
// comparison is one that takes a single flag, and the bits are selected as an
// integer's, see selectFloat.
func (b *body) canonical(t wasmbin.ValType) {
	local, ge, bits, float := b.f32, wasmbin.OpF32Ge, wasmbin.OpI32ReinterpretF32, wasmbin.OpF32ReinterpretI32
	nan := wasmbin.Instr{Op: wasmbin.OpI32Const, B: canonicalF32}
	if t == wasmbin.F64 {
		local, ge, bits, float = b.f64, wasmbin.OpF64Ge, wasmbin.OpI64ReinterpretF64, wasmbin.OpF64ReinterpretI64
		nan = wasmbin.Instr{Op: wasmbin.OpI64Const, B: canonicalF64}
	}
	b.index(wasmbin.OpLocalTee, local)
	b.op(bits)
	b.dst = wasmbin.AppendInstr(b.dst, nan, nil)
	b.index(wasmbin.OpLocalGet, local)
	b.index(wasmbin.OpLocalGet, local)
	b.op(ge)
	b.op(wasmbin.OpSelect)
	b.op(float)
}

func (b *body) nan(t wasmbin.ValType) {
	nan := wasmbin.Instr{Op: wasmbin.OpF32Const, B: canonicalF32}
	if t == wasmbin.F64 {
		nan = wasmbin.Instr{Op: wasmbin.OpF64Const, B: canonicalF64}
	}
	b.dst = wasmbin.AppendInstr(b.dst, nan, nil)
}

// store stores a value, and the canonical NaN over it if it is one: there is no
// cheaper way past it.
func (b *body) store(in wasmbin.Instr, t wasmbin.ValType) {
	local, ne := b.f32, wasmbin.OpF32Ne
	if t == wasmbin.F64 {
		local, ne = b.f64, wasmbin.OpF64Ne
	}
	b.index(wasmbin.OpLocalSet, local)
	b.index(wasmbin.OpLocalTee, b.address)
	b.index(wasmbin.OpLocalGet, local)
	b.move(in)
	b.index(wasmbin.OpLocalGet, local)
	b.index(wasmbin.OpLocalGet, local)
	b.op(ne)
	b.ifEmpty()
	b.index(wasmbin.OpLocalGet, b.address)
	b.nan(t)
	b.move(in)
	b.end()
}

// move emits one of the guest's instructions with its function index moved.
func (b *body) move(in wasmbin.Instr) {
	if initsSpent(b.r.in, in) {
		in.A = uint32(len(b.r.in.Data))
	}
	if in.Op == wasmbin.OpCall || in.Op == wasmbin.OpRefFunc {
		in.A += AddedImports
	}
	b.dst = wasmbin.AppendInstr(b.dst, in, nil)
}

// br emits a branch to a label counted from outside.
func (b *body) br(abs int) { b.index(wasmbin.OpBr, uint32(b.depth-abs)) }

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

// ifEmpty and end bracket code that the rewrite adds.
func (b *body) ifEmpty() {
	b.dst = append(b.dst, byte(wasmbin.OpIf), 0x40)
	b.depth++
}

func (b *body) end() {
	b.op(wasmbin.OpEnd)
	b.depth--
}
