package protocol

import "github.com/droverhq/drover/sharding"

// Kind numbers the bodies of an Entry. Numbers are never reused.
type Kind uint8

// The kinds of log entry. Gaps are left for the parts to come: 26 the abort of a move whose source has kept its state (spec 3.2; a handoff of
// memory has nothing to go back to), 40–59 migration, 60–69 standby, 70–79 remembered entities. The bodies' keys have gaps to match.
const (
	KindCreateCluster    Kind = 1
	KindConfigure        Kind = 2
	KindPutServer        Kind = 3
	KindRemoveServer     Kind = 4
	KindRegister         Kind = 10
	KindDeregister       Kind = 11
	KindGrantLeases      Kind = 12
	KindSetDrain         Kind = 13
	KindBeginPass        Kind = 20
	KindPlanMoves        Kind = 21
	KindAssignHomes      Kind = 22
	KindCompleteHandOff  Kind = 23
	KindFenceShards      Kind = 24
	KindReleaseShards    Kind = 25
	KindPinShard         Kind = 27
	KindSetPaused        Kind = 28
	KindSetStrategy      Kind = 30
	KindStrategyOutcome  Kind = 31
	KindReleaseHandovers Kind = 29
	KindSetShadow        Kind = 32
	KindPromote          Kind = 33
	KindRollback         Kind = 34
)

// Command identifies one request of one client, so that a retry is known (spec 2.4, 3.2).
type Command struct {
	Client sharding.Incarnation `cbor:"0,keyasint,omitzero"`
	Seq    uint64               `cbor:"1,keyasint,omitempty"`
}

// Entry is one entry of the replicated log. Exactly one body is set, the one that Kind names. An entry whose Term is not the term of
// the raft log entry that carries it was proposed by a coordinator that has been deposed since: it is refused when applied.
type Entry struct {
	V       uint8   `cbor:"0,keyasint"`
	Kind    Kind    `cbor:"1,keyasint"`
	Term    uint64  `cbor:"2,keyasint"`
	Now     int64   `cbor:"3,keyasint"` // ms since 1970 on the leader's clock; State.Now never goes back
	Command Command `cbor:"4,keyasint,omitzero"`

	CreateCluster    *CreateCluster    `cbor:"10,keyasint,omitempty"`
	Configure        *Configure        `cbor:"11,keyasint,omitempty"`
	PutServer        *PutServer        `cbor:"12,keyasint,omitempty"`
	RemoveServer     *RemoveServer     `cbor:"13,keyasint,omitempty"`
	Register         *RegisterNode     `cbor:"14,keyasint,omitempty"`
	Deregister       *Deregister       `cbor:"15,keyasint,omitempty"`
	GrantLeases      *GrantLeases      `cbor:"16,keyasint,omitempty"`
	SetDrain         *SetDrain         `cbor:"17,keyasint,omitempty"`
	BeginPass        *BeginPass        `cbor:"18,keyasint,omitempty"`
	PlanMoves        *PlanMoves        `cbor:"19,keyasint,omitempty"`
	AssignHomes      *AssignHomes      `cbor:"20,keyasint,omitempty"`
	CompleteHandOff  *CompleteHandOff  `cbor:"21,keyasint,omitempty"`
	FenceShards      *FenceShards      `cbor:"22,keyasint,omitempty"`
	ReleaseShards    *ReleaseShards    `cbor:"23,keyasint,omitempty"`
	PinShard         *PinShard         `cbor:"25,keyasint,omitempty"`
	SetPaused        *SetPaused        `cbor:"26,keyasint,omitempty"`
	SetStrategy      *SetStrategy      `cbor:"27,keyasint,omitempty"`
	StrategyOutcome  *StrategyOutcome  `cbor:"28,keyasint,omitempty"`
	ReleaseHandovers *ReleaseHandovers `cbor:"29,keyasint,omitempty"`
	SetShadow        *SetShadow        `cbor:"30,keyasint,omitempty"`
	Promote          *Promote          `cbor:"31,keyasint,omitempty"`
	Rollback         *Rollback         `cbor:"32,keyasint,omitempty"`
}

// CreateCluster is the first entry of a cluster's log.
type CreateCluster struct {
	ClusterID sharding.Incarnation `cbor:"0,keyasint"` // a UUID: the cluster's real identity (spec 2.1)
	Label     string               `cbor:"1,keyasint"`
	Settings  Settings             `cbor:"2,keyasint"`
	BaseEpoch sharding.Epoch       `cbor:"3,keyasint,omitempty"` // a recovered cluster starts above every epoch in the journals
}

// Settings are the cluster-wide times that take effect through the log.
type Settings struct {
	LeaseTTL int64 `cbor:"0,keyasint"` // ms, 1 to MaxLeaseTTL
}

// MaxLeaseTTL is the longest lease in ms: a day. A node takes no longer one, and a silent node's shards would have no home for as long.
const MaxLeaseTTL = 24 * 3600 * 1000

// Configure changes Settings. Leases granted under the longer TTL stay good for it: State keeps the longest TTL that may still run.
type Configure struct {
	Settings Settings `cbor:"0,keyasint"`
}

// PutServer records which node runs a raft server (its UUID from data_dir). RemoveServer takes it out, after raft's own change.
type PutServer struct {
	Server  sharding.Incarnation `cbor:"0,keyasint"`
	Member  sharding.Member      `cbor:"1,keyasint"`
	Address string               `cbor:"2,keyasint"`
}

// RemoveServer: see PutServer.
type RemoveServer struct {
	Server sharding.Incarnation `cbor:"0,keyasint"`
}

// NodeInfo is what a node says of itself when it registers; the strategy's input shows it (strategy.cddl, node).
type NodeInfo struct {
	Address  string            `cbor:"0,keyasint"` // transport address
	Roles    []string          `cbor:"1,keyasint,omitempty"`
	Zone     string            `cbor:"2,keyasint,omitempty"`
	Version  string            `cbor:"3,keyasint,omitempty"`
	Capacity uint64            `cbor:"4,keyasint,omitempty"`
	Tags     map[string]string `cbor:"5,keyasint,omitempty"`
	HTTP     string            `cbor:"6,keyasint,omitempty"`
	MinWire  uint8             `cbor:"7,keyasint,omitempty"` // oldest and newest protocol version that it reads
	MaxWire  uint8             `cbor:"8,keyasint,omitempty"`
	// Server is the node's raft server; zero: none. It counts only where the connection that brought it may be a coordinator's.
	Server sharding.Incarnation `cbor:"9,keyasint,omitzero"`
}

// RegionInfo is one type as a node knows it.
type RegionInfo struct {
	Type      sharding.TypeName `cbor:"0,keyasint"`
	NumShards uint32            `cbor:"1,keyasint"`
	Hosts     bool              `cbor:"2,keyasint,omitempty"` // false: proxy region
	Role      string            `cbor:"3,keyasint,omitempty"`
	Place     string            `cbor:"4,keyasint,omitempty"` // on_demand or eager
	Expect    uint32            `cbor:"5,keyasint,omitempty"` // eager: once this many nodes have registered
	Strategy  StrategySpec      `cbor:"6,keyasint,omitzero"`  // of the file: proposed only if the cluster has none for the type
}

// RegisterNode enters a member and its regions. The first registration of a type fixes its NumShards; a region with another number is
// refused, with both numbers (spec 2.1). A later registration of the same member replaces its regions.
type RegisterNode struct {
	Member  sharding.Member `cbor:"0,keyasint"`
	Info    NodeInfo        `cbor:"1,keyasint"`
	Regions []RegionInfo    `cbor:"2,keyasint"`
}

// Cause says why something was done; it is kept for explain and events.
type Cause string

// The causes.
const (
	CauseStopped    Cause = "stopped"    // the region said so
	CauseLapsed     Cause = "lapsed"     // its lease ran out
	CauseSuperseded Cause = "superseded" // its successor holds the data_dir lock, so the process is dead
	CauseTimeout    Cause = "timeout"    // handoff timed out
	CauseRebalance  Cause = "rebalance"
	CauseContact    Cause = "contact" // first message or ShardRef
	CauseEager      Cause = "eager"
	CauseDrain      Cause = "drain"
	CauseOperator   Cause = "operator"
	CauseFile       Cause = "file"
	CauseSwap       Cause = "swap"
	CausePromote    Cause = "promote"
	CauseRollback   Cause = "rollback"
	CauseMembership Cause = "membership"
	CauseInterval   Cause = "interval"
)

// Deregister ends regions of a member: all of them (Types empty: the member is gone) or some. Its shards lose their home at once: the
// proposer has made sure that no lease covers them any more, or that the region has stopped.
type Deregister struct {
	Member sharding.Member     `cbor:"0,keyasint"`
	Types  []sharding.TypeName `cbor:"1,keyasint,omitempty"`
	Cause  Cause               `cbor:"2,keyasint"`
}

// GrantLeases is appended after the renewals of Members came in; once it has committed they are acknowledged with the map revision at
// that point. It changes nothing but State.LongestTTL.
type GrantLeases struct {
	Members []sharding.Member `cbor:"0,keyasint"`
	TTL     int64             `cbor:"1,keyasint"` // ms
}

// SetDrain starts or ends draining a member: no candidate, its shards move away.
type SetDrain struct {
	Member sharding.Member `cbor:"0,keyasint"`
	On     bool            `cbor:"1,keyasint"`
}

// BeginPass opens a rebalance pass of a type. Its index in the log is the pass's id; Seed and the entry's Now are what the strategy sees.
type BeginPass struct {
	Type  sharding.TypeName `cbor:"0,keyasint"`
	Seed  uint64            `cbor:"1,keyasint"`
	Cause Cause             `cbor:"2,keyasint"`
}

// Decision ties an effect to the strategy call that asked for it.
type Decision struct {
	Digest  [32]byte `cbor:"0,keyasint,omitzero"`  // module; zero: the built-in fallback or no strategy
	Seq     uint64   `cbor:"1,keyasint,omitempty"` // Strategy.Seq in force when asked
	Pass    uint64   `cbor:"2,keyasint,omitempty"` // index of BeginPass; 0 for allocate
	Record  [32]byte `cbor:"3,keyasint,omitzero"`  // digest of the input, to find the record
	Cause   Cause    `cbor:"4,keyasint,omitempty"`
	Reason  string   `cbor:"5,keyasint,omitempty"`
	Verdict string   `cbor:"6,keyasint,omitempty"` // ok, or why the fallback decided
}

// PlanMoves starts handoffs. Each move is checked again when applied, alone: a stale one is dropped, the others stand.
type PlanMoves struct {
	Type     sharding.TypeName `cbor:"0,keyasint"`
	Decision Decision          `cbor:"1,keyasint"`
	Moves    []Move            `cbor:"2,keyasint"`
}

// Move is one planned handoff.
type Move struct {
	Shard  sharding.ShardID `cbor:"0,keyasint"`
	From   sharding.Member  `cbor:"1,keyasint"`
	Epoch  sharding.Epoch   `cbor:"2,keyasint"`          // the owner's, as planned on
	Target sharding.Member  `cbor:"3,keyasint,omitzero"` // zero: allocate decides once the shard is free
	Reason string           `cbor:"4,keyasint,omitempty"`
}

// AssignHomes gives homes to shards that have none. Each is checked again when applied, alone.
type AssignHomes struct {
	Type     sharding.TypeName `cbor:"0,keyasint"`
	Decision Decision          `cbor:"1,keyasint"`
	Homes    []Home            `cbor:"2,keyasint"`
}

// Home is one assignment.
type Home struct {
	Shard  sharding.ShardID `cbor:"0,keyasint"`
	Epoch  sharding.Epoch   `cbor:"1,keyasint"` // the shard's last epoch as planned on; the grant carries a higher one
	Owner  sharding.Member  `cbor:"2,keyasint"`
	Reason string           `cbor:"3,keyasint,omitempty"`
}

// SenderSeq is the last number that a shard's owner has accepted from one sender (spec 2.3).
type SenderSeq struct {
	Sender sharding.Member `cbor:"0,keyasint"`
	Seq    uint64          `cbor:"1,keyasint"`
}

// CompleteHandOff follows the source's HandOffComplete: the shard goes to its target under a new epoch, or is free where the target is
// no longer fit. Senders is kept in State until the next owner has been told.
type CompleteHandOff struct {
	Type    sharding.TypeName `cbor:"0,keyasint"`
	Shard   sharding.ShardID  `cbor:"1,keyasint"`
	Epoch   sharding.Epoch    `cbor:"2,keyasint"`
	From    sharding.Member   `cbor:"3,keyasint"`
	Senders []SenderSeq       `cbor:"4,keyasint,omitempty"`
}

// ShardEpoch names one generation of a shard.
type ShardEpoch struct {
	Shard sharding.ShardID `cbor:"0,keyasint"`
	Epoch sharding.Epoch   `cbor:"1,keyasint"`
}

// FenceShards takes shards out of what the owner's lease covers, from this entry's index on; they keep their owner, who may no longer
// serve, until ReleaseShards.
type FenceShards struct {
	Type   sharding.TypeName `cbor:"0,keyasint"`
	Shards []ShardEpoch      `cbor:"1,keyasint"`
	Cause  Cause             `cbor:"2,keyasint"`
}

// ReleaseShards leaves fenced shards without a home: the owner has stopped, or the last lease that covered them has lapsed.
type ReleaseShards struct {
	Type   sharding.TypeName `cbor:"0,keyasint"`
	Shards []ShardEpoch      `cbor:"1,keyasint"`
	Cause  Cause             `cbor:"2,keyasint"`
}

// ReleaseHandovers forgets the Senders of shards whose owner has confirmed StartShard.
type ReleaseHandovers struct {
	Type   sharding.TypeName `cbor:"0,keyasint"`
	Shards []ShardEpoch      `cbor:"1,keyasint"`
}

// PinShard keeps a shard on a node (by name); the empty name lifts the pin.
type PinShard struct {
	Type  sharding.TypeName `cbor:"0,keyasint"`
	Shard sharding.ShardID  `cbor:"1,keyasint"`
	Node  sharding.NodeID   `cbor:"2,keyasint,omitempty"`
}

// SetPaused pauses or resumes all rebalancing.
type SetPaused struct {
	On bool `cbor:"0,keyasint"`
}

// StrategySpec is a strategy with all that its decisions depend on.
type StrategySpec struct {
	Digest      [32]byte `cbor:"0,keyasint,omitzero"`  // sha256 of the module
	Source      string   `cbor:"1,keyasint,omitempty"` // builtin:NAME, file name or sha256:…, for people
	Config      []byte   `cbor:"2,keyasint,omitempty"` // [type.config] as CBOR
	Fuel        uint64   `cbor:"3,keyasint,omitempty"`
	Budget      int64    `cbor:"4,keyasint,omitempty"` // ms
	Memory      uint64   `cbor:"5,keyasint,omitempty"` // bytes
	MaxFailures uint32   `cbor:"6,keyasint,omitempty"`
	MovesPass   uint32   `cbor:"7,keyasint,omitempty"` // moves_per_pass: the host's own cap
}

// SetStrategy activates a strategy for a type, if the present one is still Expect (its Seq; 0: none).
type SetStrategy struct {
	Type   sharding.TypeName `cbor:"0,keyasint"`
	Spec   StrategySpec      `cbor:"1,keyasint"`
	Expect uint64            `cbor:"2,keyasint"`
	Cause  Cause             `cbor:"3,keyasint"`
}

// StrategyOutcome counts how strategy Seq of a type fared. With the last of MaxFailures failures in a row the strategy that worked before
// it is in force again, as soon as the entry is applied.
type StrategyOutcome struct {
	Type    sharding.TypeName `cbor:"0,keyasint"`
	Seq     uint64            `cbor:"1,keyasint"`
	Failure string            `cbor:"2,keyasint,omitempty"` // empty: it worked
}

// SetShadow runs a strategy beside the one in force of a type, without effect (spec 1.4), if the strategy in force is still Expect and the shadow
// still Shadow (its Seq; 0: there never was one). A Spec without a module ends the shadow.
type SetShadow struct {
	Type   sharding.TypeName `cbor:"0,keyasint"`
	Spec   StrategySpec      `cbor:"1,keyasint"`
	Expect uint64            `cbor:"2,keyasint"`
	Shadow uint64            `cbor:"3,keyasint"`
	Cause  Cause             `cbor:"4,keyasint"`
}

// Promote activates the shadow of a type and ends it as a shadow, if the strategy in force is still Expect and the shadow still Shadow.
type Promote struct {
	Type   sharding.TypeName `cbor:"0,keyasint"`
	Expect uint64            `cbor:"1,keyasint"`
	Shadow uint64            `cbor:"2,keyasint"`
}

// Rollback activates the strategy that worked before the one in force, if that is still Expect. What it goes back from is not gone back to.
type Rollback struct {
	Type   sharding.TypeName `cbor:"0,keyasint"`
	Expect uint64            `cbor:"1,keyasint"`
}
