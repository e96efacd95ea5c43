package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// of gives the commands of one kind.
func of[T Command](cmds []Command) (out []T) {
	for _, c := range cmds {
		if t, ok := c.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// sent gives the messages of one kind in Send commands.
func sent[T protocol.Message](cmds []Command) (out []T) {
	for _, c := range of[Send](cmds) {
		if m, ok := c.Message.(T); ok {
			out = append(out, m)
		}
	}
	return out
}

// rig drives one machine by hand: entries commit when the test says so.
type rig struct {
	*testing.T
	m     *Machine
	at    sharding.Instant
	index uint64
	term  uint64
}

func newRig(t *testing.T, cfg Config) *rig {
	cfg.Self = who("x")
	return &rig{T: t, m: New(cfg)}
}

func (r *rig) step(ev Event) []Command { return r.m.Step(r.at, ev) }

// commit commits what was proposed, and what follows from it, and returns all commands.
func (r *rig) commit(cmds []Command) []Command {
	all := cmds
	for next := of[Propose](cmds); len(next) > 0; {
		r.index++
		out := r.step(Committed{Index: r.index, Term: r.term, Entry: next[0].Entry})
		all = append(all, out...)
		next = append(next[1:], of[Propose](out)...)
	}
	return all
}

func (r *rig) lead(term uint64) []Command {
	r.term = term
	return append(r.step(Elected{Term: term}), r.commit(r.step(BarrierDone{Term: term}))...)
}

// cluster creates one with these nodes, settled.
func (r *rig) cluster(shards uint32, strategy string, nodes ...string) {
	r.lead(1)
	r.commit(r.step(Requested{ID: 1, Request: CreateCluster{Body: protocol.CreateCluster{ClusterID: inc(9), Settings: protocol.Settings{LeaseTTL: 5000}}}}))
	for _, n := range nodes {
		r.join(n, shards, strategy)
	}
	r.at = r.at.Add(1100 * time.Millisecond)
	r.commit(r.step(Ticked{Wall: 1000}))
}

func (r *rig) join(n string, shards uint32, strategy string) []Command {
	g := protocol.RegionInfo{Type: "t", NumShards: shards, Hosts: true}
	if strategy != "" {
		g.Strategy = specOf(strategy)
	}
	return r.commit(r.step(Received{From: who(n), Message: &protocol.Register{Regions: []protocol.RegionInfo{g}}}))
}

func (r *rig) contact(n string, shards ...sharding.ShardID) []Command {
	return r.commit(r.step(Received{From: who(n), Message: &protocol.GetShardHome{Type: "t", Shards: shards}}))
}

// answer runs the native strategy for each question and commits what follows.
func (r *rig) answer(cmds []Command) []Command {
	all := cmds
	for asks := of[AskStrategy](cmds); len(asks) > 0; {
		ev := StrategyAnswered{Ask: asks[0].Ask}
		if asks[0].Op == pluginapi.OpAllocate {
			ev.Homes, _ = answer(asks[0].Spec).Allocate(asks[0].Input, asks[0].Shards)
		} else {
			ev.Plan, _ = answer(asks[0].Spec).Rebalance(asks[0].Input)
		}
		out := r.commit(r.step(ev))
		all = append(all, out...)
		asks = append(asks[1:], of[AskStrategy](out)...)
	}
	return all
}

// I5: before its barrier a leader sends, proposes and asks nothing; the mutation takes that out.
func TestNothingBeforeTheBarrier(t *testing.T) {
	for _, off := range []bool{false, true} {
		r := newRig(t, Config{})
		r.cluster(4, "", "a")
		snap, err := r.m.Snapshot()
		require.NoError(t, err)
		r.m = New(Config{Self: who("y"), Off: Mutations{Barrier: off}})
		require.NoError(t, r.m.Restore(snap))
		cmds := r.step(Elected{Term: 2})
		cmds = append(cmds, r.step(Received{From: who("b"), Message: &protocol.Register{Regions: []protocol.RegionInfo{{Type: "t", NumShards: 4, Hosts: true}}}})...)
		cmds = append(cmds, r.step(Received{From: who("a"), Message: &protocol.GetShardHome{Type: "t", Shards: []sharding.ShardID{0}}})...)
		cmds = append(cmds, r.step(Requested{ID: 7, Request: Pause{On: true}})...)
		r.at = r.at.Add(time.Minute)
		cmds = append(cmds, r.step(Ticked{Wall: 5})...)
		require.Len(t, of[Barrier](cmds), 1)
		if off {
			require.NotEmpty(t, of[Propose](cmds), "the rule is out")
			continue
		}
		require.Equal(t, []Command{Barrier{Term: 2}, Answer{ID: 7, Code: CodeNotLeader, Err: "this server does not lead, or has not caught up yet: ask the leader"}}, cmds)
		require.Empty(t, r.step(BarrierDone{Term: 1}), "the barrier of another term")
		require.Len(t, of[Broadcast](r.step(BarrierDone{Term: 2})), 1)
	}
}

// What the barrier is for (spec 2.1): a server that was restarted from a snapshot wins before it has applied the rest of the log, where the TTL was
// raised and a lease granted under it. Its member is silent. With the barrier it keeps its shard until that lease has lapsed; without, the shard
// gets a second owner while the first still serves.
func TestBarrierShowsTheLongestTTL(t *testing.T) {
	const short, long = 5500 * time.Millisecond, 66 * time.Second // with margin
	for off, want := range map[bool]time.Duration{false: long, true: short} {
		r := newRig(t, Config{})
		r.cluster(4, "", "a")
		r.commit(r.step(Received{From: who("a"), Message: &protocol.Renew{Seq: 1, SentAt: 66}}))
		snap, err := r.m.Snapshot()
		require.NoError(t, err)
		var unseen []Committed
		keep := func(cmds []Command) []Command {
			for _, p := range of[Propose](cmds) {
				unseen = append(unseen, Committed{Index: r.index + uint64(len(unseen)) + 1, Term: 1, Entry: p.Entry})
			}
			return cmds
		}
		r.commit(keep(r.step(Requested{ID: 2, Request: Configure{Settings: protocol.Settings{LeaseTTL: 60_000}}})))
		first := len(unseen)
		cmds := r.commit(keep(r.step(Received{From: who("a"), Message: &protocol.Renew{Seq: 2, SentAt: 77}})))
		require.Equal(t, 1, first)
		require.Len(t, unseen, 2)
		require.Equal(t, int64(60_000), sent[*protocol.LeaseAck](cmds)[0].TTL, "the lease that runs on")

		r.m = New(Config{Self: who("y"), Off: Mutations{Barrier: off}})
		require.NoError(t, r.m.Restore(snap))
		r.term = 2
		r.step(Elected{Term: 2})
		for _, e := range unseen {
			r.step(e)
		}
		r.step(BarrierDone{Term: 2})
		lapsed := func(cmds []Command) bool {
			for _, p := range of[Propose](cmds) {
				if d := p.Entry.Deregister; d != nil {
					require.Equal(t, protocol.CauseLapsed, d.Cause)
					return true
				}
			}
			return false
		}
		from := r.at
		for !lapsed(r.step(Ticked{Wall: 1})) {
			r.at = r.at.Add(10 * time.Millisecond)
			require.Less(t, r.at.Sub(from), 2*long)
		}
		require.InDelta(t, want, r.at.Sub(from), float64(20*time.Millisecond), "barrier off: %v", off)
	}
}

// A silent member lapses a tenth after its TTL, counted from the renewal's arrival; as a new leader after the longest TTL (I7).
func TestLapse(t *testing.T) {
	lapsesAfter := func(r *rig) (d time.Duration) {
		for from := r.at; len(of[Note](r.step(Ticked{Wall: 1}))) == 0; r.at = r.at.Add(10 * time.Millisecond) {
			d = r.at.Sub(from)
			require.Less(t, d, time.Minute)
		}
		return d
	}
	for off, want := range map[bool][2]time.Duration{false: {5500 * time.Millisecond, 5500 * time.Millisecond}, true: {5 * time.Second, 0}} {
		r := newRig(t, Config{Off: Mutations{LeaseMargin: off}})
		r.cluster(4, "", "a")
		cmds := r.commit(r.step(Received{From: who("a"), Message: &protocol.Renew{Seq: 1, SentAt: 77}}))
		acks := sent[*protocol.LeaseAck](cmds)
		require.Len(t, acks, 1)
		require.Equal(t, &protocol.LeaseAck{Term: 1, Seq: 1, SentAt: 77, Revision: r.m.State().Revision(), TTL: 5000}, acks[0])
		require.InDelta(t, want[0], lapsesAfter(r), float64(20*time.Millisecond))

		r = newRig(t, Config{Off: Mutations{LeaseMargin: off}})
		r.cluster(4, "", "a")
		r.commit(r.step(Received{From: who("a"), Message: &protocol.Renew{Seq: 1, SentAt: 77}}))
		r.lead(2)
		require.InDelta(t, want[1], lapsesAfter(r), float64(20*time.Millisecond))
	}
}

// One GrantLeases is in flight at a time; renewals that come in meanwhile share the next. It is acknowledged only when it has committed,
// the map first, and not to a member that is being deregistered.
func TestRenewalsAreBatched(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "", "a", "b", "c")
	renew := func(n string) []Command {
		return r.step(Received{From: who(n), Message: &protocol.Renew{Seq: 1, SentAt: 5, Applied: r.m.State().Revision()}})
	}
	first := of[Propose](renew("a"))
	require.Len(t, first, 1)
	require.Equal(t, []sharding.Member{who("a")}, first[0].Entry.GrantLeases.Members)
	require.Empty(t, renew("c"))
	require.Empty(t, renew("b"))
	r.index++
	out := r.step(Committed{Index: r.index, Term: 1, Entry: first[0].Entry})
	require.Len(t, sent[*protocol.LeaseAck](out), 1)
	next := of[Propose](out)
	require.Len(t, next, 1)
	require.Equal(t, []sharding.Member{who("b"), who("c")}, next[0].Entry.GrantLeases.Members)
	stop := of[Propose](r.step(Received{From: who("b"), Message: &protocol.Stopping{}}))
	require.Len(t, stop, 1)
	r.index++
	out = r.step(Committed{Index: r.index, Term: 1, Entry: next[0].Entry})
	for _, s := range of[Send](out) {
		if _, ok := s.Message.(*protocol.LeaseAck); ok {
			require.Equal(t, who("c"), s.To, "b is being deregistered")
		}
	}
	require.Len(t, sent[*protocol.LeaseAck](out), 1)
	r.index++
	out = r.step(Committed{Index: r.index, Term: 1, Entry: stop[0].Entry})
	require.NotEmpty(t, sent[*protocol.ShardMapUpdate](out))

	out = renew("a")
	require.Empty(t, sent[*protocol.LeaseAck](r.step(ProposalFailed{Command: of[Propose](out)[0].Entry.Command, Reason: "no quorum"})), "not committed: not acknowledged")
}

// GetShardHome of several nodes that come together are one allocate call.
func TestContactsAreOneCall(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(8, "hash", "a", "b")
	asks := of[AskStrategy](r.contact("a", 3, 1))
	require.Len(t, asks, 1)
	require.Equal(t, []uint32{1, 3}, asks[0].Shards)
	require.Empty(t, r.contact("b", 3, 2))
	require.Empty(t, r.contact("a", 0))
	out := r.answer([]Command{asks[0]})
	more := of[AskStrategy](out)
	require.Len(t, more, 2)
	require.Equal(t, []uint32{0, 2}, more[1].Shards)
	require.Len(t, sent[*protocol.ShardHome](r.contact("b", 3)), 1, "it has a home now")
	require.Empty(t, r.contact("b", 99))
}

// Moves in flight plus new ones stay within moves_per_pass, and an interval pass waits for the cooldown.
func TestMovesPerPass(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(20, "", "a")
	spec := specOf("hash")
	spec.MovesPass = 3
	r.commit(r.step(Requested{ID: 2, Request: SwapStrategy{Type: "t", Spec: spec}}))
	var all []sharding.ShardID
	for i := range sharding.ShardID(20) {
		all = append(all, i)
	}
	r.answer(r.contact("a", all...))
	r.join("b", 20, "")
	r.at = r.at.Add(1100 * time.Millisecond)
	out := r.answer(r.commit(r.step(Ticked{Wall: 1})))
	moves := sent[*protocol.HandOff](out)
	require.Len(t, moves, 3)
	done := 0
	for ; done < 3; done++ {
		h := moves[done]
		r.step(Ticked{Wall: 1})
		out = r.answer(r.commit(r.step(Received{From: who("a"), Message: &protocol.HandOffComplete{Type: "t", Shard: h.Shard, Epoch: h.Epoch}})))
		starts := sent[*protocol.StartShard](out)
		require.Len(t, starts, 1)
		require.True(t, starts[0].Handed)
		require.Empty(t, of[AskStrategy](out), "the cooldown holds the next pass back")
		r.commit(r.step(Received{From: who("b"), Message: &protocol.ShardStarted{Type: "t", Shards: []protocol.ShardEpoch{{Shard: h.Shard, Epoch: h.Epoch + 1}}}}))
	}
	r.at = r.at.Add(2 * time.Second)
	out = r.answer(r.commit(r.step(Ticked{Wall: 1})))
	require.Len(t, sent[*protocol.HandOff](out), 3)
}

// A HandOff that the owner refuses is never waited for in vain: it is sent the map that it lacks, or the StartShard that it waits for.
func TestRefusedHandOff(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "", "a", "b")
	r.contact("a", 0)
	r.commit(r.step(Requested{ID: 2, Request: MoveShard{Type: "t", Shard: 0, To: "b"}}))
	refused := func(from string, m protocol.HandOffRefused) []Command {
		m.Type = "t"
		return r.step(Received{From: who(from), Message: &m})
	}
	require.Len(t, sent[*protocol.StartShard](refused("a", protocol.HandOffRefused{Asked: 1, Owner: who("a"), Epoch: 1})), 1)
	maps := sent[*protocol.ShardMapUpdate](refused("a", protocol.HandOffRefused{Asked: 1}))
	require.Len(t, maps, 1)
	require.True(t, maps[0].Full)
	require.Empty(t, refused("b", protocol.HandOffRefused{Asked: 1, Epoch: 1}), "not the owner's word")
	require.Empty(t, refused("a", protocol.HandOffRefused{Asked: 7, Epoch: 1}), "of another generation")
}

// A strategy that wants more moves than there is room for gets the first ones, in its order; a bad answer is refused whole (spec 1.3).
func TestPlanIsCut(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(6, "", "a", "b")
	spec := specOf("hash")
	spec.MovesPass = 2
	r.commit(r.step(Requested{ID: 2, Request: SwapStrategy{Type: "t", Spec: spec}}))
	r.answer(r.contact("a", 0, 1, 2, 3, 4, 5))
	r.at = r.at.Add(3 * time.Second)
	ask := of[AskStrategy](r.commit(r.step(Ticked{Wall: 1})))
	require.Len(t, ask, 1)
	good := []pluginapi.Move{{Shard: 4, Target: 1}, {Shard: 0, Target: pluginapi.NoTarget}, {Shard: 2, Target: 1}}
	out := r.commit(r.step(StrategyAnswered{Ask: ask[0].Ask, Plan: pluginapi.Plan{Moves: append([]pluginapi.Move{{Shard: 9, Target: 0}}, good...)}}))
	require.Empty(t, sent[*protocol.HandOff](out))
	require.Contains(t, fmt.Sprint(of[Note](out)), "output: move 0: shard 9: the type has shards 0 to 5")
	v, _ := r.m.State().Strategy("t")
	require.EqualValues(t, 1, v.Failures)

	r.at = r.at.Add(3 * time.Second)
	ask = of[AskStrategy](r.commit(r.step(Ticked{Wall: 1})))
	require.Len(t, ask, 1)
	out = r.commit(r.step(StrategyAnswered{Ask: ask[0].Ask, Plan: pluginapi.Plan{Moves: good}}))
	orders := sent[*protocol.HandOff](out)
	require.Len(t, orders, 2)
	require.Equal(t, sharding.ShardID(0), orders[0].Shard)
	require.Equal(t, sharding.ShardID(4), orders[1].Shard)
}

// A member that registers again while its deregistration is in the log comes back as a new one: it settles, and no old lease counts.
func TestBackBeforeItIsGone(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "", "a", "b")
	gone := of[Propose](r.step(Received{From: who("b"), Message: &protocol.Stopping{}}))
	require.Len(t, gone, 1)
	changed := &protocol.Register{Info: protocol.NodeInfo{Zone: "z"}, Regions: []protocol.RegionInfo{{Type: "t", NumShards: 4, Hosts: true}}}
	back := of[Propose](r.step(Received{From: who("b"), Message: changed}))
	require.Len(t, back, 1)
	r.commit([]Command{gone[0]})
	r.commit([]Command{back[0]})
	require.Equal(t, []sharding.Member{who("a")}, r.m.candidates(r.m.state.types[0], r.m.living()), "b has to settle")
	r.at = r.at.Add(1100 * time.Millisecond)
	r.step(Ticked{Wall: 1})
	require.Len(t, r.m.candidates(r.m.state.types[0], r.m.living()), 2)
}

// The answer of a strategy that was replaced while it thought is dropped, and the question asked again (spec 1.4).
func TestAnswerOfAReplacedStrategy(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "hash", "a", "b")
	old := of[AskStrategy](r.contact("a", 0))
	require.Len(t, old, 1)
	require.NotEmpty(t, of[PrepareStrategy](r.commit(r.step(Requested{ID: 2, Request: SwapStrategy{Type: "t", Spec: specOf("fill")}}))))
	out := r.commit(r.step(StrategyAnswered{Ask: old[0].Ask, Homes: pluginapi.Homes{Nodes: []int{1}}}))
	again := of[AskStrategy](out)
	require.Len(t, again, 1)
	require.Equal(t, "fill", again[0].Spec.Source)
	require.Empty(t, r.step(StrategyAnswered{Ask: old[0].Ask}), "answered already")
	r.answer(out)
	rec, _ := r.m.State().Shard("t", 0)
	require.Equal(t, who("a"), rec.Owner)
}

// A shard that is being handed off to another node is not there already for who wants it where it still is (spec 2.5).
func TestMoveBackDuringAHandoff(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "hash", "a", "b")
	r.answer(r.contact("a", 0))
	rec, _ := r.m.State().Shard("t", 0)
	from, to := rec.Owner.Node, sharding.NodeID("a")
	if from == to {
		to = "b"
	}
	move := func(id uint64, to sharding.NodeID) Answer {
		answers := of[Answer](r.commit(r.step(Requested{ID: id, Request: MoveShard{Type: "t", Shard: 0, To: to}})))
		require.Len(t, answers, 1)
		return answers[0]
	}
	require.Empty(t, move(2, from).Code, "it is there already")
	require.Empty(t, move(3, to).Code)
	require.Equal(t, CodeConflict, move(4, from).Code, "it is about to leave")
}

// Why a strategy failed is told while it is in force and after the rollback that it led to, and not of the next one (spec 1.3, 1.4).
func TestLastFailure(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "hash", "a", "b")
	r.answer(r.contact("a", 0))
	_, failed := r.m.LastFailure("t")
	require.False(t, failed)
	bad := specOf("bad")
	bad.MaxFailures = 2
	out := r.commit(r.step(Requested{ID: 2, Request: SwapStrategy{Type: "t", Spec: bad}}))
	fail := func(verdict string) {
		asked := of[AskStrategy](append(out, r.commit(r.step(Ticked{}))...))
		require.NotEmpty(t, asked)
		out = r.commit(r.step(StrategyAnswered{Ask: asked[len(asked)-1].Ask, Failure: &StrategyFailure{Verdict: verdict, Detail: "x"}}))
	}
	fail("trap")
	f, failed := r.m.LastFailure("t")
	require.True(t, failed)
	require.Equal(t, LastFailure{Seq: 2, Spec: bad, Failure: StrategyFailure{"trap", "x"}}, f)
	out = r.contact("a", 1)
	fail("fuel")
	v, _ := r.m.State().Strategy("t")
	require.Equal(t, "hash", v.Spec.Source)
	f, failed = r.m.LastFailure("t")
	require.True(t, failed)
	require.Equal(t, LastFailure{Seq: 2, Spec: bad, Failure: StrategyFailure{"fuel", "x"}}, f)

	r.m.runs = map[sharding.TypeName]*run{} // another leader's machine
	f, failed = r.m.LastFailure("t")
	require.True(t, failed)
	require.Equal(t, LastFailure{Spec: bad, Failure: StrategyFailure{Detail: v.Failure}}, f)
	r.commit(r.step(Requested{ID: 3, Request: SwapStrategy{Type: "t", Spec: specOf("fill")}}))
	_, failed = r.m.LastFailure("t")
	require.False(t, failed)
}

// The input is filled with what is known (issue: loads, coordinates, roles, zones, capacity, busy shards).
func TestInput(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(6, "hash", "a", "b")
	r.answer(r.contact("a", 0, 1, 2, 3))
	load := uint64(500)
	r.commit(r.step(Received{From: who("b"), Message: &protocol.Renew{Load: &protocol.NodeLoad{CPU: &load, Shards: []protocol.ShardLoad{
		{Type: "t", Shard: 1, Entities: 7, Rate: 9}, {Type: "t", Shard: 0, Entities: 1}, {Type: "t", Shard: 60}, {Type: "u", Shard: 1}}}}}))
	r.step(MemberSeen{Member: who("b"), Status: MemberFailed, Coord: pluginapi.Coord{Vec: []float64{1}}})
	r.commit(r.step(Requested{ID: 5, Request: PinShard{Type: "t", Shard: 2, Node: "a"}}))
	r.commit(r.step(Requested{ID: 6, Request: MoveShard{Type: "t", Shard: 3, To: "a"}}))
	reg := &protocol.Register{Info: protocol.NodeInfo{Address: "c:1", Roles: []string{"r"}, Zone: "z", Version: "2", Capacity: 50, Tags: map[string]string{"bb": "1", "a": "2"}},
		Regions: []protocol.RegionInfo{{Type: "t", NumShards: 6, Hosts: true}}}
	r.commit(r.step(Received{From: who("c"), Message: reg}))
	r.commit(r.step(Requested{ID: 7, Request: DrainNode{Node: "b", On: true}}))
	m := r.m
	in, members := m.input(m.runs["t"], m.state.types[0])
	require.NoError(t, in.Validate(nil))
	require.Equal(t, []sharding.Member{who("a"), who("b"), who("c")}, members)
	require.Equal(t, []int{0}, in.Candidates, "b drains, c has not settled")
	require.Equal(t, []uint32{0, 1, 0, 1, pluginapi.NoOwner, pluginapi.NoOwner}, in.Owners)
	require.Equal(t, []pluginapi.Busy{{Shard: 3, Target: 0}}, in.Busy)
	require.Equal(t, []pluginapi.Pin{{Shard: 2, Node: 0}}, in.Pinned)
	require.Equal(t, pluginapi.UnknownLoad, in.Load.Entities[0], "b does not own shard 0")
	require.Equal(t, uint32(7), in.Load.Entities[1])
	require.Equal(t, uint32(9), in.Load.Rate[1])
	require.Equal(t, uint64(99), in.MaxMoves, "one of 100 is in flight")
	require.Equal(t, uint64(1000), in.Now)
	require.Equal(t, r.m.State().Revision().Index, in.Revision)
	b, c := in.Nodes[1], in.Nodes[2]
	require.Equal(t, pluginapi.StateDraining, b.State)
	require.Equal(t, pluginapi.Known(500), b.Load.CPU)
	require.Equal(t, []float64{1}, b.Coord.Vec)
	require.Equal(t, pluginapi.Node{Name: "c", Addr: "c:1", Incarnation: inc(1).String(), State: pluginapi.StateJoining, Roles: []string{"r"}, Version: "2", Weight: 50, Zone: "z",
		Tags: []pluginapi.Tag{{Key: "a", Value: "2"}, {Key: "bb", Value: "1"}}}, c)
	// A second incarnation: one node, its predecessor's shards are on it, and busy.
	r.commit(r.step(Received{From: who("b2"), Message: &protocol.Register{Regions: reg.Regions}}))
	in, members = m.input(m.runs["t"], m.state.types[0])
	require.NoError(t, in.Validate(nil))
	require.Equal(t, who("b2"), members[1])
	require.Contains(t, in.Busy, pluginapi.Busy{Shard: 1, Target: pluginapi.NoTarget})
}

// A node that comes with another number of shards is told both (spec 2.1); one that speaks another protocol version is told the versions.
func TestRefusals(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(6, "", "a")
	acks := sent[*protocol.RegisterAck](r.join("b", 8, ""))
	require.Len(t, acks, 1)
	require.Equal(t, "num_shards", acks[0].Refused[0].Code)
	require.Contains(t, acks[0].Refused[0].Detail, "6")
	require.Contains(t, acks[0].Refused[0].Detail, "8")
	out := r.commit(r.step(Received{From: who("c"), Message: &protocol.Register{Info: protocol.NodeInfo{MinWire: 7, MaxWire: 8}}}))
	require.Equal(t, "wire_version", sent[*protocol.RegisterAck](out)[0].Refused[0].Code)
	require.Empty(t, of[Propose](out))
}

// 100 000 shards placed at once: log entries stay small, and each shard has a home.
func TestEagerPlacementIsChunked(t *testing.T) {
	r := newRig(t, Config{})
	r.lead(1)
	r.commit(r.step(Requested{ID: 1, Request: CreateCluster{Body: protocol.CreateCluster{ClusterID: inc(9), Settings: protocol.Settings{LeaseTTL: 5000}}}}))
	g := protocol.RegionInfo{Type: "t", NumShards: 100_000, Hosts: true, Place: "eager", Expect: 1}
	r.commit(r.step(Received{From: who("a"), Message: &protocol.Register{Regions: []protocol.RegionInfo{g}}}))
	r.at = r.at.Add(1100 * time.Millisecond)
	out := r.commit(r.step(Ticked{Wall: 1}))
	entries := 0
	for _, p := range of[Propose](out) {
		b, err := protocol.EncodeEntry(p.Entry)
		require.NoError(t, err)
		require.Less(t, len(b), 512<<10)
		entries++
	}
	require.GreaterOrEqual(t, entries, 100_000/homesPerEntry)
	for _, rec := range r.m.State().Shards("t") {
		require.Equal(t, protocol.Homed, rec.State)
	}
}

// Whatever happens: no two nodes may serve a shard at once (I1), directives carry the leader's term, every server's state is the same, and
// once all is well again every shard that was asked for has a home on a live node and nothing is left half done (I15).
func TestAnythingHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { anythingHappens(t, Mutations{}) })
}

func anythingHappens(t *rapid.T, off Mutations) {
	var out strings.Builder
	w := newWorld(&out)
	w.servers = []string{"x", "y"}
	for i, s := range w.servers {
		w.machines[s] = New(Config{Self: who(s), Seed: uint64(i), HandOffTimeout: 3 * time.Second, Off: off})
	}
	w.violate = func(format string, args ...any) { t.Fatalf(format+"\n%s", append(args, out.String())...) }
	elect := func(s string) {
		if w.leader != "" {
			w.step(w.leader, Deposed{})
		}
		w.leader, w.term = s, w.term+1
		w.step(s, Elected{Term: w.term})
	}
	elect("x")
	w.request(CreateCluster{Body: protocol.CreateCluster{ClusterID: inc(99), Settings: protocol.Settings{LeaseTTL: w.ttl.Milliseconds()}}})
	const shards = 6
	start := func(m sharding.Member) {
		n := w.nodes[m]
		if n == nil {
			n = newFakeNode(m)
			n.regions = []protocol.RegionInfo{{Type: "t", NumShards: shards, Hosts: true, Strategy: specOf("hash")}}
			w.nodes[m] = n
		}
		n.silent = false
		w.register(n, nil)
	}
	names := []string{"a", "b", "c"}
	start(who("a"))
	for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
		n := rapid.SampledFrom(names).Draw(t, "node")
		node := w.nodes[who(n)]
		shard := sharding.ShardID(rapid.IntRange(0, shards-1).Draw(t, "shard"))
		fmt.Fprintf(&out, "-- step %d at %v\n", i, time.Duration(w.now))
		switch rapid.IntRange(0, 11).Draw(t, "op") {
		case 0, 1:
			start(who(n))
		case 2:
			if node != nil {
				node.silent = true
			}
		case 3, 4:
			w.toLeader(Received{From: who(n), Message: &protocol.GetShardHome{Type: "t", Shards: []sharding.ShardID{shard, (shard + 1) % shards}}})
		case 5:
			elect(rapid.SampledFrom(w.servers).Draw(t, "server"))
		case 6:
			w.request(DrainNode{Node: sharding.NodeID(n), On: rapid.Bool().Draw(t, "on")})
		case 7:
			w.request(MoveShard{Type: "t", Shard: shard, To: sharding.NodeID(n)})
		case 8:
			if node != nil {
				node.stuck = !node.stuck
			}
		case 9:
			w.strategy = rapid.SampledFrom([]string{verdictOK, "trap", verdictBudget, verdictMissing}).Draw(t, "verdict")
		case 10:
			w.request(SwapStrategy{Type: "t", Spec: specOf(rapid.SampledFrom([]string{"hash", "fill"}).Draw(t, "strategy"))})
		case 11:
			w.request(PinShard{Type: "t", Shard: shard, Node: rapid.SampledFrom([]sharding.NodeID{"a", "b", ""}).Draw(t, "pin")})
		}
		w.pass(time.Duration(rapid.IntRange(0, 60).Draw(t, "tenths")) * 100 * time.Millisecond)
	}
	// All is well again.
	w.strategy = verdictOK
	for _, n := range names {
		start(who(n))
		w.nodes[who(n)].stuck = false
		w.request(DrainNode{Node: sharding.NodeID(n)})
	}
	w.pass(15 * time.Second)
	s := w.machines[w.leader].State()
	for _, rec := range s.Shards("t") {
		if rec.Epoch > 0 && rec.State != protocol.Homed {
			t.Fatalf("15 s after all faults shard %d is %s\n%s", rec.Shard, rec.State, out.String())
		}
	}
	r := w.machines[w.leader].runs["t"]
	if len(r.wishes) > 0 || len(r.driven) > 0 || r.moving > 0 || len(s.typeAt("t").handovers) > 0 || r.phase != idle {
		t.Fatalf("left undone: %d wishes, %d orders, %d moves, %d handovers, phase %d\n%s", len(r.wishes), len(r.driven), r.moving, len(s.typeAt("t").handovers), r.phase, out.String())
	}
	before := allRecords(s)
	w.pass(10 * time.Second)
	require.Equal(t, before, allRecords(s), "nothing moves without a reason (I16)")
}

// Taking out the wait for leases is found by the test above: it can fail.
func TestAnythingHappensFindsTheMissingWait(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(2, "", "a")
	found := false
	for seed := range 20 {
		found = found || anythingFails(seed)
	}
	require.True(t, found)
}

// anythingFails plays leader change after leader change without the lease margin and says whether two nodes ever served one shard.
func anythingFails(seed int) (failed bool) {
	var out strings.Builder
	w := newWorld(&out)
	w.servers = []string{"x"}
	w.machines["x"] = New(Config{Self: who("x"), Seed: uint64(seed), Off: Mutations{LeaseMargin: true}})
	w.violate = func(string, ...any) { failed = true }
	w.leader, w.term = "x", 1
	w.step("x", Elected{Term: 1})
	w.request(CreateCluster{Body: protocol.CreateCluster{ClusterID: inc(99), Settings: protocol.Settings{LeaseTTL: w.ttl.Milliseconds()}}})
	for _, n := range []string{"a", "b"} {
		w.nodes[who(n)] = newFakeNode(who(n))
		w.nodes[who(n)].regions = []protocol.RegionInfo{{Type: "t", NumShards: 4, Hosts: true, Strategy: specOf("hash")}}
		w.register(w.nodes[who(n)], nil)
	}
	w.pass(1200 * time.Millisecond)
	w.toLeader(Received{From: who("a"), Message: &protocol.GetShardHome{Type: "t", Shards: []sharding.ShardID{0, 1, 2, 3}}})
	w.pass(2 * time.Second)
	w.nodes[who("b")].silent = true
	w.pass(time.Duration(seed) * 100 * time.Millisecond)
	w.step("x", Deposed{})
	w.term++
	w.step("x", Elected{Term: 2})
	w.pass(3 * time.Second)
	return failed
}

func BenchmarkStepRenew(b *testing.B) {
	r := newRig(nil, Config{})
	r.lead(1)
	r.commit(r.step(Requested{ID: 1, Request: CreateCluster{Body: protocol.CreateCluster{ClusterID: inc(9), Settings: protocol.Settings{LeaseTTL: 5000}}}}))
	var nodes []string
	for i := range 26 * 4 {
		n := fmt.Sprintf("%c%c", 'a'+i/26, 'a'+i%26)
		nodes = append(nodes, n)
		r.join(n, 100_000, "")
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		r.at += 1000
		i++
		r.commit(r.step(Received{From: who(nodes[i%len(nodes)]), Message: &protocol.Renew{Seq: uint64(i), Applied: r.m.State().Revision()}}))
	}
}

func BenchmarkStepTick100k(b *testing.B) {
	r := newRig(nil, Config{})
	r.cluster(100_000, "", "a", "b", "c")
	for b.Loop() {
		r.at += 1000
		r.step(Ticked{Wall: 1})
	}
}

// A TTL that was raised and not granted yet: members renew at its pace, and a new leader gives them time for it (spec 2.1).
func TestNewLeaderWaitsThePresentTTL(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "", "a")
	r.commit(r.step(Received{From: who("a"), Message: &protocol.Renew{Seq: 1, SentAt: 66}}))
	r.commit(r.step(Requested{ID: 2, Request: Configure{Settings: protocol.Settings{LeaseTTL: 60_000}}}))
	r.lead(2)
	from := r.at
	for len(of[Note](r.step(Ticked{Wall: 1}))) == 0 {
		r.at = r.at.Add(50 * time.Millisecond)
		require.Less(t, r.at.Sub(from), 2*time.Minute)
	}
	require.InDelta(t, 66*time.Second, r.at.Sub(from), float64(100*time.Millisecond))
}

// A leader that was deposed may have to take a snapshot before it is told. Whoever waits for one of its entries is answered all the same.
func TestRestoreBeforeDeposed(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "", "a")
	snap, err := r.m.Snapshot()
	require.NoError(t, err)
	waiting := of[Propose](r.step(Requested{ID: 7, Request: Pause{On: true}}))
	require.Len(t, waiting, 1)
	register := of[Propose](r.step(Received{From: who("b"), Message: &protocol.Register{Regions: []protocol.RegionInfo{{Type: "t", NumShards: 4, Hosts: true}}}}))
	require.Len(t, register, 1)
	require.NoError(t, r.m.Restore(snap))
	r.index++
	out := r.step(Committed{Index: r.index, Term: 1, Entry: register[0].Entry})
	require.Equal(t, []Answer{{ID: 7, Code: CodeNotLeader, Err: "this server leads no more"}}, of[Answer](out))
	require.Empty(t, of[Answer](r.step(Deposed{})))
}

// A leader that stood still finds every lease run out, and the renewals still to be read: it waits before it takes silence for a lapse (I16).
func TestStandstill(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "", "a")
	r.commit(r.step(Received{From: who("a"), Message: &protocol.Renew{Seq: 1, SentAt: 77}}))
	r.at = r.at.Add(time.Minute)
	require.Empty(t, of[Propose](r.step(Ticked{Wall: 1})), "it has not read what came in meanwhile")
	renewed := r.commit(r.step(Received{From: who("a"), Message: &protocol.Renew{Seq: 2, SentAt: 78}}))
	require.Len(t, sent[*protocol.LeaseAck](renewed), 1)
	r.at = r.at.Add(time.Minute)
	from := r.at
	for len(of[Propose](r.step(Ticked{Wall: 1}))) == 0 {
		r.at = r.at.Add(100 * time.Millisecond)
		require.Less(t, r.at.Sub(from), time.Minute, "a silent member lapses all the same")
	}
	require.InDelta(t, 2750*time.Millisecond, r.at.Sub(from), float64(150*time.Millisecond), "half a TTL with margin")
}

// Nobody else tells a plain node who leads, and the word may be lost: it is repeated to those that Serf sees up (I15).
func TestStrangersAreCalled(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "", "a")
	require.Len(t, sent[*protocol.Leading](r.step(MemberSeen{Member: who("b"), Status: MemberUp})), 1)
	calls := 0
	for range 30 {
		r.at = r.at.Add(100 * time.Millisecond)
		for _, c := range of[Send](r.step(Ticked{Wall: 1})) {
			if _, ok := c.Message.(*protocol.Leading); ok && c.To == who("b") {
				calls++
			}
		}
	}
	require.InDelta(t, 3, calls, 1, "once a second")
	r.step(MemberSeen{Member: who("b"), Status: MemberFailed})
	r.at = r.at.Add(2 * time.Second)
	require.Empty(t, sent[*protocol.Leading](r.step(Ticked{Wall: 1})))
}

// Many types cost a look at their members where time alone has passed: 200 of them on 100 nodes.
func BenchmarkTick200Types(b *testing.B) {
	r := newRig(nil, Config{})
	r.lead(1)
	r.commit(r.step(Requested{ID: 1, Request: CreateCluster{Body: protocol.CreateCluster{ClusterID: inc(9), Settings: protocol.Settings{LeaseTTL: 5000}}}}))
	var regions []protocol.RegionInfo
	for i := range 200 {
		regions = append(regions, protocol.RegionInfo{Type: sharding.TypeName(fmt.Sprintf("type-%03d", i)), NumShards: 100, Hosts: true})
	}
	for i := range 100 {
		r.commit(r.step(Received{From: who(fmt.Sprintf("%c%c", 'a'+i/26, 'a'+i%26)), Message: &protocol.Register{Regions: regions}}))
	}
	r.at = r.at.Add(2 * time.Second)
	for b.Loop() {
		r.at += 1000
		r.step(Ticked{Wall: 1})
	}
}

// Shards that wait for a node cost nothing until they are asked about again.
func BenchmarkTick100kHomeless(b *testing.B) {
	r := newRig(nil, Config{})
	r.cluster(100_000, "", "a")
	r.commit(r.step(Requested{ID: 2, Request: DrainNode{Node: "a", On: true}}))
	all := make([]sharding.ShardID, 100_000)
	for i := range all {
		all[i] = sharding.ShardID(i)
	}
	r.contact("a", all...)
	for b.Loop() {
		r.at += 1000
		r.step(Ticked{Wall: 1})
	}
}

// BenchmarkInput is what a strategy is shown of 100 nodes with 100 000 shards, four of which were handed over just now.
func BenchmarkInput(b *testing.B) {
	r := newRig(nil, Config{})
	r.lead(1)
	r.commit(r.step(Requested{ID: 1, Request: CreateCluster{Body: protocol.CreateCluster{ClusterID: inc(9), Settings: protocol.Settings{LeaseTTL: 5000}}}}))
	for i := range 100 {
		r.join(fmt.Sprintf("%c%c", 'a'+i/26, 'a'+i%26), 100_000, "")
	}
	m := r.m
	t := m.state.types[0]
	for i := range t.owner {
		t.state[i], t.owner[i] = protocol.Homed, uint32(1+i%100)
	}
	for i := range uint32(4) {
		t.handovers[1000*i] = nil
	}
	b.ReportAllocs()
	for b.Loop() {
		if in, _ := m.input(m.run(t), t); len(in.Busy) != 4 {
			b.Fatal(len(in.Busy))
		}
	}
}
