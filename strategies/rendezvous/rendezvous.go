// Package rendezvous places a shard by weighted rendezvous hashing: each candidate draws a number from the shard and its
// own name, and the best draw wins. A candidate wins in proportion to its weight; one that joins takes about its own
// share of the shards, from each of the others, and nothing moves between those; one that goes gives up its own alone.
// It imports pluginapi alone.
//
// A draw is -log2(u) / weight with u uniform in (0, 1], and the smallest wins (exponential variables of that rate: the
// probability to be the smallest is weight / sum of weights). All of it is integer arithmetic, so that a native
// strategy and its wasm agree to the bit: u has 32 bits, the logarithm comes from a table in fixed point, and draws are
// compared by cross-multiplication.
package rendezvous

import (
	"math/bits"

	"github.com/droverhq/drover/pluginapi"
)

// Strategy is the rendezvous strategy. Its zero value is ready.
type Strategy struct{}

// Configure implements pluginapi.Configurer.
func (Strategy) Configure(c pluginapi.Config) error {
	_, err := c.MoveLimits()
	return err
}

// Describe implements pluginapi.Describer.
func (Strategy) Describe() pluginapi.Description {
	return pluginapi.Description{
		Name:    "rendezvous",
		Version: "1",
		Summary: "Weighted rendezvous hashing: shards in proportion to capacity, and a join moves 1/(n+1) of them.",
		Config:  pluginapi.MoveLimitKeys(),
	}
}

// Allocate implements pluginapi.Strategy.
func (Strategy) Allocate(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	p, ring := s.Placement(), newRing(s)
	homes := pluginapi.Homes{Nodes: make([]int, len(shards))}
	for i, shard := range shards {
		node, kept := p.Kept(shard)
		if !kept {
			node = ring.home(shard)
		}
		homes.Nodes[i] = node
	}
	return homes, nil
}

// Rebalance implements pluginapi.Strategy: shards whose home is not their owner move, the lowest first.
func (Strategy) Rebalance(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
	limits, err := s.Config.MoveLimits()
	if err != nil {
		return pluginapi.Plan{}, err
	}
	if reason := s.Hold(); reason != "" {
		return pluginapi.Plan{Reason: reason}, nil
	}
	p, ring := s.Placement(), newRing(s)
	limit := s.MoveLimit(p.Homed, limits)
	var plan pluginapi.Plan
	for shard, owner := range s.Owners {
		if len(plan.Moves) >= limit {
			break
		}
		if owner == pluginapi.NoOwner || !p.Movable(uint32(shard)) {
			continue
		}
		if target := ring.home(uint32(shard)); target != int(owner) {
			plan.Moves = append(plan.Moves, pluginapi.Move{Shard: uint32(shard), Target: target})
		}
	}
	if len(plan.Moves) > 0 {
		plan.Reason = "home changed with the candidates or their weights"
	}
	return plan, nil
}

// ring holds what a draw needs of each candidate.
type ring struct {
	entries []entry
}

type entry struct {
	hash   uint64 // of the name
	weight uint64 // 1 to 2^31-1
	node   int
}

// newRing leaves out candidates of weight 0, unless all are.
func newRing(s *pluginapi.Snapshot) *ring {
	heaviest := uint64(0)
	for _, c := range s.Candidates {
		heaviest = max(heaviest, s.Nodes[c].Weight)
	}
	// A draw of 33 bits times a weight of 31 fits 64 bits.
	shift := max(0, bits.Len64(heaviest)-31)
	r := &ring{entries: make([]entry, 0, len(s.Candidates))}
	for _, c := range s.Candidates {
		weight := s.Nodes[c].Weight
		switch {
		case heaviest == 0:
			weight = 1
		case weight == 0:
			continue
		default:
			weight = max(1, weight>>shift)
		}
		r.entries = append(r.entries, entry{hash: nameHash(s.Nodes[c].Name), weight: weight, node: c})
	}
	return r
}

// home returns the candidate with the smallest draw, ties by order; NoTarget where there is none.
func (r *ring) home(shard uint32) int {
	best := pluginapi.NoTarget
	var bestCost, bestWeight uint64
	salt := mix(uint64(shard) + 0x9e3779b97f4a7c15)
	for i := range r.entries {
		e := &r.entries[i]
		x := (e.hash ^ salt) * 0xff51afd7ed558ccd
		x = (x ^ x>>32) * 0xc4ceb9fe1a85ec53
		u := uint32(x >> 32)
		if best != pluginapi.NoTarget {
			// cost(u) is at least (2^32 - 1 - u) / 32, which spares almost every logarithm.
			if uint64(^u>>5)*bestWeight >= bestCost*e.weight {
				continue
			}
			if c := cost(u); c*bestWeight < bestCost*e.weight {
				best, bestCost, bestWeight = e.node, c, e.weight
			}
			continue
		}
		best, bestCost, bestWeight = e.node, cost(u), e.weight
	}
	return best
}

// fraction is the number of fractional bits of a cost.
const fraction = 27

// cost is -log2((u+1) / 2^32) in fixed point: from 0 for the highest u to 32·2^27 for 0. It never rises with u.
func cost(u uint32) uint64 {
	v := uint64(u) + 1
	exp := uint(bits.Len64(v) - 1) // 0 to 32
	mantissa := v << (32 - exp)    // 1.32: from 2^32 to below 2^33
	i := mantissa >> 24 & 0xff
	low, high := uint64(log2Table[i]), uint64(log2Table[i+1])
	log := low + (high-low)*(mantissa&0xffffff)>>24
	return uint64(32-exp)<<fraction - log
}

// log2Table[i] is log2(1 + i/256) in fixed point.
var log2Table = buildTable()

func buildTable() (table [257]uint32) {
	for i := range table {
		// Digit by digit: squaring a number doubles its logarithm, whose next binary digit is 1 where the square
		// reaches 2.
		x := uint64(256+i) << 23 // 1.31
		log := uint32(0)
		if x == 1<<32 {
			table[i] = 1 << fraction
			continue
		}
		for range fraction {
			x = x * x >> 31
			log <<= 1
			if x >= 1<<32 {
				x >>= 1
				log |= 1
			}
		}
		table[i] = log
	}
	return table
}

// nameHash is FNV-1a, finished by mix: names that differ in their last letter differ in every bit.
func nameHash(name string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 0x100000001b3
	}
	return mix(h)
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
