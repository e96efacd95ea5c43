package placement_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding/placement"
)

// snapshot has nodes a (up), b (up), c (draining, no candidate) and d (a candidate that Serf suspects), and
// shards 0 a, 1 b busy, 2 a waiting, 3 a pinned, 4 without a home, 5 a, 6 b.
func snapshot() *pluginapi.Snapshot {
	return &pluginapi.Snapshot{
		Nodes: []pluginapi.Node{
			{Name: "a", State: pluginapi.StateUp}, {Name: "b", State: pluginapi.StateUp},
			{Name: "c", State: pluginapi.StateDraining}, {Name: "d", State: pluginapi.StateUnreachable},
		},
		Candidates: []int{0, 1, 3},
		Owners:     []uint32{0, 1, 0, 0, pluginapi.NoOwner, 0, 1},
		Busy:       []pluginapi.Busy{{Shard: 1, Target: 0}},
		Waiting:    []uint32{2},
		Pinned:     []pluginapi.Pin{{Shard: 3, Node: 0}},
		MaxMoves:   10,
	}
}

// Spec 1.3, "Output is checked": each bad move by its rule, naming shard and node.
func TestBadMoves(t *testing.T) {
	const none = pluginapi.NoTarget
	for _, c := range []struct {
		name  string
		moves []pluginapi.Move
		rule  placement.Rule
		index int
		says  string
	}{
		{"unknown shard", []pluginapi.Move{{Shard: 7, Target: 1}}, placement.UnknownShard, 0, "move 0: shard 7: the type has shards 0 to 6"},
		{"far shard", []pluginapi.Move{{Shard: 1<<32 - 1, Target: 1}}, placement.UnknownShard, 0, "shard 4294967295"},
		{"unknown node", []pluginapi.Move{{Shard: 0, Target: 4}}, placement.UnknownNode, 0, "shard 0 to node 4: there are nodes 0 to 3"},
		{"negative node", []pluginapi.Move{{Shard: 0, Target: -2}}, placement.UnknownNode, 0, "node -2"},
		{"draining", []pluginapi.Move{{Shard: 0, Target: 2}}, placement.NotCandidate, 0, "shard 0 to c: that node is no candidate"},
		{"busy", []pluginapi.Move{{Shard: 1, Target: none}}, placement.Busy, 0, "shard 1 is in handoff"},
		{"waiting", []pluginapi.Move{{Shard: 2, Target: 1}}, placement.Waiting, 0, "shard 2 waits"},
		{"pinned", []pluginapi.Move{{Shard: 3, Target: 1}}, placement.Pinned, 0, "shard 3 is pinned"},
		{"homeless", []pluginapi.Move{{Shard: 4, Target: 1}}, placement.Homeless, 0, "shard 4 has no home"},
		{"present owner", []pluginapi.Move{{Shard: 6, Target: 1}}, placement.PresentOwner, 0, "shard 6 is on b already"},
		{"duplicate", []pluginapi.Move{{Shard: 0, Target: 1}, {Shard: 5, Target: 1}, {Shard: 0, Target: none}}, placement.Duplicate, 2, "move 2: shard 0 is moved twice"},
		{"second one bad", []pluginapi.Move{{Shard: 0, Target: 1}, {Shard: 3, Target: 1}}, placement.Pinned, 1, "move 1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := placement.CheckPlan(snapshot(), c.moves)
			require.Nil(t, got, "a bad answer is refused whole")
			var e *placement.Error
			require.True(t, errors.As(err, &e))
			require.Equal(t, c.rule, e.Rule)
			require.Equal(t, c.index, e.Index)
			require.Contains(t, e.Error(), c.says)
		})
	}
}

func TestGoodMovesKeepTheirOrder(t *testing.T) {
	// d too: a candidate ends at leave, drain or lease lapse, not at Serf's first hint (spec 2.2).
	moves := []pluginapi.Move{{Shard: 6, Target: 3}, {Shard: 0, Target: 1}, {Shard: 5, Target: pluginapi.NoTarget}}
	got, err := placement.CheckPlan(snapshot(), moves)
	require.NoError(t, err)
	require.Equal(t, moves, got)
}

// Spec 1.3: more moves than the limit: the first ones are taken. What is beyond the limit is checked all the same.
func TestLimitTakesTheFirst(t *testing.T) {
	s := snapshot()
	s.MaxMoves = 1
	got, err := placement.CheckPlan(s, []pluginapi.Move{{Shard: 6, Target: 0}, {Shard: 0, Target: 1}})
	require.NoError(t, err)
	require.Equal(t, []pluginapi.Move{{Shard: 6, Target: 0}}, got)
	_, err = placement.CheckPlan(s, []pluginapi.Move{{Shard: 6, Target: 0}, {Shard: 3, Target: 1}})
	require.Error(t, err)
	s.MaxMoves = 0
	got, err = placement.CheckPlan(s, []pluginapi.Move{{Shard: 6, Target: 0}})
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestHomes(t *testing.T) {
	s := snapshot()
	require.NoError(t, placement.CheckHomes(s, []uint32{4, 0, 5}, []int{1, pluginapi.NoTarget, 3}))
	require.ErrorContains(t, placement.CheckHomes(s, []uint32{4, 7}, []int{1, 1}), "home 1: shard 7: the type has shards 0 to 6")
	for _, c := range []struct {
		homes []int
		rule  placement.Rule
		index int
	}{
		{[]int{0}, placement.WrongLength, 0},
		{[]int{0, 0, 0}, placement.WrongLength, 0},
		{[]int{0, 2}, placement.NotCandidate, 1},
		{[]int{2, 0}, placement.NotCandidate, 0},
		{[]int{0, 4}, placement.UnknownNode, 1},
		{[]int{0, -7}, placement.UnknownNode, 1},
	} {
		err := placement.CheckHomes(s, []uint32{4, 0}, c.homes)
		var e *placement.Error
		require.True(t, errors.As(err, &e), "%v", c.homes)
		require.Equal(t, c.rule, e.Rule, "%v", c.homes)
		require.Equal(t, c.index, e.Index, "%v", c.homes)
	}
}

func TestRuleNames(t *testing.T) {
	seen := map[string]bool{}
	for r := placement.UnknownShard; r <= placement.WrongLength; r++ {
		require.NotContains(t, r.String(), "(")
		require.False(t, seen[r.String()])
		seen[r.String()] = true
	}
}
