package coordinator

import (
	"slices"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Delta gives what changed in the map since revision from, as of now: a full map where from is zero, unknown, or too long ago.
func (s *State) Delta(term uint64, from sharding.Revision) *protocol.ShardMapUpdate {
	u := &protocol.ShardMapUpdate{Term: term, From: from, To: s.revision}
	if from.Index == 0 || from.Index > s.revision.Index || from.Index < s.goneFrom {
		u.From, u.Full = sharding.Revision{}, true
	}
	since := u.From.Index
	for _, t := range s.types {
		if !u.Full && t.changed <= since && t.created <= since {
			continue
		}
		d := protocol.TypeDelta{Type: t.name, NumShards: t.numShards}
		for _, i := range t.changedSince(since) {
			d.Shards = append(d.Shards, s.record(t, i))
		}
		u.Types = append(u.Types, d)
	}
	for _, n := range s.members() {
		if u.Full || s.slots[n].reg.changed > since {
			u.Members = append(u.Members, s.memberRecord(n))
		}
	}
	for _, g := range s.gone {
		if _, reg := s.registered(g.member); !u.Full && g.index > since && reg == nil {
			u.Gone = append(u.Gone, g.member)
		}
	}
	return u
}

// changedSince gives the shards that entries after index have changed, by number. What is recent costs what has changed, and not a look at all shards:
// each entry is published.
func (t *typeState) changedSince(index uint64) (changed []uint32) {
	if index < t.recentFrom {
		for i, c := range t.changedAt {
			if c > index {
				changed = append(changed, uint32(i))
			}
		}
		return changed
	}
	for k := len(t.recent) - 1; k >= 0 && t.recent[k].index > index; k-- {
		changed = append(changed, t.recent[k].shard)
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}

// publish sends each member that has registered with this leader what its map lacks.
func (m *Machine) publish() {
	var last []*protocol.ShardMapUpdate // most members lack the same
	var from sharding.Revision
	for _, n := range m.state.members() {
		who := m.state.slots[n].member
		p := m.peers[who]
		if p == nil || !p.synced || p.sent == m.state.revision {
			continue
		}
		if last == nil || from != p.sent {
			from = p.sent
			last = m.state.Delta(m.term, from).Parts(m.cfg.MapPart)
		}
		m.sendMap(who, p, last)
	}
}

func (m *Machine) publishTo(who sharding.Member, p *peer) {
	if p.synced && p.sent != m.state.revision {
		m.sendMap(who, p, m.state.Delta(m.term, p.sent).Parts(m.cfg.MapPart))
	}
}

// sendMap sends the parts of an update, which receivers share and must not change.
func (m *Machine) sendMap(who sharding.Member, p *peer, parts []*protocol.ShardMapUpdate) {
	if !p.applied.Less(p.sent) {
		p.lacks = m.at
	}
	p.sent = m.state.revision
	for _, u := range parts {
		m.send(who, u)
	}
}
