package coordinator

import (
	"encoding/binary"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// The snapshot is CBOR, {0: version, …}: every set in order, every column one byte string, so that two servers at the same index write
// the same bytes (I9).
type snapshotForm struct {
	V          uint8                `cbor:"0,keyasint"`
	Index      uint64               `cbor:"1,keyasint"`
	Term       uint64               `cbor:"2,keyasint"`
	Now        int64                `cbor:"3,keyasint"`
	Revision   sharding.Revision    `cbor:"4,keyasint"`
	Created    bool                 `cbor:"5,keyasint"`
	ClusterID  sharding.Incarnation `cbor:"6,keyasint"`
	Label      string               `cbor:"7,keyasint"`
	BaseEpoch  sharding.Epoch       `cbor:"8,keyasint"`
	Settings   protocol.Settings    `cbor:"9,keyasint"`
	LongestTTL int64                `cbor:"10,keyasint"`
	Paused     bool                 `cbor:"11,keyasint"`
	Slots      []slotForm           `cbor:"12,keyasint"`
	Gone       []goneForm           `cbor:"13,keyasint"`
	GoneFrom   uint64               `cbor:"14,keyasint"`
	Servers    []protocol.PutServer `cbor:"15,keyasint"`
	Types      []typeForm           `cbor:"16,keyasint"`
}

type slotForm struct {
	Member     sharding.Member       `cbor:"0,keyasint,omitzero"`
	Registered uint64                `cbor:"1,keyasint,omitempty"` // 0: not registered
	Changed    uint64                `cbor:"2,keyasint,omitempty"`
	Info       protocol.NodeInfo     `cbor:"3,keyasint,omitzero"`
	Regions    []protocol.RegionInfo `cbor:"4,keyasint,omitempty"`
	Draining   bool                  `cbor:"5,keyasint,omitempty"`
}

type goneForm struct {
	Member     sharding.Member `cbor:"0,keyasint"`
	Index      uint64          `cbor:"1,keyasint"`
	Superseded bool            `cbor:"2,keyasint,omitempty"`
}

type typeForm struct {
	Name      sharding.TypeName `cbor:"0,keyasint"`
	NumShards uint32            `cbor:"1,keyasint"`
	Created   uint64            `cbor:"2,keyasint"`
	Changed   uint64            `cbor:"3,keyasint"`
	Eager     bool              `cbor:"4,keyasint,omitempty"`
	Expect    uint32            `cbor:"5,keyasint,omitempty"`
	State     []byte            `cbor:"6,keyasint"` // a byte a shard
	Owner     []byte            `cbor:"7,keyasint"` // uint32, little-endian: slots
	Target    []byte            `cbor:"8,keyasint"`
	Source    []byte            `cbor:"9,keyasint"`
	Epoch     []byte            `cbor:"10,keyasint"` // uint64, little-endian
	Granted   []byte            `cbor:"11,keyasint"`
	ChangedAt []byte            `cbor:"12,keyasint"`
	Decided   []byte            `cbor:"13,keyasint"`
	Fenced    []fencedForm      `cbor:"14,keyasint"`
	Handovers []handoverForm    `cbor:"15,keyasint"`
	Pins      []pinForm         `cbor:"16,keyasint"`
	Reasons   []reasonForm      `cbor:"17,keyasint"`
	Decisions []decisionForm    `cbor:"18,keyasint"`
	Strategy  strategyForm      `cbor:"19,keyasint"`
	Pass      passForm          `cbor:"20,keyasint"`
	Chain     []byte            `cbor:"21,keyasint"` // as Epoch
}

type fencedForm struct {
	Shard uint32 `cbor:"0,keyasint"`
	Index uint64 `cbor:"1,keyasint"`
}

type handoverForm struct {
	Shard   uint32               `cbor:"0,keyasint"`
	Senders []protocol.SenderSeq `cbor:"1,keyasint"`
}

type pinForm struct {
	Shard uint32          `cbor:"0,keyasint"`
	Node  sharding.NodeID `cbor:"1,keyasint"`
}

type reasonForm struct {
	Shard  uint32 `cbor:"0,keyasint"`
	Reason string `cbor:"1,keyasint"`
}

type decisionForm struct {
	Index    uint64            `cbor:"0,keyasint"`
	Decision protocol.Decision `cbor:"1,keyasint"`
}

type strategyForm struct {
	Seq      uint64                  `cbor:"0,keyasint"`
	Spec     protocol.StrategySpec   `cbor:"1,keyasint"`
	Worked   bool                    `cbor:"2,keyasint"`
	Good     []protocol.StrategySpec `cbor:"3,keyasint"`
	Reverted protocol.StrategySpec   `cbor:"4,keyasint"`
	Why      string                  `cbor:"5,keyasint"`
	Failed   uint32                  `cbor:"6,keyasint"`
	Shadow   shadowForm              `cbor:"7,keyasint,omitzero"` // left out where there never was one
}

type shadowForm struct {
	Seq  uint64                `cbor:"0,keyasint"`
	Spec protocol.StrategySpec `cbor:"1,keyasint,omitzero"`
	Set  int64                 `cbor:"2,keyasint"`
}

type passForm struct {
	Index uint64         `cbor:"0,keyasint"`
	Seed  uint64         `cbor:"1,keyasint"`
	Now   int64          `cbor:"2,keyasint"`
	Cause protocol.Cause `cbor:"3,keyasint"`
}

var (
	snapshotEnc = func() cbor.EncMode {
		m, err := cbor.EncOptions{Sort: cbor.SortCoreDeterministic, NilContainers: cbor.NilContainerAsEmpty, IndefLength: cbor.IndefLengthForbidden}.EncMode()
		if err != nil {
			panic(err) // options are constants
		}
		return m
	}()
	snapshotDec = func() cbor.DecMode {
		m, err := cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, MaxArrayElements: sharding.MaxShards, MaxNestedLevels: 12}.DecMode()
		if err != nil {
			panic(err)
		}
		return m
	}()
)

// Snapshot gives the state's bytes.
func (s *State) Snapshot() ([]byte, error) {
	f := snapshotForm{
		V: protocol.Version, Index: s.index, Term: s.term, Now: s.now, Revision: s.revision, Created: s.created, ClusterID: s.clusterID,
		Label: s.label, BaseEpoch: s.baseEpoch, Settings: s.settings, LongestTTL: s.longestTTL, Paused: s.paused, GoneFrom: s.goneFrom,
		Servers: s.servers, Slots: make([]slotForm, len(s.slots)),
	}
	for i, sl := range s.slots {
		f.Slots[i].Member = sl.member
		if r := sl.reg; r != nil {
			f.Slots[i] = slotForm{sl.member, r.index, r.changed, r.info, r.regions, r.draining}
		}
	}
	for _, g := range s.gone {
		f.Gone = append(f.Gone, goneForm{g.member, g.index, g.superseded})
	}
	for _, t := range s.types {
		f.Types = append(f.Types, t.form())
	}
	b, err := snapshotEnc.Marshal(&f)
	if err != nil {
		return nil, fmt.Errorf("encode snapshot of the shard map: %w", err)
	}
	return b, nil
}

func (t *typeState) form() typeForm {
	f := typeForm{
		Name: t.name, NumShards: t.numShards, Created: t.created, Changed: t.changed, Eager: t.eager, Expect: t.expect,
		State: make([]byte, len(t.state)), Owner: pack32(t.owner), Target: pack32(t.target), Source: pack32(t.source),
		Epoch: pack64(t.epoch), Chain: pack64(t.chain), Granted: pack64(t.granted), ChangedAt: pack64(t.changedAt), Decided: pack64(t.decided),
		Strategy: strategyForm{t.strategy.seq, t.strategy.spec, t.strategy.worked, t.strategy.good, t.strategy.reverted, t.strategy.why, t.strategy.failed,
			shadowForm{t.strategy.shadow.seq, t.strategy.shadow.spec, t.strategy.shadow.set}},
		Pass: passForm{t.pass.index, t.pass.seed, t.pass.now, t.pass.cause},
	}
	for i, st := range t.state {
		f.State[i] = byte(st)
	}
	for _, i := range sortedKeys(t.fenced) {
		f.Fenced = append(f.Fenced, fencedForm{i, t.fenced[i]})
	}
	for _, i := range sortedKeys(t.handovers) {
		f.Handovers = append(f.Handovers, handoverForm{i, t.handovers[i]})
	}
	for _, i := range sortedKeys(t.pins) {
		f.Pins = append(f.Pins, pinForm{i, t.pins[i]})
	}
	for _, i := range sortedKeys(t.reasons) {
		f.Reasons = append(f.Reasons, reasonForm{i, t.reasons[i]})
	}
	for _, i := range sortedKeys(t.decisions) {
		f.Decisions = append(f.Decisions, decisionForm{i, t.decisions[i].Decision})
	}
	return f
}

// Restore replaces the state by a snapshot's; on an error the state is as before.
func (s *State) Restore(b []byte) error {
	var f snapshotForm
	if err := snapshotDec.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("decode snapshot of the shard map: %w", err)
	}
	if f.V < protocol.OldestVersion || f.V > protocol.Version {
		return fmt.Errorf("snapshot of the shard map: %w %d, this build reads %d to %d", protocol.ErrVersion, f.V, protocol.OldestVersion, protocol.Version)
	}
	n := NewState(s.off)
	n.index, n.term, n.now, n.revision, n.created, n.clusterID = f.Index, f.Term, f.Now, f.Revision, f.Created, f.ClusterID
	n.label, n.baseEpoch, n.settings, n.longestTTL, n.paused = f.Label, f.BaseEpoch, f.Settings, f.LongestTTL, f.Paused
	n.goneFrom, n.servers = f.GoneFrom, f.Servers
	if len(f.Slots) == 0 {
		return fmt.Errorf("snapshot of the shard map: no slots")
	}
	n.slots = make([]slot, len(f.Slots))
	for i, sl := range f.Slots {
		n.slots[i].member = sl.Member
		if sl.Registered != 0 {
			n.slots[i].reg = &registration{sl.Registered, sl.Changed, sl.Info, sl.Regions, sl.Draining}
		}
		if i > 0 {
			n.lookup[sl.Member] = uint32(i)
		}
	}
	for _, g := range f.Gone {
		n.gone = append(n.gone, departed{g.Member, g.Index, g.Superseded})
	}
	for i := range f.Types {
		t, err := f.Types[i].restore(uint32(len(n.slots)))
		if err != nil {
			return fmt.Errorf("snapshot of the shard map: type %q: %w", f.Types[i].Name, err)
		}
		if i > 0 && n.types[i-1].name >= t.name {
			return fmt.Errorf("snapshot of the shard map: type %q is not in its place", t.name)
		}
		n.types = append(n.types, t)
	}
	*s = *n
	return nil
}

func (f *typeForm) restore(slots uint32) (*typeState, error) {
	if f.NumShards == 0 || f.NumShards > sharding.MaxShards || len(f.State) != int(f.NumShards) {
		return nil, fmt.Errorf("%d shards with %d states", f.NumShards, len(f.State))
	}
	t := newType(f.Name, f.NumShards, f.Created)
	t.changed, t.eager, t.expect = f.Changed, f.Eager, f.Expect
	t.recentFrom = f.Changed
	for i, st := range f.State {
		t.state[i] = protocol.ShardState(st)
	}
	for _, c := range []struct {
		name string
		from []byte
		to   []uint32
	}{{"owners", f.Owner, t.owner}, {"targets", f.Target, t.target}, {"sources", f.Source, t.source}} {
		if len(c.from) != 4*len(c.to) {
			return nil, fmt.Errorf("%d bytes of %s for %d shards", len(c.from), c.name, len(c.to))
		}
		for i := range c.to {
			if c.to[i] = binary.LittleEndian.Uint32(c.from[4*i:]); c.to[i] >= slots {
				return nil, fmt.Errorf("%s: member %d of %d", c.name, c.to[i], slots)
			}
		}
	}
	for _, c := range []struct {
		name string
		from []byte
		set  func(i int, v uint64)
	}{
		{"epochs", f.Epoch, func(i int, v uint64) { t.epoch[i] = sharding.Epoch(v) }},
		{"chains", f.Chain, func(i int, v uint64) { t.chain[i] = sharding.Epoch(v) }},
		{"grants", f.Granted, func(i int, v uint64) { t.granted[i] = v }},
		{"changes", f.ChangedAt, func(i int, v uint64) { t.changedAt[i] = v }},
		{"decisions", f.Decided, func(i int, v uint64) { t.decided[i] = v }},
	} {
		if len(c.from) != 8*int(f.NumShards) {
			return nil, fmt.Errorf("%d bytes of %s for %d shards", len(c.from), c.name, f.NumShards)
		}
		for i := range t.state {
			c.set(i, binary.LittleEndian.Uint64(c.from[8*i:]))
		}
	}
	known := func(i uint32) error {
		if i >= f.NumShards {
			return fmt.Errorf("shard %d of %d", i, f.NumShards)
		}
		return nil
	}
	var err error
	for _, x := range f.Fenced {
		err = first(err, known(x.Shard))
		t.fenced[x.Shard] = x.Index
	}
	for _, x := range f.Handovers {
		err = first(err, known(x.Shard))
		t.handovers[x.Shard] = x.Senders
	}
	for _, x := range f.Pins {
		err = first(err, known(x.Shard))
		t.pins[x.Shard] = x.Node
	}
	for _, x := range f.Reasons {
		err = first(err, known(x.Shard))
		t.reasons[x.Shard] = x.Reason
	}
	for _, x := range f.Decisions {
		t.decisions[x.Index] = &decision{Decision: x.Decision}
	}
	for _, d := range t.decided {
		if x := t.decisions[d]; x != nil {
			x.refs++
		}
	}
	g := f.Strategy
	t.strategy = strategyState{seq: g.Seq, spec: g.Spec, worked: g.Worked, failed: g.Failed, good: g.Good, reverted: g.Reverted, why: g.Why,
		shadow: shadowState{seq: g.Shadow.Seq, spec: g.Shadow.Spec, set: g.Shadow.Set}}
	t.pass = pass{f.Pass.Index, f.Pass.Seed, f.Pass.Now, f.Pass.Cause}
	return t, err
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func pack32(in []uint32) []byte {
	out := make([]byte, 4*len(in))
	for i, v := range in {
		binary.LittleEndian.PutUint32(out[4*i:], v)
	}
	return out
}

func pack64[T ~uint64](in []T) []byte {
	out := make([]byte, 8*len(in))
	for i, v := range in {
		binary.LittleEndian.PutUint64(out[8*i:], uint64(v))
	}
	return out
}

// Snapshot gives the replicated state's bytes.
func (m *Machine) Snapshot() ([]byte, error) { return m.state.Snapshot() }

// Restore replaces the replicated state. A follower does this, at start and when it lags too far behind; a leader never does, but one may have
// been deposed without having been told yet: the next Step ends what waits for its entries.
func (m *Machine) Restore(b []byte) error {
	if err := m.state.Restore(b); err != nil {
		return err
	}
	waiting := m.pending
	m.reset()
	m.pending = waiting
	return nil
}
