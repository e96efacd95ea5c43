package simulation

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// client sends tells and asks from its process to counters; the numbers of its commands grow, so that order can be told from outside.
type client struct {
	p    *process
	seq  uint64
	asks map[uint64]*asked // open ones by correlation id
}

type asked struct {
	command protocol.Command
	payload []byte
	done    func(protocol.Status) // nil: nobody waits but the checkers
}

func newClient(p *process) *client { return &client{p: p, asks: map[uint64]*asked{}} }

// next sends something now and then; bursts make buffers fill.
func (c *client) next() {
	w := c.p.w
	pause := time.Duration(w.rng.Int64N(int64(2 * w.clientPause)))
	c.p.after(pause, func() {
		if w.quiet || c.p.leaving {
			c.p.after(50*time.Millisecond, c.next)
			return
		}
		t := w.types[w.pick(len(w.types))]
		entity := t.entities[w.rng.IntN(len(t.entities))]
		if w.rng.IntN(30) == 0 { // a ShardRef
			shard := sharding.ShardOf(entity, t.shards)
			w.contacted[ShardKey{t.name, shard}] = true
			c.p.host(t.name).step(region.HomeWanted{Shard: shard})
		}
		n := 1
		if w.rng.IntN(12) == 0 {
			n = 2 + w.rng.IntN(6)
		}
		for range n {
			mode := protocol.Tell
			if w.rng.IntN(3) == 0 {
				mode = protocol.Ask
			}
			c.send(t, entity, mode, w.upTo(w.askFor)+200*time.Millisecond, nil)
		}
		c.next()
	})
}

// send submits one message. done, for an Ask, is told how it ended: StatusTryAgain stands for the deadline.
func (c *client) send(t *simType, entity string, mode protocol.Mode, wait time.Duration, done func(protocol.Status)) {
	p, w := c.p, c.p.w
	c.seq++
	s := region.Submitted{
		Mode: mode, Command: protocol.Command{Client: p.self.Incarnation, Seq: c.seq}, Entity: entity,
		Payload: binary.BigEndian.AppendUint64(nil, c.seq),
	}
	key := ShardKey{t.name, sharding.ShardOf(entity, t.shards)}
	if mode != protocol.Tell {
		s.Ask = c.seq
		s.Deadline = p.now().Add(wait)
		a := &asked{command: s.Command, payload: s.Payload, done: done}
		c.asks[s.Ask] = a
		p.after(wait, func() {
			if c.asks[s.Ask] == a {
				delete(c.asks, s.Ask)
				w.observe(Expired{Global: w.now, Member: p.self, Command: a.command})
				if done != nil {
					done(protocol.StatusTryAgain)
				}
			}
		})
	}
	w.contacted[key] = true
	w.observe(Submitted{Global: w.now, Member: p.self, Key: key, Command: s.Command, Entity: entity, Ask: s.Ask, Wait: int64(wait)})
	p.host(t.name).step(s)
}

// replied ends an Ask. A reply after the deadline finds nobody.
func (c *client) replied(r *protocol.Reply) {
	a := c.asks[r.Ask]
	w := c.p.w
	command := protocol.Command{Client: c.p.self.Incarnation, Seq: r.Ask}
	echo := r.Status != protocol.StatusOK || a == nil || bytes.Equal(r.Payload, a.payload)
	f := Replied{Global: w.now, Member: c.p.self, Command: command, Ask: r.Ask, Status: r.Status, Echo: echo}
	if r.Status != protocol.StatusOK {
		f.Reason = string(r.Payload)
	}
	w.observe(f)
	if a == nil {
		return
	}
	delete(c.asks, r.Ask)
	if a.done != nil {
		a.done(r.Status)
	}
}
