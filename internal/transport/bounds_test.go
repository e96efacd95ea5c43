package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// syncBuffer takes a log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Count(s.b.Bytes(), []byte(what))
}

// TestDoorCountsByAddress: one address keeps no more than its share of the unfinished handshakes, whichever of its IPv6 addresses it uses, and
// gives it back.
func TestDoorCountsByAddress(t *testing.T) {
	d := door{most: 6, mostOf: 2, from: map[netip.Addr]int{}}
	at := func(s string) netip.Addr { return sourceOf(&net.TCPAddr{IP: net.ParseIP(s), Port: 1}) }
	require.NoError(t, d.enter(at("192.0.2.1")))
	require.NoError(t, d.enter(at("::ffff:192.0.2.1")), "the same address, written otherwise")
	require.ErrorContains(t, d.enter(at("192.0.2.1")), "2 handshakes from this address")
	require.NoError(t, d.enter(at("2001:db8::1")))
	require.NoError(t, d.enter(at("2001:db8::ffff:1")))
	require.Error(t, d.enter(at("2001:db8::2")), "one host has a whole network of addresses")
	require.NoError(t, d.enter(at("2001:db8:0:1::2")))
	require.NoError(t, d.enter(at("192.0.2.2")))
	require.ErrorContains(t, d.enter(at("192.0.2.3")), "6 handshakes are unfinished")
	d.leave(at("192.0.2.1"))
	require.NoError(t, d.enter(at("192.0.2.1")))
	for a := range d.from {
		for d.from[a] > 0 {
			d.leave(a)
		}
	}
	assert.Zero(t, d.all)
	assert.Empty(t, d.from)
}

// TestSlowStrangers: one address that opens connections and says nothing keeps nobody else out, and is named in the log once (spec 5.2).
func TestSlowStrangers(t *testing.T) {
	log := &syncBuffer{}
	b := start(t, "b", keyed(key(1)), func(c *Config) {
		c.HandshakeTimeout = time.Minute // nobody's place comes free in this test
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	var conns []net.Conn
	for range 2 * handshakesOfAddr {
		c, err := from.DialContext(t.Context(), "tcp", b.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		conns = append(conns, c)
	}
	require.Eventually(t, func() bool {
		return b.Stats().Refused[ReasonBusy] == handshakesOfAddr && log.count("from this address are unfinished") > 0
	}, patience, time.Millisecond)
	require.NoError(t, conns[len(conns)-1].SetDeadline(time.Now().Add(patience)))
	_, err := conns[len(conns)-1].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "it is turned away at once")
	a := start(t, "a", keyed(key(1)))
	require.NoError(t, connect(t, a, b, Data, b.member))
	assert.Equal(t, 1, log.count("from this address are unfinished"))
	assert.Equal(t, 1, log.count("level=WARN"))
}

// TestConnectionsOfOneNode: an authenticated node that leaks connections takes no file descriptors from the others, under none of the
// incarnations that it claims.
func TestConnectionsOfOneNode(t *testing.T) {
	log := &syncBuffer{}
	b := start(t, "b", func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	a, again, c := start(t, "a"), start(t, "a"), start(t, "c")
	var conns []*conn
	for i := range connsOfNode + 5 {
		from := a
		if i%2 == 1 {
			from = again
		}
		c, err := from.dial(t.Context(), b.Addr().String(), Raft, b.member)
		require.NoError(t, err)
		conns = append(conns, c)
	}
	require.Eventually(t, func() bool {
		return b.Stats().Refused[ReasonBusy] == 5 && log.count(`node \"a\" has 64 connections`) > 0
	}, patience, time.Millisecond)
	assert.LessOrEqual(t, b.Stats().Connections, connsOfNode)
	assert.Equal(t, 1, log.count(`node \"a\" has 64 connections`))
	require.NoError(t, connect(t, c, b, Raft, b.member))
	for range connsOfNode { // b's side of each, which raft has been given
		in, err := b.Raft().Accept()
		require.NoError(t, err)
		require.NoError(t, in.Close())
	}
	for _, c := range conns {
		_ = c.Close() // the other side has ended it already
	}
	b.conns.mu.Lock()
	assert.NotContains(t, b.conns.uses, a.member.Node, "what has ended is counted still")
	b.conns.mu.Unlock()
	extra, err := a.dial(t.Context(), b.Addr().String(), Raft, b.member)
	require.NoError(t, err)
	require.NoError(t, extra.Close())
}

// TestCallsOfOneNode: the requests of one node that are under way are bounded, over all of its connections; the others' are served meanwhile.
func TestCallsOfOneNode(t *testing.T) {
	a, b, c := start(t, "a"), start(t, "b"), start(t, "c")
	meet(a, b, c)
	var now, most atomic.Int32
	release := make(chan struct{})
	b.rec.onCall = func(ctx context.Context, _ Peer, method string, _ []byte) ([]byte, error) {
		if method == "quick" {
			return nil, nil
		}
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-release:
		case <-ctx.Done(): // the test has failed
		}
		return nil, nil
	}
	_, err := a.Call(t.Context(), b.member, "quick", nil) // so that the one that waits below need not connect
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 3 {
		conn, err := a.dial(t.Context(), b.Addr().String(), Call, b.member)
		require.NoError(t, err)
		client, err := a.carrier.calls(conn)
		require.NoError(t, err)
		t.Cleanup(client.close)
		for range callsOfNode {
			wg.Go(func() {
				_, err := client.call(t.Context(), fmt.Sprint("slow", i), nil)
				assert.NoError(t, err)
			})
		}
	}
	require.Eventually(t, func() bool { return now.Load() == callsOfNode }, patience, time.Millisecond)
	_, err = c.Call(t.Context(), b.member, "quick", nil)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = a.Call(short, b.member, "quick", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded, "one that waits is ended by its deadline")
	close(release)
	wg.Wait()
	assert.EqualValues(t, callsOfNode, most.Load())
}

// slowClock is a context whose own deadline comes never, though it tells one.
type slowClock struct {
	context.Context
	deadline time.Time
}

func (c slowClock) Deadline() (time.Time, bool) { return c.deadline, true }

// TestDeadlineThatThePeerSeesFirst: a deadline is a deadline, whichever clock shows it first, and whether the request waits or is served.
func TestDeadlineThatThePeerSeesFirst(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	meet(a, b)
	b.rec.onCall = func(ctx context.Context, _ Peer, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var wg sync.WaitGroup
	for range callsOfNode + 2 {
		wg.Go(func() {
			_, err := a.Call(slowClock{t.Context(), time.Now().Add(100 * time.Millisecond)}, b.member, "slow", nil)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
	wg.Wait()
}

// TestFrameBoundsOfReceiver: the receiver holds a peer to the bound of the class, whatever release or malice it runs.
func TestFrameBoundsOfReceiver(t *testing.T) {
	for class, most := range map[Class]int{Data: MaxFrame, Control: MaxControlFrame} {
		t.Run(class.String(), func(t *testing.T) {
			a, b := start(t, "a"), start(t, "b")
			meet(a, b)
			var got atomic.Int64
			b.rec.onFrame = func(_ Peer, _ Class, frame []byte) { got.Store(int64(len(frame))) }
			require.ErrorIs(t, a.Send(b.member, class, make([]byte, most+1)), ErrTooLarge)
			open := func() outStream {
				c, err := a.dial(t.Context(), b.Addr().String(), class, b.member)
				require.NoError(t, err)
				s, err := a.carrier.open(t.Context(), c)
				require.NoError(t, err)
				t.Cleanup(s.close)
				return s
			}
			s := open()
			require.NoError(t, s.send(single(make([]byte, most))))
			require.Eventually(t, func() bool { return got.Load() == int64(most) }, patience, time.Millisecond)
			_ = s.send(single(make([]byte, most+1))) // it may have ended by then
			k := linkKey{a.member, class}
			b.rec.until(t, "the end", func() bool { return count(b.rec.in[k], "closed") == 1 })
			if most+1 <= MaxCall { // above that grpc itself refuses
				assert.ErrorContains(t, b.rec.errs[k], fmt.Sprintf("a frame of %d bytes, at most %d", most+1, most))
			}
			assert.EqualValues(t, most, got.Load())
		})
	}
}

// TestBulk: what is larger than a queue goes through it, in order with what lies round it, without being in memory as a whole (spec 2.1: the map is
// followed by a stream of deltas).
func TestBulk(t *testing.T) {
	a, b := start(t, "a", func(c *Config) { c.QueueBytes = 100 << 10; c.QueueFrames = 10 }), start(t, "b")
	meet(a, b)
	for _, to := range []*node{b, a} {
		t.Run(string(to.member.Node), func(t *testing.T) {
			hold := make(chan struct{})
			release := sync.OnceFunc(func() { close(hold) })
			defer release()
			var order []string
			var mu sync.Mutex
			to.rec.onFrame = func(_ Peer, _ Class, frame []byte) {
				if string(frame) != "before" {
					<-hold
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, string(frame[:min(len(frame), 9)]))
			}
			const frames, size = 400, 64 << 10
			var made atomic.Int32
			bulk := func(name string) func(func([]byte) bool) {
				return func(yield func([]byte) bool) {
					buf := make([]byte, size)
					for i := range frames {
						made.Add(1)
						copy(buf, fmt.Sprintf("%s %06d", name, i))
						if !yield(buf) {
							return
						}
					}
				}
			}
			send := func(s string) { require.NoError(t, a.Send(to.member, Control, []byte(s))) }
			send("before")
			require.NoError(t, a.SendBulk(to.member, Control, bulk("A")))
			send("between")
			require.Eventually(t, func() bool { return a.SendBulk(to.member, Control, bulk("B")) == nil }, patience, time.Millisecond, "one is on its way, one waits")
			send("after")
			require.ErrorIs(t, a.SendBulk(to.member, Control, bulk("C")), ErrBackPressure)
			assert.Less(t, made.Load(), int32(frames), "it is made before the peer reads")
			release()
			to.rec.until(t, "all", func() bool { return len(to.rec.in[linkKey{a.member, Control}]) == 1+3+2*frames })
			want := []string{"before"}
			for i := range frames {
				want = append(want, fmt.Sprintf("A %06d", i)+"\x00")
			}
			want = append(want, "between")
			for i := range frames {
				want = append(want, fmt.Sprintf("B %06d", i)+"\x00")
			}
			assert.Equal(t, append(want, "after"), order)
			require.NoError(t, a.SendBulk(to.member, Control, func(yield func([]byte) bool) {
				_ = yield(make([]byte, MaxControlFrame+1)) && yield([]byte("last"))
			}))
			to.rec.until(t, "the last", func() bool { return count(to.rec.in[linkKey{a.member, Control}], "frame last") == 1 })
		})
	}
	assert.ErrorIs(t, a.SendBulk(member("nobody"), Control, func(func([]byte) bool) {}), ErrUnknownPeer)
	assert.ErrorContains(t, a.SendBulk(b.member, Call, nil), "control or data")
}

// TestBulkOfLostStream: a stream that breaks in a bulk ends the bulk too; the next one begins anew.
func TestBulkOfLostStream(t *testing.T) {
	f := NewFaults(1)
	a, b := start(t, "a", func(c *Config) { c.Faults = f }), start(t, "b")
	meet(a, b)
	ended := make(chan struct{})
	require.NoError(t, a.SendBulk(b.member, Control, func(yield func([]byte) bool) {
		defer close(ended)
		for yield([]byte("more")) {
		}
	}))
	b.rec.until(t, "some", func() bool { return len(b.rec.in[linkKey{a.member, Control}]) > 100 })
	f.Break(Where{Class: Control})
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("a bulk is made though nobody can have it")
	}
	a.rec.until(t, "down", func() bool { return count(a.rec.out[linkKey{b.member, Control}], "down") == 1 })
	require.Eventually(t, func() bool {
		return a.SendBulk(b.member, Control, func(yield func([]byte) bool) { yield([]byte("last")) }) == nil
	}, patience, time.Millisecond)
	b.rec.until(t, "the next bulk", func() bool { return count(b.rec.in[linkKey{a.member, Control}], "frame last") == 1 })
}

// TestUnwantedPeerThatDoesNotRead: a link that is not wanted any more ends, though its writer waits for a peer that reads nothing.
func TestUnwantedPeerThatDoesNotRead(t *testing.T) {
	a, b := start(t, "a"), start(t, "b")
	meet(a, b)
	release := make(chan struct{})
	defer close(release)
	b.rec.onFrame = func(Peer, Class, []byte) { <-release }
	frame := make([]byte, 1<<20)
	for a.Send(b.member, Data, frame) == nil {
		runtime.Gosched()
	}
	a.SetPeers(nil)
	require.Eventually(t, func() bool { return a.link(b.member, Data) == nil }, patience, time.Millisecond)
	assert.ErrorIs(t, a.Send(b.member, Data, frame), ErrUnknownPeer)
	assert.ErrorIs(t, a.rec.downs[linkKey{b.member, Data}], errGone)
}
