package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// A member whose map lags, though it was sent what it lacks, is sent it again before its acknowledgement: an acknowledgement for a revision
// that it has not applied would extend nothing (spec 2.1).
func TestLostUpdateIsSentAgain(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "", "a")
	before := r.m.State().Revision()
	r.contact("a", 0) // its update is lost
	renew := func() []Command {
		return r.commit(r.step(Received{From: who("a"), Message: &protocol.Renew{Applied: before}}))
	}
	require.Empty(t, sent[*protocol.ShardMapUpdate](renew()), "it may be on its way")
	r.at = r.at.Add(time.Second)
	r.step(Received{From: who("a"), Message: &protocol.ShardStarted{Type: "t", Shards: []protocol.ShardEpoch{{Shard: 0, Epoch: 1}}}})
	out := of[Send](renew())
	require.Len(t, out, 2)
	require.Equal(t, before, out[0].Message.(*protocol.ShardMapUpdate).From)
	require.Equal(t, r.m.State().Revision(), out[1].Message.(*protocol.LeaseAck).Revision)
}

// What is sent meanwhile gives no more time: in a busy cluster there is always something (simulation, seed 89).
func TestLostUpdateIsSentAgainThoughOthersFollow(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(9, "", "a")
	before := r.m.State().Revision()
	r.commit(r.step(Received{From: who("a"), Message: &protocol.Renew{Applied: before}}))
	r.answer(r.contact("a", 0)) // its update is lost
	for i := range 4 {
		r.at = r.at.Add(200 * time.Millisecond)
		r.answer(r.contact("a", sharding.ShardID(i+1))) // comes, and does not fit
	}
	out := of[Send](r.commit(r.step(Received{From: who("a"), Message: &protocol.Renew{Applied: before}})))
	require.Len(t, out, 2)
	require.Equal(t, before, out[0].Message.(*protocol.ShardMapUpdate).From)

	// Who makes progress is only slow.
	since := r.m.State().Revision()
	for i := range 4 {
		r.at = r.at.Add(400 * time.Millisecond)
		now := r.m.State().Revision()
		r.answer(r.contact("a", sharding.ShardID(i+5)))
		out = of[Send](r.commit(r.step(Received{From: who("a"), Message: &protocol.Renew{Applied: since}})))
		require.Len(t, out, 1, "the acknowledgement alone")
		since = now
	}
}
