package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
)

// room is a disk that may be full: for new files, for what is appended to those there are, for their index.
type room struct{ create, append, index atomic.Bool }

func (r *room) set(full bool) { r.create.Store(full); r.append.Store(full); r.index.Store(full) }

func fullIf(full *atomic.Bool) error {
	if full.Load() {
		return &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	}
	return nil
}

type tightFiles struct {
	types.SegmentFiler
	*room
}

func (f tightFiles) Create(info types.SegmentInfo) (types.SegmentWriter, error) {
	if err := fullIf(&f.create); err != nil {
		return nil, err
	}
	w, err := f.SegmentFiler.Create(info)
	return tightFile{w, f.room}, err
}

func (f tightFiles) RecoverTail(info types.SegmentInfo) (types.SegmentWriter, error) {
	w, err := f.SegmentFiler.RecoverTail(info)
	if err != nil {
		return nil, err
	}
	return tightFile{w, f.room}, nil
}

type tightFile struct {
	types.SegmentWriter
	*room
}

func (f tightFile) Append(entries []types.LogEntry) error {
	if err := fullIf(&f.append); err != nil {
		return err
	}
	return f.SegmentWriter.Append(entries)
}

func (f tightFile) ForceSeal() (uint64, error) {
	if err := fullIf(&f.append); err != nil {
		return 0, err
	}
	return f.SegmentWriter.ForceSeal()
}

type tightIndex struct {
	types.MetaStore
	*room
}

func (i tightIndex) CommitState(s types.PersistentState) error {
	if err := fullIf(&i.index); err != nil {
		return err
	}
	return i.MetaStore.CommitState(s)
}

func (i tightIndex) SetStable(key, value []byte) error {
	if err := fullIf(&i.index); err != nil {
		return err
	}
	return i.MetaStore.SetStable(key, value)
}

func (r *room) config(c Config) Config {
	c.segment = 4096 // some thirty entries of the tests
	c.files = func(f types.SegmentFiler) types.SegmentFiler { return tightFiles{f, r} }
	c.index = func(m types.MetaStore) types.MetaStore { return tightIndex{m, r} }
	return c
}

// openStore opens the log alone, as it is while raft runs.
func openStore(t *testing.T, dir string, r *room) *Plane {
	t.Helper()
	p := &Plane{ctx: t.Context(), cfg: r.config(Config{Fatal: func(err error) { t.Error(err) }}), faults: newFaults(slog.New(slog.DiscardHandler))}
	require.NoError(t, p.openLog(dir, hclog.NewNullLogger()))
	p.log.live.Store(true)
	p.disk.run()
	return p
}

func entriesOf(from uint64, terms ...uint64) (out []*raft.Log) {
	for i, term := range terms {
		out = append(out, &raft.Log{Index: from + uint64(i), Term: term, Type: raft.LogNoop, Data: bytes.Repeat([]byte{byte(term)}, 60)})
	}
	return out
}

// modelLog is what a log must hold: the terms of the entries from first on.
type modelLog struct {
	first uint64
	terms []uint64
}

func (m modelLog) clone() modelLog { return modelLog{m.first, slices.Clone(m.terms)} }
func (m modelLog) next() uint64    { return m.first + uint64(len(m.terms)) }

// differs compares a log with the model.
func (m modelLog) differs(l raft.LogStore) error {
	first, err := l.FirstIndex()
	last, err2 := l.LastIndex()
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	if len(m.terms) == 0 {
		if first != 0 || last != 0 {
			return fmt.Errorf("log of %d–%d, want an empty one", first, last)
		}
		return nil
	}
	if first != m.first || last != m.next()-1 {
		return fmt.Errorf("log of %d–%d, want %d–%d", first, last, m.first, m.next()-1)
	}
	for i, term := range m.terms {
		var e raft.Log
		if err := l.GetLog(m.first+uint64(i), &e); err != nil || e.Term != term {
			return fmt.Errorf("entry %d: term %d, %w; want term %d", m.first+uint64(i), e.Term, err, term)
		}
	}
	return nil
}

// Spec 2.1: the log keeps what it has acknowledged whatever the disk refuses meanwhile, goes on as soon as there is room, and starts again after kill -9 at
// any point: held against a model through appends, truncations at both ends, and files that fill up while there is no room for the next.
func TestLogOnAFullDisk(t *testing.T) {
	refused := 0
	for seed := range uint64(15) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r, dir := &room{}, t.TempDir()
		p := openStore(t, dir, r)
		m := modelLog{first: 1}
		durable := m.clone() // what a kill may bring back: deletions need not be on disk before the next append
		var history []string
		say := func(format string, args ...any) string {
			history = append(history, fmt.Sprintf(format, args...))
			return fmt.Sprintf("seed %d: %v", seed, history)
		}
		for step := range 120 {
			term := uint64(step%200 + 1)
			switch rnd.IntN(10) {
			case 0, 1:
				r.create.Store(rnd.IntN(2) == 0)
				r.index.Store(rnd.IntN(2) == 0)
				r.append.Store(rnd.IntN(4) == 0)
				say("full: create %v index %v append %v", r.create.Load(), r.index.Load(), r.append.Load())
			case 2: // kill -9, and there is room when it starts again
				r.set(false)
				require.NoError(t, p.closeLog())
				p = openStore(t, dir, r)
				msg := say("kill")
				if err := m.differs(p.log); err != nil {
					require.NoError(t, durable.differs(p.log), "%s: %v", msg, err)
					m = durable.clone()
				}
				durable = m.clone()
			case 3: // a new leader replaces the end
				if len(m.terms) == 0 {
					continue
				}
				from := m.first + 1 + rnd.Uint64N(uint64(len(m.terms)))
				err := p.log.DeleteRange(from, m.next()-1)
				say("delete %d–: %v", from, err)
				if err == nil {
					m.terms = m.terms[:from-m.first]
				}
			case 4: // a snapshot
				if len(m.terms) == 0 {
					continue
				}
				to := m.first + rnd.Uint64N(uint64(len(m.terms)))
				err := p.log.DeleteRange(m.first, to)
				say("delete –%d: %v", to, err)
				if err == nil {
					m.terms, m.first = m.terms[to+1-m.first:], to+1
				}
			default:
				terms := slices.Repeat([]uint64{term}, 1+rnd.IntN(8))
				err := p.log.StoreLogs(entriesOf(m.next(), terms...))
				msg := say("append %d at %d: %v", len(terms), m.next(), err)
				if err == nil {
					m.terms = append(m.terms, terms...)
					durable = m.clone() // also where the log goes on to its next file by now, and the index waits for room
					require.NoError(t, p.Fault(), msg)
				} else {
					refused++
					require.ErrorIs(t, err, syscall.ENOSPC, msg)
					require.ErrorContains(t, p.Fault(), "no space left", msg)
				}
			}
			p.disk.mu.Lock()
			if p.disk.pending == nil {
				durable = m.clone()
			}
			p.disk.mu.Unlock()
			require.NoError(t, m.differs(p.log), say("step %d", step))
		}
		r.set(false)
		require.NoError(t, p.log.StoreLogs(entriesOf(m.next(), 7)), say("room at last"))
		m.terms = append(m.terms, 7)
		require.NoError(t, p.closeLog())
		p = openStore(t, dir, r)
		require.NoError(t, m.differs(p.log), say("end"))
		require.NoError(t, p.closeLog())
	}
	assert.Greater(t, refused, 50)
}

// Spec 2.6: kill -9 between the sealing of one file of the log and the start of the next leaves a log that goes on. raft-wal alone refuses every entry then.
func TestKilledBetweenFiles(t *testing.T) {
	dir, r := t.TempDir(), &room{}
	p := openStore(t, dir, r)
	p.disk.lenient = false
	m := modelLog{first: 1}
	r.index.Store(true) // the rotation that follows does not happen
	for p.log.StoreLogs(entriesOf(m.next(), 1)) == nil {
		m.terms = append(m.terms, 1)
		require.Less(t, len(m.terms), 1000)
	}
	require.NoError(t, p.closeLog())
	r.set(false)
	p = openStore(t, dir, r)
	require.NoError(t, m.differs(p.log))
	require.NoError(t, p.log.StoreLogs(entriesOf(m.next(), 2)))
	m.terms = append(m.terms, 2)
	require.NoError(t, m.differs(p.log))
	require.NoError(t, p.closeLog())
}

// A log that ends before the snapshot that a leader sent, and could not be cleared for want of room, is cleared by the entry after the snapshot.
func TestEntriesAfterASnapshot(t *testing.T) {
	p := openStore(t, t.TempDir(), &room{})
	require.NoError(t, p.log.StoreLogs(entriesOf(1, 1, 1, 1)))
	require.NoError(t, p.log.StoreLogs(entriesOf(100, 2, 2)))
	require.NoError(t, modelLog{100, []uint64{2, 2}}.differs(p.log))
	require.NoError(t, p.closeLog())
}

func (s *server) startTight(t *testing.T, r *room) {
	t.Helper()
	s.change = r.config
	start(t, s)
}

// Spec 2.1, 2.6: a leader whose disk is full steps down, says why and asks for no vote; another leads; nothing that was committed is lost, and once there is
// room it has everything.
func TestLeaderOnAFullDisk(t *testing.T) {
	servers, rooms := make([]*server, 3), make([]*room, 3)
	known := make([]Server, 3)
	for i := range servers {
		servers[i], rooms[i] = &server{id: sharding.Incarnation{byte(i + 1)}, dir: t.TempDir()}, &room{}
		servers[i].startTight(t, rooms[i])
		known[i] = Server{ID: servers[i].id, Address: servers[i].addr, Up: true, Registered: true}
	}
	first := servers[0]
	require.NoError(t, first.Bootstrap(t.Context()))
	eventually(t, "first leader", first.rec.leads)
	eventually(t, "three voters", func() bool { first.SetKnown(known); v, err := first.VoterIDs(); return err == nil && len(v) == 3 })
	var committed []uint64
	commit := func(l *server) {
		t.Helper()
		seq := uint64(len(committed) + 1)
		l.Post(coordinator.Requested{ID: seq})
		committed = append(committed, seq)
		eventually(t, "an entry", func() bool { return slices.Equal(committed, l.rec.log()) })
	}
	for range 60 { // several files
		commit(first)
	}
	rooms[0].set(true)
	first.Post(coordinator.Requested{ID: 1_000_000})
	eventually(t, "it steps down, and says why", func() bool { return !first.rec.leads() && first.Fault() != nil })
	assert.ErrorContains(t, first.Fault(), "no space left on device")
	others := servers[1:]
	eventually(t, "another leads", func() bool { return leaderOf(others) != nil })
	for range 60 {
		commit(leaderOf(others))
	}
	assert.NotContains(t, leaderOf(others).rec.log(), uint64(1_000_000), "what was never stored")
	rooms[0].set(false)
	eventually(t, "it has all", func() bool { return slices.Equal(committed, first.rec.log()) && first.Fault() == nil })
	for _, s := range servers {
		require.NoError(t, s.Close())
	}
}

// The only voter of a cluster waits for room and leads again; it can be ended meanwhile.
func TestOnlyVoterOnAFullDisk(t *testing.T) {
	r, s := &room{}, &server{id: sharding.Incarnation{1}, dir: t.TempDir()}
	s.startTight(t, r)
	require.NoError(t, s.Bootstrap(t.Context()))
	eventually(t, "it leads", s.rec.leads)
	for i := range uint64(40) {
		s.Post(coordinator.Requested{ID: i + 1})
	}
	eventually(t, "entries", func() bool { return len(s.rec.log()) == 40 })
	for round := range 2 {
		r.set(true)
		s.Post(coordinator.Requested{ID: 99})
		eventually(t, "it leads no more", func() bool { return !s.rec.leads() })
		eventually(t, "it cannot even stand for election", func() bool { return s.faults.now[voteFault].Load() != nil })
		assert.Len(t, s.rec.log(), 40)
		if round == 0 {
			r.set(false)
			eventually(t, "it leads again", s.rec.leads)
			eventually(t, "all is well", func() bool { return s.Fault() == nil })
		}
	}
	ended := make(chan error)
	go func() { ended <- s.Close() }()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("a full disk holds up the end")
	}
	r.set(false)
	s.startTight(t, r)
	eventually(t, "it leads, with all", func() bool { return s.rec.leads() && len(s.rec.log()) == 40 })
	require.NoError(t, s.Close())
}

// A disk that is full at the start ends it, and the error says what to do.
func TestStartOnAFullDisk(t *testing.T) {
	r := &room{}
	r.set(true)
	_, err := Open(r.config(Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, "make room")
}

// A snapshot that cannot be written is told, and leaves nothing on a disk that has no room.
func TestSnapshotOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "snapshots", "3-4-5"+unfinished)
	require.NoError(t, os.MkdirAll(left, 0o700))
	f := newFaults(slog.New(slog.DiscardHandler))
	s, err := openSnapshots(dir, f, hclog.NewNullLogger())
	require.NoError(t, err)
	empty := func(what string) {
		t.Helper()
		found, err := os.ReadDir(s.dir)
		require.NoError(t, err)
		assert.Empty(t, found, what)
	}
	empty("of a process that was killed")
	_, trans := raft.NewInmemTransport("")
	create := func() *snapshotSink {
		t.Helper()
		sink, err := s.Create(1, 7, 2, raft.Configuration{}, 1, trans)
		require.NoError(t, err)
		return sink.(*snapshotSink)
	}
	spoil := func(sink *snapshotSink) { // its description cannot be written
		meta := filepath.Join(s.dir, sink.ID()+unfinished, "meta.json")
		require.NoError(t, os.Remove(meta))
		require.NoError(t, os.Mkdir(meta, 0o700))
	}
	sink := create()
	spoil(sink)
	require.Error(t, sink.Close())
	require.NotNil(t, f.now[snapshotFault].Load())
	require.NoError(t, f.present(), "without a snapshot it can do its work")
	empty("after a failed Close")

	sink = create()
	require.NoError(t, sink.SnapshotSink.(*raft.FileSnapshotSink).Close()) // every write from here on fails
	_, err = io.Copy(sink, bytes.NewReader(make([]byte, 1<<20)))
	require.Error(t, err)
	_ = sink.Cancel()

	require.NoError(t, os.RemoveAll(s.dir))
	require.NoError(t, os.WriteFile(s.dir, nil, 0o600))
	_, err = s.Create(1, 8, 2, raft.Configuration{}, 1, trans)
	require.Error(t, err)
	require.NoError(t, os.Remove(s.dir))
	require.NoError(t, os.Mkdir(s.dir, 0o700))
	require.NotNil(t, f.now[snapshotFault].Load())
	require.NoError(t, create().Close())
	require.Nil(t, f.now[snapshotFault].Load(), "the next one was written")
}
