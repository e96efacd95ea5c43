package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/droverhq/drover/sharding"
)

// Bounds of a data frame. The encoder refuses what the decoder would.
const (
	MaxName    = 255     // bytes of a type or node name
	MaxPayload = 5 << 20 // bytes; with the rest of its frame it has to fit into one of the transport
)

// Body of each data frame, in order. uv: unsigned varint; name: uv length, bytes; member: name, 16 bytes of incarnation.
//
//	Deliver      flags, name type, uv shard, uv epoch, member sender, uv seq, hops, [uv ask], [uv deadline], [uv held], [uv origin], [16 bytes, uv command], name entity, payload to the end
//	Reply        flags, uv ask, status, [name type, uv shard, member owner, uv epoch], payload to the end
//	SenderMoved  name type, uv shard, uv epoch, uv from, uv seq
//	SenderDone   name type, uv shard, uv epoch, member sender, uv from, uv seq
const (
	flagMode     = 0x03 // bits 0–1 of a Deliver: the mode
	flagAsk      = 0x04
	flagDeadline = 0x08
	flagCommand  = 0x10
	flagHeld     = 0x20
	flagOrigin   = 0x40
	flagsDeliver = 0x7f

	flagHome   = 0x01
	flagsReply = 0x01
)

var errShort = errors.New("ends too early")

// appendData appends the body of a data message to dst.
func appendData(dst []byte, m Message) ([]byte, error) {
	switch m := m.(type) {
	case *Deliver:
		return appendDeliver(dst, m)
	case *Reply:
		return appendReply(dst, m)
	case *SenderMoved:
		dst, err := appendName(dst, string(m.Type), "type", MaxName)
		if err != nil {
			return nil, err
		}
		dst = binary.AppendUvarint(dst, uint64(m.Shard))
		dst = binary.AppendUvarint(dst, uint64(m.Epoch))
		dst = binary.AppendUvarint(dst, m.From)
		return binary.AppendUvarint(dst, m.Seq), nil
	case *SenderDone:
		dst, err := appendName(dst, string(m.Type), "type", MaxName)
		if err != nil {
			return nil, err
		}
		dst = binary.AppendUvarint(dst, uint64(m.Shard))
		dst = binary.AppendUvarint(dst, uint64(m.Epoch))
		if dst, err = appendMember(dst, m.Sender); err != nil {
			return nil, err
		}
		dst = binary.AppendUvarint(dst, m.From)
		return binary.AppendUvarint(dst, m.Seq), nil
	}
	return nil, fmt.Errorf("frame kind %d is no data frame", m.FrameKind())
}

func appendDeliver(dst []byte, m *Deliver) ([]byte, error) {
	if m.Mode > Start {
		return nil, fmt.Errorf("deliver: mode %d is unknown", m.Mode)
	}
	if m.Deadline < 0 {
		return nil, fmt.Errorf("deliver: deadline %d ms is negative", m.Deadline)
	}
	if len(m.Payload) > MaxPayload {
		return nil, fmt.Errorf("deliver: payload of %d bytes is above the limit of %d", len(m.Payload), MaxPayload)
	}
	flags := byte(m.Mode)
	if m.Ask != 0 {
		flags |= flagAsk
	}
	if m.Deadline != 0 {
		flags |= flagDeadline
	}
	if m.Held != 0 {
		flags |= flagHeld
	}
	if m.Origin != 0 {
		flags |= flagOrigin
	}
	if m.Command != (Command{}) {
		flags |= flagCommand
	}
	dst = append(dst, flags)
	dst, err := appendName(dst, string(m.Type), "type", MaxName)
	if err != nil {
		return nil, err
	}
	dst = binary.AppendUvarint(dst, uint64(m.Shard))
	dst = binary.AppendUvarint(dst, uint64(m.Epoch))
	if dst, err = appendMember(dst, m.Sender); err != nil {
		return nil, err
	}
	dst = binary.AppendUvarint(dst, m.Seq)
	dst = append(dst, m.Hops)
	if flags&flagAsk != 0 {
		dst = binary.AppendUvarint(dst, m.Ask)
	}
	if flags&flagDeadline != 0 {
		dst = binary.AppendUvarint(dst, uint64(m.Deadline))
	}
	if flags&flagHeld != 0 {
		dst = binary.AppendUvarint(dst, uint64(m.Held))
	}
	if flags&flagOrigin != 0 {
		dst = binary.AppendUvarint(dst, uint64(m.Origin))
	}
	if flags&flagCommand != 0 {
		dst = append(dst, m.Command.Client[:]...)
		dst = binary.AppendUvarint(dst, m.Command.Seq)
	}
	if dst, err = appendName(dst, m.Entity, "entity id", sharding.MaxEntityID); err != nil {
		return nil, err
	}
	return append(dst, m.Payload...), nil
}

func appendReply(dst []byte, m *Reply) ([]byte, error) {
	if m.Status > StatusTryAgain {
		return nil, fmt.Errorf("reply: status %d is unknown", m.Status)
	}
	if len(m.Payload) > MaxPayload {
		return nil, fmt.Errorf("reply: payload of %d bytes is above the limit of %d", len(m.Payload), MaxPayload)
	}
	var flags byte
	if m.Home != nil {
		flags |= flagHome
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, m.Ask)
	dst = append(dst, byte(m.Status))
	if h := m.Home; h != nil {
		var err error
		if dst, err = appendName(dst, string(h.Type), "type", MaxName); err != nil {
			return nil, err
		}
		dst = binary.AppendUvarint(dst, uint64(h.Shard))
		if dst, err = appendMember(dst, h.Owner); err != nil {
			return nil, err
		}
		dst = binary.AppendUvarint(dst, uint64(h.Epoch))
	}
	return append(dst, m.Payload...), nil
}

func appendName(dst []byte, s, what string, limit int) ([]byte, error) {
	if len(s) > limit {
		return nil, fmt.Errorf("%s of %d bytes is above the limit of %d", what, len(s), limit)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...), nil
}

func appendMember(dst []byte, m sharding.Member) ([]byte, error) {
	dst, err := appendName(dst, string(m.Node), "node name", MaxName)
	if err != nil {
		return nil, err
	}
	return append(dst, m.Incarnation[:]...), nil
}

// decodeData reads the body of a data frame. The message aliases body, strings included: body must not be written to or reused while
// the message lives, and who keeps a name beyond that clones it (it pins the whole read buffer). Any bytes give a message or an error.
func decodeData(kind FrameKind, body []byte) (Message, error) {
	r := dataReader{b: body}
	switch kind {
	case FrameDeliver:
		m := &Deliver{}
		flags := r.byte()
		m.Mode = Mode(flags & flagMode)
		m.Type = sharding.TypeName(r.name(MaxName))
		m.Shard = r.shard()
		m.Epoch = sharding.Epoch(r.uvarint())
		m.Sender = r.member()
		m.Seq = r.uvarint()
		m.Hops = r.byte()
		if flags&flagAsk != 0 {
			m.Ask = r.uvarint()
		}
		if flags&flagDeadline != 0 {
			d := r.uvarint()
			if d > 1<<63-1 {
				r.fail(errors.New("deadline is out of range"))
			}
			m.Deadline = int64(d)
		}
		if flags&flagHeld != 0 {
			h := r.uvarint()
			if h > 1<<32-1 {
				r.fail(errors.New("time held is out of range"))
			}
			m.Held = uint32(h)
		}
		if flags&flagOrigin != 0 {
			m.Origin = sharding.Epoch(r.uvarint())
		}
		if flags&flagCommand != 0 {
			m.Command.Client = r.incarnation()
			m.Command.Seq = r.uvarint()
		}
		m.Entity = r.name(sharding.MaxEntityID)
		m.Payload = r.rest()
		if flags&^flagsDeliver != 0 || m.Mode > Start {
			r.fail(fmt.Errorf("flags %#02x are unknown", flags))
		}
		if r.err != nil {
			return nil, fmt.Errorf("deliver frame: %w", r.err)
		}
		return m, nil
	case FrameReply:
		m := &Reply{}
		flags := r.byte()
		m.Ask = r.uvarint()
		m.Status = Status(r.byte())
		if flags&flagHome != 0 {
			m.Home = &MovedTo{Type: sharding.TypeName(r.name(MaxName)), Shard: r.shard(), Owner: r.member(), Epoch: sharding.Epoch(r.uvarint())}
		}
		m.Payload = r.rest()
		if flags&^flagsReply != 0 || m.Status > StatusTryAgain {
			r.fail(fmt.Errorf("flags %#02x or status %d are unknown", flags, m.Status))
		}
		if r.err != nil {
			return nil, fmt.Errorf("reply frame: %w", r.err)
		}
		return m, nil
	case FrameSenderMoved:
		m := &SenderMoved{Type: sharding.TypeName(r.name(MaxName)), Shard: r.shard(), Epoch: sharding.Epoch(r.uvarint()), From: r.uvarint(), Seq: r.uvarint()}
		r.end()
		if r.err != nil {
			return nil, fmt.Errorf("sender-moved frame: %w", r.err)
		}
		return m, nil
	case FrameSenderDone:
		m := &SenderDone{Type: sharding.TypeName(r.name(MaxName)), Shard: r.shard(), Epoch: sharding.Epoch(r.uvarint()), Sender: r.member(), From: r.uvarint(), Seq: r.uvarint()}
		r.end()
		if r.err != nil {
			return nil, fmt.Errorf("sender-done frame: %w", r.err)
		}
		return m, nil
	}
	return nil, fmt.Errorf("frame: %w %d", ErrUnknownKind, uint8(kind))
}

// dataReader reads a body from the front. After the first error every read gives zero, so that callers look once, at the end.
type dataReader struct {
	b   []byte
	err error
}

func (r *dataReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *dataReader) byte() byte {
	if len(r.b) == 0 {
		r.fail(errShort)
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *dataReader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.b)
	if n == 0 {
		r.fail(errShort)
		return 0
	}
	if n < 0 {
		r.fail(errors.New("varint is above 64 bits"))
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *dataReader) shard() sharding.ShardID {
	v := r.uvarint()
	if v > 1<<32-1 {
		r.fail(fmt.Errorf("shard %d is out of range", v))
	}
	return sharding.ShardID(v)
}

func (r *dataReader) name(limit int) string {
	n := r.uvarint()
	if n > uint64(limit) {
		r.fail(fmt.Errorf("name of %d bytes is above the limit of %d", n, limit))
		return ""
	}
	if n > uint64(len(r.b)) {
		r.fail(errShort)
		return ""
	}
	if n == 0 {
		return ""
	}
	s := unsafe.String(&r.b[0], int(n))
	r.b = r.b[n:]
	return s
}

func (r *dataReader) incarnation() (i sharding.Incarnation) {
	if len(r.b) < len(i) {
		r.fail(errShort)
		return i
	}
	copy(i[:], r.b)
	r.b = r.b[len(i):]
	return i
}

func (r *dataReader) member() sharding.Member {
	return sharding.Member{Node: sharding.NodeID(r.name(MaxName)), Incarnation: r.incarnation()}
}

// rest takes the payload, bounded and with no room to grow into what follows in the caller's buffer.
func (r *dataReader) rest() []byte {
	if len(r.b) > MaxPayload {
		r.fail(fmt.Errorf("payload of %d bytes is above the limit of %d", len(r.b), MaxPayload))
	}
	if len(r.b) == 0 {
		return nil
	}
	p := r.b[:len(r.b):len(r.b)]
	r.b = nil
	return p
}

func (r *dataReader) end() {
	if len(r.b) > 0 {
		r.fail(fmt.Errorf("%d bytes too many", len(r.b)))
	}
}
