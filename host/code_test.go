package host_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/strategies"
)

// The same module is loaded by many at once from machine code that is kept: wazero 1.12 panics where two compile it at a time. Run with -race.
func TestLoadedAtOnce(t *testing.T) {
	ctx := context.Background()
	wasm, _, ok := strategies.Builtin("leastshard")
	require.True(t, ok)
	dir := t.TempDir()
	for range 4 {
		rt, err := host.NewRuntime(ctx, host.Options{CacheDir: dir})
		require.NoError(t, err)
		var wg sync.WaitGroup
		errs := make([]error, 12)
		for i := range errs {
			wg.Go(func() {
				s, err := rt.Load(ctx, wasm, host.Limits{Fuel: host.DefaultFuel + int64(i), Budget: time.Minute}, nil)
				if err == nil {
					err = allocate(s).Err
				}
				if err == nil {
					err = s.Close(ctx)
				}
				errs[i] = err
			})
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.NoError(t, rt.Close(ctx))
	}
}

// One who gives up while a module is compiled takes nothing away from the others, and has not seen a refusal.
func TestGivingUpWhileCompiling(t *testing.T) {
	wasm, _, ok := strategies.Builtin("leastshard")
	require.True(t, ok)
	ctx := context.Background()
	rt, err := host.NewRuntime(ctx, host.Options{})
	require.NoError(t, err)
	impatient, giveUp := context.WithCancel(ctx)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { _, errs[i] = rt.Load(impatient, wasm, host.Limits{}, nil) })
	}
	wg.Go(func() {
		s, err := rt.Load(ctx, wasm, host.Limits{Budget: time.Minute}, nil)
		if err == nil {
			err = s.Close(ctx)
		}
		require.NoError(t, err)
	})
	giveUp()
	wg.Wait()
	for _, err := range errs {
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, host.ErrRefused)
	}
	_, err = rt.Compile(impatient, fixture(t, "attack/loop"), host.Limits{})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, host.ErrRefused)
	require.NoError(t, rt.Close(ctx))
	_, err = rt.Compile(ctx, wasm, host.Limits{})
	require.ErrorContains(t, err, "closed")
}

// A strategy whose calls would all fail for want of fuel is not admitted, and the finding says which number is too low.
func TestFuelOfACall(t *testing.T) {
	wasm, _, ok := strategies.Builtin("leastshard")
	require.True(t, ok)
	for _, e := range engines {
		_, err := runtimeFor(t, e).Load(context.Background(), wasm, host.Limits{Fuel: 20_000}, nil)
		require.ErrorIs(t, err, host.ErrRefused)
		require.Equal(t, host.RuleCallFuel, host.RuleOf(err))
		require.ErrorIs(t, err, host.ErrFuel)
		require.ErrorContains(t, err, "the 20000 units of a call are not enough for two nodes and four shards (raise")
	}
	_, err := runtimeFor(t, host.Compiler).Load(context.Background(), fixture(t, "admission/warm-up-failed.loop"), host.Limits{InitFuel: 1_000_000}, nil)
	require.Equal(t, host.RuleWarmUp, host.RuleOf(err), "with more fuel it fails too")
}
