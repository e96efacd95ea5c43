package dataplane

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// Spec 5.1: what waits for a region does not hold up an end, however much it is: Close handles none of it, and who waits for an answer hears that nothing was
// begun. While a region is busy one tick waits for it, and not one more every 20 ms.
func TestCloseDropsWhatWaits(t *testing.T) {
	w := newWorld(t, "a")
	a := w.node("a")
	_, err := a.ask(t, "e", probeMsg{Add: 1})
	require.NoError(t, err)
	s := a.shell("t")
	held, hold := make(chan struct{}), make(chan struct{})
	require.True(t, s.inbox.Put(regionItem{call: func() { close(held); <-hold }}))
	<-held
	require.Eventually(t, s.ticking.Load, patience, poll)
	waiting := s.inbox.Len()
	for range 100 { // as many as two seconds bring
		s.tick()
	}
	assert.Equal(t, waiting, s.inbox.Len())

	asked := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := a.ask(t, "e", probeMsg{Add: 1})
		asked <- err
	})
	require.Eventually(t, func() bool { return len(waitingAsks(a)) == 1 && s.inbox.Len() > waiting }, patience, poll)
	before := a.Counters().DeadLetters.Load()
	for range 1000 { // each would be a dead letter
		require.True(t, s.inbox.Put(regionItem{event: region.Arrived{From: a.self, Deliver: &protocol.Deliver{Shard: 1 << 30}}}))
	}
	w.kinds.mu.Lock()
	begun := len(w.kinds.begun)
	w.kinds.mu.Unlock()
	closed := make(chan struct{})
	go func() { a.Close(); close(closed) }()
	<-a.ctx.Done()
	close(hold)
	<-closed
	wg.Wait()
	require.ErrorIs(t, <-asked, sharding.ErrUnavailable, "it was surely not begun")
	assert.Equal(t, before, a.Counters().DeadLetters.Load())
	w.kinds.mu.Lock()
	defer w.kinds.mu.Unlock()
	assert.Len(t, w.kinds.begun, begun)
}

// Spec 5.1, 2.2: a node with thousands of shards starts all of them, and ends where there is nobody to take them.
func TestDrainOfManyShards(t *testing.T) {
	const many = sharding.MaxShards / 10 // a lease of one second has to hold under the race detector too
	w := newWorld(t, "a")
	big := w.start(sharding.Member{Node: "big", Incarnation: sharding.NewIncarnation()}, false, func(c *Config) {
		c.Types = []Type{{Kind: w.kinds.kind("big"), Info: protocol.RegionInfo{Type: "many", NumShards: many, Hosts: true, Place: "eager", Expect: 1}}}
	})
	require.Eventually(t, func() bool { return len(big.Stats("many")) == many }, 3*patience, 200*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	require.NoError(t, big.Drain(ctx, false))
	assert.Empty(t, big.Stats("many"))
}
