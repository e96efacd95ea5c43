package coordinator

import (
	"slices"
	"sort"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

func (s *State) applyCreateCluster(c *protocol.CreateCluster) Result {
	switch {
	case s.created:
		return refuse(CodeConflict, "the cluster exists already, with id %s", s.clusterID)
	case c.ClusterID.IsZero():
		return refuse(CodeRefused, "a cluster needs an id")
	case badSettings(c.Settings) != "":
		return refuse(CodeRefused, "%s", badSettings(c.Settings))
	}
	s.created = true
	s.clusterID, s.label, s.settings, s.baseEpoch = c.ClusterID, c.Label, c.Settings, c.BaseEpoch
	s.mapChanged()
	return Result{}
}

func (s *State) applyPutServer(p protocol.PutServer) Result {
	i := sort.Search(len(s.servers), func(i int) bool { return string(s.servers[i].Server[:]) >= string(p.Server[:]) })
	if i < len(s.servers) && s.servers[i].Server == p.Server {
		s.servers[i] = p
	} else {
		s.servers = slices.Insert(s.servers, i, p)
	}
	return Result{}
}

// applyRegister enters a member. A region whose number of shards is not the type's, or of a type that there is no room for, is left out; the coordinator tells its node so.
func (s *State) applyRegister(r *protocol.RegisterNode) Result {
	if r.Member.Node == "" || r.Member.Incarnation.IsZero() {
		return refuse(CodeRefused, "a member needs a name and an incarnation")
	}
	if s.superseded(r.Member) {
		return refuse(CodeRefused, "%s was superseded by a later process of its node", r.Member)
	}
	var regions []protocol.RegionInfo
	for _, g := range r.Regions {
		if slices.ContainsFunc(regions, func(o protocol.RegionInfo) bool { return o.Type == g.Type }) {
			continue
		}
		t := s.typeAt(g.Type)
		if t == nil {
			if s.noRoom(&g) != "" {
				continue
			}
			t = newType(g.Type, g.NumShards, s.index)
			i := sort.Search(len(s.types), func(i int) bool { return s.types[i].name >= g.Type })
			s.types = slices.Insert(s.types, i, t)
		}
		if t.numShards != g.NumShards {
			continue
		}
		if g.Hosts {
			t.eager, t.expect = g.Place == "eager", g.Expect
		}
		regions = append(regions, g)
	}
	slices.SortFunc(regions, func(a, b protocol.RegionInfo) int {
		if a.Type < b.Type {
			return -1
		}
		return 1
	})
	n := s.slotFor(r.Member)
	old := s.slots[n].reg
	reg := &registration{index: s.index, changed: s.index, info: r.Info, regions: regions}
	if old != nil {
		reg.index, reg.draining = old.index, old.draining
	}
	s.slots[n].reg, s.order = reg, nil
	if old != nil {
		// Types it no longer hosts: it says itself that it does not serve them.
		for _, t := range s.types {
			if old.hosts(t.name) && !reg.hosts(t.name) {
				s.freeOwned(t, n, protocol.CauseStopped)
			}
		}
	}
	s.mapChanged()
	return Result{Members: true}
}

// superseded says that a later process of the node has said that this one is dead: it owns nothing again.
func (s *State) superseded(m sharding.Member) bool {
	return slices.ContainsFunc(s.gone, func(g departed) bool { return g.member == m && g.superseded })
}

func (s *State) applyDeregister(d *protocol.Deregister) Result {
	n, reg := s.registered(d.Member)
	if reg == nil {
		return refuse(CodeUnknownNode, "%s is not registered", d.Member)
	}
	for _, t := range s.types {
		if len(d.Types) == 0 || slices.Contains(d.Types, t.name) {
			s.freeOwned(t, n, d.Cause)
		}
	}
	if len(d.Types) == 0 {
		s.slots[n].reg, s.order = nil, nil
		s.gone = append(s.gone, departed{d.Member, s.index, d.Cause == protocol.CauseSuperseded})
		if len(s.gone) > maxGone {
			s.goneFrom = s.gone[0].index
			s.gone = slices.Delete(s.gone, 0, 1)
		}
	} else {
		c := *reg
		c.changed = s.index
		c.regions = slices.DeleteFunc(slices.Clone(c.regions), func(g protocol.RegionInfo) bool { return slices.Contains(d.Types, g.Type) })
		s.slots[n].reg = &c
	}
	s.mapChanged()
	return Result{Members: true}
}

// freeOwned takes every shard of a type from a member that serves it no more, and takes the member off as a target.
func (s *State) freeOwned(t *typeState, n uint32, cause protocol.Cause) {
	for i := range t.owner {
		i := uint32(i)
		if t.target[i] == n {
			t.target[i] = 0
			s.touch(t, i)
		}
		if t.owner[i] == n {
			s.free(t, i, cause)
			t.source[i] = 0
			delete(t.handovers, i)
		}
	}
}

// free leaves a shard without a home. Its epoch stays: the next grant is above it.
func (s *State) free(t *typeState, i uint32, cause protocol.Cause) {
	t.state[i], t.source[i], t.owner[i], t.target[i] = protocol.Unassigned, t.owner[i], 0, 0
	delete(t.fenced, i)
	s.decide(t, i, protocol.Decision{Cause: cause}, "")
	s.touch(t, i)
}

func (s *State) applySetDrain(d *protocol.SetDrain) Result {
	n, reg := s.registered(d.Member)
	if reg == nil {
		return refuse(CodeUnknownNode, "%s is not registered", d.Member)
	}
	if reg.draining == d.On {
		return Result{}
	}
	c := *reg
	c.draining, c.changed = d.On, s.index
	s.slots[n].reg = &c
	s.mapChanged()
	return Result{Members: true}
}

// fit says whether a member may be given a shard of the type: registered, hosting, not draining.
func (s *State) fit(t *typeState, m sharding.Member) bool {
	return board{s: s, t: t}.Candidate(int(s.lookup[m]))
}
