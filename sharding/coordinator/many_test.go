package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Spec 2.2, I17: 50 000 shards that stop one by one, each told by a message of its own, are fenced, released and placed anew, without a look at all 100 000
// shards for each of these messages and entries: that would take minutes.
func TestStopsOf50kShards(t *testing.T) {
	r, out := eager(t, Config{})
	placed := map[sharding.ShardID]sharding.Epoch{}
	var b []protocol.ShardEpoch
	for _, rec := range r.m.State().Shards("t") {
		placed[rec.Shard] = rec.Epoch
		if rec.Owner == who("b") {
			b = append(b, protocol.ShardEpoch{Shard: rec.Shard, Epoch: rec.Epoch})
		}
	}
	require.NotEmpty(t, out)
	require.Len(t, b, sharding.MaxShards/2)
	largest := 0
	commit := func(cmds []Command) {
		for _, c := range of[Propose](r.commit(cmds)) {
			if f := c.Entry.FenceShards; f != nil {
				largest = max(largest, len(f.Shards))
			}
		}
	}
	for i, se := range b {
		commit(r.step(Received{From: who("b"), Message: &protocol.ShardsStopped{Type: "t", Shards: []protocol.ShardEpoch{se}}}))
		if i%100 == 99 {
			r.at = r.at.Add(time.Millisecond)
		}
	}
	anew := func() (n int) {
		for _, se := range b {
			if rec, _ := r.m.State().Shard("t", se.Shard); rec.State == protocol.Homed && rec.Epoch > se.Epoch {
				n++
			}
		}
		return n
	}
	for seconds := 0; anew() < len(b); seconds++ {
		require.Less(t, seconds, 60, "of %d shards %d are placed anew", len(b), anew())
		for range 10 {
			r.at = r.at.Add(100 * time.Millisecond)
			for _, n := range []string{"a", "b"} { // they live
				commit(r.step(Received{From: who(n), Message: &protocol.Renew{Applied: r.m.State().Revision()}}))
			}
			commit(r.step(Ticked{Wall: 1}))
		}
	}
	assert.LessOrEqual(t, largest, homesPerEntry, "raft sends an entry whole")
}

// What changed since an entry is the same by the list of recent changes as by a look at all shards, on a server that has applied each entry and on one that
// was restored on the way.
func TestChangedSinceAgainstALookAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.Uint32Range(1, 6).Draw(t, "shards")
		s := NewState(Mutations{})
		ty := newType("t", shards, 1)
		s.types = append(s.types, ty)
		slow := func(index uint64) (out []uint32) {
			for i, c := range ty.changedAt {
				if c > index {
					out = append(out, uint32(i))
				}
			}
			return out
		}
		for range rapid.IntRange(1, 40).Draw(t, "entries") {
			s.index++
			for range rapid.IntRange(0, 4).Draw(t, "touched") {
				s.touch(ty, rapid.Uint32Range(0, shards-1).Draw(t, "shard"))
			}
			if rapid.IntRange(0, 9).Draw(t, "restored") == 0 {
				ty.recent, ty.recentFrom = nil, ty.changed
			}
			for since := range s.index + 1 {
				if got := ty.changedSince(since); !slices.Equal(got, slow(since)) {
					t.Fatalf("since %d: %v, want %v", since, got, slow(since))
				}
			}
			if len(ty.recent) > int(shards) {
				t.Fatalf("%d changes are kept of %d shards", len(ty.recent), shards)
			}
		}
	})
}

// One handoff after the other is carried out while all 100 000 shards have a home: what an entry costs must not be a look at all of them.
func BenchmarkHandOffOf100k(b *testing.B) {
	r, _ := eager(nil, Config{})
	records := r.m.State().Shards("t")
	for i := 0; b.Loop(); i++ {
		rec, _ := r.m.State().Shard("t", records[i%len(records)].Shard)
		to := who("a")
		if rec.Owner == to {
			to = who("b")
		}
		r.index++
		r.commit(r.step(Committed{Index: r.index, Term: r.term, Entry: &protocol.Entry{V: protocol.Version, Kind: protocol.KindPlanMoves, Term: r.term,
			PlanMoves: &protocol.PlanMoves{Type: "t", Decision: protocol.Decision{Cause: protocol.CauseOperator}, Moves: []protocol.Move{
				{Shard: rec.Shard, From: rec.Owner, Epoch: rec.Epoch, Target: to}}}}}))
		r.commit(r.step(Received{From: rec.Owner, Message: &protocol.HandOffComplete{Type: "t", Shard: rec.Shard, Epoch: rec.Epoch}}))
		now, _ := r.m.State().Shard("t", rec.Shard)
		require.Equal(b, to, now.Owner)
		r.commit(r.step(Received{From: to, Message: &protocol.ShardStarted{Type: "t", Shards: []protocol.ShardEpoch{{Shard: rec.Shard, Epoch: now.Epoch}}}}))
	}
}
