package host

import (
	"context"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies"
)

// Spec 1.3: compiling a module of standard Go, 2 MB of it, blocks nobody, even on one processor: meanwhile another strategy
// decides, a module that is compiled is loaded anew, Go's collector runs and unrelated goroutines wake up. Progress is counted,
// not time: there has to be so much before the compilation is over.
func TestCompilingBlocksNobody(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ctx := context.Background()
	large, _, ok := strategies.Builtin("leastshard")
	require.True(t, ok)
	require.Greater(t, len(large), 2<<20)
	rt, err := NewRuntime(ctx, Options{})
	require.NoError(t, err)
	limits := Limits{Budget: time.Minute}
	small, err := os.ReadFile("testdata/attack/well-behaved.wasm")
	require.NoError(t, err)
	s, err := rt.Load(ctx, small, limits, nil)
	require.NoError(t, err)

	compiled := make(chan error, 1)
	go func() {
		m, err := rt.Compile(ctx, large, limits)
		if err == nil {
			err = m.Close(ctx)
		}
		compiled <- err
	}()
	// The token is there for as long as the compilation takes.
	require.Eventually(t, func() bool { return len(rt.compiling) == 1 }, time.Minute, time.Millisecond)
	var others sync.WaitGroup
	meanwhile := func(what string, want int, f func() error) {
		others.Go(func() {
			for n := range want {
				if !assert.NoError(t, f()) || !assert.Len(t, rt.compiling, 1, "%d of %d %s before the compilation was over", n, want, what) {
					return
				}
			}
		})
	}
	meanwhile("calls", 20, func() error { return s.Call(ctx, pluginapi.OpRebalance, warmUp(), nil, 0).Err })
	meanwhile("loads", 10, func() error {
		again, err := rt.Load(ctx, small, limits, nil)
		if err != nil {
			return err
		}
		return again.Close(ctx)
	})
	meanwhile("collections", 2, func() error { runtime.GC(); return nil })
	meanwhile("ticks", 5, func() error { <-time.After(time.Millisecond); return nil })
	others.Wait()
	require.NoError(t, <-compiled)
	require.NoError(t, s.Close(ctx))
	require.NoError(t, rt.Close(ctx))
}

// Where each call needs a new instance, making it counts: the budget of what follows runs from before that.
func TestInitialisationRunsFromTheStartOfTheCall(t *testing.T) {
	ctx := context.Background()
	rt, err := NewRuntime(ctx, Options{})
	require.NoError(t, err)
	s, err := compileFixture(t, rt, "slow-init", Limits{}).Prepare(ctx, nil)
	require.NoError(t, err)
	in, err := s.wasm.mod.instantiate(&s.wasm.memory)
	require.NoError(t, err)
	_, err = s.initialise(ctx, in, time.Minute, time.Now().Add(-time.Minute))
	require.ErrorIs(t, err, ErrBudget)
	require.NoError(t, in.close())
	require.NoError(t, s.Close(ctx))
	require.NoError(t, rt.Close(ctx))
}
