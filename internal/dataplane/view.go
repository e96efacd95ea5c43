package dataplane

import (
	"slices"

	"github.com/droverhq/drover/internal/entity"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
	"github.com/droverhq/drover/sharding/region"
)

// hosted says whether any member hosts the type, as far as this node's map tells: before the first map everything may be.
func (p *Plane) hosted(t sharding.TypeName) bool {
	h := p.hosts.Load()
	return h == nil || (*h)[t]
}

// mapAdvanced runs on the session's goroutine.
func (p *Plane) mapAdvanced() {
	hosts := map[sharding.TypeName]bool{}
	for _, m := range p.session.Members() {
		for _, t := range m.Hosts {
			hosts[t] = true
		}
	}
	p.hosts.Store(&hosts)
	p.watches.wake()
}

// Members gives the registered members as this node's map has them.
func (p *Plane) Members() (out []protocol.MemberRecord) {
	p.call(func() { out = p.session.Members() })
	return out
}

// Leader gives the leader that this node follows, and its term; zero: none.
func (p *Plane) Leader() (m sharding.Member, term uint64) {
	p.call(func() { m, term = p.session.Leader() })
	return m, term
}

// Authority gives what this node knows of the leader's power, and how fresh that is.
func (p *Plane) Authority() (a region.Authority) {
	p.call(func() { a = p.session.Authority() })
	return a
}

// Registered says whether the present leader has acknowledged this node, and under which revision of the map it stands.
func (p *Plane) Registered() (ok bool, rev sharding.Revision) {
	p.call(func() { ok, rev = p.session.Registered(), p.session.Revision() })
	return ok, rev
}

// Types gives the types that the cluster knows, sorted.
func (p *Plane) Types() (out []sharding.TypeName) {
	p.call(func() { out = p.session.Types() })
	return out
}

// Map gives the shards of a type that have a home, by number, with the revision they are of; numShards is 0 for a type that nobody knows.
func (p *Plane) Map(t sharding.TypeName) (shards []protocol.ShardRecord, numShards uint32, rev sharding.Revision) {
	p.call(func() {
		numShards, rev = p.session.NumShards(t), p.session.Revision()
		for r := range p.session.Map(t) {
			if r.State != protocol.Unassigned {
				shards = append(shards, r)
			}
		}
	})
	slices.SortFunc(shards, func(a, b protocol.ShardRecord) int { return int(a.Shard) - int(b.Shard) })
	return shards, numShards, rev
}

// Stats gives the shards of a type that run on this node, with their entities; nil for a type that it does not host.
func (p *Plane) Stats(t sharding.TypeName) []entity.Stats {
	s := p.shell(t)
	if s == nil || s.runtime == nil {
		return nil
	}
	return s.runtime.Stats()
}

// EntityIDs gives the ids of a shard's live entities on this node, sorted.
func (p *Plane) EntityIDs(t sharding.TypeName, shard sharding.ShardID) []string {
	s := p.shell(t)
	if s == nil || s.runtime == nil {
		return nil
	}
	return s.runtime.EntityIDs(shard)
}

// meter turns counts into rates.
type meter struct {
	at    sharding.Instant
	begun map[meterKey]uint64
}

type meterKey struct {
	typ sharding.TypeName
	se  protocol.ShardEpoch
}

func newMeter() *meter { return &meter{begun: map[meterKey]uint64{}} }

// load measures this node: entities and messages here, the rest by Config.Measure.
func (p *Plane) load(m *meter, now sharding.Instant) protocol.NodeLoad {
	var load protocol.NodeLoad
	var entities, rate, depth uint64
	elapsed := now.Sub(m.at)
	next := map[meterKey]uint64{}
	for _, info := range p.cfg.Session.Regions {
		s := p.shell(info.Type)
		if s == nil || s.runtime == nil {
			continue
		}
		depth += uint64(s.inbox.Len())
		for _, st := range s.runtime.Stats() {
			key := meterKey{info.Type, protocol.ShardEpoch{Shard: st.Shard, Epoch: st.Epoch}}
			next[key] = st.Begun
			var perSecond uint64
			if before, ok := m.begun[key]; ok && elapsed > 0 {
				perSecond = uint64(float64(st.Begun-before) / elapsed.Seconds())
			}
			entities += uint64(st.Entities)
			rate += perSecond
			load.Shards = append(load.Shards, protocol.ShardLoad{Type: info.Type, Shard: st.Shard, Entities: uint32(st.Entities), Rate: uint32(perSecond)})
		}
	}
	m.at, m.begun = now, next
	load.Entities, load.Rate, load.Depth = &entities, &rate, &depth
	if p.cfg.Measure != nil {
		p.cfg.Measure(&load)
	}
	return load
}
