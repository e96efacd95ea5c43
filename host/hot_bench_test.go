package host_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies"
)

// skewed is a cluster that a least-shard strategy has three moves for: all but
// a few shards lie evenly, node 0 has what the others lack.
func skewed(nodes, shards int) *pluginapi.Snapshot {
	s := cluster(nodes, shards)
	for i := range 4 {
		s.Owners[shards-1-i] = 0
	}
	s.MaxMoves = 100
	return s
}

// BenchmarkRebalance is a rebalance with everything: encoding, isolation, fuel,
// decoding, checks. The pure function on the same snapshot is beside it.
func BenchmarkRebalance(b *testing.B) {
	for _, size := range []struct{ nodes, shards int }{{10, 1_000}, {10, 10_000}, {10, 100_000}, {100, 100_000}} {
		snap := skewed(size.nodes, size.shards)
		run := func(name string, call func() (int, error)) {
			b.Run(fmt.Sprintf("%dx%d/%s", size.shards, size.nodes, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if moves, err := call(); err != nil || moves == 0 {
						b.Fatal(moves, err)
					}
				}
			})
		}
		hosted := func(s *host.Strategy) func() (int, error) {
			return func() (int, error) {
				d := s.Rebalance(context.Background(), snap)
				return len(d.Plan.Moves), d.Err
			}
		}
		for _, name := range strategies.Names() {
			impl, _ := strategies.Native(name)
			run(name+"/pure", func() (int, error) {
				plan, err := impl.Rebalance(snap)
				return len(plan.Moves), err
			})
			run(name+"/go", hosted(prepare(b, builtin(b, host.Compiler, name), nil)))
		}
		run("leastshard/c", hosted(load(b, host.Compiler, fixture(b, "guests/leastshard"), host.Limits{})))
	}
	require.NotEmpty(b, strategies.Names())
}
