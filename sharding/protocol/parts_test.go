package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

// A map of any size reaches a node: its parts hold everything once, and each fits into the 8 MiB that the transport carries, names of any length.
func TestPartsOfAMap(t *testing.T) {
	owner := sharding.Member{Node: sharding.NodeID(strings.Repeat("n", MaxName)), Incarnation: sharding.NewIncarnation()}
	u := &ShardMapUpdate{Term: 3, From: sharding.Revision{Term: 1, Index: 2}, To: sharding.Revision{Term: 3, Index: 4}, Members: []MemberRecord{{Member: owner}}, Gone: []sharding.Member{owner}}
	for _, d := range []TypeDelta{{Type: "none", NumShards: 1}, {Type: "large", NumShards: 30_000}, {Type: "exact", NumShards: 8192}, {Type: "small", NumShards: 3}} {
		for i := range d.NumShards {
			if d.Type != "none" {
				d.Shards = append(d.Shards, ShardRecord{Shard: sharding.ShardID(i), State: Moving, Owner: owner, Epoch: 1 << 63, Granted: 1 << 63, Target: owner, Source: owner, Chain: 1 << 63})
			}
		}
		u.Types = append(u.Types, d)
	}
	parts := u.Parts(8192)
	require.Len(t, parts, 5)
	got := map[sharding.TypeName]int{}
	for n, p := range parts {
		assert.Equal(t, uint32(n), p.Part)
		assert.Equal(t, n < len(parts)-1, p.More)
		assert.Equal(t, [2]sharding.Revision{u.From, u.To}, [2]sharding.Revision{p.From, p.To})
		assert.Equal(t, n == 0, len(p.Members) == 1 && len(p.Gone) == 1)
		frame, err := AppendFrame(nil, p)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(frame), 8<<20)
		for _, d := range p.Types {
			for i, r := range d.Shards {
				assert.Equal(t, sharding.ShardID(got[d.Type]+i), r.Shard)
			}
			got[d.Type] += len(d.Shards)
		}
	}
	assert.Equal(t, map[sharding.TypeName]int{"none": 0, "large": 30_000, "exact": 8192, "small": 3}, got)
	assert.Equal(t, []*ShardMapUpdate{u}, u.Parts(1<<20), "one part is the update itself")
}
