package coordinator

import (
	"slices"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// workKind is what a shard's owner is being told, again and again until it answers.
type workKind uint8

const (
	workNone    workKind = iota
	workStart            // StartShard until ShardStarted: see starts
	workHandOff          // HandOff until HandOffComplete or the time-out
	workKill             // KillShard until ShardsStopped or the lapse
)

// work is the leader's part in one shard's life.
type work struct {
	kind     workKind
	proposed bool // the entry that ends it is in the log
	stopped  bool // the owner says that it serves this generation no more
	unasked  bool // workKill: the owner said so before the shard was fenced
	open     bool // workStart: it holds a seat in its owner's window
	epoch    sharding.Epoch
	next     sharding.Instant // when to say it again
	deadline sharding.Instant // workHandOff: the time-out
	starts   *starts          // workStart: its owner's
}

// arm sets a shard's work, due at once; a start is due by its owner's window.
func (m *Machine) arm(r *run, i uint32, kind workKind, epoch sharding.Epoch, deadline sharding.Instant) {
	w := &r.work[i]
	w.leave()
	*w = work{kind: kind, epoch: epoch, next: m.at, deadline: deadline}
	if kind == workStart {
		delete(r.driven, i)
		return
	}
	r.driven[i] = struct{}{}
	r.workDue = min(r.workDue, m.at)
}

func (m *Machine) disarm(r *run, i uint32) {
	if w := &r.work[i]; w.kind != workNone {
		w.leave()
		*w = work{}
		delete(r.driven, i)
	}
}

// driveWork says what is due to be said, fences handoffs that took too long, and releases fenced shards that no lease covers. A shard
// that is stuck holds up only itself (I17). What becomes due while its last entries are on their way shares the next ones: a region that
// stops says so shard by shard.
func (m *Machine) driveWork(r *run, t *typeState) {
	if len(r.driven) == 0 || r.ending > 0 || m.at < r.workDue || m.at < r.rest {
		return
	}
	r.workDue, r.rest = never, m.at.Add(pace(len(r.driven)))
	var late, stopped, free, gone []protocol.ShardEpoch
	for _, i := range sortedKeys(r.driven) {
		w := &r.work[i]
		if w.proposed {
			continue
		}
		se := protocol.ShardEpoch{Shard: sharding.ShardID(i), Epoch: w.epoch}
		owner := m.state.slots[t.owner[i]].member
		if w.kind == workKill {
			since, uncovered := m.uncovered(owner, t.fenced[i])
			if w.stopped || uncovered {
				w.proposed = true
				if w.stopped {
					gone = append(gone, se)
				} else {
					free = append(free, se)
				}
				continue
			}
			r.workDue = min(r.workDue, since+1)
		} else if w.stopped {
			w.proposed = true
			stopped = append(stopped, se)
			continue
		} else {
			if m.at >= w.deadline {
				w.proposed = true
				late = append(late, se)
				continue
			}
			r.workDue = min(r.workDue, w.deadline)
		}
		if m.at >= w.next {
			w.next = m.at.Add(repeatEvery)
			m.order(t, i, w.kind, owner)
		}
		r.workDue = min(r.workDue, w.next)
	}
	fence := func(shards []protocol.ShardEpoch, cause protocol.Cause) {
		m.endAll(r, shards, func(part []protocol.ShardEpoch) *protocol.Entry {
			return &protocol.Entry{Kind: protocol.KindFenceShards, FenceShards: &protocol.FenceShards{Type: t.name, Shards: part, Cause: cause}}
		})
	}
	release := func(shards []protocol.ShardEpoch, cause protocol.Cause) {
		m.endAll(r, shards, func(part []protocol.ShardEpoch) *protocol.Entry {
			return &protocol.Entry{Kind: protocol.KindReleaseShards, ReleaseShards: &protocol.ReleaseShards{Type: t.name, Shards: part, Cause: cause}}
		})
	}
	fence(late, protocol.CauseTimeout)
	fence(stopped, protocol.CauseStopped)
	release(gone, protocol.CauseStopped)
	release(free, protocol.CauseLapsed)
}

// endAll is endWork for what driveWork found, an entry for each homesPerEntry of it.
func (m *Machine) endAll(r *run, shards []protocol.ShardEpoch, entry func(part []protocol.ShardEpoch) *protocol.Entry) {
	for part := range slices.Chunk(shards, homesPerEntry) {
		r.ending++
		m.endWork(r, part, entry(part), func() { r.ending-- })
	}
}

func (m *Machine) endWork(r *run, shards []protocol.ShardEpoch, e *protocol.Entry, then func()) {
	m.proposeFor(r, e, func(Result) {
		for _, se := range shards { // where it did not count, the work goes on as the state is now
			if w := &r.work[se.Shard]; w.epoch == se.Epoch {
				w.proposed = false
				r.workDue = min(r.workDue, m.at)
			}
		}
		then()
	})
}

func (m *Machine) order(t *typeState, i uint32, kind workKind, owner sharding.Member) {
	shard, epoch := sharding.ShardID(i), t.epoch[i]
	switch kind {
	case workStart:
		senders, handed := t.handovers[i]
		m.send(owner, &protocol.StartShard{Term: m.term, Type: t.name, Shard: m.state.record(t, i), Senders: senders, Handed: handed})
	case workHandOff:
		m.send(owner, &protocol.HandOff{Term: m.term, Type: t.name, Shard: shard, Epoch: epoch})
	case workKill:
		m.send(owner, &protocol.KillShard{Term: m.term, Type: t.name, Shard: shard, Epoch: epoch})
	}
}

// owned finds a shard generation that the sender of a message owns; others' words about it do not count.
func (m *Machine) owned(from sharding.Member, name sharding.TypeName, shard sharding.ShardID, epoch sharding.Epoch) (*typeState, *run, uint32) {
	t, i := m.state.typeAt(name), uint32(shard)
	if t == nil || !t.owns(i, epoch) || m.state.slots[t.owner[i]].member != from {
		return nil, nil, 0
	}
	return t, m.run(t), i
}

// handOffComplete: late ones, of a generation that has been released since, name an epoch that is not owned any more and change nothing.
func (m *Machine) handOffComplete(from sharding.Member, msg *protocol.HandOffComplete) {
	t, r, i := m.owned(from, msg.Type, msg.Shard, msg.Epoch)
	if t == nil || t.state[i] != protocol.Moving && t.state[i] != protocol.Fenced || r.work[i].proposed {
		return
	}
	if handsOverTooMuch(msg.Senders) { // without their numbers it is a stop like any other
		m.shardsStopped(from, &protocol.ShardsStopped{Type: msg.Type, Shards: []protocol.ShardEpoch{{Shard: msg.Shard, Epoch: msg.Epoch}}})
		return
	}
	r.work[i].proposed = true
	se := []protocol.ShardEpoch{{Shard: msg.Shard, Epoch: msg.Epoch}}
	m.endWork(r, se, &protocol.Entry{Kind: protocol.KindCompleteHandOff, CompleteHandOff: &protocol.CompleteHandOff{
		Type: msg.Type, Shard: msg.Shard, Epoch: msg.Epoch, From: from, Senders: msg.Senders}}, func() {})
}

// handOffRefused: the owner's map lags behind, so it is sent again what it lacks; or it is at it already, which a StartShard does not
// change; or it still waits for its StartShard, without which it does not know what to hand over.
func (m *Machine) handOffRefused(from sharding.Member, msg *protocol.HandOffRefused) {
	t, _, i := m.owned(from, msg.Type, msg.Shard, msg.Asked)
	if t == nil {
		return
	}
	if p := m.peers[from]; p != nil && p.synced && msg.Epoch < msg.Asked {
		p.sent = sharding.Revision{}
	}
	if t.state[i] == protocol.Moving && msg.Epoch == msg.Asked {
		m.order(t, i, workStart, from)
	}
}

func (m *Machine) shardsStopped(from sharding.Member, msg *protocol.ShardsStopped) {
	for _, se := range msg.Shards {
		t, r, i := m.owned(from, msg.Type, se.Shard, se.Epoch)
		if t == nil {
			continue
		}
		if r.work[i].kind == workNone {
			m.arm(r, i, workStart, se.Epoch, 0) // it is not told: it has stopped already
		}
		r.work[i].stopped = true
		r.driven[i] = struct{}{}
		r.workDue = min(r.workDue, m.at)
	}
}

func (m *Machine) shardStarted(from sharding.Member, msg *protocol.ShardStarted) {
	for _, se := range msg.Shards {
		t, r, i := m.owned(from, msg.Type, se.Shard, se.Epoch)
		if t == nil || t.state[i] != protocol.Homed {
			continue
		}
		if r.work[i].kind == workStart && !r.work[i].stopped {
			m.disarm(r, i)
		}
		if _, handed := t.handovers[i]; handed && r.confirmed[i] != se.Epoch { // once, however often it is said
			r.confirmed[i] = se.Epoch
			r.started = append(r.started, se)
		}
	}
}

// driveHandovers forgets handed-over sender numbers once the owner has them.
func (m *Machine) driveHandovers(r *run, t *typeState) {
	if r.releasing || len(r.started) == 0 {
		return
	}
	shards := r.started
	r.started, r.releasing = nil, true
	m.proposeFor(r, &protocol.Entry{Kind: protocol.KindReleaseHandovers, ReleaseHandovers: &protocol.ReleaseHandovers{Type: t.name, Shards: shards}}, func(res Result) {
		r.releasing, r.look = false, true
		if res.Code == CodeUnavailable { // nobody confirms them again
			r.started = append(shards, r.started...)
			return
		}
		for _, se := range shards {
			delete(r.confirmed, uint32(se.Shard))
		}
	})
}
