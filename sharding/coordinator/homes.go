package coordinator

import (
	"fmt"
	"slices"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/placement"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/strategies/hash"
)

// homesPerEntry keeps log entries small, in homes or moves: raft sends an entry whole.
const homesPerEntry = 4096

// HomesPerQuestion bounds the shards of one allocate call, so that its fuel and its time do not grow with the type: 100 000 at once took built-in
// strategies 70 to 870 M units. Of 100 nodes they take 12 to 19 M for these, most of it to read the snapshot.
const HomesPerQuestion = 1024

// homesPerAnswer bounds what one question sends at once, for the sake of what else is to go to that node: its lease's acknowledgements. The
// map tells of the others, and who still lacks one asks again.
const homesPerAnswer = 1024

// getShardHome answers for shards that have a home, and wishes one for the others: the map tells of it.
func (m *Machine) getShardHome(from sharding.Member, msg *protocol.GetShardHome) {
	t := m.state.typeAt(msg.Type)
	if t == nil {
		return
	}
	r := m.run(t)
	told := 0
	for _, shard := range msg.Shards[:min(len(msg.Shards), int(t.numShards))] { // each once is all that anybody needs
		i := uint32(shard)
		switch {
		case i >= t.numShards:
		case t.state[i] == protocol.Unassigned:
			r.wish(i, protocol.CauseContact)
		case told < homesPerAnswer:
			told++
			m.send(from, &protocol.ShardHome{Term: m.term, Type: t.name, Shard: m.state.record(t, i)})
		}
	}
}

// driveHomes asks for homes of the shards that need one now, in one call as far as they fit. Where there is no candidate they wait: a change of
// the candidates asks at once.
func (m *Machine) driveHomes(r *run, t *typeState) {
	if r.phase != idle || len(r.wishes) == 0 || m.at < r.wishDue || m.at < r.wishing {
		return
	}
	r.wishing = m.at.Add(pace(len(r.wishes)))
	var shards []uint32
	r.wishDue = never
	for i, w := range r.wishes { // unordered: sorted below
		if m.at >= w.notBefore {
			shards = append(shards, i)
		} else {
			r.wishDue = min(r.wishDue, w.notBefore)
		}
	}
	if len(shards) == 0 {
		return
	}
	r.wishDue = 0 // what is not homed now says when it is due again
	if len(r.candidates) == 0 {
		m.postpone(r, shards)
		if m.at < r.tellHomeless {
			return // moves that end one by one would each tell it
		}
		r.tellHomeless = m.at.Add(m.cfg.RebalanceInterval)
		m.note(Note{Kind: NoteNoCandidates, Level: Warn, Type: t.name,
			Count: len(shards), Text: fmt.Sprintf("%s of %s: a home is needed, and no node may be it: one that hosts the type, has settled and does not drain", count(len(shards), "shard"), t.name)})
		return
	}
	slices.Sort(shards)
	if len(shards) > HomesPerQuestion {
		shards, r.wishing = shards[:HomesPerQuestion], 0 // the others follow as soon as these have their homes
	}
	m.askAllocate(r, t, shards, false)
}

// postpone asks again for these shards at the next interval.
func (m *Machine) postpone(r *run, shards []uint32) {
	for _, i := range shards {
		if w, ok := r.wishes[i]; ok {
			w.notBefore = m.at.Add(m.cfg.RebalanceInterval)
			r.wishes[i] = w
		}
	}
}

// askAllocate asks the type's strategy for homes; with orders for shards that must leave their owner. Where no strategy can be asked the
// built-in hash answers at once.
func (m *Machine) askAllocate(r *run, t *typeState, shards []uint32, orders bool) {
	in, members := m.input(r, t)
	in.Seed = mix(m.state.index ^ uint64(shards[0])<<32 ^ uint64(len(shards)))
	a := &asking{op: pluginapi.OpAllocate, seq: t.strategy.seq, spec: t.strategy.spec, input: in, members: members, shards: shards, orders: orders}
	if !t.usable() {
		m.allocated(r, t, a, m.fallback(a), [32]byte{}, "no_strategy")
		return
	}
	m.ask(r, t, a)
}

// ask puts the question to the shell.
func (m *Machine) ask(r *run, t *typeState, a *asking) {
	m.asks++
	a.id = m.asks
	if h := &t.strategy.shadow; m.cfg.Off.Shadow && h.on() {
		a.spec = h.spec
	}
	r.phase, r.ask = asked, a
	m.do(AskStrategy{Ask: a.id, Type: t.name, Spec: a.spec, Op: a.op, Input: a.input, Shards: a.shards, Shadow: m.shadowAsk(r, t, a)})
}

// fallback is the built-in hash, which always has an answer (spec 1.3).
func (m *Machine) fallback(a *asking) pluginapi.Homes {
	homes, err := hash.Strategy{}.Allocate(a.input, a.shards)
	if err != nil {
		panic("coordinator: the built-in hash failed: " + err.Error()) // ours: it has no way to fail
	}
	return homes
}

// answered ends a question. An answer by a strategy that was replaced meanwhile is dropped; what asked for it is still there.
func (m *Machine) answered(ev StrategyAnswered) {
	if !m.active {
		return
	}
	for _, t := range m.state.types {
		r := m.run(t)
		if r.phase != asked || r.ask.id != ev.Ask {
			continue
		}
		a := r.ask
		r.phase, r.ask = idle, nil
		if a.seq != t.strategy.seq {
			r.look = true
			return
		}
		failure := ev.check(a)
		switch {
		case a.op == pluginapi.OpRebalance && failure == nil:
			m.planned(r, t, a, ev.Plan, ev.Record)
		case a.op == pluginapi.OpRebalance: // no move
		case failure != nil:
			m.allocated(r, t, a, m.fallback(a), ev.Record, failure.Verdict)
		default:
			m.allocated(r, t, a, ev.Homes, ev.Record, verdictOK)
		}
		if failure != nil {
			m.strategyFailed(r, t, failure)
		} else {
			m.strategyWorked(r, t)
		}
		return
	}
}

// check holds an answer against what was asked, by the very rules that the host goes by.
func (ev *StrategyAnswered) check(a *asking) *StrategyFailure {
	if ev.Failure != nil {
		return ev.Failure
	}
	var err error
	if a.op == pluginapi.OpRebalance {
		ev.Plan.Moves, err = placement.CheckPlan(a.input, ev.Plan.Moves)
	} else {
		err = placement.CheckHomes(a.input, a.shards, ev.Homes.Nodes)
	}
	if err != nil {
		return &StrategyFailure{Verdict: verdictOutput, Detail: err.Error()}
	}
	return nil
}

// allocated puts homes into the log: for free shards as homes, for shards that must leave their owner as moves.
func (m *Machine) allocated(r *run, t *typeState, a *asking, homes pluginapi.Homes, record [32]byte, verdict string) {
	reason := func(k int) string {
		if k < len(homes.Reasons) {
			return clip(homes.Reasons[k])
		}
		return ""
	}
	var left []uint32
	byCause := map[protocol.Cause][]protocol.Home{}
	var moves []protocol.Move
	for k, i := range a.shards {
		to := a.memberAt(homes.Nodes[k])
		if pin, pinned := t.pins[i]; pinned {
			if n := a.input.NodeIndex(string(pin)); n >= 0 && a.input.IsCandidate(n) {
				to = a.members[n] // kept by the host, whatever the strategy says
			}
		}
		w, wished := r.wishes[i]
		owner := m.state.slots[t.owner[i]].member
		switch {
		case to.IsZero():
			left = append(left, i)
		case a.orders && t.state[i] == protocol.Homed && to != owner:
			moves = append(moves, protocol.Move{Shard: sharding.ShardID(i), From: owner, Epoch: t.epoch[i], Target: to, Reason: reason(k)})
		case !a.orders && wished:
			byCause[w.cause] = append(byCause[w.cause], protocol.Home{Shard: sharding.ShardID(i), Epoch: t.epoch[i], Owner: to, Reason: reason(k)})
		}
	}
	if a.orders {
		if len(left) > 0 || len(moves) == 0 {
			r.lookAgain = m.at.Add(m.cfg.RebalanceInterval)
		}
		m.plan(r, t, a.decision(protocol.CauseDrain, record, verdict, homes.Reason), moves)
		return
	}
	m.postpone(r, left)
	open := 0
	for _, cause := range []protocol.Cause{protocol.CauseContact, protocol.CauseEager, protocol.CauseMembership} {
		for part := range slices.Chunk(byCause[cause], homesPerEntry) {
			open++
			r.phase = deciding
			m.proposeFor(r, &protocol.Entry{Kind: protocol.KindAssignHomes, AssignHomes: &protocol.AssignHomes{
				Type: t.name, Decision: a.decision(cause, record, verdict, homes.Reason), Homes: part}}, func(Result) {
				for _, h := range part { // those that did not count are asked for again, not in a tight loop
					if w, ok := r.wishes[uint32(h.Shard)]; ok {
						w.notBefore = m.at.Add(m.cfg.RebalanceInterval / 10)
						r.wishes[uint32(h.Shard)] = w
					}
				}
				if open--; open == 0 {
					r.phase = idle
				}
			})
		}
	}
}
