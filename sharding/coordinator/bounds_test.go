package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Spec 2.1: no node brings more into the log, by registering, than every server can carry: what is in there stays there for good.
func TestRegistrationsAreBounded(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(100, "", "a")
	register := func(msg *protocol.Register) []*protocol.RegisterAck {
		return sent[*protocol.RegisterAck](r.commit(r.step(Received{From: who("h"), Message: msg})))
	}
	var huge, many []protocol.RegionInfo
	for i := range 8 {
		huge = append(huge, protocol.RegionInfo{Type: sharding.TypeName(fmt.Sprint("huge", i)), NumShards: sharding.MaxShards, Hosts: true})
	}
	for i := range 2 * maxTypes {
		many = append(many, protocol.RegionInfo{Type: sharding.TypeName(fmt.Sprint("many", i)), NumShards: 1, Hosts: true})
	}
	acks := register(&protocol.Register{Regions: huge})
	require.NotEmpty(t, acks)
	require.NotEmpty(t, acks[0].Refused)
	assert.Contains(t, acks[0].Refused[0].Detail, "at most 500000")
	acks = register(&protocol.Register{Regions: many})
	require.NotEmpty(t, acks)
	assert.Contains(t, acks[0].Refused[len(acks[0].Refused)-1].Detail, "a cluster has at most 1024")
	all := 0
	for _, ty := range r.m.State().Types() {
		n, _ := r.m.State().NumShards(ty)
		all += int(n)
	}
	assert.LessOrEqual(t, all, sharding.MaxAllShards)
	assert.Len(t, r.m.State().Types(), maxTypes)

	for what, msg := range map[string]*protocol.Register{
		"tags":  {Info: protocol.NodeInfo{Tags: map[string]string{"k": strings.Repeat("v", maxInfo)}}},
		"types": {Regions: []protocol.RegionInfo{{Type: "c", NumShards: 1, Strategy: protocol.StrategySpec{Config: make([]byte, maxRegions)}}}},
	} {
		before := r.index
		acks := register(msg)
		require.Len(t, acks, 1, what)
		require.Len(t, acks[0].Refused, 1, what)
		assert.Contains(t, acks[0].Refused[0].Detail, what)
		assert.Equal(t, before, r.index, "nothing of it is in the log")
	}
}

// A question is answered at most once a shard, however often it names the shard: the answers are many times as large.
func TestHomesAreToldOnceAShard(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(2, "", "a")
	r.commit(r.contact("a", 0, 1))
	cmds := r.contact("a", make([]sharding.ShardID, 1000)...)
	assert.LessOrEqual(t, len(sent[*protocol.ShardHome](cmds)), 2)
}

// However many shards a node asks for, what it is told at once leaves room for its lease; all that have no home are placed (spec 2.2).
func TestAnswersAreBounded(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(10_000, "", "a")
	var all []sharding.ShardID
	for i := range sharding.ShardID(10_000) {
		all = append(all, i)
	}
	r.commit(r.contact("a", all...))
	for _, rec := range r.m.State().Shards("t") {
		require.Equal(t, protocol.Homed, rec.State)
	}
	assert.Len(t, sent[*protocol.ShardHome](r.contact("a", all...)), homesPerAnswer)
	assert.Len(t, sent[*protocol.ShardHome](r.contact("a", all[9990:]...)), 10)
}

// A node that restarts again and again is remembered once: nobody says that the incarnations before are gone.
func TestRestartsLeaveNoTrace(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(2, "", "a")
	for range 100 {
		r.step(MemberSeen{Member: sharding.Member{Node: "b", Incarnation: sharding.NewIncarnation()}, Status: MemberUp})
	}
	n := 0
	for m := range r.m.seen {
		if m.Node == "b" {
			n++
		}
	}
	assert.Equal(t, 1, n)
}

// A lease that no node would take, or that overflows, is refused: with it set no shard could be served (spec 2.1).
func TestLeaseTTLIsBounded(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(2, "", "a")
	for ttl, code := range map[int64]string{0: CodeRefused, -1: CodeRefused, 1: "", protocol.MaxLeaseTTL: "", protocol.MaxLeaseTTL + 1: CodeRefused, 1 << 62: CodeRefused} {
		out := of[Answer](r.commit(r.step(Requested{ID: 7, Request: Configure{Settings: protocol.Settings{LeaseTTL: ttl}}})))
		require.Len(t, out, 1)
		assert.Equal(t, code, out[0].Code, "%d ms: %s", ttl, out[0].Err)
	}
}

// What a node says again and again is in the log once, a type that there is no room for included.
func TestTheSameRegistrationIsOneEntry(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(2, "", "a")
	msg := &protocol.Register{Regions: []protocol.RegionInfo{{Type: "t", NumShards: 2, Hosts: true}, {Type: "u", NumShards: sharding.MaxShards + 1, Hosts: true}}}
	r.commit(r.step(Received{From: who("b"), Message: msg}))
	index := r.index
	acks := sent[*protocol.RegisterAck](r.commit(r.step(Received{From: who("b"), Message: msg})))
	require.Len(t, acks, 1)
	assert.Contains(t, acks[0].Refused[0].Detail, "type u cannot have 100001 shards")
	assert.Equal(t, index, r.index)
}

// However many moves a pass may make and a strategy wants, with whatever reasons, one entry fits into what raft sends (spec 1.3).
func TestPlansFitIntoAnEntry(t *testing.T) {
	r := newRig(t, Config{})
	long := strings.Repeat("n", protocol.MaxName-1)
	r.cluster(20_000, "", long+"a", long+"b")
	spec := specOf("fill")
	spec.MovesPass = 1_000_000
	r.commit(r.step(Requested{ID: 2, Request: SwapStrategy{Type: "t", Spec: spec}}))
	var all []sharding.ShardID
	moves := make([]pluginapi.Move, 20_000)
	for i := range sharding.ShardID(20_000) {
		all = append(all, i)
		moves[i] = pluginapi.Move{Shard: uint32(i), Target: 1, Reason: strings.Repeat("r", 10_000)}
	}
	largest := func(cmds []Command) (n int) {
		for _, p := range of[Propose](cmds) {
			b, err := protocol.EncodeEntry(p.Entry)
			require.NoError(t, err)
			n = max(n, len(b))
		}
		return n
	}
	// Homes are asked for a bounded number at a time: the fuel of a call does not grow with the type.
	out := r.contact(long+"a", all...)
	for asked := 0; asked < len(all); {
		ask := of[AskStrategy](out)
		require.Len(t, ask, 1)
		require.LessOrEqual(t, len(ask[0].Shards), HomesPerQuestion)
		for k, shard := range ask[0].Shards {
			require.EqualValues(t, asked+k, shard)
		}
		asked += len(ask[0].Shards)
		reasons := make([]string, len(ask[0].Shards))
		for i := range reasons {
			reasons[i] = moves[i].Reason
		}
		out = r.commit(r.step(StrategyAnswered{Ask: ask[0].Ask, Homes: pluginapi.Homes{Nodes: make([]int, len(reasons)), Reasons: reasons, Reason: moves[0].Reason}}))
		assert.Less(t, largest(out), protocol.MaxEntry/2)
	}
	r.at = r.at.Add(3 * time.Second)
	ask := of[AskStrategy](r.commit(r.step(Ticked{Wall: 1})))
	require.Len(t, ask, 1)
	require.Equal(t, pluginapi.OpRebalance, ask[0].Op)
	out = r.commit(r.step(StrategyAnswered{Ask: ask[0].Ask, Plan: pluginapi.Plan{Moves: moves, Reason: moves[0].Reason}}))
	assert.Less(t, largest(out), protocol.MaxEntry/2)
	assert.Len(t, sent[*protocol.HandOff](out), homesPerEntry)
}

// Nor does it where a node drains, however many moves a pass may make.
func TestDrainAsksForABoundedNumber(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(3*HomesPerQuestion, "", "a")
	spec := specOf("fill")
	spec.MovesPass = 1_000_000
	r.commit(r.step(Requested{ID: 2, Request: SwapStrategy{Type: "t", Spec: spec}}))
	var all []sharding.ShardID
	for i := range sharding.ShardID(3 * HomesPerQuestion) {
		all = append(all, i)
	}
	r.answer(r.contact("a", all...))
	r.join("b", 3*HomesPerQuestion, "")
	r.at = r.at.Add(1100 * time.Millisecond) // b settles
	r.answer(r.commit(r.step(Ticked{Wall: 1})))
	asked := 0
	for _, ask := range of[AskStrategy](r.answer(r.commit(r.step(Requested{ID: 3, Request: DrainNode{Node: "a", On: true}})))) {
		if ask.Op == pluginapi.OpAllocate {
			require.LessOrEqual(t, len(ask.Shards), HomesPerQuestion)
			asked += len(ask.Shards)
		}
	}
	require.GreaterOrEqual(t, asked, HomesPerQuestion)
}

// An owner that hands over more numbers than an entry holds is taken at its word that it has stopped, and at no more: the shard gets a
// home, and what was sent to the owner before is refused there (I12).
func TestHandedOverNumbersAreBounded(t *testing.T) {
	r := newRig(t, Config{})
	r.cluster(4, "", "a", "b")
	r.contact("a", 0)
	const most = protocol.MaxEntry / 2 / 32
	for n, handed := range map[int]bool{most: true, most + 1: false} {
		rec, _ := r.m.State().Shard("t", 0)
		to := sharding.NodeID("a")
		if rec.Owner.Node == to {
			to = "b"
		}
		r.commit(r.step(Requested{ID: 3, Request: MoveShard{Type: "t", Shard: 0, To: to}}))
		out := r.commit(r.step(Received{From: rec.Owner, Message: &protocol.HandOffComplete{Type: "t", Shard: 0, Epoch: rec.Epoch, Senders: make([]protocol.SenderSeq, n)}}))
		r.at = r.at.Add(2 * time.Second) // an owner that stops and stays is given no shard again at once
		out = append(out, r.commit(r.step(Ticked{Wall: 1}))...)
		now, _ := r.m.State().Shard("t", 0)
		require.Equal(t, protocol.Homed, now.State)
		require.Equal(t, rec.Epoch+1, now.Epoch)
		assert.Equal(t, handed, now.Chain < now.Epoch)
		starts := sent[*protocol.StartShard](out)
		require.NotEmpty(t, starts)
		assert.Equal(t, handed, starts[0].Handed)
		r.commit(r.step(Received{From: now.Owner, Message: &protocol.ShardStarted{Type: "t", Shards: []protocol.ShardEpoch{{Shard: 0, Epoch: now.Epoch}}}}))
	}
}
