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
	ClusterID     sharding.Incarnation // of the cluster this node has been part of (data_dir); zero: the first RegisterAck tells
	RegisterEvery time.Duration        // default 5 s
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
	// Ticked carries the time, at least every 50 ms, to the Session and to every Region.
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
	// OwnedReported is what the regions serve, all types; the shell sends it after OwnedChanged. The next Register tells it.
	OwnedReported struct{ Owned []protocol.TypeShards }
	// RenewRequested passes on a region's RenewNow.
	RenewRequested struct{}
	// StopRequested begins leaving: with Drain all shards are handed off first; without, the regions stop where they are. Both end with
	// Drained, and the node goes on routing until then.
	StopRequested struct{ Drain bool }
)

func (Ticked) event()            {}
func (DirectiveReceived) event() {}
func (LeaderHinted) event()      {}
func (MembershipChanged) event() {}
func (LoadMeasured) event()      {}
func (OwnedReported) event()     {}
func (RenewRequested) event()    {}
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
	// Drained: what StopRequested began has ended, nothing is owned or served any more.
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
	DropIncarnation
	DropCluster // of another cluster
	DropRenewal // acknowledges no renewal of this node that is still open
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
	case DropIncarnation:
		return "incarnation"
	case DropCluster:
		return "cluster"
	case DropRenewal:
		return "renewal"
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
	AskHomeEvery time.Duration // repeat GetShardHome for buffered shards, and unanswered reports; default 500 ms
	// HoldFor bounds a hold (spec 2.3) whose end got lost with some third node's stream; default 5 s. Then order is kept and what comes
	// late is dropped.
	HoldFor time.Duration
	Off     Mutations
}

// Events of a Region. Of the data events (Submitted, Arrived) there are direct calls too: Region.Submit and Region.Arrive.
type (
	// Submitted is a message of this node's own senders. Deadline 0: none. Payload must not change until the message has left.
	Submitted struct {
		Mode     protocol.Mode
		Ask      uint64
		Deadline sharding.Instant
		Command  protocol.Command
		Entity   string
		Payload  []byte
	}
	// Arrived is a Deliver from a peer. The region owns and changes it from here on.
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
	// MemberCame: the map has the incarnation; it is told before the records of the same update. MemberGone: it has left the map, and is fenced
	// until it registers again.
	MemberCame struct{ Member sharding.Member }
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
	// Ordered: StartShard, HandOff, KillShard or ShardHome that the session has let pass.
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
	// HomeWanted: a ShardRef was taken; the shard is placed if it has no home (spec 2.2).
	HomeWanted struct{ Shard sharding.ShardID }
	// LeaderReached: a coordinator may be asked again; the region repeats what it waits for.
	LeaderReached struct{}
	// RegionStopped: the region is to end. It stops its shards without handoff, deregisters, and from then on only routes.
	RegionStopped struct{}
)

func (Submitted) event()          {}
func (Arrived) event()            {}
func (SenderMovedArrived) event() {}
func (SenderDoneArrived) event()  {}
func (PeerClosed) event()         {}
func (PeerDown) event()           {}
func (PeerUp) event()             {}
func (MemberCame) event()         {}
func (MemberGone) event()         {}
func (MapChanged) event()         {}
func (Covered) event()            {}
func (Ordered) event()            {}
func (ShardStopped) event()       {}
func (EffectReady) event()        {}
func (HomeWanted) event()         {}
func (LeaderReached) event()      {}
func (RegionStopped) event()      {}

// Commands of a Region. *Transmit and *DeliverLocal are pointers: on the hot path they share one allocation with their message.
type (
	// Transmit sends a data frame to a member (never this one), in order. Frames for a member without a stream may be dropped.
	Transmit struct {
		To      sharding.Member
		Message protocol.Message // *Deliver, *Reply, *SenderMoved, *SenderDone
	}
	// DeliverLocal gives a message to an entity of (Shard, Epoch), in order. The runtime begins none of it once the shard's lease has
	// passed. Entity aliases the frame that brought it: clone it to keep it.
	DeliverLocal struct {
		Shard   sharding.ShardID
		Epoch   sharding.Epoch
		Deliver *protocol.Deliver
	}
	// StartLocal: the shard is owned and covered; entities may start. ExtendLocal follows and tells until when.
	StartLocal struct {
		Shard sharding.ShardID
		Epoch sharding.Epoch
	}
	// ExtendLocal: the lease of the started shards named holds until Until, and those that were suspended go on. SuspendLocal: it has
	// lapsed or was taken; begin nothing, keep what is in memory.
	ExtendLocal struct {
		Shards []protocol.ShardEpoch
		Until  sharding.Instant
	}
	SuspendLocal struct{ Shards []protocol.ShardEpoch }
	// StopLocal: let the entities of the shard work off what was delivered before, then stop each; answer ShardStopped. KillLocal: drop
	// them without Stop, nothing of theirs leaves; no answer.
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
	// DeadLetter: a Tell that will not be delivered; or (late) any repeated or overtaken frame, of which no one knows whether it was.
	DeadLetter struct {
		Deliver *protocol.Deliver
		Reason  string // one of the Dead reasons
	}
	// DropClaim: what a peer said of a sender's numbers did not count: the map does not have that sender, and the peer has spoken for too many such. The
	// shell counts it.
	DropClaim struct{ From, Sender sharding.Member }
	// ToCoordinator sends a control message to the leader, if there is one; the region repeats it while it matters.
	ToCoordinator struct{ Message protocol.Message }
	// RenewNow asks the session for a renewal at once (a grant is not covered yet).
	RenewNow struct{}
	// OwnedChanged: the shards that have been started and not ended, for Register and introspection.
	OwnedChanged struct{ Shards []protocol.ShardEpoch }
)

// Reasons of a DeadLetter; stable, metric labels.
const (
	DeadBufferFull = "buffer_full"
	DeadHops       = "hops"      // forwarded MaxHops times already
	DeadMisrouted  = "misrouted" // sent to a node that never owned the shard under that epoch: forwarding would go to and fro
	DeadBadFrame   = "bad_frame" // shard, entity id, number or sender do not fit
	// the map does not have its sender, and whoever brought it has brought too many such
	DeadUnknownSender = "unknown_sender"
	DeadDeadline      = "deadline"     // ran out while buffered
	DeadLate          = "stale_sender" // its number is not above the last one begun: repeated, or overtaken after a fault
	DeadOvertaken     = "overtaken"    // sent to a former owner, and one in between may have begun what was sent later
	DeadWaiting       = "waiting"      // the shard's state is on a store that is away
)

func (*Transmit) command()     {}
func (*DeliverLocal) command() {}
func (StartLocal) command()    {}
func (ExtendLocal) command()   {}
func (SuspendLocal) command()  {}
func (StopLocal) command()     {}
func (KillLocal) command()     {}
func (ReplyLocal) command()    {}
func (DeadLetter) command()    {}
func (DropClaim) command()     {}
func (ToCoordinator) command() {}
func (RenewNow) command()      {}
func (OwnedChanged) command()  {}
