package protocol

import "github.com/droverhq/drover/sharding"

// Deliver carries one message to an entity (class data). Sender numbers are per (type, shard) and sender incarnation, from 1, without
// gaps on one way: a sender takes the number when it hands the message to the stream of the owner that it believes in.
type Deliver struct {
	Type     sharding.TypeName
	Shard    sharding.ShardID
	Epoch    sharding.Epoch  // what the sender believes; 0: not known
	Sender   sharding.Member // who numbered it; equal to the peer unless forwarded
	Seq      uint64
	Hops     uint8 // at most MaxHops
	Mode     Mode
	Ask      uint64 // correlation id at Sender; 0 for a Tell
	Deadline int64  // ms left when sent; 0: none
	Command  Command
	Entity   string
	Payload  []byte
}

// MaxHops bounds forwarding (spec 3.3).
const MaxHops = 5

// Mode says what a Deliver is.
type Mode uint8

// The modes.
const (
	Tell  Mode = 0
	Ask   Mode = 1
	Start Mode = 2 // StartEntity: no payload, starts the entity (an Ask: answered once it runs)
)

// Reply answers an Ask (class data), straight from the owner to Deliver.Sender.
type Reply struct {
	Ask     uint64
	Status  Status
	Home    *MovedTo // where the shard is, when the answerer knows better than the asker
	Payload []byte   // of the entity, or the text of the error
}

// MovedTo corrects a sender's belief (spec 3.3). An older epoch never overwrites a newer one.
type MovedTo struct {
	Type  sharding.TypeName
	Shard sharding.ShardID
	Owner sharding.Member
	Epoch sharding.Epoch
}

// Status is the outcome of an Ask.
type Status uint8

// The outcomes. OK and Failed come from the entity; Unavailable says that the message surely was not delivered.
const (
	StatusOK          Status = 0
	StatusFailed      Status = 1 // the entity's handler returned an error or panicked
	StatusUnavailable Status = 2
	StatusNoType      Status = 3 // nobody hosts the type
	StatusBadMessage  Status = 4 // the payload does not decode
	StatusMoved       Status = 5
	StatusAsk         Status = 6
	StatusTryAgain    Status = 7
)

// SenderMoved is a sender's last word to a former owner about a shard: it numbered up to Seq on this way and sends elsewhere now. The
// former owner passes it on as SenderDone, behind all that it forwards.
type SenderMoved struct {
	Type  sharding.TypeName
	Shard sharding.ShardID
	Seq   uint64
}

// SenderDone tells the new owner that nothing of Sender up to Seq is still to come from the former owner: its hold ends. Seq 0: the
// sender's stream to the former owner is closed, whatever it had sent.
type SenderDone struct {
	Type   sharding.TypeName
	Shard  sharding.ShardID
	Epoch  sharding.Epoch // the former owner's
	Sender sharding.Member
	Seq    uint64
}
