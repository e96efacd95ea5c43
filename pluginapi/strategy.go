package pluginapi

import "strconv"

// Strategy decides which node hosts which shard. Both methods are pure functions of the snapshot: the same input gives
// the same answer on every node, and nothing survives a call. An error is the strategy's own failure: rebalance then
// makes no move, and allocate falls back to the built-in hash.
type Strategy interface {
	// Allocate finds a home for each of shards. The homes are as many and in the same order.
	Allocate(s *Snapshot, shards []uint32) (Homes, error)
	// Rebalance proposes moves, the most important first: where the host takes fewer, it takes the first ones.
	Rebalance(s *Snapshot) (Plan, error)
}

// Configurer is implemented by a strategy that wants to refuse a bad configuration when it is loaded, before it makes
// its first decision. The configuration is in every snapshot too.
type Configurer interface {
	Configure(c Config) error
}

// Describer is implemented by a strategy that can say what it is.
type Describer interface {
	Describe() Description
}

// Homes answers Allocate.
type Homes struct {
	Nodes   []int    // one a shard asked for, in the same order: a candidate's index, or NoTarget to leave it without a home
	Reasons []string // empty, or one a shard; "" says none
	Reason  string   // of the answer as a whole
}

// Plan answers Rebalance.
type Plan struct {
	Moves  []Move // the most important first
	Reason string // of the plan as a whole
}

// Move proposes another home for a shard.
type Move struct {
	Shard  uint32
	Target int // a candidate's index, or NoTarget: ask Allocate once the shard is free
	Reason string
}

// Description says what a strategy is and what its configuration may hold.
type Description struct {
	Name    string
	Version string
	Summary string
	Config  []ConfigKey
}

// ConfigKey describes one key of a strategy's configuration.
type ConfigKey struct {
	Key     string
	Type    string // "uint", "int", "float", "string", "bool", "list", "table"
	Default any    // nil for none; else bool, int, int64, uint64, float64, string, []any or map[string]any
	Help    string
}

// OneByOne turns a rule that places one shard at a time into a Strategy. Place is called for each shard in turn and
// sees, in the placement, the shards placed before it in the same call.
type OneByOne struct {
	// Place returns the home of one shard: a candidate's index, or NoTarget for none.
	Place func(s *Snapshot, p *Placement, shard uint32) (int, error)
	// Move, where set, is asked for each shard that may move, in ascending order, and returns where it should be: its
	// present node, or NoTarget, to leave it. Its moves end at the host's limit.
	Move func(s *Snapshot, p *Placement, shard uint32) (int, error)
}

// Allocate implements Strategy. It asks Place for each shard whose home is not kept by the host (see Placement.Kept).
func (o OneByOne) Allocate(s *Snapshot, shards []uint32) (Homes, error) {
	p := s.Placement()
	homes := Homes{Nodes: make([]int, len(shards))}
	for i, shard := range shards {
		node, kept := p.Kept(shard)
		if !kept {
			var err error
			if node, err = o.Place(s, p, shard); err == nil {
				err = s.known(shard, node)
			}
			if err != nil {
				return Homes{}, err
			}
		}
		homes.Nodes[i] = node
		p.Put(node)
	}
	return homes, nil
}

// Rebalance implements Strategy. It asks Move, where set, about each shard that may move.
func (o OneByOne) Rebalance(s *Snapshot) (Plan, error) {
	var plan Plan
	if o.Move == nil {
		return plan, nil
	}
	p := s.Placement()
	for shard, owner := range s.Owners {
		if uint64(len(plan.Moves)) >= s.MaxMoves {
			break
		}
		if owner == NoOwner || !p.Movable(uint32(shard)) {
			continue
		}
		target, err := o.Move(s, p, uint32(shard))
		if err == nil {
			err = s.known(uint32(shard), target)
		}
		if err != nil {
			return Plan{}, err
		}
		if target == NoTarget || target == int(owner) {
			continue
		}
		p.Take(int(owner))
		p.Put(target)
		plan.Moves = append(plan.Moves, Move{Shard: uint32(shard), Target: target})
	}
	return plan, nil
}

// known tells whether the node that a strategy chose for a shard is one of the snapshot's, or NoTarget.
func (s *Snapshot) known(shard uint32, node int) error {
	if node == NoTarget || node >= 0 && node < len(s.Nodes) {
		return nil
	}
	return &EncodeError{Path: "shard " + strconv.FormatUint(uint64(shard), 10), Message: outOf("node", node, len(s.Nodes))}
}
