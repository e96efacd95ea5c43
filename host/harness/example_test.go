package harness_test

import (
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/droverhq/drover/host/harness"
	"github.com/droverhq/drover/host/harness/lab"
	rolepinning "github.com/droverhq/drover/plugins-examples/role-pinning"
)

func TestRolePinning(t *testing.T) {
	s := harness.Native(t, "role-pinning", rolepinning.Strategy{})
	wasm := harness.Open(t, filepath.Join("..", "..", "plugins-examples", "role-pinning", "role-pinning.wasm"))

	// Nodes a, b, c; 12 shards, all on b; a has the role that the lowest two want.
	c := harness.NewCluster(3, 12).AllOn("b").Role("coordinator", "a").Config("low", 2)
	harness.Moves(t, s, c, harness.Move{Shard: 0, To: "a"}, harness.Move{Shard: 1, To: "a"})
	harness.Converges(t, s, c, 1)
	harness.KeepsPins(t, s, c.Clone().Pin("b", 0))
	harness.WithinFuel(t, wasm, c, 1_000_000)

	// Shards without a home.
	harness.Homes(t, wasm, c.Clone().Own("", 0, 7), harness.Home{Shard: 0, Node: "a"}, harness.Home{Shard: 7, Node: "c"})

	// What every right strategy passes, with these configurations.
	for _, s := range []*harness.Strategy{s, wasm} {
		harness.Conformance(t, s, map[string]any{}, map[string]any{"role": "store", "low": 3})
	}

	// A node comes, then one crashes.
	run := harness.Simulate(t, s, c, lab.Options{Events: []lab.Event{
		{Round: 2, Kind: lab.Join, Node: "d"},
		{Round: 4, Kind: lab.Crash, Node: "a"},
	}})
	if run.Settled != 4 || run.Moves != 2 || run.Homes != 2 {
		t.Errorf("settled in round %d by %d moves and %d homes", run.Settled, run.Moves, run.Homes)
	}

	// A property of your own: no shard above the lowest two ends on the node with the role while there is another.
	rapid.Check(t, func(rt *rapid.T) {
		shards := rapid.IntRange(3, 40).Draw(rt, "shards")
		c := harness.NewCluster(3, shards).Role("coordinator", "a").Config("low", 2)
		end := harness.Simulate(t, s, c, lab.Options{}).End
		for shard := uint32(2); shard < uint32(shards); shard++ {
			if end.Owner(shard) == "a" {
				rt.Fatalf("shard %d: %s", shard, end)
			}
		}
	})
}
