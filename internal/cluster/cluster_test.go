package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

// watcher keeps the newest list of members.
type watcher struct {
	mu   sync.Mutex
	list []Member
}

func (w *watcher) set(m []Member) { w.mu.Lock(); w.list = m; w.mu.Unlock() }

func (w *watcher) find(name string) (Member, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.list, func(m Member) bool { return string(m.Name) == name })
	if i < 0 {
		return Member{}, false
	}
	return w.list[i], true
}

func open(t *testing.T, name string, change func(*Config)) (*Cluster, *watcher) {
	t.Helper()
	w := &watcher{}
	cfg := Config{Name: sharding.NodeID(name), Bind: "127.0.0.1:0", Fast: true, Logger: slog.New(slog.DiscardHandler), OnChange: w.set,
		Info: Info{Incarnation: sharding.NewIncarnation(), Transport: "127.0.0.1:1", Roles: []string{"compute"}, Zone: "z", Tags: map[string]string{"rack": "7"}}}
	if change != nil {
		change(&cfg)
	}
	c, err := Open(cfg)
	require.NoError(t, err)
	return c, w
}

func sees(w *watcher, name string, s Status) func() bool {
	return func() bool { m, ok := w.find(name); return ok && m.Status == s }
}

const (
	patience = 20 * time.Second
	poll     = 20 * time.Millisecond
)

// Spec 2.1, 2.2: join, leave, failure, and a quick restart that shows as a new incarnation.
func TestMembershipLife(t *testing.T) {
	a, wa := open(t, "a", nil)
	defer a.Close()
	b, wb := open(t, "b", func(c *Config) { c.Join = []string{a.Addr()} })
	require.NoError(t, b.Join(context.Background()))
	require.Eventually(t, sees(wa, "b", Up), patience, poll)
	require.Eventually(t, sees(wb, "a", Up), patience, poll)
	m, _ := wa.find("b")
	assert.Equal(t, "z", m.Zone)
	assert.Equal(t, map[string]string{"rack": "7"}, m.Tags)
	assert.Equal(t, []string{"compute"}, m.Roles)

	addr := b.Addr()
	require.NoError(t, b.Close()) // no word: as kill -9
	b, _ = open(t, "b", func(c *Config) { c.Bind = addr; c.Join = []string{a.Addr()} })
	require.NoError(t, b.Join(context.Background()), "a node rejoins at once under its old address")
	require.Eventually(t, func() bool { n, ok := wa.find("b"); return ok && n.Status == Up && n.Incarnation != m.Incarnation }, patience, poll)

	require.NoError(t, b.Leave())
	require.Eventually(t, sees(wa, "b", Left), patience, poll)
	b.Close()

	c, _ := open(t, "c", func(c *Config) { c.Join = []string{a.Addr()} })
	require.NoError(t, c.Join(context.Background()))
	require.Eventually(t, sees(wa, "c", Up), patience, poll)
	require.NoError(t, c.Close())
	require.Eventually(t, sees(wa, "c", Failed), patience, poll)
}

// Spec 5.1: after a crash a node comes back at another address once memberlist lets the name go.
func TestRestartAtAnotherAddress(t *testing.T) {
	a, wa := open(t, "a", func(c *Config) { c.ReclaimAfter = 200 * time.Millisecond })
	defer a.Close()
	b, _ := open(t, "b", func(c *Config) { c.Join = []string{a.Addr()} })
	require.NoError(t, b.Join(context.Background()))
	require.Eventually(t, sees(wa, "b", Up), patience, poll)
	require.NoError(t, b.Close())
	b, _ = open(t, "b", func(c *Config) { c.Join = []string{a.Addr()} })
	defer b.Close()
	require.NoError(t, b.Join(context.Background()))
	require.Eventually(t, func() bool { m, ok := wa.find("b"); return ok && m.Status == Up && m.Gossip == b.Addr() }, patience, poll)
}

// Spec 2.1: a merge with another cluster ID is refused, and names both.
func TestOtherClusterIsRefused(t *testing.T) {
	a, wa := open(t, "a", func(c *Config) { c.Info.ClusterID = sharding.NewIncarnation() })
	defer a.Close()
	b, _ := open(t, "b", func(c *Config) { c.Info.ClusterID = sharding.NewIncarnation(); c.Join = []string{a.Addr()} })
	defer b.Close()
	err := b.Join(context.Background())
	var other *OtherClusterError
	require.ErrorAs(t, err, &other)
	assert.Equal(t, sharding.NodeID("a"), other.Node)
	_, found := wa.find("b")
	assert.False(t, found)
}

// Spec 5.1: another cluster's key ends the start, whichever side lacks it.
func TestOtherKeyIsRefused(t *testing.T) {
	key := func(b byte) [][]byte { return [][]byte{[]byte(strings.Repeat(string(b), 32))} }
	for name, keys := range map[string][2][][]byte{"different": {key('a'), key('b')}, "ours only": {nil, key('b')}, "theirs only": {key('a'), nil}} {
		t.Run(name, func(t *testing.T) {
			a, _ := open(t, "a", func(c *Config) { c.Keys = keys[0] })
			defer a.Close()
			b, _ := open(t, "b", func(c *Config) { c.Keys = keys[1]; c.Join = []string{a.Addr()} })
			defer b.Close()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var mismatch *KeyError
			require.ErrorAs(t, b.Join(ctx), &mismatch)
		})
	}
}

// A key ring with the old key second lets keys be rotated.
func TestKeyRotation(t *testing.T) {
	old, fresh := []byte(strings.Repeat("o", 32)), []byte(strings.Repeat("n", 32))
	a, wa := open(t, "a", func(c *Config) { c.Keys = [][]byte{old, fresh} })
	defer a.Close()
	b, _ := open(t, "b", func(c *Config) { c.Keys = [][]byte{fresh, old}; c.Join = []string{a.Addr()} })
	defer b.Close()
	require.NoError(t, b.Join(context.Background()))
	require.Eventually(t, sees(wa, "b", Up), patience, poll)
}

func TestPortInUseNamesIt(t *testing.T) {
	a, _ := open(t, "a", nil)
	defer a.Close()
	_, err := Open(Config{Name: "b", Bind: a.Addr(), Logger: slog.New(slog.DiscardHandler), OnChange: func([]Member) {}})
	require.ErrorContains(t, err, "in use")
	require.ErrorContains(t, err, a.Addr())
}

func TestJoinGivesUpWithItsContext(t *testing.T) {
	a, _ := open(t, "a", func(c *Config) { c.Join = []string{"127.0.0.1:1"} })
	defer a.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, a.Join(ctx), context.DeadlineExceeded)
}

func TestTagsRoundTrip(t *testing.T) {
	i := Info{Incarnation: sharding.NewIncarnation(), ClusterID: sharding.NewIncarnation(), Server: sharding.NewIncarnation(), Transport: "h:1", HTTP: "h:2",
		Roles: []string{"a", "b"}, Zone: "z", Version: "1", Expect: 3, Tags: map[string]string{"": "empty key", "r": "not the roles"}}
	back, err := decodeTags(encodeTags(i))
	require.NoError(t, err)
	assert.Equal(t, i, back)
	_, err = decodeTags(map[string]string{"role": "consul"})
	assert.ErrorContains(t, err, "no Drover node")
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{tagMagic, 0x81, 0xa1, 'i', 0xa1, 'x'})
	f.Fuzz(func(t *testing.T, meta []byte) {
		if tags, err := decodeMeta(meta); err == nil {
			_, _ = decodeTags(tags)
		}
	})
}

// Spec 5.1: after all nodes of a cluster have ended, those that start first find the others once they start too, without a join address: also when
// the others know nobody any more, and although everybody has seen everybody leave.
func TestRememberedMembersAreSought(t *testing.T) {
	dir := t.TempDir()
	remembering := func(name string) func(*Config) {
		return func(c *Config) { c.Snapshot, c.Remember = dir+"/"+name+".snapshot", dir+"/"+name+".json" }
	}
	a, wa := open(t, "a", remembering("a"))
	b, wb := open(t, "b", func(c *Config) { remembering("b")(c); c.Join = []string{a.Addr()} })
	require.NoError(t, b.Join(context.Background()))
	require.Eventually(t, sees(wa, "b", Up), patience, poll)
	require.Eventually(t, sees(wb, "a", Up), patience, poll)
	addr := b.Addr()
	require.NoError(t, b.Leave())
	require.Eventually(t, sees(wa, "b", Left), patience, poll)
	require.NoError(t, b.Close())
	require.NoError(t, a.Leave())
	require.NoError(t, a.Close())

	a, wa = open(t, "a", remembering("a"))
	defer a.Close()
	b, wb = open(t, "b", func(c *Config) { c.Bind = addr })
	defer b.Close()
	require.Eventually(t, sees(wa, "b", Up), patience, poll)
	require.Eventually(t, sees(wb, "a", Up), patience, poll)

	// A forgotten member is not sought.
	require.NoError(t, b.Leave())
	require.Eventually(t, sees(wa, "b", Left), patience, poll)
	require.NoError(t, a.Forget("b"))
	require.Eventually(t, func() bool {
		m, err := recall(dir + "/a.json")
		return err == nil && len(m) == 0
	}, patience, poll)
}

// Spec 5.2: without TLS a node binds to loopback alone. memberlist by itself takes a name for every address of the machine.
func TestNameToBindIsResolved(t *testing.T) {
	a, _ := open(t, "a", func(c *Config) { c.Bind = "localhost:0" })
	defer a.Close()
	host, _, err := net.SplitHostPort(a.Addr())
	require.NoError(t, err)
	assert.True(t, net.ParseIP(host).IsLoopback(), host)
	_, err = Open(Config{Name: "b", Bind: "no-such-host.invalid:0", Logger: slog.New(slog.DiscardHandler), OnChange: func([]Member) {}})
	require.ErrorContains(t, err, "no-such-host.invalid")
}

// Addresses that take a connection and never answer hold up neither the end of a join nor that of the node: memberlist waits ten seconds for each.
func TestSilentAddressesHoldNothingUp(t *testing.T) {
	remembered := memory{}
	var silent []string
	for i := range 5 {
		l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
		require.NoError(t, err)
		defer l.Close()
		silent = append(silent, l.Addr().String())
		remembered[sharding.NodeID(fmt.Sprint("gone-", i))] = l.Addr().String()
	}
	file := filepath.Join(t.TempDir(), "members.json")
	b, err := json.Marshal(remembered)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, b, 0o600))
	a, _ := open(t, "a", func(c *Config) { c.Remember, c.Join = file, silent })
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*seekFirst) // seek is at work too by then
	defer cancel()
	require.ErrorIs(t, a.Join(ctx), context.DeadlineExceeded)
	require.NoError(t, a.Close())
	assert.Less(t, time.Since(began), 5*time.Second)
}

// A disk that is full is told once a minute, and what could not be written is written as soon as it can be.
func TestRememberOnAFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not-yet")
	var log lockedBuffer
	a, wa := open(t, "a", func(c *Config) {
		c.Remember, c.Logger = filepath.Join(dir, "members.json"), slog.New(slog.NewTextHandler(&log, nil))
	})
	defer a.Close()
	for _, name := range []string{"b", "c"} {
		m, _ := open(t, name, func(c *Config) { c.Join = []string{a.Addr()} })
		defer m.Close()
		require.NoError(t, m.Join(t.Context()))
		require.Eventually(t, sees(wa, name, Up), patience, poll)
	}
	require.Eventually(t, func() bool { return log.count("cannot be written") == 1 }, patience, poll)
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.Eventually(t, func() bool {
		a.poke() // as the tick does
		m, err := recall(filepath.Join(dir, "members.json"))
		return err == nil && len(m) == 2
	}, patience, poll)
	assert.Equal(t, 1, log.count("cannot be written"))
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.b.Bytes(), []byte(s))
}

// Tags that change without end make no more work than a change each pause, after the first few; the last one arrives.
func TestTagStorm(t *testing.T) {
	var mu sync.Mutex
	told, zone := 0, ""
	a, _ := open(t, "a", func(c *Config) {
		c.OnChange = func(m []Member) { mu.Lock(); defer mu.Unlock(); told++; zone = m[0].Zone }
	})
	defer a.Close()
	began := time.Now()
	last := ""
	for i := 0; time.Since(began) < 2*time.Second; i++ {
		last = fmt.Sprint(i)
		require.NoError(t, a.Update(func(info *Info) { info.Zone = last }))
	}
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return zone == last }, patience, poll)
	mu.Lock()
	defer mu.Unlock()
	assert.LessOrEqual(t, told, atOnce+2+int(time.Since(began)/pause))
}

// Names without end fill nobody's memory: whoever knows the key can make them up.
func TestMembersAreBounded(t *testing.T) {
	a, _ := open(t, "a", nil)
	defer a.Close()
	stranger, _ := open(t, "x", nil)
	node := *stranger.serf.Memberlist().LocalNode()
	require.NoError(t, stranger.Close())
	require.NoError(t, guard{a}.check(&node))
	names := map[string]bool{}
	for i := range MaxMembers {
		names[fmt.Sprint(i)] = true
	}
	a.names.Store(&names)
	require.ErrorContains(t, guard{a}.check(&node), "no more are taken")
	known := memberlist.Node{Name: "7", Addr: node.Addr, Port: node.Port, Meta: node.Meta}
	require.NoError(t, guard{a}.check(&known), "one that is a member stays one")
}

// Two nodes of one name: the one that lives keeps it, the other is told who has it; a dead one's name is free, once it may be announced again.
func TestNameTaken(t *testing.T) {
	a, _ := open(t, "a", nil)
	defer a.Close()
	twin, _ := open(t, "a", nil)
	node := *twin.serf.Memberlist().LocalNode()
	at := twin.Addr()
	require.NoError(t, twin.Close())
	for _, state := range []memberlist.NodeStateType{memberlist.StateAlive, memberlist.StateSuspect} {
		node.State = state
		var taken *NameTakenError
		require.ErrorAs(t, guard{a}.check(&node), &taken)
		assert.Equal(t, at, taken.Address)
	}
	assert.False(t, a.moved)
	node.State = memberlist.StateDead
	require.NoError(t, guard{a}.check(&node))
	assert.True(t, a.moved)
}
