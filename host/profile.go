package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/droverhq/drover/host/internal/fuel"
	"github.com/droverhq/drover/pluginapi"
)

// Function is one of a module's, imports included in the count.
type Function struct {
	Index uint32
	Name  string // from the name section, else func[Index]
}

// Sample is the fuel that a function spent itself, under one stack of callers.
// What a host call costs is its caller's.
type Sample struct {
	Stack []Function // the function first, the export that the host called last
	Fuel  int64
}

// mostProfileNodes bounds the stacks that are told apart. Beyond it the fuel of
// a function under a stack that is not yet known counts for its caller.
const mostProfileNodes = 1 << 18

// Profile loads a module into a runtime of its own, makes one call as
// [Strategy.Call] does, and tells where its fuel went: the samples sum to the
// record's fuel exactly, and are the same each time. There are none if the call
// did not return. The error is about loading; it takes several times as long as
// a call, which the budget has to allow for.
func Profile(ctx context.Context, wasm []byte, l Limits, op pluginapi.Op, snap *pluginapi.Snapshot, shards []uint32) (res Result, samples []Sample, err error) {
	rt, err := NewRuntime(ctx, Options{})
	if err != nil {
		return Result{}, nil, err
	}
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()
	rt.profiler = &profiler{}
	s, err := rt.Load(ctx, wasm, l, snap.Config)
	if err != nil {
		return Result{}, nil, err
	}
	res = s.Call(ctx, op, snap, shards, 0)
	if v, ok := VerdictOf(res.Err); ok && (v == VerdictOK || v == VerdictOutput) && res.Record.Fuel != nil {
		samples = rt.profiler.samples()
	}
	return res, samples, s.Close(ctx)
}

// profiler listens to the calls of a guest and books its fuel. Only one guest
// runs at a time. It keeps the last call of the host: each begins with
// drover_buffer. Charges are deferred, but a function's own code makes them, at
// the latest where it is left: what the counter loses while a function is the
// innermost one is that function's, to the unit once it has returned.
type profiler struct {
	functions uint32 // of the guest; behind them is what the rewrite added
	root      *profileNode
	at        *profileNode
	stack     []*profileNode // of the callers
	nodes     int
	last      int64 // the fuel used when it was booked last
}

type profileNode struct {
	function Function
	parent   *profileNode
	callees  map[uint32]*profileNode
	fuel     int64
}

// NewFunctionListener implements experimental.FunctionListenerFactory.
func (p *profiler) NewFunctionListener(d api.FunctionDefinition) experimental.FunctionListener {
	if d.Index() < fuel.AddedImports || d.Index() >= fuel.AddedImports+p.functions {
		return nil // a bulk operation that was split is its caller's
	}
	f := Function{Index: d.Index() - fuel.AddedImports, Name: d.Name()}
	if f.Name == "" {
		f.Name = fmt.Sprintf("func[%d]", f.Index)
	}
	return &functionListener{p: p, function: f, buffer: slices.Contains(d.ExportNames(), exportBuffer)}
}

type functionListener struct {
	p        *profiler
	function Function
	buffer   bool
}

// Before implements experimental.FunctionListener.
func (l *functionListener) Before(ctx context.Context, _ api.Module, _ api.FunctionDefinition, _ []uint64, _ experimental.StackIterator) {
	p, used := l.p, caller(ctx).meter.used()
	if len(p.stack) == 0 {
		if l.buffer || p.root == nil {
			p.root, p.nodes = &profileNode{}, 0
		}
		p.at = p.root
		p.last = used // what came before was booked, or is another call's
	}
	p.at.fuel += used - p.last
	p.last = used
	p.stack = append(p.stack, p.at)
	p.at = p.callee(l.function)
}

func (p *profiler) callee(f Function) *profileNode {
	n := p.at.callees[f.Index]
	if n == nil {
		if p.nodes >= mostProfileNodes && p.at != p.root {
			return p.at
		}
		n = &profileNode{function: f, parent: p.at}
		if p.at.callees == nil {
			p.at.callees = map[uint32]*profileNode{}
		}
		p.at.callees[f.Index] = n
		p.nodes++
	}
	return n
}

// After implements experimental.FunctionListener.
func (l *functionListener) After(ctx context.Context, _ api.Module, _ api.FunctionDefinition, _ []uint64) {
	l.left(ctx)
}

// Abort implements experimental.FunctionListener.
func (l *functionListener) Abort(ctx context.Context, _ api.Module, _ api.FunctionDefinition, _ error) {
	l.left(ctx)
}

func (l *functionListener) left(ctx context.Context) {
	p, used := l.p, caller(ctx).meter.used()
	p.at.fuel += used - p.last
	p.last = used
	p.at, p.stack = p.stack[len(p.stack)-1], p.stack[:len(p.stack)-1]
}

// samples returns what was booked, callers before callees, by index.
func (p *profiler) samples() []Sample {
	var out []Sample
	todo := []*profileNode{p.root}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n.fuel != 0 {
			s := Sample{Fuel: n.fuel}
			for at := n; at != p.root; at = at.parent {
				s.Stack = append(s.Stack, at.function)
			}
			out = append(out, s)
		}
		first := len(todo)
		for _, c := range n.callees {
			todo = append(todo, c)
		}
		slices.SortFunc(todo[first:], func(a, b *profileNode) int { return cmp.Compare(b.function.Index, a.function.Index) })
	}
	return out
}
