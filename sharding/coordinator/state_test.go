package coordinator

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

const propShards = 5

var propTypes = []sharding.TypeName{"t", "u"}

// drawEntry makes an entry that often fits the state, and often does not.
func drawEntry(t *rapid.T, s *State) *protocol.Entry {
	member := func(label string) sharding.Member {
		return rapid.Custom(func(t *rapid.T) sharding.Member {
			return sharding.Member{Node: sharding.NodeID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node")),
				Incarnation: inc(rapid.IntRange(1, 2).Draw(t, "incarnation"))}
		}).Draw(t, label)
	}
	typ := rapid.SampledFrom(propTypes).Draw(t, "type")
	shard := sharding.ShardID(rapid.IntRange(0, propShards).Draw(t, "shard")) // one too many, at times
	rec, _ := s.Shard(typ, shard)
	fits := func(label string) bool { return rapid.IntRange(0, 3).Draw(t, label) > 0 }
	epoch := rec.Epoch
	if !fits("epoch fits") {
		epoch = sharding.Epoch(rapid.IntRange(0, 4).Draw(t, "epoch"))
	}
	owner := rec.Owner
	if !fits("owner fits") {
		owner = member("owner")
	}
	view, _ := s.Strategy(typ)
	seq := view.Seq
	if !fits("seq fits") {
		seq++
	}
	d := protocol.Decision{Seq: seq, Digest: view.Spec.Digest, Cause: protocol.CauseRebalance, Reason: rapid.StringN(0, 3, -1).Draw(t, "reason")}
	ses := []protocol.ShardEpoch{{Shard: shard, Epoch: epoch}}
	cause := rapid.SampledFrom([]protocol.Cause{protocol.CauseLapsed, protocol.CauseStopped, protocol.CauseSuperseded}).Draw(t, "cause")
	e := &protocol.Entry{V: protocol.Version, Now: rapid.Int64Range(0, 1000).Draw(t, "now")}
	shadow := view.Shadow.Seq
	if !fits("shadow fits") {
		shadow++
	}
	switch rapid.IntRange(0, 18).Draw(t, "kind") {
	case 0, 1, 2:
		var regions []protocol.RegionInfo
		for _, n := range propTypes {
			regions = append(regions, protocol.RegionInfo{Type: n, NumShards: uint32(rapid.SampledFrom([]int{propShards, propShards, propShards, 7}).Draw(t, "shards")),
				Hosts: fits("hosts"), Role: "r"})
		}
		info := protocol.NodeInfo{Address: "x"}
		if fits("role") {
			info.Roles = []string{"r"}
		}
		e.Kind, e.Register = protocol.KindRegister, &protocol.RegisterNode{Member: member("member"), Info: info, Regions: regions}
	case 3:
		e.Kind, e.Deregister = protocol.KindDeregister, &protocol.Deregister{Member: member("member"), Cause: cause}
		if !fits("whole") {
			e.Deregister.Types = []sharding.TypeName{typ}
		}
	case 4:
		e.Kind, e.SetDrain = protocol.KindSetDrain, &protocol.SetDrain{Member: member("member"), On: !fits("off")}
	case 5, 6:
		e.Kind, e.PlanMoves = protocol.KindPlanMoves, &protocol.PlanMoves{Type: typ, Decision: d, Moves: []protocol.Move{
			{Shard: shard, From: owner, Epoch: epoch, Target: member("target")}}}
		if !fits("target") {
			e.PlanMoves.Moves[0].Target = sharding.Member{}
		}
	case 7, 8, 9:
		e.Kind, e.AssignHomes = protocol.KindAssignHomes, &protocol.AssignHomes{Type: typ, Decision: d}
		for i := sharding.ShardID(0); i <= shard; i++ {
			r, _ := s.Shard(typ, i)
			e.AssignHomes.Homes = append(e.AssignHomes.Homes, protocol.Home{Shard: i, Epoch: r.Epoch, Owner: member("home"), Reason: "because"})
		}
	case 10, 11:
		e.Kind, e.CompleteHandOff = protocol.KindCompleteHandOff, &protocol.CompleteHandOff{Type: typ, Shard: shard, Epoch: epoch, From: owner,
			Senders: []protocol.SenderSeq{{Sender: member("sender"), Seq: 3}}}
	case 12:
		e.Kind, e.FenceShards = protocol.KindFenceShards, &protocol.FenceShards{Type: typ, Shards: ses, Cause: protocol.CauseTimeout}
	case 13:
		e.Kind, e.ReleaseShards = protocol.KindReleaseShards, &protocol.ReleaseShards{Type: typ, Shards: ses, Cause: cause}
	case 14:
		e.Kind, e.PinShard = protocol.KindPinShard, &protocol.PinShard{Type: typ, Shard: shard, Node: rapid.SampledFrom([]sharding.NodeID{"a", "b", ""}).Draw(t, "pin")}
		if fits("handover") {
			e.Kind, e.PinShard, e.ReleaseHandovers = protocol.KindReleaseHandovers, nil, &protocol.ReleaseHandovers{Type: typ, Shards: ses}
		}
	case 15:
		e.Kind, e.SetStrategy = protocol.KindSetStrategy, &protocol.SetStrategy{Type: typ, Spec: specOf(rapid.SampledFrom([]string{"x", "yy"}).Draw(t, "spec")), Expect: seq, Cause: protocol.CauseSwap}
		if fits("outcome") {
			e.Kind, e.SetStrategy, e.StrategyOutcome = protocol.KindStrategyOutcome, nil, &protocol.StrategyOutcome{Type: typ, Seq: seq,
				Failure: rapid.SampledFrom([]string{"", "trap: x"}).Draw(t, "failure")}
		}
	case 16:
		e.Kind, e.SetShadow = protocol.KindSetShadow, &protocol.SetShadow{Type: typ, Expect: seq, Shadow: shadow, Cause: protocol.CauseOperator}
		if fits("begins") {
			e.SetShadow.Spec = specOf(rapid.SampledFrom([]string{"x", "yy"}).Draw(t, "shadow"))
		}
	case 17:
		e.Kind, e.Promote = protocol.KindPromote, &protocol.Promote{Type: typ, Expect: seq, Shadow: shadow}
	case 18:
		e.Kind, e.Rollback = protocol.KindRollback, &protocol.Rollback{Type: typ, Expect: seq}
	}
	return e
}

func snapshotOf(t require.TestingT, s *State) []byte {
	b, err := s.Snapshot()
	require.NoError(t, err)
	return b
}

func allRecords(s *State) map[sharding.TypeName][]protocol.ShardRecord {
	out := map[sharding.TypeName][]protocol.ShardRecord{}
	for _, n := range s.Types() {
		out[n] = s.Shards(n)
	}
	return out
}

// Whatever is in the log: epochs grow (I2), only allowed changes happen (I6), and all servers end alike, those restored from a snapshot
// on the way included (I9).
func TestAnyLogKeepsTheInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := NewState(Mutations{}), NewState(Mutations{})
		first := &protocol.Entry{V: protocol.Version, Kind: protocol.KindCreateCluster, Term: 1, CreateCluster: &protocol.CreateCluster{
			ClusterID: inc(9), Settings: protocol.Settings{LeaseTTL: 5000}, BaseEpoch: sharding.Epoch(rapid.IntRange(0, 2).Draw(t, "base"))}}
		for _, s := range []*State{a, b} {
			require.Equal(t, "", s.Apply(1, 1, first).Code)
		}
		term := uint64(1)
		last := uint64(rapid.IntRange(2, 150).Draw(t, "entries"))
		for index := uint64(2); index < last; index++ {
			e := drawEntry(t, a)
			e.Term = term
			stale := rapid.IntRange(0, 9).Draw(t, "stale") == 0
			if stale {
				term++ // committed by the next term
			}
			before, snap, draining := allRecords(a), snapshotOf(t, a), drainingOf(a)
			handed := handedOf(a)
			r := a.Apply(index, term, e)
			b.Apply(index, term, e)
			checkStep(t, a, index, e, before, draining, handed)
			checkWhole(t, a)
			if stale {
				require.Equal(t, CodeStaleTerm, r.Code)
				require.Equal(t, before, allRecords(a))
			}
			require.Equal(t, snapshotOf(t, a), snapshotOf(t, b), "I9")
			if rapid.IntRange(0, 5).Draw(t, "restore") == 0 {
				c := NewState(Mutations{})
				require.NoError(t, c.Restore(snap))
				c.Apply(index, term, e)
				checkWhole(t, c)
				require.Equal(t, a.goneFrom, c.goneFrom)
				require.Equal(t, snapshotOf(t, a), snapshotOf(t, c), "restored on the way (I9)")
				b = c
			}
		}
	})
}

func drainingOf(s *State) map[sharding.Member]bool {
	out := map[sharding.Member]bool{}
	for _, m := range s.Members() {
		out[m.Member] = m.Draining
	}
	return out
}

func handedOf(s *State) map[TypeShard]bool {
	out := map[TypeShard]bool{}
	for _, t := range s.types {
		for i := range t.handovers {
			out[TypeShard{t.name, sharding.ShardID(i)}] = true
		}
	}
	return out
}

// checkWhole holds what the state keeps beside the columns against them.
func checkWhole(t require.TestingT, s *State) {
	for _, ts := range s.types {
		refs := map[uint64]uint32{}
		for i, st := range ts.state {
			_, fenced := ts.fenced[uint32(i)]
			require.Equal(t, st == protocol.Fenced, fenced, "shard %d", i)
			if d := ts.decided[i]; d != 0 {
				refs[d]++
			}
		}
		require.Len(t, ts.decisions, len(refs))
		for d, n := range refs {
			require.Equal(t, n, ts.decisions[d].refs)
		}
		require.LessOrEqual(t, len(ts.strategy.good), maxGood)
	}
	for m, n := range s.lookup {
		require.Equal(t, m, s.slots[n].member)
	}
}

// checkStep holds every shard's change against what the entry's kind may do, written out apart from the code that does it.
func checkStep(t require.TestingT, s *State, index uint64, e *protocol.Entry, before map[sharding.TypeName][]protocol.ShardRecord, draining map[sharding.Member]bool, handed map[TypeShard]bool) {
	hosts := func(m sharding.Member, typ sharding.TypeName) bool {
		r, ok := s.Member(m)
		return ok && !r.Draining && slices.Contains(r.Hosts, typ) && slices.Contains(r.Info.Roles, "r")
	}
	for _, typ := range s.Types() {
		for i, now := range s.Shards(typ) {
			was := protocol.ShardRecord{Shard: now.Shard}
			if rs := before[typ]; rs != nil {
				was = rs[i]
			}
			require.GreaterOrEqual(t, now.Epoch, was.Epoch, "I2")
			require.Equal(t, now.State == protocol.Unassigned, now.Owner.IsZero(), "%+v", now)
			if now.State == protocol.Moving {
				require.NotEqual(t, now.Owner, now.Target, "I6")
			}
			if !now.Owner.IsZero() {
				_, ok := s.Member(now.Owner)
				require.True(t, ok, "an owner that is not registered: %+v", now)
			}
			if now == was {
				continue
			}
			require.LessOrEqual(t, s.Revision().Index, index)
			require.Equal(t, index, s.Revision().Index, "the map changed without a new revision")
			granted := now.State == protocol.Homed
			require.Equal(t, granted, now.Epoch > was.Epoch, "a grant and only a grant raises the epoch (I2): %s %+v to %+v", e.Kind, was, now)
			if granted {
				require.Equal(t, index, now.Granted)
				require.Greater(t, now.Epoch, s.baseEpoch)
			}
			ok := false
			switch e.Kind {
			case protocol.KindAssignHomes:
				ok = was.State == protocol.Unassigned && granted && hosts(now.Owner, typ)
			case protocol.KindPlanMoves:
				ts := s.typeAt(typ)
				pin, pinned := ts.pins[uint32(i)]
				ok = was.State == protocol.Homed && now.State == protocol.Moving && now.Owner == was.Owner && (now.Target.IsZero() || hosts(now.Target, typ)) &&
					(!pinned || pin == now.Target.Node || draining[was.Owner]) && !handed[TypeShard{typ, now.Shard}]
			case protocol.KindCompleteHandOff:
				ok = (was.State == protocol.Moving || was.State == protocol.Fenced) && now.Source == was.Owner &&
					(granted && now.Owner == was.Target && hosts(now.Owner, typ) || now.State == protocol.Unassigned)
			case protocol.KindFenceShards:
				ok = (was.State == protocol.Homed || was.State == protocol.Moving) && now.State == protocol.Fenced && now.Owner == was.Owner
			case protocol.KindReleaseShards:
				ok = was.State == protocol.Fenced && now.State == protocol.Unassigned
			case protocol.KindDeregister:
				ok = was.Owner == e.Deregister.Member && now.State == protocol.Unassigned ||
					was.Target == e.Deregister.Member && now.Target.IsZero() && now.State == was.State
			case protocol.KindRegister:
				ok = was.Owner == e.Register.Member && now.State == protocol.Unassigned ||
					was.Target == e.Register.Member && now.Target.IsZero() && now.State == was.State
			}
			require.True(t, ok, "%s made %+v of %+v", e.Kind, now, was)
		}
	}
}

// Without the re-check the invariants do fall: the check above can fail (spec 2.6).
func TestWithoutRecheckInvariantsFall(t *testing.T) {
	s := NewState(Mutations{RecheckApply: true})
	apply := func(index, term uint64, e *protocol.Entry) Result { e.Term = 1; return s.Apply(index, term, e) }
	apply(1, 1, &protocol.Entry{Kind: protocol.KindCreateCluster, CreateCluster: &protocol.CreateCluster{ClusterID: inc(9), Settings: protocol.Settings{LeaseTTL: 1}}})
	for i, n := range []string{"a", "b"} {
		apply(uint64(2+i), 1, &protocol.Entry{Kind: protocol.KindRegister, Register: &protocol.RegisterNode{Member: who(n),
			Regions: []protocol.RegionInfo{{Type: "t", NumShards: 2, Hosts: true}}}})
	}
	home := func(n string) *protocol.Entry {
		return &protocol.Entry{Kind: protocol.KindAssignHomes, AssignHomes: &protocol.AssignHomes{Type: "t", Homes: []protocol.Home{{Owner: who(n)}}}}
	}
	require.Equal(t, "", apply(4, 1, home("a")).Code)
	require.Equal(t, "", apply(5, 2, home("b")).Code, "a stale home for a shard that has one counts: the rule is out")
	r, _ := s.Shard("t", 0)
	require.Equal(t, who("b"), r.Owner)

	s = NewState(Mutations{})
	apply(1, 1, &protocol.Entry{Kind: protocol.KindCreateCluster, CreateCluster: &protocol.CreateCluster{ClusterID: inc(9), Settings: protocol.Settings{LeaseTTL: 1}}})
	for i, n := range []string{"a", "b"} {
		apply(uint64(2+i), 1, &protocol.Entry{Kind: protocol.KindRegister, Register: &protocol.RegisterNode{Member: who(n),
			Regions: []protocol.RegionInfo{{Type: "t", NumShards: 2, Hosts: true}}}})
	}
	require.Equal(t, "", apply(4, 1, home("a")).Code)
	require.Equal(t, CodeStaleTerm, apply(5, 2, home("b")).Code)
	require.Equal(t, CodeConflict, apply(6, 1, home("b")).Code)
}

// A shard whose owner has not confirmed what was handed over to it is not moved on; a fenced shard whose source ends its Stop late is free,
// with what it handed over, where the target is no longer fit; a lapse forgets a handover (spec 2.3).
func TestHandovers(t *testing.T) {
	s := bigState(t, 3, 3)
	apply := func(e *protocol.Entry) Result {
		e.Term = 1
		return s.Apply(s.Index()+1, 1, e)
	}
	a, b, c := who("a"), who("b"), who("c")
	plan := func(from, to sharding.Member, epoch sharding.Epoch) Result {
		return apply(&protocol.Entry{Kind: protocol.KindPlanMoves, PlanMoves: &protocol.PlanMoves{Type: "t", Decision: protocol.Decision{Cause: protocol.CauseOperator},
			Moves: []protocol.Move{{From: from, Epoch: epoch, Target: to}}}})
	}
	complete := func(from sharding.Member, epoch sharding.Epoch) Result {
		return apply(&protocol.Entry{Kind: protocol.KindCompleteHandOff, CompleteHandOff: &protocol.CompleteHandOff{Type: "t", Epoch: epoch, From: from,
			Senders: []protocol.SenderSeq{{Sender: c, Seq: 5}}}})
	}
	require.Equal(t, "", plan(a, b, 1).Code)
	require.Equal(t, "", complete(a, 1).Code)
	require.Equal(t, protocol.ShardRecord{State: protocol.Homed, Owner: b, Epoch: 2, Granted: s.Index(), Source: a, Chain: 1}, s.Shards("t")[0])
	require.Equal(t, CodeConflict, plan(b, c, 2).Code, "b has not confirmed")
	ses := []protocol.ShardEpoch{{Epoch: 2}}
	require.Equal(t, "", apply(&protocol.Entry{Kind: protocol.KindReleaseHandovers, ReleaseHandovers: &protocol.ReleaseHandovers{Type: "t", Shards: ses}}).Code)
	require.Equal(t, "", plan(b, c, 2).Code)
	require.Equal(t, "", apply(&protocol.Entry{Kind: protocol.KindFenceShards, FenceShards: &protocol.FenceShards{Type: "t", Shards: ses, Cause: protocol.CauseTimeout}}).Code)
	require.Equal(t, "", apply(&protocol.Entry{Kind: protocol.KindSetDrain, SetDrain: &protocol.SetDrain{Member: c, On: true}}).Code)
	require.Equal(t, "", complete(b, 2).Code)
	checkWhole(t, s)
	require.Equal(t, protocol.ShardRecord{State: protocol.Unassigned, Epoch: 2, Granted: s.Shards("t")[0].Granted, Source: b, Chain: 1}, s.Shards("t")[0])
	require.Contains(t, s.types[0].handovers, uint32(0))
	require.Equal(t, "", apply(&protocol.Entry{Kind: protocol.KindAssignHomes, AssignHomes: &protocol.AssignHomes{Type: "t", Homes: []protocol.Home{{Epoch: 2, Owner: a}}}}).Code)
	require.Equal(t, b, s.Shards("t")[0].Source, "b still forwards")
	require.Contains(t, s.types[0].handovers, uint32(0), "and a must know the numbers")
	require.Equal(t, "", apply(&protocol.Entry{Kind: protocol.KindDeregister, Deregister: &protocol.Deregister{Member: a, Cause: protocol.CauseLapsed}}).Code)
	require.NotContains(t, s.types[0].handovers, uint32(0), "a may have begun any number since")
	require.True(t, s.Shards("t")[0].Source.IsZero())
	require.Equal(t, "", apply(&protocol.Entry{Kind: protocol.KindAssignHomes, AssignHomes: &protocol.AssignHomes{Type: "t", Homes: []protocol.Home{{Epoch: 3, Owner: b}}}}).Code)
	require.Equal(t, sharding.Epoch(4), s.Shards("t")[0].Chain, "b was told nothing: a new chain of handoffs begins")
}

// Bad snapshots are errors that name what is wrong, and leave the state alone.
func TestRestoreRefuses(t *testing.T) {
	s := bigState(t, 10, 3)
	good := snapshotOf(t, s)
	for cut := range good {
		require.Error(t, NewState(Mutations{}).Restore(good[:cut]))
	}
	require.ErrorContains(t, s.Restore([]byte{0xa1, 0, 9}), "unreadable protocol version 9")
	require.True(t, bytes.Equal(good, snapshotOf(t, s)))
	f := s.types[0].form()
	f.Owner[0] = 200
	_, err := f.restore(uint32(len(s.slots)))
	require.ErrorContains(t, err, "owners: member 200 of 4")
	f = s.types[0].form()
	f.Pins = []pinForm{{Shard: 10}}
	_, err = f.restore(uint32(len(s.slots)))
	require.ErrorContains(t, err, "shard 10 of 10")
}

// Deltas bring a follower from any revision to the present one, and a full map follows where they cannot.
func TestDelta(t *testing.T) {
	s := bigState(t, 10, 3)
	before := s.Revision()
	mv := &protocol.Entry{Kind: protocol.KindPlanMoves, Term: 1, PlanMoves: &protocol.PlanMoves{Type: "t", Decision: protocol.Decision{Cause: protocol.CauseOperator},
		Moves: []protocol.Move{{Shard: 4, From: s.Shards("t")[4].Owner, Epoch: 1}}}}
	require.Equal(t, "", s.Apply(s.Index()+1, 1, mv).Code)
	u := s.Delta(1, before)
	require.False(t, u.Full)
	require.Equal(t, before, u.From)
	require.Len(t, u.Types, 1)
	require.Equal(t, []protocol.ShardRecord{s.Shards("t")[4]}, u.Types[0].Shards)
	require.Empty(t, u.Members)
	gone := s.Members()[0].Member
	require.Equal(t, "", s.Apply(s.Index()+1, 1, &protocol.Entry{Kind: protocol.KindDeregister, Term: 1, Deregister: &protocol.Deregister{Member: gone, Cause: protocol.CauseStopped}}).Code)
	require.Equal(t, []sharding.Member{gone}, s.Delta(1, u.To).Gone)
	for _, from := range []sharding.Revision{{}, {Term: 9, Index: 1 << 40}} {
		full := s.Delta(1, from)
		require.True(t, full.Full)
		require.Len(t, full.Types[0].Shards, 10)
		require.Len(t, full.Members, 2)
	}
	s.goneFrom = 5
	again := NewState(Mutations{})
	require.NoError(t, again.Restore(snapshotOf(t, s)))
	require.Equal(t, uint64(5), again.goneFrom)
	require.True(t, s.Delta(1, sharding.Revision{Index: 4}).Full, "departures before are forgotten")
	require.False(t, s.Delta(1, sharding.Revision{Index: 5}).Full)
}

// bigState has one type, all of its shards homed on n nodes.
func bigState(t require.TestingT, shards, nodes int) *State {
	s := NewState(Mutations{})
	index := uint64(0)
	apply := func(e *protocol.Entry) {
		index++
		e.Term = 1
		require.Equal(t, "", s.Apply(index, 1, e).Code)
	}
	apply(&protocol.Entry{Kind: protocol.KindCreateCluster, CreateCluster: &protocol.CreateCluster{ClusterID: inc(9), Settings: protocol.Settings{LeaseTTL: 5000}}})
	for i := range nodes {
		apply(&protocol.Entry{Kind: protocol.KindRegister, Register: &protocol.RegisterNode{Member: sharding.Member{Node: sharding.NodeID(rune('a' + i)), Incarnation: inc(1)},
			Regions: []protocol.RegionInfo{{Type: "t", NumShards: uint32(shards), Hosts: true}}}})
	}
	homes := make([]protocol.Home, shards)
	for i := range homes {
		homes[i] = protocol.Home{Shard: sharding.ShardID(i), Owner: sharding.Member{Node: sharding.NodeID(rune('a' + i%nodes)), Incarnation: inc(1)}}
	}
	for part := range slices.Chunk(homes, homesPerEntry) {
		apply(&protocol.Entry{Kind: protocol.KindAssignHomes, AssignHomes: &protocol.AssignHomes{Type: "t", Homes: part}})
	}
	return s
}

// Target: snapshot and restore of 100 000 shards in at most 100 ms.
func BenchmarkSnapshotRestore100k(b *testing.B) {
	s := bigState(b, 100_000, 10)
	b.ReportAllocs()
	for b.Loop() {
		snap, err := s.Snapshot()
		if err != nil {
			b.Fatal(err)
		}
		if err := NewState(Mutations{}).Restore(snap); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDelta100k(b *testing.B) {
	s := bigState(b, 100_000, 10)
	from := s.Revision()
	mv := &protocol.Entry{Kind: protocol.KindPlanMoves, Term: 1, PlanMoves: &protocol.PlanMoves{Type: "t", Decision: protocol.Decision{Cause: protocol.CauseOperator},
		Moves: []protocol.Move{{Shard: 4, From: s.Shards("t")[4].Owner, Epoch: 1}}}}
	require.Equal(b, "", s.Apply(s.Index()+1, 1, mv).Code)
	for b.Loop() {
		if len(s.Delta(1, from).Types[0].Shards) != 1 {
			b.Fatal("one shard changed")
		}
	}
}
