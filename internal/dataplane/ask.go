package dataplane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// asks are the Asks of this node that have no reply yet.
type asks struct {
	mu      sync.Mutex
	waiting map[uint64]chan protocol.Reply
}

// begin gives an Ask a number that only those who get to see the Ask know: a shard moves, so nobody can tell whose the answer has to be.
func (a *asks) begin() (uint64, chan protocol.Reply) {
	ch := make(chan protocol.Reply, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		id := rand.Uint64()
		if _, taken := a.waiting[id]; id != 0 && !taken {
			a.waiting[id] = ch
			return id, ch
		}
	}
}

// end hands a reply to whoever waits; a second one, or one that comes too late, is nobody's.
func (a *asks) end(r protocol.Reply) {
	a.mu.Lock()
	ch := a.waiting[r.Ask]
	delete(a.waiting, r.Ask)
	a.mu.Unlock()
	if ch != nil {
		ch <- r
	}
}

func (a *asks) forget(id uint64) {
	a.mu.Lock()
	delete(a.waiting, id)
	a.mu.Unlock()
}

func (a *asks) failAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ch := range a.waiting {
		close(ch)
	}
	clear(a.waiting)
}

// Ask sends a payload to an entity and waits for the reply, as sharding.System says. command identifies a retry; it may be zero.
func (p *Plane) Ask(ctx context.Context, t sharding.TypeName, id string, payload []byte, command protocol.Command) ([]byte, error) {
	return p.ask(ctx, t, id, payload, protocol.Ask, command)
}

// Start places the entity's shard and starts the entity.
func (p *Plane) Start(ctx context.Context, t sharding.TypeName, id string) error {
	_, err := p.ask(ctx, t, id, nil, protocol.Start, protocol.Command{})
	return err
}

func (p *Plane) ask(ctx context.Context, t sharding.TypeName, id string, payload []byte, mode protocol.Mode, command protocol.Command) ([]byte, error) {
	s, err := p.route(t, id, payload)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // before anything has been sent
		return nil, fmt.Errorf("not sent to %s: %w", t, err)
	}
	p.counts.Asks.Add(1)
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultAskTimeout)
		defer cancel()
	}
	n, ch := p.asks.begin()
	defer p.asks.forget(n)
	m := &region.Submitted{Mode: mode, Ask: n, Entity: id, Payload: payload, Command: command, Deadline: p.deadline(ctx)}
	if !s.inbox.PutWait(regionItem{submit: m}, len(payload)) {
		return nil, errStopping
	}
	select {
	case r, ok := <-ch:
		if !ok {
			return nil, fmt.Errorf("the node stopped before the reply came, the outcome is unknown: %w", context.Canceled)
		}
		if r.Status == protocol.StatusUnavailable && string(r.Payload) == region.DeadDeadline {
			return nil, &said{sentinel: sharding.ErrUnavailable, text: p.whyWaited(t, s.shardOf(id))}
		}
		return outcome(t, r)
	case <-ctx.Done():
		return nil, fmt.Errorf("no reply from %s in time, the outcome is unknown: %w", t, ctx.Err())
	}
}

// deadline turns the context's into one on CLOCK_BOOTTIME, a little before it: word that the message was surely not begun must be here before the
// asker gives up, and calls the outcome unknown.
func (p *Plane) deadline(ctx context.Context) sharding.Instant {
	at, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	now, left := p.cfg.Now(), time.Until(at)
	if limit := p.leaderless.Load(); limit > 0 && now > sharding.Instant(limit) {
		left = min(left, leaderlessPatience)
	}
	return now.Add(max(left-min(left/10, 250*time.Millisecond), 1))
}

// leaderlessPatience is how long a message may be buffered where nobody has led for longer than any election takes: what waits for a lease or a home then
// waits for an operator. What can be delivered is not concerned.
const leaderlessPatience = 2 * time.Second

// whyWaited says why a message waited for its shard until its deadline, as far as this node can tell.
func (p *Plane) whyWaited(t sharding.TypeName, shard sharding.ShardID) string {
	var a region.Authority
	var home protocol.ShardRecord
	hosts, draining := 0, 0
	p.call(func() {
		a = p.session.Authority()
		home = p.session.Home(t, shard)
		for _, m := range p.session.Members() {
			if !slices.Contains(m.Hosts, t) {
				continue
			}
			hosts++
			if m.Draining {
				draining++
			}
		}
	})
	what := fmt.Sprintf("shard %d of %s was not served in time, and the message was not begun", shard, t)
	switch now := p.cfg.Now(); {
	case a.Heard == 0:
		return what + ": no coordinator has been heard from yet: is a majority of the voters up?"
	case !a.Leads(now):
		return fmt.Sprintf("%s: no coordinator has been heard from for %s: is a majority of the voters up?", what, now.Sub(a.Heard).Round(time.Second))
	case home.State != protocol.Unassigned && !home.Owner.IsZero():
		return fmt.Sprintf("%s: it is %s on node %s", what, home.State, home.Owner.Node)
	case hosts == 0:
		return what + ": no node that hosts the type is registered"
	case draining == hosts:
		return what + ": every node that hosts the type is draining; end a drain: drover cluster drain --undo"
	}
	return what + ": it has no home yet"
}

func outcome(t sharding.TypeName, r protocol.Reply) ([]byte, error) {
	switch r.Status {
	case protocol.StatusOK:
		return r.Payload, nil
	case protocol.StatusFailed:
		return nil, &sharding.EntityError{Text: string(r.Payload)}
	case protocol.StatusBadMessage:
		return nil, wrapped(sharding.ErrBadMessage, r.Payload)
	case protocol.StatusNoType:
		return nil, fmt.Errorf("%w: %s", sharding.ErrNoType, t)
	case protocol.StatusUnavailable:
		return nil, wrapped(sharding.ErrUnavailable, r.Payload)
	}
	return nil, fmt.Errorf("the reply has the status %s, which this release does not know", r.Status)
}

// wrapped adds the other side's words to a sentinel, once.
func wrapped(sentinel error, text []byte) error {
	if len(text) == 0 || string(text) == sentinel.Error() {
		return sentinel
	}
	return &said{sentinel, string(text)}
}

type said struct {
	sentinel error
	text     string
}

func (e *said) Error() string { return e.text }
func (e *said) Unwrap() error { return e.sentinel }

// Tell sends a payload to an entity and forgets it. command identifies a retry; it may be zero.
func (p *Plane) Tell(t sharding.TypeName, id string, payload []byte, command protocol.Command) error {
	s, err := p.route(t, id, payload)
	if err != nil {
		return err
	}
	p.counts.Tells.Add(1)
	if !s.inbox.PutWait(regionItem{submit: &region.Submitted{Mode: protocol.Tell, Entity: id, Payload: payload, Command: command}}, len(payload)) {
		return errStopping
	}
	return nil
}

// route finds the region of a message. What no other node could be sent is refused whoever has the shard: it may move.
func (p *Plane) route(t sharding.TypeName, id string, payload []byte) (*shell, error) {
	if err := sharding.CheckEntityID(id); err != nil {
		return nil, err
	}
	if len(payload) > protocol.MaxPayload {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are legal", sharding.ErrBadMessage, len(payload), protocol.MaxPayload)
	}
	s, err := p.region(t)
	if err == nil && !s.hosts && !p.hosted(t) {
		err = fmt.Errorf("%w: %s", sharding.ErrNoType, t)
	}
	return s, err
}
