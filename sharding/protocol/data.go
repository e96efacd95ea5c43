package protocol

import "github.com/droverhq/drover/sharding"

// Deliver carries one message to an entity (class data). Sender numbers are per (type, shard) and sender incarnation, from 1, without
// gaps on one way: a sender takes the number when it hands the message to the stream of the owner that it believes in.
type Deliver struct {
	Type     sharding.TypeName
	Shard    sharding.ShardID
	Epoch    sharding.Epoch  // what the sender believes, or who forwards; 0: not known
	Origin   sharding.Epoch  // what the sender believed, once forwarded; else 0. See SentUnder
	Sender   sharding.Member // who numbered it; equal to the peer unless forwarded
	Seq      uint64
	Hops     uint8 // at most MaxHops
	Mode     Mode
	Ask      uint64 // correlation id at Sender; 0 for a Tell
	Deadline int64  // ms left when sent; 0: none
	Held     uint32 // ms for which former owners have held it back (spec 2.3), so that a hold without an end does not begin anew with each move
	Command  Command
	Entity   string
	Payload  []byte
}

// SentUnder gives the epoch that the sender believed in. What it has sent since, to others, may be begun by whoever owns the shard under a later one.
func (d *Deliver) SentUnder() sharding.Epoch {
	if d.Origin > 0 {
		return d.Origin
	}
	return d.Epoch
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

// String gives the name for logs and metrics.
func (m Mode) String() string {
	switch m {
	case Tell:
		return "tell"
	case Ask:
		return "ask"
	case Start:
		return "start"
	}
	return "unknown"
}

// String gives the name for logs, metrics and errors.
func (s Status) String() string {
	switch s {
	case StatusOK:
		return "ok"
	case StatusFailed:
		return "failed"
	case StatusUnavailable:
		return "unavailable"
	case StatusNoType:
		return "no_type"
	case StatusBadMessage:
		return "bad_message"
	case StatusMoved:
		return "moved"
	case StatusAsk:
		return "ask"
	case StatusTryAgain:
		return "try_again"
	}
	return "unknown"
}

// SenderMoved is a sender's last word on one way: to the member it took for the owner under Epoch it sent the numbers From..Seq, and now
// it sends elsewhere (or on a new stream). The former owner passes it on as SenderDone, behind all that it forwards.
type SenderMoved struct {
	Type  sharding.TypeName
	Shard sharding.ShardID
	Epoch sharding.Epoch // under which the sender took the receiver for the owner
	From  uint64
	Seq   uint64
}

// SenderDone tells the next owner that, of Sender's numbers From..Seq, nothing is still to come by way of the teller: holds that wait
// for them end. Seq 0: whatever Sender had sent; its stream to a former owner is closed, or it is gone.
type SenderDone struct {
	Type   sharding.TypeName
	Shard  sharding.ShardID
	Epoch  sharding.Epoch // under which the teller takes the receiver for the owner
	Sender sharding.Member
	From   uint64
	Seq    uint64
}
