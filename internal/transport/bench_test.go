package transport

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/sharding"
)

// The benchmarks of figures "Data plane": 100-byte messages between two transports on loopback. Ask latencies belong beside
// BenchmarkRawPingPong of the same run: absolute times are the machine's.

const benchMessage = 100

// quiet is a Handler that only does what a benchmark gives it.
type quiet struct {
	frame func(from Peer, frame []byte)
}

func (q *quiet) Opened(Peer, Class)                     {}
func (q *quiet) Closed(Peer, Class, error)              {}
func (q *quiet) Up(sharding.Member, Class)              {}
func (q *quiet) Down(sharding.Member, Class, error)     {}
func (q *quiet) Frame(from Peer, _ Class, frame []byte) { q.frame(from, frame) }

func (q *quiet) Call(context.Context, Peer, string, []byte) ([]byte, error) { return nil, nil }

func benchModes(b *testing.B, run func(b *testing.B, secure func(*Config))) {
	ca := newAuthority(b)
	b.Run("keyed", func(b *testing.B) { run(b, keyed(key(1))) })
	b.Run("tls", func(b *testing.B) { run(b, ca.secure) })
}

func benchPair(b *testing.B, secure func(*Config), ha, hb Handler) (x, y *Transport) {
	var targets []Target
	var made []*Transport
	for i, h := range []Handler{ha, hb} {
		cfg := testConfig(b, string(rune('a'+i)))
		cfg.Logger = slog.New(slog.DiscardHandler)
		secure(&cfg)
		t, err := New(cfg, h)
		require.NoError(b, err)
		b.Cleanup(func() { t.Close() })
		made = append(made, t)
		targets = append(targets, Target{Member: cfg.Self, Addr: t.Addr().String()})
	}
	for _, t := range made {
		t.SetPeers(targets)
	}
	return made[0], made[1]
}

func mustSend(b testing.TB, t *Transport, to sharding.Member, frame []byte) {
	if err := t.Send(to, Data, frame); err != nil {
		b.Error(err)
	}
}

// window keeps the frames under way below what a link queues: a sender enters for so many frames at once, and the receiver makes room for as many.
const (
	windowFrames = 256
	windowRooms  = 128 // more than there are senders, each of which may end with a room half used
)

type window chan struct{}

func newWindow() window {
	w := make(window, 2*windowRooms)
	for range windowRooms {
		w <- struct{}{}
	}
	return w
}

func BenchmarkTell(b *testing.B) {
	for _, senders := range []int{1, 64} {
		b.Run(map[int]string{1: "senders=1", 64: "senders=64"}[senders], func(b *testing.B) {
			benchModes(b, func(b *testing.B, secure func(*Config)) {
				var seen atomic.Int64
				all := make(chan struct{})
				want := int64(b.N/senders) * int64(senders)
				room := newWindow()
				receive := &quiet{frame: func(Peer, []byte) {
					n := seen.Add(1)
					if n%windowFrames == 0 {
						room <- struct{}{}
					}
					if n == want+1 {
						close(all)
					}
				}}
				x, y := benchPair(b, secure, &quiet{}, receive)
				frame := make([]byte, benchMessage)
				b.SetBytes(benchMessage)
				b.ReportAllocs()
				b.ResetTimer()
				mustSend(b, x, y.cfg.Self, frame)
				var group sync.WaitGroup
				for range senders {
					group.Go(func() {
						for n := range b.N / senders {
							if n%windowFrames == 0 {
								<-room
							}
							mustSend(b, x, y.cfg.Self, frame)
						}
					})
				}
				group.Wait()
				<-all
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "M/s")
			})
		})
	}
}

// asker sends numbered asks and wakes who waits for the answer.
type asker struct {
	waiting []chan struct{}
}

func (a *asker) handler() *quiet {
	return &quiet{frame: func(_ Peer, frame []byte) { a.waiting[binary.LittleEndian.Uint32(frame)] <- struct{}{} }}
}

func echo(b testing.TB, t **Transport) *quiet {
	return &quiet{frame: func(from Peer, frame []byte) { mustSend(b, *t, from.Member, frame) }}
}

func reportLatencies(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
}

func benchAsk(b *testing.B, secure func(*Config), inFlight int) {
	a := &asker{}
	for range inFlight {
		a.waiting = append(a.waiting, make(chan struct{}, 1))
	}
	var x, y *Transport
	x, y = benchPair(b, secure, a.handler(), echo(b, &y))
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	b.ResetTimer()
	var group sync.WaitGroup
	for i := range inFlight {
		group.Go(func() {
			frame := make([]byte, benchMessage)
			binary.LittleEndian.PutUint32(frame, uint32(i))
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				began := time.Now()
				mustSend(b, x, y.cfg.Self, frame)
				<-a.waiting[i]
				took[n-1] = time.Since(began)
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e3, "k/s")
	reportLatencies(b, took)
}

func BenchmarkAsk(b *testing.B) {
	benchModes(b, func(b *testing.B, secure func(*Config)) { benchAsk(b, secure, 1) })
}

func BenchmarkAsk256(b *testing.B) {
	benchModes(b, func(b *testing.B, secure func(*Config)) { benchAsk(b, secure, 256) })
}

func BenchmarkCall(b *testing.B) {
	benchModes(b, func(b *testing.B, secure func(*Config)) {
		x, y := benchPair(b, secure, &quiet{}, &quiet{})
		took := make([]time.Duration, 0, b.N)
		for b.Loop() {
			began := time.Now()
			_, err := x.Call(b.Context(), y.cfg.Self, "m", make([]byte, benchMessage))
			require.NoError(b, err)
			took = append(took, time.Since(began))
		}
		reportLatencies(b, took)
	})
}

// BenchmarkRawPingPong is the floor: the same bytes over a bare TCP connection.
func BenchmarkRawPingPong(b *testing.B) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer lis.Close()
	go func() {
		c, err := lis.Accept()
		if err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", lis.Addr().String())
	require.NoError(b, err)
	defer c.Close()
	buf := make([]byte, benchMessage)
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		c.Write(buf)
		io.ReadFull(c, buf)
		took = append(took, time.Since(began))
	}
	reportLatencies(b, took)
}
