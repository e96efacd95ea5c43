package host

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// The caps of admission. They bound what decoding, compiling and instantiating
// a module can cost, whatever is in it; guests of every supported language stay
// far below.
const (
	MaxModuleBytes  = 8 << 20
	maxTypes        = 4096
	maxParams       = 128
	maxResults      = 32
	maxFunctions    = 20_000
	maxGlobals      = 1_000
	maxExports      = 10_000
	maxSegments     = 200_000 // Go writes its data as some 25 000
	maxTables       = 8
	maxTableSize    = 65_536 // elements of all tables together
	maxLocals       = 4_096  // of one function, parameters included
	maxInstructions = 100_000
	maxWeight       = 200_000 // instructions, those of which much machine code is made counted as several
	maxNesting      = 5_000
	maxBlocks       = 10_000 // basic blocks of one function, once it is metered
	maxStack        = 1_000  // operands
	maxBrTable      = 8_192
	addressable     = 65_536 // pages of memory
)

// decodeRules maps what the decoder refuses to the rules of admission.
var decodeRules = map[wasmbin.Rule]Rule{
	wasmbin.RuleMalformed:    RuleMalformed,
	wasmbin.RuleLimit:        RuleLocals,
	wasmbin.RuleBodySize:     RuleFunctionSize,
	wasmbin.RuleSIMD:         RuleSIMD,
	wasmbin.RuleThreads:      RuleThreads,
	wasmbin.RuleTailCall:     RuleTailCall,
	wasmbin.RuleExceptions:   RuleExceptions,
	wasmbin.RuleGC:           RuleGC,
	wasmbin.RuleMultiMemory:  RuleMultiMemory,
	wasmbin.RuleMemory64:     RuleMemory64,
	wasmbin.RuleTypedFuncRef: RuleTypedFuncRef,
	wasmbin.RuleExtendedCons: RuleExtendedConst,
	wasmbin.RulePageSizes:    RuleCustomPageSizes,
	wasmbin.RuleComponent:    RuleComponent,
	wasmbin.RuleWideArith:    RuleWideArithmetic,
	wasmbin.RuleStackSwitch:  RuleStackSwitching,
	wasmbin.RuleUnknownOp:    RuleUnknownOpcode,
}

// admit checks all that can be checked without an engine: size, format,
// features, caps, imports and exports. The module is nil if it could not be
// decoded. Its maxima of memory and tables are lowered to the limits.
func admit(wasm []byte, l Limits) (*wasmbin.Module, []Finding) {
	if len(wasm) > MaxModuleBytes {
		return nil, []Finding{finding(RuleModuleSize, "%d bytes: at most %d", len(wasm), MaxModuleBytes)}
	}
	if !bytes.HasPrefix(wasm, []byte("\x00asm")) {
		return nil, []Finding{notWasm(wasm)}
	}
	m, err := wasmbin.Decode(wasm)
	if err != nil {
		var de *wasmbin.Error
		if !errors.As(err, &de) {
			return nil, []Finding{finding(RuleMalformed, "%v", err)}
		}
		rule, ok := decodeRules[de.Rule]
		if !ok {
			rule = RuleMalformed
		}
		return nil, []Finding{findingAt(de.Offset, rule, "%s", de.Msg)}
	}
	a := &admission{m: m, limits: l, funcs: append(m.ImportedFuncs(), m.Funcs...)}
	a.spaces()
	a.code(len(wasm))
	a.imports()
	a.contract()
	return m, a.all()
}

func notWasm(b []byte) Finding {
	head := bytes.TrimLeft(b, " \t\r\n")
	switch {
	case len(b) == 0:
		return findingAt(0, RuleNotWasm, "the file is empty")
	case bytes.HasPrefix(head, []byte("(module")) || bytes.HasPrefix(head, []byte(";;")):
		return findingAt(0, RuleNotWasm, "this is WebAssembly text format")
	}
	return findingAt(0, RuleNotWasm, "the file begins with % x, a module with 00 61 73 6d", b[:min(4, len(b))])
}

// admission collects what there is to say about one module.
type admission struct {
	m        *wasmbin.Module
	limits   Limits
	funcs    []uint32 // types of all functions, imports first
	findings []Finding
	more     int // findings left out
}

// maxFindings bounds what is said about one module: a few bytes of it are
// enough for a finding.
const maxFindings = 20

// add adds a finding; those that are too many are counted in the last one.
func (a *admission) add(r Rule, format string, args ...any) {
	if len(a.findings) < maxFindings {
		a.findings = append(a.findings, finding(r, format, args...))
		return
	}
	a.more++
}

// all returns the findings.
func (a *admission) all() []Finding {
	if a.more > 0 {
		a.findings[maxFindings-1].Message += fmt.Sprintf(" (and %d more findings)", a.more)
	}
	return a.findings
}

// atMost adds a finding if n is above its cap.
func (a *admission) atMost(r Rule, what string, n, most int) bool {
	if n <= most {
		return true
	}
	a.add(r, "%d %s: at most %d", n, what, most)
	return false
}

// spaces checks the module's sizes outside code, and lowers the maxima that
// memory and tables may grow to.
func (a *admission) spaces() {
	m := a.m
	for i := range m.Mems {
		mem := &m.Mems[i]
		most := a.limits.MemoryPages
		if mem.HasMax && mem.Max > addressable {
			// Lowered, it would look valid.
			a.add(RuleInvalid, "a memory of up to %d pages: at most %d can be addressed", mem.Max, addressable)
		}
		if mem.Min > most {
			a.add(RuleMemoryLimit, "%d pages of memory at the start (%s): the limit is %d pages (%s)", mem.Min, pageSize(mem.Min), most, pageSize(most))
		} else if !mem.HasMax || mem.Max > most {
			mem.HasMax, mem.Max = true, most
		}
	}
	a.atMost(RuleTableSize, "tables", len(m.Tables), maxTables)
	var total uint64
	for i := range m.Tables {
		t := &m.Tables[i].Limits
		total += uint64(t.Min)
		if t.Min <= maxTableSize && (!t.HasMax || t.Max > maxTableSize) {
			t.HasMax, t.Max = true, maxTableSize
		}
	}
	if total > maxTableSize {
		a.add(RuleTableSize, "%d elements in its tables at the start: at most %d", total, maxTableSize)
	}
	a.atMost(RuleTypeCount, "types", len(m.Types), maxTypes)
	for i, t := range m.Types {
		ok := a.atMost(RuleSignature, fmt.Sprintf("parameters in type %d", i), len(t.Params), maxParams)
		if !ok || !a.atMost(RuleSignature, fmt.Sprintf("results in type %d", i), len(t.Results), maxResults) {
			break
		}
	}
	a.atMost(RuleFunctionCount, "functions and imports", len(m.Imports)+len(m.Funcs), maxFunctions)
	a.atMost(RuleGlobalCount, "globals", len(m.Globals), maxGlobals)
	a.atMost(RuleExportCount, "exports", len(m.Exports), maxExports)
	a.atMost(RuleSegmentCount, "data and element segments", len(m.Data)+len(m.Elems), maxSegments)
	elems := 0
	for i := range m.Elems {
		elems += len(m.Elems[i].Init)
	}
	a.atMost(RuleTableSize, "entries in element segments", elems, maxTableSize)
	var data uint64
	for i := range m.Data {
		data += uint64(len(m.Data[i].Init))
	}
	if most := uint64(a.limits.MemoryPages) * PageBytes; data > most {
		a.add(RuleDataSize, "%d bytes of data: the memory limit is %d", data, most)
	}
}

func pageSize(pages uint32) string {
	if pages%16 == 0 {
		return fmt.Sprintf("%d MiB", pages/16)
	}
	return fmt.Sprintf("%d KiB", pages*64)
}

// imports checks that everything imported is offered, with the host's
// signature.
func (a *admission) imports() {
	for _, imp := range a.m.Imports {
		name := clean(imp.Module, maxName) + "." + clean(imp.Name, maxName)
		if fuel.ReservedImport(imp.Module) {
			a.add(RuleReservedName, "import %s: the module name %s is the host's", name, fuel.Namespace)
			continue
		}
		f, ok := hostFuncs[imp.Module][imp.Name]
		if !ok || imp.Kind != wasmbin.KindFunc {
			a.add(RuleImport, "import %s (%s) does not exist", name, imp.Kind)
			continue
		}
		want := wasmbin.FuncType{Params: valTypes(f.params), Results: valTypes(f.results)}
		if got, ok := a.funcType(imp.Func); !ok || !sameType(got, want) {
			a.add(RuleImportType, "import %s is %s, the host has %s", name, typeText(got), typeText(want))
		}
	}
}

// contractExport is a function that the contract knows (spec 1.1).
type contractExport struct {
	name     string
	rule     Rule
	optional bool
	typ      wasmbin.FuncType
}

const (
	exportMemory     = "memory"
	exportABI        = "drover_abi_v1"
	exportBuffer     = "drover_buffer"
	exportAllocate   = "drover_allocate"
	exportRebalance  = "drover_rebalance"
	exportConfigure  = "drover_configure"
	exportDescribe   = "drover_describe"
	exportInitialize = "_initialize"
)

var (
	typeVoid     = wasmbin.FuncType{}
	typeBuffer   = wasmbin.FuncType{Params: []wasmbin.ValType{wasmbin.I32}, Results: []wasmbin.ValType{wasmbin.I32}}
	typeOp       = wasmbin.FuncType{Params: []wasmbin.ValType{wasmbin.I32, wasmbin.I32}, Results: []wasmbin.ValType{wasmbin.I64}}
	typeDescribe = wasmbin.FuncType{Results: []wasmbin.ValType{wasmbin.I64}}
)

var contractExports = []contractExport{
	{exportABI, RuleExportABI, false, typeVoid},
	{exportBuffer, RuleExportBuffer, false, typeBuffer},
	{exportAllocate, RuleExportAllocate, false, typeOp},
	{exportRebalance, RuleExportRebalance, false, typeOp},
	{exportConfigure, RuleExportConfigure, true, typeOp},
	{exportDescribe, RuleExportDescribe, true, typeDescribe},
	{exportInitialize, RuleExportInitialize, true, typeVoid},
}

// contract checks the exports.
func (a *admission) contract() {
	exports := make(map[string]wasmbin.Export, len(a.m.Exports))
	for _, e := range a.m.Exports {
		exports[e.Name] = e
		if fuel.ReservedExport(e.Name) {
			a.add(RuleReservedName, "export %s: names that begin with %s are the host's", clean(e.Name, maxName), fuel.Namespace)
		}
	}
	if e, ok := exports[exportMemory]; !ok {
		a.add(RuleExportMemory, "there is no export %s", exportMemory)
	} else if e.Kind != wasmbin.KindMemory {
		a.add(RuleExportMemory, "export %s is a %s, not a memory", exportMemory, e.Kind)
	}
	for _, c := range contractExports {
		e, ok := exports[c.name]
		switch {
		case !ok && c.optional:
		case !ok:
			a.add(c.rule, "there is no export %s: want %s", c.name, typeText(c.typ))
		case e.Kind != wasmbin.KindFunc:
			a.add(c.rule, "export %s is a %s, not a function %s", c.name, e.Kind, typeText(c.typ))
		default:
			if got, ok := a.exportedType(e.Index); !ok || !sameType(got, c.typ) {
				a.add(c.rule, "export %s is %s: want %s", c.name, typeText(got), typeText(c.typ))
			}
		}
	}
	if _, ok := exports["_start"]; ok {
		if _, ok := exports[exportInitialize]; !ok {
			a.add(RuleCommandModule, "_start is never called")
		}
	}
}

// exportedType returns the type of function i, imports first.
func (a *admission) exportedType(i uint32) (wasmbin.FuncType, bool) {
	if int64(i) >= int64(len(a.funcs)) {
		return wasmbin.FuncType{}, false
	}
	return a.funcType(a.funcs[i])
}

func (a *admission) funcType(i uint32) (wasmbin.FuncType, bool) {
	if int64(i) >= int64(len(a.m.Types)) {
		return wasmbin.FuncType{}, false
	}
	return a.m.Types[i], true
}

func valTypes(ts []byte) []wasmbin.ValType {
	out := make([]wasmbin.ValType, len(ts))
	for i, t := range ts {
		out[i] = wasmbin.ValType(t)
	}
	return out
}

func sameType(a, b wasmbin.FuncType) bool {
	return bytes.Equal(typeBytes(a.Params), typeBytes(b.Params)) && bytes.Equal(typeBytes(a.Results), typeBytes(b.Results))
}

func typeBytes(ts []wasmbin.ValType) []byte {
	out := make([]byte, len(ts))
	for i, t := range ts {
		out[i] = byte(t)
	}
	return out
}

// typeText writes a signature as (i32, i32) → i64.
func typeText(t wasmbin.FuncType) string {
	list := func(ts []wasmbin.ValType) string {
		s := ""
		for i, v := range ts {
			if i > 0 {
				s += ", "
			}
			s += v.String()
		}
		return s
	}
	out := "(" + list(t.Params) + ")"
	switch len(t.Results) {
	case 0:
	case 1:
		out += " → " + list(t.Results)
	default:
		out += " → (" + list(t.Results) + ")"
	}
	return out
}
