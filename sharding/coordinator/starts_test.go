package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// eager makes a cluster of an eager type of 100 000 shards on two nodes, and gives what followed from its placement.
func eager(t *testing.T, cfg Config) (*rig, []Command) {
	r := newRig(t, cfg)
	r.lead(1)
	r.commit(r.step(Requested{ID: 1, Request: CreateCluster{Body: protocol.CreateCluster{ClusterID: inc(9), Settings: protocol.Settings{LeaseTTL: 5000}}}}))
	g := protocol.RegionInfo{Type: "t", NumShards: sharding.MaxShards, Hosts: true, Place: "eager", Expect: 2}
	for _, n := range []string{"a", "b"} {
		r.commit(r.step(Received{From: who(n), Message: &protocol.Register{Regions: []protocol.RegionInfo{g}}}))
	}
	r.at = r.at.Add(1100 * time.Millisecond)
	return r, r.commit(r.step(Ticked{Wall: 1}))
}

// Spec 2.1, 2.2: 100 000 shards placed at once do not stand in the way of a lease: each node is told of a window of them, and of the next as it
// confirms. Whoever confirms nothing is sent a window a second, and all of it in turn; the other has started all by then.
func TestStartsComeInWindows(t *testing.T) {
	r, out := eager(t, Config{})
	const window = 1024
	told := map[sharding.NodeID]map[sharding.ShardID]bool{"a": {}, "b": {}}
	open := map[sharding.NodeID]int{}
	starts := func(cmds []Command) (b []*protocol.StartShard) {
		for _, s := range of[Send](cmds) {
			if m, ok := s.Message.(*protocol.StartShard); ok {
				told[s.To.Node][m.Shard.Shard] = true
				open[s.To.Node]++
				if s.To.Node == "b" {
					b = append(b, m)
				}
			}
		}
		return b
	}
	next := starts(out)
	require.Equal(t, window, open["a"])
	require.Equal(t, window, open["b"])
	for len(next) > 0 { // b confirms each, a none
		m := next[0]
		open["b"]--
		next = append(next[1:], starts(r.commit(r.step(Received{From: who("b"), Message: &protocol.ShardStarted{Type: "t",
			Shards: []protocol.ShardEpoch{{Shard: m.Shard.Shard, Epoch: m.Shard.Epoch}}}})))...)
		require.LessOrEqual(t, open["b"], window)
	}
	require.Len(t, told["b"], sharding.MaxShards/2)
	require.Equal(t, window, open["a"], "nothing of a's is repeated within the second")
	seconds := 0
	for ; len(told["a"]) < sharding.MaxShards/2; seconds++ {
		require.Less(t, seconds, 100)
		before := open["a"]
		for range 10 {
			r.at = r.at.Add(100 * time.Millisecond)
			starts(r.step(Ticked{Wall: 1}))
		}
		require.Equal(t, window, open["a"]-before, "in a second")
	}
	assert.Equal(t, (sharding.MaxShards/2-1)/window, seconds, "all of them in turn")
}

// A tick and two renewals while two nodes have 100 000 shards to confirm.
func BenchmarkTick100kUnanswered(b *testing.B) {
	r, _ := eager(nil, Config{})
	b.ReportAllocs()
	for b.Loop() {
		r.at = r.at.Add(100 * time.Millisecond)
		r.step(Ticked{Wall: 1})
		for _, n := range []string{"a", "b"} {
			r.commit(r.step(Received{From: who(n), Message: &protocol.Renew{Applied: r.m.State().Revision()}}))
		}
	}
}
