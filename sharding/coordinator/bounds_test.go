package coordinator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
