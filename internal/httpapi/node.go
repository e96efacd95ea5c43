package httpapi

import (
	"context"
	"encoding/json"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Node is what the handlers need of a node. Its methods are called from many goroutines at once. A method with a context returns when that ends.
//
// Errors: a *Problem says by its Kind which answer the client gets. Everything else is told apart by errors.Is: sharding.ErrUnavailable,
// ErrNoType, ErrBadMessage, ErrEntityID, *sharding.EntityError, and the context's errors. An error that is none of these is KindInternal:
// it is logged, and the client learns no more than that.
type Node interface {
	Entities
	Cluster
	Strategies
	Operator
	Observer
}

// Entities sends to entities.
type Entities interface {
	// Ask sends a message and waits for its answer; ctx has a deadline. The reply begins with its sharding.Format, like the payload.
	Ask(ctx context.Context, m Message) (reply []byte, err error)
	// Tell sends a message, at most once. An error says that it surely was not sent.
	Tell(m Message) error
}

// Message is a message for one entity. The payload begins with a sharding.Format.
type Message struct {
	Type    sharding.TypeName
	Entity  string // any 1 to sharding.MaxEntityID bytes
	Payload []byte
	Command protocol.Command // from Idempotency-Key; zero where the client gave none
}

// Cluster shows the cluster, as this node knows it.
type Cluster interface {
	// Members lists every member that Serf knows, by name.
	Members(ctx context.Context) (MembersView, error)
	// Leader gives the coordinator that this node follows; false: none now.
	Leader() (LeaderView, bool)
	// Shards shows the shards of a type that have a home, cluster-wide, by number (spec 2.5). A region that does not answer in time leaves
	// its shards with Entities nil and Stale set; that is no error. Without a type and with one type there is, it is that one's.
	Shards(ctx context.Context, t sharding.TypeName) (ShardsView, error)
	// Types lists the types that have a region here, hosting or proxy, in order.
	Types() []sharding.TypeName
	// Explain says why a shard is where it is.
	Explain(ctx context.Context, t sharding.TypeName, s sharding.ShardID) (ExplainView, error)
}

// Strategies shows and changes the strategies of the types.
type Strategies interface {
	// Strategies lists the types' strategies, by type.
	Strategies(ctx context.Context) (StrategiesView, error)
	// Swap activates a strategy (spec 1.4) and gives its entry once this node has applied it. A step that fails leaves the old one and is a
	// *Problem: KindRefusedStrategy with Findings, KindUnknownType, KindUnknownModule (no node has the digest), KindConflict, KindUnavailable.
	// With Shadow the strategy runs beside the active one, without effect.
	Swap(ctx context.Context, r SwapRequest) (SwapView, error)
	// Promote activates the shadow; where digest is not nil, only a shadow of that digest. Problems: KindConflict (there is none, another one, or the
	// strategy was changed meanwhile), KindUnknownType, KindUnknownModule, KindUnavailable. All of these give the type's new entry.
	Promote(ctx context.Context, t sharding.TypeName, digest *[32]byte) (StrategyView, error)
	// Rollback activates the strategy that worked before; where from is not nil, only from a strategy of that digest. Problems as of Promote.
	Rollback(ctx context.Context, t sharding.TypeName, from *[32]byte) (StrategyView, error)
	// EndShadow ends the shadow of a type; without one there is nothing to do.
	EndShadow(ctx context.Context, t sharding.TypeName) (StrategyView, error)
}

// Operator changes the cluster. A node that does not lead passes the request on to the one that does. Problems: KindUnknownNode,
// KindUnknownType, KindUnknownShard, KindConflict, KindUnavailable (no leader).
type Operator interface {
	// Drain begins (on) or ends a drain of a node; the empty name is this node. It returns once that is recorded, not when the node is empty.
	Drain(ctx context.Context, node sharding.NodeID, on bool) error
	// Leave removes this node from raft, and after the answer drains it, takes it out of Serf and ends its process. It returns once no raft server of
	// this node is left. Where the voters that would be left are no live majority it is KindConflict, and nothing is changed.
	Leave(ctx context.Context) error
	// Forget removes a dead node from raft and Serf; started again, it joins anew. A node that is up is KindConflict.
	Forget(ctx context.Context, node sharding.NodeID) error
	// Pause stops all rebalancing (on), or lets it go on.
	Pause(ctx context.Context, on bool) error
	// MoveShard hands a shard to a node, whatever the strategy thinks. It returns once the move is recorded.
	MoveShard(ctx context.Context, t sharding.TypeName, s sharding.ShardID, to sharding.NodeID) error
	// PinShard keeps a shard on a node; the empty node lifts the pin.
	PinShard(ctx context.Context, t sharding.TypeName, s sharding.ShardID, node sharding.NodeID) error
}

// Observer shows the state of this node.
type Observer interface {
	// Ready lists the conditions for serving, always the same ones in the same order.
	Ready() ReadyView
	// DeadLetters shows this node's dead letters, newest first.
	DeadLetters() DeadLettersView
	// Metrics gives this node's metrics.
	Metrics() prometheus.Gatherer
}

// MembersView is GET /cluster/members.
type MembersView struct {
	Members []MemberView `json:"members"`
	Paused  bool         `json:"paused"` // an operator has stopped all rebalancing
}

// MemberState is what a member is doing.
type MemberState string

// The states.
const (
	MemberJoining  MemberState = "joining" // in gossip, and not registered by the coordinator
	MemberUp       MemberState = "up"
	MemberDraining MemberState = "draining" // up, and its shards move away
	MemberFailed   MemberState = "failed"   // not heard of; it keeps its shards until its lease lapses
	MemberLeft     MemberState = "left"
)

func (s MemberState) String() string { return string(s) }

// MemberView is one member.
type MemberView struct {
	Name        sharding.NodeID      `json:"name"`
	Address     string               `json:"address"` // of the transport
	Incarnation sharding.Incarnation `json:"incarnation"`
	State       MemberState          `json:"state"`
	Roles       []string             `json:"roles"`
	Zone        string               `json:"zone"`
	Version     string               `json:"version"`
	Leader      bool                 `json:"leader"`
	Voter       bool                 `json:"voter"`  // counts for the majority that the cluster needs
	Shards      int                  `json:"shards"` // of all types
}

// LeaderView is GET /cluster/leader.
type LeaderView struct {
	Name    sharding.NodeID `json:"name"`
	Address string          `json:"address"` // of the transport
	Term    uint64          `json:"term"`
}

// ShardsView is GET /cluster/shards.
type ShardsView struct {
	Type      sharding.TypeName `json:"type"`
	Revision  sharding.Revision `json:"revision"`
	NumShards uint32            `json:"numShards"`
	Shards    []ShardView       `json:"shards"`  // by number; without those that have no home
	Regions   []RegionView      `json:"regions"` // by node
}

// ShardView is one shard. State is homed, moving or waiting (protocol.ShardState.String).
type ShardView struct {
	Shard       sharding.ShardID     `json:"shard"`
	Node        sharding.NodeID      `json:"node"`
	Incarnation sharding.Incarnation `json:"incarnation"`
	Epoch       sharding.Epoch       `json:"epoch"`
	State       string               `json:"state"`
	Entities    *int                 `json:"entities"` // live ones; nil: the region did not answer
	Resident    bool                 `json:"resident"` // the shard runs at its home; false: owned and asleep, or not known
	Local       bool                 `json:"local"`    // its home is the node that answers
	Stale       bool                 `json:"stale"`    // the region did not answer in time
}

// RegionView is one node's region of the type.
type RegionView struct {
	Node        sharding.NodeID      `json:"node"`
	Incarnation sharding.Incarnation `json:"incarnation"`
	Proxy       bool                 `json:"proxy"` // routes, and hosts nothing
	Shards      int                  `json:"shards"`
	Entities    *int                 `json:"entities"`
	Stale       bool                 `json:"stale"`
}

// StrategiesView is GET /cluster/strategies.
type StrategiesView struct {
	Strategies []StrategyView `json:"strategies"`
}

// StrategyState is how a type's strategy is doing.
type StrategyState string

// The states.
const (
	StrategyActive    StrategyState = "active"
	StrategyPreparing StrategyState = "preparing" // fetched and compiled at present; if that takes long, hash gives homes and nothing moves, unless it is a built-in one
	StrategyMissing   StrategyState = "missing"   // the module cannot be had; hash gives homes and nothing moves
	StrategyReverted  StrategyState = "reverted"  // the one before, back after max_failures of its successor
)

func (s StrategyState) String() string { return string(s) }

// StrategyView is one type's strategy. Calls, failures, fuel and time are those of the coordinator since it leads.
type StrategyView struct {
	Type     sharding.TypeName `json:"type"`
	Name     string            `json:"name"`   // what the module calls itself
	Digest   string            `json:"digest"` // sha256:…
	Source   string            `json:"source"` // builtin:NAME, a file name or sha256:…, for people
	State    StrategyState     `json:"state"`
	Calls    uint64            `json:"calls"`
	Failures uint64            `json:"failures"`
	Fuel     FuelView          `json:"fuel"`
	Time     TimeView          `json:"time"`
	Shadow   *ShadowView       `json:"shadow"`
	// Worked says that it has given a decision since it came into force.
	Worked bool `json:"worked"`
	// LastFailure is of it, or of the one that it is the substitute of; nil: none that the coordinator knows of.
	LastFailure *FailureView `json:"lastFailure"`
	// Previous is what a rollback goes back to; nil: nothing.
	Previous *PreviousView `json:"previous"`
}

// PreviousView is the strategy that worked before the present one.
type PreviousView struct {
	Digest string `json:"digest"`
	Source string `json:"source"`
}

// FailureView is a strategy's latest call that gave no decision.
type FailureView struct {
	Digest  string `json:"digest"` // of the strategy that failed
	Source  string `json:"source"`
	Verdict string `json:"verdict"` // trap, fuel, …; empty: a former coordinator's, of which the text is left
	Text    string `json:"text"`
}

// SwapView is the answer of a swap: the new strategy, and what is odd about it, which it was not refused for.
type SwapView struct {
	StrategyView
	Warnings []Finding `json:"warnings"`
}

// FuelView is in units of the cost model. Last and P99 are nil before the first call, and Last after a trap.
type FuelView struct {
	Last  *uint64 `json:"last"`
	P99   *uint64 `json:"p99"`
	Limit uint64  `json:"limit"`
}

// TimeView is in microseconds; nil before the first call.
type TimeView struct {
	Last *uint64 `json:"last"`
	P99  *uint64 `json:"p99"`
}

// ShadowState is how a shadow is doing at the coordinator.
type ShadowState string

// The states.
const (
	ShadowRunning   ShadowState = "running"
	ShadowPreparing ShadowState = "preparing" // fetched and compiled at present
	ShadowMissing   ShadowState = "missing"   // the module cannot be had
)

func (s ShadowState) String() string { return string(s) }

// ShadowView is a candidate that runs beside the active strategy without effect (spec 1.4). Every figure is the coordinator's own, of the questions that it
// has put since Since: another coordinator, or another active strategy, begins anew. What a strategy asks for and does not get it asks for again at each
// interval, and each time counts.
type ShadowView struct {
	Name        string          `json:"name"` // what the module calls itself
	Digest      string          `json:"digest"`
	Source      string          `json:"source"`
	State       ShadowState     `json:"state"`
	Set         string          `json:"set"`   // when it became the shadow; RFC 3339, UTC
	Since       *string         `json:"since"` // the first question of this comparison; nil: there was none yet
	Calls       uint64          `json:"calls"`
	Failures    uint64          `json:"failures"`
	Skipped     uint64          `json:"skipped"`  // questions that it was not asked: its last call was still under way, or its module not ready
	Compared    uint64          `json:"compared"` // questions that both answered
	Differed    uint64          `json:"differed"` // of these, answered otherwise
	Agreed      uint64          `json:"agreed"`   // of these, answered alike since they last differed
	Moves       BothCounts      `json:"moves"`    // asked for in all compared rebalances
	Fuel        FuelView        `json:"fuel"`
	Time        TimeView        `json:"time"`
	Last        *DifferenceView `json:"last"` // when they last differed; nil: they have not
	LastFailure *FailureView    `json:"lastFailure"`
}

// BothCounts is one number of each.
type BothCounts struct {
	Active uint64 `json:"active"`
	Shadow uint64 `json:"shadow"`
}

// DifferenceView is a question that the shadow answered otherwise: the moves of both; of an allocate, the homes that differ.
type DifferenceView struct {
	Op     string     `json:"op" oneOf:"allocate,rebalance"`
	At     string     `json:"at"`     // RFC 3339, UTC
	Counts BothCounts `json:"counts"` // how many each has; the lists hold at most 1 000
	Active []MoveView `json:"active"`
	Shadow []MoveView `json:"shadow"`
}

// MoveView is a move that a strategy asks for.
type MoveView struct {
	Shard  sharding.ShardID `json:"shard"`
	From   sharding.NodeID  `json:"from"` // empty: it has no home
	To     sharding.NodeID  `json:"to"`   // empty: it names none
	Reason string           `json:"reason"`
}

// SwapRequest asks for a strategy: Module, or Digest (where not nil) of one that the cluster has; with neither, the present module stays. Config and
// Limits that are nil keep the present ones.
type SwapRequest struct {
	Type   sharding.TypeName
	Module []byte
	Digest *[32]byte
	Source string          // for people: builtin:NAME or a file name; empty: the digest
	Config json.RawMessage // a JSON object
	Limits *Limits
	Shadow bool
}

// Limits are a strategy's limits; nil keeps the present one. Ranges are those of node.toml (spec 5.1).
type Limits struct {
	Fuel         *uint64 // units of the cost model
	BudgetMillis *int64
	Memory       *uint64 // bytes
	MaxFailures  *uint32
	MovesPerPass *uint32
}

// ExplainView says why a shard is where it is (spec 2.5).
type ExplainView struct {
	Type     sharding.TypeName `json:"type"`
	Shard    sharding.ShardID  `json:"shard"`
	Node     sharding.NodeID   `json:"node"` // empty: no home
	Epoch    sharding.Epoch    `json:"epoch"`
	State    string            `json:"state" oneOf:"homed,moving,waiting,unassigned"` // unassigned: no home
	Pinned   sharding.NodeID   `json:"pinned,omitempty"`
	Cause    protocol.Cause    `json:"cause" oneOf:",contact,eager,membership,drain,rebalance,operator,stopped,lapsed,superseded,timeout"` // docs/http.md; empty: nothing was decided yet
	Reason   string            `json:"reason,omitempty"`                                                                                   // the strategy's own words
	Strategy string            `json:"strategy,omitempty"`                                                                                 // source of the strategy that decided; empty: the host did, or it is no longer known
	Digest   string            `json:"digest,omitempty"`                                                                                   // of the strategy that decided; empty: the host did
	Verdict  string            `json:"verdict,omitempty"`
	Record   string            `json:"record,omitempty"` // digest of the input
	Pass     uint64            `json:"pass,omitempty"`   // the rebalance pass that it was decided in: index of its entry in the log
}

// ReadyView is GET /readyz.
type ReadyView struct {
	Ready      bool        `json:"ready"`
	Conditions []Condition `json:"conditions"`
}

// Condition is one condition for serving. Why says what is missing.
type Condition struct {
	Name string `json:"name"` // stable: joined, leader, regions, lease, disk, serving
	OK   bool   `json:"ok"`
	Why  string `json:"why,omitempty"`
}

// DeadLettersView is GET /cluster/dead-letters, of one node.
type DeadLettersView struct {
	Total   uint64           `json:"total"`   // since the start
	Letters []DeadLetterView `json:"letters"` // the latest, newest first
}

// DeadLetterView is one message that reached no entity. The payload is not kept.
type DeadLetterView struct {
	Time   string            `json:"time"` // RFC 3339, UTC
	Type   sharding.TypeName `json:"type"`
	Shard  sharding.ShardID  `json:"shard"`
	Entity string            `json:"entity"` // bytes that are no UTF-8 are replaced
	Reason string            `json:"reason"`
	Bytes  int               `json:"bytes"`
}
