package rendezvous

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/droverhq/drover/pluginapi"
)

func cluster(weights ...uint64) *pluginapi.Snapshot {
	s := &pluginapi.Snapshot{MaxMoves: 1 << 40}
	for i, w := range weights {
		s.Nodes = append(s.Nodes, pluginapi.Node{Name: fmt.Sprintf("node-%d", i), Weight: w})
		s.Candidates = append(s.Candidates, i)
	}
	return s
}

func homes(t require.TestingT, s *pluginapi.Snapshot, shards int) []int {
	all := make([]uint32, shards)
	for i := range all {
		all[i] = uint32(i)
	}
	s.Owners = make([]uint32, shards)
	for i := range s.Owners {
		s.Owners[i] = pluginapi.NoOwner
	}
	h, err := Strategy{}.Allocate(s, all)
	require.NoError(t, err)
	return h.Nodes
}

func counts(nodes int, hs []int) []int {
	c := make([]int, nodes)
	for _, h := range hs {
		c[h]++
	}
	return c
}

func equal(n int) []uint64 {
	ws := make([]uint64, n)
	for i := range ws {
		ws[i] = 100
	}
	return ws
}

// A join moves about 1/(n+1) of the shards, all of them to the new node, and none among the others (spec 1.2).
func TestJoinMovesItsShare(t *testing.T) {
	const shards = 50_000
	for _, n := range []int{1, 2, 3, 5, 10, 30, 100} {
		before, after := homes(t, cluster(equal(n)...), shards), homes(t, cluster(equal(n+1)...), shards)
		moved := 0
		for i := range before {
			if before[i] != after[i] {
				require.Equal(t, n, after[i], "shard %d moves among nodes that stay", i)
				moved++
			}
		}
		want := float64(shards) / float64(n+1)
		assert.InDelta(t, want, moved, 4*math.Sqrt(want), "%d nodes", n)
	}
}

// Shards are in proportion to weights, within a few per cent and what chance allows.
func TestProportion(t *testing.T) {
	const shards = 200_000
	for _, weights := range [][]uint64{
		{100, 100, 100}, {100, 200, 300}, {50, 100, 1000}, {1, 1, 1, 1, 100}, {100, 100, 100, 100, 100, 100, 100, 100, 100, 5000},
		{1 << 40, 2 << 40, 5 << 40},
	} {
		total := 0.0
		for _, w := range weights {
			total += float64(w)
		}
		for i, n := range counts(len(weights), homes(t, cluster(weights...), shards)) {
			want := shards * float64(weights[i]) / total
			assert.InDelta(t, want, n, 0.01*want+4*math.Sqrt(want), "%v, node %d", weights, i)
		}
	}
	even := counts(100, homes(t, cluster(equal(100)...), shards))
	chi := 0.0
	for _, n := range even {
		chi += (float64(n) - 2000) * (float64(n) - 2000) / 2000
	}
	assert.Less(t, chi, 150.0, "chi-squared of 99 degrees of freedom") // p < 0.001
}

// More weight for a node moves shards to it alone; less weight moves them from it alone.
func TestWeightIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Uint64Range(0, 1000), 2, 8).Draw(t, "weights")
		node := rapid.IntRange(0, len(weights)-1).Draw(t, "node")
		weights[node]++ // two inputs in which not all weights are 0
		before := homes(t, cluster(weights...), 500)
		weights[node] += rapid.Uint64Range(1, 2000).Draw(t, "more")
		for i, h := range homes(t, cluster(weights...), 500) {
			if h != before[i] {
				require.Equal(t, node, h, "shard %d", i)
			}
		}
	})
}

// The cost against a float logarithm, and what the search relies on: it never rises with u, and has a lower bound.
func TestCost(t *testing.T) {
	check := func(u uint32) {
		want := -math.Log2((float64(u)+1)/(1<<32)) * (1 << fraction)
		got := float64(cost(u))
		// Interpolation errs by at most log2(e)/8/256² of a unit, and by a four-hundredth of a small cost.
		if math.Abs(got-want) > 2.8e-6*(1<<fraction)+2 || math.Abs(got-want) > 0.0025*want+2 {
			t.Errorf("cost(%d) is %v, want %v", u, got, want)
		}
		if cost(u) < uint64(^u>>5) {
			t.Errorf("cost(%d) is %d, below its bound %d", u, cost(u), ^u>>5)
		}
		if u > 0 && cost(u) > cost(u-1) {
			t.Errorf("cost rises at %d", u)
		}
	}
	for _, edge := range []uint32{0, 1, 2, 3, 1 << 8, 1 << 24, 1 << 31, math.MaxUint32, math.MaxUint32 - 31} {
		check(edge)
		check(edge - 1)
	}
	for u := uint64(0); u <= math.MaxUint32; u += 39_916_801 { // a prime step
		for i := range uint64(40) {
			check(uint32(min(u+i, math.MaxUint32)))
		}
	}
	for i := range uint32(257) { // around each entry of the table
		check(i<<23 | 1<<31 - 1)
		check(i << 23)
	}
	sum := uint64(0)
	for u := uint64(0); u <= math.MaxUint32; u += 39_916_801 {
		sum += cost(uint32(u))
	}
	assert.Equal(t, uint64(24_498_919_774), sum, "every bit of a cost counts: natively and in wasm the same draw must win")
	assert.Zero(t, cost(math.MaxUint32))
	assert.Equal(t, uint64(32)<<fraction, cost(0))
	for i, v := range log2Table {
		assert.InDelta(t, math.Log2(1+float64(i)/256)*(1<<fraction), v, 2)
	}
	assert.LessOrEqual(t, bits.Len64(cost(0))+31, 64, "a draw times a weight fits 64 bits")
}

// The search that spares logarithms finds what a plain one finds.
func TestHomeIsTheSmallestDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := cluster(rapid.SliceOfN(rapid.Uint64(), 1, 12).Draw(t, "weights")...)
		r := newRing(s)
		for _, e := range r.entries {
			require.True(t, e.weight > 0 && e.weight < 1<<31)
		}
		shard := rapid.Uint32().Draw(t, "shard")
		best := r.entries[0]
		draw := func(e entry) uint64 {
			x := (e.hash ^ mix(uint64(shard)+0x9e3779b97f4a7c15)) * 0xff51afd7ed558ccd
			return cost(uint32((x ^ x>>32) * 0xc4ceb9fe1a85ec53 >> 32))
		}
		for _, e := range r.entries[1:] {
			hi1, lo1 := bits.Mul64(draw(e), best.weight)
			hi2, lo2 := bits.Mul64(draw(best), e.weight)
			if hi1 < hi2 || hi1 == hi2 && lo1 < lo2 {
				best = e
			}
		}
		require.Equal(t, best.node, r.home(shard))
	})
}

// Any change of a home would move shards of every cluster that runs this: the digest is frozen.
func TestHomesAreFrozen(t *testing.T) {
	digest := fnv.New64a()
	for _, h := range homes(t, cluster(100, 300, 50, 100, 70, 1000, 1, 99), 200_000) {
		digest.Write([]byte{byte(h)})
	}
	assert.Equal(t, uint64(0xa9debcc1a20db6f5), digest.Sum64(), "as a second implementation has it")
}

// Rebalances, three moves each, end at home, and then nothing moves.
func TestRebalanceEndsAtHome(t *testing.T) {
	s := cluster(100, 300, 50)
	want := homes(t, s, 64)
	for i := range s.Owners {
		s.Owners[i] = 2
	}
	moves := 0
	for {
		plan, err := Strategy{}.Rebalance(s)
		require.NoError(t, err)
		if len(plan.Moves) == 0 {
			break
		}
		require.LessOrEqual(t, len(plan.Moves), int(pluginapi.DefaultMaxMoves))
		for _, m := range plan.Moves {
			s.Owners[m.Shard] = uint32(m.Target)
		}
		moves += len(plan.Moves)
	}
	for i := range want {
		require.Equal(t, uint32(want[i]), s.Owners[i])
	}
	assert.Equal(t, 64-counts(3, want)[2], moves)
}

func TestConfigureNamesTheKey(t *testing.T) {
	assert.NoError(t, Strategy{}.Configure(nil))
	c, err := pluginapi.NewConfig(map[string]any{"max_moves": true})
	require.NoError(t, err)
	assert.EqualError(t, Strategy{}.Configure(c), "config.max_moves: want a whole number of at least 0, got a boolean")
}

func BenchmarkRebalance(b *testing.B) {
	for _, c := range []struct{ nodes, shards int }{{10, 1000}, {10, 10_000}, {100, 100_000}} {
		b.Run(fmt.Sprintf("%dx%d", c.nodes, c.shards), func(b *testing.B) {
			weights := equal(c.nodes)
			weights[0] = 300
			s := cluster(weights...)
			for i, h := range homes(b, s, c.shards) {
				s.Owners[i] = uint32(h)
			}
			for b.Loop() {
				if _, err := (Strategy{}).Rebalance(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
