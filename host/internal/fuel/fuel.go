// Package fuel rewrites a guest so that it meters itself (spec 1.3): it pays for
// every operator, stops when it has used up its fuel or nests too many calls,
// and computes floats whose NaNs are canonical.
//
// The package owns the cost model, where charges are put, and the protocol
// between the rewritten module and the host. It works on bytes and imports
// wasmbin alone: what runs the result is the host's business.
//
// # Precondition
//
// The module must be valid: the host lets wazero validate the original first.
// The rewrite adds types, functions and exports that an invalid module could
// come to refer to. It checks every index against the guest's own spaces and
// every body's nesting, and returns an error rather than panic, but it does not
// check operand types.
//
// # Protocol
//
// The rewritten module imports from [Namespace]
//
//	refill (param i64) (result i64)
//	depth  (func)
//
// and exports, each name prefixed by [Namespace],
//
//	.left   mutable i64 global: the fuel left of what the host granted
//	.depth  mutable i64 global: the weight that calls may still add
//	.start  the start function, if there was one; the start section is gone
//	.g<N>   mutable global N of the guest, to save and to restore it
//
// Before every call from outside, of an export or of .start, the host sets .left
// to what it grants and .depth to [Result].Depth (callers set it for their callees, so it is
// left dirty by returns and traps alike). While .left is negative the guest owes
// fuel: it calls refill with that value, and the host either returns a value ≥ 0
// to go on with (what is left after adding a slice that covers the debt; one
// operation can owe up to 2⁴⁸) or panics with its own typed error. Bulk
// operations longer than [Piece] call refill between pieces even when nothing is
// owed, with a value ≥ 0, so that the host can look at the clock; it then
// returns the value that it was given, or a larger one. depth never returns
// normally. A host function that charges for itself subtracts from .left and
// does as refill would if the result is negative.
//
// Fuel used by a call is what was granted in total less the final .left. After a
// call that ends normally that is exactly the price of the operators executed,
// and the call was stopped for fuel if and only if that price is more than the
// limit. Charges are made behind, never ahead: what has been charged is at most
// the price of what has been executed. So a call is never stopped early, and one
// that traps a few operators after its fuel has run out may do so before it
// looks at the counter; its verdict is the trap then. Where a guest looks is a
// property of the rewritten module and of nothing else, so the verdict is the same
// on every machine, in both engines, and for slices of any size. What a call that
// traps has been charged is not its price. All of it has been charged when an
// imported function is called directly.
package fuel

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// CostModel is the version of the cost model. Results under different versions
// must not be compared: it is part of cache keys and of decision records.
const CostModel = 1

// Namespace is the module name of the added imports and the prefix of the added
// exports. Guests may use neither, see [ReservedImport] and [ReservedExport].
const Namespace = "drover_meter"

// DefaultDepthLimit is the weight of the calls that may be active at a time. It
// is reached before the 2000 frames of wazero's interpreter and the 50 MB of
// its compiler.
const DefaultDepthLimit = 1500

// Piece is the length in bytes up to which memory.fill, memory.copy and
// memory.init run in one go.
const Piece = 1 << 20

// The indices of the added imports.
const (
	funcRefill = 0
	funcDepth  = 1
)

// AddedImports is how many imports the rewrite puts before the guest's: function
// and import indices of the guest move up by as much.
const AddedImports = 2

// Options are the rewrite's parameters, part of a compile cache's key.
type Options struct {
	// DepthLimit is the weight of the calls that may be active at a time, 0 for
	// DefaultDepthLimit.
	DepthLimit int32
	// RawNaNs leaves NaNs as the engine makes them, which differ from machine to
	// machine. It is there to measure what canonical ones cost.
	RawNaNs bool
}

// Result is a rewritten module and what the host must know about it.
type Result struct {
	Wasm []byte
	// MutableGlobals are the export names of the guest's mutable globals, in
	// the order of their indices.
	MutableGlobals []string
	// MutableRefs tells that one of them holds a reference, which the host
	// cannot restore: such a module needs a new instance for each call, as does
	// one for which ChangesTables or DropsSegments is set.
	MutableRefs bool
	// Start tells whether there is an exported start function to be called once
	// after instantiation.
	Start bool
	// ChangesTables tells whether there is an instruction that writes a table.
	ChangesTables bool
	// DropsSegments tells whether there is a data.drop or an elem.drop.
	DropsSegments bool
	// Depth is what .depth is set to before a call from outside.
	Depth int32
	// Functions is the number of functions that the guest defines, and Weights
	// holds what a call of each adds to the depth.
	Functions int
	Weights   []int32
}

// ReservedImport tells whether a guest must not import from the module.
func ReservedImport(module string) bool { return module == Namespace }

// ReservedExport tells whether a guest must not export under the name.
func ReservedExport(name string) bool { return strings.HasPrefix(name, Namespace) }

// Rewrite returns the metered form of a valid module. m is not changed. Custom
// sections other than the name section are dropped.
func Rewrite(m *wasmbin.Module, o Options) (*Result, error) {
	switch {
	case o.DepthLimit == 0:
		o.DepthLimit = DefaultDepthLimit
	case o.DepthLimit < 0:
		return nil, fmt.Errorf("depth limit %d is negative", o.DepthLimit)
	}
	r := &rewriter{in: m, limit: o.DepthLimit, rawNaNs: o.RawNaNs, res: &Result{Functions: len(m.Funcs), Depth: o.DepthLimit}}
	if err := r.spaces(); err != nil {
		return nil, err
	}
	if err := r.survey(); err != nil {
		return nil, err
	}
	out, err := r.module()
	if err != nil {
		return nil, err
	}
	r.res.Wasm = wasmbin.EncodeBodies(out, r.appendBody)
	if r.err != nil {
		return nil, r.err
	}
	return r.res, nil
}

// rewriter holds what is known of one module while it is rewritten.
type rewriter struct {
	in      *wasmbin.Module
	limit   int32
	rawNaNs bool
	res     *Result
	err     error // the first error of a body

	funcs   []uint32 // types of the guest's functions, imports included
	globals []wasmbin.GlobalType

	// The indices of what is added behind the guest's own.
	typeRefill, typeVoid, typeBulk uint32
	globalLeft, globalDepth        uint32
	splits                         splits
	spent                          bool   // there is a data segment that stands for all spent ones
	leaf                           []bool // for each body: it calls nothing that is metered

	plan   plan  // of the body at hand
	body   body  // that is emitted
	ands   ands  // of the body at hand
	nans   nans  // of the body at hand
	places []int // see lastSet
	place  int
}

// spaces computes the guest's index spaces and checks what is outside bodies.
func (r *rewriter) spaces() error {
	m := r.in
	r.funcs = append(m.ImportedFuncs(), m.Funcs...)
	r.globals = m.AllGlobals()
	if len(m.Code) != len(m.Funcs) {
		return fmt.Errorf("%d functions, %d bodies", len(m.Funcs), len(m.Code))
	}
	for i, t := range r.funcs {
		if int64(t) >= int64(len(m.Types)) {
			return fmt.Errorf("function %d: type %d out of range", i, t)
		}
	}
	for _, i := range m.Imports {
		if ReservedImport(i.Module) {
			return fmt.Errorf("import %q.%q: the module name is reserved, rename it", i.Module, i.Name)
		}
	}
	for _, e := range m.Exports {
		if ReservedExport(e.Name) {
			return fmt.Errorf("export %q: the prefix %s is reserved, rename it", e.Name, Namespace)
		}
		if e.Kind == wasmbin.KindFunc && int64(e.Index) >= int64(len(r.funcs)) {
			return fmt.Errorf("export %q: function %d out of range", e.Name, e.Index)
		}
		if e.Kind == wasmbin.KindGlobal && int64(e.Index) >= int64(len(r.globals)) {
			return fmt.Errorf("export %q: global %d out of range", e.Name, e.Index)
		}
	}
	if m.HasStart && int64(m.Start) >= int64(len(r.funcs)) {
		return fmt.Errorf("start: function %d out of range", m.Start)
	}
	return nil
}

// survey looks at every instruction once for what concerns the whole module.
func (r *rewriter) survey() error {
	r.res.Weights = make([]int32, len(r.in.Code))
	r.leaf = make([]bool, len(r.in.Code))
	for i := range r.in.Code {
		c := &r.in.Code[i]
		values, err := r.frameValues(i)
		if err != nil {
			return fmt.Errorf("function %d: %w", len(r.funcs)-len(r.in.Funcs)+i, err)
		}
		r.res.Weights[i] = r.weight(values)
		r.leaf[i] = true
		for _, in := range c.Body {
			switch in.Op {
			case wasmbin.OpCall:
				r.leaf[i] = r.leaf[i] && r.imported(in.A)
			case wasmbin.OpCallIndirect:
				r.leaf[i] = false
			case wasmbin.OpTableSet, wasmbin.OpTableGrow, wasmbin.OpTableFill, wasmbin.OpTableCopy, wasmbin.OpTableInit:
				r.res.ChangesTables = true
			case wasmbin.OpDataDrop, wasmbin.OpElemDrop:
				r.res.DropsSegments = true
			case wasmbin.OpMemoryFill, wasmbin.OpMemoryCopy, wasmbin.OpMemoryInit:
				r.splits.want(r.in, in)
				r.spent = r.spent || initsSpent(r.in, in)
			}
		}
	}
	return nil
}

// module builds the rewritten module without its bodies.
func (r *rewriter) module() (*wasmbin.Module, error) {
	m := r.in
	out := *m
	out.Customs, out.HasStart = nil, false

	r.typeRefill = uint32(len(m.Types))
	r.typeVoid = r.typeRefill + 1
	r.typeBulk = r.typeRefill + 2
	i32 := wasmbin.I32
	out.Types = append(m.Types[:len(m.Types):len(m.Types)],
		wasmbin.FuncType{Params: []wasmbin.ValType{wasmbin.I64}, Results: []wasmbin.ValType{wasmbin.I64}},
		wasmbin.FuncType{},
		wasmbin.FuncType{Params: []wasmbin.ValType{i32, i32, i32}})
	out.Imports = append([]wasmbin.Import{
		funcRefill: {Module: Namespace, Name: "refill", Kind: wasmbin.KindFunc, Func: r.typeRefill},
		funcDepth:  {Module: Namespace, Name: "depth", Kind: wasmbin.KindFunc, Func: r.typeVoid},
	}, m.Imports...)

	r.splits.first = AddedImports + uint32(len(r.funcs))
	out.Funcs = m.Funcs[:len(m.Funcs):len(m.Funcs)]
	for range r.splits.kinds {
		out.Funcs = append(out.Funcs, r.typeBulk)
	}

	out.Globals = make([]wasmbin.Global, 0, len(m.Globals)+2)
	for _, g := range m.Globals {
		init, err := r.constExpr(g.Init)
		if err != nil {
			return nil, err
		}
		out.Globals = append(out.Globals, wasmbin.Global{Type: g.Type, Init: init})
	}
	r.globalLeft = uint32(len(r.globals))
	r.globalDepth = r.globalLeft + 1
	out.Globals = append(out.Globals,
		wasmbin.Global{Type: wasmbin.GlobalType{Type: wasmbin.I64, Mutable: true}, Init: wasmbin.Instr{Op: wasmbin.OpI64Const}},
		wasmbin.Global{Type: wasmbin.GlobalType{Type: wasmbin.I64, Mutable: true}, Init: wasmbin.Instr{Op: wasmbin.OpI64Const}})

	out.Exports = r.exports()

	out.Elems = make([]wasmbin.Elem, len(m.Elems))
	for i, e := range m.Elems {
		init := make([]wasmbin.Instr, len(e.Init))
		for j, in := range e.Init {
			var err error
			if init[j], err = r.constExpr(in); err != nil {
				return nil, err
			}
		}
		e.Init = init
		if e.Mode == wasmbin.Active {
			var err error
			if e.Offset, err = r.constExpr(e.Offset); err != nil {
				return nil, err
			}
		}
		out.Elems[i] = e
	}
	if r.spent {
		out.Data = append(m.Data[:len(m.Data):len(m.Data)], wasmbin.Data{Mode: wasmbin.Passive})
	}
	for _, d := range m.Data {
		if d.Mode == wasmbin.Active {
			if _, err := r.constExpr(d.Offset); err != nil {
				return nil, err
			}
		}
	}
	if m.Names != nil {
		n := *m.Names
		n.Funcs = make([]wasmbin.NameAssoc, 0, len(m.Names.Funcs))
		for _, a := range m.Names.Funcs {
			if int64(a.Index) < int64(len(r.funcs)) {
				n.Funcs = append(n.Funcs, wasmbin.NameAssoc{Index: a.Index + AddedImports, Name: a.Name})
			}
		}
		out.Names = &n
	}
	return &out, nil
}

func (r *rewriter) exports() []wasmbin.Export {
	out := make([]wasmbin.Export, 0, len(r.in.Exports)+len(r.globals)+3)
	for _, e := range r.in.Exports {
		if e.Kind == wasmbin.KindFunc {
			e.Index += AddedImports
		}
		out = append(out, e)
	}
	out = append(out,
		wasmbin.Export{Name: Namespace + ".left", Kind: wasmbin.KindGlobal, Index: r.globalLeft},
		wasmbin.Export{Name: Namespace + ".depth", Kind: wasmbin.KindGlobal, Index: r.globalDepth})
	if r.in.HasStart {
		r.res.Start = true
		out = append(out, wasmbin.Export{Name: Namespace + ".start", Kind: wasmbin.KindFunc, Index: r.in.Start + AddedImports})
	}
	for i, g := range r.globals {
		if !g.Mutable {
			continue
		}
		name := Namespace + ".g" + strconv.Itoa(i)
		out = append(out, wasmbin.Export{Name: name, Kind: wasmbin.KindGlobal, Index: uint32(i)})
		r.res.MutableGlobals = append(r.res.MutableGlobals, name)
		if g.Type.IsRef() {
			r.res.MutableRefs = true
		}
	}
	return out
}

// constExpr checks and moves a constant instruction.
func (r *rewriter) constExpr(in wasmbin.Instr) (wasmbin.Instr, error) {
	switch in.Op {
	case wasmbin.OpI32Const, wasmbin.OpI64Const, wasmbin.OpF32Const, wasmbin.OpF64Const, wasmbin.OpRefNull:
	case wasmbin.OpGlobalGet:
		if int64(in.A) >= int64(len(r.globals)) {
			return in, fmt.Errorf("constant expression: global %d out of range", in.A)
		}
	case wasmbin.OpRefFunc:
		if int64(in.A) >= int64(len(r.funcs)) {
			return in, fmt.Errorf("constant expression: function %d out of range", in.A)
		}
		in.A += AddedImports
	default:
		return in, errors.New("constant expression: " + in.Op.String())
	}
	return in, nil
}
