package coordinator

import (
	"fmt"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// drivePass opens a rebalance pass: at once where membership or strategy changed, else at the interval and not within the cooldown of a
// move. One pass at a time a type; moves in flight and new ones together stay within moves_per_pass.
func (m *Machine) drivePass(r *run, t *typeState) {
	if r.phase != idle || m.state.paused || len(r.candidates) == 0 || !t.usable() || m.room(r, t) == 0 {
		return
	}
	cause := r.passDue
	if cause == "" {
		if m.at < r.lastPass.Add(m.cfg.RebalanceInterval) || m.at < r.cooldown {
			return
		}
		cause = protocol.CauseInterval
	}
	r.passDue, r.lastPass = "", m.at
	if !t.anyHomed() {
		return
	}
	r.phase = beginning
	m.proposeFor(r, &protocol.Entry{Kind: protocol.KindBeginPass, BeginPass: &protocol.BeginPass{Type: t.name, Seed: m.random(), Cause: cause}},
		func(res Result) {
			r.phase = idle
			if res.Code != "" || !m.active || !t.usable() {
				r.passDue = cause
				return
			}
			in, members := m.input(r, t)
			in.Seed, in.Now = t.pass.seed, uint64(max(t.pass.now, 0))
			m.ask(r, t, &asking{op: pluginapi.OpRebalance, seq: t.strategy.seq, spec: t.strategy.spec, input: in, members: members,
				pass: t.pass.index, cause: cause})
		})
}

func (t *typeState) anyHomed() bool {
	for _, st := range t.state {
		if st == protocol.Homed {
			return true
		}
	}
	return false
}

// planned puts a pass's moves into the log: those that still hold, in the strategy's order, as many as there is room for.
func (m *Machine) planned(r *run, t *typeState, a *asking, plan pluginapi.Plan, record [32]byte) {
	var moves []protocol.Move
	room := m.room(r, t)
	for _, mv := range plan.Moves {
		if uint32(len(moves)) == room {
			break
		}
		i := mv.Shard
		p := protocol.Move{Shard: sharding.ShardID(i), From: m.state.slots[t.owner[i]].member, Epoch: t.epoch[i], Target: a.memberAt(mv.Target), Reason: clip(mv.Reason)}
		if m.state.movable(t, i, p) {
			moves = append(moves, p)
		}
	}
	if len(moves) > 0 {
		m.note(Note{Kind: NotePassPlanned, Type: t.name, Count: len(moves),
			Text: fmt.Sprintf("%s of shards of %s planned: %s", count(len(moves), "move"), t.name, because(a.cause))})
	}
	m.plan(r, t, a.decision(protocol.CauseRebalance, record, verdictOK, plan.Reason), moves)
}

// plan proposes moves.
func (m *Machine) plan(r *run, t *typeState, d protocol.Decision, moves []protocol.Move) {
	if len(moves) == 0 {
		return
	}
	r.phase = deciding
	m.proposeFor(r, &protocol.Entry{Kind: protocol.KindPlanMoves, PlanMoves: &protocol.PlanMoves{Type: t.name, Decision: d, Moves: moves}}, func(res Result) {
		r.phase = idle
		r.cooldown = m.at.Add(m.cfg.MoveCooldown)
		if res.Code != "" {
			r.look, r.lookAgain = false, m.at.Add(m.cfg.RebalanceInterval)
		}
	})
}

// driveOrders moves what must move whatever a strategy thinks: shards that are not where they are pinned, and those of draining members.
func (m *Machine) driveOrders(r *run, t *typeState) {
	if r.lookAgain != 0 && m.at >= r.lookAgain {
		r.look, r.lookAgain = true, 0
	}
	if r.phase != idle || !r.look {
		return
	}
	room := m.room(r, t)
	if room == 0 {
		return // the end of a move looks again
	}
	r.look = false
	s := m.state
	var moves []protocol.Move
	for _, i := range sortedKeys(t.pins) {
		n := s.newest(t.pins[i])
		owner := s.slots[t.owner[i]].member
		if n == 0 || owner.Node == t.pins[i] || !m.isCandidate(r, s.slots[n].member) || uint32(len(moves)) == room {
			continue
		}
		p := protocol.Move{Shard: sharding.ShardID(i), From: owner, Epoch: t.epoch[i], Target: s.slots[n].member, Reason: "pinned"}
		if s.movable(t, i, p) {
			moves = append(moves, p)
		}
	}
	if len(moves) > 0 {
		r.look = true
		m.plan(r, t, protocol.Decision{Cause: protocol.CauseOperator, Reason: "pinned"}, moves)
		return
	}
	draining := make([]bool, len(s.slots))
	any := false
	for n := range s.slots {
		draining[n] = s.slots[n].reg != nil && s.slots[n].reg.draining
		any = any || draining[n]
	}
	if !any {
		return
	}
	var shards []uint32
	for i, o := range t.owner {
		if draining[o] && t.state[i] == protocol.Homed && !t.busy(uint32(i)) && uint32(len(shards)) < min(room, HomesPerQuestion) {
			shards = append(shards, uint32(i))
		}
	}
	switch {
	case len(shards) == 0:
	case len(r.candidates) == 0:
		r.lookAgain = m.at.Add(m.cfg.RebalanceInterval)
	default:
		m.askAllocate(r, t, shards, true)
	}
}

func (m *Machine) isCandidate(r *run, who sharding.Member) bool {
	for _, c := range r.candidates {
		if c == who {
			return true
		}
	}
	return false
}
