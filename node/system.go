package node

import (
	"context"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/droverhq/drover/internal/dataplane"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// A node is a sharding.ShardSystem: Go programs send through it, with sharding.RegionOf, ShardRefOf and ShardRefOfEntity.
var _ sharding.ShardSystem = (*Node)(nil)

// running gives the data plane once the node runs; before that nothing can be sent.
func (n *Node) running() (*dataplane.Plane, error) {
	select {
	case <-n.ready:
		return n.data, nil
	default:
		return nil, fmt.Errorf("%w: the node does not run yet: wait for Options.Started", sharding.ErrUnavailable)
	}
}

// AskEntity implements sharding.System.
func (n *Node) AskEntity(ctx context.Context, t sharding.TypeName, id string, payload []byte) ([]byte, error) {
	data, err := n.running()
	if err != nil {
		return nil, err
	}
	return data.Ask(ctx, t, id, payload, protocol.Command{})
}

// TellEntity implements sharding.System.
func (n *Node) TellEntity(t sharding.TypeName, id string, payload []byte) error {
	data, err := n.running()
	if err != nil {
		return err
	}
	return data.Tell(t, id, payload, protocol.Command{})
}

// StartEntity implements sharding.System.
func (n *Node) StartEntity(ctx context.Context, t sharding.TypeName, id string) error {
	data, err := n.running()
	if err != nil {
		return err
	}
	return data.Start(ctx, t, id)
}

// NumShards implements sharding.ShardSystem.
func (n *Node) NumShards(t sharding.TypeName) (uint32, error) {
	data, err := n.running()
	if err != nil {
		return 0, err
	}
	return data.NumShards(t)
}

// WakeShard implements sharding.ShardSystem.
func (n *Node) WakeShard(t sharding.TypeName, s sharding.ShardID) error {
	data, err := n.running()
	if err != nil {
		return err
	}
	return data.Want(t, s)
}

// ShardMapChanged gives the shard map of a type: as it is now, and then each time this node has learned of a change (spec 2.5), until ctx ends or
// the node stops; then the channel is closed. Revisions are strictly increasing, across changes of leader too. A receiver that is slow misses
// revisions and gets the newest; nothing waits for it. Before the node runs the channel is closed at once.
func (n *Node) ShardMapChanged(ctx context.Context, t sharding.TypeName) <-chan sharding.MapChange {
	data, err := n.running()
	if err != nil {
		closed := make(chan sharding.MapChange)
		close(closed)
		return closed
	}
	return data.Watch(ctx, t)
}

// DeadLetter is a message that reached no entity. Its payload is not kept.
type DeadLetter = dataplane.DeadLetter

// DeadLetters gives the latest dead letters of this node, oldest first and at most 1 000, and how many there have been since the start.
func (n *Node) DeadLetters() (latest []DeadLetter, total uint64) {
	data, err := n.running()
	if err != nil {
		return nil, 0
	}
	return data.DeadLetters().List()
}

// shardHolds is what a node has of a shard. Entity ids are any bytes, so they are no CBOR text.
type shardHolds struct {
	Epoch    sharding.Epoch `cbor:"0,keyasint"` // 0: nothing runs
	Entities int            `cbor:"1,keyasint"`
	IDs      [][]byte       `cbor:"2,keyasint,omitempty"`
}

func (n *Node) holds(ts typeShard) (h shardHolds) {
	for _, s := range n.data.Stats(ts.Type) {
		if s.Shard != ts.Shard {
			continue
		}
		h.Epoch, h.Entities = s.Epoch, s.Entities
		ids := n.data.EntityIDs(ts.Type, ts.Shard)
		for _, id := range ids[:min(len(ids), sharding.MaxStatsIDs)] {
			h.IDs = append(h.IDs, []byte(id))
		}
	}
	return h
}

// ShardStats implements sharding.ShardSystem. It takes at most a second.
func (n *Node) ShardStats(ctx context.Context, t sharding.TypeName, s sharding.ShardID) (sharding.ShardStats, error) {
	data, err := n.running()
	if err != nil {
		return sharding.ShardStats{}, err
	}
	num, err := data.NumShards(t)
	if err == nil {
		err = sharding.CheckShard(t, s, num)
	}
	if err != nil {
		return sharding.ShardStats{}, err
	}
	home := data.Home(t, s)
	if home.Owner.IsZero() {
		return sharding.ShardStats{}, fmt.Errorf("%w: shard %d of %s has no home yet: send to it, or take a ShardRef, first", sharding.ErrUnavailable, s, t)
	}
	ctx, cancel := context.WithTimeout(ctx, statsPatience)
	defer cancel()
	body, err := cbor.Marshal(typeShard{t, s})
	if err != nil {
		return sharding.ShardStats{}, err
	}
	var h shardHolds
	answer, err := n.callMember(ctx, home.Owner, callShard, body)
	if err == nil {
		err = callDecoding.Unmarshal(answer, &h)
	}
	if err != nil {
		return sharding.ShardStats{}, fmt.Errorf("%w: %s, which has shard %d of %s, does not answer: %w", sharding.ErrUnavailable, home.Owner, s, t, err)
	}
	st := sharding.ShardStats{Shard: s, Owner: home.Owner, Epoch: h.Epoch, Resident: h.Epoch > 0, Entities: h.Entities}
	for _, id := range h.IDs {
		st.IDs = append(st.IDs, string(id))
	}
	return st, nil
}
