//go:build !race

// The race detector makes sync.Pool forget on purpose.

package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
)

// figuresOf is a Recorder that keeps nothing, and allocates nothing.
type figuresOf struct {
	calls, in, out int
	digests        bool
}

func (f *figuresOf) Record(r *host.Record) {
	f.calls++
	f.in, f.out = len(r.Input), len(r.Output)
	if f.digests {
		r.DigestInput()
	}
}

// A call in the steady state allocates its decision, and nothing else: an empty plan nothing, a reason itself, moves the
// one slice that they are in. wazero allocates nothing on the way.
func TestCallAllocatesItsDecisionAlone(t *testing.T) {
	ctx := context.Background()
	guest := fixture(t, "guests/leastshard")
	busy := skewed(10, 1000)
	busy.Busy = []pluginapi.Busy{{Shard: 7, Target: 2}}
	busy.Waiting, busy.Pinned = []uint32{11}, []pluginapi.Pin{{Shard: 13, Node: 3}}
	for _, c := range []struct {
		name   string
		s      *host.Strategy
		snap   *pluginapi.Snapshot
		allocs float64
	}{
		{"empty plan", load(t, host.Compiler, guest, host.Limits{}), cluster(10, 1000), 0},
		{"memory that grows", load(t, host.Compiler, guest, host.Limits{}), cluster(100, 100_000), 0},
		{"recorder", load(t, host.Compiler, guest, host.Limits{}, host.WithRecorder(&figuresOf{})), cluster(10, 1000), 0},
		{"recorder with digests", load(t, host.Compiler, guest, host.Limits{}, host.WithRecorder(&figuresOf{digests: true})), cluster(10, 1000), 0},
		{"built-in, a reason", prepare(t, builtin(t, host.Compiler, "leastshard"), nil), cluster(10, 1000), 1},
		{"moves", load(t, host.Compiler, guest, host.Limits{}), busy, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d host.Decision
			call := func() { d = c.s.Rebalance(ctx, c.snap) }
			call()
			require.NoError(t, d.Err)
			require.Equal(t, c.allocs, testing.AllocsPerRun(50, call))
		})
	}
}
