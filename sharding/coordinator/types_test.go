package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// 200 types on three nodes: each gets its strategy, its homes and its passes by itself; a node's death and a change of leader concern all of them at
// once, and after both each shard has a home on a live node, those of the living unmoved (spec 2.2, 2.6).
func TestManyTypes(t *testing.T) {
	const types, shards = 200, 3
	var out strings.Builder
	w := newWorld(&out)
	w.violate = func(format string, args ...any) { t.Fatalf(format, args...) }
	w.servers = []string{"x", "y"}
	for i, s := range w.servers {
		w.machines[s] = New(Config{Self: who(s), Seed: uint64(i)})
	}
	elect := func(s string) {
		if w.leader != "" {
			w.step(w.leader, Deposed{})
		}
		w.leader, w.term = s, w.term+1
		w.step(s, Elected{Term: w.term})
	}
	elect("x")
	w.request(CreateCluster{Body: protocol.CreateCluster{ClusterID: inc(99), Label: "test", Settings: protocol.Settings{LeaseTTL: w.ttl.Milliseconds()}}})
	var regions []protocol.RegionInfo
	for i := range types {
		regions = append(regions, protocol.RegionInfo{Type: sharding.TypeName(fmt.Sprintf("type-%03d", (i*7)%types)), NumShards: shards, Hosts: true, Strategy: specOf("hash")})
	}
	for _, n := range []string{"a", "b", "c"} {
		node := newFakeNode(who(n))
		node.regions = regions
		w.nodes[who(n)] = node
		w.register(node, nil)
	}
	w.pass(1200 * time.Millisecond)
	for _, g := range regions {
		w.toLeader(Received{From: who("b"), Message: &protocol.GetShardHome{Type: g.Type, Shards: []sharding.ShardID{0, 1, 2}}})
	}
	check := func(dead sharding.NodeID) {
		t.Helper()
		s := w.machines[w.leader].State()
		require.Len(t, s.Types(), types)
		for _, ty := range s.Types() {
			v, _ := s.Strategy(ty)
			require.Equal(t, "hash", v.Spec.Source)
			for _, r := range s.Shards(ty) {
				require.Equal(t, protocol.Homed, r.State, "%s %d", ty, r.Shard)
				require.NotEqual(t, dead, r.Owner.Node)
				if home := sharding.NodeID([]string{"a", "b", "c"}[r.Shard]); home != dead {
					require.Equal(t, home, r.Owner.Node)
					require.Equal(t, sharding.Epoch(1), r.Epoch)
				}
			}
		}
	}
	check("")
	quiet := len(w.log)
	w.pass(10 * time.Second)
	// A pass each interval and type, and the leases: nothing else is written while nothing happens.
	assert.LessOrEqual(t, len(w.log)-quiet, types*5+3*8)
	check("")
	elect("y")
	w.pass(3 * time.Second)
	check("")
	w.request(Pause{On: true}) // else hash moves the shards of the living
	w.nodes[who("c")].silent = true
	w.pass(6 * time.Second)
	check("c")
	w.same(t)
}
