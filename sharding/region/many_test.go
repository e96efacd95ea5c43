package region

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// many gives a region that serves as many shards as a type may have, and the instant at which it has started them.
func many(tb testing.TB) (*Region, sharding.Instant, []protocol.ShardRecord) {
	r := New(Config{Self: member("a"), Type: "t", NumShards: sharding.MaxShards, Hosts: true})
	records := make([]protocol.ShardRecord, sharding.MaxShards)
	for i := range records {
		records[i] = protocol.ShardRecord{Shard: sharding.ShardID(i), State: protocol.Homed, Owner: member("a"), Epoch: 1, Granted: 1, Chain: 1}
	}
	at := sharding.Instant(time.Second)
	r.Step(at, MapChanged{Revision: sharding.Revision{Index: 1}, Records: records})
	r.Step(at, Covered{Revision: sharding.Revision{Index: 1}, Until: math.MaxInt64})
	for _, rec := range records {
		r.Step(at, Ordered{&protocol.StartShard{Type: "t", Shard: rec}})
	}
	require.Len(tb, r.Owned(), sharding.MaxShards)
	return r, at, records
}

// told counts what goes to the coordinator.
type told struct{ messages, stops, stopping, asked int }

func (n *told) add(cmds []Command) {
	for _, c := range cmds {
		c, ok := c.(ToCoordinator)
		if !ok {
			continue
		}
		n.messages++
		switch m := c.Message.(type) {
		case *protocol.ShardsStopped:
			n.stops += len(m.Shards)
		case *protocol.Stopping:
			n.stopping++
		case *protocol.GetShardHome:
			n.asked += len(m.Shards)
		}
	}
}

// Spec 5.1: the region of 100 000 shards ends, though its shards stop one by one, each with a step of its own and ticks in between. A glance at all shards
// in each of these steps would take minutes; a message to the coordinator for each shard, and again for each while the map does not show it, would keep
// the leader from its leases.
func TestEndOf100kShards(t *testing.T) {
	r, at, records := many(t)
	var n told
	n.add(r.Step(at, RegionStopped{}))
	for i, rec := range records {
		require.Zero(t, n.stopping, "shard %d is still served", rec.Shard)
		n.add(r.Step(at, ShardStopped{Shard: rec.Shard, Epoch: 1}))
		if i%100 == 0 {
			at = at.Add(time.Millisecond)
			n.add(r.Step(at, Ticked{}))
		}
	}
	assert.Equal(t, 1, n.stopping)
	assert.GreaterOrEqual(t, n.stops, sharding.MaxShards)
	assert.Less(t, n.messages, 1000)
	for range 500 { // of one that does not answer, 10 s
		at = at.Add(20 * time.Millisecond)
		n.add(r.Step(at, Ticked{}))
	}
	assert.Less(t, n.messages, 5000, "the reports are repeated together")
	for i := range records {
		records[i].Owner, records[i].State = sharding.Member{}, protocol.Unassigned
	}
	r.Step(at, MapChanged{Revision: sharding.Revision{Index: 2}, Full: true, Records: records})
	assert.Zero(t, r.owns)
	at = at.Add(time.Minute)
	before := n.stopping
	n.add(r.Step(at, Ticked{}))
	assert.Equal(t, before, n.stopping, "the map shows that it was heard")
}

// A tick looks at what is due in it: 100 000 shards that wait for a home are each looked at when their question is to be repeated, and not every 20 ms.
func TestTicksOf100kWaitingShards(t *testing.T) {
	r := New(Config{Self: member("a"), Type: "t", NumShards: sharding.MaxShards})
	at := sharding.Instant(time.Second)
	var n told
	for i := range sharding.ShardID(sharding.MaxShards) {
		n.add(r.Step(at, HomeWanted{Shard: i}))
	}
	require.Equal(t, sharding.MaxShards, n.asked)
	looks := 0
	n = told{}
	const ticks = 5 * 50
	for range ticks {
		at = at.Add(20 * time.Millisecond)
		for _, l := range r.looks {
			if l.at <= at {
				looks++
			}
		}
		n.add(r.Step(at, Ticked{}))
	}
	assert.Equal(t, sharding.MaxShards*ticks*20/500, n.asked)
	assert.Equal(t, n.asked, looks)
	assert.Len(t, r.looks, sharding.MaxShards, "one entry a shard")
	n = told{}
	n.add(r.Step(at.Add(500*time.Millisecond), Ticked{}))
	assert.Equal(t, told{messages: 1, asked: sharding.MaxShards}, n)
}

// Each acknowledgement of the lease costs a look at all shards at most every manyEvery: grants that come one by one bring many of them. What is granted
// starts at once all the same.
func TestCoverage100kShards(t *testing.T) {
	r, at, records := many(t)
	r.Step(at, Ordered{&protocol.KillShard{Type: "t", Shard: 7, Epoch: 1}})
	extended, started := 0, 0
	step := func(ev Event) {
		for _, c := range r.Step(at, ev) {
			switch c := c.(type) {
			case ExtendLocal:
				if len(c.Shards) > 1 {
					extended++
					require.Len(t, c.Shards, sharding.MaxShards-1)
				}
			case StartLocal:
				started++
			}
		}
	}
	at = at.Add(time.Second)
	for rev := uint64(2); rev < 10_002; rev++ {
		step(Covered{Revision: sharding.Revision{Index: rev}, Until: math.MaxInt64})
	}
	assert.Equal(t, 1, extended)
	at = at.Add(manyEvery)
	step(Ticked{})
	step(Ticked{})
	assert.Equal(t, 2, extended, "what came since the last time is told by a tick")
	rec := records[7]
	rec.Epoch, rec.Granted = 2, 10_002
	step(Ordered{&protocol.StartShard{Type: "t", Shard: rec}})
	assert.Zero(t, started)
	step(Covered{Revision: sharding.Revision{Index: 10_002}, Until: math.MaxInt64})
	assert.Equal(t, 1, started)
	assert.Equal(t, 2, extended)
}

func BenchmarkShardStoppedOf100k(b *testing.B) {
	r, at, records := many(b)
	r.Step(at, RegionStopped{})
	for i := 0; b.Loop(); i++ {
		if i == len(records)-1 {
			b.StopTimer()
			r, at, records = many(b)
			r.Step(at, RegionStopped{})
			i = 0
			b.StartTimer()
		}
		r.Step(at, ShardStopped{Shard: records[i].Shard, Epoch: 1})
	}
}
