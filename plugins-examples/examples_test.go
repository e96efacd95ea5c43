// Package examples_test runs the committed modules of the examples in the host, as a node does.
package examples_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	rolepinning "github.com/droverhq/drover/plugins-examples/role-pinning"
	"github.com/droverhq/drover/strategies/answers"
)

const none = pluginapi.NoOwner

func load(t *testing.T, e host.Engine, name string, l host.Limits, config map[string]any) (*host.Strategy, error) {
	t.Helper()
	ctx := context.Background()
	wasm, err := os.ReadFile(name + ".wasm")
	require.NoError(t, err)
	r, err := host.NewRuntime(ctx, host.Options{Engine: e})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close(ctx)) })
	l.Budget = time.Minute // no clock of a busy machine decides here
	var c pluginapi.Config
	if config != nil {
		c, err = pluginapi.NewConfig(config)
		require.NoError(t, err)
	}
	s, err := r.Load(ctx, wasm, l, c)
	if err == nil {
		t.Cleanup(func() { require.NoError(t, s.Close(ctx)) })
	}
	return s, err
}

func must(t *testing.T, name string, config map[string]any) *host.Strategy {
	t.Helper()
	s, err := load(t, host.Compiler, name, host.Limits{}, config)
	require.NoError(t, err)
	return s
}

// cluster has one node a zone named, in that order, all up and candidates.
func cluster(zones []string, owners ...uint32) *pluginapi.Snapshot {
	s := &pluginapi.Snapshot{Type: "counter", Owners: owners, MaxMoves: 1000}
	for i, zone := range zones {
		name := fmt.Sprintf("n%03d", i)
		s.Nodes = append(s.Nodes, pluginapi.Node{Name: name, Addr: name, Incarnation: name, State: pluginapi.StateUp, Version: "1", Weight: 100, Zone: zone})
		s.Candidates = append(s.Candidates, i)
	}
	return s
}

func homes(t *testing.T, s *host.Strategy, snap *pluginapi.Snapshot, shards ...uint32) []int {
	t.Helper()
	res := s.Call(context.Background(), pluginapi.OpAllocate, snap, shards, 0)
	require.NoError(t, res.Err)
	return res.Homes.Nodes
}

// moves returns shard and target of each move, and checks the reason's absence nowhere.
func moves(t *testing.T, s *host.Strategy, snap *pluginapi.Snapshot) [][2]int {
	t.Helper()
	res := s.Call(context.Background(), pluginapi.OpRebalance, snap, nil, 0)
	require.NoError(t, res.Err)
	var list [][2]int
	for _, m := range res.Plan.Moves {
		list = append(list, [2]int{int(m.Shard), m.Target})
	}
	return list
}

// The examples in other languages than Go, which has tests beside its sources.
var examples = []string{"c/zone-spread", "wat/round-robin", "rust/capacity", "assemblyscript/role-pinning"}

// Spec 1.3: every example is admitted without a warning, answers both operations on any input, and does so for the same fuel in both engines and in a
// fresh instance. The host checks that no answer names a busy, pinned or unknown shard, or a node that is no candidate.
func TestExamples(t *testing.T) {
	for _, name := range examples {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			compiler := must(t, name, nil)
			interpreter, err := load(t, host.Interpreter, name, host.Limits{}, nil)
			require.NoError(t, err)
			assert.Empty(t, compiler.Warnings())
			_, findings := compiler.Inspect(ctx)
			assert.Empty(t, findings)
			r := rand.New(rand.NewPCG(4, 0))
			moved := 0
			for range 60 {
				snap, homeless := answers.Random(r)
				for _, op := range []pluginapi.Op{pluginapi.OpRebalance, pluginapi.OpAllocate} {
					var shards []uint32
					if op == pluginapi.OpAllocate {
						shards = homeless
					}
					first := compiler.Call(ctx, op, snap, shards, 0)
					require.NoError(t, first.Err)
					for _, s := range []*host.Strategy{compiler, interpreter} {
						again := s.Call(ctx, op, snap, shards, 0)
						require.NoError(t, again.Err)
						require.Equal(t, first.Record.Output, again.Record.Output)
						require.Equal(t, *first.Record.Fuel, *again.Record.Fuel)
					}
					moved += len(first.Plan.Moves) + len(first.Homes.Nodes)
				}
			}
			assert.Greater(t, moved, 60)
		})
	}
}

// Sizes at the edges: nothing at all, and as much as no cluster has. Where the memory does not hold the input the call fails, and the next one works.
func TestExamplesOfAnySize(t *testing.T) {
	for _, name := range examples {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s := must(t, name, nil)
			empty := &pluginapi.Snapshot{MaxMoves: 1}
			assert.Empty(t, moves(t, s, empty))
			assert.Empty(t, homes(t, s, empty))
			one := cluster([]string{""}, none)
			assert.Empty(t, moves(t, s, one))
			assert.Equal(t, []int{0}, homes(t, s, one, 0))
			one.Candidates = nil
			assert.Equal(t, []int{pluginapi.NoTarget}, homes(t, s, one, 0))

			large := cluster(make([]string, 100), make([]uint32, 10_000)...)
			shards := make([]uint32, len(large.Owners))
			for i := range shards {
				shards[i], large.Owners[i] = uint32(i), none
			}
			given := homes(t, s, large, shards...)
			require.Len(t, given, len(shards))
			assert.NotContains(t, given, pluginapi.NoTarget)
			for i, node := range given {
				large.Owners[i] = uint32(node)
			}
			res := s.Call(ctx, pluginapi.OpRebalance, large, nil, 0)
			require.NoError(t, res.Err)
			many := cluster(make([]string, 100), make([]uint32, 100_000)...) // all on one node
			require.NoError(t, s.Call(ctx, pluginapi.OpRebalance, many, nil, 0).Err)
			wide := cluster(make([]string, 70_000), 0, 69_999) // owners are 32 bits wide
			narrow, err := load(t, host.Compiler, name, host.Limits{MemoryPages: 8}, nil)
			require.NoError(t, err)
			require.Error(t, narrow.Call(ctx, pluginapi.OpRebalance, wide, nil, 0).Err)
			assert.Empty(t, moves(t, narrow, one))
		})
	}
}

// Even over zones, whatever the number of their nodes; then over the nodes of each.
func TestZoneSpread(t *testing.T) {
	const name = "c/zone-spread"
	s := must(t, name, nil)
	two := []string{"z1", "z1", "z2"}
	assert.Equal(t, []int{0, 2, 1, 2, 0, 2}, homes(t, s, cluster(two, none, none, none, none, none, none), 0, 1, 2, 3, 4, 5))
	assert.Equal(t, []int{2, 2, 0}, homes(t, s, cluster(two, 0, 1, none, none, none), 2, 3, 4), "what is there counts")
	assert.Equal(t, [][2]int{{0, 2}, {1, 2}}, moves(t, s, cluster(two, 0, 1, 0, 1)))
	assert.Equal(t, [][2]int{{0, 1}}, moves(t, s, cluster(two, 0, 0, 0, 1, 2, 2, 2)), "within a zone")
	assert.Empty(t, moves(t, s, cluster(two, 0, 1, 2, 2)))
	assert.Empty(t, moves(t, s, cluster(two, 0, 1, 2)), "a difference of one is none")
	assert.Len(t, moves(t, s, cluster([]string{"a", "b"}, make([]uint32, 40)...)), 3, "max_moves is 3")
	assert.Len(t, moves(t, must(t, name, map[string]any{"max_moves": 300}), cluster([]string{"a", "b"}, make([]uint32, 400)...)), 200)

	kept := cluster(two, 0, 1, 0, 1, 0, none, none)
	kept.Busy = []pluginapi.Busy{{Shard: 0, Target: 2}}
	kept.Pinned = []pluginapi.Pin{{Shard: 1, Node: 1}, {Shard: 5, Node: 1}}
	kept.Waiting = []uint32{2, 6}
	assert.Equal(t, [][2]int{{4, 2}}, moves(t, s, kept), "busy, pinned and waiting stay; busy counts at its target")
	assert.Equal(t, []int{1, pluginapi.NoTarget}, homes(t, s, kept, 5, 6), "one pinned goes where it is pinned, one that waits nowhere")

	mixed := cluster(two, 0, 1, 0, 1)
	mixed.Nodes[1].Version = "2"
	res := s.Call(context.Background(), pluginapi.OpRebalance, mixed, nil, 0)
	require.NoError(t, res.Err)
	assert.Empty(t, res.Plan.Moves)
	assert.Equal(t, "candidates run different versions", res.Plan.Reason)

	_, err := load(t, host.Compiler, name, host.Limits{}, map[string]any{"max_moves": "many"})
	require.ErrorContains(t, err, "config.max_moves: want a whole number of at least 0")
	d, err := s.Describe(context.Background())
	require.NoError(t, err)
	assert.Equal(t, "zone-spread", d.Name)
	require.Len(t, d.Config, 1)
	assert.Equal(t, "max_moves", d.Config[0].Key)
	assert.EqualValues(t, 3, d.Config[0].Default)

	// From anywhere to even zones, in rounds, and no further move then.
	r := rand.New(rand.NewPCG(9, 0))
	all := must(t, name, map[string]any{"max_moves": 1000})
	for range 30 {
		snap, _ := answers.Random(r)
		snap.Busy, snap.Pinned, snap.Waiting, snap.MaxMoves = nil, nil, nil, 1000
		snap.Candidates = nil
		for i := range snap.Nodes {
			snap.Candidates = append(snap.Candidates, i)
		}
		for _, m := range moves(t, all, snap) {
			snap.Owners[m[0]] = uint32(m[1])
		}
		assert.Empty(t, moves(t, all, snap))
		zones := map[string]int{}
		for _, n := range snap.Nodes {
			zones[n.Zone] += 0
		}
		homed := 0
		for _, o := range snap.Owners {
			if o != none {
				zones[snap.Nodes[o].Zone]++
				homed++
			}
		}
		for zone, shards := range zones {
			assert.InDelta(t, float64(homed)/float64(len(zones)), shards, 1, zone)
		}
	}
}

// Shard s is on candidate s mod n, whatever the candidates are, and stays where it is.
func TestRoundRobin(t *testing.T) {
	s := must(t, "wat/round-robin", nil)
	snap := cluster(make([]string, 4), 0, 0, 0, none, none, none, none, none)
	assert.Equal(t, []int{3, 0, 1, 2, 3}, homes(t, s, snap, 3, 4, 5, 6, 7))
	assert.Empty(t, moves(t, s, snap))
	snap.Candidates = []int{1, 3}
	assert.Equal(t, []int{3, 1, 1}, homes(t, s, snap, 3, 4, 6))

	many := cluster(make([]string, 300), make([]uint32, 1000)...) // indices of one byte and of two
	assert.Equal(t, []int{0, 23, 24, 255, 256, 299, 0, 99}, homes(t, s, many, 0, 23, 24, 255, 256, 299, 300, 999))
}

// In proportion to weight, by integers; a node of weight 0 is emptied.
func TestCapacity(t *testing.T) {
	const name = "rust/capacity"
	s := must(t, name, nil)
	weighted := func(weights []uint64, owners ...uint32) *pluginapi.Snapshot {
		snap := cluster(make([]string, len(weights)), owners...)
		for i, w := range weights {
			snap.Nodes[i].Weight = w
		}
		return snap
	}
	assert.Equal(t, []int{0, 0, 1, 0, 0, 1}, homes(t, s, weighted([]uint64{200, 100}, none, none, none, none, none, none), 0, 1, 2, 3, 4, 5))
	assert.Equal(t, []int{1}, homes(t, s, weighted([]uint64{0, 100}, none, 1, 1), 0), "weight 0 gets nothing")
	assert.Equal(t, []int{pluginapi.NoTarget}, homes(t, s, weighted([]uint64{0}, none), 0))
	assert.Equal(t, [][2]int{{0, 1}, {1, 1}}, moves(t, s, weighted([]uint64{100, 200}, 0, 0, 0)))
	assert.Empty(t, moves(t, s, weighted([]uint64{100, 200}, 0, 1, 1)))
	assert.Empty(t, moves(t, s, weighted([]uint64{100, 100}, 0, 0, 1)), "a difference of one is none")
	assert.Equal(t, [][2]int{{0, 1}, {1, 1}}, moves(t, s, weighted([]uint64{0, 100}, 0, 0)))
	assert.Len(t, moves(t, s, weighted([]uint64{0, 100}, 0, 0, 0, 0, 0)), 3, "max_moves is 3")
	assert.Len(t, moves(t, must(t, name, map[string]any{"max_moves": 4}), weighted([]uint64{0, 1 << 60}, 0, 0, 0, 0, 0)), 4)

	kept := weighted([]uint64{0, 100}, 0, 0, 0, 0, none, none)
	kept.Busy = []pluginapi.Busy{{Shard: 0, Target: 1}}
	kept.Pinned = []pluginapi.Pin{{Shard: 1, Node: 0}, {Shard: 4, Node: 0}}
	kept.Waiting = []uint32{2, 5}
	assert.Equal(t, [][2]int{{3, 1}}, moves(t, s, kept))
	assert.Equal(t, []int{0, pluginapi.NoTarget}, homes(t, s, kept, 4, 5))

	mixed := weighted([]uint64{0, 100}, 0)
	mixed.Nodes[1].Version = "2"
	assert.Empty(t, moves(t, s, mixed))

	_, err := load(t, host.Compiler, name, host.Limits{}, map[string]any{"max_moves": "many"})
	require.ErrorContains(t, err, "config.max_moves: want a whole number of at least 0")
	d, err := s.Describe(context.Background())
	require.NoError(t, err)
	assert.Equal(t, "capacity", d.Name)
	require.Len(t, d.Config, 1)
	assert.EqualValues(t, 3, d.Config[0].Default)

	// From anywhere it comes to rest in one round, with every node near its part.
	r := rand.New(rand.NewPCG(9, 0))
	all := must(t, name, map[string]any{"max_moves": 1000})
	for range 30 {
		snap, _ := answers.Random(r)
		snap.Busy, snap.Pinned, snap.Waiting, snap.MaxMoves, snap.Candidates = nil, nil, nil, 1000, nil
		counts, homed, weight := make([]float64, len(snap.Nodes)), 0.0, 0.0
		for i, n := range snap.Nodes {
			snap.Candidates = append(snap.Candidates, i)
			weight += float64(n.Weight)
		}
		for _, m := range moves(t, all, snap) {
			snap.Owners[m[0]] = uint32(m[1])
		}
		assert.Empty(t, moves(t, all, snap))
		for _, o := range snap.Owners {
			if o != none {
				counts[o]++
				homed++
			}
		}
		for i, n := range snap.Nodes {
			part := float64(n.Weight) / weight
			assert.GreaterOrEqual(t, counts[i], homed*part-1, n.Name)
			assert.LessOrEqual(t, counts[i], (homed+float64(len(snap.Nodes)))*part, n.Name)
		}
	}
}

// The same as the example in Go, decision for decision; except that nothing moves during a rolling upgrade.
func TestRolePinningInAssemblyScript(t *testing.T) {
	const name = "assemblyscript/role-pinning"
	s := must(t, name, nil)
	pinned := cluster(make([]string, 3), none, none, none, none, none, none, none)
	pinned.Nodes[0].Roles = []string{"web", "coordinator"}
	assert.Equal(t, []int{0, 0, 0, 0, 1, 2, 1}, homes(t, s, pinned, 0, 1, 2, 3, 4, 5, 6))
	pinned.Owners = []uint32{0, 1, 2, 0, 0, 1, none}
	assert.Equal(t, [][2]int{{1, 0}, {2, 0}, {4, 2}}, moves(t, s, pinned))
	pinned.Nodes[1].Version = "2"
	assert.Empty(t, moves(t, s, pinned))

	ctx := context.Background()
	r := rand.New(rand.NewPCG(21, 0))
	moved := 0
	for _, config := range []map[string]any{nil, {"role": "web", "low": 50}, {"low": 0}, {"role": "nobody"}} {
		guest := must(t, name, config)
		var c pluginapi.Config
		if config != nil {
			var err error
			c, err = pluginapi.NewConfig(config)
			require.NoError(t, err)
		}
		native, err := host.NewNative("native", rolepinning.Strategy{}, c)
		require.NoError(t, err)
		for range 100 {
			snap, homeless := answers.Random(r)
			want := native.Call(ctx, pluginapi.OpRebalance, snap, nil, 0)
			got := guest.Call(ctx, pluginapi.OpRebalance, snap, nil, 0)
			require.NoError(t, want.Err)
			require.NoError(t, got.Err)
			require.Equal(t, want.Record.Output, got.Record.Output)
			want = native.Call(ctx, pluginapi.OpAllocate, snap, append(homeless, snap.Waiting...), 0)
			got = guest.Call(ctx, pluginapi.OpAllocate, snap, append(homeless, snap.Waiting...), 0)
			require.NoError(t, got.Err)
			require.Equal(t, want.Record.Output, got.Record.Output)
			moved += len(want.Homes.Nodes)
		}
	}
	assert.Greater(t, moved, 400)

	_, err := load(t, host.Compiler, name, host.Limits{}, map[string]any{"low": "many"})
	require.ErrorContains(t, err, "config.low: want a whole number of at least 0")
	_, err = load(t, host.Compiler, name, host.Limits{}, map[string]any{"role": 1})
	require.ErrorContains(t, err, "config.role: want text")
	got, err := s.Describe(ctx)
	require.NoError(t, err)
	want := rolepinning.Strategy{}.Describe()
	assert.Equal(t, want.Name, got.Name)
	assert.Equal(t, want.Summary, got.Summary)
	require.Len(t, got.Config, 2)
	for _, k := range got.Config {
		assert.Contains(t, []string{"role", "low"}, k.Key)
	}
}
