package protocol

import (
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/droverhq/drover/sharding"
)

// Bounds of what a decoder takes; a peer or a log that asks for more is refused before anything is allocated for it.
const (
	// MaxFrame is the longest frame in bytes, header included: a full map of 100 000 shards with room to spare.
	MaxFrame = 32 << 20
	// MaxEntry is the longest log entry in bytes.
	MaxEntry = 8 << 20

	maxArray = sharding.MaxAllShards // elements: a node's load names the shards of all types
	maxMap   = 4096                  // pairs: tags of a node
	maxDepth = 12
)

// ErrVersion says that a frame or entry was written by a build whose version this one does not read.
var ErrVersion = errors.New("unreadable protocol version")

// ErrUnknownKind says that a frame or entry is of a kind that this build does not know. A peer of the next version may send such
// frames: the receiver counts and drops them (docs/adr/0002-schema.md).
var ErrUnknownKind = errors.New("unknown kind")

var (
	encMode = must(cbor.EncOptions{
		Sort:          cbor.SortCoreDeterministic,
		ShortestFloat: cbor.ShortestFloat16,
		NaNConvert:    cbor.NaNConvert7e00,
		InfConvert:    cbor.InfConvertFloat16,
		IndefLength:   cbor.IndefLengthForbidden,
		NilContainers: cbor.NilContainerAsEmpty, // so that nil and empty give the same bytes
		TagsMd:        cbor.TagsForbidden,
	}.EncMode())
	decMode = must(cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		MaxNestedLevels:  maxDepth,
		MaxArrayElements: maxArray,
		MaxMapPairs:      maxMap,
		IntDec:           cbor.IntDecConvertNone,
	}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // options are constants: the first test shows it
	}
	return v
}

// newControl makes an empty control message of a kind, or nil.
func newControl(k FrameKind) Message {
	switch k {
	case FrameRegister:
		return new(Register)
	case FrameRenew:
		return new(Renew)
	case FrameStopping:
		return new(Stopping)
	case FrameGetShardHome:
		return new(GetShardHome)
	case FrameHandOffComplete:
		return new(HandOffComplete)
	case FrameHandOffRefused:
		return new(HandOffRefused)
	case FrameShardsStopped:
		return new(ShardsStopped)
	case FrameShardStarted:
		return new(ShardStarted)
	case FrameRegisterAck:
		return new(RegisterAck)
	case FrameLeaseAck:
		return new(LeaseAck)
	case FrameShardMapUpdate:
		return new(ShardMapUpdate)
	case FrameShardHome:
		return new(ShardHome)
	case FrameStartShard:
		return new(StartShard)
	case FrameHandOff:
		return new(HandOff)
	case FrameKillShard:
		return new(KillShard)
	case FrameLeading:
		return new(Leading)
	}
	return nil
}

// AppendFrame appends the frame of a message to dst and returns the extended slice. It fails, leaving dst's content alone, where the
// message has no form: a text that is not UTF-8, or a frame above MaxFrame.
func AppendFrame(dst []byte, m Message) ([]byte, error) {
	k := m.FrameKind()
	if k >= FrameDeliver {
		out, err := appendData(append(dst, Version, byte(k)), m)
		if err != nil {
			return dst, err
		}
		return out, nil
	}
	body, err := encMode.Marshal(m)
	if err != nil {
		return dst, fmt.Errorf("encode %s: %w", k, err)
	}
	if len(body)+2 > MaxFrame {
		return dst, fmt.Errorf("encode %s: frame of %d bytes is above the limit of %d", k, len(body)+2, MaxFrame)
	}
	return append(append(dst, Version, byte(k)), body...), nil
}

// DecodeFrame reads one frame. Errors wrap ErrVersion or ErrUnknownKind where that is the reason. The message may share memory with b
// (data payloads), so b must not be changed while it is in use.
func DecodeFrame(b []byte) (Message, error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("frame of %d bytes is shorter than its header", len(b))
	}
	if len(b) > MaxFrame {
		return nil, fmt.Errorf("frame of %d bytes is above the limit of %d", len(b), MaxFrame)
	}
	v, k := b[0], FrameKind(b[1])
	if v < OldestVersion || v > Version {
		return nil, fmt.Errorf("frame %s: %w %d, this build reads %d to %d", k, ErrVersion, v, OldestVersion, Version)
	}
	if k >= FrameDeliver {
		return decodeData(k, b[2:])
	}
	m := newControl(k)
	if m == nil {
		return nil, fmt.Errorf("frame: %w %d", ErrUnknownKind, uint8(k))
	}
	if err := decMode.Unmarshal(b[2:], m); err != nil {
		return nil, fmt.Errorf("decode %s: %w", k, err)
	}
	return m, nil
}

// EncodeEntry gives the bytes of a log entry, with V set to Version. It fails where not exactly the body that Kind names is set.
func EncodeEntry(e *Entry) ([]byte, error) {
	c := *e
	c.V = Version
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	b, err := encMode.Marshal(&c)
	if err != nil {
		return nil, fmt.Errorf("encode entry %s: %w", e.Kind, err)
	}
	if len(b) > MaxEntry {
		return nil, fmt.Errorf("encode entry %s: %d bytes are above the limit of %d", e.Kind, len(b), MaxEntry)
	}
	return b, nil
}

// DecodeEntry reads a log entry. Errors wrap ErrVersion or ErrUnknownKind where that is the reason.
func DecodeEntry(b []byte) (*Entry, error) {
	if len(b) > MaxEntry {
		return nil, fmt.Errorf("entry of %d bytes is above the limit of %d", len(b), MaxEntry)
	}
	e := new(Entry)
	if err := decMode.Unmarshal(b, e); err != nil {
		return nil, fmt.Errorf("decode entry: %w", err)
	}
	if e.V < OldestVersion || e.V > Version {
		return nil, fmt.Errorf("entry: %w %d, this build reads %d to %d", ErrVersion, e.V, OldestVersion, Version)
	}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("decode entry: %w", err)
	}
	return e, nil
}

// check holds an entry against its kind: exactly one body, the right one.
func (e *Entry) check() error {
	set, right := 0, false
	for _, b := range [...]struct {
		kind Kind
		set  bool
	}{
		{KindCreateCluster, e.CreateCluster != nil},
		{KindConfigure, e.Configure != nil},
		{KindPutServer, e.PutServer != nil},
		{KindRemoveServer, e.RemoveServer != nil},
		{KindRegister, e.Register != nil},
		{KindDeregister, e.Deregister != nil},
		{KindGrantLeases, e.GrantLeases != nil},
		{KindSetDrain, e.SetDrain != nil},
		{KindBeginPass, e.BeginPass != nil},
		{KindPlanMoves, e.PlanMoves != nil},
		{KindAssignHomes, e.AssignHomes != nil},
		{KindCompleteHandOff, e.CompleteHandOff != nil},
		{KindFenceShards, e.FenceShards != nil},
		{KindReleaseShards, e.ReleaseShards != nil},
		{KindPinShard, e.PinShard != nil},
		{KindSetPaused, e.SetPaused != nil},
		{KindSetStrategy, e.SetStrategy != nil},
		{KindStrategyOutcome, e.StrategyOutcome != nil},
		{KindReleaseHandovers, e.ReleaseHandovers != nil},
		{KindSetShadow, e.SetShadow != nil},
		{KindPromote, e.Promote != nil},
		{KindRollback, e.Rollback != nil},
	} {
		if b.set {
			set++
			right = right || b.kind == e.Kind
		}
	}
	if kindNames[e.Kind] == "" {
		return fmt.Errorf("%w %d", ErrUnknownKind, uint8(e.Kind))
	}
	if set != 1 || !right {
		return fmt.Errorf("entry %s has %d bodies, want the one of its kind alone", e.Kind, set)
	}
	return nil
}

var kindNames = [256]string{
	KindCreateCluster: "create_cluster", KindConfigure: "configure", KindPutServer: "put_server", KindRemoveServer: "remove_server",
	KindRegister: "register", KindDeregister: "deregister", KindGrantLeases: "grant_leases", KindSetDrain: "set_drain",
	KindBeginPass: "begin_pass", KindPlanMoves: "plan_moves", KindAssignHomes: "assign_homes",
	KindCompleteHandOff: "complete_hand_off", KindFenceShards: "fence_shards", KindReleaseShards: "release_shards",
	KindPinShard: "pin_shard", KindSetPaused: "set_paused", KindSetStrategy: "set_strategy",
	KindStrategyOutcome: "strategy_outcome", KindReleaseHandovers: "release_handovers",
	KindSetShadow: "set_shadow", KindPromote: "promote", KindRollback: "rollback",
}

// String gives the kind's name.
func (k Kind) String() string {
	if n := kindNames[k]; n != "" {
		return n
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

var frameNames = [256]string{
	FrameRegister: "Register", FrameRenew: "Renew", FrameStopping: "Stopping", FrameGetShardHome: "GetShardHome",
	FrameHandOffComplete: "HandOffComplete", FrameHandOffRefused: "HandOffRefused", FrameShardsStopped: "ShardsStopped",
	FrameShardStarted: "ShardStarted", FrameRegisterAck: "RegisterAck", FrameLeaseAck: "LeaseAck",
	FrameShardMapUpdate: "ShardMapUpdate", FrameShardHome: "ShardHome", FrameStartShard: "StartShard", FrameHandOff: "HandOff",
	FrameKillShard: "KillShard", FrameLeading: "Leading",
	FrameDeliver: "Deliver", FrameReply: "Reply", FrameSenderMoved: "SenderMoved", FrameSenderDone: "SenderDone",
}

// String gives the message's name.
func (k FrameKind) String() string {
	if n := frameNames[k]; n != "" {
		return n
	}
	return fmt.Sprintf("frame %d", uint8(k))
}
