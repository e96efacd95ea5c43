package host_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies"
	"github.com/droverhq/drover/strategies/answers"
)

var compiled = struct {
	sync.Mutex
	modules map[string]*host.Module
}{modules: map[string]*host.Module{}}

// builtin compiles a built-in module once an engine, under the default limits
// but for the budget: the interpreter on a busy machine is no failure here.
func builtin(t testing.TB, e host.Engine, name string) *host.Module {
	t.Helper()
	compiled.Lock()
	defer compiled.Unlock()
	key := e.String() + "/" + name
	if m, ok := compiled.modules[key]; ok {
		return m
	}
	wasm, _, ok := strategies.Builtin(name)
	require.True(t, ok)
	m, err := runtimeFor(t, e).Compile(context.Background(), wasm, host.Limits{Budget: time.Minute})
	require.NoError(t, err)
	require.Empty(t, m.Warnings())
	compiled.modules[key] = m
	return m
}

func prepare(t testing.TB, m *host.Module, config pluginapi.Config) *host.Strategy {
	t.Helper()
	s, err := m.Prepare(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}

// hosted is a module as a pluginapi.Strategy, prepared once for each
// configuration that a snapshot brings.
type hosted struct {
	t        *testing.T
	mod      *host.Module
	prepared map[string]*host.Strategy
}

func (h hosted) call(op pluginapi.Op, s *pluginapi.Snapshot, shards []uint32) (host.Result, error) {
	st, ok := h.prepared[string(s.Config)]
	if !ok {
		var err error
		if st, err = h.mod.Prepare(context.Background(), s.Config); err != nil {
			return host.Result{}, err
		}
		h.t.Cleanup(func() { require.NoError(h.t, st.Close(context.Background())) })
		h.prepared[string(s.Config)] = st
	}
	res := st.Call(context.Background(), op, s, shards, 0)
	return res, res.Err
}

func (h hosted) Allocate(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	res, err := h.call(pluginapi.OpAllocate, s, shards)
	return res.Homes, err
}

func (h hosted) Rebalance(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
	res, err := h.call(pluginapi.OpRebalance, s, nil)
	return res.Plan, err
}

// Spec 1.2: one table of right answers, run through wasm in both engines.
func TestAnswersThroughWasm(t *testing.T) {
	cases, err := answers.All()
	require.NoError(t, err)
	for _, e := range engines {
		by := map[string]hosted{}
		for _, name := range strategies.Names() {
			by[name] = hosted{t, builtin(t, e, name), map[string]*host.Strategy{}}
		}
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s/%s/%s", e, c.Strategy, c.Name), func(t *testing.T) {
				require.NoError(t, c.Check(by[c.Strategy]))
			})
		}
	}
}

// Spec 1.3: the same call has the same answer and costs the same fuel in both
// engines and in fresh instances, and the answer is the pure package's.
func TestDeterministicAndEqualToNative(t *testing.T) {
	const seed, rounds = 7, 12
	for _, name := range strategies.Names() {
		t.Run(name, func(t *testing.T) {
			impl, ok := strategies.Native(name)
			require.True(t, ok)
			native, err := host.NewNative("native:"+name, impl, nil)
			require.NoError(t, err)
			compiler := prepare(t, builtin(t, host.Compiler, name), nil)
			interpreter := prepare(t, builtin(t, host.Interpreter, name), nil)
			r := rand.New(rand.NewPCG(seed, 0))
			for range rounds {
				snap, shards := answers.Random(r)
				for _, op := range []pluginapi.Op{pluginapi.OpRebalance, pluginapi.OpAllocate} {
					ctx := context.Background()
					want := native.Call(ctx, op, snap, shards, 0)
					got := compiler.Call(ctx, op, snap, shards, 0)
					require.NoError(t, got.Err)
					require.Equal(t, want.Record.Output, got.Record.Output)
					require.Equal(t, want.Plan, got.Plan)
					require.Equal(t, want.Homes, got.Homes)
					fresh := prepare(t, builtin(t, host.Compiler, name), nil)
					for _, again := range []host.Result{
						compiler.Call(ctx, op, snap, shards, 0),
						interpreter.Call(ctx, op, snap, shards, 0),
						fresh.Call(ctx, op, snap, shards, 0),
					} {
						require.NoError(t, again.Err)
						require.Equal(t, got.Record.Output, again.Record.Output)
						require.Equal(t, *got.Record.Fuel, *again.Record.Fuel)
						require.Equal(t, got.Record.Pages, again.Record.Pages)
						require.Equal(t, got.Record.InputDigest, again.Record.InputDigest)
					}
				}
			}
		})
	}
}

func TestDescribeBuiltins(t *testing.T) {
	for _, name := range strategies.Names() {
		d, err := prepare(t, builtin(t, host.Compiler, name), nil).Describe(context.Background())
		require.NoError(t, err)
		require.Equal(t, name, d.Name)
		impl, _ := strategies.Native(name)
		require.Equal(t, impl.(pluginapi.Describer).Describe().Summary, d.Summary)
	}
}

// BenchmarkCall is one rebalance with everything: encoding, isolation, fuel,
// decoding, checks, record.
func BenchmarkCall(b *testing.B) {
	for _, shards := range []int{1_000, 10_000, 100_000} {
		nodes := max(10, shards/1_000)
		for _, name := range strategies.Names() {
			snap := cluster(nodes, shards)
			for i := range snap.Owners {
				snap.Owners[i] = uint32(i * 7 % nodes)
			}
			snap.MaxMoves = 100
			impl, _ := strategies.Native(name)
			native, err := host.NewNative("native:"+name, impl, nil)
			require.NoError(b, err)
			for _, s := range []struct {
				kind string
				*host.Strategy
			}{{"wasm", prepare(b, builtin(b, host.Compiler, name), nil)}, {"native", native}} {
				b.Run(fmt.Sprintf("%s/%s/%d", name, s.kind, shards), func(b *testing.B) {
					for b.Loop() {
						if res := s.Call(context.Background(), pluginapi.OpRebalance, snap, nil, 0); res.Err != nil {
							b.Fatal(res.Err)
						}
					}
				})
			}
		}
	}
}
