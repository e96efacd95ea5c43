// Package entity runs entity code: mailboxes, an elastic pool of workers, passivation, restarts. Whether a message may begin is the region's
// decision; what this package adds is the last look at the lease, at the moment a message begins.
//
// A Runtime is driven by one goroutine, the region's. Workers of the Pool run entities; they call Config's functions, which must not block.
package entity

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Config opens a Runtime.
type Config struct {
	Type   sharding.TypeName
	Kind   sharding.Kind
	Pool   *Pool
	Now    func() sharding.Instant
	Logger *slog.Logger
	// Reply takes the answer of an entity; it leaves only if the region finds the shard still covered.
	Reply func(shard sharding.ShardID, epoch sharding.Epoch, to sharding.Member, r protocol.Reply)
	// Stopped ends Stop: the shard is empty, every entity's Stop has ended.
	Stopped func(shard sharding.ShardID, epoch sharding.Epoch)
	// Unbegun takes a message that was never begun and never will be here, and the reason.
	Unbegun func(d *protocol.Deliver, why string)
	// Panicked counts panics of entity code.
	Panicked func()
	// MaxMessages and MaxBytes bound what waits in all mailboxes together, so that senders cannot fill the memory of a node whose entities are slow (spec
	// 2.3). Defaults 100 000 and 64 MiB. Beyond them a message is Unbegun.
	MaxMessages, MaxBytes int
}

// Why a message is Unbegun.
const (
	WhyTaken = "the shard was taken from its node"
	WhyFull  = "mailbox_full" // the mailboxes have reached their bounds
)

const (
	defaultMaxMessages = 100_000
	defaultMaxBytes    = 64 << 20
)

// Runtime runs the entities of one type on this node.
type Runtime struct {
	cfg     Config
	mu      sync.Mutex // of shards; the shards have locks of their own
	shards  map[sharding.ShardID]*shard
	live    atomic.Int64
	handled atomic.Uint64
	waiting atomic.Int64 // messages in mailboxes
	bytes   atomic.Int64 // … and their bytes
	sweepAt int
}

// New makes a runtime without shards.
func New(cfg Config) *Runtime {
	if cfg.MaxMessages <= 0 {
		cfg.MaxMessages = defaultMaxMessages
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	return &Runtime{cfg: cfg, shards: make(map[sharding.ShardID]*shard)}
}

// shard is one generation of a shard on this node.
type shard struct {
	rt     *Runtime
	id     sharding.ShardID
	epoch  sharding.Epoch
	until  atomic.Int64 // sharding.Instant: no message begins from then on
	since  atomic.Int64 // sharding.Instant: since when there has been a lease without a break; nobody was idle before
	killed atomic.Bool
	ctx    context.Context
	cancel context.CancelFunc
	count  atomic.Uint64 // messages begun

	mu       sync.Mutex
	cells    map[string]*cell
	parked   []*cell // wait for the lease
	stopping bool
}

// Start makes a shard ready; its entities begin nothing before Extend.
func (r *Runtime) Start(id sharding.ShardID, epoch sharding.Epoch) {
	s := &shard{rt: r, id: id, epoch: epoch, cells: make(map[string]*cell)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	r.mu.Lock()
	old := r.shards[id]
	r.shards[id] = s
	r.mu.Unlock()
	if old != nil {
		old.kill()
	}
}

// find gives the generation of a shard, or nil.
func (r *Runtime) find(id sharding.ShardID, epoch sharding.Epoch) *shard {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.shards[id]; s != nil && s.epoch == epoch {
		return s
	}
	return nil
}

// Extend lets the shards' entities begin messages until until.
func (r *Runtime) Extend(shards []protocol.ShardEpoch, until sharding.Instant) {
	now := int64(r.cfg.Now())
	for _, se := range shards {
		if s := r.find(se.Shard, se.Epoch); s != nil {
			if now >= s.until.Load() {
				s.since.Store(now)
			}
			s.until.Store(int64(until))
			s.mu.Lock()
			parked := s.parked
			s.parked = nil
			s.mu.Unlock()
			for _, c := range parked {
				c.unpark()
			}
		}
	}
}

// Suspend lets nothing begin until the next Extend; what is in memory stays.
func (r *Runtime) Suspend(shards []protocol.ShardEpoch) {
	for _, se := range shards {
		if s := r.find(se.Shard, se.Epoch); s != nil {
			s.until.Store(0)
		}
	}
}

// Deliver queues a message for its entity, in order. For a generation that is not here, and beyond the bounds, it is Unbegun. The deliver is kept.
func (r *Runtime) Deliver(id sharding.ShardID, epoch sharding.Epoch, d *protocol.Deliver) {
	s := r.find(id, epoch)
	if s == nil {
		r.cfg.Unbegun(d, WhyTaken)
		return
	}
	size := sizeOf(d)
	if r.waiting.Load() >= int64(r.cfg.MaxMessages) || r.bytes.Load()+size > int64(r.cfg.MaxBytes) {
		r.cfg.Unbegun(d, WhyFull)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed.Load() {
		r.cfg.Unbegun(d, WhyTaken)
		return
	}
	r.waiting.Add(1)
	r.bytes.Add(size)
	c := s.cells[d.Entity]
	if c == nil {
		c = &cell{shard: s, id: d.Entity, stopping: s.stopping}
		s.cells[d.Entity] = c
		r.live.Add(1)
	}
	c.push(d)
}

func sizeOf(d *protocol.Deliver) int64 { return int64(len(d.Entity) + len(d.Payload)) }

// left takes messages out of the bounds that have left their mailboxes.
func (r *Runtime) left(messages, bytes int64) {
	r.waiting.Add(-messages)
	r.bytes.Add(-bytes)
}

// Stop ends every entity of the shard once it has handled what is in its mailbox, then calls Stopped.
func (r *Runtime) Stop(id sharding.ShardID, epoch sharding.Epoch) {
	s := r.find(id, epoch)
	if s == nil {
		r.cfg.Stopped(id, epoch)
		return
	}
	s.mu.Lock()
	s.stopping = true
	for _, c := range s.cells {
		c.stop()
	}
	empty := len(s.cells) == 0
	s.mu.Unlock()
	if empty {
		s.ended()
	}
}

// ended takes the shard out, once.
func (s *shard) ended() {
	if s.killed.Swap(true) {
		return
	}
	s.cancel()
	s.rt.drop(s)
	s.rt.cfg.Stopped(s.id, s.epoch)
}

func (r *Runtime) drop(s *shard) {
	r.mu.Lock()
	if r.shards[s.id] == s {
		delete(r.shards, s.id)
	}
	r.mu.Unlock()
}

// Kill drops the shard without Stop and without Stopped: its contexts end, no message begins, what waits is Unbegun.
func (r *Runtime) Kill(id sharding.ShardID, epoch sharding.Epoch) {
	if s := r.find(id, epoch); s != nil {
		r.drop(s)
		s.kill()
	}
}

func (s *shard) kill() {
	s.killed.Store(true)
	s.until.Store(0)
	s.cancel()
	s.mu.Lock()
	var unbegun []*protocol.Deliver
	for _, id := range sortedKeys(s.cells) {
		unbegun = append(unbegun, s.cells[id].abandon()...)
	}
	s.rt.live.Add(-int64(len(s.cells)))
	s.cells = make(map[string]*cell)
	s.parked = nil
	s.mu.Unlock()
	for _, d := range unbegun {
		s.rt.left(1, sizeOf(d))
		s.rt.cfg.Unbegun(d, WhyTaken)
	}
}

func sortedKeys(m map[string]*cell) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Close kills every shard, without Stopped.
func (r *Runtime) Close() {
	r.mu.Lock()
	all := make([]*shard, 0, len(r.shards))
	for _, s := range r.shards {
		all = append(all, s)
	}
	r.shards = make(map[sharding.ShardID]*shard)
	r.mu.Unlock()
	for _, s := range all {
		s.kill()
	}
}

// Stats of one shard on this node (spec 2.5).
type Stats struct {
	Shard    sharding.ShardID
	Epoch    sharding.Epoch
	Entities int
	Begun    uint64 // messages, since the shard started here
}

// Stats gives the shards on this node, in order.
func (r *Runtime) Stats() []Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Stats, 0, len(r.shards))
	for _, s := range r.shards {
		s.mu.Lock()
		out = append(out, Stats{s.id, s.epoch, len(s.cells), s.count.Load()})
		s.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Stats) int { return cmp.Compare(a.Shard, b.Shard) })
	return out
}

// EntityIDs gives the ids of a shard's live entities, sorted.
func (r *Runtime) EntityIDs(id sharding.ShardID) []string {
	r.mu.Lock()
	s := r.shards[id]
	r.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return sortedKeys(s.cells)
}

// Live counts the entities in memory; Handled the messages begun since the start.
func (r *Runtime) Live() int64     { return r.live.Load() }
func (r *Runtime) Handled() uint64 { return r.handled.Load() }

// sweepParts: each Sweep looks at one part of the shards for idle entities, so that a million of them cost no pause.
const sweepParts = 16

// Sweep passivates idle entities, and the least recently used ones beyond the kind's bound. The region calls it several times a second. Where the lease is
// away nobody is passivated: what waits for it to come back must find its entity as it was (spec 2.1).
func (r *Runtime) Sweep() {
	now := r.cfg.Now()
	r.mu.Lock()
	var part, all []*shard
	for id, s := range r.shards {
		if int64(now) >= s.until.Load() {
			continue
		}
		all = append(all, s)
		if int(id)%sweepParts == r.sweepAt {
			part = append(part, s)
		}
	}
	r.sweepAt = (r.sweepAt + 1) % sweepParts
	r.mu.Unlock()
	if after := r.cfg.Kind.PassivateAfter(); after > 0 {
		for _, s := range part {
			for _, c := range s.idleCells() {
				if last := sharding.Instant(max(c.last.Load(), s.since.Load())); now.Sub(last) >= after {
					c.passivate()
				}
			}
		}
	}
	if excess := r.live.Load() - int64(r.cfg.Kind.MaxLive()); r.cfg.Kind.MaxLive() > 0 && excess > 0 {
		var idle []*cell
		for _, s := range all {
			idle = append(idle, s.idleCells()...)
		}
		slices.SortFunc(idle, func(a, b *cell) int { return cmp.Compare(a.last.Load(), b.last.Load()) })
		for _, c := range idle[:min(int64(len(idle)), excess)] {
			c.passivate()
		}
	}
}

func (s *shard) idleCells() []*cell {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*cell
	for _, c := range s.cells {
		if c.isIdle() {
			out = append(out, c)
		}
	}
	return out
}

// backoff is the pause before an entity is made again after n panics in a row.
func backoff(n int) time.Duration {
	return min(100*time.Millisecond<<min(n-1, 10), 10*time.Second)
}
