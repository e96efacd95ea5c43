package host

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func compileFixture(t *testing.T, rt *Runtime, name string, l Limits) *Module {
	t.Helper()
	wasm, err := os.ReadFile("testdata/attack/" + name + ".wasm")
	require.NoError(t, err)
	m, err := rt.Compile(context.Background(), wasm, l)
	require.NoError(t, err)
	return m
}

// Fuel, time and configuration do not make a module compile anew, memory does; closing is counted, once a module; what nobody uses stays for
// a while.
func TestCodeIsShared(t *testing.T) {
	ctx := context.Background()
	rt, err := NewRuntime(ctx, Options{})
	require.NoError(t, err)
	a := compileFixture(t, rt, "loop", Limits{})
	b := compileFixture(t, rt, "loop", Limits{Fuel: 1_000_000, InitFuel: 7, Budget: 5})
	require.Same(t, a.code, b.code)
	require.EqualValues(t, 1_000_000, b.limits.Fuel)
	require.EqualValues(t, DefaultFuel, a.limits.Fuel)
	require.NotSame(t, a.code, compileFixture(t, rt, "loop", Limits{MemoryPages: 3}).code)
	require.NotSame(t, a.code, compileFixture(t, rt, "loop", Limits{Depth: 3}).code)
	for range 2 {
		require.NoError(t, a.Close(ctx))
	}
	require.Equal(t, 1, a.users)
	require.Empty(t, rt.idle)
	require.NoError(t, b.Close(ctx))
	require.Equal(t, []*code{a.code}, rt.idle)
	again := compileFixture(t, rt, "loop", Limits{})
	require.Same(t, a.code, again.code)
	require.Empty(t, rt.idle)
	require.NoError(t, again.Close(ctx))
	for _, name := range []string{"divide", "exit", "failure", "empty"} {
		require.NoError(t, compileFixture(t, rt, name, Limits{}).Close(ctx))
	}
	require.Len(t, rt.idle, keepIdle)
	require.NotContains(t, rt.codes, a.key, "the least recently used one goes")
	require.Len(t, rt.codes, keepIdle+2)
	s, err := compileFixture(t, rt, "loop", Limits{}).Prepare(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close(ctx))
	require.NoError(t, rt.Close(ctx))
}

// What waits for its turn to be compiled, and is wanted no more, is never compiled.
func TestGivingUpInTheQueue(t *testing.T) {
	rt, err := NewRuntime(context.Background(), Options{})
	require.NoError(t, err)
	rt.compiling <- struct{}{}
	ctx, cancel := context.WithCancel(context.Background())
	wasm, err := os.ReadFile("testdata/attack/loop.wasm")
	require.NoError(t, err)
	failed := make(chan error)
	go func() {
		_, err := rt.Compile(ctx, wasm, Limits{})
		failed <- err
	}()
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	rt.compilations.Wait()
	require.Empty(t, rt.codes)
	<-rt.compiling
	compileFixture(t, rt, "loop", Limits{})
	require.NoError(t, rt.Close(context.Background()))
}
