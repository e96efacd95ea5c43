// Package hash places a shard by its number alone: the home of shard s is the candidate at s mod n, candidates in the
// order of their names. It needs no state and no configuration, and every node computes the same home; in exchange a
// join or a leave moves up to nine shards of ten. It imports pluginapi alone, and is also the fallback of a node whose
// strategy failed.
package hash

import "github.com/droverhq/drover/pluginapi"

// Strategy is the hash strategy. Its zero value is ready.
type Strategy struct{}

// Describe implements pluginapi.Describer.
func (Strategy) Describe() pluginapi.Description {
	return pluginapi.Description{
		Name:    "hash",
		Version: "1",
		Summary: "Home is the candidate at shard mod n; a change of membership moves most shards.",
	}
}

// Allocate implements pluginapi.Strategy.
func (Strategy) Allocate(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	p := s.Placement()
	homes := pluginapi.Homes{Nodes: make([]int, len(shards))}
	for i, shard := range shards {
		node, kept := p.Kept(shard)
		if !kept {
			node = home(s, shard)
		}
		homes.Nodes[i] = node
	}
	return homes, nil
}

// Rebalance implements pluginapi.Strategy: every shard whose home under today's candidates is not its owner moves.
func (Strategy) Rebalance(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
	if reason := s.Hold(); reason != "" {
		return pluginapi.Plan{Reason: reason}, nil
	}
	var plan pluginapi.Plan
	p := s.Placement()
	// In rows of one shard a candidate: in a module a division and a look at what may move cost more than the comparison
	// that ends most of them.
	for first := 0; first < len(s.Owners) && uint64(len(plan.Moves)) < s.MaxMoves; first += len(s.Candidates) {
		row := s.Owners[first:min(first+len(s.Candidates), len(s.Owners))]
		for i, target := range s.Candidates[:len(row)] {
			if row[i] == uint32(target) || row[i] == pluginapi.NoOwner || !p.Movable(uint32(first+i)) {
				continue
			}
			if uint64(len(plan.Moves)) >= s.MaxMoves {
				break
			}
			plan.Moves = append(plan.Moves, pluginapi.Move{Shard: uint32(first + i), Target: target})
		}
	}
	if len(plan.Moves) > 0 {
		plan.Reason = "home changed with the candidates"
	}
	return plan, nil
}

func home(s *pluginapi.Snapshot, shard uint32) int {
	if len(s.Candidates) == 0 {
		return pluginapi.NoTarget
	}
	return s.Candidates[shard%uint32(len(s.Candidates))]
}
