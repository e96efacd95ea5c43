package protocol

import "github.com/droverhq/drover/sharding"

// Control messages, node to coordinator. The sender is the authenticated peer, never a field. Each is sent as a frame of class control.

// Register opens or refreshes a node's session with the coordinator: sent at every change of leader or membership, and on a timer
// (spec 2.1). Owned is what its regions serve now.
type Register struct {
	Info       NodeInfo               `cbor:"0,keyasint"`
	Regions    []RegionInfo           `cbor:"1,keyasint"`
	Owned      []TypeShards           `cbor:"2,keyasint,omitempty"`
	Applied    sharding.Revision      `cbor:"3,keyasint,omitzero"` // map revision it has; the coordinator sends what is missing
	Supersedes []sharding.Incarnation `cbor:"4,keyasint,omitzero"` // earlier incarnations of this name, dead: their data_dir lock is held by this process
}

// TypeShards lists shard generations of one type.
type TypeShards struct {
	Type   sharding.TypeName `cbor:"0,keyasint"`
	Shards []ShardEpoch      `cbor:"1,keyasint"`
}

// Renew asks for the lease to be extended. SentAt is the sender's clock and comes back untouched.
type Renew struct {
	Seq     uint64            `cbor:"0,keyasint"`
	SentAt  sharding.Instant  `cbor:"1,keyasint"`
	Applied sharding.Revision `cbor:"2,keyasint"`
	Load    *NodeLoad         `cbor:"3,keyasint,omitempty"`
}

// NodeLoad is what a node reports of its load; units as in strategy.cddl. Nil: unknown.
type NodeLoad struct {
	CPU      *uint64     `cbor:"0,keyasint,omitempty"` // thousandths
	Mem      *uint64     `cbor:"1,keyasint,omitempty"`
	Entities *uint64     `cbor:"2,keyasint,omitempty"`
	Rate     *uint64     `cbor:"3,keyasint,omitempty"` // messages/s
	Depth    *uint64     `cbor:"4,keyasint,omitempty"`
	Disk     *uint64     `cbor:"5,keyasint,omitempty"`
	DiskFree *uint64     `cbor:"6,keyasint,omitempty"`
	Shards   []ShardLoad `cbor:"7,keyasint,omitempty"`
}

// ShardLoad is the load of one owned shard.
type ShardLoad struct {
	Type     sharding.TypeName `cbor:"0,keyasint"`
	Shard    sharding.ShardID  `cbor:"1,keyasint"`
	Entities uint32            `cbor:"2,keyasint"`
	Rate     uint32            `cbor:"3,keyasint"`
}

// Stopping says that regions stop (Types empty: all) and will be asked to hand nothing off: the node is ending at once. Drain asks for
// handoff of everything first.
type Stopping struct {
	Types []sharding.TypeName `cbor:"0,keyasint,omitempty"`
	Drain bool                `cbor:"1,keyasint,omitempty"`
}

// GetShardHome asks for homes; shards without one are placed (spec 2.2).
type GetShardHome struct {
	Type   sharding.TypeName  `cbor:"0,keyasint"`
	Shards []sharding.ShardID `cbor:"1,keyasint"`
}

// HandOffComplete says that every Stop of the shard has ended and is durable.
type HandOffComplete struct {
	Type    sharding.TypeName `cbor:"0,keyasint"`
	Shard   sharding.ShardID  `cbor:"1,keyasint"`
	Epoch   sharding.Epoch    `cbor:"2,keyasint"`
	Senders []SenderSeq       `cbor:"3,keyasint,omitempty"`
}

// HandOffRefused answers a repeated or foreign HandOff at once with what the region knows (spec 2.1).
type HandOffRefused struct {
	Type  sharding.TypeName `cbor:"0,keyasint"`
	Shard sharding.ShardID  `cbor:"1,keyasint"`
	Asked sharding.Epoch    `cbor:"2,keyasint"`
	Owner sharding.Member   `cbor:"3,keyasint,omitzero"`
	Epoch sharding.Epoch    `cbor:"4,keyasint,omitempty"`
}

// ShardsStopped says that the region serves these generations no more and never will.
type ShardsStopped struct {
	Type   sharding.TypeName `cbor:"0,keyasint"`
	Shards []ShardEpoch      `cbor:"1,keyasint"`
}

// ShardStarted confirms StartShard.
type ShardStarted struct {
	Type   sharding.TypeName `cbor:"0,keyasint"`
	Shards []ShardEpoch      `cbor:"1,keyasint"`
}

// Directives, coordinator to node. Term is the coordinator's; who may order is judged by the session (spec 2.1).

// RegisterAck answers Register.
type RegisterAck struct {
	Term      uint64               `cbor:"0,keyasint"`
	ClusterID sharding.Incarnation `cbor:"1,keyasint"`
	Revision  sharding.Revision    `cbor:"2,keyasint"`
	LeaseTTL  int64                `cbor:"3,keyasint"` // ms
	Refused   []Refusal            `cbor:"4,keyasint,omitempty"`
}

// Refusal says why a region was not registered.
type Refusal struct {
	Type   sharding.TypeName `cbor:"0,keyasint"`
	Code   string            `cbor:"1,keyasint"` // num_shards, wire_version, superseded, too_large, cluster
	Detail string            `cbor:"2,keyasint"`
}

// LeaseAck extends the lease to SentAt + TTL on the receiver's own clock, for every (shard, epoch) that it owned at Revision. For a
// Revision that the receiver has not applied it extends nothing.
type LeaseAck struct {
	Term     uint64            `cbor:"0,keyasint"`
	Seq      uint64            `cbor:"1,keyasint"`
	SentAt   sharding.Instant  `cbor:"2,keyasint"`
	Revision sharding.Revision `cbor:"3,keyasint"`
	TTL      int64             `cbor:"4,keyasint"` // ms
}

// ShardMapUpdate brings the map from revision From to To; with Full it replaces what is there (From is zero). Strictly increasing.
type ShardMapUpdate struct {
	Term    uint64            `cbor:"0,keyasint"`
	From    sharding.Revision `cbor:"1,keyasint,omitzero"`
	To      sharding.Revision `cbor:"2,keyasint"`
	Full    bool              `cbor:"3,keyasint,omitempty"`
	Types   []TypeDelta       `cbor:"4,keyasint,omitempty"`
	Members []MemberRecord    `cbor:"5,keyasint,omitempty"` // added or changed; with Full all
	Gone    []sharding.Member `cbor:"6,keyasint,omitzero"`
	// One that is too large for a frame is sent in parts, numbered from 0: More says that another one follows. It counts once all are there.
	Part uint32 `cbor:"7,keyasint,omitempty"`
	More bool   `cbor:"8,keyasint,omitempty"`
}

// Parts cuts the update into parts of at most that many shards. The members are in the first.
func (m *ShardMapUpdate) Parts(shards int) []*ShardMapUpdate {
	first := *m
	first.Types = nil
	parts, room := []*ShardMapUpdate{&first}, shards
	for _, t := range m.Types {
		for left := t.Shards; ; {
			if room == 0 {
				last := parts[len(parts)-1]
				last.More = true
				parts, room = append(parts, &ShardMapUpdate{Term: m.Term, From: m.From, To: m.To, Full: m.Full, Part: last.Part + 1}), shards
			}
			n := min(room, len(left))
			last := parts[len(parts)-1]
			last.Types = append(last.Types, TypeDelta{Type: t.Type, NumShards: t.NumShards, Shards: left[:n:n]})
			left, room = left[n:], room-n
			if len(left) == 0 {
				break
			}
		}
	}
	return parts
}

// MemberRecord is a registered member as the map tells it.
type MemberRecord struct {
	Member   sharding.Member     `cbor:"0,keyasint"`
	Info     NodeInfo            `cbor:"1,keyasint"`
	Draining bool                `cbor:"2,keyasint,omitempty"`
	Hosts    []sharding.TypeName `cbor:"3,keyasint,omitempty"`
	Proxies  []sharding.TypeName `cbor:"4,keyasint,omitempty"`
}

// TypeDelta is the change of one type.
type TypeDelta struct {
	Type      sharding.TypeName `cbor:"0,keyasint"`
	NumShards uint32            `cbor:"1,keyasint"`
	Shards    []ShardRecord     `cbor:"2,keyasint,omitempty"`
}

// ShardState is what a shard is doing, as GET /cluster/shards shows it (spec 5.4).
type ShardState uint8

// The states.
const (
	Unassigned ShardState = 0 // no home
	Homed      ShardState = 1
	Moving     ShardState = 2 // handoff under way; Owner is the source
	Fenced     ShardState = 3 // taken out of the owner's lease, not released yet; shown as moving
	Waiting    ShardState = 4 // its state is on a store that is away
)

// String gives the name that HTTP uses.
func (s ShardState) String() string {
	switch s {
	case Unassigned:
		return "unassigned"
	case Homed:
		return "homed"
	case Moving, Fenced:
		return "moving"
	case Waiting:
		return "waiting"
	}
	return "unknown"
}

// ShardRecord is one shard of the map.
type ShardRecord struct {
	Shard   sharding.ShardID `cbor:"0,keyasint"`
	State   ShardState       `cbor:"1,keyasint"`
	Owner   sharding.Member  `cbor:"2,keyasint,omitzero"`
	Epoch   sharding.Epoch   `cbor:"3,keyasint"`
	Granted uint64           `cbor:"4,keyasint"`          // index of the entry that granted Epoch: covered by acks of that revision or later
	Target  sharding.Member  `cbor:"5,keyasint,omitzero"` // while moving, if known
	Source  sharding.Member  `cbor:"6,keyasint,omitzero"` // who had it before, and forwards
	// Chain is the first epoch of the unbroken chain of handoffs that led to Epoch: since then each owner was told the last numbers of the
	// one before. What was sent to an owner further back than the one before Chain may be behind what others have begun (I12).
	Chain sharding.Epoch `cbor:"7,keyasint,omitempty"`
}

// ShardHome answers GetShardHome. It is also told by the map; whichever comes first counts.
type ShardHome struct {
	Term  uint64            `cbor:"0,keyasint"`
	Type  sharding.TypeName `cbor:"1,keyasint"`
	Shard ShardRecord       `cbor:"2,keyasint"`
}

// StartShard tells the new owner of a granted shard, with what the source handed over. It is repeated until ShardStarted.
type StartShard struct {
	Term    uint64            `cbor:"0,keyasint"`
	Type    sharding.TypeName `cbor:"1,keyasint"`
	Shard   ShardRecord       `cbor:"2,keyasint"`
	Senders []SenderSeq       `cbor:"3,keyasint,omitempty"`
	Handed  bool              `cbor:"4,keyasint,omitempty"` // a handoff from Shard.Source preceded: hold each sender's direct messages
}

// HandOff orders the owner of (Shard, Epoch) to stop its entities and answer HandOffComplete.
type HandOff struct {
	Term  uint64            `cbor:"0,keyasint"`
	Type  sharding.TypeName `cbor:"1,keyasint"`
	Shard sharding.ShardID  `cbor:"2,keyasint"`
	Epoch sharding.Epoch    `cbor:"3,keyasint"`
}

// KillShard orders a source whose handoff timed out to drop what is left of (Shard, Epoch); answered by ShardsStopped.
type KillShard struct {
	Term  uint64            `cbor:"0,keyasint"`
	Type  sharding.TypeName `cbor:"1,keyasint"`
	Shard sharding.ShardID  `cbor:"2,keyasint"`
	Epoch sharding.Epoch    `cbor:"3,keyasint"`
}

// Leading is sent by a leader to every node that it knows of once its barrier has passed, so that they register.
type Leading struct {
	Term uint64 `cbor:"0,keyasint"`
}
