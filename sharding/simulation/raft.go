package simulation

import (
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/coordinator"
	"github.com/droverhq/drover/sharding/protocol"
)

// A small raft: terms, votes after randomized time-outs, replication with commit by a majority, truncation of what a deposed leader had not
// committed, snapshots. A leader learns that it is none from a higher term, or after a while without a majority; until
// then it goes on. Members are fixed.

const (
	heartbeat    = 80 * time.Millisecond
	electionMin  = 300 * time.Millisecond
	electionSpan = 300 * time.Millisecond
	appendBatch  = 32
)

type raftEntry struct {
	term  uint64
	entry *protocol.Entry // nil: the entry that opens a term, or a barrier
}

// raftDisk is what a server keeps over a crash.
type raftDisk struct {
	term      uint64
	votedFor  int // slot; -1: nobody
	first     uint64
	log       []raftEntry // log[0] has index first
	snapIndex uint64
	snapTerm  uint64
	snap      []byte
}

func (d *raftDisk) last() uint64 { return d.first + uint64(len(d.log)) - 1 }

func (d *raftDisk) termAt(index uint64) uint64 {
	if index == d.snapIndex {
		return d.snapTerm
	}
	if index < d.first || index > d.last() {
		return 0
	}
	return d.log[index-d.first].term
}

type raftRole uint8

const (
	follower raftRole = iota
	candidate
	leader
)

type proposal struct {
	index, term uint64
	command     protocol.Command
	barrier     bool
}

type raft struct {
	w    *world
	p    *process
	disk *raftDisk

	role        raftRole
	leader      int // slot of the term's leader; -1: not known
	commit      uint64
	applied     uint64
	votes       uint64 // bit set of slots
	next, match []uint64
	heard       []int64 // leader: when each follower last answered, own clock
	timer       uint64  // generation of the election timer
	pending     []proposal
	flushing    bool
	toldAt      int64 // notices to the machine (Elected, Deposed) keep their order
}

func newRaft(w *world, p *process, disk *raftDisk) *raft {
	r := &raft{w: w, p: p, disk: disk, leader: -1, commit: disk.snapIndex, applied: disk.snapIndex}
	r.armElection()
	return r
}

func (r *raft) armElection() {
	r.timer++
	gen := r.timer
	r.p.after(electionMin+time.Duration(r.w.rng.Int64N(int64(electionSpan))), func() {
		if gen == r.timer && r.role != leader {
			r.campaign()
		}
	})
}

func (r *raft) peers(f func(slot int)) {
	for s := range r.w.servers {
		if s != r.p.node.slot {
			f(s)
		}
	}
}

// post sends a raft message to the server at slot.
func (r *raft) post(slot int, f func(to *raft)) {
	if to := r.w.nodes[slot].proc; to != nil {
		r.w.net.datagram(r.p, to, func() { f(to.raft) })
	}
}

// observe takes a term from a message; false: the message is stale.
func (r *raft) observe(term uint64) bool {
	if term > r.disk.term {
		r.disk.term = term
		r.disk.votedFor = -1
		r.leader = -1
		r.stepDown()
	}
	return term == r.disk.term
}

func (r *raft) stepDown() {
	if r.role == leader {
		r.notify(func() { r.p.stepMachine(coordinator.Deposed{}) })
		lost := r.pending
		r.pending = nil
		for _, l := range lost {
			r.fail(l, "leadership lost")
		}
		r.w.logf("raft", r.p, "deposed, term now %d", r.disk.term)
	}
	if r.role != follower {
		r.role = follower
		r.armElection()
	}
}

func (r *raft) fail(l proposal, reason string) {
	if l.barrier {
		return
	}
	r.p.later(5*time.Millisecond, func() {
		r.p.stepMachine(coordinator.ProposalFailed{Command: l.command, Reason: reason})
	})
}

// notify tells the machine of a change of role, a little later and in order.
func (r *raft) notify(f func()) {
	at := max(r.toldAt+1, r.w.now+r.w.rng.Int64N(int64(8*time.Millisecond)))
	r.toldAt = at
	r.w.schedule(at, r.p, f)
}

func (r *raft) campaign() {
	d := r.disk
	d.term++
	d.votedFor = r.p.node.slot
	r.role = candidate
	r.leader = -1
	r.votes = 1 << r.p.node.slot
	r.armElection()
	term, lastIndex, lastTerm, me := d.term, d.last(), d.termAt(d.last()), r.p.node.slot
	r.w.logf("raft", r.p, "campaigns in term %d", term)
	r.count()
	r.peers(func(slot int) {
		r.post(slot, func(to *raft) { to.voteAsked(me, term, lastIndex, lastTerm) })
	})
}

func (r *raft) voteAsked(from int, term, lastIndex, lastTerm uint64) {
	if !r.observe(term) {
		return
	}
	d := r.disk
	mine := d.termAt(d.last())
	fresh := lastTerm > mine || lastTerm == mine && lastIndex >= d.last()
	if !fresh || d.votedFor != -1 && d.votedFor != from {
		return
	}
	d.votedFor = from
	r.armElection()
	me := r.p.node.slot
	r.post(from, func(to *raft) { to.voteGiven(me, term) })
}

func (r *raft) voteGiven(from int, term uint64) {
	if !r.observe(term) || r.role != candidate {
		return
	}
	r.votes |= 1 << from
	r.count()
}

func (r *raft) count() {
	n := 0
	for s := range r.w.servers {
		if r.votes&(1<<s) != 0 {
			n++
		}
	}
	if 2*n <= r.w.servers {
		return
	}
	d := r.disk
	r.role = leader
	r.leader = r.p.node.slot
	r.next = make([]uint64, r.w.servers)
	r.match = make([]uint64, r.w.servers)
	r.heard = make([]int64, r.w.servers)
	for i := range r.next {
		r.next[i] = d.last() + 1
		r.heard[i] = r.w.now
	}
	term := d.term
	r.w.elected(r.p, term)
	r.append(nil)
	r.notify(func() { r.p.stepMachine(coordinator.Elected{Term: term}) })
	r.hint()
	r.beat(term)
}

// hint tells this node's session who leads.
func (r *raft) hint() {
	if l := r.w.nodes[r.leader].proc; l != nil {
		r.p.leaderHinted(l.self, r.disk.term)
	}
}

// beat repeats heartbeats while r leads in term, and gives up without a majority.
func (r *raft) beat(term uint64) {
	if r.role != leader || r.disk.term != term {
		return
	}
	alive := 1
	r.peers(func(slot int) {
		if r.w.now-r.heard[slot] < r.p.node.clock.span(r.w.patience) {
			alive++
		}
	})
	if 2*alive <= r.w.servers {
		r.leader = -1
		r.stepDown()
		return
	}
	r.replicate()
	r.p.after(heartbeat, func() { r.beat(term) })
}

// append adds an entry to the leader's log and gives its index.
func (r *raft) append(e *protocol.Entry) uint64 {
	r.disk.log = append(r.disk.log, raftEntry{r.disk.term, e})
	r.flush()
	return r.disk.last()
}

// flush replicates soon: entries of one moment go together.
func (r *raft) flush() {
	if r.flushing {
		return
	}
	r.flushing = true
	r.p.later(400*time.Microsecond, func() {
		r.flushing = false
		if r.role == leader {
			r.replicate()
			r.advance()
		}
	})
}

func (r *raft) replicate() {
	d := r.disk
	term, me, commit := d.term, r.p.node.slot, r.commit
	r.peers(func(slot int) {
		next := r.next[slot]
		if prev := next - 1; prev > 0 && prev < d.first && prev != d.snapIndex { // compacted away
			index, sterm, data := d.snapIndex, d.snapTerm, d.snap
			r.post(slot, func(to *raft) { to.installed(me, term, index, sterm, data) })
			return
		}
		prev := next - 1
		prevTerm := d.termAt(prev)
		n := min(d.last()-prev, appendBatch)
		entries := append([]raftEntry(nil), d.log[next-d.first:next-d.first+n]...)
		r.next[slot] += n // optimistic; a refusal sets it back
		r.post(slot, func(to *raft) { to.appended(me, term, prev, prevTerm, entries, commit) })
	})
}

func (r *raft) follow(from int, term uint64) bool {
	if !r.observe(term) {
		return false
	}
	if r.role == candidate {
		r.role = follower
	}
	r.armElection()
	if r.leader != from {
		r.leader = from
		r.hint()
	}
	return true
}

func (r *raft) appended(from int, term, prev, prevTerm uint64, entries []raftEntry, commit uint64) {
	d := r.disk
	if term < d.term {
		newer := d.term
		r.post(from, func(to *raft) { to.observe(newer) })
		return
	}
	if !r.follow(from, term) {
		return
	}
	me := r.p.node.slot
	if prev < d.snapIndex { // what lies before the snapshot is committed, and so the same
		skip := d.snapIndex - prev
		if skip > uint64(len(entries)) {
			skip = uint64(len(entries))
		}
		entries = entries[skip:]
		prev += skip
		prevTerm = d.termAt(prev)
	}
	if prev > d.last() || prev >= d.snapIndex && d.termAt(prev) != prevTerm {
		hint := min(prev, d.last()+1)
		r.post(from, func(to *raft) { to.refused(me, term, hint) })
		return
	}
	for i, e := range entries {
		index := prev + 1 + uint64(i)
		if index <= d.last() {
			if d.termAt(index) == e.term {
				continue
			}
			d.log = d.log[:index-d.first]
		}
		d.log = append(d.log, e)
	}
	match := prev + uint64(len(entries))
	if c := min(commit, match); c > r.commit {
		r.commit = c
		r.apply()
	}
	r.post(from, func(to *raft) { to.accepted(me, term, match) })
}

func (r *raft) refused(from int, term, hint uint64) {
	if !r.observe(term) || r.role != leader {
		return
	}
	r.heard[from] = r.w.now
	r.next[from] = max(r.match[from]+1, min(r.next[from], hint))
	r.flush()
}

func (r *raft) accepted(from int, term, match uint64) {
	if !r.observe(term) || r.role != leader {
		return
	}
	r.heard[from] = r.w.now
	if match > r.match[from] {
		r.match[from] = match
		r.advance()
	}
	r.next[from] = max(r.next[from], match+1)
}

// advance commits what a majority has, if it is of this term.
func (r *raft) advance() {
	d := r.disk
	for index := d.last(); index > r.commit && d.termAt(index) == d.term; index-- {
		n := 1
		r.peers(func(slot int) {
			if r.match[slot] >= index {
				n++
			}
		})
		if 2*n > r.w.servers {
			r.commit = index
			r.apply()
			r.flush()
			return
		}
	}
}

// apply feeds committed entries to the machine, in order.
func (r *raft) apply() {
	d := r.disk
	for r.applied < r.commit {
		r.applied++
		index := r.applied
		e := d.log[index-d.first]
		r.w.committed(index, e)
		if e.entry != nil {
			r.p.applyEntry(index, e.term, e.entry)
		}
		for len(r.pending) > 0 && r.pending[0].index <= index {
			l := r.pending[0]
			r.pending = r.pending[1:]
			if l.barrier && l.index == index && l.term == e.term {
				r.w.passed(r.p, l.term)
				r.p.stepMachine(coordinator.BarrierDone{Term: l.term})
			}
		}
	}
	if d.snapIndex+r.w.snapshotEvery <= r.applied {
		index := r.applied
		r.p.machineLane.post(func() { r.compact(index) })
	}
}

// compact takes a snapshot of the machine, which has applied index, and forgets most of the log before it.
func (r *raft) compact(index uint64) {
	d := r.disk
	if index <= d.snapIndex { // a snapshot was installed meanwhile, or one was due twice
		return
	}
	data, err := r.p.machine.Snapshot()
	if err != nil {
		r.w.fail("I9", "snapshot at %d on %v: %v", index, r.p.self, err)
		return
	}
	keep := index - min(index-d.first+1, r.w.rng.Uint64N(12)) + 1
	term := d.termAt(index)
	if keep > d.first {
		d.log = append([]raftEntry(nil), d.log[keep-d.first:]...)
		d.first = keep
	}
	d.snapIndex, d.snapTerm, d.snap = index, term, data
}

func (r *raft) installed(from int, term, index, sterm uint64, data []byte) {
	if !r.follow(from, term) {
		return
	}
	d, me := r.disk, r.p.node.slot
	if index > r.commit {
		d.log, d.first = nil, index+1
		d.snapIndex, d.snapTerm, d.snap = index, sterm, data
		r.commit, r.applied = index, index
		r.p.restoreMachine(index, data)
	}
	r.post(from, func(to *raft) { to.accepted(me, term, index) })
}

// propose appends for the machine, which may be wrong in thinking that it leads: then it is told, a little later.
func (r *raft) propose(e *protocol.Entry) {
	if r.role != leader {
		r.fail(proposal{command: e.Command}, "not the leader")
		return
	}
	index := r.append(e)
	r.pending = append(r.pending, proposal{index: index, term: r.disk.term, command: e.Command})
}

func (r *raft) barrier(term uint64) {
	if r.role != leader || r.disk.term != term {
		return // Deposed is on its way
	}
	index := r.append(nil)
	r.pending = append(r.pending, proposal{index: index, term: term, barrier: true})
}

// transfer makes another server campaign at once, as raft's leadership transfer does.
func (r *raft) transfer(slot int) {
	if r.role == leader {
		r.post(slot, func(to *raft) {
			if to.role != leader {
				to.campaign()
			}
		})
	}
}

// leaderOf is the member that won the election of a term; zero: nobody.
func (w *world) leaderOf(term uint64) sharding.Member { return w.leaders[term] }
