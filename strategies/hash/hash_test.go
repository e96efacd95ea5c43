package hash

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/droverhq/drover/pluginapi"
)

// What rebalance moves is what allocate would have placed elsewhere, and after the moves nothing is left to move
// (spec 1.2). The table of right answers is in strategies/answers.
func TestRebalanceAgreesWithAllocate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &pluginapi.Snapshot{Nodes: make([]pluginapi.Node, rapid.IntRange(1, 8).Draw(t, "nodes")), MaxMoves: 1000}
		for i := range s.Nodes {
			if rapid.Bool().Draw(t, "candidate") {
				s.Candidates = append(s.Candidates, i)
			}
		}
		all := make([]uint32, rapid.IntRange(0, 50).Draw(t, "shards"))
		for i := range all {
			all[i] = uint32(i)
			s.Owners = append(s.Owners, uint32(rapid.IntRange(-1, len(s.Nodes)-1).Draw(t, "owner")))
			if rapid.IntRange(0, 5).Draw(t, "special") == 0 {
				s.Busy = append(s.Busy, pluginapi.Busy{Shard: uint32(i), Target: pluginapi.NoTarget})
			}
		}
		homes, err := Strategy{}.Allocate(s, all)
		require.NoError(t, err)
		plan, err := Strategy{}.Rebalance(s)
		require.NoError(t, err)
		target := map[uint32]int{}
		for _, m := range plan.Moves {
			target[m.Shard] = m.Target
		}
		for i, owner := range s.Owners {
			to, moves := target[uint32(i)]
			should := len(s.Candidates) > 0 && owner != pluginapi.NoOwner && !s.IsBusy(uint32(i)) && homes.Nodes[i] != int(owner)
			require.Equal(t, should, moves, "shard %d", i)
			if moves {
				require.Equal(t, homes.Nodes[i], to)
				s.Owners[i] = uint32(to)
			}
		}
		plan, err = Strategy{}.Rebalance(s)
		require.NoError(t, err)
		require.Empty(t, plan.Moves)
	})
}

func BenchmarkRebalance(b *testing.B) {
	s := &pluginapi.Snapshot{Nodes: make([]pluginapi.Node, 100), MaxMoves: 100}
	for i := range s.Nodes {
		s.Candidates = append(s.Candidates, i)
	}
	for i := range uint32(100_000) {
		s.Owners = append(s.Owners, i%100)
	}
	for b.Loop() {
		if _, err := (Strategy{}).Rebalance(s); err != nil {
			b.Fatal(err)
		}
	}
}
