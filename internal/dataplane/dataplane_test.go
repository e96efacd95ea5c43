package dataplane

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
	"github.com/droverhq/drover/sharding/protocol"
)

// Spec 2.4: Ask, Tell and Start work from any node to any entity, wherever it is.
func TestAskTellStartFromEveryNode(t *testing.T) {
	w := newWorld(t, "a", "b", "c*")
	for _, n := range w.all() {
		for i := range 16 {
			v, err := n.ask(t, fmt.Sprint("e", i), probeMsg{Add: 1})
			require.NoError(t, err, n.self)
			assert.Positive(t, v)
		}
		require.NoError(t, n.Start(t.Context(), "t", "started"))
		require.NoError(t, n.Tell("t", "told", payload(probeMsg{Add: 2}), protocol.Command{}))
		require.Eventually(t, func() bool { v, err := n.ask(t, "told", probeMsg{}); return err == nil && v%2 == 0 && v > 0 }, patience, poll)
	}
	v, err := w.node("b").ask(t, "e7", probeMsg{})
	require.NoError(t, err)
	assert.Equal(t, 3, v, "three nodes have added one each to one entity")
	_, err = w.node("c").ask(t, "e7", probeMsg{Do: "fail"})
	var failed *sharding.EntityError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "refused by the entity", failed.Text)
	_, err = w.node("c").Ask(t.Context(), "t", "e7", []byte{byte(sharding.FormatJSON), '['}, protocol.Command{})
	assert.ErrorIs(t, err, sharding.ErrBadMessage)
	_, err = w.node("a").Ask(t.Context(), "t", strings.Repeat("x", 1025), nil, protocol.Command{})
	assert.ErrorIs(t, err, sharding.ErrEntityID)
	assert.ErrorIs(t, w.node("a").Tell("t", "", nil, protocol.Command{}), sharding.ErrEntityID)
}

// Spec 2.4, 2.5: a type that is not configured here is routed to by a region made on demand, which follows every later move.
func TestProxyMadeOnDemandFollowsTheMap(t *testing.T) {
	w := newWorld(t, "a", "b", "c*")
	proxy := w.node("c")
	_, err := proxy.ask(t, "e", probeMsg{Add: 1})
	require.NoError(t, err)
	for range 3 {
		from, _ := w.owner("e")
		to := w.other(from)
		w.move("e", to)
		// What is sent from here on goes straight to the new owner: nobody forwards any more.
		w.cutOff(proxy, from)
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := proxy.askFor(ctx, "e", probeMsg{Add: 1})
			return err == nil
		}, patience, poll, "the proxy still sends to the former owner")
		w.mu.Lock()
		clear(w.cut)
		w.mu.Unlock()
		proxy.PeerUp(from.self)
	}
}

// Spec 2.4: an unknown type is told apart from a node that cannot tell yet.
func TestUnknownType(t *testing.T) {
	w := newWorld(t, "a", "c*")
	for _, n := range w.all() {
		_, err := n.Ask(t.Context(), "nope", "e", nil, protocol.Command{})
		require.ErrorIs(t, err, sharding.ErrNoType)
		assert.Contains(t, err.Error(), "nope")
		assert.ErrorIs(t, n.Tell("nope", "e", nil, protocol.Command{}), sharding.ErrNoType)
		assert.ErrorIs(t, n.Want("nope", 0), sharding.ErrNoType)
	}
	lonely := w.start(sharding.Member{Node: "lonely", Incarnation: sharding.NewIncarnation()}, false, func(c *Config) { c.Sender = deaf{} })
	_, err := lonely.Ask(t.Context(), "t", "e", nil, protocol.Command{})
	require.ErrorIs(t, err, sharding.ErrUnavailable)
	assert.Contains(t, err.Error(), "no shard map yet")
	lonely.Close()
	_, err = lonely.Ask(t.Context(), "t", "e", nil, protocol.Command{})
	require.ErrorIs(t, err, sharding.ErrUnavailable)
	assert.Contains(t, err.Error(), "stopping")

	// A frame for a type that nobody hosts is answered, so that the asker need not wait.
	frame, err := protocol.AppendFrame(nil, &protocol.Deliver{Type: "gone", Shard: 0, Sender: w.node("c").self, Seq: 1, Mode: protocol.Ask, Ask: 77, Entity: "e"})
	require.NoError(t, err)
	n, ch := w.node("c").asks.begin()
	d := &protocol.Deliver{Type: "gone", Sender: w.node("c").self, Seq: 1, Mode: protocol.Ask, Ask: n, Entity: "e"}
	frame, err = protocol.AppendFrame(frame[:0], d)
	require.NoError(t, err)
	w.node("a").HandleData(w.node("c").self, frame)
	select {
	case r := <-ch:
		assert.Equal(t, protocol.StatusNoType, r.Status)
	case <-time.After(patience):
		t.Fatal("no answer to an ask of an unknown type")
	}
}

// deaf accepts everything and sends nothing.
type deaf struct{}

func (deaf) SendControl(sharding.Member, []byte) error { return nil }
func (deaf) SendData(sharding.Member, []byte) error    { return nil }

// Bad frames are counted, dropped and harm nothing.
func TestBadFrames(t *testing.T) {
	w := newWorld(t, "a", "b")
	a, b := w.node("a"), w.node("b").self
	before := a.Counters().BadFrames.Load()
	a.HandleData(b, nil)
	a.HandleData(b, []byte{1})
	a.HandleData(b, []byte{99, 99, 99})
	leading, err := protocol.AppendFrame(nil, &protocol.Leading{Term: 9})
	require.NoError(t, err)
	a.HandleData(b, leading) // an order over the data connection
	assert.EqualValues(t, 4, a.Counters().BadFrames.Load()-before)
	_, term := a.Leader()
	assert.EqualValues(t, 1, term, "an order that came over the data connection counted")

	// A frame whose shard does not fit its entity is a dead letter.
	wrong := (sharding.ShardOf("e", shards) + 1) % shards
	f, err := protocol.AppendFrame(nil, &protocol.Deliver{Type: "t", Shard: wrong, Sender: b, Seq: 1, Entity: "e", Payload: payload(probeMsg{Add: 5})})
	require.NoError(t, err)
	a.HandleData(b, f)
	require.Eventually(t, func() bool { l, _ := a.DeadLetters().List(); return len(l) == 1 }, patience, poll)
	l, total := a.DeadLetters().List()
	assert.EqualValues(t, 1, total)
	assert.Equal(t, DeadLetter{At: l[0].At, Type: "t", Shard: wrong, Entity: "e", Sender: b, Mode: "tell", Reason: "bad_frame", Bytes: len(payload(probeMsg{Add: 5}))}, l[0])
}

// Spec 2.3: a send that surely does not arrive ends an Ask in Unavailable and makes a dead letter of a Tell.
func TestRefusedSends(t *testing.T) {
	w := newWorld(t, "a", "b")
	_, err := w.node("a").ask(t, "e", probeMsg{Add: 1})
	require.NoError(t, err)
	owner, _ := w.owner("e")
	from := w.other(owner)
	w.mu.Lock()
	w.cut[wire{from.self, owner.self, false}] = errCut // the region has not been told
	w.mu.Unlock()
	_, err = from.ask(t, "e", probeMsg{Add: 1})
	require.ErrorIs(t, err, sharding.ErrUnavailable)
	assert.Contains(t, err.Error(), errCut.Error())
	require.NoError(t, from.Tell("t", "e", payload(probeMsg{Add: 1}), protocol.Command{}))
	require.Eventually(t, func() bool { _, n := from.DeadLetters().List(); return n == 1 }, patience, poll)
	assert.Positive(t, from.Counters().SendErrors.Load())
	v, err := owner.ask(t, "e", probeMsg{})
	require.NoError(t, err)
	assert.Equal(t, 1, v, "a refused message was delivered all the same")
}

// An answer that cannot be sent, because it is too large, ends the Ask with words instead of a time-out.
func TestAnswerThatCannotBeSent(t *testing.T) {
	w := newWorld(t, "a", "b")
	_, err := w.node("a").ask(t, "e", probeMsg{Add: 1})
	require.NoError(t, err)
	owner, _ := w.owner("e")
	from := w.other(owner)
	w.mu.Lock()
	w.once[wire{owner.self, from.self, false}] = true
	w.mu.Unlock()
	_, err = from.ask(t, "e", probeMsg{Add: 1})
	var failed *sharding.EntityError
	require.ErrorAs(t, err, &failed)
	assert.Contains(t, failed.Text, "has handled the message, but its answer of 2 bytes could not be sent: too large")
}

// Spec 2.4: what a message and its answer may hold does not depend on where the entity is at present.
func TestSizesAreTheSameEverywhere(t *testing.T) {
	w := newWorld(t, "a", "b")
	most := make([]byte, protocol.MaxPayload)
	most[0] = byte(sharding.FormatJSON)
	for _, n := range w.all() {
		_, err := n.Ask(t.Context(), "t", "e", append(most, ' '), protocol.Command{})
		assert.ErrorIs(t, err, sharding.ErrBadMessage)
		assert.ErrorContains(t, err, "5242881 bytes, at most 5242880 are legal")
		assert.ErrorIs(t, n.Tell("t", "e", append(most, ' '), protocol.Command{}), sharding.ErrBadMessage)
		_, err = n.Ask(t.Context(), "t", "e", most, protocol.Command{}) // zeros: it has come to the entity
		assert.ErrorContains(t, err, "invalid character")

		ask, ch := n.asks.begin()
		n.reply(n.self, protocol.Reply{Ask: ask, Payload: append(most, ' ')})
		r := <-ch
		assert.Equal(t, protocol.StatusFailed, r.Status)
		assert.Equal(t, "the entity has handled the message, but its answer of 5242881 bytes could not be sent: at most 5242880 are legal", string(r.Payload))
	}
}

// Spec 2.4: the deadline of the context bounds an Ask; the outcome is unknown then.
func TestDeadlines(t *testing.T) {
	w := newWorld(t, "a")
	a := w.node("a")
	defer close(w.kinds.gate)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := a.askFor(ctx, "e", probeMsg{Do: "block"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Contains(t, err.Error(), "unknown")
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("no more"))
	before := a.Counters().Asks.Load()
	_, err = a.askFor(ended, "e", probeMsg{Add: 1})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, before, a.Counters().Asks.Load(), "an Ask whose context had ended was sent")
	assert.Empty(t, waitingAsks(a), "an Ask that has ended is still kept")
}

func waitingAsks(n *node) []uint64 {
	n.asks.mu.Lock()
	defer n.asks.mu.Unlock()
	var out []uint64
	for id := range n.asks.waiting {
		out = append(out, id)
	}
	return out
}

// Close ends Asks that wait, and is not held up by them; afterwards everything answers at once.
func TestCloseWhileAsksWait(t *testing.T) {
	w := newWorld(t, "a")
	a := w.node("a")
	var wg sync.WaitGroup
	errs := make(chan error, 32)
	for i := range cap(errs) {
		wg.Go(func() {
			_, err := a.ask(t, fmt.Sprint("e", i), probeMsg{Do: "block"})
			errs <- err
		})
	}
	require.Eventually(t, func() bool { return len(waitingAsks(a)) == cap(errs) }, patience, poll)
	a.Close()
	wg.Wait()
	for range cap(errs) {
		err := <-errs
		assert.True(t, errors.Is(err, context.Canceled) || errors.Is(err, sharding.ErrUnavailable), "%v", err)
	}
	close(w.kinds.gate)
	_, err := a.ask(t, "e", probeMsg{})
	require.ErrorIs(t, err, sharding.ErrUnavailable)
	require.ErrorIs(t, a.Tell("t", "e", nil, protocol.Command{}), sharding.ErrUnavailable)
	assert.Empty(t, a.Members())
	ok, _ := a.Registered()
	assert.False(t, ok)
	_, open := <-a.Watch(t.Context(), "t")
	assert.False(t, open)
	a.HandleData(a.self, []byte{1, 2})
	a.Close() // twice is harmless
}

// Spec 2.3, 5.1: a drain with handoff moves the shards, one without stops the entities where they are; both run every Stop.
func TestDrain(t *testing.T) {
	w := newWorld(t, "a", "b")
	for i := range 40 {
		_, err := w.node("a").ask(t, fmt.Sprint("e", i), probeMsg{Add: 1})
		require.NoError(t, err)
	}
	b := w.node("b")
	mine := 0
	for _, s := range b.Stats("t") {
		mine += s.Entities
	}
	require.Positive(t, mine)
	require.NoError(t, b.Drain(t.Context(), true))
	assert.EqualValues(t, mine, w.kinds.stops.Load())
	assert.Empty(t, b.Stats("t"))
	for i := range 40 {
		_, err := b.ask(t, fmt.Sprint("e", i), probeMsg{Add: 1})
		require.NoError(t, err, "a drained node still routes")
	}
	a := w.node("a")
	require.NoError(t, a.Drain(t.Context(), false))
	assert.Empty(t, a.Stats("t"))
	assert.EqualValues(t, mine+40, w.kinds.stops.Load())
}

// A drain is bounded by its context.
func TestDrainIsBounded(t *testing.T) {
	w := newWorld(t, "a", "b")
	for i := range 40 {
		_, err := w.node("a").ask(t, fmt.Sprint("e", i), probeMsg{Add: 1})
		require.NoError(t, err)
	}
	a := w.node("a")
	id := ""
	for i := range 40 {
		if owner, _ := w.owner(fmt.Sprint("e", i)); owner == a {
			id = fmt.Sprint("e", i)
		}
	}
	require.NotEmpty(t, id)
	require.NoError(t, a.Tell("t", id, payload(probeMsg{Do: "block"}), protocol.Command{}))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := a.Drain(ctx, true)
	close(w.kinds.gate)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Spec 2.4: a panic is caught, counted, and answered.
func TestPanic(t *testing.T) {
	w := newWorld(t, "a", "b")
	_, err := w.node("b").ask(t, "e", probeMsg{Do: "panic"})
	var failed *sharding.EntityError
	require.ErrorAs(t, err, &failed)
	assert.Contains(t, failed.Text, "panicked")
	owner, _ := w.owner("e")
	assert.EqualValues(t, 1, owner.Counters().Panics.Load())
	v, err := w.node("b").ask(t, "e", probeMsg{Add: 3})
	require.NoError(t, err)
	assert.Equal(t, 3, v, "it was not made anew")
}

// Spec 2.3: an answer that an entity gives later goes with the generation: a handoff waits for it, and it arrives.
func TestLaterAcrossAMove(t *testing.T) {
	w := newWorld(t, "a", "b")
	_, err := w.node("a").ask(t, "e", probeMsg{Add: 1})
	require.NoError(t, err)
	owner, rec := w.owner("e")
	to := w.other(owner)
	// Its end shows that the owner has been told to hand off: until then it serves, whoever sends.
	witness := ""
	for i := 0; witness == ""; i++ {
		if id := fmt.Sprint("witness", i); sharding.ShardOf(id, shards) == rec.Shard {
			witness = id
		}
	}
	_, err = owner.ask(t, witness, probeMsg{Add: 1})
	require.NoError(t, err)
	type result struct {
		v   int
		err error
	}
	ask := func(m probeMsg) <-chan result {
		got := make(chan result, 1)
		go func() { v, err := to.ask(t, "e", m); got <- result{v, err} }()
		return got
	}
	late := ask(probeMsg{Do: "later"})
	answer := <-w.kinds.later
	stops := w.kinds.stops.Load()
	moved := make(chan struct{})
	go func() { defer close(moved); w.move("e", to) }()
	require.Eventually(t, func() bool { return w.kinds.stops.Load() > stops }, patience, poll)
	follows := ask(probeMsg{Add: 10}) // the shard
	answer(42, nil)
	first := <-late
	require.NoError(t, first.err)
	assert.Equal(t, 42, first.v)
	second := <-follows
	require.NoError(t, second.err)
	assert.Equal(t, 10, second.v, "memory entities begin anew on a move (spec 2.3)")
	<-moved
	answer(43, nil) // a second call is nobody's
}

// The ring of dead letters is bounded, keeps the newest, and holds on to no frame.
func TestDeadLetterRing(t *testing.T) {
	l := newDeadLetters(3)
	for i := range 10 {
		l.add(&protocol.Deliver{Type: "t", Entity: fmt.Sprint("e", i), Payload: make([]byte, i)}, "why")
	}
	list, total := l.List()
	assert.EqualValues(t, 10, total)
	require.Len(t, list, 3)
	for i, want := range []string{"e7", "e8", "e9"} {
		assert.Equal(t, want, list[i].Entity)
	}
	assert.Equal(t, 9, list[2].Bytes)

	big, err := protocol.AppendFrame(nil, &protocol.Deliver{Type: "t", Sender: sharding.Member{Node: "a"}, Seq: 1, Entity: "e", Payload: make([]byte, 4<<20)})
	require.NoError(t, err)
	for range 3 {
		m, err := protocol.DecodeFrame(append([]byte(nil), big...))
		require.NoError(t, err)
		l.add(m.(*protocol.Deliver), "why")
	}
	assert.Less(t, heap(), uint64(len(big))+8<<20, "dead letters keep the frames that brought them")
	runtime.KeepAlive(l)
	runtime.KeepAlive(big)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Load is measured: entities, messages a second and a shard, and what the node adds.
func TestLoad(t *testing.T) {
	w := newWorld(t, "a")
	a := w.node("a")
	a.cfg.Measure = nil
	for i := range 20 {
		_, err := a.ask(t, fmt.Sprint("e", i), probeMsg{Add: 1})
		require.NoError(t, err)
	}
	m := newMeter()
	first := a.load(m, sharding.Instant(time.Hour))
	assert.EqualValues(t, 20, *first.Entities)
	assert.Zero(t, *first.Rate, "a rate was made of one look")
	for range 30 {
		_, err := a.ask(t, "e1", probeMsg{Add: 1})
		require.NoError(t, err)
	}
	second := a.load(m, sharding.Instant(time.Hour+2*time.Second))
	assert.EqualValues(t, 15, *second.Rate, "30 messages in two seconds")
	for _, s := range second.Shards {
		want := uint32(0)
		if s.Shard == sharding.ShardOf("e1", shards) {
			want = 15
		}
		assert.Equal(t, want, s.Rate)
	}
}

// Spec 2.5: ShardMapChanged is coalesced, strictly increasing, and closed with its context.
func TestWatch(t *testing.T) {
	w := newWorld(t, "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := w.node("b").Watch(ctx, "t")
	first := <-changes
	assert.Equal(t, sharding.TypeName("t"), first.Type)
	assert.EqualValues(t, shards, first.NumShards)
	assert.Len(t, first.Regions, 2)
	for i := range 40 {
		_, err := w.node("a").ask(t, fmt.Sprint("e", i), probeMsg{Add: 1})
		require.NoError(t, err)
	}
	_, rec := w.owner("e0")
	last := first
	for len(last.Shards) < shards || last.Revision.Index < rec.Granted {
		next := <-changes
		require.True(t, last.Revision.Less(next.Revision), "%s after %s", next.Revision, last.Revision)
		last = next
	}
	total := 0
	for _, r := range last.Regions {
		total += r.Shards
	}
	assert.Equal(t, shards, total)
	owner, _ := w.owner("e0")
	w.move("e0", w.other(owner))
	seen := 0
	for c := range changes { // several changes have happened meanwhile; the newest state arrives, however many are left out
		require.True(t, last.Revision.Less(c.Revision))
		last = c
		seen++
		if i := sharding.ShardOf("e0", shards); c.Shards[i].Owner == w.other(owner).self && c.Shards[i].State == "homed" {
			break
		}
	}
	assert.LessOrEqual(t, seen, 3, "not coalesced")
	cancel()
	for range changes {
	}
	assert.Empty(t, w.node("b").watches.all)
}

// Spec 2.5: a ShardRef places its shard.
func TestWant(t *testing.T) {
	w := newWorld(t, "a", "c*")
	require.NoError(t, w.node("c").Want("t", 3))
	require.Eventually(t, func() bool { return w.node("c").Home("t", 3).State == protocol.Homed }, patience, poll)
	err := w.node("c").Want("t", shards)
	require.ErrorIs(t, err, sharding.ErrShard)
	assert.Contains(t, err.Error(), "0 to 7")
}

// Senders wait when a region is busy, and nothing deadlocks: many ask through a small buffer while shards move and nodes watch.
func TestHammer(t *testing.T) {
	w := newWorld(t, "a", "b", "c*")
	const senders, each = 24, 120
	var wg sync.WaitGroup
	for g := range senders {
		n := w.all()[g%3]
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprint("h", (g+i)%16)
				if i%3 == 0 {
					assert.NoError(t, n.Tell("t", id, payload(probeMsg{Add: 1}), protocol.Command{}))
					continue
				}
				_, err := n.ask(t, id, probeMsg{Add: 1})
				assert.NoError(t, err)
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for i := range 50 {
				n := w.all()[i%3]
				n.Members()
				n.Map("t")
				n.Stats("t")
				n.Types()
				n.DeadLetters().List()
				n.EntityIDs("t", sharding.ShardID(i%shards))
			}
		})
	}
	for i := range 6 {
		id := fmt.Sprint("h", i)
		if owner, _ := w.owner(id); owner != nil {
			w.move(id, w.other(owner))
		}
	}
	wg.Wait()
	for _, n := range w.all() {
		_, dead := n.DeadLetters().List()
		assert.Zero(t, dead, "a planned move lost a message (spec 2.3)")
		assert.Empty(t, waitingAsks(n))
	}
}

// A region's queue is bounded for senders: those beyond it wait, and go on.
func TestBackPressure(t *testing.T) {
	w := newWorld(t, "a")
	a := w.node("a")
	_, err := a.ask(t, "e", probeMsg{Add: 1})
	require.NoError(t, err)
	s := a.shell("t")
	hold, held := make(chan struct{}), make(chan struct{})
	require.True(t, s.inbox.Put(regionItem{call: func() { close(held); <-hold }}))
	<-held
	var wg sync.WaitGroup
	const over = 500
	for range 4 {
		wg.Go(func() {
			for range (inboxLimit + over) / 4 {
				assert.NoError(t, a.Tell("t", "e", payload(probeMsg{Add: 1}), protocol.Command{}))
			}
		})
	}
	require.Eventually(t, func() bool { return s.inbox.Len() >= inboxLimit }, patience, poll)
	assert.Less(t, s.inbox.Len(), inboxLimit+over/2, "senders do not wait")
	a.Members() // the session goes on meanwhile
	close(hold)
	wg.Wait()
	require.Eventually(t, func() bool { v, err := a.ask(t, "e", probeMsg{}); return err == nil && v == 1+(inboxLimit+over)/4*4 }, patience, poll)
}
