package wasmbin

// MaxLocals caps the locals that one function may declare, and MaxModuleLocals
// those of all functions together. A declaration of 2³²−1 locals takes six
// bytes, and engines allocate something for each; a large Go guest has 100 000.
const (
	MaxLocals       = 50_000
	MaxModuleLocals = 2_000_000
)

// MaxInstructions caps the instructions of one function: decoded they take up to
// sixteen times their bytes, and for one body that is needed twice over.
const MaxInstructions = 1_000_000

// magic and version start every core module.
const magic, version = "\x00asm", "\x01\x00\x00\x00"

// The sections, in their binary encoding.
const (
	secCustom    = 0
	secType      = 1
	secImport    = 2
	secFunc      = 3
	secTable     = 4
	secMemory    = 5
	secGlobal    = 6
	secExport    = 7
	secStart     = 8
	secElem      = 9
	secCode      = 10
	secData      = 11
	secDataCount = 12
	secTag       = 13
)

// sectionOrder is the place of a section among the others.
var sectionOrder = [...]uint8{
	secType: 1, secImport: 2, secFunc: 3, secTable: 4, secMemory: 5, secGlobal: 6, secExport: 7,
	secStart: 8, secElem: 9, secDataCount: 10, secCode: 11, secData: 12,
}

type decoder struct {
	reader
	m         *Module
	dataCount uint32
	usesData  bool // a body names a data segment
	mems      int
	locals    uint64 // declared so far
	scratch   []Instr
	targets   []uint32
	frames    []byte
}

// Decode decodes a module. Names and data alias input, which must not change
// afterwards. Its error is always an *Error.
func Decode(input []byte) (*Module, error) {
	d := &decoder{reader: reader{buf: input, end: len(input)}, m: &Module{}}
	d.module()
	if d.err != nil {
		return nil, d.err
	}
	return d.m, nil
}

func (d *decoder) module() {
	if string(d.bytes(4)) != magic {
		d.failAt(0, RuleMalformed, "not a wasm file: the magic number is missing")
		return
	}
	switch v := string(d.bytes(4)); {
	case v == version:
	case len(v) == 4 && v[2:] == "\x01\x00":
		d.failAt(4, RuleComponent, "components are not supported")
	default:
		d.failAt(4, RuleMalformed, "unknown version of the format")
	}
	var last uint8
	for d.err == nil && d.pos < d.end {
		start := d.pos
		id := d.byte()
		size := d.u32()
		if uint64(size) > uint64(d.left()) {
			d.failAt(start, RuleMalformed, "section %d of %d bytes is past the end", id, size)
			return
		}
		switch {
		case id == secCustom:
		case id == secTag:
			d.failAt(start, RuleExceptions, "tags need the exception-handling feature")
			return
		case int(id) >= len(sectionOrder):
			d.failAt(start, RuleMalformed, "unknown section %d", id)
			return
		case sectionOrder[id] <= last:
			d.failAt(start, RuleMalformed, "section %d is out of order or there twice", id)
			return
		default:
			last = sectionOrder[id]
		}
		end := d.end
		d.end = d.pos + int(size)
		d.section(id)
		if d.err == nil && d.pos != d.end {
			d.fail(RuleMalformed, "section %d is longer than its content", id)
		}
		if d.err != nil {
			return
		}
		d.end = end
	}
	if d.err != nil {
		return
	}
	switch {
	case len(d.m.Funcs) != len(d.m.Code):
		d.fail(RuleMalformed, "%d functions are declared, %d have a body", len(d.m.Funcs), len(d.m.Code))
	case d.m.HasDataCount && int(d.dataCount) != len(d.m.Data):
		d.fail(RuleMalformed, "the data count is %d, there are %d segments", d.dataCount, len(d.m.Data))
	case d.usesData && !d.m.HasDataCount:
		d.fail(RuleMalformed, "memory.init and data.drop need a data count section")
	}
}

func (d *decoder) section(id byte) {
	switch id {
	case secCustom:
		d.custom()
	case secType:
		n := d.count(3)
		d.m.Types = makeVec[FuncType](n)
		for i := 0; i < n && d.err == nil; i++ {
			d.m.Types = append(d.m.Types, d.funcType())
		}
	case secImport:
		n := d.count(4)
		d.m.Imports = makeVec[Import](n)
		for i := 0; i < n && d.err == nil; i++ {
			d.m.Imports = append(d.m.Imports, d.importDesc())
		}
	case secFunc:
		n := d.count(1)
		d.m.Funcs = makeVec[uint32](n)
		for i := 0; i < n && d.err == nil; i++ {
			d.m.Funcs = append(d.m.Funcs, d.u32())
		}
	case secTable:
		n := d.count(3)
		d.m.Tables = makeVec[TableType](n)
		for i := 0; i < n && d.err == nil; i++ {
			d.m.Tables = append(d.m.Tables, d.tableType())
		}
	case secMemory:
		n := d.count(2)
		for i := 0; i < n && d.err == nil; i++ {
			d.m.Mems = append(d.m.Mems, d.memoryType())
		}
	case secGlobal:
		n := d.count(4)
		d.m.Globals = makeVec[Global](n)
		for i := 0; i < n && d.err == nil; i++ {
			t := d.globalType()
			d.m.Globals = append(d.m.Globals, Global{Type: t, Init: d.constExpr()})
		}
	case secExport:
		n := d.count(3)
		d.m.Exports = makeVec[Export](n)
		for i := 0; i < n && d.err == nil; i++ {
			d.m.Exports = append(d.m.Exports, d.export())
		}
	case secStart:
		d.m.HasStart = true
		d.m.Start = d.u32()
	case secElem:
		n := d.count(2)
		d.m.Elems = makeVec[Elem](n)
		for i := 0; i < n && d.err == nil; i++ {
			d.m.Elems = append(d.m.Elems, d.elem())
		}
	case secDataCount:
		d.m.HasDataCount = true
		d.dataCount = d.u32()
	case secCode:
		n := d.count(3)
		d.m.Code = makeVec[Code](n)
		for i := 0; i < n && d.err == nil; i++ {
			d.m.Code = append(d.m.Code, d.code())
		}
	case secData:
		n := d.count(2)
		d.m.Data = makeVec[Data](n)
		for i := 0; i < n && d.err == nil; i++ {
			d.m.Data = append(d.m.Data, d.data())
		}
	}
}

// makeVec allocates room for n elements, or nothing: an absent and an empty
// section decode to the same module.
func makeVec[T any](n int) []T {
	if n == 0 {
		return nil
	}
	// Elements are larger in memory than in the input; let big counts, which
	// may turn out to be malformed, grow as they are read.
	return make([]T, 0, min(n, 4096))
}

func (d *decoder) valType() ValType {
	start := d.pos
	switch b := d.byte(); ValType(b) {
	case I32, I64, F32, F64, FuncRef, ExternRef:
		return ValType(b)
	case 0x7B:
		d.failAt(start, RuleSIMD, "the type v128 needs the SIMD feature")
	case 0x69, 0x74:
		d.failAt(start, RuleExceptions, "the type 0x%x needs the exception-handling feature", b)
	case 0x63, 0x64:
		d.failAt(start, RuleTypedFuncRef, "typed references are not supported")
	case 0x6A, 0x6B, 0x6C, 0x6D, 0x6E, 0x71, 0x72, 0x73:
		d.failAt(start, RuleGC, "the type 0x%x needs the GC feature", b)
	case 0x68, 0x75:
		d.failAt(start, RuleStackSwitch, "the type 0x%x needs the stack-switching feature", b)
	default:
		d.failAt(start, RuleMalformed, "unknown value type 0x%x", b)
	}
	return 0
}

func (d *decoder) refType() ValType {
	start := d.pos
	t := d.valType()
	if d.err == nil && !t.IsRef() {
		d.failAt(start, RuleMalformed, "%s is not a reference type", t)
	}
	return t
}

func (d *decoder) funcType() (t FuncType) {
	start := d.pos
	switch b := d.byte(); b {
	case 0x60:
	case 0x4E, 0x4F, 0x50, 0x5E, 0x5F:
		d.failAt(start, RuleGC, "the type form 0x%x needs the GC feature", b)
	case 0x5D:
		d.failAt(start, RuleStackSwitch, "continuation types are not supported")
	default:
		d.failAt(start, RuleMalformed, "unknown type form 0x%x", b)
	}
	t.Params = d.valTypes()
	t.Results = d.valTypes()
	return t
}

func (d *decoder) valTypes() []ValType {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	out := make([]ValType, n)
	for i := range out {
		out[i] = d.valType()
	}
	return out
}

func (d *decoder) importDesc() (i Import) {
	i.Module = d.name()
	i.Name = d.name()
	start := d.pos
	switch i.Kind = ExternKind(d.byte()); i.Kind {
	case KindFunc:
		i.Func = d.u32()
	case KindTable:
		i.Table = d.tableType()
	case KindMemory:
		i.Memory = d.memoryType()
	case KindGlobal:
		i.Global = d.globalType()
	case 4:
		d.failAt(start, RuleExceptions, "tags need the exception-handling feature")
	default:
		d.failAt(start, RuleMalformed, "unknown import kind %d", i.Kind)
	}
	return i
}

func (d *decoder) limits() (l Limits) {
	start := d.pos
	switch f := d.byte(); {
	case f > 0x0F:
		d.failAt(start, RuleMalformed, "unknown flags 0x%x of limits", f)
	case f&0x08 != 0:
		d.failAt(start, RulePageSizes, "memories have pages of 64 KiB")
	case f&0x04 != 0:
		d.failAt(start, RuleMemory64, "64-bit memories and tables are not supported")
	case f&0x02 != 0:
		d.failAt(start, RuleThreads, "shared memories need the threads feature")
	default:
		l.HasMax = f == 1
	}
	l.Min = d.u32()
	if l.HasMax {
		l.Max = d.u32()
	}
	return l
}

func (d *decoder) tableType() (t TableType) {
	if d.pos < d.end && d.buf[d.pos] == 0x40 {
		d.fail(RuleTypedFuncRef, "tables with an initialiser are not supported")
		return t
	}
	t.Elem = d.refType()
	t.Limits = d.limits()
	return t
}

func (d *decoder) memoryType() Limits {
	if d.mems++; d.mems > 1 {
		d.fail(RuleMultiMemory, "a module has at most one memory")
	}
	return d.limits()
}

func (d *decoder) globalType() (g GlobalType) {
	g.Type = d.valType()
	start := d.pos
	switch b := d.byte(); b {
	case 0, 1:
		g.Mutable = b == 1
	case 2, 3:
		d.failAt(start, RuleThreads, "shared globals are not supported")
	default:
		d.failAt(start, RuleMalformed, "unknown mutability %d", b)
	}
	return g
}

func (d *decoder) export() (e Export) {
	e.Name = d.name()
	start := d.pos
	e.Kind = ExternKind(d.byte())
	switch {
	case e.Kind == 4:
		d.failAt(start, RuleExceptions, "tags need the exception-handling feature")
	case e.Kind > KindGlobal:
		d.failAt(start, RuleMalformed, "unknown export kind %d", e.Kind)
	}
	e.Index = d.u32()
	return e
}

// constExpr reads a constant expression: of the admitted features, always one
// instruction and its end.
func (d *decoder) constExpr() Instr {
	start := d.pos
	in := d.instr()
	if d.err != nil {
		return Instr{}
	}
	switch in.Op {
	case OpI32Const, OpI64Const, OpF32Const, OpF64Const, OpGlobalGet, OpRefNull, OpRefFunc:
	case OpEnd:
		d.failAt(start, RuleMalformed, "empty constant expression")
		return Instr{}
	default:
		d.failAt(start, RuleMalformed, "%s in a constant expression", in.Op)
		return Instr{}
	}
	start = d.pos
	next := d.instr()
	if d.err != nil || next.Op == OpEnd {
		return in
	}
	switch next.Op {
	case OpI32Const, OpI64Const, OpGlobalGet, OpI32Add, OpI32Sub, OpI32Mul, OpI64Add, OpI64Sub, OpI64Mul:
		d.failAt(start, RuleExtendedCons, "a constant expression is one instruction")
	default:
		d.failAt(start, RuleMalformed, "a constant expression is one instruction")
	}
	return in
}

// elem reads an element segment. Bit 0 of the flags: not active; bit 1: with an
// explicit table (active) or declarative; bit 2: expressions, not indices.
func (d *decoder) elem() (e Elem) {
	start := d.pos
	flags := d.u32()
	if flags > 7 {
		d.failAt(start, RuleMalformed, "unknown flags %d of an element segment", flags)
		return e
	}
	e.Type = FuncRef
	switch {
	case flags&1 == 0:
		e.Mode = Active
		if flags&2 != 0 {
			e.Table = d.u32()
		}
		e.Offset = d.constExpr()
	case flags&2 == 0:
		e.Mode = Passive
	default:
		e.Mode = Declarative
	}
	expr := flags&4 != 0
	if flags&3 != 0 {
		if expr {
			e.Type = d.refType()
		} else if start, kind := d.pos, d.byte(); kind != 0 {
			d.failAt(start, RuleMalformed, "unknown element kind %d", kind)
		}
	}
	n := d.count(1)
	e.Init = makeVec[Instr](n)
	for i := 0; i < n && d.err == nil; i++ {
		if expr {
			e.Init = append(e.Init, d.constExpr())
		} else {
			e.Init = append(e.Init, Instr{Op: OpRefFunc, A: d.u32()})
		}
	}
	return e
}

func (d *decoder) data() (s Data) {
	start := d.pos
	switch flags := d.u32(); flags {
	case 0:
		s.Offset = d.constExpr()
	case 1:
		s.Mode = Passive
	case 2:
		if mem := d.u32(); mem != 0 {
			d.failAt(start, RuleMultiMemory, "data segment of memory %d", mem)
		}
		s.Offset = d.constExpr()
	default:
		d.failAt(start, RuleMalformed, "unknown flags %d of a data segment", flags)
	}
	if n := d.u32(); n > 0 {
		s.Init = d.bytes(n)
	}
	return s
}

func (d *decoder) custom() {
	name := d.name()
	if d.err != nil {
		return
	}
	content := d.bytes(uint32(d.left()))
	if name == "name" && d.m.Names == nil {
		// A malformed name section is no reason to refuse a module, says the
		// specification of the format; it is kept like any other.
		if n, ok := decodeNames(content); ok {
			d.m.Names = n
			return
		}
	}
	d.m.Customs = append(d.m.Customs, Custom{Name: name, Data: content})
}
