package coordinator

import (
	"slices"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/placement"
	"github.com/droverhq/drover/sharding/protocol"
)

// entryType finds the type of an entry.
func (s *State) entryType(name sharding.TypeName) (*typeState, Result) {
	t := s.typeAt(name)
	if t == nil {
		return nil, refuse(CodeUnknownType, "type %q is not registered", name)
	}
	return t, Result{}
}

// counted refuses an entry of which nothing took effect.
func (s *State) counted(t *typeState, what string) Result {
	if len(s.touched) == 0 {
		return refuse(CodeConflict, "%s of %s: nothing is as planned on any more", what, t.name)
	}
	return Result{}
}

func (s *State) applyBeginPass(b *protocol.BeginPass) Result {
	t, r := s.entryType(b.Type)
	if t == nil {
		return r
	}
	t.pass = pass{index: s.index, seed: b.Seed, now: s.now, cause: b.Cause}
	return Result{}
}

// stale says why a decision no longer counts: another strategy is in force since, or the pass is not the open one.
func (s *State) stale(t *typeState, d *protocol.Decision) (Result, bool) {
	if d.Cause == protocol.CauseOperator {
		return Result{}, false
	}
	if d.Seq != t.strategy.seq || (d.Digest != [32]byte{} && d.Digest != t.strategy.spec.Digest && !s.off.Shadow) {
		return refuse(CodeConflict, "decided by strategy %d of %s, in force is %d", d.Seq, t.name, t.strategy.seq), true
	}
	if d.Pass != 0 && d.Pass != t.pass.index {
		return refuse(CodeConflict, "decided in pass %d of %s, the last one is %d", d.Pass, t.name, t.pass.index), true
	}
	return Result{}, false
}

func (s *State) applyPlanMoves(p *protocol.PlanMoves) Result {
	t, r := s.entryType(p.Type)
	if t == nil {
		return r
	}
	if !s.off.RecheckApply {
		if r, stale := s.stale(t, &p.Decision); stale {
			return r
		}
	}
	for _, m := range p.Moves {
		i := uint32(m.Shard)
		if i >= t.numShards || !s.off.RecheckApply && !s.movable(t, i, m) {
			continue
		}
		t.state[i], t.target[i] = protocol.Moving, 0
		if !m.Target.IsZero() {
			t.target[i] = s.slotFor(m.Target)
		}
		s.decide(t, i, p.Decision, m.Reason)
		s.touch(t, i)
	}
	return s.counted(t, "plan")
}

// movable checks one planned move against the state (I6): the owner is still the one planned on, and the rule for moves holds.
func (s *State) movable(t *typeState, i uint32, m protocol.Move) bool {
	target := pluginapi.NoTarget
	if !m.Target.IsZero() {
		target = int(s.lookup[m.Target]) // slot 0 is nobody, and no candidate
	}
	return s.slots[t.owner[i]].member == m.From && t.epoch[i] == m.Epoch && placement.CheckMove(board{s, t, m.Target.Node}, i, target) == nil
}

// board is the state as the rule for moves and homes sees it: nodes are slots. A pin does not hold against a move to the pinned node, nor
// where the owner is draining.
type board struct {
	s  *State
	t  *typeState
	to sharding.NodeID
}

func (b board) NumShards() uint32        { return b.t.numShards }
func (b board) NumNodes() int            { return len(b.s.slots) }
func (b board) NodeName(node int) string { return string(b.s.slots[node].member.Node) }
func (b board) Busy(shard uint32) bool   { return b.t.busy(shard) }
func (b board) Waiting(uint32) bool      { return false }

func (b board) Owner(shard uint32) int {
	if n := b.t.owner[shard]; b.s.slots[n].reg != nil {
		return int(n)
	}
	return pluginapi.NoTarget
}

func (b board) Pinned(shard uint32) bool {
	pin, pinned := b.t.pins[shard]
	reg := b.s.slots[b.t.owner[shard]].reg
	return pinned && pin != b.to && (reg == nil || !reg.draining)
}

func (b board) Candidate(node int) bool {
	reg := b.s.slots[node].reg
	return reg != nil && !reg.draining && reg.hosts(b.t.name)
}

func (s *State) applyAssignHomes(a *protocol.AssignHomes) Result {
	t, r := s.entryType(a.Type)
	if t == nil {
		return r
	}
	if !s.off.RecheckApply {
		if r, stale := s.stale(t, &a.Decision); stale {
			return r
		}
	}
	for _, h := range a.Homes {
		i := uint32(h.Shard)
		if i >= t.numShards {
			continue
		}
		if !s.off.RecheckApply && (t.state[i] != protocol.Unassigned || t.epoch[i] != h.Epoch || placement.CheckHome(board{s: s, t: t}, i, int(s.lookup[h.Owner])) != nil || s.pinnedElsewhere(t, i, h.Owner)) {
			continue
		}
		s.grant(t, i, s.slotFor(h.Owner))
		s.decide(t, i, a.Decision, h.Reason)
	}
	return s.counted(t, "homes")
}

// pinnedElsewhere says that the shard is pinned to another node than m's, and that node could have it.
func (s *State) pinnedElsewhere(t *typeState, i uint32, m sharding.Member) bool {
	pin, ok := t.pins[i]
	if !ok || pin == m.Node {
		return false
	}
	n := s.newest(pin)
	return n != 0 && s.fit(t, s.slots[n].member)
}

// grant gives a shard an owner under a new epoch, above every one before (I2). Source stays only where something was handed over.
func (s *State) grant(t *typeState, i uint32, owner uint32) {
	_, handed := t.handovers[i]
	if !handed {
		t.source[i] = 0
	}
	t.state[i], t.owner[i], t.target[i] = protocol.Homed, owner, 0
	t.epoch[i] = max(t.epoch[i], s.baseEpoch) + 1
	t.granted[i] = s.index
	if !handed {
		t.chain[i] = t.epoch[i]
	}
	delete(t.fenced, i)
	s.touch(t, i)
}

// owns says whether (shard, epoch) is the present generation and owned.
func (t *typeState) owns(i uint32, e sharding.Epoch) bool {
	return i < t.numShards && t.owner[i] != 0 && t.epoch[i] == e
}

// applyCompleteHandOff: every Stop of the source has ended. A fenced shard's late completion counts too: the source has stopped for good.
func (s *State) applyCompleteHandOff(c *protocol.CompleteHandOff) Result {
	t, r := s.entryType(c.Type)
	if t == nil {
		return r
	}
	i := uint32(c.Shard)
	if !t.owns(i, c.Epoch) || s.slots[t.owner[i]].member != c.From || t.state[i] != protocol.Moving && t.state[i] != protocol.Fenced {
		return refuse(CodeConflict, "handoff of shard %d of %s by %s at epoch %d is not under way", c.Shard, c.Type, c.From, c.Epoch)
	}
	target := t.target[i]
	t.handovers[i] = slices.Clone(c.Senders)
	t.source[i] = t.owner[i]
	if target != 0 && s.fit(t, s.slots[target].member) {
		s.grant(t, i, target)
		return Result{}
	}
	t.state[i], t.owner[i], t.target[i] = protocol.Unassigned, 0, 0
	delete(t.fenced, i)
	s.touch(t, i)
	return Result{}
}

func (s *State) applyFence(f *protocol.FenceShards) Result {
	t, r := s.entryType(f.Type)
	if t == nil {
		return r
	}
	for _, se := range f.Shards {
		i := uint32(se.Shard)
		if !t.owns(i, se.Epoch) || t.state[i] == protocol.Fenced {
			continue
		}
		t.state[i] = protocol.Fenced
		t.fenced[i] = s.index
		s.decide(t, i, protocol.Decision{Cause: f.Cause}, "")
		s.touch(t, i)
	}
	return s.counted(t, "fence")
}

func (s *State) applyRelease(f *protocol.ReleaseShards) Result {
	t, r := s.entryType(f.Type)
	if t == nil {
		return r
	}
	for _, se := range f.Shards {
		if i := uint32(se.Shard); t.owns(i, se.Epoch) && t.state[i] == protocol.Fenced {
			delete(t.handovers, i)
			s.free(t, i, f.Cause)
		}
	}
	return s.counted(t, "release")
}

func (s *State) applyPin(p *protocol.PinShard) Result {
	t, r := s.entryType(p.Type)
	if t == nil {
		return r
	}
	if uint32(p.Shard) >= t.numShards {
		return refuse(CodeUnknownShard, "%s has no shard %d, its shards are 0 to %d", p.Type, p.Shard, t.numShards-1)
	}
	if p.Node == "" {
		delete(t.pins, uint32(p.Shard))
	} else {
		t.pins[uint32(p.Shard)] = p.Node
	}
	return Result{}
}

func (s *State) applyReleaseHandovers(h *protocol.ReleaseHandovers) Result {
	t, r := s.entryType(h.Type)
	if t == nil {
		return r
	}
	n := len(t.handovers)
	for _, se := range h.Shards {
		if i := uint32(se.Shard); t.owns(i, se.Epoch) && t.state[i] == protocol.Homed {
			delete(t.handovers, i)
		}
	}
	if n == len(t.handovers) {
		return refuse(CodeConflict, "handovers of %s: none is as planned on any more", h.Type)
	}
	return Result{}
}
