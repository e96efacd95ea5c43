// Package builtin holds the entities that a node offers without any Go code (spec 5.1).
package builtin

import (
	"errors"
	"fmt"
	"math"

	"github.com/droverhq/drover/sharding"
)

// Counter is the name of the counter's kind.
const Counter = "counter"

// Kinds lists the built-in entities.
func Kinds() []sharding.Kind {
	return []sharding.Kind{sharding.NewKind(Counter, newCounter, sharding.Options[CounterMessage, CounterReply]{})}
}

// CounterMessage is what a counter takes: exactly one of the two.
type CounterMessage struct {
	Add *int64 `json:"add,omitempty"`
	Get bool   `json:"get,omitempty"`
}

// CounterReply answers every message with the value after it.
type CounterReply struct {
	Value int64 `json:"value"`
}

type counter struct{ value int64 }

func newCounter(sharding.Context) sharding.Entity[CounterMessage, CounterReply] { return &counter{} }

var errOverflow = errors.New("the counter would leave the range of int64: it keeps its value")

// Receive implements sharding.Entity.
func (c *counter) Receive(_ sharding.Context, m CounterMessage) (CounterReply, error) {
	switch {
	case m.Add != nil && m.Get, m.Add == nil && !m.Get:
		what := "neither add nor get is there"
		if m.Get {
			what = "add and get are both there"
		}
		return CounterReply{}, fmt.Errorf(`%w: %s: a counter takes {"add":n} or {"get":true}`, sharding.ErrBadMessage, what)
	case m.Add != nil:
		n := *m.Add
		if n > 0 && c.value > math.MaxInt64-n || n < 0 && c.value < math.MinInt64-n {
			return CounterReply{}, errOverflow
		}
		c.value += n
	}
	return CounterReply{Value: c.value}, nil
}
