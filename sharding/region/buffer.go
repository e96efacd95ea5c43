package region

import (
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
	if r.count >= r.cfg.MaxMessages || r.bytes+size > r.cfg.MaxBytes {
		return false
	}
	r.count++
	r.bytes += size
	return true
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
			r.refuse(sh, w.d, DeadBufferFull)
		}
		return
	}
	w.at = r.now
	sh.arrived = append(sh.arrived, w)
	sh.local = false
	r.timers[sh.home.Shard] = struct{}{}
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
func (r *Region) refuse(sh *shard, d *protocol.Deliver, reason string) {
	r.sender(sh, d.Sender).settle(d.Seq, d.Seq)
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
		r.refuse(sh, w.d, DeadDeadline)
		return true
	}
	sh.arrived = slices.DeleteFunc(sh.arrived, past)
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
