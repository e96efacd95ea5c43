package region

import (
	"maps"
	"slices"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// unsent is a message of this node's own that has no way yet, so no number either.
type unsent struct {
	m Submitted
}

// waiting is a numbered message, or a claim (what a sender or former owner says of numbers that will not come any more), that can
// be neither served nor forwarded yet.
type waiting struct {
	d     *protocol.Deliver
	claim *protocol.SenderDone
	// class is the epoch under which the receiver was taken for the owner. All of one class leave a former owner by the same way, so
	// that a claim never overtakes what it is about.
	class sharding.Epoch
	from  sharding.Member
	at    sharding.Instant // when it came; of one that is held, when the hold began, former owners' included
	until sharding.Instant // an Ask's deadline; 0: none
}

// effect is a reply that waits for the lease to come back.
type effect struct {
	to    sharding.Member
	reply protocol.Reply
}

// reserve takes room in the buffers; false: they are full (I14).
func (r *Region) reserve(size int) bool {
	if !r.room(size) {
		r.evictAhead()
	}
	if !r.room(size) {
		return false
	}
	r.count++
	r.bytes += size
	return true
}

func (r *Region) room(size int) bool {
	return r.count < r.cfg.MaxMessages && r.bytes+size <= r.cfg.MaxBytes
}

func (r *Region) free(size int) {
	r.count--
	r.bytes -= size
}

func sizeOf(d *protocol.Deliver) int {
	if d == nil {
		return 0
	}
	return len(d.Entity) + len(d.Payload)
}

func (m *Submitted) size() int { return len(m.Entity) + len(m.Payload) }

// push puts a message or claim at the end of what has arrived. A message that finds no room is refused; a claim is given up, and the
// hold that waits for it ends by HoldFor.
func (r *Region) push(sh *shard, w waiting) {
	if !r.reserve(sizeOf(w.d)) {
		if w.d != nil {
			r.refuse(sh, w, DeadBufferFull)
		}
		return
	}
	w.at = r.now
	sh.arrived = append(sh.arrived, w)
	sh.local = false
	r.watch(sh, r.now)
}

// ahead says whether a peer believes in an epoch of the shard of which this node has not heard.
func (r *Region) ahead(sh *shard, believed sharding.Epoch) bool {
	return believed > sh.home.Epoch && !r.cfg.Off.EpochCheck
}

// pushAhead puts a message or claim aside until the map shows the epoch in which its sender believes. It holds up nothing that others send, gives way to
// the rest once the buffers are full, and waits no longer than forgetAfter: a peer may name any epoch.
func (r *Region) pushAhead(sh *shard, w waiting) {
	size := sizeOf(w.d)
	if !r.room(size) || !r.reserve(size) {
		if w.d != nil {
			r.refuse(sh, w, DeadBufferFull)
		}
		return
	}
	r.aheadCount++
	r.aheadBytes += size
	w.at = r.now
	sh.ahead = append(sh.ahead, w)
	r.watch(sh, r.now)
}

// evictAhead refuses what is ahead of the map as far as it takes more than half of the buffers, the youngest first.
func (r *Region) evictAhead() {
	over := func() bool { return r.aheadCount > (r.cfg.MaxMessages+1)/2 || r.aheadBytes > r.cfg.MaxBytes/2 }
	if !over() {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(r.timers)) {
		sh := &r.shards[id]
		slices.Reverse(sh.ahead)
		evicted := r.takeAhead(sh, func(*waiting) bool { return over() })
		slices.Reverse(sh.ahead)
		for _, w := range evicted {
			if w.d != nil {
				r.refuse(sh, w, DeadBufferFull)
			}
		}
	}
}

// takeAhead takes out of what is ahead of the map all for which f gives true, in order. Its room is free again.
func (r *Region) takeAhead(sh *shard, f func(*waiting) bool) (taken []waiting) {
	sh.ahead = slices.DeleteFunc(sh.ahead, func(w waiting) bool {
		if !f(&w) {
			return false
		}
		size := sizeOf(w.d)
		r.free(size)
		r.aheadCount--
		r.aheadBytes -= size
		taken = append(taken, w)
		return true
	})
	if len(sh.ahead) == 0 {
		sh.ahead = nil
	}
	return taken
}

// catchUp puts what was ahead of the map behind what has arrived, as far as the map has come up to it.
func (r *Region) catchUp(sh *shard) {
	if len(sh.ahead) == 0 {
		return
	}
	for _, w := range r.takeAhead(sh, func(w *waiting) bool { return w.class <= sh.home.Epoch }) {
		if sh.stage != idle {
			if w.d != nil && overtaken(w.d, sh.chain) {
				r.refuse(sh, w, DeadOvertaken)
				continue
			}
			if w.d != nil {
				w.class = max(w.class, sh.epoch)
			}
		}
		r.push(sh, w)
	}
}

func (r *Region) pop(sh *shard) waiting {
	w := sh.arrived[0]
	sh.arrived[0] = waiting{}
	sh.arrived = sh.arrived[1:]
	if len(sh.arrived) == 0 {
		sh.arrived = nil
	}
	r.free(sizeOf(w.d))
	return w
}

// refuse ends a numbered message that was surely not begun: a Tell is a dead letter, an Ask gets Unavailable (I13). Its number is noted,
// so that no hold waits for it.
func (r *Region) refuse(sh *shard, w waiting, reason string) {
	d := w.d
	if s := r.enter(sh, d.Sender, w.from); s != nil {
		r.settleSpan(s, d.Seq, d.Seq)
	}
	if d.Mode == protocol.Tell {
		r.emit(DeadLetter{Deliver: d, Reason: reason})
		return
	}
	reply := protocol.Reply{Ask: d.Ask, Status: protocol.StatusUnavailable, Payload: []byte(reason)}
	if sh.routable() {
		reply.Home = &protocol.MovedTo{Type: r.cfg.Type, Shard: sh.home.Shard, Owner: sh.home.Owner, Epoch: sh.home.Epoch}
	}
	r.reply(d.Sender, reply)
}

func (r *Region) reply(to sharding.Member, reply protocol.Reply) {
	if to == r.cfg.Self {
		r.emit(ReplyLocal{Reply: reply})
		return
	}
	r.emit(&Transmit{To: to, Message: &reply})
}

// refuseUnsent ends a message that has no number yet.
func (r *Region) refuseUnsent(id sharding.ShardID, m *Submitted, reason string) {
	if m.Mode == protocol.Tell {
		r.emit(DeadLetter{Reason: reason, Deliver: &protocol.Deliver{
			Type: r.cfg.Type, Shard: id, Sender: r.cfg.Self, Mode: m.Mode, Command: m.Command, Entity: m.Entity, Payload: m.Payload,
		}})
		return
	}
	r.emit(ReplyLocal{Reply: protocol.Reply{Ask: m.Ask, Status: protocol.StatusUnavailable, Payload: []byte(reason)}})
}

// expire ends buffered messages whose deadline has passed.
func (r *Region) expire(sh *shard) {
	sh.unsent = slices.DeleteFunc(sh.unsent, func(u unsent) bool {
		if u.m.Deadline == 0 || r.now < u.m.Deadline {
			return false
		}
		r.free(u.m.size())
		r.refuseUnsent(sh.home.Shard, &u.m, DeadDeadline)
		return true
	})
	expired := false
	past := func(w waiting) bool {
		if w.d == nil || w.until == 0 || r.now < w.until {
			return false
		}
		expired = true
		r.free(sizeOf(w.d))
		r.refuse(sh, w, DeadDeadline)
		return true
	}
	sh.arrived = slices.DeleteFunc(sh.arrived, past)
	for _, w := range r.takeAhead(sh, func(w *waiting) bool {
		return w.until > 0 && r.now >= w.until || r.now >= w.at.Add(forgetAfter)
	}) {
		switch {
		case w.d == nil:
		case w.until > 0 && r.now >= w.until:
			r.refuse(sh, w, DeadDeadline)
		default:
			r.refuse(sh, w, DeadMisrouted)
		}
	}
	for _, m := range sh.sortedSenders() {
		s := sh.senders[m]
		s.held = slices.DeleteFunc(s.held, past)
		if expired && sh.stage == serving && !sh.suspended {
			r.drain(sh, s)
		}
	}
	if expired {
		r.pump(sh)
	}
}
