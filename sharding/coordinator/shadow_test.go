package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Spec 1.4: a shadow is without effect. Two clusters live through the same; one has a shadow, in the other the same entry of the log ends none. All that
// their coordinators do is the same but for the question to the shadow itself.
func TestShadowChangesNothing(t *testing.T) {
	live := func(shadow protocol.StrategySpec) (out string, states []string, asked int) {
		var text strings.Builder
		w := newWorld(&text)
		w.servers = []string{"x", "y"}
		for i, s := range w.servers {
			w.machines[s] = New(Config{Self: who(s), Seed: uint64(i)})
		}
		see := func() {
			m := w.machines[w.leader]
			states = append(states, fmt.Sprint(m.State().Shards("t"), m.seed, m.asks, m.commands))
			asked += len(w.shadows)
			clear(w.shadows)
		}
		elect := func(s string) {
			if w.leader != "" {
				w.step(w.leader, Deposed{})
			}
			w.leader = s
			w.term++
			w.step(s, Elected{Term: w.term})
		}
		join := func(name string) {
			n := newFakeNode(who(name))
			w.nodes[n.member] = n
			n.info = protocol.NodeInfo{Address: name + ":1", Roles: []string{"compute"}}
			n.regions = []protocol.RegionInfo{{Type: "t", NumShards: 24, Hosts: true, Role: "compute", Strategy: specOf("hash")}}
			w.register(n, nil)
			w.pass(1100 * time.Millisecond)
			see()
		}
		contact := func() {
			var all []sharding.ShardID
			for i := range sharding.ShardID(24) {
				all = append(all, i)
			}
			w.toLeader(Received{From: who("a"), Message: &protocol.GetShardHome{Type: "t", Shards: all}})
			w.pass(3 * time.Second)
			see()
		}
		elect("x")
		w.request(CreateCluster{Body: protocol.CreateCluster{ClusterID: inc(99), Settings: protocol.Settings{LeaseTTL: w.ttl.Milliseconds()}}})
		join("a")
		w.toLeader(Requested{ID: 77, Request: SetShadow{Type: "t", Spec: shadow, Shadow: new(uint64)}})
		if shadow.Digest == [32]byte{} { // it would be done already, and the log an entry shorter
			m := w.machines["x"]
			w.commit(w.term, &protocol.Entry{Kind: protocol.KindSetShadow, Term: w.term, Now: m.wall, SetShadow: &protocol.SetShadow{Type: "t", Expect: 1}})
			m.commands++
		}
		contact()
		join("b")
		join("c")
		contact()
		elect("y")
		contact()
		w.request(DrainNode{Node: "b", On: true})
		contact()
		w.strategy = "trap"
		w.request(DrainNode{Node: "b"})
		contact()
		w.strategy = verdictOK
		contact()
		return text.String(), states, asked
	}
	_, plain, none := live(protocol.StrategySpec{})
	_, shadowed, asked := live(specOf("fill"))
	require.Zero(t, none)
	require.Greater(t, asked, 8, "the shadow was hardly asked: the test shows nothing")
	assert.Equal(t, plain, shadowed)
}

// Spec 1.4: what goes back to what, and how far. The newest that worked and is not in force is next; what was gone back from is not gone back to.
func TestRollback(t *testing.T) {
	s := &State{}
	ty := &typeState{name: "t"}
	s.types = append(s.types, ty)
	g := &ty.strategy
	worked := func() {
		require.Zero(t, s.applyStrategyOutcome(&protocol.StrategyOutcome{Type: "t", Seq: g.seq}).Code)
	}
	swap := func(name string) {
		require.Zero(t, s.applySetStrategy(&protocol.SetStrategy{Type: "t", Spec: specOf(name), Expect: g.seq}).Code)
	}
	back := func() Result { return s.applyRollback(&protocol.Rollback{Type: "t", Expect: g.seq}) }
	for _, name := range []string{"a", "b", "never", "c", "d", "e", "f"} {
		swap(name)
		if name != "never" {
			worked()
		}
	}
	var way []string
	for back().Code == "" {
		v, _ := s.Strategy("t")
		way = append(way, v.Spec.Source)
		assert.False(t, v.Worked, "it has to prove itself anew")
	}
	assert.Equal(t, []string{"e", "d", "c", "b"}, way, "four are kept, newest first, and none that never gave a decision")
	r := back()
	assert.Equal(t, CodeConflict, r.Code)
	assert.Contains(t, r.Detail, "nothing to go back to")

	// A revert leaves its substitute among those to go back to: a rollback is not to activate what is in force.
	worked()
	swap("x")
	worked()
	swap("bad")
	for range 3 {
		require.Zero(t, s.applyStrategyOutcome(&protocol.StrategyOutcome{Type: "t", Seq: g.seq, Failure: "trap"}).Code)
	}
	v, _ := s.Strategy("t")
	require.Equal(t, "x", v.Spec.Source)
	require.Equal(t, "b", v.Previous.Source)
	require.Zero(t, back().Code)
	v, _ = s.Strategy("t")
	assert.Equal(t, "b", v.Spec.Source)
	assert.Empty(t, v.Failure, "what an operator has chosen is nobody's substitute")
	assert.False(t, v.HasPrevious)
}

// Spec 1.4: a server that votes has every module that the cluster may need at once, each counted once.
func TestModules(t *testing.T) {
	s := &State{}
	assert.Empty(t, s.Modules())
	for _, n := range []sharding.TypeName{"t", "u"} {
		s.types = append(s.types, &typeState{name: n, strategy: strategyState{seq: 5, spec: specOf("a"), good: []protocol.StrategySpec{specOf("c"), specOf("b"), fallbackSpec},
			shadow: shadowState{seq: 1, spec: specOf("d")}, reverted: specOf("failed")}})
	}
	want := [][32]byte{specOf("a").Digest, specOf("b").Digest, specOf("c").Digest, specOf("d").Digest}
	assert.Equal(t, want, s.Modules())
}

// ADR 2: what a snapshot does not have is left out, so that one of a cluster that never had a shadow is as it always was; and such a one loads.
func TestSnapshotWithoutAShadow(t *testing.T) {
	s := NewState(Mutations{})
	for i, e := range []*protocol.Entry{
		{Kind: protocol.KindCreateCluster, CreateCluster: &protocol.CreateCluster{ClusterID: inc(9), Settings: protocol.Settings{LeaseTTL: 5000}}},
		{Kind: protocol.KindRegister, Register: &protocol.RegisterNode{Member: who("a"), Regions: []protocol.RegionInfo{{Type: "t", NumShards: 2, Hosts: true}}}},
		{Kind: protocol.KindSetStrategy, SetStrategy: &protocol.SetStrategy{Type: "t", Spec: specOf("a")}},
	} {
		require.Zero(t, s.Apply(uint64(i+1), 0, e).Code)
	}
	b := snapshotOf(t, s)
	var form struct {
		Types []struct {
			Strategy map[int]cbor.RawMessage `cbor:"19,keyasint"`
		} `cbor:"16,keyasint"`
	}
	require.NoError(t, cbor.Unmarshal(b, &form))
	require.Len(t, form.Types, 1)
	require.Contains(t, form.Types[0].Strategy, 6)
	require.NotContains(t, form.Types[0].Strategy, 7)
	again := NewState(Mutations{})
	require.NoError(t, again.Restore(b))
	v, _ := again.Strategy("t")
	assert.Equal(t, ShadowView{}, v.Shadow)

	require.Zero(t, s.Apply(4, 0, &protocol.Entry{Kind: protocol.KindSetShadow, Now: 77, SetShadow: &protocol.SetShadow{Type: "t", Spec: specOf("b"), Expect: 1}}).Code)
	require.NoError(t, again.Restore(snapshotOf(t, s)))
	v, _ = again.Strategy("t")
	assert.Equal(t, ShadowView{Seq: 1, Spec: specOf("b"), Set: 77}, v.Shadow)
}
