package host

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/pluginapi"
)

func slowInit(t *testing.T) *Module {
	t.Helper()
	ctx := context.Background()
	rt, err := NewRuntime(ctx, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close(ctx)) })
	wasm, err := os.ReadFile("testdata/attack/slow-init.wasm")
	require.NoError(t, err)
	m, err := rt.Compile(ctx, wasm, Limits{})
	require.NoError(t, err)
	return m
}

// Initialisation that takes too long is the module's fault, fuel or not; that of a caller who gives up is not.
func TestInitialisationTimeout(t *testing.T) {
	m := slowInit(t)
	_, err := m.prepare(context.Background(), nil, time.Nanosecond)
	require.ErrorIs(t, err, ErrRefused)
	require.Equal(t, RuleInitialize, RuleOf(err))
	verdict, ok := VerdictOf(err)
	require.True(t, ok)
	require.Equal(t, VerdictRefused, verdict, "what ended the initialisation is the cause of the refusal, not the verdict")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = m.Prepare(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrRefused)
	s, err := m.Prepare(context.Background(), nil)
	require.NoError(t, err)
	require.NoError(t, s.Close(context.Background()))
}

// An answer that comes late is none, though the guest had no reason to call back on its way: it used less than a slice.
func TestLateAnswer(t *testing.T) {
	m := slowInit(t)
	in, err := m.instantiate(&memories{})
	require.NoError(t, err)
	defer in.close()
	in.begin(context.Background(), m.limits, time.Now())
	_, err = in.invoke(in.buffer, 8)
	require.NoError(t, err)
	in.meter.deadline = time.Now().Add(-time.Microsecond)
	_, err = in.invoke(in.buffer, 8)
	require.ErrorIs(t, err, ErrBudget)
}

// Waiting until other calls end is not charged to the call, not even where its instance is initialised anew.
func TestWaitingIsNotCharged(t *testing.T) {
	m := slowInit(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s, err := m.Prepare(ctx, nil)
		require.NoError(t, err)
		for range cap(s.wasm.pool.slots) {
			s.wasm.pool.slots <- struct{}{}
		}
		done := make(chan Result)
		snap := warmUp()
		go func() { done <- s.Call(ctx, pluginapi.OpRebalance, snap, nil, 0) }()
		time.Sleep(time.Hour)
		<-s.wasm.pool.slots
		require.NoError(t, (<-done).Err)
	})
}
