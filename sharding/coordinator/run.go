package coordinator

import (
	"time"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// run is what the leader is doing for one type. At most one strategy question or answer of a type is on its way at a time.
type run struct {
	name  sharding.TypeName
	phase phase
	ask   *asking // phase asked

	candidates []sharding.Member // at the last look
	look       bool              // owners or members changed: look for shards to drain, or to bring to their pin
	lookAgain  sharding.Instant  // and at this time, where something was left over; 0: no
	placed     bool              // eager placement has been asked for

	wishes  map[uint32]wish  // shards that need a home
	wishDue sharding.Instant // nothing of them is due before
	wishing sharding.Instant // and nothing is looked for before: see pace

	tellHomeless sharding.Instant // that there is no node for them, not before

	failure LastFailure // seq 0: none in this term

	passDue  protocol.Cause // "": at the interval
	lastPass sharding.Instant
	cooldown sharding.Instant // no interval pass before
	moving   uint32           // shards in handoff or fenced

	work    []work
	driven  map[uint32]struct{} // shards with work that driveWork is to see: all but starts that go on by themselves
	workDue sharding.Instant    // nothing is due before
	rest    sharding.Instant    // and nothing is looked for before: see pace

	ending int // entries of driveWork on their way

	started   []protocol.ShardEpoch // confirmed; their handovers can be forgotten
	confirmed map[uint32]sharding.Epoch
	releasing bool

	retryAt sharding.Instant // an entry was not appended: nothing is done for the type before

	seq      uint64 // strategy at the last look
	missing  bool   // it was said to be missing, once
	proposed bool   // a file's strategy is on its way
}

// phase of a run.
type phase uint8

const (
	idle      phase = iota
	beginning       // BeginPass in the log
	asked           // the strategy
	deciding        // its answer in the log
)

// asking is an open question to a strategy.
type asking struct {
	id      uint64
	op      pluginapi.Op
	seq     uint64 // strategy asked
	spec    protocol.StrategySpec
	input   *pluginapi.Snapshot
	members []sharding.Member // by node index: the newest incarnation of each name
	shards  []uint32          // allocate
	orders  bool              // allocate for shards to be moved (drain), not for homes
	pass    uint64
	cause   protocol.Cause // of the pass
}

// wish is a shard that needs a home.
type wish struct {
	cause     protocol.Cause
	notBefore sharding.Instant
}

// pace is how long to leave be what was just looked at whole, so that a look that each event asks for takes a part of the time that does not grow with
// what is there. A thousand looked at are worth a millisecond.
func pace(looked int) time.Duration { return time.Duration(looked/1000) * time.Millisecond }

func (r *run) wish(i uint32, cause protocol.Cause) {
	if _, ok := r.wishes[i]; !ok {
		r.wishes[i] = wish{cause: cause}
		r.wishDue = 0
	}
}

// run gives the type's run, made at the first call of a term.
func (m *Machine) run(t *typeState) *run {
	r := m.runs[t.name]
	if r == nil {
		r = &run{name: t.name, wishes: map[uint32]wish{}, confirmed: map[uint32]sharding.Epoch{}, work: make([]work, t.numShards), driven: map[uint32]struct{}{}, look: true, lastPass: m.at}
		m.runs[t.name] = r
	}
	return r
}

// reconcile brings the leader's work for one shard in line with the state: after each entry that touched it, and for all at the start
// of a term. Then only a shard whose handover was not confirmed is started again; the others prove themselves by registering.
func (m *Machine) reconcile(r *run, t *typeState, i uint32, start bool) {
	w := &r.work[i]
	was := w.kind
	delete(r.wishes, i)
	r.look = true
	switch t.state[i] {
	case protocol.Homed:
		_, handed := t.handovers[i]
		if w.kind == workStart && w.epoch == t.epoch[i] {
			break
		}
		if start && !handed {
			m.disarm(r, i)
			break
		}
		m.queueStart(r, t, i)
	case protocol.Moving:
		if w.kind != workHandOff || w.epoch != t.epoch[i] {
			m.arm(r, i, workHandOff, t.epoch[i], m.at.Add(m.cfg.HandOffTimeout))
		}
	case protocol.Fenced:
		if w.kind != workKill || w.epoch != t.epoch[i] {
			stopped := w.stopped && w.epoch == t.epoch[i]
			m.arm(r, i, workKill, t.epoch[i], 0)
			w.stopped, w.unasked = stopped, stopped
		}
	case protocol.Unassigned:
		unasked := w.unasked
		m.disarm(r, i)
		if t.epoch[i] > 0 {
			r.wish(i, protocol.CauseMembership) // its home is gone
		}
		if unasked { // most likely its region ends: until that is known it would be given the shard again, and stop it again, as fast as the log can
			r.wishes[i] = wish{cause: protocol.CauseMembership, notBefore: m.at.Add(m.cfg.RebalanceInterval)}
		}
	}
	busy := func(k workKind) bool { return k == workHandOff || k == workKill }
	switch {
	case busy(w.kind) && !busy(was):
		r.moving++
	case !busy(w.kind) && busy(was):
		r.moving--
		r.cooldown = m.at.Add(m.cfg.MoveCooldown)
	}
}
