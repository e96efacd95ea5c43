package coordinator

import (
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// requested answers an operator's request: at once where it can't be done or is done already, else when its entry has committed.
func (m *Machine) requested(ev Requested) {
	answer := func(r Result) { m.do(Answer{ID: ev.ID, Err: r.Detail, Code: r.Code}) }
	if !m.active {
		answer(refuse(CodeNotLeader, "this server does not lead, or has not caught up yet: ask the leader"))
		return
	}
	if _, create := ev.Request.(CreateCluster); !create && !m.state.created {
		answer(refuse(CodeNoCluster, "the cluster has not been created yet"))
		return
	}
	e, r := m.entryFor(ev.Request)
	if e == nil {
		answer(r)
		return
	}
	m.propose(e, answer)
}

// entryFor turns a request into its entry; without one the Result is the answer, "" being done already.
func (m *Machine) entryFor(req Request) (*protocol.Entry, Result) {
	switch q := req.(type) {
	case CreateCluster:
		return &protocol.Entry{Kind: protocol.KindCreateCluster, CreateCluster: &q.Body}, Result{}
	case Configure:
		return &protocol.Entry{Kind: protocol.KindConfigure, Configure: &protocol.Configure{Settings: q.Settings}}, Result{}
	case Pause:
		return &protocol.Entry{Kind: protocol.KindSetPaused, SetPaused: &protocol.SetPaused{On: q.On}}, Result{}
	case PutServer:
		return &protocol.Entry{Kind: protocol.KindPutServer, PutServer: &q.Body}, Result{}
	case RemoveServer:
		return &protocol.Entry{Kind: protocol.KindRemoveServer, RemoveServer: &q.Body}, Result{}
	case DrainNode:
		n := m.state.newest(q.Node)
		if n == 0 {
			return nil, unknownNode(q.Node)
		}
		return &protocol.Entry{Kind: protocol.KindSetDrain, SetDrain: &protocol.SetDrain{Member: m.state.slots[n].member, On: q.On}}, Result{}
	case ForgetNode:
		return m.forget(q.Node)
	case PinShard:
		if _, r := m.shard(q.Type, q.Shard); r.Code != "" {
			return nil, r
		}
		if q.Node != "" { // a pin to a name that is mistyped would hold the shard for nobody
			n := m.state.newest(q.Node)
			if n == 0 {
				return nil, unknownNode(q.Node)
			}
			if !m.state.slots[n].reg.hosts(q.Type) {
				return nil, refuse(CodeRefused, "node %s may not have shards of %s: it hosts none or lacks the role", q.Node, q.Type)
			}
		}
		return &protocol.Entry{Kind: protocol.KindPinShard, PinShard: &protocol.PinShard{Type: q.Type, Shard: q.Shard, Node: q.Node}}, Result{}
	case SwapStrategy:
		return m.swap(q)
	case SetShadow:
		return m.setShadow(q)
	case PromoteShadow:
		t, r := m.state.entryType(q.Type)
		if t != nil && !t.strategy.shadow.on() {
			r = noShadow(t)
		}
		if r.Code != "" {
			return nil, r
		}
		return &protocol.Entry{Kind: protocol.KindPromote, Promote: &protocol.Promote{Type: q.Type, Expect: or(q.Expect, t.strategy.seq), Shadow: or(q.Shadow, t.strategy.shadow.seq)}}, Result{}
	case RollBack:
		t, r := m.state.entryType(q.Type)
		if t != nil && t.strategy.previous() < 0 {
			r = noPrevious(t)
		}
		if r.Code != "" {
			return nil, r
		}
		return &protocol.Entry{Kind: protocol.KindRollback, Rollback: &protocol.Rollback{Type: q.Type, Expect: or(q.Expect, t.strategy.seq)}}, Result{}
	case MoveShard:
		return m.move(q)
	}
	return nil, refuse(CodeRefused, "%T is not a request that this build knows", req)
}

func unknownNode(n sharding.NodeID) Result {
	return refuse(CodeUnknownNode, "no node %q is registered", n)
}

func (m *Machine) shard(name sharding.TypeName, shard sharding.ShardID) (*typeState, Result) {
	t, r := m.state.entryType(name)
	if t != nil && uint32(shard) >= t.numShards {
		return nil, refuse(CodeUnknownShard, "%s has no shard %d, its shards are 0 to %d", name, shard, t.numShards-1)
	}
	return t, r
}

func (m *Machine) swap(q SwapStrategy) (*protocol.Entry, Result) {
	t, r := m.state.entryType(q.Type)
	if t == nil {
		return nil, r
	}
	seq := or(q.Expect, t.strategy.seq)
	if seq == t.strategy.seq && seq != 0 && sameSpec(q.Spec, t.strategy.spec) {
		return nil, Result{} // in force already
	}
	if q.Cause == "" {
		q.Cause = protocol.CauseSwap
	}
	return &protocol.Entry{Kind: protocol.KindSetStrategy, SetStrategy: &protocol.SetStrategy{Type: q.Type, Spec: q.Spec, Expect: seq, Cause: q.Cause}}, Result{}
}

func or(v *uint64, present uint64) uint64 {
	if v != nil {
		return *v
	}
	return present
}

func (m *Machine) setShadow(q SetShadow) (*protocol.Entry, Result) {
	t, r := m.state.entryType(q.Type)
	if t == nil {
		return nil, r
	}
	h := &t.strategy.shadow
	seq := or(q.Shadow, h.seq)
	same := h.spec.Digest == q.Spec.Digest && (!h.on() || sameSpec(q.Spec, h.spec))
	if seq == h.seq && same { // it is so already; what it was compared in goes on
		return nil, Result{}
	}
	return &protocol.Entry{Kind: protocol.KindSetShadow, SetShadow: &protocol.SetShadow{Type: q.Type, Spec: q.Spec, Expect: or(q.Expect, t.strategy.seq), Shadow: seq,
		Cause: protocol.CauseOperator}}, Result{}
}

// move plans one move, or a home where the shard has none.
func (m *Machine) move(q MoveShard) (*protocol.Entry, Result) {
	t, r := m.shard(q.Type, q.Shard)
	if t == nil {
		return nil, r
	}
	n := m.state.newest(q.To)
	if n == 0 {
		return nil, unknownNode(q.To)
	}
	to, i := m.state.slots[n].member, uint32(q.Shard)
	d := protocol.Decision{Cause: protocol.CauseOperator}
	switch owner := m.state.slots[t.owner[i]].member; {
	case !m.state.fit(t, to):
		return nil, refuse(CodeRefused, "node %s may not have shards of %s: it hosts none, lacks the role or is draining", q.To, q.Type)
	case t.state[i] == protocol.Unassigned && m.state.pinnedElsewhere(t, i, to):
		return nil, refuse(CodeConflict, "shard %d of %s is pinned to %s: lift the pin first", q.Shard, q.Type, t.pins[i])
	case t.state[i] == protocol.Unassigned:
		return &protocol.Entry{Kind: protocol.KindAssignHomes, AssignHomes: &protocol.AssignHomes{Type: q.Type, Decision: d,
			Homes: []protocol.Home{{Shard: q.Shard, Epoch: t.epoch[i], Owner: to}}}}, Result{}
	case t.busy(i): // from there too: it is about to go elsewhere
		return nil, refuse(CodeConflict, "shard %d of %s is moving already: wait until it is homed", q.Shard, q.Type)
	case owner == to:
		return nil, Result{}
	default:
		mv := protocol.Move{Shard: q.Shard, From: owner, Epoch: t.epoch[i], Target: to}
		if !m.state.movable(t, i, mv) {
			return nil, refuse(CodeConflict, "shard %d of %s is pinned to %s: lift the pin first", q.Shard, q.Type, t.pins[i])
		}
		return &protocol.Entry{Kind: protocol.KindPlanMoves, PlanMoves: &protocol.PlanMoves{Type: q.Type, Decision: d, Moves: []protocol.Move{mv}}}, Result{}
	}
}

// forget ends a dead node's regions; one that may still hold a lease is refused.
func (m *Machine) forget(node sharding.NodeID) (*protocol.Entry, Result) {
	n := m.state.newest(node)
	if n == 0 {
		return nil, Result{}
	}
	who := m.state.slots[n].member
	if p := m.peers[who]; p != nil && m.at <= m.lapseOf(p) {
		left := m.lapseOf(p).Sub(m.at).Round(time.Millisecond)
		return nil, refuse(CodeRefused, "node %s may still hold its lease, for %s if it is silent now: stop it and try again then", node, left)
	}
	m.deregister(who, nil, protocol.CauseLapsed)
	return nil, Result{}
}
