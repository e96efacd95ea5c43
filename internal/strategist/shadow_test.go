package strategist

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/strategies"
)

// recorded keeps which calls were a shadow's. A shadow's call ends only once held is free.
type recorded struct {
	held sync.Mutex

	mu      sync.Mutex
	shadows []bool
}

func (r *recorded) Record(rec *host.Record) {
	if rec.Shadow {
		r.held.Lock()
		defer r.held.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shadows = append(r.shadows, rec.Shadow)
}

// shadowBench has leastshard in force and a shadow, both ready.
func shadowBench(t *testing.T, shadow []byte, change func(*protocol.StrategySpec)) (b *bench, r *recorded, ask func(op pluginapi.Op, against, seq uint64) coordinator.StrategyAnswered, spec protocol.StrategySpec) {
	b = newBench(t)
	r = &recorded{}
	b.cfg.Recorder = r
	active, _, _ := strategies.Builtin("leastshard")
	for _, m := range [][]byte{active, shadow} {
		_, err := b.store.Put(m)
		require.NoError(t, err)
	}
	in := input(3)
	for i := range in.Owners[:9] {
		in.Owners[i] = 0
	}
	spec = specOf(shadow)
	if change != nil {
		change(&spec)
	}
	b.Prepare("t", specOf(active))
	b.PrepareShadow("t", spec)
	b.await(t, specOf(active), Ready)
	b.await(t, spec, Ready)
	var n uint64
	ask = func(op pluginapi.Op, against, seq uint64) coordinator.StrategyAnswered {
		n++
		a := coordinator.AskStrategy{Ask: n, Type: "t", Spec: specOf(active), Op: op, Input: in, Shadow: &coordinator.ShadowAsk{Term: 1, Against: against, Seq: seq, Spec: spec, Input: in}}
		if op == pluginapi.OpAllocate {
			a.Shards = []uint32{9, 10, 11}
		}
		b.Ask(a)
		select {
		case out := <-b.answers:
			require.Equal(t, n, out.Ask)
			return out
		case <-time.After(patience):
			t.Fatal("no answer")
			panic("unreachable")
		}
	}
	return b, r, ask, spec
}

func (b *bench) await(t *testing.T, spec protocol.StrategySpec, want State) {
	t.Helper()
	require.Eventually(t, func() bool { s, _ := b.State(spec); return s == want }, 10*patience, time.Millisecond) // compiled under the race detector
}

func (b *bench) asking(t sharding.TypeName) bool {
	b.Strategist.mu.Lock()
	defer b.Strategist.mu.Unlock()
	return b.shadows[t].asking
}

// seen waits until a comparison is as it should be.
func (b *bench) seen(t *testing.T, against, seq uint64, is func(Comparison) bool) (c Comparison) {
	t.Helper()
	require.Eventually(t, func() bool { c = b.Comparison("t", 1, against, seq); return is(c) }, patience, time.Millisecond, "%+v", &c)
	return c
}

// Spec 1.4: the shadow is asked what the strategy in force is asked; what each would do is told, and fuel and time. Its records are marked.
func TestShadowIsCompared(t *testing.T) {
	rendezvous, _, _ := strategies.Builtin("rendezvous")
	b, r, ask, _ := shadowBench(t, rendezvous, nil)
	assert.Zero(t, b.Comparison("t", 1, 1, 1), "nobody has asked yet")
	out := ask(pluginapi.OpRebalance, 1, 1)
	require.Nil(t, out.Failure)
	require.Len(t, out.Plan.Moves, 3, "the decision is that of the strategy in force")
	c := b.seen(t, 1, 1, func(c Comparison) bool { return c.Calls == 1 })
	assert.EqualValues(t, 1, c.Compared)
	assert.EqualValues(t, 1, c.Differed)
	require.NotNil(t, c.Last)
	assert.Equal(t, pluginapi.OpRebalance, c.Last.Op)
	assert.EqualValues(t, len(out.Plan.Moves), c.Moves[0])
	assert.EqualValues(t, c.Last.Count[1], c.Moves[1])
	for k, m := range out.Plan.Moves {
		assert.Equal(t, Move{Shard: m.Shard, From: "node-000", To: input(3).Nodes[m.Target].Name, Reason: m.Reason}, c.Last.Moves[0][k])
	}
	assert.NotEqual(t, c.Last.Moves[0], c.Last.Moves[1])
	assert.Positive(t, *c.LastFuel)
	assert.Equal(t, c.LastFuel, c.P99Fuel)
	assert.NotNil(t, c.LastMicros)
	assert.False(t, c.Since.IsZero())

	ask(pluginapi.OpAllocate, 1, 1)
	c = b.seen(t, 1, 1, func(c Comparison) bool { return c.Calls == 2 })
	assert.EqualValues(t, 2, c.Compared)
	if c.Last.Op == pluginapi.OpAllocate { // only the homes that differ are told
		for k, m := range c.Last.Moves[0] {
			assert.Equal(t, m.Shard, c.Last.Moves[1][k].Shard)
			assert.NotEqual(t, m.To, c.Last.Moves[1][k].To)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Equal(t, []bool{false, true, false, true}, r.shadows)
}

// A shadow that decides alike differs in nothing, the order of its moves included.
func TestShadowThatAgrees(t *testing.T) {
	least, _, _ := strategies.Builtin("leastshard")
	b, _, ask, _ := shadowBench(t, least, func(s *protocol.StrategySpec) { s.Fuel-- })
	for range 3 {
		before := b.Comparison("t", 1, 1, 1).Calls
		ask(pluginapi.OpRebalance, 1, 1)
		b.seen(t, 1, 1, func(c Comparison) bool { return c.Calls == before+1 })
	}
	c := b.Comparison("t", 1, 1, 1)
	assert.EqualValues(t, 3, c.Agreed)
	assert.Zero(t, c.Differed)
	assert.Nil(t, c.Last)
	assert.Equal(t, [2]uint64{9, 9}, c.Moves)
	moves := []pluginapi.Move{{Shard: 1, Target: 2}, {Shard: 0, Target: 1}}
	assert.True(t, sameMoves(moves, []pluginapi.Move{moves[1], moves[0]}))
	assert.False(t, sameMoves(moves, []pluginapi.Move{moves[1], {Shard: 1, Target: 0}}))
	assert.False(t, sameMoves(moves, moves[:1]))
}

// Spec 1.4: a shadow delays no decision. While its call is under way further ones are not put to it, and counted.
func TestShadowDelaysNothing(t *testing.T) {
	rendezvous, _, _ := strategies.Builtin("rendezvous")
	b, r, ask, _ := shadowBench(t, rendezvous, nil)
	r.held.Lock()
	ask(pluginapi.OpRebalance, 1, 1)
	b.seen(t, 1, 1, func(c Comparison) bool { return !c.Since.IsZero() })
	for i := range uint64(5) {
		require.Nil(t, ask(pluginapi.OpRebalance, 1, 1).Failure)
		b.seen(t, 1, 1, func(c Comparison) bool { return c.Skipped == i+1 && c.Calls == 0 })
	}
	r.held.Unlock()
	b.seen(t, 1, 1, func(c Comparison) bool { return c.Calls == 1 && c.Skipped == 5 })
	ask(pluginapi.OpRebalance, 1, 1)
	b.seen(t, 1, 1, func(c Comparison) bool { return c.Calls == 2 && c.Skipped == 5 })
}

// Spec 1.3, 1.4: a shadow is held to its limits, and its failures are nobody else's.
func TestShadowThatFails(t *testing.T) {
	b, _, ask, spec := shadowBench(t, fixture(t, "attack/loop"), func(s *protocol.StrategySpec) { s.Fuel = 1_000_000 })
	for i := range uint64(4) {
		require.Nil(t, ask(pluginapi.OpAllocate, 1, 1).Failure)
		b.seen(t, 1, 1, func(c Comparison) bool { return c.Failures == i+1 })
	}
	c := b.Comparison("t", 1, 1, 1)
	assert.EqualValues(t, 4, c.Calls)
	assert.Zero(t, c.Compared, "there is nothing to compare")
	require.NotNil(t, c.Failure)
	assert.Equal(t, "fuel", c.Failure.Verdict)
	assert.Equal(t, spec.Fuel, *c.LastFuel)
	_, failures := b.Totals("t")
	assert.Zero(t, failures)
	calls, failures, differed := b.ShadowTotals("t")
	assert.Equal(t, []uint64{4, 4, 0}, []uint64{calls, failures, differed})
	assert.Empty(t, b.answers, "nothing comes of a shadow")
}

// A comparison is about one leader's term, one strategy in force and one shadow; what comes late of an earlier one does not count in the present one.
func TestComparisonsBeginAnew(t *testing.T) {
	rendezvous, _, _ := strategies.Builtin("rendezvous")
	b, r, ask, _ := shadowBench(t, rendezvous, nil)
	ask(pluginapi.OpRebalance, 1, 1)
	b.seen(t, 1, 1, func(c Comparison) bool { return c.Calls == 1 })
	ask(pluginapi.OpRebalance, 2, 1)
	b.seen(t, 2, 1, func(c Comparison) bool { return c.Calls == 1 })
	assert.Zero(t, b.Comparison("t", 1, 1, 1))
	assert.Zero(t, b.Comparison("t", 2, 2, 1), "another leader's term")
	ask(pluginapi.OpRebalance, 1, 1) // it was decided before the swap
	require.Eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.shadows) == 5 }, patience, time.Millisecond)
	assert.EqualValues(t, 1, b.Comparison("t", 1, 2, 1).Calls)

	r.held.Lock()
	ask(pluginapi.OpRebalance, 2, 1)
	b.seen(t, 2, 1, func(Comparison) bool { return b.asking("t") })
	ask(pluginapi.OpRebalance, 2, 2) // another shadow, while the former one's call is under way
	b.seen(t, 2, 2, func(c Comparison) bool { return c.Skipped == 1 })
	r.held.Unlock()
	require.Eventually(t, func() bool { return !b.asking("t") }, patience, time.Millisecond)
	assert.Zero(t, b.Comparison("t", 1, 2, 2).Calls, "the former one's call counts for the present one")
}

// A shadow whose module is not here is not asked until it is; one that ended is given up, and what is promoted is ready at once.
func TestShadowIsPrepared(t *testing.T) {
	b := newBench(t)
	least, _, _ := strategies.Builtin("leastshard")
	other := fixture(t, "attack/well-behaved")
	_, err := b.store.Put(least)
	require.NoError(t, err)
	b.Prepare("t", specOf(least))
	b.PrepareShadow("t", specOf(other))
	b.await(t, specOf(other), Missing)
	a := coordinator.AskStrategy{Ask: 1, Type: "t", Spec: specOf(least), Op: pluginapi.OpRebalance, Input: input(3),
		Shadow: &coordinator.ShadowAsk{Term: 1, Against: 1, Seq: 1, Spec: specOf(other), Input: input(3)}}
	b.Ask(a)
	require.Nil(t, (<-b.answers).Failure)
	b.seen(t, 1, 1, func(c Comparison) bool { return c.Skipped == 1 })
	b.setFetch(func(modules.Digest) ([]byte, error) { return other, nil })
	b.await(t, specOf(other), Ready) // tried again by itself
	b.Ask(a)
	<-b.answers
	b.seen(t, 1, 1, func(c Comparison) bool { return c.Calls == 1 })

	b.Prepare("t", specOf(other)) // promoted, in the order of the coordinator's commands
	b.PrepareShadow("t", protocol.StrategySpec{})
	s, _ := b.State(specOf(other))
	assert.Equal(t, Ready, s)
	require.Nil(t, b.ask(t, specOf(other)).Failure)

	// Given up while it is fetched: nobody waits for it.
	slow := specOf(fixture(t, "attack/loop"))
	stop := make(chan struct{})
	defer close(stop)
	b.setFetch(func(modules.Digest) ([]byte, error) { <-stop; return nil, errors.New("late") })
	b.PrepareShadow("t", slow)
	b.PrepareShadow("t", protocol.StrategySpec{})
	s, _ = b.State(slow)
	assert.Equal(t, Unknown, s)
}

// Close ends a shadow's call too, and what it was in the middle of does not count.
func TestCloseDuringAShadowsCall(t *testing.T) {
	b, _, ask, _ := shadowBench(t, fixture(t, "attack/loop"), func(s *protocol.StrategySpec) { s.Fuel, s.Budget = host.MaxFuel, 60_000 })
	ask(pluginapi.OpAllocate, 1, 1)
	b.seen(t, 1, 1, func(Comparison) bool { return b.asking("t") })
	began := time.Now()
	require.NoError(t, b.Close())
	assert.Less(t, time.Since(began), 30*time.Second)
	assert.Zero(t, b.Comparison("t", 1, 1, 1).Calls)
}
