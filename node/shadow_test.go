package node

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/strategies"
)

// Spec 1.4: a candidate runs beside the active strategy, through any node, without effect; promote activates it, rollback goes back; a node that is down,
// and a leader that has lost the module, hold up neither.
func TestShadowPromoteRollback(t *testing.T) {
	f := newFleet(t)
	leader, follower, third := threeVoters(f)
	for s := range sharding.ShardID(numShards / 2) {
		third.add(t, accountOn(s), 1)
	}
	view := func(m *member) httpapi.StrategyView {
		v, err := api{m.Node}.Strategies(t.Context())
		require.NoError(t, err)
		require.Len(t, v.Strategies, 1)
		return v.Strategies[0]
	}
	require.Eventually(t, func() bool { return view(third).Worked }, patience, poll)
	active := view(third)
	require.Nil(t, active.Shadow)
	require.Nil(t, active.Previous)

	for what, err := range map[string]error{
		"shadow to promote": second(api{follower.Node}.Promote(t.Context(), "ledger", nil)),
		"to go back to":     second(api{follower.Node}.Rollback(t.Context(), "ledger", nil)),
	} {
		assert.Equal(t, httpapi.KindConflict, kindOf(err), "%v", err)
		assert.ErrorContains(t, err, what)
	}

	// Of no node's store but the one that is asked at first.
	wasm, err := os.ReadFile(smallModule(t, "log-some"))
	require.NoError(t, err)
	fuel := uint64(77_000_000)
	shadowed, err := api{third.Node}.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Module: wasm, Source: "mine.wasm", Shadow: true, Limits: &httpapi.Limits{Fuel: &fuel}})
	require.NoError(t, err)
	assert.Equal(t, active.Digest, shadowed.Digest)
	require.NotNil(t, shadowed.Shadow)
	digest, err := httpapi.ParseDigest(shadowed.Shadow.Digest)
	require.NoError(t, err)
	var seen *httpapi.ShadowView
	require.Eventually(t, func() bool { seen = view(follower).Shadow; return seen != nil && seen.Compared > 1 }, patience, poll)
	assert.Equal(t, httpapi.ShadowRunning, seen.State)
	assert.Equal(t, "mine.wasm", seen.Source)
	assert.Equal(t, fuel, seen.Fuel.Limit)
	assert.NotNil(t, seen.Since)
	assert.NotNil(t, seen.Fuel.Last)
	for s := range sharding.ShardID(numShards / 2) {
		e, err := api{leader.Node}.Explain(t.Context(), "ledger", s)
		require.NoError(t, err)
		assert.NotEqual(t, seen.Digest, e.Digest, "a shadow has decided about shard %d", s)
	}

	// Not another one than is meant.
	err = second(api{follower.Node}.Promote(t.Context(), "ledger", &[32]byte{0xab}))
	assert.Equal(t, httpapi.KindConflict, kindOf(err), "%v", err)
	assert.ErrorContains(t, err, "not sha256:ab00")

	require.NoError(t, f.stop(third))
	require.NoError(t, os.RemoveAll(leader.dir.Path("modules"))) // it is fetched from the other one
	require.NoError(t, os.MkdirAll(leader.dir.Path("modules"), 0o700))
	promoted, err := api{follower.Node}.Promote(t.Context(), "ledger", &digest)
	require.NoError(t, err)
	assert.Equal(t, shadowed.Shadow.Digest, promoted.Digest)
	assert.Nil(t, promoted.Shadow)
	assert.Equal(t, fuel, promoted.Fuel.Limit, "it has the limits that it had as a shadow")
	require.NotNil(t, promoted.Previous)
	assert.Equal(t, active.Digest, promoted.Previous.Digest)
	again, err := api{follower.Node}.Promote(t.Context(), "ledger", &digest)
	require.NoError(t, err, "the answer may have been lost: to ask for the same again is no error")
	assert.Equal(t, promoted.Digest, again.Digest)
	assert.True(t, leader.modules.Has(modules.Digest(digest)), "the leader has fetched what it activates")

	// It decides now, and explain says so.
	leader.add(t, accountOn(numShards-1), 1)
	e, err := api{follower.Node}.Explain(t.Context(), "ledger", numShards-1)
	require.NoError(t, err)
	assert.Equal(t, promoted.Digest, e.Digest)
	assert.Equal(t, "ok", e.Verdict)
	assert.Equal(t, "mine.wasm", e.Strategy)

	err = second(api{leader.Node}.Rollback(t.Context(), "ledger", new([32]byte)))
	assert.Equal(t, httpapi.KindConflict, kindOf(err), "%v", err)
	back, err := api{leader.Node}.Rollback(t.Context(), "ledger", &digest)
	require.NoError(t, err)
	assert.Equal(t, active.Digest, back.Digest)
	assert.Equal(t, active.Fuel.Limit, back.Fuel.Limit)
	err = second(api{leader.Node}.Rollback(t.Context(), "ledger", &digest))
	assert.Equal(t, httpapi.KindConflict, kindOf(err), "a repeated request goes back twice: %v", err)

	// A shadow without a module of its own: the active one with another configuration; and the end of it.
	same, err := api{follower.Node}.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Config: []byte(`{"threshold":7}`), Shadow: true})
	require.NoError(t, err)
	require.NotNil(t, same.Shadow)
	assert.Equal(t, active.Digest, same.Shadow.Digest)
	ended, err := api{follower.Node}.EndShadow(t.Context(), "ledger")
	require.NoError(t, err)
	assert.Nil(t, ended.Shadow)
	_, err = api{follower.Node}.EndShadow(t.Context(), "ledger")
	require.NoError(t, err)
	_, hex, _ := strategies.Builtin("hash")
	assert.False(t, strings.Contains(ended.Digest, hex))
}

func second(_ httpapi.StrategyView, err error) error { return err }

// Spec 1.4: a shadow outlives its leader. The next one has it ready, and compares anew.
func TestShadowOutlivesTheLeader(t *testing.T) {
	f := newFleet(t)
	leader, follower, third := threeVoters(f)
	third.add(t, accountOn(1), 1)
	wasm, err := os.ReadFile(smallModule(t, "log-some"))
	require.NoError(t, err)
	compared := func(m *member) func() bool {
		return func() bool {
			v, err := api{m.Node}.Strategies(t.Context())
			return err == nil && len(v.Strategies) == 1 && v.Strategies[0].Shadow != nil && v.Strategies[0].Shadow.Compared > 0
		}
	}
	_, err = api{follower.Node}.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Module: wasm, Shadow: true})
	require.NoError(t, err)
	require.Eventually(t, compared(follower), patience, poll)
	v, err := api{follower.Node}.Strategies(t.Context())
	require.NoError(t, err)
	before := v.Strategies[0].Shadow
	require.NoError(t, f.stop(leader))
	require.Eventually(t, compared(follower), patience, poll)
	require.Eventually(t, func() bool {
		v, err := api{third.Node}.Strategies(t.Context())
		return err == nil && *v.Strategies[0].Shadow.Since > *before.Since
	}, patience, poll)
	v, err = api{third.Node}.Strategies(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before.Set, v.Strategies[0].Shadow.Set)
	assert.Equal(t, before.Digest, v.Strategies[0].Shadow.Digest)
	promoted, err := api{third.Node}.Promote(t.Context(), "ledger", nil)
	require.NoError(t, err)
	assert.Equal(t, before.Digest, promoted.Digest)
}
