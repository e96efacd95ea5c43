package wasmbin

import "math/bits"

// AppendU32 appends v as unsigned LEB128.
func AppendU32(dst []byte, v uint32) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

// AppendS64 appends v as signed LEB128. The encodings of 32- and 33-bit numbers
// are the same.
func AppendS64(dst []byte, v int64) []byte {
	for v < -64 || v >= 64 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v)&0x7F)
}

func appendFixed(dst []byte, v uint64, n int) []byte {
	for range n {
		dst = append(dst, byte(v))
		v >>= 8
	}
	return dst
}

func appendName(dst []byte, s string) []byte {
	dst = AppendU32(dst, uint32(len(s)))
	return append(dst, s...)
}

// appendSized appends what f appends, preceded by its size in bytes.
func appendSized(dst []byte, f func([]byte) []byte) []byte {
	start := len(dst)
	dst = f(dst)
	size := uint32(len(dst) - start)
	width := (bits.Len32(size|1) + 6) / 7
	var room [5]byte
	dst = append(dst, room[:width]...)
	copy(dst[start+width:], dst[start:])
	AppendU32(dst[start:start], size)
	return dst
}

// AppendInstr appends one instruction; targets are the body's Code.Targets.
// The instruction must be one that Decode could have made.
func AppendInstr(dst []byte, in Instr, targets []uint32) []byte {
	imm := immNone
	if in.Op < 0x100 {
		dst = append(dst, byte(in.Op))
		imm = opTable[in.Op].imm
	} else {
		dst = append(dst, 0xFC)
		dst = AppendU32(dst, uint32(in.Op)-0xFC00)
		if info := in.Op.info(); info != nil {
			imm = info.imm
		}
	}
	switch imm {
	case immBlock:
		dst = AppendS64(dst, int64(in.B))
	case immIndex:
		dst = AppendU32(dst, in.A)
	case immMem, immIndex2, immCallIndirect:
		dst = AppendU32(dst, in.A)
		dst = AppendU32(dst, uint32(in.B))
	case immBrTable:
		// An instruction made by hand may point anywhere.
		lo := min(uint64(in.A), uint64(len(targets)))
		hi := lo + min(in.B, uint64(len(targets))-lo)
		dst = AppendU32(dst, uint32(hi-lo)-1)
		for _, t := range targets[lo:hi] {
			dst = AppendU32(dst, t)
		}
	case immSelectT:
		dst = append(dst, 1, byte(in.A))
	case immMemIdx:
		dst = append(dst, 0)
	case immMemInit:
		dst = AppendU32(dst, in.A)
		dst = append(dst, 0)
	case immMemCopy:
		dst = append(dst, 0, 0)
	case immI32:
		dst = AppendS64(dst, int64(int32(in.B)))
	case immI64:
		dst = AppendS64(dst, int64(in.B))
	case immF32:
		dst = appendFixed(dst, in.B, 4)
	case immF64:
		dst = appendFixed(dst, in.B, 8)
	case immRefType:
		dst = append(dst, byte(in.A))
	}
	return dst
}

func appendConstExpr(dst []byte, in Instr) []byte {
	return append(AppendInstr(dst, in, nil), byte(OpEnd))
}

// AppendLocals appends the declarations of a body's locals.
func AppendLocals(dst []byte, runs []LocalRun) []byte {
	dst = AppendU32(dst, uint32(len(runs)))
	for _, r := range runs {
		dst = AppendU32(dst, r.Count)
		dst = append(dst, byte(r.Type))
	}
	return dst
}

// Encode encodes the module. A decoded module that is encoded and decoded again
// is the same module.
func Encode(m *Module) []byte {
	return EncodeBodies(m, func(dst []byte, i int) []byte {
		c := &m.Code[i]
		dst = AppendLocals(dst, c.Locals)
		for _, in := range c.Body {
			dst = AppendInstr(dst, in, c.Targets)
		}
		return dst
	})
}

// EncodeBodies encodes the module with bodies from elsewhere: appendBody is
// called once for each of m.Funcs, in order, and appends the locals and the
// instructions of its body, without a size. m.Code is not read.
func EncodeBodies(m *Module, appendBody func(dst []byte, i int) []byte) []byte {
	out := append([]byte(magic), version...)
	section := func(id byte, n int, each func(dst []byte, i int) []byte) {
		if n == 0 {
			return
		}
		out = append(out, id)
		out = appendSized(out, func(b []byte) []byte {
			b = AppendU32(b, uint32(n))
			for i := range n {
				b = each(b, i)
			}
			return b
		})
	}
	section(secType, len(m.Types), func(b []byte, i int) []byte {
		b = append(b, 0x60)
		b = appendValTypes(b, m.Types[i].Params)
		return appendValTypes(b, m.Types[i].Results)
	})
	section(secImport, len(m.Imports), func(b []byte, i int) []byte { return appendImport(b, &m.Imports[i]) })
	section(secFunc, len(m.Funcs), func(b []byte, i int) []byte { return AppendU32(b, m.Funcs[i]) })
	section(secTable, len(m.Tables), func(b []byte, i int) []byte { return appendTable(b, m.Tables[i]) })
	section(secMemory, len(m.Mems), func(b []byte, i int) []byte { return appendLimits(b, m.Mems[i]) })
	section(secGlobal, len(m.Globals), func(b []byte, i int) []byte {
		return appendConstExpr(appendGlobal(b, m.Globals[i].Type), m.Globals[i].Init)
	})
	section(secExport, len(m.Exports), func(b []byte, i int) []byte {
		b = append(appendName(b, m.Exports[i].Name), byte(m.Exports[i].Kind))
		return AppendU32(b, m.Exports[i].Index)
	})
	if m.HasStart {
		out = append(out, secStart)
		out = appendSized(out, func(b []byte) []byte { return AppendU32(b, m.Start) })
	}
	section(secElem, len(m.Elems), func(b []byte, i int) []byte { return appendElem(b, &m.Elems[i]) })
	if m.HasDataCount {
		out = append(out, secDataCount)
		out = appendSized(out, func(b []byte) []byte { return AppendU32(b, uint32(len(m.Data))) })
	}
	section(secCode, len(m.Funcs), func(b []byte, i int) []byte {
		return appendSized(b, func(b []byte) []byte { return appendBody(b, i) })
	})
	section(secData, len(m.Data), func(b []byte, i int) []byte {
		s := &m.Data[i]
		if s.Mode == Passive {
			b = append(b, 1)
		} else {
			b = appendConstExpr(append(b, 0), s.Offset)
		}
		b = AppendU32(b, uint32(len(s.Init)))
		return append(b, s.Init...)
	})
	custom := func(name string, content func([]byte) []byte) {
		out = append(out, secCustom)
		out = appendSized(out, func(b []byte) []byte { return content(appendName(b, name)) })
	}
	if m.Names != nil {
		custom("name", func(b []byte) []byte { return appendNames(b, m.Names) })
	}
	for _, c := range m.Customs {
		custom(c.Name, func(b []byte) []byte { return append(b, c.Data...) })
	}
	return out
}

func appendValTypes(dst []byte, ts []ValType) []byte {
	dst = AppendU32(dst, uint32(len(ts)))
	for _, t := range ts {
		dst = append(dst, byte(t))
	}
	return dst
}

func appendLimits(dst []byte, l Limits) []byte {
	if !l.HasMax {
		return AppendU32(append(dst, 0), l.Min)
	}
	return AppendU32(AppendU32(append(dst, 1), l.Min), l.Max)
}

func appendTable(dst []byte, t TableType) []byte {
	return appendLimits(append(dst, byte(t.Elem)), t.Limits)
}

func appendGlobal(dst []byte, g GlobalType) []byte {
	mutable := byte(0)
	if g.Mutable {
		mutable = 1
	}
	return append(dst, byte(g.Type), mutable)
}

func appendImport(dst []byte, i *Import) []byte {
	dst = appendName(appendName(dst, i.Module), i.Name)
	dst = append(dst, byte(i.Kind))
	switch i.Kind {
	case KindFunc:
		return AppendU32(dst, i.Func)
	case KindTable:
		return appendTable(dst, i.Table)
	case KindMemory:
		return appendLimits(dst, i.Memory)
	}
	return appendGlobal(dst, i.Global)
}

// appendElem appends an element segment, as function indices where it can.
func appendElem(dst []byte, e *Elem) []byte {
	indices := e.Type == FuncRef
	for _, in := range e.Init {
		indices = indices && in.Op == OpRefFunc
	}
	// The forms without a type are for funcref in table 0.
	short := e.Mode == Active && e.Table == 0 && e.Type == FuncRef
	var flags byte
	switch {
	case e.Mode == Passive:
		flags = 1
	case e.Mode == Declarative:
		flags = 3
	case !short:
		flags = 2
	}
	if !indices {
		flags |= 4
	}
	dst = append(dst, flags)
	if e.Mode == Active {
		if !short {
			dst = AppendU32(dst, e.Table)
		}
		dst = appendConstExpr(dst, e.Offset)
	}
	if flags&3 != 0 {
		if indices {
			dst = append(dst, 0)
		} else {
			dst = append(dst, byte(e.Type))
		}
	}
	dst = AppendU32(dst, uint32(len(e.Init)))
	for _, in := range e.Init {
		if indices {
			dst = AppendU32(dst, in.A)
		} else {
			dst = appendConstExpr(dst, in)
		}
	}
	return dst
}
