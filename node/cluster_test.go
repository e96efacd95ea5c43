package node

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// three starts a, b and c, coordinators all, of which c hosts nothing.
func three(t *testing.T) (f *fleet, a, b, c *member) {
	f = newFleet(t)
	a = f.start(f.config("a"))
	b = f.start(f.config("b"))
	cc := f.config("c")
	cc.Roles = []string{"coordinator"}
	c = f.start(cc)
	f.settled()
	return f, a, b, c
}

// Spec 2.4, 2.5: refs and views work from every node: hosts, a proxy, and a node whose file does not name the type.
func TestEveryNode(t *testing.T) {
	f, a, b, c := three(t)
	dc := f.config("d")
	dc.Types, dc.Roles = nil, []string{"edge"}
	d := f.start(dc)
	f.settled()

	t.Run("refs", func(t *testing.T) {
		for i, m := range f.all() {
			for s := range numShards {
				r := m.add(t, accountOn(sharding.ShardID(s)), 1)
				assert.Equal(t, i+1, r.Total)
				assert.Contains(t, "ab", string(r.Node), "a node without the type's role hosts it")
			}
		}
		_, err := sharding.RegionOf[entry, receipt](d.Node, "nope", nil, sharding.Options[entry, receipt]{}).Entity("x").Ask(t.Context(), entry{})
		require.ErrorIs(t, err, sharding.ErrNoType)
	})

	t.Run("shard refs", func(t *testing.T) {
		_, err := sharding.ShardRefOf(d.Node, "ledger", numShards)
		require.ErrorIs(t, err, sharding.ErrShard)
		ref, err := sharding.ShardRefOfEntity(d.Node, "ledger", accountOn(4))
		require.NoError(t, err)
		assert.EqualValues(t, 4, ref.Shard())
		require.NoError(t, ref.StartEntity(t.Context(), accountOn(4)))
		st, err := ref.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, sharding.ShardStats{Shard: 4, Owner: d.home(4).Owner, Epoch: d.home(4).Epoch, Resident: true, Entities: 1, IDs: []string{accountOn(4)}}, st)
		require.ErrorIs(t, ref.Tell(sharding.Envelope{Entity: accountOn(5)}), sharding.ErrShard)
		_, err = ref.Ask(t.Context(), sharding.Envelope{Entity: accountOn(4), Payload: []byte{byte(sharding.FormatJSON), '{', '}'}})
		require.NoError(t, err)
	})

	t.Run("shard map changed", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changes := d.ShardMapChanged(ctx, "ledger")
		last := <-changes
		require.Len(t, last.Shards, numShards)
		require.Len(t, last.Regions, 3, "a, b, and c's proxy")
		to := a
		if last.Shards[7].Owner == a.self {
			to = b
		}
		require.NoError(t, api{d.Node}.MoveShard(ctx, "ledger", 7, sharding.NodeID(to.cfg.Name)))
		for last.Shards[7].Owner != to.self {
			next, open := <-changes
			require.True(t, open)
			require.True(t, last.Revision.Less(next.Revision))
			last = next
		}
		assert.Equal(t, 4*1+1, d.add(t, accountOn(7), 1).Total+4, "memory entities begin anew on a move")
	})

	t.Run("views", func(t *testing.T) {
		for _, m := range f.all() {
			v, err := api{m.Node}.Members(t.Context())
			require.NoError(t, err)
			require.Len(t, v.Members, 4)
			leaders, shards := 0, 0
			for _, x := range v.Members {
				if x.Leader {
					leaders++
				}
				shards += x.Shards
			}
			assert.Equal(t, 1, leaders)
			assert.Equal(t, numShards, shards)
			s, err := api{m.Node}.Shards(t.Context(), "ledger")
			require.NoError(t, err)
			require.Len(t, s.Shards, numShards)
			for _, x := range s.Shards {
				require.NotNil(t, x.Entities)
				assert.Equal(t, 1, *x.Entities)
				assert.True(t, x.Resident)
				assert.False(t, x.Stale)
				assert.Equal(t, x.Node == m.self.Node, x.Local)
			}
			require.Len(t, s.Regions, 3)
			assert.True(t, s.Regions[2].Proxy)
			x, err := api{m.Node}.Explain(t.Context(), "ledger", 3)
			require.NoError(t, err)
			assert.Equal(t, m.home(3).Owner.Node, x.Node)
			assert.NotEmpty(t, x.Cause)
			_, err = api{m.Node}.Explain(t.Context(), "ledger", numShards)
			assert.Equal(t, httpapi.KindUnknownShard, kindOf(err))
			_, err = api{m.Node}.Shards(t.Context(), "nope")
			assert.Equal(t, httpapi.KindUnknownType, kindOf(err))
		}
	})

	t.Run("voters and a pause", func(t *testing.T) {
		for _, paused := range []bool{true, false} {
			require.NoError(t, api{d.Node}.Pause(t.Context(), paused))
			for _, m := range f.all() {
				require.Eventually(t, func() bool {
					v, err := api{m.Node}.Members(t.Context())
					require.NoError(t, err)
					for _, x := range v.Members {
						if x.Voter != (x.Name != "d") { // d has no role coordinator
							return false
						}
					}
					return v.Paused == paused
				}, patience, poll)
			}
		}
	})

	t.Run("a region that does not answer", func(t *testing.T) {
		a.faults.StopReading(transport.Where{Class: transport.Call, Direction: transport.In})
		s, err := api{d.Node}.Shards(t.Context(), "ledger")
		a.faults.Heal()
		require.NoError(t, err, "one silent region is no error of the whole list")
		stale := 0
		for _, x := range s.Shards {
			assert.Equal(t, x.Node == "a", x.Stale)
			assert.Equal(t, x.Stale, x.Entities == nil, "unknown is null and not zero")
			if x.Stale {
				stale++
			}
		}
		assert.Positive(t, stale)
	})

	t.Run("dead letters", func(t *testing.T) {
		frame, err := protocol.AppendFrame(nil, &protocol.Deliver{Type: "ledger", Shard: 1, Sender: c.self, Seq: 1 << 40, Entity: accountOn(2)})
		require.NoError(t, err)
		require.NoError(t, c.transport.Send(b.self, transport.Data, frame))
		require.Eventually(t, func() bool { _, n := b.DeadLetters(); return n > 0 }, patience, poll)
		list, _ := b.DeadLetters()
		assert.Equal(t, accountOn(2), list[len(list)-1].Entity)
		assert.Equal(t, "bad_frame", api{b.Node}.DeadLetters().Letters[0].Reason)
	})
}

func kindOf(err error) httpapi.Kind {
	var p *httpapi.Problem
	if errors.As(err, &p) {
		return p.Kind
	}
	return ""
}

// Spec 2.3, 5.1: while nodes join and leave by SIGTERM, a loop of asks from another node fails none; a node that comes back with its data_dir is a new
// incarnation of itself, and supersedes what was.
func TestMessagesFlowWhileNodesComeAndGo(t *testing.T) {
	f, _, b, c := three(t)
	for s := range numShards {
		c.add(t, accountOn(sharding.ShardID(s)), 0)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var asked, failed atomic.Int64
	for g := range 4 {
		wg.Go(func() {
			for i := g; ctx.Err() == nil; i++ {
				one, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				_, err := c.region().Ask(one, entry{Account: accountOn(sharding.ShardID(i % numShards)), Amount: 1})
				cancel()
				asked.Add(1)
				if err != nil {
					failed.Add(1)
					t.Logf("ask: %v", err)
				}
			}
		})
	}
	f.start(f.config("e"))
	f.settled()
	for s := range sharding.ShardID(4) {
		require.NoError(t, api{c.Node}.MoveShard(ctx, "ledger", s, "e"))
	}
	require.Eventually(t, func() bool { return c.home(3).Owner.Node == "e" }, patience, poll)
	require.NoError(t, f.stop(b))
	was := b.self
	for s := range sharding.ShardID(numShards) {
		assert.NotEqual(t, was, c.home(s).Owner, "the drain left shard %d behind", s)
	}
	bc := b.cfg
	bc.Gossip.Bind, bc.Transport.Bind = b.addr.Gossip, b.addr.Transport
	back := f.start(bc)
	f.settled()
	assert.NotEqual(t, was.Incarnation, back.self.Incarnation)
	assert.Equal(t, b.server, back.server, "it is the same raft server")
	assert.Equal(t, b.dir.Cluster(), back.dir.Cluster())
	require.NoError(t, api{c.Node}.MoveShard(ctx, "ledger", 5, "b"))
	require.Eventually(t, func() bool { return c.home(5).Owner == back.self }, patience, poll)
	stop()
	wg.Wait()
	assert.Positive(t, asked.Load())
	assert.Zero(t, failed.Load(), "of %d asks", asked.Load())
}

// Spec 2.1, 2.6: a leader that is cut off suspends; the majority goes on; no two owners live. What the old leader orders afterwards over its own connections is
// dropped and counted on every node.
func TestPartitionOfTheLeader(t *testing.T) {
	f := newFleet(t)
	for _, n := range []string{"a", "b", "c"} {
		f.start(f.config(n))
	}
	f.settled()
	require.Eventually(t, func() bool { v, err := f.leader().plane.VoterIDs(); return err == nil && len(v) == 3 }, patience, poll)
	old := f.leader()
	_, term := old.data.Leader()
	var rest []*member
	for _, m := range f.all() {
		if m != old {
			rest = append(rest, m)
		}
	}
	for s := range numShards {
		old.add(t, accountOn(sharding.ShardID(s)), 1)
	}
	for i, m := range f.all() { // everybody has some
		for k := range 4 {
			require.Eventually(t, func() bool {
				s := sharding.ShardID(4*i + k)
				if h := old.home(s); h.Owner == m.self && h.State == protocol.Homed {
					return true
				}
				api{old.Node}.MoveShard(t.Context(), "ledger", s, m.self.Node)
				return false
			}, patience, 100*time.Millisecond)
		}
	}
	old.faults.Partition(transport.Where{})
	for _, m := range rest {
		m.faults.Partition(transport.Where{Peer: old.self.Node})
	}
	// The old leader's own shards are suspended once its lease has lapsed: it answers nobody.
	var mine sharding.ShardID
	for s := range sharding.ShardID(numShards) {
		if old.home(s).Owner == old.self {
			mine = s
		}
	}
	require.Eventually(t, func() bool { m := rest[0].home(mine); return m.Owner != old.self && m.State == protocol.Homed }, patience, poll)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	_, err := old.region().Ask(ctx, entry{Account: accountOn(mine), Amount: 1})
	cancel()
	require.Error(t, err, "an owner whose lease has lapsed answered")
	for s := range sharding.ShardID(numShards) {
		for _, m := range rest {
			m.add(t, accountOn(s), 1)
		}
	}
	_, next := rest[0].data.Leader()
	assert.Greater(t, next, term)
	for _, m := range f.all() {
		m.faults.Heal()
	}
	f.settled()
	require.Eventually(t, func() bool { _, now := old.data.Leader(); return now >= next && !old.leads() }, patience, poll)

	// Late orders of the old term.
	owner := rest[0].home(mine)
	orders := []protocol.Message{
		&protocol.HandOff{Term: term, Type: "ledger", Shard: mine, Epoch: owner.Epoch},
		&protocol.KillShard{Term: term, Type: "ledger", Shard: mine, Epoch: owner.Epoch},
		&protocol.ShardHome{Term: term, Type: "ledger", Shard: protocol.ShardRecord{Shard: mine, State: protocol.Homed, Owner: old.self, Epoch: owner.Epoch + 100, Granted: owner.Granted + 100}},
		&protocol.StartShard{Term: term, Type: "ledger", Shard: protocol.ShardRecord{Shard: mine, State: protocol.Homed, Owner: rest[0].self, Epoch: owner.Epoch + 100, Granted: owner.Granted + 100}},
		&protocol.ShardMapUpdate{Term: term, To: sharding.Revision{Term: term, Index: 1 << 40}, Full: true},
		&protocol.LeaseAck{Term: term, Seq: 1, SentAt: 1, TTL: 60_000},
		&protocol.Leading{Term: term},
		&protocol.RegisterAck{Term: term, ClusterID: old.dir.Cluster(), LeaseTTL: 60_000},
	}
	for _, to := range rest {
		before := to.data.Counters().Dropped[region.DropStaleTerm].Load()
		rev := to.data.Members()
		// A harmless word first, so that a connection of the old leader's own stands.
		word, err := protocol.AppendFrame(nil, &protocol.GetShardHome{Type: "nope"})
		require.NoError(t, err)
		for _, o := range orders {
			frame, err := protocol.AppendFrame(nil, o)
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				if old.faults.Inject(to.self, transport.Control, frame) == nil {
					return true
				}
				old.transport.Send(to.self, transport.Control, word)
				return false
			}, patience, poll)
		}
		require.Eventually(t, func() bool {
			return to.data.Counters().Dropped[region.DropStaleTerm].Load()-before == uint64(len(orders))
		}, patience, poll, "on %s", to.self)
		assert.Equal(t, len(rev), len(to.data.Members()))
		assert.Equal(t, owner.Epoch, to.home(mine).Epoch)
		assert.True(t, to.log.contains("reason=stale_term"))
	}
	for s := range sharding.ShardID(numShards) { // and everything is served as before
		for _, m := range f.all() {
			m.add(t, accountOn(s), 1)
		}
	}
}

// Spec 1.4: a strategy is changed for the whole cluster: by module, by digest, and in its limits and configuration alone; a bad one leaves the old.
func TestSwap(t *testing.T) {
	f, a, b, c := three(t)
	for s := range numShards {
		c.add(t, accountOn(sharding.ShardID(s)), 1)
	}
	agree := func(want func(httpapi.StrategyView) bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			for _, m := range f.all() {
				v, err := api{m.Node}.Strategies(t.Context())
				if err != nil || len(v.Strategies) != 1 || !want(v.Strategies[0]) {
					return false
				}
			}
			return true
		}, patience, poll)
	}
	other, err := os.ReadFile(smallModule(t, "log-some"))
	require.NoError(t, err)
	_, err = api{c.Node}.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Module: other, Source: "log-some.wasm"})
	require.NoError(t, err)
	agree(func(v httpapi.StrategyView) bool { return v.Source == "log-some.wasm" })

	fuel := uint64(77_000_000)
	v, err := api{b.Node}.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Limits: &httpapi.Limits{Fuel: &fuel}, Config: json.RawMessage(`{"threshold":3,"half":0.5}`)})
	require.NoError(t, err)
	assert.Equal(t, fuel, v.Fuel.Limit)
	agree(func(v httpapi.StrategyView) bool { return v.Fuel.Limit == fuel && v.Source == "log-some.wasm" })

	first, err := os.ReadFile(smallModule(t, "well-behaved"))
	require.NoError(t, err)
	d, err := a.modules.Put(first)
	require.NoError(t, err)
	// c must fetch both ways; the copies that the swaps before have spread may still be coming in.
	require.Eventually(t, func() bool { return os.RemoveAll(c.dir.Path("modules")) == nil }, patience, poll)
	require.NoError(t, os.MkdirAll(c.dir.Path("modules"), 0o700))
	_, err = api{c.Node}.Swap(t.Context(), httpapi.SwapRequest{Type: "ledger", Digest: (*[32]byte)(&d)})
	require.NoError(t, err)
	agree(func(v httpapi.StrategyView) bool { return v.Digest == "sha256:"+d.String() && v.Fuel.Limit == fuel })

	for name, r := range map[httpapi.Kind]httpapi.SwapRequest{
		httpapi.KindRefusedStrategy: {Type: "ledger", Module: []byte("no wasm")},
		httpapi.KindUnknownModule:   {Type: "ledger", Digest: new([32]byte)},
		httpapi.KindUnknownType:     {Type: "nope", Module: other},
		httpapi.KindBadRequest:      {Type: "ledger", Config: json.RawMessage(`[1]`)},
	} {
		_, err := api{b.Node}.Swap(t.Context(), r)
		assert.Equal(t, name, kindOf(err), "%v", err)
	}
	agree(func(v httpapi.StrategyView) bool { return v.Digest == "sha256:"+d.String() })

	// A server that has lost its modules fetches what is active as soon as it knows what that is.
	require.NoError(t, f.stop(b))
	require.NoError(t, os.RemoveAll(b.dir.Path("modules")))
	bc := b.cfg
	bc.Gossip.Bind, bc.Transport.Bind = b.addr.Gossip, b.addr.Transport
	bc.Types[0].Strategy = "sha256:" + d.String() // nothing on its own disk
	back := f.start(bc)
	f.settled()
	require.Eventually(t, func() bool { return back.modules.Has(d) }, patience, poll)
	for s := range numShards {
		c.add(t, accountOn(sharding.ShardID(s)), 1)
	}
}

// Each metric of the node is documented, with its type and its labels, and no other is (docs/metrics.md).
func TestMetricsAreDocumented(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	a.add(t, "x", 1)
	f.settled()
	scrape(t, a.addr.HTTP) // the second shows the first
	page := scrape(t, a.addr.HTTP)
	doc, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for line := range strings.Lines(string(doc)) {
		if cells := strings.Split(line, "|"); len(cells) > 4 && strings.HasPrefix(strings.TrimSpace(cells[1]), "`drover_") {
			documented[strings.Trim(strings.TrimSpace(cells[1]), "`")] = strings.TrimSpace(strings.TrimSpace(cells[2]) + " " + strings.ReplaceAll(strings.TrimSpace(cells[3]), "`", ""))
		}
	}
	labels := map[string]string{"drover_coordinator_events_total": "kind", "drover_http_requests_total": "route, status", "drover_http_request_seconds": "route"}
	for _, d := range metricDocs {
		labels[d.name] = strings.Join(d.labels, ", ")
	}
	seen := map[string]bool{}
	for line := range strings.Lines(page) {
		name, typ, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# TYPE "), " ")
		if !ok || !strings.HasPrefix(line, "# TYPE drover_") {
			continue
		}
		seen[name] = true
		want, known := documented[name]
		assert.True(t, known, "%s is not in docs/metrics.md", name)
		assert.Equal(t, want, strings.TrimSpace(typ+" "+labels[name]), "%s", name)
	}
	for name := range documented {
		_, known := labels[name]
		assert.True(t, known, "docs/metrics.md has %s, which there is not", name)
	}
	for name := range labels {
		_, known := documented[name]
		assert.True(t, known, "%s is not in docs/metrics.md", name)
		if !strings.Contains(name, "refused") { // only shown once a connection was refused
			assert.True(t, seen[name], "%s is never shown", name)
		}
	}
	assert.Contains(t, page, `drover_asks_total 1`)
	assert.Contains(t, page, `drover_leader 1`)
	assert.Contains(t, page, `drover_members{state="up"} 1`)
}

// Spec 5.1: "without another node to go to it ends at once": nodes that are all told to end at the same time do not wait for one another until shutdown_timeout.
func TestAllEndTogether(t *testing.T) {
	f := newFleet(t)
	for _, n := range []string{"a", "b", "c"} {
		f.start(f.config(n))
	}
	f.settled()
	for s := range numShards {
		f.all()[s%3].add(t, accountOn(sharding.ShardID(s)), 1)
	}
	began := time.Now()
	all := f.all()
	for _, m := range all {
		m.cancel()
	}
	for _, m := range all {
		require.NoError(t, f.stop(m))
	}
	assert.Less(t, time.Since(began), all[0].cfg.ShutdownTimeout*3/4, "they waited for their time-outs")
}
