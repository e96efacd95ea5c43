package simulation

import (
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// shardRun is one generation of a shard in the model of the entity runtime (internal/entity in the real thing). It begins messages only
// while the lease it was told of runs; what was killed may still be in the middle of a message and try to reply.
type shardRun struct {
	h         *host
	key       ShardKey
	epoch     sharding.Epoch
	until     sharding.Instant
	suspended bool
	stopping  bool
	killed    bool
	ending    bool // the Stop calls are under way
	entities  map[string]*entityRun
	order     []*entityRun
	open      int // messages queued or under way
}

// effectKey finds, for a reply that leaves a process, the generation of the entity that made it.
type effectKey struct {
	proc  int
	asker sharding.Member
	ask   uint64
}

type effectOf struct {
	key   ShardKey
	epoch sharding.Epoch
}

type entityRun struct {
	id    string
	queue []*protocol.Deliver
	busy  bool
}

func (h *host) key(s sharding.ShardID) ShardKey { return ShardKey{h.conf.Type, s} }

func (h *host) run(s sharding.ShardID, e sharding.Epoch) *shardRun {
	for _, r := range h.shards[s] {
		if r.epoch == e {
			return r
		}
	}
	return nil
}

func (h *host) start(s sharding.ShardID, e sharding.Epoch) {
	if h.run(s, e) == nil {
		h.shards[s] = append(h.shards[s], &shardRun{h: h, key: h.key(s), epoch: e, entities: map[string]*entityRun{}})
	}
}

func (h *host) extend(c region.ExtendLocal) {
	for _, g := range c.Shards {
		if r := h.run(g.Shard, g.Epoch); r != nil {
			r.until = max(r.until, c.Until)
			r.suspended = false
			r.wake()
		}
	}
}

func (h *host) suspend(c region.SuspendLocal) {
	for _, g := range c.Shards {
		if r := h.run(g.Shard, g.Epoch); r != nil {
			r.suspended = true
		}
	}
}

func (h *host) deliver(c *region.DeliverLocal) {
	r := h.run(c.Shard, c.Epoch)
	running := r != nil && !r.stopping
	h.p.w.observe(Delivered{Member: h.p.self, Key: h.key(c.Shard), Epoch: c.Epoch, Running: running})
	if !running {
		return
	}
	e := r.entities[c.Deliver.Entity]
	if e == nil {
		e = &entityRun{id: c.Deliver.Entity}
		r.entities[e.id] = e
		r.order = append(r.order, e)
	}
	e.queue = append(e.queue, c.Deliver)
	r.open++
	r.begin(e)
}

// wake goes on after the lease was extended.
func (r *shardRun) wake() {
	for _, e := range r.order {
		r.begin(e)
	}
}

func (r *shardRun) begin(e *entityRun) {
	p := r.h.p
	now := p.now()
	if e.busy || len(e.queue) == 0 || r.suspended || r.killed || now >= r.until {
		return
	}
	m := e.queue[0]
	e.queue = e.queue[1:]
	e.busy = true
	w := p.w
	w.observe(Begun{
		Global: w.now, Member: p.self, At: now, Key: r.key, Epoch: r.epoch, Sender: m.Sender, Seq: m.Seq, Command: m.Command, Entity: m.Entity,
	})
	work := time.Duration(50_000 + w.rng.Int64N(int64(2*time.Millisecond)))
	if !w.calm && w.rng.IntN(60) == 0 {
		work = time.Duration(w.rng.Int64N(int64(w.ttl)))
	}
	p.after(work, func() { r.finish(e, m) })
}

// finish ends a message. The reply is tried even where the generation was killed meanwhile: the code of a killed entity cannot be stopped.
func (r *shardRun) finish(e *entityRun, m *protocol.Deliver) {
	e.busy = false
	r.open--
	if m.Mode != protocol.Tell {
		r.h.p.w.effects[effectKey{r.h.p.id, m.Sender, m.Ask}] = effectOf{r.key, r.epoch}
		r.h.step(region.EffectReady{
			Shard: r.key.Shard, Epoch: r.epoch, To: m.Sender, Reply: protocol.Reply{Ask: m.Ask, Payload: m.Payload},
		})
	}
	r.h.p.do(func() {
		r.begin(e)
		r.drained()
	})
}

func (h *host) stop(s sharding.ShardID, e sharding.Epoch) {
	if r := h.run(s, e); r != nil {
		r.stopping = true
		r.drained()
		return
	}
	h.p.later(time.Millisecond, func() { h.step(region.ShardStopped{Shard: s, Epoch: e}) }) // nothing had started
}

// drained begins the Stop calls once the mailboxes of a stopping shard are empty.
func (r *shardRun) drained() {
	if !r.stopping || r.killed || r.ending || r.open > 0 {
		return
	}
	r.ending = true
	p, w := r.h.p, r.h.p.w
	if w.stuck[r.key] {
		return // a Stop that hangs
	}
	d := time.Duration(200_000 + w.rng.Int64N(int64(5*time.Millisecond)))
	switch n := w.rng.IntN(40); {
	case w.calm:
	case n == 0:
		d = time.Duration(w.rng.Int64N(int64(2 * w.handOffTimeout)))
	case n < 5:
		d = time.Duration(w.rng.Int64N(int64(300 * time.Millisecond)))
	}
	p.after(d, func() {
		if !r.killed {
			r.drop()
			r.h.step(region.ShardStopped{Shard: r.key.Shard, Epoch: r.epoch})
		}
	})
}

func (h *host) kill(s sharding.ShardID, e sharding.Epoch) {
	if r := h.run(s, e); r != nil {
		r.killed = true
		r.drop()
		for _, e := range r.order {
			for _, d := range e.queue {
				h.p.refuse(d, reasonTaken)
			}
			e.queue = nil
		}
		if r.ending {
			delete(h.p.w.stuck, r.key) // only this generation hangs
		}
	}
}

func (r *shardRun) drop() {
	runs := r.h.shards[r.key.Shard]
	for i, o := range runs {
		if o == r {
			r.h.shards[r.key.Shard] = append(runs[:i:i], runs[i+1:]...)
			return
		}
	}
}

// handOffTaken tells what became of an order to hand off.
func (h *host) handOffTaken(d *protocol.HandOff, commands []region.Command) {
	gen := protocol.ShardEpoch{Shard: d.Shard, Epoch: d.Epoch}
	f := HandOffTaken{Member: h.p.self, Key: h.key(d.Shard), Epoch: d.Epoch}
	f.Owned = !h.orders[gen] && h.owns(gen)
	for _, c := range commands {
		switch c := c.(type) {
		case region.StopLocal:
			f.Began = f.Began || c.Shard == d.Shard && c.Epoch == d.Epoch
		case region.ToCoordinator:
			switch m := c.Message.(type) {
			case *protocol.HandOffRefused:
				f.Answered = f.Answered || m.Shard == d.Shard
			case *protocol.HandOffComplete:
				f.Answered = f.Answered || m.Shard == d.Shard
			case *protocol.ShardsStopped:
				f.Answered = true
			}
		}
	}
	if f.Began {
		h.orders[gen] = true
	}
	h.p.w.observe(f)
}

func (h *host) owns(g protocol.ShardEpoch) bool {
	for _, o := range h.owned {
		if o == g {
			return true
		}
	}
	return false
}
