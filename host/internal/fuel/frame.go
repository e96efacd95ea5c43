package fuel

import (
	"fmt"
	"sort"

	"github.com/droverhq/drover/host/internal/wasmbin"
)

// frameValues returns an upper bound of the values that a compiler may have to
// keep apart in the native frame of the module's own function i, so that the
// depth limit comes before the engine's own: one for each instruction,
// parameter and local, one more for each further value that an instruction
// makes, and one wherever a local may have to be merged: for each block, loop
// and if, one for each local that is set inside it. wazero gives each of them a
// place of its own when it is spilled; 300 locals set within 100 nested loops
// make frames of 300 KB out of 2000 instructions.
func (r *rewriter) frameValues(i int) (int, error) {
	c := &r.in.Code[i]
	locals := len(r.in.Types[r.in.Funcs[i]].Params) + c.NumLocals()
	values := len(c.Body) + locals
	// A block that is open and contains the last place where a local was set
	// has counted the local already, and so have those around it. Places are
	// numbered on from function to function, so that what an earlier one left in
	// lastSet lies before all blocks and need not be cleared.
	lastSet := r.lastSet(locals)
	var open []int // where the open blocks start
	for _, in := range c.Body {
		r.place++
		switch in.Op {
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			open = append(open, r.place)
			if t, ok := in.BlockType().Index(); ok {
				if int64(t) >= int64(len(r.in.Types)) {
					return 0, fmt.Errorf("%s: type %d out of range", in.Op, t)
				}
				values += len(r.in.Types[t].Params) + further(r.in.Types[t].Results)
			}
		case wasmbin.OpEnd:
			if len(open) > 0 { // the function's own end has none
				open = open[:len(open)-1]
			}
		case wasmbin.OpLocalSet, wasmbin.OpLocalTee:
			if int64(in.A) >= int64(locals) {
				return 0, fmt.Errorf("%s: local %d out of range", in.Op, in.A)
			}
			values += len(open) - sort.SearchInts(open, lastSet[in.A]+1)
			lastSet[in.A] = r.place
		case wasmbin.OpCall:
			if int64(in.A) >= int64(len(r.funcs)) {
				return 0, fmt.Errorf("call: function %d out of range", in.A)
			}
			values += further(r.in.Types[r.funcs[in.A]].Results)
		case wasmbin.OpCallIndirect:
			if int64(in.A) >= int64(len(r.in.Types)) {
				return 0, fmt.Errorf("call_indirect: type %d out of range", in.A)
			}
			values += further(r.in.Types[in.A].Results)
		}
	}
	return values, nil
}

// lastSet returns room for n places.
func (r *rewriter) lastSet(n int) []int {
	if n > len(r.places) {
		r.places = make([]int, n)
	}
	return r.places
}

func further(results []wasmbin.ValType) int { return max(0, len(results)-1) }
