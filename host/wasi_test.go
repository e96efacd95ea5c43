package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
)

// Spec 1.3, "Determinism": clock, random, environment and arguments are fixed stubs. The fixture tells which answer is
// whose.
func TestWASIStubs(t *testing.T) {
	const ok, badFile, fault, invalid = 0, 8, 21, 28
	want := []int{
		ok, ok, 0, 0, ok, ok, ok, fault, // 0: yield, arguments, environment
		ok, 29, fault, // 8: clock
		ok, 1, 0, fault, // 11: random
		ok, 5, 1, invalid, invalid, fault, // 15: poll
		fault, invalid, fault, // 21: write
		ok, badFile, ok, 2, badFile, ok, badFile, badFile, // 24: close, fdstat, prestat
	}
	shards := make([]uint32, len(want))
	for i := range shards {
		shards[i] = uint32(i)
	}
	var fuel []int64
	for _, e := range engines {
		s := load(t, e, fixture(t, "attack/wasi"), host.Limits{})
		res := s.Call(context.Background(), pluginapi.OpAllocate, cluster(32, len(want)), shards, 0)
		require.NoError(t, res.Err)
		require.Equal(t, want, res.Homes.Nodes)
		fuel = append(fuel, *res.Record.Fuel)
	}
	require.Equal(t, fuel[0], fuel[1])
}
