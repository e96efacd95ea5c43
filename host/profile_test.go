package host_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/host/internal/wasmbin"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies"
)

// Spec 1.5: the profile sums to the fuel of the call, which is that of an ordinary one, to the unit; no function has
// a negative share, which charges that are not where they belong would give; and it is the same each time.
func TestProfileSumsToTheFuelOfTheCall(t *testing.T) {
	limits := host.Limits{Budget: time.Minute}
	leastshard, _, _ := strategies.Builtin("leastshard")
	for name, c := range map[string]struct {
		wasm []byte
		op   pluginapi.Op
	}{
		"C":           {fixture(t, "guests/leastshard"), pluginapi.OpRebalance},
		"handwritten": {fixture(t, "attack/well-behaved"), pluginapi.OpAllocate},
		"allocate":    {leastshard, pluginapi.OpAllocate},
		"rebalance":   {leastshard, pluginapi.OpRebalance},
	} {
		t.Run(name, func(t *testing.T) {
			s := load(t, host.Compiler, c.wasm, limits)
			snap := cluster(8, 300)
			for i := range 200 {
				snap.Owners[i] = 0
			}
			var shards []uint32
			if c.op == pluginapi.OpAllocate {
				shards = []uint32{7}
			}
			want := s.Call(context.Background(), c.op, snap, shards, 0)
			require.NoError(t, want.Err)
			got, samples, err := host.Profile(context.Background(), c.wasm, limits, c.op, snap, shards)
			require.NoError(t, err)
			require.NoError(t, got.Err)
			assert.Equal(t, want.Record.Output, got.Record.Output)
			assert.Equal(t, *want.Record.Fuel, *got.Record.Fuel, "the profiled call costs the same")
			sum := int64(0)
			roots := map[string]bool{}
			for _, sample := range samples {
				require.NotEmpty(t, sample.Stack)
				require.Positive(t, sample.Fuel, sample.Stack)
				sum += sample.Fuel
				roots[sample.Stack[len(sample.Stack)-1].Name] = true
			}
			assert.Equal(t, *want.Record.Fuel, sum)
			assert.Len(t, roots, 2, "drover_buffer and the operation: %v", roots)
			if name == "C" {
				_, again, err := host.Profile(context.Background(), c.wasm, limits, c.op, snap, shards)
				require.NoError(t, err)
				assert.Equal(t, samples, again)
			}
		})
	}
}

// Spec 1.3 prices each operator, and the profile books it on the function that executed it, though charges are deferred across
// calls: the callee pays for being entered and for its own, the caller for the call and for what is around it.
func TestProfileBooksOnTheFunction(t *testing.T) {
	m, err := wasmbin.Decode(fixture(t, "attack/well-behaved"))
	require.NoError(t, err)
	op := slices.IndexFunc(m.Exports, func(e wasmbin.Export) bool { return e.Name == "drover_allocate" })
	imports := uint32(len(m.ImportedFuncs()))
	caller, callee := m.Exports[op].Index, imports+uint32(len(m.Funcs))
	m.Types = append(m.Types, wasmbin.FuncType{})
	m.Funcs = append(m.Funcs, uint32(len(m.Types)-1))
	work := func(n int) (out []wasmbin.Instr) {
		for range n {
			out = append(out, wasmbin.Instr{Op: wasmbin.OpI32Const}, wasmbin.Instr{Op: wasmbin.OpDrop})
		}
		return out
	}
	m.Code = append(m.Code, wasmbin.Code{Body: append(work(70), wasmbin.Instr{Op: wasmbin.OpEnd})})
	body := &m.Code[caller-imports].Body
	call := wasmbin.Instr{Op: wasmbin.OpCall, A: callee}
	*body = slices.Concat(work(50), []wasmbin.Instr{call}, work(3), []wasmbin.Instr{call}, *body)
	m.Names = &wasmbin.Names{Funcs: []wasmbin.NameAssoc{{Index: callee, Name: "worker"}}}
	profile := func(wasm []byte) map[uint32]int64 {
		res, samples, err := host.Profile(context.Background(), wasm, host.Limits{Budget: time.Minute}, pluginapi.OpAllocate, cluster(8, 300), []uint32{7})
		require.NoError(t, err)
		require.NoError(t, res.Err)
		out := map[uint32]int64{}
		for _, s := range samples {
			out[s.Stack[0].Index] += s.Fuel
			if s.Stack[0].Index == callee {
				require.Len(t, s.Stack, 2)
				require.Equal(t, caller, s.Stack[1].Index)
				require.Equal(t, "worker", s.Stack[0].Name, "of the name section")
				require.Equal(t, fmt.Sprintf("func[%d]", caller), s.Stack[1].Name, "it has none")
			}
		}
		return out
	}
	want := profile(fixture(t, "attack/well-behaved"))
	want[caller] += 50 + 1 + 3 + 1 // the first is charged before its call, the second after it
	want[callee] = 2 * (1 + 70)
	assert.Equal(t, want, profile(wasmbin.Encode(m)))
}

// A call that does not return has no profile, and a module that is refused no call.
func TestProfileOfWhatFails(t *testing.T) {
	limits := host.Limits{Fuel: 1_000_000, Budget: time.Minute}
	for _, name := range []string{"unreachable", "loop", "recursion"} {
		res, samples, err := host.Profile(context.Background(), fixture(t, "attack/"+name), limits, pluginapi.OpAllocate, cluster(8, 16), []uint32{0})
		require.NoError(t, err)
		require.Error(t, res.Err, name)
		assert.Empty(t, samples, name)
	}
	_, _, err := host.Profile(context.Background(), fixture(t, "admission/import-unknown.func"), limits, pluginapi.OpAllocate, cluster(8, 16), nil)
	require.ErrorIs(t, err, host.ErrRefused)
}
