package controlplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/boottime"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// recorder is a machine that counts: it remembers what it was told, and proposes a Pause for each Requested.
type recorder struct {
	mu       sync.Mutex
	applied  []uint64 // command sequence numbers, in log order
	term     uint64   // in which it leads, after the barrier; 0: it does not
	failed   int
	ticks    int
	old      bool // an older release, which reads no snapshot
	restores int
}

func (r *recorder) Step(_ sharding.Instant, ev coordinator.Event) []coordinator.Command {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch ev := ev.(type) {
	case coordinator.Elected:
		return []coordinator.Command{coordinator.Barrier{Term: ev.Term}}
	case coordinator.BarrierDone:
		r.term = ev.Term
	case coordinator.Deposed:
		r.term = 0
	case coordinator.Committed:
		r.applied = append(r.applied, ev.Entry.Command.Seq)
	case coordinator.Ticked:
		r.ticks++
	case coordinator.ProposalFailed:
		r.failed++
	case coordinator.Requested:
		return []coordinator.Command{coordinator.Propose{Entry: &protocol.Entry{V: protocol.Version, Kind: protocol.KindSetPaused, Term: r.term,
			Command: protocol.Command{Seq: ev.ID}, SetPaused: &protocol.SetPaused{On: true}}}}
	}
	return nil
}

func (r *recorder) Snapshot() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b []byte
	for _, s := range r.applied {
		b = binary.BigEndian.AppendUint64(b, s)
	}
	return b, nil
}

func (r *recorder) Restore(b []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restores++
	if r.old {
		return errors.New("version 2, this build reads 1 to 1")
	}
	r.applied = nil
	for ; len(b) >= 8; b = b[8:] {
		r.applied = append(r.applied, binary.BigEndian.Uint64(b))
	}
	return nil
}

func (r *recorder) log() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]uint64(nil), r.applied...)
}

func (r *recorder) leads() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.term != 0 }

type tcp struct{ net.Listener }

func (tcp) DialRaft(address string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", address, timeout)
}

type server struct {
	*Plane
	rec     *recorder
	id      sharding.Incarnation
	addr    string
	dir     string
	change  func(Config) Config
	old     bool  // it is an older release than that which wrote its snapshots
	refusal error // then, of Open
}

func start(t *testing.T, s *server) {
	t.Helper()
	addr := s.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	s.addr = l.Addr().String()
	s.rec = &recorder{old: s.old}
	cfg := Config{Dir: s.dir, Server: s.id, Address: s.addr, Stream: tcp{l}, Machine: s.rec, Now: boottime.Now,
		Do: func(coordinator.Command) {}, Fatal: func(err error) { t.Error(err) }, Logger: slog.New(slog.DiscardHandler), Heartbeat: 200 * time.Millisecond,
		VoterGrace: 300 * time.Millisecond, ConfirmReady: func(context.Context, Server, uint64) bool { return true },
		Answers: func(context.Context, Server) bool { return true }}
	if s.change != nil {
		cfg = s.change(cfg)
	}
	s.Plane, err = Open(cfg)
	if s.old {
		l.Close()
		require.Error(t, err)
		s.refusal = err
		return
	}
	require.NoError(t, err)
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 20*time.Second, 10*time.Millisecond, what)
}

func leaderOf(servers []*server) *server {
	for _, s := range servers {
		if s.rec.leads() {
			return s
		}
	}
	return nil
}

// Spec 2.1: a cluster starts with one voter, grows to three, survives its leader's death, replaces a dead voter by a spare, and a server that
// comes back has everything. All servers apply the same log.
func TestPlaneLife(t *testing.T) {
	servers := make([]*server, 4)
	for i := range servers {
		servers[i] = &server{id: sharding.Incarnation{byte(i + 1)}, dir: t.TempDir()}
		start(t, servers[i])
	}
	down := map[int]time.Time{}
	tell := func() {
		var known []Server
		for i, s := range servers {
			since, isDown := down[i]
			k := Server{ID: s.id, Address: s.addr, Up: !isDown, Registered: !isDown}
			if isDown {
				k.Gone = time.Since(since)
			}
			known = append(known, k)
		}
		for i, s := range servers {
			if _, isDown := down[i]; !isDown {
				s.SetKnown(known)
			}
		}
	}
	require.False(t, servers[0].HasState())
	require.NoError(t, servers[0].Bootstrap(t.Context()))
	require.Error(t, servers[0].Bootstrap(t.Context()), "only once")
	eventually(t, "first leader", servers[0].rec.leads)
	tell()
	eventually(t, "three voters of four", func() bool {
		tell()
		voters, err := servers[0].VoterIDs()
		return err == nil && len(voters) == 3
	})

	seq, want := uint64(0), []uint64(nil)
	commit := func(leader *server) {
		seq++
		want = append(want, seq)
		leader.Post(coordinator.Requested{ID: seq})
		eventually(t, fmt.Sprint("entry ", seq), func() bool { l := leader.rec.log(); return len(l) > 0 && l[len(l)-1] == seq })
	}
	for range 20 {
		commit(servers[0])
	}
	for _, s := range servers {
		eventually(t, "every server, the spare too, applies all", func() bool { return assert.ObjectsAreEqual(want, s.rec.log()) })
	}

	require.NoError(t, servers[0].raft.Snapshot().Error())
	require.NoError(t, servers[0].Close())
	down[0] = time.Now()
	alive := servers[1:]
	eventually(t, "another leader", func() bool { return leaderOf(alive) != nil })
	leader := leaderOf(alive)
	commit(leader)
	eventually(t, "the spare takes the dead one's seat", func() bool {
		tell()
		seats, _, err := leader.seats()
		if err != nil {
			return false
		}
		voters, dead := 0, false
		for _, s := range seats {
			if s.Voter {
				voters++
				dead = dead || s.ID == servers[0].id
			}
		}
		return voters == 3 && !dead
	})

	start(t, servers[0]) // from its snapshot and log, at the same address
	delete(down, 0)
	eventually(t, "the one that came back has all", func() bool { tell(); return assert.ObjectsAreEqual(want, servers[0].rec.log()) })
	require.NoError(t, leader.TransferLeadership(t.Context()))
	eventually(t, "leadership moves", func() bool { l := leaderOf(servers); return l != nil && l != leader && !leader.rec.leads() })
	commit(leaderOf(servers))
	for _, s := range servers {
		require.NoError(t, s.Close())
		assert.False(t, s.View(func() { t.Error("runs after Close") }))
	}
}

// A proposal to a server that does not lead fails, and the machine is told.
func TestProposalFails(t *testing.T) {
	s := &server{id: sharding.Incarnation{1}, dir: t.TempDir()}
	start(t, s)
	defer s.Close()
	s.Post(coordinator.Requested{ID: 1})
	eventually(t, "ProposalFailed", func() bool { s.rec.mu.Lock(); defer s.rec.mu.Unlock(); return s.rec.failed == 1 })
}

// A log whose files are rotten is an error that names the place and the next step, and the files stay.
func TestDamagedLogIsNamed(t *testing.T) {
	dir := t.TempDir()
	meta := filepath.Join(dir, "wal", "wal-meta.db")
	require.NoError(t, os.Mkdir(filepath.Dir(meta), 0o700))
	rotten := bytes.Repeat([]byte("rotten"), 2000)
	require.NoError(t, os.WriteFile(meta, rotten, 0o600))
	_, err := Open(Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, filepath.Dir(meta))
	require.ErrorContains(t, err, "restore data_dir")
	left, err := os.ReadFile(meta)
	require.NoError(t, err)
	assert.Equal(t, rotten, left)
}

// Spec 2.1, 5.1: a server that was forgotten while it was dead and comes back with its old log ends no leader's term and votes for nobody, until it is taken
// in again; then it catches up.
func TestForgottenServerComesBack(t *testing.T) {
	servers := make([]*server, 4)
	known := make([]Server, len(servers))
	for i := range servers {
		servers[i] = &server{id: sharding.Incarnation{byte(i + 1)}, dir: t.TempDir()}
		start(t, servers[i])
		known[i] = Server{ID: servers[i].id, Address: servers[i].addr, Up: true, Registered: true}
	}
	tell := func(k []Server) {
		for _, s := range servers {
			s.SetKnown(k)
		}
	}
	require.NoError(t, servers[0].Bootstrap(t.Context()))
	leader, lost := servers[0], servers[2]
	eventually(t, "first leader", leader.rec.leads)
	three := known[:3]
	eventually(t, "three voters", func() bool { tell(three); v, err := leader.VoterIDs(); return err == nil && len(v) == 3 })
	seq := uint64(0)
	commit := func() {
		seq++
		leader.Post(coordinator.Requested{ID: seq})
		eventually(t, "an entry", func() bool { l := leader.rec.log(); return len(l) > 0 && l[len(l)-1] == seq })
	}
	commit()
	eventually(t, "the lost one has it", func() bool { return len(lost.rec.log()) == 1 })

	require.NoError(t, lost.Close())
	servers = []*server{servers[0], servers[1], servers[3]}
	tell(three[:2])
	require.NoError(t, leader.Remove(t.Context(), lost.id))
	for range 5 {
		commit()
	}
	term := leader.Term()
	start(t, lost)
	servers = append(servers, lost)
	// It takes part again in nothing, though it knocks: for many of its election time-outs the leader leads on in its term, and commits.
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		commit()
		require.Equal(t, term, leader.Term(), "a forgotten server has ended the leader's term")
		require.True(t, leader.rec.leads())
	}
	assert.Empty(t, lost.rec.log(), "it is told nothing")
	seats, _, err := leader.seats()
	require.NoError(t, err)
	for _, s := range seats {
		assert.NotEqual(t, lost.id, s.ID)
	}

	eventually(t, "it is taken in again", func() bool {
		tell(three)
		return len(lost.rec.log()) == int(seq)
	})
	assert.Equal(t, term, leader.Term())
	for _, s := range servers {
		require.NoError(t, s.Close())
	}
}

// A peer's message is dealt with before its next one is read: who floods keeps nobody's queue full but its own.
func TestHandleWaitsForTheMachine(t *testing.T) {
	s := &server{id: sharding.NewIncarnation(), dir: t.TempDir()}
	start(t, s)
	defer s.Close()
	gate, busy, handled := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go s.View(func() { close(busy); <-gate })
	<-busy
	go func() { s.Handle(coordinator.BarrierDone{Term: 7}); close(handled) }()
	require.Eventually(t, func() bool { return s.inbox.Len() > 0 }, 10*time.Second, time.Millisecond)
	select {
	case <-handled:
		t.Fatal("it did not wait")
	default:
	}
	close(gate)
	<-handled
	assert.True(t, s.rec.leads())
}

// Spec 2.1: a release that cannot read the newest snapshot says so and runs on none before it, which would be another state than the others' (I9).
func TestNewerSnapshotIsRefused(t *testing.T) {
	s := &server{id: sharding.NewIncarnation(), dir: t.TempDir()}
	start(t, s)
	require.NoError(t, s.Bootstrap(t.Context()))
	eventually(t, "it leads", s.rec.leads)
	for i := range uint64(2) { // two snapshots
		s.Post(coordinator.Requested{ID: i + 1})
		eventually(t, "an entry", func() bool { return len(s.rec.log()) == int(i)+1 })
		require.NoError(t, s.raft.Snapshot().Error())
	}
	require.NoError(t, s.Close())

	s.old = true
	var told []error
	s.change = func(c Config) Config { c.Fatal = func(err error) { told = append(told, err) }; return c }
	start(t, s)
	assert.ErrorContains(t, s.refusal, "snapshot cannot be read by this release: version 2, this build reads 1 to 1; run the release that wrote it")
	assert.Len(t, told, 1)
	assert.Equal(t, 1, s.rec.restores, "the older snapshot is not tried")

	s.old, s.change = false, nil
	start(t, s)
	eventually(t, "the release that wrote it goes on", func() bool { return len(s.rec.log()) == 2 })
	require.NoError(t, s.Close())
}

// A machine that was busy for long gets one tick, not all those that it missed: it would never catch up with ticks that take longer than their interval.
func TestTicksDoNotPileUp(t *testing.T) {
	s := &server{id: sharding.NewIncarnation(), dir: t.TempDir()}
	start(t, s)
	gate, busy := make(chan struct{}), make(chan struct{})
	go s.View(func() { close(busy); <-gate })
	<-busy
	for range 100 {
		s.tick()
	}
	assert.LessOrEqual(t, s.inbox.Len(), 1)
	close(gate)
	eventually(t, "ticks go on", func() bool { s.rec.mu.Lock(); defer s.rec.mu.Unlock(); return s.rec.ticks > 2 })
	require.NoError(t, s.Close())
}

// Spec 2.1: a server with a wiped disk, at the address of the one that it was, takes nothing and votes for nobody in that one's name: it knows neither what that one
// had acknowledged nor whom it had voted for.
func TestWipedServerIsNotTakenForItsPredecessor(t *testing.T) {
	servers := make([]*server, 3)
	known := make([]Server, len(servers))
	for i := range servers {
		servers[i] = &server{id: sharding.Incarnation{byte(i + 1)}, dir: t.TempDir()}
		start(t, servers[i])
		known[i] = Server{ID: servers[i].id, Address: servers[i].addr, Up: true, Registered: true}
	}
	leader := servers[0]
	require.NoError(t, leader.Bootstrap(t.Context()))
	eventually(t, "leader", leader.rec.leads)
	eventually(t, "three voters", func() bool { leader.SetKnown(known); v, err := leader.VoterIDs(); return err == nil && len(v) == 3 })

	require.NoError(t, servers[1].Close())
	var log lockedBuffer
	wiped := &server{id: sharding.Incarnation{9}, dir: t.TempDir(), addr: servers[1].addr, change: func(c Config) Config {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		return c
	}}
	start(t, wiped)
	eventually(t, "the leader seeks the former one there", func() bool { return log.contains("meant for another server") })
	require.NoError(t, leader.Close()) // now the third one seeks votes
	seen := log.len()
	eventually(t, "it seeks votes there", func() bool { return log.len() > seen })
	for end := time.Now().Add(time.Second); time.Now().Before(end); { // several elections
		require.False(t, wiped.HasState())
		require.False(t, servers[2].rec.leads(), "elected by a vote in another's name")
	}
	require.NoError(t, servers[2].Close())
	require.NoError(t, wiped.Close())
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
func (l *lockedBuffer) len() int { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Len() }
func (l *lockedBuffer) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.b.Bytes(), []byte(s))
}
