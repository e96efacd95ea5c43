package host_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/droverhq/drover/host"
	"github.com/droverhq/drover/pluginapi"
	"github.com/droverhq/drover/strategies"
)

// skewed is a cluster that a least-shard strategy has three moves for: the
// shards lie evenly, but for a few of the others that node 0 has too.
func skewed(nodes, shards int) *pluginapi.Snapshot {
	s := cluster(nodes, shards)
	for i := range min(4, shards) {
		s.Owners[shards-1-i] = 0
	}
	s.MaxMoves = 100
	return s
}

// BenchmarkRebalance is a rebalance with everything: encoding, isolation, fuel,
// decoding, checks, and the digest of the input where moves follow from it. Each
// call takes turns with the pure function on the same snapshot, so that what
// else the machine does hits both; x-native is the ratio of the medians.
func BenchmarkRebalance(b *testing.B) {
	guests := map[string]*host.Strategy{"leastshard/c": load(b, host.Compiler, fixture(b, "guests/leastshard"), host.Limits{})}
	names := []string{"leastshard/c"}
	for _, name := range strategies.Names() {
		guests[name+"/go"] = prepare(b, builtin(b, host.Compiler, name), nil)
		names = append(names, name+"/go")
	}
	for _, size := range []struct{ nodes, shards int }{{10, 1_000}, {10, 10_000}, {10, 100_000}, {100, 100_000}} {
		for _, even := range []bool{true, false} {
			snap, kind := skewed(size.nodes, size.shards), "moves"
			if even {
				snap, kind = cluster(size.nodes, size.shards), "even"
			}
			for _, name := range names {
				impl, _ := strategies.Native(name[:slices.Index([]byte(name), '/')])
				b.Run(fmt.Sprintf("%dx%d/%s/%s", size.shards, size.nodes, kind, name), func(b *testing.B) {
					var native, hosted []time.Duration
					b.ReportAllocs()
					for b.Loop() {
						start := time.Now()
						plan, err := impl.Rebalance(snap)
						middle := time.Now()
						d := guests[name].Rebalance(context.Background(), snap)
						native, hosted = append(native, middle.Sub(start)), append(hosted, time.Since(middle))
						if err != nil || d.Err != nil || len(plan.Moves) != len(d.Plan.Moves) {
							b.Fatal(err, d.Err, len(plan.Moves), len(d.Plan.Moves))
						}
					}
					slices.Sort(native)
					slices.Sort(hosted)
					n, h := native[len(native)/2], hosted[len(hosted)/2]
					b.ReportMetric(float64(n.Nanoseconds())/1e3, "native-µs")
					b.ReportMetric(float64(h.Nanoseconds())/1e3, "hosted-µs")
					b.ReportMetric(float64(h)/float64(n), "x-native")
				})
			}
		}
	}
}
