package entity

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

func command(n uint64) protocol.Command {
	return protocol.Command{Client: sharding.Incarnation{7}, Seq: n}
}

// command sends a message with a command id, and gives the ask's number.
func (w *world) command(mode protocol.Mode, id string, n uint64, m msg) uint64 {
	b, _ := json.Marshal(m)
	w.mu.Lock()
	w.asks++
	ask := w.asks
	w.mu.Unlock()
	d := &protocol.Deliver{Mode: mode, Entity: id, Command: command(n), Payload: append([]byte{byte(sharding.FormatJSON)}, b...)}
	if mode == protocol.Ask {
		d.Ask = ask
	}
	w.Deliver(1, 1, d)
	return ask
}

func (w *world) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.received)
}

// Spec 5.4: a retry of a command is answered with the first answer and never applied again. Ids count an entity, and errors of the entity are answers.
func TestRetryIsAnsweredNotApplied(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 1)
	assert.Equal(t, "2", w.value(t, w.command(protocol.Ask, "a", 1, msg{Add: 2})))
	assert.Equal(t, "5", w.value(t, w.command(protocol.Ask, "a", 2, msg{Add: 3})))
	assert.Equal(t, "2", w.value(t, w.command(protocol.Ask, "a", 1, msg{Add: 2})), "the first answer, not the present value")
	assert.Equal(t, "5", w.value(t, w.send(1, 1, "a", msg{})))
	assert.Equal(t, "2", w.value(t, w.command(protocol.Ask, "b", 1, msg{Add: 2})), "another entity")

	fails := msg{Do: "fail", Reason: "no"}
	for range 2 {
		r := w.reply(t, w.command(protocol.Ask, "a", 3, fails))
		assert.Equal(t, protocol.StatusFailed, r.Status)
		assert.Equal(t, "no", string(r.Payload))
	}
	assert.Equal(t, 5, w.begun(), "each once: a twice, its look, b, the failure")

	// A tell may be followed by an ask that wants to know.
	w.command(protocol.Tell, "a", 4, msg{Add: 10})
	assert.Equal(t, "15", w.value(t, w.command(protocol.Ask, "a", 4, msg{Add: 10})))
	w.command(protocol.Tell, "a", 4, msg{Add: 10})
	assert.Equal(t, "15", w.value(t, w.send(1, 1, "a", msg{})))

	// One id is one message: another one is told so, and not answered with what it did not ask.
	r := w.reply(t, w.command(protocol.Ask, "a", 1, msg{Add: 100}))
	assert.Equal(t, protocol.StatusBadMessage, r.Status)
	assert.Contains(t, string(r.Payload), "Idempotency-Key")
	assert.Equal(t, "15", w.value(t, w.send(1, 1, "a", msg{})))
}

// What was not understood was not done: the same id may carry it in other words.
func TestRetryOfBadMessage(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 1)
	w.asks++
	w.Deliver(1, 1, &protocol.Deliver{Mode: protocol.Ask, Ask: w.asks, Entity: "a", Command: command(1), Payload: []byte("\x01{")})
	assert.Equal(t, protocol.StatusBadMessage, w.reply(t, w.asks).Status)
	assert.Equal(t, "1", w.value(t, w.command(protocol.Ask, "a", 1, msg{Add: 1})))
}

// A retry that comes while the first still waits for Later gets that answer too, whether Later is called from elsewhere or at once.
func TestRetryWaitsForLater(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 1)
	for n := range uint64(200) {
		first := w.command(protocol.Ask, "a", n, msg{Do: "later"})
		again := w.command(protocol.Ask, "a", n, msg{Do: "later"})
		(<-w.later)(int(n), nil) // races with the end of Receive
		assert.Equal(t, fmt.Sprint(n), w.value(t, first))
		assert.Equal(t, fmt.Sprint(n), w.value(t, again))
	}
	w.command(protocol.Tell, "a", 1000, msg{Do: "later"})
	again := w.command(protocol.Ask, "a", 1000, msg{Do: "later"})
	(<-w.later)(7, nil)
	assert.Equal(t, "7", w.value(t, again), "of a tell too")
	assert.Empty(t, w.later)
}

// slowReplies holds a reply back until it is let go; below zero is what Receive returns beside Later, which nobody gets.
type slowReplies struct {
	sharding.CBOR[int]
	entered, release chan struct{}
}

func (s slowReplies) Encode(v int) ([]byte, error) {
	if v >= 0 {
		close(s.entered)
		<-s.release
	}
	return fmt.Append(nil, v), nil
}

// Later's function is called while Receive still runs, and its answer takes longer than Receive: no message overtakes it.
func TestNothingOvertakesLater(t *testing.T) {
	slow := slowReplies{entered: make(chan struct{}), release: make(chan struct{})}
	w := newWorld(t, sharding.Options[msg, int]{Replies: slow})
	w.start(1, 1)
	m, err := sharding.CBOR[msg]{}.Encode(msg{Do: "later, then block"})
	require.NoError(t, err)
	send := func() uint64 {
		w.asks++
		w.Deliver(1, 1, &protocol.Deliver{Mode: protocol.Ask, Ask: w.asks, Entity: "a", Command: command(1), Payload: append([]byte{byte(sharding.FormatCodec)}, m...)})
		return w.asks
	}
	first, again := send(), send()
	go (<-w.later)(5, nil)
	<-slow.entered
	close(w.gate)
	c := w.find(1, 1).cells["a"]
	eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.state == waiting })
	close(slow.release)
	assert.Equal(t, "5", w.value(t, first))
	assert.Equal(t, "5", w.value(t, again))
}

// What is known lives and dies with the entity's memory: after a panic, a stop or a passivation a command is applied to the new one.
func TestKnownIsLostWithMemory(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{PassivateAfter: time.Minute})
	w.start(1, 1)
	add := func() string { return w.value(t, w.command(protocol.Ask, "a", 1, msg{Add: 1})) }
	assert.Equal(t, "1", add())
	w.reply(t, w.command(protocol.Ask, "a", 2, msg{Do: "panic"}))
	assert.Equal(t, "1", add(), "made anew")
	assert.Equal(t, "1", add())
	assert.Equal(t, protocol.StatusFailed, w.reply(t, w.command(protocol.Ask, "a", 2, msg{Do: "panic"})).Status)
	assert.EqualValues(t, 2, w.panics.Load(), "a panic is no answer: it is tried again")

	assert.Equal(t, "1", add())
	w.value(t, w.command(protocol.Ask, "a", 3, msg{Do: "stop"}))
	assert.Equal(t, "1", add())

	w.value(t, w.send(1, 1, "a", msg{Add: 5}))
	w.now.Add(int64(2 * time.Minute))
	eventually(t, func() bool {
		for range sweepParts {
			w.Sweep()
		}
		return w.Live() == 0
	})
	assert.Equal(t, "1", add())
}

// The memory of an entity's commands is bounded by number and by bytes, and the latest is always known.
func TestKnownIsBounded(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 1)
	for n := range uint64(maxKnown + 1) {
		w.value(t, w.command(protocol.Ask, "a", n+1, msg{Add: 1}))
	}
	assert.Equal(t, "2", w.value(t, w.command(protocol.Ask, "a", 2, msg{Add: 1})), "the oldest of the latest 64")
	assert.Equal(t, "66", w.value(t, w.command(protocol.Ask, "a", 1, msg{Add: 1})), "one more is too long ago")
	assert.Nil(t, w.find(1, 1).cells["a"].known.find(command(2)))

	var k known
	big := protocol.Reply{Payload: []byte(strings.Repeat("x", maxKnownBytes/2))}
	for n := range uint64(3) {
		k.end(k.begin(command(n), 0), big)
	}
	assert.Nil(t, k.find(command(0)))
	assert.NotNil(t, k.find(command(1)))
	k.end(k.begin(command(9), 0), protocol.Reply{Payload: make([]byte, 2*maxKnownBytes)})
	require.Len(t, k, 1)
	assert.NotNil(t, k.find(command(9)))

	w.value(t, w.send(1, 1, "plain", msg{Add: 1}))
	assert.Zero(t, cap(w.find(1, 1).cells["plain"].known), "without commands it takes no memory")
}

// Hammer: many senders retry the same commands at once; each is applied exactly once and all get its answer.
func TestRetriesRace(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 1)
	const senders, commands = 8, 50
	asks := make([][]uint64, senders)
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for n := range uint64(commands) {
				asks[s] = append(asks[s], w.command(protocol.Ask, "a", n, msg{Add: 1}))
			}
		})
	}
	wg.Wait()
	answers := map[string]bool{}
	for n := range commands {
		want := w.value(t, asks[0][n])
		answers[want] = true
		for s := range senders {
			assert.Equal(t, want, w.value(t, asks[s][n]))
		}
	}
	assert.Len(t, answers, commands)
	assert.Equal(t, fmt.Sprint(commands), w.value(t, w.send(1, 1, "a", msg{})))
}

// An entity whose kind asks for no passivation keeps its memory however long it is idle: node.toml promises that memory is lost only on a move or restart.
func TestNoPassivationUnlessAsked(t *testing.T) {
	for _, after := range []time.Duration{0, -1} {
		w := newWorld(t, sharding.Options[msg, int]{PassivateAfter: after})
		w.start(1, 1)
		w.value(t, w.send(1, 1, "a", msg{Add: 7}))
		c := w.find(1, 1).cells["a"]
		eventually(t, c.isIdle)
		w.now.Add(int64(30 * time.Minute)) // within the lease
		for range sweepParts {
			w.Sweep()
			require.True(t, c.isIdle(), "it is not on its way out")
		}
		assert.Equal(t, "8", w.value(t, w.send(1, 1, "a", msg{Add: 1})))
		assert.Zero(t, w.stops.Load())
	}
}
