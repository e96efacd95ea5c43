package entity

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/internal/boottime"
	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

type msg struct {
	Add    int    `json:"add,omitempty"`
	Do     string `json:"do,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// probe is an entity whose behaviour the messages choose.
type probe struct {
	w     *world
	value int
}

func (p *probe) Receive(ctx sharding.Context, m msg) (int, error) {
	p.w.note(fmt.Sprint(ctx.ID(), "/", ctx.Epoch()), m)
	switch m.Do {
	case "panic":
		panic(m.Reason)
	case "fail":
		return 0, errors.New(m.Reason)
	case "block":
		<-p.w.gate
	case "stop":
		ctx.StopSelf()
	case "later":
		p.w.later <- ctx.Later()
		return -1, nil
	case "later, then block":
		p.w.later <- ctx.Later()
		<-p.w.gate
		return -1, nil
	}
	p.value += m.Add
	return p.value, nil
}

func (p *probe) Stop(ctx sharding.Context) { p.w.stops.Add(1) }

type world struct {
	*Runtime
	gate     chan struct{}
	later    chan func(any, error)
	stops    atomic.Int64
	panics   atomic.Int64
	now      atomic.Int64
	asks     uint64
	mu       sync.Mutex
	replies  map[uint64]protocol.Reply
	stopped  []protocol.ShardEpoch
	unbegun  []string
	why      string // of the last one
	received []string
}

func (w *world) note(id string, m msg) {
	w.mu.Lock()
	w.received = append(w.received, fmt.Sprint(id, ":", m.Add, m.Do))
	w.mu.Unlock()
}

// The bounds of a world's mailboxes.
const testMessages, testBytes = 1000, 1 << 16

func newWorld(t testing.TB, o sharding.Options[msg, int]) *world {
	w := &world{gate: make(chan struct{}), later: make(chan func(any, error), 16), replies: map[uint64]protocol.Reply{}}
	w.now.Store(int64(time.Hour))
	pool := NewPool()
	kind := sharding.NewKind("probe", func(sharding.Context) sharding.Entity[msg, int] { return &probe{w: w} }, o)
	w.Runtime = New(Config{Type: "t", Kind: kind, Pool: pool, Logger: slog.New(slog.DiscardHandler),
		Now: func() sharding.Instant { return sharding.Instant(w.now.Load()) },
		Reply: func(_ sharding.ShardID, _ sharding.Epoch, _ sharding.Member, r protocol.Reply) {
			w.mu.Lock()
			w.replies[r.Ask] = r
			w.mu.Unlock()
		},
		Stopped: func(s sharding.ShardID, e sharding.Epoch) {
			w.mu.Lock()
			w.stopped = append(w.stopped, protocol.ShardEpoch{Shard: s, Epoch: e})
			w.mu.Unlock()
		},
		Unbegun: func(d *protocol.Deliver, why string) {
			w.mu.Lock()
			w.unbegun = append(w.unbegun, d.Entity)
			w.why = why
			w.mu.Unlock()
		},
		Panicked:    func() { w.panics.Add(1) },
		MaxMessages: testMessages, MaxBytes: testBytes,
	})
	t.Cleanup(func() { w.Runtime.Close(); pool.Close() })
	return w
}

func (w *world) start(shard sharding.ShardID, epoch sharding.Epoch) {
	w.Start(shard, epoch)
	w.extend(shard, epoch, time.Hour)
}

func (w *world) extend(shard sharding.ShardID, epoch sharding.Epoch, d time.Duration) {
	w.Extend([]protocol.ShardEpoch{{Shard: shard, Epoch: epoch}}, sharding.Instant(w.now.Load()).Add(d))
}

func (w *world) send(shard sharding.ShardID, epoch sharding.Epoch, id string, m msg) uint64 {
	b, _ := json.Marshal(m)
	w.asks++
	w.Deliver(shard, epoch, &protocol.Deliver{Mode: protocol.Ask, Ask: w.asks, Entity: id, Payload: append([]byte{byte(sharding.FormatJSON)}, b...)})
	return w.asks
}

func eventually(t testing.TB, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 10*time.Second, time.Millisecond)
}

func (w *world) reply(t testing.TB, ask uint64) protocol.Reply {
	t.Helper()
	var r protocol.Reply
	eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); var ok bool; r, ok = w.replies[ask]; return ok })
	return r
}

func (w *world) value(t testing.TB, ask uint64) string {
	t.Helper()
	r := w.reply(t, ask)
	require.Equal(t, protocol.StatusOK, r.Status, string(r.Payload))
	return string(r.Payload[1:])
}

func (w *world) snapshot() (stopped []protocol.ShardEpoch, unbegun []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]protocol.ShardEpoch(nil), w.stopped...), append([]string(nil), w.unbegun...)
}

// Spec 2.4: one message at a time, in order; errors and bad messages are answers, and the entity lives on.
func TestAnswers(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 1)
	assert.Equal(t, "2", w.value(t, w.send(1, 1, "a", msg{Add: 2})))
	assert.Equal(t, "5", w.value(t, w.send(1, 1, "a", msg{Add: 3})))
	assert.Equal(t, "1", w.value(t, w.send(1, 1, "b", msg{Add: 1})))
	r := w.reply(t, w.send(1, 1, "a", msg{Do: "fail", Reason: "no"}))
	assert.Equal(t, protocol.StatusFailed, r.Status)
	assert.Equal(t, "no", string(r.Payload))
	w.asks++
	w.Deliver(1, 1, &protocol.Deliver{Mode: protocol.Ask, Ask: w.asks, Entity: "a", Payload: []byte(`x`)})
	assert.Equal(t, protocol.StatusBadMessage, w.reply(t, w.asks).Status)
	assert.Equal(t, "6", w.value(t, w.send(1, 1, "a", msg{Add: 1})))
	assert.Equal(t, []string{"a", "b"}, w.EntityIDs(1))
	stats := w.Stats()
	require.Len(t, stats, 1)
	assert.Equal(t, 2, stats[0].Entities)
}

// Spec 2.4: panics are caught, counted, and restart the entity with backoff; others are not touched.
func TestPanicRestarts(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 1)
	w.value(t, w.send(1, 1, "a", msg{Add: 7}))
	r := w.reply(t, w.send(1, 1, "a", msg{Do: "panic", Reason: "boom"}))
	assert.Equal(t, protocol.StatusFailed, r.Status)
	assert.NotContains(t, string(r.Payload), "boom", "what a panic says is for the log, not for clients")
	assert.Equal(t, "1", w.value(t, w.send(1, 1, "a", msg{Add: 1})), "made anew")
	assert.EqualValues(t, 1, w.panics.Load())
}

// Spec 2.1: a lapsed lease begins nothing, keeps memory, and goes on when it comes back.
func TestLeaseGatesEachMessage(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.Start(1, 1)
	first := w.send(1, 1, "a", msg{Add: 1}) // not covered yet
	w.extend(1, 1, time.Second)
	assert.Equal(t, "1", w.value(t, first))
	w.now.Add(int64(time.Second)) // lapsed, though nobody said so
	late := w.send(1, 1, "a", msg{Add: 1})
	eventually(t, func() bool {
		s := w.find(1, 1)
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.parked) == 1
	})
	w.mu.Lock()
	assert.Len(t, w.received, 1)
	w.mu.Unlock()
	w.extend(1, 1, time.Second)
	assert.Equal(t, "2", w.value(t, late), "what was in memory is still there")
	w.Suspend([]protocol.ShardEpoch{{Shard: 1, Epoch: 1}})
	again := w.send(1, 1, "a", msg{Add: 1})
	w.extend(1, 1, time.Second)
	assert.Equal(t, "3", w.value(t, again))
}

// Spec 2.3: a handoff lets the mailboxes run empty, runs every Stop, then reports; a wrong generation is answered at once.
func TestStopShard(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 4)
	blocked := w.send(1, 4, "a", msg{Do: "block", Add: 1})
	behind := w.send(1, 4, "a", msg{Add: 1})
	w.value(t, w.send(1, 4, "b", msg{Add: 1}))
	w.Stop(1, 3)
	stopped, _ := w.snapshot()
	assert.Equal(t, []protocol.ShardEpoch{{Shard: 1, Epoch: 3}}, stopped)
	w.Stop(1, 4)
	eventually(t, func() bool { return w.stops.Load() == 1 })
	stopped, _ = w.snapshot()
	assert.Len(t, stopped, 1, "a still works")
	close(w.gate)
	assert.Equal(t, "2", w.value(t, behind))
	w.value(t, blocked)
	eventually(t, func() bool {
		s, _ := w.snapshot()
		return len(s) == 2 && s[1] == protocol.ShardEpoch{Shard: 1, Epoch: 4}
	})
	assert.EqualValues(t, 2, w.stops.Load())
	assert.EqualValues(t, 0, w.Live())
	w.send(1, 4, "a", msg{Add: 1})
	_, unbegun := w.snapshot()
	assert.Equal(t, []string{"a"}, unbegun)
}

// Spec 2.3: a killed shard begins nothing more, and says what it had not begun.
func TestKillShard(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 1)
	w.send(1, 1, "a", msg{Do: "block"})
	eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.received) == 1 })
	w.send(1, 1, "a", msg{Add: 1})
	w.Kill(1, 1)
	stopped, unbegun := w.snapshot()
	assert.Empty(t, stopped)
	assert.Equal(t, []string{"a"}, unbegun)
	close(w.gate)
	assert.EqualValues(t, 0, w.stops.Load())
}

func TestPassivationAndBound(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{PassivateAfter: time.Minute, MaxLive: 10})
	w.start(1, 1)
	for i := range 25 {
		w.value(t, w.send(1, 1, fmt.Sprintf("e%02d", i), msg{Add: 1}))
		w.now.Add(int64(time.Millisecond))
	}
	eventually(t, func() bool { w.Sweep(); return w.Live() <= 10 })
	assert.Equal(t, []string{"e15", "e16", "e17", "e18", "e19", "e20", "e21", "e22", "e23", "e24"}, w.EntityIDs(1), "the least recently used ones go")
	w.now.Add(int64(2 * time.Minute))
	eventually(t, func() bool {
		for range sweepParts {
			w.Sweep()
		}
		return w.Live() == 0
	})
	assert.EqualValues(t, 25, w.stops.Load())
}

// Spec 2.1: a quorum outage wipes no memory: while the lease is away nobody is passivated, and what waited for it to come back finds the entity it was sent to.
func TestLapsePassivatesNobody(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{PassivateAfter: time.Minute, MaxLive: 1})
	w.start(1, 1)
	w.value(t, w.send(1, 1, "a", msg{Add: 7}))
	c := w.find(1, 1).cells["a"]
	eventually(t, c.isIdle)
	sweep := func() {
		t.Helper()
		for range sweepParts {
			w.Sweep()
			require.True(t, c.isIdle(), "it is on its way out")
		}
	}
	w.now.Add(int64(2 * time.Hour)) // lapsed, and idle for long
	w.send(1, 1, "b", msg{Add: 1})  // above MaxLive, too
	eventually(t, func() bool {
		s := w.find(1, 1)
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.parked) == 1
	})
	sweep()
	c.passivate() // swept just before the lapse
	eventually(t, c.isIdle)
	assert.Zero(t, w.stops.Load())
	w.Kill(1, 1)
	assert.EqualValues(t, 0, w.Live())

	w.start(2, 1)
	w.value(t, w.send(2, 1, "a", msg{Add: 7}))
	c = w.find(2, 1).cells["a"]
	eventually(t, c.isIdle)
	w.now.Add(int64(2 * time.Hour))
	w.extend(2, 1, time.Hour)
	sweep()
	assert.Equal(t, "8", w.value(t, w.send(2, 1, "a", msg{Add: 1})))
	w.now.Add(int64(time.Minute))
	eventually(t, func() bool { w.Sweep(); return w.Live() == 0 })
	assert.EqualValues(t, 1, w.stops.Load())
}

// Spec 2.4: an answer may come later; meanwhile the entity takes no message. StopSelf ends it after the message.
func TestLaterAndStopSelf(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 1)
	asked := w.send(1, 1, "a", msg{Do: "later"})
	behind := w.send(1, 1, "a", msg{Add: 1})
	answer := <-w.later
	w.mu.Lock()
	assert.Empty(t, w.replies)
	w.mu.Unlock()
	answer(42, nil)
	answer(43, nil) // only the first counts
	assert.Equal(t, "42", w.value(t, asked))
	assert.Equal(t, "1", w.value(t, behind))
	bad := w.send(1, 1, "a", msg{Do: "later"})
	(<-w.later)("not an int", nil)
	assert.Equal(t, protocol.StatusFailed, w.reply(t, bad).Status)
	w.value(t, w.send(1, 1, "a", msg{Do: "stop"}))
	assert.Equal(t, "5", w.value(t, w.send(1, 1, "a", msg{Add: 5})), "a new one")
}

// badCodec panics for what is given to Later; below zero is what Receive returns beside it.
type badCodec struct{ sharding.CBOR[int] }

func (b badCodec) Encode(v int) ([]byte, error) {
	if v >= 0 {
		panic("codec")
	}
	return b.CBOR.Encode(v)
}

// Spec 2.4: panics are caught, that of a codec on the goroutine of whoever answers later included.
func TestPanicOfLater(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{Replies: badCodec{}})
	w.start(1, 1)
	m, err := sharding.CBOR[msg]{}.Encode(msg{Do: "later"})
	require.NoError(t, err)
	w.asks++
	w.Deliver(1, 1, &protocol.Deliver{Mode: protocol.Ask, Ask: w.asks, Entity: "a", Payload: append([]byte{byte(sharding.FormatCodec)}, m...)})
	(<-w.later)(1, nil)
	r := w.reply(t, w.asks)
	assert.Equal(t, protocol.StatusFailed, r.Status)
	assert.Equal(t, errPanicked.Error(), string(r.Payload))
	assert.EqualValues(t, 1, w.panics.Load())
	fails := w.send(1, 1, "a", msg{Do: "fail", Reason: "no"})
	assert.Equal(t, "no", string(w.reply(t, fails).Payload), "the entity goes on")
}

// figures.md, mailboxes: an unrelated entity must not wait while 256 handlers block.
func TestBlockedHandlersDoNotStallOthers(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 1)
	for i := range 256 {
		w.send(1, 1, fmt.Sprint("blocked", i), msg{Do: "block"})
	}
	assert.Equal(t, "1", w.value(t, w.send(1, 1, "free", msg{Add: 1})))
	close(w.gate)
}

// Spec 2.3: what waits for slow entities is bounded, by number and by bytes; beyond it a message surely is not begun. Room comes back as messages are
// begun, and with a shard that is killed.
func TestMailboxesAreBounded(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{})
	w.start(1, 1)
	w.send(1, 1, "slow", msg{Do: "block"})
	eventually(t, func() bool { return w.begun() == 1 })
	for range testMessages + 5 {
		w.send(1, 1, "slow", msg{Add: 1})
	}
	_, unbegun := w.snapshot()
	assert.Len(t, unbegun, 6, "what is under way counts until the worker looks again")
	assert.Equal(t, WhyFull, w.why)
	w.send(1, 1, "another", msg{Add: 1})
	_, unbegun = w.snapshot()
	assert.Len(t, unbegun, 7)
	close(w.gate)
	eventually(t, func() bool { return w.waiting.Load() == 0 })
	assert.Zero(t, w.bytes.Load())
	assert.Equal(t, "1", w.value(t, w.send(1, 1, "another", msg{Add: 1})))

	// Bytes; what is killed gives its room back.
	w.Start(2, 1) // not covered: nothing begins
	big := func() { w.Deliver(2, 1, &protocol.Deliver{Entity: "big", Payload: make([]byte, testBytes/2)}) }
	eventually(t, func() bool { return w.waiting.Load() == 0 })
	big()
	big()
	_, unbegun = w.snapshot()
	assert.Equal(t, "big", unbegun[len(unbegun)-1], "two of them and their names are too much")
	w.Kill(2, 1)
	assert.Zero(t, w.waiting.Load())
	assert.Zero(t, w.bytes.Load())
	assert.Equal(t, WhyTaken, w.why)
}

// Hammer: senders, lease changes, handoffs and kills at once. Per entity and epoch the numbers received ascend (a killed generation may still be in the midst
// of one message), and nothing is begun twice.
func TestHammer(t *testing.T) {
	w := newWorld(t, sharding.Options[msg, int]{PassivateAfter: time.Nanosecond})
	const rounds, ids = 400, 7
	n := 0
	for round := range rounds {
		epoch := sharding.Epoch(round + 1)
		w.start(1, epoch)
		for i := range 20 {
			n++
			w.send(1, epoch, fmt.Sprint("e", n%ids), msg{Add: n})
			switch i % 5 {
			case 1:
				w.Suspend([]protocol.ShardEpoch{{Shard: 1, Epoch: epoch}})
			case 3:
				w.extend(1, epoch, time.Hour)
				w.Sweep()
			}
		}
		w.extend(1, epoch, time.Hour)
		if round%2 == 0 {
			w.Kill(1, epoch)
		} else {
			w.Stop(1, epoch)
			eventually(t, func() bool { s, _ := w.snapshot(); return len(s) > 0 && s[len(s)-1].Epoch == epoch })
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last := map[string]int{}
	for _, r := range w.received {

		var v int
		id, rest, _ := strings.Cut(r, ":")
		_, err := fmt.Sscanf(rest, "%d", &v)
		require.NoError(t, err)
		require.Greater(t, v, last[id], r)
		last[id] = v
	}
	require.LessOrEqual(t, len(w.received)+len(w.unbegun), n)
	eventually(t, func() bool { return w.waiting.Load() == 0 && w.bytes.Load() == 0 })
	require.EqualValues(t, 0, w.Live())
}

func BenchmarkOneEntity(b *testing.B)    { benchmark(b, 1) }
func BenchmarkManyEntities(b *testing.B) { benchmark(b, 10_000) }

func benchmark(b *testing.B, entities int) {
	last := &countdown{zero: make(chan struct{})}
	last.left.Store(int64(b.N))
	kind := sharding.NewKind("noop", func(sharding.Context) sharding.Entity[msg, int] { return noop{last} }, sharding.Options[msg, int]{Messages: fixed{}})
	pool := NewPool()
	defer pool.Close()
	r := New(Config{Type: "t", Kind: kind, Pool: pool, Logger: slog.New(slog.DiscardHandler), Now: boottime.Now, MaxMessages: math.MaxInt, MaxBytes: math.MaxInt})
	r.Start(1, 1)
	r.Extend([]protocol.ShardEpoch{{Shard: 1, Epoch: 1}}, boottime.Now().Add(time.Hour))
	ds := make([]*protocol.Deliver, entities)
	for i := range ds {
		ds[i] = &protocol.Deliver{Entity: fmt.Sprint("e", i), Payload: []byte{0}}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		r.Deliver(1, 1, ds[i%entities])
	}
	<-last.zero
}

type countdown struct {
	left atomic.Int64
	zero chan struct{} // closed with the last one
}

type noop struct{ *countdown }

func (n noop) Receive(sharding.Context, msg) (int, error) {
	if n.left.Add(-1) == 0 {
		close(n.zero)
	}
	return 0, nil
}

type fixed struct{}

func (fixed) Encode(msg) ([]byte, error) { return nil, nil }
func (fixed) Decode([]byte) (msg, error) { return msg{}, nil }
