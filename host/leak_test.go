package host_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
)

// Spec 1.3, "No state survives a call": each fixture answers 0 at its first
// call, and something else, or a trap, as soon as it meets what an earlier call
// left behind: in memory, its size, globals, tables or segments.
func TestNothingSurvivesACall(t *testing.T) {
	entries, err := os.ReadDir("testdata/leak")
	require.NoError(t, err)
	n := 0
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), ".wasm")
		if !ok {
			continue
		}
		n++
		for _, e := range engines {
			t.Run(e.String()+"/"+name, func(t *testing.T) {
				s := load(t, e, fixture(t, "leak/"+name), host.Limits{Budget: time.Minute})
				first := allocate(s)
				require.NoError(t, first.Err)
				require.Equal(t, []int{0}, first.Homes.Nodes)
				for range 5 {
					require.NoError(t, rebalance(s).Err)
					res := allocate(s)
					require.NoError(t, res.Err)
					require.Equal(t, first.Record.Output, res.Record.Output)
					require.Equal(t, *first.Record.Fuel, *res.Record.Fuel)
					require.Equal(t, first.Record.Pages, res.Record.Pages)
				}
				// A fresh instance agrees.
				again := allocate(load(t, e, fixture(t, "leak/"+name), host.Limits{Budget: time.Minute}))
				require.Equal(t, first.Record.Output, again.Record.Output)
				require.Equal(t, *first.Record.Fuel, *again.Record.Fuel)
			})
		}
	}
	require.GreaterOrEqual(t, n, 15)
}

// The pool under concurrent callers: every answer is that of a lone call. Run with -race.
func TestPoolHammer(t *testing.T) {
	for _, name := range []string{"leak/memory", "leak/table", "leak/size", "attack/unreachable"} {
		s := load(t, host.Compiler, fixture(t, name), host.Limits{})
		want := allocate(s)
		var wg sync.WaitGroup
		results := make([]host.Result, 64)
		for i := range results {
			wg.Go(func() { results[i] = allocate(s) })
		}
		wg.Wait()
		for _, res := range results {
			require.Equal(t, want.Record.Output, res.Record.Output, name)
			require.Equal(t, want.Record.Fuel, res.Record.Fuel, name)
			require.Equal(t, want.Record.Verdict, res.Record.Verdict, name)
		}
	}
}
