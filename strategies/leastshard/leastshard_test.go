package leastshard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/droverhq/drover/pluginapi"
)

// cluster has nodes with so many shards each, numbered in ascending order.
func cluster(counts ...int) *pluginapi.Snapshot {
	s := &pluginapi.Snapshot{MaxMoves: 1 << 40}
	for i, n := range counts {
		s.Nodes = append(s.Nodes, pluginapi.Node{Name: fmt.Sprintf("n%03d", i)})
		s.Candidates = append(s.Candidates, i)
		s.Owners = append(s.Owners, slices.Repeat([]uint32{uint32(i)}, n)...)
	}
	return s
}

func config(t require.TestingT, table map[string]any) pluginapi.Config {
	c, err := pluginapi.NewConfig(table)
	require.NoError(t, err)
	return c
}

// round makes one rebalance and its moves, and returns the plan.
func round(t require.TestingT, s *pluginapi.Snapshot) pluginapi.Plan {
	plan, err := Strategy{}.Rebalance(s)
	require.NoError(t, err)
	for _, m := range plan.Moves {
		s.Owners[m.Shard] = uint32(m.Target)
	}
	return plan
}

func spread(s *pluginapi.Snapshot) int {
	counts := s.Placement().Counts
	return slices.Max(counts) - slices.Min(counts)
}

// The figures of spec 1.2: max − min ≤ 1 in at most 2 rounds with all shards on one node, and in at most 5 from a
// random start of 100 nodes and 100 000 shards, moves unlimited.
func TestConvergence(t *testing.T) {
	unlimited := config(t, map[string]any{"max_moves": 1_000_000})
	for _, c := range []struct{ nodes, each int }{{5, 25}, {5, 500}, {20, 400}} {
		counts := make([]int, c.nodes)
		counts[c.nodes/2] = c.nodes * c.each
		s := cluster(counts...)
		s.Config = unlimited
		rounds := 0
		for spread(s) > 1 {
			require.NotEmpty(t, round(t, s).Moves)
			rounds++
		}
		assert.LessOrEqual(t, rounds, 2, "%d nodes, %d shards each", c.nodes, c.each)
	}
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := cluster(make([]int, 100)...)
		s.Config = unlimited
		for range 100_000 {
			s.Owners = append(s.Owners, rng.Uint32N(100))
		}
		rounds := 0
		for spread(s) > 1 {
			require.NotEmpty(t, round(t, s).Moves)
			rounds++
		}
		assert.LessOrEqual(t, rounds, 5, "seed %d", seed)
	}
}

// A fourth node joins three that hold 34, 33 and 33 shards: by the shipped configuration it ends at 25 each by exactly
// 25 moves.
func TestJoin(t *testing.T) {
	s := cluster(34, 33, 33, 0)
	s.Config = config(t, map[string]any{"threshold": 1, "max_moves": 3, "max_moves_share": 1.0})
	moved := map[uint32]int{}
	passes := 0
	for {
		plan := round(t, s)
		if len(plan.Moves) == 0 {
			break
		}
		passes++
		for _, m := range plan.Moves {
			assert.Equal(t, 3, m.Target)
			moved[m.Shard]++
		}
	}
	assert.Len(t, moved, 25)
	for shard, n := range moved {
		assert.Equal(t, 1, n, "shard %d", shard)
	}
	assert.Equal(t, []int{25, 25, 25, 25}, s.Placement().Counts)
	assert.Equal(t, 9, passes)
}

// The same while moves are in flight: a shard counts at its target as soon as it is busy, so that no pass asks for more.
func TestJoinWhileMovesAreInFlight(t *testing.T) {
	s := cluster(34, 33, 33, 0)
	moves := 0
	for pass := 0; ; pass++ {
		plan, err := Strategy{}.Rebalance(s)
		require.NoError(t, err)
		if len(plan.Moves) == 0 && len(s.Busy) == 0 {
			break
		}
		moves += len(plan.Moves)
		for _, m := range plan.Moves {
			s.Busy = append(s.Busy, pluginapi.Busy{Shard: m.Shard, Target: m.Target})
		}
		if pass%4 == 3 || len(plan.Moves) == 0 { // handoffs take four passes
			for _, b := range s.Busy {
				s.Owners[b.Shard] = uint32(b.Target)
			}
			s.Busy = nil
		}
	}
	assert.Equal(t, 25, moves)
	assert.Equal(t, []int{25, 25, 25, 25}, s.Placement().Counts)
}

// anyCluster draws a cluster with busy, pinned and waiting shards, nodes that are no candidates and any configuration.
func anyCluster(t *rapid.T) *pluginapi.Snapshot {
	s := &pluginapi.Snapshot{MaxMoves: rapid.Uint64Range(0, 40).Draw(t, "host's limit")}
	nodes := rapid.IntRange(1, 7).Draw(t, "nodes")
	for i := range nodes {
		s.Nodes = append(s.Nodes, pluginapi.Node{Name: fmt.Sprintf("n%03d", i)})
		if rapid.IntRange(0, 4).Draw(t, "candidate") > 0 {
			s.Candidates = append(s.Candidates, i)
		}
	}
	for shard := range rapid.IntRange(0, 60).Draw(t, "shards") {
		s.Owners = append(s.Owners, uint32(rapid.IntRange(-1, nodes-1).Draw(t, "owner")))
		switch rapid.IntRange(0, 11).Draw(t, "special") {
		case 0:
			s.Busy = append(s.Busy, pluginapi.Busy{Shard: uint32(shard), Target: rapid.IntRange(-1, nodes-1).Draw(t, "target")})
		case 1:
			s.Waiting = append(s.Waiting, uint32(shard))
		case 2:
			s.Pinned = append(s.Pinned, pluginapi.Pin{Shard: uint32(shard), Node: rapid.IntRange(0, nodes-1).Draw(t, "pin")})
		}
	}
	s.Config = config(t, map[string]any{
		"threshold": rapid.IntRange(0, 6).Draw(t, "threshold"), "max_moves": rapid.IntRange(0, 60).Draw(t, "max_moves"),
		"max_moves_share": rapid.Float64Range(0, 1).Draw(t, "max_moves_share"),
	})
	return s
}

// Every plan keeps the rules of spec 1.2, and whatever the threshold and the limits, repeating it comes to an end.
func TestPlansKeepTheRulesAndEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyCluster(t)
		set, err := read(s.Config)
		require.NoError(t, err)
		squares := func() (sum int) {
			p := s.Placement()
			for _, c := range s.Candidates {
				sum += p.Counts[c] * p.Counts[c]
			}
			return sum
		}
		for before := squares(); ; {
			p := s.Placement()
			counts := slices.Clone(p.Counts)
			plan := round(t, s)
			if len(plan.Moves) == 0 {
				break
			}
			require.LessOrEqual(t, uint64(len(plan.Moves)), set.limits.Moves)
			require.LessOrEqual(t, uint64(len(plan.Moves)), s.MaxMoves)
			require.LessOrEqual(t, len(plan.Moves), max(1, set.limits.Share.Of(p.Homed)))
			least, most := counts[s.Candidates[0]], counts[s.Candidates[0]]
			for _, c := range s.Candidates {
				least, most = min(least, counts[c]), max(most, counts[c])
			}
			require.GreaterOrEqual(t, uint64(most-least), set.threshold)
			seen := map[uint32]bool{}
			for _, m := range plan.Moves {
				require.True(t, p.Movable(m.Shard), "shard %d", m.Shard)
				require.False(t, seen[m.Shard], "shard %d", m.Shard)
				seen[m.Shard] = true
				require.True(t, s.IsCandidate(m.Target))
			}
			after := squares()
			require.Less(t, after, before, "each plan makes it more even")
			before = after
		}
	})
}

// Without shards that are kept, one rebalance after another ends at a difference of at most max(1, threshold − 1), and
// by as few moves as possible: none goes to a node that another leaves.
func TestEndsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.IntRange(0, 30), 1, 8).Draw(t, "counts")
		threshold := rapid.IntRange(0, 5).Draw(t, "threshold")
		s := cluster(counts...)
		s.Config = config(t, map[string]any{"threshold": threshold, "max_moves": rapid.IntRange(1, 50).Draw(t, "max_moves")})
		sources, targets := map[int]bool{}, map[int]bool{}
		moves := 0
		for {
			owners := slices.Clone(s.Owners)
			plan := round(t, s)
			if len(plan.Moves) == 0 {
				break
			}
			moves += len(plan.Moves)
			for _, m := range plan.Moves {
				sources[int(owners[m.Shard])], targets[m.Target] = true, true
				require.GreaterOrEqual(t, counts[owners[m.Shard]]-counts[m.Target], 2)
			}
		}
		require.LessOrEqual(t, spread(s), max(1, threshold-1))
		for node := range sources {
			require.False(t, targets[node], "node %d both gives and gets", node)
		}
		after := s.Placement().Counts
		least := 0
		for i := range counts {
			least += max(0, counts[i]-after[i])
		}
		require.Equal(t, least, moves, "no shard moves twice")
	})
}

// One pass unlimited leaves nothing above the ceiling, and the next nothing two below the fullest.
func TestTwoPhases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.IntRange(0, 40), 1, 10).Draw(t, "counts")
		s := cluster(counts...)
		s.Config = config(t, map[string]any{"max_moves": 1_000_000})
		shed := 0
		ceiling := (len(s.Owners) + len(counts) - 1) / len(counts)
		for _, n := range counts {
			shed += max(0, n-ceiling)
		}
		if plan := round(t, s); shed > 0 {
			require.Len(t, plan.Moves, shed)
			require.LessOrEqual(t, slices.Max(s.Placement().Counts), ceiling)
			round(t, s)
		}
		require.LessOrEqual(t, spread(s), 1)
	})
}

// The heap against a plain search for the emptiest.
func TestAllocate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyCluster(t)
		var shards []uint32
		for shard := range s.Owners {
			if rapid.Bool().Draw(t, "asked") {
				shards = append(shards, uint32(shard))
			}
		}
		homes, err := Strategy{}.Allocate(s, shards)
		require.NoError(t, err)
		require.Len(t, homes.Nodes, len(shards))
		p := s.Placement()
		for _, shard := range shards {
			if node, kept := p.Kept(shard); kept {
				p.Put(node)
			}
		}
		for i, shard := range shards {
			want, kept := p.Kept(shard)
			if !kept {
				for _, c := range s.Candidates {
					if want == pluginapi.NoTarget || p.Counts[c] < p.Counts[want] {
						want = c
					}
				}
				p.Put(want)
			}
			require.Equal(t, want, homes.Nodes[i], "shard %d", shard)
		}
	})
}

func TestConfigureNamesTheKey(t *testing.T) {
	assert.NoError(t, Strategy{}.Configure(nil))
	assert.NoError(t, Strategy{}.Configure(config(t, map[string]any{"threshold": 10, "max_moves": 3, "max_moves_share": 0.5})))
	assert.ErrorContains(t, Strategy{}.Configure(config(t, map[string]any{"threshold": 1.5})), "config.threshold: want a whole number")
	_, err := Strategy{}.Rebalance(&pluginapi.Snapshot{Config: pluginapi.Config{0x80}})
	assert.ErrorContains(t, err, "config: want a map, got an array")
}

// The defaults of spec 1.2, as they are told to users.
func TestDefaults(t *testing.T) {
	defaults := map[string]any{}
	for _, k := range (Strategy{}).Describe().Config {
		defaults[k.Key] = k.Default
	}
	assert.Equal(t, map[string]any{"threshold": 1, "max_moves": uint64(3), "max_moves_share": 1.0}, defaults)
}

// draining takes the last node from the candidates.
func draining(s *pluginapi.Snapshot) *pluginapi.Snapshot {
	s.Candidates = s.Candidates[:len(s.Candidates)-1]
	return s
}

func TestReasons(t *testing.T) {
	for want, s := range map[string]*pluginapi.Snapshot{
		"even: from 2 to 3 shards a node":                  cluster(3, 2),
		"shed what is above 3 shards a node":               cluster(5, 1),
		"from the fullest to those with two or more fewer": cluster(4, 4, 2),
		"no candidates": {},
		"no candidate has its share of 4 shards yet": draining(cluster(3, 1, 4)),
	} {
		plan, err := Strategy{}.Rebalance(s)
		require.NoError(t, err)
		assert.Equal(t, want, plan.Reason)
	}
}

func BenchmarkRebalance(b *testing.B) {
	for _, c := range []struct{ nodes, shards int }{{10, 1000}, {10, 10_000}, {100, 100_000}} {
		b.Run(fmt.Sprintf("%dx%d", c.nodes, c.shards), func(b *testing.B) {
			s := cluster(make([]int, c.nodes)...)
			for i := range c.shards {
				s.Owners = append(s.Owners, uint32(i%(c.nodes-1)))
			}
			b.ReportAllocs()
			for b.Loop() {
				plan, err := Strategy{}.Rebalance(s)
				if err != nil || len(plan.Moves) == 0 {
					b.Fatal(plan, err)
				}
			}
		})
	}
}
