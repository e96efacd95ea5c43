package coordinator

import (
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// input builds what a strategy sees: all that is known of nodes, shards, loads and limits. A node name stands for its newest
// incarnation; shards of an earlier one that has not lapsed yet are shown on the same node, and busy. members is by node index.
func (m *Machine) input(r *run, t *typeState) (in *pluginapi.Snapshot, members []sharding.Member) {
	s := m.state
	in = &pluginapi.Snapshot{
		Type: string(t.name), Revision: s.revision.Index, Now: uint64(max(s.now, 0)),
		Owners: make([]uint32, t.numShards), MaxMoves: uint64(m.room(r, t)), Config: t.strategy.spec.Config,
	}
	index := make([]uint32, len(s.slots)) // node index by slot
	current := make([]bool, len(s.slots)) // slot is the newest of its name
	for i := range index {
		index[i] = pluginapi.NoOwner
	}
	candidates := m.candidates(t, m.living())
	for _, n := range s.members() {
		who := s.slots[n].member
		newest := s.newest(who.Node)
		current[n] = newest == n
		if last := len(members) - 1; last < 0 || members[last].Node != who.Node {
			members = append(members, s.slots[newest].member)
			in.Nodes = append(in.Nodes, m.node(s.slots[newest].member))
		}
		index[n] = uint32(len(members) - 1)
		if len(candidates) > 0 && candidates[0] == who {
			candidates = candidates[1:]
			in.Candidates = append(in.Candidates, len(members)-1)
		}
	}
	handed := t.handed()
	for i, o := range t.owner {
		in.Owners[i] = index[o] // slot 0 has no index: no owner
		if o == 0 || current[o] && !busy(t.state[i], handed.has(uint32(i))) {
			continue
		}
		b := pluginapi.Busy{Shard: uint32(i), Target: pluginapi.NoTarget}
		if target := index[t.target[i]]; target != pluginapi.NoOwner {
			b.Target = int(target)
		}
		in.Busy = append(in.Busy, b)
	}
	for _, i := range sortedKeys(t.pins) {
		if n := in.NodeIndex(string(t.pins[i])); n != pluginapi.NoTarget {
			in.Pinned = append(in.Pinned, pluginapi.Pin{Shard: i, Node: n})
		}
	}
	m.loads(in, t, members)
	return in, members
}

// shardSet is a set of shards; an empty one has no memory.
type shardSet []uint64

func (s shardSet) has(i uint32) bool {
	w := int(i >> 6)
	return w < len(s) && s[w]>>(i&63)&1 != 0
}

// handed is the set of the shards in t.handovers, for who goes through all shards: looking each up in a map takes longer than all else.
func (t *typeState) handed() shardSet {
	if len(t.handovers) == 0 {
		return nil
	}
	s := make(shardSet, (t.numShards+63)/64)
	for i := range t.handovers { // unordered: into a set
		s[i>>6] |= 1 << (i & 63)
	}
	return s
}

// node describes a member from its registration, Serf's view and its last load report.
func (m *Machine) node(who sharding.Member) pluginapi.Node {
	_, reg := m.state.registered(who)
	p, seen := m.peers[who], m.seen[who]
	n := pluginapi.Node{
		Name: string(who.Node), Addr: reg.info.Address, Incarnation: who.Incarnation.String(), State: pluginapi.StateUp,
		Roles: reg.info.Roles, Version: reg.info.Version, Weight: reg.info.Capacity, Zone: reg.info.Zone, Coord: seen.coord,
	}
	if n.Weight == 0 {
		n.Weight = 100
	}
	for k, v := range reg.info.Tags { // unordered: SortTags follows
		n.Tags = append(n.Tags, pluginapi.Tag{Key: k, Value: v})
	}
	pluginapi.SortTags(n.Tags)
	switch {
	case reg.draining:
		n.State = pluginapi.StateDraining
	case p == nil || p.dropping || seen.status == MemberLeft:
		n.State = pluginapi.StateLeaving
	case seen.status == MemberFailed || seen.status == MemberSuspect:
		n.State = pluginapi.StateUnreachable
	case m.at < p.settleAt:
		n.State = pluginapi.StateJoining
	}
	if p != nil && p.load != nil {
		l := p.load
		n.Load = pluginapi.NodeLoad{CPU: figure(l.CPU), Mem: figure(l.Mem), Entities: figure(l.Entities), Rate: figure(l.Rate),
			Depth: figure(l.Depth), Disk: figure(l.Disk), DiskFree: figure(l.DiskFree)}
	}
	return n
}

func figure(v *uint64) pluginapi.Figure {
	if v == nil {
		return pluginapi.Figure{}
	}
	return pluginapi.Known(*v)
}

// loads fills the shards' columns with what their present owners have reported.
func (m *Machine) loads(in *pluginapi.Snapshot, t *typeState, members []sharding.Member) {
	for _, who := range members {
		p := m.peers[who]
		if p == nil || p.load == nil {
			continue
		}
		for _, l := range p.load.Shards {
			if l.Type != t.name || uint32(l.Shard) >= t.numShards || m.state.slots[t.owner[l.Shard]].member != who {
				continue
			}
			if in.Load.Entities == nil {
				in.Load.Entities, in.Load.Rate = unknown(t.numShards), unknown(t.numShards)
			}
			in.Load.Entities[l.Shard], in.Load.Rate[l.Shard] = l.Entities, l.Rate
		}
	}
}

func unknown(n uint32) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = pluginapi.UnknownLoad
	}
	return out
}

// room is how many moves may be planned now: moves_per_pass, the host's own cap, less those in flight; and what an entry of the log holds.
func (m *Machine) room(r *run, t *typeState) uint32 { return room(r, &t.strategy.spec) }

func room(r *run, spec *protocol.StrategySpec) uint32 {
	limit := spec.MovesPass
	if limit == 0 {
		limit = defaultMovesPass
	}
	if r.moving >= limit {
		return 0
	}
	return min(limit-r.moving, homesPerEntry)
}

const defaultMovesPass = 100

// memberAt gives the member of a checked answer's node; the zero one for none.
func (a *asking) memberAt(node int) sharding.Member {
	if node == pluginapi.NoTarget {
		return sharding.Member{}
	}
	return a.members[node]
}

// decision ties what follows from an answer to the question.
func (a *asking) decision(cause protocol.Cause, record [32]byte, verdict, reason string) protocol.Decision {
	d := protocol.Decision{Digest: a.spec.Digest, Seq: a.seq, Pass: a.pass, Record: record, Cause: cause, Reason: clip(reason), Verdict: verdict}
	if verdict != verdictOK {
		d.Digest = [32]byte{} // the built-in hash decided
	}
	return d
}

const verdictOK = "ok"
