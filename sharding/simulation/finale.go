package simulation

import (
	"fmt"
	"sort"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// bound is how long after the faults every contacted shard may take to be served again (ADR 3, I15): 3 elections, TTL with margin on a
// slow clock, the time-out of a handoff, a rebalance interval, and a second for repeated requests.
func (w *world) bound() time.Duration {
	return 3*(electionMin+electionSpan) + w.ttl*12/10 + w.handOffTimeout + w.interval + time.Second
}

// heal ends the faults: whatever was to end later has ended by now.
func (w *world) heal() {
	w.logf("FAULT", nil, "faults end; all must be well in %v", w.bound())
	w.calm = true
	w.askFor = time.Second
	w.strategy = strategies{}
	clear(w.stuck)
	for _, n := range w.nodes {
		w.revive(n)
		n.proc.resume()
	}
	for a := range w.net.slow {
		clear(w.net.slow[a])
	}
	w.serfSettles()
	w.schedule(w.now+int64(1600*time.Millisecond), nil, w.serfSettles) // when no late hint is on its way any more
	ends := w.now + int64(w.bound())
	w.tidy(ends)
	w.schedule(ends, nil, func() {
		w.probeAll("I15", nil)
		w.inOrder(
			step{200 * time.Millisecond, w.transfer},
			step{800 * time.Millisecond, w.transfer},
			step{w.ttl * 12 / 10, w.plannedMoves},
			step{500 * time.Millisecond, w.plannedMoves},
			step{time.Second, w.hangOne},
		)
	})
}

type step struct {
	after time.Duration
	do    func()
}

func (w *world) inOrder(steps ...step) {
	if len(steps) > 0 {
		w.schedule(w.now+int64(steps[0].after), nil, func() {
			steps[0].do()
			w.inOrder(steps[1:]...)
		})
	}
}

// tidy has the operator take back drains, pins and the pause, until it must be well.
func (w *world) tidy(ends int64) {
	if p := w.leaderProc(); p != nil {
		s := p.machine.State()
		if s.Paused() {
			w.ask(coordinator.Pause{}, nil)
		}
		for _, m := range s.Members() {
			if m.Draining {
				w.ask(coordinator.DrainNode{Node: m.Member.Node}, nil)
			}
		}
		for _, t := range w.types {
			for _, pin := range s.Pins(t.name) {
				w.ask(coordinator.PinShard{Type: t.name, Shard: pin.Shard}, nil)
			}
		}
	}
	if w.now < ends {
		w.schedule(w.now+int64(300*time.Millisecond), nil, func() { w.tidy(ends) })
	}
}

// shards lists the contacted ones in order.
func (w *world) shards() []ShardKey {
	var out []ShardKey
	for k := range w.contacted { // unordered: sorted below
		out = append(out, k)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Type != out[j].Type {
			return out[i].Type < out[j].Type
		}
		return out[i].Shard < out[j].Shard
	})
	return out
}

// probeAll asks every contacted shard but one, from some node, and wants an answer soon.
func (w *world) probeAll(invariant string, but *ShardKey) {
	for _, k := range w.shards() {
		if but == nil || k != *but {
			w.probe(invariant, k)
		}
	}
}

// probe asks one shard. The answer may take as long as a hold whose end got lost in the faults (region.Config.HoldFor), and a little.
func (w *world) probe(invariant string, k ShardKey) {
	w.probeFor(invariant, k, w.holdFor+1500*time.Millisecond)
}

// smallBuffers: what waits for one shard may fill them, and all shards of a region share them.
func (w *world) smallBuffers() bool { return w.maxMessages < 1000 || w.maxBytes < 1<<20 }

func (w *world) probeFor(invariant string, k ShardKey, wait time.Duration) {
	var t *simType
	for _, t = range w.types {
		if t.name == k.Type {
			break
		}
	}
	for _, entity := range t.entities {
		if sharding.ShardOf(entity, t.shards) != k.Shard {
			continue
		}
		p := w.anyNode().proc
		w.probes++
		p.client.send(t, entity, protocol.Ask, wait, func(s protocol.Status) {
			w.probes--
			const again = 200 * time.Millisecond
			if s == protocol.StatusUnavailable && w.smallBuffers() && wait > again { // a buffer was full, and drains
				w.probes++
				w.schedule(w.now+int64(again), nil, func() {
					w.probes--
					w.probeFor(invariant, k, wait-again)
				})
				return
			}
			r := w.canon[k]
			w.observe(Probed{Invariant: invariant, OK: s == protocol.StatusOK, Detail: fmt.Sprintf(
				"%v does not serve %v after the faults have ended (status %d, asked from %v); the map says %v at %v, epoch %d",
				w.byOwner(r.Owner), k, s, p.self, r.State, r.Owner, r.Epoch)})
		})
		return
	}
}

func (w *world) byOwner(m sharding.Member) string {
	if p := w.byMember[m]; p == nil {
		return "nobody"
	} else if !p.alive {
		return m.String() + " (dead)"
	}
	return m.String()
}

// plannedMoves moves some shards while clients send: nothing may be lost now.
func (w *world) plannedMoves() {
	for range 4 {
		w.moveShard(w.anyShard(), w.anyNode(), nil)
	}
}

// hangOne moves a shard whose entities never end their Stop. All others must go on meanwhile, and it must find a new home (I17, spec 2.3).
func (w *world) hangOne() {
	var k ShardKey
	var to *node
	for range 20 {
		k, to = w.anyShard(), w.anyNode()
		r := w.canon[k]
		if r.State == protocol.Homed && r.Owner.Node != to.name && (k.Type == w.types[0].name || !to.proxy) && w.opts.Seed%2 == 0 {
			break
		}
		to = nil
	}
	if to == nil || w.smallBuffers() {
		w.schedule(w.now+1, nil, w.rest)
		return
	}
	w.logf("FAULT", nil, "stops of %v hang", k)
	w.stuck[k] = true
	w.moveShard(k, to, nil)
	w.inOrder(
		step{300 * time.Millisecond, func() { w.probeAll("I17", &k) }},
		step{w.handOffTimeout*11/10 + w.ttl*12/10 + w.interval + time.Second, func() {
			delete(w.stuck, k)
			w.probe("I15", k)
		}},
		step{1, w.rest},
	)
}

// rest lets the clients rest until what they sent has ended, and closes the run.
func (w *world) rest() {
	w.quiet = true
	w.inOrder(
		step{1300 * time.Millisecond, func() { w.probeAll("I15", nil) }},
		step{w.holdFor, w.close},
	)
}

// close ends the run once every probe has.
func (w *world) close() {
	if w.probes > 0 {
		w.schedule(w.now+int64(100*time.Millisecond), nil, w.close)
		return
	}
	w.settled()
	w.observe(Ended{Global: w.now})
	w.ended = true
}
