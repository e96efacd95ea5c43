package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/config"
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
