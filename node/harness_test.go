package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

const (
	patience = 60 * time.Second // of a loaded machine under the race detector
	poll     = 20 * time.Millisecond
)

// ledger is a user's own entity with its own types. It notes under which epoch it acts.
type ledger struct {
	f     *fleet
	node  sharding.NodeID
	total int
}

type entry struct {
	Account string
	Amount  int
	Do      string
}

type receipt struct {
	Node  sharding.NodeID
	Epoch sharding.Epoch
	Total int
}

func (l *ledger) Receive(ctx sharding.Context, e entry) (receipt, error) {
	switch e.Do {
	case "refuse":
		return receipt{}, fmt.Errorf("account %s is closed", ctx.ID())
	case "panic":
		panic("on request")
	case "never":
		ctx.Later()
		return receipt{}, nil
	case "later":
		answer := ctx.Later()
		r := receipt{l.node, ctx.Epoch(), l.total}
		go answer(r, nil)
		return receipt{}, nil
	}
	l.f.note(ctx.Shard(), ctx.Epoch(), l.node)
	l.total += e.Amount
	return receipt{l.node, ctx.Epoch(), l.total}, nil
}

// Stop hangs where a test wants it to, against its context.
func (l *ledger) Stop(sharding.Context) {
	if l.f.hang != nil {
		<-l.f.hang
	}
}

// fleet is the nodes of one test.
type fleet struct {
	t     *testing.T
	hang  chan struct{}
	alone bool // what is started now joins nobody

	leaderPatience time.Duration // of what is started now

	mu     sync.Mutex
	nodes  map[string]*member
	newest map[sharding.ShardID]sharding.Epoch // begun so far
	who    map[sharding.ShardID]map[sharding.Epoch]sharding.NodeID
}

type member struct {
	*Node
	cfg    *Config
	addr   Addresses
	faults *transport.Faults
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	log    *lockedBuffer
}

func newFleet(t *testing.T) *fleet {
	t.TempDir() // the first one of a test registers that all of them are removed: after the nodes have ended
	f := &fleet{t: t, nodes: map[string]*member{}, newest: map[sharding.ShardID]sharding.Epoch{}, who: map[sharding.ShardID]map[sharding.Epoch]sharding.NodeID{}}
	t.Cleanup(func() {
		for _, m := range f.all() {
			m.cancel()
		}
		for _, m := range f.all() {
			<-m.done
			if t.Failed() {
				t.Logf("log of %s:\n%s", m.cfg.Name, m.log.tail())
			}
		}
		noLeaks(t)
	})
	return f
}

// note checks I1 and I2 as the entities see them: nothing of an epoch begins after something of a higher one has, and one epoch is one node's.
func (f *fleet) note(s sharding.ShardID, e sharding.Epoch, n sharding.NodeID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e < f.newest[s] {
		f.t.Errorf("two live owners: shard %d began under epoch %d on %s after epoch %d", s, e, n, f.newest[s])
	}
	f.newest[s] = max(e, f.newest[s])
	if f.who[s] == nil {
		f.who[s] = map[sharding.Epoch]sharding.NodeID{}
	}
	if other, ok := f.who[s][e]; ok && other != n {
		f.t.Errorf("epoch %d of shard %d is of %s and of %s", e, s, other, n)
	}
	f.who[s][e] = n
}

func (f *fleet) kind() sharding.Kind { return f.kindFor("") }

func (f *fleet) kindFor(n sharding.NodeID) sharding.Kind {
	return sharding.NewKind("ledger", func(sharding.Context) sharding.Entity[entry, receipt] { return &ledger{f: f, node: n} }, sharding.Options[entry, receipt]{})
}

func (f *fleet) all() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*member
	for _, m := range f.nodes {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *member) int { return strings.Compare(a.cfg.Name, b.cfg.Name) })
	return out
}

const numShards = 12

// smallModule is a strategy that compiles in no time: it homes one shard at a time, on the first candidate, and moves nothing.
func smallModule(t *testing.T, name string) string {
	path, err := filepath.Abs(filepath.Join("..", "host", "testdata", "attack", name+".wasm"))
	require.NoError(t, err)
	return path
}

// config is that of a quick node.
func (f *fleet) config(name string) *Config {
	c := config.Default()
	c.Name, c.DataDir = name, filepath.Join(f.t.TempDir(), name)
	c.Gossip.Bind, c.Transport.Bind, c.HTTP.Address = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	c.ShutdownTimeout = 20 * time.Second
	c.Raft.HeartbeatTimeout = 500 * time.Millisecond
	c.Sharding.LeaseTTL, c.Sharding.HandoffTimeout = 1500*time.Millisecond, 5*time.Second
	c.Sharding.RebalanceInterval, c.Sharding.MoveCooldown, c.Sharding.Settle = 300*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	ty := config.DefaultType()
	ty.Name, ty.Entity, ty.Shards, ty.Strategy, ty.Budget = "ledger", "ledger", numShards, smallModule(f.t, "well-behaved"), time.Minute
	c.Types = []config.Type{ty}
	return c
}

// start starts a node and waits until it serves HTTP. Without other addresses it joins the nodes that are there.
func (f *fleet) start(c *Config) *member {
	f.t.Helper()
	m, err := f.tryStart(c)
	require.NoError(f.t, err)
	return m
}

func (f *fleet) tryStart(c *Config) (*member, error) {
	if len(c.Gossip.Join) == 0 && !f.alone {
		for _, m := range f.all() {
			if m.cfg.Name != c.Name {
				c.Gossip.Join = append(c.Gossip.Join, m.addr.Gossip)
			}
		}
	}
	m := &member{cfg: c, faults: transport.NewFaults(1), done: make(chan struct{}), log: &lockedBuffer{}}
	started := make(chan Addresses, 1)
	n, err := New(c, Options{Logger: slog.New(slog.NewTextHandler(m.log, nil)), Faults: m.faults, FastGossip: true, leaderPatience: f.leaderPatience, Started: func(a Addresses) { started <- a }},
		f.kindFor(sharding.NodeID(c.Name)))
	if err != nil {
		return nil, err
	}
	m.Node = n
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() { defer close(m.done); m.err = n.Run(ctx) }()
	select {
	case m.addr = <-started:
	case <-m.done:
		cancel()
		return nil, m.err
	}
	f.mu.Lock()
	f.nodes[c.Name] = m
	f.mu.Unlock()
	return m, nil
}

// stop ends a node as SIGTERM does, and gives Run's error.
func (f *fleet) stop(m *member) error {
	m.cancel()
	select {
	case <-m.done:
	case <-time.After(patience):
		f.t.Fatalf("%s does not end:\n%s", m.cfg.Name, m.log.tail())
	}
	f.mu.Lock()
	delete(f.nodes, m.cfg.Name)
	f.mu.Unlock()
	return m.err
}

// settled waits until every node is ready and all see as many members.
func (f *fleet) settled() {
	f.t.Helper()
	all := f.all()
	require.Eventually(f.t, func() bool {
		for _, m := range all {
			if !(api{m.Node}).Ready().Ready || len(m.data.Members()) != len(all) {
				return false
			}
		}
		return true
	}, patience, poll)
}

func (f *fleet) leader() *member {
	f.t.Helper()
	var found *member
	require.Eventually(f.t, func() bool {
		for _, m := range f.all() {
			if m.leads() {
				found = m
				return true
			}
		}
		return false
	}, patience, poll)
	return found
}

func (m *member) region() sharding.Region[entry, receipt] {
	return sharding.RegionOf[entry, receipt](m.Node, "ledger", func(e entry) string { return e.Account }, sharding.Options[entry, receipt]{})
}

// add asks until it is answered, as a client may after ErrUnavailable.
func (m *member) add(t *testing.T, account string, amount int) receipt {
	t.Helper()
	var r receipt
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var err error
		r, err = m.region().Ask(ctx, entry{Account: account, Amount: amount})
		return err == nil
	}, patience, poll)
	return r
}

func accountOn(shard sharding.ShardID) string {
	for i := 0; ; i++ {
		if id := fmt.Sprint("account-", i); sharding.ShardOf(id, numShards) == shard {
			return id
		}
	}
}

// home gives a shard's record, as a node's map has it.
func (m *member) home(s sharding.ShardID) protocol.ShardRecord { return m.data.Home("ledger", s) }

// lockedBuffer takes a node's log, and keeps its end.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.b.Bytes()
	return string(b[max(0, len(b)-6000):])
}

func (l *lockedBuffer) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.b.Bytes(), []byte(s))
}

// noLeaks waits until no goroutine of Drover or of what it stands on is left.
func noLeaks(t *testing.T) {
	t.Helper()
	var mu sync.Mutex // assert.Eventually leaves its last look behind
	var told string
	ok := assert.Eventually(t, func() bool {
		buf := make([]byte, 4<<20)
		buf = buf[:runtime.Stack(buf, true)]
		left := ""
		for g := range strings.SplitSeq(string(buf), "\n\n") {
			if strings.Contains(g, "testing.tRunner") || strings.Contains(g, "node.noLeaks") || strings.Contains(g, "goroutine 1 [") {
				continue
			}
			// raft 1.8 never answers a transfer of leadership that is still in its queue when it ends: whoever waits for it stays.
			if strings.Contains(g, "raft.(*deferError).Error") && strings.Contains(g, "controlplane.wait.func1") {
				continue
			}
			if strings.Contains(g, "droverhq/drover") || strings.Contains(g, "hashicorp/") || strings.Contains(g, "google.golang.org/grpc") {
				left += g + "\n\n"
			}
		}
		mu.Lock()
		defer mu.Unlock()
		told = left
		return left == ""
	}, 15*time.Second, 50*time.Millisecond)
	if !ok {
		mu.Lock()
		defer mu.Unlock()
		t.Logf("goroutines left:\n%s", told[:min(len(told), 8000)])
	}
}

// scrape gets a node's metrics over HTTP.
func scrape(t *testing.T, address string) string {
	t.Helper()
	r, err := http.Get("http://" + address + "/metrics")
	require.NoError(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	return string(b)
}
