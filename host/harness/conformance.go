package harness

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/pluginapi"
)

// examples is how many drawn clusters are asked about in fresh instances and in both engines: that is slow.
const examples = 6

// Conformance runs what every right strategy passes, whatever it is for: on lab.Corners, and on clusters that rapid draws
// and makes smaller where one fails. The host can act on every answer (known shards, candidates, no busy, waiting or
// pinned shard, one move a shard, none to where it is); the same input gives the same bytes for the same fuel; the order
// of lists that mean sets does not matter; a module skips keys that it does not know; with nothing happening the moves
// come to an end, under any limit of the host, and no arrangement comes twice; and max_moves is kept where it is described.
//
// Each of configs is tried; none means the empty configuration. Flags of rapid (-rapid.checks, -rapid.seed) apply.
func Conformance(t testing.TB, s *Strategy, configs ...map[string]any) {
	t.Helper()
	if len(configs) == 0 {
		configs = []map[string]any{{}}
	}
	ctx := t.Context()
	clusters := AnyCluster()
	for _, config := range configs {
		tried := lab.Corners()
		for i := range examples {
			tried = append(tried, clusters.Example(i))
		}
		for _, c := range tried {
			configure(c, config)
		}
		faults, err := s.Conform(ctx, tried...)
		for _, f := range faults {
			t.Errorf("%v", f)
		}
		if err != nil {
			t.Errorf("%v", err)
		}
		if err != nil || len(faults) > 0 {
			return
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		c := clusters.Draw(t, "cluster")
		configure(c, rapid.SampledFrom(configs).Draw(t, "config"))
		for _, check := range []func() error{
			func() error { return s.Valid(ctx, c) },
			func() error { return s.Repeatable(ctx, c) },
			func() error { return s.OrderFree(ctx, c) },
			func() error { return s.Forward(ctx, c) },
			func() error { return s.SettlesAtAll(ctx, c) },
		} {
			if err := check(); err != nil {
				t.Fatalf("%v", err)
			}
		}
	})
}

func configure(c *Cluster, config map[string]any) {
	for key, value := range config {
		c.Config(key, value)
	}
}

// AnyCluster draws clusters for properties of your own: up to 7 nodes in every state, of several zones, roles, weights and
// now and then versions; up to 40 shards, some without a home, busy, waiting or pinned; loads and coordinates or none.
func AnyCluster() *rapid.Generator[*Cluster] {
	return rapid.Custom(func(t *rapid.T) *Cluster {
		// What comes first in a list is drawn most, and is what a failing cluster shrinks to.
		n := rapid.SampledFrom([]int{3, 2, 5, 4, 7, 6, 1, 0}).Draw(t, "nodes")
		c := lab.NewCluster(n, rapid.SampledFrom([]int{6, 12, 9, 24, 3, 40, 17, 1, 0}).Draw(t, "shards"))
		nodes := c.Nodes()
		mixed, loaded := rapid.IntRange(0, 4).Draw(t, "mixed versions") == 4, rapid.Bool().Draw(t, "loads")
		for _, name := range nodes {
			anyNode(t, c, name, mixed)
		}
		snap, err := c.Snapshot()
		if err != nil {
			t.Fatalf("%v", err) // the generator's own mistake
		}
		node := func(label string) string {
			if i := rapid.IntRange(0, n).Draw(t, label); i < n {
				return nodes[i]
			}
			return "" // last, so that it is drawn least
		}
		for i := range snap.Owners {
			shard := uint32(i)
			c.Own(node("owner"), shard)
			switch rapid.IntRange(0, 7).Draw(t, "special") {
			case 5:
				c.Busy(shard, node("target"))
			case 6:
				c.Waiting(shard)
			case 7:
				if pin := node("pin"); pin != "" {
					c.Pin(pin, shard)
				}
			}
			if loaded {
				c.Rate(rapid.Uint32Range(0, 1000).Draw(t, "rate"), shard)
				c.Entities(rapid.Uint32Range(0, 100).Draw(t, "entities"), shard)
			}
		}
		if loaded {
			for _, name := range nodes {
				loadOf(t, c, name)
			}
		}
		if rapid.Bool().Draw(t, "standby") {
			for shard := range uint32(len(snap.Owners)) {
				c.Standby(node("standby"), shard)
			}
		}
		if rapid.Bool().Draw(t, "limited") {
			c.Limit(rapid.Uint64Range(0, 5).Draw(t, "limit"))
		}
		return c.At(rapid.Uint64Range(0, 1<<40).Draw(t, "now"), rapid.Uint64().Draw(t, "seed"))
	})
}

func anyNode(t *rapid.T, c *Cluster, name string, mixed bool) {
	if rapid.IntRange(0, 4).Draw(t, "odd state") == 4 {
		c.State(pluginapi.NodeState(rapid.IntRange(int(pluginapi.StateUp), int(pluginapi.StateAway)).Draw(t, "state")), name)
		c.Candidate(rapid.Bool().Draw(t, "candidate"), name)
	}
	if mixed {
		c.Version(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "version"), name)
	}
	c.Zone(rapid.SampledFrom([]string{"", "z1", "z2", "z3"}).Draw(t, "zone"), name)
	for _, role := range []string{"coordinator", "store"} {
		if rapid.Bool().Draw(t, role) {
			c.Role(role, name)
		}
	}
	c.Capacity(rapid.SampledFrom([]uint64{100, 50, 200, 400, 0}).Draw(t, "weight"), name)
	if rapid.Bool().Draw(t, "coordinate") {
		at := rapid.Float64Range(0, 1)
		c.Coord(pluginapi.Coord{Vec: []float64{at.Draw(t, "x"), -0.5 - at.Draw(t, "y")}, Error: 0.5, Height: 0.001}, name)
	}
}

// loadOf gives a node the load that its shards make: what a strategy sees of both goes together.
func loadOf(t *rapid.T, c *Cluster, name string) {
	s, err := c.Snapshot()
	if err != nil {
		t.Fatalf("%v", err) // the generator's own mistake
	}
	var rate, entities uint64
	for i := range s.Owners {
		if c.Owner(uint32(i)) == name {
			rate, entities = rate+uint64(s.Load.Rate[i]), entities+uint64(s.Load.Entities[i])
		}
	}
	weight := s.Nodes[s.NodeIndex(name)].Weight
	if weight == 0 {
		weight = 100
	}
	c.Load(pluginapi.NodeLoad{
		CPU: pluginapi.Known(rate / weight), Mem: pluginapi.Known(rapid.Uint64Range(0, 1000).Draw(t, "mem")),
		Rate: pluginapi.Known(rate), Entities: pluginapi.Known(entities),
	}, name)
}
