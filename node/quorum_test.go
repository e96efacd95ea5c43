package node

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
)

func (m *member) condition(name string) httpapi.Condition {
	for _, c := range (api{m.Node}).Ready().Conditions {
		if c.Name == name {
			return c
		}
	}
	return httpapi.Condition{}
}

// Spec 2.1, 2.3: without a majority of the voters nobody leads, and a node says so everywhere: it is not ready, it names no leader, and what is asked of
// it ends in Unavailable, since it was surely not begun.
func TestQuorumLost(t *testing.T) {
	f := newFleet(t)
	for _, n := range []string{"a", "b", "c"} {
		f.start(f.config(n))
	}
	f.settled()
	a := f.all()[0]
	require.Eventually(t, func() bool { v, err := f.leader().plane.VoterIDs(); return err == nil && len(v) == 3 }, patience, poll)
	for s := range numShards {
		a.add(t, accountOn(sharding.ShardID(s)), 1)
	}
	var mine sharding.ShardID
	require.Eventually(t, func() bool {
		for s := range sharding.ShardID(numShards) {
			if a.home(s).Owner == a.self {
				mine = s
				return true
			}
		}
		api{a.Node}.MoveShard(t.Context(), "ledger", 0, a.self.Node)
		return false
	}, patience, 100*time.Millisecond)

	for _, m := range f.all() { // nobody reaches anybody
		m.faults.Partition(transport.Where{})
	}
	require.Eventually(t, func() bool { return !a.condition("leader").OK && !a.condition("lease").OK }, patience, poll)
	assert.False(t, api{a.Node}.Ready().Ready)
	assert.Contains(t, a.condition("leader").Why, "is a majority of the voters up?")
	assert.Contains(t, a.condition("lease").Why, "suspended")
	_, ok := api{a.Node}.Leader()
	assert.False(t, ok, "a leader that nobody has heard from is named")
	members, err := api{a.Node}.Members(t.Context())
	require.NoError(t, err)
	for _, m := range members.Members {
		assert.False(t, m.Leader)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	_, err = a.region().Ask(ctx, entry{Account: accountOn(mine), Amount: 1})
	cancel()
	require.ErrorIs(t, err, sharding.ErrUnavailable, "it was surely not begun")
	assert.Contains(t, err.Error(), "is a majority of the voters up?")
	// Once no election can be on its way, it is not waited for either.
	require.Eventually(t, func() bool { p := a.data.Authority(); return now() > p.Heard.Add(2*p.Patience) }, patience, poll)
	began := time.Now()
	_, err = a.region().Ask(t.Context(), entry{Account: accountOn(mine), Amount: 1})
	require.ErrorIs(t, err, sharding.ErrUnavailable)
	assert.Less(t, time.Since(began), 15*time.Second)

	for _, m := range f.all() {
		m.faults.Heal()
	}
	f.settled()
	_, ok = api{a.Node}.Leader()
	assert.True(t, ok)
	a.add(t, accountOn(mine), 1)
}

// The last voter that is left says why nothing goes any more, once, and what it will mean.
func TestNoQuorumIsTold(t *testing.T) {
	f := newFleet(t)
	for _, n := range []string{"a", "b", "c"} {
		f.start(f.config(n))
	}
	f.settled()
	require.Eventually(t, func() bool { v, err := f.leader().plane.VoterIDs(); return err == nil && len(v) == 3 }, patience, poll)
	a := f.all()[0]
	for _, m := range f.all()[1:] {
		require.NoError(t, f.stop(m))
	}
	require.Eventually(t, func() bool { return a.log.contains("no quorum: 1 of 3 voters can be reached") }, patience, poll)
	assert.Len(t, a.log.lines("no quorum"), 1)
}

// A server without a vote, as one that was taken out and is started again with the log that it has, says what it waits for where there is no leader to take it in.
func TestServerWithoutAVoteSaysSo(t *testing.T) {
	f := newFleet(t)
	leader, b, c := threeVoters(f)
	require.NoError(t, api{b.Node}.Leave(t.Context()))
	f.left(b)
	require.NoError(t, f.stop(c))
	require.NoError(t, f.stop(leader))
	again := f.start(b.cfg)
	require.True(t, again.plane.HasState())
	require.Eventually(t, func() bool { return again.log.contains("this node's raft server has no vote, so it cannot mend this") }, patience, poll)
	assert.True(t, again.log.contains("start the voters again that are down"))
}
