package region

import (
	"iter"
	"slices"
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// shardMap is the map that the session follows, with strictly increasing revisions (I8).
type shardMap struct {
	revision sharding.Revision
	types    map[sharding.TypeName]*typeMap
	members  map[sharding.Member]protocol.MemberRecord
	followed []sharding.TypeName                 // see Follow
	parts    map[uint32]*protocol.ShardMapUpdate // of one update, of which more is to come
	mine     int                                 // shards of all types that it gives to this node
}

// Follow makes the changes of a type go to a region of it that the session was not configured with: a proxy that this node made because it
// sends to the type. Such a region is not registered, since nothing is ever asked of it.
func (s *Session) Follow(t sharding.TypeName) {
	configured := slices.ContainsFunc(s.cfg.Regions, func(r protocol.RegionInfo) bool { return r.Type == t })
	if !configured && !slices.Contains(s.followed, t) {
		s.followed = append(s.followed, t)
	}
}

type typeMap struct {
	numShards uint32
	records   []protocol.ShardRecord // by shard; Epoch 0: never granted
}

// mapUpdated applies a delta that begins no later than what is there, or a full map that is newer; what is old is ignored, and a gap is closed by
// registering again with the revision that is there.
func (s *Session) mapUpdated(m *protocol.ShardMapUpdate) {
	switch {
	case m.To.Index <= s.revision.Index:
		return
	case !m.Full && m.From.Index > s.revision.Index: // one from further back says all that it says of later changes too
		if s.now >= s.resyncAt {
			s.resyncAt = s.now.Add(retryEvery)
			s.register()
		}
		return
	}
	if m = s.assemble(m); m == nil {
		return
	}
	granted := false
	if m.Full {
		clear(s.types)
		s.mine = 0
	}
	changed := map[sharding.TypeName][]protocol.ShardRecord{}
	for _, d := range m.Types {
		if d.NumShards == 0 || d.NumShards > sharding.MaxShards {
			continue
		}
		t := s.types[d.Type]
		if t == nil || t.numShards != d.NumShards {
			if t != nil {
				s.mine -= t.owned(s.cfg.Self)
			}
			t = &typeMap{numShards: d.NumShards, records: make([]protocol.ShardRecord, d.NumShards)}
			s.types[d.Type] = t
		}
		for _, r := range d.Shards {
			if uint32(r.Shard) >= d.NumShards {
				continue
			}
			old := t.records[r.Shard]
			granted = granted || r.Owner == s.cfg.Self && (m.Full || r.Epoch > old.Epoch)
			if old.Owner == s.cfg.Self {
				s.mine--
			}
			if r.Owner == s.cfg.Self {
				s.mine++
			}
			t.records[r.Shard] = r
			changed[d.Type] = append(changed[d.Type], r)
		}
	}
	came, gone := s.mapMembers(m)
	s.revision = m.To
	for _, c := range came {
		s.emit(ToRegion{Event: MemberCame{Member: c}})
	}
	tell := func(t sharding.TypeName) {
		if records := changed[t]; len(records) > 0 || m.Full {
			s.emit(ToRegion{Type: t, Event: MapChanged{Revision: m.To, Full: m.Full, Records: records}})
		}
	}
	for _, r := range s.cfg.Regions {
		tell(r.Type)
	}
	for _, t := range s.followed {
		tell(t)
	}
	for _, g := range gone {
		s.emit(ToRegion{Event: MemberGone{Member: g}})
	}
	s.emit(MapAdvanced{Revision: m.To})
	if slices.Contains(gone, s.cfg.Self) {
		s.register() // the lease had lapsed, and the process lives: begin again
	}
	if s.renewApplied > 0 && s.renewApplied <= s.revision.Index {
		s.renewApplied = 0
		granted = true
	}
	if granted {
		s.renewSoon()
	}
	s.checkDrained()
}

// assemble keeps the parts of an update, in whatever order they come, until all are there, and then gives the whole; nil: some are missing. What is
// lost is sent again: the leader sees from a renewal that this node has not applied it.
func (s *Session) assemble(m *protocol.ShardMapUpdate) *protocol.ShardMapUpdate {
	if m.Part == 0 && !m.More {
		return m
	}
	for _, other := range s.parts { // unordered: all are of one update
		if other.Term == m.Term && other.From == m.From && other.To == m.To && other.Full == m.Full {
			break
		}
		if m.Term < other.Term || m.To.Index < other.To.Index {
			return nil
		}
		s.parts = nil
		break
	}
	if s.parts == nil {
		s.parts = map[uint32]*protocol.ShardMapUpdate{}
	}
	s.parts[m.Part] = m
	var whole protocol.ShardMapUpdate // what came is shared, and not changed
	for n := range uint32(len(s.parts)) {
		p := s.parts[n]
		if p == nil || !p.More && int(n) < len(s.parts)-1 || p.More && int(n) == len(s.parts)-1 {
			return nil
		}
		types := append(whole.Types, p.Types...)
		if n == 0 {
			whole, types = *p, slices.Clone(p.Types)
		}
		whole.Types = types
	}
	s.parts = nil
	return &whole
}

// mapMembers notes members and gives those that have come and gone, in order.
func (s *Session) mapMembers(m *protocol.ShardMapUpdate) (came, gone []sharding.Member) {
	before := s.members
	if m.Full {
		s.members = make(map[sharding.Member]protocol.MemberRecord, len(m.Members))
	}
	for _, r := range m.Members {
		if _, here := before[r.Member]; !here {
			came = append(came, r.Member)
		}
		s.members[r.Member] = r
	}
	for _, g := range m.Gone {
		if _, here := before[g]; here {
			gone = append(gone, g)
		}
		delete(s.members, g)
	}
	if m.Full {
		for g := range before { // unordered: sorted below
			if _, here := s.members[g]; !here {
				gone = append(gone, g)
			}
		}
	}
	slices.SortFunc(came, compareMembers)
	slices.SortFunc(gone, compareMembers)
	return slices.Compact(came), slices.Compact(gone)
}

func compareMembers(a, b sharding.Member) int {
	switch {
	case a.Less(b):
		return -1
	case b.Less(a):
		return 1
	}
	return 0
}

// owned counts the shards that the map gives to a member.
func (t *typeMap) owned(m sharding.Member) (n int) {
	for i := range t.records {
		if t.records[i].Owner == m {
			n++
		}
	}
	return n
}

// Leader gives the leader that the session follows and its term; zero: none yet.
func (s *Session) Leader() (sharding.Member, uint64) { return s.leader, s.term }

// Authority is what this node knows of the power behind the leader that it follows.
type Authority struct {
	Leader     sharding.Member // zero: none yet
	Term       uint64
	Registered bool
	// Heard is when the leader last showed that a majority of the voters stands behind it: it took office, or acknowledged a renewal, for which it had
	// to commit an entry. 0: never.
	Heard sharding.Instant
	// LeaseUntil is when the lease that this node holds, or held, ends. 0: it has held none.
	LeaseUntil sharding.Instant
	// Patience is how long the leader may be silent: a lease and its margin.
	Patience time.Duration
}

// Leads says whether there is a leader as far as this node can tell: one from which a word came not longer than Patience ago.
func (a Authority) Leads(now sharding.Instant) bool {
	return !a.Leader.IsZero() && a.Heard > 0 && now <= a.Heard.Add(a.Patience)
}

// presumedTTL is that of a leader that has not told it yet.
const presumedTTL = 5 * time.Second

// Authority gives what this node knows of the leader, and how fresh that is.
func (s *Session) Authority() Authority {
	ttl := s.ttl
	if ttl <= 0 {
		ttl = presumedTTL
	}
	return Authority{Leader: s.leader, Term: s.term, Registered: s.registered, Heard: s.heard, LeaseUntil: s.leaseUntil, Patience: ttl + ttl/10}
}

// ClusterID gives the cluster's identity; zero before the first RegisterAck.
func (s *Session) ClusterID() sharding.Incarnation { return s.cluster }

// Registered says whether the present leader has acknowledged this node.
func (s *Session) Registered() bool { return s.registered }

// Revision gives the map's revision; zero: no map yet.
func (s *Session) Revision() sharding.Revision { return s.revision }

// Types gives the types of the map, sorted.
func (s *Session) Types() []sharding.TypeName {
	names := make([]sharding.TypeName, 0, len(s.types))
	for t := range s.types { // unordered: sorted below
		names = append(names, t)
	}
	slices.Sort(names)
	return names
}

// NumShards gives the number of shards of a type; 0: the map does not know the type.
func (s *Session) NumShards(t sharding.TypeName) uint32 {
	if m := s.types[t]; m != nil {
		return m.numShards
	}
	return 0
}

// Home gives the record of one shard; Epoch 0: it has no home and never had one.
func (s *Session) Home(t sharding.TypeName, id sharding.ShardID) protocol.ShardRecord {
	if m := s.types[t]; m != nil && uint32(id) < m.numShards {
		return m.records[id]
	}
	return protocol.ShardRecord{}
}

// Map goes through the shards of a type that have, or had, a home, by number.
func (s *Session) Map(t sharding.TypeName) iter.Seq[protocol.ShardRecord] {
	return func(yield func(protocol.ShardRecord) bool) {
		m := s.types[t]
		if m == nil {
			return
		}
		for i := range m.records {
			if m.records[i].Epoch > 0 && !yield(m.records[i]) {
				return
			}
		}
	}
}

// Members gives the registered members, in order.
func (s *Session) Members() []protocol.MemberRecord {
	all := make([]protocol.MemberRecord, 0, len(s.members))
	for _, r := range s.members { // unordered: sorted below
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b protocol.MemberRecord) int { return compareMembers(a.Member, b.Member) })
	return all
}
