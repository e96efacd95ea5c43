package entity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// cell is one entity with its mailbox. Its state says who may touch it:
//
//	idle ──push──▶ queued ──worker──▶ running ──▶ idle (mailbox empty), queued (batch done), parked (no lease), waiting (Later), resting (backoff)
//
// Only the worker that runs it touches behavior. Lock order: shard.mu, then cell.mu.
type cell struct {
	shard *shard
	id    string
	last  atomic.Int64 // sharding.Instant of its last message

	mu       sync.Mutex
	state    state
	stopping bool
	retire   bool // passivate once the mailbox is empty
	failures uint8
	queue    []*protocol.Deliver
	known    known
	behavior sharding.Behavior
}

type state uint8

const (
	idle state = iota
	queued
	running
	parked
	waiting // for Later's function
	resting // after a panic
	dead
)

// batch bounds how many messages of one entity run before others have their turn.
const batch = 64

// push adds a message; the shard's lock is held.
func (c *cell) push(d *protocol.Deliver) {
	c.mu.Lock()
	c.queue = append(c.queue, d)
	wake := c.state == idle
	if wake {
		c.state = queued
	}
	c.mu.Unlock()
	if wake {
		c.shard.rt.cfg.Pool.submit(c)
	}
}

// stop makes the entity end once its mailbox is empty; the shard's lock is held.
func (c *cell) stop() {
	c.mu.Lock()
	c.stopping = true
	wake := c.state == idle || c.state == resting
	if wake {
		c.state = queued
	}
	c.mu.Unlock()
	if wake {
		c.shard.rt.cfg.Pool.submit(c)
	}
}

func (c *cell) isIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == idle
}

// passivate ends an idle entity; a message that comes meanwhile keeps it alive.
func (c *cell) passivate() {
	c.mu.Lock()
	wake := c.state == idle
	if wake {
		c.state, c.retire = queued, true
	}
	c.mu.Unlock()
	if wake {
		c.shard.rt.cfg.Pool.submit(c)
	}
}

// unpark goes on after the lease came back.
func (c *cell) unpark() { c.resume(parked) }

func (c *cell) resume(from state) {
	c.mu.Lock()
	wake := c.state == from
	if wake {
		c.state = queued
	}
	c.mu.Unlock()
	if wake {
		c.shard.rt.cfg.Pool.submit(c)
	}
}

// abandon ends the cell without Stop and gives back what it had not begun; the shard's lock is held.
func (c *cell) abandon() []*protocol.Deliver {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queue
	c.queue, c.state = nil, dead
	return q
}

// run is called by a worker.
func (c *cell) run() {
	s := c.shard
	var begun, bytes int64 // told in one go: workers share the counters
	defer func() { s.rt.left(begun, bytes) }()
	for range batch {
		c.mu.Lock()
		if c.state == dead {
			c.mu.Unlock()
			return
		}
		c.state = running
		if len(c.queue) == 0 {
			if c.retire && !c.stopping && c.behavior != nil && int64(s.rt.cfg.Now()) >= s.until.Load() {
				c.retire = false // the lease has lapsed since it was found idle
			}
			if c.stopping || c.retire {
				c.mu.Unlock()
				if c.finish() {
					return
				}
				continue
			}
			c.state = idle
			c.mu.Unlock()
			return
		}
		now := s.rt.cfg.Now()
		if int64(now) >= s.until.Load() {
			c.state = parked
			c.mu.Unlock()
			c.park(now)
			return
		}
		d := c.queue[0]
		c.queue[0] = nil
		if c.queue = c.queue[1:]; len(c.queue) == 0 {
			c.queue = nil // idle entities hold no buffer
		}
		c.retire = false
		c.mu.Unlock()
		begun++
		bytes += sizeOf(d)
		c.last.Store(int64(now))
		if !c.handle(d) {
			return
		}
	}
	c.mu.Lock()
	again := c.state != dead
	if again {
		c.state = queued
	}
	c.mu.Unlock()
	if again {
		s.rt.cfg.Pool.submit(c)
	}
}

// park leaves the cell to the next Extend, unless that has come already.
func (c *cell) park(now sharding.Instant) {
	s := c.shard
	s.mu.Lock()
	back := int64(now) < s.until.Load()
	if !back {
		s.parked = append(s.parked, c)
	}
	s.mu.Unlock()
	if back {
		c.unpark()
	}
}

// finish ends an entity with an empty mailbox: Stop, then out of the shard. It returns false if a message came meanwhile.
func (c *cell) finish() bool {
	s := c.shard
	if c.behavior != nil {
		c.guard(func() { c.behavior.Stop(&call{cell: c, Context: s.ctx}) })
		c.lose()
	}
	s.mu.Lock()
	c.mu.Lock()
	c.retire = false
	if c.state == dead || len(c.queue) > 0 {
		gone := c.state == dead
		c.mu.Unlock()
		s.mu.Unlock()
		return gone
	}
	c.state = dead
	delete(s.cells, c.id)
	s.rt.live.Add(-1)
	last := s.stopping && len(s.cells) == 0
	c.mu.Unlock()
	s.mu.Unlock()
	if last {
		s.ended()
	}
	return true
}

// handle runs one message. It returns false if the worker must leave the cell: somebody else will resume it.
func (c *cell) handle(d *protocol.Deliver) bool {
	s := c.shard
	s.count.Add(1)
	s.rt.handled.Add(1)
	x := &call{cell: c, Context: s.ctx, d: d}
	if c.again(x) {
		return true
	}
	var reply []byte
	var err error
	panicked := c.guard(func() {
		if c.behavior == nil {
			c.behavior = s.rt.cfg.Kind.New(x)
		}
		x.behavior = c.behavior
		if d.Mode == protocol.Start {
			return
		}
		reply, err = c.behavior.Receive(x, d.Payload)
	})
	if panicked {
		return c.failed(x)
	}
	c.mu.Lock()
	c.failures = 0
	c.mu.Unlock()
	if x.stopSelf {
		if c.guard(func() { c.behavior.Stop(x) }) {
			return c.failed(x)
		}
		c.lose()
		c.mu.Lock()
		c.retire = true
		c.mu.Unlock()
	}
	if !x.detached {
		x.answer(reply, err)
		return true
	}
	return x.detach()
}

// failed answers for an entity that panicked, and lets it rest before it is made anew.
func (c *cell) failed(x *call) bool {
	c.lose() // before the answer: a retry finds the entity as it is then
	x.answer(nil, errPanicked)
	c.mu.Lock()
	if c.state == dead {
		c.mu.Unlock()
		return false
	}
	if c.failures < 100 {
		c.failures++
	}
	pause := backoff(int(c.failures))
	if c.stopping {
		c.mu.Unlock()
		return true
	}
	c.state = resting
	c.mu.Unlock()
	time.AfterFunc(pause, func() { c.resume(resting) })
	return false
}

var errPanicked = errors.New("the entity panicked; it is started anew")

// guard runs entity code and catches its panic.
func (c *cell) guard(f func()) (panicked bool) {
	defer func() {
		if p := recover(); p != nil {
			panicked = true
			c.shard.rt.cfg.Panicked()
			c.logger().Error("an entity panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
	return false
}

func (c *cell) logger() *slog.Logger {
	return c.shard.rt.cfg.Logger.With("type", c.shard.rt.cfg.Type, "shard", c.shard.id, "entity", c.id)
}

// call is the context of one message.
type call struct {
	context.Context
	cell     *cell
	d        *protocol.Deliver // nil in Stop
	behavior sharding.Behavior
	stopSelf bool
	detached bool
	result   *result // what a retry is answered; nil without a command

	mu       sync.Mutex
	left     bool // the worker has left the cell to Later's function
	called   bool // Later's function has been called
	answered bool // and has given its answer: the entity may go on
}

var _ sharding.Context = (*call)(nil)

// ID implements sharding.Context, as do the following.
func (x *call) ID() string              { return x.cell.id }
func (x *call) Type() sharding.TypeName { return x.cell.shard.rt.cfg.Type }
func (x *call) Shard() sharding.ShardID { return x.cell.shard.id }
func (x *call) Epoch() sharding.Epoch   { return x.cell.shard.epoch }
func (x *call) StopSelf()               { x.stopSelf = true }
func (x *call) Logger() *slog.Logger    { return x.cell.logger() }

func (x *call) IsAsk() bool { return x.d != nil && x.d.Mode != protocol.Tell }

func (x *call) Command() (sharding.Incarnation, uint64) {
	if x.d == nil {
		return sharding.Incarnation{}, 0
	}
	return x.d.Command.Client, x.d.Command.Seq
}

func (x *call) Later() func(any, error) {
	if x.d == nil {
		return func(any, error) {} // Stop answers nobody
	}
	x.detached = true
	return func(reply any, err error) {
		x.mu.Lock()
		if x.called {
			x.mu.Unlock()
			return
		}
		x.called = true
		x.mu.Unlock()
		var b []byte
		if err == nil && (x.d.Mode == protocol.Ask || x.result != nil) {
			if x.cell.guard(func() { b, err = x.behavior.EncodeLater(x.d.Payload, reply) }) { // on whose goroutine ever this is
				b, err = nil, errPanicked
			}
		}
		x.answer(b, err)
		x.mu.Lock()
		x.answered = true
		left := x.left
		x.mu.Unlock()
		if left {
			x.cell.resume(waiting)
		}
	}
}

// detach leaves the cell to Later's function, unless that has answered already.
func (x *call) detach() (goOn bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered {
		return true
	}
	x.left = true
	x.cell.mu.Lock()
	if x.cell.state != dead {
		x.cell.state = waiting
	}
	x.cell.mu.Unlock()
	return false
}

// answer keeps the outcome for retries, and hands it to the region for an Ask.
func (x *call) answer(reply []byte, err error) {
	r := protocol.Reply{Payload: reply}
	if err != nil {
		r.Status, r.Payload = protocol.StatusFailed, []byte(err.Error())
		if errors.Is(err, sharding.ErrBadMessage) {
			r.Status = protocol.StatusBadMessage
		}
	}
	if x.result != nil {
		x.cell.mu.Lock()
		x.cell.known.end(x.result, r)
		x.cell.mu.Unlock()
	}
	x.send(r)
}

// send hands a reply to the region, for an Ask.
func (x *call) send(r protocol.Reply) {
	if !x.IsAsk() {
		return
	}
	r.Ask = x.d.Ask
	s := x.cell.shard
	s.rt.cfg.Reply(s.id, s.epoch, x.d.Sender, r)
}
