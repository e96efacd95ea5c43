package fuel

import (
	"fmt"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// plan is what has to be known of one body before it can be emitted: which code
// cannot be reached, how its labels are used, and what scratch locals it needs.
type plan struct {
	dead   []span
	blocks []block // the body itself, then every block, loop and if in order
	open   []int   // indices into blocks

	loops   bool // a loop that code jumps back to
	tight   bool // one of them calls nothing
	calls   bool // is no leaf
	lengths bool // has operators priced by length
	tables  bool // has branch tables without values
	// Makes NaNs canonical, of either type, and after a store.
	f32, f64, stores bool
	// Has selects of floats, of either type.
	select32, select64 bool
}

// span is the instructions from..to-1.
type span struct{ from, to int }

// block is what the whole body says about one of its blocks.
type block struct {
	op              wasmbin.Op // block, loop or if
	live            bool       // its start can be reached
	inElse          bool       // an if whose second arm has begun
	params, results int
	arity           int // of its label
	// backs counts the places that jump back to a loop.
	backs int
	// branched tells of a branch to the end of a block or if; thenEnds that the
	// end of an if's first arm can be reached.
	branched, thenEnds bool
	// byTable tells of a br_table to the label that carries values, so that no
	// edge can be told from another.
	byTable bool
	calls   bool // contains calls of functions that are metered
	outer   bool // contains loops
	table   int  // 1 + where the last br_table to it is
}

// make checks the nesting and the indices of body i and reads its structure.
func (p *plan) make(r *rewriter, i int) error {
	c, t := &r.in.Code[i], r.in.Types[r.in.Funcs[i]]
	*p = plan{dead: p.dead[:0], blocks: p.blocks[:0], open: p.open[:0], calls: !r.leaf[i]}
	p.push(block{op: wasmbin.OpBlock, live: true, results: len(t.Results), arity: len(t.Results)})
	locals := len(t.Params) + c.NumLocals()
	r.ands.start(locals)
	r.nans.start(r, i)
	live, deadFrom := true, 0
	for at, in := range c.Body {
		if len(p.open) == 0 {
			return fmt.Errorf("instruction %d: the body has ended", at)
		}
		if err := r.check(in, locals); err != nil {
			return fmt.Errorf("instruction %d: %s: %w", at, in.Op, err)
		}
		r.ands.note(c.Body, at)
		if live {
			p.note(r, in)
		}
		was := live
		var err error
		switch in.Op {
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			params, results := r.signature(in)
			p.push(newBlock(in.Op, live, len(params), len(results)))
			if in.Op == wasmbin.OpIf {
				r.nans.pop()
			}
			r.nans.open(params, results)
		case wasmbin.OpElse:
			f := p.top()
			if f.op != wasmbin.OpIf || f.inElse {
				return fmt.Errorf("instruction %d: else without if", at)
			}
			r.nans.other(live, at)
			f.inElse, f.thenEnds, live = true, live, f.live
		case wasmbin.OpEnd:
			f := p.top()
			r.nans.close(live, at)
			p.open = p.open[:len(p.open)-1]
			p.tight = p.tight || f.backs > 0 && !f.calls
			if len(p.open) > 0 {
				p.top().calls = p.top().calls || f.calls
				p.top().outer = p.top().outer || f.outer || f.backs > 0
			}
			live = live || f.branched || f.thenEnds || (f.op == wasmbin.OpIf && !f.inElse && f.live)
		case wasmbin.OpBr, wasmbin.OpBrIf:
			if in.Op == wasmbin.OpBrIf && live {
				r.nans.pop()
			}
			err = p.branch(r, in, at, live)
			live = live && in.Op == wasmbin.OpBrIf
		case wasmbin.OpBrTable:
			err = p.branchTable(r, c, at, live)
			live = false
		case wasmbin.OpReturn:
			if live {
				r.nans.leave(len(t.Results), at, false)
			}
			live = false
		case wasmbin.OpUnreachable:
			live = false
		default:
			if live {
				r.nans.instr(r, in, at)
			}
		}
		if err != nil {
			return fmt.Errorf("instruction %d: %w", at, err)
		}
		if was && !live {
			deadFrom = at + 1
		}
		if !was && live {
			p.dead = append(p.dead, span{deadFrom, at + 1})
		}
	}
	if len(p.open) != 0 {
		return fmt.Errorf("%d ends are missing", len(p.open))
	}
	if !live {
		p.dead = append(p.dead, span{deadFrom, len(c.Body)})
	}
	p.noteNaNs(r, c)
	return nil
}

// noteNaNs records the scratch locals that canonical NaNs and selects need.
func (p *plan) noteNaNs(r *rewriter, c *wasmbin.Code) {
	if r.rawNaNs {
		r.nans.ops, r.nans.seen = nil, nil
	}
	need := func(places []nanPlace, when func(int32) bool) {
		for _, o := range places {
			if when(o.class) {
				p.f32 = p.f32 || o.t == wasmbin.F32
				p.f64 = p.f64 || o.t == wasmbin.F64
				p.stores = p.stores || isFloatStore(c.Body[o.at].Op)
			}
		}
	}
	for _, o := range r.nans.selects {
		p.select32 = p.select32 || o.t == wasmbin.F32
		p.select64 = p.select64 || o.t == wasmbin.F64
	}
	need(r.nans.ops, r.nans.atMade)
	need(r.nans.seen, r.nans.atSeen)
}

// singles holds every value type once, in its place, for blocks with one result.
var singles = func() (all [0x80]wasmbin.ValType) {
	for t := range all {
		all[t] = wasmbin.ValType(t)
	}
	return all
}()

// signature returns the types of a block's parameters and results.
func (r *rewriter) signature(in wasmbin.Instr) (params, results []wasmbin.ValType) {
	if t, ok := in.BlockType().Index(); ok { // checked before
		return r.in.Types[t].Params, r.in.Types[t].Results
	}
	if t, ok := in.BlockType().Result(); ok {
		return nil, singles[t&0x7F:][:1:1]
	}
	return nil, nil
}

// newBlock describes a block, loop or if as it is opened.
func newBlock(op wasmbin.Op, live bool, params, results int) block {
	b := block{op: op, live: live, params: params, results: results, arity: results}
	if op == wasmbin.OpLoop {
		b.arity = params
	}
	return b
}

func (p *plan) push(b block) {
	p.open = append(p.open, len(p.blocks))
	p.blocks = append(p.blocks, b)
}

func (p *plan) top() *block { return &p.blocks[p.open[len(p.open)-1]] }

// label returns the block of a label.
func (p *plan) label(label uint32) (*block, error) {
	if uint64(label) >= uint64(len(p.open)) {
		return nil, fmt.Errorf("label %d out of range", label)
	}
	return &p.blocks[p.open[len(p.open)-1-int(label)]], nil
}

func (p *plan) branch(r *rewriter, in wasmbin.Instr, at int, live bool) error {
	f, err := p.label(in.A)
	if err == nil && live {
		p.use(f)
		r.nans.leave(f.arity, at, in.Op == wasmbin.OpBrIf)
	}
	return err
}

func (p *plan) use(f *block) {
	if f.op == wasmbin.OpLoop {
		f.backs++
		p.loops = true
	} else {
		f.branched = true
	}
}

func (p *plan) branchTable(r *rewriter, c *wasmbin.Code, at int, live bool) error {
	in, n := c.Body[at], uint64(len(c.Targets))
	if in.B == 0 || uint64(in.A) > n || in.B > n-uint64(in.A) {
		return fmt.Errorf("br_table without its targets")
	}
	if live {
		r.nans.pop()
	}
	for i, label := range c.Targets[in.A : uint64(in.A)+in.B] {
		f, err := p.label(label)
		if err != nil {
			return err
		}
		if !live || f.table == at+1 {
			continue
		}
		if i == 0 { // all of them take the same values
			r.nans.leave(f.arity, at, true)
		}
		f.table = at + 1
		f.byTable = f.byTable || f.arity > 0
		p.tables = p.tables || f.arity == 0
		p.use(f)
	}
	return nil
}

// note records which block calls metered functions, and what is priced by its
// length.
func (p *plan) note(r *rewriter, in wasmbin.Instr) {
	switch {
	case in.Op == wasmbin.OpCallIndirect, in.Op == wasmbin.OpCall && !r.imported(in.A):
		p.top().calls = true
	case lengthPrice(in.Op) != 0:
		p.lengths = true
	}
}

// imported tells whether a function of the guest is imported.
func (r *rewriter) imported(f uint32) bool { return int(f) < len(r.funcs)-len(r.in.Funcs) }

// check holds an instruction's indices against the guest's own spaces, where
// the rewrite adds to them.
func (r *rewriter) check(in wasmbin.Instr, locals int) error {
	outOf := func(what string, n int) error {
		if uint64(in.A) >= uint64(n) {
			return fmt.Errorf("%s %d out of range", what, in.A)
		}
		return nil
	}
	switch in.Op {
	case wasmbin.OpLocalGet, wasmbin.OpLocalSet, wasmbin.OpLocalTee:
		return outOf("local", locals)
	case wasmbin.OpGlobalGet, wasmbin.OpGlobalSet:
		return outOf("global", len(r.globals))
	case wasmbin.OpCall, wasmbin.OpRefFunc:
		return outOf("function", len(r.funcs))
	case wasmbin.OpCallIndirect:
		return outOf("type", len(r.in.Types))
	case wasmbin.OpMemoryInit, wasmbin.OpDataDrop:
		return outOf("data segment", len(r.in.Data))
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
		if t, ok := in.BlockType().Index(); ok && uint64(t) >= uint64(len(r.in.Types)) {
			return fmt.Errorf("type %d out of range", t)
		}
	default:
		if !in.Op.Known() {
			return fmt.Errorf("unknown opcode 0x%X", uint16(in.Op))
		}
	}
	return nil
}
