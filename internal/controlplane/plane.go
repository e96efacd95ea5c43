// Package controlplane is the only importer of raft. It is a thin shell round the coordinator machine: it feeds the committed entries to it in
// order, proposes what it wants in the log, and tells it who leads. It interprets no entry.
//
// Goroutines, all ended by Close:
//   - the owner: owns the machine; everything else sends to it through inbox, which never blocks the sender;
//   - the proposer: takes entries from the owner in order and hands them to raft, which may block;
//   - the leadership watcher: compares raft's state and term with what the machine was told last;
//   - the steward: on the leader, changes raft's membership one step at a time.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/droverhq/drover/internal/logbridge"
	"github.com/droverhq/drover/internal/queue"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// Machine is the coordinator's pure machine.
type Machine interface {
	Step(at sharding.Instant, ev coordinator.Event) []coordinator.Command
	Snapshot() ([]byte, error)
	Restore([]byte) error
}

// StreamLayer gives raft its connections; each is authenticated by the transport.
type StreamLayer interface {
	net.Listener
	DialRaft(address string, timeout time.Duration) (net.Conn, error)
}

// Config opens a Plane.
type Config struct {
	Dir     string               // in data_dir
	Server  sharding.Incarnation // UUID from data_dir
	Address string               // transport address that others reach
	Stream  StreamLayer
	Machine Machine
	Now     func() sharding.Instant // CLOCK_BOOTTIME
	// Do carries out one command of the machine, other than Propose and Barrier. It is called by the owner goroutine, in order, and must
	// not block.
	Do func(coordinator.Command)
	// Fatal is told, once, why this server can apply no more; the node must end.
	Fatal  func(error)
	Logger *slog.Logger
	// Heartbeat is raft's heartbeat and election time-out, default 1 s; the leader lease is half of it.
	Heartbeat time.Duration
	// VoterGrace is how long a voter may be failed before a spare takes its seat; default 10 s.
	VoterGrace time.Duration
	// segment, files and index take the place of the log's files and their size, in tests.
	segment int
	files   func(types.SegmentFiler) types.SegmentFiler
	index   func(types.MetaStore) types.MetaStore
	// ConfirmReady asks a server whether it has caught up with index and holds the active modules (spec 1.4).
	ConfirmReady func(ctx context.Context, s Server, index uint64) bool
	// Answers asks a server for any answer: membership takes seconds to find out that one has died.
	Answers func(ctx context.Context, s Server) bool
}

// Plane is a raft server with the coordinator machine on it.
type Plane struct {
	cfg     Config
	log     *store
	disk    *disk
	faults  *faults
	raft    *raft.Raft
	inbox   *queue.Queue[item]
	out     *queue.Queue[*protocol.Entry]
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	ticking atomic.Bool                        // a tick waits in inbox
	broken  bool                               // owner's: an entry or a snapshot could not be read
	refused error                              // the snapshot that could not, for the start
	turn    chan struct{}                      // full: raft's configuration is being changed
	readyAt map[sharding.Incarnation]time.Time // whose turn it is: when a spare was last found ready
	said    string                             // steward's: the last trouble that it has told, and when
	saidAt  time.Time

	mu    sync.Mutex
	known []Server
	kick  chan struct{}
}

// item is an event for the machine, or a call to run beside it. The inbox is unbounded, because raft, the transport and the strategies'
// workers must never wait for the owner while the owner waits for them; what fills it is bounded by those senders.
type item struct {
	event coordinator.Event
	call  func()
}

const (
	tickEvery   = 50 * time.Millisecond
	stewardWait = 500 * time.Millisecond
)

// Open opens the log in Dir and starts raft. It neither bootstraps nor joins: a server without a configuration waits to be added.
func Open(cfg Config) (*Plane, error) {
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = time.Second
	}
	if cfg.VoterGrace == 0 {
		cfg.VoterGrace = 10 * time.Second
	}
	logger := hclog.New(&hclog.LoggerOptions{Name: "raft", Level: hclog.Info, DisableTime: true, Output: logbridge.New(cfg.Logger, "raft")})
	walDir := filepath.Join(cfg.Dir, "wal")
	if err := os.MkdirAll(walDir, 0o700); err != nil {
		return nil, fmt.Errorf("raft log: %w", err)
	}
	p := &Plane{cfg: cfg, faults: newFaults(cfg.Logger), inbox: queue.New[item](0), out: queue.New[*protocol.Entry](0), kick: make(chan struct{}, 1), turn: make(chan struct{}, 1), readyAt: map[sharding.Incarnation]time.Time{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if err := p.openLog(walDir, logger.Named("wal")); err != nil {
		return nil, fmt.Errorf("raft log in %s cannot be opened: %w; %s", walDir, err, nextStep(err))
	}
	snaps, err := openSnapshots(cfg.Dir, p.faults, logger)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("raft snapshots in %s: %w; %s", cfg.Dir, err, nextStep(err)), p.closeLog())
	}
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(cfg.Server.String())
	rc.Logger = logger
	rc.HeartbeatTimeout, rc.ElectionTimeout, rc.LeaderLeaseTimeout = cfg.Heartbeat, cfg.Heartbeat, cfg.Heartbeat/2
	rc.CommitTimeout = min(rc.CommitTimeout, cfg.Heartbeat/10)
	rc.ShutdownOnRemove = false // a removed server may be added again; the node decides when it ends
	rc.NoLegacyTelemetry = true
	trans := addressed{raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: &streamLayer{cfg.Stream, cfg.Server, cfg.Logger}, MaxPool: 3, Timeout: 10 * time.Second, Logger: logger})}
	// The owner must run before raft does: raft restores the snapshot and applies the log through it.
	p.wg.Add(1)
	go p.own()
	p.raft, err = p.newRaft(rc, snaps, trans)
	if err != nil {
		p.inbox.Close()
		p.wg.Wait()
		return nil, errors.Join(err, trans.Close(), p.closeLog())
	}
	p.log.live.Store(true)
	p.disk.run()
	p.wg.Add(3)
	go p.propose()
	go p.watchLeadership()
	go p.steward()
	return p, nil
}

// openLog opens the log over its files. An error leaves nothing open.
func (p *Plane) openLog(dir string, logger hclog.Logger) error {
	p.disk = &disk{MetaStore: &metadb.BoltMetaDB{}, files: segment.NewFiler(dir, fs.New())}
	if p.cfg.files != nil {
		p.disk.files, p.disk.MetaStore = p.cfg.files(p.disk.files), p.cfg.index(p.disk.MetaStore)
	}
	log, err := wal.Open(dir, wal.WithLogger(logger), wal.WithMetaStore(p.disk), wal.WithSegmentFiler(filer{p.disk}), wal.WithSegmentSize(p.cfg.segment))
	if err != nil {
		p.disk.Close() // it may not be open; the error that counts is the log's
		return err
	}
	p.log = &store{WAL: log, faults: p.faults, fatal: p.cfg.Fatal, closing: p.ctx.Done()}
	return nil
}

// closeLog closes the log and its index, which the log leaves open, and locked, where it could not be opened whole.
func (p *Plane) closeLog() error { return errors.Join(p.log.Close(), p.disk.Close()) }

// Fault says what this server cannot write to its disk at present, as when that is full, so that it neither leads nor votes; nil: nothing.
func (p *Plane) Fault() error { return p.faults.present() }

// newRaft starts raft, which reads the whole log and panics where it cannot.
func (p *Plane) newRaft(rc *raft.Config, snaps raft.SnapshotStore, trans raft.Transport) (r *raft.Raft, err error) {
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("%v", e)
			if cause, ok := e.(error); ok {
				err = cause
			}
		}
		if p.refused != nil {
			err = p.refused
		} else if err != nil {
			err = fmt.Errorf("raft cannot start on what is in %s: %w; %s", p.cfg.Dir, err, nextStep(err))
		}
	}()
	return raft.NewRaft(rc, fsm{p}, p.log, p.log, snaps, trans)
}

// nextStep says what to do about an error of the log's files.
func nextStep(err error) string {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return "make room on the disk of data_dir"
	}
	return restoreHint
}

// restoreHint is the next step after damage to the log.
const restoreHint = "restore data_dir from a backup, or start with an empty one and `drover cluster forget` this server"

// Bootstrap makes this server the only voter of a new cluster. A server that has a log already answers raft.ErrCantBootstrap, wrapped.
func (p *Plane) Bootstrap(ctx context.Context) error {
	c := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(p.cfg.Server.String()), Address: raft.ServerAddress(p.cfg.Address)}}}
	if err := wait(ctx, p.raft.BootstrapCluster(c)); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

// HasState says whether the log holds anything: such a server never bootstraps again.
func (p *Plane) HasState() bool { return p.raft.LastIndex() > 0 }

// Post hands an event to the machine. It never blocks.
func (p *Plane) Post(ev coordinator.Event) { p.inbox.Put(item{event: ev}) }

// Handle hands an event to the machine and waits until it has been dealt with: so a peer that floods waits for the machine, and never has more than
// one event in the way of the others'.
func (p *Plane) Handle(ev coordinator.Event) { p.View(func() { p.step(ev) }) }

// View runs f on the owner goroutine, where the machine's state may be read. It returns false, without having run f, once the plane is closed.
func (p *Plane) View(f func()) bool {
	done := make(chan struct{})
	if !p.inbox.Put(item{call: func() { f(); close(done) }}) {
		return false
	}
	<-done
	return true
}

// Leader gives the leader's transport address and server UUID as raft knows them; ok is false where there is none.
func (p *Plane) Leader() (address string, id sharding.Incarnation, ok bool) {
	a, sid := p.raft.LeaderWithID()
	id, err := sharding.ParseIncarnation(string(sid))
	return string(a), id, a != "" && err == nil
}

// Term gives raft's present term.
func (p *Plane) Term() uint64 { return p.raft.CurrentTerm() }

// Applied gives the index applied last.
func (p *Plane) Applied() uint64 { return p.raft.AppliedIndex() }

// SetKnown tells what membership knows of the coordinator-capable nodes; the leader adapts the voters.
func (p *Plane) SetKnown(known []Server) {
	p.mu.Lock()
	p.known = known
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// TransferLeadership hands leadership to another voter, if there is one that has caught up.
func (p *Plane) TransferLeadership(ctx context.Context) error {
	return wait(ctx, p.raft.LeadershipTransfer())
}

// patience is how long a change of raft's configuration may wait for its turn.
const patience = 10 * time.Second

// wait waits for raft's answer, which may not come before there is room on the disk again, or before raft ends; to a transfer of leadership that raft
// has not begun when it ends it never comes (1.8), and one goroutine stays.
func wait(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close stops raft and then the owner; committed entries are on disk.
func (p *Plane) Close() error {
	p.cancel()
	err := p.raft.Shutdown().Error()
	p.out.Close()
	p.inbox.Close()
	p.wg.Wait()
	return errors.Join(err, p.closeLog()) // raft has closed its stream layer
}

// own is the owner goroutine.
func (p *Plane) own() {
	defer p.wg.Done()
	for {
		items, ok := p.inbox.Take()
		if !ok {
			return
		}
		for _, it := range items {
			if it.call != nil {
				it.call()
				continue
			}
			p.step(it.event)
		}
	}
}

func (p *Plane) step(ev coordinator.Event) {
	for _, c := range p.cfg.Machine.Step(p.cfg.Now(), ev) {
		switch c := c.(type) {
		case coordinator.Propose:
			p.out.Put(c.Entry)
		case coordinator.Barrier:
			p.barrier(c.Term)
		default:
			p.cfg.Do(c)
		}
	}
}

func (p *Plane) barrier(term uint64) {
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		err := p.raft.Barrier(0).Error()
		if err == nil && p.raft.State() == raft.Leader && p.raft.CurrentTerm() == term {
			p.Post(coordinator.BarrierDone{Term: term})
		}
		// Otherwise leadership is lost: the watcher says so.
	}()
}

// propose is the proposer goroutine: raft.Apply may block while raft waits for the owner, so the owner never calls it.
func (p *Plane) propose() {
	defer p.wg.Done()
	for {
		entries, ok := p.out.Take()
		if !ok {
			return
		}
		for _, e := range entries {
			data, err := protocol.EncodeEntry(e)
			if err != nil {
				p.Post(coordinator.ProposalFailed{Command: e.Command, Reason: err.Error()})
				continue
			}
			f := p.raft.Apply(data, 0)
			p.wg.Add(1)
			go func() {
				defer p.wg.Done()
				if err := f.Error(); err != nil {
					p.Post(coordinator.ProposalFailed{Command: e.Command, Reason: err.Error()})
				}
			}()
		}
	}
}

// watchLeadership tells the machine whether this server leads, and in which term. raft's own channel may leave out a loss that was made good at once, so
// state and term are compared.
func (p *Plane) watchLeadership() {
	defer p.wg.Done()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	told := uint64(0) // the term in which the machine believes that it leads; 0: it does not
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.raft.LeaderCh():
		case <-tick.C:
			p.tick()
		}
		term := p.raft.CurrentTerm()
		leads := p.raft.State() == raft.Leader && p.raft.CurrentTerm() == term
		if told != 0 && (!leads || term != told) {
			told = 0
			p.Post(coordinator.Deposed{})
		}
		if leads && told == 0 {
			told = term
			p.Post(coordinator.Elected{Term: term})
		}
	}
}

// tick lets the machine know that time has passed. One tick waits at a time: an owner that is slow is not told of each that it missed.
func (p *Plane) tick() {
	if p.ticking.Swap(true) {
		return
	}
	p.inbox.Put(item{call: func() {
		p.ticking.Store(false)
		p.step(coordinator.Ticked{Wall: time.Now().UnixMilli()})
	}})
}

func (p *Plane) seats() ([]seat, uint64, error) {
	f := p.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, 0, err
	}
	var out []seat
	for _, s := range f.Configuration().Servers {
		id, err := sharding.ParseIncarnation(string(s.ID))
		if err != nil {
			return nil, 0, fmt.Errorf("raft configuration: %w", err)
		}
		out = append(out, seat{ID: id, Address: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return out, f.Index(), nil
}

// steward is the goroutine that keeps raft's configuration in step with membership, while this server leads.
func (p *Plane) steward() {
	defer p.wg.Done()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.kick:
		case <-time.After(stewardWait):
		}
		for p.raft.State() == raft.Leader && p.ctx.Err() == nil {
			changed, err := p.adjust()
			if err != nil && p.ctx.Err() == nil {
				p.sayUnchanged(err)
			}
			if !changed || err != nil {
				break
			}
		}
	}
}

// repeatAfter is how often the same trouble is told.
const repeatAfter = time.Minute

// sayUnchanged logs why a change was not made: a loss of leadership on the way is none of anybody's business, and the rest not each half second.
func (p *Plane) sayUnchanged(err error) {
	level := slog.LevelWarn
	for _, passing := range []error{raft.ErrLeadershipTransferInProgress, raft.ErrLeadershipLost, raft.ErrNotLeader, raft.ErrRaftShutdown} {
		if errors.Is(err, passing) {
			level = slog.LevelDebug
		}
	}
	if level == slog.LevelWarn {
		if err.Error() == p.said && time.Since(p.saidAt) < repeatAfter {
			return
		}
		p.said, p.saidAt = err.Error(), time.Now()
	}
	p.cfg.Logger.Log(p.ctx, level, "raft membership could not be changed: trying again", "error", err)
}

// adjust makes one change of raft's configuration, if one is due.
func (p *Plane) adjust() (bool, error) {
	done, err := p.takeTurn(p.ctx)
	if err != nil {
		return false, err
	}
	defer done()
	if p.Fault() != nil { // a change that does not get into the log would count in raft's memory all the same
		return false, nil
	}
	seats, known, index, err := p.look()
	if err != nil {
		return false, err
	}
	c := planChange(seats, known, p.cfg.Server, p.cfg.VoterGrace)
	if c.Op == noChange {
		return false, nil
	}
	if c.Op == demoteVoter || c.Op == removeServer {
		if err := checkQuorum(seats, p.probe(p.ctx, seats, known), c); err != nil {
			return false, err
		}
	}
	return true, p.change(p.ctx, c, index)
}

func isSpare(seats []seat, id sharding.Incarnation) bool {
	for _, s := range seats {
		if s.ID == id {
			return !s.Voter
		}
	}
	return false
}

// readyFor is how long a server counts as ready once it was: the log grows on, and who has just been found to keep up keeps up.
const readyFor = 5 * time.Second

func (p *Plane) ready(s Server) bool {
	if time.Since(p.readyAt[s.ID]) < readyFor {
		return true
	}
	ok := p.askReady(s)
	if ok {
		p.readyAt[s.ID] = time.Now()
	}
	return ok
}

func (p *Plane) askReady(s Server) bool {
	ctx, cancel := context.WithTimeout(p.ctx, 2*time.Second)
	defer cancel()
	return p.cfg.ConfirmReady(ctx, s, p.raft.CommitIndex())
}

// fsm is raft's view of the machine: it passes everything to the owner and waits.
type fsm struct{ p *Plane }

// Apply implements raft.FSM.
func (f fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. An entry that does not decode was written by a release that this one must not run beside: nothing
// is applied from there on, so that the state does not part from the others' (I9), and Config.Fatal ends the node.
func (f fsm) ApplyBatch(logs []*raft.Log) []any {
	done := make(chan struct{})
	queued := f.p.inbox.Put(item{call: func() {
		defer close(done)
		for _, l := range logs {
			if l.Type != raft.LogCommand || f.p.broken {
				continue
			}
			e, err := protocol.DecodeEntry(l.Data)
			if err != nil {
				f.p.broken = true
				f.p.cfg.Fatal(fmt.Errorf("log entry %d (term %d) cannot be read by this release: %w; run the release that wrote it, or a later one", l.Index, l.Term, err))
				return
			}
			f.p.step(coordinator.Committed{Index: l.Index, Term: l.Term, Entry: e})
		}
	}})
	if queued {
		<-done
	}
	return make([]any, len(logs))
}

// Snapshot implements raft.FSM.
func (f fsm) Snapshot() (raft.FSMSnapshot, error) {
	var data []byte
	var err error
	if !f.p.View(func() { data, err = f.p.cfg.Machine.Snapshot() }) {
		return nil, errors.New("closed")
	}
	return snapshot(data), err
}

// Restore implements raft.FSM. As with an entry, what does not decode was written by another release, and this server applies nothing from there on; raft
// would look for an older snapshot instead.
func (f fsm) Restore(r io.ReadCloser) error {
	data, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("snapshot cannot be read: %w", err)
	}
	queued := f.p.View(func() {
		if f.p.broken {
			err = errBroken
		} else if err = f.p.cfg.Machine.Restore(data); err != nil {
			err = fmt.Errorf("the raft snapshot cannot be read by this release: %w; run the release that wrote it, or a later one", err)
			f.p.broken, f.p.refused = true, err
			f.p.cfg.Fatal(err)
		}
	})
	if !queued {
		return errors.New("closed")
	}
	return err
}

var errBroken = errors.New("an earlier entry or snapshot could not be read")

type snapshot []byte

// Persist implements raft.FSMSnapshot.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s snapshot) Release() {}

// VoterIDs lists the voters in raft's configuration.
func (p *Plane) VoterIDs() ([]sharding.Incarnation, error) {
	seats, _, err := p.seats()
	var out []sharding.Incarnation
	for _, s := range seats {
		if s.Voter {
			out = append(out, s.ID)
		}
	}
	return out, err
}
