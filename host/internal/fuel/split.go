package fuel

import (
	"slices"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// splits are the functions added for bulk operations longer than a Piece, one
// for each of the kinds that the guest uses. Each takes the operation's
// operands, for which the caller has already paid.
type splits struct {
	kinds []wasmbin.Instr
	first uint32 // index of the first one's function
}

// want asks for the function that splits the operation, if it needs one.
func (s *splits) want(m *wasmbin.Module, in wasmbin.Instr) {
	if in.Op == wasmbin.OpMemoryInit && (int64(in.A) >= int64(len(m.Data)) || len(m.Data[in.A].Init) <= Piece || initsSpent(m, in)) {
		return // any longer operation traps
	}
	if !slices.Contains(s.kinds, in) {
		s.kinds = append(s.kinds, in)
	}
}

func (s *splits) index(in wasmbin.Instr) (uint32, bool) {
	if in.Op != wasmbin.OpMemoryFill && in.Op != wasmbin.OpMemoryCopy && in.Op != wasmbin.OpMemoryInit {
		return 0, false
	}
	i := slices.Index(s.kinds, in)
	return s.first + uint32(i), i >= 0
}

// appendSplit appends the body of split function k. It is called with n > Piece.
//
//	if dst+n (or src+n) is out of bounds: do it in one go, which traps; of a
//	dropped segment, which is empty, the first piece does
//	loop: one piece; refill; until at most a Piece is left; the rest
//
// A memory.copy to a higher address goes from the end backwards, so that no
// piece overwrites what a later one reads.
func (r *rewriter) appendSplit(dst []byte, k int) []byte {
	const dstLocal, srcLocal, n = 0, 1, 2 // src is the value for memory.fill
	in := r.splits.kinds[k]
	b := body{r: r, p: &plan{}, dst: append(dst, 0)} // no locals
	get := func(local uint32) { b.index(wasmbin.OpLocalGet, local) }
	// whole does the operation on all that is left.
	whole := func() {
		get(dstLocal)
		get(srcLocal)
		get(n)
		b.move(in)
	}
	// ends pushes local+n in 64 bits.
	ends := func(local uint32) {
		get(local)
		b.op(wasmbin.OpI64ExtendI32U)
		get(n)
		b.op(wasmbin.OpI64ExtendI32U)
		b.op(wasmbin.OpI64Add)
	}
	memoryEnd := func() {
		b.dst = wasmbin.AppendInstr(b.dst, wasmbin.Instr{Op: wasmbin.OpMemorySize}, nil)
		b.op(wasmbin.OpI64ExtendI32U)
		b.i64(16)
		b.op(wasmbin.OpI64Shl)
	}
	// step moves a local by one piece.
	step := func(local uint32, op wasmbin.Op) {
		get(local)
		b.i32(Piece)
		b.op(op)
		b.index(wasmbin.OpLocalSet, local)
	}
	refill := func() {
		b.index(wasmbin.OpGlobalGet, r.globalLeft)
		b.index(wasmbin.OpCall, funcRefill)
		b.index(wasmbin.OpGlobalSet, r.globalLeft)
	}
	again := func() {
		get(n)
		b.i32(Piece)
		b.op(wasmbin.OpI32GtU)
		b.index(wasmbin.OpBrIf, 0)
		b.op(wasmbin.OpEnd)
	}
	loop := func() { b.dst = append(b.dst, byte(wasmbin.OpLoop), 0x40) }

	ends(dstLocal)
	memoryEnd()
	b.op(wasmbin.OpI64GtU)
	if in.Op != wasmbin.OpMemoryFill {
		ends(srcLocal)
		if in.Op == wasmbin.OpMemoryInit {
			b.i64(int64(len(r.in.Data[in.A].Init)))
		} else {
			memoryEnd()
		}
		b.op(wasmbin.OpI64GtU)
		b.op(wasmbin.OpI32Or)
	}
	b.ifEmpty()
	whole()
	b.op(wasmbin.OpUnreachable)
	b.op(wasmbin.OpEnd)

	if in.Op == wasmbin.OpMemoryCopy {
		get(srcLocal)
		get(dstLocal)
		b.op(wasmbin.OpI32LtU)
		b.ifEmpty()
		loop()
		step(n, wasmbin.OpI32Sub)
		for _, local := range []uint32{dstLocal, srcLocal} {
			get(local)
			get(n)
			b.op(wasmbin.OpI32Add)
		}
		b.i32(Piece)
		b.move(in)
		refill()
		again()
		whole()
		b.op(wasmbin.OpReturn)
		b.op(wasmbin.OpEnd)
	}
	loop()
	get(dstLocal)
	get(srcLocal)
	b.i32(Piece)
	b.move(in)
	step(dstLocal, wasmbin.OpI32Add)
	if in.Op != wasmbin.OpMemoryFill {
		step(srcLocal, wasmbin.OpI32Add)
	}
	step(n, wasmbin.OpI32Sub)
	refill()
	again()
	whole()
	b.op(wasmbin.OpEnd)
	return b.dst
}
