package region

import (
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Submit is Step(at, Submitted) without the detours: commands are appended to out, and m may be used again afterwards.
func (r *Region) Submit(at sharding.Instant, m *Submitted, out []Command) []Command {
	r.begin(at, out)
	if m.Mode > protocol.Start || sharding.CheckEntityID(m.Entity) != nil {
		r.refuseUnsent(0, m, DeadBadFrame)
		return r.finish()
	}
	sh := &r.shards[sharding.ShardOf(m.Entity, r.cfg.NumShards)]
	switch {
	case sh.local:
		x := &struct {
			c DeliverLocal
			d protocol.Deliver
		}{}
		r.number(sh, m, &x.d)
		sh.self.last = x.d.Seq
		x.c = DeliverLocal{Shard: x.d.Shard, Epoch: sh.epoch, Deliver: &x.d}
		r.out = append(r.out, &x.c)
	case sh.remote:
		r.send(sh, m)
	default:
		if sh.home.State == protocol.Waiting {
			r.refuseUnsent(sh.home.Shard, m, DeadWaiting)
			break
		}
		if sh.way.dest == r.cfg.Self && len(sh.unsent) == 0 {
			r.deliverOwn(sh, m)
			break
		}
		if !r.reserve(m.size()) {
			r.refuseUnsent(sh.home.Shard, m, DeadBufferFull)
			break
		}
		sh.unsent = append(sh.unsent, unsent{*m})
		r.watch(sh, r.now)
		r.wantHome(sh)
	}
	return r.finish()
}

// number makes the next message of this way.
func (r *Region) number(sh *shard, m *Submitted, d *protocol.Deliver) {
	sh.seq++
	d.Type, d.Shard, d.Epoch = r.cfg.Type, sh.home.Shard, sh.way.epoch
	d.Sender, d.Seq = r.cfg.Self, sh.seq
	d.Mode, d.Ask, d.Command, d.Entity, d.Payload = m.Mode, m.Ask, m.Command, m.Entity, m.Payload
	if m.Deadline > 0 {
		d.Deadline = left(m.Deadline, r.now)
	}
}

// left gives the ms to a deadline, at least 1: 0 would mean none.
func left(deadline, now sharding.Instant) int64 {
	return max(1, int64(deadline.Sub(now)/time.Millisecond))
}

func (r *Region) send(sh *shard, m *Submitted) {
	x := &struct {
		t Transmit
		d protocol.Deliver
	}{}
	r.number(sh, m, &x.d)
	x.t = Transmit{To: sh.way.dest, Message: &x.d}
	r.out = append(r.out, &x.t)
}

// deliverOwn sends to this node itself: the same numbers, the same buffers and holds as for any sender.
func (r *Region) deliverOwn(sh *shard, m *Submitted) {
	d := &protocol.Deliver{}
	r.number(sh, m, d)
	r.arrive(sh, r.cfg.Self, d, m.Deadline)
}

// reroute follows a change of the home: it ends the way to the former owner with a last word, and sends what has waited.
func (r *Region) reroute(sh *shard) {
	if sh.routable() && (sh.way.dest != sh.home.Owner || sh.way.epoch != sh.home.Epoch) {
		lost := r.endWay(sh)
		if before := sh.way; !before.told && before.lost.to > 0 {
			lost.from = before.lost.from
			lost.to = max(lost.to, before.lost.to)
		}
		floor := uint64(0)
		if sh.way.epoch < sh.home.Chain {
			floor, lost = sh.seq, span{}
		}
		sh.way = way{dest: sh.home.Owner, epoch: sh.home.Epoch, first: sh.seq + 1, floor: floor, lost: lost}
		sh.wanted = false
		r.tellGaps(sh)
	}
	r.sendUnsent(sh)
}

// tellGaps tells an owner which numbers it must not wait for: those that went to owners of which it was not told (the chain of handoffs is
// younger than this node's way to them), and those on a broken way to a former owner.
func (r *Region) tellGaps(sh *shard) {
	w := &sh.way
	gap := w.lost
	if w.floor > 0 {
		gap = span{1, w.floor}
	}
	if gap.to == 0 || r.down[w.dest] {
		return
	}
	w.told = true
	c := &protocol.SenderDone{Type: r.cfg.Type, Shard: sh.home.Shard, Epoch: w.epoch, Sender: r.cfg.Self, From: gap.from, Seq: gap.to}
	if w.dest == r.cfg.Self {
		r.claim(sh, r.cfg.Self, c)
	} else {
		r.emit(&Transmit{To: w.dest, Message: c})
	}
}

// endWay tells the former owner up to which number this node has sent to it; without a stream to it the numbers are given back, for the
// next owner to be told that they may be lost.
func (r *Region) endWay(sh *shard) (lost span) {
	w := sh.way
	if w.dest.IsZero() || w.first > sh.seq {
		return span{}
	}
	sh.way.first = sh.seq + 1
	if w.dest == r.cfg.Self {
		r.claim(sh, r.cfg.Self, &protocol.SenderDone{Type: r.cfg.Type, Shard: sh.home.Shard, Epoch: w.epoch, Sender: r.cfg.Self, From: w.first, Seq: sh.seq})
		return span{}
	}
	if _, gone := r.gone[w.dest]; gone || r.down[w.dest] {
		return span{w.first, sh.seq}
	}
	r.emit(&Transmit{To: w.dest, Message: &protocol.SenderMoved{Type: r.cfg.Type, Shard: sh.home.Shard, Epoch: w.epoch, From: w.first, Seq: sh.seq}})
	return span{}
}

// sendUnsent sends what waited for a way, and finds out what new messages may skip.
func (r *Region) sendUnsent(sh *shard) {
	_, gone := r.gone[sh.home.Owner]
	open := sh.routable() && !gone && !r.down[sh.home.Owner]
	if own := sh.way.dest == r.cfg.Self; !open && own && sh.home.Owner == r.cfg.Self {
		open = true // fenced: buffered here as it would be with the owner
	}
	if open && len(sh.unsent) > 0 {
		queue := sh.unsent
		sh.unsent = nil
		for i := range queue {
			m := &queue[i].m
			r.free(m.size())
			if sh.way.dest == r.cfg.Self {
				r.deliverOwn(sh, m)
			} else {
				r.send(sh, m)
			}
		}
	}
	sh.remote = open && sh.way.dest != r.cfg.Self
	r.refreshLocal(sh)
	r.wantHome(sh)
}

// refreshLocal finds out whether this node's own messages go straight to an entity.
func (r *Region) refreshLocal(sh *shard) {
	sh.local = sh.stage == serving && !sh.suspended && len(sh.arrived) == 0 && len(sh.unsent) == 0 && sh.way.dest == r.cfg.Self &&
		sh.way.epoch == sh.epoch
	if !sh.local {
		return
	}
	if sh.self == nil {
		sh.self = r.sender(sh, r.cfg.Self)
	}
	s := sh.self
	sh.local = len(s.held) == 0 && s.last <= sh.seq && (!sh.hold || s.direct)
}

func (r *Region) peerDown(p sharding.Member) {
	r.down[p] = true
	for i := range r.shards {
		if sh := &r.shards[i]; sh.way.dest == p {
			sh.remote, sh.way.told = false, false
		}
	}
}

// peerUp goes on with a member that has a stream again. What the broken one lost will not come: the owner is told, so that it does not
// wait.
func (r *Region) peerUp(p sharding.Member) {
	if !r.down[p] {
		return
	}
	delete(r.down, p)
	delete(r.back, p)
	for i := range r.shards {
		sh := &r.shards[i]
		if sh.way.dest == p {
			r.endWay(sh)
			r.tellGaps(sh)
			r.sendUnsent(sh)
		}
		if sh.stage == idle && (len(sh.arrived) > 0 || len(sh.senders) > 0) {
			r.pump(sh)
		}
	}
}
