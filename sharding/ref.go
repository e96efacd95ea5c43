package sharding

import (
	"context"
	"errors"
	"fmt"
)

// What an Ask can end in, besides a reply, the entity's own error (*EntityError) and the context's.
var (
	// ErrUnavailable: the message was surely not delivered; it may be sent again.
	ErrUnavailable = errors.New("unavailable")
	// ErrNoType: no node of the cluster hosts the type.
	ErrNoType = errors.New("nobody hosts this type")
)

// EntityError is an error that the entity answered with.
type EntityError struct{ Text string }

// Error gives the entity's text.
func (e *EntityError) Error() string { return e.Text }

// System sends messages to entities by type and id; a node is one. Payloads begin with a Format.
type System interface {
	// AskEntity sends a message and waits for its answer. Without a deadline of ctx it waits 30 s.
	AskEntity(ctx context.Context, t TypeName, id string, payload []byte) (reply []byte, err error)
	// TellEntity sends a message: at most once, in order with this node's other messages to the entity. An error says that it surely was not sent.
	TellEntity(t TypeName, id string, payload []byte) error
	// StartEntity places the entity's shard and starts the entity.
	StartEntity(ctx context.Context, t TypeName, id string) error
}

// Region sends messages of one type to the entities that the messages name.
type Region[M, R any] struct {
	system  System
	name    TypeName
	codecs  codecs[M, R]
	extract func(M) string
}

// RegionOf gives a ref to all entities of a type. extractEntityID takes the id from a message; it may be nil where only Entity is used.
// The codecs must be the kind's; nil is CBOR.
func RegionOf[M, R any](s System, t TypeName, extractEntityID func(M) string, o Options[M, R]) Region[M, R] {
	r := Region[M, R]{system: s, name: t, extract: extractEntityID, codecs: codecs[M, R]{o.Messages, o.Replies}}
	if r.codecs.messages == nil {
		r.codecs.messages = CBOR[M]{}
	}
	if r.codecs.replies == nil {
		r.codecs.replies = CBOR[R]{}
	}
	return r
}

// Entity gives a ref to one entity, at once and without a look-up. It survives moves.
func (r Region[M, R]) Entity(id string) Ref[M, R] { return Ref[M, R]{region: r, id: id} }

// Ask sends a message to the entity that it names.
func (r Region[M, R]) Ask(ctx context.Context, m M) (R, error) {
	id, err := r.idOf(m)
	if err != nil {
		var zero R
		return zero, err
	}
	return r.Entity(id).Ask(ctx, m)
}

// Tell sends a message to the entity that it names, and forgets it.
func (r Region[M, R]) Tell(m M) error {
	id, err := r.idOf(m)
	if err != nil {
		return err
	}
	return r.Entity(id).Tell(m)
}

func (r Region[M, R]) idOf(m M) (string, error) {
	if r.extract == nil {
		return "", fmt.Errorf("the region ref of %s has no extractEntityID: send through Entity(id)", r.name)
	}
	id := r.extract(m)
	return id, CheckEntityID(id)
}

// Ref is bound to one entity.
type Ref[M, R any] struct {
	region Region[M, R]
	id     string
}

// ID gives the entity's id.
func (e Ref[M, R]) ID() string { return e.id }

// Ask sends a message and waits for the reply. Errors: *EntityError (the entity's own), ErrUnavailable (surely not delivered), ErrNoType,
// ErrBadMessage, ErrEntityID, or the context's (the outcome is unknown).
func (e Ref[M, R]) Ask(ctx context.Context, m M) (R, error) {
	var zero R
	payload, err := e.encode(m)
	if err != nil {
		return zero, err
	}
	reply, err := e.region.system.AskEntity(ctx, e.region.name, e.id, payload)
	if err != nil {
		return zero, err
	}
	if len(reply) == 0 || Format(reply[0]) != FormatCodec {
		return zero, fmt.Errorf("%w: the reply is in another format than the question", ErrBadMessage)
	}
	return e.region.codecs.replies.Decode(reply[1:])
}

// Tell sends a message and forgets it: at most once, in order with this node's other messages to the entity.
func (e Ref[M, R]) Tell(m M) error {
	payload, err := e.encode(m)
	if err != nil {
		return err
	}
	return e.region.system.TellEntity(e.region.name, e.id, payload)
}

// Start places the entity's shard and starts the entity.
func (e Ref[M, R]) Start(ctx context.Context) error {
	if err := CheckEntityID(e.id); err != nil {
		return err
	}
	return e.region.system.StartEntity(ctx, e.region.name, e.id)
}

func (e Ref[M, R]) encode(m M) ([]byte, error) {
	if err := CheckEntityID(e.id); err != nil {
		return nil, err
	}
	b, err := e.region.codecs.messages.Encode(m)
	if err != nil {
		return nil, fmt.Errorf("the message cannot be encoded: %w", err)
	}
	return append([]byte{byte(FormatCodec)}, b...), nil
}
