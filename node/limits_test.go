package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
	"github.com/droverhq/drover/internal/httpapi"
	"github.com/droverhq/drover/internal/transport"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Spec 5.1: whatever http.max_body lets in can be sent to any node. A message that the transport would refuse is "try again" for ever, and one that
// only its own node could have would be lost when its shard moves.
func TestEveryLegalMessageFitsIntoAFrame(t *testing.T) {
	longest := make([]byte, 255)
	for i := range longest {
		longest[i] = 'x'
	}
	m := sharding.Member{Node: sharding.NodeID(longest), Incarnation: sharding.Incarnation{1}}
	frame, err := protocol.AppendFrame(nil, &protocol.Deliver{Type: sharding.TypeName(longest), Shard: 1 << 31, Epoch: 1 << 63, Sender: m, Seq: 1 << 63, Hops: protocol.MaxHops,
		Mode: protocol.Ask, Ask: 1 << 63, Deadline: 1 << 62, Held: 1 << 31, Command: protocol.Command{Client: sharding.Incarnation{1}, Seq: 1 << 63},
		Entity: string(make([]byte, sharding.MaxEntityID)), Payload: make([]byte, protocol.MaxPayload)})
	require.NoError(t, err)
	assert.LessOrEqual(t, len(frame), transport.MaxFrame)

	cfg := config.Default()
	cfg.Name, cfg.HTTP.MaxBody = "a", protocol.MaxPayload
	assert.ErrorContains(t, cfg.Validate(nil), "http.max_body", "with the byte that names its format it would be too large")
	cfg.HTTP.MaxBody = 4 * config.MiB
	assert.NoError(t, cfg.Validate(nil))
}

// Spec 5.3, 5.4: what an operator mistypes is named for what it is, from any node, and changes nothing.
func TestMistypedOrders(t *testing.T) {
	f := newFleet(t)
	f.start(f.config("a"))
	f.settled()
	op := api{f.start(f.config("b")).Node}
	f.settled()
	kindOf := func(err error) httpapi.Kind {
		var p *httpapi.Problem
		require.ErrorAs(t, err, &p)
		return p.Kind
	}
	assert.Equal(t, httpapi.KindUnknownShard, kindOf(op.MoveShard(t.Context(), "ledger", 100_000, "a")))
	assert.Equal(t, httpapi.KindUnknownShard, kindOf(op.PinShard(t.Context(), "ledger", 100_000, "a")))
	assert.Equal(t, httpapi.KindUnknownShard, kindOf(op.PinShard(t.Context(), "ledger", 100_000, "")))
	_, err := op.Explain(t.Context(), "ledger", 100_000)
	assert.Equal(t, httpapi.KindUnknownShard, kindOf(err))
	assert.Equal(t, httpapi.KindUnknownType, kindOf(op.MoveShard(t.Context(), "leger", 1, "a")))
	assert.Equal(t, httpapi.KindUnknownNode, kindOf(op.MoveShard(t.Context(), "ledger", 1, "z")))
	assert.Equal(t, httpapi.KindUnknownNode, kindOf(op.PinShard(t.Context(), "ledger", 1, "z")))
	assert.Equal(t, httpapi.KindUnknownNode, kindOf(op.Drain(t.Context(), "z", true)))
	assert.Equal(t, httpapi.KindUnknownNode, kindOf(op.Forget(t.Context(), "z")))
	assert.Equal(t, httpapi.KindConflict, kindOf(op.Forget(t.Context(), "a")))

	v, err := op.Explain(t.Context(), "ledger", 1)
	require.NoError(t, err)
	assert.Empty(t, v.Pinned)
	require.NoError(t, op.PinShard(t.Context(), "ledger", 1, "a"))
	v, err = op.Explain(t.Context(), "ledger", 1)
	require.NoError(t, err)
	assert.Equal(t, "a", string(v.Pinned))
}
