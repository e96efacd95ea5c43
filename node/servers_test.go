package node

import (
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/cluster"
	"github.com/droverhq/drover/internal/controlplane"
	"github.com/droverhq/drover/internal/datadir"
	"github.com/droverhq/drover/internal/modules"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// Spec 2.1: a node whose disk was wiped comes back as another raft server. The one that it had before never comes back, and loses its seat: a node that is up
// cannot be forgotten, and a dead seat counts towards the quorum.
func TestWipedDiskLosesItsSeat(t *testing.T) {
	t.Run("all of it", func(t *testing.T) { wipedDisk(t, func(f *fleet, m *member) *Config { return f.config(m.cfg.Name) }) }) // another data_dir, another address
	t.Run("the log alone", func(t *testing.T) {
		wipedDisk(t, func(_ *fleet, m *member) *Config {
			require.NoError(t, os.RemoveAll(filepath.Join(m.cfg.DataDir, datadir.RaftDir)))
			return m.cfg
		})
	})
}

func wipedDisk(t *testing.T, wipe func(*fleet, *member) *Config) {
	f := newFleet(t)
	for _, n := range []string{"a", "b", "c"} {
		f.start(f.config(n))
	}
	f.settled()
	leader := f.leader()
	require.Eventually(t, func() bool { v, err := leader.plane.VoterIDs(); return err == nil && len(v) == 3 }, patience, poll)
	var wiped *member
	for _, m := range f.all() {
		if m != leader {
			wiped = m
		}
	}
	require.Eventually(t, func() (all bool) {
		leader.plane.View(func() { all = len(leader.machine.State().Servers()) == 3 })
		return all
	}, patience, poll)
	require.NoError(t, f.stop(wiped))
	again := f.start(wipe(f, wiped))
	require.NotEqual(t, wiped.server, again.server)
	require.Eventually(t, func() bool {
		v, err := f.leader().plane.VoterIDs()
		return err == nil && len(v) == 3 && slices.Contains(v, again.server) && !slices.Contains(v, wiped.server)
	}, patience, poll)
	f.settled()
	var known int
	leader = f.leader()
	require.True(t, leader.plane.View(func() { known = len(leader.machine.State().Servers()) }))
	assert.Equal(t, 3, known, "it is not known any more")
}

// Spec 1.4: a server votes once it has the log and the active modules, and is sent those that it lacks; a spare that has them is not sent them again each time
// that it is asked.
func TestSparesGetTheModulesTheyLack(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.settled()
	module, err := os.ReadFile(smallModule(t, "well-behaved"))
	require.NoError(t, err)
	module = padded(module, 64<<10)
	present, err := a.strategyOf(t.Context(), "ledger")
	require.NoError(t, err)
	spec := present.Spec
	spec.Digest, err = a.putModule(module)
	require.NoError(t, err)
	answer, err := a.request(t.Context(), coordinator.SwapStrategy{Type: "ledger", Spec: spec, Expect: &present.Seq, Cause: protocol.CauseSwap})
	require.NoError(t, err)
	require.Empty(t, answer.Err)

	f.start(f.config("b"))
	f.start(f.config("c"))
	f.settled()
	leader := f.leader()
	require.Eventually(t, func() bool { v, err := leader.plane.VoterIDs(); return err == nil && len(v) == 3 }, patience, poll)
	for _, m := range f.all() {
		assert.True(t, m.modules.Has(spec.Digest), m.cfg.Name)
		if m == leader {
			continue
		}
		id := controlplane.Server{ID: m.server}
		before := leader.transport.Stats().Classes[transport.Call].BytesSent
		for range 10 {
			require.True(t, leader.confirmReady(t.Context(), id, 1))
		}
		assert.Less(t, leader.transport.Stats().Classes[transport.Call].BytesSent-before, uint64(len(module)))
		assert.False(t, leader.confirmReady(t.Context(), id, 1<<60), "it is behind")
		require.NoError(t, os.Remove(m.dir.Path("modules", modules.Digest(spec.Digest).String()+".wasm")))
		assert.True(t, leader.confirmReady(t.Context(), id, 1), "it is sent what it lacks")
		assert.True(t, m.modules.Has(spec.Digest))
	}
}

// padded makes a module longer by a custom section, so that it is another one.
func padded(module []byte, by int) []byte {
	body := append([]byte{1, 'x'}, make([]byte, by)...)
	section := binary.AppendUvarint([]byte{0}, uint64(len(body)))
	return slices.Concat(module, section, body)
}

// What is kept of members goes with them.
func TestGoneMembersAreForgotten(t *testing.T) {
	f := newFleet(t)
	a, err := New(f.config("a"), Options{}, f.kind())
	require.NoError(t, err)
	own := cluster.Member{Name: "a", Info: cluster.Info{Incarnation: sharding.NewIncarnation()}}
	b := cluster.Member{Name: "b", Status: cluster.Failed, Info: cluster.Info{Incarnation: sharding.NewIncarnation()}}
	a.leavers[b.Identity()] = struct{}{}
	a.membersChanged([]cluster.Member{own, b})
	assert.Len(t, a.since, 1)
	assert.Len(t, a.leavers, 1)
	a.membersChanged([]cluster.Member{own})
	assert.Empty(t, a.since)
	assert.Empty(t, a.leavers)
}

// Spec 2.1: who runs the raft server of another node, by its own word, as with a copy of that node's data_dir, does not become it: the log keeps whose it is, raft
// seeks it where it is, and an operator is told.
func TestOneServerOnTwoNodes(t *testing.T) {
	f := newFleet(t)
	a := f.start(f.config("a"))
	f.settled()
	b := f.start(f.config("b"))
	f.settled()
	leader := f.leader()
	recorded := func() (of sharding.Member, entries uint64) {
		leader.plane.View(func() {
			for _, s := range leader.machine.State().Servers() {
				if s.Server == b.server {
					of = s.Member
				}
			}
		})
		return of, leader.plane.Applied()
	}
	require.Eventually(t, func() bool { of, _ := recorded(); return of == b.self }, patience, poll)

	self := sharding.Member{Node: "0-copy", Incarnation: sharding.NewIncarnation()} // first by name
	s, err := transport.New(transport.Config{Self: self, Label: a.cfg.Cluster, ClusterID: a.dir.Cluster(), Roles: []string{transport.CoordinatorRole}, Bind: "127.0.0.1:0",
		Versions: transport.Versions{Oldest: protocol.OldestVersion, Newest: protocol.Version}, Logger: slog.New(slog.DiscardHandler)}, deaf{})
	require.NoError(t, err)
	defer s.Close()
	g, err := cluster.Open(cluster.Config{Name: self.Node, Bind: "127.0.0.1:0", Join: []string{a.addr.Gossip}, Logger: slog.New(slog.DiscardHandler),
		OnChange: func([]cluster.Member) {}, Fast: true, Info: cluster.Info{Incarnation: self.Incarnation, Server: b.server, ClusterID: a.dir.Cluster(),
			Transport: s.Addr().String(), Roles: []string{transport.CoordinatorRole}, Version: "1"}})
	require.NoError(t, err)
	defer g.Close()
	require.NoError(t, g.Join(t.Context()))
	s.SetPeers([]transport.Target{{Member: leader.self, Addr: leader.addr.Transport}})
	frame, err := protocol.AppendFrame(nil, &protocol.Register{Info: protocol.NodeInfo{Address: s.Addr().String(), Roles: []string{transport.CoordinatorRole}, Version: "1",
		Server: b.server, MinWire: protocol.OldestVersion, MaxWire: protocol.Version}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return s.Send(leader.self, transport.Control, frame) == nil && leader.log.contains("two nodes run one raft server")
	}, patience, 200*time.Millisecond, "nobody is told")
	of, _ := recorded()
	assert.Equal(t, b.self, of)
	assert.False(t, b.log.contains("membership changed"))
	assert.False(t, leader.log.contains(s.Addr().String()+" "), "raft seeks b's server at another's address")
}
