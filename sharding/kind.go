package sharding

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// Entity handles the messages M of one id, one at a time, and answers with R. It is made by its kind's factory when its first message
// arrives and lives until it stops itself, its shard moves away, or it is passivated, which happens only where Options ask for it (spec 2.4). What
// it keeps in its fields is gone then.
type Entity[M, R any] interface {
	// Receive handles one message. What it returns answers an Ask, and is dropped for a Tell; an error is the Ask's, and the entity
	// lives on. A panic is caught and counted: the entity is made anew, after a pause that grows from failure to failure.
	Receive(ctx Context, message M) (R, error)
}

// Stopper is implemented by an entity that wants to know when it ends: passivated, handed off, or stopping itself. It is not called for an
// entity that is killed after its lease was lost.
type Stopper interface {
	Stop(ctx Context)
}

// Context tells an entity who and where it is. It is valid during the call that it came with; ID, Type and Shard may be kept.
type Context interface {
	context.Context // ends when the shard is taken away from this node
	ID() string
	Type() TypeName
	Shard() ShardID
	Epoch() Epoch
	// Command identifies the request; zero where the sender gave none. The runtime knows the latest 64 commands of an entity while that is in
	// memory, and answers a retry with what it was answered first: an entity sees one again only after its memory was lost, or much later.
	Command() (client Incarnation, seq uint64)
	// IsAsk says that somebody waits for the answer.
	IsAsk() bool
	// Later detaches the answer: what Receive returns is then ignored, and the function answers, once, from any goroutine. The
	// entity takes no other message until it has been called. The value must be the kind's R.
	Later() func(reply any, err error)
	// StopSelf ends the entity after this message. Messages that are there already start it again.
	StopSelf()
	// Logger adds type, shard and id.
	Logger() *slog.Logger
}

// Codec turns values into bytes and back. Decode must bound what it allocates by the length of its input, and may not keep it.
type Codec[T any] interface {
	Encode(v T) ([]byte, error)
	Decode(b []byte) (T, error)
}

// CBOR is the default codec. Struct tags are those of fxamacker/cbor: cbor, else json.
type CBOR[T any] struct{}

var (
	cborEnc = func() cbor.EncMode {
		m, err := cbor.CoreDetEncOptions().EncMode()
		if err != nil {
			panic(err) // constant options
		}
		return m
	}()
	cborDec = func() cbor.DecMode {
		m, err := cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: 64}.DecMode()
		if err != nil {
			panic(err) // constant options
		}
		return m
	}()
)

// Encode implements Codec.
func (CBOR[T]) Encode(v T) ([]byte, error) { return cborEnc.Marshal(v) }

// Decode implements Codec.
func (CBOR[T]) Decode(b []byte) (T, error) {
	var v T
	err := cborDec.Unmarshal(b, &v)
	return v, err
}

// Options shapes a kind. Zero values are the defaults.
type Options[M, R any] struct {
	Messages Codec[M] // default CBOR
	Replies  Codec[R] // default CBOR
	// PassivateAfter stops an entity that had no message for this long. Default 0, as anything below it: never. A passivated entity is made anew
	// by the factory when its next message comes: what it kept in memory alone is lost, the answers it gave to known commands included.
	PassivateAfter time.Duration
	// MaxLive bounds the live entities of a node; beyond it the least recently used one is passivated, with the same loss. Default 0: no bound.
	MaxLive int
}

// Kind is an entity implementation under a name. A [[type]] of node.toml names its kind by `entity`.
type Kind struct {
	name           string
	passivateAfter time.Duration
	maxLive        int
	make           func(Context) Behavior
}

// NewKind makes a kind. The factory is called with the context of the first message.
func NewKind[M, R any](name string, factory func(Context) Entity[M, R], o Options[M, R]) Kind {
	if o.Messages == nil {
		o.Messages = CBOR[M]{}
	}
	if o.Replies == nil {
		o.Replies = CBOR[R]{}
	}
	c := &codecs[M, R]{o.Messages, o.Replies}
	return Kind{name: name, passivateAfter: o.PassivateAfter, maxLive: o.MaxLive,
		make: func(ctx Context) Behavior { return &behavior[M, R]{entity: factory(ctx), codecs: c} },
	}
}

// Name gives the kind's name.
func (k Kind) Name() string { return k.name }

// PassivateAfter gives the idle time-out; 0 or less: never.
func (k Kind) PassivateAfter() time.Duration { return k.passivateAfter }

// MaxLive gives the bound on live entities; 0: none.
func (k Kind) MaxLive() int { return k.maxLive }

// New makes an entity, for the runtime that runs it.
func (k Kind) New(ctx Context) Behavior { return k.make(ctx) }

// Behavior is an entity without its types: payloads in, payloads out. The runtime alone calls it.
type Behavior interface {
	// Receive handles one payload. A payload that does not decode gives an error that wraps ErrBadMessage.
	Receive(ctx Context, payload []byte) (reply []byte, err error)
	// EncodeLater encodes what was given to Context.Later's function, in the format that payload asked in.
	EncodeLater(payload []byte, reply any) ([]byte, error)
	Stop(ctx Context)
}

// Format is the first byte of every payload and reply: how the rest is encoded. HTTP and the command line speak JSON to any kind, so that the node
// that takes a request need not know the kind; the answer comes in the format of the question.
type Format byte

// The formats.
const (
	FormatCodec Format = 0 // the kind's codec
	FormatJSON  Format = 1
)

// ErrBadMessage says that a payload is no message of the kind.
var ErrBadMessage = errors.New("bad message")

type codecs[M, R any] struct {
	messages Codec[M]
	replies  Codec[R]
}

func (c *codecs[M, R]) decode(payload []byte) (m M, f Format, err error) {
	if len(payload) == 0 {
		return m, 0, fmt.Errorf("%w: it is empty", ErrBadMessage)
	}
	switch f = Format(payload[0]); f {
	case FormatCodec:
		m, err = c.messages.Decode(payload[1:])
	case FormatJSON:
		d := json.NewDecoder(bytes.NewReader(payload[1:]))
		d.DisallowUnknownFields()
		if err = d.Decode(&m); err == nil {
			if _, end := d.Token(); end != io.EOF { // More would let a closing bracket pass
				err = errors.New("there is something behind the JSON value")
			}
		}
	default:
		err = fmt.Errorf("format %d is not known", f)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrBadMessage, plain(err))
	}
	return m, f, err
}

// plain says what is wrong with a message without the names of Go types, which mean nothing to whoever sent it.
func plain(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return mismatch(e.Field, e.Value, e.Type)
	}
	if e, ok := errors.AsType[*cbor.UnmarshalTypeError](err); ok {
		return mismatch("", e.CBORType, nil)
	}
	return errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "cbor: "))
}

func mismatch(field, got string, want reflect.Type) error {
	what := "the message"
	if field != "" {
		what = strconv.Quote(field)
	}
	if want == nil {
		return fmt.Errorf("%s does not fit: it holds a %s", what, got)
	}
	return fmt.Errorf("%s is of the kind %s: want %s", what, got, inWords(want))
}

// inWords names the JSON that a Go type takes.
func inWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number of %d bits", t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return fmt.Sprintf("a whole number from 0 of %d bits", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Pointer:
		return inWords(t.Elem())
	}
	return "an object"
}

func (c *codecs[M, R]) encode(f Format, r R) ([]byte, error) {
	var b []byte
	var err error
	if f == FormatJSON {
		b, err = json.Marshal(r)
	} else {
		b, err = c.replies.Encode(r)
	}
	if err != nil {
		return nil, fmt.Errorf("the reply cannot be encoded: %w", err)
	}
	return append([]byte{byte(f)}, b...), nil
}

type behavior[M, R any] struct {
	entity Entity[M, R]
	codecs *codecs[M, R]
}

func (b *behavior[M, R]) Receive(ctx Context, payload []byte) ([]byte, error) {
	m, f, err := b.codecs.decode(payload)
	if err != nil {
		return nil, err
	}
	r, err := b.entity.Receive(ctx, m)
	if err != nil {
		return nil, err
	}
	if client, seq := ctx.Command(); !ctx.IsAsk() && client.IsZero() && seq == 0 { // the retry of a command may be an Ask
		return nil, nil
	}
	return b.codecs.encode(f, r)
}

func (b *behavior[M, R]) EncodeLater(payload []byte, reply any) ([]byte, error) {
	r, ok := reply.(R)
	if !ok {
		var want R
		return nil, fmt.Errorf("the later reply is a %T, the kind answers with %T", reply, want)
	}
	return b.codecs.encode(Format(payload[0]), r)
}

func (b *behavior[M, R]) Stop(ctx Context) {
	if s, ok := b.entity.(Stopper); ok {
		s.Stop(ctx)
	}
}
