package sharding

import (
	"context"
	"errors"
	"fmt"
)

// MapChange is the shard map of one type as a node knows it (spec 2.5). It tells a state and not a step: changes may have been left out.
type MapChange struct {
	Type      TypeName
	Revision  Revision // strictly increasing within a subscription
	NumShards uint32   // 0: the cluster has no such type yet
	Shards    []ShardHome
	Regions   []RegionCount
}

// ShardHome is where a shard is. Shards without a home are absent.
type ShardHome struct {
	Shard ShardID
	Owner Member
	Epoch Epoch
	State string // homed, moving or waiting, as over HTTP
}

// RegionCount is a node's region of a type, with the shards that it owns.
type RegionCount struct {
	Member Member
	Proxy  bool // routes and hosts nothing
	Shards int
}

// ShardStats is what a shard holds on the node that serves it.
type ShardStats struct {
	Shard    ShardID
	Owner    Member
	Epoch    Epoch
	Resident bool     // it runs there now
	Entities int      // in memory
	IDs      []string // of those, sorted; at most MaxStatsIDs
}

// MaxStatsIDs bounds ShardStats.IDs.
const MaxStatsIDs = 10_000

// ErrShard says that a shard number is out of range, or that an entity is of another shard.
var ErrShard = errors.New("no such shard")

// CheckShard returns an error that wraps ErrShard and names the range, or nil.
func CheckShard(t TypeName, s ShardID, numShards uint32) error {
	if uint32(s) >= numShards {
		return fmt.Errorf("%w: %s has the shards 0 to %d, not %d", ErrShard, t, int64(numShards)-1, s)
	}
	return nil
}

// ShardSystem is what a ShardRef needs of a node; *node.Node is one.
type ShardSystem interface {
	System
	// NumShards gives a type's number of shards. Errors: ErrNoType, ErrUnavailable (this node cannot tell yet).
	NumShards(t TypeName) (uint32, error)
	// WakeShard places a shard if it has no home, and returns at once.
	WakeShard(t TypeName, s ShardID) error
	// ShardStats asks the shard's owner what it holds.
	ShardStats(ctx context.Context, t TypeName, s ShardID) (ShardStats, error)
}

// ShardRef is bound to one shard. It survives passivation and moves: it keeps no place, only the number.
type ShardRef struct {
	system    ShardSystem
	name      TypeName
	shard     ShardID
	numShards uint32
}

// ShardRefOf takes a ref to a shard by number, and places the shard if it has no home. Errors: ErrNoType, ErrUnavailable, ErrShard.
func ShardRefOf(s ShardSystem, t TypeName, shard ShardID) (ShardRef, error) {
	n, err := s.NumShards(t)
	if err == nil {
		err = CheckShard(t, shard, n)
	}
	if err == nil {
		err = s.WakeShard(t, shard)
	}
	if err != nil {
		return ShardRef{}, err
	}
	return ShardRef{system: s, name: t, shard: shard, numShards: n}, nil
}

// ShardRefOfEntity takes a ref to the shard that an entity belongs to. Errors: ErrEntityID too.
func ShardRefOfEntity(s ShardSystem, t TypeName, id string) (ShardRef, error) {
	if err := CheckEntityID(id); err != nil {
		return ShardRef{}, err
	}
	n, err := s.NumShards(t)
	if err != nil {
		return ShardRef{}, err
	}
	return ShardRefOf(s, t, ShardOf(id, n))
}

// Type gives the shard's type; Shard its number.
func (r ShardRef) Type() TypeName { return r.name }
func (r ShardRef) Shard() ShardID { return r.shard }

// Envelope is a message with the entity that it is for. The payload begins with a Format.
type Envelope struct {
	Entity  string
	Payload []byte
}

// Ask sends an envelope into the shard and waits for the answer. An entity of another shard is ErrShard.
func (r ShardRef) Ask(ctx context.Context, e Envelope) ([]byte, error) {
	if err := r.check(e.Entity); err != nil {
		return nil, err
	}
	return r.system.AskEntity(ctx, r.name, e.Entity, e.Payload)
}

// Tell sends an envelope into the shard and forgets it.
func (r ShardRef) Tell(e Envelope) error {
	if err := r.check(e.Entity); err != nil {
		return err
	}
	return r.system.TellEntity(r.name, e.Entity, e.Payload)
}

// StartEntity starts an entity of the shard.
func (r ShardRef) StartEntity(ctx context.Context, id string) error {
	if err := r.check(id); err != nil {
		return err
	}
	return r.system.StartEntity(ctx, r.name, id)
}

// Stats asks the shard's owner what it holds. A shard without a home, and an owner that does not answer, is ErrUnavailable.
func (r ShardRef) Stats(ctx context.Context) (ShardStats, error) {
	return r.system.ShardStats(ctx, r.name, r.shard)
}

func (r ShardRef) check(id string) error {
	if err := CheckEntityID(id); err != nil {
		return err
	}
	if got := ShardOf(id, r.numShards); got != r.shard {
		return fmt.Errorf("%w: entity %q is of shard %d, this ref is of shard %d", ErrShard, id, got, r.shard)
	}
	return nil
}
