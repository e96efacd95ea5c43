package region

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// owner is a region that serves all of its shards, at epoch 1, with an endless lease.
func owner(t *testing.T, shards uint32, members ...string) *Region {
	t.Helper()
	r := New(Config{Self: member("a"), Type: "t", NumShards: shards, Hosts: true})
	for _, m := range members {
		r.Step(1, MemberCame{member(m)})
	}
	var records []protocol.ShardRecord
	for i := range shards {
		records = append(records, protocol.ShardRecord{Shard: sharding.ShardID(i), State: protocol.Homed, Owner: member("a"), Epoch: 1, Granted: 1, Chain: 1})
	}
	r.Step(1, MapChanged{Revision: sharding.Revision{Index: 1}, Full: true, Records: records})
	r.Step(1, Covered{Revision: sharding.Revision{Index: 1}, Until: math.MaxInt64})
	for _, rec := range records {
		r.Step(1, Ordered{&protocol.StartShard{Type: "t", Shard: rec}})
	}
	require.Len(t, r.Owned(), int(shards))
	return r
}

// count gives the dead letters with a reason.
func count(commands []Command, reason string) (n int) {
	for _, c := range commands {
		if d, ok := c.(DeadLetter); ok && d.Reason == reason {
			n++
		}
	}
	return n
}

// Spec 2.1: a peer is judged by who it is. One that makes up senders fills nothing, and takes no room from others, who make up none.
func TestMadeUpSenders(t *testing.T) {
	r := owner(t, 1, "b", "c", "d")
	now := sharding.Instant(1)
	from := func(peer, sender sharding.Member, seq uint64, hops uint8) []Command {
		return r.Step(now, Arrived{peer, &protocol.Deliver{Type: "t", Entity: "e", Epoch: 1, Sender: sender, Seq: seq, Hops: hops}})
	}
	const extra = 50
	var dead, claims int
	for i := range maxBrought + extra {
		made := sharding.Member{Node: sharding.NodeID(fmt.Sprint("made-up-", i))}
		dead += count(from(member("b"), made, 1, 1), DeadUnknownSender)
		for _, c := range r.Step(now, SenderDoneArrived{member("b"), protocol.SenderDone{Type: "t", Sender: made, Epoch: 1, From: 5, Seq: 5}}) {
			if _, ok := c.(DropClaim); ok {
				claims++
			}
		}
	}
	assert.Equal(t, extra, dead)
	assert.Equal(t, extra, claims)
	assert.Equal(t, maxBrought+1, len(r.shards[0].senders), "and this node")
	assert.Equal(t, maxBrought, r.strange)

	// Others are not held up: a node that has yet to come into the map, and a former owner that forwards for one.
	assert.Zero(t, count(from(member("x"), member("x"), 1, 0), DeadUnknownSender))
	assert.Zero(t, count(from(member("c"), member("y"), 1, 1), DeadUnknownSender))
	assert.Zero(t, count(from(member("b"), member("d"), 1, 1), DeadUnknownSender), "nor is the peer itself, for members")

	// Peers that the map does not have speak of others out of one share, however many they are.
	outside := 0
	for i := range maxBrought + extra {
		by, made := sharding.Member{Node: "z", Incarnation: sharding.Incarnation{1, byte(i), byte(i >> 8)}}, sharding.Member{Node: "w", Incarnation: sharding.Incarnation{2, byte(i), byte(i >> 8)}}
		outside += count(from(by, made, 1, 1), DeadUnknownSender)
	}
	assert.Equal(t, extra, outside)

	// Whoever comes back under ever new incarnations finds an end, too.
	for i := range 2 * maxStrangers {
		m := sharding.Member{Node: "z", Incarnation: sharding.Incarnation{byte(i), byte(i >> 8), byte(i >> 16)}}
		dead += count(from(m, m, 1, 0), DeadUnknownSender)
		r.Step(now, PeerClosed{m})
	}
	assert.Equal(t, maxStrangers, r.strange)
	assert.Greater(t, dead, maxStrangers)
	assert.Empty(t, r.closed, "of strangers nothing is kept")

	r.Step(now, MemberCame{member("x")})
	assert.Equal(t, maxStrangers-1, r.strange)
	now = now.Add(forgetAfter)
	r.Step(now, Ticked{})
	assert.Zero(t, r.strange)
	assert.Empty(t, r.brought)
	assert.Empty(t, r.strangers)
	assert.Equal(t, 3, len(r.shards[0].senders), "this node, x and d")
	assert.Zero(t, r.spans)
}

// Spans of numbers that will not come are bounded for one sender and for all, whoever speaks of them; the count of them is exact.
func TestSettledSpansAreBounded(t *testing.T) {
	const shards = 80
	r := owner(t, shards, "b", "c")
	claim := func(s sharding.ShardID, from, to uint64) {
		r.Step(2, SenderDoneArrived{member("b"), protocol.SenderDone{Type: "t", Shard: s, Sender: member("c"), Epoch: 1, From: from, Seq: to}})
	}
	for s := range sharding.ShardID(shards) {
		for n := range uint64(maxSpansOfOne + 10) {
			claim(s, 3*n+2, 3*n+2)
		}
		assert.LessOrEqual(t, len(r.shards[s].senders[member("c")].settled), maxSpansOfOne)
	}
	assert.Equal(t, maxSpans, r.spans)
	assert.Positive(t, r.Stats().Unsettled)
	claim(0, 1, math.MaxUint64) // joins what is there
	assert.Equal(t, []span{{1, math.MaxUint64}}, r.shards[0].senders[member("c")].settled)
	assert.Equal(t, maxSpans-maxSpansOfOne+1, r.spans)
	claim(0, math.MaxUint64, math.MaxUint64)
	assert.Len(t, r.shards[0].senders[member("c")].settled, 1)
	r.Step(3, MemberGone{member("c")})
	r.Step(sharding.Instant(3).Add(forgetAfter), Ticked{})
	assert.Zero(t, r.spans)
}

// What was refused at an owner is not remembered once later numbers have begun.
func TestRefusedNumbersAreForgotten(t *testing.T) {
	r := owner(t, 1, "c")
	at := sharding.Instant(1)
	for n := uint64(1); n < 200; n += 2 {
		r.until = at // the lease lapses: the Ask's time runs out in the buffer
		r.Step(at, Arrived{member("c"), &protocol.Deliver{Type: "t", Entity: "e", Epoch: 1, Sender: member("c"), Seq: n, Mode: protocol.Ask, Ask: n, Deadline: 1}})
		at = at.Add(2 * time.Millisecond)
		r.Step(at, Covered{Revision: sharding.Revision{Index: 1}, Until: at.Add(time.Hour)})
		r.Step(at, Arrived{member("c"), &protocol.Deliver{Type: "t", Entity: "e", Epoch: 1, Sender: member("c"), Seq: n + 1}})
	}
	assert.EqualValues(t, 200, r.shards[0].senders[member("c")].last)
	assert.LessOrEqual(t, r.spans, 1)
}

// However many shards a map update grants, a step asks for one renewal and confirms what it starts in one message.
func TestManyGrants(t *testing.T) {
	r := New(Config{Self: member("a"), Type: "t", NumShards: 100, Hosts: true})
	var records []protocol.ShardRecord
	for i := range sharding.ShardID(100) {
		records = append(records, protocol.ShardRecord{Shard: i, State: protocol.Homed, Owner: member("a"), Epoch: 1, Granted: 1, Chain: 1})
	}
	assert.Equal(t, []Command{RenewNow{}}, r.Step(1, MapChanged{Revision: sharding.Revision{Index: 1}, Records: records}))
	for _, rec := range records {
		r.Step(1, Ordered{&protocol.StartShard{Type: "t", Shard: rec}})
	}
	confirmed := 0
	for _, c := range r.Step(1, Covered{Revision: sharding.Revision{Index: 1}, Until: math.MaxInt64}) {
		if c, ok := c.(ToCoordinator); ok {
			confirmed += len(c.Message.(*protocol.ShardStarted).Shards)
			assert.Equal(t, 100, confirmed, "in one message")
		}
	}
	assert.Equal(t, 100, confirmed)
}

// Of a type of many shards that start or stop one by one the list of what is owned, made by a look at all, is not made for each: neither while few have
// started nor while few are left.
func TestOwnedIsToldSeldomOfManyShards(t *testing.T) {
	const shards = 3000
	r := New(Config{Self: member("a"), Type: "t", NumShards: shards, Hosts: true})
	var records []protocol.ShardRecord
	for i := range sharding.ShardID(shards) {
		records = append(records, protocol.ShardRecord{Shard: i, State: protocol.Homed, Owner: member("a"), Epoch: 1, Granted: 1, Chain: 1})
	}
	r.Step(1, MapChanged{Revision: sharding.Revision{Index: 1}, Records: records})
	r.Step(1, Covered{Revision: sharding.Revision{Index: 1}, Until: math.MaxInt64})
	told, last := 0, 0
	note := func(commands []Command) {
		for _, c := range commands {
			if o, ok := c.(OwnedChanged); ok {
				told++
				last = len(o.Shards)
			}
		}
	}
	for _, rec := range records {
		note(r.Step(1, Ordered{&protocol.StartShard{Type: "t", Shard: rec}}))
	}
	assert.Zero(t, told)
	note(r.Step(sharding.Instant(1).Add(manyEvery), Ticked{}))
	assert.Equal(t, 1, told)
	assert.Equal(t, shards, last, "it is told in the end")
	for _, rec := range records {
		note(r.Step(2, Ordered{&protocol.KillShard{Type: "t", Shard: rec.Shard, Epoch: 1}}))
	}
	assert.Equal(t, 2, told)
	assert.Zero(t, last, "that nothing is owned any more is told at once")
}
