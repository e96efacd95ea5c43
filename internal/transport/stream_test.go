package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/droverhq/drover/sharding"
)

// sendAll sends frames from..to-1 in order, and tries again whatever surely did not go out.
func sendAll(t *testing.T, a *node, to sharding.Member, class Class, from, until int) {
	for i := from; i < until; {
		err := a.Send(to, class, fmt.Append(nil, i))
		switch {
		case err == nil:
			i++
		case errors.Is(err, ErrBackPressure), errors.As(err, new(*UnavailableError)):
			runtime.Gosched()
		default:
			t.Errorf("send %d: %v", i, err)
			return
		}
	}
}

// checkInbound holds one inbound history against what a stream promises: opened, frames, closed, over and over; frames ascend
// through all of it, because Send was called in that order.
func checkInbound(t *testing.T, rows []string) (frames int) {
	open, last := false, -1
	for i, row := range rows {
		switch {
		case row == "opened":
			require.False(t, open, "row %d: opened twice", i)
			open = true
		case row == "closed":
			require.True(t, open, "row %d: closed twice", i)
			open = false
		default:
			require.True(t, open, "row %d: a frame outside a stream", i)
			var n int
			_, err := fmt.Sscanf(row, "frame %d", &n)
			require.NoError(t, err)
			require.Greater(t, n, last, "row %d: reordered or doubled", i)
			last = n
			frames++
		}
	}
	return frames
}

// TestStreamPromises: under random breaks from both sides, frames of a (peer, class) stay in order and are never doubled, and
// each end is reported once per direction (ADR 2, "Connections").
func TestStreamPromises(t *testing.T) {
	modes(t, func(t *testing.T, secure func(*Config)) {
		var nodes []*node
		var faults []*Faults
		for _, name := range []string{"a", "b", "c"} {
			f := NewFaults(1)
			faults = append(faults, f)
			nodes = append(nodes, start(t, name, secure, func(c *Config) { c.Faults = f; c.QueueFrames = 500 }))
		}
		meet(nodes...)
		const each = 3000
		var senders, breaker sync.WaitGroup
		stop := make(chan struct{})
		for _, from := range nodes {
			for _, to := range nodes {
				for _, class := range []Class{Control, Data} {
					if from != to {
						senders.Go(func() { sendAll(t, from, to.member, class, 0, each) })
					}
				}
			}
		}
		random := rand.New(rand.NewPCG(7, 7))
		breaks := 0
		breaker.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(random.IntN(4)) * time.Millisecond):
					faults[random.IntN(3)].Break(Where{Peer: nodes[random.IntN(3)].member.Node, Direction: Direction(random.IntN(3)), Class: Class(random.IntN(3))})
					breaks++
				}
			}
		})
		senders.Wait()
		close(stop)
		breaker.Wait()
		require.Greater(t, breaks, 3)
		// One more frame on each stream: once it is through, all before it are settled.
		for _, from := range nodes {
			for _, to := range nodes {
				if from != to {
					for _, class := range []Class{Control, Data} {
						k := linkKey{from.member, class}
						require.Eventually(t, func() bool {
							sendAll(t, from, to.member, class, each, each+1)
							to.rec.mu.Lock()
							defer to.rec.mu.Unlock()
							return count(to.rec.in[k], fmt.Sprintf("frame %d", each)) > 0
						}, patience, 10*time.Millisecond)
					}
				}
			}
		}
		for _, n := range nodes {
			require.NoError(t, n.Close())
		}
		total := 0
		for _, n := range nodes {
			for k, rows := range n.rec.in {
				// Several of the last frame may have got through.
				kept := rows[:0:0]
				for _, row := range rows {
					if row != fmt.Sprintf("frame %d", each) {
						kept = append(kept, row)
					}
				}
				total += checkInbound(t, kept)
				assert.Equal(t, "closed", rows[len(rows)-1], "%v", k)
			}
			for k, rows := range n.rec.out {
				up := false
				for i, row := range rows {
					if row == "up" {
						require.False(t, up, "%v row %d: up twice", k, i)
					}
					up = row == "up"
				}
				assert.Equal(t, "down", rows[len(rows)-1], "%v", k)
			}
		}
		assert.Greater(t, total, each, "hardly anything got through")
	})
}

// TestNothingLostWithoutBreaks: what Send accepts arrives, all of it, in order, on a connection that stands.
func TestNothingLostWithoutBreaks(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	meet(a, b)
	sendAll(t, a, b.member, Data, 0, 20_000)
	k := linkKey{a.member, Data}
	b.rec.until(t, "20 000 frames", func() bool { return len(b.rec.in[k]) == 20_001 })
	assert.Equal(t, 20_000, checkInbound(t, b.rec.rows(a.member, Data)))
	s := a.Stats().Classes[Data]
	assert.EqualValues(t, 20_000, s.FramesSent)
	assert.Zero(t, s.FramesLost)
	assert.Less(t, s.BatchesSent, uint64(20_000), "the batcher coalesces")
	assert.EqualValues(t, 20_000, b.Stats().Classes[Data].FramesReceived)
	assert.Equal(t, s.BytesSent, b.Stats().Classes[Data].BytesReceived)
}

// TestFrameSizes: empty ones, ones around the batch size, and the largest.
func TestFrameSizes(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	meet(a, b)
	var got []int
	b.rec.onFrame = func(_ Peer, _ Class, frame []byte) {
		for i := range frame {
			if frame[i] != byte(len(frame)) {
				got = append(got, -1)
				return
			}
		}
		got = append(got, len(frame))
	}
	sizes := []int{0, 1, 127, 128, smallBatch, batchSize - 6, batchSize - 5, batchSize, batchSize + 1, 1 << 20, MaxFrame, 3}
	for _, n := range sizes {
		require.NoError(t, a.Send(b.member, Data, bytes.Repeat([]byte{byte(n)}, n)))
	}
	k := linkKey{a.member, Data}
	b.rec.until(t, "all sizes", func() bool { return len(b.rec.in[k]) == 1+len(sizes) })
	assert.Equal(t, sizes, got)
	assert.ErrorIs(t, a.Send(b.member, Data, make([]byte, MaxFrame+1)), ErrTooLarge)
	assert.ErrorContains(t, a.Send(b.member, Raft, nil), "not raft")
}

// TestBackPressure: a peer that does not read fills its own queue alone; another is served meanwhile, and the control class of
// the same peer too.
func TestBackPressure(t *testing.T) {
	for name, bound := range map[string]func(*Config){
		"frames": func(c *Config) { c.QueueFrames = 100 },
		"bytes":  func(c *Config) { c.QueueBytes = 100 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			a, slow, quick := start(t, "a", bound), start(t, "slow"), start(t, "quick")
			meet(a, slow, quick)
			release := make(chan struct{})
			var once sync.Once
			slow.rec.onFrame = func(_ Peer, class Class, _ []byte) {
				if class == Data {
					<-release
				}
			}
			t.Cleanup(func() { once.Do(func() { close(release) }) })
			frame := make([]byte, 10<<10)
			sent := 0
			var err error
			for err == nil {
				if err = a.Send(slow.member, Data, frame); err == nil {
					sent++
				}
				require.Less(t, sent, 10_000, "no back-pressure")
				runtime.Gosched()
			}
			require.ErrorIs(t, err, ErrBackPressure)
			assert.NotZero(t, a.Stats().Classes[Data].Rejected)

			require.NoError(t, a.Send(quick.member, Data, []byte("x")))
			quick.rec.untilIn(t, a.member, Data, "opened", "frame x")
			require.NoError(t, a.Send(slow.member, Control, []byte("x")))
			slow.rec.untilIn(t, a.member, Control, "opened", "frame x")
			_, err = a.Call(t.Context(), slow.member, "m", nil)
			require.NoError(t, err)

			once.Do(func() { close(release) })
			k := linkKey{a.member, Data}
			slow.rec.until(t, "all that was accepted", func() bool { return len(slow.rec.in[k]) == 1+sent })
			assert.Eventually(t, func() bool { return a.Send(slow.member, Data, frame) == nil }, patience, time.Millisecond)
		})
	}
}

// TestUnreachable: frames to a peer that does not answer are reported down once, and later ones are refused at once; when it
// comes, frames flow by themselves.
func TestUnreachable(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	a.rec.onUp = func(to sharding.Member, class Class) { // whoever hears that a peer is there again may send to it
		assert.NoError(t, a.Send(to, class, []byte("at once")))
	}
	meet(a, b)
	require.NoError(t, b.Close())
	require.NoError(t, a.Send(b.member, Data, []byte("lost")))
	a.rec.untilOut(t, b.member, Data, "down")
	err := a.Send(b.member, Data, []byte("refused"))
	unavailable, ok := errors.AsType[*UnavailableError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, b.member, unavailable.Member)
	assert.ErrorContains(t, err, "connection refused")
	require.Eventually(t, func() bool { return a.Stats().DialFailures[ReasonIO] >= 3 }, patience, time.Millisecond, "it goes on trying")
	a.rec.untilOut(t, b.member, Data, "down")

	again := start(t, "b", func(c *Config) { c.Self = b.member; c.Bind = b.Addr().String() })
	a.rec.untilOut(t, b.member, Data, "down", "up")
	require.NoError(t, a.Send(b.member, Data, []byte("now")))
	again.rec.untilIn(t, a.member, Data, "opened", "frame at once", "frame now")

	assert.ErrorIs(t, a.Send(member("nobody"), Data, nil), ErrUnknownPeer)
}

// TestReplacedIncarnation: when a node comes back as another process, what leads to the old one ends, both ways.
func TestReplacedIncarnation(t *testing.T) {
	a, old := start(t, "a"), start(t, "b")
	meet(a, old)
	require.NoError(t, a.Send(old.member, Data, []byte("1")))
	require.NoError(t, old.Send(a.member, Data, []byte("2")))
	a.rec.untilOut(t, old.member, Data, "up")
	a.rec.untilIn(t, old.member, Data, "opened", "frame 2")

	next := start(t, "b")
	a.SetPeers([]Target{{Member: next.member, Addr: next.Addr().String()}})
	a.rec.untilOut(t, old.member, Data, "up", "down")
	// The old one lives, and is back within a millisecond: who it is to be taken for is for the layers above to know.
	a.rec.untilInBegins(t, old.member, Data, "opened", "frame 2", "closed")
	assert.ErrorIs(t, a.rec.downs[linkKey{old.member, Data}], errReplaced)
	require.NoError(t, old.Close())
	require.Eventually(t, func() bool { return errors.Is(a.Send(old.member, Data, nil), ErrUnknownPeer) }, patience, time.Millisecond)
	require.NoError(t, a.Send(next.member, Data, []byte("3")))
	next.rec.untilIn(t, a.member, Data, "opened", "frame 3")
}

// TestAnswerBeforeGossip: a member that has connected can be answered before anybody told of its address, for as long as its
// connection stands.
func TestAnswerBeforeGossip(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	a.SetPeers([]Target{{Member: b.member, Addr: b.Addr().String()}})
	require.NoError(t, a.Send(b.member, Control, []byte("hello")))
	b.rec.untilIn(t, a.member, Control, "opened", "frame hello")
	require.NoError(t, b.Send(a.member, Control, []byte("answer")))
	a.rec.untilIn(t, b.member, Control, "opened", "frame answer")

	require.NoError(t, a.Close())
	b.rec.untilOut(t, a.member, Control, "up", "down")
	require.Eventually(t, func() bool { return errors.Is(b.Send(a.member, Control, nil), ErrUnknownPeer) }, patience, time.Millisecond)
}

// TestReopenedStream: a stream that a peer opens anew is preceded by the end of the one before, even where that one hangs in a
// handler and its connection was never seen to break.
func TestReopenedStream(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	meet(a, b)
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	b.rec.onFrame = func(Peer, Class, []byte) {
		once.Do(func() { close(held); <-release })
	}
	require.NoError(t, a.Send(b.member, Data, []byte("1")))
	<-held
	c, err := a.dial(t.Context(), b.Addr().String(), Data, b.member)
	require.NoError(t, err)
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		// a's own link, which connects again, may have taken this one's place by now: then it is the second.
		if s, err := a.carrier.open(context.Background(), c); err == nil {
			t.Cleanup(s.close)
		}
	}()
	a.rec.until(t, "the first stream's end", func() bool { return count(a.rec.out[linkKey{b.member, Data}], "down") > 0 })
	b.rec.untilIn(t, a.member, Data, "opened")
	close(release)
	<-opened
	b.rec.untilInBegins(t, a.member, Data, "opened", "frame 1", "closed", "opened")
}

// TestOneStreamEach: a connection serves what its handshake was for, and one stream of it.
func TestOneStreamEach(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	g := a.carrier.(*grpcCarrier)
	open := func(client *grpc.ClientConn) error {
		s, err := client.NewStream(t.Context(), &grpc.StreamDesc{StreamName: "Frames", ServerStreams: true, ClientStreams: true}, framesPath)
		require.NoError(t, err)
		if head, err := s.Header(); err == nil && head != nil {
			return nil
		}
		return s.RecvMsg(new(received))
	}
	for class, want := range map[Class][2]codes.Code{Data: {codes.OK, codes.FailedPrecondition}, Call: {codes.FailedPrecondition, codes.FailedPrecondition}} {
		c, err := a.dial(t.Context(), b.Addr().String(), class, b.member)
		require.NoError(t, err)
		client, err := g.client(c)
		require.NoError(t, err)
		for _, code := range want {
			assert.Equal(t, code, status.Code(open(client)), "%s", class)
		}
		var r received
		err = client.Invoke(t.Context(), callPath, mem.BufferSlice{mem.SliceBuffer("\x01mbody")}, &r)
		assert.Equal(t, class == Call, err == nil, "%s: %v", class, err)
		if class == Call { // a method longer than the request
			err = client.Invoke(t.Context(), callPath, mem.BufferSlice{mem.SliceBuffer("\xffm")}, &r)
			assert.Equal(t, codes.InvalidArgument, status.Code(err))
		}
		require.NoError(t, client.Close())
	}
}

// TestDownOnce: a generation of frames ends once, and a stream that breaks while its writer sleeps leaves no wake-up behind that the
// next one would trip over.
func TestDownOnce(t *testing.T) {
	f := NewFaults(1)
	a, b := start(t, "a", func(c *Config) { c.Faults = f }), start(t, "b")
	meet(a, b)
	k := linkKey{b.member, Data}
	for i := 1; i <= 50; i++ {
		sendAll(t, a, b.member, Data, i, i+1)
		a.rec.until(t, "up", func() bool { return count(a.rec.out[k], "up") == i })
		var group sync.WaitGroup
		group.Go(func() { f.Break(Where{Direction: Out}) })
		group.Go(func() { _ = a.Send(b.member, Data, []byte("0")) }) // races with the break
		group.Wait()
		a.rec.until(t, "down", func() bool { return count(a.rec.out[k], "down") == i })
	}
}

// TestDrain: what was accepted is handed over before Drain returns, and both sides learn that nothing was lost.
func TestDrain(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	meet(a, b)
	gate := make(chan struct{})
	b.rec.onFrame = func(Peer, Class, []byte) { <-gate }
	sendAll(t, a, b.member, Data, 0, 5000)
	sendAll(t, a, a.member, Data, 0, 100)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, a.Drain(short), context.DeadlineExceeded)
	close(gate)
	require.NoError(t, a.Drain(t.Context()))
	k := linkKey{a.member, Data}
	b.rec.untilIn(t, a.member, Control) // nothing there
	rows := b.rec.rows(a.member, Data)
	require.Len(t, rows, 5002)
	assert.Equal(t, "closed", rows[5001])
	assert.NoError(t, b.rec.errs[k])
	a.rec.untilOut(t, b.member, Data, "up", "down")
	assert.NoError(t, a.rec.downs[linkKey{b.member, Data}])
	assert.Equal(t, 100, checkInbound(t, a.rec.rows(a.member, Data)))
	assert.ErrorIs(t, a.Send(b.member, Data, nil), ErrClosed)
	assert.ErrorIs(t, a.Send(a.member, Data, nil), ErrClosed)
	assert.Zero(t, a.Stats().Classes[Data].FramesLost)

	// The other way still works until Close.
	require.NoError(t, b.Send(a.member, Data, []byte("x")))
	a.rec.untilIn(t, b.member, Data, "opened", "frame x")
}

// TestClusterIDLearned: connections of another cluster end once the ID is known.
func TestClusterIDLearned(t *testing.T) {
	id := sharding.NewIncarnation()
	a, b := start(t, "a"), start(t, "b", func(c *Config) { c.ClusterID = id })
	meet(a, b)
	require.NoError(t, a.Send(b.member, Data, []byte("1")))
	require.NoError(t, b.Send(a.member, Data, []byte("1")))
	a.rec.untilOut(t, b.member, Data, "up")
	a.rec.untilIn(t, b.member, Data, "opened", "frame 1")
	assert.Equal(t, id, a.rec.peers[linkKey{b.member, Data}].ClusterID)

	a.SetClusterID(id)
	require.NoError(t, a.Send(b.member, Data, []byte("2")))
	b.rec.untilIn(t, a.member, Data, "opened", "frame 1", "frame 2")
	a.SetClusterID(sharding.NewIncarnation())
	a.rec.untilIn(t, b.member, Data, "opened", "frame 1", "closed")
	a.rec.until(t, "down", func() bool { return count(a.rec.out[linkKey{b.member, Data}], "down") == 1 })
	require.Eventually(t, func() bool {
		return errors.As(a.Send(b.member, Data, nil), new(*ClusterMismatchError))
	}, patience, time.Millisecond)
}

func TestCalls(t *testing.T) {
	modes(t, func(t *testing.T, secure func(*Config)) {
		f := NewFaults(1)
		a, b := start(t, "a", secure), start(t, "b", secure, func(c *Config) { c.Faults = f })
		meet(a, b)
		entered := make(chan struct{})
		b.rec.onCall = func(ctx context.Context, from Peer, method string, body []byte) ([]byte, error) {
			switch method {
			case "echo":
				return body, nil
			case "who":
				return fmt.Append(nil, from.Member), nil
			case "fail":
				return nil, errors.New("no such module")
			case "huge":
				return make([]byte, MaxCall+1), nil
			default:
				entered <- struct{}{}
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}
		large := make([]byte, MaxCall)
		for i := 0; i+8 <= len(large); i += 8 {
			binary.LittleEndian.PutUint64(large[i:], uint64(i))
		}
		for _, body := range [][]byte{nil, []byte("x"), large} {
			answer, err := a.Call(t.Context(), b.member, "echo", body)
			require.NoError(t, err)
			require.True(t, bytes.Equal(body, answer))
		}
		answer, err := a.Call(t.Context(), b.member, "who", nil)
		require.NoError(t, err)
		assert.Equal(t, a.member.String(), string(answer))

		_, err = a.Call(t.Context(), b.member, "fail", nil)
		remote, ok := errors.AsType[*RemoteError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, RemoteError{Member: b.member, Message: "no such module"}, *remote)
		_, err = a.Call(t.Context(), b.member, "huge", nil)
		assert.ErrorAs(t, err, new(*RemoteError))
		_, err = a.Call(t.Context(), b.member, "echo", make([]byte, MaxCall+1))
		assert.ErrorIs(t, err, ErrTooLarge)
		_, err = a.Call(t.Context(), b.member, strings.Repeat("m", 256), nil)
		assert.ErrorIs(t, err, ErrTooLarge)
		_, err = a.Call(t.Context(), member("nobody"), "echo", nil)
		assert.ErrorIs(t, err, ErrUnknownPeer)

		// A caller that gives up ends the callee's context.
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { _, err := a.Call(ctx, b.member, "wait", nil); done <- err }()
		<-entered
		cancel()
		assert.ErrorIs(t, <-done, context.Canceled)

		// A broken connection ends the call, and the next one makes another.
		go func() { _, err := a.Call(t.Context(), b.member, "wait", nil); done <- err }()
		<-entered
		f.Break(Where{Class: Call})
		require.Error(t, <-done)
		require.Eventually(t, func() bool {
			_, err := a.Call(t.Context(), b.member, "echo", nil)
			return err == nil
		}, patience, time.Millisecond)
		assert.EqualValues(t, 2, a.Stats().Classes[Call].Connects)

		require.NoError(t, b.Close())
		require.Eventually(t, func() bool {
			_, err := a.Call(t.Context(), b.member, "echo", nil)
			return errors.As(err, new(*UnavailableError))
		}, patience, time.Millisecond)
		require.NoError(t, a.Close())
		_, err = a.Call(t.Context(), b.member, "echo", nil)
		assert.ErrorIs(t, err, ErrClosed)
	})
}

// TestRaft: raft's connections carry bytes both ways, and say who the peer is.
func TestRaft(t *testing.T) {
	modes(t, func(t *testing.T, secure func(*Config)) {
		a, b := start(t, "a", secure), start(t, "b", secure)
		out, err := a.DialRaft(t.Context(), b.Addr().String(), "b")
		require.NoError(t, err)
		assert.Equal(t, b.member, out.Peer().Member)
		in, err := b.Raft().Accept()
		require.NoError(t, err)
		assert.Equal(t, a.member, in.(PeerConn).Peer().Member)
		for _, pair := range [][2]io.ReadWriter{{out, in}, {in, out}} {
			_, err = pair[0].Write([]byte("hello"))
			require.NoError(t, err)
			got := make([]byte, 5)
			_, err = io.ReadFull(pair[1], got)
			require.NoError(t, err)
			assert.Equal(t, "hello", string(got))
		}
		_, err = a.DialRaft(t.Context(), b.Addr().String(), "c")
		assert.ErrorAs(t, err, new(*NameMismatchError))
		require.NoError(t, b.Close())
		_, err = b.Raft().Accept()
		require.Error(t, err)
		_, err = out.Read(make([]byte, 1))
		require.Error(t, err)
	})
}

// TestNoGoroutineStays: Close ends everything, in every state that links and calls can be in.
func TestNoGoroutineStays(t *testing.T) {
	settle := func(limit int) bool { // require.Eventually has goroutines of its own
		for deadline := time.Now().Add(patience); runtime.NumGoroutine() > limit; runtime.Gosched() {
			if time.Now().After(deadline) {
				return false
			}
		}
		return true
	}
	modes(t, func(t *testing.T, secure func(*Config)) {
		before := runtime.NumGoroutine()
		for range 3 {
			a, b := start(t, "a", secure), start(t, "b", secure)
			gone := member("gone")
			meet(a, b)
			a.SetPeers([]Target{{b.member, b.Addr().String()}, {gone, "127.0.0.1:1"}})
			require.NoError(t, a.Send(b.member, Data, []byte("x")))
			require.NoError(t, b.Send(a.member, Control, []byte("x")))
			require.NoError(t, a.Send(a.member, Data, []byte("x")))
			require.NoError(t, a.Send(gone, Data, []byte("x")))
			_, err := a.Call(t.Context(), b.member, "m", nil)
			require.NoError(t, err)
			_, err = a.DialRaft(t.Context(), b.Addr().String(), "")
			require.NoError(t, err)
			b.rec.untilIn(t, a.member, Data, "opened", "frame x")
			require.NoError(t, a.Close())
			require.NoError(t, a.Close(), "twice is fine")
			require.NoError(t, b.Close())
			assert.Zero(t, a.Stats().Connections)
			assert.Zero(t, b.Stats().Connections)
		}
		if !settle(before) {
			stacks := make([]byte, 1<<20)
			t.Errorf("%d goroutines before, now:\n%s", before, stacks[:runtime.Stack(stacks, true)])
		}
	})
}
