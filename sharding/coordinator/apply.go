package coordinator

import (
	"fmt"
	"slices"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Result says what an entry did.
type Result struct {
	// Code is "" where the entry counted, else why it changed nothing: stale_term, no_cluster, unknown_type, unknown_node, conflict,
	// refused. An entry of many shards counts where any did.
	Code     string
	Detail   string
	Touched  []TypeShard       // shards whose record changed, in the entry's order
	Members  bool              // registration or drain changed
	Strategy sharding.TypeName // type of which another strategy is in force now
	Shadow   sharding.TypeName // type of which the shadow changed, or ended
}

func refuse(code, format string, args ...any) Result {
	return Result{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Codes of Result and Answer that callers branch on.
const (
	CodeStaleTerm    = "stale_term"
	CodeNoCluster    = "no_cluster"
	CodeUnknownType  = "unknown_type"
	CodeUnknownNode  = "unknown_node"
	CodeUnknownShard = "unknown_shard"
	CodeConflict     = "conflict"
	CodeRefused      = "refused"
	CodeNotLeader    = "not_leader"
	CodeUnavailable  = "unavailable" // the entry's fate is unknown
)

// Apply applies one committed entry. Each is checked again here, against what the state is now and not what the proposer saw (spec 2.1,
// I6); an entry whose term is not that of the raft entry carrying it comes from a coordinator deposed since, and changes nothing. An
// index that is not above the last one is ignored, so replays are harmless.
func (s *State) Apply(index, term uint64, e *protocol.Entry) Result {
	if index <= s.index {
		return refuse(CodeRefused, "entry %d has been applied, the state is at %d", index, s.index)
	}
	s.index, s.term = index, term
	if e.Term != term && !s.off.RecheckApply {
		return refuse(CodeStaleTerm, "%s was proposed in term %d and committed in term %d", e.Kind, e.Term, term)
	}
	if !s.created && e.Kind != protocol.KindCreateCluster {
		return refuse(CodeNoCluster, "%s before the cluster was created", e.Kind)
	}
	s.now = max(s.now, e.Now)
	s.touched = nil
	r := s.apply(e)
	r.Touched, s.touched = s.touched, nil
	return r
}

func (s *State) apply(e *protocol.Entry) Result {
	switch e.Kind {
	case protocol.KindCreateCluster:
		return s.applyCreateCluster(e.CreateCluster)
	case protocol.KindConfigure:
		if why := badSettings(e.Configure.Settings); why != "" {
			return refuse(CodeRefused, "%s", why)
		}
		s.settings = e.Configure.Settings
		return Result{}
	case protocol.KindPutServer:
		return s.applyPutServer(*e.PutServer)
	case protocol.KindRemoveServer:
		s.servers = slices.DeleteFunc(s.servers, func(p protocol.PutServer) bool { return p.Server == e.RemoveServer.Server })
		return Result{}
	case protocol.KindRegister:
		return s.applyRegister(e.Register)
	case protocol.KindDeregister:
		return s.applyDeregister(e.Deregister)
	case protocol.KindGrantLeases:
		s.longestTTL = max(s.longestTTL, e.GrantLeases.TTL)
		return Result{}
	case protocol.KindSetDrain:
		return s.applySetDrain(e.SetDrain)
	case protocol.KindSetPaused:
		s.paused = e.SetPaused.On
		return Result{}
	case protocol.KindBeginPass:
		return s.applyBeginPass(e.BeginPass)
	case protocol.KindPlanMoves:
		return s.applyPlanMoves(e.PlanMoves)
	case protocol.KindAssignHomes:
		return s.applyAssignHomes(e.AssignHomes)
	case protocol.KindCompleteHandOff:
		return s.applyCompleteHandOff(e.CompleteHandOff)
	case protocol.KindFenceShards:
		return s.applyFence(e.FenceShards)
	case protocol.KindReleaseShards:
		return s.applyRelease(e.ReleaseShards)
	case protocol.KindPinShard:
		return s.applyPin(e.PinShard)
	case protocol.KindReleaseHandovers:
		return s.applyReleaseHandovers(e.ReleaseHandovers)
	case protocol.KindSetStrategy:
		return s.applySetStrategy(e.SetStrategy)
	case protocol.KindStrategyOutcome:
		return s.applyStrategyOutcome(e.StrategyOutcome)
	case protocol.KindSetShadow:
		return s.applySetShadow(e.SetShadow)
	case protocol.KindPromote:
		return s.applyPromote(e.Promote)
	case protocol.KindRollback:
		return s.applyRollback(e.Rollback)
	}
	// A newer build's entry: two servers of different builds must not diverge, so the leader proposes new kinds only once all read them.
	return refuse(CodeRefused, "%s is not known to this build", e.Kind)
}

// mapChanged makes this entry the map's revision.
func (s *State) mapChanged() { s.revision = sharding.Revision{Term: s.term, Index: s.index} }

// touch notes that a shard's record changed.
func (s *State) touch(t *typeState, i uint32) {
	t.changedAt[i], t.changed = s.index, s.index
	if len(t.recent) >= int(t.numShards) { // what is older is found by a look at all shards
		half := len(t.recent) / 2
		t.recentFrom = t.recent[half].index
		t.recent = append(make([]change, 0, t.numShards), t.recent[half+1:]...)
	}
	t.recent = append(t.recent, change{s.index, i})
	s.mapChanged()
	s.touched = append(s.touched, TypeShard{t.name, sharding.ShardID(i)})
}

const maxReason = 200 // bytes of a decision's or a shard's reason that the state keeps

func clip(r string) string {
	if len(r) <= maxReason {
		return r
	}
	n := maxReason
	for n > 0 && r[n]&0xc0 == 0x80 { // not inside a rune: the snapshot holds text
		n--
	}
	return r[:n]
}

// decide keeps why a shard is as it is now. The shards of one entry share the decision; it goes with the last of them.
func (s *State) decide(t *typeState, i uint32, d protocol.Decision, reason string) {
	if old := t.decided[i]; old != s.index {
		if o := t.decisions[old]; o != nil {
			if o.refs--; o.refs == 0 {
				delete(t.decisions, old)
			}
		}
		n := t.decisions[s.index]
		if n == nil {
			d.Reason, d.Verdict = clip(d.Reason), clip(d.Verdict)
			n = &decision{Decision: d}
			t.decisions[s.index] = n
		}
		n.refs++
		t.decided[i] = s.index
	}
	if reason = clip(reason); reason == "" {
		delete(t.reasons, i)
	} else {
		t.reasons[i] = reason
	}
}

// slotFor gives the member's slot, a new one where it has none: the lowest that is neither registered nor referred to by a shard.
func (s *State) slotFor(m sharding.Member) uint32 {
	if n, ok := s.lookup[m]; ok {
		return n
	}
	used := make([]bool, len(s.slots)+1)
	used[0] = true
	for n := range s.slots {
		used[n] = used[n] || s.slots[n].reg != nil
	}
	for _, t := range s.types {
		for i := range t.owner {
			used[t.owner[i]], used[t.target[i]], used[t.source[i]] = true, true, true
		}
	}
	n := slices.Index(used, false)
	if n == len(s.slots) {
		s.slots = append(s.slots, slot{})
	} else {
		delete(s.lookup, s.slots[n].member)
	}
	s.slots[n] = slot{member: m}
	s.lookup[m] = uint32(n)
	return uint32(n)
}
