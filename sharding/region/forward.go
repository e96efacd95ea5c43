package region

import (
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// successor is where this node forwards what came under an older epoch: the first owner it learned of after each ownership of its own
// (or belief of others in one). It stays the same when the shard moves on, so that messages and the claims behind them cannot overtake
// one another; the successor forwards in its turn. Epochs grow with each hop, so nothing ever goes round or to and fro (spec 3.3).
type successor struct {
	epoch sharding.Epoch
	chain sharding.Epoch
	dest  sharding.Member
	at    sharding.Instant
}

const maxSuccessors = 8

// successor finds who follows the epoch under which somebody took this node for the owner.
func (r *Region) successor(sh *shard, class sharding.Epoch) (successor, bool) {
	for _, n := range sh.next {
		if n.epoch > class {
			return n, true
		}
	}
	h := &sh.home
	if h.Epoch <= class || !sh.routable() || h.Owner == r.cfg.Self {
		return successor{}, false
	}
	if _, gone := r.gone[h.Owner]; gone {
		return successor{}, false
	}
	n := successor{epoch: h.Epoch, chain: h.Chain, dest: h.Owner, at: r.now}
	sh.next = slices.DeleteFunc(sh.next, func(o successor) bool { return r.now >= o.at.Add(forgetAfter) })
	if len(sh.next) == maxSuccessors {
		sh.next = slices.Delete(sh.next, 0, 1)
	}
	sh.next = append(sh.next, n)
	return n, true
}

// forward sends what arrived on to the next owner.
func (r *Region) forward(sh *shard, w waiting, to successor) {
	if w.claim != nil {
		r.passClaim(w.claim, to)
		return
	}
	d := w.d
	if s := sh.senders[d.Sender]; s != nil && s.passed(d, sh.epoch) {
		r.late(d)
		return
	}
	if overtaken(d, to.chain) {
		r.refuse(sh, w, DeadOvertaken)
		return
	}
	if d.Hops >= protocol.MaxHops {
		r.refuse(sh, w, DeadHops)
		return
	}
	if d.Deadline > 0 && w.until > 0 {
		d.Deadline = left(w.until, r.now)
	}
	d.Hops++
	d.Origin = d.SentUnder()
	d.Epoch = to.epoch
	r.emit(&Transmit{To: to.dest, Message: d})
}

func (r *Region) passClaim(c *protocol.SenderDone, to successor) {
	if c.Seq == 0 {
		return // a closed stream concerns the owner that is told of it, and is not hearsay
	}
	r.tell(c, to)
}

func (r *Region) tell(c *protocol.SenderDone, to successor) {
	r.emit(&Transmit{To: to.dest, Message: &protocol.SenderDone{
		Type: r.cfg.Type, Shard: c.Shard, Epoch: to.epoch, Sender: c.Sender, From: c.From, Seq: c.Seq,
	}})
}

// passSettled hands on what is known not to come any more, once everything else has been forwarded.
func (r *Region) passSettled(sh *shard) {
	if sh.left && len(r.closed) > 0 {
		to, ok := r.successor(sh, sh.epoch)
		if !ok || r.down[to.dest] {
			return
		}
		for _, m := range slices.SortedFunc(maps.Keys(r.closed), compareMembers) {
			if r.closed[m] >= sh.ownedAt {
				r.tell(&protocol.SenderDone{Shard: sh.home.Shard, Sender: m}, to)
			}
		}
	}
	sh.left = false
	for _, m := range sh.sortedSenders() {
		s := sh.senders[m]
		if len(s.settled) == 0 {
			continue
		}
		to, ok := r.successor(sh, sh.epoch)
		if !ok || r.down[to.dest] {
			return
		}
		for _, n := range s.settled {
			if n.to > s.last {
				r.passClaim(&protocol.SenderDone{Shard: sh.home.Shard, Sender: m, From: max(n.from, s.last+1), Seq: n.to}, to)
			}
		}
		r.spans -= len(s.settled)
		if s.settled = nil; s.last == 0 && len(s.held) == 0 {
			r.dropSender(sh, m) // it says nothing
		}
	}
}

// unhold puts what is held back in front of what waits: the shard is leaving, and holds travel on in number order (spec 2.3).
func (r *Region) unhold(sh *shard) {
	var front []waiting
	for _, m := range sh.sortedSenders() {
		s := sh.senders[m]
		for _, w := range s.held {
			w.d.Held = uint32(min(r.now.Sub(w.at)/time.Millisecond, 1<<31))
			front = append(front, w)
		}
		s.held, s.since = nil, 0
		s.direct = false
	}
	if len(front) > 0 {
		sh.arrived = append(front, sh.arrived...)
	}
}

// peerClosed: what the stream from a member carried and has not arrived never will. Holds that wait for it end, here and at the owners
// that this node forwards to.
func (r *Region) peerClosed(p sharding.Member) {
	known := r.knows(p)
	if known {
		r.closed[p] = r.now
	}
	for i := range r.shards {
		sh := &r.shards[i]
		if sh.hold && sh.source == p {
			r.endHolds(sh)
		}
		if !known { // it cannot have sent to owners before this one
			continue
		}
		if sh.stage != idle || len(sh.arrived) > 0 {
			sh.left = true // told behind what has arrived, if the member has not come back by then
			continue
		}
		for _, n := range sh.next {
			if r.now < n.at.Add(forgetAfter) && !r.down[n.dest] {
				r.tell(&protocol.SenderDone{Shard: sh.home.Shard, Sender: p}, n)
			}
		}
	}
}

// memberGone: the incarnation is fenced for good. It sends and forwards nothing any more, and nothing is forwarded to it.
func (r *Region) memberGone(m sharding.Member) {
	if m == r.cfg.Self {
		return
	}
	r.gone[m] = r.now
	delete(r.members, m)
	delete(r.back, m) // but not from down: it may come back into the map before it can be reached
	for i := range r.shards {
		sh := &r.shards[i]
		sh.next = slices.DeleteFunc(sh.next, func(n successor) bool { return n.dest == m })
		if s := sh.senders[m]; s != nil && sh.hold {
			s.direct = true
			if sh.stage == serving && !sh.suspended {
				r.drain(sh, s)
			}
		}
		if sh.way.dest == m {
			sh.remote = false
		}
	}
	r.peerClosed(m)
	for i := range r.shards {
		if sh := &r.shards[i]; sh.stage == idle && len(sh.arrived) > 0 {
			r.pump(sh)
		}
	}
}
