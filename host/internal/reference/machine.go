// Package reference is a slow and obvious interpreter of WebAssembly modules,
// with fuel and call depth counted one operator at a time straight from spec
// 1.3, and a generator of random modules. Together they are what the metering
// rewrite and wazero's two engines are held against.
//
// Only tests import it, and it imports wasmbin alone: it must share neither
// tables nor code with package fuel, or a mistake there would agree with itself.
package reference

import (
	"fmt"
	"math"
	"slices"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// Trap is how a call ended that did not return. Its text is wazero's.
type Trap string

// Error implements error.
func (t Trap) Error() string { return string(t) }

// The traps, and the two verdicts of metering.
const (
	TrapUnreachable  Trap = "unreachable"
	TrapMemory       Trap = "out of bounds memory access"
	TrapTable        Trap = "invalid table access"
	TrapSignature    Trap = "indirect call type mismatch"
	TrapDivideByZero Trap = "integer divide by zero"
	TrapOverflow     Trap = "integer overflow"
	TrapConversion   Trap = "invalid conversion to integer"
	OutOfFuel        Trap = "fuel"
	TooDeep          Trap = "depth"
)

// HostFunc is an imported function.
type HostFunc func(args []uint64) []uint64

// Options configure a Machine.
type Options struct {
	DepthLimit int64               // weight of the active calls
	MaxPages   uint32              // cap of the memory, in pages
	Host       map[string]HostFunc // by "module.name"
}

// Machine is an instantiated module. References are 0 for null, else the
// function's index plus one.
type Machine struct {
	Used   int64 // fuel used by the last Call
	Memory []byte
	// MadeNaN tells that arithmetic has made a NaN since the start, so that an
	// engine which does not make them canonical may have gone on differently.
	MadeNaN bool

	m       *wasmbin.Module
	o       Options
	limit   int64
	depth   int64
	globals []uint64
	tables  []table
	data    [][]byte
	elems   [][]uint64
	funcs   []function
	stack   []uint64
}

type table struct {
	elems []uint64
	max   uint32
}

type function struct {
	typ    *wasmbin.FuncType
	host   HostFunc
	code   *wasmbin.Code
	locals int // declared ones
	weight int64
	// ends[i] is where the block, loop or if at i ends; elses[i] where the else
	// of the if at i is, or its end.
	ends, elses []int
}

// New instantiates a module: everything but the start function. It panics on
// invalid modules.
func New(m *wasmbin.Module, o Options) (*Machine, error) {
	x := &Machine{m: m, o: o}
	for i := range m.Imports {
		imp := &m.Imports[i]
		name := imp.Module + "." + imp.Name
		h := o.Host[name]
		if imp.Kind != wasmbin.KindFunc || h == nil {
			return nil, fmt.Errorf("import %s is not provided", name)
		}
		x.funcs = append(x.funcs, function{typ: &m.Types[imp.Func], host: h})
	}
	for i, t := range m.Funcs {
		x.funcs = append(x.funcs, newFunction(m, &m.Types[t], &m.Code[i]))
	}
	for i := range x.funcs {
		if x.funcs[i].code != nil {
			x.funcs[i].weight = x.weigh(&x.funcs[i])
		}
	}
	for _, g := range m.Globals {
		x.globals = append(x.globals, x.constant(g.Init))
	}
	for _, t := range m.Tables {
		limit := uint32(math.MaxUint32)
		if t.Limits.HasMax {
			limit = t.Limits.Max
		}
		x.tables = append(x.tables, table{make([]uint64, t.Limits.Min), limit})
	}
	for _, mem := range m.Mems {
		x.Memory = make([]byte, int(mem.Min)<<16)
		if mem.HasMax {
			x.o.MaxPages = min(o.MaxPages, mem.Max)
		}
	}
	for _, e := range m.Elems {
		var refs []uint64
		for _, in := range e.Init {
			refs = append(refs, x.constant(in))
		}
		if e.Mode == wasmbin.Active {
			at := uint64(uint32(x.constant(e.Offset)))
			if at+uint64(len(refs)) > uint64(len(x.tables[e.Table].elems)) {
				return nil, TrapTable
			}
			copy(x.tables[e.Table].elems[at:], refs)
		}
		if e.Mode != wasmbin.Passive {
			refs = nil
		}
		x.elems = append(x.elems, refs)
	}
	for _, d := range m.Data {
		bytes := d.Init
		if d.Mode == wasmbin.Active {
			at := uint64(uint32(x.constant(d.Offset)))
			if at+uint64(len(bytes)) > uint64(len(x.Memory)) {
				return nil, TrapMemory
			}
			copy(x.Memory[at:], bytes)
			bytes = nil
		}
		x.data = append(x.data, bytes)
	}
	return x, nil
}

func (x *Machine) constant(in wasmbin.Instr) uint64 {
	switch in.Op {
	case wasmbin.OpGlobalGet:
		return x.globals[in.A]
	case wasmbin.OpRefFunc:
		return uint64(in.A) + 1
	case wasmbin.OpRefNull:
		return 0
	}
	return in.B
}

func newFunction(m *wasmbin.Module, typ *wasmbin.FuncType, code *wasmbin.Code) function {
	f := function{typ: typ, code: code, ends: make([]int, len(code.Body)), elses: make([]int, len(code.Body))}
	for _, r := range code.Locals {
		f.locals += int(r.Count)
	}
	var open []int
	for i, in := range code.Body {
		switch in.Op {
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			open = append(open, i)
		case wasmbin.OpElse:
			f.elses[open[len(open)-1]] = i
		case wasmbin.OpEnd:
			if len(open) == 0 {
				continue // the function's
			}
			start := open[len(open)-1]
			open = open[:len(open)-1]
			f.ends[start] = i
			if f.elses[start] == 0 {
				f.elses[start] = i
			} else {
				f.ends[f.elses[start]] = i
			}
		}
	}
	return f
}

// weigh returns 1 + 16·values/32768 (spec 1.3), where values are instructions,
// parameters and locals, one more for each further value that an instruction
// makes, and one for each local set in a block, loop or if.
func (x *Machine) weigh(f *function) int64 {
	n := len(f.typ.Params) + f.locals
	for at, in := range f.code.Body {
		n++
		made := 0
		switch in.Op {
		case wasmbin.OpCall:
			made = len(x.funcs[in.A].typ.Results)
		case wasmbin.OpCallIndirect:
			made = len(x.m.Types[in.A].Results)
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			params, results := x.arity(in)
			n += params
			made = results
			set := map[uint32]bool{}
			for _, inner := range f.code.Body[at:f.ends[at]] {
				if inner.Op == wasmbin.OpLocalSet || inner.Op == wasmbin.OpLocalTee {
					set[inner.A] = true
				}
			}
			n += len(set)
		}
		if made > 1 {
			n += made - 1
		}
	}
	return 1 + int64(n)/2048
}

// arity returns the number of parameters and results of a block.
func (x *Machine) arity(in wasmbin.Instr) (params, results int) {
	b := in.BlockType()
	if i, ok := b.Index(); ok {
		return len(x.m.Types[i].Params), len(x.m.Types[i].Results)
	}
	if _, ok := b.Result(); ok {
		return 0, 1
	}
	return 0, 0
}

// Export returns the index of an exported function.
func (x *Machine) Export(name string) uint32 {
	i := slices.IndexFunc(x.m.Exports, func(e wasmbin.Export) bool { return e.Name == name && e.Kind == wasmbin.KindFunc })
	if i < 0 {
		panic("no exported function " + name)
	}
	return x.m.Exports[i].Index
}

// Global returns the bits of a global.
func (x *Machine) Global(i int) uint64 { return x.globals[i] }

// Call calls a function with a limit of fuel. The error is a Trap.
func (x *Machine) Call(index uint32, limit int64, args ...uint64) (results []uint64, err error) {
	x.limit, x.Used, x.depth, x.stack = limit, 0, 0, append(x.stack[:0], args...)
	defer func() {
		if r := recover(); r != nil {
			trap, ok := r.(Trap)
			if !ok {
				panic(r)
			}
			results, err = nil, trap
		}
	}()
	x.invoke(index)
	return append([]uint64(nil), x.stack...), nil
}

// pay takes fuel before what it is for is done.
func (x *Machine) pay(units int64) {
	x.Used += units
	if x.Used > x.limit {
		panic(OutOfFuel)
	}
}

// invoke calls a function with its arguments on the stack and leaves its
// results there.
func (x *Machine) invoke(index uint32) {
	f := &x.funcs[index]
	base := len(x.stack) - len(f.typ.Params)
	if f.host != nil {
		results := f.host(x.stack[base:])
		x.stack = append(x.stack[:base], results...)
		return
	}
	if x.depth+f.weight > x.o.DepthLimit {
		panic(TooDeep)
	}
	x.pay(1)
	x.depth += f.weight
	locals := make([]uint64, len(f.typ.Params)+f.locals)
	copy(locals, x.stack[base:])
	x.stack = x.stack[:base]
	x.run(f, locals)
	n := len(f.typ.Results)
	copy(x.stack[base:], x.stack[len(x.stack)-n:])
	x.stack = x.stack[:base+n]
	x.depth -= f.weight
}
