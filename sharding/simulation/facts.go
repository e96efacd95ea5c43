package simulation

import (
	"fmt"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Fact is something that the world saw happen, from outside the machines. Checkers judge the history of facts.
type Fact interface{ fact() }

// ShardKey names a shard of a type.
type ShardKey struct {
	Type  sharding.TypeName
	Shard sharding.ShardID
}

// String gives type/shard.
func (k ShardKey) String() string { return fmt.Sprintf("%s/%d", k.Type, k.Shard) }

// Change is what one entry of the log did to one shard.
type Change struct {
	Key           ShardKey
	Before, After protocol.ShardRecord
}

// MemberView is a registered member as the replicated state has it.
type MemberView struct {
	Draining bool
	Hosts    map[sharding.TypeName]bool
}

type (
	// Elected: Member won the election of Term. Barriered: what was committed before Term's barrier is applied there; At is its own clock.
	Elected struct {
		Member sharding.Member
		Term   uint64
	}
	Barriered struct {
		Member sharding.Member
		Term   uint64
		At     sharding.Instant
	}
	// Acted: a coordinator sent, proposed, broadcast or asked. Entry is set where it proposed.
	Acted struct {
		Global int64
		Member sharding.Member
		What   string
		Term   uint64 // of the directive; 0 where there is none
		Leads  uint64 // the term of which it was last told that it leads
		At     sharding.Instant
		Entry  *protocol.Entry
		// Ready: the entry follows from no module's decision, or from that of one that is ready on this server.
		Ready bool
	}
	// Applied: an entry was applied for the first time on any server. Members, Pins and Strategy (the number of its type's) are as before the entry.
	Applied struct {
		Global  int64 // virtual time, ns
		Index   uint64
		Term    uint64
		Entry   *protocol.Entry
		Changes []Change
		Members map[sharding.Member]MemberView
		Pins    map[ShardKey]sharding.NodeID

		Strategy uint64
		Digest   [32]byte // of that strategy
	}
	// Activated: an entry put a module to use for a type, in force or as a shadow. Have of Servers had it in their stores.
	Activated struct {
		Index  uint64
		Type   sharding.TypeName
		Digest [32]byte
		Shadow bool
		// Chosen: by an operator. What a failure brings back was stored when it was chosen, and some server may have lost it since.
		Chosen        bool
		Have, Servers int
	}
	// Settled: what a server takes for a type's strategy in the end. Leads: it leads; Ready: it could call it.
	Settled struct {
		Server       sharding.Member
		Type         sharding.TypeName
		Strategy     [32]byte
		Shadow       [32]byte
		Leads, Ready bool
	}
	// Digested: the digest of a server's snapshot at an index.
	Digested struct {
		Server sharding.Member
		Index  uint64
		Digest [32]byte
	}
	// RegisterReceived: a leader got a Register of Member.
	RegisterReceived struct{ Leader, Member sharding.Member }
	// Judged: a session was given a directive; Effects counts what came of it beside dropping.
	Judged struct {
		Member, From, Leader sharding.Member // Leader is who won Term
		Coordinator          bool
		Term                 uint64
		Kind                 protocol.FrameKind
		Effects              int
	}
	// Advanced: ShardMapChanged on a node.
	Advanced struct {
		Member   sharding.Member
		Revision sharding.Revision
	}
	// Acked: a lease acknowledgement reached a node.
	Acked struct {
		Member sharding.Member
		Ack    *protocol.LeaseAck
	}
	// Begun: an entity of (Shard, Epoch) began a message. At is the member's clock.
	Begun struct {
		Global  int64
		Member  sharding.Member
		At      sharding.Instant
		Key     ShardKey
		Epoch   sharding.Epoch
		Sender  sharding.Member
		Seq     uint64
		Command protocol.Command
		Entity  string
	}
	// Effected: a reply of (Shard, Epoch) left its entity's region.
	Effected struct {
		Member sharding.Member
		At     sharding.Instant
		Key    ShardKey
		Epoch  sharding.Epoch
	}
	// HandOffTaken: a region was ordered a HandOff. Owned: its runtime runs this generation and it was not ordered before.
	HandOffTaken struct {
		Member   sharding.Member
		Key      ShardKey
		Epoch    sharding.Epoch
		Owned    bool
		Began    bool // StopLocal, or completed at once
		Answered bool // by HandOffRefused, HandOffComplete or ShardsStopped
	}
	// Delivered: a region gave its runtime a message; Running: that generation runs and is not being stopped.
	Delivered struct {
		Member  sharding.Member
		Key     ShardKey
		Epoch   sharding.Epoch
		Running bool
	}
	// Submitted: a client handed its region a message. Ask 0: a Tell.
	Submitted struct {
		Global  int64
		Member  sharding.Member
		Key     ShardKey
		Command protocol.Command
		Entity  string
		Ask     uint64
		Wait    int64 // ns to the deadline of an Ask
	}
	// Carried: From put a message on its stream to To, or could have. Came: it arrived there.
	Carried struct {
		Global   int64
		Command  protocol.Command
		From, To sharding.Member
	}
	Came struct {
		Global  int64
		Command protocol.Command
		Member  sharding.Member
	}
	// Replied: an Ask of the member ended by a reply. Echo: the payload is the one that was asked.
	Replied struct {
		Global  int64
		Member  sharding.Member
		Command protocol.Command
		Ask     uint64
		Status  protocol.Status
		Echo    bool
		Reason  string // of a refusal
	}
	// Expired: an Ask ended by its deadline.
	Expired struct {
		Global  int64
		Member  sharding.Member
		Command protocol.Command
	}
	// DeadLettered: a message was given up.
	DeadLettered struct {
		Global  int64
		Member  sharding.Member
		Command protocol.Command
		Reason  string
	}
	// Buffered: what a region holds and may hold.
	Buffered struct {
		Member              sharding.Member
		Type                sharding.TypeName
		Messages, Bytes     int
		MaxMessages, MaxByt int
	}
	// Disturbed: something happened that may excuse a loss (I11) or a lapse (I16).
	Disturbed struct {
		Global int64
		Kind   Disturbance
		A, B   sharding.Member // process, or the two ends of a stream
		Key    ShardKey
		Data   bool // the stream carries data
	}
	// Left: a process was told to stop, with or without draining.
	Left struct{ Member sharding.Member }
	// Probed: a check of progress after the faults. Invariant is I15 or I17.
	Probed struct {
		Invariant string
		OK        bool
		Detail    string
	}
	// Ended: the run is over; Global is its time.
	Ended struct{ Global int64 }
)

// Disturbance is a kind of Disturbed.
type Disturbance uint8

// The disturbances.
const (
	DisturbedStream  Disturbance = iota // a stream broke, or cannot be had
	DisturbedProcess                    // a process ended
	DisturbedShard                      // a shard changed hands without handoff, or its generation was fenced
	DisturbedBuffer                     // a region's buffer was full
	DisturbedMember                     // A was stopped, or cut off from B: a lapse has a reason
)

// String names the disturbance.
func (d Disturbance) String() string {
	return [...]string{"stream", "process", "shard", "buffer", "member"}[d]
}

func (Elected) fact()          {}
func (Barriered) fact()        {}
func (Acted) fact()            {}
func (Applied) fact()          {}
func (Activated) fact()        {}
func (Settled) fact()          {}
func (Digested) fact()         {}
func (RegisterReceived) fact() {}
func (Judged) fact()           {}
func (Advanced) fact()         {}
func (Acked) fact()            {}
func (Begun) fact()            {}
func (Effected) fact()         {}
func (HandOffTaken) fact()     {}
func (Delivered) fact()        {}
func (Submitted) fact()        {}
func (Carried) fact()          {}
func (Came) fact()             {}
func (Replied) fact()          {}
func (Expired) fact()          {}
func (DeadLettered) fact()     {}
func (Buffered) fact()         {}
func (Disturbed) fact()        {}
func (Left) fact()             {}
func (Probed) fact()           {}
func (Ended) fact()            {}
