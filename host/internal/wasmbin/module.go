// Package wasmbin decodes and encodes the WebAssembly binary format for the
// features that Drover admits: MVP, sign extension, saturating conversion,
// multi-value, bulk memory and reference types (spec 1.3).
//
// It is strict about the format and knows nothing about validation: a decoded
// module is well formed and its bodies are well nested, but operand types and
// indices are unchecked. No input makes it panic, and what it allocates is
// bounded by a small multiple of the input's size.
//
// It imports the standard library alone, so that everything which reads or
// rewrites guests can be tested without an engine.
package wasmbin

// ValType is a value type, in its binary encoding.
type ValType byte

// The value types of the admitted features.
const (
	I32       ValType = 0x7F
	I64       ValType = 0x7E
	F32       ValType = 0x7D
	F64       ValType = 0x7C
	FuncRef   ValType = 0x70
	ExternRef ValType = 0x6F
)

// String returns the name that the text format uses.
func (t ValType) String() string {
	switch t {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case FuncRef:
		return "funcref"
	case ExternRef:
		return "externref"
	}
	return "unknown"
}

// IsRef tells whether values of the type are references.
func (t ValType) IsRef() bool { return t == FuncRef || t == ExternRef }

// ExternKind says what an import or an export is.
type ExternKind byte

// The kinds of imports and exports, in their binary encoding.
const (
	KindFunc   ExternKind = 0
	KindTable  ExternKind = 1
	KindMemory ExternKind = 2
	KindGlobal ExternKind = 3
)

// String returns the name that the text format uses.
func (k ExternKind) String() string {
	switch k {
	case KindFunc:
		return "func"
	case KindTable:
		return "table"
	case KindMemory:
		return "memory"
	case KindGlobal:
		return "global"
	}
	return "unknown"
}

// FuncType is a function's signature.
type FuncType struct {
	Params, Results []ValType
}

// Limits are the size of a table in elements or of a memory in pages of 64 KiB.
type Limits struct {
	Min, Max uint32
	HasMax   bool
}

// TableType is the type of a table.
type TableType struct {
	Elem   ValType
	Limits Limits
}

// GlobalType is the type of a global.
type GlobalType struct {
	Type    ValType
	Mutable bool
}

// Import is one import. Kind says which of the last four fields counts.
type Import struct {
	Module, Name string
	Kind         ExternKind
	Func         uint32 // type index
	Table        TableType
	Memory       Limits
	Global       GlobalType
}

// Global is a global that the module defines.
type Global struct {
	Type GlobalType
	Init Instr // one constant instruction, without its end
}

// Export is one export; Index counts in the space of its kind, imports first.
type Export struct {
	Name  string
	Kind  ExternKind
	Index uint32
}

// SegmentMode says when a segment is used.
type SegmentMode byte

// The modes of segments; data segments are never declarative.
const (
	Active      SegmentMode = 0
	Passive     SegmentMode = 1
	Declarative SegmentMode = 2
)

// String returns the specification's word.
func (m SegmentMode) String() string {
	switch m {
	case Active:
		return "active"
	case Passive:
		return "passive"
	case Declarative:
		return "declarative"
	}
	return "unknown"
}

// Elem is an element segment. Table and Offset count for active ones alone.
type Elem struct {
	Mode   SegmentMode
	Type   ValType
	Table  uint32
	Offset Instr
	Init   []Instr // each one constant instruction, without its end
}

// Data is a data segment. Offset counts for active ones alone. Init aliases the
// decoder's input.
type Data struct {
	Mode   SegmentMode
	Offset Instr
	Init   []byte
}

// LocalRun declares Count locals of one type in a row.
type LocalRun struct {
	Count uint32
	Type  ValType
}

// Code is the body of a function that the module defines.
type Code struct {
	Locals  []LocalRun
	Body    []Instr  // with the final end
	Targets []uint32 // labels of the body's br_table instructions
}

// NumLocals returns how many locals the body declares, parameters not counted.
func (c *Code) NumLocals() int {
	n := 0
	for _, r := range c.Locals {
		n += int(r.Count)
	}
	return n
}

// NameAssoc names a function.
type NameAssoc struct {
	Index uint32
	Name  string
}

// Names is what is kept of the name section: the module's and the functions'
// names. Names of locals, labels and the rest are dropped.
type Names struct {
	Module    string
	HasModule bool
	Funcs     []NameAssoc // ascending by index
}

// Custom is a custom section other than the name section. Data aliases the
// decoder's input. Its place among the sections is not kept.
type Custom struct {
	Name string
	Data []byte
}

// Module is a decoded module. Index spaces start with the imports.
type Module struct {
	Types    []FuncType
	Imports  []Import
	Funcs    []uint32 // type indices of the functions in Code
	Tables   []TableType
	Mems     []Limits // at most one, imports included
	Globals  []Global
	Exports  []Export
	HasStart bool
	Start    uint32
	Elems    []Elem
	// HasDataCount tells whether there is a data count section; the count
	// itself is len(Data).
	HasDataCount bool
	Code         []Code
	Data         []Data
	Names        *Names // nil without a (well-formed) name section
	Customs      []Custom
}

// ImportedFuncs returns the type indices of the imported functions, in order.
func (m *Module) ImportedFuncs() []uint32 {
	var out []uint32
	for i := range m.Imports {
		if m.Imports[i].Kind == KindFunc {
			out = append(out, m.Imports[i].Func)
		}
	}
	return out
}

// AllGlobals returns the types of the whole global index space.
func (m *Module) AllGlobals() []GlobalType {
	var out []GlobalType
	for i := range m.Imports {
		if m.Imports[i].Kind == KindGlobal {
			out = append(out, m.Imports[i].Global)
		}
	}
	for i := range m.Globals {
		out = append(out, m.Globals[i].Type)
	}
	return out
}

// BlockType is the type of a block, loop or if: -64 for none, a negative value
// for a single result, or an index into the module's types.
type BlockType int64

// BlockEmpty is the type of a block without parameters and results.
const BlockEmpty BlockType = -64

// BlockOf returns the type of a block with the one result t.
func BlockOf(t ValType) BlockType { return BlockType(int64(t) - 0x80) }

// Result returns the single result of a block type that is neither empty nor an
// index.
func (b BlockType) Result() (ValType, bool) {
	if b >= 0 || b == BlockEmpty {
		return 0, false
	}
	return ValType(byte(b) & 0x7F), true
}

// Index returns the type index of a block type that has one.
func (b BlockType) Index() (uint32, bool) {
	return uint32(b), b >= 0
}

// Instr is one instruction. What A and B hold depends on the opcode:
//
//	block, loop, if              B: BlockType
//	br, br_if                    A: label
//	br_table                     A: first index into Code.Targets, B: number of
//	                             targets, the default (which is last) included
//	call, ref.func               A: function
//	call_indirect                A: type, B: table
//	select (typed)               A: value type
//	local.*, global.*            A: index
//	table.get/set/grow/size/fill A: table
//	table.copy                   A: destination, B: source table
//	table.init                   A: element segment, B: table
//	elem.drop, data.drop         A: segment
//	memory.init                  A: data segment
//	loads and stores             A: alignment's exponent, B: offset
//	i32.const, f32.const         B: the 32 bits
//	i64.const, f64.const         B: the 64 bits
//	ref.null                     A: reference type
type Instr struct {
	Op Op
	A  uint32
	B  uint64
}

// BlockType returns the type of a block, loop or if.
func (i Instr) BlockType() BlockType { return BlockType(i.B) }
