package region

import (
	"slices"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// mapChanged follows the map. A record older than what ShardHome or StartShard told already is ignored (spec 3.3).
func (r *Region) mapChanged(ev MapChanged) {
	told := map[sharding.ShardID]bool{}
	for _, rec := range ev.Records {
		sh := r.shard(rec.Shard)
		if sh == nil {
			continue
		}
		if ev.Full {
			told[rec.Shard] = true
		}
		if rec.Epoch >= sh.home.Epoch {
			r.observe(sh, rec)
		}
	}
	if !ev.Full {
		return
	}
	for i := range r.shards {
		sh := &r.shards[i]
		if told[sh.home.Shard] || sh.home.Epoch == 0 || sh.home.Granted > ev.Revision.Index {
			continue
		}
		r.observe(sh, protocol.ShardRecord{Shard: sh.home.Shard, Epoch: sh.home.Epoch})
	}
}

// observe takes the newest record of a shard: it may take the shard away, fence it, or give it to this node.
func (r *Region) observe(sh *shard, rec protocol.ShardRecord) {
	if sh.home.Owner == r.cfg.Self {
		r.owns--
	}
	if rec.Owner == r.cfg.Self {
		r.owns++
	}
	sh.home = rec
	r.cameBack(rec.Owner)
	mine := rec.Owner == r.cfg.Self
	if !mine && !rec.Owner.IsZero() {
		sh.hold = false
	}
	if sh.stage != idle {
		switch {
		case !mine || rec.Epoch != sh.epoch:
			r.superseded(sh)
		case rec.State == protocol.Fenced && !sh.fenced:
			sh.fenced = true
			r.suspend([]*shard{sh})
		}
	}
	if sh.stage == idle && mine && r.cfg.Hosts && !r.ending && rec.Epoch > sh.dead && sh.routable() {
		r.grant(sh)
	}
	r.catchUp(sh)
	r.pump(sh) // what has a number goes before what gets one now
	r.reroute(sh)
}

// superseded: this generation is over. What is left of it is killed, so that no effect of it leaves (I1); what has not begun goes on.
func (r *Region) superseded(sh *shard) {
	if r.cfg.Off.EpochCheck && sh.started {
		return
	}
	r.kill(sh)
	r.unhold(sh)
	sh.stage, sh.report, sh.handOff = idle, nil, false
	sh.left = true
	sh.parted = sh.home.Owner.IsZero()
}

// kill drops the entities of a started shard, and effects that waited for the lease.
func (r *Region) kill(sh *shard) {
	if sh.started {
		r.setStarted(sh, false)
		r.emit(KillLocal{Shard: sh.home.Shard, Epoch: sh.epoch})
		r.sayStopped(sh.home.Shard, sh.epoch)
	}
	r.dropEffects(sh)
	sh.dead = max(sh.dead, sh.epoch)
	sh.local = false
}

func (r *Region) dropEffects(sh *shard) {
	for _, e := range sh.effects {
		r.free(len(e.reply.Payload))
		r.stats.Effects++
	}
	sh.effects = nil
}

// grant: the map gives the shard to this node. It is served once StartShard has come and the lease covers it.
func (r *Region) grant(sh *shard) {
	sh.stage, sh.epoch, sh.granted, sh.chain = granted, sh.home.Epoch, sh.home.Granted, sh.home.Chain
	sh.briefed, sh.suspended, sh.fenced, sh.handOff, sh.ended = false, false, false, false, false
	sh.ownedAt = r.now
	sh.arrived = slices.DeleteFunc(sh.arrived, func(w waiting) bool {
		if w.d == nil || !overtaken(w.d, sh.chain) {
			return false
		}
		r.free(sizeOf(w.d))
		r.refuse(sh, w, DeadOvertaken)
		return true
	})
	for i := range sh.arrived { // they wait for this ownership now
		if w := &sh.arrived[i]; w.d != nil {
			w.class = max(w.class, sh.epoch)
		}
	}
	r.renewNow = true
}

// coversNow says whether the lease covers the shard's present generation (I3).
func (r *Region) coversNow(sh *shard) bool {
	return !sh.fenced && sh.granted <= r.coveredTo && (r.now < r.until || r.cfg.Off.Lease && r.until > 0)
}

// tryStart starts a granted shard once everything is there.
func (r *Region) tryStart(sh *shard) bool {
	if sh.stage != granted || !sh.briefed || !r.coversNow(sh) {
		return false
	}
	sh.stage = serving
	r.setStarted(sh, true)
	gen := []protocol.ShardEpoch{{Shard: sh.home.Shard, Epoch: sh.epoch}}
	r.emit(StartLocal{Shard: sh.home.Shard, Epoch: sh.epoch})
	r.emit(ExtendLocal{Shards: gen, Until: r.until})
	r.confirmed = append(r.confirmed, gen...)
	if !sh.hold {
		r.drainAll(sh)
	}
	r.pump(sh)
	r.refreshLocal(sh)
	return true
}

// covered extends the lease: suspended shards go on, granted ones start. Where there are many shards those that go on anyway are told at most every
// manyEvery: grants that come by the hundred each bring an acknowledgement.
func (r *Region) covered(ev Covered) {
	if ev.Revision.Index < r.coveredTo || ev.Until <= r.now {
		return
	}
	resume := r.lapsed
	r.coveredTo, r.until, r.lapsed, r.extendDue = ev.Revision.Index, max(r.until, ev.Until), false, true
	if resume || r.cfg.NumShards <= fewShards || r.now >= r.extendedAt.Add(manyEvery) {
		r.extend()
	}
	slices.Sort(r.briefed)
	waiting := r.briefed[:0]
	for _, id := range slices.Compact(r.briefed) {
		if sh := &r.shards[id]; !r.tryStart(sh) && sh.stage == granted && sh.briefed {
			waiting = append(waiting, id)
		}
	}
	r.briefed = waiting
}

// extend tells the started shards how long the lease holds, and has suspended ones go on.
func (r *Region) extend() {
	r.extendDue, r.extendedAt = false, r.now
	var extended []protocol.ShardEpoch
	var resumed []*shard
	for i := range r.shards {
		sh := &r.shards[i]
		if !sh.started || !r.coversNow(sh) {
			continue
		}
		extended = append(extended, protocol.ShardEpoch{Shard: sh.home.Shard, Epoch: sh.epoch})
		if sh.suspended {
			sh.suspended = false
			resumed = append(resumed, sh)
		}
	}
	if len(extended) > 0 {
		r.emit(ExtendLocal{Shards: extended, Until: r.until})
	}
	for _, sh := range resumed {
		for _, e := range sh.effects {
			r.free(len(e.reply.Payload))
			r.reply(e.to, e.reply)
		}
		sh.effects = nil
		if sh.ended {
			r.shardStopped(ShardStopped{Shard: sh.home.Shard, Epoch: sh.epoch})
		}
		if sh.stage == serving {
			if !sh.hold {
				r.drainAll(sh)
			}
			r.pump(sh)
			r.refreshLocal(sh)
		}
	}
}

// lapse: the lease has run out (spec 2.1). Nothing is begun and nothing leaves; entities stay in memory.
func (r *Region) lapse() {
	if r.cfg.Off.Lease {
		return
	}
	r.lapsed = true
	var all []*shard
	for i := range r.shards {
		all = append(all, &r.shards[i])
	}
	r.suspend(all)
}

func (r *Region) suspend(shards []*shard) {
	var gens []protocol.ShardEpoch
	for _, sh := range shards {
		if sh.started && !sh.suspended {
			sh.suspended, sh.local = true, false
			gens = append(gens, protocol.ShardEpoch{Shard: sh.home.Shard, Epoch: sh.epoch})
		}
	}
	if len(gens) > 0 {
		r.emit(SuspendLocal{Shards: gens})
	}
}

// effectReady lets a reply out, keeps it while the lease is away, or drops it once its epoch is over.
func (r *Region) effectReady(ev EffectReady) {
	sh := r.shard(ev.Shard)
	if sh == nil {
		return
	}
	if r.cfg.Off.EpochCheck {
		r.reply(ev.To, ev.Reply)
		return
	}
	switch {
	case !sh.started || sh.epoch != ev.Epoch:
		r.stats.Effects++
	case sh.suspended || !r.coversNow(sh):
		if !r.reserve(len(ev.Reply.Payload)) {
			r.stats.Effects++ // the asker times out
			return
		}
		sh.effects = append(sh.effects, effect{ev.To, ev.Reply})
	default:
		r.reply(ev.To, ev.Reply)
	}
}

// ordered carries out a directive that the session has let pass.
func (r *Region) ordered(d protocol.Directive) {
	switch d := d.(type) {
	case *protocol.ShardHome:
		if sh := r.shard(d.Shard.Shard); sh != nil && d.Shard.Epoch > sh.home.Epoch {
			r.observe(sh, d.Shard)
		}
	case *protocol.StartShard:
		if sh := r.shard(d.Shard.Shard); sh != nil && d.Shard.Owner == r.cfg.Self {
			r.startShard(sh, d)
		}
	case *protocol.HandOff:
		if sh := r.shard(d.Shard); sh != nil {
			r.handOffOrdered(sh, d)
		}
	case *protocol.KillShard:
		if sh := r.shard(d.Shard); sh != nil {
			r.killOrdered(sh, d)
		}
	}
	if len(r.stops) > 0 { // an order is answered at once
		r.tellStops()
	}
}

func (r *Region) startShard(sh *shard, d *protocol.StartShard) {
	if d.Shard.Epoch > sh.home.Epoch {
		r.observe(sh, d.Shard)
	}
	gen := []protocol.ShardEpoch{{Shard: sh.home.Shard, Epoch: d.Shard.Epoch}}
	switch {
	case sh.stage == idle || sh.epoch != d.Shard.Epoch: // not to be served here, now or ever
		if sh.home.Epoch >= d.Shard.Epoch {
			sh.dead = max(sh.dead, d.Shard.Epoch)
		}
		r.sayStopped(sh.home.Shard, d.Shard.Epoch)
	case sh.stage == granted && !sh.briefed:
		sh.briefed = true
		for _, n := range d.Senders {
			if s := r.enter(sh, n.Sender, d.Shard.Source); s != nil {
				s.last = max(s.last, n.Seq)
			}
		}
		if sh.parted && !(d.Handed && d.Shard.Source == r.cfg.Self) {
			sh.hold = false // what comes back without a handoff knows nothing of what is still on its way
		}
		sh.parted = false
		if _, gone := r.gone[d.Shard.Source]; d.Handed && d.Shard.Source != r.cfg.Self && !gone {
			// A shard that was given back to the node that had handed it off leaves a hold of the generation before as it is.
			sh.hold, sh.source, sh.since = true, d.Shard.Source, sh.epoch
		}
		if sh.handOff {
			r.handOffDone(sh)
			return
		}
		if !r.tryStart(sh) {
			r.briefed = append(r.briefed, sh.home.Shard)
			r.renewNow = true
		}
	case sh.started:
		r.confirmed = append(r.confirmed, gen...)
	}
}

// handOffOrdered begins a handoff, once and only of what is owned; any other order is answered at once (I10).
func (r *Region) handOffOrdered(sh *shard, d *protocol.HandOff) {
	known := &protocol.HandOffRefused{Type: r.cfg.Type, Shard: d.Shard, Asked: d.Epoch, Owner: sh.home.Owner, Epoch: sh.home.Epoch}
	switch {
	case sh.stage == idle || sh.epoch != d.Epoch:
		r.toCoordinator(known)
	case sh.stage == granted && sh.briefed:
		r.handOffDone(sh)
	case sh.stage == granted:
		sh.handOff = true // without StartShard it does not know what to hand over
		r.toCoordinator(known)
	case sh.stage == serving:
		sh.stage, sh.local = stopping, false
		r.unhold(sh)
		r.emit(StopLocal{Shard: sh.home.Shard, Epoch: sh.epoch})
	case sh.stage == stopped && sh.report != nil:
		r.say(sh)
	default:
		r.toCoordinator(known)
	}
}

// shardStopped: every Stop has ended and is durable.
func (r *Region) shardStopped(ev ShardStopped) {
	sh := r.shard(ev.Shard)
	if sh == nil || sh.stage != stopping || sh.epoch != ev.Epoch {
		return
	}
	if sh.ended = sh.suspended && len(sh.effects) > 0; sh.ended {
		return // replies wait for the lease: the handoff does too, since none may leave after it
	}
	r.setStarted(sh, false)
	if r.ending {
		r.stoppedForGood(sh)
		r.ended()
		return
	}
	r.handOffDone(sh)
}

// handOffDone reports the handoff with the last number begun of every sender.
func (r *Region) handOffDone(sh *shard) {
	m := &protocol.HandOffComplete{Type: r.cfg.Type, Shard: sh.home.Shard, Epoch: sh.epoch}
	for _, id := range sh.sortedSenders() {
		if s := sh.senders[id]; s.last > 0 {
			m.Senders = append(m.Senders, protocol.SenderSeq{Sender: id, Seq: s.last})
		}
	}
	r.unhold(sh)
	sh.dead = max(sh.dead, sh.epoch)
	r.leave(sh, m)
}

// stoppedForGood reports that the generation is served no more, without a handoff.
func (r *Region) stoppedForGood(sh *shard) {
	r.unhold(sh)
	sh.dead = max(sh.dead, sh.epoch)
	r.leave(sh, &protocol.ShardsStopped{Type: r.cfg.Type, Shards: []protocol.ShardEpoch{{Shard: sh.home.Shard, Epoch: sh.epoch}}})
}

func (r *Region) leave(sh *shard, report protocol.Message) {
	sh.stage, sh.local, sh.report = stopped, false, report
	r.say(sh)
	r.wantHome(sh) // which watches it
}

// killOrdered drops what is left of a generation whose handoff timed out; it is never served again, even where the map has yet to say
// that it was this node's.
func (r *Region) killOrdered(sh *shard, d *protocol.KillShard) {
	if sh.stage != idle && sh.epoch == d.Epoch && sh.stage != stopped {
		if sh.started {
			r.setStarted(sh, false)
			r.emit(KillLocal{Shard: sh.home.Shard, Epoch: sh.epoch})
		}
		r.dropEffects(sh)
		r.stoppedForGood(sh)
		return
	}
	sh.dead = max(sh.dead, d.Epoch)
	r.sayStopped(d.Shard, d.Epoch)
}

// end stops every shard where it is (spec 2.2: a region that stops while its node stays).
func (r *Region) end() {
	if r.ending {
		return
	}
	r.ending = true
	for i := range r.shards {
		sh := &r.shards[i]
		switch sh.stage {
		case serving:
			sh.stage, sh.local = stopping, false
			r.unhold(sh)
			r.emit(StopLocal{Shard: sh.home.Shard, Epoch: sh.epoch})
		case granted:
			r.stoppedForGood(sh)
		}
	}
	r.ended()
}

// ended deregisters once nothing is served any more, again and again until the map shows that it has been heard.
func (r *Region) ended() {
	if r.started > 0 || r.endedAt > 0 && r.owns == 0 {
		return
	}
	r.endedAt = max(r.now, 1)
	r.tellStops() // before there is nothing left to be told of
	r.toCoordinator(&protocol.Stopping{Types: []sharding.TypeName{r.cfg.Type}})
}
