package region

import (
	"slices"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Arrive is Step(at, Arrived) without the detours: commands are appended to out. The region owns d from here on.
func (r *Region) Arrive(at sharding.Instant, from sharding.Member, d *protocol.Deliver, out []Command) []Command {
	r.begin(at, out)
	r.heard(from)
	sh := r.shard(d.Shard)
	if sh == nil || d.Seq == 0 || d.Mode > protocol.Start || d.Hops == 0 && d.Sender != from || d.Deadline < 0 ||
		d.Sender == r.cfg.Self && d.Seq > sh.seq || // this node never sent it
		sharding.CheckEntityID(d.Entity) != nil || sharding.ShardOf(d.Entity, r.cfg.NumShards) != d.Shard {
		r.emit(DeadLetter{Deliver: d, Reason: DeadBadFrame}) // unanswered: its sender is as doubtful as the rest
		return r.finish()
	}
	var until sharding.Instant
	if d.Deadline > 0 && d.Deadline < int64(24*time.Hour/time.Millisecond) {
		until = r.now.Add(time.Duration(d.Deadline) * time.Millisecond)
	}
	r.arrive(sh, from, d, until)
	return r.finish()
}

// heard notes that a member has a stream to here.
func (r *Region) heard(m sharding.Member) {
	if len(r.closed) > 0 {
		delete(r.closed, m)
	}
}

func (r *Region) arrive(sh *shard, from sharding.Member, d *protocol.Deliver, until sharding.Instant) {
	if r.serves(sh, d.Epoch) && len(sh.arrived) == 0 && !overtaken(d, sh.chain) {
		r.accept(sh, waiting{d: d, from: from, class: d.Epoch, at: r.now, until: until})
		return
	}
	if s := sh.senders[d.Sender]; s != nil && s.passed(d, sh.epoch) {
		r.late(d)
		return
	}
	w := waiting{d: d, from: from, class: d.Epoch, until: until}
	switch {
	case r.ahead(sh, d.Epoch):
		r.pushAhead(sh, w)
	case sh.stage != idle && overtaken(d, sh.chain):
		r.refuse(sh, w, DeadOvertaken)
		return
	default:
		if sh.stage != idle {
			w.class = max(w.class, sh.epoch)
		}
		r.push(sh, w)
		r.pump(sh)
	}
	r.wantHome(sh)
}

// overtaken says that a message may be behind what an owner has begun since it was sent, of which the owner after the chain of handoffs that began at
// epoch chain was not told. What counts is under which epoch its sender sent it, however far it has been forwarded since.
func overtaken(d *protocol.Deliver, chain sharding.Epoch) bool { return d.SentUnder()+1 < chain }

// serves says whether messages of senders that believe in an epoch may begin here now.
func (r *Region) serves(sh *shard, believed sharding.Epoch) bool {
	if r.cfg.Off.EpochCheck {
		return sh.stage == serving && !sh.suspended
	}
	return sh.stage == serving && !sh.suspended && believed <= sh.epoch
}

// pump serves or forwards what has arrived, in order, as far as it can.
func (r *Region) pump(sh *shard) {
	for len(sh.arrived) > 0 {
		w := &sh.arrived[0]
		switch {
		case sh.stage == serving:
			believed := sharding.Epoch(0)
			if w.d != nil {
				believed = w.d.Epoch
			}
			if !r.serves(sh, believed) {
				return
			}
			if w := r.pop(sh); w.claim != nil {
				r.settle(sh, w.from, w.claim)
			} else {
				r.accept(sh, w)
			}
		case sh.stage == idle:
			to, ok := r.successor(sh, w.class)
			if !ok && sh.home.Epoch == w.class && !sh.home.Owner.IsZero() && sh.home.Owner != r.cfg.Self {
				if w := r.pop(sh); w.d != nil {
					r.refuse(sh, w, DeadMisrouted)
				}
				continue
			}
			if !ok || r.down[to.dest] {
				return
			}
			r.forward(sh, r.pop(sh), to)
		default:
			return
		}
	}
	if sh.stage == idle {
		r.passSettled(sh)
	}
	r.refreshLocal(sh)
}

// accept begins a message of a serving shard, or holds it, or drops it.
func (r *Region) accept(sh *shard, w waiting) {
	d := w.d
	s := r.enter(sh, d.Sender, w.from)
	if s == nil {
		r.refuse(sh, w, DeadUnknownSender)
		return
	}
	overstated := s.overstated(d, sh.epoch)
	if overstated {
		s.last, s.direct = d.Seq-1, true
		r.stats.Corrected++
	}
	switch {
	case d.Seq <= s.last:
		r.late(d)
	case w.until > 0 && r.now >= w.until && d.Mode != protocol.Tell:
		r.refuse(sh, w, DeadDeadline)
		r.drain(sh, s)
	case !sh.hold || s.direct || s.next(d.Seq) || r.cfg.Off.Holds:
		r.start(sh, s, w)
		if sh.hold && (len(s.held) > 0 || s == sh.self) || overstated {
			r.drain(sh, s)
		}
	default:
		r.holdBack(sh, s, w)
	}
}

// start begins a message.
func (r *Region) start(sh *shard, s *sender, w waiting) {
	s.last, s.since = w.d.Seq, 0
	if w.d.Hops == 0 {
		s.own = w.d.Seq
		if len(s.settled) > 0 && w.d.Epoch >= sh.epoch { // it has numbered nothing above yet for others to speak of
			r.spans -= len(s.settled)
			s.settled = nil
		}
		s.direct = s.direct || w.d.Epoch >= sh.since
	}
	if w.until > 0 && w.at < r.now {
		w.d.Deadline = left(w.until, r.now)
	}
	r.emit(&DeliverLocal{Shard: w.d.Shard, Epoch: sh.epoch, Deliver: w.d})
}

func (r *Region) late(d *protocol.Deliver) {
	r.stats.Late++
	r.emit(DeadLetter{Deliver: d, Reason: DeadLate})
}

// holdBack keeps a message whose predecessors are on their way through former owners.
func (r *Region) holdBack(sh *shard, s *sender, w waiting) {
	i, there := slices.BinarySearchFunc(s.held, w.d.Seq, func(h waiting, n uint64) int {
		switch {
		case h.d.Seq < n:
			return -1
		case h.d.Seq > n:
			return 1
		}
		return 0
	})
	if there {
		r.late(w.d)
		return
	}
	if !r.reserve(sizeOf(w.d)) {
		r.refuse(sh, w, DeadBufferFull)
		return
	}
	r.stats.Held++
	w.at, w.class = r.now.Add(-time.Duration(w.d.Held)*time.Millisecond), max(w.class, sh.epoch)
	if s.since == 0 || w.at < s.since {
		s.since = max(w.at, 1)
	}
	s.held = slices.Insert(s.held, i, w)
	sh.local = false
	r.watch(sh, r.now)
}

// drain begins what is held of a sender, as far as it is next.
func (r *Region) drain(sh *shard, s *sender) {
	for len(s.held) > 0 {
		w := s.held[0]
		if w.d.Seq > s.last && sh.hold && !s.direct && !s.next(w.d.Seq) {
			if s.since == 0 { // the next gap
				s.since = max(w.at, 1)
			}
			return
		}
		s.held = slices.Delete(s.held, 0, 1)
		r.free(sizeOf(w.d))
		if w.d.Seq <= s.last {
			r.late(w.d)
			continue
		}
		r.start(sh, s, w)
	}
	s.held = nil
	r.refreshLocal(sh)
}

// endHolds: the source will forward no more.
func (r *Region) endHolds(sh *shard) {
	sh.hold = false
	if sh.stage != serving || sh.suspended {
		return // what is held goes out when the shard serves again
	}
	r.drainAll(sh)
}

func (r *Region) drainAll(sh *shard) {
	for _, m := range sh.sortedSenders() {
		if s := sh.senders[m]; len(s.held) > 0 {
			r.drain(sh, s)
		}
	}
	r.refreshLocal(sh)
}

// cutHolds ends holds that have lasted for HoldFor.
func (r *Region) cutHolds(sh *shard) {
	if sh.stage != serving || sh.suspended {
		return
	}
	for _, m := range sh.sortedSenders() {
		s := sh.senders[m]
		if len(s.held) > 0 && r.now >= s.since.Add(r.cfg.HoldFor) {
			r.stats.HoldsCut++
			s.direct = true
			r.drain(sh, s)
		}
	}
}

// claimArrived takes a sender's or former owner's word that some numbers will not come any more.
func (r *Region) claimArrived(from sharding.Member, id sharding.ShardID, c *protocol.SenderDone, bad bool) {
	sh := r.shard(id)
	if sh == nil || bad || c.Seq > 0 && (c.From == 0 || c.From > c.Seq) {
		return
	}
	c.Type, c.Shard = r.cfg.Type, id
	r.claim(sh, from, c)
}

// claim handles a claim in its turn: behind what arrived before it, and on the way of what it is about.
func (r *Region) claim(sh *shard, from sharding.Member, c *protocol.SenderDone) {
	switch {
	case r.ahead(sh, c.Epoch):
		r.pushAhead(sh, waiting{claim: c, class: c.Epoch, from: from})
		r.wantHome(sh)
	case len(sh.arrived) > 0 || sh.stage != idle && (sh.stage != serving || sh.suspended):
		r.push(sh, waiting{claim: c, class: c.Epoch, from: from})
		r.pump(sh)
	case sh.stage == serving:
		r.settle(sh, from, c)
	default:
		to, ok := r.successor(sh, c.Epoch)
		if !ok || r.down[to.dest] {
			r.push(sh, waiting{claim: c, class: c.Epoch, from: from})
			r.pump(sh) // one that is misrouted ends here
			r.wantHome(sh)
			return
		}
		r.passClaim(c, to)
	}
}

// settle takes a claim as the owner. One about a way that this node has forwarded in between follows what it forwarded, and comes round.
func (r *Region) settle(sh *shard, from sharding.Member, c *protocol.SenderDone) {
	for _, n := range sh.next {
		if n.epoch > c.Epoch && n.epoch < sh.epoch && !r.down[n.dest] {
			r.passClaim(c, n)
			return
		}
	}
	if c.Seq == 0 && from != sh.source {
		return // what others know of a broken stream says nothing of what the source still forwards
	}
	if c.Seq == 0 && sh.senders[c.Sender] == nil && !r.knows(c.Sender) {
		return // nothing of it waits, and it sends no more
	}
	s := r.enter(sh, c.Sender, from)
	if s == nil {
		r.emit(DropClaim{From: from, Sender: c.Sender})
		return
	}
	if c.Seq == 0 {
		s.direct = true
	} else {
		r.settleSpan(s, c.From, c.Seq)
	}
	r.drain(sh, s)
}
