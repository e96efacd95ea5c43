package transport

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func faulty(t *testing.T) (a, b *node, f *Faults) {
	f = NewFaults(1)
	a, b = start(t, "a", func(c *Config) { c.Faults = f }), start(t, "b")
	meet(a, b)
	require.NoError(t, a.Send(b.member, Data, []byte("1")))
	require.NoError(t, b.Send(a.member, Data, []byte("1")))
	a.rec.untilOut(t, b.member, Data, "up")
	b.rec.untilIn(t, a.member, Data, "opened", "frame 1")
	a.rec.untilIn(t, b.member, Data, "opened", "frame 1")
	return a, b, f
}

func TestFaultDrop(t *testing.T) {
	a, b, f := faulty(t)
	f.Drop(Where{Peer: "b", Class: Data, Direction: Out}, 1)
	require.NoError(t, a.Send(b.member, Data, []byte("lost")))
	require.NoError(t, a.Send(b.member, Control, []byte("kept")))
	b.rec.untilIn(t, a.member, Control, "opened", "frame kept")
	f.Heal()
	require.NoError(t, a.Send(b.member, Data, []byte("2")))
	b.rec.untilIn(t, a.member, Data, "opened", "frame 1", "frame 2")

	f.Drop(Where{Direction: In}, 0.5)
	for i := range 200 {
		require.NoError(t, b.Send(a.member, Data, fmt.Append(nil, i)))
	}
	require.NoError(t, b.Drain(t.Context()))
	k := linkKey{b.member, Data}
	a.rec.until(t, "the end", func() bool { return count(a.rec.in[k], "closed") == 1 })
	got := len(a.rec.rows(b.member, Data)) - 3
	assert.Greater(t, got, 50)
	assert.Less(t, got, 150)
}

func TestFaultDelay(t *testing.T) {
	a, b, f := faulty(t)
	const delay = 50 * time.Millisecond
	f.Delay(Where{Peer: "b"}, delay)
	began := time.Now()
	require.NoError(t, a.Send(b.member, Data, []byte("2")))
	b.rec.untilIn(t, a.member, Data, "opened", "frame 1", "frame 2")
	assert.GreaterOrEqual(t, time.Since(began), delay)
	began = time.Now()
	_, err := a.Call(t.Context(), b.member, "m", nil)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(began), delay)
}

// TestFaultPartition: both ways, and one way alone.
func TestFaultPartition(t *testing.T) {
	a, b, f := faulty(t)
	raft, err := a.DialRaft(t.Context(), b.Addr().String(), "b")
	require.NoError(t, err)
	f.Partition(Where{Peer: "b"})
	a.rec.untilOut(t, b.member, Data, "up", "down")
	a.rec.untilIn(t, b.member, Data, "opened", "frame 1", "closed")
	b.rec.until(t, "both ends", func() bool {
		return count(b.rec.in[linkKey{a.member, Data}], "closed") == 1 && count(b.rec.out[linkKey{a.member, Data}], "down") >= 1
	})
	require.ErrorContains(t, f.Inject(b.member, Data, nil), "no data stream")
	_, err = raft.Read(make([]byte, 1))
	require.Error(t, err)
	_, err = a.DialRaft(t.Context(), b.Addr().String(), "b")
	require.Equal(t, ReasonFault, reasonOf(t, err))
	_, err = a.DialRaft(t.Context(), b.Addr().String(), "") // whoever it is
	require.Equal(t, ReasonFault, reasonOf(t, err))
	_, err = b.DialRaft(t.Context(), a.Addr().String(), "a")
	require.Equal(t, ReasonFault, reasonOf(t, err))
	_, err = a.Call(t.Context(), b.member, "m", nil)
	require.ErrorAs(t, err, new(*UnavailableError))

	f.Heal()
	a.rec.untilOut(t, b.member, Data, "up", "down", "up")
	require.NoError(t, a.Send(b.member, Data, []byte("2")))
	b.rec.untilIn(t, a.member, Data, "opened", "frame 1", "closed", "opened", "frame 2")

	// One way: a hears nothing of b, b hears a.
	f.Partition(Where{Peer: "b", Direction: In})
	require.NoError(t, a.Send(b.member, Data, []byte("3")))
	b.rec.untilIn(t, a.member, Data, "opened", "frame 1", "closed", "opened", "frame 2", "frame 3")
	require.Eventually(t, func() bool {
		return errors.As(b.Send(a.member, Data, []byte("unheard")), new(*UnavailableError))
	}, patience, time.Millisecond)
	assert.Zero(t, count(a.rec.rows(b.member, Data), "frame unheard"))
}

// TestFaultStopReading: what arrives is left unread, then read in order.
func TestFaultStopReading(t *testing.T) {
	a, b, f := faulty(t)
	f.StopReading(Where{Peer: "b", Class: Data})
	require.NoError(t, b.Send(a.member, Data, []byte("2")))
	require.NoError(t, b.Send(a.member, Control, []byte("c")))
	a.rec.untilIn(t, b.member, Control, "opened", "frame c")
	require.Eventually(t, func() bool { return b.Stats().Classes[Data].FramesSent == 2 }, patience, time.Millisecond)
	a.rec.untilIn(t, b.member, Data, "opened", "frame 1")
	f.Heal()
	a.rec.untilIn(t, b.member, Data, "opened", "frame 1", "frame 2")

	// Close is not held up.
	f.StopReading(Where{})
	require.NoError(t, b.Send(a.member, Data, []byte("3")))
	require.NoError(t, a.Close())
}

// TestFaultInject: a late frame goes over the connection that stands, past a loss of all others; none is made for it.
func TestFaultInject(t *testing.T) {
	a, b, f := faulty(t)
	require.ErrorContains(t, f.Inject(b.member, Control, []byte("late")), "no control stream")
	assert.Zero(t, a.Stats().Classes[Control].Connects)
	f.Drop(Where{}, 1)
	require.NoError(t, f.Inject(b.member, Data, []byte("late")))
	b.rec.untilIn(t, a.member, Data, "opened", "frame 1", "frame late")
	assert.EqualValues(t, 1, a.Stats().Classes[Data].Connects)
	require.ErrorContains(t, NewFaults(0).Inject(b.member, Data, nil), "no transport")
}

// TestFaultApply: the same by words, for tests of separate processes.
func TestFaultApply(t *testing.T) {
	a, b, f := faulty(t)
	require.NoError(t, f.Apply("partition peer=b class=data dir=out"))
	a.rec.untilOut(t, b.member, Data, "up", "down")
	require.NoError(t, f.Apply("heal"))
	a.rec.untilOut(t, b.member, Data, "up", "down", "up")
	require.NoError(t, f.Apply("break peer=b class=data dir=out"))
	a.rec.until(t, "a second break", func() bool { return count(a.rec.out[linkKey{b.member, Data}], "down") == 2 })
	for _, line := range []string{"drop rate=0.5", "delay by=1ms class=call", "stop-reading dir=in"} {
		require.NoError(t, f.Apply(line), line)
	}
	assert.NotNil(t, f.match(faultStopReading, In, "x", Control))
	assert.Nil(t, f.match(faultDelay, In, "x", Control))
	for line, want := range map[string]string{
		"":                 "empty",
		"explode":          `unknown command "explode"`,
		"drop rate=x":      "rate=x",
		"delay by=fast":    "by=fast",
		"drop class=bulk":  "want one of control, data, call, raft",
		"drop dir=up":      "want one of both, in, out",
		"drop color=green": "unknown key",
	} {
		assert.ErrorContains(t, f.Apply(line), want, line)
	}
}
