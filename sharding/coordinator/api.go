package coordinator

import (
	"time"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Config holds what the machine cannot take from the log. Times are limits of this coordinator, not of the cluster.
type Config struct {
	Self              sharding.Member
	RebalanceInterval time.Duration // default 2 s
	MoveCooldown      time.Duration // default 2 s
	Settle            time.Duration // before a new node is a candidate; default 1 s
	HandOffTimeout    time.Duration // default 10 s
	MapPart           int           // most shards in one part of a map update; default 8 192: with the longest names it fits into a frame of the transport
	// StartWindow is the most StartShard that a member has unanswered; default 1 024. Each waits for the lease, which one renewal brings for all of
	// them, so a second sees many windows; and one fits into a fraction of the queue to the member, where its lease's acknowledgements wait too.
	StartWindow int
	Seed        uint64 // source of the passes' seeds; the answer is in the log
	// Off switches one safety rule off. Only the simulation's mutation tests set it, to see the simulation fail (spec 2.6).
	Off Mutations
}

// Mutations names the rules that a mutation test can take out of the coordinator.
type Mutations struct {
	Barrier      bool // act as leader before the barrier has passed
	LeaseMargin  bool // take a lease as lapsed without the margin, and do not wait for the longest TTL as a new leader
	RecheckApply bool // apply plans and homes without checking them again
	Shadow       bool // ask the shadow in the place of the strategy in force, and take what it says at apply too
}

// Event is what happens to the machine. Events are past tense.
type Event interface{ event() }

// Command is what the machine wants done. Commands are imperative; the shell carries them out in order.
type Command interface{ command() }

type (
	// Ticked carries the time: at least every 100 ms. Wall is ms since 1970.
	Ticked struct{ Wall int64 }
	// Elected: this raft server became leader in Term.
	Elected struct{ Term uint64 }
	// Deposed: it is leader no more.
	Deposed struct{}
	// BarrierDone: everything committed before Term's barrier has been applied here.
	BarrierDone struct{ Term uint64 }
	// Committed is the next entry of the log, on every raft server, in order. Term is the raft log entry's own.
	Committed struct {
		Index, Term uint64
		Entry       *protocol.Entry
	}
	// ProposalFailed: the entry with this command id was not appended, or is of unknown fate because leadership was lost.
	ProposalFailed struct {
		Command protocol.Command
		Reason  string
	}
	// Received is a control message from an authenticated peer.
	Received struct {
		From    sharding.Member
		Message protocol.Message
	}
	// MemberSeen is Serf's present view of a member: a hint. It is sent when anything changes.
	MemberSeen struct {
		Member sharding.Member
		Status MemberStatus
		Coord  pluginapi.Coord // zero: not known
	}
	// StrategyAnswered ends an AskStrategy. Homes (allocate) or Plan (rebalance) counts, unless Failure is set. Node indices are those of the
	// Input asked with. The shell has checked the output's shape; the machine checks each home and move again.
	StrategyAnswered struct {
		Ask     uint64
		Homes   pluginapi.Homes
		Plan    pluginapi.Plan
		Failure *StrategyFailure
		Record  [32]byte // digest of the input, to find the record
	}
	// Requested is an operator's or a node's request, answered by Answer with the same ID.
	Requested struct {
		ID      uint64
		Request Request
	}
)

func (Ticked) event()           {}
func (Elected) event()          {}
func (Deposed) event()          {}
func (BarrierDone) event()      {}
func (Committed) event()        {}
func (ProposalFailed) event()   {}
func (Received) event()         {}
func (MemberSeen) event()       {}
func (StrategyAnswered) event() {}
func (Requested) event()        {}

// MemberStatus is Serf's word on a member.
type MemberStatus uint8

// The statuses.
const (
	MemberUp MemberStatus = iota
	MemberSuspect
	MemberFailed
	MemberLeft
)

// String gives the name that HTTP uses.
func (s MemberStatus) String() string {
	switch s {
	case MemberUp:
		return "up"
	case MemberSuspect:
		return "unreachable"
	case MemberFailed:
		return "failed"
	case MemberLeft:
		return "left"
	}
	return "unknown"
}

// StrategyFailure says why a strategy gave no decision. Clock verdicts (budget) are counted apart and never roll back (spec 1.3).
type StrategyFailure struct {
	Verdict string // trap, fuel, depth, output, budget, missing (module not here)
	Detail  string
}

// String gives verdict and detail on one line.
func (f *StrategyFailure) String() string { return f.Verdict + ": " + f.Detail }

// Request is one of the request types below.
type Request interface{ request() }

type (
	// CreateCluster makes the first entry of a new log.
	CreateCluster struct{ Body protocol.CreateCluster }
	// DrainNode starts or ends a drain of a node by name.
	DrainNode struct {
		Node sharding.NodeID
		On   bool
	}
	// SwapStrategy activates Spec. The shell has stored the module on a majority of the voters before. Expect is the number (Seq) of the
	// strategy to replace, nil: whichever is in force when the request comes in. A swap that was overtaken answers conflict.
	SwapStrategy struct {
		Type   sharding.TypeName
		Spec   protocol.StrategySpec
		Expect *uint64
		Cause  protocol.Cause
	}
	// SetShadow runs Spec beside the strategy of a type, without effect; a Spec without a module ends that. The shell has stored the module on a majority
	// of the voters before. Expect and Shadow are the numbers of the strategy and of the shadow that the request is about, nil: whichever there are
	// when it comes in.
	SetShadow struct {
		Type           sharding.TypeName
		Spec           protocol.StrategySpec
		Expect, Shadow *uint64
	}
	// PromoteShadow activates the shadow; Expect and Shadow as in SetShadow.
	PromoteShadow struct {
		Type           sharding.TypeName
		Expect, Shadow *uint64
	}
	// RollBack activates the strategy that worked before the one in force; Expect as in SwapStrategy.
	RollBack struct {
		Type   sharding.TypeName
		Expect *uint64
	}
	// MoveShard moves one shard to a node, whatever the strategy thinks.
	MoveShard struct {
		Type  sharding.TypeName
		Shard sharding.ShardID
		To    sharding.NodeID
	}
	// PinShard keeps a shard on a node; the empty node lifts the pin.
	PinShard struct {
		Type  sharding.TypeName
		Shard sharding.ShardID
		Node  sharding.NodeID
	}
	// Pause pauses or resumes all rebalancing.
	Pause struct{ On bool }
	// PutServer and RemoveServer note raft servers.
	PutServer    struct{ Body protocol.PutServer }
	RemoveServer struct{ Body protocol.RemoveServer }
	// ForgetNode drops a dead node's regions once its lease has lapsed; until then it answers refused and says how long that takes.
	ForgetNode struct{ Node sharding.NodeID }
	// Configure changes the cluster-wide settings.
	Configure struct{ Settings protocol.Settings }
)

func (CreateCluster) request() {}
func (DrainNode) request()     {}
func (SwapStrategy) request()  {}
func (SetShadow) request()     {}
func (PromoteShadow) request() {}
func (RollBack) request()      {}
func (MoveShard) request()     {}
func (PinShard) request()      {}
func (Pause) request()         {}
func (PutServer) request()     {}
func (RemoveServer) request()  {}
func (ForgetNode) request()    {}
func (Configure) request()     {}

type (
	// Propose appends an entry to the log (leader only). The shell answers with Committed or ProposalFailed.
	Propose struct{ Entry *protocol.Entry }
	// Barrier asks raft for a barrier in Term; the shell answers BarrierDone, or Deposed.
	Barrier struct{ Term uint64 }
	// Send sends a control message to a member, this node included.
	Send struct {
		To      sharding.Member
		Message protocol.Message
	}
	// Broadcast sends Leading to every member that Serf knows as up, this node included.
	Broadcast struct{ Message protocol.Message }
	// AskStrategy runs a strategy call; Input is complete (candidates, owners, busy, pins, loads, coordinates, config).
	AskStrategy struct {
		Ask    uint64
		Type   sharding.TypeName
		Spec   protocol.StrategySpec
		Op     pluginapi.Op
		Input  *pluginapi.Snapshot
		Shards []uint32 // allocate
		// Shadow is the same question to the type's shadow; nil: there is none. Nothing that comes of it is an event of this machine, so that it has
		// no effect (spec 1.4).
		Shadow *ShadowAsk
	}
	// PrepareStrategy: a strategy became active (told on every server), or this server leads now: the shell fetches, compiles and warms it.
	// Where it can't be had, AskStrategy is answered with the failure "missing": then hash gives homes and nothing moves.
	PrepareStrategy struct {
		Type sharding.TypeName
		Spec protocol.StrategySpec
	}
	// PrepareShadow: likewise, of a shadow; a Spec without a module: the type has none any more.
	PrepareShadow struct {
		Type sharding.TypeName
		Spec protocol.StrategySpec
	}
	// Answer ends a Requested. Err "" is success.
	Answer struct {
		ID   uint64
		Err  string
		Code string // "" or one of the Code… constants
	}
	// Note tells of something that people want to see: events, log, metrics. Only the leader's machine makes notes.
	Note struct {
		Kind  string // stable, one of the Note… constants
		Level NoteLevel
		Type  sharding.TypeName
		Shard sharding.ShardID
		Node  sharding.NodeID
		Count int    // of shards or moves, where a kind is about several
		Text  string // a sentence
	}
)

// ShadowAsk is a question to a shadow. Term, Against and Seq tell which comparison it belongs to: a new leader, another strategy in force and another
// shadow each begin a new one.
type ShadowAsk struct {
	Term    uint64 // of the leader that asks
	Against uint64 // number of the strategy in force
	Seq     uint64 // number of the shadow
	Spec    protocol.StrategySpec
	Input   *pluginapi.Snapshot // the same but for the shadow's configuration and its moves_per_pass
}

// Kinds of Note.
const (
	NoteShardsHomed      = "shards_homed" // Text says how many and why
	NoteShardMoved       = "shard_moved"  // Node is the new owner
	NoteHandOffStarted   = "handoff_started"
	NoteHandOffTimedOut  = "handoff_timed_out"
	NoteShardFenced      = "shard_fenced"
	NoteShardReleased    = "shard_released" // a fenced shard is free
	NoteShardsFreed      = "shards_freed"   // the owner is gone or has stopped
	NoteMemberRegistered = "member_registered"
	NoteMemberGone       = "member_gone"
	NoteLeaseLapsed      = "lease_lapsed"
	NoteStrategySet      = "strategy_set"
	NoteStrategyFailed   = "strategy_failed"
	NoteStrategyReverted = "strategy_reverted"
	NoteShadowSet        = "shadow_set"
	NoteShadowEnded      = "shadow_ended"
	NotePassPlanned      = "pass_planned"
	NoteEntryRefused     = "entry_refused" // a proposal of this leader changed nothing when it was applied
	NoteNoCandidates     = "no_candidates"
)

// NoteLevel grades a Note.
type NoteLevel uint8

// The levels.
const (
	Info NoteLevel = iota
	Warn
)

func (Propose) command()         {}
func (Barrier) command()         {}
func (Send) command()            {}
func (Broadcast) command()       {}
func (AskStrategy) command()     {}
func (PrepareStrategy) command() {}
func (PrepareShadow) command()   {}
func (Answer) command()          {}
func (Note) command()            {}
