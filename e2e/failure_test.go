package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// settledThree starts three nodes with all shards homed, and gives them with their map.
func settledThree(t *testing.T, c *cluster) ([]*node, shardMap) {
	t.Helper()
	nodes := c.start("a", "b", "c")
	eventually(t, "three servers vote", func() error { return voters(nodes[0], 3) })
	touch(t, nodes[1], ids("settled", 1000))
	return nodes, nodes[0].awaitCounts(34, 33, 33)
}

// servedAgain waits until every counter of a shard that a node had can be asked through another, and gives how long that took from now.
func servedAgain(t *testing.T, through *node, m shardMap, of string, prefix string) time.Duration {
	t.Helper()
	since := time.Now()
	missing := map[sharding.ShardID]bool{}
	for _, s := range m.Shards {
		if s.Node == of {
			missing[s.Shard] = true
		}
	}
	for _, e := range ids(prefix, 1000) {
		if s := sharding.ShardOf(e, m.NumShards); missing[s] {
			eventually(t, fmt.Sprintf("shard %d is served again", s), func() error {
				_, _, err := send(through, op{entity: e, get: true})
				return err
			})
			delete(missing, s)
		}
	}
	require.Empty(t, missing, "shards without a counter of this test")
	return time.Since(since)
}

// survivors judges that no shard of a node that lives has moved, and that no counter there has lost an add.
func survivors(t *testing.T, through *node, before, after shardMap, dead string) {
	t.Helper()
	rows := after.by()
	for _, was := range before.Shards {
		if was.Node != dead {
			now := rows[was.Shard]
			require.Equal(t, was, now, "shard %d of a survivor", was.Shard)
		}
	}
	for _, e := range ids("settled", 1000) {
		if before.by()[sharding.ShardOf(e, before.NumShards)].Node != dead {
			require.EqualValues(t, 1, through.valueOf(e), "%s on a survivor", e)
		}
	}
}

// kill −9 of a node that does not lead, then of the one that does: the dead node's shards are served again within the bounds of spec 2.6, those of
// survivors stay where they are, and what they have counted with them. In between the dead node comes back at once at its own address, as a new
// process that nobody told where the others are (spec 5.1).
func TestCrashes(t *testing.T) {
	c := newCluster(t, append(slices.Clone(quick), "type.counter.config.max_moves=0", "type.counter.config.threshold=100")...)
	nodes, before := settledThree(t, c)
	led, term := c.leader()
	dead := c.others(led)[0]

	l := startLoad(t, 4, ids("crash", 24), c.others(dead)...)
	l.progress(200)
	dead.kill()
	through := c.others(dead)[0]
	judge(t, "a node that does not lead is killed: its shards are served again", servedAgain(t, through, before, dead.name, "settled"), quickTTL+quickTTL/10+time.Second)
	l.progress(200)
	after := l.end(through)
	survivors(t, through, before, after, dead.name)
	if still, now := c.leader(); still == led {
		require.Equal(t, term, now, "nothing changed for the leader")
	}

	id := nodes[0].awaitClusterID()
	dead.join = nil
	dead.start()
	dead.awaitReady()
	require.Equal(t, id, dead.awaitClusterID())
	back, err := dead.members()
	require.NoError(t, err)
	require.NotEqual(t, before.incarnationOf(dead.name), back[dead.name].Incarnation, "a new process is a new incarnation")
	touch(t, dead, ids("back", 50))
	eventually(t, "three servers vote", func() error { return voters(led, 3) })

	led, term = c.leader()
	before = led.shards()
	require.NotZero(t, before.counts()[led.name], "the leader has shards")
	through = c.others(led)[0]
	l = startLoad(t, 4, ids("headless", 24), c.others(led)...)
	l.progress(200)
	led.kill()
	judge(t, "the leader is killed: its shards are served again", servedAgain(t, through, before, led.name, "settled"), 3*quickHeartbeat+quickTTL+quickTTL/10+time.Second)
	l.progress(200)
	after = l.end(through)
	rows := after.by()
	for _, was := range before.Shards {
		if was.Node != led.name {
			require.Equal(t, was, rows[was.Shard], "shard %d of a survivor", was.Shard)
		}
	}
	_, now := c.leader()
	require.Greater(t, now, term)
}

// incarnationOf gives the incarnation under which a node has shards.
func (m shardMap) incarnationOf(name string) (i sharding.Incarnation) {
	for _, s := range m.Shards {
		if s.Node == name {
			return s.Incarnation
		}
	}
	return i
}

// The leader's process stops for longer than any lease and goes on (spec 2.1, 2.6): the others elect another and take its shards over; it serves
// nothing that they own, steps down, and late orders of its term, sent over its own connections, count nowhere.
func TestLeaderStops(t *testing.T) { leaderStops(t, 4*quickTTL, quick...) }

// The same with what node.toml ships with, and 20 s of sleep.
func TestLongLeaderStopsWithShippedDefaults(t *testing.T) { leaderStops(t, 20*time.Second) }

// faultyCluster starts three nodes that take orders about faults, all of them voters, with every shard at home.
func faultyCluster(t *testing.T, set ...string) (*cluster, shardMap) {
	c := newCluster(t, set...)
	for _, name := range []string{"a", "b", "c"} {
		n := c.add(name)
		n.faulty = true
		n.start()
	}
	for _, n := range c.nodes {
		n.awaitReady()
	}
	eventually(t, "three servers vote", func() error { return voters(c.nodes[0], 3) })
	touch(t, c.nodes[1], ids("settled", 1000))
	return c, c.nodes[0].awaitCounts(34, 33, 33)
}

func leaderStops(t *testing.T, pause time.Duration, set ...string) {
	c, before := faultyCluster(t, set...)
	old, oldTerm := c.leader()

	// From all nodes: those clients that go through the stopped one hang with it, and their messages may be done late, but never twice.
	l := startLoad(t, 6, ids("stopped", 36), c.nodes...)
	l.progress(300)
	old.pause()
	stopped := time.Now()
	through := c.others(old)[0]
	servedAgain(t, through, before, old.name, "settled")
	_, newTerm := c.leader()
	require.Greater(t, newTerm, oldTerm)
	eventually(t, "the pause is long enough", func() error {
		if time.Since(stopped) < pause {
			return errNotYet
		}
		return nil
	})
	taken := through.shards()
	old.resume()
	eventually(t, "the old leader follows the new one", func() error {
		var l leader
		if err := old.get("/cluster/leader", &l); err != nil {
			return err
		}
		if l.Name == old.name || l.Term < newTerm {
			return fmt.Errorf("it follows %s of term %d", l.Name, l.Term)
		}
		return nil
	})
	l.progress(300)

	// Late orders of the old term.
	late := map[string]float64{}
	members, err := through.members()
	require.NoError(t, err)
	for _, n := range c.others(old) {
		late[n.name] = n.metric("drover_directives_dropped_total", `reason="stale_term"`)
	}
	id, err := sharding.ParseIncarnation(old.awaitClusterID())
	require.NoError(t, err)
	orders := lateOrders(taken, id, members[old.name], oldTerm)
	for _, n := range c.others(old) {
		for _, o := range orders {
			eventually(t, "a stream from the old leader stands", func() error { return old.inject(members[n.name], o) })
		}
		eventually(t, "node "+n.name+" drops each", func() error {
			if have := n.metric("drover_directives_dropped_total", `reason="stale_term"`) - late[n.name]; have < float64(len(orders)) {
				return fmt.Errorf("%v of %d", have, len(orders))
			}
			return nil
		})
	}
	after := l.end(through)
	for _, n := range c.live() { // cached homes included: what the late orders said is believed nowhere
		for _, s := range n.shards().Shards {
			require.GreaterOrEqual(t, s.Epoch, taken.by()[s.Shard].Epoch)
		}
	}
	require.Positive(t, after.moves(before), "shards of the stopped leader were taken over")
	require.Equal(t, 0.0, old.metric("drover_leader"))
}

// The leader is cut off from both other nodes, and the next one can send nothing, while clients go on through all (spec 2.1, 2.6): each time the others
// elect another and take its shards over, and once the cut heals it follows. Gossip sees nothing of it.
func TestPartitions(t *testing.T) {
	c, before := faultyCluster(t, quick...)
	l := startLoad(t, 6, ids("cut", 36), c.nodes...)
	l.progress(200)
	for _, fault := range []string{"partition", "partition dir=out"} {
		led, term := c.leader()
		through := c.others(led)[0]
		at := through.shards()
		require.NotZero(t, at.counts()[led.name], "the leader has shards")
		require.NoError(t, led.fault(fault))
		servedAgain(t, through, at, led.name, "settled")
		require.Positive(t, through.shards().moves(at), "its shards were taken over")
		l.progress(200)
		require.NoError(t, led.fault("heal"))
		next, now := c.leader()
		require.Greater(t, now, term, "%s leads after %s", next.name, fault)
		eventually(t, "shards lie evenly again", func() error { return onlyOn(next, "a", "b", "c") })
		l.progress(200)
	}
	require.Positive(t, l.end(c.nodes[0]).moves(before))
}

// lateOrders makes one of each kind of directive as a leader of an earlier term would have sent it, all of which would do harm.
func lateOrders(m shardMap, id sharding.Incarnation, old member, term uint64) (out []protocol.Message) {
	owner := sharding.Member{Node: sharding.NodeID(old.Name), Incarnation: old.Incarnation}
	first := m.Shards[0]
	epoch := sharding.Epoch(first.Epoch)
	record := protocol.ShardRecord{Shard: first.Shard, State: protocol.Homed, Owner: owner, Epoch: epoch + 1, Granted: m.Revision.Index}
	rev := sharding.Revision{Term: term, Index: m.Revision.Index + 1_000_000}
	return []protocol.Message{
		&protocol.Leading{Term: term},
		&protocol.RegisterAck{Term: term, ClusterID: id, Revision: rev, LeaseTTL: 1},
		&protocol.LeaseAck{Term: term, Seq: 1, Revision: rev, TTL: 60_000},
		&protocol.ShardMapUpdate{Term: term, To: rev, Full: true, Types: []protocol.TypeDelta{{Type: "counter", NumShards: m.NumShards, Shards: []protocol.ShardRecord{record}}}},
		&protocol.ShardHome{Term: term, Type: "counter", Shard: record},
		&protocol.StartShard{Term: term, Type: "counter", Shard: record},
		&protocol.HandOff{Term: term, Type: "counter", Shard: first.Shard, Epoch: epoch},
		&protocol.KillShard{Term: term, Type: "counter", Shard: first.Shard, Epoch: epoch},
	}
}

// A node that is told to end stays a voter and comes back under its name, at its address or another, as a new incarnation; a cluster of which every
// node was told to end comes back as the same one (spec 5.1).
func TestRestarts(t *testing.T) {
	c := newCluster(t, quick...)
	nodes, before := settledThree(t, c)
	id := nodes[0].awaitClusterID()
	b := nodes[1]
	was := b.serverID()
	b.terminate()
	nodes[0].awaitMembers(map[string]string{"a": "up", "b": "left", "c": "up"})
	require.NoError(t, voters(nodes[0], 3), "it stays a voter")
	eventually(t, "its shards are elsewhere", func() error { return onlyOn(nodes[0], "a", "c") })
	b.gossip, b.transport, b.http = freeAddress(t), freeAddress(t), freeAddress(t)
	b.start()
	b.awaitReady()
	nodes[0].awaitMembers(map[string]string{"a": "up", "b": "up", "c": "up"})
	require.Equal(t, was, b.serverID())
	back, err := nodes[0].members()
	require.NoError(t, err)
	require.Equal(t, b.transport, back["b"].Address)
	require.NotEqual(t, before.incarnationOf("b"), back["b"].Incarnation)
	nodes[0].awaitCounts(34, 33, 33)

	// It counts as a voter at its new address: with another one away, a majority needs it.
	nodes[2].terminate()
	c.leader()
	touch(t, b, ids("majority", 50))
	nodes[2].start()
	nodes[2].awaitReady()
	require.NoError(t, voters(nodes[0], 3))

	// All at once: nobody is left to hand anything to.
	for _, n := range nodes {
		n.signal(syscall.SIGTERM)
	}
	for _, n := range nodes {
		require.Equal(t, 0, n.awaitEnd(), "exit code of %s", n.name)
	}
	for _, n := range nodes {
		require.NotContains(t, n.log(), "cut short", "nobody waits for a node that ends too")
		n.join = nil // each remembers the others
		n.start()
	}
	for _, n := range nodes {
		n.awaitReady()
		require.Equal(t, id, n.awaitClusterID())
		require.NotContains(t, n.log(), "level=ERROR")
		require.NotContains(t, strings.ToLower(n.log()), "panic")
	}
	touch(t, nodes[2], ids("again", 200))
	nodes[0].awaitCounts(34, 33, 33)
	touch(t, nodes[0], ids("at-last", 50))
	require.EqualValues(t, 1, nodes[2].valueOf("at-last-7"))
}
