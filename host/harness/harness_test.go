package harness_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/host/harness"
	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/pluginapi/snapshotfile"
	"github.com/droverhq/drover/strategies"
	"github.com/droverhq/drover/strategies/answers"
)

// Spec 1.2: the table of right answers goes through the harness, natively and as modules; and the same with the strategy of
// another name fails.
func TestRightAnswers(t *testing.T) {
	cases, err := answers.All()
	require.NoError(t, err)
	for _, kind := range []func(testing.TB, string) *harness.Strategy{native, module} {
		by := map[string]*harness.Strategy{}
		for _, name := range strategies.Names() {
			by[name] = kind(t, name)
		}
		for _, c := range cases {
			s := by[c.Strategy]
			t.Run(s.Name()+"/"+c.Name, func(t *testing.T) {
				assertAnswer(t, s, &c)
			})
		}
	}
	wrong := 0
	for _, c := range cases {
		if c.Strategy != "leastshard" || len(c.Moves) == 0 {
			continue
		}
		if text, failed := record(t, func(t testing.TB) { assertAnswer(t, native(t, "hash"), &c) }); failed {
			wrong++
			assert.Contains(t, text, "right would have been: ")
		}
	}
	assert.Greater(t, wrong, 10, "the assertions tell strategies apart")
}

func assertAnswer(t testing.TB, s *harness.Strategy, c *answers.Case) {
	cluster := lab.FromSnapshot(&c.Snapshot)
	name := func(node int) string {
		if node == pluginapi.NoTarget {
			return ""
		}
		return c.Snapshot.Nodes[node].Name
	}
	switch {
	case c.Error != "":
		a, err := s.Rebalance(t.Context(), cluster)
		if c.Op == pluginapi.OpAllocate {
			a, err = s.Allocate(t.Context(), cluster, c.Shards)
		}
		assert.NoError(t, err)
		assert.ErrorContains(t, a.Err, c.Error)
	case c.Op == pluginapi.OpAllocate:
		var want []harness.Home
		for i, shard := range c.Shards {
			want = append(want, harness.Home{Shard: shard, Node: name(c.Homes[i])})
		}
		harness.Homes(t, s, cluster, want...)
	default:
		var want []harness.Move
		for _, m := range c.Moves {
			want = append(want, harness.Move{Shard: m.Shard, To: name(m.Target)})
		}
		harness.Moves(t, s, cluster, want...)
	}
}

// Spec 1.5: Conformance takes what is right, for modules and native strategies alike.
func TestConformanceTakesTheBuiltIns(t *testing.T) {
	thresholds := []map[string]any{{}, {"threshold": 0, "max_moves": 50}, {"threshold": 4, "max_moves_share": 0.1}}
	for _, name := range strategies.Names() {
		configs := thresholds[:1]
		if name == "leastshard" {
			configs = thresholds
		}
		t.Run("native "+name, func(t *testing.T) { harness.Conformance(t, native(t, name), configs...) })
		t.Run("module "+name, func(t *testing.T) { harness.Conformance(t, module(t, name), configs...) })
	}
}

// A strategy in C is asked as any other. This one has no homes to give, which is a fault: a node would take it back.
func TestOtherLanguages(t *testing.T) {
	s := harness.Open(t, filepath.Join("..", "testdata", "guests", "leastshard.wasm"))
	harness.Moves(t, s, harness.NewCluster(3, 0).Counts(1, 2, 0), harness.Move{Shard: 1, From: "b", To: "c"})
	text, failed := record(t, func(t testing.TB) { harness.Conformance(t, s) })
	assert.True(t, failed)
	assert.Contains(t, text, "leastshard.wasm: valid: allocate failed: bad answer: strategy failed: this strategy only rebalances")
	assert.NotContains(t, text, "rebalance failed")
}

// Faults that only a module can have.
func TestConformanceCatchesFaultyModules(t *testing.T) {
	for file, right := range map[string]string{
		"bad-cbor": "an answer as pluginapi/strategy.cddl has it", "divide": "an answer, whatever is missing", "failure": "a decision: ",
		"well-behaved": "an answer as pluginapi/strategy.cddl has it", // it gives one home, whatever it is asked
	} {
		text, failed := record(t, func(t testing.TB) {
			harness.Conformance(t, harness.Open(t, filepath.Join("..", "testdata", "attack", file+".wasm")))
		})
		assert.True(t, failed, file)
		assert.Contains(t, text, ".wasm: valid: ", file)
		assert.Contains(t, text, "right would have been: "+right, file)
	}
	text, failed := record(t, func(t testing.TB) { harness.Conformance(t, harness.Module(t, "text", []byte("(module)"))) })
	assert.True(t, failed)
	assert.Contains(t, text, "text: admitted: ")
	assert.Contains(t, text, "drover strategy check")
}

// Spec 1.2: max − min ≤ 1 within 2 rounds from one node, and within 5 of 100 nodes and 100 000 shards from a random start.
func TestConvergenceOfSpec12(t *testing.T) {
	s := native(t, "leastshard")
	for _, c := range []struct{ nodes, each int }{{5, 25}, {5, 500}, {20, 400}} {
		cluster := harness.NewCluster(c.nodes, c.nodes*c.each).AllOn("c").Config("max_moves", 1_000_000)
		harness.EvensOut(t, s, cluster, 2, 1)
		harness.Converges(t, s, cluster, 2)
	}
	random := harness.NewCluster(100, 100_000).Config("max_moves", 1_000_000)
	r := rand.New(rand.NewPCG(1, 0))
	for shard := range uint32(100_000) {
		random.Own(fmt.Sprintf("n%03d", r.IntN(100)), shard)
	}
	harness.EvensOut(t, s, random, 5, 1)
	harness.EvensOut(t, module(t, "rendezvous"), harness.NewCluster(5, 100).AllOn("a").Config("max_moves", 1000), 1, 16)
	text, failed := record(t, func(t testing.TB) {
		harness.EvensOut(t, s, harness.NewCluster(3, 12).AllOn("a").Config("max_moves", 3), 2, 1)
	})
	assert.True(t, failed)
	assert.Contains(t, text, "after round 2 the fullest candidate has 3 shards more than the emptiest")
}

// Issue 4: leastshard never swaps for ever, at any threshold, over random clusters.
func TestLeastshardNeverSwapsForEver(t *testing.T) {
	s := native(t, "leastshard")
	rapid.Check(t, func(rt *rapid.T) {
		c := harness.AnyCluster().Draw(rt, "cluster").
			Config("threshold", rapid.IntRange(0, 12).Draw(rt, "threshold")).
			Config("max_moves", rapid.IntRange(0, 60).Draw(rt, "max_moves")).
			Config("max_moves_share", rapid.Float64Range(0, 1).Draw(rt, "max_moves_share"))
		for _, err := range []error{s.NeverOscillates(t.Context(), c), s.SettlesAtAll(t.Context(), c)} {
			if err != nil {
				rt.Fatalf("%v", err)
			}
		}
	})
}

// Issue 4: the oscillation detector, shown on a strategy that takes a threshold of 1 literally.
func TestOscillationIsDetected(t *testing.T) {
	literal := harness.Native(t, "literal", funcs{rebalance: flaw{atOne: true}.level})
	c := harness.NewCluster(2, 0).Counts(2, 1)
	text, failed := record(t, func(t testing.TB) { assert.False(t, harness.NeverOscillates(t, literal, c)) })
	assert.True(t, failed)
	for _, part := range []string{
		"literal: oscillates: the shards are at the end of round 4 where they were at the end of round 0",
		"right would have been: no move after round 0", "round 1: moves: 0 a→b, 2 b→a → a 2, b 1", "a (up, weight 100, version 1): 2: 0-1",
	} {
		assert.Contains(t, text, part)
	}
	assert.True(t, harness.NeverOscillates(t, native(t, "leastshard"), c))
	// A strategy that goes round and round over more arrangements than it has rounds does not settle either.
	text, failed = record(t, func(t testing.TB) { harness.Converges(t, literal, c, 1) })
	assert.True(t, failed)
	assert.Contains(t, text, "oscillates")
}

// A strategy that goes by the places of keys does not live to see the next contract.
func TestForward(t *testing.T) {
	s := harness.Open(t, filepath.Join("testdata", "fixed-order.wasm"))
	none := harness.NewCluster(3, 0)
	require.NoError(t, s.Valid(t.Context(), none))
	err := s.Forward(t.Context(), none)
	require.NotNil(t, lab.IsFault(err))
	assert.Equal(t, lab.CheckForward, lab.IsFault(err).Check)
	assert.ErrorContains(t, err, "want v first")
	assert.NoError(t, module(t, "hash").Forward(t.Context(), none))
}

// What a strategy remembers of another question comes out even where the same one asked twice has the same answer.
func TestDeterministicAsksSomethingElseInBetween(t *testing.T) {
	last := 0
	s := harness.Native(t, "remembers", funcs{rebalance: func(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
		same := last == len(s.Owners)
		last = len(s.Owners)
		if same {
			return pluginapi.Plan{}, nil
		}
		return flaw{}.level(s)
	}})
	c := harness.NewCluster(3, 9).AllOn("a")
	_, err := s.Rebalance(t.Context(), c)
	require.NoError(t, err)
	err = s.Deterministic(t.Context(), c)
	require.NotNil(t, lab.IsFault(err))
	assert.Equal(t, lab.CheckDeterministic, lab.IsFault(err).Check)
}

// Each assertion both ways: what holds, and what does not, with what would have been right.
func TestAssertions(t *testing.T) {
	least, wasm := native(t, "leastshard"), module(t, "leastshard")
	nine := harness.NewCluster(3, 9).AllOn("a").Config("max_moves", 2)
	move := func(shard uint32, to string) harness.Move { return harness.Move{Shard: shard, To: to} }
	slow := harness.Native(t, "slow", funcs{rebalance: func(*pluginapi.Snapshot) (pluginapi.Plan, error) {
		for since := time.Now(); time.Since(since) < 2*time.Millisecond; {
		}
		return pluginapi.Plan{}, nil
	}})
	zones := harness.NewCluster(4, 12).AllOn("a").Zone("z1", "a", "b").Zone("z2", "c", "d").Config("max_moves", 100)
	lopsided := harness.NewCluster(4, 12).AllOn("a").Zone("z1", "a", "b", "c").Zone("z2", "d").Config("max_moves", 100)
	pinned := harness.NewCluster(3, 6).AllOn("a").Pin("a", 0, 1, 2).Own("", 1)
	for name, c := range map[string]struct {
		good, bad func(t testing.TB) bool
		right     string
	}{
		"moves": {
			func(t testing.TB) bool { return harness.Moves(t, least, nine, move(0, "b"), move(1, "c")) },
			func(t testing.TB) bool { return harness.Moves(t, least, nine, move(0, "b"), move(1, "b")) },
			"moves: 0 a→b, 1 a→b",
		},
		"homes": {
			func(t testing.TB) bool {
				return harness.Homes(t, wasm, harness.NewCluster(2, 3), harness.Home{Shard: 0, Node: "a"}, harness.Home{Shard: 2, Node: "b"})
			},
			func(t testing.TB) bool {
				return harness.Homes(t, wasm, harness.NewCluster(2, 3), harness.Home{Shard: 1})
			},
			"homes: 1 nowhere",
		},
		"converges": {
			func(t testing.TB) bool { return harness.Converges(t, wasm, nine, 3) },
			func(t testing.TB) bool { return harness.Converges(t, wasm, nine, 2) },
			"no move in round 3 and after",
		},
		"most moves": {
			func(t testing.TB) bool { return harness.MovesAtMost(t, least, nine, 2) },
			func(t testing.TB) bool { return harness.MovesAtMost(t, least, nine, 1) },
			"at most 1 moves",
		},
		"more than the host takes": {
			func(t testing.TB) bool { return harness.MovesAtMost(t, least, nine, 2) },
			func(t testing.TB) bool {
				return harness.MovesAtMost(t, harness.Native(t, "leveller", funcs{rebalance: flaw{}.level}), harness.NewCluster(3, 9).AllOn("a").Limit(1), 1)
			},
			"at most 1 moves",
		},
		"fuel": {
			func(t testing.TB) bool { return harness.WithinFuel(t, wasm, nine, host.DefaultFuel/10) },
			func(t testing.TB) bool { return harness.WithinFuel(t, wasm, nine, 100) },
			"at most 100 units",
		},
		"budget": {
			func(t testing.TB) bool { return harness.WithinBudget(t, slow, nine, time.Minute) },
			func(t testing.TB) bool { return harness.WithinBudget(t, slow, nine, time.Millisecond) },
			"at most 1ms",
		},
		"deterministic": {
			func(t testing.TB) bool { return harness.Deterministic(t, wasm, nine) },
			func(t testing.TB) bool {
				return harness.Deterministic(t, harness.Native(t, "map", funcs{rebalance: flaw{mapOrder: true}.level}), nine)
			},
			"the same bytes",
		},
		"pins": {
			func(t testing.TB) bool { return harness.KeepsPins(t, least, pinned) },
			func(t testing.TB) bool {
				return harness.KeepsPins(t, harness.Native(t, "heedless", funcs{allocate: func(_ *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
					return pluginapi.Homes{Nodes: make([]int, len(shards))}, nil
				}}), pinned.Clone().Pin("b", 3))
			},
			"homes: 0 on a, 1 on a, 2 on a, 3 on b",
		},
		"pins that are moved": {
			func(t testing.TB) bool { return harness.KeepsPins(t, wasm, pinned) },
			func(t testing.TB) bool {
				return harness.KeepsPins(t, harness.Native(t, "heedless", funcs{rebalance: flaw{pinned: true}.level}), pinned)
			},
			"to leave shard 0 on a, where it is pinned",
		},
		"zones": {
			func(t testing.TB) bool { return harness.SpreadsZones(t, least, zones, 5, 0) },
			func(t testing.TB) bool { return harness.SpreadsZones(t, least, lopsided, 5, 2) },
			"about 6 shards a zone, and at most 2 more in one than in another",
		},
		"standbys": {
			func(t testing.TB) bool {
				return harness.SpreadsZones(t, native(t, "hash"), zones.Clone().Even().Standby("c", 0, 1), 5, 0)
			},
			func(t testing.TB) bool {
				return harness.SpreadsZones(t, native(t, "hash"), zones.Clone().Even().Standby("b", 0), 5, 0)
			},
			`shard 0 in another zone than "z1"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.True(t, c.good(t))
			text, failed := record(t, func(t testing.TB) { assert.False(t, c.bad(t)) })
			assert.True(t, failed)
			assert.Contains(t, text, "right would have been: "+c.right)
			assert.Contains(t, text, "snapshot: ")
		})
	}
	text, failed := record(t, func(t testing.TB) { harness.WithinFuel(t, least, nine, 1) })
	assert.True(t, failed)
	assert.Contains(t, text, "takes no fuel: ask its module")
	text, failed = record(t, func(t testing.TB) { harness.Moves(t, least, harness.NewCluster(3, 9).AllOn("z")) })
	assert.True(t, failed)
	assert.Contains(t, text, `there is no node "z": the nodes are ["a" "b" "c"]`)
	text, failed = record(t, func(t testing.TB) { harness.Open(t, filepath.Join("testdata", "nothing.wasm")) })
	assert.True(t, failed)
	assert.Contains(t, text, "nothing.wasm")
}

// Spec 1.6: what a failure prints as its input is what `drover strategy run --input` reads: the same cluster.
func TestInputsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := harness.AnyCluster().Draw(t, "cluster").Config("threshold", 3).Config("share", 0.5).Config("list", []any{"x", true, nil}).
			Tag("rack", "7")
		data, err := json.Marshal(c)
		require.NoError(t, err)
		f, err := snapshotfile.Parse(data)
		require.NoError(t, err, "%s", data)
		want, err := c.Snapshot()
		require.NoError(t, err)
		assert.Equal(t, pluginapi.AppendInput(nil, pluginapi.OpRebalance, want, nil), pluginapi.AppendInput(nil, pluginapi.OpRebalance, &f.Snapshot, nil))
	})
}
