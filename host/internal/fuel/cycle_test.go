package fuel_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/host/internal/reference"
	"github.com/droverhq/drover/host/internal/wasmbin"
)

// flow is the control flow of one rewritten body.
type flow struct {
	c    *wasmbin.Code
	next [][]int // successors of each instruction
	look []bool  // the host is called there if fuel is owed
}

const refillFunc = 0 // of the rewritten module

// newFlow reads a body. looks tells whether a called function looks when it is
// entered.
func newFlow(c *wasmbin.Code, looks func(f uint32) bool) *flow {
	f := &flow{c: c, next: make([][]int, len(c.Body)), look: make([]bool, len(c.Body))}
	ends, elses := make([]int, len(c.Body)), make([]int, len(c.Body))
	var open []int
	for i, in := range c.Body {
		switch in.Op {
		case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf:
			open = append(open, i)
		case wasmbin.OpElse:
			elses[open[len(open)-1]] = i
		case wasmbin.OpEnd:
			if len(open) > 0 {
				ends[open[len(open)-1]] = i
				open = open[:len(open)-1]
			}
		}
	}
	for i, in := range c.Body {
		to := func(label uint32) {
			if at := len(open) - 1 - int(label); at >= 0 && c.Body[open[at]].Op == wasmbin.OpLoop {
				f.next[i] = append(f.next[i], open[at])
			} else if at >= 0 {
				f.next[i] = append(f.next[i], ends[open[at]])
			}
		}
		on := func() {
			if i+1 < len(c.Body) {
				f.next[i] = append(f.next[i], i+1)
			}
		}
		switch in.Op {
		case wasmbin.OpBlock, wasmbin.OpLoop:
			open = append(open, i)
			on()
		case wasmbin.OpIf:
			open = append(open, i)
			on()
			if elses[i] > 0 {
				f.next[i] = append(f.next[i], elses[i]+1)
			} else {
				f.next[i] = append(f.next[i], ends[i])
			}
		case wasmbin.OpElse:
			f.next[i] = append(f.next[i], ends[open[len(open)-1]])
		case wasmbin.OpEnd:
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
			on()
		case wasmbin.OpBr:
			to(in.A)
		case wasmbin.OpBrIf:
			to(in.A)
			on()
		case wasmbin.OpBrTable:
			for _, l := range c.Targets[in.A : uint64(in.A)+in.B] {
				to(l)
			}
		case wasmbin.OpReturn, wasmbin.OpUnreachable:
		case wasmbin.OpCall:
			f.look[i] = looks(in.A)
			on()
		default:
			on()
		}
		// … counter; i64.const 0; i64.lt_s; then an if, or a br_if to a block,
		// that begins with calling the host.
		if i < 2 || c.Body[i-1].Op != wasmbin.OpI64LtS || c.Body[i-2] != (wasmbin.Instr{Op: wasmbin.OpI64Const}) {
			continue
		}
		asks := -1
		switch in.Op {
		case wasmbin.OpIf:
			asks = i + 2
		case wasmbin.OpBrIf:
			asks = f.next[i][0] + 2
		}
		if asks > 0 && asks < len(c.Body) && c.Body[asks] == (wasmbin.Instr{Op: wasmbin.OpCall, A: refillFunc}) {
			f.look[i] = true
		}
	}
	return f
}

// endless returns an instruction of a cycle that never looks, or -1.
func (f *flow) endless() int {
	const unseen, open, done = 0, 1, 2
	state := make([]byte, len(f.next))
	type visit struct{ at, edge int }
	roots := []int{0}
	walk := func(root int) int {
		stack := []visit{{at: root}}
		for len(stack) > 0 {
			v := &stack[len(stack)-1]
			state[v.at] = open
			if f.look[v.at] { // what follows is walked on its own
				roots = append(roots, f.next[v.at]...)
				v.edge = len(f.next[v.at])
			}
			if v.edge == len(f.next[v.at]) {
				state[v.at] = done
				stack = stack[:len(stack)-1]
				continue
			}
			to := f.next[v.at][v.edge]
			v.edge++
			switch state[to] {
			case open:
				return to
			case unseen:
				stack = append(stack, visit{at: to})
			}
		}
		return -1
	}
	for len(roots) > 0 {
		root := roots[0]
		roots = roots[1:]
		if state[root] == unseen {
			if at := walk(root); at >= 0 {
				return at
			}
		}
	}
	return -1
}

// TestEveryCycleLooks: there is no way around any loop of a rewritten body on
// which the guest does not look at its counter, or call a function that does
// (spec 1.3: it is stopped whatever it is doing). Recursion looks in functions
// that call, when they are entered.
func TestEveryCycleLooks(t *testing.T) {
	t.Parallel()
	check := func(name string, m *wasmbin.Module) (loops int) {
		res, err := fuel.Rewrite(m, fuel.Options{})
		require.NoError(t, err, name)
		out, err := wasmbin.Decode(res.Wasm)
		require.NoError(t, err, name)
		imports := len(out.ImportedFuncs())
		calls := make([]bool, len(m.Code)) // anything that is metered
		for i, c := range m.Code {
			for _, in := range c.Body {
				calls[i] = calls[i] || in.Op == wasmbin.OpCallIndirect || in.Op == wasmbin.OpCall && int(in.A) >= imports-2
			}
		}
		looks := func(f uint32) bool {
			i := int(f) - imports
			return f == refillFunc || i >= 0 && i < len(calls) && calls[i]
		}
		for i := range out.Code {
			f := newFlow(&out.Code[i], looks)
			at := f.endless()
			require.Negative(t, at, "%s, function %d of the guest's own: the cycle at instruction %d never looks", name, i, at)
			if i < len(calls) && calls[i] {
				entered := false
				for at := range min(24, len(f.look)) {
					entered = entered || out.Code[i].Body[at] == (wasmbin.Instr{Op: wasmbin.OpCall, A: refillFunc})
				}
				require.True(t, entered, "%s, function %d of the guest's own does not look when it is entered", name, i)
			}
			for _, in := range out.Code[i].Body {
				if in.Op == wasmbin.OpLoop {
					loops++
				}
			}
		}
		return loops
	}
	loops := 0
	for seed := range uint64(modules) {
		loops += check("generated", reference.Generate(seed))
	}
	for name, m := range binaryenModules(t) {
		loops += check(name, m)
	}
	files, err := filepath.Glob("../../../strategies/*/*.wasm")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		wasm, err := os.ReadFile(name)
		require.NoError(t, err)
		m, err := wasmbin.Decode(wasm)
		require.NoError(t, err, name)
		loops += check(name, m)
	}
	t.Logf("%d loops", loops)
	require.Greater(t, loops, 10_000)
}
