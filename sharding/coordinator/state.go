package coordinator

import (
	"bytes"
	"maps"
	"slices"
	"sort"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// State is what the replicated log has made of the cluster: the same on every server that has applied the same entries (I9). It changes
// by Apply and Restore alone; everything it hands out is a copy.
type State struct {
	off Mutations

	index, term uint64            // of the last entry applied
	now         int64             // ms since 1970, logical: never goes back
	revision    sharding.Revision // of the shard map: the last entry that changed it

	created    bool
	clusterID  sharding.Incarnation
	label      string
	baseEpoch  sharding.Epoch
	settings   protocol.Settings
	longestTTL int64 // ms: the longest TTL ever granted; only grows, as a lease under it may still run
	paused     bool

	slots    []slot // members by number, so that shards hold 4 bytes a member; slot 0 is nobody
	lookup   map[sharding.Member]uint32
	gone     []departed // newest last, at most maxGone
	goneFrom uint64     // deltas that start before this index are no longer possible
	servers  []protocol.PutServer
	types    []*typeState // sorted by name

	order   []uint32    // of members(); nil: to be made again
	touched []TypeShard // by the entry being applied
}

// slot is a member that is registered or that shards still refer to.
type slot struct {
	member sharding.Member
	reg    *registration // nil: not registered
}

// registration is what a member has said of itself.
type registration struct {
	index    uint64 // of the entry that first registered it
	changed  uint64 // of the entry that last changed it
	info     protocol.NodeInfo
	regions  []protocol.RegionInfo // sorted by type
	draining bool
}

type departed struct {
	member     sharding.Member
	index      uint64
	superseded bool
}

// maxGone bounds how many departed members are remembered for deltas.
const maxGone = 1024

// typeState holds one type's shards as columns: index is the shard.
type typeState struct {
	name       sharding.TypeName
	numShards  uint32
	created    uint64   // index of the entry
	changed    uint64   // newest of changedAt
	recent     []change // the last of the changes, by index: all since recentFrom, of which later ones may say more; not part of what is replicated
	recentFrom uint64
	eager      bool
	expect     uint32

	state     []protocol.ShardState
	owner     []uint32 // slots
	target    []uint32
	source    []uint32
	epoch     []sharding.Epoch
	chain     []sharding.Epoch // first epoch since which every grant was handed over
	granted   []uint64
	changedAt []uint64
	decided   []uint64 // key of decisions; 0: none

	fenced    map[uint32]uint64 // shard → index of the entry that fenced it
	handovers map[uint32][]protocol.SenderSeq
	pins      map[uint32]sharding.NodeID
	reasons   map[uint32]string
	decisions map[uint64]*decision

	strategy strategyState
	pass     pass
}

// change is that of a shard by an entry.
type change struct {
	index uint64
	shard uint32
}

// decision is shared by the shards that one entry decided on.
type decision struct {
	protocol.Decision
	refs uint32
}

// strategyState is a type's strategy and what can be gone back to.
type strategyState struct {
	seq      uint64 // grows by one at each change; 0: there never was one
	spec     protocol.StrategySpec
	worked   bool                    // has given a decision
	failed   uint32                  // times in a row, since it last worked
	good     []protocol.StrategySpec // earlier ones that have worked, newest last, at most maxGood
	reverted protocol.StrategySpec   // the one that failed too often, while its substitute is in force
	why      string                  // it was reverted
	shadow   shadowState
}

// shadowState is the candidate that runs beside a type's strategy, without effect.
type shadowState struct {
	seq  uint64                // grows by one at each change, its end too; 0: there never was one
	spec protocol.StrategySpec // without a module: none at present
	set  int64                 // State.now when it was set
}

func (h *shadowState) on() bool { return h.spec.Digest != [32]byte{} }

// change sets another shadow, or none.
func (h *shadowState) change(spec protocol.StrategySpec, now int64) {
	h.seq++
	h.spec, h.set = spec, now
}

const maxGood = 4

// pass is the last rebalance pass of a type.
type pass struct {
	index uint64
	seed  uint64
	now   int64
	cause protocol.Cause
}

// TypeShard names a shard of a type.
type TypeShard struct {
	Type  sharding.TypeName
	Shard sharding.ShardID
}

// NewState makes the state before the first entry. off takes rules out of Apply; only mutation tests set it.
func NewState(off Mutations) *State {
	return &State{off: off, slots: make([]slot, 1), lookup: map[sharding.Member]uint32{}}
}

func newType(name sharding.TypeName, n uint32, index uint64) *typeState {
	return &typeState{
		name: name, numShards: n, created: index,
		state: make([]protocol.ShardState, n), owner: make([]uint32, n), target: make([]uint32, n), source: make([]uint32, n),
		epoch: make([]sharding.Epoch, n), chain: make([]sharding.Epoch, n), granted: make([]uint64, n), changedAt: make([]uint64, n), decided: make([]uint64, n),
		fenced: map[uint32]uint64{}, handovers: map[uint32][]protocol.SenderSeq{}, pins: map[uint32]sharding.NodeID{},
		reasons: map[uint32]string{}, decisions: map[uint64]*decision{},
	}
}

// typeAt finds a type, or nil.
func (s *State) typeAt(name sharding.TypeName) *typeState {
	i := sort.Search(len(s.types), func(i int) bool { return s.types[i].name >= name })
	if i < len(s.types) && s.types[i].name == name {
		return s.types[i]
	}
	return nil
}

// registered gives a member's slot and registration; 0 and nil where it has none.
func (s *State) registered(m sharding.Member) (uint32, *registration) {
	n := s.lookup[m]
	if n == 0 || s.slots[n].reg == nil {
		return 0, nil
	}
	return n, s.slots[n].reg
}

// region gives the member's region of a type, or nil.
func (r *registration) region(t sharding.TypeName) *protocol.RegionInfo {
	i := sort.Search(len(r.regions), func(i int) bool { return r.regions[i].Type >= t })
	if i < len(r.regions) && r.regions[i].Type == t {
		return &r.regions[i]
	}
	return nil
}

// hosts says whether the member may own shards of the type: it has a hosting region, and the region's role.
func (r *registration) hosts(t sharding.TypeName) bool {
	g := r.region(t)
	return g != nil && g.Hosts && (g.Role == "" || slices.Contains(r.info.Roles, g.Role))
}

// members gives the slots of the registered members, sorted by Member.Less. Callers must not change it.
func (s *State) members() []uint32 {
	if s.order != nil {
		return s.order
	}
	s.order = make([]uint32, 0, len(s.slots))
	for n := range s.slots {
		if s.slots[n].reg != nil {
			s.order = append(s.order, uint32(n))
		}
	}
	slices.SortFunc(s.order, func(a, b uint32) int {
		if s.slots[a].member.Less(s.slots[b].member) {
			return -1
		}
		return 1
	})
	return s.order
}

// newest gives the last registered incarnation of a node name: its slot, or 0. Incarnations before it own no new shard.
func (s *State) newest(node sharding.NodeID) uint32 {
	order := s.members()
	i := sort.Search(len(order), func(i int) bool { return s.slots[order[i]].member.Node >= node })
	best := uint32(0)
	for ; i < len(order) && s.slots[order[i]].member.Node == node; i++ {
		if best == 0 || s.slots[order[i]].reg.index > s.slots[best].reg.index {
			best = order[i]
		}
	}
	return best
}

func (s *State) record(t *typeState, i uint32) protocol.ShardRecord {
	return protocol.ShardRecord{
		Shard: sharding.ShardID(i), State: t.state[i], Owner: s.slots[t.owner[i]].member, Epoch: t.epoch[i], Granted: t.granted[i],
		Target: s.slots[t.target[i]].member, Source: s.slots[t.source[i]].member, Chain: t.chain[i],
	}
}

// busy says that a shard must not be planned on: a move is under way, or its owner has not confirmed what was handed over to it.
func (t *typeState) busy(i uint32) bool {
	_, handed := t.handovers[i]
	return busy(t.state[i], handed)
}

func busy(s protocol.ShardState, handed bool) bool {
	return s == protocol.Moving || s == protocol.Fenced || handed && s == protocol.Homed
}

// sortedKeys gives a map's keys in order.
func sortedKeys[K uint32 | uint64, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Reads, for the shells. All are safe to keep.

// ClusterID is the cluster's UUID; false before CreateCluster.
func (s *State) ClusterID() (sharding.Incarnation, bool) { return s.clusterID, s.created }

// Label is the cluster's name for people.
func (s *State) Label() string { return s.label }

// Index is the raft index of the last entry applied.
func (s *State) Index() uint64 { return s.index }

// Now is the logical time, in ms since 1970.
func (s *State) Now() int64 { return s.now }

// Revision is that of the shard map.
func (s *State) Revision() sharding.Revision { return s.revision }

// Settings are the cluster-wide times.
func (s *State) Settings() protocol.Settings { return s.settings }

// LongestTTL is the longest lease TTL ever granted, in ms.
func (s *State) LongestTTL() int64 { return s.longestTTL }

// Paused says that rebalancing is paused.
func (s *State) Paused() bool { return s.paused }

// Servers lists the known raft servers, by UUID.
func (s *State) Servers() []protocol.PutServer { return slices.Clone(s.servers) }

// Types lists the types, sorted.
func (s *State) Types() []sharding.TypeName {
	out := make([]sharding.TypeName, len(s.types))
	for i, t := range s.types {
		out[i] = t.name
	}
	return out
}

// Members lists the registered members, sorted.
func (s *State) Members() []protocol.MemberRecord {
	var out []protocol.MemberRecord
	for _, n := range s.members() {
		out = append(out, s.memberRecord(n))
	}
	return out
}

// Member gives one registered member.
func (s *State) Member(m sharding.Member) (protocol.MemberRecord, bool) {
	n, r := s.registered(m)
	if r == nil {
		return protocol.MemberRecord{}, false
	}
	return s.memberRecord(n), true
}

func (s *State) memberRecord(n uint32) protocol.MemberRecord {
	r := s.slots[n].reg
	rec := protocol.MemberRecord{Member: s.slots[n].member, Info: r.info, Draining: r.draining}
	for _, g := range r.regions {
		if g.Hosts {
			rec.Hosts = append(rec.Hosts, g.Type)
		} else {
			rec.Proxies = append(rec.Proxies, g.Type)
		}
	}
	return rec
}

// NumShards is the type's number of shards; false for a type that nobody has registered.
func (s *State) NumShards(t sharding.TypeName) (uint32, bool) {
	if ts := s.typeAt(t); ts != nil {
		return ts.numShards, true
	}
	return 0, false
}

// Shard gives one shard's record; false where there is no such shard.
func (s *State) Shard(t sharding.TypeName, id sharding.ShardID) (protocol.ShardRecord, bool) {
	ts := s.typeAt(t)
	if ts == nil || uint32(id) >= ts.numShards {
		return protocol.ShardRecord{}, false
	}
	return s.record(ts, uint32(id)), true
}

// Shards gives all records of a type, by shard; nil for an unknown type.
func (s *State) Shards(t sharding.TypeName) []protocol.ShardRecord {
	ts := s.typeAt(t)
	if ts == nil {
		return nil
	}
	out := make([]protocol.ShardRecord, ts.numShards)
	for i := range out {
		out[i] = s.record(ts, uint32(i))
	}
	return out
}

// Explanation says why a shard is where it is (spec 2.5).
type Explanation struct {
	Record   protocol.ShardRecord
	Decision protocol.Decision // the last one about this shard; zero where it never had any
	Index    uint64            // of the log entry that carried the decision
	Reason   string            // what the decision said of this shard alone
	Pin      sharding.NodeID
}

// Explain gives the last decision about a shard; false where there is no such shard.
func (s *State) Explain(t sharding.TypeName, id sharding.ShardID) (Explanation, bool) {
	rec, ok := s.Shard(t, id)
	if !ok {
		return Explanation{}, false
	}
	ts, i := s.typeAt(t), uint32(id)
	e := Explanation{Record: rec, Index: ts.decided[i], Reason: ts.reasons[i], Pin: ts.pins[i]}
	if d := ts.decisions[ts.decided[i]]; d != nil {
		e.Decision = d.Decision
	}
	return e, true
}

// StrategyView is a type's strategy as the log has it.
type StrategyView struct {
	Seq      uint64 // 0: none was ever set; the built-in hash gives homes and nothing moves
	Spec     protocol.StrategySpec
	Worked   bool                    // has given a decision, so it can be gone back to
	Failures uint32                  // in a row, since it last gave one
	Good     []protocol.StrategySpec // earlier ones that worked, newest last
	Failed   protocol.StrategySpec   // the one that the strategy in force is the substitute of; zero: an operator or a file has set this one
	Failure  string
	// Previous is what a rollback activates; false: nothing worked before that is not in force already.
	Previous    protocol.StrategySpec
	HasPrevious bool
	Shadow      ShadowView
}

// ShadowView is the candidate that runs beside a type's strategy, without effect (spec 1.4).
type ShadowView struct {
	Seq  uint64                // of the last change; 0: there never was one
	Spec protocol.StrategySpec // zero: none at present
	Set  int64                 // logical time of the last change, in ms since 1970
}

// On says that a shadow runs.
func (v ShadowView) On() bool { return v.Spec.Digest != [32]byte{} }

// Strategy gives a type's strategy; false for an unknown type.
func (s *State) Strategy(t sharding.TypeName) (StrategyView, bool) {
	ts := s.typeAt(t)
	if ts == nil {
		return StrategyView{}, false
	}
	g := &ts.strategy
	v := StrategyView{Seq: g.seq, Spec: g.spec, Worked: g.worked, Failures: g.failed, Good: slices.Clone(g.good), Failed: g.reverted, Failure: g.why,
		Shadow: ShadowView{Seq: g.shadow.seq, Spec: g.shadow.spec, Set: g.shadow.set}}
	if i := g.previous(); i >= 0 {
		v.Previous, v.HasPrevious = g.good[i], true
	}
	return v, true
}

// Modules lists what the types' strategies may need: those in force, their shadows, and those that a rollback or a revert goes back to. Each once, in
// order. A server that votes has them all (spec 1.4).
func (s *State) Modules() [][32]byte {
	seen := map[[32]byte]bool{{}: true} // no digest: the built-in hash, which is no module
	var out [][32]byte
	add := func(d [32]byte) {
		if !seen[d] {
			seen[d] = true
			out = append(out, d)
		}
	}
	for _, t := range s.types {
		g := &t.strategy
		add(g.spec.Digest)
		add(g.shadow.spec.Digest)
		for _, spec := range g.good {
			add(spec.Digest)
		}
	}
	slices.SortFunc(out, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	return out
}

// Pins lists the pinned shards of a type, sorted.
func (s *State) Pins(t sharding.TypeName) []protocol.PinShard {
	ts := s.typeAt(t)
	if ts == nil {
		return nil
	}
	var out []protocol.PinShard
	for _, i := range sortedKeys(ts.pins) {
		out = append(out, protocol.PinShard{Type: t, Shard: sharding.ShardID(i), Node: ts.pins[i]})
	}
	return out
}
