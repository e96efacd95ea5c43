package host

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/api"
)

// counter stands in for the guest's global.
type counter struct {
	api.MutableGlobal
	v uint64
}

func (c *counter) Get() uint64  { return c.v }
func (c *counter) Set(v uint64) { c.v = v }

func newMeter(slice int64) (*meter, *counter) {
	c := &counter{}
	return &meter{left: c, slice: slice}, c
}

// stopped runs f and returns what it panicked with, nil if it returned.
func stopped(f func()) (s *stop) {
	defer func() {
		if p := recover(); p != nil {
			s = p.(*stop)
		}
	}()
	f()
	return nil
}

// spend does what a guest does for an operation: charge, and call back if that overdraws the slice.
func spend(m *meter, n int64) *stop {
	left := int64(m.left.Get()) - n
	m.left.Set(uint64(left))
	if left >= 0 {
		return nil
	}
	return stopped(func() { m.left.Set(uint64(m.refill(left))) })
}

// Whatever the size of a slice, the same operations cost the same and stop at the same one (spec 1.3, "Fuel is exact").
func TestMeterIsExactForEverySlice(t *testing.T) {
	ops := []int64{1, 5, 1000, 3, 0, 250, 1 << 20, 7, 7, 7}
	var total int64
	for _, n := range ops {
		total += n
	}
	for _, slice := range []int64{1, 2, 10, 999, 1 << 19, 1 << 30} {
		for _, limit := range []int64{1, 6, 7, 1005, 1006, total - 1, total, total + 1} {
			m, _ := newMeter(slice)
			m.begin(context.Background(), limit, 0, time.Now())
			var spent int64
			for _, n := range ops {
				s := spend(m, n)
				spent += n
				require.Equal(t, spent, m.used(), "slice %d limit %d", slice, limit)
				require.Equal(t, spent > limit, s != nil, "slice %d limit %d after %d", slice, limit, spent)
				if s != nil {
					require.Equal(t, VerdictFuel, s.verdict)
					break
				}
			}
		}
	}
}

// One operation may owe many slices, and may owe more than there is.
func TestRefillCoversADebtOfManySlices(t *testing.T) {
	m, c := newMeter(10)
	m.begin(context.Background(), 1_000_000, 0, time.Now())
	require.Nil(t, spend(m, 500_000))
	require.EqualValues(t, 10, c.Get(), "what it owed, and a slice")
	s := spend(m, 1<<48)
	require.NotNil(t, s)
	require.EqualValues(t, 500_000+1<<48, m.used())
}

// The budget holds within 2 ms whatever a unit takes, a fast guest is seldom called back, and Go's collector waits for a slow one
// once only (spec 1.3, "The 100 ms budget").
func TestSlicesEndWithTheBudget(t *testing.T) {
	const fast, slow = 500 * time.Nanosecond, 150 * time.Microsecond // a thousand units
	for name, c := range map[string]struct {
		pace      func(spent time.Duration) time.Duration
		callBacks int           // at most
		longest   time.Duration // between two looks, once there has been one
	}{
		"each unit waits for memory": {func(time.Duration) time.Duration { return slow }, 700, 600 * time.Microsecond},
		"plain code":                 {func(time.Duration) time.Duration { return fast }, 5_500, 25 * time.Microsecond},
		// 40 000 units that were to take 20 µs take 6 ms, the next ones what they should.
		"quick, then slow": {func(spent time.Duration) time.Duration {
			if spent < 50*time.Millisecond {
				return fast
			}
			return slow
		}, 3_000, 6_100 * time.Microsecond},
		"quick, then slow at the end": {func(spent time.Duration) time.Duration {
			if spent < DefaultBudget-10*time.Microsecond {
				return fast
			}
			return slow
		}, 6_000, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, c0 := newMeter(maxSlice)
				started := time.Now()
				m.begin(context.Background(), MaxFuel, DefaultBudget, time.Now())
				backs := 0
				var looked time.Time
				var longest time.Duration
				var s *stop
				for s == nil {
					time.Sleep(c.pace(time.Since(started)))
					if int64(c0.Get()) < 1000 {
						if backs++; backs > 1 {
							longest = max(longest, time.Since(looked))
						}
						looked = time.Now()
					}
					s = spend(m, 1000)
				}
				require.Equal(t, VerdictBudget, s.verdict)
				require.GreaterOrEqual(t, time.Since(started), DefaultBudget)
				require.Less(t, time.Since(started), DefaultBudget+2*time.Millisecond)
				require.LessOrEqual(t, backs, c.callBacks)
				require.LessOrEqual(t, longest, c.longest)
			})
		})
	}
}

// What a bulk operation takes says nothing about the pace of other code but for one slice, and a guest that has been slow may be quick again.
func TestPaceIsThatOfTheLastSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMeter(maxSlice)
		m.begin(context.Background(), MaxFuel, time.Hour, time.Now())
		require.EqualValues(t, maxSlice, m.granted)
		time.Sleep(time.Second)
		require.Nil(t, spend(m, maxSlice+1))
		require.EqualValues(t, minSlice, m.granted)
		for want := int64(2 * minSlice); want < maxSlice; want *= 2 {
			require.Nil(t, spend(m, m.granted+1))
			require.EqualValues(t, want, m.granted)
		}
		require.Nil(t, spend(m, 64<<20))
		require.EqualValues(t, maxSlice, m.granted)
		time.Sleep(time.Second)
		left := m.granted - 7
		require.EqualValues(t, left, m.refill(left), "between pieces")
		require.Nil(t, spend(m, maxSlice+1))
		require.EqualValues(t, maxSlice, m.granted, "quick since the last piece")
	})
}

// A call-back with nothing owed, between pieces of a bulk operation, only looks at the clock.
func TestRefillBetweenPieces(t *testing.T) {
	m, _ := newMeter(10)
	m.begin(context.Background(), 1000, time.Hour, time.Now())
	require.EqualValues(t, 7, m.refill(7))
	require.EqualValues(t, 990, m.rest)
	m.deadline = time.Now().Add(-time.Second)
	require.Equal(t, VerdictBudget, stopped(func() { m.refill(7) }).verdict)
}

// Exhausted fuel is the deterministic verdict: it comes before the clock's.
func TestFuelBeforeClock(t *testing.T) {
	m, _ := newMeter(10)
	m.begin(context.Background(), 10, time.Hour, time.Now())
	m.deadline = time.Now().Add(-time.Second)
	require.Equal(t, VerdictFuel, spend(m, 11).verdict)
}

// leaf is a guest function that charges as it returns, when nobody checks any more.
type leaf struct {
	api.Function
	c *counter
	n uint64
}

func (l leaf) CallWithStack(context.Context, []uint64) error {
	l.c.v -= l.n
	return nil
}

// The host looks at what is left after each call too: a guest need not check its last charge.
func TestLastChargeIsChecked(t *testing.T) {
	m, c := newMeter(10)
	in := &instance{ctx: context.Background(), meter: *m, depth: &counter{}}
	for _, tc := range []struct {
		limit int64
		cost  uint64
		is    error
	}{{7, 7, nil}, {7, 8, ErrFuel}, {25, 25, nil}, {25, 26, ErrFuel}} {
		in.meter.begin(context.Background(), tc.limit, 0, time.Now())
		_, err := in.invoke(leaf{c: c, n: tc.cost})
		require.ErrorIs(t, err, tc.is)
	}
}

// The budget covers the reading of the answer: of what is left of it when the guest returns, a long one needs more.
func TestTimeToReadAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMeter(10)
		m.begin(context.Background(), 10, DefaultBudget, time.Now())
		time.Sleep(DefaultBudget - time.Millisecond)
		require.Nil(t, m.timeToRead(int(time.Millisecond/readByte)))
		s := m.timeToRead(int(time.Millisecond/readByte) + 1)
		require.Equal(t, VerdictBudget, s.verdict)
		require.Contains(t, s.detail, "longer than 100ms, with what it takes to read an answer of 125001 bytes")
		m.begin(context.Background(), 10, 0, time.Now())
		require.Nil(t, m.timeToRead(maxOutput))
	})
}

// The longest answer that is taken can be read within the budget that a call has by default, with a third of it left for the guest.
func TestLongestAnswerFitsTheBudget(t *testing.T) {
	require.LessOrEqual(t, maxOutput*readByte, DefaultBudget*2/3+time.Millisecond)
	require.EqualValues(t, maxOutput, mostOutput(1_000_000))
	require.Less(t, mostOutput(10_000), uint32(maxOutput))
}

func TestCancelledCall(t *testing.T) {
	m, _ := newMeter(10)
	why := errors.New("leader stepped down")
	ctx, cancel := context.WithCancelCause(context.Background())
	m.begin(ctx, 1000, 0, time.Now())
	cancel(why)
	s := spend(m, 11)
	require.Equal(t, VerdictBudget, s.verdict)
	require.ErrorIs(t, s, why)
}

// Host calls cost 100 and one a byte, taken before they do anything.
func TestHostCallCost(t *testing.T) {
	m, _ := newMeter(50)
	m.begin(context.Background(), 1000, 0, time.Now())
	m.charge(0)
	require.EqualValues(t, 100, m.used())
	m.charge(800)
	require.EqualValues(t, 1000, m.used())
	require.Equal(t, VerdictFuel, stopped(func() { m.charge(0) }).verdict)
}

// The rate of a guest's log is bounded over time, not only within a call.
func TestLogRelayRate(t *testing.T) {
	var buf bytes.Buffer
	now := time.Unix(0, 0)
	r := newLogRelay(slog.New(slog.NewTextHandler(&buf, nil)))
	r.now = func() time.Time { return now }
	lines := make([]LogLine, maxLogLines)
	count := func() int { defer buf.Reset(); return strings.Count(buf.String(), "strategy says") }
	for range 3 {
		r.relay(context.Background(), lines, 0)
	}
	require.Equal(t, maxLogBurst, count())
	now = now.Add(time.Second / 2)
	r.relay(context.Background(), lines, 0)
	require.Equal(t, logLinesASecond/2, count())
	now = now.Add(time.Hour)
	for range 3 {
		r.relay(context.Background(), lines, 0)
	}
	require.Equal(t, maxLogBurst, count(), "quiet time is not saved up")
}

func TestGuestLogLines(t *testing.T) {
	var l guestLog
	l.add(slog.LevelInfo, []byte("bad \xff byte"))
	l.add(slog.LevelInfo, bytes.Repeat([]byte("x"), maxLogLine+1))
	l.stream(1, []byte("one\ntwo"))
	l.stream(1, []byte(" and more\n"))
	l.stream(2, []byte("unfinished"))
	l.stream(1, bytes.Repeat([]byte("y"), 5*maxLogLine))
	lines, dropped := l.take()
	require.Zero(t, dropped)
	require.Equal(t, []LogLine{
		{slog.LevelInfo, `bad \xff byte`},
		{slog.LevelInfo, strings.Repeat("x", maxLogLine) + "…"},
		{slog.LevelInfo, "one"}, {slog.LevelInfo, "two and more"},
		{slog.LevelInfo, strings.Repeat("y", maxLogLine) + "…"},
		{slog.LevelWarn, "unfinished"},
	}, lines)
	lines, dropped = l.take()
	require.Empty(t, lines)
	require.Zero(t, dropped)
	for range maxLogLines + 3 {
		l.add(slog.LevelInfo, nil)
	}
	_, dropped = l.take()
	require.Equal(t, 3, dropped)
	l.stream(1, []byte("begun"))
	l.stream(1, bytes.Repeat([]byte("\n"), maxLogLines+1_000_000))
	l.stream(1, []byte("one\ntwo\nunfinished"))
	lines, dropped = l.take()
	require.Len(t, lines, maxLogLines)
	require.Equal(t, "begun", lines[0].Message)
	require.Equal(t, 1_000_003, dropped)
}
