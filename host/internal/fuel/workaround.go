package fuel

import "github.com/droverhq/drover/host/internal/wasmbin"

// wazero 1.12 compiles a branch on "0 < (x & y)" for amd64 as if the operands
// were the other way round: it makes one TEST of the and and the comparison with
// zero, which loses their order. Its interpreter and its other compilers do not,
// so a guest would cost and do something else depending on where it runs. What
// is matched there is an ordered comparison whose second operand is the result
// of an and, directly or by way of a local; an or with zero in between hides it.
// TestAndBelowZero fails without this, and tells when it can go.

// ands finds the ordered comparisons of one body whose second operand may be
// the result of an and. It errs on the side of finding.
type ands struct {
	// stamps[i] is stamp for locals that may hold such a result.
	stamps []int
	stamp  int
}

// start begins a new body.
func (a *ands) start(locals int) {
	a.stamp++
	if locals > len(a.stamps) {
		a.stamps = make([]int, locals)
	}
}

// note looks at the instruction at, for what it puts into locals.
func (a *ands) note(body []wasmbin.Instr, at int) {
	if in := body[at]; at > 0 && (in.Op == wasmbin.OpLocalSet || in.Op == wasmbin.OpLocalTee) {
		switch op := body[at-1].Op; {
		case op == wasmbin.OpLocalGet, op == wasmbin.OpLocalTee, isAnd(op), passesOn(op):
			a.stamps[in.A] = a.stamp
		}
	}
}

// compared tells whether the instruction at is such a comparison, and the
// operators that make a zero of its type and or it.
func (a *ands) compared(body []wasmbin.Instr, at int) (zero, or wasmbin.Op, found bool) {
	switch op := body[at].Op; {
	case op >= wasmbin.OpI32LtS && op <= wasmbin.OpI32GeU:
		zero, or = wasmbin.OpI32Const, wasmbin.OpI32Or
	case op >= wasmbin.OpI64LtS && op <= wasmbin.OpI64GeU:
		zero, or = wasmbin.OpI64Const, wasmbin.OpI64Or
	default:
		return 0, 0, false
	}
	if at == 0 {
		return 0, 0, false
	}
	before := body[at-1]
	switch {
	case before.Op == wasmbin.OpLocalGet, before.Op == wasmbin.OpLocalTee:
		found = a.stamps[before.A] == a.stamp
	default:
		found = isAnd(before.Op) || passesOn(before.Op)
	}
	return zero, or, found
}

func isAnd(op wasmbin.Op) bool { return op == wasmbin.OpI32And || op == wasmbin.OpI64And }

// passesOn tells whether the topmost value behind an operator can be one from
// before it, with nothing in between that keeps wazero from combining it.
func passesOn(op wasmbin.Op) bool {
	switch op {
	case wasmbin.OpNop, wasmbin.OpDrop, wasmbin.OpLocalSet, wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf,
		wasmbin.OpElse, wasmbin.OpEnd, wasmbin.OpBrIf:
		return true
	}
	return false
}

// initsSpent tells of a memory.init from an active data segment. The format says
// that instantiation leaves nothing of one; wazero 1.12 keeps it, in either
// engine. The rewritten module names an empty segment instead, so that a guest
// does the same in any engine, and goes on doing it when wazero changes.
func initsSpent(m *wasmbin.Module, in wasmbin.Instr) bool {
	return in.Op == wasmbin.OpMemoryInit && int64(in.A) < int64(len(m.Data)) && m.Data[in.A].Mode == wasmbin.Active
}

// selectFloat emits a select of floats as one of integers. wazero 1.12 does not
// tell its register allocator, on amd64, that the move under a condition which
// stands for a select of floats keeps what its destination holds: where its first
// operand has to be read back from the stack, the second may be lost, and what
// is left of Go's own work in a register is the result. That differs from call
// to call, and tells the guest about the host. wazero mended it after 1.12 (its
// issue 2534), and TestSelectOfFloats fails without this.
func (b *body) selectFloat(t wasmbin.ValType) {
	other, bits, float := b.other32, wasmbin.OpI32ReinterpretF32, wasmbin.OpF32ReinterpretI32
	if t == wasmbin.F64 {
		other, bits, float = b.other64, wasmbin.OpI64ReinterpretF64, wasmbin.OpF64ReinterpretI64
	}
	b.index(wasmbin.OpLocalSet, b.choice)
	b.op(bits)
	b.index(wasmbin.OpLocalSet, other)
	b.op(bits)
	b.index(wasmbin.OpLocalGet, other)
	b.index(wasmbin.OpLocalGet, b.choice)
	b.op(wasmbin.OpSelect)
	b.op(float)
}
