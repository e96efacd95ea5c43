package harness_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/droverhq/drover/host/harness"
	"github.com/droverhq/drover/host/harness/lab"
	"github.com/droverhq/drover/pluginapi"
)

// flaw is what a faulty leveller does wrong; the zero value is right.
type flaw struct {
	busy, pinned, waiting bool // moves them
	homeless              bool // moves shards without a home
	nodes                 bool // takes any node for a candidate
	source                bool // forgets that the source may be the target
	twice                 bool // forgets that it has moved a shard already
	shard, target         int  // added to each move's
	atOne                 bool // moves at a difference of 1
	mapOrder              bool // walks a map
	difference            func(s *pluginapi.Snapshot) int
}

// level is a plain leveller, the way a user may write it: from the fullest candidate to the emptiest, one shard after the
// other.
func (f flaw) level(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
	var plan pluginapi.Plan
	candidates := s.Candidates
	if f.nodes {
		candidates = nil
		for i := range s.Nodes {
			candidates = append(candidates, i)
		}
	}
	if len(candidates) == 0 {
		return plan, nil
	}
	counts := s.Placement().Counts
	moved := map[uint32]bool{}
	shards := make([]uint32, 0, len(s.Owners))
	for shard := range s.Owners {
		shards = append(shards, uint32(shard))
	}
	if f.mapOrder {
		set := map[uint32]bool{}
		for _, shard := range shards {
			set[shard] = true
		}
		shards = shards[:0]
		for shard := range set {
			shards = append(shards, shard)
		}
	}
	least := 2
	if f.atOne {
		least = 1
	}
	if f.difference != nil {
		least = f.difference(s)
	}
	for _, shard := range shards {
		owner := s.OwnerOf(shard)
		switch {
		case owner == pluginapi.NoTarget && !f.homeless,
			!f.busy && s.IsBusy(shard), !f.pinned && s.PinnedTo(shard) != pluginapi.NoTarget, !f.waiting && s.IsWaiting(shard),
			moved[shard] && !f.twice:
			continue
		}
		emptiest := candidates[0]
		for _, c := range candidates {
			if counts[c] < counts[emptiest] {
				emptiest = c
			}
		}
		if owner != pluginapi.NoTarget && counts[owner]-counts[emptiest] < least && (!f.source || shard%5 != 0) {
			continue
		}
		if emptiest == owner && !f.source {
			continue
		}
		if owner != pluginapi.NoTarget {
			counts[owner]--
		}
		counts[emptiest]++
		moved[shard] = true
		move := pluginapi.Move{Shard: uint32(int(shard) + f.shard), Target: emptiest + f.target}
		plan.Moves = append(plan.Moves, move)
		if f.twice {
			plan.Moves = append(plan.Moves, move)
		}
	}
	return plan, nil
}

// chattering describes max_moves and forgets it.
type chattering struct{ funcs }

func (chattering) Describe() pluginapi.Description {
	return pluginapi.Description{Name: "chattering", Version: "1", Config: pluginapi.MoveLimitKeys()}
}

// seeded are strategies with one fault each, and the check that finds it.
func seeded() []struct {
	name  string
	fault pluginapi.Strategy
	check string
} {
	calls, average := 0, 0.0
	first := func(s *pluginapi.Snapshot, shards []uint32, node func(i int) int) pluginapi.Homes {
		h := pluginapi.Homes{Nodes: slices.Repeat([]int{pluginapi.NoTarget}, len(shards))}
		for i := range shards {
			if len(s.Candidates) > 0 {
				h.Nodes[i] = s.Candidates[node(i)%len(s.Candidates)]
			}
		}
		return h
	}
	return []struct {
		name  string
		fault pluginapi.Strategy
		check string
	}{
		{"target off by one", funcs{rebalance: flaw{target: 1}.level}, "valid"},
		{"shard off by one", funcs{rebalance: flaw{shard: 1}.level}, "valid"},
		{"homes off by one", funcs{allocate: func(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
			h, err := leastHomes(s, shards)
			return pluginapi.Homes{Nodes: h.Nodes[:max(0, len(h.Nodes)-1)]}, err
		}}, "valid"},
		{"ignores busy", funcs{rebalance: flaw{busy: true}.level}, "valid"},
		{"forgets pins", funcs{rebalance: flaw{pinned: true}.level}, "valid"},
		{"ignores waiting", funcs{rebalance: flaw{waiting: true}.level}, "valid"},
		{"moves shards without a home", funcs{rebalance: flaw{homeless: true}.level}, "valid"},
		{"moves to a leaving node", funcs{rebalance: flaw{nodes: true}.level}, "valid"},
		{"moves a shard to where it is", funcs{rebalance: flaw{source: true}.level}, "valid"},
		{"moves a shard twice", funcs{rebalance: flaw{twice: true}.level}, "valid"},
		{"gives homes by state instead of candidates", funcs{allocate: func(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
			h := pluginapi.Homes{Nodes: slices.Repeat([]int{pluginapi.NoTarget}, len(shards))}
			for i := range shards {
				for n := range s.Nodes {
					if s.Nodes[n].State == pluginapi.StateUp {
						h.Nodes[i] = n
					}
				}
			}
			return h, nil
		}}, "valid"},
		{"panics without candidates", funcs{allocate: func(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
			h := pluginapi.Homes{}
			for _, shard := range shards {
				h.Nodes = append(h.Nodes, s.Candidates[int(shard)%len(s.Candidates)])
			}
			return h, nil
		}}, "valid"},
		{"fails where loads are missing", funcs{rebalance: func(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
			if s.Load.Rate == nil {
				return pluginapi.Plan{}, &pluginapi.Failure{Message: "no loads"}
			}
			return pluginapi.Plan{}, nil
		}}, "valid"},
		{"map order", funcs{rebalance: flaw{mapOrder: true}.level}, "deterministic"},
		{"unstable order of equals", funcs{allocate: func(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
			p := s.Placement()
			byCount := map[int]int{} // the last of equals wins, whichever that is
			set := map[int]bool{}
			for _, c := range s.Candidates {
				set[c] = true
			}
			for c := range set {
				byCount[p.Counts[c]] = c
			}
			h := pluginapi.Homes{Nodes: slices.Repeat([]int{pluginapi.NoTarget}, len(shards))}
			for i := range shards {
				least := -1
				for count := range byCount {
					if least < 0 || count < least {
						least = count
					}
				}
				if least >= 0 {
					h.Nodes[i] = byCount[least]
				}
			}
			return h, nil
		}}, "deterministic"},
		{"the process's chance", funcs{allocate: func(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
			return first(s, shards, func(int) int { return rand.IntN(1 << 20) }), nil
		}}, "deterministic"},
		{"goes on where it left off", funcs{allocate: func(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
			return first(s, shards, func(int) int { calls++; return calls }), nil
		}}, "deterministic"},
		{"float drift: an average over calls", funcs{rebalance: flaw{difference: func(s *pluginapi.Snapshot) int {
			average = 0.9*average + 0.1*float64(len(s.Owners))
			return 2 + int(average)
		}}.level}, "deterministic"},
		{"float drift: a sum that depends on the order of busy shards", funcs{rebalance: flaw{difference: func(s *pluginapi.Snapshot) int {
			sum := float32(0)
			for _, b := range s.Busy {
				sum = sum/3 + float32(b.Shard)*0.1
			}
			return 2 + int(sum*10)
		}}.level}, "order"},
		{"sorts the snapshot", funcs{rebalance: func(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
			slices.Sort(s.Owners)
			return pluginapi.Plan{}, nil
		}}, "pure"},
		{"swaps at a difference of 1", funcs{rebalance: flaw{atOne: true}.level}, "oscillates"},
		{"another place each time", funcs{rebalance: func(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
			p := s.Placement()
			for shard, o := range s.Owners {
				if o != pluginapi.NoOwner && p.Movable(uint32(shard)) && len(s.Candidates) > 0 {
					if to := s.Candidates[s.Now/1000%uint64(len(s.Candidates))]; to != int(o) {
						return pluginapi.Plan{Moves: []pluginapi.Move{{Shard: uint32(shard), Target: to}}}, nil
					}
				}
			}
			return pluginapi.Plan{}, nil
		}}, "oscillates"},
		{"frees shards for ever", funcs{rebalance: func(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
			p := s.Placement()
			for shard, o := range s.Owners {
				if o != pluginapi.NoOwner && p.Movable(uint32(shard)) {
					return pluginapi.Plan{Moves: []pluginapi.Move{{Shard: uint32(shard), Target: pluginapi.NoTarget}}}, nil
				}
			}
			return pluginapi.Plan{}, nil
		}}, "oscillates"},
		{"forgets the max_moves that it describes", chattering{funcs{rebalance: flaw{}.level}}, "most-moves"},
	}
}

// Issue 4: seeded faults, each found by Conformance, by the check that is for it, with what would have been right.
func TestConformanceCatchesSeededFaults(t *testing.T) {
	for _, c := range seeded() {
		t.Run(c.name, func(t *testing.T) {
			text, failed := record(t, func(t testing.TB) { harness.Conformance(t, harness.Native(t, "faulty", c.fault)) })
			assert.True(t, failed)
			assert.Contains(t, text, "faulty: "+c.check+": ")
			assert.Contains(t, text, "right would have been: ")
			assert.Contains(t, text, "snapshot: ")
			assert.NotContains(t, text, "[rapid]", "the corners alone find it, so that it is found each time")
		})
	}
}

// The same leveller without a fault passes: what the table finds is the fault.
func TestConformanceTakesTheLevellerWithoutAFault(t *testing.T) {
	harness.Conformance(t, harness.Native(t, "leveller", funcs{rebalance: flaw{}.level}))
}

// What no corner shows drawn clusters do: here a busy shard is moved where there are more than three nodes.
func TestConformanceDrawsClusters(t *testing.T) {
	s := harness.Native(t, "hidden", funcs{rebalance: func(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
		return flaw{busy: len(s.Nodes) > 3}.level(s)
	}})
	faults, err := s.Conform(t.Context(), lab.Corners()...)
	require.NoError(t, err)
	require.Empty(t, faults)
	text, failed := record(t, func(t testing.TB) { harness.Conformance(t, s) })
	assert.True(t, failed)
	assert.Contains(t, text, "hidden: valid: rebalance broke the rule busy: ")
}
