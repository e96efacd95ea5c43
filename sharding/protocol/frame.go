package protocol

// FrameKind numbers frame bodies: frame = version (1 byte), kind (1 byte), body. Numbers are never reused.
type FrameKind uint8

// The kinds. 1–63 are control (CBOR bodies, class control), 64–127 data (binary bodies, class data).
const (
	FrameRegister        FrameKind = 1
	FrameRenew           FrameKind = 2
	FrameStopping        FrameKind = 3
	FrameGetShardHome    FrameKind = 4
	FrameHandOffComplete FrameKind = 5
	FrameHandOffRefused  FrameKind = 6
	FrameShardsStopped   FrameKind = 7
	FrameShardStarted    FrameKind = 8
	FrameRegisterAck     FrameKind = 20
	FrameLeaseAck        FrameKind = 21
	FrameShardMapUpdate  FrameKind = 22
	FrameShardHome       FrameKind = 23
	FrameStartShard      FrameKind = 24
	FrameHandOff         FrameKind = 25
	FrameKillShard       FrameKind = 26
	// 27 is kept for RememberedEntities, which names the entities to start again on a granted shard (spec 2.4).
	FrameLeading FrameKind = 28

	FrameDeliver     FrameKind = 64
	FrameReply       FrameKind = 65
	FrameSenderMoved FrameKind = 66
	FrameSenderDone  FrameKind = 67
)

// Message is any body that travels in a frame.
type Message interface{ FrameKind() FrameKind }

// Directive is a message that only the present leader may send (spec 2.1).
type Directive interface {
	Message
	DirectiveTerm() uint64
}

func (*Register) FrameKind() FrameKind        { return FrameRegister }
func (*Renew) FrameKind() FrameKind           { return FrameRenew }
func (*Stopping) FrameKind() FrameKind        { return FrameStopping }
func (*GetShardHome) FrameKind() FrameKind    { return FrameGetShardHome }
func (*HandOffComplete) FrameKind() FrameKind { return FrameHandOffComplete }
func (*HandOffRefused) FrameKind() FrameKind  { return FrameHandOffRefused }
func (*ShardsStopped) FrameKind() FrameKind   { return FrameShardsStopped }
func (*ShardStarted) FrameKind() FrameKind    { return FrameShardStarted }
func (*RegisterAck) FrameKind() FrameKind     { return FrameRegisterAck }
func (*LeaseAck) FrameKind() FrameKind        { return FrameLeaseAck }
func (*ShardMapUpdate) FrameKind() FrameKind  { return FrameShardMapUpdate }
func (*ShardHome) FrameKind() FrameKind       { return FrameShardHome }
func (*StartShard) FrameKind() FrameKind      { return FrameStartShard }
func (*HandOff) FrameKind() FrameKind         { return FrameHandOff }
func (*KillShard) FrameKind() FrameKind       { return FrameKillShard }
func (*Leading) FrameKind() FrameKind         { return FrameLeading }
func (*Deliver) FrameKind() FrameKind         { return FrameDeliver }
func (*Reply) FrameKind() FrameKind           { return FrameReply }
func (*SenderMoved) FrameKind() FrameKind     { return FrameSenderMoved }
func (*SenderDone) FrameKind() FrameKind      { return FrameSenderDone }

func (m *RegisterAck) DirectiveTerm() uint64    { return m.Term }
func (m *LeaseAck) DirectiveTerm() uint64       { return m.Term }
func (m *ShardMapUpdate) DirectiveTerm() uint64 { return m.Term }
func (m *ShardHome) DirectiveTerm() uint64      { return m.Term }
func (m *StartShard) DirectiveTerm() uint64     { return m.Term }
func (m *HandOff) DirectiveTerm() uint64        { return m.Term }
func (m *KillShard) DirectiveTerm() uint64      { return m.Term }
func (m *Leading) DirectiveTerm() uint64        { return m.Term }
