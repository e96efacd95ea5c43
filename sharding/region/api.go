package region

import (
	"time"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// SessionConfig configures the node's session with the coordinator.
type SessionConfig struct {
	Self          sharding.Member
	Info          protocol.NodeInfo
	Regions       []protocol.RegionInfo
	Supersedes    []sharding.Incarnation
	RegisterEvery time.Duration // default 5 s
	Off           Mutations
}

// Mutations names the rules that a mutation test can take out of a region (spec 2.6).
type Mutations struct {
	EpochCheck bool // serve whatever arrives for a shard that was ever owned, and let effects of an old epoch pass
	Holds      bool // deliver a sender's direct messages at once after a move
	Lease      bool // never suspend
}

// Event happens to a Session or a Region.
type Event interface{ event() }

// Command is what a Session or a Region wants done.
type Command interface{ command() }

// Events of the Session.
type (
	// Ticked carries the time, at least every 50 ms.
	Ticked struct{}
	// DirectiveReceived is a control message that came over a connection of an authenticated peer.
	DirectiveReceived struct {
		From        sharding.Member
		Coordinator bool // the peer may be a coordinator (role in its certificate, or keyed handshake)
		Message     protocol.Directive
	}
	// LeaderHinted is what raft (on a raft server) says of the leader: it helps to register sooner and grants nothing.
	LeaderHinted struct {
		Leader sharding.Member
		Term   uint64
	}
	// MembershipChanged: Serf saw a change. The session registers again.
	MembershipChanged struct{}
	// LoadMeasured is what the next renewal reports.
	LoadMeasured struct{ Load protocol.NodeLoad }
	// RegionsReported answers ReportOwned: what the regions serve.
	OwnedReported struct{ Owned []protocol.TypeShards }
	// StopRequested begins leaving: with Drain all shards are handed off first.
	StopRequested struct{ Drain bool }
)

func (Ticked) event()            {}
func (DirectiveReceived) event() {}
func (LeaderHinted) event()      {}
func (MembershipChanged) event() {}
func (LoadMeasured) event()      {}
func (OwnedReported) event()     {}
func (StopRequested) event()     {}

// Commands of the Session.
type (
	// SendLeader sends a control message to the present leader.
	SendLeader struct {
		To      sharding.Member
		Message protocol.Message
	}
	// ToRegion hands an event to the region of a type (every region where Type is empty).
	ToRegion struct {
		Type  sharding.TypeName
		Event Event
	}
	// DropDirective: an order that did not count; the shell counts it by Reason and logs it at WARN.
	DropDirective struct {
		From   sharding.Member
		Kind   protocol.FrameKind
		Term   uint64
		Reason DropReason
	}
	// MapAdvanced: ShardMapChanged on this node (spec 2.5).
	MapAdvanced struct{ Revision sharding.Revision }
	// RegionRefused: the coordinator refuses a region, with the reason (numbers of shards differ, …). The node ends its start with it.
	RegionRefused struct{ Refusal protocol.Refusal }
	// LeaderChanged: the session follows another leader now; zero: none.
	LeaderChanged struct {
		Leader sharding.Member
		Term   uint64
	}
	// Registered: RegisterAck came; the node is part of the cluster with this ID.
	Registered struct {
		ClusterID sharding.Incarnation
		Term      uint64
	}
	// Drained: a requested drain has ended, nothing is owned any more.
	Drained struct{}
)

func (SendLeader) command()    {}
func (ToRegion) command()      {}
func (DropDirective) command() {}
func (MapAdvanced) command()   {}
func (RegionRefused) command() {}
func (LeaderChanged) command() {}
func (Registered) command()    {}
func (Drained) command()       {}

// DropReason says why a directive did not count (spec 2.1, who may order).
type DropReason uint8

// The reasons.
const (
	DropNotCoordinator DropReason = iota // peer may not be a coordinator
	DropNotLeader                        // not the leader of that term
	DropStaleTerm
	DropEpoch
	DropIncarnation
)

// String gives the metric label.
func (r DropReason) String() string {
	switch r {
	case DropNotCoordinator:
		return "not_coordinator"
	case DropNotLeader:
		return "not_leader"
	case DropStaleTerm:
		return "stale_term"
	case DropEpoch:
		return "epoch"
	case DropIncarnation:
		return "incarnation"
	}
	return "unknown"
}

// Config configures the region of one type on one node.
type Config struct {
	Self         sharding.Member
	Type         sharding.TypeName
	NumShards    uint32
	Hosts        bool // false: proxy region
	MaxMessages  int  // buffer bounds (spec 2.3); default 100 000 and 64 MiB
	MaxBytes     int
	AskHomeEvery time.Duration // repeat GetShardHome for buffered shards; default 500 ms
	Off          Mutations
}

// Events of a Region.
type (
	// Submitted is a message of this node's own senders. Deadline 0: none.
	Submitted struct {
		Mode     protocol.Mode
		Ask      uint64
		Deadline sharding.Instant
		Command  protocol.Command
		Entity   string
		Payload  []byte
	}
	// Arrived is a Deliver from a peer.
	Arrived struct {
		From    sharding.Member
		Deliver *protocol.Deliver
	}
	// SenderMovedArrived and SenderDoneArrived: see protocol.
	SenderMovedArrived struct {
		From    sharding.Member
		Message protocol.SenderMoved
	}
	SenderDoneArrived struct {
		From    sharding.Member
		Message protocol.SenderDone
	}
	// PeerClosed: the data stream FROM this member has ended; what it carried and has not arrived never will.
	PeerClosed struct{ Peer sharding.Member }
	// PeerDown: no data stream TO this member can be had now. PeerUp: it can again.
	PeerDown struct{ Peer sharding.Member }
	PeerUp   struct{ Peer sharding.Member }
	// MemberGone: the incarnation is fenced for good (left the map).
	MemberGone struct{ Member sharding.Member }
	// MapChanged: records of this type that changed; Full replaces all.
	MapChanged struct {
		Revision sharding.Revision
		Full     bool
		Records  []protocol.ShardRecord
	}
	// Covered: the lease covers, until Until, every owned (shard, epoch) granted at or before Revision.
	Covered struct {
		Revision sharding.Revision
		Until    sharding.Instant
	}
	// Ordered: StartShard, HandOff, KillShard, ShardHome or RememberedEntities that the session has let pass.
	Ordered struct{ Directive protocol.Directive }
	// ShardStopped: every entity of the shard has ended its Stop, durably, or was killed.
	ShardStopped struct {
		Shard sharding.ShardID
		Epoch sharding.Epoch
	}
	// EffectReady: entity code of (Shard, Epoch) wants a reply (or, later, a tell or append) to leave.
	EffectReady struct {
		Shard sharding.ShardID
		Epoch sharding.Epoch
		To    sharding.Member
		Reply protocol.Reply
	}
	// LeaderReached: a coordinator may be asked again; the region repeats what it waits for.
	LeaderReached struct{}
	// RegionStopped: the region ends; with nothing left owned it only routes.
	RegionStopped struct{}
)

func (Submitted) event()          {}
func (Arrived) event()            {}
func (SenderMovedArrived) event() {}
func (SenderDoneArrived) event()  {}
func (PeerClosed) event()         {}
func (PeerDown) event()           {}
func (PeerUp) event()             {}
func (MemberGone) event()         {}
func (MapChanged) event()         {}
func (Covered) event()            {}
func (Ordered) event()            {}
func (ShardStopped) event()       {}
func (EffectReady) event()        {}
func (LeaderReached) event()      {}
func (RegionStopped) event()      {}

// Commands of a Region.
type (
	// Transmit sends a data frame to a member (never this one).
	Transmit struct {
		To      sharding.Member
		Message protocol.Message // *Deliver, *Reply, *SenderMoved, *SenderDone
	}
	// DeliverLocal gives a message to an entity of (Shard, Epoch), in order. The runtime begins none of it once Lease has passed.
	DeliverLocal struct {
		Shard   sharding.ShardID
		Epoch   sharding.Epoch
		Deliver *protocol.Deliver
	}
	// StartLocal: the shard is owned and covered; entities may start. Lease tells until when.
	StartLocal struct {
		Shard sharding.ShardID
		Epoch sharding.Epoch
	}
	// ExtendLocal: the lease of every started shard named holds until Until. SuspendLocal: it has lapsed; begin nothing, keep what is in memory.
	ExtendLocal struct {
		Shards []protocol.ShardEpoch
		Until  sharding.Instant
	}
	SuspendLocal struct{ Shards []protocol.ShardEpoch }
	// StopLocal: stop every entity of the shard, answer ShardStopped. KillLocal: drop them without Stop, nothing of theirs leaves.
	StopLocal struct {
		Shard sharding.ShardID
		Epoch sharding.Epoch
	}
	KillLocal struct {
		Shard sharding.ShardID
		Epoch sharding.Epoch
	}
	// ReplyLocal ends an Ask of this node.
	ReplyLocal struct{ Reply protocol.Reply }
	// DeadLetter: a Tell that will not be delivered.
	DeadLetter struct {
		Deliver *protocol.Deliver
		Reason  string // stable: buffer_full, no_type, hops, superseded, stale_sender, peer_down, region_stopped
	}
	// ToCoordinator sends a control message to the leader, if there is one; the region repeats it while it matters.
	ToCoordinator struct{ Message protocol.Message }
	// RenewNow asks the session for a renewal at once (a grant is not covered yet).
	RenewNow struct{}
	// OwnedChanged: what the region serves, for Register and introspection.
	OwnedChanged struct{ Shards []protocol.ShardEpoch }
)

func (Transmit) command()      {}
func (DeliverLocal) command()  {}
func (StartLocal) command()    {}
func (ExtendLocal) command()   {}
func (SuspendLocal) command()  {}
func (StopLocal) command()     {}
func (KillLocal) command()     {}
func (ReplyLocal) command()    {}
func (DeadLetter) command()    {}
func (ToCoordinator) command() {}
func (RenewNow) command()      {}
func (OwnedChanged) command()  {}
