package node

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/sharding"
)

// lines gives the log's lines that contain any of the words.
func (l *lockedBuffer) lines(words ...string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.SplitSeq(l.b.String(), "\n") {
		for _, w := range words {
			if strings.Contains(line, w) {
				out = append(out, line)
				break
			}
		}
	}
	return out
}

// An operator who sees a warning must be able to trust that something is wrong: the life of a healthy cluster has none. Its nodes start, join, take over
// shards, swap a strategy, rebalancing pauses, one is drained, the leader ends and comes back at another address, and all end together.
func TestHealthyLifeHasNoWarnings(t *testing.T) {
	f := newFleet(t)
	var logs []*lockedBuffer
	start := func(name string) *member {
		c := f.config(name)
		c.Types[0].MaxFailures = 100 // the quick test strategy cannot home several shards at once, which is no fault of the cluster
		m := f.start(c)
		logs = append(logs, m.log)
		return m
	}
	a := start("a")
	f.settled()
	start("b")
	start("c")
	f.settled()
	require.Eventually(t, func() bool { v, err := f.leader().plane.VoterIDs(); return err == nil && len(v) == 3 }, patience, poll)
	serve := func() {
		for s := range numShards {
			for _, m := range f.all() {
				m.add(t, accountOn(sharding.ShardID(s)), 1)
			}
		}
	}
	serve()
	op := api{a.Node}
	for _, to := range []sharding.NodeID{"a", "b", "c"} {
		require.Eventually(t, func() bool { return op.MoveShard(t.Context(), "ledger", 3, to) == nil && a.home(3).Owner.Node == to }, patience, poll)
	}
	fuel := uint64(400_000_000)
	_, err := op.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Limits: &httpapi.Limits{Fuel: &fuel}})
	require.NoError(t, err)
	require.NoError(t, op.Pause(t.Context(), true))
	require.NoError(t, op.Pause(t.Context(), false))
	require.NoError(t, op.Drain(t.Context(), "b", true))
	require.Eventually(t, func() bool {
		for s := range sharding.ShardID(numShards) {
			if a.home(s).Owner.Node == "b" {
				return false
			}
		}
		return true
	}, patience, poll)
	require.NoError(t, op.Drain(t.Context(), "b", false))
	serve()

	old := f.leader() // the leader ends, and comes back at another address
	require.NoError(t, f.stop(old))
	assert.Len(t, old.log.lines("msg=stopped"), 1)
	serve()
	again := *old.cfg
	again.Gossip.Join = nil
	m := f.start(&again)
	logs = append(logs, m.log)
	f.settled()
	serve()

	var wg sync.WaitGroup
	for _, m := range f.all() {
		wg.Go(func() {
			m.cancel()
			select {
			case <-m.done:
			case <-time.After(patience):
			}
		})
	}
	wg.Wait()
	for _, l := range logs {
		for _, line := range l.lines("level=WARN", "level=ERROR") {
			assert.Contains(t, line, "event=strategy_failed", "not healthy")
		}
		assert.Len(t, l.lines("msg=stopped"), 1)
	}
	if t.Failed() {
		t.Log(logs[0].tail())
	}
}
