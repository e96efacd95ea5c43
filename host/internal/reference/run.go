package reference

import (
	"encoding/binary"
	"reflect"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

type label struct {
	target int // where a branch goes on
	height int // of the stack below the block's parameters
	arity  int // of a branch
	loop   bool
}

// price is the cost model (spec 1.3), without what goes by length.
func price(op wasmbin.Op) int64 {
	switch op {
	case wasmbin.OpNop, wasmbin.OpDrop, wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpUnreachable,
		wasmbin.OpReturn, wasmbin.OpElse, wasmbin.OpEnd:
		return 0
	}
	return 1
}

func (x *Machine) push(v uint64) { x.stack = append(x.stack, v) }

func (x *Machine) pop() uint64 {
	v := x.stack[len(x.stack)-1]
	x.stack = x.stack[:len(x.stack)-1]
	return v
}

func (x *Machine) pop32() uint64 { return uint64(uint32(x.pop())) }

// run executes a body.
func (x *Machine) run(f *function, locals []uint64) {
	body := f.code.Body
	labels := []label{{target: len(body), height: len(x.stack), arity: len(f.typ.Results)}}
	pc := 0
	branch := func(depth uint32) {
		at := len(labels) - 1 - int(depth)
		l := labels[at]
		copy(x.stack[l.height:], x.stack[len(x.stack)-l.arity:])
		x.stack = x.stack[:l.height+l.arity]
		if l.loop {
			at++
		}
		labels = labels[:at]
		pc = l.target
	}
	for pc < len(body) {
		at := pc
		in := body[at]
		pc++
		x.pay(price(in.Op))
		switch in.Op {
		case wasmbin.OpUnreachable:
			panic(TrapUnreachable)
		case wasmbin.OpNop:
		case wasmbin.OpBlock:
			params, results := x.arity(in)
			labels = append(labels, label{f.ends[at] + 1, len(x.stack) - params, results, false})
		case wasmbin.OpLoop:
			params, _ := x.arity(in)
			labels = append(labels, label{at + 1, len(x.stack) - params, params, true})
		case wasmbin.OpIf:
			cond := x.pop32()
			params, results := x.arity(in)
			labels = append(labels, label{f.ends[at] + 1, len(x.stack) - params, results, false})
			if cond == 0 {
				pc = f.elses[at]
				if body[pc].Op == wasmbin.OpElse {
					pc++
				}
			}
		case wasmbin.OpElse:
			pc = f.ends[at]
		case wasmbin.OpEnd:
			labels = labels[:len(labels)-1]
		case wasmbin.OpBr:
			branch(in.A)
		case wasmbin.OpBrIf:
			if x.pop32() != 0 {
				branch(in.A)
			}
		case wasmbin.OpBrTable:
			i := min(x.pop32(), in.B-1)
			branch(f.code.Targets[uint64(in.A)+i])
		case wasmbin.OpReturn:
			branch(uint32(len(labels) - 1))
		case wasmbin.OpCall:
			x.invoke(in.A)
		case wasmbin.OpCallIndirect:
			elems, i := x.tables[in.B].elems, x.pop32()
			if i >= uint64(len(elems)) || elems[i] == 0 {
				panic(TrapTable)
			}
			callee := uint32(elems[i] - 1)
			if !sameType(x.funcs[callee].typ, &x.m.Types[in.A]) {
				panic(TrapSignature)
			}
			x.invoke(callee)
		case wasmbin.OpDrop:
			x.pop()
		case wasmbin.OpSelect, wasmbin.OpSelectT:
			cond, b, a := x.pop32(), x.pop(), x.pop()
			if cond == 0 {
				a = b
			}
			x.push(a)
		case wasmbin.OpLocalGet:
			x.push(locals[in.A])
		case wasmbin.OpLocalSet:
			locals[in.A] = x.pop()
		case wasmbin.OpLocalTee:
			locals[in.A] = x.stack[len(x.stack)-1]
		case wasmbin.OpGlobalGet:
			x.push(x.globals[in.A])
		case wasmbin.OpGlobalSet:
			x.globals[in.A] = x.pop()
		case wasmbin.OpI32Const, wasmbin.OpI64Const, wasmbin.OpF32Const, wasmbin.OpF64Const:
			x.push(in.B)
		case wasmbin.OpRefNull:
			x.push(0)
		case wasmbin.OpRefIsNull:
			x.push(truth(x.pop() == 0))
		case wasmbin.OpRefFunc:
			x.push(uint64(in.A) + 1)
		default:
			switch {
			case in.Op >= wasmbin.OpI32Load && in.Op <= wasmbin.OpI64Load32U:
				x.load(in)
			case in.Op >= wasmbin.OpI32Store && in.Op <= wasmbin.OpI64Store32:
				x.store(in)
			case !x.bulk(in):
				x.numeric(in.Op)
			}
		}
	}
}

func sameType(a, b *wasmbin.FuncType) bool {
	return len(a.Params) == len(b.Params) && len(a.Results) == len(b.Results) &&
		(len(a.Params) == 0 || reflect.DeepEqual(a.Params, b.Params)) &&
		(len(a.Results) == 0 || reflect.DeepEqual(a.Results, b.Results))
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// width returns the bytes that a load or store moves.
func width(op wasmbin.Op) uint64 {
	switch op {
	case wasmbin.OpI32Load8S, wasmbin.OpI32Load8U, wasmbin.OpI64Load8S, wasmbin.OpI64Load8U, wasmbin.OpI32Store8, wasmbin.OpI64Store8:
		return 1
	case wasmbin.OpI32Load16S, wasmbin.OpI32Load16U, wasmbin.OpI64Load16S, wasmbin.OpI64Load16U, wasmbin.OpI32Store16, wasmbin.OpI64Store16:
		return 2
	case wasmbin.OpI64Load, wasmbin.OpF64Load, wasmbin.OpI64Store, wasmbin.OpF64Store:
		return 8
	}
	return 4
}

func (x *Machine) span(base, offset, n uint64) []byte {
	at := base + offset
	if at+n > uint64(len(x.Memory)) {
		panic(TrapMemory)
	}
	return x.Memory[at : at+n]
}

func (x *Machine) load(in wasmbin.Instr) {
	n := width(in.Op)
	var room [8]byte
	copy(room[:], x.span(x.pop32(), in.B, n))
	v := binary.LittleEndian.Uint64(room[:])
	switch in.Op {
	case wasmbin.OpI32Load8S:
		v = uint64(uint32(int8(v)))
	case wasmbin.OpI32Load16S:
		v = uint64(uint32(int16(v)))
	case wasmbin.OpI64Load8S:
		v = uint64(int8(v))
	case wasmbin.OpI64Load16S:
		v = uint64(int16(v))
	case wasmbin.OpI64Load32S:
		v = uint64(int32(v))
	}
	x.push(v)
}

func (x *Machine) store(in wasmbin.Instr) {
	var room [8]byte
	binary.LittleEndian.PutUint64(room[:], x.pop())
	n := width(in.Op)
	copy(x.span(x.pop32(), in.B, n), room[:n])
}

// bulk executes the operators on whole memories, tables and segments, and tells
// whether in is one. Each is paid in full, then checked in full, then done.
func (x *Machine) bulk(in wasmbin.Instr) bool {
	switch in.Op {
	case wasmbin.OpMemorySize:
		x.push(uint64(len(x.Memory) >> 16))
	case wasmbin.OpMemoryGrow:
		n := x.pop32()
		x.pay(int64(n) * 65536)
		old := uint64(len(x.Memory) >> 16)
		if old+n > uint64(x.o.MaxPages) {
			x.push(0xFFFFFFFF)
			break
		}
		x.Memory = append(x.Memory, make([]byte, n<<16)...)
		x.push(old)
	case wasmbin.OpMemoryFill:
		n, v, d := x.pop32(), x.pop(), x.pop32()
		x.pay(int64(n))
		s := x.span(d, 0, n)
		for i := range s {
			s[i] = byte(v)
		}
	case wasmbin.OpMemoryCopy:
		n, s, d := x.pop32(), x.pop32(), x.pop32()
		x.pay(int64(n))
		src := x.span(s, 0, n)
		copy(x.span(d, 0, n), src)
	case wasmbin.OpMemoryInit:
		n, s, d := x.pop32(), x.pop32(), x.pop32()
		x.pay(int64(n))
		dst := x.span(d, 0, n)
		if s+n > uint64(len(x.data[in.A])) {
			panic(TrapMemory)
		}
		copy(dst, x.data[in.A][s:])
	case wasmbin.OpDataDrop:
		x.data[in.A] = nil
	case wasmbin.OpElemDrop:
		x.elems[in.A] = nil
	case wasmbin.OpTableSize:
		x.push(uint64(len(x.tables[in.A].elems)))
	case wasmbin.OpTableGet:
		x.push(x.tables[in.A].span(x.pop32(), 1)[0])
	case wasmbin.OpTableSet:
		v := x.pop()
		x.tables[in.A].span(x.pop32(), 1)[0] = v
	case wasmbin.OpTableGrow:
		n, v := x.pop32(), x.pop()
		x.pay(int64(n) * 8)
		t := &x.tables[in.A]
		old := len(t.elems)
		if uint64(old)+n > uint64(t.max) {
			x.push(0xFFFFFFFF)
			break
		}
		for range n {
			t.elems = append(t.elems, v)
		}
		x.push(uint64(old))
	case wasmbin.OpTableFill:
		n, v, i := x.pop32(), x.pop(), x.pop32()
		x.pay(int64(n))
		s := x.tables[in.A].span(i, n)
		for i := range s {
			s[i] = v
		}
	case wasmbin.OpTableCopy:
		n, s, d := x.pop32(), x.pop32(), x.pop32()
		x.pay(int64(n))
		src := x.tables[in.B].span(s, n)
		copy(x.tables[in.A].span(d, n), src)
	case wasmbin.OpTableInit:
		n, s, d := x.pop32(), x.pop32(), x.pop32()
		x.pay(int64(n))
		dst := x.tables[in.B].span(d, n)
		if s+n > uint64(len(x.elems[in.A])) {
			panic(TrapTable)
		}
		copy(dst, x.elems[in.A][s:])
	default:
		return false
	}
	return true
}

func (t *table) span(at, n uint64) []uint64 {
	if at+n > uint64(len(t.elems)) {
		panic(TrapTable)
	}
	return t.elems[at : at+n]
}
