package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// While raft hands leadership over it refuses every entry at once. What the entries are about is tried again until raft takes them, and not in a
// loop: a pass, a fence and the release of what was handed over.
func TestRefusedEntriesAreTriedAgainNotInALoop(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(6, "hash", "a", "b")
	r.answer(r.contact("a", 0, 1, 2, 3))
	r.commit(r.step(Requested{ID: 3, Request: MoveShard{Type: "t", Shard: 0, To: "b"}}))
	started := func(n string, shards ...protocol.ShardEpoch) Event {
		return Received{From: who(n), Message: &protocol.ShardStarted{Type: "t", Shards: shards}}
	}
	r.commit(r.step(Received{From: who("a"), Message: &protocol.HandOffComplete{Type: "t", Shard: 0, Epoch: 1}}))
	require.Len(t, r.m.state.types[0].handovers, 1, "b has not confirmed what was handed over to it")

	tried := map[protocol.Kind]int{}
	refuse := func(cmds []Command) {
		for next := of[Propose](cmds); len(next) > 0; next = next[1:] {
			tried[next[0].Entry.Kind]++
			require.Less(t, tried[next[0].Entry.Kind], 20, "%s again and again", next[0].Entry.Kind)
			next = append(next, of[Propose](r.step(ProposalFailed{Command: next[0].Entry.Command, Reason: "leadership transfer in progress"}))...)
		}
	}
	refuse(r.step(started("b", protocol.ShardEpoch{Shard: 0, Epoch: 2})))
	refuse(r.step(Received{From: who("b"), Message: &protocol.ShardsStopped{Type: "t", Shards: []protocol.ShardEpoch{{Shard: 1, Epoch: 1}}}}))
	for range 30 {
		r.at = r.at.Add(100 * time.Millisecond)
		refuse(r.step(Ticked{Wall: 1}))
	}
	for _, k := range []protocol.Kind{protocol.KindReleaseHandovers, protocol.KindFenceShards, protocol.KindBeginPass} {
		assert.Greater(t, tried[k], 2, "%s", k)
	}
	for range 5 {
		r.at = r.at.Add(250 * time.Millisecond)
		r.answer(r.commit(r.step(Ticked{Wall: 1})))
	}
	assert.Empty(t, r.m.state.types[0].handovers)
	one, _ := r.m.state.Shard("t", 1)
	assert.Equal(t, protocol.Unassigned, one.State, "it was fenced, released, and waits for a home")
}

// However often an owner says that it has started what was handed over to it, the log hears it once.
func TestStartedIsNotedOnce(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(6, "", "a", "b")
	r.contact("a", 0)
	r.commit(r.step(Requested{ID: 3, Request: MoveShard{Type: "t", Shard: 0, To: "b"}}))
	r.commit(r.step(Received{From: who("a"), Message: &protocol.HandOffComplete{Type: "t", Shard: 0, Epoch: 1}}))
	again := make([]protocol.ShardEpoch, 1000)
	for i := range again {
		again[i] = protocol.ShardEpoch{Shard: 0, Epoch: 2}
	}
	var out []Command
	for range 3 {
		out = append(out, r.step(Received{From: who("b"), Message: &protocol.ShardStarted{Type: "t", Shards: again}})...)
	}
	require.Len(t, of[Propose](out), 1)
	assert.Len(t, of[Propose](out)[0].Entry.ReleaseHandovers.Shards, 1)
	require.Empty(t, of[Propose](r.commit(out))[1:])
}

// A region that stops says so shard by shard; while one fence is on its way the others wait for the next (spec 2.2).
func TestStopsShareEntries(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(100, "", "a", "b")
	var all []sharding.ShardID
	for i := range sharding.ShardID(100) {
		all = append(all, i)
	}
	r.contact("a", all...)
	var out []Command
	for i := range all {
		out = append(out, r.step(Received{From: who("a"), Message: &protocol.ShardsStopped{Type: "t", Shards: []protocol.ShardEpoch{{Shard: all[i], Epoch: 1}}}})...)
	}
	require.Len(t, of[Propose](out), 1)
	fences := 0
	for _, p := range of[Propose](r.commit(out)) {
		if p.Entry.Kind == protocol.KindFenceShards {
			fences++
		}
	}
	assert.Equal(t, 2, fences)
	r.at = r.at.Add(2 * time.Second)
	r.commit(r.step(Ticked{Wall: 1}))
	for _, rec := range r.m.State().Shards("t") {
		assert.Equal(t, protocol.Homed, rec.State)
	}
}

// A member that hosts a type and serves nothing that it is given, because its region ends or because it lies, makes the log grow by a few entries an
// interval, and not as fast as raft can.
func TestAnOwnerThatServesNothing(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "", "a")
	before := r.index
	refuse := func(cmds []Command) {
		for next := sent[*protocol.StartShard](cmds); len(next) > 0; next = next[1:] {
			m := next[0].Shard
			next = append(next, sent[*protocol.StartShard](r.commit(r.step(Received{From: who("a"), Message: &protocol.ShardsStopped{Type: "t",
				Shards: []protocol.ShardEpoch{{Shard: m.Shard, Epoch: m.Epoch}}}})))...)
			require.Less(t, r.index-before, uint64(60))
		}
	}
	refuse(r.contact("a", 0, 1, 2, 3))
	for range 50 {
		r.at = r.at.Add(100 * time.Millisecond)
		refuse(r.commit(r.step(Ticked{Wall: 1})))
	}
	assert.Greater(t, r.index-before, uint64(15), "it is tried again all the same")
}
