package wasmbin

// The frames that the decoder tells apart.
const (
	frameBlock = iota
	frameIf
	frameElse
)

// code reads one function body: locals, and instructions up to the end that
// closes the function, which must be the last byte.
func (d *decoder) code() (c Code) {
	start := d.pos
	size := d.u32()
	if uint64(size) > uint64(d.left()) {
		d.failAt(start, RuleMalformed, "body of %d bytes is past the end", size)
		return c
	}
	end := d.end
	d.end = d.pos + int(size)

	runs := d.count(2)
	c.Locals = makeVec[LocalRun](runs)
	var total uint64
	for i := 0; i < runs && d.err == nil; i++ {
		start := d.pos
		run := LocalRun{Count: d.u32(), Type: d.valType()}
		if total += uint64(run.Count); total > MaxLocals {
			d.failAt(start, RuleLimit, "a function has at most %d locals", MaxLocals)
			return c
		}
		c.Locals = append(c.Locals, run)
	}
	if d.locals += total; d.locals > MaxModuleLocals {
		d.failAt(start, RuleLimit, "the functions of a module have at most %d locals", MaxModuleLocals)
		return c
	}

	d.scratch, d.targets = d.scratch[:0], d.targets[:0]
	d.frames = append(d.frames[:0], frameBlock)
	for len(d.frames) > 0 {
		start := d.pos
		in := d.instr()
		if d.err != nil {
			return c
		}
		switch in.Op {
		case OpBlock, OpLoop:
			d.frames = append(d.frames, frameBlock)
		case OpIf:
			d.frames = append(d.frames, frameIf)
		case OpElse:
			top := &d.frames[len(d.frames)-1]
			if *top != frameIf {
				d.failAt(start, RuleMalformed, "else without if")
				return c
			}
			*top = frameElse
		case OpEnd:
			d.frames = d.frames[:len(d.frames)-1]
		}
		if len(d.scratch) == MaxInstructions {
			d.failAt(start, RuleBodySize, "a function has at most %d instructions", MaxInstructions)
			return c
		}
		d.scratch = append(d.scratch, in)
	}
	if d.pos != d.end {
		d.fail(RuleMalformed, "body goes on after its end")
		return c
	}
	d.end = end
	// Exact copies: a body's slack would live as long as the module.
	c.Body = append(make([]Instr, 0, len(d.scratch)), d.scratch...)
	if len(d.targets) > 0 {
		c.Targets = append(make([]uint32, 0, len(d.targets)), d.targets...)
	}
	return c
}

// instr reads one instruction.
func (d *decoder) instr() (in Instr) {
	if d.pos >= d.end {
		d.fail(RuleMalformed, "unexpected end, an end instruction is missing")
		return in
	}
	start := d.pos
	op := d.buf[d.pos]
	d.pos++
	in.Op = Op(op)
	info := &opTable[op]
	if info.imm == immUnknown {
		if op != 0xFC {
			d.unadmitted(start, op)
			return in
		}
		sub := d.u32()
		if d.err != nil {
			return in
		}
		if sub >= numFC {
			if sub >= 19 && sub <= 22 {
				d.failAt(start, RuleWideArith, "opcode 0xFC %d needs the wide-arithmetic feature", sub)
			} else {
				d.failAt(start, RuleUnknownOp, "unknown opcode 0xFC %d", sub)
			}
			return in
		}
		in.Op = 0xFC00 + Op(sub)
		info = &fcTable[sub]
	}
	switch info.imm {
	case immNone:
	case immIndex:
		in.A = d.u32()
		if in.Op == OpDataDrop {
			d.usesData = true
		}
	case immMem:
		d.memArg(&in)
	case immI32:
		in.B = uint64(uint32(d.signed(32)))
	case immI64:
		in.B = uint64(d.signed(64))
	case immF32:
		in.B = d.fixed(4)
	case immF64:
		in.B = d.fixed(8)
	case immBlock:
		in.B = uint64(d.blockType())
	case immIndex2, immCallIndirect:
		in.A = d.u32()
		in.B = uint64(d.u32())
	case immBrTable:
		n := d.count(1)
		in.A = uint32(len(d.targets))
		in.B = uint64(n) + 1
		for i := 0; i <= n && d.err == nil; i++ {
			d.targets = append(d.targets, d.u32())
		}
	case immSelectT:
		start := d.pos
		if n := d.u32(); n != 1 {
			d.failAt(start, RuleMalformed, "select of %d values", n)
		}
		in.A = uint32(d.valType())
	case immMemIdx:
		d.memIndex()
	case immMemInit:
		in.A = d.u32()
		d.memIndex()
		d.usesData = true
	case immMemCopy:
		d.memIndex()
		d.memIndex()
	case immRefType:
		start := d.pos
		if b := d.byte(); b == 0x70 || b == 0x6F {
			in.A = uint32(b)
		} else if b < 0x40 {
			d.failAt(start, RuleTypedFuncRef, "typed references are not supported")
		} else {
			d.pos = start
			d.refType()
		}
	}
	return in
}

func (d *decoder) memArg(in *Instr) {
	start := d.pos
	in.A = d.u32()
	switch {
	case in.A < 32:
	case in.A&0x40 != 0 && in.A < 0x60:
		d.failAt(start, RuleMultiMemory, "loads and stores use memory 0")
	default:
		d.failAt(start, RuleMalformed, "alignment 2^%d", in.A)
	}
	in.B = uint64(d.u32())
}

func (d *decoder) memIndex() {
	start := d.pos
	if b := d.byte(); b != 0 {
		d.failAt(start, RuleMultiMemory, "memory %d: a module has at most one memory", b)
	}
}

func (d *decoder) blockType() BlockType {
	if d.pos < d.end {
		switch b := d.buf[d.pos]; {
		case b == 0x40:
			d.pos++
			return BlockEmpty
		case b > 0x40 && b < 0x80:
			return BlockOf(d.valType())
		}
	}
	start := d.pos
	v := d.signed(33)
	if v < 0 {
		d.failAt(start, RuleMalformed, "unknown block type %d", v)
		return BlockEmpty
	}
	return BlockType(v)
}

// unadmitted names the feature that an opcode outside the admitted ones is of.
func (d *decoder) unadmitted(at int, op byte) {
	switch op {
	case 0x06, 0x07, 0x08, 0x09, 0x0A, 0x18, 0x19, 0x1F:
		d.failAt(at, RuleExceptions, "opcode 0x%02X needs the exception-handling feature", op)
	case 0x12, 0x13, 0x15:
		d.failAt(at, RuleTailCall, "opcode 0x%02X needs the tail-call feature", op)
	case 0x14, 0xD4, 0xD5, 0xD6:
		d.failAt(at, RuleTypedFuncRef, "opcode 0x%02X needs the typed function references feature", op)
	case 0xD3, 0xFB:
		d.failAt(at, RuleGC, "opcode 0x%02X needs the GC feature", op)
	case 0xFD:
		d.failAt(at, RuleSIMD, "opcode 0xFD needs the SIMD feature")
	case 0xFE:
		d.failAt(at, RuleThreads, "opcode 0xFE needs the threads feature")
	case 0xE0, 0xE1, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6:
		d.failAt(at, RuleStackSwitch, "opcode 0x%02X needs the stack-switching feature", op)
	default:
		d.failAt(at, RuleUnknownOp, "unknown opcode 0x%02X", op)
	}
}
