package node

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/sharding"
)

// Spec 5.1: a node without join addresses founds a cluster by itself and serves its own kinds.
func TestOneNode(t *testing.T) {
	f := newFleet(t)
	c := f.config("a")
	unborn, err := New(c, Options{}, f.kind())
	require.NoError(t, err)
	_, err = sharding.RegionOf[entry, receipt](unborn, "ledger", nil, sharding.Options[entry, receipt]{}).Entity("x").Ask(t.Context(), entry{})
	require.ErrorIs(t, err, sharding.ErrUnavailable, "a node that does not run yet")
	_, open := <-unborn.ShardMapChanged(t.Context(), "ledger")
	assert.False(t, open)

	a := f.start(c)
	// An EntityRef works at once, before any shard has a home and before the node has founded its cluster.
	ref := a.region().Entity("first")
	r, err := ref.Ask(t.Context(), entry{Amount: 2})
	require.NoError(t, err)
	assert.Equal(t, receipt{"a", r.Epoch, 2}, r)
	assert.Positive(t, r.Epoch)
	f.settled()

	_, err = ref.Ask(t.Context(), entry{Do: "refuse"})
	var said *sharding.EntityError
	require.ErrorAs(t, err, &said)
	assert.Equal(t, "account first is closed", said.Text)
	r, err = ref.Ask(t.Context(), entry{Do: "later"})
	require.NoError(t, err)
	assert.Equal(t, 2, r.Total)
	_, err = sharding.RegionOf[entry, receipt](a.Node, "nope", nil, sharding.Options[entry, receipt]{}).Entity("x").Ask(t.Context(), entry{})
	require.ErrorIs(t, err, sharding.ErrNoType)

	view, err := api{a.Node}.Members(t.Context())
	require.NoError(t, err)
	require.Len(t, view.Members, 1)
	assert.True(t, view.Members[0].Leader)
	assert.Equal(t, httpapi.MemberUp, view.Members[0].State)
	leader, ok := api{a.Node}.Leader()
	require.True(t, ok)
	assert.Equal(t, a.addr.Transport, leader.Address)
	assert.Equal(t, a.addr.HTTP, a.data.Members()[0].Info.HTTP, "others are told the port of the file and not the one that is bound")

	began := time.Now()
	require.NoError(t, f.stop(a))
	assert.Less(t, time.Since(began), 10*time.Second, "without another node to go to it ends at once (spec 5.1)")
	require.ErrorContains(t, a.Run(t.Context()), "run already")
	require.ErrorIs(t, ref.Tell(entry{}), sharding.ErrUnavailable)
}

// Each error at the start names the thing and the next step, and leaves nothing behind.
func TestErrorsAtStart(t *testing.T) {
	f := newFleet(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := taken.Addr().String()
	for _, c := range []struct {
		name   string
		change func(*Config)
		says   []string
	}{
		{"transport", func(c *Config) { c.Transport.Bind = port }, []string{"transport.bind", port, "in use", "choose"}},
		{"http", func(c *Config) { c.HTTP.Address = port }, []string{"http.address", port, "in use"}},
		{"gossip", func(c *Config) { c.Gossip.Bind = port }, []string{"gossip.bind", port, "in use", "choose another"}},
		{"module", func(c *Config) { c.Types[0].Strategy = filepath.Join(t.TempDir(), "no.wasm") }, []string{`type "ledger"`, "no.wasm", "no such file"}},
		{"strategy", func(c *Config) { c.Types[0].Strategy = smallModule(t, "../admission/export-abi.missing") }, []string{`type "ledger"`, "export-abi"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := f.config("a")
			c.change(cfg)
			_, err := f.tryStart(cfg)
			require.Error(t, err)
			for _, s := range c.says {
				assert.ErrorContains(t, err, s)
			}
			noLeaks(t)
		})
	}
	t.Run("kind twice", func(t *testing.T) {
		_, err := New(f.config("a"), Options{}, f.kind(), f.kind())
		require.ErrorContains(t, err, `"ledger" is given twice`)
	})
	t.Run("entity without a kind", func(t *testing.T) {
		cfg := f.config("a")
		cfg.Types[0].Entity = "nobody"
		_, err := New(cfg, Options{}, f.kind())
		require.ErrorContains(t, err, "nobody")
	})
}

// A data_dir has one process; a node of another cluster is refused with both IDs (spec 2.1).
func TestForeignCluster(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.settled()
	again := f.config("b")
	again.DataDir = a.cfg.DataDir
	_, err := f.tryStart(again)
	require.ErrorContains(t, err, "in use by another drover process")

	f.alone = true
	stranger := f.config("s")
	s := f.start(stranger)
	require.Eventually(t, func() bool { return api{s.Node}.Ready().Ready }, patience, poll)
	require.NoError(t, f.stop(s))
	stranger.Gossip.Join = []string{a.addr.Gossip}
	m, err := f.tryStart(stranger)
	require.NoError(t, err, "joining goes on behind the start")
	select {
	case <-m.done:
	case <-time.After(patience):
		t.Fatal("a node of another cluster goes on trying")
	}
	f.mu.Lock()
	delete(f.nodes, "s")
	f.mu.Unlock()
	require.ErrorContains(t, m.err, "belongs to another cluster")
	require.ErrorContains(t, m.err, a.dir.Cluster().String())
	require.ErrorContains(t, m.err, "gossip.join")
}

// Spec 2.1: one number of shards a type in the whole cluster.
func TestOtherNumberOfShards(t *testing.T) {
	f := newFleet(t)
	f.start(f.config("a"))
	f.settled()
	c := f.config("b")
	c.Types[0].Shards = numShards + 1
	m, err := f.tryStart(c)
	require.NoError(t, err)
	select {
	case <-m.done:
	case <-time.After(patience):
		t.Fatal("a node with another number of shards goes on")
	}
	f.mu.Lock()
	delete(f.nodes, "b")
	f.mu.Unlock()
	require.ErrorContains(t, m.err, "12 shards")
	require.ErrorContains(t, m.err, "13")
	assert.True(t, IsConfig(m.err))
}

// Spec 2.3, 5.1: an entity whose Stop hangs does not hold up the end for longer than shutdown_timeout.
func TestStopThatHangs(t *testing.T) {
	f := newFleet(t)
	f.hang = make(chan struct{})
	c := f.config("a")
	c.ShutdownTimeout = 2 * time.Second
	a := f.start(c)
	a.add(t, "x", 1)
	began := time.Now()
	require.NoError(t, f.stop(a))
	took := time.Since(began)
	close(f.hang)
	assert.Less(t, took, c.ShutdownTimeout+3*time.Second)
	assert.True(t, a.log.contains("abandoned"), "nobody is told: %s", a.log.tail())
}

// A peer that sends while the node fails to start must not hold up the end of that start.
func TestFailedStartWithFramesWaiting(t *testing.T) {
	f := newFleet(t)
	n, err := New(f.config("a"), Options{}, f.kind())
	require.NoError(t, err)
	h := handler{n}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Down(sharding.Member{Node: "b"}, 2, nil)
		h.Up(sharding.Member{Node: "b"}, 2)
		if _, err := n.fetchModule(context.Background(), [32]byte{}); err == nil || !strings.Contains(err.Error(), "stopping") {
			t.Errorf("fetch: %v", err)
		}
	}()
	close(n.ended)
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("what waits for the node waits for ever")
	}
}
