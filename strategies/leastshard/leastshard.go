// Package leastshard evens out the number of shards a node, and moves as few as that takes. It imports pluginapi alone.
//
// A rebalance has two phases. First, what a candidate holds above ceil(shards / candidates) is shed, from the fullest
// candidate first and its lowest shards first. Only where nothing can be shed, each of the fullest candidates gives one
// shard to a candidate that has at least two fewer. The fullest are those at the ceiling; where busy, waiting or pinned
// shards alone reach it, they are the fullest below it, for evenness among the others is still worth a move. Where no
// candidate reaches it, nothing moves: the shards of nodes that go will. Every move takes from a candidate at least two
// above its target, so that each makes the sum of squares of the counts smaller: whatever the threshold, no sequence of
// rebalances goes on for ever.
package leastshard

import (
	"slices"
	"strconv"

	"github.com/droverhq/drover/pluginapi"
)

// DefaultThreshold is the threshold of a configuration that names none.
const DefaultThreshold = 1

// Strategy is the leastshard strategy. Its zero value is ready.
type Strategy struct{}

type settings struct {
	threshold uint64
	limits    pluginapi.MoveLimits
}

func read(c pluginapi.Config) (set settings, err error) {
	if set.threshold, err = c.Uint("threshold", DefaultThreshold); err != nil {
		return set, err
	}
	set.limits, err = c.MoveLimits()
	return set, err
}

// Configure implements pluginapi.Configurer.
func (Strategy) Configure(c pluginapi.Config) error {
	_, err := read(c)
	return err
}

// Describe implements pluginapi.Describer.
func (Strategy) Describe() pluginapi.Description {
	return pluginapi.Description{
		Name:    "leastshard",
		Version: "1",
		Summary: "Evens out the number of shards a node with as few moves as that takes.",
		Config: append([]pluginapi.ConfigKey{
			{Key: "threshold", Type: "uint", Default: DefaultThreshold, Help: "nothing moves while the fullest and the emptiest node differ by less; larger means less churn"},
		}, pluginapi.MoveLimitKeys()...),
	}
}

// Allocate implements pluginapi.Strategy: each shard in turn goes to the candidate with the fewest.
func (Strategy) Allocate(s *pluginapi.Snapshot, shards []uint32) (pluginapi.Homes, error) {
	p := s.Placement()
	homes := pluginapi.Homes{Nodes: make([]int, len(shards))}
	// Kept shards first: they are on their way wherever they come in the list.
	for i, shard := range shards {
		node, kept := p.Kept(shard)
		if kept {
			p.Put(node)
		}
		homes.Nodes[i] = node
	}
	queue := newEmptiest(p.Counts, s.Candidates)
	for i, shard := range shards {
		if _, kept := p.Kept(shard); !kept && len(queue.nodes) > 0 {
			homes.Nodes[i] = queue.take()
		}
	}
	return homes, nil
}

// Rebalance implements pluginapi.Strategy.
func (Strategy) Rebalance(s *pluginapi.Snapshot) (pluginapi.Plan, error) {
	set, err := read(s.Config)
	if err != nil {
		return pluginapi.Plan{}, err
	}
	if reason := s.Hold(); reason != "" {
		return pluginapi.Plan{Reason: reason}, nil
	}
	r := rebalance{s: s, p: s.Placement()}
	most, least := r.p.Counts[s.Candidates[0]], r.p.Counts[s.Candidates[0]]
	for _, c := range s.Candidates {
		most, least = max(most, r.p.Counts[c]), min(least, r.p.Counts[c])
	}
	if spread := most - least; spread < 2 || uint64(spread) < set.threshold {
		return pluginapi.Plan{Reason: "even: from " + strconv.Itoa(least) + " to " + strconv.Itoa(most) + " shards a node"}, nil
	}
	if r.limit = s.MoveLimit(r.p.Homed, set.limits); r.limit == 0 {
		return pluginapi.Plan{Reason: "no move is allowed"}, nil
	}
	ceiling := (r.p.Homed + len(s.Candidates) - 1) / len(s.Candidates)
	if most < ceiling {
		// Shards of nodes that drain or go count in the ceiling, and will fill the gaps by themselves.
		return pluginapi.Plan{Reason: "no candidate has its share of " + strconv.Itoa(ceiling) + " shards yet"}, nil
	}
	if moves := r.shed(ceiling); len(moves) > 0 {
		return pluginapi.Plan{Moves: moves, Reason: "shed what is above " + strconv.Itoa(ceiling) + " shards a node"}, nil
	}
	if moves := r.level(); len(moves) > 0 {
		return pluginapi.Plan{Moves: moves, Reason: "from the fullest to those with two or more fewer"}, nil
	}
	return pluginapi.Plan{Reason: "no shard that may move would make it more even"}, nil
}

type rebalance struct {
	s     *pluginapi.Snapshot
	p     *pluginapi.Placement
	limit int // moves, at least 1
}

// shed moves what candidates hold above the ceiling.
func (r *rebalance) shed(ceiling int) []pluginapi.Move {
	counts := r.p.Counts
	var sources, others []int
	for _, c := range r.s.Candidates {
		if counts[c] > ceiling {
			sources = append(sources, c)
		} else {
			others = append(others, c)
		}
	}
	if len(sources) == 0 {
		return nil
	}
	slices.SortStableFunc(sources, func(a, b int) int { return counts[b] - counts[a] })
	quota := make([]int, len(counts))
	for _, c := range sources {
		quota[c] = min(counts[c]-ceiling, r.limit)
	}
	shards := r.lowest(quota)
	queue := newEmptiest(counts, others)
	var moves []pluginapi.Move
	for _, source := range sources {
		for _, shard := range shards[source] {
			if len(moves) == r.limit {
				return moves
			}
			// The source is above the ceiling, so that some candidate is below it: two under the source or more.
			moves = append(moves, pluginapi.Move{Shard: shard, Target: queue.take()})
		}
	}
	return moves
}

// level moves one shard from each of the fullest candidates that have one to give.
func (r *rebalance) level() []pluginapi.Move {
	counts := r.p.Counts
	quota := make([]int, len(counts))
	for _, c := range r.s.Candidates {
		quota[c] = 1
	}
	shards := r.lowest(quota)
	fullest := 0
	for _, c := range r.s.Candidates {
		if len(shards[c]) > 0 {
			fullest = max(fullest, counts[c])
		}
	}
	queue := newEmptiest(counts, r.s.Candidates)
	var moves []pluginapi.Move
	for _, source := range r.s.Candidates {
		if counts[source] != fullest || len(shards[source]) == 0 {
			continue
		}
		if len(moves) == r.limit || counts[source]-queue.least() < 2 {
			break
		}
		moves = append(moves, pluginapi.Move{Shard: shards[source][0], Target: queue.take()})
	}
	return moves
}

// lowest returns, for each node, its lowest shards that may move, as many as its quota; it uses the quota up.
func (r *rebalance) lowest(quota []int) [][]uint32 {
	wanted := 0
	for _, q := range quota {
		wanted += q
	}
	lists := make([][]uint32, len(quota))
	for i, q := range quota {
		lists[i] = make([]uint32, 0, q)
	}
	for shard, owner := range r.s.Owners {
		if owner >= uint32(len(quota)) || quota[owner] == 0 || !r.p.Movable(uint32(shard)) {
			continue
		}
		lists[owner] = append(lists[owner], uint32(shard))
		quota[owner]--
		if wanted--; wanted == 0 {
			break
		}
	}
	return lists
}

// emptiest is a heap of candidates: the one with the fewest shards first, ties by order.
type emptiest struct {
	counts []int // by node index, shared with the placement
	nodes  []int
}

func newEmptiest(counts, candidates []int) *emptiest {
	q := &emptiest{counts: counts, nodes: slices.Clone(candidates)}
	for i := len(q.nodes)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
	return q
}

func (q *emptiest) least() int { return q.counts[q.nodes[0]] }

// take counts one more shard at the emptiest candidate and returns it.
func (q *emptiest) take() int {
	node := q.nodes[0]
	q.counts[node]++
	q.down(0)
	return node
}

func (q *emptiest) before(a, b int) bool {
	if q.counts[a] != q.counts[b] {
		return q.counts[a] < q.counts[b]
	}
	return a < b
}

func (q *emptiest) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(q.nodes) {
			return
		}
		if child+1 < len(q.nodes) && q.before(q.nodes[child+1], q.nodes[child]) {
			child++
		}
		if !q.before(q.nodes[child], q.nodes[i]) {
			return
		}
		q.nodes[i], q.nodes[child] = q.nodes[child], q.nodes[i]
		i = child
	}
}
