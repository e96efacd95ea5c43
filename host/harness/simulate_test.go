package harness_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/droverhq/drover/host/harness"
	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/pluginapi"
)

func counts(r lab.Round) (counts []int) {
	for _, n := range r.Nodes {
		counts = append(counts, n.Shards)
	}
	return counts
}

// A fourth node joins three: by the shipped configuration 25 moves, three a round, and each shard once; the same while
// moves take three rounds, for leastshard counts shards at their target.
func TestSimulateJoin(t *testing.T) {
	for _, handoff := range []int{0, 3} {
		run := harness.Simulate(t, module(t, "leastshard"), harness.NewCluster(3, 0).Counts(34, 33, 33),
			lab.Options{Events: []lab.Event{{Round: 2, Kind: lab.Join, Node: "d", Zone: "z9", Weight: 200}}, Handoff: handoff})
		assert.Equal(t, 25, run.Moves)
		assert.Zero(t, run.Homes)
		assert.Equal(t, 2+8+handoff, run.Settled, "nine rounds of moves, the last of which takes its time")
		assert.Nil(t, run.Cycle)
		assert.Equal(t, []int{34, 33, 33}, counts(run.Rounds[0]))
		last := run.Rounds[len(run.Rounds)-1]
		assert.Equal(t, []int{25, 25, 25, 25}, counts(last))
		assert.Zero(t, last.Imbalance)
		assert.Equal(t, 30, run.Rounds[1].Imbalance, "31, 33, 33 and 3")
		moved := map[uint32]int{}
		for _, r := range run.Rounds {
			assert.LessOrEqual(t, len(r.Moves), 3)
			assert.Positive(t, r.Fuel)
			for _, m := range r.Moves {
				moved[m.Shard]++
				assert.Equal(t, "d", m.To)
			}
		}
		assert.Len(t, moved, 25)
		snap, err := run.End.Snapshot()
		require.NoError(t, err)
		assert.Equal(t, "z9", snap.Nodes[3].Zone)
		assert.Equal(t, uint64(200), snap.Nodes[3].Weight)
	}
}

// A node that leaves is asked about while it still has its shards, and is gone once it has none; one that crashes leaves
// them without a home. Both times allocate finds one in the same round.
func TestSimulateLeaveAndCrash(t *testing.T) {
	for _, kind := range []lab.EventKind{lab.Leave, lab.Crash} {
		c := harness.NewCluster(3, 12).Even().Busy(2, "a").Busy(4, "c").Pin("c", 5).Standby("c", 0)
		run := harness.Simulate(t, native(t, "leastshard"), c, lab.Options{Events: []lab.Event{{Round: 1, Kind: kind, Node: "c"}}})
		assert.Equal(t, []string{"a", "b"}, run.End.Nodes(), "%s", kind)
		assert.Zero(t, run.Rounds[0].Homeless)
		assert.Equal(t, []int{6, 6}, counts(run.Rounds[len(run.Rounds)-1]))
		assert.Positive(t, run.Homes)
		assert.Positive(t, run.Settled)
	}
	// While nobody can take them the shards stay, and the node with them.
	run := harness.Simulate(t, native(t, "leastshard"), harness.NewCluster(1, 3).AllOn("a"),
		lab.Options{Events: []lab.Event{{Round: 1, Kind: lab.Leave, Node: "a"}, {Round: 4, Kind: lab.Join, Node: "b"}}})
	assert.Equal(t, []int{3}, counts(run.Rounds[2]))
	assert.Equal(t, []string{"b"}, run.End.Nodes())
	assert.Equal(t, 4, run.Settled)
}

// A busy shard of a node that leaves arrives where it goes: nobody is asked about it.
func TestSimulateLeaveWhileShardsAreBusy(t *testing.T) {
	c := harness.NewCluster(3, 12).Even().Busy(2, "b")
	run := harness.Simulate(t, native(t, "leastshard"), c, lab.Options{Handoff: 2, Events: []lab.Event{{Round: 1, Kind: lab.Leave, Node: "c"}}})
	assert.Len(t, run.Rounds[0].Homes, 3)
	for _, h := range run.Rounds[0].Homes {
		assert.NotEqual(t, uint32(2), h.Shard)
	}
	assert.Equal(t, "b", run.End.Owner(2))
	assert.Equal(t, []string{"a", "b"}, run.End.Nodes())
}

// Pins are the host's: whatever the strategy says a shard comes where it is pinned, and a pin to a node that goes ends.
func TestSimulatePins(t *testing.T) {
	heedless := harness.Native(t, "heedless", funcs{allocate: func(_ *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
		return pluginapi.Homes{Nodes: make([]int, len(shards))}, nil
	}})
	c := harness.NewCluster(3, 4).AllOn("a").Own("", 0).Pin("c", 0, 1, 2).Pin("b", 2).Busy(3, "b").Pin("c", 3)
	run := harness.Simulate(t, heedless, c, lab.Options{Handoff: 1, Events: []lab.Event{{Round: 5, Kind: lab.Leave, Node: "c"}}})
	assert.ElementsMatch(t, []lab.Home{{Shard: 1, Node: "c"}, {Shard: 2, Node: "c"}, {Shard: 0, Node: "c"}}, run.Rounds[0].Homes)
	assert.Equal(t, []lab.Home{{Shard: 3, Node: "c"}}, run.Rounds[1].Homes, "once it has arrived on b")
	assert.Equal(t, []int{0, 0, 4}, counts(run.Rounds[2]))
	assert.Equal(t, []string{"a", "b"}, run.End.Nodes())
	assert.Equal(t, []int{3, 1}, counts(run.Rounds[len(run.Rounds)-1]), "shard 2 has a pin to b left")
}

// hotspot moves the busiest shard from the node with the highest rate while that makes the two more even.
func hotspot(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
	if len(s.Candidates) < 2 || s.Load.Rate == nil {
		return pluginapi.Plan{}, nil
	}
	rate := func(n int) uint64 { return s.Nodes[n].Load.Rate.Or(0) }
	hot, cold := s.Candidates[0], s.Candidates[0]
	for _, c := range s.Candidates {
		if rate(c) > rate(hot) {
			hot = c
		}
		if rate(c) < rate(cold) {
			cold = c
		}
	}
	p := s.Placement()
	for shard, o := range s.Owners {
		r := s.Load.Rate[shard]
		if int(o) == hot && p.Movable(uint32(shard)) && r > 0 && r != pluginapi.UnknownLoad && uint64(r)*2 <= rate(hot)-rate(cold) {
			return pluginapi.Plan{Moves: []pluginapi.Move{{Shard: uint32(shard), Target: cold}}}, nil
		}
	}
	return pluginapi.Plan{}, nil
}

// What the suite says of load it says truly: a strategy that goes by it settles, one that goes too far does not.
func TestConformanceOfStrategiesThatLookAtLoad(t *testing.T) {
	harness.Conformance(t, harness.Native(t, "hotspot", funcs{rebalance: hotspot}))
	hasty := funcs{rebalance: func(s *pluginapi.Snapshot) (pluginapi.Plan, error) { // the busiest node gives, whatever comes of it
		wide := *s
		wide.Load.Rate = make([]uint32, len(s.Load.Rate))
		for i, r := range s.Load.Rate {
			wide.Load.Rate[i] = min(1, r)
		}
		if s.Load.Rate == nil {
			wide.Load.Rate = nil
		}
		return hotspot(&wide)
	}}
	text, failed := record(t, func(t testing.TB) { harness.Conformance(t, harness.Native(t, "hasty", hasty)) })
	assert.True(t, failed)
	assert.Contains(t, text, "hasty: oscillates: ")
}

// A strategy that looks at load sees what its moves do to it, and what demand does.
func TestSimulateDemand(t *testing.T) {
	node := func(rate, cpu uint64) pluginapi.NodeLoad {
		return pluginapi.NodeLoad{Rate: pluginapi.Known(rate), CPU: pluginapi.Known(cpu), Disk: pluginapi.Known(7)}
	}
	c := harness.NewCluster(2, 8).Even().Rate(10).Load(node(40, 400)).Capacity(200, "b")
	run := harness.Simulate(t, harness.Native(t, "hotspot", funcs{rebalance: hotspot}), c,
		lab.Options{Events: []lab.Event{{Round: 2, Kind: lab.Demand, Shards: []uint32{0, 2}, Rate: 50}}})
	assert.Empty(t, run.Rounds[0].Moves)
	assert.Equal(t, []lab.Move{{Shard: 4, From: "a", To: "b"}}, run.Rounds[1].Moves, "the first that is worth it at 120 to 40")
	last := run.Rounds[len(run.Rounds)-1]
	assert.Equal(t, []uint64{last.Nodes[0].Rate, last.Nodes[1].Rate}, []uint64{100, 60})
	snap, err := run.End.Snapshot()
	require.NoError(t, err)
	assert.Equal(t, uint64(100), snap.Nodes[0].Load.Rate.Value)
	assert.Equal(t, uint64(60), snap.Nodes[1].Load.Rate.Value)
	assert.Less(t, snap.Nodes[0].Load.CPU.Value, uint64(400), "the shard took its share along")
	gone, came := 400-snap.Nodes[0].Load.CPU.Value, snap.Nodes[1].Load.CPU.Value-400
	assert.InDelta(t, gone/2, came, 1, "b is twice as large")
	assert.Equal(t, uint64(7), snap.Nodes[1].Load.Disk.Value, "what is on disk is not said by rates")
}

// The load of a shard is not lost on its way: neither while it is busy, nor where it is freed for allocate.
func TestSimulateLoadFollows(t *testing.T) {
	freed := false
	frees := harness.Native(t, "frees", funcs{
		allocate: func(_ *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
			return pluginapi.Homes{Nodes: slices.Repeat([]int{1}, len(shards))}, nil
		},
		rebalance: func(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
			if freed = freed || s.Owners[0] != 0 || len(s.Busy) > 0; freed {
				return pluginapi.Plan{}, nil
			}
			return pluginapi.Plan{Moves: []pluginapi.Move{{Shard: 0, Target: pluginapi.NoTarget}}}, nil
		},
	})
	load := pluginapi.NodeLoad{Rate: pluginapi.Known(60), CPU: pluginapi.Known(600), Mem: pluginapi.Known(300), Entities: pluginapi.Known(9)}
	for _, handoff := range []int{0, 2} {
		freed = false
		c := harness.NewCluster(2, 4).AllOn("a").Own("", 3).Load(load, "a").Load(pluginapi.NodeLoad{Rate: pluginapi.Known(0), CPU: pluginapi.Known(0), Entities: pluginapi.Known(0)}, "b").
			Rate(20).Entities(3).Capacity(50, "b")
		end, err := harness.Simulate(t, frees, c, lab.Options{Handoff: handoff}).End.Snapshot()
		require.NoError(t, err)
		assert.Equal(t, pluginapi.NodeLoad{Rate: pluginapi.Known(40), CPU: pluginapi.Known(400), Mem: pluginapi.Known(200), Entities: pluginapi.Known(6)}, end.Nodes[0].Load)
		assert.Equal(t, pluginapi.NodeLoad{Rate: pluginapi.Known(40), CPU: pluginapi.Known(400), Entities: pluginapi.Known(6)}, end.Nodes[1].Load,
			"shard 0 with its share, cpu by half the weight; of shard 3, which comes from nowhere, what is known of itself")
	}
}

// A busy shard whose target goes meanwhile is free again, and gets another home.
func TestSimulateTargetGoes(t *testing.T) {
	for _, kind := range []lab.EventKind{lab.Leave, lab.Crash} {
		c := harness.NewCluster(3, 6).AllOn("a").Busy(0, "c")
		run := harness.Simulate(t, native(t, "hash"), c.Limit(0), lab.Options{Handoff: 2, Events: []lab.Event{{Round: 1, Kind: kind, Node: "c"}}})
		assert.Equal(t, []lab.Home{{Shard: 0, Node: "a"}}, run.Rounds[2].Homes, "%s", kind)
		assert.Equal(t, []string{"a", "b"}, run.End.Nodes())
	}
	run := harness.Simulate(t, native(t, "hash"), harness.NewCluster(3, 6).AllOn("a").Busy(0, "c").Candidate(false, "c").Limit(0), lab.Options{})
	assert.Equal(t, []lab.Home{{Shard: 0, Node: "a"}}, run.Rounds[0].Homes)
	assert.Empty(t, run.Rounds[1].Homes, "it has never been on c")
}

// Spec 1.2: on a join rendezvous moves about 1/(n+1) of the shards, hash most of them.
func TestSimulateTellsStrategiesApart(t *testing.T) {
	moves := map[string]int{}
	for _, name := range []string{"rendezvous", "hash"} {
		s := native(t, name)
		start := harness.Simulate(t, s, harness.NewCluster(4, 400).Config("max_moves", 1000), lab.Options{}).End
		moves[name] = harness.Simulate(t, s, start, lab.Options{Events: []lab.Event{{Round: 1, Kind: lab.Join, Node: "e"}}}).Moves
	}
	assert.InDelta(t, 80, moves["rendezvous"], 25)
	assert.InDelta(t, 320, moves["hash"], 10)
}

// Spec 1.3: where the strategy fails rebalance moves nothing, and allocate is answered by hash.
func TestSimulateFailures(t *testing.T) {
	fails := harness.Native(t, "fails", funcs{
		allocate: func(*pluginapi.Snapshot, []uint32) (pluginapi.Homes, error) { panic("no") },
		rebalance: func(*pluginapi.Snapshot) (pluginapi.Plan, error) {
			return pluginapi.Plan{}, &pluginapi.Failure{Message: "no"}
		},
	})
	run := harness.Simulate(t, fails, harness.NewCluster(3, 6).Pin("c", 0), lab.Options{})
	assert.Equal(t, []int{1, 2, 3}, counts(run.Rounds[0]), "shard 0 where it is pinned, the others at shard mod 3")
	require.Len(t, run.Rounds[0].Failures, 2)
	assert.Equal(t, "allocate: strategy trapped: panic: no", run.Rounds[0].Failures[0])
	assert.Equal(t, "rebalance: bad answer: strategy failed: no", run.Rounds[0].Failures[1])
	assert.Equal(t, int64(-1), run.Rounds[0].Fuel)
	assert.Zero(t, run.Moves)
}

// What it reports is data, the same each time, and is drawn from its JSON.
func TestSimulateReportsData(t *testing.T) {
	events := []lab.Event{{Round: 3, Kind: lab.Crash, Node: "b"}, {Round: 2, Kind: lab.Join, Node: "f"}, {Round: 5, Kind: lab.Demand, Rate: 9}}
	var first []byte
	for range 2 {
		run := harness.Simulate(t, native(t, "rendezvous"), harness.NewCluster(5, 50), lab.Options{Events: events})
		data, err := json.Marshal(run)
		require.NoError(t, err)
		if first == nil {
			first = data
		}
		assert.Equal(t, string(first), string(data))
	}
	var back lab.Run
	require.NoError(t, json.Unmarshal(first, &back))
	assert.Equal(t, "rendezvous", back.Strategy)
	assert.Equal(t, []lab.Event{{Round: 2, Kind: lab.Join, Node: "f"}}, back.Rounds[1].Events)
	assert.Equal(t, "crash b", back.Rounds[2].Events[0].String())
	assert.Equal(t, "demand: all at 9/s", back.Rounds[4].Events[0].String())
	assert.Contains(t, string(first), `{"node":"a","shards":`)
}

func TestSimulateRefusesWhatItCannotPlay(t *testing.T) {
	for says, e := range map[string]lab.Event{
		`there is no node "z"`:                    {Round: 1, Kind: lab.Crash, Node: "z"},
		"rounds are 1 to 100":                     {Round: 101, Kind: lab.Join, Node: "z"},
		`a node "a" cannot be added`:              {Round: 1, Kind: lab.Join, Node: "a"},
		"there is no shard 9":                     {Round: 1, Kind: lab.Demand, Shards: []uint32{9}},
		"event 0: want one of join, leave, crash": {Round: 1},
		"round 7: there is no node \"y\": the no": {Round: 7, Kind: lab.Leave, Node: "y"},
	} {
		_, err := lab.Simulate(t.Context(), native(t, "hash"), harness.NewCluster(2, 4), lab.Options{Events: []lab.Event{e}})
		assert.ErrorContains(t, err, says)
	}
	assert.ErrorContains(t, new(lab.EventKind).UnmarshalText([]byte("jion")), `event "jion": want one of join`)
}

// Whatever happens: no shard is lost or on a node that is gone, counts add up, and what a run says of its rounds is true.
func TestSimulateKeepsCount(t *testing.T) {
	s := native(t, "leastshard")
	rapid.Check(t, func(rt *rapid.T) {
		c := harness.AnyCluster().Draw(rt, "cluster").Config("max_moves", 5)
		start, err := c.Snapshot()
		require.NoError(rt, err)
		owners := start.Owners
		var nodes []string // one that is leaving may be gone before its event
		for _, n := range start.Nodes {
			if n.State != pluginapi.StateLeaving {
				nodes = append(nodes, n.Name)
			}
		}
		var events []lab.Event
		for i := range rapid.IntRange(0, 6).Draw(rt, "events") {
			e := lab.Event{Round: i + 1, Kind: lab.Join, Node: string(rune('p' + i))}
			if len(nodes) > 0 && rapid.Bool().Draw(rt, "goes") {
				at := rapid.IntRange(0, len(nodes)-1).Draw(rt, "node")
				e.Node, e.Kind = nodes[at], rapid.SampledFrom([]lab.EventKind{lab.Leave, lab.Crash}).Draw(rt, "kind")
				nodes = slices.Delete(slices.Clone(nodes), at, at+1)
			} else if len(nodes) > 0 && rapid.Bool().Draw(rt, "changes") {
				e = lab.Event{Round: i + 1, Node: rapid.SampledFrom(nodes).Draw(rt, "node"), Weight: 7, Version: "9", Rate: 5}
				e.Kind = rapid.SampledFrom([]lab.EventKind{lab.Drain, lab.Unreachable, lab.Away, lab.Up, lab.Weigh, lab.Upgrade, lab.Demand, lab.Pin, lab.Unpin}).Draw(rt, "kind")
				if shards := rapid.IntRange(0, 2).Draw(rt, "shards"); e.Kind >= lab.Pin && shards < len(owners) {
					e.Shards = []uint32{uint32(shards)}
				}
			}
			events = append(events, e)
		}
		run, err := lab.Simulate(t.Context(), s, c, lab.Options{Events: events, Handoff: rapid.IntRange(0, 3).Draw(rt, "handoff"), Rounds: 300})
		require.NoError(rt, err)
		require.GreaterOrEqual(rt, run.Settled, 0, "leastshard settles")
		require.Nil(rt, run.Cycle)
		end, err := run.End.Snapshot()
		require.NoError(rt, err)
		require.NoError(rt, end.Validate(nil))
		moves, homes := 0, 0
		for i, r := range run.Rounds {
			require.Equal(rt, i+1, r.Number)
			moves, homes = moves+len(r.Moves), homes+len(r.Homes)
			require.Empty(rt, r.Failures)
			if r.Number > run.Settled {
				require.Empty(rt, r.Moves)
			}
		}
		require.Equal(rt, run.Moves, moves)
		require.Equal(rt, run.Homes, homes)
	})
}

// Each event does what it says, at once too; and a node that comes is one of the others.
func TestEvents(t *testing.T) {
	spec := &pluginapi.Node{State: pluginapi.StateUp, Roles: []string{"r"}, Weight: 100, Load: pluginapi.NodeLoad{CPU: pluginapi.Known(3)}}
	c := harness.NewCluster(3, 6).Even().Version("7").Happen(
		lab.Event{Kind: lab.Join, Node: "d", Zone: "z", Weight: 50, Spec: spec},
		lab.Event{Kind: lab.Join, Node: "e", Version: "8"},
		lab.Event{Kind: lab.Join, Node: "f"},
		lab.Event{Kind: lab.Drain, Node: "a"},
		lab.Event{Kind: lab.Away, Node: "b"},
		lab.Event{Kind: lab.Unreachable, Node: "c"},
		lab.Event{Kind: lab.Weigh, Node: "e", Weight: 9},
		lab.Event{Kind: lab.Pin, Node: "d", Shards: []uint32{0, 3}},
		lab.Event{Kind: lab.Pin, Node: "e", Shards: []uint32{3}},
		lab.Event{Kind: lab.Unpin, Shards: []uint32{0}},
		lab.Event{Kind: lab.Demand, Rate: 4},
	)
	snap, err := c.Snapshot()
	require.NoError(t, err)
	d := snap.Nodes[3]
	assert.Equal(t, pluginapi.Node{Name: "d", Addr: "d", Incarnation: "d", State: pluginapi.StateUp, Version: "7", Weight: 50, Zone: "z", Roles: []string{"r"}, Load: spec.Load}, d)
	assert.Equal(t, []any{"8", uint64(9)}, []any{snap.Nodes[4].Version, snap.Nodes[4].Weight})
	assert.Equal(t, "1", snap.Nodes[5].Version, "the others run more than one")
	assert.Equal(t, []int{3, 4, 5}, snap.Candidates)
	assert.Equal(t, []uint32{1, 4}, snap.Waiting)
	assert.Equal(t, []pluginapi.Pin{{Shard: 3, Node: 4}}, snap.Pinned)
	assert.Equal(t, []uint32{4, 4, 4, 4, 4, 4}, snap.Load.Rate)
	snap, err = c.Happen(lab.Event{Kind: lab.Up, Node: "b"}, lab.Event{Kind: lab.Unpin}, lab.Event{Kind: lab.Upgrade, Node: "f", Version: "7"}).Snapshot()
	require.NoError(t, err)
	assert.Equal(t, []int{1, 3, 4, 5}, snap.Candidates)
	assert.Empty(t, snap.Waiting)
	assert.Empty(t, snap.Pinned)
	assert.Equal(t, "7", snap.Nodes[5].Version)

	snap, err = harness.NewCluster(2, 4).Even().Busy(1, "a").Happen(lab.Event{Kind: lab.Away, Node: "b"}).Snapshot()
	require.NoError(t, err)
	assert.Equal(t, []uint32{3}, snap.Waiting, "a busy shard is on its way, and does not wait")

	s := native(t, "leastshard")
	run := harness.Simulate(t, s, harness.NewCluster(3, 6).Even(), lab.Options{Events: []lab.Event{
		{Round: 1, Kind: lab.Leave, Node: "c"}, {Round: 2, Kind: lab.Away, Node: "b"}, {Round: 4, Kind: lab.Pin, Node: "a", Shards: []uint32{1}}, {Round: 6, Kind: lab.Up, Node: "b"},
	}})
	assert.Equal(t, []string{"a", "b"}, run.End.Nodes())
	assert.Equal(t, "a", run.End.Owner(1), "it is brought where it is pinned once it no longer waits")
	assert.Empty(t, run.Rounds[4].Homes, "it waits")
	left := harness.Simulate(t, s, harness.NewCluster(2, 4).Even().Happen(lab.Event{Kind: lab.Leave, Node: "b"}), lab.Options{})
	assert.Equal(t, []string{"a"}, left.End.Nodes(), "one that is leaving before it begins goes too")
	back := harness.Simulate(t, s, harness.NewCluster(2, 4).Pin("a", 0).Own("a", 0), lab.Options{Events: []lab.Event{
		{Round: 1, Kind: lab.Leave, Node: "b"}, {Round: 1, Kind: lab.Up, Node: "b"},
	}})
	assert.Equal(t, []string{"a", "b"}, back.End.Nodes(), "a node that is up again does not leave")
	for text, e := range map[string]lab.Event{
		"weigh a 9": {Kind: lab.Weigh, Node: "a", Weight: 9}, "upgrade a to 2": {Kind: lab.Upgrade, Node: "a", Version: "2"},
		"pin to a 2: 0, 4": {Kind: lab.Pin, Node: "a", Shards: []uint32{4, 0}}, "unpin all": {Kind: lab.Unpin}, "away b": {Kind: lab.Away, Node: "b"},
	} {
		assert.Equal(t, text, e.String())
	}
}

// After makes what an answer says: a shard without a target has no home then, and takes its load along.
func TestAfter(t *testing.T) {
	load := pluginapi.NodeLoad{Rate: pluginapi.Known(300)}
	c := harness.NewCluster(2, 4).Own("a", 0, 1, 2).Rate(100).Load(load, "a").Load(pluginapi.NodeLoad{Rate: pluginapi.Known(0)}, "b")
	after := c.After(&lab.Answer{Moves: []lab.Move{{Shard: 0, To: "b"}, {Shard: 1}}, Homes: []lab.Home{{Shard: 3, Node: "b"}}})
	assert.Equal(t, []string{"b", "", "a", "b"}, []string{after.Owner(0), after.Owner(1), after.Owner(2), after.Owner(3)})
	snap, err := after.Snapshot()
	require.NoError(t, err)
	assert.Equal(t, []uint64{100, 200}, []uint64{snap.Nodes[0].Load.Rate.Value, snap.Nodes[1].Load.Rate.Value})
	assert.Equal(t, "a", c.Owner(0), "the cluster itself stays as it is")
}

// Building clusters: what is wrong is remembered, named, and comes out where the cluster is used.
func TestClusters(t *testing.T) {
	for says, c := range map[string]*harness.Cluster{
		`there is no node "z": the nodes are ["a" "b"]`: harness.NewCluster(2, 2).Zone("z1", "z").AllOn("y"),
		"there is no shard 2: there are 2":              harness.NewCluster(2, 2).Pin("a", 2),
		"there cannot be -1 nodes":                      harness.NewCluster(-1, 2),
		"there cannot be -3 shards":                     harness.NewCluster(2, -3),
		"b cannot have -1 shards":                       harness.NewCluster(2, 2).Counts(1, -1),
		"there are 3 counts for 2 nodes":                harness.NewCluster(2, 2).Counts(1, 2, 3),
		`a node "a" cannot be added`:                    harness.NewCluster(2, 2).Join("a"),
		"config.x":                                      harness.NewCluster(2, 2).Config("x", struct{}{}),
		"owners: node 3 is out of range":                lab.FromSnapshot(&pluginapi.Snapshot{Owners: []uint32{3}}),
	} {
		_, err := c.Snapshot()
		assert.ErrorContains(t, err, says)
		_, err = native(t, "hash").Rebalance(t.Context(), c)
		assert.ErrorContains(t, err, says)
		assert.Contains(t, c.String(), says)
		_, err = json.Marshal(c)
		assert.ErrorContains(t, err, says)
	}
	c := harness.NewCluster(2, 4).Own("a", 0).Own("b", 1, 2).Busy(1, "b").Pin("b", 2).Standby("b", 0)
	other := c.Clone().Join("aa").Remove("a")
	assert.Equal(t, []string{"a", "b"}, c.Nodes(), "a clone is a copy")
	assert.Equal(t, []string{"aa", "b"}, other.Nodes())
	assert.Equal(t, []string{"", "b", "b", ""}, []string{other.Owner(0), other.Owner(1), other.Owner(2), other.Owner(3)})
	assert.Equal(t, []uint32{0, 3}, other.Homeless())
	snap, err := c.Clone().Join("aa").Snapshot()
	require.NoError(t, err)
	assert.Equal(t, []pluginapi.Busy{{Shard: 1, Target: 2}}, snap.Busy)
	assert.Equal(t, []pluginapi.Pin{{Shard: 2, Node: 2}}, snap.Pinned)
	snap, err = other.Snapshot()
	require.NoError(t, err)
	assert.Equal(t, []pluginapi.Busy{{Shard: 1, Target: 1}}, snap.Busy)
	assert.Equal(t, []pluginapi.Pin{{Shard: 2, Node: 1}}, snap.Pinned)
	assert.Equal(t, []uint32{1, pluginapi.NoOwner, pluginapi.NoOwner, pluginapi.NoOwner}, snap.Standby)
	assert.Equal(t, []int{0, 1}, snap.Candidates)
	many := harness.NewCluster(30, 0).Nodes()
	assert.True(t, slices.IsSorted(many))
	assert.Equal(t, "n029", many[29])
	text := harness.NewCluster(2, 5).AllOn("b").Own("", 3).Busy(0, "a").Waiting(4).Zone("z1", "a").Role("r", "a").
		Load(pluginapi.NodeLoad{CPU: pluginapi.Known(5)}, "b").State(pluginapi.StateUnreachable, "b").Candidate(true, "b").Config("k", 1).String()
	assert.Equal(t, `2 nodes, 5 shards, at most 5 moves, config {"k":1}
  a (up, zone z1, roles r, weight 100, version 1): 0
  b (unreachable, candidate, weight 100, version 1, cpu 5): 4: 0-2, 4
  without a home: 1: 3
  busy: 0 b→a
  waiting: 1: 4
`, text)
}
