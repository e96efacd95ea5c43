package rolepinning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/pluginapi"
)

const none = pluginapi.NoOwner

// cluster has the node a of the role, and b and c without it.
func cluster(owners ...uint32) *pluginapi.Snapshot {
	return &pluginapi.Snapshot{
		Nodes:      []pluginapi.Node{{Name: "a", Roles: []string{"web", "coordinator"}}, {Name: "b", Roles: []string{"web"}}, {Name: "c"}},
		Candidates: []int{0, 1, 2},
		Owners:     owners,
		MaxMoves:   100,
	}
}

func TestLowShardsGoToTheRole(t *testing.T) {
	s := cluster(none, none, none, none, none, none, none)
	homes, err := Strategy{}.Allocate(s, []uint32{0, 1, 2, 3, 4, 5, 6})
	require.NoError(t, err)
	assert.Equal(t, []int{0, 0, 0, 0, 1, 2, 1}, homes.Nodes)
}

func TestWithoutTheRoleAnyNodeWillDo(t *testing.T) {
	s := cluster(none, none)
	s.Candidates = []int{1, 2}
	homes, err := Strategy{}.Allocate(s, []uint32{0, 1})
	require.NoError(t, err)
	assert.Equal(t, []int{1, 2}, homes.Nodes)

	s.Candidates = nil
	homes, err = Strategy{}.Allocate(s, []uint32{0})
	require.NoError(t, err)
	assert.Equal(t, []int{pluginapi.NoTarget}, homes.Nodes)
}

func TestRebalanceMovesWhatIsOnTheWrongKindOfNode(t *testing.T) {
	s := cluster(0, 1, 2, 0, 0, 1, none)
	plan, err := Strategy{}.Rebalance(s)
	require.NoError(t, err)
	assert.Equal(t, []pluginapi.Move{{Shard: 1, Target: 0}, {Shard: 2, Target: 0}, {Shard: 4, Target: 2}}, plan.Moves)

	for _, m := range plan.Moves {
		s.Owners[m.Shard] = uint32(m.Target)
	}
	plan, err = Strategy{}.Rebalance(s)
	require.NoError(t, err)
	assert.Empty(t, plan.Moves, "settled after one round")
}

func TestRebalanceLeavesWhatTheHostKeeps(t *testing.T) {
	s := cluster(1, 1, 1)
	s.Pinned = []pluginapi.Pin{{Shard: 0, Node: 1}}
	s.Busy = []pluginapi.Busy{{Shard: 1, Target: 2}}
	plan, err := Strategy{}.Rebalance(s)
	require.NoError(t, err)
	assert.Equal(t, []pluginapi.Move{{Shard: 2, Target: 0}}, plan.Moves)
}

func TestConfiguration(t *testing.T) {
	config, err := pluginapi.NewConfig(map[string]any{"role": "web", "low": 1})
	require.NoError(t, err)
	require.NoError(t, Strategy{}.Configure(config))
	s := cluster(none, none)
	s.Config = config
	homes, err := Strategy{}.Allocate(s, []uint32{0, 1})
	require.NoError(t, err)
	assert.Equal(t, []int{0, 2}, homes.Nodes)

	config, err = pluginapi.NewConfig(map[string]any{"low": "many"})
	require.NoError(t, err)
	assert.EqualError(t, Strategy{}.Configure(config), "config.low: want a whole number of at least 0, got text")
}
